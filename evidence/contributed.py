"""A record of another machine than the one that executed the .ipynb: does it say what this notebook says?

The schema knows what any record may hold. Here each claim must be one of the notebook's, with its unit, a sentence that the
notebook's code can make, and a bound that stands in that code: a forger may not widen the bound, nor reword the sentence.
"""

import ast
import json
import re

from . import freshness
from .problems import Problem, line_of, nearest, read_text

LEAST_FIXED = 10  # characters of a sentence that stand in the code; the rest may come from variables
MOST_FILLED = 60  # characters that one variable may add


def problems(record, expected, source, path):
    """Everything in a machine's record that the notebook could not have written.

    record: a Record; expected: {"claims": ..., "tables": ...} of the executed .ipynb; source: the notebook's cells, which lie
    at `path`.
    """
    trees = [ast.parse(freshness.what_runs(cell.source)) for cell in _python_cells(source, path)]
    sentences, numbers = _sentences(trees), _numbers(trees)
    for collection in ("claims", "tables"):
        ours, theirs = expected[collection], record.data[collection]
        what = collection[:-1]
        for name in theirs.keys() - ours.keys():
            yield _problem(record, name, f"the notebook has no {what} {name}{nearest(name, ours)}")
        for name in ours.keys() - theirs.keys():
            yield _problem(record, collection, f"it lacks the {what} {name} of the notebook")
        for name in sorted(ours.keys() & theirs.keys()):
            for wrong in _differences(ours[name], theirs[name], sentences, numbers):
                yield _problem(record, name, f"{what} {name}: {wrong}")


def _problem(record, key, what):
    line = line_of(read_text(record.path), json.dumps(key))
    return Problem(record.path, what, f"run `make record NOTEBOOKS={record.notebook}` on {record.label}", line)


def _differences(ours, theirs, sentences, numbers):
    for key in ("sentence", "title"):
        said = theirs.get(key)
        if said and said != ours[key] and not any(sentence.fullmatch(said) for sentence in sentences):
            yield f"no code of the notebook writes the {key} {said[:60]!r}"
    if ours.get("unit") != theirs.get("unit"):
        yield f"its unit is {theirs['unit']!r}, and {ours['unit']!r} in the notebook"
    for key in ("at_least", "at_most"):
        if theirs.get(key) != ours.get(key) and theirs.get(key) not in numbers:
            yield f"{key}={theirs.get(key)} is no bound of the notebook, which has {ours.get(key)}"
    if list(ours.get("columns", [])) != list(theirs.get("columns", [])):
        yield f"its columns are {', '.join(theirs['columns'])}"


def _python_cells(source, path):
    return [cell for cell in freshness.code_cells(source, path) if not cell.source.startswith("%%")]


def _sentences(trees):
    """A pattern for every text in the code that is long enough to be a sentence."""
    patterns = set()
    for node in (node for tree in trees for node in ast.walk(tree)):
        if isinstance(node, ast.JoinedStr):
            fixed = [part.value if isinstance(part, ast.Constant) else None for part in node.values]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            fixed = [node.value]
        else:
            continue
        if sum(len(part or "") for part in fixed) >= LEAST_FIXED:
            filled = f".{{0,{MOST_FILLED}}}?"
            patterns.add("".join(filled if part is None else re.escape(part) for part in fixed))
    return [re.compile(pattern) for pattern in patterns]


def _numbers(trees):
    """Every number in the code, with either sign."""
    found = {
        node.value
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and type(node.value) in (int, float)
    }
    return found | {-number for number in found} | {None}
