"""Whether a figure still belongs to its code.

A figure is as old as the code that measured it. A record carries, for each figure that its machine measured, the hash of that
code (`measured_code`). Where the notebook of today holds no such code any more, the figure is *stale*: it stays on its pages,
marked with the date of its run, and `make check` warns. What is derived, traced or cited is computed again by `make test-all`, and
its record carries the hash of the whole notebook.
"""

import hashlib
from functools import lru_cache
from pathlib import Path

import jupytext

from . import measured_code
from .problems import read_text

FOLDER = Path("notebooks")
COLLECTIONS = ("claims", "tables")


def stale(record):
    """{(collection, name)} of a record that code of another day measured; all of it where the notebook is gone."""
    if not record.machine:
        return set()
    path = FOLDER / f"{record.notebook}.py"
    today = _today(path.resolve(), path.stat().st_mtime_ns)[1] if path.is_file() else ()
    stated = record.data.get("code", {})
    return {
        (collection, name)
        for collection in COLLECTIONS
        for name in record.data[collection]
        if stated.get(collection, {}).get(name) not in today
    }


def is_of_today(record):
    """Whether the whole notebook is as it was when the record was made."""
    path = FOLDER / f"{record.notebook}.py"
    return path.is_file() and record.data["source"] == _today(path.resolve(), path.stat().st_mtime_ns)[0]


@lru_cache(maxsize=256)
def _today(path, age):
    notebook = jupytext.reads(read_text(path), {"extension": ".py"})
    return code_hash(notebook, path), frozenset(measured_code.hashes(notebook).values())


def code_hash(notebook, path):
    """The hash of a notebook's code, without the install cell, the closing cell and the imports of our own modules."""
    return hash_of(cell.source for cell in measured_code.code_cells(notebook, path))


def hash_of(sources):
    """The SHA-256 of cells of code, in their order."""
    return hashlib.sha256("\n\n".join(map(measured_code.without_our_imports, sources)).encode()).hexdigest()
