"""What is wrong with a notebook's source, found in a second and without executing it.

- a claim or table with a bad or repeated name, an unknown kind or unit, no sentence, no bound, or a bound that nothing breaks
- what is measured outside of a cell tagged `measures`, what is exact inside of one
- a cell that leans on a tagged cell without the tag
- a cell longer than a reader takes in at one sight
"""

import ast
import math
import re
from pathlib import Path

from . import measured_code, notebooks, records
from .notebook_calls import calls_of, cells_of, text_of
from .problems import Problem, line_of, nearest, read_text
from .schema import KINDS, UNITS, format_value

LINES, COLUMNS = 30, 120
FAR = 100  # times from the stored value: nothing reaches such a bound
ASKS_FOR_GPU = re.compile(r"torch\.cuda\.is_available\(\)")
NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
DIFFERENCE = re.compile(
    r"\b(?:differ\w*|difference|apart|minus|above|below|error|less that|gap)\b", re.I
)  # zero is best


def check(name, results=records.RESULTS):
    """All that is wrong with the source of one notebook, as a list of Problems."""
    path = notebooks.FOLDER / f"{name}.py"
    cells = cells_of(name)
    calls = calls_of(cells)
    return [
        *_start(path, name, cells),
        *_accelerator(path, cells, notebooks.read_source(name).metadata),
        *_lengths(path, cells),
        *_names(path, calls),
        *(problem for call in calls for problem in _call(path, call)),
        *_kinds_and_tags(path, calls),
        *_leaning(path, cells),
        *_unbreakable(path, name, calls, results),
    ]


def _start(path, name, cells):
    nodes = [(cell, node) for cell in cells for node in ast.walk(cell.tree)]
    starts = [(c, n) for c, n in nodes if isinstance(n, ast.Call) and getattr(n.func, "id", None) == "start"]
    if not starts:
        yield Problem(path, "the notebook opens no run", f'call start("{name}") in a cell before the first claim', 1)
    for cell, node in starts:
        given = text_of(node.args[0]) if node.args else None
        if given is not None and given != name:
            what = f"the notebook opens a run of {given}"
            yield Problem(path, what, f'call start("{name}")', cell.line - 1 + node.lineno)
        if cell.measures:
            fix = "open the run in a cell without the tag, which every run executes"
            yield Problem(path, "start() stands in a cell that measures", fix, cell.line - 1 + node.lineno)


def _accelerator(path, cells, head):
    """Colab starts a CPU, unless the head of a notebook asks for a GPU."""
    asks = next((cell for cell in cells if ASKS_FOR_GPU.search(cell.source)), None)
    if asks and head.get("accelerator") != "GPU":
        fix = "write `accelerator: GPU` into its head, as in notebooks/one_gpu.py"
        yield Problem(
            path, "the notebook uses a GPU where there is one, and Colab would start it without", fix, asks.line
        )
    elif not asks and "accelerator" in head:
        what = "the head asks Colab for an accelerator, and no cell looks for one"
        yield Problem(path, what, "take `accelerator` and `colab` out of the head", 1)


def _lengths(path, cells):
    for cell in cells:
        lines = cell.source.splitlines()
        if cell.source.startswith(measured_code.INSTALL_MARK):
            continue  # is the same in every notebook
        if len(lines) > LINES:
            what = f"cell {cell.number} has {len(lines)} lines; a cell has at most {LINES}"
            yield Problem(path, what, "split it where a thought ends, with a sentence between", cell.line)
        for number, line in enumerate(lines, cell.line):
            if len(line) > COLUMNS:
                what = f"a line of {len(line)} columns; code has at most {COLUMNS}, so that a page need not scroll"
                yield Problem(path, what, "break the line", number)


def _names(path, calls):
    seen = {}
    for call in calls:
        name = call.text("name")
        if name is None:
            continue
        if not NAME.fullmatch(name.replace("{}", "x").strip() or "-") or name != name.strip():
            what = f"{call.what} {name!r}: a name has lower-case letters, digits and single hyphens"
            yield Problem(path, what, f"write {_proper(name)!r}", call.line)
        for other in seen.get((call.what, name), []):
            if "{}" not in name and not call.excludes(other):
                what = f"{call.what} {name} stands here and in line {other.line}"
                yield Problem(path, what, "give one of them another name", call.line)
        seen.setdefault((call.what, name), []).append(call)


def _proper(name):
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def _call(path, call):
    """What is wrong with one call of claim() or table(), seen alone."""

    def problem(what, fix):
        return Problem(path, f"{call.what} {call.name}: {what}", fix, call.line)

    for kind in sorted(
        map(str, call.kinds - set(KINDS) if isinstance(call.arguments.get("kind"), ast.Constant) else ())
    ):
        yield problem(f"there is no kind {kind!r}{nearest(kind, KINDS)}", f"take one of {', '.join(KINDS)}")
    if "kind" not in call.arguments and not call.passes_on:
        yield problem("it has no kind", f"say kind=, one of {', '.join(KINDS)}")
    if call.kinds == {"cited"} and "source" not in call.arguments and not call.passes_on:
        yield problem("a cited figure needs a source", "give source=, a link")
    if call.what == "claim":
        yield from _sentence(call, problem)
        yield from _bounds(call, problem)


def _sentence(call, problem):
    sentence, unit = call.text("sentence"), call.text("unit")
    if "sentence" not in call.arguments and not call.passes_on:
        yield problem("it has no sentence", "say what is claimed, under which conditions, without the value")
    elif sentence is not None and "{}" not in sentence and len(sentence) < 10:
        yield problem(f"{sentence!r} is no sentence", "say what is claimed, under which conditions, without the value")
    elif _repeats_value(call):
        yield problem("its sentence holds its value", "take the value out: it is shown behind the sentence")
    if unit is not None and "{}" not in unit and unit not in UNITS:
        yield problem(f"there is no unit {unit!r}{nearest(unit, UNITS)}", "take one of evidence/schema.py")


def _repeats_value(call):
    sentence, value = call.arguments.get("sentence"), call.arguments.get("value")
    if not isinstance(sentence, ast.JoinedStr) or value is None or isinstance(value, ast.Constant):
        return False
    shown = [part.value for part in sentence.values if isinstance(part, ast.FormattedValue)]
    return any(ast.dump(part) == ast.dump(value) for part in shown)


def _bounds(call, problem):
    given = {side: call.arguments[side] for side in ("at_least", "at_most") if side in call.arguments}
    limits = {side: list(numbers(node)) for side, node in given.items()}
    none = all(isinstance(node, ast.Constant) and node.value is None for node in given.values())
    if none and not call.passes_on and call.kinds != {"cited"}:
        yield problem("it has no bound", "give at_least=, at_most= or both, which a wrong value would break")
        return
    least, most = UNITS.get(call.text("unit") if "unit" in call.arguments else "", (-math.inf, math.inf))
    holds_always = {"at_least": lambda limit: not limit > least, "at_most": lambda limit: not limit < most}
    empty = {
        side: [limit for limit in found if not math.isfinite(limit) or holds_always[side](limit)]
        for side, found in limits.items()
    }
    for side, found in empty.items():
        beyond = [limit for limit in found if not math.isfinite(limit)]
        alone = found and all(len(empty[other]) == len(limits[other]) > 0 for other in given)
        if beyond or alone and not call.passes_on:
            limit = (beyond or found)[0]
            yield problem(f"{side}={limit:g} is a bound that nothing breaks", "give one that a wrong value would break")
            return
    for low, high in zip(limits.get("at_least", []), limits.get("at_most", [])):
        if low > high:
            yield problem(f"at_least={low:g} is over at_most={high:g}", "turn them round")


def numbers(node):
    """The numbers that a literal expression can give: one, or one for each side of an `if`. None for anything else."""
    if isinstance(node, ast.IfExp):
        yield from numbers(node.body)
        yield from numbers(node.orelse)
        return
    text = ast.unparse(node)
    if re.fullmatch(r"-?(?:math|np|numpy|torch)\.(?:inf|nan)|-?float\(['\"][+-]?(?:inf\w*|nan)['\"]\)", text, re.I):
        yield math.inf
    elif re.fullmatch(r"[\d\s.e+*/()_-]+", text, re.I) and re.search(r"\d", text):
        try:
            yield float(eval(text, {"__builtins__": {}}))  # digits and arithmetic alone, as the pattern says
        except (ArithmeticError, SyntaxError, TypeError):
            return


def _kinds_and_tags(path, calls):
    """What is measured stands in cells with the tag, what is exact in cells without."""
    for call in calls:
        kinds = call.kinds & set(KINDS)
        if kinds == {"measured"} and not call.cell.measures:
            fix = 'begin the cell with `# %% tags=["measures"]`'
            yield Problem(path, f"{call.what} {call.name} is measured, and its cell has no tag", fix, call.line)
        elif kinds and "measured" not in kinds and call.cell.measures:
            what = f"{call.what} {call.name} is {'/'.join(sorted(kinds))}, and its cell measures"
            yield Problem(
                path, what, "move it into a cell without the tag, which every check computes again", call.line
            )


def _leaning(path, cells):
    """Cells without the tag run without the others."""
    free = set().union(*(cell.defined for cell in cells if not cell.measures))
    tagged = {name: cell for cell in cells if cell.measures for name in cell.defined}
    for cell in cells:
        for name in sorted((cell.used & tagged.keys()) - free if not cell.measures else ()):
            what = f"{name} comes from cell {tagged[name].number}, which measures, and this cell has no tag"
            fix = 'begin this cell with `# %% tags=["measures"]` too, or define the name in a cell without the tag'
            yield Problem(path, what, fix, cell.line_of_name(name))


def _unbreakable(path, name, calls, results):
    """Bounds so far from the recorded value that no fault of the code could reach them."""
    lines = {call.text("name"): call.line for call in calls if call.what == "claim"}
    for place in sorted((Path(results) / name).glob("*.json")):
        for key, claim in records.load(place).data["claims"].items():
            if wrong := too_far(claim):
                where = (path, lines[key]) if key in lines else (place, line_of(read_text(place), f'"{key}"'))
                yield Problem(
                    where[0], f"claim {key}: {wrong}", "give a bound that a wrong value would break", where[1]
                )


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
