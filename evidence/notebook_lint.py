"""What is wrong with a notebook's source, found in a second and without executing it.

- a claim or table with a bad or repeated name, an unknown kind or unit, no sentence, no bound, or a bound that nothing breaks
- what is measured outside of a cell tagged `measures`, what is exact inside of one
- a cell that leans on a tagged cell without the tag, or on an import of `dryrun` that the record would not cover
- a cell longer than a reader takes in at one sight
"""

import ast
import math
import re
import symtable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from . import freshness, notebooks, records
from .problems import Problem, line_of, nearest, read_text
from .schema import KINDS, UNITS, format_value

LINES, COLUMNS = 30, 120
FAR = 100  # times from the stored value: nothing reaches such a bound
# Notebooks with cells that are longer or wider. No new ones: each is taken out when its cells are short.
LONG_CELLS_ALLOWED = set()
NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
DIFFERENCE = re.compile(
    r"\b(?:differ\w*|difference|apart|minus|above|below|error|less that|gap)\b", re.I
)  # zero is best


@dataclass
class Cell:
    """A cell of code: its number in the notebook, the line of its first line, its text, and whether it measures."""

    number: int
    line: int
    source: str
    measures: bool

    @cached_property
    def tree(self):
        """The Python of the cell; empty for a cell in another language, a program to be written, or one that is broken."""
        try:
            return ast.parse("" if self.source.startswith("%%") else self._python)
        except SyntaxError:  # `freshness.code_cells` names it
            return ast.parse("")

    @cached_property
    def scope(self):
        return symtable.symtable(ast.unparse(self.tree), f"cell {self.number}", "exec")

    @property
    def _python(self):
        return re.sub(r"^(\s*)[%!].*$", r"\1pass", self.source, flags=re.M)

    @cached_property
    def defined(self):
        return {symbol.get_name() for symbol in self.scope.get_symbols() if _is_defined(symbol)}

    @cached_property
    def used(self):
        return _globals(self.scope) | {
            symbol.get_name() for symbol in self.scope.get_symbols() if symbol.is_referenced()
        }

    @cached_property
    def functions(self):
        """{name: the names that it takes from outside} of the functions and classes of the cell."""
        return {child.get_name(): _globals(child) for child in self.scope.get_children()}

    @cached_property
    def of_dryrun(self):
        """The names that the cell imports from `dryrun`."""
        found = set()
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "dryrun":
                found |= {alias.asname or alias.name for alias in node.names}
            elif isinstance(node, ast.Import):
                found |= {alias.asname or "dryrun" for alias in node.names if alias.name.split(".")[0] == "dryrun"}
        return found

    def line_of_name(self, name):
        nodes = (node for node in ast.walk(self.tree) if isinstance(node, ast.Name) and node.id == name)
        return self.line - 1 + min((node.lineno for node in nodes), default=1)


def _is_defined(symbol):
    return symbol.is_assigned() or symbol.is_imported() or symbol.is_namespace()


def _globals(scope):
    """The names that a scope and those inside it take from the notebook."""
    if scope.get_type() == "module":
        return set().union(*map(_globals, scope.get_children()))
    own = {symbol.get_name() for symbol in scope.get_symbols() if symbol.is_global() and symbol.is_referenced()}
    return own.union(*map(_globals, scope.get_children()))


@dataclass
class Call:
    """One call of claim() or table(): what of it can be read without a run."""

    cell: Cell
    node: ast.Call
    function: str  # the function of the notebook that it stands in, or ""
    branches: tuple  # the (if, branch) that it stands in
    arguments: dict = field(init=False)

    def __post_init__(self):
        order = ("name", "sentence", "value", "unit") if self.what == "claim" else ("name", "title", "columns", "rows")
        self.arguments = dict(zip(order, self.node.args))
        self.arguments |= {keyword.arg: keyword.value for keyword in self.node.keywords if keyword.arg}

    @property
    def what(self):
        return self.node.func.id

    @property
    def line(self):
        return self.cell.line - 1 + self.node.lineno

    @property
    def passes_on(self):
        """Whether arguments come from elsewhere, by * or **."""
        return any(keyword.arg is None for keyword in self.node.keywords) or any(
            isinstance(argument, ast.Starred) for argument in self.node.args
        )

    def text(self, name):
        """The text of an argument, with {} for what a run fills in; None where it is no literal."""
        return text_of(self.arguments.get(name))

    @property
    def name(self):
        return self.text("name") or "(of a variable)"

    @property
    def kinds(self):
        kind = self.arguments.get("kind")
        return {node.value for node in ast.walk(kind) if isinstance(node, ast.Constant)} if kind else set()

    def excludes(self, other):
        """Whether only one of two calls can run: they stand in two branches of one `if`."""
        ours, theirs = dict(self.branches), dict(other.branches)
        return any(theirs.get(key, branch) != branch for key, branch in ours.items())


def text_of(node):
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        parts = text_of(node.left), text_of(node.right)
        return None if None in parts else "".join(parts)
    return None


def cells_of(name):
    """The cells of code of a notebook, as Cells."""
    path = notebooks.FOLDER / f"{name}.py"
    return [
        Cell(number, notebooks.line_of_cell(path, number) or 1, cell.source, freshness.measures(cell))
        for number, cell in enumerate(notebooks.read_source(name).cells, 1)
        if cell.cell_type == "code"
    ]


def calls_of(cells):
    """Every call of claim() and table() in them."""
    return [call for cell in cells for call in _calls(cell, cell.tree, "", ())]


def _calls(cell, node, function, branches):
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("claim", "table"):
        yield Call(cell, node, function, branches)
    if isinstance(node, ast.FunctionDef):
        function = node.name
    for part, value in ast.iter_fields(node):
        inside = (*branches, (id(node), part)) if isinstance(node, ast.If) and part != "test" else branches
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _calls(cell, child, function, inside)


def check(name, results=records.RESULTS):
    """All that is wrong with the source of one notebook, as a list of Problems."""
    path = notebooks.FOLDER / f"{name}.py"
    cells = cells_of(name)
    calls = calls_of(cells)
    return [
        *_start(path, name, cells),
        *_lengths(path, name, cells),
        *_names(path, calls),
        *(problem for call in calls for problem in _call(path, call)),
        *_kinds_and_tags(path, cells, calls),
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


def _lengths(path, name, cells):
    found = []
    for cell in cells:
        lines = cell.source.splitlines()
        if cell.source.startswith(freshness.INSTALL_MARK):
            continue  # is the same in every notebook
        if len(lines) > LINES:
            what = f"cell {cell.number} has {len(lines)} lines; a cell has at most {LINES}"
            found.append(Problem(path, what, "split it where a thought ends, with a sentence between", cell.line))
        for number, line in enumerate(lines, cell.line):
            if len(line) > COLUMNS:
                what = f"a line of {len(line)} columns; code has at most {COLUMNS}, so that a page need not scroll"
                found.append(Problem(path, what, "break the line", number))
    if name not in LONG_CELLS_ALLOWED:
        yield from found
    elif not found:
        what = f"{name} has no long cell any more"
        here = Path(__file__)
        yield Problem(here, what, "take it out of LONG_CELLS_ALLOWED", line_of(read_text(here), f'"{name}"'))


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


def _kinds_and_tags(path, cells, calls):
    """What is measured stands in cells with the tag, what is exact in cells without. A function counts where it is called."""
    by_function = {}
    for call in calls:
        if call.function:
            by_function.setdefault(call.function, []).append(call)
    for cell in cells:
        inside = [call for call in calls if call.cell is cell and not call.function]
        for node in ast.walk(cell.tree):
            if isinstance(node, ast.Call) and getattr(node.func, "id", None) in by_function:
                inside += by_function[node.func.id]
        for call in inside:
            kinds = call.kinds & set(KINDS)
            line = call.line if call.cell is cell else cell.line_of_name(call.function)
            if kinds == {"measured"} and not cell.measures:
                fix = 'begin the cell with `# %% tags=["measures"]`'
                yield Problem(path, f"{call.what} {call.name} is measured, and its cell has no tag", fix, line)
            elif kinds and "measured" not in kinds and cell.measures:
                what = f"{call.what} {call.name} is {'/'.join(sorted(kinds))}, and its cell measures"
                yield Problem(path, what, "move it into a cell without the tag, which every check computes again", line)


def _leaning(path, cells):
    """Cells without the tag run without the others. A cell with it is covered by the record, with what it imports."""
    free = set().union(*(cell.defined for cell in cells if not cell.measures))
    tagged = {name: cell for cell in cells if cell.measures for name in cell.defined}
    imported = {name: cell for cell in cells for name in cell.of_dryrun}
    functions = {name: used for cell in cells if not cell.measures for name, used in cell.functions.items()}
    for cell in cells:
        if not cell.measures:
            for name in sorted((cell.used & tagged.keys()) - free):
                what = f"{name} comes from cell {tagged[name].number}, which measures, and this cell has no tag"
                fix = 'begin this cell with `# %% tags=["measures"]` too, or define the name in a cell without the tag'
                yield Problem(path, what, fix, cell.line_of_name(name))
            continue
        for name, way in sorted(_reached(cell.used - cell.defined, functions).items()):
            if name in imported and name not in cell.of_dryrun:
                through = f" through {way}()" if way else ""
                what = f"this cell measures, and uses {name} of dryrun{through}, which cell {imported[name].number} imports"
                fix = "import it in this cell, so that the record is tied to it"
                fix += f", and define {way}() in a cell that measures" if way else ""
                yield Problem(path, what, fix, cell.line_of_name(way or name))


def _reached(names, functions):
    """{name: the first function on the way to it, or ""} of all names that some names lead to through functions."""
    found, open_ = {}, [(name, "") for name in names]
    while open_:
        name, way = open_.pop()
        if name not in found:
            found[name] = way
            open_ += [(inner, way or name) for inner in functions.get(name, ())]
    return found


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
    value = claim.get("value")
    if not limits or not value or DIFFERENCE.search(claim["sentence"]):
        return None
    may_be_negative = UNITS.get(claim["unit"], (-1, 1))[0] < 0
    for limit in limits:
        ratio = limit / value
        if 1 / FAR <= ratio <= FAR or may_be_negative and ratio <= 0 and abs(ratio) <= FAR:
            return None
    shown = " and ".join(format_value(limit, claim["unit"]) for limit in limits)
    return f"{shown} is over {FAR} times from the recorded {format_value(value, claim['unit'])}, a bound that nothing breaks"
