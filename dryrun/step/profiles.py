"""A traced step as data: its kernels and memory as exact functions of batch and length. Whoever has it needs no torch.

A step runs the same operators at every size, and each number of an operator, the bytes that it reads, its FLOPs, the sides of its
matrices, is a polynomial in batch and length. So is each storage. `profile_trace` solves for them from a few traces of a shallow and a
less shallow model, and checks them at other sizes. One sequence is a case of its own, because some copies are left out for it; so
are sequences that a sliding window does not reach. What is no such function, or was not traced, has no profile: `traces` traces it.

    data/profiles/gpt2.json.bz2           of one model
    {"facts": {...},                      of the model: class, positions
     "polynomials": [[0, 4096, ...], ...] coefficients of 1, B, T, B T, T^2, B T^2; fractions as "1/2"
     "steps": {"lora checkpointing": [{"batch": [2, 0], "length": [32, 0], "shallow": [step, step]}, ...]}}   0: no end

    data/profiles/llama.json.bz2          of a family: numbers that depend on the model are formulas of its sizes, "2 hidden ffn"
"""

from __future__ import annotations

import bz2
import json
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..models import families, models
from . import depth, storage_log
from .fusion import eager, fused, kept
from .kernels import Operator
from .memory_trace import StoredTrace
from .storage_log import Storages
from .workload import Experts, Traced, Workload

FOLDER = Path(__file__).parents[1] / "data" / "profiles"
SUFFIX = ".json.bz2"
RANK, TARGETS = 16, "all linear"  # of the profile of one model; that of a family takes any rank
SHORTEST = 32  # tokens: shorter steps are traced
FROM_FLOPS = -1  # in place of a polynomial: the rows of a product of a mixture are those of its FLOPs, shared among the experts
# What of a Workload makes other operators, by name. `compiled` and `fused_loss` change kernels alone, after the trace.
VARIANTS: dict[str, dict[str, Any]] = {
    "full": {},
    "full checkpointing": {"checkpointing": 1},
    "mixed": {"weights": "float32", "autocast": "bfloat16"},
    "mixed checkpointing": {"weights": "float32", "autocast": "bfloat16", "checkpointing": 1},
    "lora": {"rank": RANK, "targets": TARGETS},
    "lora checkpointing": {"rank": RANK, "targets": TARGETS, "checkpointing": 1},
    # Of these two the memory alone: their kernels are those of the two above, see `traces.of_peft`.
    "lora autocast": {"autocast": "bfloat16", "rank": RANK, "targets": TARGETS},
    "lora autocast checkpointing": {"autocast": "bfloat16", "rank": RANK, "targets": TARGETS, "checkpointing": 1},
    "qlora": {"rank": RANK, "targets": TARGETS, "four_bit": True},
    "qlora checkpointing": {"rank": RANK, "targets": TARGETS, "four_bit": True, "checkpointing": 1},
    "forward": {"kind": "forward"},
    "forward mixed": {"kind": "forward", "weights": "float32", "autocast": "bfloat16"},  # of a reference model
    "forward qlora": {"kind": "forward", "rank": RANK, "targets": TARGETS, "four_bit": True},
    "decode": {"kind": "decode"},
}


def profiled(workload: Workload) -> Traced | None:
    """The workload's trace from its model's profile; None where there is none for it."""
    name = variant(workload)
    if name is None or (found := profile_of(workload.model, workload.rank)) is None:
        return None
    for index, regime in enumerate(found["steps"].get(name, ())):
        if _within(workload.batch, regime["batch"]) and (workload.kind == "decode" or _within(workload.length, regime["length"])):
            return _evaluated(name, index, workload)
    return None


def facts(model: str) -> dict[str, Any] | None:
    """Of a model with a profile: {"class": of transformers, "positions": or None, "parameters"}."""
    found = profile_of(model)
    return found["facts"] if found else None


def profile_of(model: str, rank: int = RANK) -> dict[str, Any] | None:
    """The profile of a model by name, sizes or the text of a config.json, with LoRA of a rank: that of its family, or its own. None where
    it has none."""
    if not has(model):
        return None
    if families.member_of(model):
        return _of_family(model, rank or RANK) if rank != 1 else None  # a rank of one runs other operators
    return read(FOLDER / file_of(model)) if rank in (0, RANK) else None


def has(model: str) -> bool:
    """Whether a model has a profile."""
    name = file_of(model)
    return bool(name) and (FOLDER / name).is_file()


def file_of(model: str) -> str:
    """What the file of a model's profile is called, if it has one."""
    member = families.member_of(model)
    return f"{member.family}{SUFFIX}" if member else "" if model.startswith("{") else f"{model}{SUFFIX}"


@lru_cache(maxsize=32)
def _of_family(model: str, rank: int) -> dict[str, Any]:
    """The profile of a model, given that of its family: formulas of sizes become numbers."""
    member: families.Member = families.member_of(model)  # type: ignore[assignment]
    profile, sizes = read(FOLDER / f"{member.family}{SUFFIX}"), member.sizes
    symbols = sizes.symbols(rank)
    steps = {name: [regime | {"shallow": [_sized(one, symbols, member.model_class) for one in regime["shallow"]]} for regime in regimes]
             for name, regimes in profile["steps"].items()}  # fmt: skip
    low, high = (one["traced"] for one in next(iter(steps.values()))[0]["shallow"])
    facts = {
        "class": member.model_class,
        "positions": sizes.positions,
        "heads": sizes.heads,
        "parameters": depth.line(low["parameters"], high["parameters"], (low["layers"], high["layers"]), sizes.layers),
        "layers": sizes.layers,
        "state": 0,
    }
    polynomials = [[evaluated(one, symbols) for one in row] for row in profile["polynomials"]]
    return {"facts": profile["facts"] | facts, "polynomials": polynomials, "steps": steps}


def _sized(one: dict[str, Any], symbols: dict[str, int], model_class: str) -> dict[str, Any]:
    """A shallow step of a family with its formulas evaluated."""
    traced = {name: evaluated(value, symbols) for name, value in one["traced"].items() if name != "model_class"}
    matrices: Counter[tuple[int, ...]] = Counter()  # of two shapes that are the same in this model, one
    for shape, count in traced["matrices"]:
        matrices[tuple(evaluated(side, symbols) for side in shape)] += count
    return one | {"traced": traced | {"matrices": [[list(shape), count] for shape, count in matrices.items()], "model_class": model_class}}


def evaluated(formula: Any, symbols: dict[str, int]) -> Any:
    """The value of "2 hidden ffn + 1", whole or as text of a fraction; a number as it is."""
    if not isinstance(formula, str):
        return formula
    total = Fraction(0)
    for term in formula.split(" + "):
        value = Fraction(1)
        for factor in term.split():
            value *= symbols[factor] if factor in symbols else Fraction(factor)
        total += value
    return int(total) if total.denominator == 1 else str(total)


@lru_cache(maxsize=8)
def read(path: Path) -> dict[str, Any]:
    return json.loads(bz2.decompress(path.read_bytes()))


def same_as(model_class: type, config: Any) -> str:
    """The name of the model that has a profile of its own and this transformers class and configuration; "" where there is none."""
    asked = _decisive(config)
    for name in names():
        if not families.member_of(name) and facts(name)["class"] == model_class.__name__ and _decisive(models.configuration(name)[1]) == asked:  # type: ignore[index]
            return name
    return ""


def _decisive(config: Any) -> dict[str, Any]:
    """The fields of a configuration that may change what a step runs: those that its class knows, without what all families ignore."""
    known = type(config)().to_dict().keys() - families.IGNORED
    fields = {name: value for name, value in config.to_dict().items() if name in known}
    if isinstance(ropes := fields.get("rope_parameters"), dict):
        fields["rope_parameters"] = {name: value for name, value in ropes.items() if name != "rope_theta"}
    return fields


def names() -> list[str]:
    """Models of the table that have a profile, of their own or of their family."""
    return [name for name in models.configurations() if has(name)]


def files() -> list[str]:
    """Names of the profiles: of models, and of families."""
    return sorted(path.name.removesuffix(SUFFIX) for path in FOLDER.glob(f"*{SUFFIX}"))


def variant(workload: Workload) -> str | None:
    """The name in `VARIANTS` of what this workload runs, or None."""
    plain = replace(workload, batch=1, length=1, rank=RANK if workload.rank else 0, compiled=False, fused_loss=False)
    return next((name for name, options in VARIANTS.items() if plain == Workload(workload.model, 1, 1, **options)), None)


def _within(value: int, ends: list[int]) -> bool:
    first, last = ends
    return first <= value and (not last or value <= last)


@lru_cache(maxsize=64)  # a plan asks for the same step on many settings
def _evaluated(name: str, regime_number: int, workload: Workload) -> Traced:
    profile: dict[str, Any] = profile_of(workload.model, workload.rank)  # type: ignore[assignment]
    regime = profile["steps"][name][regime_number]
    values = numbers(profile["polynomials"], workload.batch, workload.length)
    facts, number = profile["facts"], profile["facts"]["layers"]
    cached = facts.get("cache") or {"state": facts.get("state", 0)}
    steps = [_step(one, values, workload) for one in regime["shallow"]]
    found = steps[0] if len(steps) == 1 else depth.deep_step(steps[0], steps[1], (steps[0].layers, steps[1].layers), number)
    logged = _storages(name, regime_number, workload.model, workload.rank)
    memory = StoredTrace(logged.sized(values), _flops(found)) if logged else None
    return replace(found, memory=memory, **(cached if workload.kind == "decode" else {}))


@lru_cache(maxsize=64)  # at every batch and length they come and go in the same order
def _storages(name: str, regime_number: int, model: str, rank: int) -> Storages | None:
    """What a step makes and frees, with the place of a polynomial for each size; None where its memory was not traced."""
    profile: dict[str, Any] = profile_of(model, rank)  # type: ignore[assignment]
    shallow = profile["steps"][name][regime_number]["shallow"]
    if not shallow[0]["log"]:
        return None
    low, high = storages(shallow[0]), storages(shallow[-1])
    few = [one["traced"]["layers"] for one in shallow]
    return low if len(few) == 1 else storage_log.deep(low, high, few, profile["facts"]["layers"])


def _flops(traced: Traced) -> dict[str, float]:
    of: Counter[str] = Counter()
    for kernel, count in traced.kernels.counts.items():
        of[kernel.phase] += round(count * kernel.flops)
    found = {"forward": of["forward"], "backward": of["backward"] + of["recomputation"], "recomputation": of["recomputation"]}
    return {name: value for name, value in found.items() if value}


def numbers(polynomials: list[list[Any]], batch: int, length: int) -> list[int]:
    """The value of each polynomial."""
    powers = basis(batch, length)
    found = []
    for coefficients in polynomials:
        total: Any = 0
        for coefficient, power in zip(coefficients, powers, strict=False):
            if coefficient:
                total += (Fraction(coefficient) if isinstance(coefficient, str) else coefficient) * power
        found.append(int(total))
    return found


def basis(batch: int, length: int) -> tuple[int, ...]:
    return 1, batch, length, batch * length, length * length, batch * length * length


def _step(one: dict[str, Any], values: list[int], workload: Workload) -> Traced:
    facts = dict(one["traced"])
    facts["matrices"] = {tuple(shape): count for shape, count in facts["matrices"]}
    facts["experts"] = Experts(*facts["experts"]) if facts["experts"] else None
    operators = operators_of(one, values)
    kernels = (fused if workload.compiled else eager)(operators)
    if not workload.compiled:  # what only describes a tensor costs the CPU's time alone
        kernels.dispatched.update({(phase, False): count for phase, count in one["free"]})
    keeps = kept(operators, workload.batch * workload.length * facts["vocabulary"]) if workload.compiled and workload.kind == "train" else {}
    return Traced(**facts, kernels=kernels, kept=keeps, memory=None)


def storages(one: dict[str, Any]) -> Storages:
    """What a shallow step makes and frees, with the place of a polynomial for each size."""
    made = [(size, one["words"][word]) for size, word in zip(one["storages"], one["categories"], strict=True)]
    log, born = [], 0
    for number in one["log"]:
        born += number == 0
        log.append(born if number == 0 else 0 if number < 0 else number - born - 1)
    return Storages.of_log(made, log)


def operators_of(one: dict[str, Any], values: list[int]) -> list[Operator]:
    words, shapes = one["words"], iter(one["shapes"])
    reads, writes, newest = iter(one["reads"]), iter(one["writes"]), -1
    found = []
    for name, phase, kind, dtype, launches, polynomial in zip(*one["columns"], strict=True):
        flops, sides = values[polynomial], [next(shapes) for _ in range(next(shapes))]
        shape = [values[side] for side in sides]
        if sides and sides[0] == FROM_FLOPS:
            shape[0] = max(1, flops // (2 * shape[1] * shape[2]) // shape[3])
        touched: list[dict[tuple[int, int], int]] = [{}, {}]
        for keys, numbers in zip(touched, (reads, writes), strict=True):
            for _ in range(next(numbers)):
                storage, version, size = newest - next(numbers), next(numbers), next(numbers)
                keys[storage, version] = values[size]
                newest = max(newest, storage)
        found.append(Operator(words[name], words[phase], words[kind], words[dtype], flops, tuple(shape), launches, *touched))
    return found
