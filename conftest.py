"""For tests and for notebooks run as tests: this checkout's package, one folder that the workers share, and no model hub."""

import functools
import json
import os
import re
import subprocess
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


PROVED = ROOT / "tests" / "proved.json"  # see tests/chosen.py, which also gives the options


def pytest_addoption(parser):
    group = parser.getgroup("which tests")
    group.addoption("--part", choices=["all", "core", "rest"], default="all", help="the core, or what is not in it")
    group.addoption("--whole", action="append", default=[], metavar="FILE", help="with --part=core: a file of which all tests run")


def in_core(item):
    return not item.nodeid.startswith("tests/pages/") and not item.get_closest_marker("nightly")


def pytest_collection_modifyitems(config, items):
    """Leaves out what is not asked for. The files that take longest come first, so that no worker is left alone with one; where the time
    is limited those that have gone unproved for longest. A run of all notebooks that misses one is broken, not green."""
    part, whole = config.getoption("part"), tuple(config.getoption("whole"))

    def asked(item):
        named = bool(whole) and item.nodeid.startswith(whole)
        return part == "all" or (part == "core" and (named or in_core(item))) or (part == "rest" and not in_core(item))

    left_out = [item for item in items if not asked(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if asked(item)]
    config.stash[LEFT_OUT] = {item.nodeid.split("::")[0] for item in left_out}
    proved = json.loads(PROVED.read_text(encoding="utf-8"))

    def place(item):
        one = proved.get(item.nodeid.split("::")[0], {})
        return (one.get("day", "") if "TESTS_UNTIL" in os.environ else "", -one.get("seconds", 0))

    items.sort(key=place)
    if config.args == ["notebooks"]:
        found = {item.path.stem for item in items if item.path.suffix == ".ipynb"}
        missing = {path.stem for path in (ROOT / "notebooks").glob("*.ipynb")} - found
        if missing or not found:
            what = f"no test was collected from the notebooks {sorted(missing)}: is nbval installed and switched on?"
            raise pytest.UsageError(what)


LEFT_OUT = pytest.StashKey[set]()
NOT_BEGUN = f"not begun, since {os.environ.get('MINUTES')} minutes were over"


class Progress:
    """Says of each test file when it ends what it took, and about how long the rest will take: with many workers, the dots of a long run
    do not tell where it is."""

    def __init__(self, config):
        self.config, self.left, self.took, self.failed = config, {}, {}, {}
        self.known = json.loads(PROVED.read_text(encoding="utf-8"))

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
            if not self.left[file] and self.took[file] > 5:
                failed = f", {self.failed[file]} failed" if self.failed[file] else ""
                ended = sum(not left for left in self.left.values())
                self.say(f"{file}: {self.took[file]:.0f} s{failed}; {ended} of {len(self.left)} files, about {self.rest() / 60:.0f} minutes to go")

    def rest(self):
        """Seconds of the files that have not ended, by what they took elsewhere, for all workers together."""
        key = "core" if self.config.getoption("part") == "core" else "seconds"
        seconds = {file: self.known.get(file, {}).get(key, self.known.get(file, {}).get("seconds", 30)) for file in self.left}
        done = {file: one for file, one in seconds.items() if not self.left[file]}
        speed = sum(self.took[file] for file in done) / (sum(done.values()) or 1)  # of this machine beside that one
        workers = len(self.config.pluginmanager.get_plugin("dsession").nodemanager.specs)
        return speed * sum(one for file, one in seconds.items() if file not in done) / workers


def pytest_configure(config):
    if config.getoption("dist", "no") != "no" and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Progress(config))


@functools.cache
def _parses_the_site(file):
    return file.startswith("tests/evidence/site/") and bool(re.search(r"\bparsed\b", (ROOT / file).read_text(encoding="utf-8")))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """A file stays with one worker, for its tests share what they made, and so do the files that parse every page of the built site,
    half a minute. Only the notebooks of test_exact.py share nothing."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Files(LoadFileScheduling):
        def _split_scope(self, nodeid):
            file = super()._split_scope(nodeid)
            return nodeid if file.endswith("/test_exact.py") else "the parsed site" if _parses_the_site(file) else file

    return Files(config, log)


def not_begun(reporter):
    """The files with tests that were not begun."""
    skipped = reporter.stats.get("skipped", [])
    return {report.nodeid.split("::")[0] for report in skipped if NOT_BEGUN in str(report.longrepr)}


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    """A worker that ended has said which files it left tests out of."""
    said = set(getattr(node, "workeroutput", {}).get("left_out", ()))
    node.config.stash[LEFT_OUT] = node.config.stash.get(LEFT_OUT, set()) | said


def pytest_sessionfinish(session):
    """A run that was cut off is red, whatever came out of the tests that it began."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left_out"] = sorted(session.config.stash.get(LEFT_OUT, set()))
        return
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter and not_begun(reporter) and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.INTERRUPTED


def pytest_terminal_summary(terminalreporter, config):
    """Names the files that were cut off, and leaves what this run proved: `make proved` takes it over into tests/proved.json."""
    late = not_begun(terminalreporter)
    if late:
        terminalreporter.write_line(f"{NOT_BEGUN}: {', '.join(sorted(late))}. Without MINUTES they run", red=True)
    left_out = config.stash.get(LEFT_OUT, set())
    files = {}
    for outcome, kept in terminalreporter.stats.items():
        for report in (report for report in kept if isinstance(report, pytest.TestReport)):
            file = report.nodeid.split("::")[0]
            one = files.setdefault(file, {"seconds": 0.0, "passed": True, "whole": file not in left_out})
            one["seconds"] += report.duration
            one["passed"] &= outcome not in ("failed", "error")
    if not files or hasattr(config, "workerinput"):
        return
    for file, one in files.items():
        one["seconds"] = round(one["seconds"], 1)
        one["whole"] &= file not in late
    part = config.getoption("part")
    found = {"commit": _commit(), "day": time.strftime("%Y-%m-%d"), "files": dict(sorted(files.items()))}
    folder = ROOT / "out" / "tests"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{part}.json").write_text(f"{json.dumps(found, indent=0)}\n", encoding="utf-8")


def _commit():
    """The commit that the files of this checkout are; None where one is edited."""
    said = [subprocess.run(["git", *asked], cwd=ROOT, capture_output=True, text=True).stdout.strip()
            for asked in (["status", "--porcelain"], ["rev-parse", "HEAD"])]  # fmt: skip
    return None if said[0] else said[1] or None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item):
    """The kernel of a notebook starts in the setup of its first cell, with the packages that only this notebook has."""
    if time.time() > float(os.environ.get("TESTS_UNTIL", "inf")):
        pytest.skip(NOT_BEGUN)
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
