"""The kernels that recorded operators become: one each in eager PyTorch; in a compiled step `fused` joins what lies between two
matrix products, as TorchInductor does."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection

from .kernels import Kernel, Kernels, Operator

KEEPING = ("forward", "recomputation")  # phases whose results later ones read
CAST = "_to_copy"
LARGEST_CACHE = 256e6  # bytes; no GPU has a larger L2


class Reuse:
    """How far back each read was touched, in bytes moved since: a larger cache than that still holds it."""

    _last: dict[int, int]

    def __init__(self) -> None:
        self._moved, self._last = 0, {}

    def __call__(self, reads: dict[tuple[int, int], int], writes: dict[tuple[int, int], int]) -> tuple[tuple[float, int], ...]:
        found = []
        for key, size in reads.items():
            distance = self._moved - self._last.get(key[0], -math.inf) + size
            if distance < LARGEST_CACHE:
                found.append((distance, size))
        self._moved += sum(reads.values()) + sum(writes.values())
        for key in (*reads, *writes):
            self._last[key[0]] = self._moved
        return tuple(sorted(found))


def eager(operators: list[Operator]) -> Kernels:
    """The kernels of a step that runs operator by operator."""
    found, reuse = Kernels(), Reuse()
    for operator in operators:
        found.dispatched[operator.phase, operator.kind != "free"] += 1
        if operator.kind != "free":
            found.counts[_kernel(operator, operator.reads, operator.writes, reuse)] += 1
    return found


def fused(operators: list[Operator]) -> Kernels:
    """The kernels of a compiled step: pointwise operators and reductions between matrix products are one kernel."""
    groups = _groups(operators)
    traffic = _traffic(operators, groups)
    _recompute_cheap(operators, groups, traffic)
    found, reuse, done = Kernels(), Reuse(), set()
    for index, operator in enumerate(operators):
        if operator.kind in ("product", "attention"):
            found.counts[_kernel(operator, operator.reads, operator.writes, reuse)] += 1
            found.dispatched[operator.phase, True] += 1
        elif operator.kind == "memory" and groups[index] not in done:
            group = groups[index]
            done.add(group)
            reads, writes = traffic[group]
            if reads or writes:
                launches = operator.launches if operator.phase == "optimizer" else 1
                joined = Operator("fused", operator.phase, "memory", operator.dtype, launches=launches)
                found.counts[_kernel(joined, reads, writes, reuse)] += 1
                found.dispatched[operator.phase, True] += 1
    return found


def _kernel(operator: Operator, reads: dict[tuple[int, int], int], writes: dict[tuple[int, int], int], reuse: Reuse) -> Kernel:
    size = sum(reads.values()) + sum(writes.values())
    if operator.name == "native_layer_norm_backward":  # its two kernels both read the gradient and the input
        size += sum(sorted(reads.values())[-2:])
    reused = reuse(reads, writes)
    return Kernel(
        operator.phase, operator.kind, operator.dtype, operator.flops, operator.shape, size, operator.launches, reused
    )


def _groups(operators: list[Operator]) -> list[int]:
    """Of each operator, the index of the first operator that its kernel holds."""
    parent = list(range(len(operators)))

    def root(index: int) -> int:
        while parent[index] != index:
            parent[index] = parent[parent[index]]
            index = parent[index]
        return index

    made_by: dict[tuple[int, int], int | None]
    ready: dict[tuple[int, int], int]
    level: list[int]
    made_by, ready, level = {}, {}, []  # ready: how many matrix products lie before a tensor
    for index, operator in enumerate(operators):
        depth = max((ready.get(key, 0) for key in operator.reads), default=0)
        level.append(depth)
        if operator.kind == "memory":
            for key in operator.reads:
                maker = made_by.get(key)
                same_part = maker is not None and (operators[maker].phase == "optimizer") == (
                    operator.phase == "optimizer"
                )
                if same_part and level[maker] == depth:  # type: ignore[index]
                    parent[root(index)] = root(maker)  # type: ignore[arg-type]
            for key in operator.writes:
                ready[key], made_by[key] = depth, index
        elif operator.kind != "free":
            for key in operator.writes:
                ready[key], made_by[key] = depth + 1, None
    return [root(index) for index in range(len(operators))]


def _readers(operators: list[Operator], groups: list[int]) -> dict[tuple[int, int], set[int | tuple[str, int]]]:
    """Tensor -> groups and products that read it."""
    found: defaultdict[tuple[int, int], set[int | tuple[str, int]]] = defaultdict(set)
    for index, operator in enumerate(operators):
        reader: int | tuple[str, int] = groups[index] if operator.kind == "memory" else ("product", index)
        for key in operator.reads:
            found[key].add(reader)
    return found


def _traffic(operators: list[Operator], groups: list[int]) -> dict[int, tuple[dict[tuple[int, int], int], dict[tuple[int, int], int]]]:
    """Group -> (what it reads from memory, what it writes to memory): results that stay inside do neither."""
    members: defaultdict[int, list[Operator]]
    members, readers = defaultdict(list), _readers(operators, groups)
    for index, operator in enumerate(operators):
        if operator.kind == "memory":
            members[groups[index]].append(operator)
    traffic = {}
    for group, inside in members.items():
        made = {key: size for operator in inside for key, size in operator.writes.items()}
        reads = {key: size for operator in inside for key, size in operator.reads.items() if key not in made}
        seen = {key: size for key, size in made.items() if readers[key] - {group} or not readers[key]}
        traffic[group] = (reads, seen)
    return traffic


def _recompute_cheap(
    operators: list[Operator],
    groups: list[int],
    traffic: dict[int, tuple[dict[tuple[int, int], int], dict[tuple[int, int], int]]],
) -> None:
    """What only fused kernels of the backward pass read is computed again there, if its inputs are no larger.

    AOTAutograd's partitioner decides so, to save memory traffic.
    """
    phase: dict[int | tuple[str, int], str] = {group: operators[group].phase for group in traffic}
    readers = _readers(operators, groups)
    for group in traffic:
        if phase[group] != "forward":
            continue
        reads, writes = traffic[group]
        crossing = {}
        for key, size in writes.items():
            others = readers[key] - {group}
            if others and all(phase.get(other) in ("backward", "recomputation") for other in others):
                crossing[key] = size
        if not crossing or sum(reads.values()) > 2 * sum(crossing.values()):
            continue
        for key in crossing:
            del writes[key]
            for other in readers[key] - {group}:
                needed = traffic[other][0]  # type: ignore[index]  # all of them are groups
                needed.pop(key, None)
                needed.update({read: size for read, size in reads.items() if read not in needed})


def kept(operators: list[Operator], logits: int) -> dict[str, tuple[int, int]]:
    """{phase: (bytes that it keeps for later ones, bytes that it keeps with fused kernels)}, of the forward pass and of what checkpointing
    computes again. A compiled step computes the results of a cheap kernel again, where keeping what it reads takes less. logits: how many
    there are; they are left out, as are 16-bit copies of weights."""
    groups = _groups(operators)
    traffic, readers = _traffic(operators, groups), _readers(operators, groups)
    phase: dict[int | tuple[str, int], str] = {group: operators[group].phase for group in traffic}
    phase |= {("product", index): operator.phase for index, operator in enumerate(operators) if operator.kind != "memory"}
    made_anywhere = {key for operator in operators for key in operator.writes}
    found = {}
    for number, part in enumerate(KEEPING):
        later = (*KEEPING[number + 1 :], "backward")
        own = [operator for operator in operators if operator.phase == part and not (operator.name == CAST and not made_anywhere & operator.reads.keys())]
        made = {key: size for operator in own for key, size in operator.writes.items() if size not in (2 * logits, 4 * logits)}
        read = {key: {reader for reader in readers[key] if phase[reader] in later} for key in made}
        crossing = {key for key in made if read[key]}
        cheap = {group: {key for key in writes if key in crossing and all(reader in traffic for reader in read[key])}
                 for group, (_, writes) in traffic.items() if phase[group] == part}  # fmt: skip
        outside = {key for operator in own if operator.kind != "memory" for key in operator.writes}  # of products and attention
        outside |= {key for group in cheap for key in traffic[group][1]}  # and what fused kernels write
        fused = crossing & outside - set().union(*cheap.values())
        for group, results in cheap.items():
            instead = (traffic[group][0].keys() & made.keys()) - fused
            fused |= min(instead, results, key=lambda keys: _distinct(made, keys))
        found[part] = _distinct(made, crossing), _distinct(made, fused)
    return found


def _distinct(made: dict[tuple[int, int], int], keys: Collection[tuple[int, int]]) -> int:
    """Bytes of the storages of these tensors."""
    largest: Counter[int] = Counter()
    for storage, version in keys:
        largest[storage] = max(largest[storage], made[storage, version])
    return sum(largest.values())
