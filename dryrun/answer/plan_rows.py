"""The strategies of a plan: each a `Workload` on a `Setting`, from the simplest to the most involved."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ..cost.setting import FP32_ADAPTERS, Setting
from ..step.workload import Traced, Workload
from ..tables.optimizers import optimizer
from ..tables.strategies import STRATEGIES

# Plans of transformers have more: docs/training/model-parallelism.md counts them.
SUMS = "splits each matrix by PyTorch's plan: every layer waits for four all-reduces of activations, six with checkpointing"
SAME = 1.15  # times in seconds within which two strategies are about as fast: predictions of splits are that far off
LARGEST_SPLIT = 64
DEEPSPEED_HOST = 27  # as DeepSpeed estimates: 18 for each parameter, and half as much again for buffers
FOUR_BITS_HOST = 0.6  # bytes for each parameter: 4-bit weights with their scales, and adapters


@dataclass(frozen=True)
class Row:
    name: str
    family: str  # of one strategy in several sizes, the best is an option
    reason: str
    workload: Workload
    setting: Setting
    host_bytes: float = 0.0  # for each parameter, in the memory of the hosts


def rows(workload: Workload, here: Setting, shape: Traced, precision: str, rank: int, virtual_stages: int = 1) -> Iterator[Row]:
    """Every `Row`. workload: full fine-tuning in 16 bits; here: the GPUs and their links; shape: the `Traced` of the workload; virtual_stages: of
    each stage of a pipeline."""
    whole_matrices = optimizer(here.optimizer).orthogonalizes
    yield from (row for row in _rows(workload, here, shape, precision, rank, virtual_stages) if not (whole_matrices and _cuts_matrices(row.setting)))


def _cuts_matrices(setting: Setting) -> bool:
    return setting.tensor > 1 or setting.offload or bool(setting.strategy and STRATEGIES[setting.strategy].shards)


def _rows(workload: Workload, here: Setting, shape: Traced, precision: str, rank: int, virtual_stages: int) -> Iterator[Row]:
    mixed = precision == "mixed"
    here = replace(here, state="fp32" if mixed else "")
    # transformers multiplies experts in groups, which takes no autocast: a mixture is traced in 16 bits.
    cast = mixed and shape.experts is None
    whole = replace(workload, weights="float32", autocast="bfloat16") if cast else workload
    apart = replace(here, state="") if cast else here
    lora = replace(workload, rank=rank, targets="all linear")
    qlora = replace(lora, four_bit=True)
    adapters = replace(here, state=FP32_ADAPTERS, reference=False)
    if here.gpus == 1:
        yield _named("one GPU", "nothing to send", whole, apart)
    else:
        yield _plain("ddp", whole, replace(apart, views=True))
        yield from _full(workload, here, shape, virtual_stages)
    yield from _offloaded(workload, qlora, here, _state(here.optimizer, 4 if mixed else 2))
    yield from _adapters(lora, "LoRA", "16-bit weights", adapters)
    yield from _adapters(qlora, "QLoRA", "4-bit weights", adapters)


def _full(workload: Workload, here: Setting, shape: Traced, virtual_stages: int) -> Iterator[Row]:
    for name in ("zero1", "zero2", "fsdp2"):
        yield _plain(name, workload, here)
    if here.nodes > 1 and here.gpus_per_node > 1:
        yield _plain("hsdp", workload, here)
    yield from _split(workload, here, shape, virtual_stages)


def _split(workload: Workload, here: Setting, shape: Traced, virtual_stages: int) -> Iterator[Row]:
    """Strategies in which several GPUs work on one sequence."""
    inside = [size for size in _divisors(here.gpus_per_node) if 1 < size <= LARGEST_SPLIT]
    tensors = [size for size in inside if shape.split_heads % size == 0]
    stages = [size for size in _divisors(here.gpus) if size > 1 and shape.layers % (size * virtual_stages) == 0]
    for size in tensors:
        yield from _shared(workload, here, "TP", SUMS, tensor=size)
    for size in stages:
        reason = "a part of the layers on each GPU; stages wait in the bubble"
        yield from _shared(workload, here, "PP", reason, pipeline=size, virtual_stages=virtual_stages)
    for tensor in tensors:
        for size in stages:
            if here.gpus % (tensor * size) == 0:
                reason = "tensor parallelism in each stage of a pipeline"
                yield from _shared(workload, here, "TP x PP", reason, tensor=tensor, pipeline=size, virtual_stages=virtual_stages)
    for size in inside:
        if workload.length % size == 0:
            reason = "splits each sequence; attention gathers keys and values"
            yield from _shared(workload, here, "CP", reason, sequence=size)
        if shape.experts and shape.experts.number % size == 0:
            reason = "spreads the experts; each token travels to its experts and back"
            yield from _shared(workload, here, "EP", reason, experts=size)


def _shared(
    workload: Workload,
    here: Setting,
    family: str,
    reason: str,
    tensor: int = 1,
    pipeline: int = 1,
    sequence: int = 1,
    experts: int = 1,
    virtual_stages: int = 1,
) -> Iterator[Row]:
    """A group of GPUs takes the sequences of all of them: one after the other, or (not in a pipeline) all at once."""
    rest = here.gpus // (tensor * pipeline)
    strategy = "" if rest == 1 else "ddp" if pipeline > 1 else "fsdp2"
    named = {"TP": tensor, "PP": pipeline, "CP": sequence, "EP": experts}
    parts = [f"{name} {size}" for name, size in named.items() if size > 1]
    if strategy == "ddp":
        parts.append(f"DDP {rest}")
    elif strategy:
        parts.insert(0, "FSDP2")
    sharers = tensor * pipeline * sequence
    setting = replace(
        here,
        strategy=strategy,
        tensor=tensor,
        pipeline=pipeline,
        virtual_stages=virtual_stages,
        even=False,
        sequence=sequence,
        experts=experts,
        accumulation=here.accumulation * sharers,
        views=strategy == "ddp",
    )
    yield Row(" x ".join(parts), family, reason, workload, setting)
    if sharers > 1 and pipeline == 1:
        together = replace(setting, accumulation=here.accumulation)
        yield Row(" x ".join(parts), family, reason, replace(workload, batch=workload.batch * sharers), together)


def _state(name: str, width: int) -> float:
    """Bytes for each parameter: its weight and gradient, `width` bytes each, and what the optimizer keeps."""
    chosen = optimizer(name)
    kept = 0 if chosen.factored else chosen.state if chosen.state is not None else chosen.moments * width
    return 2 * width + kept


def _offloaded(workload: Workload, qlora: Workload, here: Setting, state: float) -> Iterator[Row]:
    there = replace(here, strategy="fsdp2", offload=True)
    where = "weights, gradients and optimizer state wait in host memory"
    yield _named("FSDP2 + offload", where, workload, there, state)
    yield _named("ZeRO-3 + offload", f"{where}, with DeepSpeed's buffers", workload, there, DEEPSPEED_HOST)
    adapters = replace(there, state=FP32_ADAPTERS, reference=False)
    yield _named("QLoRA x FSDP2 + offload", "4-bit weights wait in host memory", qlora, adapters, FOUR_BITS_HOST)


def _adapters(workload: Workload, method: str, stored: str, here: Setting) -> Iterator[Row]:
    whole = workload if workload.four_bit else replace(workload, autocast=workload.weights)  # sharded adapters are gathered in 16 bits
    if here.gpus == 1:
        yield _named(method, f"{stored} frozen, adapters trained", whole, here)
        return
    yield _named(f"{method} x DDP", f"{stored} whole on every GPU", whole, replace(here, strategy="ddp", views=True))
    note = ", stored as bnb_4bit_quant_storage=torch.bfloat16" if workload.four_bit else ""
    sharded = f"{stored} sharded and gathered in every micro-batch{note}"
    yield _named(f"{method} x FSDP2", sharded, workload, replace(here, strategy="fsdp2"))
    if here.nodes > 1 and here.gpus_per_node > 1:
        hybrid = f"{stored} sharded inside a node: only gradients of adapters leave it{note}"
        yield _named(f"{method} x HSDP", hybrid, workload, replace(here, strategy="hsdp"))


def _plain(name: str, workload: Workload, here: Setting) -> Row:
    chosen = STRATEGIES[name]
    return _named(chosen.label, chosen.does, workload, replace(here, strategy=name))


def _named(name: str, reason: str, workload: Workload, setting: Setting, host_bytes: float = 0.0) -> Row:
    return Row(name, name, reason, workload, setting, host_bytes)


def _divisors(number: int) -> list[int]:
    return [size for size in range(1, number + 1) if number % size == 0]
