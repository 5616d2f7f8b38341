"""A deep model from shallow ones: each layer adds the same bytes and FLOPs, so what a step holds lies on a line.

A step has one line for each of its parts, because the peak moves with the depth: a shallow model's comes with the loss, a
deep one's may come with the last gradients. `ranks.many_layers` uses this; `tests/dryrun/test_ranks.py` compares it with
whole models.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, overload

from . import storage_log
from .kernels import deep
from .memory_trace import StoredTrace, Trace

if TYPE_CHECKING:
    from .workload import Traced

    AnyTrace = TypeVar("AnyTrace", bound=Trace)  # or one of a rank

TOLERANCE = 0.002  # of a peak


def with_layers(config: Any, number: int) -> Any:
    """The configuration of the same model with this many layers."""
    config = copy.deepcopy(config)
    config.num_hidden_layers = number
    return config


@overload
def line(low: float, high: float, layers: Sequence[int], depth: int) -> int: ...


@overload
def line(low: dict[str, float], high: dict[str, float], layers: Sequence[int], depth: int) -> dict[str, float]: ...


def line(low: Any, high: Any, layers: Sequence[int], depth: int) -> Any:
    """The value at `depth`, given `low` at the first of `layers` and `high` at the last; for a dictionary, each value."""
    if isinstance(high, dict):
        return {key: line(low.get(key, 0), high[key], layers, depth) for key in high}
    return round(low + (high - low) * (depth - layers[0]) / (layers[-1] - layers[0]))


def line_of(steps: Sequence[Trace], layers: Sequence[int], depth: int, result: AnyTrace) -> AnyTrace:
    """Fills `result` with the trace of a model of `depth` layers, given one `Trace` in `steps` for each of `layers`.

    Where layers alternate (every second one checkpointed, some with a sliding window), `layers` and `depth` must differ by
    whole periods. Raises ValueError if a model between the first and the last does not lie on the line.
    """
    first, *between, last = steps
    for step, number in zip(between, layers[1:]):
        if abs(step.peak / _highest(_parts(first, last, layers, number))[0] - 1) > TOLERANCE:
            raise ValueError(f"the peaks of models of {layers} layers do not lie on one line: take deeper ones")
    result.parts = _parts(first, last, layers, depth)
    result.peak, result.peak_by_category = _highest(result.parts)
    for name in ("parameters", "after_forward", "flops"):
        setattr(result, name, line(getattr(first, name), getattr(last, name), layers, depth))
    result.seconds = sum(step.seconds for step in steps)
    return result


def deep_step(low: Traced, high: Traced, few: tuple[int, int], number: int) -> Traced:
    """The `Traced` of a model of `number` layers, given those of models of `few`: its memory, if any, follows from their storages.

    Raises storage_log.Unlike where their storages are not those of one layer repeated."""
    result = copy.copy(high)
    share = (number - few[0]) / (few[1] - few[0])
    result.kernels = deep(low.kernels, high.kernels, few, number)
    result.matrices = {
        shape: round(low.matrices.get(shape, 0) + (count - low.matrices.get(shape, 0)) * share) for shape, count in high.matrices.items()
    }
    if low.experts and high.experts:
        inside = low.experts.parameters + (high.experts.parameters - low.experts.parameters) * share
        result.experts = replace(high.experts, parameters=round(inside))
    for name in ("parameters", "trainable", "tensors", "factored", "keys", "window_keys", "weight_bytes"):
        first, last = getattr(low, name), getattr(high, name)
        setattr(result, name, round(first + (last - first) * share))
    result.kept = {
        phase: (line(low.kept[phase][0], every, few, number), line(low.kept[phase][1], fused, few, number)) for phase, (every, fused) in high.kept.items()
    }
    result.layers = number
    if low.memory and high.memory:
        storages = storage_log.deep(low.memory.storages, high.memory.storages, few, number)  # type: ignore[arg-type]
        result.memory = StoredTrace(storages, line(low.memory.flops, high.memory.flops, few, number))
    return result


def _parts(first: Trace, last: Trace, layers: Sequence[int], depth: int) -> list[tuple[int, dict[str, float]]]:
    return [
        (line(peak_low, peak_high, layers, depth), line(low, high, layers, depth))
        for (peak_low, low), (peak_high, high) in zip(first.parts, last.parts, strict=True)
    ]


def _highest(parts: list[tuple[int, dict[str, float]]]) -> tuple[int, dict[str, float]]:
    return max(parts, key=lambda part: part[0])
