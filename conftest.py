"""For tests and for notebooks run as tests: this checkout's package, one folder that the workers share, and no model hub."""

import json
import os
import sys
import tempfile
import time
from pathlib import Path

import pytest

from evidence import notebooks
from evidence.problems import Problem

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT / "tests"))  # built.py and programs.py, which several folders of tests use
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
os.environ["HF_HUB_OFFLINE"] = "1"  # no test may depend on what a hub serves today
if "MINUTES" in os.environ:  # for a machine that is lent for so long: the workers ask the same clock
    os.environ.setdefault("TESTS_UNTIL", str(time.time() + 60 * float(os.environ["MINUTES"])))
if "TEST_FOLDER" not in os.environ:
    shared = tempfile.TemporaryDirectory(prefix="tests-")
    os.environ["TEST_FOLDER"] = shared.name


def pytest_collection_modifyitems(config, items):
    """The files that take longest come first, so that no worker is left alone with one; last where the time is limited, so that most
    are run. A run of all notebooks that misses one is broken, not green."""
    seconds, last = json.loads((ROOT / "tests" / "seconds.json").read_text(encoding="utf-8")), "TESTS_UNTIL" in os.environ
    items.sort(key=lambda item: (1 if last else -1) * seconds.get(item.nodeid.split("::")[0], 0))
    if config.args == ["notebooks"]:
        found = {item.path.stem for item in items if item.path.suffix == ".ipynb"}
        missing = {path.stem for path in (ROOT / "notebooks").glob("*.ipynb")} - found
        if missing or not found:
            what = f"no test was collected from the notebooks {sorted(missing)}: is nbval installed and switched on?"
            raise pytest.UsageError(what)


TOO_LATE = f"not run to their end, since {os.environ.get('MINUTES')} minutes were over"


class Progress:
    """Says of each test file when it ends what it took: with many workers, the dots of a long run do not tell where it is."""

    def __init__(self, config):
        self.config, self.left, self.took, self.failed = config, {}, {}, {}

    def say(self, text):
        self.config.pluginmanager.get_plugin("terminalreporter").write_line(f"\n{text}")

    def pytest_xdist_node_collection_finished(self, ids):
        if not self.left:  # each worker collects the same
            for file in (one.split("::")[0] for one in ids):
                self.left[file] = self.left.get(file, 0) + 1

    def pytest_runtest_logreport(self, report):
        file = report.nodeid.split("::")[0]
        self.took[file] = self.took.get(file, 0) + report.duration
        self.failed[file] = self.failed.get(file, 0) + report.failed
        if report.failed:
            self.say(f"failed: {report.nodeid}")
        if report.when == "teardown" and file in self.left:
            self.left[file] -= 1
            if not self.left[file] and self.took[file] > 10:
                failed = f", {self.failed[file]} failed" if self.failed[file] else ""
                self.say(f"{file}: {self.took[file]:.0f} s{failed}")


def pytest_configure(config):
    if config.getoption("dist", "no") != "no" and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Progress(config))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """A file stays with one worker, for its tests share what they made. Only the notebooks of test_exact.py share nothing."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Files(LoadFileScheduling):
        def _split_scope(self, nodeid):
            return nodeid if "/test_exact.py::" in nodeid else super()._split_scope(nodeid)

    return Files(config, log)


def pytest_terminal_summary(terminalreporter, config):
    """Leaves the seconds of each test file, the slowest first: for tests/seconds.json, by which a run is split (tests/changed.py). Names
    the files that were not run to their end because the time was over."""
    late = {report.nodeid.split("::")[0] for report in terminalreporter.stats.get("skipped", []) if TOO_LATE in str(report.longrepr)}
    if late:
        terminalreporter.write_line(f"{TOO_LATE}: {', '.join(sorted(late))}. Without MINUTES they run", red=True)
    seconds = {}
    for report in (report for kept in terminalreporter.stats.values() for report in kept if isinstance(report, pytest.TestReport)):
        file = report.nodeid.split("::")[0]
        seconds[file] = seconds.get(file, 0) + report.duration
    if seconds:
        (ROOT / "out").mkdir(exist_ok=True)
        slowest_first = sorted(seconds.items(), key=lambda entry: -entry[1])
        text = json.dumps({file: round(took, 1) for file, took in slowest_first}, indent=0)
        (ROOT / "out" / "test_seconds.json").write_text(f"{text}\n", encoding="utf-8")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item):
    """The kernel of a notebook starts in the setup of its first cell, with the packages that only this notebook has."""
    if time.time() > float(os.environ.get("TESTS_UNTIL", "inf")):
        pytest.skip(TOO_LATE)
    if item.path.suffix != ".ipynb":
        return (yield)
    try:
        path = notebooks.kernel_path(item.path.stem)
    except Problem as problem:
        if item.config.args != ["notebooks"]:
            raise
        pytest.skip(f"left out: {problem}")  # as `make record` leaves it out
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", path)
        patch.setenv("EVIDENCE_RUN", item.path.stem)
        return (yield)
