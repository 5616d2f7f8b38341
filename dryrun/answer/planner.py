"""Which strategy for this model on these GPUs: does it fit, how long does a step take, and why do the others lose.

    for option in dryrun.plan(Job("llama3-8b", precision="mixed", checkpointing=True), Cluster("a100-sxm4-40", gpus=8)):
        print(option)

Activations are traced, with the real model code; `device_memory` adds what a GPU holds on top, and an option fits by the
upper end of its band. Seconds are those of `predict`, with low and high. No GPU, no weights, no network. A first trace of
a model takes seconds, and is kept in the user's cache folder. 1 GiB = 2**30 bytes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ..cost import device_memory, timing
from ..cost.communication import STAGED
from ..cost.ran import Ran, carried
from ..cost.setting import Setting
from ..cost.traces import traced
from ..step.workload import Workload
from ..tables.hardware import GPUS, LINKS, GiB, bytes_per_second, known
from ..tables.refusal import Refusal
from . import answer
from .answer import usable
from .job import Cluster, Job
from .plan_rows import Row, rows
from .ranking import judged, ranked
from .verdict import Verdict, of_step

__all__ = ["GPUS", "LINKS", "STAGED", "Option", "of_job", "seconds"]

PRECISIONS = ("mixed", "bf16")


@dataclass(frozen=True)
class Option:
    """One strategy: what a GPU and its host hold, and how long an optimizer step takes."""

    strategy: str
    reason: str  # what it does
    workload: Workload
    setting: Setting
    needed: device_memory.Needed
    prediction: timing.Prediction
    verdict: Verdict  # of its memory alone, until a whole plan says why it is first, or loses
    host: float = 0.0  # bytes that wait in the memory of each host
    host_memory: float | None = None  # bytes of each host, where known

    @property
    def trains(self) -> str:
        return "adapters" if self.workload.rank else "all"

    @property
    def size(self) -> float:
        """Bytes of the GPU's memory."""
        return usable(self.setting.gpu)

    @property
    def fits_gpu(self) -> bool:
        return self.needed.fits(self.size)

    @property
    def fits_host(self) -> bool:
        return not self.host or (self.host_memory or 0) >= self.host

    @property
    def fits(self) -> bool:
        return self.fits_gpu and self.fits_host

    @property
    def seconds(self) -> float:
        return self.prediction.seconds

    @property
    def judged(self) -> bool:
        """Whether published steps say how far the seconds may be off."""
        return self.prediction.judged

    def __str__(self) -> str:
        low, high = self.prediction.low, self.prediction.high
        time = f"{self.seconds:.3g} s ({f'{low:.3g} to {high:.3g}' if self.judged else 'unjudged'})"
        held = f"{self.needed.expected / GiB:,.0f} to {self.needed.high / GiB:,.0f} GiB of {self.size / GiB:,.0f}"
        return f"{self.strategy:22} {held:26} {time:28} {self.verdict}"


def of_job(job: Job, cluster: Cluster, only: str | None = None, virtual_stages: int = 1, ran: Ran | None = None) -> list[Option]:
    """Every strategy for a job on a cluster: what fits first, full fine-tuning before adapters, then the fastest. A job of LoRA or QLoRA has
    those alone. Every strategy does the work of all GPUs' sequences in a step; where GPUs share a sequence, in more micro-batches.
    only: the name of one strategy, where the others do not matter. virtual_stages: groups of layers of each stage of a pipeline.
    ran: a step of the reader on these GPUs."""
    if isinstance(virtual_stages, bool) or not isinstance(virtual_stages, int) or virtual_stages < 1:
        raise Refusal("virtual_stages", virtual_stages, "give a whole number, 1 or more")
    if job.objective == "grpo":
        raise Refusal("objective", "grpo", "no strategies are compared for it", "ask `train`, or plan its training step as 'sft'", nearest=["sft"])
    if job.method != "full" and job.precision == "mixed":
        raise Refusal("precision", "mixed", f"with method={job.method!r} a plan keeps frozen weights in 16 bits", "take 'bf16' (--dtype bf16), or ask `train`", nearest=["bf16"])
    if job.precision not in PRECISIONS:
        raise Refusal("precision", job.precision, f"a plan takes {' or '.join(PRECISIONS)}", "choose one of these, or ask `train`", nearest=list(PRECISIONS))
    return options(job, cluster, replace(answer.setting_of(job, cluster), strategy=""), only, virtual_stages=virtual_stages, ran=ran)


def options(
    job: Job,
    cluster: Cluster,
    here: Setting,
    only: str | None = None,
    step: Workload | None = None,
    virtual_stages: int = 1,
    ran: Ran | None = None,
) -> list[Option]:
    """The same in a setting, or of a step, of one's own, such as one that is longer than the model has positions. With whole gradients FSDP2
    reduces in the last micro-batch alone, as `Trainer` does under accumulation. That sends less, and keeps whole gradients on every GPU until
    then, of 4 bytes for each parameter."""
    full = replace(step or job.workload(), weights="bfloat16", autocast="", rank=0, targets="", four_bit=False)
    host = cluster.host_memory_gb * 1e9 if cluster.host_memory_gb else None
    with _tracing(full):
        name, trace = job.model.class_name, traced(full)
    if not name.endswith(("ForCausalLM", "LMHeadModel")):
        raise Refusal("model", job.model.name, f"{name} is no language model, and plan() takes those")
    answer.check_fused_attention(job, trace)
    answer.check_rank(job.rank, trace)
    most = trace.layers // 2  # of the shortest pipeline
    if virtual_stages > max(1, most):
        raise Refusal("virtual_stages", virtual_stages, f"two stages share {trace.layers} layers", f"take {most} or fewer", nearest=[most])
    asked = [row for row in rows(full, here, trace, job.precision, job.rank, virtual_stages) if job.method in ("full", _method(row.workload))]
    if only is not None:
        known("only", only, dict.fromkeys(row.name for row in asked))
    families: dict[str, list[Option]] = {}
    untraced: list[Exception] = []
    for row in asked:
        if only in (None, row.name):
            try:
                families.setdefault(row.family, []).append(_option(row, host, ran))
            except (ValueError, ModuleNotFoundError) as error:  # this model has no such step, or nothing can trace it here: no row
                untraced.append(error)
    if untraced and not any(families.values()):
        raise untraced[0]
    return judged(ranked([_best(options) for options in families.values() if options]))


def _method(workload: Workload) -> str:
    return "qlora" if workload.four_bit else "lora" if workload.rank else "full"


@contextlib.contextmanager
def _tracing(workload: Workload) -> Iterator[None]:
    """Names the model in whatever its own code raises on sizes that make no sense."""
    try:
        yield
    except ModuleNotFoundError:
        raise
    except Exception as error:
        said = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise ValueError(f"model {workload.model[:40]!r}: its step cannot be traced: {said}") from error


def seconds(size: float, link: str, adapters: int = 1) -> float:
    """Seconds that `size` bytes take over a link of `LINKS` at its peak."""
    return size / bytes_per_second(link, adapters)


def _option(row: Row, host_memory: float | None, ran: Ran | None) -> Option:
    trace = traced(row.workload)
    needed = device_memory.needed(trace, row.workload, row.setting, timing.fitted()["memory"])
    return Option(
        strategy=row.name,
        reason=row.reason,
        workload=row.workload,
        setting=row.setting,
        needed=needed,
        prediction=carried(timing.prediction(trace, row.workload, row.setting), ran),
        verdict=of_step(needed, usable(row.setting.gpu)),
        host=row.host_bytes * trace.parameters / row.setting.nodes,
        host_memory=host_memory,
    )


def _best(options: list[Option]) -> Option:
    """Of one strategy in several sizes."""
    fitting = [option for option in options if option.fits]
    if fitting:
        return min(fitting, key=lambda option: option.seconds)
    return min(options, key=lambda option: option.needed.high)
