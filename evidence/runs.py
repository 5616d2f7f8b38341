"""Executes notebooks: `record` stores the outputs and makes the records, `recompute` runs what is exact and compares, `verify`
runs everything, stores nothing, and says of each figure whether it holds."""

import hashlib
import json
import os
import re
import sys
import time
from pathlib import Path

import jsonschema
import nbformat

from . import compare, freshness, measured_code, records, schema
from .claims import MIME
from .notebooks import FOLDER, kernel_path, line_of_cell, read_source, with_stable_ids
from .problems import Problem, line_of, read_text, shown

LOGGED = re.compile(r"^\[\d{4}-\d\d-\d\d [\d:,.]+\] \[[A-Z]+\] .*\n?", re.M)
TIMEOUT = 3600  # seconds for one cell, as in `make notebooks`
OPENED = {  # the least that start() leaves
    "required": ["notebook", "date", "machine", "software"],
    "properties": {"machine": {"type": "object", "required": ["name"]}},
}


def record(name, say=print):
    """Executes notebooks/<name>.py, then writes the .ipynb and the records. On any error the old ones stay."""
    notebook = read_source(name)
    _execute(name, notebook, say)
    drop_logs(notebook)
    made = harvest(notebook, FOLDER / f"{name}.py")
    _refuse_another_result(made)
    for part in made:
        if "machine" in part:
            records.name_apart(part["machine"])  # which is also the one in the output of start()
    _store(name, notebook, made, say)


def exact(name, say=print):
    """Executes the cells that measure nothing, and stores what they derive, trace and cite. What was measured stays as its run
    left it; where its code has changed since, it is stale from here on."""
    path = FOLDER / f"{name}.py"
    notebook, stored = read_source(name), path.with_suffix(".ipynb")
    measuring = _execute_exact(name, notebook, say)
    for cell in measuring:
        cell.cell_type = "code"
    drop_logs(notebook)
    made = [part for part in harvest(notebook, path) if "machine" not in part]
    _keep_measured(notebook, measuring, nbformat.read(stored, 4) if stored.exists() else None)
    _store(name, notebook, made, say)


def _store(name, notebook, made, say):
    notebook.cells = with_stable_ids(notebook.cells)
    _number(notebook)
    notebook.metadata["evidence"] = {"outputs": outputs_hash(notebook)}
    texts = {FOLDER / f"{name}.ipynb": nbformat.writes(notebook) + "\n"}
    texts |= dict(map(records.prepared, made))
    records.write_together(texts)
    count = {key: sum(len(part[key]) for part in made) for key in ("claims", "tables")}
    places = " and ".join(shown(place) for place in list(texts)[1:])
    say(f"{name}: {count['claims']} claims, {count['tables']} tables in {places}")


def _number(notebook):
    """Numbers the cells that ran as a run of all does, so that a run of some changes no number of the others."""
    cells = (cell for cell in notebook.cells if cell.cell_type == "code" and not _closes(cell))
    for number, cell in enumerate(cells, 1):
        cell.execution_count = cell.execution_count and number
        for output in cell.outputs:
            if output.output_type == "execute_result":
                output.execution_count = number


def _execute_exact(name, notebook, say):
    """Runs all cells but those that measure, which it turns to text, so that a cell's number stays, and returns."""
    measuring = [cell for cell in notebook.cells if cell.cell_type == "code" and measured_code.measures(cell)]
    for cell in measuring:
        cell.cell_type = "raw"
    _execute(name, notebook, say)
    return measuring


def _keep_measured(notebook, measuring, old):
    """Gives the cells that measure, and the one that opens the run, the outputs of the stored notebook. A cell is found by its
    code, an edited one by its place among those that were edited."""
    kept = [c for c in old.cells if c.cell_type == "code" and measured_code.measures(c)] if old else []
    same = {cell.source: cell for cell in kept}
    edited = [cell for cell in kept if cell.source not in {new.source for new in measuring}]
    for cell in measuring:
        was = same.get(cell.source) or (edited.pop(0) if edited else None)
        cell.outputs, cell.execution_count = (was.outputs, was.execution_count) if was else ([], None)
    opened = [cell for cell in old.cells if _opens(cell)] if kept else []
    for cell in filter(_opens, notebook.cells if opened else []):
        cell.outputs = opened[0].outputs  # the machine and date of what was measured


def _opens(cell):
    return any(MIME["start"] in output.get("data", {}) for output in cell.get("outputs", []))


def _refuse_another_result(made):
    """With the same code and the same versions, what is exact must come out as the project's record has it."""
    for part in made:
        place = records.RESULTS / part["notebook"] / f"{records.ANY_MACHINE}.json"
        if "machine" in part or not place.exists():
            continue
        stored = records.load(place)
        if stored.data["source"] != part["source"] or stored.data["software"] != part["software"]:
            continue
        for said in unlike(part, stored.data):
            raise Problem(
                place, f"{said}, with the same code and versions", "find what makes it vary; nothing was written"
            )


def outputs_hash(notebook):
    """SHA-256 of all outputs, which tells an output that was edited or cleared."""
    outputs = [cell.get("outputs", []) for cell in notebook.cells if cell.cell_type == "code" and not _closes(cell)]
    return hashlib.sha256(json.dumps(outputs, sort_keys=True).encode()).hexdigest()


def drop_logs(notebook):
    """What libraries write to stderr names paths of this machine and is no result; nor are lines of a log on stdout."""
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
            for output in cell.outputs:
                if output.get("name") == "stdout":
                    output.text = LOGGED.sub("", output.text)
            cell.outputs = [output for output in cell.outputs if output.get("text", " ")]


def recompute(name, say=print):
    """Executes the cells that measure nothing; what they derive, trace and cite must be what the project's record says.

    Returns the number of figures compared. Raises Problem at the first that differs or does not come.
    """
    path = FOLDER / f"{name}.py"
    notebook = read_source(name)
    _execute_exact(name, notebook, say)
    exact = next((part for part in harvest(notebook, path) if "machine" not in part), {"claims": {}, "tables": {}})
    place = records.RESULTS / name / f"{records.ANY_MACHINE}.json"
    again = f"mend the notebook, or if the change is meant run `make exact NOTEBOOKS={name}`"
    stored = records.load(place).data if place.exists() else {"claims": {}, "tables": {}}
    for said in unlike(exact, stored):
        raise Problem(place if place.exists() else path, said, again)
    return len(exact["claims"]) + len(exact["tables"])


def unlike(made, stored):
    """In words, where the exact figures of a run are not those of a record."""
    for collection in ("claims", "tables"):
        for key in made[collection].keys() | stored[collection].keys():
            ours, theirs = made[collection].get(key), stored[collection].get(key)
            if not (ours and theirs):
                where = (
                    "the record has, and this run does not leave" if theirs else "this run leaves, and the record lacks"
                )
                yield f"{collection[:-1]} {key}: {where}"
            elif found := records.difference(ours, theirs):
                place, here, there = found
                yield f"{collection[:-1]} {key}{place and f', {place}'}: this run gives {here}, the record says {there}"


def verify(name, say=print):
    """Executes a notebook without storing anything, past what fails: a `compare.Row` for every figure of this run and of the
    records, and one for the first cell that raised."""
    notebook, path = read_source(name), FOLDER / f"{name}.py"
    _execute(name, notebook, say, go_on=True)
    number, said = _first_error(notebook)
    if said and not any(kind == "start" for _, _, kind, _, _ in _left_behind(notebook)):  # no machine, so no figure either
        return [compare.raised(number, said)]
    parts = harvest(notebook, path)
    made = {key: {name: data for part in parts for name, data in part[key].items()} for key in ("claims", "tables")}
    here = next((part["machine"] for part in parts if "machine" in part), None)
    stored = records.load_all().get(name, [])
    found = list(compare.rows(made, stored, here, f"cell {number} {said}" if said else compare.NOT_LEFT))
    return [compare.raised(number, said), *found] if said else found


def _first_error(notebook):
    """(number of the first cell that raised, what it raised); (0, "") where none did."""
    for number, cell in enumerate(notebook.cells, 1):
        for output in cell.get("outputs", []):
            if output.output_type == "error":
                return number, f"raised {output.ename}: {' '.join(output.evalue.split())}"[:160]
    return 0, ""


def harvest(notebook, path):
    """Makes the records of an executed notebook from the outputs of its cells: what is the same on every machine, and what
    this machine measured. A part that holds nothing is left out."""
    found = {"start": {}, "claim": {}, "table": {}}
    hashes, code = measured_code.hashes(notebook), {"claims": {}, "tables": {}}
    for number, cell, kind, key, data in _left_behind(notebook):
        if key in found[kind]:
            what = "two runs are opened" if kind == "start" else f"two {kind}s of the name {key}"
            fix = "call start() once" if kind == "start" else "give one of them another name"
            raise Problem(path, f"cell {number}: {what}", fix, line_of_cell(path, number))
        if kind != "start" and (data["kind"] == "measured") != measured_code.measures(cell):
            yes = (
                "measures, and its cell has no tag" if data["kind"] == "measured" else "is exact, and its cell measures"
            )
            fix = 'begin a cell that measures with `# %% tags=["measures"]`, and keep what is exact in cells without the tag'
            raise Problem(path, f"cell {number}: {kind} {key} {yes}", fix, line_of_cell(path, number))
        found[kind][key] = data
        if number in hashes and kind != "start":
            code[f"{kind}s"][key] = hashes[number]
    opened = _opened(found["start"], path)
    return assembled(path.stem, opened, found, freshness.code_hash(notebook, path), code)


def assembled(name, opened, found, source, code=None):
    """The records of one run: what start() left, {"claim": {name: data}, "table": {name: data}}, and the hashes of its code.
    Without `code`, the hashes behind each measured figure, whoever takes the record in adds them (`contributions`)."""
    common = {
        "schema": schema.NUMBER,
        "notebook": name,
        "source": source,
        "date": opened["date"],
        "command": f"make record NOTEBOOKS={name}",
        "software": opened["software"],
    }
    parts = []
    for where, measured in (({}, False), ({"machine": opened["machine"]} | ({"code": code} if code else {}), True)):
        kept = {
            f"{kind}s": {key: data for key, data in found[kind].items() if (data["kind"] == "measured") == measured}
            for kind in ("claim", "table")
        }
        if any(kept.values()):
            parts.append(common | where | kept)
    return parts


def _opened(starts, path):
    if not starts:
        fix = f'call start("{path.stem}") in a cell of its own before the first claim'
        raise Problem(path, "the notebook opens no run", fix)
    opened = starts["start"]
    for error in jsonschema.Draft202012Validator(OPENED).iter_errors(opened):
        where = "/".join(map(str, ["start()", *error.absolute_path]))
        raise Problem(path, f"{where}: {error.message[-160:]}", f"run `make record NOTEBOOKS={path.stem}`")
    if opened["notebook"] != path.stem:
        what = f"the notebook opens a run of {opened['notebook']}"
        raise Problem(path, what, f'call start("{path.stem}")', line_of(read_text(path), "start("))
    return opened


def _left_behind(notebook):
    """What the cells left for the record: cell number, cell, kind, name and data."""
    for number, cell in enumerate(notebook.cells, 1):
        for output in cell.get("outputs", []):
            for kind, mime in MIME.items():
                if data := dict(output.get("data", {}).get(mime, {})):
                    if kind == "table":
                        data["columns"] = dict(data["columns"])
                    yield number, cell, kind, data.pop("name", kind), data


def _closes(cell):
    return cell.source.startswith(measured_code.CLOSING_MARK)


def _execute(name, notebook, say, go_on=False):
    """Runs all cells but the closing one, which is for readers. go_on: past a cell that raises, whose error stays in it."""
    closing = [cell for cell in notebook.cells if _closes(cell)]
    notebook.cells = [cell for cell in notebook.cells if not _closes(cell)]
    try:
        execute_cells(FOLDER / f"{name}.py", notebook, FOLDER, kernel_environment(name, go_on), say, go_on)
    finally:
        notebook.cells += closing


def execute_cells(path, notebook, folder, environment, say, go_on=False):
    """Runs every cell in `folder`. Problem, with the line of `path`, its source, where one raises; go_on: its error stays in it."""
    try:
        import ipykernel  # noqa: F401
        from nbclient import NotebookClient
        from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
    except ImportError as error:
        raise Problem(
            path,
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
                f"{path.stem}: cell {codes.index(cell) + 1}/{len(codes)} after {time.perf_counter() - started:.0f} s: {title}"
            )

    client = NotebookClient(
        notebook,
        timeout=TIMEOUT,
        kernel_name="python3",
        allow_errors=go_on,
        resources={"metadata": {"path": str(folder)}},
        on_cell_start=progress,
        store_widget_state=False,
        record_timing=False,
        extra_arguments=["--log-level=ERROR"],
    )
    try:
        client.execute(env=environment)
    except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
        fix = "mend the cell; the stored notebook and record are as before"
        what = {
            CellTimeoutError: f"ran longer than {TIMEOUT} s",
            DeadKernelError: "ended the process that ran it (out of memory?)",
        }.get(type(error)) or f"raised {error.ename}: {error.evalue}"
        if go_on:
            said = nbformat.v4.new_output("error", ename=type(error).__name__, evalue=what)
            notebook.cells[number - 1].outputs.append(said)
            return
        line = (line_of_cell(path, number) or 1) + _line_in_cell(error)
        raise Problem(path, f"cell {number} {what}", fix, line) from None


def _line_in_cell(error):
    """How far under the first line of the cell its traceback begins."""
    traceback = re.sub(r"\x1b\[[\d;]*m", "", getattr(error, "traceback", ""))
    found = re.search(r"Cell In\[\d+\], line (\d+)", traceback)
    return int(found[1]) - 1 if found else 0


def kernel_environment(name, go_on):
    """The kernel starts in notebooks/ and imports `evidence` from this checkout."""
    root = str(Path(__file__).resolve().parent.parent)
    path = {"PYTHONPATH": os.pathsep.join(filter(None, [root, kernel_path(name)])), "EVIDENCE_RUN": name}
    return os.environ | path | ({"EVIDENCE_GO_ON": "1"} if go_on else {})
