"""The code that measured a figure: the cell tagged `measures`, and of the cells before it what that cell leans on.

What it leans on are the statements that bind or change the names it uses, and the programs it runs. A cited or derived figure, a
plot, prose, and the way from here to a page are none of it. Helpers of ours (`HELPERS`) count by a version, and imports of them
not at all, so a module may move or be rewritten as long as it measures the same.

    cell                 source                                              hashed for the figures of cell 5
    1                    import torch                                        yes: its name is used
                         from evidence.measure import interleaved            as "evidence.measure 1", its version
    2                    batch, length = 8, 512                              yes
    3                    title = "A step"                                    no: nothing that is hashed uses it
    4                    x = torch.ones(batch, length)                       yes
                         x.requires_grad_()                                  yes: it changes x
    5, measures          seconds = interleaved({"step": lambda: x.sum()})    yes, all of the cell
                         claim("step", "A sum", seconds["step"].best, "s")   yes
    6                    claim("size", "Its size", x.numel(), kind="derived")   no: it comes later
"""

import ast
import hashlib
import io
import re
import tokenize
from dataclasses import dataclass

from .problems import Problem, read_text

MEASURES = "measures"  # the tag of a cell that measures
INSTALL_MARK = "# Installs what this notebook needs"
CLOSING_MARK = "# Compares this run with the published records"
WRITES_PROGRAM = re.compile(r"%%writefile\s+(?:-a\s+)?(\S+)\s*\n")

# Raise a number when the module measures another thing, or measures it in another way, and so makes its figures old.
# Leave it when the module is moved, renamed, made faster or easier to read.
HELPERS = {"evidence.measure": 1, "evidence.launch": 1, "evidence.wire": 1, "dryrun": 1, "fitting": 1, "gpu_steps": 1}
OURS = ("dryrun", "evidence", "fitting", "gpu_steps")
# They carry, name, draw or silence; a call of one of them changes no measurement.
SHOW = ("evidence", "matplotlib", "logging", "warnings", "IPython")


@dataclass
class Statement:
    """One statement of a notebook, outside of any function."""

    text: str
    cell: int
    measures: bool
    uses: frozenset = frozenset()  # names that it takes from elsewhere in the notebook
    binds: frozenset = frozenset()
    changes: str = ""  # the name whose object it changes
    calls: str = ""  # the function that it calls for its effect alone
    module: str = ""  # where the name comes from that it imports
    later: bool = False  # a function or class: it looks names up when it is called
    writes: str = ""  # the file of a program that the cell writes


def measures(cell):
    return MEASURES in cell.metadata.get("tags", [])


def makes_figures(source):
    """Whether a cell is the author's: neither the install cell nor the closing cell, which are the same in every notebook."""
    return not source.startswith((INSTALL_MARK, CLOSING_MARK))


def code_cells(notebook, path):
    """The cells of code that a record depends on. Raises Problem where one is no Python."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code" and makes_figures(cell.source)]
    for cell in cells:
        try:
            what_runs(cell.source)
        except SyntaxError as error:
            what = f"a cell is no Python: {error.msg} in {(error.text or '').strip()[:60]!r}"
            line = _line(path, (error.text or "").strip())
            raise Problem(path, what, "correct the cell", line) from None
    return cells


def what_runs(source):
    """The code of a cell as Python reads it, without comments and blank lines. Another language behind %% is taken as it is."""
    head = WRITES_PROGRAM.match(source)
    if head and head[1].endswith(".py"):
        return head[0] + without_rooms(without_comments(source[head.end() :]))
    return source if source.startswith("%%") else without_comments(plain(source))


def without_our_imports(source):
    """What runs of a cell, without its imports of our own modules: where a module lies changes no figure, and what it gives is
    computed again by tests or counted by a version (`HELPERS`)."""
    code = what_runs(source)
    if source.startswith("%%"):
        return code
    lines = code.splitlines()
    for node in reversed(ast.parse(code).body):
        if _imports_ours(node):
            del lines[node.lineno - 1 : node.end_lineno]
    return "\n".join(lines)


def _imports_ours(node):
    if isinstance(node, ast.ImportFrom):
        return not node.level and node.module.split(".")[0] in OURS
    return isinstance(node, ast.Import) and all(alias.name.split(".")[0] in OURS for alias in node.names)


def without_rooms(program):
    """A program without the folders between a package of ours and a module in it: a module that moves from one to another runs as before."""
    return re.sub(rf"^(\s*from (?:{'|'.join(OURS)}))\.(?:\w+\.)+(\w+ import )", r"\1.\2", program, flags=re.M)


def plain(source):
    """A line of IPython, `%cd` or `!pip`, as a line of Python with the same text."""
    return re.sub(r"^(\s*)([%!].*)$", lambda line: f"{line[1]}{line[2]!r}", source, flags=re.M)


def without_comments(source):
    """Not `ast.unparse`, which writes the same code differently from one version of Python to the next."""
    ast.parse(source)
    lines = source.splitlines()
    for token in reversed(list(tokenize.generate_tokens(io.StringIO(source).readline))):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column]
    return "\n".join(line.rstrip() for line in lines if line.strip())


def hashes(notebook):
    """{number of a cell that measures: the hash of the code behind its figures}, numbers as in the notebook, from 1."""
    statements = []
    for number, cell in enumerate(notebook.cells, 1):
        if cell.cell_type == "code" and makes_figures(cell.source):
            statements += _statements(number, measures(cell), cell.source)
    return {number: _hash(statements, number) for number in sorted({s.cell for s in statements if s.measures})}


def _hash(statements, cell):
    """Of the cell's own statements, all that they lean on, in the order of the notebook, and the versions of our helpers."""
    before = [statement for statement in statements if statement.cell <= cell]
    open_ = [place for place, statement in enumerate(before) if statement.cell == cell]
    open_ += [place for place, statement in enumerate(before) if _sets_up(before, statement)]
    taken = set()
    while open_:
        place = open_.pop()
        if place not in taken:
            taken.add(place)
            for name in before[place].uses:
                open_ += _behind(before, name, place)
            open_ += [other for other, written in enumerate(before) if written.writes and written.writes in before[place].text]
    kept = [before[place] for place in sorted(taken)]
    helpers = {helper for statement in kept for helper in HELPERS if _is_in(statement.module, helper)}
    texts = [statement.text for statement in kept if not _is_shown_by(statement.module) and not _helper(statement.module)]
    versions = [f"{helper} {HELPERS[helper]}" for helper in sorted(helpers)]
    return hashlib.sha256("\n".join([*texts, *versions]).encode()).hexdigest()[:16]


def _sets_up(before, statement):
    """Whether a statement calls a helper of ours for its effect alone, as `one_thread()` does."""
    imported = (other.module for other in before if statement.calls in other.binds)
    return not statement.measures and any(module.startswith("evidence.") and _helper(module) for module in imported)


def _behind(before, name, place):
    """Places of what gives a name its value where it is used: the last statement that binds it, what changes it afterwards; of
    a cell that measures, all of it."""
    user = before[place]
    own = [other for other, statement in enumerate(before) if statement.cell == user.cell and name in statement.binds]
    if user.measures and own and (own[0] < place or user.later):
        return  # the cell's own name, and all of the cell is taken
    end = len(before) if user.later else place
    bound = [other for other in range(end) if name in before[other].binds and other != place]
    if not bound or _is_shown_by(before[bound[-1]].module):
        return
    yield bound[-1]
    for other, statement in enumerate(before[:end]):
        whole = statement.measures and statement.cell == before[bound[-1]].cell
        if whole or (other > bound[-1] and statement.changes == name and not statement.measures):
            yield other


def _helper(module):
    return any(_is_in(module, helper) for helper in HELPERS)


def _is_shown_by(module):
    return not _helper(module) and module.split(".")[0] in SHOW


def _is_in(module, package):
    return module == package or module.startswith(f"{package}.")


def _statements(number, tagged, source):
    """The statements of a cell. A cell in another language, or one that writes a program, is one statement."""
    if source.startswith("%%"):
        head = WRITES_PROGRAM.match(source)
        yield Statement(what_runs(source), number, tagged, writes=head[1] if head else "")
        return
    text = plain(source)
    lines = text.splitlines()
    for node in ast.parse(text).body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from _imports(node, number, tagged)
            continue
        first = min([node.lineno, *(part.lineno for part in getattr(node, "decorator_list", []))])
        code = without_comments("\n".join(lines[first - 1 : node.end_lineno]))
        yield _statement(node, code, number, tagged)


def _imports(node, number, tagged):
    """One statement for each name, so that a name more on the line changes nothing."""
    for alias in node.names:
        name = alias.asname or alias.name.split(".")[0]
        of = f"from {'.' * node.level}{node.module or ''} " if isinstance(node, ast.ImportFrom) else ""
        module = f"{node.module}.{alias.name}" if of else alias.name
        text = f"{of}import {alias.name}" + (f" as {alias.asname}" if alias.asname else "")
        yield Statement(text, number, tagged, binds=frozenset({name}), module=module)


def _statement(node, code, number, tagged):
    uses, binds = names(node)
    if not isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):  # a loop, a function: its own names are its own
        uses -= binds
    later = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    return Statement(code, number, tagged, frozenset(uses), frozenset(binds), _changed(node), _called(node), later=later)


SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
LOOPS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def names(node):
    """(names that a piece of code takes from outside of it, names that it binds around it).

    Not by `symtable`, which counts the loops in brackets differently from Python 3.12 on.
    """
    uses, binds = set(), set()
    if isinstance(node, ast.Name):
        return ({node.id}, set()) if isinstance(node.ctx, ast.Load) else (set(), {node.id})
    for part in ast.iter_child_nodes(node):
        inner, bound = names(part)
        uses, binds = uses | inner, binds | bound
    if isinstance(node, ast.AugAssign):
        uses |= binds
    if isinstance(node, ast.alias):
        binds.add(node.asname or node.name.split(".")[0])
    if isinstance(node, ast.arg):
        binds.add(node.arg)
    if isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
        binds.add(node.name)
    if isinstance(node, (*SCOPES, *LOOPS)):  # what is bound inside stays inside
        uses, binds = uses - binds, set()
    if isinstance(node, SCOPES) and not isinstance(node, ast.Lambda):
        binds = {node.name}
    return uses, binds


def _changed(node):
    """The name whose object a statement changes: by a call on it, `model.eval()`, or by an assignment to a part of it."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        target = node.value.func
    elif isinstance(node, ast.Assign | ast.AugAssign):
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
    else:
        return ""
    if isinstance(target, ast.Name):
        return ""
    while isinstance(target, ast.Attribute | ast.Subscript | ast.Call):
        target = target.func if isinstance(target, ast.Call) else target.value
    return target.id if isinstance(target, ast.Name) else ""


def _called(node):
    """The name of the function that a statement calls for its effect alone."""
    call = node.value if isinstance(node, ast.Expr) else None
    return call.func.id if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) else ""


def _line(path, text):
    return next((n for n, line in enumerate(read_text(path).splitlines(), 1) if text and text in line), None)
