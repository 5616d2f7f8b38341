"""What a record may hold. A record may come from a stranger, so nothing in it is believed before it has passed here.

`read` refuses with one line that names file, line and field: broken or deeply nested JSON, numbers that no run gives, text
that could be markup or read backwards, dates that are not, values out of the range of their unit.
"""

import datetime
import json
import math
import re
import subprocess
from pathlib import Path

import jsonschema

from .problems import Problem, line_of, nearest, read_text, shown

NUMBER = 5  # of the schema
KINDS = ("derived", "traced", "predicted", "measured", "cited")
ANY_MACHINE = "exact"  # the file of what is the same on every machine: all kinds but measured

NO_BOUND = "it has no bound (at_least, at_most)"
MOST_BYTES, MOST_DEPTH, MOST_DIGITS = 1_000_000, 8, 18
FIRST_DAY = "2025-01-01"  # before the first record of this project

# Printable, without the beginning of a tag, and of other scripts only what our units and sentences need: no character that
# turns text round, and not blanks alone. The patterns below say 0-9 and not \d, which means the digits of every script.
_TEXT = r"^(?!.*<[A-Za-z/!?])(?! +\Z)[ -~À-ÖØ-öø-ÿ±²³¹°·µ×–—‘’“”…⁰⁴-⁹≈≤≥→]*\Z"
_NAME = {"type": "string", "pattern": r"^[a-z0-9]+(-[a-z0-9]+)*\Z", "maxLength": 80}
_SOURCE = {"type": "string", "pattern": r"^https://[!-;=?-~]+\Z", "maxLength": 300}
_HASH = {"type": "string", "pattern": r"^[0-9a-f]{64}\Z"}
# of each measured figure, the hash of the code that measured it
_CODE = {"type": "object", "maxProperties": 200, "propertyNames": _NAME,
         "additionalProperties": {"type": "string", "pattern": r"^[0-9a-f]{16}\Z"}}  # fmt: skip


def _text(most, least=0):
    return {"type": "string", "pattern": _TEXT, "minLength": least, "maxLength": most}


def _hardware(most, least=0):
    """The name of a processor: no address, which has a dot before letters."""
    text = _text(most, least)
    return text | {"pattern": text["pattern"].replace("^", r"^(?!.*(://|\.[A-Za-z]{2}))", 1)}


def _number(least, most):
    return {"type": "number", "minimum": least, "maximum": most}


def _closed(required, properties, **more):
    return {"type": "object", "additionalProperties": False, "required": required, "properties": properties} | more


# The units of claims, each with the least and the most that a run can give.
_SIZES = dict.fromkeys(("bytes", "kB", "MB", "GB", "TB", "KiB", "MiB", "GiB", "TiB"), (0, 1e15))
_TIMES = dict.fromkeys(("µs", "ms", "s", "minutes", "h"), (0, 1e7))
_RATES = dict.fromkeys(
    ("tokens/s", "thousand tokens/s", "samples/s", "steps/s", "GB/s", "Gbit/s", "MB/s", "GFLOP/s", "TFLOP/s"), (0, 1e9)
)
_COUNTS = dict.fromkeys(
    ("steps", "graphs", "cores", "threads", "thread", "tokens", "samples", "prompts", "names", "ranks", "layers", "points",
     "micro-batches", "million", "billion", "FLOPs", "GFLOPs", "TFLOPs", "PFLOPs", "x 10¹⁶ FLOPs"), (0, 1e18)
)  # fmt: skip
_LOSSES = dict.fromkeys(("nats", "nats per byte", "nats per token"), (-50, 50))
_SHARES = {"%": (-1e4, 1e6), "x": (0, 1e7), "ppm": (-1e7, 1e7), "millionths": (-1e7, 1e7), "": (-1e15, 1e15)}
_OTHERS = {"bytes per parameter": (0, 64), "cosine": (-1, 1), "USD": (0, 1e9), "W": (0, 1e6), "kWh": (0, 1e9)}
UNITS = _SIZES | _TIMES | _RATES | _COUNTS | _LOSSES | _SHARES | _OTHERS

_SPREAD = _closed(
    ["min", "max", "repeats"],
    {
        "min": _number(-1e9, 1e15),
        "max": _number(-1e9, 1e15),
        "repeats": {"type": "integer", "minimum": 1, "maximum": 10000},
    },
)
_ON_GPU = _closed(
    ["label"],
    {
        "label": _text(40, least=2),
        "words": _text(40, least=2),
        "value": _number(-1e18, 1e18),
        "low": _number(-1e18, 1e18),
        "high": _number(-1e18, 1e18),
        "because": _text(200, least=5),
    },
    dependentRequired={"value": ["low", "high"]},
)
_CLAIM = _closed(
    ["sentence", "kind", "unit"],
    {
        "sentence": _text(300, least=10),
        "kind": {"enum": list(KINDS)},
        "unit": _text(30),
        "value": _number(-1e18, 1e18),
        "because": _text(200, least=5),
        "at_least": _number(-1e18, 1e18),
        "at_most": _number(-1e18, 1e18),
        "spread": _SPREAD,
        "source": _SOURCE,
        "on": {"type": "object", "minProperties": 1, "maxProperties": 100, "propertyNames": _NAME,
               "additionalProperties": _ON_GPU},
    },
)  # fmt: skip
# Rows of a file of cited figures.
CITED = {
    "type": "object",
    "propertyNames": _NAME,
    "additionalProperties": _closed(
        ["sentence", "value", "unit", "source", "read"],
        {
            "sentence": _text(300, least=10),
            "value": _number(-1e18, 1e18),
            "unit": _text(30),
            "source": _SOURCE,
            "read": {"type": "string", "pattern": r"^20[0-9]{2}-[01][0-9]-[0-3][0-9]\Z"},
        },
    ),
}
_CELL = {"anyOf": [{"type": "null"}, {"type": "boolean"}, _number(-1e18, 1e18), _text(120)]}
_TABLE = _closed(
    ["title", "kind", "columns", "rows"],
    {
        "title": _text(200, least=5),
        "kind": {"enum": list(KINDS)},
        "source": _SOURCE,
        "columns": {
            "type": "object",
            "minProperties": 2,
            "maxProperties": 20,
            "propertyNames": _text(40, least=1),
            "additionalProperties": _text(80),
        },
        "rows": {
            "type": "array",
            "minItems": 1,
            "maxItems": 500,
            "items": {"type": "array", "minItems": 2, "maxItems": 20, "items": _CELL},
        },
    },
)
_FEATURE = r"^[a-z0-9_]{1,20}\Z"
_MACHINE = _closed(
    ["name", "label", "cpu", "cores", "fingerprint"],
    {
        "name": _NAME,
        "label": _hardware(80, least=2),
        "cpu": _hardware(80),
        "cores": {"type": "integer", "minimum": 1, "maximum": 4096},
        "memory_gib": {"anyOf": [{"type": "null"}, _number(0.1, 65_536)]},
        "cpu_features": {"type": "array", "maxItems": 20, "items": {"type": "string", "pattern": _FEATURE}},
        "fingerprint": {"type": "string", "pattern": r"^[0-9a-f]{8}\Z"},
        "gpu": _hardware(60, least=2),
        "gpu_memory_gib": _number(0.5, 2000),
        "compute_capability": {"type": "string", "pattern": r"^[0-9]{1,2}\.[0-9]\Z"},
    },
    dependentRequired={"gpu": ["gpu_memory_gib"]},
)
_VERSION = {"type": "string", "pattern": r"^[0-9][A-Za-z0-9_.+!-]{0,60}\Z"}
# 3.11 or later, as pyproject.toml asks.
_PYTHON = {"type": "string", "pattern": r"^3\.(1[1-9]|[2-9][0-9])(\.[0-9]{1,2}[A-Za-z0-9+]{0,9})?\Z"}
SCHEMA = _closed(
    ["schema", "notebook", "source", "date", "command", "software", "claims", "tables", "seal"],
    {
        "schema": {"type": "integer", "const": NUMBER},
        "notebook": {"type": "string", "pattern": r"^[a-z][a-z0-9_]{0,60}\Z"},
        "source": _HASH,
        "code": _closed(["claims", "tables"], {"claims": _CODE, "tables": _CODE}),
        "date": {"type": "string", "pattern": r"^[0-9]{4}-[0-9]{2}-[0-9]{2}\Z"},
        "command": {"type": "string", "pattern": r"^make record NOTEBOOKS=[a-z0-9_]+\Z"},
        "machine": _MACHINE,
        "software": {
            "type": "object",
            "required": ["python"],
            "maxProperties": 40,
            "properties": {"python": _PYTHON},
            "propertyNames": {"pattern": r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,40}\Z"},
            "additionalProperties": _VERSION,
        },
        "claims": {"type": "object", "maxProperties": 200, "propertyNames": _NAME, "additionalProperties": _CLAIM},
        "tables": {"type": "object", "maxProperties": 60, "propertyNames": _NAME, "additionalProperties": _TABLE},
        "seal": _HASH,
    },
    dependentRequired={"code": ["machine"]},
)
# A whole number is written as one: 4.0 is none, though JSON Schema takes it.
_TYPES = jsonschema.Draft202012Validator.TYPE_CHECKER.redefine("integer", lambda checker, value: type(value) is int)
_VALIDATOR = jsonschema.validators.extend(jsonschema.Draft202012Validator, type_checker=_TYPES)(SCHEMA)


def read(path):
    """The data of a record, if nothing is wrong with it."""
    path = Path(path)
    size = path.stat().st_size
    try:
        if size > MOST_BYTES:
            raise Problem(path, f"{size:,} bytes; a record has at most {MOST_BYTES:,}", "", 1)
        return validated(read_text(path, ""), path, "")
    except Problem as problem:  # git is asked only now: nearly every record is sound
        raise Problem(problem.where, problem.what, problem.fix or again(path), problem.line) from None


def again(path):
    """How to get a good record: from git where git has it, else by a run."""
    how = "exact" if path.stem == "exact" else "record"
    run = f"make it again with `make {how} NOTEBOOKS={path.parent.name}`"
    return f"restore it with `git checkout {shown(path)}`, or {run}" if _known_to_git(path) else run


def _known_to_git(path):
    command = ["git", "ls-files", "--error-unmatch", path.name]
    try:
        return subprocess.run(command, cwd=path.parent, capture_output=True).returncode == 0
    except OSError:
        return False


def validated(text, path, fix):
    """The data of a record's text; `path` is where it lies or will lie. Raises Problem."""
    data = parsed(text, path, fix)
    number = data.get("schema") if isinstance(data, dict) else None
    if type(number) is int and number > NUMBER:
        raise Problem(
            path,
            f"the record has schema {number}, this version reads up to {NUMBER}",
            "update the project (`git pull`), or make the record again with this version",
            line_of(text, '"schema"'),
        )
    errors = sorted(_VALIDATOR.iter_errors(data), key=lambda error: -len(error.absolute_path))
    for error in errors[:1]:
        place = "/".join(str(part)[:60] for part in error.absolute_path) or "the record"
        raise Problem(path, f"{_plain(place)}: {_plain(error.message)}", fix, line_at(text, error.absolute_path))
    for wrong, *place in _contradictions(data, path):
        raise Problem(path, wrong, fix, line_at(text, place))
    return data


def _plain(message):
    """A message of the validator, short, without the markup or the control characters that it complains about."""
    return re.sub(r"[^ -~]|[<>]", "?", message[-160:])


def parsed(text, path, fix):
    """What the text says, if Python may read it: not too deep, no endless numbers, no name twice."""
    depth = deepest = 0
    for bracket in re.findall(r'"(?:[^"\\]|\\.)*"|[\[{\]}]', text):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(bracket, 0)
        deepest = max(deepest, depth)
    if deepest > MOST_DEPTH:
        raise Problem(path, f"nested {deepest} deep; a record is at most {MOST_DEPTH} deep", fix, 1)
    try:
        return json.loads(
            text, parse_float=_finite, parse_constant=_finite, parse_int=_short, object_pairs_hook=_unique
        )
    except json.JSONDecodeError as error:
        raise Problem(path, f"the record is not whole JSON ({error.msg})", fix, error.lineno) from None
    except _Refused as refused:
        what, *where = refused.args
        raise Problem(path, what, fix, line_of(text, *where) or 1) from None


def _contradictions(data, path):
    """What the schema cannot say: (what is wrong, keys that lead there)."""
    machine = data.get("machine")
    name = machine["name"] if machine else ANY_MACHINE
    if machine and name == ANY_MACHINE:
        yield f"{ANY_MACHINE} is the name of what is the same on every machine", "machine", "name"
    if path.stem != name or path.parent.name != data["notebook"]:
        yield f"the record says that it is results/{data['notebook']}/{name}.json: move it there", "notebook"
    if not _is_day(data["date"]):
        yield f"there is no day {data['date']}", "date"
    elif data["date"] > _tomorrow():
        yield f"the record is from the future ({data['date']}): set this machine's clock", "date"
    elif data["date"] < FIRST_DAY:
        yield f"the record says {data['date']}, before this project began", "date"
    if not data["claims"] and not data["tables"]:
        yield "the record holds no claim and no table", "claims"
    if machine:
        yield from _wrong_machine(machine, data["software"])
    for key, claim in data["claims"].items():
        if wrong := _wrong_kind(claim, machine) or wrong_claim(claim):
            yield f"claim {key}: {wrong}", "claims", key, *(["value"] if "value" in claim else [])
    for key, table in data["tables"].items():
        if uneven := [row for row in table["rows"] if len(row) != len(table["columns"])]:
            what = f"table {key}: a row of {len(uneven[0])} cells under {len(table['columns'])} columns"
            yield what, "tables", key
        elif wrong := _wrong_kind(table, machine):
            yield f"table {key}: {wrong}", "tables", key


def _wrong_machine(machine, software):
    from .machine import describes  # imported here: machine names the schema's fields too

    if wrong := describes(machine):
        yield f"machine: {wrong}", "machine"
    if ("gpu" in machine) != bool({"cuda", "rocm"} & software.keys()):
        yield "machine: a GPU goes with a CUDA or ROCm version in `software`, and no GPU with none", "software"


def _wrong_kind(entry, machine):
    if (entry["kind"] == "measured") != bool(machine):
        other = f"{ANY_MACHINE}.json" if machine else "the record of the machine"
        return f"a {entry['kind']} figure belongs into {other}"
    if entry["kind"] == "cited" and "source" not in entry:
        return "a cited figure needs a source"
    if machine and "source" in entry:
        return "a measured figure has no source but its machine"
    return None


def wrong_claim(claim):
    """Says what is wrong with a claim that has the right fields, or returns None."""
    if claim["unit"] not in UNITS:
        return f"no unit {claim['unit']!r}{nearest(claim['unit'], UNITS)}; evidence/schema.py lists them"
    if (claim["kind"] == "predicted") != ("on" in claim):
        return "a predicted figure names its GPUs (on), and no other does"
    if claim["kind"] == "predicted":
        return _wrong_prediction(claim)
    if ("value" in claim) == ("because" in claim):
        return "it needs a value, or in its place a reason (because)"
    if claim["kind"] != "cited" and not {"at_least", "at_most"} & claim.keys():
        return NO_BOUND
    spread = claim.get("spread")
    if spread and not spread["min"] <= spread["max"]:
        return f"its spread begins at {spread['min']} and ends at {spread['max']}"
    if "value" not in claim:
        return None
    if claim["kind"] == "measured" and claim["unit"] in _TIMES | _RATES and not claim["value"]:
        return f"0 {claim['unit']} is what no run takes or reaches"
    return _out_of_range(claim["value"], claim["unit"]) or broken_bound(claim["value"], claim)


def _wrong_prediction(claim):
    if {"value", "because", "spread"} & claim.keys():
        return "a predicted figure has its values on GPUs (on), and nowhere else"
    if not {"at_least", "at_most"} & claim.keys():
        return NO_BOUND
    for gpu, found in claim["on"].items():
        if ("value" in found) == ("because" in found):
            return f"on {gpu} it needs a value, or in its place a reason (because)"
        if "because" in found:
            continue
        if not found["low"] <= found["value"] <= found["high"]:
            return f"on {gpu} its value {found['value']:g} is not between low, {found['low']:g}, and high, {found['high']:g}"
        for value in (found["low"], found["value"], found["high"]):
            if wrong := _out_of_range(value, claim["unit"]):
                return f"on {gpu} {wrong}"
        if wrong := broken_bound(found["value"], claim):
            return f"on {gpu} {wrong}"
    return None


def _out_of_range(value, unit):
    low, high = UNITS[unit]
    return None if low <= value <= high else f"{value:g} {unit} is out of the range of this unit, {low:g} to {high:g}"


def broken_bound(value, claim):
    """Says how `value` breaks the claim's bound, or returns None."""
    unit = claim["unit"]
    if "at_least" in claim and value < claim["at_least"]:
        return f"{format_value(value, unit)} is under the bound: at least {format_value(claim['at_least'], unit)}"
    if "at_most" in claim and value > claim["at_most"]:
        return f"{format_value(value, unit)} is over the bound: at most {format_value(claim['at_most'], unit)}"
    return None


def format_number(value):
    """Three significant digits, thousands separated: 0.0123, 2.34, 119.7 as 120, 13,979."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return "–" if value is None else str(value)
    if float(value).is_integer():
        return f"{int(value):,}"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def format_rounded(value):
    """Two significant digits for a sentence: 0.49, 2.3, 2.0, 12, 160. What is whole and below 100 stays as it is."""
    if float(value).is_integer() and abs(value) < 100:
        return f"{int(value)}"
    rounded = float(f"{value:.1e}")
    return f"{rounded:,.{max(1 - math.floor(math.log10(abs(rounded))), 0)}f}"


def format_value(value, unit):
    """A number with its unit: `2.34x` and `23%` closed up, `119 GiB` with a no-break space."""
    return f"{format_number(value)}{unit}" if unit in ("x", "%", "") else f"{format_number(value)}\u00a0{unit}"


def format_band(value, low, high, unit):
    """A prediction with its band, as (number, unit): 1.9 and "x (1.6–2.3)"."""
    number = format_rounded(value)
    shown = f"{number}{unit}" if unit in ("x", "%", "") else f"{number}\u00a0{unit}"
    return number, f"{shown[len(number) :]} ({format_rounded(low)}–{format_rounded(high)})"


def line_at(text, keys):
    """The line of a JSON path, by walking down its keys."""
    position = 0
    for key in keys:
        if isinstance(key, str):
            found = re.compile(rf"{re.escape(json.dumps(key, ensure_ascii=False))}\s*:").search(text, position)
            position = found.start() if found else position
    return text.count("\n", 0, position) + 1


class _Refused(ValueError):
    """JSON that Python would read, and that is no record: what is wrong, and the fragment that shows where."""


def _finite(digits):
    number = float(digits)
    if not math.isfinite(number):
        raise _Refused(f"{digits[:40]} is not a number", digits)
    return number


def _short(digits):
    if len(digits) > MOST_DIGITS + 1:
        raise _Refused(f"a whole number of {len(digits)} digits; a record has at most {MOST_DIGITS}", digits)
    return int(digits)


def _unique(pairs):
    """Of two claims of one name, JSON would silently take the second."""
    data = dict(pairs)
    if len(data) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _Refused(f"{_plain(twice)} stands twice", f"{json.dumps(twice, ensure_ascii=False)}:", 2)
    return data


def _is_day(text):
    try:
        datetime.date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _tomorrow():
    return (datetime.datetime.now(datetime.UTC).date() + datetime.timedelta(days=1)).isoformat()
