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
import contextlib
import difflib
import json
import logging
import os
import signal
import sys
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..answer.arguments import Parser
from ..answer.job import Cluster, Generation, Job, model
from ..answer.verdict import SHORT
from ..models import models
from ..models.config_file import named, needs_tracing
from ..tables import hardware
from .options import UNLESS, first_given, parser

if TYPE_CHECKING:
    from ..answer.planner import Option

WITH_GPU = ("lora", "qlora", "compile", "fused_loss", "gpus", "gpus_per_node", "strategy", "link", "network", "adapters",
            "tokens", "rows", "epochs", "price", "largest_batch", "objective", "new", "fail_unless")  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error")  # before transformers is imported
    arguments = sys.argv[1:] if arguments is None else arguments
    known = parser(__doc__)
    try:
        if arguments[:1] and not arguments[0].startswith("-") and arguments[0] not in {**VERBS, **ELSEWHERE}:
            close = difflib.get_close_matches(arguments[0], [*VERBS, *ELSEWHERE], 1) or ["train"]
            known.error(f"{arguments[0][:60]!r} is no command: did you mean {close[0]!r}? All: {', '.join([*VERBS, *ELSEWHERE])}")
        if arguments[:1] and arguments[0] in ELSEWHERE:
            return ELSEWHERE[arguments[0]](arguments[1:])
        options = known.parse_args(arguments)
        print(VERBS[options.verb](options), flush=True)
    except NotMet as unmet:
        print(unmet.answer, flush=True)
        print(f"--fail-unless {unmet}", file=sys.stderr)
        return 1
    except (ValueError, ModuleNotFoundError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; nothing was written but finished traces", file=sys.stderr)
        return 130
    return 0


class NotMet(Exception):
    """What `--fail-unless` asks for is not the case."""

    def __init__(self, wanted: str, verdict: str, answer: str) -> None:
        super().__init__(f"{wanted}: {verdict}")
        self.answer = answer


def _judged(options: argparse.Namespace, fits: bool, may_fit: bool, answer: str) -> str:
    """The answer; `NotMet` where it is not what `--fail-unless` asks for."""
    wanted = options.fail_unless
    if wanted and not (fits or wanted == UNLESS[1] and may_fit):
        raise NotMet(wanted, SHORT["maybe" if may_fit else "no"], answer)
    return answer


def train(options: argparse.Namespace, whole: bool = True) -> str:
    """Whether a training step fits, how fast it is and what would help; without a GPU its memory and FLOPs.

    whole: whether to look for what would help, and for the largest batch, which takes most of the time."""
    if options.tokens and options.rows:
        raise ValueError("--tokens and --rows: both say how much is trained: give one")
    tokens = options.epochs * (options.tokens or (options.rows or 0) * options.length * (2 if options.objective == "dpo" else 1))
    for given, name in ((options.price, "--price"), (options.epochs != 1, "--epochs")):
        if given and not tokens:
            raise ValueError(f"{name}: of how much training? Add --tokens, such as --tokens 1e9, or --rows, such as --rows 10000")
    if not (options.gpu or options.machine):
        return _traced(options)
    if options.machine and options.objective == "grpo":
        raise ValueError("--machine: its rates are of training steps, and grpo writes answers too: name a GPU by --gpu")
    constants = _of_machine(options) if options.machine else None
    cluster = cluster_of(options)  # before the seconds that a trace takes
    job = job_of(options)
    from ..answer import answer
    from . import as_json, report

    with named(job.model.name):
        now = answer.of_job(job, cluster, options.strategy, constants)
        found = answer.changes(now) if whole else []
        largest = answer.largest_batch(job, cluster, options.strategy) if options.largest_batch and whole else None
    if options.json:
        more: dict[str, float] = {} if largest is None else {"largest_batch": largest}
        text = _json(as_json.step(now, found) | more | (as_json.bill(now, tokens, options.price) if tokens else {}))
    else:
        bill = report.bill(now, tokens, options.price) if tokens else ()
        text = "\n".join(report.step(now, found, [*report.largest(largest), *bill]))
    return _judged(options, now.fits, now.needed.expected <= answer.usable(now.setting.gpu), text)


def _traced(options: argparse.Namespace) -> str:
    if alone := first_given(options, WITH_GPU):
        raise ValueError(f"{alone}: it needs a GPU to answer for: add --gpu, such as --gpu rtx-4090")
    job = job_of(options)
    from ..answer.job_trace import trace_of
    from . import as_json, report

    found = trace_of(job)
    return _json(as_json.traced(found, job)) if options.json else "\n".join(report.traced_step(found, job))


def infer(options: argparse.Namespace) -> str:
    """Whether generated text fits, for how many users, how long a context, and how fast it is."""
    cluster, asked = cluster_of(options), generation_of(options)
    from ..answer import inference
    from . import as_json, report

    with named(asked.model.name):
        found = inference.serve(asked, cluster)
        text = _json(as_json.served(found, options.price)) if options.json else "\n".join(report.served(found, options.price))
    return _judged(options, found.fits, found.verdict.fit != "no", text)


def plan(options: argparse.Namespace) -> str:
    """Every strategy on these GPUs, and why each loses."""
    cluster, job = cluster_of(options), job_of(options)
    from ..answer import planner
    from . import as_json, report

    with named(job.model.name):
        found = planner.of_job(job, cluster, options.only, options.virtual_stages)
    if options.launch:
        _write(options.launch, found[0])
    text = _json(as_json.options(found)) if options.json else "\n".join(report.options(found, job, cluster))
    may_fit = any(one.needed.expected <= one.size and one.fits_host for one in found)
    return _judged(options, any(one.fits for one in found), may_fit, text)


def _write(path: str, option: Option) -> None:
    from . import launch

    text = launch.file_of(option)
    if text is None:
        raise ValueError(f"--launch {path}: {option.strategy} is not set up by a file alone: {launch.command(option)}")
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise ValueError(f"--launch {path}: it cannot be written: {error.strerror}") from None


def list_models(options: argparse.Namespace) -> str:
    """The names that are known, or those that hold a word."""
    found = models.holding(options.word)
    if not found:
        raise ValueError(f"no name holds {options.word!r}: `dryrun models` lists all. Any config.json is taken too")
    if options.json:
        return _json(found)
    width = max(map(len, found))
    return "\n".join(f"{name:{width}}  {address}" for name, address in found.items())


def list_gpus(options: argparse.Namespace) -> str:
    """The GPUs that are known, or those that hold a word."""
    rows: dict[str, Any] = {}
    for row in hardware.sold(options.word):
        rows[row.key] = {"label": row.label, "memory_gib": row.bytes and row.bytes / hardware.GiB,
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


def _bench(arguments: list[str]) -> int:
    needs_tracing()
    from ..answer import bench

    return bench.main(arguments)


def _validate(arguments: list[str]) -> int:
    parser = Parser(prog="dryrun validate")
    parser.add_argument("--rows", metavar="FILE", help="measurements in the schema of fitting/data/published.json")
    parser.add_argument("--plan", action="store_true", help="compare plans with published strategies")
    options = parser.parse_args(arguments)
    if find_spec("fitting") is None:  # it comes with the repository, and not with the package
        if options.rows or options.plan:
            raise ModuleNotFoundError("--rows and --plan judge published rows, which are in the repository: run it in a clone of it")
        from . import report

        print("\n".join(report.errors()))
        return 0
    needs_tracing()
    if options.plan:
        from fitting import validate_plan

        return validate_plan.main()
    from fitting import validate

    return validate.main(options.rows)


ELSEWHERE = {"bench": _bench, "validate": _validate}  # with parsers of their own


def _json(found: Any) -> str:
    return json.dumps(found, indent=1, allow_nan=False)


def _of_machine(options: argparse.Namespace) -> dict[str, float]:
    """Constants that `bench` measured; the GPU and the link that it names go into the options."""
    from ..answer import own_machine
    from ..cost import timing

    found = own_machine.read(options.machine)
    if options.gpu and hardware.accelerator(options.gpu).key != found["gpu"]:
        raise ValueError(f"--gpu {options.gpu}: {options.machine} was measured on {found['gpu']}: leave --gpu out")
    options.gpu = found["gpu"]
    options.link = options.link or own_machine.link(found) / 1e9 or None
    return own_machine.own_constants(found, timing.fitted()["constants"])


def cluster_of(options: argparse.Namespace) -> Cluster:
    """Where the options run."""
    from ..cost import roofline

    given = {name: getattr(options, name) for name in ("gpus_per_node", "link", "network", "adapters") if hasattr(options, name)}
    host, memory = getattr(options, "host_memory", None), getattr(options, "memory", None)
    cluster = Cluster(options.gpu, options.gpus, host_memory_gb=host, memory_gb=memory, **given)
    if options.verb == "infer" and cluster.gpu.shares_memory:
        return cluster
    roofline.processor(cluster.gpu)  # ValueError where no time is predicted for it
    return cluster


def job_of(options: argparse.Namespace) -> Job:
    """What the options run."""
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
        objective=options.objective,
        new=options.new,
    )


def generation_of(options: argparse.Namespace) -> Generation:
    """What the options of `infer` generate."""
    return Generation(options.model, options.prompt, options.new, options.batch, options.weights)


STRANGER = """error: {folder}/__init__.py is not ours: the package `dryrun` on PyPI, which is another project, has a folder of the same name. \
Fix: pip uninstall -y dryrun gpu-dryrun, then install gpu-dryrun again"""


def command() -> None:
    """The console script. Libraries that are imported on the way warn of what is nothing to this command."""
    if not hasattr(sys.modules["dryrun"], "predict"):
        sys.exit(STRANGER.format(folder=Path(__file__).parents[1]))
    signal.signal(signal.SIGINT, signal.default_int_handler)  # `dryrun.__init__` had it end without a traceback
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, ValueError):
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]  # a terminal of ASCII gets a ? for a dash
    try:
        sys.exit(main())
    except OSError as error:  # of `dryrun ... | head`, or on a full disk
        if not isinstance(error, BrokenPipeError):
            with contextlib.suppress(OSError):
                print(f"error: the answer cannot be written: {error.strerror}", file=sys.stderr, flush=True)
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


if __name__ == "__main__":
    command()
