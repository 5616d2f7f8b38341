"""What a GPU needs for a step: the traced tensors, and what comes on top of them.

On top are workspaces of cuBLAS and of kernels, the blocks that the allocator rounds to and cannot fill, buffers of NCCL,
and the CUDA context. Where a rank takes the steps of one GPU, alone or under DDP, the allocator is replayed (see `reserved`), but for
compiled steps and offload. Elsewhere two constants of published peaks stand for it, a part that grows with the tensors and one that
does not. The context is a third one: only what the driver reports contains it. With many GPUs the driver reports more, so the upper
end has the least that was seen there.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from .hardware import GiB
from .optimizers import Optimizer, optimizer
from .reserved import APART, OF_HOPPER, TRAINED, VIEWS, WORKSPACE, Peak, replay
from .setting import FP32_ADAPTERS
from .strategies import strategy

if TYPE_CHECKING:
    from .setting import Setting
    from .storage_log import Storages
    from .workload import Traced, Workload

NAMES = {"parameters": "weights", "optimizer": "optimizer state"}  # of categories, as answers call them
STATE = ("parameters", "gradients", "optimizer", "weight copies")
DEEPSPEED_COPIES = 8  # bytes for each weight beside the moments: weight and gradient in fp32, as its own estimate counts
DEEPSPEED_BUCKET = 5e8  # gradients, in 16 bits: reduce_bucket_size
GATHERED_LAYERS = 2  # whole layers that FSDP2 holds at once: the one that computes and the next
WHOLE_GRADIENT = 4  # bytes for each weight: FSDP2 adds them up in the dtype that it reduces in
REPLAY_MARGIN = 1.05  # what our H100 and H200 reserved for full fine-tuning was nearer to the replay (tests/dryrun/test_reserved.py)
LOSS_PARTS = 2  # of a step: the forward pass and the first half of the backward pass hold the logits
# Bytes for each logit that a loss does not keep: a fused one holds one fp32 copy fewer, a chunked one holds no logits.
LOGITS_SAVED = {"fused": 4, "none kept": 10}


@dataclass(frozen=True)
class Needed:
    categories: dict[str, float]  # bytes of tensors at the peak
    expected: float  # bytes on the GPU, as nvidia-smi shows them
    high: float  # and with the upper end of the band

    def fits(self, size: float) -> bool:
        """Whether a GPU of this many bytes is large enough, by the upper end."""
        return self.high <= size


def tensors(traced: Traced, workload: Workload, setting: Setting) -> dict[str, float]:
    """{category: bytes} at the peak of one rank."""
    parts = [_of_rank(traced, workload, setting, categories) for _, categories in traced.memory.parts]  # type: ignore[union-attr]
    if setting.views or setting.accumulation > 1:  # buckets are there all the time, sums from the second micro-batch on
        gradients = max(part.get("gradients", 0) for part in parts)
        parts = [{**part, "gradients": gradients} for part in parts]
    if keeps_whole_gradients(setting):
        whole = WHOLE_GRADIENT * traced.trainable / (setting.tensor * setting.pipeline)
        parts = [{**part, "gradients": whole} for part in parts[:-1]] + parts[-1:]
    for part in parts[:LOSS_PARTS]:
        _without_logits(
            part, LOGITS_SAVED.get(_loss(workload), 0) * workload.batch * workload.length * traced.vocabulary
        )
    return max(parts, key=lambda categories: sum(categories.values()))


def keeps_whole_gradients(setting: Setting) -> bool:
    """Whether a step has micro-batches after which gradients are not reduced, under a strategy that shards them."""
    sharded = strategy(setting.strategy).gathers
    return setting.whole_gradients and setting.accumulation > 1 and sharded and not setting.offload


def states(traced: Traced, workload: Workload, setting: Setting) -> dict[str, float]:
    """{category: most bytes} of weights, gradients and optimizer state. They need not all be there at the peak."""
    parts = [_of_rank(traced, workload, setting, categories) for _, categories in traced.memory.parts]  # type: ignore[union-attr]
    return {name: max(part.get(name, 0) for part in parts) for name in STATE[:3]}


def _loss(workload: Workload) -> str:
    return "none kept" if workload.fused_loss else "fused" if workload.compiled else ""


def _without_logits(part: dict[str, float], size: float) -> None:
    """Takes these bytes off the activations, and what is left off the temporaries."""
    for name in ("activations", "temporaries"):
        taken = min(size, part.get(name, 0))
        part[name] = part.get(name, 0) - taken
        size -= taken


def _of_rank(traced: Traced, workload: Workload, setting: Setting, categories: dict[str, float]) -> dict[str, float]:
    """What one rank holds of a part of the step: {category: bytes}."""
    split = setting.tensor * setting.pipeline
    categories = _state(traced, setting, dict(categories))
    in_flight = min(setting.pipeline, setting.accumulation)  # micro-batches whose activations the first stage of 1F1B holds
    held = {}
    for name, size in categories.items():
        if name in STATE:
            held[name] = size * _share_of_state(traced, setting) / _shards(name, setting)
        elif name == "activations":
            held[name] = size * in_flight / (split * setting.sequence)
        else:
            held[name] = size / (setting.tensor * setting.sequence)
    if setting.reference:
        held["reference weights"] = held["parameters"]
    if setting.offload:
        held.update(dict.fromkeys(STATE, 0.0))
    chosen = strategy(setting.strategy)
    if chosen.gathers and setting.data > 1 or setting.offload:
        held["gathered weights"] = _gathered(traced, setting) / split
    if chosen.buckets and not setting.views:
        held["gradient buckets"] = categories.get("gradients", 0) / split
    if chosen.deepspeed:
        held["gradient buckets"] = 2 * min(DEEPSPEED_BUCKET, traced.trainable)
    return held


def _gathered(traced: Traced, setting: Setting) -> float:
    """16-bit weights of whole layers, and of embedding and output layer, which stay gathered from forward to backward."""
    ends = traced.vocabulary * traced.width * (1 if traced.tied else 2)
    layer = (traced.parameters - ends) / max(1, traced.layers) / setting.experts
    return 2 * (ends + GATHERED_LAYERS * layer)


def _state(traced: Traced, setting: Setting, categories: dict[str, float]) -> dict[str, float]:
    """The state of the optimizer as it is held, where that is not as it was traced."""
    chosen = optimizer(setting.optimizer)
    if strategy(setting.strategy).deepspeed:
        wide = chosen.state is None and not chosen.factored
        states = 4 * _moments(traced, chosen) if wide else _of_optimizer(traced, chosen, 8 * traced.trainable)
        categories["optimizer"] = DEEPSPEED_COPIES * traced.trainable + states
        return categories
    if setting.state == "fp32":  # traced in 16 bits
        categories.update({name: 2 * categories[name] for name in STATE if name in categories})
    if setting.state == FP32_ADAPTERS:
        categories["parameters"] += 2 * traced.trainable
        categories.update({name: 2 * categories[name] for name in ("gradients", "optimizer") if name in categories})
    if "optimizer" in categories:
        categories["optimizer"] = _of_optimizer(traced, chosen, categories["optimizer"])
    return categories


def _of_optimizer(traced: Traced, chosen: Optimizer, adamw: float) -> float:
    """Bytes of an optimizer's state, from those of AdamW's two moments."""
    if chosen.factored:
        return min(adamw, 4 * traced.factored)
    if chosen.state is not None:
        return min(adamw, chosen.state * traced.trainable)
    return adamw * _moments(traced, chosen) / (2 * traced.trainable) if traced.trainable else 0


def _moments(traced: Traced, chosen: Optimizer) -> int:
    """How many numbers an optimizer keeps, of the width of the weights."""
    of_matrices = sum(rows * columns * count for (rows, columns), count in traced.matrices.items())
    return chosen.moments * (traced.trainable - of_matrices) + chosen.moments_of_matrix * of_matrices


def _shards(name: str, setting: Setting) -> int:
    """Parts that a category of the state is cut into."""
    chosen = strategy(setting.strategy)
    return 1 if name in STATE[:3] and name not in chosen.shards else setting.shards


def _share_of_state(traced: Traced, setting: Setting) -> float:
    """Of a rank. A pipeline's first and last stage hold the embedding and the output layer beside their layers."""
    if setting.pipeline == 1:
        return 1 / setting.tensor
    ends = traced.vocabulary * traced.width / traced.parameters  # one of the two matrices
    body = 1 - ends * (1 if traced.tied else 2)
    return (body / setting.pipeline + ends) / setting.tensor


def needed(traced: Traced, workload: Workload, setting: Setting, constants: dict[str, float], beside: float = 0.0) -> Needed:
    """`Needed` of one rank. constants: the part "memory" of data/constants.json. beside: bytes that others hold on the GPU, not counted."""
    categories = tensors(traced, workload, setting)
    of_many = (constants["context_many"] - constants["context"]) * GiB if setting.gpus > 1 else 0.0
    peak = replayed(traced, workload, setting, constants, beside)
    if peak:
        worse = replayed(traced, workload, setting, constants, beside + of_many, REPLAY_MARGIN)
        context, total = constants["context"] * GiB, sum(categories.values())
        expected, least, most = (max(size, total) + context for size in (peak.reserved, peak.allocated, worse.reserved))  # type: ignore[union-attr]
        # What is reserved beyond what is allocated is given back where it is needed: it grows no band.
        grown = certain(categories) + constants[band(workload, setting, replayed=True)] * (least - certain(categories))
        return Needed(categories, expected, max(expected, most, grown) + of_many)
    expected = on_device(sum(categories.values()), constants, context=True, reserved=True)
    if strategy(setting.strategy).deepspeed:  # its buffers are an estimate: no published peak says how good it is
        return Needed(categories, expected, expected * constants["high_whole"] + of_many)
    sure = certain(categories)
    return Needed(categories, expected, sure + constants[band(workload, setting)] * (expected - sure) + of_many)


def replayed(
    traced: Traced, workload: Workload, setting: Setting, constants: dict[str, float], beside: float = 0.0, margin: float = 1.0
) -> Peak | None:
    """What the allocator holds on this GPU beside that many bytes, or would on a larger one where it does not fit. None where the trace
    does not say in which order storages come and go: under strategies that shard, with states in host memory, or in kernels that a
    compiler makes. margin: times as much as the replay says is reserved."""
    storages = traced.memory.storages if traced.memory else None
    if not storages or workload.compiled or setting.offload or not _as_on_one(setting):
        return None
    here = states(traced, workload, setting)
    plain = {name: max(categories.get(name, 0) for _, categories in traced.memory.parts) for name in here}  # type: ignore[union-attr]
    factors = {name: size / plain[name] for name, size in here.items() if plain[name]}
    if setting.state == FP32_ADAPTERS:  # of the weights these alone are wider than traced
        factors |= {"parameters": 1, TRAINED: 2}
    logits = workload.batch * workload.length * traced.vocabulary
    unmade = frozenset((2 * logits, 4 * logits) if workload.fused_loss else ())
    held = round(here["parameters"]) if setting.reference else 0
    limit = int((_usable(setting) - constants["context"] * GiB - held - beside) / margin) if setting.gpu.bytes else None
    buckets = "" if not strategy(setting.strategy).buckets else VIEWS if setting.views else APART
    job = (storages, setting.accumulation, tuple(factors.items()), unmade, _workspace(setting), buckets)
    found = _replayed(*job)
    if limit is not None and found.asked <= limit < found.reserved:  # elsewhere the limit changes nothing
        found = _replayed(*job, limit)
    return Peak(found.allocated + held, round(found.reserved * margin) + held, found.asked + held)


def _as_on_one(setting: Setting) -> bool:
    """Whether a rank holds and runs what one GPU would."""
    return not strategy(setting.strategy).shards and setting.tensor * setting.pipeline * setting.sequence * setting.experts == 1


@lru_cache(maxsize=64)
def _replayed(
    storages: Storages, accumulation: int, factors: tuple[tuple[str, float], ...], unmade: frozenset[int], workspace: int, buckets: str,
    limit: int | None = None,
) -> Peak:  # fmt: skip
    """With a limit that is too small: as without one."""
    job = {"accumulation": accumulation, "factors": dict(factors), "unmade": unmade, "workspace": workspace, "buckets": buckets}
    return replay(storages, **job, limit=limit) or _replayed(storages, accumulation, factors, unmade, workspace, buckets)  # type: ignore[arg-type]


def _usable(setting: Setting) -> float:
    """Bytes that the driver has, where it was seen to say so."""
    return setting.gpu.driver_mib * 2**20 if setting.gpu.driver_mib else setting.gpu.bytes  # type: ignore[return-value]


def _workspace(setting: Setting) -> int:
    return OF_HOPPER if setting.gpu.family == "hopper" else WORKSPACE


def certain(categories: dict[str, float]) -> float:
    """Bytes of weights and optimizer state, which follow from shapes. What libraries do differently is the rest: activations,
    temporaries, when gradients go, what the allocator cannot fill."""
    return sum(categories.get(name, 0) for name in ("parameters", "optimizer", "reference weights"))


def band(workload: Workload, setting: Setting, replayed: bool = False) -> str:
    """The name of the constant by which all but the `certain` bytes grow to the upper end, for steps of this kind."""
    if replayed:  # libraries differ in what adapters keep and in which dtype
        return "high_replayed_adapters" if workload.rank else "high_replayed"
    if setting.gpus == 1:
        return "high"
    return "high_many_fused" if workload.compiled else "high_many_qlora" if workload.four_bit else "high_many"


def on_device(total: float, constants: dict[str, float], *, context: bool, reserved: bool) -> float:
    """Bytes of a peak with `total` bytes of tensors: allocated, or reserved by the allocator, or with the context."""
    size = total + constants["workspace"] * GiB
    if reserved:
        size *= 1 + constants["rounding"]
    return size + (constants["context"] * GiB if context else 0)
