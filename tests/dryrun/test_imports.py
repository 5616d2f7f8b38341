"""The modules of dryrun import one way: who reads one of them need not know those that use it."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import dryrun

FOLDER = Path(dryrun.__file__).parent
MODULES = {path.stem for path in FOLDER.glob("*.py")} - {"__init__", "__main__"}


def imported(path):
    """The modules of dryrun that one imports when it is loaded. What a function imports, it needs when it is called."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and node.level == 1:
            yield from ({node.module} if node.module else {alias.name for alias in node.names}) & MODULES


def test_nothing_of_dryrun_imports_evidence():
    """Readers install it to use it, without the site."""
    for path in FOLDER.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [getattr(node, "module", None) or ""]
            assert not {name.split(".")[0] for name in names} & {"evidence", "tests"}, path.name


def test_no_module_imports_one_that_imports_it():
    graph = {name: set(imported(FOLDER / f"{name}.py")) for name in MODULES}
    in_order = list(TopologicalSorter(graph).static_order())  # CycleError names the circle
    assert set(in_order) == MODULES


def test_what_readers_import_loads_neither_torch_nor_what_fits_the_constants():
    light, reached = {"config_file", "formats", "hardware", "job", "models"}, set(imported(FOLDER / "__init__.py"))
    while more := {other for name in reached for other in imported(FOLDER / f"{name}.py")} - reached:
        reached |= more
    assert reached <= light
    for name in light:
        assert "torch" not in {alias.name for node in ast.parse((FOLDER / f"{name}.py").read_text()).body if isinstance(node, ast.Import) for alias in node.names}
