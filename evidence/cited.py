"""Figures of others: rows of results/<notebook>/cited.yml, each with its source and the day on which somebody read it there.

No run makes them, so they are no code: a row is written by hand, and pages show it at once. What others published and a notebook
computes with stays a claim of that notebook.
"""

from pathlib import Path

import jsonschema
import yaml

from . import records, schema
from .problems import Problem, line_of, read_text

FILE = "cited.yml"
FIX = "write sentence, value, unit, source (https://...) and read (a day, 2026-11-27), as the rows beside it"


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
        rows = yaml.load(text, yaml.BaseLoader)  # each value as it is written: a day stays text
    except yaml.YAMLError as error:
        raise Problem(path, f"not YAML: {error.problem}", FIX, error.problem_mark.line + 1) from None
    if not isinstance(rows, dict) or not rows:
        raise Problem(path, "it holds no rows", FIX, 1)
    claims = {name: _claim(path, name, row, line_of(text, f"{name}:")) for name, row in rows.items()}
    for name in sorted(claims.keys() & taken):
        raise Problem(path, f"{name} is the name of a claim of the notebook", "give the row another one", line_of(text, f"{name}:"))
    date = min(claim["read"] for claim in claims.values())
    return records.Record(path, {"notebook": path.parent.name, "date": date, "software": {}, "claims": claims, "tables": {}})


def _claim(path, name, row, line):
    row = dict(row) if isinstance(row, dict) else {}
    try:
        row["value"] = float(row["value"])
    except (KeyError, TypeError, ValueError):
        raise Problem(path, f"{name}: the value is {row.get('value')!r}, which is no number", FIX, line) from None
    for error in jsonschema.Draft202012Validator(schema.CITED).iter_errors({name: row}):
        where = ": ".join(map(str, error.absolute_path)) or name
        raise Problem(path, f"{where}: {error.message[:160]}", FIX, line)
    claim = {"kind": "cited", "unit": ""} | row
    if wrong := schema.wrong_claim(claim):
        raise Problem(path, f"{name}: {wrong}", FIX, line)
    return claim
