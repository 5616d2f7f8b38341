"""Notebooks: notebooks/x.py (percent format, the source) and notebooks/x.ipynb (the same, executed)."""

import itertools
import os
import re
import tomllib
from pathlib import Path

import jupytext
import nbformat

from . import freshness, records
from .problems import Problem, nearest, read_text

FOLDER = Path("notebooks")
PACKAGES = Path(".venv")  # a notebook with requirements/<its-name>.txt has packages of its own here: see `own_packages`
TORCHAO = "0.18.0"  # the version of requirements/test.in
INSTALL = """\
# Installs what this notebook needs where it is not there yet (Colab, an empty folder). Colab's torch stays as it is.
import importlib.util
import os
import subprocess
import sys

if importlib.util.find_spec("evidence") is None:
    source = os.environ.get("EVIDENCE_SOURCE", "git+{repository}")
    needs = ["transformers=={transformers}", "accelerate=={accelerate}", "matplotlib", f"performance-and-scalability @ {{source}}"]
    if importlib.util.find_spec("torchao"):
        needs.append("torchao=={torchao}")  # transformers and peft refuse the older one of Colab
    loaded = {{"transformers", "accelerate", "torchao"}} & sys.modules.keys()
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", *needs], check=True)
    if loaded:
        raise RuntimeError(f"{{min(loaded)}} was imported before it was replaced. Fix: restart the session, then run all cells")"""


def project():
    """The [project] table of pyproject.toml, where the repository's address and the versions stand."""
    return tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]


def install_cell():
    """The first code cell of every notebook, with the address and versions of pyproject.toml."""
    facts = project()
    versions = dict(needed.split("==") for needed in facts["optional-dependencies"]["examples"] if "==" in needed)
    return INSTALL.format(
        repository=facts["urls"]["Repository"],
        torchao=TORCHAO,
        **{name: versions[name] for name in ("transformers", "accelerate")},
    )


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
    return jupytext.reads(read_text(FOLDER / f"{name}.py"), {"extension": ".py"})


def refresh_install_cells():
    """Writes the install cell into each source, after the address or a version changed. The author's own code stays."""
    for name in names():
        path = FOLDER / f"{name}.py"
        number, cell = first_code_cell(read_source(name), path)
        if cell.source == install_cell():
            continue
        line = line_of_cell(path, number)
        if not line:
            raise Problem(path, "there is no cell marker", "put a line `# %%` above every cell of code")
        lines, start = read_text(path).splitlines(), line - 1
        end = start + len(cell.source.splitlines())
        own = _own_code(lines[start:end])
        lines[start:end] = install_cell().splitlines() + (["", "# %%", *own] if own else [])
        records.write_atomically(path, "\n".join(lines) + "\n")


def _own_code(lines):
    """What an author wrote into the first code cell, without an install cell of any version: its `if` is the last it has."""
    rest = lines
    if lines[:1] == INSTALL.splitlines()[:1]:
        opened = itertools.dropwhile(lambda line: not line.startswith("if "), lines)
        rest = itertools.dropwhile(lambda line: line.startswith(("if ", " ")), opened)
    return list(itertools.dropwhile(lambda line: not line.strip(), rest))


def pair(name):
    """Takes edits of prose, comments and the install cell over into the .ipynb, whose outputs stay. Returns whether its code
    is that of the source; where it is not, the file is left as it is, for a run to replace."""
    path, source = FOLDER / f"{name}.ipynb", read_source(name)
    if not path.exists():
        return False
    old = nbformat.read(path, 4)
    if code_of(source, path) != code_of(old, path):
        return False
    made = [cell for cell in old.cells if cell.cell_type == "code"]
    for cell in source.cells:
        if cell.cell_type == "code":
            kept = made.pop(0)
            cell.outputs, cell.execution_count = kept.outputs, kept.execution_count
    old.cells = with_stable_ids(source.cells)
    text = nbformat.writes(old) + "\n"
    if text != read_text(path):
        records.write_atomically(path, text)
    return True


def code_of(notebook, path):
    return [freshness.what_runs(cell.source) for cell in freshness.code_cells(notebook, path)]


def with_stable_ids(cells):
    """nbformat gives random ids, and each run would change every cell of the file."""
    for number, cell in enumerate(cells, 1):
        cell["id"] = f"cell-{number}"
    return cells


def strays(results=records.RESULTS):
    """Executed notebooks and records without the source that made them: nobody could make their figures again."""
    known = names()
    for path in sorted(FOLDER.glob("*.ipynb")):
        if path.stem not in known:
            what = f"there is no {path.stem}.py, its source{nearest(path.stem, known)}"
            yield Problem(path, what, f"delete it, or make the source by `jupytext --to py:percent {path.as_posix()}`")
    for path in sorted(Path(results).glob("*/*.json")):
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
