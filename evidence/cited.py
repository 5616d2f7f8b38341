"""Figures of others: rows of results/<notebook>/cited.yml, each with its source and the day on which somebody read it there.

No run makes them, so they are no code: a row is written by hand, and pages show it at once. What others published and a notebook
computes with stays a claim of that notebook.
"""

import datetime
from pathlib import Path

import jsonschema
import yaml

from . import records, schema
from .problems import Problem, read_text

FILE = "cited.yml"
FIX = "write sentence, value, unit, source (https://...) and read (a day, 2026-11-27), as the rows beside it"
FIXES = {  # by field
    "value": "write a number without a comma between its digits: 1200",
    "source": "write the address with https:// in front, without blanks",
    "read": "write the day on which you read it, no later than today, as 2026-11-27",
    "unit": f"take one of: {', '.join(filter(None, schema.UNITS))}",
}


def with_cited(found, results=records.RESULTS):
    """{notebook: [records]} with the rows of its file as one record more, the last."""
    found = {notebook: list(kept) for notebook, kept in found.items()}
    for path in sorted(Path(results).glob(f"*/{FILE}")):
        kept = found.setdefault(path.parent.name, [])
        kept.append(load(path, {name for record in kept for name in record.data["claims"]}))
    return found


def is_cited(record):
    return record.path.name == FILE


def load(path, taken=()):
    """The rows of a file as a Record. taken: the names of the notebook's own claims. Raises Problem."""
    text = read_text(path)
    try:
        node = yaml.compose(text, yaml.BaseLoader)
        rows = yaml.load(text, yaml.BaseLoader)  # each value as it is written: a day stays text
    except yaml.YAMLError as error:
        raise Problem(path, f"not YAML: {error.problem}", FIX, error.problem_mark.line + 1) from None
    if not isinstance(rows, dict) or not rows:
        raise Problem(path, "it holds no rows", FIX, 1)
    lines = {}
    for key, _ in node.value:
        if key.value in lines:
            raise Problem(path, f"{key.value} stands twice, in line {lines[key.value]} too", "give one of them another name", key.start_mark.line + 1)
        lines[key.value] = key.start_mark.line + 1
    claims = {name: _claim(path, name, row, lines[name]) for name, row in rows.items()}
    for name in sorted(claims.keys() & taken):
        raise Problem(path, f"{name} is the name of a claim of the notebook", "give the row another one", lines[name])
    date = min(claim["read"] for claim in claims.values())
    return records.Record(path, {"notebook": path.parent.name, "date": date, "software": {}, "claims": claims, "tables": {}})


def _claim(path, name, row, line):
    row = dict(row) if isinstance(row, dict) else {}
    try:
        row["value"] = float(row["value"])
    except (KeyError, TypeError, ValueError):
        raise Problem(path, f"{name}: the value is {row.get('value')!r}, which is no number", FIXES["value"], line) from None
    for error in jsonschema.Draft202012Validator(schema.CITED).iter_errors({name: row}):
        field = error.absolute_path[-1] if len(error.absolute_path) > 1 else ""
        what = f"{field}: {row[field]!r} is none" if field in FIXES else error.message[:160]
        raise Problem(path, f"{name}: {what}", FIXES.get(field, FIX), line)
    if row["read"] > datetime.date.today().isoformat():
        raise Problem(path, f"{name}: read: {row['read']} is to come", FIXES["read"], line)
    claim = {"kind": "cited"} | row
    if claim["unit"] not in schema.UNITS:
        raise Problem(path, f"{name}: there is no unit {claim['unit']!r}", FIXES["unit"], line)
    if wrong := schema.wrong_claim(claim):
        raise Problem(path, f"{name}: {wrong}", FIX, line)
    return claim
