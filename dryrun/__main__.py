"""Memory and speed of a transformer model on GPUs, before you have one. No GPU, no weights, no network.

dryrun train llama3-8b --gpu rtx-4090 --lora 16 --checkpointing   # does it fit, how fast is it, what would help
dryrun train path/to/config.json --length 4096                     # memory and FLOPs of a step, without a GPU
dryrun infer llama3-8b --gpu rtx-4090 --weights int4-128           # how many users, how long a context, how fast
dryrun plan llama3-70b --gpu h100-sxm --gpus 16 --checkpointing    # which strategy, and why the others lose
dryrun models qwen                                                 # names that it knows; also: dryrun gpus
dryrun bench --json bench.json                                     # what this machine reaches, for --machine
dryrun validate                                                    # how far off these predictions are
"""

from __future__ import annotations

import argparse
import difflib
import json
import logging
import math
import os
import sys
import warnings

from . import hardware, models
from .formats import WEIGHT_BYTES
from .job import (
    ATTENTIONS,
    LARGEST_COUNT,
    OPTIMIZERS,
    PRECISIONS,
    STRATEGIES,
    Cluster,
    Generation,
    Job,
    model,
    needs_tracing,
)

WITH_GPU = ("lora", "qlora", "compile", "fused_loss", "gpus", "gpus_per_node", "strategy", "link", "network", "adapters",
            "tokens", "price", "largest_batch")  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    os.environ["HF_HUB_OFFLINE"] = "1"  # before transformers is imported
    arguments = sys.argv[1:] if arguments is None else arguments
    parser = _parser()
    if arguments[:1] and not arguments[0].startswith("-") and arguments[0] not in VERBS:
        close = difflib.get_close_matches(arguments[0], [*VERBS, *ELSEWHERE], 1) or ["train"]
        parser.error(f"{arguments[0][:60]!r} is no command: did you mean {close[0]!r}? All: {', '.join([*VERBS, *ELSEWHERE])}")
    try:
        if arguments[:1] and arguments[0] in ELSEWHERE:
            return ELSEWHERE[arguments[0]](arguments[1:])
        options = parser.parse_args(arguments)
        print(VERBS[options.verb](options))
    except (ValueError, ModuleNotFoundError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; nothing was written but finished traces", file=sys.stderr)
        return 130
    return 0


def train(options: argparse.Namespace) -> str:
    """Whether a training step fits, how fast it is and what would help; without a GPU its memory and FLOPs."""
    if options.price and not options.tokens:
        raise ValueError("--price: of how much training? Add --tokens, such as --tokens 1e9")
    if not (options.gpu or options.machine):
        return _traced(options)
    constants = _of_machine(options) if options.machine else None
    cluster = _cluster(options)  # before the seconds that a trace takes
    job = _job(options)
    needs_tracing()
    from . import answer, report

    _quiet()
    with _named(job):
        now = answer.of_job(job, cluster, options.strategy, constants)
        found = answer.changes(now)
        largest = answer.largest_batch(job, cluster, options.strategy) if options.largest_batch else None
    if options.json:
        return _json(report.step_json(now, found) | ({} if largest is None else {"largest_batch": largest}))
    bill = report.bill(now, options.tokens, options.price) if options.tokens else ()
    return "\n".join(report.step(now, found, [*report.largest(largest), *bill]))


def _traced(options):
    if alone := _given(options, WITH_GPU):
        raise ValueError(f"{alone}: it needs a GPU to answer for: add --gpu, such as --gpu rtx-4090")
    job = _job(options)
    needs_tracing()
    from . import report, trace

    _quiet()
    found = trace(job)
    return _json(report.traced_json(found, job)) if options.json else "\n".join(report.traced_step(found, job))


def infer(options: argparse.Namespace) -> str:
    """Whether generated text fits, for how many users, how long a context, and how fast it is."""
    cluster = _cluster(options)
    asked = Generation(options.model, options.prompt, options.new, options.batch, options.weights)
    needs_tracing()
    from . import inference, report

    _quiet()
    with _named(asked):
        found = inference.serve(asked, cluster)
        return _json(report.served_json(found)) if options.json else "\n".join(report.served(found))


def plan(options: argparse.Namespace) -> str:
    """Every strategy on these GPUs, and why each loses."""
    cluster, job = _cluster(options), _job(options)
    needs_tracing()
    from . import planner, report

    _quiet()
    with _named(job):
        found = planner.of_job(job, cluster, options.only)
    return _json(report.options_json(found)) if options.json else "\n".join(report.options(found, job, cluster))


def list_models(options: argparse.Namespace) -> str:
    """The names that are known, or those that hold a word."""
    found = {name: address for name, address in models.addresses().items() if options.word.lower() in f"{name} {address}".lower()}
    if not found:
        raise ValueError(f"no name holds {options.word!r}: `dryrun models` lists all. Any config.json is taken too")
    if options.json:
        return _json(found)
    width = max(map(len, found))
    return "\n".join(f"{name:{width}}  {address}" for name, address in found.items())


def list_gpus(options: argparse.Namespace) -> str:
    """The GPUs that are known, or those that hold a word."""
    rows = {}
    for key, row in hardware.ACCELERATORS.items():
        if row.product and options.word.lower() in " ".join((key, row.label, row.name, *row.aliases)).lower():
            rows[key] = {"label": row.label, "memory_gib": row.bytes and row.bytes / hardware.GiB,
                         "bandwidth_gb_per_s": row.get("bandwidth"), "tflops_16_bit": row.half}  # fmt: skip
    if not rows:
        raise ValueError(f"no name holds {options.word!r}: `dryrun gpus` lists all")
    if options.json:
        return _json(rows)
    lines = [f"{'name':22}{'':30}{'GiB':>8}{'GB/s':>8}{'TFLOP/s, 16-bit':>18}"]
    for key, row in rows.items():
        shown = (f"{value:,.4g}" if (value := row[name]) else "–" for name in ("memory_gib", "bandwidth_gb_per_s", "tflops_16_bit"))
        memory, bandwidth, peak = shown
        lines.append(f"{key:22}{row['label']:30}{memory:>8}{bandwidth:>8}{peak:>18}")
    return "\n".join(lines)


VERBS = {"train": train, "infer": infer, "plan": plan, "models": list_models, "gpus": list_gpus}


def _bench(arguments):
    from . import bench

    return bench.main(arguments)


def _fit(arguments):
    argparse.ArgumentParser(prog="dryrun fit").parse_args(arguments)
    from . import fit, judged, published

    fit.main()
    judged.write(published.rows())
    return 0


def _validate(arguments):
    parser = argparse.ArgumentParser(prog="dryrun validate")
    parser.add_argument("--rows", metavar="FILE", help="measurements in the schema of dryrun/data/published.json")
    parser.add_argument("--plan", action="store_true", help="compare plans with published strategies")
    options = parser.parse_args(arguments)
    needs_tracing()
    if options.plan:
        from . import validate_plan

        return validate_plan.main()
    from . import validate

    return validate.main(options.rows)


ELSEWHERE = {"bench": _bench, "validate": _validate, "fit": _fit}  # with parsers of their own


class _named:
    """Names the model in whatever its own code raises on values that make no sense."""

    def __init__(self, asked):
        self.name = asked.model.name

    def __enter__(self):
        return self

    def __exit__(self, kind, error, _):
        if isinstance(error, Exception) and not isinstance(error, ValueError):
            from .config_file import one_line

            raise ValueError(f"{self.name}: it cannot be traced: {one_line(error)}") from error


def _quiet():
    from transformers import logging

    logging.set_verbosity_error()


def _json(found):
    return json.dumps(found, indent=1)


def _of_machine(options):
    """Constants that `bench` measured; the GPU and the link that it names go into the options."""
    from . import own_machine, timing

    found = own_machine.read(options.machine)
    if options.gpu and hardware.accelerator(options.gpu).key != found["gpu"]:
        raise ValueError(f"--gpu {options.gpu}: {options.machine} was measured on {found['gpu']}: leave --gpu out")
    options.gpu = found["gpu"]
    options.link = options.link or own_machine.link(found) / 1e9 or None
    return own_machine.own_constants(found, timing.fitted()["constants"])


def _cluster(options):
    from . import roofline

    given = {name: getattr(options, name) for name in ("gpus_per_node", "link", "network", "adapters") if hasattr(options, name)}
    cluster = Cluster(options.gpu, options.gpus, host_memory_gb=getattr(options, "host_memory", None), **given)
    roofline.processor(cluster.gpu.key)  # ValueError where no time is predicted for it
    return cluster


def _job(options):
    method = "qlora" if options.qlora else "lora" if options.lora else "full"
    return Job(
        model=model(options.model),
        batch=options.batch,
        length=options.length,
        precision=options.dtype,
        method=method,
        rank=options.qlora or options.lora or 16,
        optimizer=options.optimizer,
        accumulation=options.accumulation,
        checkpointing=options.checkpointing,
        attention=options.attention,
        compiled=options.compile,
        fused_loss=options.fused_loss,
    )


def _given(options, names):
    """The first of these options that was given, as it is typed; None where none was."""
    defaults = _parser().parse_args(["train", "gpt2"])
    changed = (name for name in names if getattr(options, name) != getattr(defaults, name))
    return next((f"--{name.replace('_', '-')}" for name in changed), None)


def _link(text):
    """GB/s, or a name of `hardware.LINKS`."""
    if text in hardware.LINKS:
        return text
    close = difflib.get_close_matches(text, hardware.LINKS, 1, 0.5)
    return _above_zero(text, f"GB/s above 0, as a test of it measured them, or a name: {close[0] if close else '100 GbE'!r}")


def _above_zero(text, meant="a number above 0"):
    try:
        value = float(text.replace("_", "").replace(",", ""))
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text[:30]!r}: give {meant}")
    return value


def _positive(text):
    if not text.isdecimal() or not 1 <= int(text) <= LARGEST_COUNT:
        raise argparse.ArgumentTypeError(f"{text[:30]!r}: give a whole number from 1 to {LARGEST_COUNT:,}")
    return int(text)


class _Parser(argparse.ArgumentParser):
    """Says in one line what is wrong."""

    def error(self, message):
        print(f"error: {message} (all options: {self.prog} --help)", file=sys.stderr)
        sys.exit(2)


def _parser():
    parser = _Parser(
        prog="dryrun", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="COMMAND")
    for name, summary in (
        ("train", "does a training step fit, how fast is it, what would help"),
        ("infer", "does generated text fit, for how many users, how fast"),
        ("plan", "which strategy on these GPUs, and why the others lose"),
    ):
        verb = verbs.add_parser(name, help=summary, description=summary)
        verb.add_argument("model", help="a name (`dryrun models`), a config.json, or the folder that holds it")
        _of_gpus(verb, name)
        if name == "infer":
            _of_generation(verb)
        else:
            _of_step(verb)
        verb.add_argument("--json", action="store_true", help="print JSON")
    for name, what in (("models", "models"), ("gpus", "GPUs")):
        verb = verbs.add_parser(name, help=f"the {what} that are known by name")
        verb.add_argument("word", nargs="?", default="", help="only names that hold it")
        verb.add_argument("--json", action="store_true", help="print JSON")
    for name, summary in (("bench", "measure this machine"), ("validate", "the errors of these predictions")):
        verbs.add_parser(name, help=summary)
    return parser


def _of_gpus(verb, name):
    group = verb.add_argument_group("where it runs")
    group.add_argument("--gpu", required=name != "train", help="rtx-4090, l4, t4, a100-sxm4-80, ... (`dryrun gpus`)")
    group.add_argument("--gpus", type=_positive, default=1, help="how many (default: 1)")
    if name == "infer":
        return
    group.add_argument("--gpus-per-node", type=_positive, default=8, help="(default: 8)")
    group.add_argument("--link", type=_link, metavar="GB/S", help="between GPUs of a node, in one direction: measured, or a name")
    group.add_argument("--network", type=_link, metavar="GB/S", help="of one adapter to other nodes: measured, or a name")
    group.add_argument("--adapters", type=_positive, default=1, help="network adapters of a node, where --network is given (default: 1)")
    if name == "plan":
        group.add_argument("--host-memory", type=_above_zero, metavar="GB", help="of each node, for strategies with offload")
        group.add_argument("--only", metavar="STRATEGY", help="one strategy alone, such as FSDP2")
        return
    group.add_argument("--strategy", choices=STRATEGIES, default="fsdp2", help="of many GPUs (default: fsdp2)")
    group.add_argument("--machine", metavar="FILE", help="rates of this machine, by dryrun bench --json; in place of --gpu")
    group.add_argument("--largest-batch", action="store_true", help="the most sequences of a micro-batch that fit: some traces more")
    group.add_argument("--tokens", type=_above_zero, metavar="N", help="hours for so many tokens, such as 1e9")
    group.add_argument("--price", type=_above_zero, metavar="MONEY", help="of one GPU for an hour, with --tokens: the cost")


def _of_step(verb):
    group = verb.add_argument_group("what runs")
    group.add_argument("--batch", type=_positive, default=1, help="sequences of a GPU in a micro-batch (default: 1)")
    group.add_argument("--length", "--sequence", type=_positive, default=2048, help="tokens of a sequence (default: 2048)")
    group.add_argument("--accumulation", type=_positive, default=1, help="micro-batches of a step (default: 1)")
    group.add_argument("--dtype", choices=PRECISIONS, default="bf16", help="of the weights; mixed: fp32 weights, bf16 autocast")
    group.add_argument("--checkpointing", action="store_true", help="activation checkpointing in every layer")
    group.add_argument("--optimizer", choices=OPTIMIZERS, default="adamw")
    group.add_argument("--attention", choices=ATTENTIONS, default="auto", help="kernel (default: what CUDA chooses)")
    adapters = group.add_mutually_exclusive_group()
    adapters.add_argument("--lora", type=_positive, nargs="?", const=16, metavar="RANK", help="adapters on every linear layer (rank: 16)")
    adapters.add_argument("--qlora", type=_positive, nargs="?", const=16, metavar="RANK", help="and weights in 4 bits (rank: 16)")
    group.add_argument("--compile", action="store_true", help="torch.compile")
    group.add_argument("--fused-loss", action="store_true", help="a cross entropy that keeps no logits")


def _of_generation(verb):
    group = verb.add_argument_group("what runs")
    group.add_argument("--prompt", type=_positive, default=1024, help="tokens of a prompt (default: 1024)")
    group.add_argument("--new", type=_positive, default=256, help="tokens of an answer (default: 256)")
    group.add_argument("--batch", type=_positive, default=1, help="sequences at once (default: 1)")
    group.add_argument("--weights", choices=WEIGHT_BYTES, default="bf16", help="format of the weights (default: bf16)")


def command() -> None:
    """The console script. Libraries that are imported on the way warn of what is nothing to this command."""
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    sys.exit(main())


if __name__ == "__main__":
    command()
