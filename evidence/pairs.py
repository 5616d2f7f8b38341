"""What of a notebook's source, outputs and records does not belong together: found in a second, without executing."""

import itertools
import json

import nbformat

from . import contributed, freshness, measured_code, records
from .notebooks import (
    FOLDER,
    closing_cell_problem,
    code_of,
    first_code_cell,
    head_of,
    install_cell,
    line_of_cell,
    read_source,
)
from .problems import Problem, line_of, read_text, shown
from .runs import harvest, outputs_hash, unlike


def check(name):
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
        unlike_pair = list(pair_problems(source_path, path, source, notebook, again))
        return [
            *_source_problems(source_path, source),
            *(unlike_pair or _stale_problems(name)),
            *output_problems(path, notebook, again),
            *_record_problems(name, path, notebook, again),
            *_contributed_problems(name, notebook),
        ]
    except Problem as problem:
        return [problem]


def stale(name):
    """In a line each, the records with figures that earlier code measured: pages show these with the date of their run."""
    for path in sorted((records.RESULTS / name).glob("*.json")):
        record = records.load(path)
        if old := freshness.stale(record):
            of_all = sum(len(record.data[collection]) for collection in freshness.COLLECTIONS)
            some = ", ".join(sorted(name for _, name in old)[:5]) + (", ..." if len(old) > 5 else "")
            yield (
                f"{path.as_posix()}: {len(old)} of {of_all} figures were measured by earlier code ({some}); pages say so. "
                f"To measure them again: `make record NOTEBOOKS={name}` on {record.label}"
            )


def _stale_problems(name):
    """What is the same on every machine must come from the notebook of today."""
    path = records.RESULTS / name / f"{records.ANY_MACHINE}.json"
    if path.exists() and not freshness.is_of_today(records.load(path)):
        what = f"the code of notebooks/{name}.py has changed since this run"
        yield Problem(path, what, f"run `make exact NOTEBOOKS={name}`", line_of(read_text(path), '"source"'))


def _source_problems(path, source):
    try:
        number, first = first_code_cell(source, path)
    except Problem as problem:
        yield problem
        return
    if first.source != install_cell(path.stem):
        what = "the first code cell is not the install cell of this version"
        yield Problem(path, what, "run `make pair`", line_of_cell(path, number))
    if problem := closing_cell_problem(path, source):
        yield problem


def pair_problems(source_path, path, source, notebook, again):
    """The .ipynb must have the cells of the source. Prose, comments and imports of ours are taken over without a run."""
    if head_of(source) != head_of(notebook):
        yield Problem(source_path, f"its head is not that of {path.name}", "run `make pair`", 1)
    cells, stored = ([(c.source, c.cell_type, c.metadata.get("alt"), c.metadata.get("tags")) for c in side.cells] for side in (source, notebook))
    if cells == stored:
        return
    same_code = code_of(source, source_path) == code_of(notebook, path)
    fix = "run `make pair`" if same_code else f"{_run_again(source, notebook, again)}; take over edits of the .ipynb first"
    number = next((n for n, (a, b) in enumerate(zip(cells, stored), 1) if a != b), min(len(cells), len(stored)) + 1)
    ours, theirs = (side[number - 1][0].splitlines() if number <= len(side) else [] for side in (cells, stored))
    line = (line_of_cell(source_path, number) or 1) + next(
        (n for n, (a, b) in enumerate(itertools.zip_longest(ours, theirs)) if a != b), 0
    )
    what = (
        f"cell {number} is not the one in {path.name}: {'its words differ' if same_code else 'edited without running'}"
    )
    yield Problem(source_path, what, fix, line)


def _run_again(source, notebook, again):
    """Minutes where nothing that measures has changed; else the hours, or the minutes and figures that are marked."""
    exact = again.replace("make record", "make exact")
    if list(measured_code.hashes(source).values()) == list(measured_code.hashes(notebook).values()):
        return exact
    return f"{again}, which measures, or {exact.removeprefix('run ')}, which marks the measured figures as older than their code"


def output_problems(path, notebook, again):
    for number, cell in enumerate(notebook.cells, 1):
        if cell.cell_type != "code":
            continue
        if cell.execution_count is None and cell.source.strip() and not cell.source.startswith(measured_code.CLOSING_MARK):
            yield Problem(path, f"cell {number} was not executed", again, line_of_cell(path, number))
        for output in cell.outputs:
            if not cell.metadata.get("alt") and output.get("data", {}).keys() & {"image/svg+xml", "image/png"}:
                fix = 'say what it shows to somebody who cannot see it: `# %% alt="..."` above the cell'
                yield Problem(path.with_suffix(".py"), f"the figure of cell {number} has no text", fix, line_of_cell(path.with_suffix(".py"), number))
            if output.output_type == "error":
                yield Problem(
                    path,
                    f"cell {number} ended with {output.ename}: {output.evalue[:120]}",
                    f"mend the source, then {again}",
                    line_of_cell(path, number),
                )


def _record_problems(name, path, notebook, again):
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
        place = records.RESULTS / name / f"{machine}.json"
        if not place.exists():
            yield Problem(path, f"its record {shown(place)} is missing", again)
            continue
        kept = records.load(place).data
        yield from _parts_differ(path, place, part, kept, again)


def _contributed_problems(name, notebook):
    """The records of other machines than the one that executed the .ipynb."""
    source = read_text(FOLDER / f"{name}.py")
    try:
        expected = expected_of(name, notebook)
    except Problem:
        return  # is a problem of its own
    here = {expected["machine"]["name"]} if "machine" in expected else set()
    for place in sorted((records.RESULTS / name).glob("*.json")):
        record = records.load(place)
        if record.machine and record.machine not in here and freshness.is_of_today(record):
            yield from contributed.problems(record, expected, source)


def expected_of(name, notebook):
    """What a machine's record of an executed notebook holds: the claims and tables that it measured."""
    made = [part for part in harvest(notebook, FOLDER / f"{name}.py") if "machine" in part]
    return made[0] if made else {"claims": {}, "tables": {}}


def _parts_differ(path, place, made, stored, again):
    """An exact record may come from another run than this .ipynb, and then agrees within the tolerance."""
    if "machine" not in made:
        for said in unlike(made, stored):
            name = said.split()[1].rstrip(":,")
            yield Problem(place, f"{said} ({path.name})", again, line_of(read_text(place), json.dumps(name)))
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
            line = line_of(read_text(where), json.dumps(key))
            yield Problem(where, f"{collection[:-1]} {key} {what}{_difference(ours, theirs)} {both}", again, line)
    for key in ("date", "machine", "software"):
        if made[key] != stored[key]:
            what = f"{key} differs between notebook and record{_difference({key: made[key]}, {key: stored[key]})}"
            yield Problem(place, what, again, line_of(read_text(place), json.dumps(key)))


def _difference(ours, theirs):
    if not (ours and theirs):
        return ""
    key = next(key for key in [*ours, *theirs] if ours.get(key) != theirs.get(key))
    if isinstance(ours.get(key), dict) and isinstance(theirs.get(key), dict):
        return _difference(ours[key], theirs[key])
    return f": {key} is {str(ours.get(key))[:60]} in the one, {str(theirs.get(key))[:60]} in the other"
