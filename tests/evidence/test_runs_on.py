"""What a notebook runs on is said once, in its head, and read by the list, the page and the workflow."""

import re
import subprocess
import sys

import pytest
from built import ROOT

from evidence import notebooks, runs_on
from evidence.problems import Problem


@pytest.fixture(autouse=True)
def in_the_repository(monkeypatch):
    monkeypatch.chdir(ROOT)


def test_every_notebook_does_what_its_head_says():
    for name in notebooks.names():
        assert runs_on.sentence(name) and list(runs_on.check(name)) == []


def test_a_head_that_says_nothing_is_refused(repository):
    with pytest.raises(Problem, match="does not say what it runs on. Fix: write `runs_on:`"):
        runs_on.of("tiny")


def test_the_workflow_asks_for_the_notebooks_that_use_a_gpu():
    done = subprocess.run([sys.executable, "-m", "evidence.runs_on", "gpu"], capture_output=True, text=True, check=True)
    assert done.stdout.split() == runs_on.named("gpu") and "generate_speed" in done.stdout.split()
    assert not {"gpu_steps", "cpu_training", "how_it_works"} & set(done.stdout.split())


def test_the_stored_notebook_says_it_too():
    for name in notebooks.names():
        stored = (ROOT / "notebooks" / f"{name}.ipynb").read_text()
        assert re.search(rf'"runs_on": "{runs_on.of(name)[0]}\b', stored), name
