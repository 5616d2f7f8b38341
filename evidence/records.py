"""Records: what a run leaves in results/<notebook>/<machine>.json. Read, validate, write, find.

A record that cannot be trusted is refused with file and line: cut in half, of another schema, from the future, or with
a value outside the bound that its own claim states.
"""

import datetime
import hashlib
import json
import math
import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

import jsonschema

from .problems import Problem, line_of, nearest, read_text, shown

RESULTS = Path("results")
SCHEMA_NUMBER = 3
KINDS = ("derived", "traced", "measured", "cited")
EXACT = ("derived", "traced")  # the same on every machine, so a re-run must agree
TOLERANCE = 0.01  # of an exact value, between versions of the libraries

_NAME = {"type": "string", "pattern": "^[a-z0-9]+(-[a-z0-9]+)*$"}
_NUMBER = {"type": "number"}
SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "required": ["schema", "notebook", "source", "date", "command", "machine", "software", "claims", "tables", "seal"],
    "properties": {
        "schema": {"const": SCHEMA_NUMBER},
        "notebook": {"type": "string"},
        "source": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
        "date": {"type": "string", "pattern": r"^\d{4}-\d{2}-\d{2}$"},
        "command": {"type": "string"},
        "seal": {"type": "string"},
        "machine": {
            "type": "object",
            "required": ["name", "label", "cpu", "cores"],
            "properties": {"name": _NAME, "label": {"type": "string"}},
        },
        "software": {"type": "object", "required": ["python"]},
        "claims": {
            "type": "object",
            "propertyNames": _NAME,
            "minProperties": 1,
            "additionalProperties": {
                "type": "object",
                "additionalProperties": False,
                "required": ["sentence", "kind", "unit"],
                "properties": {
                    "sentence": {"type": "string", "minLength": 10},
                    "kind": {"enum": list(KINDS)},
                    "unit": {"type": "string"},
                    "value": _NUMBER,
                    "because": {"type": "string", "minLength": 5},
                    "at_least": _NUMBER,
                    "at_most": _NUMBER,
                    "spread": {
                        "type": "object",
                        "required": ["min", "max", "repeats"],
                        "additionalProperties": _NUMBER,
                    },
                    "source": {"type": "string", "pattern": "^https://"},
                },
            },
        },
        "tables": {
            "type": "object",
            "propertyNames": _NAME,
            "additionalProperties": {
                "type": "object",
                "additionalProperties": False,
                "required": ["title", "kind", "columns", "rows"],
                "properties": {
                    "title": {"type": "string"},
                    "kind": {"enum": list(KINDS)},
                    "source": {"type": "string", "pattern": "^https://"},
                    "columns": {"type": "object", "minProperties": 2, "additionalProperties": {"type": "string"}},
                    "rows": {"type": "array", "minItems": 1, "items": {"type": "array"}},
                },
            },
        },
    },
}


@dataclass(frozen=True)
class Record:
    """One record and where it came from."""

    path: Path
    data: dict

    @property
    def machine(self):
        return self.data["machine"]["name"]

    @property
    def date(self):
        return self.data["date"]

    @property
    def notebook(self):
        return self.data["notebook"]


def load(path):
    """Reads and validates one record."""
    path = Path(path)
    again = _again(path)
    return Record(path, _validated(read_text(path, again), path, again))


def _again(path):
    return (
        f"restore it with `git checkout {shown(path)}` or make it again with `make record NOTEBOOKS={path.parent.name}`"
    )


def _validated(text, path, again):
    """The data of a record's text, if nothing is wrong with it; `path` is where it stands or will stand."""
    try:
        data = json.loads(text, parse_float=_finite, parse_constant=_finite, object_pairs_hook=_unique)
    except json.JSONDecodeError as error:
        raise Problem(path, f"the record is not whole JSON ({error.msg})", again, error.lineno) from None
    except _Refused as refused:
        what, *where = refused.args
        raise Problem(path, what, again, line_of(text, *where)) from None
    number = data.get("schema") if isinstance(data, dict) else None
    if isinstance(number, int) and number > SCHEMA_NUMBER:
        raise Problem(
            path,
            f"the record has schema {number}, this version reads up to {SCHEMA_NUMBER}",
            "update the project (`git pull`), or make the record again with this version",
            line_of(text, '"schema"'),
        )
    for error in sorted(
        jsonschema.Draft202012Validator(SCHEMA).iter_errors(data), key=lambda error: -len(error.absolute_path)
    ):
        place = "/".join(map(str, error.absolute_path)) or "the record"
        line = _line(text, error.absolute_path)
        raise Problem(path, f"{place}: {error.message[-160:]}", again, line)
    if not is_date(data["date"]):
        raise Problem(path, f"there is no date {data['date']}", again, line_of(text, '"date"'))
    if data["date"] > tomorrow():
        raise Problem(
            path,
            f"the record is from the future ({data['date']})",
            "set this machine's clock, then " + again,
            line_of(text, '"date"'),
        )
    if path.stem != data["machine"]["name"] or path.parent.name != data["notebook"]:
        raise Problem(
            path,
            f"the record says notebook {data['notebook']} and machine {data['machine']['name']}",
            f"move it to results/{data['notebook']}/{data['machine']['name']}.json",
            line_of(text, '"notebook"'),
        )
    for name, claim in data["claims"].items():
        if wrong := _wrong_claim(claim):
            raise Problem(
                path, f"claim {name}: {wrong}", again, _line(text, ["claims", name] + ["value"] * ("value" in claim))
            )
    for name, table in data["tables"].items():
        if uneven := [row for row in table["rows"] if len(row) != len(table["columns"])]:
            raise Problem(
                path,
                f"table {name}: a row of {len(uneven[0])} cells under {len(table['columns'])} columns",
                again,
                _line(text, ["tables", name]),
            )
    return data


def load_all(results=RESULTS):
    """Every record, as {notebook: [records, the newest first]}."""
    found = {}
    for path in sorted(Path(results).rglob("*.json")):
        if path.parent.parent != Path(results):
            raise Problem(
                path, "a record in the wrong folder", f"move it to {Path(results).as_posix()}/<notebook>/<machine>.json"
            )
        found.setdefault(path.parent.name, []).append(load(path))
    return {notebook: sorted(records, key=lambda r: r.date, reverse=True) for notebook, records in found.items()}


def write(record, results=RESULTS):
    """Writes a record to its place. Whole or not at all: an interruption leaves the old one."""
    path, text = prepared(record, results)
    write_atomically(path, text)
    return path


def prepared(record, results=RESULTS):
    """Where a record goes and its text, if nothing is wrong with it."""
    path = Path(results) / record["notebook"] / f"{record['machine']['name']}.json"
    text = json.dumps(record | {"seal": seal(record)}, indent=1, ensure_ascii=False) + "\n"
    _validated(text, path, "mend the notebook; the stored record is as before")
    return path, text


def seal(record):
    """The SHA-256 of all that a record says, in its order, apart from the seal itself: columns in another order are other
    columns. It tells a slip of the hand, not a forger."""
    said = {key: value for key, value in record.items() if key != "seal"}
    return hashlib.sha256(json.dumps(said, ensure_ascii=False).encode()).hexdigest()


def changed_by_hand(record):
    """The Problem of a record that is not as its run wrote it, or None."""
    if record.data["seal"] == seal(record.data):
        return None
    line = line_of(read_text(record.path), '"seal"')
    return Problem(record.path, "a hand has changed the record since its run wrote it", _again(record.path), line)


def write_atomically(path, text):
    """Replaces `path` by `text` in one step."""
    write_together({path: text})


def write_together(texts):
    """Replaces each path by its text. All texts are on the disk before the first old file goes."""
    parts = {}
    try:
        for path, text in texts.items():
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            handle, parts[path] = tempfile.mkstemp(dir=Path(path).parent, prefix=f".{Path(path).name}.", suffix=".part")
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(parts[path], 0o644)
        for path, part in parts.items():
            os.replace(part, path)
    finally:
        for part in parts.values():
            Path(part).unlink(missing_ok=True)


def find(records, notebook, name, collection="claims"):
    """The entries of one claim (or table), as [(record, entry)], the newest first. Unknown names get the nearest one."""
    if notebook not in records:
        raise LookupError(f"no record of a notebook {notebook!r}{nearest(notebook, records)}")
    found = [(record, record.data[collection][name]) for record in records[notebook] if name in record.data[collection]]
    if not found:
        known = {key for record in records[notebook] for key in record.data[collection]}
        raise LookupError(f"no {collection[:-1]} {name!r} in the records of {notebook}{nearest(name, known)}")
    return found


def apart(record, newer):
    """The exact claims and tables that `record` does not share with a newer one: [(line, name, place, figure, figure there)]."""
    found = [
        (collection, name, unlike)
        for collection in ("claims", "tables")
        for name, entry in record.data[collection].items()
        if (other := newer.data[collection].get(name)) and {entry["kind"], other["kind"]} <= set(EXACT)
        if (unlike := difference(entry, other))
    ]
    text = record.path.read_text(encoding="utf-8") if found else ""
    return [(_line(text, (collection, name)), name, *unlike) for collection, name, unlike in found]


def difference(entry, other):
    """The first difference of two entries of one exact claim or table: (its place, what the one says, what the other says).

    The place is in words, empty for a claim. None where no figure differs by more than TOLERANCE, and all else is equal.
    """
    here, there = _figures(entry), _figures(other)
    for place in dict.fromkeys([*here, *there]):
        ours, theirs = here.get(place, "no such cell"), there.get(place, "no such cell")
        if differs(ours, theirs) if _is_number(ours) and _is_number(theirs) else ours != theirs:
            return place, *(f"{said:g}" if _is_number(said) else said or "nothing" for said in (ours, theirs))
    return None


def _figures(entry):
    """What a claim or a table says, by its place."""
    if "rows" not in entry:
        return {"": entry.get("value")}
    return {
        f"row {number}, {column}": cell
        for number, row in enumerate(entry["rows"], 1)
        for column, cell in zip(entry["columns"], row, strict=True)
    }


def _is_number(value):
    return isinstance(value, int | float) and not isinstance(value, bool)


def broken_bound(value, claim):
    """Says how `value` breaks the claim's bound, or returns None."""
    unit = claim["unit"]
    if "at_least" in claim and value < claim["at_least"]:
        return f"{format_value(value, unit)} is under the bound: at least {format_value(claim['at_least'], unit)}"
    if "at_most" in claim and value > claim["at_most"]:
        return f"{format_value(value, unit)} is over the bound: at most {format_value(claim['at_most'], unit)}"
    return None


def _wrong_claim(claim):
    """Says what is wrong with a claim that has the right fields, or returns None."""
    if ("value" in claim) == ("because" in claim):
        return "it needs a value, or in its place a reason (because)"
    if claim["kind"] == "cited" and "source" not in claim:
        return "a cited figure needs a source"
    if claim["kind"] != "cited" and not {"at_least", "at_most"} & claim.keys():
        return "it has no bound (at_least, at_most)"
    return broken_bound(claim["value"], claim) if "value" in claim else None


def differs(value, stored):
    """Whether an exact value is more than TOLERANCE away from the stored one."""
    return abs(value - stored) > TOLERANCE * max(abs(stored), 1e-12)


def format_number(value):
    """Three significant digits, thousands separated: 0.0123, 2.34, 119.7 as 120, 13,979."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return "–" if value is None else str(value)
    if float(value).is_integer():
        return f"{int(value):,}"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def format_value(value, unit):
    """A number with its unit: `2.34x` and `23%` closed up, `119 GiB` with a no-break space."""
    return f"{format_number(value)}{unit}" if unit in ("x", "%", "") else f"{format_number(value)}\u00a0{unit}"


def _line(text, path):
    """The line of a JSON path, by walking down its keys."""
    position = 0
    for key in path:
        if isinstance(key, str):
            found = re.compile(rf"{re.escape(json.dumps(key))}\s*:").search(text, position)
            position = found.start() if found else position
    return text.count("\n", 0, position) + 1


class _Refused(ValueError):
    """JSON that Python would read, and that is no record: what is wrong, and the fragment that shows where."""


def _finite(digits):
    number = float(digits)
    if not math.isfinite(number):
        raise _Refused(f"{digits} is not a number", digits)
    return number


def _unique(pairs):
    """Of two claims of one name, JSON would silently take the second."""
    data = dict(pairs)
    if len(data) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _Refused(f"{twice} stands twice", f"{json.dumps(twice)}:", 2)
    return data


def is_date(text):
    try:
        datetime.date.fromisoformat(text)
    except ValueError:
        return False
    return True


def tomorrow():
    return (datetime.datetime.now(datetime.UTC).date() + datetime.timedelta(days=1)).isoformat()
