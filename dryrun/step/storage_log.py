"""The storages that a step makes and frees, in order; and those of a deep model, from two shallow ones.

A step runs its layers one after the other, so its events repeat, layer by layer, within each of its sections: the weights that are
there when it starts, its inputs, the optimizer's state, the forward pass, the backward pass, the optimizer's step. A deeper model
repeats them more often. Which storage an event frees is on a line too, from the first layer to the last one.

A *part* is what has a peak of its own: the forward pass, each half of the backward pass, the optimizer's step. A *section* is one of the
above. A *stretch* is a piece of a section in which one layer repeats: a fused optimizer frees all gradients after all kernels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, count, pairwise
from operator import mul

CATEGORIES = ("parameters", "gradients", "optimizer", "activations", "weight copies", "temporaries", "inputs")

Kind = tuple[bool, int, str]  # of an event: (whether it makes a storage, bytes more, category)
Event = tuple[Kind, int]
DIFFER = "layers differ in what they run"
MADE = -1  # an event that makes the next storage; any other is the number of the storage that it frees
OF_LOGITS = ("activations", "temporaries")  # categories that they are in
NEAR = 16  # storages before and after the end of the forward pass, among which logits are: tensors of layers may be as large
CLAIMED = ("parameters", "inputs", "optimizer")  # categories of what is there before the first operator, in this order


def in_order(sizes: Mapping[str, float]) -> dict[str, float]:
    """The categories that hold anything, in the order of `CATEGORIES`."""
    return {category: sizes[category] for category in CATEGORIES if sizes.get(category)}


class Unlike(ValueError):
    """The events of two models are not those of one layer repeated: their layers differ in what they run."""


@dataclass(frozen=True)
class Storages:
    """What a step makes and frees. `made` holds (bytes, category) in the order in which storages are made, from number 0."""

    made: list[tuple[int, str]]
    events: list[int]
    ends: list[int]  # how many events there are before each end of a part: forward, two halves of backward, step

    def __hash__(self) -> int:
        return id(self)  # for caches: hashing what is in the lists would take longer than what is kept

    @classmethod
    def of_log(cls, made: list[tuple[int, str]], log: Iterable[int]) -> Storages:
        """log: the number of a storage that is made, from 1, minus that of one that is freed, 0 at the end of a part."""
        events: list[int] = []
        ends = []
        for number in log:
            if number:
                events.append(MADE if number > 0 else -number - 1)
            else:
                ends.append(len(events))
        return cls(made, events[: ends[-1]], ends)  # what comes after the last part has no peak

    def sized(self, values: Sequence[int]) -> Storages:
        """The same in bytes, where the sizes of these are places in `values`."""
        found = Storages([(values[place], category) for place, category in self.made], self.events, self.ends)
        found.__dict__["_order"] = self._order
        return found

    @cached_property
    def _order(self) -> tuple[list[int], list[int]]:
        """(the number of the storage that each event is about, 1 where it is made and -1 where it is freed)."""
        born = count()
        return [next(born) if event == MADE else event for event in self.events], [1 if event == MADE else -1 for event in self.events]

    @cached_property
    def _columns(self) -> tuple[tuple[float, ...], tuple[str, ...]]:
        """(bytes, category) of the storages in order."""
        return tuple(zip(*self.made, strict=True))  # type: ignore[return-value]

    def _totals(self, sizes: list[float]) -> list[float]:
        """Bytes after each event, of storages of these sizes."""
        numbers, signs = self._order
        return list(accumulate(map(mul, signs, map(sizes.__getitem__, numbers))))

    def changes(self) -> list[tuple[int, str]]:
        """(bytes more, category) of each event."""
        made, freed = iter(self.made), [(-size, category) for size, category in self.made]
        return [next(made) if event == MADE else freed[event] for event in self.events]

    def parts(self) -> list[tuple[int, dict[str, float]]]:
        """(peak, {category: bytes}) of each part. What is alive when a part starts belongs to it."""
        changes = self.changes()
        totals = [0, *accumulate(size for size, _ in changes)]  # after so many events
        now: Counter[str] = Counter()
        found, counted = [], 0
        for first, last in pairwise([0, *self.ends]):
            peak = totals.index(max(totals[first : last + 1]), first)
            for size, category in changes[counted:peak]:
                now[category] += size
            counted = peak
            found.append((totals[peak], in_order(now)))
        return found

    def highest(self, factors: Mapping[str, float], changed: Mapping[int, float]) -> dict[str, float]:
        """{category: bytes} where the step holds most, if storages of a category were `factors` times as large (1 where it is not
        named), and the storages of these numbers again so many times."""
        traced, categories = self._columns
        sizes = list(map(mul, traced, map((dict.fromkeys(CATEGORIES, 1) | dict(factors)).__getitem__, categories)))
        for number, factor in changed.items():
            sizes[number] *= factor
        totals = self._totals(sizes)
        found: dict[str, float] = {}
        for number in self._alive(totals.index(max(totals)) + 1):
            category = self.made[number][1]
            found[category] = found.get(category, 0) + sizes[number]
        return in_order(found)

    def most(self, category: str) -> int:
        """The most bytes of one category that are there at once."""
        traced, categories = self._columns
        return round(max(self._totals(list(map(mul, traced, map(category.__eq__, categories)))), default=0))

    def logits(self, each: int) -> dict[int, bool]:
        """{number of a storage of `each` bytes: whether the forward pass keeps it for the backward pass}, of what may be logits: the forward
        pass ends with them, and the backward pass starts with theirs. There a storage of a trained weight's size may become its gradient,
        and is none."""
        backward, kept = self._forward
        first, end = max(0, backward - NEAR), backward + NEAR
        of_gradients = {size for size, category in self.made[backward:] if category == "gradients"}
        return {
            number: number in kept
            for number, (size, category) in enumerate(self.made[first:end], first)
            if size == each and category in OF_LOGITS and (number < backward or size not in of_gradients)
        }

    def activations(self) -> dict[int, bool]:
        """{number: whether the forward pass keeps it for the backward pass, or checkpointing makes it there}."""
        backward, kept = self._forward
        here = (number for number, (_, category) in enumerate(self.made) if category == "activations")
        return {number: number in kept for number in here if number in kept or number >= backward}

    @cached_property
    def _forward(self) -> tuple[int, set[int]]:
        """(how many storages have been made when it ends, the numbers of those that are alive then)."""
        return self.events[: self.ends[0]].count(MADE), self._alive(self.ends[0])

    def _alive(self, after: int) -> set[int]:
        """The numbers of the storages that are alive after so many events."""
        events = self.events[:after]
        return set(range(events.count(MADE))).difference(events)

    def sections(self) -> list[int]:
        """Where each section starts, and the end of the last one."""
        started = 0
        starts = []
        for category in CLAIMED:
            starts.append(started)
            while started < len(self.events) and self.events[started] == MADE and self.made[started][1] == category:
                started += 1
        forward, _half, backward, step = self.ends
        return [*starts, started, forward, backward, step]

    def kinds(self) -> list[Kind]:
        """`Kind` of each event."""
        return [(event == MADE, size, category) for event, (size, category) in zip(self.events, self.changes(), strict=True)]


def deep(low: Storages, high: Storages, layers: Sequence[int], number: int) -> Storages:
    """The storages of a model of `number` layers, given those of models of two depths. Raises Unlike."""
    extra, more = layers[1] - layers[0], number - layers[0]
    kinds = low.kinds(), high.kinds()
    deep_kinds: list[Kind] = []
    events: list[int] = []
    ends = []
    for bounds in zip(pairwise(low.sections()), pairwise(high.sections()), strict=True):
        pair = [list(zip(kind[slice(*bound)], one.events[slice(*bound)], strict=True)) for kind, one, bound in zip(kinds, (low, high), bounds, strict=True)]
        for period, first, last in _stretches(pair[0], pair[1], extra):
            for kind, event in _stretched(first, last, period, extra, more):
                deep_kinds.append(kind)
                events.append(event)
        ends.append(len(events))
    *_, forward, backward, step = ends
    halves = low.ends[1] - low.ends[0], high.ends[1] - high.ends[0]
    back = number - number // 2 - layers[0] // 2  # layers more in the first half of the backward pass, which the middle one is in
    half = halves[0] + (halves[1] - halves[0]) * back // (layers[1] // 2 - layers[0] // 2)
    made = [(size, category) for makes, size, category in deep_kinds if makes]
    found = Storages(made, events, [forward, forward + half, backward, step])
    if found.kinds() != deep_kinds:
        raise Unlike(f"{DIFFER}: what they free is of another size")
    return found


def _stretches(low: list[Event], high: list[Event], extra: int) -> Iterator[tuple[int, list[Event], list[Event]]]:
    """(events of a layer, events of the model of few layers, those of the one of more) of each stretch in which one layer repeats."""
    while True:
        alike = _alike(low, high)
        if alike == len(low) == len(high):
            yield 0, low, high
            return
        rest = low[alike:]
        most = (len(high) - len(low)) // extra
        # Each number of events that a layer may have: leave out as many for each layer more, and count how many of the next ones match.
        tried = [(*_goes_on(rest, high[alike + extra * period :]), -period) for period in range(1, most + 1)]
        period = -max(tried, default=(False, 0, 0))[-1]
        if not period:
            raise Unlike(f"{DIFFER}: {extra} more add {len(high) - len(low)} events")
        yield period, low[:alike], high[: alike + extra * period]
        low, high = rest, high[alike + extra * period :]
        if not low and not high:
            return


def _stretched(low: list[Event], high: list[Event], period: int, extra: int, more: int) -> Iterator[Event]:
    """The events of a stretch in a model with `more` layers than that of `low`."""
    if not period:
        yield from (_on_line(*pair, more, extra) for pair in zip(low, high, strict=True))
        return
    start = len(low) - _alike(low[::-1], high[::-1])  # what repeats starts here
    last_before = [_before_the_new(low, high, range(start + phase, len(low), period), extra) for phase in range(period)]
    longer = more * period
    for position in range(len(low) + longer):
        before = last_before[(position - start) % period] if position >= start else position
        if position <= before:
            yield _on_line(low[position], high[position], more, extra)
        elif position >= before + longer:
            yield _on_line(low[position - longer], high[position - longer + extra * period], more, extra)
        else:
            first = _on_line(low[before], high[before], more, extra)
            last = _on_line(low[before], high[before + extra * period], more, extra)
            yield _on_line(first, last, (position - before) // period, more)


def _before_the_new(low: list[Event], high: list[Event], repeats: range, extra: int) -> int:
    """The event of `low` after which its copies of more layers go: in `high` what these free lies on a line. The first layer or the last
    one may free what no other does."""
    for position in sorted(repeats, key=lambda one: abs(2 * one - repeats.start - len(low))):
        kinds, freed = zip(*(high[position + layer * repeats.step] for layer in range(extra + 1)), strict=True)
        if len(set(kinds)) == 1 and len({later - sooner for sooner, later in pairwise(freed)}) == 1:
            return position
    raise Unlike(f"{DIFFER}: none repeats another")


def _goes_on(first: list[Event], last: list[Event]) -> tuple[bool, int]:
    """(whether all are of the same kind, how many of the first ones are)."""
    alike = _alike(first, last)
    return alike == len(first) == len(last), alike


def _on_line(first: Event, last: Event, more: int, extra: int) -> Event:
    """The event that frees a storage between, or beyond, those that these two free."""
    if first == last:
        return first
    (kind, one), (other_kind, other) = first, last
    step, rest = divmod((other - one) * more, extra)
    if rest or kind != other_kind:
        raise Unlike(f"{DIFFER}: what they free lies on no line")
    return kind, one + step


def _alike(first: list[Event], last: list[Event]) -> int:
    """How many of the first ones are of the same kind."""
    pairs = enumerate(zip(first, last, strict=False))
    return next((index for index, (one, other) in pairs if one[0] != other[0]), min(len(first), len(last)))
