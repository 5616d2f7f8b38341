"""The options of the command line: their names, what they take and what they say of nonsense."""

from __future__ import annotations

import argparse
import difflib
import math
import re
from functools import cache

from ..answer.arguments import Parser
from ..answer.job import ATTENTIONS, FASTEST, LARGEST_COUNT, OBJECTIVES, PRECISIONS, PUBLISHED, SLOWEST
from ..cost.ran import WRITTEN, Ran
from ..tables import hardware
from ..tables.formats import CALLED, WEIGHT_BYTES
from ..tables.optimizers import OPTIMIZERS
from ..tables.strategies import STRATEGIES


def _link(text: str) -> float | str:
    """GB/s, or a name of `hardware.LINKS`."""
    if text in hardware.LINKS:
        return text
    close = difflib.get_close_matches(text, hardware.LINKS, 1, 0.5)
    meant = f"GB/s from {SLOWEST:g} to {FASTEST:,}, as a test of it measured them, or a name: {close[0] if close else '100 GbE'!r}"
    return _between(text, SLOWEST, FASTEST, meant)


def _above_zero(text: str, meant: str = "a number above 0") -> float:
    value = _number(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text[:30]!r}: give {meant}")
    return value


def _number(text: str) -> float:
    """With commas between thousands alone: in "1,5" somebody means a point."""
    if re.fullmatch(r"\s*\d+,\d{1,2}\s*", text):
        raise argparse.ArgumentTypeError(f"{text[:30]!r}: a comma stands between thousands: write {text.strip().replace(',', '.')}")
    if "," in text and not re.fullmatch(r"\s*\d{1,3}(,\d{3})+(\.\d*)?\s*", text):
        return math.nan
    try:
        return float(text.replace("_", "").replace(",", ""))
    except ValueError:
        return math.nan


def _between(text: str, least: float, most: float, meant: str) -> float:
    value = _number(text)
    if not least <= value <= most:
        raise argparse.ArgumentTypeError(f"{text[:30]!r}: give {meant}")
    return value


def _price(text: str) -> float:
    return _between(text, 1e-6, 1e9, "the money for one GPU and hour, such as 2.5")


def _epochs(text: str) -> float:
    return _between(text, 1e-6, 1e6, "how often, such as 3, at most a million times")


def _gpu(text: str) -> str:
    if not text.strip():
        raise argparse.ArgumentTypeError("it is empty: is the variable that holds the name set? Give a name, such as rtx-4090")
    return text


MOST_TOKENS = 1e18
AMOUNTS = {"k": 1e3, "thousand": 1e3, "m": 1e6, "million": 1e6, "b": 1e9, "billion": 1e9, "t": 1e12, "trillion": 1e12}


def _amount(text: str) -> float:
    """A number with K, M, B or T behind it, or thousand to trillion: 20B, 1.5 million."""
    found = re.fullmatch(rf"\s*([\d.,_]+)\s*({'|'.join(AMOUNTS)})\s*", text.lower())
    value = _number(found[1]) * AMOUNTS[found[2]] if found else _number(text)
    if not 1 <= value <= MOST_TOKENS:
        raise argparse.ArgumentTypeError(f"{text[:30]!r}: give tokens, such as 1e9 or 20B, at least 1 and at most {MOST_TOKENS:g}")
    return value


def _positive(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= LARGEST_COUNT:
        raise argparse.ArgumentTypeError(f"{text[:30]!r}: give a whole number from 1 to {LARGEST_COUNT:,}")
    return int(text)


def _ran(text: str) -> Ran:
    try:
        return Ran.read(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text[:30]!r}: give what --measured printed, {WRITTEN}") from None


UNLESS = ("fits", "may-fit")


@cache
def parser(description: str | None) -> argparse.ArgumentParser:
    """The parser of all commands but those with parsers of their own."""
    from .. import __version__  # not above: `command` first asks whether this package is ours

    parser = Parser(prog="dryrun", description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", action="version", version=f"dryrun {__version__}")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="COMMAND")
    for name, summary in (
        ("train", "does a training step fit, how fast is it, what would help"),
        ("infer", "does generated text fit, for how many users, how fast"),
        ("plan", "which strategy on these GPUs, and why the others lose"),
    ):
        verb = verbs.add_parser(name, help=summary, description=summary)
        verb.add_argument("model", help="a name (`dryrun models`), a config.json or its folder, or sizes: llama:layers=24,hidden=2048,...")
        _of_gpus(verb, name)
        if name == "infer":
            _of_generation(verb)
        else:
            _of_step(verb)
        verb.add_argument("--json", action="store_true", help="print JSON")
        verb.add_argument("--fail-unless", choices=UNLESS, help="exit with 1 where it does not fit for sure (fits), or cannot fit (may-fit)")
    for name, what in (("models", "models"), ("gpus", "GPUs")):
        verb = verbs.add_parser(name, help=f"the {what} that are known by name")
        verb.add_argument("word", nargs="?", default="", help="only names that hold it")
        verb.add_argument("--json", action="store_true", help="print JSON")
    for name, summary in (("bench", "measure this machine"), ("validate", "the errors of these predictions")):
        verbs.add_parser(name, help=summary)
    return parser


def _of_gpus(verb: argparse.ArgumentParser, name: str) -> None:
    group = verb.add_argument_group("where it runs")
    group.add_argument("--gpu", type=_gpu, required=name != "train", help="rtx-4090, l4, t4, a100-sxm4-80, ... (`dryrun gpus`)")
    group.add_argument("--gpus", type=_positive, default=1, help="how many (default: 1)")
    if name == "infer":
        group.add_argument("--price", type=_price, metavar="MONEY", help="of one GPU for an hour: the cost of a million tokens")
        group.add_argument("--memory", type=_above_zero, metavar="GB", help="of a Mac, GB10 or Strix Halo, where CPU and GPU share it (default: the largest sold)")
        return
    group.add_argument("--gpus-per-node", type=_positive, default=8, help="(default: 8)")
    group.add_argument("--link", type=_link, metavar="GB/S", help="between GPUs of a node, in one direction: measured, or a name")
    group.add_argument("--network", type=_link, metavar="GB/S", help="of one adapter to other nodes: measured, or a name")
    group.add_argument("--adapters", type=_positive, default=1, help="network adapters of a node, where --network is given (default: 1)")
    group.add_argument("--ran", type=_ran, metavar="KIND:TIMES", help="a step that you ran there, as --measured of train prints it: others of its kind follow")
    if name == "plan":
        group.add_argument("--host-memory", type=_above_zero, metavar="GB", help="of each node, for strategies with offload")
        group.add_argument("--launch", metavar="FILE", help="write the configuration of accelerate launch for the first strategy")
        group.add_argument("--virtual-stages", type=_positive, default=1, help="groups of layers of each stage of a pipeline, interleaved (default: 1)")
        group.add_argument("--only", metavar="STRATEGY", help="one strategy alone, such as FSDP2")
        return
    group.add_argument("--strategy", choices=STRATEGIES, default="fsdp2", help="of many GPUs (default: fsdp2)")
    group.add_argument("--machine", metavar="FILE", help="rates of this machine, by dryrun bench --json; in place of --gpu")
    group.add_argument("--measured", type=_above_zero, metavar="TOKENS/S", help="of all GPUs, where you ran this very step: what that says of others")
    group.add_argument("--largest-batch", action="store_true", help="the most sequences of a micro-batch that fit: some traces more")
    group.add_argument("--tokens", type=_amount, metavar="N", help="hours for so many tokens, such as 1e9 or 20B")
    group.add_argument("--rows", type=_positive, metavar="N", help="hours for so many examples, each of --length tokens")
    group.add_argument("--epochs", type=_epochs, default=1.0, help="how often, with --tokens or --rows (default: 1)")
    group.add_argument("--price", type=_price, metavar="MONEY", help="of one GPU for an hour, with --tokens or --rows: the cost")


def _of_step(verb: argparse.ArgumentParser) -> None:
    group = verb.add_argument_group("what runs")
    group.add_argument("--batch", type=_positive, default=1, help="sequences of a GPU in a micro-batch (default: 1)")
    group.add_argument("--length", "--sequence", type=_positive, default=2048, help="tokens of a sequence (default: 2048)")
    group.add_argument("--accumulation", type=_positive, default=1, help="micro-batches of a step (default: 1)")
    group.add_argument("--dtype", choices=PRECISIONS, default="bf16", help="of the weights; mixed: fp32 weights, bf16 autocast")
    group.add_argument("--checkpointing", action="store_true", help="activation checkpointing in every layer")
    group.add_argument("--optimizer", choices=OPTIMIZERS, default="adamw")
    group.add_argument("--objective", choices=OBJECTIVES, default="sft", help="dpo: a sequence is a pair then; grpo: give --new (default: sft)")
    group.add_argument("--new", type=_positive, default=0, help="of grpo: tokens of a sequence that are written, at its end")
    group.add_argument("--attention", choices=ATTENTIONS, default="auto", help="flash: of FlashAttention's library; eager writes all scores (default: what CUDA chooses)")
    adapters = group.add_mutually_exclusive_group()
    adapters.add_argument("--lora", type=_positive, nargs="?", const=16, metavar="RANK", help="adapters on every linear layer (rank: 16)")
    adapters.add_argument("--qlora", type=_positive, nargs="?", const=16, metavar="RANK", help="and weights in 4 bits (rank: 16)")
    group.add_argument("--compile", action="store_true", help="torch.compile")
    group.add_argument("--fused-loss", action="store_true", help="a cross entropy that keeps no logits")


def _of_generation(verb: argparse.ArgumentParser) -> None:
    group = verb.add_argument_group("what runs")
    group.add_argument("--prompt", type=_positive, default=1024, help="tokens of a prompt (default: 1024)")
    group.add_argument("--new", type=_positive, default=256, help="tokens of an answer (default: 256)")
    group.add_argument("--batch", type=_positive, default=1, help="sequences at once (default: 1)")
    group.add_argument(
        "--weights", type=lambda given: CALLED.get(given.lower(), given.lower()), choices=(PUBLISHED, *WEIGHT_BYTES), default=PUBLISHED,
        help="format of the weights (default: as the checkpoint is published, else bf16); awq and gptq are int4-128, gguf is q4_k_m",
    )  # fmt: skip


def first_given(options: argparse.Namespace, names: tuple[str, ...]) -> str | None:
    """The first of these options of `train` that was given, as it is typed; None where none was."""
    defaults = parser("").parse_args(["train", "gpt2"])
    changed = (name for name in names if getattr(options, name) != getattr(defaults, name))
    return next((f"--{name.replace('_', '-')}" for name in changed), None)
