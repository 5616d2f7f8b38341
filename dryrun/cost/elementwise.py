"""Minimum, maximum and choices of numbers, or of columns of numbers. A prediction is of numbers, and needs no NumPy; `fitting` tries
constants on columns of thousands of runs, by the same formulas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Numbers = Any  # a float, or a NumPy array of them


def minimum(first: Numbers, second: Numbers) -> Numbers:
    return min(first, second) if _plain(first) and _plain(second) else _numpy().minimum(first, second)


def maximum(first: Numbers, second: Numbers) -> Numbers:
    return max(first, second) if _plain(first) and _plain(second) else _numpy().maximum(first, second)


def where(condition: Numbers, yes: Numbers, no: Numbers) -> Numbers:
    if _plain(condition):
        return yes if condition else no
    return _numpy().where(condition, yes, no)


def choose(index: Numbers, values: Sequence[float]) -> Numbers:
    """The value of that number."""
    return values[int(index)] if _plain(index) else _numpy().asarray(values)[_numpy().asarray(index, dtype=int)]


def _plain(value: Numbers) -> bool:
    return isinstance(value, (int, float))  # so are NumPy's booleans not, and its floats are


def _numpy() -> Any:
    import numpy

    return numpy
