"""What the modules of dryrun need, when they are imported and in all."""

import ast
import re
import sys
import tomllib
from pathlib import Path

from same_trace import without_torch

import dryrun

FOLDER = Path(dryrun.__file__).parent
ROOMS = ("tables", "models", "step", "tracing", "cost", "answer", "door")  # each imports from itself and from those before it
RUNS = {"tracing", "answer.bench"}  # a model's code on tensors without data; products and copies of the machine at hand


def modules():
    """{"room.module": its syntax tree} of every module in a room."""
    found = {path.relative_to(FOLDER).with_suffix("").parts: path for path in FOLDER.rglob("*.py") if path.parent != FOLDER}
    return {".".join(parts): ast.parse(path.read_text(encoding="utf-8")) for parts, path in sorted(found.items())}


def imports(module, tree):
    """What it imports, anywhere in it and for types too, as dotted names from the root; `.` and `..` are its room and the package."""
    package = ["dryrun", *module.split(".")[:-1]]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join([*package[: len(package) + 1 - node.level if node.level else 0], *([node.module] if node.module else [])])
            yield from (f"{base}.{alias.name}" for alias in node.names)


def test_every_module_is_in_a_room():
    assert {path.parent.name for path in FOLDER.glob("*/*.py")} == set(ROOMS)
    assert {path.name for path in FOLDER.glob("*.py")} == {"__init__.py", "__main__.py"}


def test_a_room_imports_from_rooms_before_it_alone():
    wrong = []
    for module, tree in modules().items():
        allowed = ROOMS[: ROOMS.index(module.split(".")[0]) + 1]
        ours = (name.split(".")[1] for name in imports(module, tree) if name.split(".")[0] == "dryrun" and name != "dryrun.__version__")
        wrong += [f"dryrun.{module} imports from dryrun.{name}" for name in ours if name not in allowed]
    assert not wrong, "\n".join(wrong)


def test_only_what_runs_a_models_code_imports_torch():
    takes = {module for module, tree in modules().items() if any(name.split(".")[0] == "torch" for name in imports(module, tree))}
    assert {module for module in takes if not RUNS & {module, module.split(".")[0]}} == set()


def test_all_but_what_runs_a_models_code_can_be_imported_without_torch():
    """Profiles answer then, traces that are kept, and everything that has no model in it. numpy is for columns, which `fitting` has."""
    others = sorted(f"dryrun.{module}" for module in modules() if module.split(".")[0] != "tracing")
    without_torch(f"import importlib\nfor name in {others}: importlib.import_module(name)")


def test_programs_that_readers_copy_import_from_public_places():
    public, wrong = {"dryrun", "dryrun.tracing", "dryrun.tracing.ranks"}, []
    for path in sorted((FOLDER.parent / "snippets").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            taken = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            wrong += [f"{path.name} imports {name}" for name in taken if name.split(".")[0] == "dryrun" and name not in public]
    assert not wrong, "\n".join(wrong)


def test_what_dryrun_imports_is_what_its_package_asks_for():
    asked = tomllib.loads((FOLDER / "pyproject.toml").read_text())["project"]["optional-dependencies"]["trace"]
    brought = {"torch": {"torch", "numpy"}, "transformers": {"transformers", "numpy"}}  # by each of them
    known = set().union(*(brought[re.match(r"[\w-]+", one)[0]] for one in asked))
    nodes = [node for path in FOLDER.rglob("*.py") for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in nodes if isinstance(node, ast.ImportFrom) and not node.level}
    others = {name.split(".")[0] for name in names} - sys.stdlib_module_names - {"fitting"}  # which is asked for before it is imported
    assert others == known
