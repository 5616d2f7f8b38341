"""What can be read of a notebook's cells, and of its calls of claim() and table(), without running it.

A call is often written once, in a loop over tuples or in a function, for many claims: it is read once for each tuple and for
each call of the function, with the arguments that these give.
"""

import ast
import copy
import re
import symtable
from dataclasses import dataclass, field, replace
from functools import cached_property

from . import measured_code, notebooks

ARGUMENTS = {  # those without a keyword, of each call that leaves a figure
    "claim": ("name", "sentence", "value", "unit"),
    "predicted": ("name", "sentence", "on", "unit"),
    "table": ("name", "title", "columns", "rows"),
}
DEEP = 4  # functions within functions that are followed


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
        except SyntaxError:  # `measured_code.code_cells` names it
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
    """One call of claim() or table(), with the arguments that loops and functions give it."""

    cell: Cell  # which makes the call
    line: int  # where it, or what it is given, is written
    node: ast.Call
    branches: tuple  # the (if, branch) that it stands in
    arguments: dict = field(init=False)

    def __post_init__(self):
        self.arguments = dict(zip(ARGUMENTS[self.node.func.id], self.node.args))
        if self.node.func.id == "predicted":
            self.arguments["kind"] = ast.Constant("predicted")
        for keyword in self.node.keywords:
            if keyword.arg:
                self.arguments[keyword.arg] = keyword.value
            elif isinstance(keyword.value, ast.Dict):
                self.arguments |= {text_of(key): value for key, value in zip(keyword.value.keys, keyword.value.values)}

    @property
    def what(self):
        return "table" if self.node.func.id == "table" else "claim"

    @property
    def passes_on(self):
        """Whether arguments come from elsewhere, by * or ** of what is no literal."""
        return any(
            keyword.arg is None and not isinstance(keyword.value, ast.Dict) for keyword in self.node.keywords
        ) or any(isinstance(argument, ast.Starred) for argument in self.node.args)

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
        Cell(number, notebooks.line_of_cell(path, number) or 1, cell.source, measured_code.measures(cell))
        for number, cell in enumerate(notebooks.read_source(name).cells, 1)
        if cell.cell_type == "code"
    ]


def calls_of(cells):
    """Every call of claim() and table() that these cells make."""
    functions = {
        node.name: (cell, node) for cell in cells for node in cell.tree.body if isinstance(node, ast.FunctionDef)
    }
    texts = {}
    for node in (node for cell in cells for node in cell.tree.body if isinstance(node, ast.Assign)):
        if len(node.targets) == 1 and isinstance(node.targets[0], ast.Name) and text_of(node.value) is not None:
            texts[node.targets[0].id] = node.value
    return [call for cell in cells for call in _read(cell.tree, Place(cell, cell, functions, texts))]


@dataclass(frozen=True)
class Place:
    """Where a piece of code is read: which cell runs it, which holds its text, and what its variables are, where known."""

    cell: Cell
    home: Cell
    functions: dict
    variables: dict
    line: int | None = None  # of the tuple, or of the call of the function, that it is read for
    given_by: Cell | None = None  # the cell whose text the arguments of the function are
    branches: tuple = ()
    depth: int = 0

    def line_of(self, node):
        return self.line or self.home.line - 1 + node.lineno


def _read(node, place):
    if isinstance(node, ast.FunctionDef) and place.functions.get(node.name, (None, None))[1] is node:
        return  # is read where it is called
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        if node.func.id in ARGUMENTS:
            yield Call(place.cell, place.line_of(node), _filled(node, place.variables), place.branches)
        elif node.func.id in place.functions and place.depth < DEEP:
            yield from _read_function(node, place)
    if isinstance(node, ast.For) and (elements := _elements(node.iter, place.variables)) is not None:
        home = place.given_by or place.home if isinstance(node.iter, ast.Name) else place.home
        for element in elements:
            bound = place.variables | _bound(node.target, element)
            line = home.line - 1 + element.lineno if hasattr(element, "lineno") else place.line
            for child in node.body:
                yield from _read(child, replace(place, variables=bound, line=line))
        return
    for part, value in ast.iter_fields(node):
        inside = (*place.branches, (id(node), part)) if isinstance(node, ast.If) and part != "test" else place.branches
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _read(child, replace(place, branches=inside))


def _read_function(call, place):
    """The calls in the body of a function of the notebook, with the arguments of this call of it."""
    home, function = place.functions[call.func.id]
    given = function.args
    names = [argument.arg for argument in [*given.posonlyargs, *given.args]]
    values = [_filled(argument, place.variables) for argument in call.args]
    bound = dict(zip(reversed(names), reversed(given.defaults)))
    bound |= {argument.arg: value for argument, value in zip(given.kwonlyargs, given.kw_defaults) if value}
    if not any(isinstance(value, ast.Starred) for value in values):
        bound |= dict(zip(names, values))
        if given.vararg:
            bound[given.vararg.arg] = ast.Tuple(values[len(names) :])
    bound |= {keyword.arg: _filled(keyword.value, place.variables) for keyword in call.keywords if keyword.arg}
    inside = replace(
        place,
        home=home,
        given_by=place.home,
        line=place.line_of(call),
        variables=place.variables | bound,
        depth=place.depth + 1,
    )
    for child in function.body:
        yield from _read(child, inside)


def _elements(node, variables):
    """What a loop runs over, where it is written down: a list of nodes, or None."""
    node = variables.get(node.id, node) if isinstance(node, ast.Name) else node
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return None if any(isinstance(element, ast.Starred) for element in node.elts) else node.elts
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Dict):
        pairs = zip(node.func.value.keys, node.func.value.values)
        if node.func.attr == "items":
            return [ast.copy_location(ast.Tuple([key, value]), value) for key, value in pairs if key]
    return None


def _bound(target, element):
    """{variable: node} of `for target in (element, ...)`."""
    if isinstance(target, ast.Name):
        return {target.id: element}
    found = {}
    if isinstance(target, ast.Tuple) and isinstance(element, ast.Tuple | ast.List):
        for name, value in zip(target.elts, element.elts):
            if isinstance(name, ast.Starred):
                break
            found |= _bound(name, value)
    return found


class _Fill(ast.NodeTransformer):
    """Puts what variables are known to be into an expression; text into the text around it."""

    def __init__(self, variables):
        self.variables = variables

    def visit_Name(self, node):
        return self.variables.get(node.id, node) if isinstance(node.ctx, ast.Load) else node

    def visit_FormattedValue(self, node):
        known = self.variables.get(node.value.id) if isinstance(node.value, ast.Name) else None
        text = text_of(known)
        return ast.Constant(text) if text is not None and node.format_spec is None else node


def _filled(node, variables):
    return _Fill(variables).visit(copy.deepcopy(node)) if variables else node
