"""What a GPU needs for a step: the traced tensors, and what comes on top of them.

On top are workspaces of cuBLAS and of kernels, the blocks that the allocator rounds to and cannot fill, buffers of NCCL,
and the CUDA context. Where ranks run whole layers the allocator is replayed (see `reserved`), with the rank's shards, but for offload and
DeepSpeed. Elsewhere only the upper end has room for it. The context is the median of what out-of-memory messages say is not PyTorch's; with
many GPUs it is larger, so the upper end has what nine of ten of them say.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from ..step.storage_log import in_order
from ..tables.hardware import GiB
from ..tables.optimizers import Optimizer, optimizer
from ..tables.strategies import strategy
from . import storage_factors
from .reserved import APART, OF_HOPPER, TRAINED, VIEWS, WORKSPACE, Peak, replay
from .setting import FP32_ADAPTERS

if TYPE_CHECKING:
    from ..step.storage_log import Storages
    from ..step.workload import Traced, Workload
    from .setting import Setting

NAMES = {"parameters": "weights", "optimizer": "optimizer state"}  # of categories, as answers call them
STATE = ("parameters", "gradients", "optimizer", "weight copies")
DEEPSPEED_COPIES = 8  # bytes for each weight beside the moments: weight and gradient in fp32, as its own estimate counts
DEEPSPEED_MOST = 38 / 23.8  # GB that one user measured under ZeRO-3, and under FSDP: https://github.com/deepspeedai/DeepSpeed/issues/3901
DEEPSPEED_BUCKET = 5e8  # gradients, in 16 bits: reduce_bucket_size
GATHERED_LAYERS = 2  # whole layers that FSDP2 holds at once: the one that computes and the next
FOUR_BITS = 0.5  # bytes for each weight
WHOLE_GRADIENT = 4  # bytes for each weight: FSDP2 adds them up in the dtype that it reduces in
REPLAY_MARGIN = 1.05  # what our H100 and H200 reserved for full fine-tuning was nearer to the replay (tests/dryrun/test_reserved.py)


@dataclass(frozen=True)
class Needed:
    categories: dict[str, float]  # bytes of tensors at the peak
    expected: float  # bytes on the GPU, with the CUDA context
    high: float  # and with the upper end of the band

    def fits(self, size: float) -> bool:
        """Whether a GPU of this many bytes is large enough, by the upper end."""
        return self.high <= size


def tensors(traced: Traced, workload: Workload, setting: Setting, loss_in_place: bool = False) -> dict[str, float]:
    """{category: bytes} at the peak of one rank. loss_in_place: see `storage_factors`."""
    always, held = _always(traced, workload, setting), _held(traced, setting)
    of_category = {name: held[name] / size for name, size in _as_traced(traced).items()}
    if "gradients" in always:
        of_category["gradients"] = 0.0
    split = setting.tensor * setting.sequence
    in_flight = min(_most_in_flight(setting), setting.accumulation)
    of_category["activations"] = in_flight / (split * setting.pipeline)
    of_category |= dict.fromkeys(("temporaries", "inputs"), 1 / split)
    changed = storage_factors.factors(traced, workload, setting, loss_in_place)
    at_peak = _highest(_storages(traced), tuple(of_category.items()), changed) | always
    found = max([at_peak, *_after_backward(traced, workload, setting)], key=lambda categories: sum(categories.values()))
    return in_order(found) | {name: size for name, size in found.items() if size}


def _most_in_flight(setting: Setting) -> float:
    """Micro-batches whose activations the first stage of 1F1B holds; interleaved ones hold a part of one more for each other stage."""
    more = (setting.pipeline - 1) / setting.virtual_stages if setting.virtual_stages > 1 else 0.0
    return setting.pipeline + more


def _after_backward(traced: Traced, workload: Workload, setting: Setting) -> Iterator[dict[str, float]]:
    """{category: bytes} at moments that no trace of one GPU has: while FSDP2 reduces the last gradients, and while the optimizer makes
    something of all weights or of the largest one. The traced one changes them in place."""
    chosen, held = optimizer(setting.optimizer), states(traced, setting)
    always = _always(traced, workload, setting)
    if "gathered weights" in always and not workload.rank:
        yield held | always | {"gathered weights": 0, "temporaries": _reduced_last(traced, workload, setting)}
    made = 0.0
    if not strategy(setting.strategy).deepspeed:  # it has an AdamW of its own, which is fused
        made = held.get("optimizer", 0) * chosen.at_once / max(1, chosen.moments) + chosen.of_largest * _largest(traced) / _shards("optimizer", setting)
    yield held | always | {"gradients": held.get("gradients", 0), "gathered weights": 0, "temporaries": made}  # whole gradients are reduced by then


def _reduced_last(traced: Traced, workload: Workload, setting: Setting) -> float:
    """Bytes of the gradients of embedding and output layer, whole, and of the buffer from which they are reduced. They are of FSDP2's outermost
    module, which comes last (torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py, foreach_reduce)."""
    return (computed_bytes(workload) + WHOLE_GRADIENT) * embeddings(traced) / (setting.tensor * setting.pipeline)


def _largest(traced: Traced) -> int:
    """Weights of the largest tensor that is trained: the embedding, or a matrix of a layer."""
    if traced.trainable < traced.parameters:
        return max((rows * columns for rows, columns in traced.matrices), default=0)
    return max(traced.vocabulary * traced.width, *(rows * columns for rows, columns in traced.matrices), 0)


def keeps_whole_gradients(setting: Setting) -> bool:
    """Whether a step has micro-batches after which gradients are not reduced, under a strategy that shards them."""
    sharded = strategy(setting.strategy).gathers
    return setting.whole_gradients and setting.accumulation > 1 and sharded and not setting.offload


def states(traced: Traced, setting: Setting) -> dict[str, float]:
    """{category: most bytes} of what a rank holds of weights, gradients and optimizer state. They need not all be there at the peak."""
    return {name: size for name, size in _held(traced, setting).items() if name in STATE[:3]}


def _held(traced: Traced, setting: Setting) -> dict[str, float]:
    """{category: most bytes} of what a rank holds of `STATE`."""
    return dict.fromkeys(STATE, 0.0) if setting.offload else _shares(traced, setting)


def _shares(traced: Traced, setting: Setting) -> dict[str, float]:
    """{category: most bytes} of a rank's shares of `STATE`, on the GPU or in host memory."""
    whole = _state(traced, setting, _as_traced(traced))
    return {name: size * _share_of_state(traced, setting) / _shards(name, setting) for name, size in whole.items()}


def _as_traced(traced: Traced) -> dict[str, float]:
    """{category: most bytes} of `STATE` in the traced step."""
    return {name: size for name in STATE if (size := _most(_storages(traced), name))}


def _always(traced: Traced, workload: Workload, setting: Setting) -> dict[str, float]:
    """{category: bytes} of what a rank has at every moment of forward and backward pass, where that is not as it was traced."""
    split, chosen = setting.tensor * setting.pipeline, strategy(setting.strategy)
    found = {}
    if keeps_whole_gradients(setting):
        found["gradients"] = WHOLE_GRADIENT * traced.trainable / split
    elif setting.views or setting.accumulation > 1:  # buckets are there all the time, sums from the second micro-batch on
        found["gradients"] = states(traced, setting).get("gradients", 0)
    if setting.reference:
        found["reference weights"] = _shares(traced, setting)["parameters"]
    if chosen.gathers and setting.data > 1 or setting.offload:
        found["gathered weights"] = _gathered(traced, workload, setting) / split
    if chosen.buckets and not setting.views:
        found["gradient buckets"] = _state(traced, setting, _as_traced(traced)).get("gradients", 0) / split
    if chosen.deepspeed:
        found["gradient buckets"] = 2 * min(DEEPSPEED_BUCKET, traced.trainable)
    return found


def _storages(traced: Traced) -> Storages:
    """ValueError where a trace does not say in which order storages come and go, as that of a forward pass."""
    if not traced.memory or not traced.memory.storages:
        raise ValueError("its storages were not traced: memory is known of training steps alone")
    return traced.memory.storages


@lru_cache(maxsize=64)
def _highest(storages: Storages, factors: tuple[tuple[str, float], ...], changed: tuple[tuple[int, float], ...]) -> dict[str, float]:
    return storages.highest(dict(factors), dict(changed))


@lru_cache(maxsize=64)
def _most(storages: Storages, category: str) -> int:
    return storages.most(category)


def _gathered(traced: Traced, workload: Workload, setting: Setting) -> float:
    """Bytes of the weights of whole layers, and of embedding and output layer, which stay gathered from forward to backward."""
    apart = embeddings(traced)
    layer = (traced.parameters - apart) / max(1, traced.layers) / setting.experts
    return computed_bytes(workload) * apart + (FOUR_BITS if workload.four_bit else computed_bytes(workload)) * GATHERED_LAYERS * layer


def embeddings(traced: Traced) -> int:
    """Weights of embedding and output layer."""
    return traced.vocabulary * traced.width * (1 if traced.tied else 2)


def computed_bytes(workload: Workload) -> int:
    """Bytes of a number that a step computes with."""
    return 4 if workload.weights == "float32" and not workload.autocast else 2


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
        embedding = traced.vocabulary * traced.width if chosen.wide_embedding and traced.trainable == traced.parameters else 0
        return chosen.state * (traced.trainable - embedding) + 8 * embedding
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
    expected = sum(categories.values()) + constants["context"] * GiB
    if strategy(setting.strategy).deepspeed:  # its buffers are an estimate: no published peak says how good it is
        return Needed(categories, expected, expected * DEEPSPEED_MOST + of_many)
    sure = certain(categories)
    return Needed(categories, expected, sure + constants[band(workload, setting)] * (expected - sure) + of_many)


def replayed(
    traced: Traced, workload: Workload, setting: Setting, constants: dict[str, float], beside: float = 0.0, margin: float = 1.0,
    loss_in_place: bool = False,
) -> Peak | None:  # fmt: skip
    """What the allocator holds on this GPU beside that many bytes, or would on a larger one where it does not fit. None where the trace
    does not say in which order storages come and go: where ranks split layers, with states in host memory, under DeepSpeed. A compiler's
    storages come in the order of PyTorch's operators. margin: times as much as the replay says is reserved."""
    storages = traced.memory.storages if traced.memory else None
    split = setting.tensor * setting.pipeline * setting.sequence * setting.experts > 1
    if not storages or setting.offload or split or strategy(setting.strategy).deepspeed:
        return None
    here = _held(traced, setting)
    factors = {name: here[name] / size for name, size in _as_traced(traced).items()}
    if setting.state == FP32_ADAPTERS:  # of the weights these alone are wider than traced
        factors |= {"parameters": 1 / _shards("parameters", setting), TRAINED: 2 / _shards("parameters", setting)}
    changed = storage_factors.factors(traced, workload, setting, loss_in_place)
    always = _always(traced, workload, setting)
    held = round(sum(always.get(name, 0) for name in ("reference weights", "gathered weights")))
    if keeps_whole_gradients(setting):
        held, factors["gradients"] = held + round(always["gradients"]), 0.0
    usable = setting.gpu.usable
    limit = int((usable - constants["context"] * GiB - held - beside) / margin) if usable else None
    buckets = "" if not strategy(setting.strategy).buckets else VIEWS if setting.views else APART
    job = (storages, setting.accumulation, tuple(factors.items()), changed, _workspace(setting), buckets)
    found = _replayed(*job)
    if limit is not None and found.asked <= limit < found.reserved:  # elsewhere the limit changes nothing
        found = _replayed(*job, limit)
    after = round(max(sum(categories.values()) for categories in _after_backward(traced, workload, setting)))
    return Peak(*(max(size + held, after) for size in (found.allocated, round(found.reserved * margin), found.asked)))


@lru_cache(maxsize=64)
def _replayed(
    storages: Storages, accumulation: int, factors: tuple[tuple[str, float], ...], changed: storage_factors.Factors, workspace: int, buckets: str,
    limit: int | None = None,
) -> Peak:  # fmt: skip
    """With a limit that is too small: as without one."""
    job = {"accumulation": accumulation, "factors": dict(factors), "changed": dict(changed), "workspace": workspace, "buckets": buckets}
    return replay(storages, **job, limit=limit) or _replayed(storages, accumulation, factors, changed, workspace, buckets)  # type: ignore[arg-type]


def _workspace(setting: Setting) -> int:
    return OF_HOPPER if setting.gpu.family == "hopper" else WORKSPACE


def certain(categories: dict[str, float]) -> float:
    """Bytes of weights and optimizer state, which follow from shapes. What libraries do differently is the rest: activations,
    temporaries, when gradients go, what the allocator cannot fill."""
    return sum(categories.get(name, 0) for name in ("parameters", "optimizer", "reference weights"))


def band(workload: Workload, setting: Setting, replayed: bool = False) -> str:
    """The name of the constant by which all but the `certain` bytes grow to the upper end, for steps of this kind."""
    alone = not strategy(setting.strategy).shards and not workload.compiled  # under DDP each GPU takes the steps of one
    name = "high_replayed" if replayed and alone else "high" if setting.gpus == 1 else "high_many"
    return f"{name}_adapters" if workload.rank else name  # libraries differ in what adapters keep and in which dtype
