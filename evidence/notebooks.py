"""Notebooks: notebooks/x.py (percent format, the source) and notebooks/x.ipynb (the same, executed).

`record` executes the source, stores the outputs and makes the record; `check` finds, in a second and without executing,
whatever of source, outputs and record does not belong together.
"""

import hashlib
import json
import os
import sys
import time
import tomllib
from pathlib import Path

import jupytext
import nbformat

from . import records
from .claims import MIME
from .problems import Problem, line_of, shown

FOLDER = Path("notebooks")
TIMEOUT = 1800  # seconds for one cell
INSTALL = """\
# Installs what this notebook needs where it is not there yet (Colab, an empty folder). Colab's torch stays as it is.
import importlib.util
import os
import subprocess
import sys

if importlib.util.find_spec("evidence") is None:
    source = os.environ.get("EVIDENCE_SOURCE", "git+{repository}")
    needs = ["transformers=={transformers}", "accelerate=={accelerate}", "matplotlib", f"performance-and-scalability @ {{source}}"]
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", *needs], check=True)"""


def project():
    """The [project] table of pyproject.toml, where the repository's address and the versions stand."""
    return tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]


def install_cell():
    """The first code cell of every notebook, with the address and versions of pyproject.toml."""
    facts = project()
    versions = dict(needed.split("==") for needed in facts["optional-dependencies"]["examples"] if "==" in needed)
    return INSTALL.format(
        repository=facts["urls"]["Repository"], **{name: versions[name] for name in ("transformers", "accelerate")}
    )


def names():
    """The names of all notebooks."""
    found = sorted(path.stem for path in FOLDER.glob("*.py"))
    if not found:
        raise Problem(FOLDER, "there is no notebook", "run from the root of the repository")
    return found


def read_source(name):
    """The notebook as its source says, without outputs."""
    return jupytext.read(FOLDER / f"{name}.py")


def source_hash(name):
    """SHA-256 of the source, which ties outputs and record to the code that made them."""
    return hashlib.sha256((FOLDER / f"{name}.py").read_bytes()).hexdigest()


def refresh_install_cells():
    """Writes the install cell into each source, after the address or a version changed."""
    for name in names():
        path = FOLDER / f"{name}.py"
        notebook = jupytext.read(path)
        cell = _first_code_cell(notebook, path)
        if cell.source != install_cell():
            records.write_atomically(path, path.read_text(encoding="utf-8").replace(cell.source, install_cell(), 1))


def record(name, results=records.RESULTS, say=print):
    """Executes notebooks/<name>.py, then writes the .ipynb and the record. On any error the old ones stay."""
    path = FOLDER / f"{name}.py"
    notebook = read_source(name)
    _execute(name, notebook, say)
    made = harvest(notebook, path, source_hash(name))
    notebook.metadata["evidence"] = {"source": made["source"]}
    records.write_atomically(path.with_suffix(".ipynb"), nbformat.writes(notebook) + "\n")
    stored = records.write(made, results)
    say(f"{name}: {len(made['claims'])} claims, {len(made['tables'])} tables in {shown(stored)}")


def verify(name, results=records.RESULTS, say=print):
    """Executes a notebook without storing anything; every traced or derived figure must agree with its record."""
    notebook = read_source(name)
    _execute(name, notebook, say, {"EVIDENCE_VERIFY": str(Path(results).resolve())})
    made = harvest(notebook, FOLDER / f"{name}.py", source_hash(name))
    exact = sum(claim["kind"] in records.EXACT for claim in made["claims"].values())
    say(f"{name}: {exact} traced and derived claims agree with the record, {len(made['claims']) - exact} others hold")


def harvest(notebook, path, source):
    """Makes the record of an executed notebook from the outputs of its cells."""
    found = {"start": {}, "claim": {}, "table": {}}
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            for kind, mime in MIME.items():
                data = dict(output.get("data", {}).get(mime, {}))
                if not data:
                    continue
                key = data.pop("name", kind)
                if key in found[kind]:
                    raise Problem(
                        path,
                        f"two {kind}s of the name {key}",
                        "give one of them another name",
                        line_of(_text(path), f'"{key}"'),
                    )
                found[kind][key] = data
    if not found["start"]:
        raise Problem(
            path, "the notebook opens no run", f'call start("{path.stem}") in a cell of its own before the first claim'
        )
    opened = found["start"]["start"]
    if opened["notebook"] != path.stem:
        raise Problem(
            path,
            f"the notebook opens a run of {opened['notebook']}",
            f'call start("{path.stem}")',
            line_of(_text(path), "start("),
        )
    return {
        "schema": records.SCHEMA_NUMBER,
        "notebook": path.stem,
        "source": source,
        "date": opened["date"],
        "command": f"make record NOTEBOOKS={path.stem}",
        "machine": opened["machine"],
        "software": opened["software"],
        "claims": found["claim"],
        "tables": found["table"],
    }


def check(name, results=records.RESULTS):
    """All that is wrong with one notebook, its outputs and its record, as a list of Problems."""
    source_path, path = FOLDER / f"{name}.py", FOLDER / f"{name}.ipynb"
    again = f"run `make record NOTEBOOKS={name}`"
    if not path.exists():
        return [Problem(source_path, f"{path.name} is missing", again)]
    try:
        notebook = nbformat.read(path, 4)
    except Exception as error:
        return [Problem(path, f"not a notebook ({str(error)[:120]})", again)]
    source = read_source(name)
    return [
        *_source_problems(source_path, source),
        *_pair_problems(source_path, path, source, notebook, again),
        *_output_problems(path, notebook, again),
        *_record_problems(name, path, notebook, results, again),
    ]


def _source_problems(path, source):
    first = _first_code_cell(source, path)
    if first.source != install_cell():
        yield Problem(
            path,
            "the first code cell is not the install cell of this version",
            "run `make pair`",
            line_of(_text(path), first.source.split("\n")[0]),
        )


def _pair_problems(source_path, path, source, notebook, again):
    cells, stored = [(c.cell_type, c.source) for c in source.cells], [(c.cell_type, c.source) for c in notebook.cells]
    text = _text(source_path)
    for number, (cell, old) in enumerate(zip(cells, stored), 1):
        if cell != old:
            first = next(
                (line for line in cell[1].splitlines() if line not in old[1].splitlines()), cell[1].split("\n")[0]
            )
            yield Problem(
                source_path,
                f"cell {number} is not the one in {path.name}: edited without running",
                again,
                line_of(text, first),
            )
            return
    if len(cells) != len(stored):
        yield Problem(
            source_path, f"{len(cells)} cells here, {len(stored)} in {path.name}: edited without running", again
        )
    elif notebook.metadata.get("evidence", {}).get("source") != source_hash(source_path.stem):
        yield Problem(source_path, f"{path.name} was made from another version of this file", again)


def _output_problems(path, notebook, again):
    for number, cell in enumerate(notebook.cells, 1):
        if cell.cell_type != "code":
            continue
        if cell.execution_count is None:
            yield Problem(path, f"cell {number} was not executed", again, _line_of_cell(path, cell))
        for output in cell.outputs:
            if output.output_type == "error":
                yield Problem(
                    path,
                    f"cell {number} ended with {output.ename}: {output.evalue[:120]}",
                    f"mend the source, then {again}",
                    _line_of_cell(path, cell),
                )


def _record_problems(name, path, notebook, results, again):
    """The record of the machine that executed the notebook must be what its outputs say, and be of this source."""
    try:
        made = harvest(notebook, path, source_hash(name))
    except Problem as problem:
        yield problem
        return
    place = Path(results) / name / f"{made['machine']['name']}.json"
    if not place.exists():
        yield Problem(path, f"its record {shown(place)} is missing", again)
        return
    stored = records.load(place).data
    for collection in ("claims", "tables"):
        for key in made[collection].keys() | stored[collection].keys():
            ours, theirs = made[collection].get(key), stored[collection].get(key)
            if ours == theirs:
                continue
            where = place if theirs is not None else path
            what = (
                "differs between notebook and record"
                if ours and theirs
                else "stands in the record and not in the notebook"
                if theirs
                else "stands in the notebook and not in the record"
            )
            yield Problem(
                where,
                f"{collection[:-1]} {key} {what}{_difference(ours, theirs)} ({path.name} and {place.name} belong together)",
                again,
                line_of(_text(where), json.dumps(key)),
            )
    if stored["source"] != made["source"]:
        yield Problem(
            place, f"the record is older than {name}.py, which it comes from", again, line_of(_text(place), '"source"')
        )


def _difference(ours, theirs):
    if not (ours and theirs):
        return ""
    key = next(key for key in [*ours, *theirs] if ours.get(key) != theirs.get(key))
    return f": {key} is {str(ours.get(key))[:60]} in the one, {str(theirs.get(key))[:60]} in the other"


def _execute(name, notebook, say, environment=None):
    try:
        from nbclient import NotebookClient
        from nbclient.exceptions import CellExecutionError
    except ImportError as error:
        raise Problem(
            FOLDER / f"{name}.py",
            f"this python ({sys.executable}) lacks {error.name}",
            f"{sys.executable} -m pip install nbclient ipykernel jupytext matplotlib",
        ) from None
    codes = [cell for cell in notebook.cells if cell.cell_type == "code"]
    started = time.perf_counter()

    def progress(cell, cell_index):
        if cell.cell_type == "code":
            title = next((line for line in cell.source.splitlines() if line.strip()), "")[:60]
            say(
                f"{name}: cell {codes.index(cell) + 1}/{len(codes)} after {time.perf_counter() - started:.0f} s: {title}"
            )

    client = NotebookClient(
        notebook,
        timeout=TIMEOUT,
        kernel_name="python3",
        resources={"metadata": {"path": str(FOLDER)}},
        on_cell_start=progress,
        store_widget_state=False,
        record_timing=False,
        extra_arguments=["--log-level=ERROR"],
    )
    try:
        client.execute(env=_kernel_environment() | (environment or {}))
    except CellExecutionError as error:
        number = next(
            (
                i
                for i, cell in enumerate(notebook.cells, 1)
                if any(o.output_type == "error" for o in cell.get("outputs", []))
            ),
            0,
        )
        path = FOLDER / f"{name}.py"
        line = line_of(_text(path), notebook.cells[number - 1].source.split("\n")[0]) if number else None
        raise Problem(
            path,
            f"cell {number} raised {error.ename}: {error.evalue}",
            "mend the cell; the stored notebook and record are as before",
            line,
        ) from None


def _kernel_environment():
    """The kernel starts in notebooks/ and imports `evidence` from this checkout."""
    root = str(Path(__file__).resolve().parent.parent)
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))}


def _first_code_cell(notebook, path):
    cell = next((cell for cell in notebook.cells if cell.cell_type == "code"), None)
    if cell is None:
        raise Problem(path, "there is no code cell", "begin with the install cell: `make pair`")
    return cell


def _line_of_cell(path, cell):
    first = cell.source.split("\n")[0]
    return line_of(_text(path), json.dumps(first, ensure_ascii=False)[1:-1])


def _text(path):
    return Path(path).read_text(encoding="utf-8") if Path(path).exists() else ""
