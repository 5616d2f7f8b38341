"""Notebooks: notebooks/x.py (percent format, the source) and notebooks/x.ipynb (the same, executed).

`record` executes the source, stores the outputs and makes the records; `recompute` executes what is exact, and compares;
`check` finds, in a second and without executing, whatever of source, outputs and records does not belong together.
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

from . import contributed, freshness, records
from .claims import MIME
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


def pair(name):
    """Takes edits of prose, comments and the install cell over into the .ipynb, whose outputs stay. Returns whether its code
    is that of the source; where it is not, the file is left as it is, for a run to replace."""
    path, source = FOLDER / f"{name}.ipynb", read_source(name)
    if not path.exists():
        return False
    old = nbformat.read(path, 4)
    if _code(source, path) != _code(old, path):
        return False
    made = [cell for cell in old.cells if cell.cell_type == "code"]
    for cell in source.cells:
        if cell.cell_type == "code":
            kept = made.pop(0)
            cell.outputs, cell.execution_count = kept.outputs, kept.execution_count
    old.cells = _with_stable_ids(source.cells)
    text = nbformat.writes(old) + "\n"
    if text != read_text(path):
        records.write_atomically(path, text)
    return True


def _code(notebook, path):
    return [freshness.what_runs(cell.source) for cell in freshness.code_cells(notebook, path)]


def _with_stable_ids(cells):
    """nbformat gives random ids, and each run would change every cell of the file."""
    for number, cell in enumerate(cells, 1):
        cell["id"] = f"cell-{number}"
    return cells


def record(name, results=records.RESULTS, say=print):
    """Executes notebooks/<name>.py, then writes the .ipynb and the records. On any error the old ones stay."""
    path = FOLDER / f"{name}.py"
    notebook = read_source(name)
    _execute(name, notebook, say)
    _drop_logs(notebook)
    made = harvest(notebook, path)
    _refuse_another_result(made, results)
    _name_apart(made, notebook, results)
    notebook.cells = _with_stable_ids(notebook.cells)
    notebook.metadata["evidence"] = {"outputs": outputs_hash(notebook)}
    texts = {path.with_suffix(".ipynb"): nbformat.writes(notebook) + "\n"}
    texts |= dict(records.prepared(part, results) for part in made)
    records.write_together(texts)
    count = {key: sum(len(part[key]) for part in made) for key in ("claims", "tables")}
    places = " and ".join(shown(place) for place in list(texts)[1:])
    say(f"{name}: {count['claims']} claims, {count['tables']} tables in {places}")


def _refuse_another_result(made, results):
    """With the same code and the same versions, what is exact must come out as the project's record has it."""
    for part in made:
        place = Path(results) / part["notebook"] / f"{records.ANY_MACHINE}.json"
        if "machine" in part or not place.exists():
            continue
        stored = records.load(place)
        if freshness.stale(stored) or stored.data["software"] != part["software"]:
            continue
        for said in _unlike(part, stored.data):
            raise Problem(
                place, f"{said}, with the same code and versions", "find what makes it vary; nothing was written"
            )


def _name_apart(made, notebook, results):
    """A machine of another kind may have this one's name in the records already: then this one's gets four digits more."""
    for part in made:
        here = part.get("machine")
        known = [json.loads(read_text(path)) for path in Path(results).glob(f"*/{here['name']}.json")] if here else []
        if any(other["machine"].get("fingerprint") != here["fingerprint"] for other in known):
            here["name"] += f"-{here['fingerprint'][:4]}"
            for _, _, kind, _, _, output in _left_behind(notebook):
                if kind == "start":
                    output[MIME["start"]]["machine"]["name"] = here["name"]


def outputs_hash(notebook):
    """SHA-256 of all outputs, which tells an output that was edited or cleared."""
    outputs = [cell.get("outputs", []) for cell in notebook.cells if cell.cell_type == "code"]
    return hashlib.sha256(json.dumps(outputs, sort_keys=True).encode()).hexdigest()


def _drop_logs(notebook):
    """What libraries write to stderr names paths of this machine and is no result."""
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]


def recompute(name, results=records.RESULTS, say=print):
    """Executes the cells that measure nothing; what they derive, trace and cite must be what the project's record says.

    Returns the number of figures compared. Raises Problem at the first that differs or does not come.
    """
    path = FOLDER / f"{name}.py"
    notebook = read_source(name)
    for cell in notebook.cells:
        if cell.cell_type == "code" and freshness.measures(cell):
            cell.cell_type = "raw"  # so that a cell's number is that of the file
    _execute(name, notebook, say)
    exact = next((part for part in harvest(notebook, path) if "machine" not in part), {"claims": {}, "tables": {}})
    place = Path(results) / name / f"{records.ANY_MACHINE}.json"
    again = f"mend the notebook, or if the change is meant run `make record NOTEBOOKS={name}`"
    stored = records.load(place).data if place.exists() else {"claims": {}, "tables": {}}
    for said in _unlike(exact, stored):
        raise Problem(place if place.exists() else path, said, again)
    return len(exact["claims"]) + len(exact["tables"])


def _unlike(made, stored):
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


def verify(name, results=records.RESULTS, say=print):
    """Executes a notebook without storing anything; every exact figure must agree with its record."""
    notebook = read_source(name)
    _execute(name, notebook, say)
    made = harvest(notebook, FOLDER / f"{name}.py")
    stored = {record.machine: record for record in records.load_all(results).get(name, [])}
    for part in made:
        if "machine" in part:
            say(f"{name}: {len(part['claims'])} measured claims hold")
            continue
        for said in _unlike(part, stored[""].data if "" in stored else {"claims": {}, "tables": {}}):
            raise Problem(FOLDER / f"{name}.py", said, "mend the cell, or make the record again")
        say(f"{name}: {len(part['claims'])} exact claims agree with the record")


def harvest(notebook, path):
    """Makes the records of an executed notebook from the outputs of its cells: what is the same on every machine, and what
    this machine measured. A part that holds nothing is left out."""
    found = {"start": {}, "claim": {}, "table": {}}
    for number, cell, kind, key, data, _ in _left_behind(notebook):
        if key in found[kind]:
            what = "two runs are opened" if kind == "start" else f"two {kind}s of the name {key}"
            fix = "call start() once" if kind == "start" else "give one of them another name"
            raise Problem(path, f"cell {number}: {what}", fix, line_of_cell(path, number))
        if kind != "start" and (data["kind"] == "measured") != freshness.measures(cell):
            yes = (
                "measures, and its cell has no tag" if data["kind"] == "measured" else "is exact, and its cell measures"
            )
            fix = 'begin a cell that measures with `# %% tags=["measures"]`, and keep what is exact in cells without the tag'
            raise Problem(path, f"cell {number}: {kind} {key} {yes}", fix, line_of_cell(path, number))
        found[kind][key] = data
    opened = _opened(found["start"], path)
    code, modules = freshness.code_and_modules(path)
    common = {
        "schema": records.SCHEMA_NUMBER,
        "notebook": path.stem,
        "source": code,
        "date": opened["date"],
        "command": f"make record NOTEBOOKS={path.stem}",
        "software": opened["software"],
    }
    parts = []
    for where, measured in (({}, False), ({"machine": opened["machine"], "package": modules}, True)):
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
        raise Problem(path, what, f'call start("{path.stem}")', line_of(_text(path), "start("))
    return opened


def _left_behind(notebook):
    """What the cells left for the record: cell number, cell, kind, name, data, and what the cell shows."""
    for number, cell in enumerate(notebook.cells, 1):
        for output in cell.get("outputs", []):
            for kind, mime in MIME.items():
                if data := dict(output.get("data", {}).get(mime, {})):
                    if kind == "table":
                        data["columns"] = dict(data["columns"])
                    yield number, cell, kind, data.pop("name", kind), data, output["data"]


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


def check(name, results=records.RESULTS):
    """All that is wrong with one notebook, its outputs and its records, as a list of Problems."""
    source_path, path = FOLDER / f"{name}.py", FOLDER / f"{name}.ipynb"
    again = f"run `make record NOTEBOOKS={name}`"
    if not path.exists():
        return [Problem(source_path, f"{path.name} is missing", again)]
    try:
        notebook = nbformat.read(path, 4)
    except Exception as error:
        return [Problem(path, f"not a notebook ({str(error)[:120]})", again)]
    try:
        source = read_source(name)
        return [
            *_source_problems(source_path, source),
            *_stale_problems(name, results, again),
            *_pair_problems(source_path, path, source, notebook, again),
            *_output_problems(path, notebook, again),
            *_record_problems(name, path, notebook, results, again),
            *_contributed_problems(name, source, notebook, results),
        ]
    except Problem as problem:
        return [problem]


def _stale_problems(name, results, again):
    """Every record of every machine must belong to the code of today."""
    for path in sorted((Path(results) / name).glob("*.json")):
        record = records.load(path)
        if why := freshness.stale(record):
            where = f"{again} on {record.label}, or delete the record" if record.machine else again
            yield Problem(path, f"stale, and on no page: {why}", where, line_of(read_text(path), '"source"'))


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
    """The .ipynb must have the cells of the source. Prose and comments are taken over without a run."""
    cells, stored = [(c.cell_type, c.source) for c in source.cells], [(c.cell_type, c.source) for c in notebook.cells]
    if cells == stored:
        return
    same_code = _code(source, source_path) == _code(notebook, path)
    fix = "run `make pair`" if same_code else f"{again}; take over edits of the .ipynb first"
    number = next((n for n, (a, b) in enumerate(zip(cells, stored), 1) if a != b), min(len(cells), len(stored)) + 1)
    ours, theirs = (side[number - 1][1].splitlines() if number <= len(side) else [] for side in (cells, stored))
    line = (line_of_cell(source_path, number) or 1) + next(
        (n for n, (a, b) in enumerate(itertools.zip_longest(ours, theirs)) if a != b), 0
    )
    what = (
        f"cell {number} is not the one in {path.name}: {'its words differ' if same_code else 'edited without running'}"
    )
    yield Problem(source_path, what, fix, line)


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
    """The records that the executed notebook made must be what its outputs say."""
    try:
        made = harvest(notebook, path.with_suffix(".py"))
    except Problem as problem:
        yield problem
        return
    if notebook.metadata.get("evidence", {}).get("outputs") != outputs_hash(notebook):
        yield Problem(path, "an output was edited or cleared since the run", again)
    for part in made:
        machine = part["machine"]["name"] if "machine" in part else records.ANY_MACHINE
        place = Path(results) / name / f"{machine}.json"
        if not place.exists():
            yield Problem(path, f"its record {shown(place)} is missing", again)
            continue
        kept = records.load(place).data
        yield from _parts_differ(path, place, part, kept, again)


def _contributed_problems(name, source, notebook, results):
    """The records of other machines than the one that executed the .ipynb."""
    path = FOLDER / f"{name}.py"
    try:
        made = [part for part in harvest(notebook, path) if "machine" in part]
    except Problem:
        return  # is a problem of its own
    here = {part["machine"]["name"] for part in made}
    expected = made[0] if made else {"claims": {}, "tables": {}}
    for place in sorted((Path(results) / name).glob("*.json")):
        record = records.load(place)
        if record.machine and record.machine not in here and not freshness.stale(record):
            yield from contributed.problems(record, expected, source, path)


def _parts_differ(path, place, made, stored, again):
    """An exact record may come from another run than this .ipynb, and then agrees within the tolerance."""
    if "machine" not in made:
        for said in _unlike(made, stored):
            name = said.split()[1].rstrip(":,")
            yield Problem(place, f"{said} ({path.name})", again, line_of(_text(place), json.dumps(name)))
        return
    for collection in ("claims", "tables"):
        for key in made[collection].keys() | stored[collection].keys():
            ours, theirs = made[collection].get(key), stored[collection].get(key)
            if ours == theirs:
                continue
            where = place if theirs is not None else path
            what = (
                "differs between notebook and record"
                if ours and theirs
                else f"stands in the {'record' if theirs else 'notebook'} and not in the {'notebook' if theirs else 'record'}"
            )
            both = f"({path.name} and {place.name} belong together)"
            line = line_of(_text(where), json.dumps(key))
            yield Problem(where, f"{collection[:-1]} {key} {what}{_difference(ours, theirs)} {both}", again, line)
    for key in ("date", "machine", "software"):
        if made[key] != stored[key]:
            what = f"{key} differs between notebook and record{_difference({key: made[key]}, {key: stored[key]})}"
            yield Problem(place, what, again, line_of(_text(place), json.dumps(key)))


def _difference(ours, theirs):
    if not (ours and theirs):
        return ""
    key = next(key for key in [*ours, *theirs] if ours.get(key) != theirs.get(key))
    if isinstance(ours.get(key), dict) and isinstance(theirs.get(key), dict):
        return _difference(ours[key], theirs[key])
    return f": {key} is {str(ours.get(key))[:60]} in the one, {str(theirs.get(key))[:60]} in the other"


def _execute(name, notebook, say):
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
        client.execute(env=_kernel_environment(name))
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
