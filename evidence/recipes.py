"""Recipe notebooks: notebooks/recipes/x.py (the source, what readers run on their GPU) and x.ipynb (the same, executed without
GPU and network). They hold no claims: their figures are of the reader's own run, and pages show none of them."""

import ast
import re
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

import jupytext
import nbformat

from . import notebook_lint, notebooks, offline_hub
from .notebooks import line_of_cell, project, with_stable_ids
from .pairs import output_problems
from .problems import Problem, read_text
from .records import write_atomically

FOLDER = Path("notebooks/recipes")
TIMEOUT = 1800  # seconds for one cell
PIN = re.compile(r"\b([\w-]+)==([\w.]+)")


def names():
    return sorted(path.stem for path in FOLDER.glob("*.py"))


def read_source(name):
    """The notebook as its source says, without outputs."""
    return jupytext.reads(read_text(FOLDER / f"{name}.py"), {"extension": ".py"})


def site_address():
    """Where the pages of this project are: a notebook in Colab has no other way to them."""
    owner, name = urlsplit(project()["urls"]["Repository"]).path.strip("/").split("/")[:2]
    return f"https://{owner}.github.io/{name}/"


def with_pages(text):
    """A recipe's text with its links to our pages as MkDocs wants and checks them."""
    return re.sub(rf"\({re.escape(site_address())}([\w/-]+?)/(#[\w-]+)?\)", r"(../../\1.md\2)", text)


def run(name, hub, folder, say=print, variables=None):
    """The notebook, executed in `folder` with `hub` (`offline_hub.make`) as the Hub. Problem, with the line, where a cell raises.
    variables: of the environment, beside those that keep it off the network and the GPU."""
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    notebook, path = read_source(name), FOLDER / f"{name}.py"
    codes = [number for number, cell in enumerate(notebook.cells) if cell.cell_type == "code"]
    at = 0

    def progress(cell, cell_index):
        nonlocal at
        at = cell_index + 1
        if cell_index in codes:
            say(f"{name}: cell {codes.index(cell_index) + 1} of {len(codes)}")

    client = NotebookClient(
        notebook, timeout=TIMEOUT, kernel_name="python3", resources={"metadata": {"path": str(folder)}},
        on_cell_start=progress, store_widget_state=False, record_timing=False, extra_arguments=["--log-level=ERROR"],
    )  # fmt: skip
    here = str(Path(__file__).resolve().parent.parent)
    try:
        client.execute(env=offline_hub.environment(hub) | {"PYTHONPATH": here} | (variables or {}))
    except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
        what = f"raised {error.ename}: {error.evalue}" if isinstance(error, CellExecutionError) else str(error)
        raise Problem(path, f"cell {at} {what}", "mend the cell", line_of_cell(path, at)) from None
    return notebook


def execute(name, say=print):
    """Writes the .ipynb anew, with the outputs of a run without GPU and network."""
    with tempfile.TemporaryDirectory() as place:
        hub, folder = Path(place, "hub"), Path(place, "run")
        folder.mkdir()
        offline_hub.make(hub)
        notebook = run(name, hub, folder, say)
    for cell in notebook.cells:
        if cell.cell_type == "code":  # what libraries say on stderr names paths of this machine, and is no result
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
    notebook.cells = with_stable_ids(notebook.cells)
    write_atomically(FOLDER / f"{name}.ipynb", nbformat.writes(notebook) + "\n")


def pair(name):
    """Takes edits of prose over into the .ipynb, whose outputs stay; returns whether its code is that of the source."""
    path, source = FOLDER / f"{name}.ipynb", read_source(name)
    stored = nbformat.read(path, 4) if path.exists() else None
    if stored is None or _codes(stored) != _codes(source):
        return False
    outputs = iter([cell for cell in stored.cells if cell.cell_type == "code"])
    for cell in source.cells:
        if cell.cell_type == "code":
            kept = next(outputs)
            cell.outputs, cell.execution_count = kept.outputs, kept.execution_count
    source.cells = with_stable_ids(source.cells)
    text = nbformat.writes(source) + "\n"
    if text != read_text(path):
        write_atomically(path, text)
    return True


def check(name):
    """What is wrong with one recipe, found without executing it."""
    pins = notebooks.locked()
    path, stored = FOLDER / f"{name}.py", FOLDER / f"{name}.ipynb"
    source = read_source(name)
    again = f"run `make recipes RECIPES={name}`"
    if not stored.exists():
        yield Problem(path, f"{stored.name} is missing", again, 1)
    else:
        yield from _unlike(path, source, nbformat.read(stored, 4), again)
    repository = project()["urls"]["Repository"]
    addresses = {  # what begins so is ours
        "git+": f"git+{repository}@v{project()['version']}#",
        "](https://github.com/": f"{repository}/issues/new",
        ".github.io/": site_address(),
    }
    for number, line in enumerate(read_text(path).splitlines(), 1):
        for begin, address in addresses.items():
            if begin in line and address not in line:
                yield Problem(path, "an address of this project that is not that of pyproject.toml", f"write {address}", number)
        if len(line) > notebook_lint.COLUMNS and not line.startswith("# ") and "git+" not in line:  # no address can be broken
            yield Problem(path, f"a line of {len(line)} columns; code has at most {notebook_lint.COLUMNS}", "break the line", number)
        for package, version in PIN.findall(line):
            if pins.get(package) != version:
                yield Problem(path, f"it installs {package} {version}, and the tests run {pins.get(package)}", "write the version of the tests", number)


def _unlike(path, source, stored, again):
    same_code = _codes(source) == _codes(stored)
    for number, (cell, other) in enumerate(zip(source.cells, stored.cells), 1):
        if (cell.cell_type, cell.source, *_said(cell)) != (other.cell_type, other.source, *_said(other)):
            fix = "run `make pair`" if same_code else again
            yield Problem(path, f"cell {number} is not the one of {path.stem}.ipynb", fix, line_of_cell(path, number))
            return
    yield from output_problems(path.with_suffix(".ipynb"), stored, again)
    if len(source.cells) != len(stored.cells):
        yield Problem(path, f"{len(source.cells)} cells here, {len(stored.cells)} in {path.stem}.ipynb", again, 1)


def _said(cell):
    """What a cell's marker says to the page: the text of its figure, and whether it is folded."""
    return cell.metadata.get("alt"), cell.metadata.get("tags")


def _codes(notebook):
    """The code of each cell, without comments and layout: an edit of these needs no run."""
    return [ast.dump(ast.parse(cell.source)) for cell in notebook.cells if cell.cell_type == "code"]
