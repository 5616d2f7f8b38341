"""Kernels and a GPU: seconds.

Each kernel takes `launch + max(compute, bytes)`. Compute is padded to the tiles
of a matrix product and to whole waves of multiprocessors. What the L2 cache still holds is not read again, but by attention, whose
reads are those of tables. Constants say how much of a peak real kernels reach: `fit` takes them from published measurements, and
`data/constants.json` holds them with their date.

`fitting` has the rows of thousands of steps as columns, and tries constants on them by the same formulas.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from ..tables import hardware
from ..tables.refusal import Refusal
from . import kernel_tables
from .elementwise import Numbers, choose, maximum, minimum

if TYPE_CHECKING:
    from ..step.kernels import Kernel

# Kinds of kernels: which constant says how much of the peak a kernel reaches.
PRODUCT, PRODUCT_RECENT, PRODUCT_FP32, PRODUCT_FP8, ATTENTION, ATTENTION_FLASH, ATTENTION_TRITON, MEMORY = range(8)
HBM, GDDR, GDDR_LARGE_CACHE = range(3)
LARGE_CACHE = 24  # MB
FULL, POWER_LIMITED, HALF_RATE = range(3)  # how a GPU's tensor cores are held back
TILES = (
    (256, 128, 1.0),
    (128, 128, 0.95),
    (128, 64, 0.80),
    (64, 64, 0.60),
)  # and how well each keeps tensor cores busy
TILES_FP32 = ((128, 128, 1.0), (128, 64, 0.95), (64, 64, 0.85), (64, 32, 0.70))
SPLITS = (1, 2, 4, 8, 16)  # of the inner dimension, where there are too few tiles
SMALLEST_SPLIT = 256
FEW_ROWS = 8  # fewer rows than that are no work for tensor cores in PyTorch's own operators; engines are in `decoding`
TENSOR_FP32 = {"ampere", "ada", "hopper", "blackwell", "geforce"}  # they have TF32
# MB of L2 and multiprocessors of a family, where an accelerator's row has none.
CACHES = {
    "pascal": 4,
    "volta": 6,
    "turing": 6,
    "ampere": 40,
    "ada": 48,
    "hopper": 50,
    "blackwell": 126,
}
UNITS = {"hopper": 132, "blackwell": 148}
BEFORE_AMPERE = ("pascal", "volta", "turing")  # without bf16
RECENT = {"hopper", "blackwell"}  # they reach less of a much higher peak
MEMORY_ALONE = "The memory of a step is traced without a GPU: give the model's config.json, and leave --gpu out"
# Cards for data centers whose published steps run matrix products far under the boost clock, because of 70, 72 and 150 watts. Watts alone do not say
# so: published steps on workstation cards of 70 to 140 watts (RTX 2000 Ada, RTX 4000 Ada, RTX A4000) keep theirs.
POWER_LIMITED_CARDS = frozenset({"t4", "l4", "a10"})


@dataclass(frozen=True)
class Processor:
    """What the roofline needs to know of a GPU. Peaks are dense, in FLOP/s; bandwidths in bytes/s."""

    name: str
    half: float
    tf32: float
    fp32: float
    fp8: float
    bandwidth: float
    multiprocessors: int
    cache: float
    architecture: str
    memory: float
    link: float  # to other GPUs of the node, in one direction; 0 where unknown
    held_back: int  # FULL, POWER_LIMITED or HALF_RATE
    memory_type: int  # HBM, GDDR or GDDR_LARGE_CACHE, which reach different shares of their peaks
    staged: bool  # GPUs of this kind have no access to each other's memory: what they send passes through the host's
    nvlink: bool  # they come with NVLink; a bridge that is sold apart does not count


def processor(gpu: str | hardware.Accelerator) -> Processor:
    """The GPU, or the one that somebody calls so; ValueError with the nearest names if there is none."""
    return _processor(hardware.accelerator(gpu).key)


@lru_cache(maxsize=256)
def _processor(key: str) -> Processor:
    row = hardware.ACCELERATORS[key]
    if row.shares_memory:
        problem = "no time is predicted but of text for one reader, by `dryrun infer`: hardly anything else was published"
        raise Refusal("gpu", row.key, problem, MEMORY_ALONE, code="one-reader")
    needed = {"peak in 16 bits": row.half, "peak in fp32": row.get("fp32"), "bandwidth": row.get("bandwidth")}
    missing = [what for what, value in needed.items() if not value]
    if missing:
        problem = f"no time is predicted, because its {missing[0]} is not known"
        raise Refusal("gpu", row.key, problem, MEMORY_ALONE, code="unpredicted")
    if row.family not in CACHES:
        problem = f"no time is predicted, because it is of {row.vendor}: only NVIDIA's have been judged"
        raise Refusal("gpu", row.key, problem, MEMORY_ALONE, code="unpredicted")
    link = hardware.LINKS.get(row.get("peer_link"))
    family = (
        "geforce" if row.family == "blackwell" and not str(row.get("peer_link")).startswith("NVLink") else row.family
    )
    return Processor(
        row.key,
        (row.half if row.family != "pascal" else row.get("fp32")) * 1e12,  # type: ignore[operator]  # its fp16 sums in fp32 run at the fp32 rate
        (row.get("tf32") or row.half / 2) * 1e12,  # type: ignore[operator]
        row.get("fp32") * 1e12,
        (row.get("fp8") or row.half) * 1e12,  # type: ignore[operator]
        row.get("bandwidth") * 1e9,
        row.get("units") or UNITS[row.family],
        (row.get("l2") or CACHES[row.family]) * 1e6,
        family,
        row.bytes or 0,
        link.gb_per_s * 1e9 if link else 0.0,
        _held_back(row),
        _memory_type(row),
        row.name.startswith(("GeForce", "TITAN")),
        str(row.get("peer_link")).startswith("NVLink"),
    )


def _memory_type(row: hardware.Accelerator) -> int:
    if not str(row.get("memory_type")).startswith("GDDR"):
        return HBM
    return GDDR_LARGE_CACHE if (row.get("l2") or 0) >= LARGE_CACHE else GDDR


def _held_back(row: hardware.Accelerator) -> int:
    """GeForce multiplies 16 bits with fp32 sums at half rate, so it reaches nearly all of that peak."""
    if row.half / row.get("fp32") < (4.5 if row.family == "turing" else 2.5):
        return HALF_RATE
    return POWER_LIMITED if row.key in POWER_LIMITED_CARDS else FULL


def half_precision(gpu: str) -> str:
    """The 16-bit format that a GPU computes in: bf16, or fp16 before Ampere."""
    return "fp16" if hardware.accelerator(gpu).family in BEFORE_AMPERE else "bf16"


@lru_cache(maxsize=200_000)
def padded(shape: tuple[int, ...], multiprocessors: int, tensor: bool) -> float:
    """FLOPs of a matrix product with the padding of its tiles and of the last wave, for the best tile."""
    m, n, k, many = shape
    best = math.inf
    for rows, columns, share in TILES if tensor else TILES_FP32:
        for tall, wide in {(rows, columns), (columns, rows)}:
            tiles = math.ceil(m / tall) * math.ceil(n / wide) * many
            for split in SPLITS:
                if split > 1 and k / split < SMALLEST_SPLIT:
                    break
                waves = math.ceil(tiles * split / multiprocessors)
                work = waves * multiprocessors * 2 * tall * wide * math.ceil(k / split) / share
                best = min(best, work * (1.02 if split > 1 else 1))
    return best


class Row(NamedTuple):
    """A kernel on a GPU, or a column of each for many."""

    kind: Numbers  # which constant says how much of the peak it reaches
    compute: Numbers  # seconds at the peak
    moved: Numbers
    launches: Numbers
    count: Numbers
    held_back: Numbers
    memory_type: Numbers


def rows(
    kernels: Mapping[Kernel, float], gpu: Processor, precision: str = "", weight_bytes: float | None = None, attention: str = ""
) -> list[Row]:
    """The rows of one step, given {kernel: count}.

    precision: "tf32" or "fp8" changes the peak of the products. weight_bytes: of one weight that decoding reads, where it is not 16
    bits. attention: whose kernels, "" for those that PyTorch takes (see `Setting`).
    """
    found = []
    moved = launches = 0.0  # of kernels without compute: their seconds are a sum, so one row holds them all
    for kernel, count in kernels.items():
        row = _row(kernel, count, gpu, precision, weight_bytes, attention)
        if row.kind == MEMORY:
            moved, launches = moved + count * row.moved, launches + count * row.launches
        else:
            found.append(row)
    found.append(Row(MEMORY, 0.0, moved, launches, 1.0, FULL, gpu.memory_type))
    return found


def row_seconds(row: Row, constants: Mapping[str, float]) -> tuple[Numbers, Numbers, Numbers]:
    """Seconds of a row: bound by compute, by bandwidth, by launches. Their sum is what it takes."""
    clock = choose(row.held_back, (1.0, constants["power_limited"], constants["half_rate"]))
    compute = row.compute / (choose(row.kind, efficiencies(constants)) * clock)
    moved = row.moved / bandwidth_share(constants, constants["bandwidth"], row.memory_type)
    longer = row.count * maximum(compute, moved)
    first = compute >= moved
    return longer * first, longer * (1 - first), row.count * row.launches * constants["launch"]


def seconds(rows: Iterable[Row], constants: Mapping[str, float]) -> tuple[float, float, float]:
    """Seconds of a step's kernels: bound by compute, by bandwidth, by launches."""
    parts = [row_seconds(row, constants) for row in rows]
    return sum(part[0] for part in parts), sum(part[1] for part in parts), sum(part[2] for part in parts)


def bandwidth_share(constants: Mapping[str, float], share: float, memory_type: Numbers) -> Numbers:
    """The share of the data sheet's bandwidth that kernels reach on memory of this type: never more than all of it."""
    return minimum(1.0, share * choose(memory_type, (1.0, constants["bandwidth_gddr"], constants["bandwidth_large_cache"])))


def efficiencies(constants: Mapping[str, float]) -> tuple[float, ...]:
    """The share of its peak that each kind of kernel reaches, in the order of the kinds."""
    product = constants["product"]
    recent = product * constants["product_recent"]
    return (product, recent, constants["product_fp32"], recent * constants["product_fp8"],
            1.0, constants["attention_flash"], constants["attention_triton"], 1.0)  # fmt: skip


def _row(kernel: Kernel, count: float, gpu: Processor, precision: str, weight_bytes: float | None, attention: str) -> Row:
    fp32 = kernel.dtype == "float32"
    tensor = (not fp32 and gpu.architecture != "pascal") or (precision == "tf32" and gpu.architecture in TENSOR_FP32)
    peak = gpu.half if not fp32 else gpu.tf32 if precision == "tf32" else gpu.fp32
    moved: float = kernel.bytes - sum(size for distance, size in kernel.reused if distance < gpu.cache)
    kind, compute = MEMORY, 0.0
    if kernel.kind == "product":
        kind, compute = _product(kernel, gpu, peak, tensor, precision)
        if weight_bytes is not None:
            moved = _weights_read(kernel, weight_bytes, moved)
    elif kernel.kind == "attention":
        kind = _attention_kernel(attention, gpu)
        share, reads = kernel_tables.attention(gpu, kernel.shape[2])
        compute = kernel.flops * (0.5 if kernel.shape[3] else 1.0) / peak / share
        moved = reads * kernel.bytes
    held_back = FULL if kernel.kind == "memory" or (gpu.held_back == HALF_RATE and not tensor) else gpu.held_back
    return Row(kind, compute, max(moved, 0) / gpu.bandwidth, kernel.launches, count, held_back, gpu.memory_type)


def _attention_kernel(attention: str, gpu: Processor) -> int:
    if attention == "triton":
        return ATTENTION_TRITON
    return ATTENTION_FLASH if attention == "flash" and gpu.architecture in RECENT else ATTENTION


def _weights_read(kernel: Kernel, weight_bytes: float, moved: float) -> float:
    """Bytes of a product whose weights have `weight_bytes` each. Few tokens of a mixture read only their experts."""
    m, n, k, many = kernel.shape
    if many == 1:
        return 2 * m * k + 2 * m * n + n * k * weight_bytes
    rows = kernel.flops / (2 * n * k)
    return 2 * rows * (n + k) + rows * n * k * weight_bytes if rows < many else moved


def experts_hit(tokens: float, chosen: int, number: int) -> float:
    """How many of an expert layer's experts at least one of the tokens goes to, where each goes to any `chosen` of them."""
    return number * (1 - (1 - chosen / number) ** tokens)


def _product(kernel: Kernel, gpu: Processor, peak: float, tensor: bool, precision: str) -> tuple[int, float]:
    if kernel.shape[0] <= FEW_ROWS:
        return PRODUCT_FP32, kernel.flops / gpu.fp32
    work = padded(kernel.shape, gpu.multiprocessors, tensor) if min(kernel.shape) > 0 else kernel.flops
    if not tensor:
        return PRODUCT_FP32, work / peak
    if precision == "fp8" and kernel.dtype != "float32" and kernel.shape[3] == 1:
        return PRODUCT_FP8, work / gpu.fp8 / kernel_tables.level(gpu, "fp8")
    return (PRODUCT_RECENT if gpu.architecture in RECENT else PRODUCT), work / peak / kernel_tables.level(gpu, "bf16")
