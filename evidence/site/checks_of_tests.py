"""Tests that cannot fail, that pytest does not collect, or that are skipped without a reason. Read, not run."""

import ast
from functools import cache
from pathlib import Path

from ..problems import Problem, read_text

FOLDER = Path("tests")
RAISES = {"raises", "warns", "fail", "deprecated_call", "assert_allclose", "assert_close", "assert_called_once_with"}
HOOKS = ("pytest_", "setup_", "teardown_")


def check(folder=FOLDER):
    """All findings, as a list of Problems."""
    sources = {path: _parsed(path) for path in sorted(Path(folder).rglob("*.py"))}
    conftest = Path("conftest.py")
    helpers = sources | ({conftest: _parsed(conftest)} if conftest.is_file() else {})
    if not any(_tests(tree) for path, tree in sources.items()):
        return [Problem(folder, "there is no test", "run from the root of the repository")]
    checking = _checking(helpers.values())
    names = {name for tree in helpers.values() for name in _used(tree)}
    problems = []
    for path, tree in sources.items():
        is_test_file = path.name.startswith("test_")
        for scope, node in _functions(tree):
            if _is_test(node) and not is_test_file:
                what = f"{node.name} is a test, and pytest reads only files named test_*.py"
                problems.append(Problem(path, what, f"rename the file to test_{path.name}", node.lineno))
            elif _is_test(node) and isinstance(scope, ast.ClassDef) and not scope.name.startswith("Test"):
                what = f"{node.name} is a test, and pytest reads only classes named Test..."
                problems.append(Problem(path, what, f"rename the class to Test{scope.name}", scope.lineno))
            elif _is_test(node):
                problems += _cannot_fail(path, node, checking)
            elif is_test_file and _is_forgotten(node, names):
                what = f"nothing calls {node.name}, and pytest does not collect it"
                problems.append(Problem(path, what, f"name it test_{node.name.lstrip('_')}, or delete it", node.lineno))
        problems += _skips(path, tree)
    return problems


def _parsed(path):
    return ast.parse(read_text(path), path.as_posix())


def _functions(tree):
    """(module or class, function) of every function that pytest could collect."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield tree, node
        elif isinstance(node, ast.ClassDef):
            yield from (
                (node, inner) for inner in node.body if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef)
            )


def _is_test(node):
    return node.name.startswith("test") and not _has_decorator(node, "fixture")


def _tests(tree):
    return [node for _, node in _functions(tree) if _is_test(node)]


def _has_decorator(node, name):
    return any(name in ast.unparse(decorator) for decorator in node.decorator_list)


@cache
def _called(node):
    """The last part of the name of everything that a piece of code calls."""
    functions = [inner.func for inner in ast.walk(node) if isinstance(inner, ast.Call)]
    return frozenset(getattr(function, "attr", getattr(function, "id", "")) for function in functions)


def _asserts(node):
    return any(isinstance(inner, ast.Assert | ast.Raise) for inner in ast.walk(node)) or bool(RAISES & _called(node))


def _checking(trees):
    """The names of functions and fixtures that can fail a test, directly or through another one."""
    functions = {}
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("test"):
                functions.setdefault(node.name, []).append(node)
    checking = {name for name, nodes in functions.items() if any(map(_asserts, nodes))}
    while True:
        more = {
            name for name, nodes in functions.items() if any(checking & _reached(node) for node in nodes)
        } - checking
        if not more:
            return checking
        checking |= more


def _reached(node):
    arguments = {argument.arg for argument in node.args.args}
    return _called(node) | arguments


def _cannot_fail(path, node, checking):
    if not _asserts(node) and not checking & _called(node):
        fix = "assert what it is about, or call a helper that does"
        yield Problem(path, f"{node.name} asserts nothing, so it cannot fail", fix, node.lineno)
    for inner in ast.walk(node):
        if isinstance(inner, ast.Assert) and _is_always_true(inner.test):
            what = f"`assert {ast.unparse(inner.test)[:60]}` holds whatever the code does"
            yield Problem(path, what, "compare what the code gives with what it should give", inner.lineno)


def _is_always_true(test):
    if isinstance(test, ast.Constant):
        return bool(test.value)
    if isinstance(test, ast.Tuple | ast.List | ast.Dict | ast.Set):
        return bool(getattr(test, "elts", getattr(test, "keys", [])))
    if (
        isinstance(test, ast.Compare)
        and len(test.ops) == 1
        and isinstance(test.ops[0], ast.Eq | ast.Is | ast.LtE | ast.GtE)
    ):
        return ast.dump(test.left) == ast.dump(test.comparators[0]) and not any(
            isinstance(n, ast.Call) for n in ast.walk(test)
        )
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or):
        return any(map(_is_always_true, test.values))
    return False


def _used(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.ImportFrom):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
            yield node.value


def _is_forgotten(node, names):
    """A function in a test file that is no test, no fixture, no hook, and named nowhere."""
    if node.name.startswith((*HOOKS, "__")) or node.decorator_list:
        return False
    return node.name not in names


def _skips(path, tree):
    """Marks and calls that skip a test and do not say why."""
    marks = {"pytest.mark.skip", "pytest.mark.skipif", "pytest.mark.xfail"}
    calls = {node.func: node for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        name = ast.unparse(node) if isinstance(node, ast.Attribute) else ""
        if name not in marks | {"pytest.skip", "pytest.xfail", "pytest.importorskip"}:
            continue
        call = calls.get(node)
        said = [keyword.value for keyword in call.keywords if keyword.arg in ("reason", "msg")] if call else []
        said += call.args if call and name in ("pytest.skip", "pytest.xfail", "pytest.mark.skip") else []
        if not any(not isinstance(text, ast.Constant) or str(text.value or "").strip() for text in said):
            yield Problem(path, f"{name} without a reason", 'say why: reason="needs a GPU"', node.lineno)
