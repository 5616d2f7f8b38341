"""Records: what a run leaves in results/<notebook>/. Write, find, compare.

`<machine>.json` holds what that machine measured. `exact.json` holds what is the same on every machine, derived, traced or
cited, once for the project; `make test-all` computes it again. What a record may hold says `schema`.
"""

import copy
import hashlib
import json
import os
import tempfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from .problems import Problem, line_of, nearest, read_text
from .schema import ANY_MACHINE, again, read, validated

RESULTS = Path("results")
TOLERANCE = 0.01  # of an exact value, between versions of the libraries


@dataclass(frozen=True)
class Record:
    """One record and where it came from."""

    path: Path
    data: dict

    @property
    def machine(self):
        """The machine's name; "" for what is the same on every machine."""
        return self.data.get("machine", {}).get("name", "")

    @property
    def label(self):
        return self.data.get("machine", {}).get("label", "any machine")

    @property
    def date(self):
        return self.data["date"]

    @property
    def notebook(self):
        return self.data["notebook"]


def load(path):
    """Reads and validates one record, once for each state of its file: a check asks for the same ones many times."""
    path = Path(path)
    state = path.stat()
    return Record(path, copy.deepcopy(_read(path.absolute(), path, state.st_mtime_ns, state.st_size)))


@lru_cache(maxsize=512)
def _read(absolute, path, changed, size):
    return read(path)


def load_all(results=RESULTS):
    """Every record, as {notebook: [records, the newest first]}."""
    found = {}
    for path in sorted(Path(results).rglob("*.json")):
        if path.parent.parent != Path(results):
            raise Problem(
                path, "a record in the wrong folder", f"move it to {Path(results).as_posix()}/<notebook>/<machine>.json"
            )
        found.setdefault(path.parent.name, []).append(load(path))
    return {notebook: sorted(records, key=lambda r: r.date, reverse=True) for notebook, records in found.items()}


def prepared(record):
    """Where a record goes and its text, if nothing is wrong with it."""
    name = record["machine"]["name"] if "machine" in record else ANY_MACHINE
    path = RESULTS / record["notebook"] / f"{name}.json"
    text = json.dumps(record | {"seal": seal(record)}, indent=1, ensure_ascii=False) + "\n"
    validated(text, path, "mend the notebook; the stored record is as before")
    return path, text


def name_apart(machine):
    """A machine of another kind may have this one's name in the records already: then this one's gets four digits more."""
    known = [json.loads(read_text(path)) for path in RESULTS.glob(f"*/{machine['name']}.json")]
    if any(other["machine"].get("fingerprint") != machine["fingerprint"] for other in known):
        machine["name"] += f"-{machine['fingerprint'][:4]}"


def seal(record):
    """The SHA-256 of all that a record says, in its order, apart from the seal itself: columns in another order are other
    columns. It tells a slip of the hand, not a forger."""
    said = {key: value for key, value in record.items() if key != "seal"}
    return hashlib.sha256(json.dumps(said, ensure_ascii=False).encode()).hexdigest()


def changed_by_hand(record):
    """The Problem of a record that is not as its run wrote it, or None."""
    if record.data["seal"] == seal(record.data):
        return None
    line = line_of(read_text(record.path), '"seal"')
    return Problem(record.path, "edited by hand since its run wrote it", again(record.path), line)


def write_atomically(path, text):
    """Replaces `path` by `text` in one step."""
    write_together({path: text})


def write_together(texts):
    """Replaces each path by its text. All texts are on the disk before the first old file goes."""
    parts = {}
    try:
        for path, text in texts.items():
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            handle, parts[path] = tempfile.mkstemp(dir=Path(path).parent, prefix=f".{Path(path).name}.", suffix=".part")
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(parts[path], 0o644)
        for path, part in parts.items():
            os.replace(part, path)
    finally:
        for part in parts.values():
            Path(part).unlink(missing_ok=True)


def find(records, notebook, name, collection="claims"):
    """The entries of one claim (or table), as [(record, entry)], the newest first. Unknown names get the nearest one."""
    if notebook not in records:
        raise LookupError(f"no record of a notebook {notebook!r}{nearest(notebook, records)}")
    found = [(record, record.data[collection][name]) for record in records[notebook] if name in record.data[collection]]
    if not found:
        known = {key for record in records[notebook] for key in record.data[collection]}
        raise LookupError(f"no {collection[:-1]} {name!r} in the records of {notebook}{nearest(name, known)}")
    return found


def difference(entry, other):
    """The first difference of two entries of one exact claim or table: (its place, what the one says, what the other says).

    The place is in words, empty for a claim. None where no figure differs by more than TOLERANCE, and all else is equal.
    """
    here, there = _figures(entry), _figures(other)
    for place in dict.fromkeys([*here, *there]):
        ours, theirs = here.get(place, "no such cell"), there.get(place, "no such cell")
        if differs(ours, theirs) if _is_number(ours) and _is_number(theirs) else ours != theirs:
            return place, *(f"{said:g}" if _is_number(said) else said or "nothing" for said in (ours, theirs))
    return None


def _figures(entry):
    """What a claim or a table says, by its place."""
    if "on" in entry:
        return {
            f"{part} on {gpu}": found.get(part)
            for gpu, found in entry["on"].items()
            for part in ("value", "low", "high")
        }
    if "rows" not in entry:
        return {"": entry.get("value")}
    return {
        f"row {number}, {column}": cell
        for number, row in enumerate(entry["rows"], 1)
        for column, cell in zip(entry["columns"], row, strict=True)
    }


def _is_number(value):
    return isinstance(value, int | float) and not isinstance(value, bool)


def differs(value, stored):
    """Whether an exact value is more than TOLERANCE away from the stored one."""
    return abs(value - stored) > TOLERANCE * max(abs(stored), 1e-12)
