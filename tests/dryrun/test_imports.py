"""What `dryrun` may import: readers install it to use it, so it does not need `evidence`."""

import ast
from pathlib import Path

import pytest

import dryrun

MODULES = sorted(Path(dryrun.__file__).parent.glob("*.py"))


def imported(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_nothing_of_dryrun_imports_evidence(path):
    assert not [name for name in imported(path) if name.split(".")[0] in ("evidence", "tests")]
