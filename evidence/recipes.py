"""Recipe notebooks: notebooks/recipes/x.py (the source, what readers run on their GPU) and x.ipynb (the same, executed without
GPU and network). They hold no claims: their figures are of the reader's own run, and pages show none of them."""

import re
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

import nbformat

from . import notebook_lint, notebooks, offline_hub, runs
from .notebooks import project, with_stable_ids
from .pairs import output_problems, pair_problems
from .problems import Problem, read_text
from .records import write_atomically

FOLDER = notebooks.FOLDER / "recipes"
PIN = re.compile(r"\b([\w-]+)==([\w.]+)")


def names():
    return sorted(path.stem for path in FOLDER.glob("*.py"))


def read_source(name):
    """The notebook as its source says, without outputs."""
    return notebooks.read_source(f"{FOLDER.name}/{name}")


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
    notebook, here = read_source(name), str(Path(__file__).resolve().parent.parent)
    environment = offline_hub.environment(hub) | {"PYTHONPATH": here} | (variables or {})
    runs.execute_cells(FOLDER / f"{name}.py", notebook, folder, environment, say)
    return notebook


def execute(name, say=print):
    """Writes the .ipynb anew, with the outputs of a run without GPU and network."""
    with tempfile.TemporaryDirectory() as place:
        hub, folder = Path(place, "hub"), Path(place, "run")
        folder.mkdir()
        offline_hub.make(hub)
        notebook = run(name, hub, folder, say)
    runs.drop_logs(notebook)
    notebook.cells = with_stable_ids(notebook.cells)
    notebook.metadata["evidence"] = {"outputs": runs.outputs_hash(notebook)}
    write_atomically(FOLDER / f"{name}.ipynb", nbformat.writes(notebook) + "\n")


def pair(name):
    """Takes edits of prose and comments over into the .ipynb; returns whether its code is that of the source."""
    return notebooks.pair(f"{FOLDER.name}/{name}")


def check(name):
    """What is wrong with one recipe, found without executing it."""
    pins = notebooks.locked()
    path, stored = FOLDER / f"{name}.py", FOLDER / f"{name}.ipynb"
    again = f"run `make recipes RECIPES={name}`"
    if not stored.exists():
        yield Problem(path, f"{stored.name} is missing", again, 1)
    else:
        notebook = nbformat.read(stored, 4)
        yield from pair_problems(path, stored, read_source(name), notebook, again)
        yield from output_problems(stored, notebook, again)
        if notebook.metadata.get("evidence", {}).get("outputs") != runs.outputs_hash(notebook):
            yield Problem(stored, "an output was edited or cleared since the run", again)
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
