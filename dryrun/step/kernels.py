"""The kernels of one step of a model: FLOPs, shapes, bytes and how often. `roofline` turns them into seconds.

A deep model is traced with few layers: each layer adds the same kernels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Kernel(NamedTuple):
    """What one launch computes and moves. Equal kernels are counted, not repeated."""

    phase: str  # forward, recomputation, backward, optimizer
    kind: str  # product, attention, memory
    dtype: str
    flops: int
    shape: tuple[int, ...]  # product: m, n, k, how many; attention: queries, keys, head size, causal
    bytes: int
    launches: int
    reused: tuple[tuple[float, int], ...] = ()  # (bytes touched since, bytes): reads that a cache may still hold


@dataclass
class Operator:
    """What one operator of PyTorch reads, writes and computes."""

    name: str
    phase: str
    kind: str  # as of Kernel, or free
    dtype: str = ""
    flops: int = 0
    shape: tuple[int, ...] = ()
    launches: int = 1
    reads: dict[tuple[int, int], int] = field(default_factory=dict)  # (storage, version) -> bytes
    writes: dict[tuple[int, int], int] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        return sum(self.reads.values()) + sum(self.writes.values())


@dataclass
class Kernels:
    """The kernels of a step and how often each runs; a count may be fractional, because depth is a line."""

    counts: Counter[Kernel] = field(default_factory=Counter)
    dispatched: Counter[tuple[str, bool]] = field(
        default_factory=Counter
    )  # (phase, whether it launches) -> operators that the CPU handles

    def of(self, *phases: str) -> dict[Kernel, float]:
        return {kernel: count for kernel, count in self.counts.items() if kernel.phase in phases}

    @property
    def flops(self) -> float:
        return sum(count * kernel.flops for kernel, count in self.counts.items())

    def plus(self, other: Kernels, times: int) -> Kernels:
        """These and `times` the others."""
        found = Kernels(Counter(self.counts), Counter(self.dispatched))
        for kernel, count in other.counts.items():
            found.counts[kernel] += times * count
        for key, count in other.dispatched.items():
            found.dispatched[key] += times * count
        return found


def deep(low: Kernels, high: Kernels, layers: Sequence[int], depth: int) -> Kernels:
    """The `Kernels` of a model of `depth` layers, given those of two shallow ones: each layer adds the same."""
    share = (depth - layers[0]) / (layers[1] - layers[0])
    return Kernels(_line(low.counts, high.counts, share), _line(low.dispatched, high.dispatched, share))


def _line(low: Counter[Any], high: Counter[Any], share: float) -> Counter[Any]:
    found: Counter[Any] = Counter()
    for key in {**low, **high}:  # in one order, whatever the seed of hashes: sums of floats depend on it
        count = low.get(key, 0) + (high.get(key, 0) - low.get(key, 0)) * share
        if count:
            found[key] = count  # type: ignore[assignment]  # of a fraction too
    return found
