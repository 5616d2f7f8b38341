"""Memory, seconds and tokens per second of a transformer model on GPUs, before you have one.

    from dryrun import Cluster, Generation, Job, plan, predict

    job = Job("llama3-8b", method="lora", checkpointing=True)
    answer = predict(job, Cluster("rtx-4090"))
    answer.verdict, answer.prediction.tokens_per_second   # does it fit, and how fast is it
    plan(Job("llama3-70b", checkpointing=True), Cluster("h100-sxm", gpus=16))[0].strategy
    predict(Generation("llama3-8b", weights="int4-128"), Cluster("rtx-4090")).users
    known_models("qwen"), known_gpus("a100")   # names that it knows

The model's own code runs on tensors without data. No GPU, no weights, no network. `dryrun.tracing` traces a step of any transformers
class, and `dryrun.tracing.ranks` that of one rank of many. Everything else in this package is internal.

Its rooms, each of which imports from those before it alone: `tables`, `models`, `step`, `tracing`, `cost`, `answer`, `door`.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, overload

if Path(sys.argv[0] if sys.argv else "").stem == "dryrun" or ("-m", "dryrun") in zip(sys.orig_argv, sys.orig_argv[1:], strict=False):
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C while the command imports ends it without a traceback

from .answer.job import Cluster, Generation, Job, Model, gpu, model
from .answer.verdict import Verdict
from .models.config_file import named, needs_tracing
from .tables.refusal import Refusal

if TYPE_CHECKING:
    from .answer.answer import Answer
    from .answer.inference import Served
    from .answer.own_run import Comparison
    from .answer.planner import Option
    from .step.memory_trace import Trace
    from .tables.hardware import Accelerator

__version__ = "0.1.0"
__all__ = [
    "Cluster", "Generation", "Job", "Model", "Refusal", "Verdict", "compare", "gpu", "known_gpus", "known_models", "model", "plan", "predict", "trace",
]  # fmt: skip


@overload
def predict(job: Job, cluster: Cluster, strategy: str = "fsdp2") -> Answer: ...


@overload
def predict(job: Generation, cluster: Cluster) -> Served: ...


def predict(job: Job | Generation, cluster: Cluster, strategy: str = "fsdp2") -> Answer | Served:
    """Whether it fits and how fast it is: an `Answer` for a training step, `Served` for a generation.

    strategy: of a training step on several GPUs: "fsdp2", "ddp", "zero1", "zero2" or "hsdp". Bytes are of one GPU, seconds of one
    step; low and high hold nine of ten published measurements of unseen sources. ValueError, in one line, where the model cannot be
    traced, a layer of it is not known, or no time is predicted for the GPU; ModuleNotFoundError where torch would be needed. The first trace of a model takes seconds, and is kept in the user's cache folder.
    """
    _check(job, cluster, (Job, Generation))
    with named(job.model.name):
        if isinstance(job, Generation):
            from .answer.inference import serve

            return serve(job, cluster)
        from .answer.answer import of_job

        return of_job(job, cluster, strategy)


def plan(job: Job, cluster: Cluster, only: str | None = None, virtual_stages: int = 1) -> list[Option]:
    """Every strategy for a training step on these GPUs: what fits first, full training before adapters, then the fastest.

    Each `Option` has what a GPU holds, the seconds of a step that does the work of all GPUs, and a verdict: why it is first, or why
    it loses. only: the name of one strategy, such as "FSDP2". virtual_stages: groups of layers of each stage of a pipeline, which then
    waits less and holds more activations (interleaved 1F1B). ValueError, in one line, where no step can be planned.
    """
    _check(job, cluster, (Job,))
    from .answer.planner import of_job

    with named(job.model.name):
        return of_job(job, cluster, only, virtual_stages)


def known_gpus(word: str = "") -> list[Accelerator]:
    """The accelerators that are sold, or those whose name holds a word: `key`, `label`, `bytes` of memory, `half` (TFLOP/s in 16 bits)."""
    from .tables.hardware import sold

    return sold(word)


def known_models(word: str = "") -> dict[str, str]:
    """The address of the configuration of each model that is known by name, or of those whose name or address holds a word."""
    from .models import models

    return models.holding(word)


def trace(job: Job) -> Trace:
    """Peak memory by category, in bytes, and FLOPs of the step on one device: every layer runs, on tensors without data.

    Of full training alone: adapters are traced by `predict`. What a GPU holds beside tensors is not in it.
    """
    _check(job, None, (Job,))
    needs_tracing()
    from .answer.job_trace import trace_of

    with named(job.model.name):
        return trace_of(job)


def compare(job: Job | Generation, cluster: Cluster, seconds: float, gib: float | None = None) -> Comparison:
    """What you timed beside its prediction; `row` has it as the published measurements that judge predictions.

    seconds: of one update in the middle of a training run, or of one token of each answer, by a compiled step, in the middle of the
    answers. gib: of the GPU at the peak, in GiB as nvidia-smi shows it. On one GPU. ValueError, in one line, where a value is not
    above 0, where there are several GPUs, and where `predict` has no answer.
    """
    _check(job, cluster, (Job, Generation))
    for name, value in (("seconds", seconds), ("gib", gib)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float))):
            raise ValueError(f"{name}={value!r}: give a number above 0")
    from .answer.own_run import compare as compared

    with named(job.model.name):
        return compared(job, cluster, seconds, gib)


def _check(job: object, cluster: object, kinds: tuple[type, ...]) -> None:
    """ValueError in one line where what is asked is no question."""
    if not isinstance(job, kinds):
        wanted = " or a ".join(kind.__name__ for kind in kinds)
        raise ValueError(f"{str(job)[:60]!r} is no question: give a {wanted}, such as Job('llama3-8b')")
    if cluster is not None and not isinstance(cluster, Cluster):
        raise ValueError(f"{str(cluster)[:60]!r} is no Cluster: give one, such as Cluster('rtx-4090')")
