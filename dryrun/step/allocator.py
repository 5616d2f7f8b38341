"""PyTorch's caching allocator, replayed: what it reserves on a GPU for the storages that a step makes and frees.

The rules are those of c10/cuda/CUDACachingAllocator.cpp with its default settings, on one stream: sizes are rounded to 512 bytes;
blocks of up to 1 MiB come from segments of 2 MiB, others of less than 10 MiB from segments of 20 MiB, larger ones from segments
rounded to 2 MiB; the smallest free block that is large enough is taken, and split where enough is left; neighbors that are free are
joined; and when the GPU is full, segments that hold nothing are given back before it asks again.
https://github.com/pytorch/pytorch/blob/v2.13.0/c10/cuda/CUDACachingAllocator.cpp
"""

from __future__ import annotations

from bisect import bisect_left, insort

MIB = 2**20
ROUNDED = 512  # kMinBlockSize
SMALL = MIB  # kSmallSize: the largest of the small ones, and the least that is split off a large one
SMALL_SEGMENT = 2 * MIB  # kSmallBuffer
SEGMENT = 20 * MIB  # kLargeBuffer
LARGE = 10 * MIB  # kMinLargeAlloc: from here on a segment is made to measure
SEGMENT_ROUNDED = 2 * MIB  # kRoundLarge


class OutOfMemory(RuntimeError):
    """A GPU of this size cannot hold what is asked for."""


class Block:
    """A part of a segment."""

    __slots__ = ("address", "after", "asked", "before", "free", "size", "small")

    def __init__(self, address: int, size: int, small: bool) -> None:
        self.address, self.size, self.small, self.free = address, size, small, False
        self.asked = 0
        self.before: Block | None = None
        self.after: Block | None = None


FreeBlock = tuple[int, int, Block]  # its size, its address, itself: of one size the lowest address is taken


class Allocator:
    """`reserved` bytes now, and `most` that were. limit: bytes that the GPU has for it; None has no end.

    most_asked: the most that blocks were asked for at once. It does not depend on where they lie, so no smaller limit can do.
    """

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit
        self.reserved = self.most = self.allocated = self.most_allocated = self.asked = self.most_asked = 0
        self._pools: tuple[list[FreeBlock], list[FreeBlock]] = ([], [])  # free blocks, small and large, the smallest first
        self._next = 0  # address of the next segment

    def take(self, size: int) -> Block:
        """A block for that many bytes. Raises OutOfMemory."""
        size = -(-size // ROUNDED) * ROUNDED or ROUNDED
        pool = self._pools[size > SMALL]
        at = bisect_left(pool, (size,))
        block = pool.pop(at)[2] if at < len(pool) else self._segment(size)
        block.free = False
        left = block.size - size
        if left > SMALL or left and size <= SMALL:
            rest = Block(block.address + size, left, block.small)
            rest.before, rest.after = block, block.after
            if block.after:
                block.after.before = rest
            block.after, block.size = rest, size
            self._put(rest)
        block.asked = size
        self.asked += size
        self.allocated += block.size
        if self.asked > self.most_asked:
            self.most_asked = self.asked
        if self.allocated > self.most_allocated:
            self.most_allocated = self.allocated
        return block

    def give(self, block: Block) -> None:
        """Frees a block."""
        self.allocated -= block.size
        self.asked -= block.asked
        if (after := block.after) and after.free:
            self._take_out(after)
            self._join(block, after)
        if (before := block.before) and before.free:
            self._take_out(before)
            self._join(before, block)
            block = before
        self._put(block)

    def _segment(self, size: int) -> Block:
        wanted = SMALL_SEGMENT if size <= SMALL else SEGMENT if size < LARGE else -(-size // SEGMENT_ROUNDED) * SEGMENT_ROUNDED
        if self.limit is not None and self.reserved + wanted > self.limit:
            self._release()
            if self.reserved + wanted > self.limit:
                raise OutOfMemory(f"{wanted / MIB:,.0f} MiB more than the {self.reserved / MIB:,.0f} MiB that are reserved")
        self.reserved += wanted
        self.most = max(self.most, self.reserved)
        block = Block(self._next, wanted, size <= SMALL)
        self._next += wanted
        return block

    def _release(self) -> None:
        """Gives segments back that hold nothing."""
        for pool in self._pools:
            for _, _, block in [*pool]:
                if not block.before and not block.after:
                    self._take_out(block)
                    self.reserved -= block.size

    def _put(self, block: Block) -> None:
        block.free = True
        insort(self._pools[not block.small], (block.size, block.address, block))

    def _take_out(self, block: Block) -> None:
        pool = self._pools[not block.small]
        del pool[bisect_left(pool, (block.size, block.address))]
        block.free = False

    @staticmethod
    def _join(first: Block, last: Block) -> None:
        """Makes the first one as long as both."""
        first.size += last.size
        first.after = last.after
        if last.after:
            last.after.before = first
