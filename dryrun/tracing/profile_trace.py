"""Makes profiles: traces a model at a few sizes, and solves for the polynomials of its steps (see `profiles`).

    python -m dryrun.tracing.profile_trace llama gpt2      families or models; without a name: all of them
    python -m dryrun.tracing.profile_trace --missing       adds to the profiles of models the steps that they lack
    python -m dryrun.tracing.profile_trace --facts         the memory of models that have no profile, for generation (see `memory_facts`)

The profile of a family is made from a model whose sizes are products of primes, so that each coefficient says by its factors which
sizes it is a product of. What is a sum over all weights is solved for. Both are checked at other sizes.
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

import torch
from transformers.initialization import no_init_weights

from ..models import families, models
from ..models.config_file import one_line
from ..step import memory_facts, storage_log
from ..step.profiles import (
    FOLDER,
    FROM_FLOPS,
    RANK,
    SHORTEST,
    SUFFIX,
    VARIANTS,
    basis,
    evaluated,
    files,
    numbers,
    operators_of,
    read,
    storages,
)
from ..step.storage_log import MADE, Storages
from ..step.workload import Traced, Workload, of_peft
from . import step_trace, tracing

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
# Of the model that a family is traced with: {size: the prime by which a coefficient is recognized}.
PRIMES = {"hidden": 37, "ffn": 47, "kv_heads": 31, "group": 41, "joined": 43, "head_dim": 23, "vocab": 10007, "rank": 53}
PRIME_RANK = 53
PRIME_SIZES = families.Sizes(hidden=31 * 41 * 8 * 37, ffn=64 * 47, layers=32, heads=31 * 41, kv_heads=31, head_dim=8 * 23, vocab=10007, positions=131072)
LARGEST_FACTOR = 1000  # of a formula; what is left of a number that is no product of sizes is larger
SUMS = ("parameters", "trainable", "factored", "weight_bytes")  # over all weights
OF_WEIGHTS = ("", "hidden", "ffn", "vocab", "head_dim", "kv_heads head_dim", "kv_heads group head_dim", "hidden vocab", "hidden ffn",
              "hidden kv_heads head_dim", "hidden kv_heads group head_dim",
              "rank", "rank hidden", "rank ffn", "rank kv_heads head_dim", "rank kv_heads group head_dim")  # fmt: skip
OTHER_SIZES = [  # (sizes, rank) that sums are solved for; the last ones check them, and all other numbers
    (families.Sizes(hidden, ffn, 32, heads, kv_heads, head_dim, vocab, 131072), rank)
    for hidden, ffn, heads, kv_heads, head_dim, vocab, rank in (
        (512, 1408, 8, 8, 64, 5003, 8), (640, 1600, 8, 4, 96, 7001, 16), (768, 2048, 12, 4, 64, 4001, 32), (896, 1536, 14, 2, 64, 9001, 4),
        (1024, 2816, 16, 8, 128, 3001, 64), (1280, 3328, 20, 4, 80, 8009, 12), (1152, 4096, 6, 2, 192, 6007, 128), (576, 2304, 9, 3, 128, 12007, 24),
        (1536, 3840, 24, 6, 96, 5501, 40), (704, 1216, 11, 11, 32, 10501, 6), (1408, 5120, 8, 2, 256, 7507, 10), (1792, 2624, 28, 7, 48, 2801, 20),
        (2048, 7168, 32, 8, 72, 1907, 48), (1088, 1984, 17, 17, 112, 6203, 96), (1216, 6080, 19, 19, 64, 9901, 28), (1600, 4352, 25, 5, 160, 3307, 56),
        (832, 2432, 13, 13, 64, 4507, 16), (960, 2560, 15, 5, 64, 49152, 8),
    )
]  # fmt: skip
CHECKS = 2  # of these
FAMILIES = [*dict.fromkeys(family for family, _ in families.CLASSES.values()), *(f"{family}-tied" for family in families.TIED)]


class NotExact(ValueError):
    """A number of a step is no polynomial of batch and length, or its operators differ."""


def make(model: str, known: dict[str, Any] | None = None, rank: int = RANK) -> tuple[dict[str, Any], list[str]]:
    """(the profile of a model, which variants have none and why). known: a profile of it, whose steps stay as they are. rank: of LoRA."""
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
        "cache": step_trace.of_cache(model_class, config) if model_class.__name__.endswith(models.GENERATES) else {},
        "made_with": {package: metadata.version(package) for package in ("torch", "transformers")},
    }
    table = Polynomials(known["polynomials"] if known else ())
    steps: dict[str, list[dict[str, Any]]] = dict(known["steps"]) if known else {}
    missing = []
    for name in VARIANTS:
        if name in steps:
            continue
        options = options_of(name, rank)
        if options.get("kind") == "decode" and not model_class.__name__.endswith(models.GENERATES):
            continue
        try:
            regimes = list(_regimes(model, options, layers, table, _windows(config)))
            if len(layers) > 1:
                check_depth(model, options, regimes[0], table.rows)
            steps[name] = regimes
            print(f"  traced: {name}", file=sys.stderr, flush=True)
        except Exception as error:  # whatever a model's own code raises
            missing.append(f"{name}: {one_line(error)}")
    return {"facts": facts, "polynomials": table.rows, "steps": steps}, missing


def make_family(family: str, known: dict[str, Any] | None = None) -> tuple[dict[str, Any], list[str]]:
    """(the profile of a family, which variants have none and why). known: as in `make`."""
    there = known["steps"] if known else {}
    if known:  # in numbers again, which new steps share
        symbols = PRIME_SIZES.symbols(PRIME_RANK)
        known = known | {"polynomials": [[evaluated(one, symbols) for one in row] for row in known["polynomials"]]}
    profile, missing = make(_of_sizes(family, PRIME_SIZES), known, PRIME_RANK)
    profile["polynomials"] = [[formula(one) for one in row] for row in profile["polynomials"]]
    made = {name: regimes for name, regimes in profile["steps"].items() if name not in there}
    for name, regimes in made.items():
        sums = {layers: _sums(family, name, layers) for layers in step_trace.FEW_LAYERS}
        for regime in regimes:
            for one in regime["shallow"]:
                _in_formulas(one["traced"], sums[one["traced"]["layers"]])
    profile["facts"] = {"made_with": profile["facts"]["made_with"]}
    for sizes, rank in OTHER_SIZES[-CHECKS:]:
        for name, regimes in made.items():
            check_sizes(family, sizes, rank, options_of(name, rank), regimes, profile["polynomials"])
    return profile, missing


def options_of(variant: str, rank: int) -> dict[str, Any]:
    """What of a `Workload` makes a variant, with LoRA of a rank."""
    options = VARIANTS[variant]
    return options | {"rank": rank} if options.get("rank") else options


def _of_sizes(family: str, sizes: families.Sizes) -> str:
    name = family.removesuffix("-tied")
    model_class = next(model_class for model_class, (of, _) in families.CLASSES.items() if of == name)
    return families.of_words(families.in_words(families.Member(family, model_class, sizes)))


def formula(value: Any) -> Any:
    """A coefficient as a product of sizes, and 1 where a buffer has a byte more: 3008 is "64 ffn" of a prime 47. NotExact if it is none."""
    symbols = PRIME_SIZES.symbols(PRIME_RANK)
    for more in (0, 1):
        rest, factors = Fraction(value) - more, []
        for name, prime in PRIMES.items():
            while rest and not rest.numerator % prime:
                rest /= symbols[name]
                factors.append(name)
        if rest.numerator <= LARGEST_FACTOR and not any(rest and not (rest.numerator % prime and rest.denominator % prime) for prime in PRIMES.values()):
            if not factors:
                return value
            return " ".join([*([str(rest)] if rest != 1 else []), *factors]) + (" + 1" if more else "")
    raise NotExact(f"{value} is no product of sizes")


def _in_formulas(traced: dict[str, Any], sums: dict[str, str]) -> None:
    """Replaces what depends on sizes by formulas of them."""
    for name in ("width", "vocabulary", "heads", "split_heads", "cache_heads", "keys"):
        traced[name] = formula(traced[name])
    traced["matrices"] = [[[formula(side) for side in shape], count] for shape, count in traced["matrices"]]
    traced["model_class"] = ""
    traced.update(sums)


def _sums(family: str, variant: str, layers: int) -> dict[str, str]:
    """{name: formula} of the sums over all weights of a shallow model."""
    short = {name: value for name, value in VARIANTS[variant].items() if name in ("kind", "rank", "targets", "four_bit")}  # what weights there are
    key = family, layers, *short.items()
    if key not in _SUMS:
        rows, found = [], []
        for sizes, rank in OTHER_SIZES:
            symbols = sizes.symbols(rank)
            rows.append([Fraction(evaluated(term or "1", symbols)) for term in OF_WEIGHTS])
            model = _of_sizes(family, sizes)
            model_class, config = step_trace.config_of(model)
            workload = Workload(model, 1, SHORTEST, **(short | ({"rank": rank} if "rank" in short else {})))
            found.append(step_trace.recorded(workload, model_class, step_trace.with_layers(config, layers), layers).traced)
        inverse = _inverse(rows[: len(OF_WEIGHTS)])
        _SUMS[key] = {name: _sum([getattr(one, name) for one in found], rows, inverse) for name in SUMS}
    return _SUMS[key]


_SUMS: dict[tuple[Any, ...], dict[str, str]] = {}


def _sum(values: list[int], rows: list[list[Fraction]], inverse: list[list[Fraction]]) -> str:
    factors = [sum((factor * value for factor, value in zip(row, values, strict=False)), Fraction(0)) for row in inverse]
    for row, value in zip(rows, values, strict=True):
        if sum(factor * one for factor, one in zip(factors, row, strict=True)) != value:
            raise NotExact(f"a sum over all weights, {value}, is no sum of products of sizes")
    return " + ".join(f"{factor} {term}".strip() for factor, term in zip(factors, OF_WEIGHTS, strict=True) if factor) or "0"


def check_sizes(
    family: str, sizes: families.Sizes, rank: int, options: dict[str, Any], regimes: list[dict[str, Any]], polynomials: list[list[Any]]
) -> None:
    """NotExact where a model of other sizes is not what the formulas say, at a size of each regime."""
    model, symbols = _of_sizes(family, sizes), sizes.symbols(rank)
    rows = [[evaluated(one, symbols) for one in row] for row in polynomials]
    for regime in regimes:
        batch, length = (regime["batch"][0], 1) if options.get("kind") == "decode" else (3 * regime["batch"][0] - 2, 150)
        values = numbers(rows, batch, length)
        for one in regime["shallow"]:
            number = one["traced"]["layers"]
            model_class, config = step_trace.config_of(model, length)
            shape, found = _taken_apart(_recorded(Workload(model, batch, length, **options), model_class, step_trace.with_layers(config, number), number))
            table = Polynomials()
            table.add([])  # 0 is no value of `FROM_FLOPS`
            said = _put_together(shape, [table.add([value]) for value in found])
            of_said = {name: said[name] for name in ("words", "categories", "free", "log")}
            if of_said != {name: one[name] for name in of_said} or _with_values(said, numbers(table.rows, 1, 1)) != _with_values(one, values):
                raise NotExact(f"{model} runs another step than its family's formulas say")


def _with_values(one: dict[str, Any], values: list[int]) -> list[Any]:
    return [one["columns"][:-1], [operator.__dict__ for operator in operators_of(one, values)], [values[index] for index in one["storages"]]]


def check_depth(model: str, options: dict[str, Any], regime: dict[str, Any], polynomials: list[list[Any]]) -> None:
    """NotExact where a model of some more layers is not what the two shallow ones say: its layers differ in what they run."""
    if not regime["shallow"][0]["log"]:
        return
    batch, length = regime["batch"][0], regime["length"][0] + 100
    values = numbers(polynomials, batch, length)
    few = [one["traced"]["layers"] for one in regime["shallow"]]
    low, high = (storages(one) for one in regime["shallow"])
    said = storage_log.deep(low, high, few, DEEPER).sized(values)
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


def _recorded(workload: Workload, model_class: Any, config: Any, number: int) -> step_trace.Recorded:
    """Without operators where `traces` takes those of another step."""
    found = step_trace.recorded(workload, model_class, config, number)
    if of_peft(workload):
        found.operators = []
    return found


def _solved(model: str, options: dict[str, Any], number: int, table: Polynomials, sizes: list[tuple[int, int]], unknown: int, terms: tuple[int, ...]) -> dict[str, Any]:
    shapes, values = [], []
    for batch, length in sizes:
        workload = Workload(model, batch, length, **options)
        model_class, config = step_trace.config_of(model, length)
        if number != step_trace.layers_of(config):
            config = step_trace.with_layers(config, number)
        shape, numbers = _taken_apart(_recorded(workload, model_class, config, number))
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


def _inverse(matrix: Sequence[Sequence[int | Fraction]]) -> list[list[Fraction]]:
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


def write(name: str, known: dict[str, Any] | None = None) -> str:
    """Makes and writes one profile, of a family or of a model. Returns a line that says what it has."""
    started = time.perf_counter()
    if name not in FAMILIES and (shared := families.member_of(name)):
        return f"{name}: none: it shares that of {shared.family}: make {shared.family}"
    try:
        profile, missing = make_family(name, known) if name in FAMILIES else make(name, known)
    except Exception as error:
        return f"{name}: none: {one_line(error)}"
    left = f"; without {'; '.join(missing)}" if missing else ""
    if "forward" not in profile["steps"]:  # the rest would answer no whole question: text is read before it is written
        return f"{name}: none{left}"
    FOLDER.mkdir(parents=True, exist_ok=True)
    packed = bz2.compress(json.dumps(profile, separators=(",", ":")).encode())
    FOLDER.joinpath(name + SUFFIX).write_bytes(packed)
    return f"{name}: {len(profile['steps'])} steps, {len(packed) / 1000:.0f} kB, {time.perf_counter() - started:.0f} s{left}"


def memory_facts_of(name: str) -> dict[str, Any]:
    """What generation with a model takes in memory, as `memory_facts` keeps it."""
    model_class, config = step_trace.config_of(name)
    with torch.device("meta"), no_init_weights():
        model = tracing.build_model(model_class, config, torch.bfloat16, "eager")
        model.tie_weights()
        experts = step_trace.experts_of(config, model)
        parameters = sum(one.numel() for one in model.parameters())
        dense = _read_by_products(model) - (experts.parameters if experts else 0)
    heads, split_heads, _ = step_trace.heads_of(config)
    traced = {"width": config.hidden_size, "vocabulary": config.vocab_size, "tied": bool(config.tie_word_embeddings), "heads": heads,
              "split_heads": split_heads, "dense_weights": dense} | step_trace.of_cache(model_class, config)  # fmt: skip
    kept = {name: value for name, value in traced.items() if value != getattr(Traced(), name)}
    if experts:
        kept["experts"] = [experts.parameters, experts.chosen, experts.number]
    return {"class": model_class.__name__, "positions": step_trace.positions(config), "heads": heads, "parameters": parameters,
            "layers": step_trace.layers_of(config), "traced": kept}  # fmt: skip


def _read_by_products(model: torch.nn.Module) -> int:
    """The weights that products read, of all experts too: what is looked up, adds to a channel or belongs to the output layer is none."""
    tables = {weight for module in model.modules() if isinstance(module, torch.nn.Embedding) for weight in module.parameters(recurse=False)}
    output = model.get_output_embeddings()
    tables |= {output.weight} if output is not None else set()
    convolutions = {weight for module in model.modules() if isinstance(module, torch.nn.Conv1d) and module.groups > 1 for weight in module.parameters(recurse=False)}
    return sum(weight.numel() for weight in model.parameters() if weight.dim() > 1 and weight not in tables and weight not in convolutions)


def write_memory(asked: list[str]) -> int:
    """Writes the table of `memory_facts`: of these names, or of all. Returns how many could not be made."""
    table, failed = dict(memory_facts.table()), 0
    for name in asked or memory_facts.wanted():
        try:
            table[name] = memory_facts_of(name)
            print(f"{name}: {table[name]['parameters']:,} parameters", flush=True)
        except Exception as error:  # whatever a model's own code raises
            failed += 1
            print(f"{name}: none: {one_line(error)}", flush=True)
    names = models.configurations()
    lines = (f" {json.dumps(name)}: {json.dumps(table[name])}" for name in sorted(table.keys() & {*names}, key=names.index))
    memory_facts.PATH.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    return failed


def main(asked: list[str]) -> int:
    """Returns how many profiles that were asked for by name could not be made."""
    if asked[:1] == ["--facts"]:
        return write_memory(asked[1:])
    added = asked[:1] == ["--missing"]
    of_models = [name for name in models.configurations() if not families.member_of(name)]
    failed = 0
    for name in asked[added:] or (files() if added else [*FAMILIES, *of_models]):
        path = FOLDER / f"{name}{SUFFIX}"
        said = write(name, read(path) if added and path.is_file() else None)
        failed += name in asked and said.startswith(f"{name}: none")
        print(said, flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
