"""The workflow that runs the notebooks on a GPU, step by step on a stand-in for its runner: a small repository, a python3 whose
torch says what a GPU says, and a pip that only writes down what it is asked for."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from evidence import notebooks, records
from evidence.site import addresses

ROOT = Path(__file__).resolve().parent.parent
WORKFLOW = yaml.safe_load((ROOT / ".github" / "workflows" / "notebooks-gpu.yml").read_text())
STEPS = WORKFLOW["jobs"]["notebooks"]["steps"]
TORCH = """\
from types import SimpleNamespace as Names

__version__ = "2.13.0"
version = Names(cuda={cuda!r}, hip=None)
cuda = Names(
    is_available=lambda: {there}, get_device_name=lambda: "NVIDIA Stand-in",
    get_device_properties=lambda number: Names(name="NVIDIA Stand-in", total_memory=80 * 2**30, major=9, minor=0),
)
"""
PYTHON = """\
#!/bin/sh
if [ "$1 $2 $3" = "-m pip install" ]; then shift 3; echo "$@" >> "{asked}"; exit 0; fi
PYTHONPATH="{folder}:$PYTHONPATH" exec "{python}" "$@"
"""
BROKEN = ("2.3,", "1.05,")  # the measured claim of the small notebook, and a value under its bound


class Runner:
    """Runs the steps as GitHub does: in order, until one fails that may not; `outcomes` by name of the step."""

    def __init__(self, folder, gpu=True):
        self.asked, self.outcomes, self.said, self.failed = folder / "asked", {}, {}, False
        (folder / "torch.py").write_text(TORCH.format(there=gpu, cuda="13.0" if gpu else None))
        python = folder / "bin" / "python3"
        python.parent.mkdir()
        python.write_text(PYTHON.format(asked=self.asked, folder=folder, python=sys.executable))
        python.chmod(0o755)
        kept = {key: value for key, value in os.environ.items() if not re.match("MAKE|MFLAGS|PYTHON|EVIDENCE", key)}
        self.environment = kept | {"PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}"}

    def run(self):
        for step in STEPS:
            name = step.get("name") or step.get("run") or step["uses"].split("@")[0]
            if not self.wanted(step.get("if", "success()")):
                self.outcomes[name] = self.outcomes[step.get("id", name)] = "skipped"
                continue
            passed = self.passes(name, step)
            self.outcomes[name] = self.outcomes[step.get("id", name)] = "success" if passed else "failure"
            self.failed |= not passed and not step.get("continue-on-error", False)
        return self

    def wanted(self, condition):
        if condition == "success()":
            return not self.failed
        assert condition == "${{ !cancelled() && steps.notebooks.outcome != 'skipped' }}", condition
        return self.outcomes["notebooks"] != "skipped"

    def passes(self, name, step):
        if "run" not in step:
            return True
        given = {key: self.filled(value) for key, value in step.get("env", {}).items()}
        done = subprocess.run(
            ["bash", "-e", "-c", step["run"]],
            env=self.environment | given,
            capture_output=True,
            text=True,
            timeout=300,
        )
        self.said[name] = done.stdout + done.stderr
        return done.returncode == 0

    def filled(self, value):
        return re.sub(r"\$\{\{ steps\.(\w+)\.outcome \}\}", lambda asked: self.outcomes[asked[1]], value)


@pytest.fixture
def clone(repository, monkeypatch):
    """The small repository with our code, as a runner checks it out, and a .venv for `make check`."""
    for name in ("evidence", "dryrun"):
        shutil.copytree(ROOT / name, name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("Makefile", "conftest.py"):
        shutil.copy(ROOT / name, name)
    bin_ = Path(".venv/bin")
    bin_.mkdir(parents=True)
    for tool, program in (("python", sys.executable), ("ruff", "/bin/true"), ("mypy", "/bin/true")):
        (bin_ / tool).write_text(f'#!/bin/sh\nexec "{program}" "$@"\n')
        (bin_ / tool).chmod(0o755)
    Path(".venv/site.stamp").touch()
    addresses.add()
    return repository


def add_broken(repository):
    """A second notebook, whose measured claim does not hold on the runner."""
    text = repository.source.read_text().replace('start("tiny")', 'start("broken")').replace(*BROKEN)
    broken = repository.source.with_stem("broken")
    broken.write_text(text)
    notebook = repository.notebook.read_text().replace('start(\\"tiny\\")', 'start(\\"broken\\")').replace(*BROKEN)
    broken.with_suffix(".ipynb").write_text(notebook)
    shutil.copytree("results/tiny", "results/broken")
    for path in Path("results/broken").glob("*.json"):
        path.write_text(path.read_text().replace('"notebook": "tiny"', '"notebook": "broken"'))


def test_where_all_is_well_each_step_passes_and_a_record_of_the_gpu_is_handed_back(clone, tmp_path_factory):
    runner = Runner(tmp_path_factory.mktemp("runner")).run()
    assert set(runner.outcomes.values()) == {"success"} and not runner.failed, runner.said
    assert runner.asked.read_text().split() == [".[examples]", "nbval", "pytest", "pytest-timeout"]
    assert "NVIDIA Stand-in" in "".join(runner.said.values())
    assert re.search(r"\b6 passed\b", runner.said["Run every notebook as a test"])
    made = records.load("results/tiny/nvidia-stand-in.json")
    assert made.data["machine"]["gpu"] == "NVIDIA Stand-in" and made.data["software"]["cuda"] == "13.0"
    assert "make notebooks: success, make record: success, make check: success" in runner.said["Say which of them held"]


def test_a_notebook_that_fails_is_named_and_costs_the_others_nothing(clone, tmp_path_factory):
    add_broken(clone)
    runner = Runner(tmp_path_factory.mktemp("runner")).run()
    told = runner.said["Run every notebook as a test"]
    assert re.search(r"FAILED notebooks/broken\.ipynb::Cell \d+", told), told
    assert re.search(r"\b1 failed, 11 passed\b", told)
    told = runner.said["Make the records"]
    assert "notebooks/broken.py:" in told and "1.05x is under the bound: at least 1.1x" in told, told
    assert Path("results/tiny/nvidia-stand-in.json").exists()
    assert not Path("results/broken/nvidia-stand-in.json").exists()
    assert runner.failed and runner.outcomes["Hand back the executed notebooks and their records"] == "success"
    assert "make notebooks: failure, make record: failure" in runner.said["Say which of them held"]


def test_a_notebook_whose_own_packages_the_runner_lacks_is_left_out_and_said(clone, tmp_path_factory):
    other = clone.source.with_stem("other")
    other.write_text(clone.source.read_text().replace('start("tiny")', 'start("other")'))
    other.with_suffix(".ipynb").write_text(
        clone.notebook.read_text().replace('start(\\"tiny\\")', 'start(\\"other\\")')
    )
    Path("requirements/other.txt").touch()
    runner = Runner(tmp_path_factory.mktemp("runner")).run()
    assert [runner.outcomes[step] for step in ("notebooks", "record")] == ["success", "success"], runner.said
    told = runner.said["Run every notebook as a test"]
    assert re.search(r"\b6 passed, 6 skipped\b", told)
    assert "left out: notebooks/other.py: the packages of this notebook are not in .venv/other" in told
    assert "left out: notebooks/other.py" in runner.said["Make the records"]


def test_a_broken_driver_ends_it_before_a_notebook_runs(clone, tmp_path_factory):
    runner = Runner(tmp_path_factory.mktemp("runner"), gpu=False).run()
    assert runner.failed and "torch sees no GPU" in "".join(runner.said.values())
    assert {runner.outcomes[step] for step in ("notebooks", "record", "check")} == {"skipped"}
    assert runner.outcomes["Hand back the executed notebooks and their records"] == "skipped"


def test_the_steps_come_in_their_order_and_hold_no_secret():
    runs = [step.get("run", "") for step in STEPS]
    order = [next(n for n, run in enumerate(runs) if words in run)
             for words in ("pip install", "cuda.is_available()", "make notebooks", "make record", "make check")]  # fmt: skip
    assert order == sorted(order)
    assert "secrets" not in str(WORKFLOW) and WORKFLOW["permissions"] == {"contents": "read"}
    assert notebooks.FOLDER.as_posix() in str(STEPS)
