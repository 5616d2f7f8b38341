"""Whether a record still belongs to its code.

A record carries the hash of its notebook's code, and of every module of ours that its measurement goes through. When one of
them changes, the record is *stale*: no page shows it, and `make check` names it with the command that renews it.

Hashed is what runs: no prose, no comment, and neither the install cell, which only fetches packages, nor the closing cell, which
only compares.
"""

import ast
import hashlib
import io
import re
import tokenize
from functools import lru_cache
from pathlib import Path

import jupytext

from .problems import Problem, read_text

FOLDER = Path("notebooks")
HOME = Path(__file__).resolve().parent.parent  # where `evidence` and `dryrun` lie
MEASURES = "measures"  # the tag of a cell that measures
# They carry, name and draw a figure; none of them makes one.
CARRIERS = {"evidence/__init__.py", "evidence/claims.py", "evidence/machine.py", "evidence/plots.py", "evidence/records.py",
            "evidence/problems.py"}  # fmt: skip
INSTALL_MARK = "# Installs what this notebook needs"
CLOSING_MARK = "# Compares this run with the published records"
WRITES_PROGRAM = re.compile(r"%%writefile\s+(?:-a\s+)?\S+\.py\s*\n")


def stale(record):
    """Why a record does not belong to the code of today, in words, or None where it does."""
    path = FOLDER / f"{record.notebook}.py"
    if not path.is_file():
        return f"{path.as_posix()} is gone"
    code, modules = code_and_modules(path)
    if record.data["source"] != code:
        return f"the code of {path.as_posix()} has changed since this run"
    if record.machine and record.data["package"] != modules:
        names = sorted(record.data["package"].items() ^ modules.items())
        return f"{names[0][0]} has changed since this run"
    return None


def fresh(found):
    """{notebook: its records} without those that are stale."""
    return {notebook: [record for record in kept if not stale(record)] for notebook, kept in found.items()}


def code_and_modules(path):
    """(hash of the notebook's code, {module: hash} of ours that its measured claims go through)."""
    modules = [module for module in sorted(HOME.glob("*/*.py")) if module.parent.name in ("evidence", "dryrun")]
    return _code_and_modules(path.resolve(), _age(path), tuple(map(_age, modules)))


def _age(path):
    return path.stat().st_mtime_ns


@lru_cache(maxsize=256)
def _code_and_modules(path, *ages):
    cells = code_cells(jupytext.reads(read_text(path), {"extension": ".py"}), path)
    return code_hash(cell.source for cell in cells), hashes_of(sorted(_modules(cells)))


def code_hash(sources):
    """The SHA-256 of cells of code, in their order."""
    return hashlib.sha256("\n\n".join(map(what_runs, sources)).encode()).hexdigest()


def hashes_of(modules):
    """{module: hash} of modules of ours, by their paths as a record names them."""
    return {name: _module_hash(name) for name in modules}


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


def makes_figures(source):
    """Whether a cell is the author's: neither the install cell nor the closing cell, which are the same in every notebook."""
    return not source.startswith((INSTALL_MARK, CLOSING_MARK))


def measures(cell):
    return MEASURES in cell.metadata.get("tags", [])


def what_runs(source):
    """The code of a cell as Python reads it. Another language behind %% is taken as it is written."""
    head = WRITES_PROGRAM.match(source)
    if head:
        return head[0] + _normal(source[head.end() :])
    return source if source.startswith("%%") else _normal(_plain(source))


def _plain(source):
    """A line of IPython, `%cd` or `!pip`, as a line of Python with the same text."""
    return re.sub(r"^(\s*)([%!].*)$", lambda line: f"{line[1]}{line[2]!r}", source, flags=re.M)


def _normal(source, without_docstrings=False):
    """The lines of some Python without comments, blank lines and, where asked, docstrings. Not `ast.unparse`, which writes
    the same code differently from one version of Python to the next."""
    tree, lines = ast.parse(source), source.splitlines()
    for token in reversed(list(tokenize.generate_tokens(io.StringIO(source).readline))):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column]
    for docstring in _docstrings(tree) if without_docstrings else []:
        for row in range(docstring.lineno - 1, docstring.end_lineno):
            lines[row] = ""
    return "\n".join(line.rstrip() for line in lines if line.strip())


def _docstrings(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            yield node.body[0]


def _modules(cells):
    """Paths of our modules that measured claims go through: those of `evidence` that the notebook imports, those of
    `dryrun` that a measuring cell imports, and what these import. What is traced is computed again by `make test`."""
    wanted = set()
    for cell in cells:
        names = imported(cell.source)
        wanted |= {name for name in names if name.startswith("evidence/") or measures(cell)}
    found, open_ = set(), wanted - CARRIERS
    while open_:
        found |= open_
        open_ = {name for module in open_ for name in imported((HOME / module).read_text(encoding="utf-8"), module)}
        open_ -= found | CARRIERS
    return found


def imported(source, module=""):
    """Paths of the modules of `evidence` and `dryrun` that some Python imports, relative imports of `module` included."""
    head = WRITES_PROGRAM.match(source)
    source = source[head.end() :] if head else "" if source.startswith("%%") else _plain(source)
    package, dotted = Path(module).parent.as_posix().replace("/", "."), set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            dotted |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(filter(None, [package if node.level else "", node.module]))
            dotted |= {base} | {f"{base}.{alias.name}" for alias in node.names}
    ours = {name.replace(".", "/") for name in dotted if name.split(".")[0] in ("evidence", "dryrun")}
    paths = {path for name in ours for path in (f"{name}.py", f"{name}/__init__.py")}
    return {path for path in paths if (HOME / path).is_file()}


def _module_hash(name):
    source = (HOME / name).read_text(encoding="utf-8")
    return hashlib.sha256(_normal(source, without_docstrings=True).encode()).hexdigest()


def _line(path, text):
    return next((n for n, line in enumerate(read_text(path).splitlines(), 1) if text and text in line), None)
