"""What a traced step holds and computes, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .hardware import GiB

if TYPE_CHECKING:
    from .tracker import Tracker


CATEGORIES = ("parameters", "gradients", "optimizer", "activations", "weight copies", "temporaries", "inputs")


def in_order(sizes: Mapping[str, float]) -> dict[str, float]:
    """The categories that hold anything, in the order of `CATEGORIES`."""
    return {category: sizes[category] for category in CATEGORIES if sizes.get(category)}


@dataclass
class Trace:
    """One traced training step: sizes in bytes; a FLOP is one multiplication or one addition (a matrix product: 2mnk)."""

    parameters: int = 0  # number of parameters, not bytes
    peak: int = 0
    peak_by_category: dict[str, float] = field(default_factory=dict)
    after_forward: dict[str, float] = field(default_factory=dict)  # of the last micro-batch, before its backward pass
    flops: dict[str, float] = field(default_factory=dict)  # forward, backward (with the recomputation), recomputation
    parts: list[tuple[int, dict[str, float]]] = field(default_factory=list)  # (peak, {category: bytes}) of each part of the step
    ends: list[int] = field(default_factory=list)  # bytes alive at the end of each part
    moments: list[tuple[int, int]] = field(default_factory=list)  # storages made in each part before its peak, and after it
    timeline: list[dict[str, float]] = field(default_factory=list)  # {category: bytes} every `Tracker.TIMELINE_EVERY` operators
    seconds: float = 0.0  # that the tracing took

    def take(self, tracker: Tracker) -> None:
        """What the tracker saw of a step whose last part has ended."""
        self.parts = [(part.bytes, tracker.in_order(part.by_category)) for part in tracker.parts]
        self.peak, self.peak_by_category = max(self.parts, key=lambda part: part[0])
        self.flops, self.timeline, self.ends = dict(tracker.flops), tracker.timeline, list(tracker.ends)
        self.moments = list(tracker.moments)

    @property
    def peak_gib(self) -> float:
        return self.peak / GiB

    def gib(self, category: str) -> float:
        """GiB of one category at the peak."""
        return self.peak_by_category.get(category, 0) / GiB
