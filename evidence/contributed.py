"""A record of another machine than the one that executed the .ipynb: does it say what this notebook says?

The schema knows what any record may hold. Here each claim must be one of the notebook's, with its unit, a sentence that the
notebook's code can make, and a bound that stands in that code: a forger may not widen the bound, nor reword the sentence. The
same goes for a reason, for the heads of a table and for the words in it. A large machine may have a table or a column more, where
the code names it: what needs a GPU is not in the .ipynb that a CPU executed.
"""

import ast
import json
import re

from . import machine, measured_code
from .problems import Problem, line_of, nearest, read_text

LEAST_FIXED = 10  # characters of a sentence that stand in the code; the rest may come from variables
LEAST_IN_A_TABLE = 2  # the same of a cell or the head of a column
MOST_FILLED = 60  # characters that one variable may add
# What a run finds out by itself and writes into a table: the name of an operator, of a file, of a processor.
SHORT_NAME = re.compile(r"[\w.:/+=-]{1,40}( [\w.:/+=-]{1,20})?", re.A)
ADDRESS = re.compile(
    r"://|www\.|@\w|\.(com|org|net|info|io|ai|app|dev|shop|site|store|online|xyz|example)\b", re.I | re.A
)
ALWAYS = {"python", *machine.PACKAGES, "cuda", "rocm", "driver", "clock"}  # what `software` of any run may name
NEEDED = {"torch", "transformers"}  # in `software` where the notebook's own run has them


def problems(record, expected, source, path):
    """Everything in a machine's record that the notebook could not have written.

    record: a Record; expected: {"claims": ..., "tables": ...} of the executed .ipynb; source: the notebook's cells, which lie
    at `path`.
    """
    trees = [ast.parse(measured_code.what_runs(cell.source)) for cell in _python_cells(source, path)]
    said, numbers = Said(trees), _numbers(trees)
    if wrong := _software(expected.get("software", {}), record.data["software"]):
        yield _problem(record, "software", wrong)
    for collection in ("claims", "tables"):
        ours, theirs = expected[collection], record.data[collection]
        what = collection[:-1]
        for name in theirs.keys() - ours.keys():
            if collection == "tables" and name in said.whole:
                ours = ours | {name: {"columns": {}, "rows": []}}
            else:
                yield _problem(record, name, f"the notebook has no {what} {name}{nearest(name, ours)}")
        for name in ours.keys() - theirs.keys():
            yield _problem(record, collection, f"it lacks the {what} {name} of the notebook")
        for name in sorted(ours.keys() & theirs.keys()):
            for wrong in _differences(ours[name], theirs[name], said, numbers):
                yield _problem(record, name, f"{what} {name}: {wrong}")


def _problem(record, key, what):
    line = line_of(read_text(record.path), json.dumps(key))
    return Problem(record.path, what, f"run `make record NOTEBOOKS={record.notebook}` on {record.label}", line)


def _software(ours, theirs):
    if not ours:
        return None
    if more := theirs.keys() - ours.keys() - ALWAYS:
        return f"software: the notebook names no {sorted(more)[0]}"
    if less := (NEEDED & ours.keys()) - theirs.keys():
        return f"software: it lacks {sorted(less)[0]}"
    return None


def _differences(ours, theirs, said, numbers):
    for key in ("sentence", "title", "because"):
        text = theirs.get(key)
        if text and text != ours.get(key) and not said.by(text, LEAST_FIXED):
            yield f"no code of the notebook writes the {key} {text[:60]!r}"
    if ours.get("unit") != theirs.get("unit"):
        yield f"its unit is {theirs['unit']!r}, and {ours['unit']!r} in the notebook"
    for key in ("at_least", "at_most"):
        if theirs.get(key) != ours.get(key) and theirs.get(key) not in numbers:
            yield f"{key}={theirs.get(key)} is no bound of the notebook, which has {ours.get(key)}"
    known, found = list(ours.get("columns", [])), list(theirs.get("columns", []))
    if [key for key in found if key in known or key not in said.whole] != known:
        yield f"its columns are {', '.join(found)}"
    elif "rows" in ours:
        yield from _cells(ours, theirs, said)


def _cells(ours, theirs, said):
    """Heads of columns and words in cells that no code writes."""
    for key, head in theirs["columns"].items():
        if head != ours["columns"].get(key) and not said.by(head, LEAST_IN_A_TABLE):
            yield f"no code of the notebook writes the head of column {key}, {head[:60]!r}"
    ours = dict(zip(ours["columns"], zip(*ours["rows"])))
    for head, column in zip(theirs["columns"], zip(*theirs["rows"])):
        known = ours.get(head, ())
        found = {cell for cell in known if isinstance(cell, str)}
        texts = {cell for cell in column if isinstance(cell, str)} - found
        for text in sorted(texts):
            may_name = found and SHORT_NAME.fullmatch(text) and not ADDRESS.search(text)
            if not may_name and not said.by(text, LEAST_IN_A_TABLE):
                yield f"no code of the notebook writes the cell {text[:60]!r} of column {head}"
                break
        if known and any(cell is True or cell is False for cell in column) and all(type(cell) in (int, float) for cell in known):
            yield f"its column {head} holds yes or no, and numbers in the notebook"


def _python_cells(source, path):
    return [cell for cell in measured_code.code_cells(source, path) if not cell.source.startswith("%%")]


class Said:
    """The texts that the notebook's code can make: its strings, and its f-strings with something short in each gap."""

    def __init__(self, trees):
        self.whole, self.patterns = set(), {}  # {pattern: how many characters of it are fixed}
        for node in (node for tree in trees for node in ast.walk(tree)):
            if isinstance(node, ast.JoinedStr):
                fixed = [part.value if isinstance(part, ast.Constant) else None for part in node.values]
                pattern = "".join(f"(.{{0,{MOST_FILLED}}}?)" if part is None else re.escape(part) for part in fixed)
                self.patterns[re.compile(pattern)] = sum(len(part or "") for part in fixed)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                self.whole.add(node.value)

    def by(self, text, least):
        """Whether code makes this text, of which `least` characters stand in it, and puts no address into a gap."""
        if text in self.whole:
            return True
        found = (pattern.fullmatch(text) for pattern, fixed in self.patterns.items() if fixed >= least)
        return any(match and not any(map(ADDRESS.search, match.groups())) for match in found)


def _numbers(trees):
    """Every number in the code, with either sign."""
    found = {
        node.value
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and type(node.value) in (int, float)
    }
    return found | {-number for number in found} | {None}
