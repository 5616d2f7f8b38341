"""Notebooks: notebooks/x.py (percent format, the source) and notebooks/x.ipynb (the same, executed).

`record` executes the source, stores the outputs and makes the record; `check` finds, in a second and without executing,
whatever of source, outputs and record does not belong together.
"""

import hashlib
import itertools
import json
import os
import re
import sys
import time
import tomllib
from pathlib import Path

import jsonschema
import jupytext
import nbformat

from . import records
from .claims import MIME, rendered
from .problems import Problem, line_of, nearest, read_text, shown

FOLDER = Path("notebooks")
PACKAGES = Path(".venv")  # a notebook with requirements/<its-name>.txt has packages of its own here: see `own_packages`
TIMEOUT = 1800  # seconds for one cell
OPENED = {  # the least that start() leaves
    "required": ["notebook", "date", "machine", "software"],
    "properties": {"machine": {"type": "object", "required": ["name"]}},
}
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


def source_hash(name):
    """SHA-256 of the source, which ties outputs and record to the code that made them."""
    return hashlib.sha256((FOLDER / f"{name}.py").read_bytes()).hexdigest()


def refresh_install_cells():
    """Writes the install cell into each source, after the address or a version changed. The author's own code stays."""
    for name in names():
        path = FOLDER / f"{name}.py"
        number, cell = _first_code_cell(read_source(name), path)
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
    """What an author wrote into the first code cell, without an install cell of any version."""
    first, last = INSTALL.splitlines()[0], INSTALL.splitlines()[-1]
    rest = lines[lines.index(last) + 1 :] if lines[:1] == [first] and last in lines else lines
    return list(itertools.dropwhile(lambda line: not line.strip(), rest))


def record(name, results=records.RESULTS, say=print):
    """Executes notebooks/<name>.py, then writes the .ipynb and the record. On any error the old ones stay.

"""
    path = FOLDER / f"{name}.py"
    notebook = read_source(name)
    _execute(name, notebook, say, {"EVIDENCE_VERIFY": ""})
    _drop_logs(notebook)
    made = harvest(notebook, path, source_hash(name))
    notebook.metadata["evidence"] = {"source": made["source"]}
    stored, text = records.prepared(made, results)
    executed = {path.with_suffix(".ipynb"): nbformat.writes(notebook) + "\n"}
    records.write_together({**executed, stored: text})
    say(f"{name}: {len(made['claims'])} claims, {len(made['tables'])} tables in {shown(stored)}")


def _drop_logs(notebook):
    """What libraries write to stderr names paths of this machine and is no result."""
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]


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
    for number, kind, key, data, _ in _left_behind(notebook):
        if key in found[kind]:
            what = "two runs are opened" if kind == "start" else f"two {kind}s of the name {key}"
            fix = "call start() once" if kind == "start" else "give one of them another name"
            raise Problem(path, f"cell {number}: {what}", fix, line_of_cell(path, number))
        found[kind][key] = data
    if not found["start"]:
        raise Problem(
            path, "the notebook opens no run", f'call start("{path.stem}") in a cell of its own before the first claim'
        )
    opened = found["start"]["start"]
    for error in jsonschema.Draft202012Validator(OPENED).iter_errors(opened):
        where = "/".join(map(str, ["start()", *error.absolute_path]))
        raise Problem(path, f"{where}: {error.message[-160:]}", f"run `make record NOTEBOOKS={path.stem}`")
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


def _left_behind(notebook):
    """What the cells left for the record: cell number, kind, name, data, and what the cell shows."""
    for number, cell in enumerate(notebook.cells, 1):
        for output in cell.get("outputs", []):
            for kind, mime in MIME.items():
                if data := dict(output.get("data", {}).get(mime, {})):
                    yield number, kind, data.pop("name", kind), data, output["data"]


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
    mark = r"# %%" if Path(path).suffix == ".py" else r'\s*"cell_type":'
    marks = [line for line, text in enumerate(_text(path).splitlines(), 1) if re.match(mark, text)]
    return marks[number - 1] + (Path(path).suffix == ".py") if 0 < number <= len(marks) else None


def check(name, results=records.RESULTS):
    """All that is wrong with one notebook, its outputs and its record, as a list of Problems."""
    source_path, path = FOLDER / f"{name}.py", FOLDER / f"{name}.ipynb"
    again = f"run `make record NOTEBOOKS={name}`"
    from_source = f"{again}, which makes {path.name} from {source_path.name}; take over edits of the .ipynb first"
    if not path.exists():
        return [Problem(source_path, f"{path.name} is missing", again)]
    try:
        notebook = nbformat.read(path, 4)
    except Exception as error:
        return [Problem(path, f"not a notebook ({str(error)[:120]})", again)]
    source = read_source(name)
    return [
        *_source_problems(source_path, source),
        *_pair_problems(source_path, path, source, notebook, from_source),
        *_output_problems(path, notebook, again),
        *_record_problems(name, path, notebook, results, again),
    ]


def _source_problems(path, source):
    try:
        number, first = _first_code_cell(source, path)
    except Problem as problem:
        yield problem
        return
    if first.source != install_cell():
        what = "the first code cell is not the install cell of this version"
        yield Problem(path, what, "run `make pair`", line_of_cell(path, number))


def _pair_problems(source_path, path, source, notebook, again):
    cells, stored = [(c.cell_type, c.source) for c in source.cells], [(c.cell_type, c.source) for c in notebook.cells]
    for number, (cell, old) in enumerate(zip(cells, stored), 1):
        if cell != old:
            pairs = itertools.zip_longest(cell[1].splitlines(), old[1].splitlines())
            line = (line_of_cell(source_path, number) or 1) + next((n for n, (a, b) in enumerate(pairs) if a != b), 0)
            what = f"cell {number} is not the one in {path.name}: edited without running"
            yield Problem(source_path, what, again, line)
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
        if cell.execution_count is None and cell.source.strip():
            yield Problem(path, f"cell {number} was not executed", again, line_of_cell(path, number))
        for output in cell.outputs:
            if output.output_type == "error":
                yield Problem(
                    path,
                    f"cell {number} ended with {output.ename}: {output.evalue[:120]}",
                    f"mend the source, then {again}",
                    line_of_cell(path, number),
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
    for key in ("date", "command", "machine", "software"):
        if made[key] != stored[key]:
            what = f"{key} differs between notebook and record{_difference({key: made[key]}, {key: stored[key]})}"
            yield Problem(place, what, again, line_of(_text(place), json.dumps(key)))
    yield from _display_problems(path, notebook, stored, again)
    if stored["source"] != made["source"]:
        yield Problem(
            place, f"the record is older than {name}.py, which it comes from", again, line_of(_text(place), '"source"')
        )


def _display_problems(path, notebook, stored, again):
    """What a reader of the .ipynb sees must be what the record says."""
    for number, kind, key, data, output in _left_behind(notebook):
        kept = stored if kind == "start" else stored[f"{kind}s"].get(key)
        if kind != "start" and kept != data:
            continue  # is a problem of its own
        name = "start()" if kind == "start" else f"{kind} {key}"
        for mime, text in zip(("text/plain", "text/html"), rendered(kind, kept)):
            if output.get(mime) != text:
                what = f"cell {number} does not show what {name} says ({mime})"
                yield Problem(path, what, again, line_of_cell(path, number))


def _difference(ours, theirs):
    if not (ours and theirs):
        return ""
    key = next(key for key in [*ours, *theirs] if ours.get(key) != theirs.get(key))
    if isinstance(ours.get(key), dict) and isinstance(theirs.get(key), dict):
        return _difference(ours[key], theirs[key])
    return f": {key} is {str(ours.get(key))[:60]} in the one, {str(theirs.get(key))[:60]} in the other"


def _execute(name, notebook, say, environment=None):
    try:
        import ipykernel  # noqa: F401
        from nbclient import NotebookClient
        from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
    except ImportError as error:
        raise Problem(
            FOLDER / f"{name}.py",
            f"this python ({sys.executable}) lacks {error.name}",
            f"{sys.executable} -m pip install nbclient ipykernel jupytext matplotlib",
        ) from None
    codes = [cell for cell in notebook.cells if cell.cell_type == "code"]
    started, number = time.perf_counter(), 0

    def progress(cell, cell_index):
        nonlocal number
        number = cell_index + 1
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
        client.execute(env=_kernel_environment(name) | (environment or {}))
    except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
        path, fix = FOLDER / f"{name}.py", "mend the cell; the stored notebook and record are as before"
        what = {
            CellTimeoutError: f"ran longer than {TIMEOUT} s",
            DeadKernelError: "ended the process that ran it (out of memory?)",
        }.get(type(error)) or f"raised {error.ename}: {error.evalue}"
        line = (line_of_cell(path, number) or 1) + _line_in_cell(error)
        raise Problem(path, f"cell {number} {what}", fix, line) from None


def _line_in_cell(error):
    """How far under the first line of the cell its traceback begins."""
    traceback = re.sub(r"\x1b\[[\d;]*m", "", getattr(error, "traceback", ""))
    found = re.search(r"Cell In\[\d+\], line (\d+)", traceback)
    return int(found[1]) - 1 if found else 0


def _kernel_environment(name):
    """The kernel starts in notebooks/ and imports `evidence` from this checkout."""
    root = str(Path(__file__).resolve().parent.parent)
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [root, kernel_path(name)]))}


def _first_code_cell(notebook, path):
    for number, cell in enumerate(notebook.cells, 1):
        if cell.cell_type == "code":
            return number, cell
    raise Problem(path, "there is no code cell", "add one, `# %%`, then run `make pair`")


def _text(path):
    return read_text(path) if Path(path).exists() else ""
