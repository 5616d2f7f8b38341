"""Notebooks: notebooks/x.py (percent format, the source) and notebooks/x.ipynb (the same, executed)."""

import copy
import itertools
import os
import re
import tomllib
from functools import lru_cache
from pathlib import Path

import jupytext
import nbformat

from . import measured_code, records
from .problems import Problem, nearest, read_text

FOLDER = Path("notebooks")
PACKAGES = Path(".venv")  # a notebook with requirements/<its-name>.txt has packages of its own here: see `own_packages`
INSTALL = """\
# Installs what this notebook needs where it is not there yet (Colab, an empty folder). Colab's torch stays as it is.
import importlib.util
import os
import subprocess
import sys

PINS = {pins}
if importlib.util.find_spec("evidence") is None:
    source = os.environ.get("EVIDENCE_SOURCE", "git+{repository}@v{version}")
    source = os.path.abspath(source) if os.path.exists(source) else source
    done = subprocess.run([sys.executable, "-m", "pip", "install", "-q", source], capture_output=True, text=True)
    if done.returncode:
        fix = "set EVIDENCE_SOURCE to the folder of a copy of the repository, and run this cell again"
        raise RuntimeError(f"{{done.stderr}}Nothing could be installed from {{source}}. Fix: {{fix}}")

from evidence.session import prepare

prepare(PINS)"""
PREPARED = INSTALL.splitlines()[-1]
# Of a notebook's metadata: what Colab starts, the packages on top of transformers, and what it runs on (`runs_on`).
HEAD = ("accelerator", "colab", "needs", "runs_on")
PIN = re.compile(r"^([\w.-]+)(?:\[[\w,-]*\])?==([\w.+!]+)", re.M)  # of a lock


CLOSING = f"""\
{measured_code.CLOSING_MARK}. In Colab it also offers the record of this machine, to send.
from evidence.finish import finish

finish()"""


def project():
    """The [project] table of pyproject.toml, where the repository's address and the versions stand."""
    return tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]


def placeholder():
    """A sentence where the repository's address is not set yet, or None: nobody could install from it, and no link leads on."""
    whole = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))
    if not whole.get("tool", {}).get("evidence", {}).get("placeholder"):
        return None
    fix = "set it, delete `placeholder`, push the tag of the version, and run `make pair`"
    return f"note: pyproject.toml: the address {whole['project']['urls']['Repository']} is a placeholder. Before publishing: {fix}"


def install_cell(name=None):
    """The first code cell of a notebook: the address and versions of pyproject.toml, and what the notebook needs besides."""
    facts = project()
    address = facts["urls"]["Repository"]
    return INSTALL.format(repository=address, version=facts["version"], pins=_literal(pins(name)))


def pins(name=None):
    """{package: version} that a notebook's figures come from: transformers and accelerate, and what its head lists as `needs`.

    A version is that of the notebook's own lock, requirements/<name>.txt, else of pyproject.toml or requirements/test.txt.
    """
    examples = project()["optional-dependencies"]["examples"]
    found = dict(needed.split("==") for needed in examples if "==" in needed)
    if not name:
        return found
    needs, own = read_source(name).metadata.get("needs", []), _lock(name.replace("_", "-"))
    found |= {package: own[package] for package in found.keys() & own.keys()}
    locked = _lock("test") | own if needs else {}
    for package in needs:
        if package not in locked:
            what = f"it needs {package}, which no lock pins{nearest(str(package), locked)}"
            raise Problem(FOLDER / f"{name}.py", what, "name it in requirements/test.in, then `make lock`", 1)
        found[package] = locked[package]
    return found


def locked():
    """{package: version} that the tests run: of pyproject.toml, then of requirements/test.txt."""
    return pins() | _lock("test")


def _lock(name):
    path = Path("requirements", f"{name}.txt")
    return dict(PIN.findall(read_text(path))) if path.is_file() else {}


def _literal(pinned):
    """A dict as Python, broken into lines of 120 columns."""
    lines = ["{"]
    for number, (package, version) in enumerate(pinned.items(), 1):
        item = f'"{package}": "{version}"' + ("}" if number == len(pinned) else ", ")
        if len(lines[-1] + item) > 110:
            lines[-1] = lines[-1].rstrip()
            lines.append(" " * len("PINS = {"))
        lines[-1] += item
    return "\n".join(lines)


def names():
    """The names of all notebooks."""
    found = sorted(path.stem for path in FOLDER.glob("*.py"))
    if not found:
        raise Problem(FOLDER, "there is no notebook", "run from the root of the repository")
    return found


def own_packages(name):
    """The folder of the packages that only this notebook gets, before all others; None for a notebook without.

    Software that asks for an older transformers cannot share the environment of the other notebooks. `make install`
    fills the folder from requirements/<name>.txt. Raises Problem where that has not been done.
    """
    own = name.replace("_", "-")
    if not Path("requirements", f"{own}.txt").is_file():
        return None
    folder = PACKAGES / own
    if not (folder / "stamp").is_file():
        raise Problem(
            FOLDER / f"{name}.py", f"the packages of this notebook are not in {folder.as_posix()}", "make install"
        )
    return folder.resolve()


def kernel_path(name):
    """PYTHONPATH for the process that runs a notebook: its own packages first."""
    own, given = own_packages(name), os.environ.get("PYTHONPATH")
    return os.pathsep.join(filter(None, [own and str(own), given]))


def read_source(name):
    """The notebook as its source says, without outputs."""
    return copy.deepcopy(_parsed(read_text(FOLDER / f"{name}.py")))


@lru_cache(maxsize=64)
def _parsed(text):
    return jupytext.reads(text, {"extension": ".py"})


def refresh_install_cells():
    """Writes the install cell into each source, after the address or a version changed. The author's own code stays."""
    for name in names():
        path = FOLDER / f"{name}.py"
        number, cell = first_code_cell(read_source(name), path)
        if cell.source == install_cell(name):
            continue
        line = line_of_cell(path, number)
        if not line:
            raise Problem(path, "there is no cell marker", "put a line `# %%` above every cell of code")
        lines, start = read_text(path).splitlines(), line - 1
        end = start + len(cell.source.splitlines())
        own = _own_code(lines[start:end])
        lines[start:end] = install_cell(name).splitlines() + (["", "# %%", *own] if own else [])
        records.write_atomically(path, "\n".join(lines) + "\n")


def refresh_closing_cells():
    """Ends each source with the closing cell."""
    for name in names():
        path = FOLDER / f"{name}.py"
        text = read_text(path)
        if closing_cell_problem(path, read_source(name)):
            kept = re.split(rf"^# %%\n{re.escape(measured_code.CLOSING_MARK)}", text, flags=re.M)[0]
            records.write_atomically(path, f"{kept.rstrip()}\n\n# %%\n{CLOSING}\n")


def closing_cell_problem(path, source):
    """The Problem of a notebook that does not end with the closing cell of this version, or None."""
    if source.cells[-1].cell_type == "code" and source.cells[-1].source == CLOSING:
        return None
    what = "the last cell is not the closing cell of this version"
    return Problem(path, what, "run `make pair`", line_of_cell(path, len(source.cells)))


def _own_code(lines):
    """What an author wrote into the first code cell, without an install cell of any version."""
    rest = lines[lines.index(PREPARED) + 1 :] if PREPARED in lines else lines
    return list(itertools.dropwhile(lambda line: not line.strip(), rest))


def pair(name):
    """Takes edits of prose, comments, the install cell and imports of our own modules over into the .ipynb, whose outputs stay.
    Returns whether its code is that of the source; where it is not, the file is left as it is, for a run to replace."""
    path, source = FOLDER / f"{name}.ipynb", read_source(name)
    if not path.exists():
        return False
    old = nbformat.read(path, 4)
    if code_of(source, path) != code_of(old, path):
        return False

    def runs(cell):
        return cell.cell_type == "code" and not cell.source.startswith(measured_code.CLOSING_MARK)

    made = list(filter(runs, old.cells))
    for cell in filter(runs, source.cells):
        kept = made.pop(0)
        cell.outputs, cell.execution_count = kept.outputs, kept.execution_count
    old.cells = with_stable_ids(source.cells)
    for key in HEAD:
        old.metadata.pop(key, None)
    old.metadata |= head_of(source)
    text = nbformat.writes(old) + "\n"
    if text != read_text(path):
        records.write_atomically(path, text)
    return True


def head_of(notebook):
    return {key: notebook.metadata[key] for key in HEAD if key in notebook.metadata}


def code_of(notebook, path):
    return [measured_code.without_our_imports(cell.source) for cell in measured_code.code_cells(notebook, path)]


def with_stable_ids(cells):
    """nbformat gives random ids, and each run would change every cell of the file."""
    for number, cell in enumerate(cells, 1):
        cell["id"] = f"cell-{number}"
    return cells


def strays():
    """Executed notebooks and records without the source that made them: nobody could make their figures again."""
    known = names()
    for path in sorted(FOLDER.glob("*.ipynb")):
        if path.stem not in known:
            what = f"there is no {path.stem}.py, its source{nearest(path.stem, known)}"
            yield Problem(path, what, f"delete it, or make the source by `jupytext --to py:percent {path.as_posix()}`")
    for path in sorted(records.RESULTS.glob("*/*.json")):
        if path.parent.name not in known:
            what = f"there is no notebook {path.parent.name}, which this record comes from{nearest(path.parent.name, known)}"
            yield Problem(path, what, "delete the record, or restore the notebook", 1)


def line_of_cell(path, number):
    """The line in a .py or .ipynb where the cell begins: under its `# %%`, or at its type. None where there is none."""
    mark = r"# %%(\s|$)" if Path(path).suffix == ".py" else r'\s*"cell_type":'
    marks = [line for line, text in enumerate(_text(path).splitlines(), 1) if re.match(mark, text)]
    return marks[number - 1] + (Path(path).suffix == ".py") if 0 < number <= len(marks) else None


def first_code_cell(notebook, path):
    for number, cell in enumerate(notebook.cells, 1):
        if cell.cell_type == "code":
            return number, cell
    raise Problem(path, "there is no code cell", "add one, `# %%`, then run `make pair`")


def _text(path):
    return read_text(path) if Path(path).exists() else ""
