"""What a traced step holds and computes, as data."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

from ..tables.hardware import GiB
from .storage_log import Storages


class Seen(Protocol):
    """What a `Tracker` saw of a step."""

    parts: Any
    flops: Any
    timeline: Any

    def in_order(self, by_category: Any) -> dict[str, float]: ...


@dataclass
class Trace:
    """One traced training step: sizes in bytes; a FLOP is one multiplication or one addition (a matrix product: 2mnk)."""

    parameters: int = 0  # number of parameters, not bytes
    peak: int = 0
    peak_by_category: dict[str, float] = field(default_factory=dict)
    after_forward: dict[str, float] = field(default_factory=dict)  # of the last micro-batch, before its backward pass
    flops: dict[str, float] = field(default_factory=dict)  # forward, backward (with the recomputation), recomputation
    parts: list[tuple[int, dict[str, float]]] = field(default_factory=list)  # (peak, {category: bytes}) of each part of the step
    storages: Storages | None = None  # that came and went, where the whole step is known
    timeline: list[dict[str, float]] = field(default_factory=list)  # {category: bytes} every `Tracker.TIMELINE_EVERY` operators
    seconds: float = 0.0  # that the tracing took

    def take(self, tracker: Seen) -> None:
        """What the tracker saw of a step whose last part has ended."""
        self.parts = [(part.bytes, tracker.in_order(part.by_category)) for part in tracker.parts]
        self.peak, self.peak_by_category = max(self.parts, key=lambda part: part[0])
        self.flops, self.timeline = dict(tracker.flops), tracker.timeline

    @property
    def peak_gib(self) -> float:
        return self.peak / GiB

    def gib(self, category: str) -> float:
        """GiB of one category at the peak."""
        return self.peak_by_category.get(category, 0) / GiB


class StoredTrace(Trace):
    """The trace of a step of these storages. Its peaks are looked for when somebody asks: what a setting makes of them is another one."""

    def __init__(self, storages: Storages, flops: dict[str, float]) -> None:
        self.storages, self.flops = storages, flops
        self.after_forward, self.timeline = {}, []

    @cached_property
    def parts(self) -> list[tuple[int, dict[str, float]]]:  # type: ignore[override]
        return self.storages.parts()  # type: ignore[union-attr]

    @cached_property
    def peak(self) -> int:  # type: ignore[override]
        return max(size for size, _ in self.parts)

    @cached_property
    def peak_by_category(self) -> dict[str, float]:  # type: ignore[override]
        return max(self.parts, key=lambda part: part[0])[1]
