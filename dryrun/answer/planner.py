"""Which strategy for this model on these GPUs: does it fit, how long does a step take, and why do the others lose.

    for option in plan("llama3-8b", "a100-sxm4-40", 8, length=4096):
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
from ..cost.roofline import processor
from ..cost.setting import Setting
from ..cost.traces import traced
from ..models import models
from ..step.workload import Workload
from ..tables.hardware import GPUS, LINKS, GiB, accelerator, bytes_per_second, known
from ..tables.refusal import Refusal
from . import answer
from .answer import usable
from .job import Cluster, Job, Model
from .plan_rows import Row, rows
from .ranking import judged, ranked
from .verdict import Verdict, of_step

__all__ = ["GPUS", "LINKS", "STAGED", "Option", "of_job", "plan", "seconds"]

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


def plan(
    model: str,
    gpu: str,
    gpus: int,
    *,
    length: int = 4096,
    batch: int = 1,
    accumulation: int = 1,
    nodes: int = 1,
    link: float | str | None = None,
    network: float | str | None = None,
    adapters: int = 1,
    precision: str = "mixed",
    checkpointing: bool | int = True,
    compiled: bool = False,
    fused_loss: bool = False,
    rank: int = 16,
    whole_gradients: bool = False,
    host_memory: float | None = None,
    attention: str = "",
    only: str | None = None,
) -> list[Option]:
    """Every strategy as an `Option`: what fits first, full fine-tuning before adapters, then the fastest.

    model: a name of `models`, or the text of a config.json. gpu: a name of `hardware`. gpus: of all `nodes` together.
    batch: sequences of one GPU in a micro-batch; accumulation: micro-batches of a step. Every strategy does the work of
    `gpus` x batch x accumulation sequences in a step; where GPUs share a sequence, in more micro-batches.
    link, network: a name in `LINKS`, or GB/s in one direction as you measured them. Without `link` it is that of the GPU;
    GeForce cards reach a part of their slot. network: of one of the `adapters` of each node.
    precision: "mixed" for fp32 weights computed with in bf16, or "bf16". rank: of the adapters of LoRA.
    checkpointing: True for every layer, or n for every n-th one. whole_gradients: under accumulation FSDP2 reduces in the
    last micro-batch alone, as `Trainer` does: less to send, and whole gradients on every GPU until then. They count 4 bytes
    for each parameter, as fp32 sums take; bf16 sums, `Trainer`'s default, take 2. host_memory: GB of each node; without it
    no strategy with offload fits. attention: that of a `Setting`. only: the name of one strategy, where the others do not matter.
    """
    _check(gpus, nodes, adapters, batch, accumulation, network)
    processor(gpu)  # ValueError with the nearest name
    if not model.startswith("{"):
        model = models.known(model)
    full = Workload(model, batch, length, checkpointing=int(checkpointing), compiled=compiled,
                    fused_loss=fused_loss)  # fmt: skip
    cluster = Cluster(accelerator(gpu), gpus, gpus // nodes, link, network if nodes > 1 else None, adapters if nodes > 1 else 1)
    here = Setting(
        gpu=cluster.gpu,
        gpus=gpus,
        gpus_per_node=gpus // nodes,
        accumulation=accumulation,
        whole_gradients=whole_gradients,
        attention=attention,
        **answer.links(cluster),
    )
    return _options(full, here, precision, rank, host_memory, only)


def of_job(job: Job, cluster: Cluster, only: str | None = None, virtual_stages: int = 1) -> list[Option]:
    """Every strategy for a job on a cluster, as `plan` ranks them. A job of LoRA or QLoRA has those alone."""
    if isinstance(virtual_stages, bool) or not isinstance(virtual_stages, int) or virtual_stages < 1:
        raise Refusal("virtual_stages", virtual_stages, "give a whole number, 1 or more")
    if job.objective == "grpo":
        raise ValueError("objective='grpo': no strategies are compared for it: ask `train`, or plan its training step as 'sft'")
    if job.method != "full" and job.precision == "mixed":
        raise ValueError(f"precision='mixed' with method={job.method!r}: a plan keeps frozen weights in 16 bits: take 'bf16' (--dtype bf16), or ask `train`")
    full = replace(job.workload(), weights="bfloat16", autocast="", rank=0, targets="", four_bit=False)
    here = replace(answer.setting_of(job, cluster), strategy="")
    with _tracing(full):
        trace = traced(full)
    answer.check_fused_attention(job, trace)
    most = trace.layers // 2  # of the shortest pipeline
    if virtual_stages > max(1, most):
        raise Refusal("virtual_stages", virtual_stages, f"two stages share {trace.layers} layers", f"take {most} or fewer", nearest=[most])
    return _options(full, here, job.precision, job.rank, cluster.host_memory_gb, only, job.method, virtual_stages)


def _options(
    full: Workload,
    here: Setting,
    precision: str,
    rank: int,
    host_memory: float | None,
    only: str | None,
    method: str = "full",
    virtual_stages: int = 1,
) -> list[Option]:
    if precision not in PRECISIONS:
        raise ValueError(f"precision={precision!r} is not known to a plan: choose one of {', '.join(PRECISIONS)}")
    host = host_memory * 1e9 if host_memory else None
    with _tracing(full):
        name = Model(full.model[:40], full.model).class_name
    if not name.endswith(("ForCausalLM", "LMHeadModel")):
        raise ValueError(f"model {full.model[:40]!r}: {name} is no language model: plan() takes those")
    with _tracing(full):
        trace = traced(full)
    answer.check_compiled(full.compiled, here.gpu)
    answer.check_rank(rank, trace)
    asked = [row for row in rows(full, here, trace, precision, rank, virtual_stages) if method in ("full", _method(row.workload))]
    if only is not None:
        known("only", only, dict.fromkeys(row.name for row in asked))
    families: dict[str, list[Option]] = {}
    untraced: list[Exception] = []
    for row in asked:
        if only in (None, row.name):
            try:
                families.setdefault(row.family, []).append(_option(row, host))
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


def _option(row: Row, host_memory: float | None) -> Option:
    trace = traced(row.workload)
    needed = device_memory.needed(trace, row.workload, row.setting, timing.fitted()["memory"])
    return Option(
        strategy=row.name,
        reason=row.reason,
        workload=row.workload,
        setting=row.setting,
        needed=needed,
        prediction=timing.prediction(trace, row.workload, row.setting),
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


def _check(gpus: int, nodes: int, adapters: int, batch: int, accumulation: int, network: float | str | None) -> None:
    for name, value in (("gpus", gpus), ("nodes", nodes), ("adapters", adapters), ("batch", batch),
                        ("accumulation", accumulation)):  # fmt: skip
        if value != int(value) or value < 1:
            raise ValueError(f"{name}={value}: give a whole number, 1 or more")
    if nodes > gpus:
        raise ValueError(f"nodes={nodes}: there are only {gpus} GPUs, so at most {gpus} nodes")
    if gpus % nodes:
        near = nodes * max(1, round(gpus / nodes))
        raise ValueError(f"gpus={gpus} do not divide into {nodes} nodes of one size: take {near}")
    if nodes > 1 and network is None:
        raise ValueError(f"nodes={nodes}: name the network between them: network='100 GbE'")
