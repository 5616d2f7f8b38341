"""Makes profiles: traces a model at a few sizes, and solves for the polynomials of its steps (see `profiles`).

    python -m dryrun.profile_trace llama3-8b qwen3-8b   without a name: every model of `dryrun models`
    python -m dryrun.profile_trace --missing            adds to all profiles the steps that they lack
"""

from __future__ import annotations

import bz2
import json
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from importlib import metadata
from typing import Any

from . import caches, models, step_trace, storage_log
from .config_file import one_line
from .profiles import (
    FOLDER,
    FROM_FLOPS,
    SHORTEST,
    SUFFIX,
    VARIANTS,
    basis,
    names,
    numbers,
    profile_of,
    storages,
)
from .storage_log import MADE, Storages
from .workload import Traced, Workload

# (batch, length) that are solved for, and more that must come out right. Uneven lengths, so that a rounding shows.
SOLVED = {1: ((1, 67), (1, 131), (1, 257)), 2: ((2, 67), (2, 131), (3, 101), (5, 67), (3, 257), (4, 83))}
CHECKED = {1: ((1, 480),), 2: ((6, 150),)}
TERMS = {1: (0, 2, 4), 2: (0, 1, 2, 3, 4, 5)}  # of `basis`
DECODED = {1: ((1, 1),), 2: ((2, 1), (5, 1))}
DECODED_CHECKED = {1: (), 2: ((33, 1),)}
DECODED_TERMS = {1: (0,), 2: (0, 1)}
DEEPER = 8  # layers of a model that must be what those of `step_trace.FEW_LAYERS` say
MOST_OPERATORS = 20_000  # of a model whose layers differ, so that every layer is kept
STATICS = ("model_class", "parameters", "trainable", "tensors", "factored", "layers", "width", "vocabulary", "tied", "heads", "split_heads",
           "cache_heads", "keys", "window_keys", "window", "state", "weight_bytes")  # fmt: skip


class NotExact(ValueError):
    """A number of a step is no polynomial of batch and length, or its operators differ."""


def make(model: str, known: dict[str, Any] | None = None) -> tuple[dict[str, Any], list[str]]:
    """(the profile of a model, which variants have none and why). known: a profile of it, whose steps stay as they are."""
    model_class, config = step_trace.config_of(model)
    if hasattr(config, "image_size"):
        raise NotExact("its inputs are images of one size")
    number = step_trace.layers_of(config)
    alike = number > step_trace.FEW_LAYERS[1] and step_trace.alike(model_class, config)
    layers = step_trace.FEW_LAYERS if alike else (number,)
    facts = {
        "class": model_class.__name__,
        "positions": step_trace.positions(config),
        "heads": step_trace.heads_of(config)[0],
        "parameters": step_trace.parameters(model),
        "layers": number,
        "state": caches.state(model_class, config),
        "made_with": {package: metadata.version(package) for package in ("torch", "transformers")},
    }
    table = Polynomials(known["polynomials"] if known else ())
    steps: dict[str, list[dict[str, Any]]] = dict(known["steps"]) if known else {}
    missing = []
    for name, options in VARIANTS.items():
        if name in steps:
            continue
        if options.get("kind") == "decode" and not model_class.__name__.endswith(("ForCausalLM", "LMHeadModel")):
            continue
        try:
            regimes = list(_regimes(model, options, layers, table, _windows(config)))
            if len(layers) > 1:
                check_depth(model, options, regimes[0], table.rows)
            steps[name] = regimes
        except Exception as error:  # whatever a model's own code raises
            missing.append(f"{name}: {one_line(error)}")
    return {"facts": facts, "polynomials": table.rows, "steps": steps}, missing


def check_depth(model: str, options: dict[str, Any], regime: dict[str, Any], polynomials: list[list[Any]]) -> None:
    """NotExact where a model of some more layers is not what the two shallow ones say: its layers differ in what they run."""
    if not regime["shallow"][0]["log"]:
        return
    batch, length = regime["batch"][0], regime["length"][0] + 100
    values = numbers(polynomials, batch, length)
    few = [one["traced"]["layers"] for one in regime["shallow"]]
    low, high = (storages(one, values) for one in regime["shallow"])
    said = storage_log.deep(low, high, few, DEEPER)
    model_class, config = step_trace.config_of(model, length)
    workload = Workload(model, batch, length, **options)
    found = step_trace.recorded(workload, model_class, step_trace.with_layers(config, DEEPER), DEEPER).traced.memory
    if said != found.storages:  # type: ignore[union-attr]
        raise NotExact(f"the storages of {DEEPER} layers are not those of one layer repeated: layers differ in what they run")


def _windows(config: Any) -> list[tuple[int, int]]:
    """(first, last) length of each band in which attention reads alike; a last one of 0 is no end."""
    window = getattr(config, "sliding_window", None) or getattr(config, "attention_chunk_size", None)
    uses = "sliding_attention" in (getattr(config, "layer_types", None) or ()) or "chunked_attention" in (getattr(config, "layer_types", None) or ())
    return [(SHORTEST, window), (window + 1, 0)] if window and uses else [(SHORTEST, 0)]


def _regimes(model: str, options: dict[str, Any], layers: Sequence[int], table: Polynomials, bands: list[tuple[int, int]]) -> Iterator[dict[str, Any]]:
    decodes = options.get("kind") == "decode"
    for least in (1, 2):
        for first, last in [(1, 1)] if decodes else bands:
            solved, checked, terms = (DECODED, DECODED_CHECKED, DECODED_TERMS) if decodes else (SOLVED, CHECKED, TERMS)
            above = first if first > SHORTEST else 0
            sizes = [(batch, length + above) for batch, length in (*solved[least], *checked[least])]
            shallow = [_solved(model, options, number, table, sizes, len(solved[least]), terms[least]) for number in layers]
            yield {"batch": [least, 1 if least == 1 else 0], "length": [first, last], "shallow": shallow}


def _solved(model: str, options: dict[str, Any], number: int, table: Polynomials, sizes: list[tuple[int, int]], unknown: int, terms: tuple[int, ...]) -> dict[str, Any]:
    shapes, values = [], []
    for batch, length in sizes:
        workload = Workload(model, batch, length, **options)
        model_class, config = step_trace.config_of(model, length)
        if number != step_trace.layers_of(config):
            config = step_trace.with_layers(config, number)
        shape, numbers = _taken_apart(step_trace.recorded(workload, model_class, config, number))
        shapes.append(shape)
        values.append(numbers)
        if shapes[-1] != shapes[0]:
            raise NotExact(f"{batch} x {length} runs other operators than {sizes[0][0]} x {sizes[0][1]}")
    inverse = _inverse([[basis(*size)[term] for term in terms] for size in sizes[:unknown]])
    known: dict[tuple[int, ...], int | None] = {}
    indices = []
    for of_sizes in zip(*values, strict=True):
        if of_sizes not in known:
            known[of_sizes] = table.add(_polynomial(of_sizes, sizes, inverse, terms))
        indices.append(known[of_sizes])
    return _put_together(shapes[0], indices)


def _polynomial(values: tuple[int, ...], sizes: list[tuple[int, int]], inverse: list[list[Fraction]], terms: tuple[int, ...]) -> list[Any] | None:
    """Coefficients over the whole basis; None where the sizes that are checked do not come out."""
    found: list[Fraction] = [Fraction(0)] * 6
    for term, row in zip(terms, inverse, strict=True):
        found[term] = sum((factor * value for factor, value in zip(row, values, strict=False)), Fraction(0))
    for size, value in zip(sizes, values, strict=True):
        if sum(coefficient * power for coefficient, power in zip(found, basis(*size), strict=True)) != value:
            return None
    short = [int(one) if one.denominator == 1 else str(one) for one in found]
    while short and not short[-1]:
        short.pop()
    return short


def _inverse(matrix: list[list[int]]) -> list[list[Fraction]]:
    size = len(matrix)
    rows = [[Fraction(value) for value in row] + [Fraction(int(i == j)) for j in range(size)] for i, row in enumerate(matrix)]
    for column in range(size):
        pivot = next(index for index in range(column, size) if rows[index][column])
        rows[column], rows[pivot] = rows[pivot], rows[column]
        rows[column] = [value / rows[column][column] for value in rows[column]]
        for index in range(size):
            if index != column:
                factor = rows[index][column]
                rows[index] = [value - factor * other for value, other in zip(rows[index], rows[column], strict=True)]
    return [row[size:] for row in rows]


class Polynomials:
    """Each kept once."""

    def __init__(self, rows: Iterable[list[Any]] = ()) -> None:
        self.rows = list(rows)
        self._at = {json.dumps(row): index for index, row in enumerate(self.rows)}

    def add(self, coefficients: list[Any] | None) -> int | None:
        if coefficients is None:
            return None
        key = json.dumps(coefficients)
        if key not in self._at:
            self._at[key] = len(self.rows)
            self.rows.append(coefficients)
        return self._at[key]


def _taken_apart(found: step_trace.Recorded) -> tuple[dict[str, Any], list[int]]:
    """(what is the same at every size, the numbers that are not)."""
    words: dict[str, int] = {}
    numbers: list[int] = []
    operators = []
    free: dict[str, int] = {}
    storages: dict[int, int] = {}  # numbered in the order in which operators touch them
    for operator in found.operators:
        if operator.kind == "free":
            free[operator.phase] = free.get(operator.phase, 0) + 1
            continue
        numbers += [operator.flops, *operator.shape]
        keys = []
        for touched in (operator.reads, operator.writes):
            numbers += touched.values()
            keys.append([[storages.setdefault(storage, len(storages)), version] for storage, version in touched])
        text = [words.setdefault(word, len(words)) for word in (operator.name, operator.phase, operator.kind, operator.dtype)]
        operators.append([*text, operator.launches, len(operator.shape), *keys])
    if len(operators) > MOST_OPERATORS:
        raise NotExact(f"{len(operators):,} operators are more than a profile takes")
    kept = found.traced.memory.storages if found.traced.memory else None
    numbers += [size for size, _ in kept.made] if kept else []
    categories = [words.setdefault(category, len(words)) for _, category in kept.made] if kept else []
    log = _relative(kept) if kept else []
    shape = {"words": list(words), "operators": operators, "categories": categories, "log": log, "free": sorted(free.items()),
             "traced": _statics(found.traced)}  # fmt: skip
    return shape, numbers


def _statics(traced: Traced) -> dict[str, Any]:
    experts = traced.experts
    return {name: getattr(traced, name) for name in STATICS} | {
        "matrices": [[list(shape), count] for shape, count in traced.matrices.items()],
        "experts": [experts.parameters, experts.chosen, experts.number] if experts else None,
    }


def _put_together(shape: dict[str, Any], indices: list[int | None]) -> dict[str, Any]:
    """A step of `profiles`. NotExact where a number has no polynomial."""
    rest = iter(indices)

    def taken(what: str) -> int:
        found = next(rest)
        if found is None:
            raise NotExact(f"{what} are no polynomial of batch and length")
        return found

    columns: list[list[int]] = [[], [], [], [], [], []]
    shapes: list[int] = []
    touched: list[list[int]] = [[], []]
    newest = -1  # storages are written as so many before the newest, so that layers look alike
    for name, phase, kind, dtype, launches, sides, *keys in shape["operators"]:
        word = shape["words"][name]
        for column, value in zip(columns, (name, phase, kind, dtype, launches, taken(f"the FLOPs of {word}")), strict=True):
            column.append(value)
        shapes.append(sides)
        for position in range(sides):
            found = next(rest)
            if found is None and position == 0 and sides == 4 and shape["words"][kind] == "product":
                found = FROM_FLOPS
            if found is None:
                raise NotExact(f"the sides of {word} are no polynomial of batch and length")
            shapes.append(found)
        for into, of_keys in zip(touched, keys, strict=True):
            into.append(len(of_keys))
            for storage, version in of_keys:
                into += [newest - storage, version, taken(f"the bytes of {word}")]
                newest = max(newest, storage)
    storages = [taken("the storages") for _ in shape["categories"]]
    return {name: shape[name] for name in ("words", "categories", "free", "traced")} | {
        "columns": columns, "shapes": shapes, "reads": touched[0], "writes": touched[1], "storages": storages, "log": shape["log"],
    }  # fmt: skip


def _relative(kept: Storages) -> list[int]:
    """0 for a storage that is made, -1 for the end of a part, and for one that is freed how many were made after it, plus 1."""
    found, born, ends = [], 0, list(kept.ends)
    for position, event in enumerate([*kept.events, None]):
        while ends and ends[0] == position:
            found.append(-1)
            ends.pop(0)
        if event == MADE:
            born += 1
            found.append(0)
        elif event is not None:
            found.append(born - event)
    return found


def write(model: str, known: dict[str, Any] | None = None) -> str:
    """Makes and writes one profile. Returns a line that says what it has."""
    started = time.perf_counter()
    try:
        profile, missing = make(model, known)
    except Exception as error:
        return f"{model}: none: {one_line(error)}"
    left = f"; without {'; '.join(missing)}" if missing else ""
    if "forward" not in profile["steps"]:  # the rest would answer no whole question: text is read before it is written
        return f"{model}: none{left}"
    FOLDER.mkdir(parents=True, exist_ok=True)
    packed = bz2.compress(json.dumps(profile, separators=(",", ":")).encode())
    FOLDER.joinpath(model + SUFFIX).write_bytes(packed)
    return f"{model}: {len(profile['steps'])} steps, {len(packed) / 1000:.0f} kB, {time.perf_counter() - started:.0f} s{left}"


def main(asked: list[str]) -> None:
    added = asked[:1] == ["--missing"]
    everyone = names() if added else [name for name in models.names() if models.known(name) == name]
    for model in asked[added:] or everyone:
        print(write(model, profile_of(model) if added else None), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
