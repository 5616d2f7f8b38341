"""A training step on GPUs, answered: does it fit, how many tokens per second, what binds, and which changes would help."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, replace

import torch

from . import communication, device_memory, timing
from .config_file import one_line
from .hardware import LINKS, accelerator, bytes_per_second, known
from .job import LARGEST_COUNT, PUBLISHED_AS, STRATEGIES, Cluster, Job
from .roofline import processor
from .rows import Setting
from .tracing import OPTIMIZERS, Trace, training_step
from .workload import Workload, traced

GiB = 2**30
WORTH = 1.03  # a change that gains less is not named
SHOWN = 3


@dataclass(frozen=True)
class Answer:
    """What a GPU holds at the peak of a step, in bytes, and how long the step takes, each with its band."""

    workload: Workload
    setting: Setting
    traced: object
    needed: device_memory.Needed
    prediction: timing.Prediction
    constants: dict | None = None  # of one machine, by `bench`; None: the fitted ones

    @property
    def fits(self) -> bool:
        """Whether the upper end of the band fits."""
        return self.needed.fits(usable(self.setting.gpu))

    @property
    def verdict(self) -> str:
        return verdict(self.needed, usable(self.setting.gpu))


def usable(gpu):
    """Bytes of a GPU's memory that a program can use, as nvidia-smi shows them."""
    return accelerator(gpu).bytes


def of_job(job: Job, cluster: Cluster, strategy: str = "fsdp2", constants: dict | None = None) -> Answer:
    """The `Answer` for a training step. strategy: of `STRATEGIES`, where there are several GPUs. constants: of one machine."""
    return answer(job.workload(), setting_of(job, cluster, strategy), constants)


def largest_batch(job: Job, cluster: Cluster, strategy: str = "fsdp2") -> int:
    """The most sequences of a micro-batch that surely fit, up to `LARGEST_COUNT`; 0 where not even one does."""

    def too_large(batch: int) -> bool:
        return not of_job(replace(job, batch=batch), cluster, strategy).fits

    end = 1
    while end <= LARGEST_COUNT and not too_large(end):
        end *= 2
    return bisect_left(range(end), True, lo=end // 2 + 1, key=too_large) - 1 if end > 1 else 0


def setting_of(job: Job, cluster: Cluster, strategy: str = "fsdp2") -> Setting:
    """Where a job runs, with the bytes/s that its links reach."""
    known("strategy", strategy, STRATEGIES)
    if strategy == "hsdp" and cluster.nodes == 1:
        raise ValueError("strategy='hsdp': it repeats the shards of a node on others, and there is one node: take 'fsdp2'")
    name = processor(cluster.gpu.key).name  # ValueError where no time is predicted for it
    return Setting(
        gpu=name,
        gpus=cluster.gpus,
        gpus_per_node=cluster.gpus_in_node,
        strategy=strategy if cluster.gpus > 1 else "",
        accumulation=job.accumulation,
        optimizer=PUBLISHED_AS.get(job.optimizer, job.optimizer),
        precision="tf32" if job.precision == "fp32" else "bf16",
        **links(cluster),
    )


def links(cluster: Cluster) -> dict:
    """Bytes/s of a `Setting`: `link` between the GPUs of a node, `network` of each GPU to other nodes; 0 where there is none, or
    where the data sheet has it."""
    return {
        "link": _link(cluster) if cluster.gpus > 1 else 0.0,
        "network": _network(cluster) if cluster.nodes > 1 else 0.0,
    }


def _link(cluster: Cluster) -> float:
    if isinstance(cluster.link, str):
        return bytes_per_second(known("link", cluster.link, LINKS))
    return timing.link_peak(cluster.gpu.key, (cluster.link or 0) * 1e9)


def _network(cluster: Cluster) -> float:
    """Bytes/s that each GPU of a node has of the network. What was measured is below the peak already."""
    if cluster.network is None:
        return communication.adapter(processor(cluster.gpu.key))
    named = isinstance(cluster.network, str)
    peak = bytes_per_second(known("network", cluster.network, LINKS)) if named else timing.link_peak(cluster.gpu.key, cluster.network * 1e9)
    return peak * cluster.adapters / cluster.gpus_in_node


def answer(workload, setting, constants=None):
    what = traced(workload)
    needed = device_memory.needed(what, workload, setting, timing.fitted()["memory"])
    found = timing.prediction(what, workload, setting, constants)
    return Answer(workload, setting, what, needed, found, constants)


def changes(now):
    """The changes that would help most: (what, its command line option, the answer with it), the best first.

    Where the step does not fit, a change helps if it fits; else if it is faster.
    """
    found = []
    for what, option, workload, setting in _candidates(now):
        try:
            then = answer(workload, setting, now.constants)
        except Exception:  # whatever a model's own code raises: a suggestion that cannot be traced costs no answer
            continue
        faster = then.prediction.tokens_per_second / now.prediction.tokens_per_second
        saves = now.needed.expected - then.needed.expected
        if (
            (then.fits and not now.fits)
            or (then.fits and faster > WORTH)
            or (not now.fits and saves > 0.05 * now.needed.expected)
        ):
            found.append((what, option, then))
    found.sort(
        key=lambda change: (
            change[2].fits,
            change[2].prediction.tokens_per_second if change[2].fits else -change[2].needed.expected,
        )
    )
    return found[::-1][:SHOWN]


def _candidates(now):
    workload, setting = now.workload, now.setting
    if not workload.compiled:
        yield "torch.compile", "--compile", replace(workload, compiled=True), setting
    if workload.attention != "fused":
        yield "fused attention", "--attention auto", replace(workload, attention="fused"), setting
    if not workload.fused_loss:
        yield "a fused cross entropy", "--fused-loss", replace(workload, fused_loss=True), setting
    if workload.weights == "float32" and not workload.autocast:
        yield (
            "bf16 autocast",
            "--dtype mixed",
            replace(workload, autocast="bfloat16"),
            replace(setting, precision="amp_bf16"),
        )
    if workload.checkpointing:
        yield "no checkpointing", "without --checkpointing", replace(workload, checkpointing=0), setting
    else:
        yield "activation checkpointing", "--checkpointing", replace(workload, checkpointing=1), setting
    if not workload.rank:
        yield "LoRA", "--lora 16", replace(workload, rank=16, targets="all linear"), setting
    if not workload.four_bit and setting.gpus == 1:
        small = replace(workload, rank=workload.rank or 16, targets="all linear", four_bit=True, checkpointing=1)
        yield "QLoRA with checkpointing", "--qlora 16 --checkpointing", small, setting
    yield "twice the batch", f"--batch {2 * workload.batch}", replace(workload, batch=2 * workload.batch), setting
    if setting.gpus > 1 and setting.accumulation < 8:
        more = replace(setting, accumulation=2 * setting.accumulation)
        yield "twice the accumulation", f"--accumulation {more.accumulation}", workload, more


def verdict(needed, size):
    """Whether a step fits on a GPU of this many bytes, in words."""
    if needed.fits(size):
        return "it fits"
    return "it may fit: that depends on what the allocator cannot fill" if needed.expected <= size else "it does not fit"


def trace_of(job: Job) -> Trace:
    """The step of a job on one device without a name, every layer run."""
    if job.method != "full":
        raise ValueError(f"method={job.method!r}: adapters are traced for a GPU: name one, or take method='full'")
    if job.compiled or job.fused_loss:
        raise ValueError("compiled and fused_loss change kernels of a GPU: name one, or leave them out")
    if job.optimizer not in OPTIMIZERS:
        raise ValueError(f"optimizer={job.optimizer!r}: its state is counted for a GPU: name one, or take 'adamw'")
    model = job.model
    workload = job.workload()  # ValueError where the sequence is too long
    try:
        return training_step(
            model.model_class,
            model.config,
            job.batch,
            job.length,
            dtype=getattr(torch, workload.weights),
            autocast=torch.bfloat16 if workload.autocast else None,
            activation_checkpointing=job.checkpointing,
            optimizer=job.optimizer,
            accumulation=job.accumulation,
            attention=job.attention,
        )
    except Exception as error:  # whatever a model's own code raises on values that make no sense
        raise ValueError(f"{model.name}: transformers cannot run this model: {one_line(error)}") from error
