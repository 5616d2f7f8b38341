"""What the modules of dryrun need, when they are imported and in all."""

import ast
import re
import sys
import tomllib
from pathlib import Path

from same_trace import without_torch

import dryrun

FOLDER = Path(dryrun.__file__).parent
TRACES = "tracing"  # the room that needs torch


def test_only_what_runs_a_models_code_needs_torch():
    """Without it profiles answer, traces that are kept, and everything that has no model in it. numpy is for columns, which `fitting` has."""
    modules = [".".join(path.relative_to(FOLDER.parent).with_suffix("").parts) for path in FOLDER.rglob("*.py") if path.name != "__main__.py"]
    others = sorted(name for name in modules if TRACES not in name.split(".") and not name.endswith("job_trace"))
    assert len(others) > 30
    without_torch(f"import importlib\nfor name in {others}: importlib.import_module(name)")


def test_what_dryrun_imports_is_what_its_package_asks_for():
    asked = tomllib.loads((FOLDER / "pyproject.toml").read_text())["project"]["optional-dependencies"]["trace"]
    brought = {"torch": {"torch", "numpy"}, "transformers": {"transformers", "numpy"}}  # by each of them
    known = set().union(*(brought[re.match(r"[\w-]+", one)[0]] for one in asked))
    nodes = [node for path in FOLDER.rglob("*.py") for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in nodes if isinstance(node, ast.ImportFrom) and not node.level}
    others = {name.split(".")[0] for name in names} - sys.stdlib_module_names - {"fitting"}  # which is asked for before it is imported
    assert others == known
