"""What kernels take alone, on GPUs of which somebody published tables: `data/kernels.json`. No torch.

A GPU without tables of its own takes those of the nearest one: of its family, with its kind of memory.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from ..tables.hardware import table

if TYPE_CHECKING:
    from .roofline import Processor

BLACKWELL = ("blackwell", "geforce")
FOUR_BITS = ("nvfp4", "mxfp4")  # one table stands for both
SAME_CHIP = {"gb300": "b300-hgx", "h200-nvl": "h200-sxm"}
LIKE_HBM = {"hopper": "h100-sxm5", "blackwell": "b200-hgx"}  # others: the A100
LIKE_GDDR = {"geforce": "rtx-pro-6000-server"}  # Blackwell without NVLink; others: the L40S
MICRO = 1e-6
# Seconds of a small all-reduce that passes through host memory: eight RTX 4090 and NCCL, https://github.com/NVIDIA/nccl/issues/1530
STAGED_SUM = 42.1e-6


class Alone(NamedTuple):
    """Seconds before the first byte, and the share of a peak from there on."""

    floor: float
    share: float


def multiplies(gpu: Processor, precision: str) -> bool:
    """Whether the GPU's tensor cores take weights of this format as they are stored."""
    if precision == "fp8":
        return gpu.fp8 > gpu.half
    return precision in FOUR_BITS and gpu.architecture in BLACKWELL


def product(gpu: Processor, precision: str, rows: int) -> Alone:
    """A product of few rows, up to 64, which reads its weights once. precision: of the weights; where tensor cores do not take them as they
    are stored, they are read like those in bf16."""
    products = _tables(gpu)["products"]
    name = "nvfp4" if precision in FOUR_BITS else precision
    known = products["shares"].get(name if multiplies(gpu, precision) else "bf16") or products["shares"]["bf16"]
    shares = {int(count): share for count, share in known.items()}
    return Alone(products["floor"] * MICRO, _between(shares, min(rows, max(shares))))


def level(gpu: Processor, precision: str) -> float:
    """How much of its peak a large product reaches on this GPU, as a multiple of what it does on an H100: of Hopper and data-center
    Blackwell with tables of their own, which differ in how far their peaks can be reached. Of all others 1."""
    table, reference = _read().get(SAME_CHIP.get(gpu.name, gpu.name)), _read()[LIKE_HBM["hopper"]]
    if not table or gpu.architecture not in LIKE_HBM or gpu.memory_type:
        return 1.0
    return table["large products"][precision] / reference["large products"][precision]


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
    found = _tables(gpu)["cache"]
    return Alone(found["floor"] * MICRO, found["share"])


def all_reduce(gpu: Processor, ranks: int, *, graphs: bool = False) -> float:
    """Seconds of a small all-reduce inside a node: of NCCL, or by the kernels of an engine in CUDA graphs. Beyond eight ranks each
    doubling adds what the last one did."""
    if gpu.staged:
        return STAGED_SUM
    tables = _tables(gpu) if gpu.nvlink else _read()[LIKE_GDDR.get(gpu.architecture, "l40s")]
    own = graphs and (gpu.nvlink or ranks == 2)  # engines leave more than two GPUs without NVLink to NCCL
    return _between({int(count): value for count, value in tables["graphs" if own else "nccl"].items()}, ranks) * MICRO


def _between(known: dict[int, float], number: int) -> float:
    """The value at a number, on the line through those of the two nearest ones, by their logarithm."""
    numbers = sorted(known)
    lower = max((one for one in numbers[:-1] if one <= number), default=numbers[0])
    upper = numbers[numbers.index(lower) + 1]
    share = (math.log2(number) - math.log2(lower)) / (math.log2(upper) - math.log2(lower))
    return known[lower] + share * (known[upper] - known[lower])


def _tables(gpu: Processor) -> dict[str, Any]:
    gpus, name = _read(), SAME_CHIP.get(gpu.name, gpu.name)
    if name in gpus:
        return gpus[name]
    if not gpu.memory_type:
        return gpus[LIKE_HBM.get(gpu.architecture, "a100-sxm4-80")]
    return gpus[LIKE_GDDR.get(gpu.architecture, "l40s")]


@lru_cache(maxsize=1)
def _read() -> dict[str, Any]:
    return table("kernels")["gpus"]
