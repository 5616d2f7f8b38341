"""A training step on GPUs, answered: does it fit, how many tokens per second, what binds, and which changes would help."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from ..cost import device_memory, timing
from ..cost.ran import Ran, carried
from ..cost.roofline import BEFORE_AMPERE, processor
from ..cost.setting import FP32_ADAPTERS, Setting
from ..cost.traces import traced
from ..step import profiles
from ..step.workload import Traced, Workload, of_peft
from ..tables.hardware import LINKS, Accelerator, accelerator, bytes_per_second, known
from ..tables.optimizers import optimizer
from ..tables.refusal import Refusal
from ..tables.strategies import STRATEGIES, strategy
from . import verdict
from .job import LARGEST_COUNT, Cluster, Job
from .verdict import Verdict

WORTH = 1.03  # a change that gains less is not named
SAVES = 0.05  # of the memory, where a step does not fit: one that saves less is not named
SHOWN = 3
BEFORE_TRITON = ("pascal",)  # torch.utils._triton: torch.compile asks for compute capability 7.0
MOST_TIMES = 64  # the batch that a suggestion may multiply by


@dataclass(frozen=True)
class Answer:
    """What a GPU holds at the peak of a step, in bytes, and how long the step takes, each with its band."""

    workload: Workload
    setting: Setting
    traced: Traced
    prediction: timing.Prediction
    engine: dict[str, float]  # {what: bytes} that an engine holds on the same GPU
    constants: dict[str, float] | None = None  # of one machine, by `bench`; None: the fitted ones
    ran: Ran | None = None  # a step of the reader, which the prediction follows where it says something of it

    @cached_property  # most of an answer's time: whoever asks for the speed alone does without
    def needed(self) -> device_memory.Needed:
        beside = sum(self.engine.values())
        found = device_memory.needed(self.traced, self.workload, self.setting, timing.fitted()["memory"], beside)
        return device_memory.Needed(found.categories | self.engine, found.expected + beside, found.high + beside)

    @cached_property
    def fits(self) -> bool:
        """Whether the upper end of the band fits. Where tensors alone do not, the allocator is not asked."""
        size = usable(self.setting.gpu)
        return sum(device_memory.tensors(self.traced, self.workload, self.setting).values()) <= size and self.needed.fits(size)

    def measured(self, tokens_per_second: float) -> Ran:
        """What a run of just this step says of others: tokens per second of all GPUs, in the middle of it."""
        if self.setting.answers:
            raise Refusal("measured", tokens_per_second, "a step of grpo waits for answers too: measure one of 'sft' (--objective sft)")
        return Ran.of(timing.prediction(self.traced, self.workload, self.setting, self.constants), tokens_per_second)

    def hours(self, tokens: float, measured: float | None = None) -> tuple[float, float, float]:
        """(hours, low, high) of so many tokens on all GPUs at the predicted rate, or at the tokens per second that were measured."""
        if measured:
            return (tokens / measured / 3600,) * 3
        found = self.prediction
        each = tokens / found.tokens_per_second / found.seconds / 3600
        return each * found.seconds, each * found.low, each * found.high

    @property
    def verdict(self) -> Verdict:
        return verdict.of_step(self.needed, usable(self.setting.gpu))


def usable(gpu: str | Accelerator) -> float:
    """Bytes of a GPU's memory that a program can use, as CUDA reports them."""
    return accelerator(gpu).usable  # type: ignore[return-value]


def of_job(job: Job, cluster: Cluster, strategy: str = "fsdp2", constants: dict[str, float] | None = None, ran: Ran | None = None) -> Answer:
    """The `Answer` for a training step. strategy: of `STRATEGIES`, where there are several GPUs. constants: of one machine. ran: a step there."""
    workload, setting = job.workload(), setting_of(job, cluster, strategy)
    if optimizer(job.optimizer).orthogonalizes and cluster.gpus > 1 and strategy != "ddp":
        raise Refusal("optimizer", "muon", "torch.optim.Muon needs whole matrices, and this strategy cuts them", "take strategy='ddp' (--strategy ddp)")
    if job.precision == "mixed" and job.method == "full":
        workload, setting = _mixed(workload, setting)
    found = answer(workload, setting, constants, ran)
    check_fused_attention(job, found.traced)
    return found


def _mixed(workload: Workload, setting: Setting) -> tuple[Workload, Setting]:
    """fp32 weights of full training, computed with in bf16."""
    if setting.gpus > 1 and strategy(setting.strategy).shards:
        # they are cast where they are gathered, and no operator casts them again: as `plan_rows` has it
        return replace(workload, weights="bfloat16", autocast=""), replace(setting, state="fp32", precision="bf16")
    return replace(workload, autocast="bfloat16"), replace(setting, precision="bf16")


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
        raise Refusal("strategy", "hsdp", "it repeats the shards of a node on others, and there is one node", "take 'fsdp2'", nearest=["fsdp2"])
    check_compiled(job.compiled, cluster.gpu)
    _check_flash(job, cluster.gpu)
    return Setting(
        gpu=cluster.gpu,
        gpus=cluster.gpus,
        gpus_per_node=cluster.gpus_in_node,
        strategy=strategy if cluster.gpus > 1 else "",
        accumulation=job.accumulation,
        optimizer=job.optimizer,
        reference=job.objective == "dpo" and job.method == "full",
        answers=job.new,
        state=FP32_ADAPTERS if job.method != "full" and job.precision in ("bf16", "fp16") else "",
        precision="tf32" if job.precision == "fp32" else "bf16",
        attention="flash" if job.attention == "flash" else "",
        **links(cluster),
    )


def check_fused_attention(job: Job, trace: Traced) -> None:
    """ValueError where a fused kernel is asked for, and the model's own code calls none."""
    if job.attention in ("flash", "efficient") and not any(kernel.kind == "attention" for kernel in trace.kernels.counts):
        said = f"{job.model.name} calls no fused attention kernel in transformers: it is traced as it runs there"
        raise Refusal("attention", job.attention, said, "leave it out (--attention)")


def check_compiled(compiled: bool, gpu: Accelerator) -> None:
    """ValueError where no time is predicted for a GPU, or its steps cannot be compiled."""
    if processor(gpu).architecture in BEFORE_TRITON and compiled:
        raise Refusal("compiled", True, f"torch.compile writes for Triton, which has no code for {gpu.label}", "leave it out (--compile)")


def _check_flash(job: Job, gpu: Accelerator) -> None:
    """ValueError where the FlashAttention library has no kernel."""
    if job.attention == "flash" and processor(gpu).architecture in BEFORE_AMPERE:
        raise Refusal("attention", "flash", f"FlashAttention has no code for {gpu.label}", "leave it out (--attention)")
    if job.attention == "flash" and job.precision == "fp32":
        raise Refusal("attention", "flash", "FlashAttention computes in 16 bits, and precision='fp32' was asked for", "leave one out")


def links(cluster: Cluster) -> dict[str, Any]:
    """Bytes/s of a `Setting`: `link` between the GPUs of a node, `network` of each GPU to other nodes; 0 where there is none, or
    where the data sheet has it."""
    return {
        "link": _link(cluster) if cluster.gpus > 1 else 0.0,
        "network": _network(cluster) if cluster.nodes > 1 else 0.0,
    }


def _link(cluster: Cluster) -> float:
    if isinstance(cluster.link, str):
        return bytes_per_second(known("link", cluster.link, LINKS))
    return timing.link_peak(cluster.gpu, (cluster.link or 0) * 1e9)


def _network(cluster: Cluster) -> float:
    """Bytes/s that each GPU of a node has of the network. What was measured is below the peak already."""
    if cluster.network is None:
        return timing.network_peak(cluster.gpu)
    named = isinstance(cluster.network, str)
    peak = bytes_per_second(known("network", cluster.network, LINKS)) if named else timing.link_peak(cluster.gpu, cluster.network * 1e9)  # type: ignore[arg-type, operator]
    return peak * cluster.adapters / cluster.gpus_in_node


def answer(workload: Workload, setting: Setting, constants: dict[str, float] | None = None, ran: Ran | None = None) -> Answer:
    if of_peft(workload) and strategy(setting.strategy).shards:  # adapters are gathered in 16 bits: peft casts no input
        workload = replace(workload, autocast="")
    trace = traced(workload)
    check_rank(workload.rank, trace)
    engine = _engine(workload, setting) if setting.answers else {}
    prediction = carried(timing.prediction(trace, workload, setting, constants), ran)
    if engine:
        prediction = _with_writing(prediction, workload, setting)
    return Answer(workload, setting, trace, prediction, engine, constants, ran)


def check_rank(rank: int, trace: Traced) -> None:
    if rank > trace.width:
        raise Refusal("rank", rank, f"the model is {trace.width:,} wide, and adapters of a larger rank hold more than its weights")


def _engine(workload: Workload, setting: Setting) -> dict[str, float]:
    """{what: bytes} that an engine on the same GPU holds, for its own sequences alone."""
    sequences = workload.batch * setting.accumulation
    engine = traced(Workload(workload.model, sequences, 1, kind="decode", compiled=True))
    return {"engine's weights": 2 * engine.parameters, "engine's caches": sequences * engine.cache(workload.length)}


def _with_writing(prediction: timing.Prediction, workload: Workload, setting: Setting) -> timing.Prediction:
    """The same with the seconds in which an engine on this GPU writes the answers before the step."""
    sequences = workload.batch * setting.accumulation
    prompt = max(1, workload.length - setting.answers)
    written = timing.generation(workload.model, prompt, setting.answers, setting.gpu, batch=sequences)
    seconds = prediction.seconds + written.seconds
    parts = prediction.parts | {"writing answers": written.seconds}
    return replace(
        prediction, seconds=seconds, low=prediction.low + written.low, high=prediction.high + written.high, parts=parts, bound=max(parts, key=parts.get),  # type: ignore[arg-type]
        tokens_per_second=prediction.tokens_per_second * prediction.seconds / seconds, mfu=prediction.mfu * prediction.seconds / seconds,
    )  # fmt: skip


def changes(now: Answer) -> list[tuple[str, str, Answer]]:
    """The changes that would help most: (change, its command line option, the answer with it), the best first.

    Where the step does not fit, a change helps if it fits; else if it is faster.
    """
    helpful = []
    for change, option, workload, setting in _candidates(now):
        try:
            then = answer(workload, setting, now.constants, now.ran)
            if _helps(now, then):
                helpful.append((change, option, then))
        except Exception:  # whatever a model's own code raises: a suggestion that cannot be traced costs no answer
            continue
    helpful.sort(
        key=lambda change: (
            change[2].fits,
            change[2].prediction.tokens_per_second if change[2].fits else -change[2].needed.expected,
        )
    )
    return helpful[::-1][:SHOWN]


def _helps(now: Answer, then: Answer) -> bool:
    if now.fits:
        return then.prediction.tokens_per_second > WORTH * now.prediction.tokens_per_second and then.fits
    return then.fits or now.needed.expected - then.needed.expected > SAVES * now.needed.expected


def _candidates(now: Answer) -> Iterator[tuple[str, str, Workload, Setting]]:
    workload, setting = now.workload, now.setting
    mixed = setting.state == "fp32" or workload.autocast and not workload.rank  # of all weights: adapters leave them in 16 bits
    under = replace(workload, weights="bfloat16" if mixed else workload.weights, autocast="") if mixed or of_peft(workload) else workload
    in_bf16 = " --dtype bf16" if mixed else ""
    adapted = replace(setting, state=FP32_ADAPTERS if under.weights != "float32" else "", reference=False)
    if not workload.compiled and processor(setting.gpu).architecture not in BEFORE_TRITON:
        yield "torch.compile", "--compile", replace(workload, compiled=True), setting
    if workload.attention != "fused":
        yield "fused attention", "--attention auto", replace(workload, attention="fused"), setting
    if not workload.fused_loss:
        yield "a fused cross entropy", "--fused-loss", replace(workload, fused_loss=True), setting
    if workload.weights == "float32" and not workload.autocast:
        yield "bf16 autocast", "--dtype mixed", *_mixed(workload, setting)
    if workload.checkpointing:
        yield "no checkpointing", "without --checkpointing", replace(workload, checkpointing=0), setting
    else:
        yield "activation checkpointing", "--checkpointing", replace(workload, checkpointing=1), setting
    if not workload.rank and not now.fits:  # another training, and not the same one sooner
        autocast = under.autocast if under.weights == "float32" else under.weights
        yield "LoRA", f"--lora 16{in_bf16}", replace(under, rank=16, targets="all linear", autocast=autocast), adapted
    if not workload.four_bit and not (now.fits and not workload.rank):
        small = replace(under, rank=workload.rank or 16, targets="all linear", four_bit=True, checkpointing=1)
        with_ddp, by_ddp = (" and DDP", " --strategy ddp") if strategy(setting.strategy).shards else ("", "")  # which peft runs without more
        each = replace(adapted, strategy="ddp") if by_ddp else adapted
        yield f"QLoRA with checkpointing{with_ddp}", f"--qlora {small.rank} --checkpointing{in_bf16}{by_ddp}", small, each
        if not now.fits and not workload.fused_loss:  # what needs least
            yield f"QLoRA with checkpointing{',' if by_ddp else ' and'} a fused cross entropy{with_ddp}", f"--qlora {small.rank} --checkpointing --fused-loss{in_bf16}{by_ddp}", replace(small, fused_loss=True), each
    if not workload.rank and setting.optimizer == "adamw" and not now.fits:  # 16-bit weights and their 8-bit states: the least of full training
        least = "bf16 weights and AdamW in 8 bits" if mixed else "AdamW in 8 bits"
        yield least, f"{in_bf16} --optimizer adamw_8bit".strip(), under, replace(setting, optimizer="adamw_8bit", state="" if mixed else setting.state)
    times, sequences = _most_times(now), workload.batch // (1 if setting.answers else 1 + workload.references)
    yield _multiplied(times), f"--batch {times * sequences}", replace(workload, batch=times * workload.batch), setting
    fused = replace(workload, fused_loss=True)
    if not workload.fused_loss and now.fits and profiles.profiled(fused) and (most := _most_times(answer(fused, setting, now.constants, now.ran))) > times:
        yield f"a fused cross entropy and {_multiplied(most)}", f"--fused-loss --batch {most * sequences}", replace(fused, batch=most * workload.batch), setting
    if setting.gpus > 1 and setting.accumulation < 8:
        more = replace(setting, accumulation=2 * setting.accumulation)
        yield "twice the accumulation", f"--accumulation {more.accumulation}", workload, more
    for words, option, same, elsewhere in _otherwise(workload, setting):
        yield words, option, same, elsewhere
        if not same.fused_loss:
            yield f"{words} and a fused cross entropy", f"{option} --fused-loss", replace(same, fused_loss=True), elsewhere


def _otherwise(workload: Workload, setting: Setting) -> Iterator[tuple[str, str, Workload, Setting]]:
    """The same training, spread over its GPUs in another way, or on one of them: where links are slow, that is faster."""
    if setting.gpus == 1:
        return
    whole = _uncut(workload, setting)
    if setting.strategy != "ddp":
        yield "DDP", "--strategy ddp", whole[0], replace(whole[1], strategy="ddp")
    elif not optimizer(setting.optimizer).orthogonalizes:
        cut = replace(setting, strategy="fsdp2")
        yield "FSDP2", "--strategy fsdp2", *(_mixed(workload, cut) if workload.autocast and not workload.rank else (workload, cut))
    if setting.nodes > 1 and setting.strategy == "fsdp2":
        yield "HSDP", "--strategy hsdp", workload, replace(setting, strategy="hsdp")
    alone = "--gpus 1 --strategy fsdp2" if setting.strategy == "hsdp" else "--gpus 1"  # one node has no HSDP
    yield "one of these GPUs alone", alone, whole[0], replace(whole[1], gpus=1, gpus_per_node=1, strategy="", link=0.0, network=0.0)


def _uncut(workload: Workload, setting: Setting) -> tuple[Workload, Setting]:
    """The same where no rank cuts the weights: operators cast what shards cast as they are gathered."""
    if not strategy(setting.strategy).shards:
        return workload, setting
    if workload.rank and setting.state == FP32_ADAPTERS and not workload.four_bit:
        return replace(workload, autocast=workload.weights), setting
    if setting.state == "fp32":
        return replace(workload, weights="float32", autocast="bfloat16"), replace(setting, state="")
    return workload, setting


def _multiplied(times: int) -> str:
    return "twice the batch" if times == 2 else f"{times} times the batch"


def _most_times(now: Answer) -> int:
    """How many times the batch, in powers of two, surely fit and are faster each time; 2 where none is, or where each size is a trace."""
    faster: list[tuple[int, Answer]] = []
    rate = now.prediction.tokens_per_second
    while (times := 2 << len(faster)) <= MOST_TIMES and profiles.profiled(larger := replace(now.workload, batch=times * now.workload.batch)):
        then = answer(larger, now.setting, now.constants, now.ran)
        if then.prediction.tokens_per_second < WORTH * rate:
            break
        faster.append((times, then))
        rate = then.prediction.tokens_per_second
    return next((times for times, then in reversed(faster) if then.fits), 2)


def counts_as_fp16(now: Answer) -> bool:
    """Whether the GPU has no bf16: then a step in bf16 is counted as fp16, which takes as long and needs a loss scaler."""
    return "bfloat16" in (now.workload.weights, now.workload.autocast) and processor(now.setting.gpu).architecture in BEFORE_AMPERE
