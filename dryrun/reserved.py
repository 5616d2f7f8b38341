"""What PyTorch's allocator holds on a GPU while a job trains: its steps, replayed on `allocator`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from .allocator import MIB, Allocator, Block, OutOfMemory
from .storage_log import MADE, Storages

# Steps until nothing new is reserved: the first one makes the optimizer's state, between what it left free.
STEPS = 2
# cuBLAS and cuBLASLt keep one each, of 32 MiB on Hopper (aten/src/ATen/cuda/CublasHandlePool.cpp); elsewhere less.
WORKSPACES = (32 * MIB, 32 * MIB)
UNMADE = ("activations", "temporaries")


class Peak(NamedTuple):
    """Bytes at the highest."""

    allocated: int
    reserved: int


def replay(
    storages: Storages,
    *,
    accumulation: int = 1,
    factors: Mapping[str, float] | None = None,
    unmade: Collection[int] = (),
    limit: int | None = None,
) -> Peak | None:
    """The peaks of a job's steps on a GPU that has `limit` bytes for them; None where they run out of memory.

    factors: by how much storages of a category are larger than traced. unmade: sizes of storages that the job does not make.
    """
    try:
        return _Job(storages, factors or {}, unmade, Allocator(limit)).run(accumulation)
    except OutOfMemory:
        return None


class _Job:
    def __init__(self, storages: Storages, factors: Mapping[str, float], unmade: Collection[int], allocator: Allocator) -> None:
        self.storages, self.allocator = storages, allocator
        self.sizes = [
            None if size in unmade and category in UNMADE else round(size * factors.get(category, 1)) for size, category in storages.made
        ]
        self.held: dict[int, Block] = {}  # by the number of the storage

    def run(self, accumulation: int) -> Peak:
        *_, state, forward, backward, step, end = self.storages.sections()
        before = self.storages.events[:forward].count(MADE)
        states = range(before - (forward - state), before)
        self._make(range(states.start))
        for size in WORKSPACES:
            self.allocator.take(size)
        for number in range(STEPS):
            for micro_batch in range(min(accumulation, 2)):  # those after the second one are like it
                self._events(forward, step, before, summed=micro_batch > 0)
            if number == 0:
                self._make(states)
            self._events(step, end, before + self.storages.events[forward:step].count(MADE))
            for storage in [storage for storage in self.held if storage >= before]:
                self._free(storage)
        return Peak(self.allocator.most_allocated, self.allocator.most)

    def _events(self, start: int, end: int, born: int, summed: bool = False) -> None:
        """summed: gradients are added to those that are there."""
        for event in self.storages.events[start:end]:
            if event != MADE:
                self._free(event)
                continue
            if summed and self.storages.made[born][1] == "gradients":
                self.allocator.give(self.allocator.take(self.sizes[born] or 0))
            else:
                self._make([born])
            born += 1

    def _make(self, numbers: Collection[int]) -> None:
        for number in numbers:
            if (size := self.sizes[number]) is not None:
                self.held[number] = self.allocator.take(size)

    def _free(self, number: int) -> None:
        if number in self.held:
            self.allocator.give(self.held.pop(number))
