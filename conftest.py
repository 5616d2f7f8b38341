"""For tests and notebooks alike: this checkout's package, its records to compare with, and no model hub."""

import ctypes
import functools
import gc
import json
import os
import runpy
import sys
import tempfile
from pathlib import Path

import nbformat
import pytest

from evidence import notebooks

sys.path.insert(0, str(Path(__file__).resolve().parent / "tests"))
import built
import warm

pytest_plugins = ["again"]
ROOT = Path(__file__).resolve().parent
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
os.environ["EVIDENCE_VERIFY"] = str(ROOT / "results")  # a traced or derived figure that differs from its record fails
os.environ["EVIDENCE_SECONDS"] = "2"  # few repeats show whether a bound holds; where it breaks, again.py asks for all
os.environ["OMP_WAIT_POLICY"] = "passive"  # workers share the cores: a thread that waits leaves its core to others,
os.environ["OMP_NUM_THREADS"] = "1"  # and what a second thread does of a small product costs more than it saves
# Otherwise the C++ compiler is tried on this CPU's instructions first: 3 s a time.
os.environ["TORCHINDUCTOR_VEC_ISA_OK"] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"
if "TEST_FOLDER" not in os.environ:  # what the workers of a run share
    test_folder = tempfile.TemporaryDirectory(prefix="tests-")
    os.environ["TEST_FOLDER"] = test_folder.name
if "PYTHON_EXEC" not in os.environ:  # the Python of torchrun's ranks, here and in the workers and kernels that we start
    warm_folder = tempfile.TemporaryDirectory(prefix="warm-")
    warm.commands(warm_folder.name)
    os.environ["PYTHON_EXEC"] = str(Path(warm_folder.name, "python"))
    os.environ["JUPYTER_PATH"] = warm_folder.name  # and that of kernels


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """What the test files import stays: to look for garbage among it is time lost."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_modifyitems(config, items):
    """A run of everything that finds no notebook is broken, not green."""
    if config.args == config.getini("testpaths"):
        found = {item.path.stem for item in items if item.path.suffix == ".ipynb"}
        missing = {path.stem for path in (ROOT / "notebooks").glob("*.ipynb")} - found
        if missing or not found:
            raise pytest.UsageError(
                f"no test was collected from the notebooks {sorted(missing)}: is nbval installed and switched on?"
            )


@pytest.fixture(scope="module", autouse=True)
def garbage_of_others():
    """What is there when a file begins, modules and parsed pages above all, is looked through for garbage no more: a Trainer
    has garbage collected several times in a run, and each time took a third of a second."""
    make_room.cache_clear()  # this file will keep something too
    gc.collect()
    gc.freeze()


@functools.cache
def make_room():
    """A notebook needs memory of its own: when it begins, what the tests before it have kept goes back to the system."""
    built.release()
    gc.unfreeze()
    gc.collect()
    if hasattr(libc := ctypes.CDLL(None), "malloc_trim"):  # glibc's
        libc.malloc_trim(0)


@functools.cache
def head_of(path):
    """The slow modules that the cells of a notebook import, and the variables that they set before."""
    modules, variables = set(), {}
    for cell in nbformat.read(path, 4).cells:
        found, given = warm.head(cell.source) if cell.cell_type == "code" else ([], {})
        variables |= {} if modules else given
        modules |= set(found)
    return json.dumps([sorted(modules), variables])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item):
    """The kernel of a notebook starts in the setup of its first cell, with the packages that only this notebook has, and
    from a process that has imported what the notebook will."""
    if item.path.suffix != ".ipynb":
        return (yield)
    make_room()
    kernel = {"PYTHONPATH": notebooks.kernel_path(item.path.stem), "KERNEL_HEAD": head_of(item.path)}
    kernel["EVIDENCE_LAYERS"] = "2,4"  # a deep model's trace must also be the line through those of shallow ones
    with pytest.MonkeyPatch.context() as patch:
        for name, value in kernel.items():
            patch.setenv(name, value)
        return (yield)


@pytest.fixture
def run_snippet(tmp_path, monkeypatch, capsys):
    """Runs a snippet as a program, in an empty folder; returns what it defined and what it printed."""
    from accelerate.state import AcceleratorState

    def run(name):
        monkeypatch.chdir(tmp_path)
        monkeypatch.delenv("EVIDENCE_VERIFY", raising=False)  # a snippet is no notebook with a record
        AcceleratorState._reset_state(reset_partial_state=True)  # one program after the other in this process
        defined = runpy.run_path(str(ROOT / "snippets" / name), run_name="__main__")
        return defined, capsys.readouterr().out

    return run
