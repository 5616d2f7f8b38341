"""Rows of models in dryrun/data/configurations.json. transformers fills in what a row does not say, and ignores what it does not know, so a
field that is misspelt would make another model without a word."""

import difflib
import json
from collections import Counter, defaultdict

from dryrun.models import models

from ..problems import Problem, read_text

PATH = models.DATA
FEWEST = 3  # rows of a class: what all others of these have is no choice of one
LIKE = 0.9  # of difflib: as a plural is like its singular


def check(rows=None):
    """A field that no other row has and that is spelled like one that they have, and one that all others of the class have."""
    rows = {name: row for name, row in (json.loads(read_text(PATH)) if rows is None else rows).items() if "fields" in row}
    known = Counter(field for row in rows.values() for field in row["fields"])
    classes = defaultdict(dict)
    for name, row in rows.items():
        classes[row["class"]][name] = set(row["fields"])
    for name, row in rows.items():
        others = [fields for other, fields in classes[row["class"]].items() if other != name]
        lacks = set.intersection(*others) - set(row["fields"]) if len(others) >= FEWEST - 1 else set()
        for field in row["fields"]:
            close = difflib.get_close_matches(field, [one for one, times in known.items() if one != field and times > known[field]], 1, LIKE)
            if known[field] == 1 and close:
                lacks.discard(close[0])
                yield Problem(PATH, f"{name}: {field}: no other row has this field (did you mean {close[0]}?)", "spell it as the other rows do", _line(name, field))
        for field in sorted(lacks):
            yield Problem(PATH, f"{name}: {field} is missing, and every other {row['class']} has it", "take it from the model's config.json", _line(name))


def _line(name, field=None):
    """Of a row in the file, or of its field."""
    lines = read_text(PATH).splitlines()
    start = next((number for number, line in enumerate(lines) if line.strip().startswith(f'"{name}": ')), 0)
    return next((number for number, line in enumerate(lines[start:], start + 1) if field and line.strip().startswith(f'"{field}":')), start + 1)
