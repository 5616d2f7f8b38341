"""What PyTorch's allocator holds on a GPU while a job trains: its steps, replayed on `allocator`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from ..step.allocator import MIB, Allocator, Block, OutOfMemory
from ..step.storage_log import MADE, Storages
from ..tables import strategies

# Steps until nothing new is reserved: the first one makes the optimizer's state, in the holes that its backward pass left.
STEPS = 2
# A workspace of cuBLAS, on Hopper and elsewhere (aten/src/ATen/cuda/CublasHandlePool.cpp). Our H100 and H200 held two.
WORKSPACES, OF_HOPPER, WORKSPACE = 2, 32 * MIB, 8 * MIB + 128 * 1024
APART, VIEWS = "apart", "views"  # DDP's buckets beside the gradients, or the gradients are views of them
TRAINED = "trained"  # a key of the factors


class Peak(NamedTuple):
    """Bytes at the highest. A GPU with `reserved` bytes or more takes these steps the same way; one with fewer than `asked`, not at all."""

    allocated: int
    reserved: int
    asked: int


def replay(
    storages: Storages,
    *,
    accumulation: int = 1,
    factors: Mapping[str, float] | None = None,
    changed: Mapping[int, float] | None = None,
    workspace: int = WORKSPACE,
    buckets: str = "",
    limit: int | None = None,
) -> Peak | None:
    """The peaks of a job's steps on a GPU that has `limit` bytes for them; None where they run out of memory.

    factors: by how much storages of a category are larger than traced; TRAINED goes before "parameters" for weights with a gradient.
    changed: {number of a storage: how many times as large it is again, 0 for one that is not made}. workspace: bytes of one workspace of
    cuBLAS. buckets: those of DDP, APART or VIEWS; "" for a job without.
    """
    try:
        return _Job(storages, factors or {}, changed or {}, Allocator(limit)).run(accumulation, workspace, buckets)
    except OutOfMemory:
        return None


class _Job:
    def __init__(self, storages: Storages, factors: Mapping[str, float], changed: Mapping[int, float], allocator: Allocator) -> None:
        self.storages, self.allocator = storages, allocator
        self.sizes = self._sizes(factors, changed)
        self.held: dict[int, Block] = {}  # by the number of the storage

    def _sizes(self, factors: Mapping[str, float], changed: Mapping[int, float]) -> list[int | None]:
        """Bytes of each storage, None for one that is not made."""
        made = self.storages.made
        trained = Counter(size for size, category in made if category == "gradients")
        found: list[int | None] = []
        for number, (size, category) in enumerate(made):
            factor = factors.get(category, 1.0)
            if category == "parameters" and trained[size] > 0:
                trained[size] -= 1
                factor = factors.get(TRAINED, factor)
            again = changed.get(number, 1)
            found.append(round(size * factor * again) if again else None)
        return found

    def run(self, accumulation: int, workspace: int, buckets: str) -> Peak:
        *_, state, forward, backward, step, end = self.storages.sections()
        for storage in range(state):  # nothing is freed before the forward pass: an event is a storage
            self._make(storage)
        for _ in range(WORKSPACES):
            self.allocator.take(workspace)
        for size in self._buckets() if buckets else []:  # DDP makes them when it takes the model
            self.allocator.take(size)
        for number in range(STEPS):
            for micro_batch in range(min(accumulation, 2)):  # those after the second one are like it
                self._events(forward, step, forward, summed=micro_batch > 0 or buckets == VIEWS)
            if number == 0:
                for storage in range(state, forward):
                    self._make(storage)
            self._events(step, end, forward + self.storages.events[forward:step].count(MADE))
            for storage in [storage for storage in self.held if storage >= forward]:
                self.allocator.give(self.held.pop(storage))
        return Peak(self.allocator.most_allocated, self.allocator.most, self.allocator.most_asked)

    def _events(self, start: int, end: int, born: int, summed: bool = False) -> None:
        """summed: gradients are added to those that are there, or copied into a bucket."""
        take, give, sizes, held, made = self.allocator.take, self.allocator.give, self.sizes, self.held, self.storages.made
        for event in self.storages.events[start:end]:
            if event != MADE:
                if block := held.pop(event, None):
                    give(block)
                continue
            size = sizes[born]
            if size is not None:
                block = take(size)
                if summed and made[born][1] == "gradients":
                    give(block)
                else:
                    held[born] = block
            born += 1

    def _buckets(self) -> list[int]:
        """Bytes of each of DDP's."""
        made = zip(self.sizes, self.storages.made, strict=True)
        sizes = [size for size, (_, category) in made if size and category == "gradients"]
        return [sum(sizes[place] for place in bucket) for bucket in strategies.buckets(sizes)]

    def _make(self, number: int) -> None:
        if (size := self.sizes[number]) is not None:
            self.held[number] = self.allocator.take(size)
