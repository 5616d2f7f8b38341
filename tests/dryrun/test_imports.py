"""The modules of dryrun import one way: who reads one of them need not know those that use it."""

import ast
import re
import sys
import tomllib
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


TRACES = {"adapters", "caches", "collectives", "gpu_operators", "job_trace", "profile_trace", "rank_setup", "ranks", "recorder", "step_trace",
          "tracing", "tracker"}  # fmt: skip


def reached_from(name):
    """A module and all that it imports when it is loaded, at any depth."""
    found, new = set(), {name}
    while new:
        found |= new
        new = {other for one in new for other in imported(FOLDER / f"{one}.py")} - found
    return found


def loads(name):
    """The packages of others that a module imports when it is loaded."""
    for node in ast.parse((FOLDER / f"{name}.py").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module.split(".")[0]


def test_only_what_runs_a_models_code_needs_torch():
    """Without it profiles answer, traces that are kept, and everything that has no model in it."""
    assert TRACES <= MODULES
    for name in MODULES - TRACES:
        assert not reached_from(name) & TRACES, name
        assert not set(loads(name)) & {"torch", "transformers"}, name


def test_no_module_loads_numpy():
    """A prediction is of numbers; columns of them, which `fitting` has, need it."""
    for name in MODULES:
        assert "numpy" not in set(loads(name)), name


def test_what_dryrun_imports_is_what_its_package_asks_for():
    asked = tomllib.loads((FOLDER / "pyproject.toml").read_text())["project"]["optional-dependencies"]["trace"]
    brought = {"torch": {"torch", "numpy"}, "transformers": {"transformers", "numpy"}}  # by each of them
    known = set().union(*(brought[re.match(r"[\w-]+", one)[0]] for one in asked))
    nodes = [node for path in FOLDER.glob("*.py") for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in nodes if isinstance(node, ast.ImportFrom) and not node.level}
    others = {name.split(".")[0] for name in names} - sys.stdlib_module_names - {"fitting"}  # which is asked for before it is imported
    assert others == known
