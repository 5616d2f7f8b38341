"""What kernels take alone, on GPUs of which somebody published tables: `data/kernels.json`. No torch.

A GPU without tables of its own takes those of the nearest one: of its family, with its kind of memory.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from .hardware import table

if TYPE_CHECKING:
    from .roofline import Processor

LIKE_HBM = {"hopper": "h100-sxm5", "blackwell": "b200-hgx"}  # others: the A100
LIKE_GDDR = {"geforce": "rtx-pro-6000-server", "blackwell": "rtx-pro-6000-server"}  # others: the L40S
MICRO = 1e-6
# Seconds of a small all-reduce that passes through host memory: eight RTX 4090 and NCCL, https://github.com/NVIDIA/nccl/issues/1530
STAGED_SUM = 42.1e-6


class Alone(NamedTuple):
    """Seconds before the first byte, and the share of a peak from there on."""

    floor: float
    share: float


def multiplies(gpu: Processor, precision: str) -> bool:
    """Whether tensor cores of such GPUs take weights of this format as they are stored."""
    return precision in _tables(gpu)["products"]


def product(gpu: Processor, precision: str, rows: int) -> Alone:
    """A product of few rows, up to 64, which reads its weights once. precision: of the weights; where tables lack it, that of bf16
    stands."""
    products = _tables(gpu)["products"]
    known = products.get(precision) or products["bf16"]
    return _alone(known[max((count for count in known if int(count) <= rows), key=int)])


def level(gpu: Processor, precision: str) -> float:
    """How much of its peak a large product reaches on this GPU, as a multiple of what it does on an H100: of Hopper and data-center
    Blackwell with tables of their own, which differ in how far their peaks can be reached. Of all others 1."""
    mine, reference = _read().get(gpu.name), _read()[LIKE_HBM["hopper"]]
    if not mine or gpu.architecture not in LIKE_HBM or gpu.memory_type:
        return 1.0
    return mine["large products"][precision] / reference["large products"][precision]


def attention(gpu: Processor, head: int) -> tuple[float, float]:
    """(share of the 16-bit peak, how often its queries, keys, values and output are moved) of a forward pass over a whole sequence."""
    known = _tables(gpu)["attention"]
    nearest = min(known, key=lambda size: abs(int(size) - head))
    return known[nearest]["share"], known[nearest]["reads"]


def stream(gpu: Processor) -> float:
    """The share of its bandwidth at which a GPU reads what is much larger than its cache."""
    return product(gpu, "bf16", 1).share


def cache(gpu: Processor) -> Alone:
    """Attention of one new token over a KV cache in 16 bits."""
    return _alone(_tables(gpu)["cache"])


def all_reduce(gpu: Processor, ranks: int, *, graphs: bool = False) -> float:
    """Seconds of a small all-reduce inside a node: of NCCL, or by the kernels of an engine in CUDA graphs. Beyond eight ranks each
    doubling adds what the last one did."""
    if gpu.staged:
        return STAGED_SUM
    known = _tables(gpu)["graphs" if graphs else "nccl"]
    latencies = {int(count): value if graphs else value["floor"] for count, value in known.items()}
    return _between(latencies, ranks) * MICRO


def _between(latencies: dict[int, float], ranks: int) -> float:
    """On the line through the two nearest numbers of ranks, by their logarithm."""
    counts = sorted(latencies)
    lower = max((count for count in counts[:-1] if count <= ranks), default=counts[0])
    upper = counts[counts.index(lower) + 1]
    share = (math.log2(ranks) - math.log2(lower)) / (math.log2(upper) - math.log2(lower))
    return latencies[lower] + share * (latencies[upper] - latencies[lower])


def _alone(found: dict[str, float]) -> Alone:
    return Alone(found["floor"] * MICRO, found["share"])


def _tables(gpu: Processor) -> dict[str, Any]:
    gpus = _read()
    if gpu.name in gpus:
        return gpus[gpu.name]
    if not gpu.memory_type:
        return gpus[LIKE_HBM.get(gpu.architecture, "a100-sxm4-80")]
    return gpus[LIKE_GDDR.get(gpu.architecture, "l40s")]


@lru_cache(maxsize=1)
def _read() -> dict[str, Any]:
    return table("kernels")["gpus"]
