"""Records that somebody sent: `add` checks one and puts it where it belongs, `summary` says what a pull request changes.

A record that is refused leaves nothing behind. The record of another machine is never replaced: where two kinds of machine
have one name, the newcomer's gets four digits more, as `make record` does.
"""

import re
import subprocess
from pathlib import Path

import nbformat

from . import compare, contributed, freshness, records, schema
from .notebooks import FOLDER, names
from .pairs import expected_of
from .problems import Problem, nearest, read_text

DOCS = Path("docs")
SEND_AGAIN = "ask the sender for the file as the run wrote it"
RUN_AGAIN = "ask the sender to run the notebook of today"


def add(path):
    """Checks the record in a file and writes it into results/; returns its place. Raises Problem."""
    path = Path(path)
    if not path.is_file():
        raise Problem(path, "there is no such file", "name the file that the run left")
    if path.stat().st_size > schema.MOST_BYTES:
        what = f"{path.stat().st_size:,} bytes; a record has at most {schema.MOST_BYTES:,}"
        raise Problem(path, what, SEND_AGAIN, 1)
    data = _validated(path)
    record = records.Record(path, data)
    if changed := records.changed_by_hand(record):
        raise Problem(path, "edited by hand since its run wrote it", SEND_AGAIN, changed.line)
    if not freshness.is_of_today(record):
        what = f"the code of notebooks/{record.notebook}.py has changed since this run"
        raise Problem(path, what, RUN_AGAIN)
    notebook = nbformat.read(FOLDER / f"{record.notebook}.ipynb", 4)
    expected = expected_of(record.notebook, notebook)
    own = expected.get("machine", {})
    if all(own.get(key) == data["machine"][key] for key in ("name", "fingerprint")):
        what = f"{record.label} executed notebooks/{record.notebook}.ipynb, whose outputs are those of its own run"
        raise Problem(path, what, f"leave that run, or make both anew: `make record NOTEBOOKS={record.notebook}`")
    for problem in contributed.problems(record, expected, read_text(FOLDER / f"{record.notebook}.py")):
        raise Problem(path, problem.what, RUN_AGAIN, problem.line)
    data["code"] = expected["code"]  # of the same notebook, so the same code measured each figure
    records.name_apart(data["machine"])
    place, text = records.prepared({key: said for key, said in data.items() if key != "seal"})
    if place.exists() and records.load(place).date > record.date:
        what = f"{place.as_posix()} is of {records.load(place).date}, and this record of {record.date}"
        raise Problem(path, what, "keep the newer one")
    records.write_atomically(place, text)
    return place


def _validated(path):
    """The data of a record that lies under any name; messages name the file as it was sent."""
    text = read_text(path, SEND_AGAIN)
    data = schema.parsed(text, path, SEND_AGAIN)
    notebook, machine = _member(data, "notebook"), _member(_member(data, "machine"), "name")
    if not machine and isinstance(data, dict) and "machine" not in data:
        raise Problem(
            path, "it names no machine", "send what a machine measured; exact figures are computed again here", 1
        )
    if isinstance(notebook, str) and re.fullmatch(r"[a-z][a-z0-9_]*", notebook) and notebook not in names():
        raise Problem(path, f"there is no notebook {notebook}{nearest(notebook, names())}", RUN_AGAIN, 1)
    try:
        return schema.validated(text, records.RESULTS / str(notebook)[:80] / f"{str(machine)[:80]}.json", SEND_AGAIN)
    except Problem as problem:
        raise Problem(path, problem.what, problem.fix, problem.line) from None


def _member(data, key):
    return data.get(key) if isinstance(data, dict) else None


def summary(commit):
    """Markdown for a pull request: each record that differs from `commit`, its figures, and the pages that show them."""
    changed = _git("diff", "--name-status", "--no-renames", f"{commit}...HEAD", "--", records.RESULTS.as_posix())
    lines, pages = [], set()
    for status, name in (line.split("\t", 1) for line in changed.splitlines()):
        path, word = Path(name), {"A": "New", "M": "Changed", "D": "Gone"}.get(status, status)
        lines.append(f"- {word}: `{_plain(path.as_posix())}`")
        before, now = _before(commit, path), {} if status == "D" else _entries(records.load(path).data)
        differ = [key for key in now | before if now.get(key) != before.get(key)]
        others = [_entries(records.load(other).data) for other in sorted((records.RESULTS / path.parent.name).glob("*.json")) if other != path]
        lines += _figures(differ, before, now, others)
        pages |= set(_pages(path.parent.name, {name for _, name in differ}))
    if not lines:
        return "## Records\n\nNo record changes."
    named = [f"- `{_plain(page)}`" for page in sorted(pages)] or ["- none"]
    return "\n".join(["## Records", "", *lines, "", "## Pages that change", "", *named])


def _entries(data):
    """{("claims" or "tables", name): entry}"""
    return {(key, name): entry for key in ("claims", "tables") for name, entry in data.get(key, {}).items()}


def _elsewhere(key, others):
    """What other machines measured: the least and the most."""
    entries = [entry[key] for entry in others if "value" in entry.get(key, {})]
    ends = sorted(entries, key=lambda entry: entry["value"])
    return " to ".join(dict.fromkeys(compare.shown(entry) for entry in (*ends[:1], *ends[-1:]))) or "–"


def _figures(differ, before, now, others):
    """A table of what differs, beside what the same file said before and what other machines say."""
    if differ:
        yield from ("", "  | figure | before | now | bound | elsewhere |", "  |---|---|---|---|---|")
    for key in differ:
        entry = now.get(key, {})
        bound = ", ".join(
            f"{side.replace('_', ' ')} {entry[side]:g}" for side in ("at_least", "at_most") if side in entry
        )
        cells = (key[1], compare.shown(before.get(key)), compare.shown(now.get(key)), bound, _elsewhere(key, others))
        yield "  | " + " | ".join(map(_plain, cells)) + " |"
    yield ""


def _before(commit, path):
    """The entries of a record as a commit has it; none where it has no such file, or one that is no record."""
    try:
        return _entries(schema.parsed(_git("show", f"{commit}:{path.as_posix()}", missing="{}"), path, ""))
    except Problem:
        return {}


def _pages(notebook, changed):
    """The pages that name one of the claims or tables that changed, and those that list all."""
    any_of = "|".join(map(re.escape, sorted(changed))) or "(?!)"
    for path in sorted(DOCS.rglob("*.md")):
        if re.search(
            rf"\b{re.escape(notebook)}:(?:{any_of})(?![a-z0-9-])|^```(?:ledger|machines)", read_text(path), re.M
        ):
            yield path.as_posix()


def _plain(text):
    """Text that Markdown takes as it is: a record's words come from elsewhere."""
    return re.sub(r"([\\`*_{}\[\]<>|!~#&])", r"\\\1", text) if re.search(r"[\[\]<>|`&\\]", text) else text


def _git(*arguments, missing=None):
    done = subprocess.run(["git", *arguments], capture_output=True, text=True)
    if done.returncode and missing is None:
        raise Problem(
            "git",
            (done.stderr.strip() or "it failed").splitlines()[0][:200],
            "name a commit that is here, such as origin/main",
        )
    return missing if done.returncode else done.stdout
