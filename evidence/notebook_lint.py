"""What is wrong with a notebook, found in a second and without executing it. What its claims say, `claim()` checks in the run.

- a cell longer than a reader takes in at one sight, code that does not run on what the head says (`runs_on`)
- a recorded claim whose bound is so far from its value that nothing breaks it
"""

import re

from . import measured_code, notebooks, records, runs_on
from .problems import Problem, line_of, read_text
from .schema import UNITS, format_value

LINES, COLUMNS = 30, 120
FAR = 100  # times from the stored value: nothing reaches such a bound
DIFFERENCE = re.compile(r"\b(?:differ\w*|difference|apart|minus|above|below|error|less that|gap)\b", re.I)  # zero is best


def check(name):
    """All that is wrong with one notebook, as a list of Problems."""
    path, notebook = notebooks.FOLDER / f"{name}.py", notebooks.read_source(name)
    cells = [
        (number, notebooks.line_of_cell(path, number) or 1, cell.source)
        for number, cell in enumerate(notebook.cells, 1)
        if cell.cell_type == "code"
    ]
    return [*runs_on.check(name), *_lengths(path, cells), *_unbreakable(path, name)]


def _lengths(path, cells):
    for number, first, source in cells:
        lines = source.splitlines()
        if source.startswith(measured_code.INSTALL_MARK):
            continue  # is the same in every notebook
        if len(lines) > LINES:
            what = f"cell {number} has {len(lines)} lines; a cell has at most {LINES}"
            yield Problem(path, what, "split it where a thought ends, with a sentence between", first)
        for line, text in enumerate(lines, first):
            if len(text) > COLUMNS:
                what = f"a line of {len(text)} columns; code has at most {COLUMNS}, so that a page need not scroll"
                yield Problem(path, what, "break the line", line)


def _unbreakable(path, name):
    """Bounds so far from the recorded values, on every machine, that no fault of the code could reach them."""
    found = {}  # {claim: [(its record, what is wrong or None)]}
    for place in sorted((records.RESULTS / name).glob("*.json")):
        for key, claim in records.load(place).data["claims"].items():
            found.setdefault(key, []).append((place, too_far(claim)))
    source = read_text(path)
    for key, said in found.items():
        place, wrong = said[0]
        if all(wrong for _, wrong in said):
            line = line_of(source, f'"{key}"')
            where = (path, line) if line else (place, line_of(read_text(place), f'"{key}"'))  # a name that a loop makes
            yield Problem(where[0], f"claim {key}: {wrong}", "give a bound that a wrong value would break", where[1])


def too_far(claim):
    """In words, that no bound of a recorded claim is near its value; None where one is."""
    limits = [claim[side] for side in ("at_least", "at_most") if side in claim]
    values = [found["value"] for found in claim.get("on", {"": claim}).values() if found.get("value")]
    if not limits or not values or DIFFERENCE.search(claim["sentence"]):
        return None
    may_be_negative = UNITS.get(claim["unit"], (-1, 1))[0] < 0
    for ratio in (limit / value for limit in limits for value in values):
        if 1 / FAR <= ratio <= FAR or may_be_negative and ratio <= 0 and abs(ratio) <= FAR:
            return None
    shown = " and ".join(format_value(limit, claim["unit"]) for limit in limits)
    return f"{shown} is over {FAR} times from the recorded {format_value(values[0], claim['unit'])}, a bound that nothing breaks"
