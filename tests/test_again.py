"""A measured bound that breaks in few repeats decides nothing: all repeats do."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from evidence import notebooks

TESTS = Path(__file__).resolve().parent
FEW = '"EVIDENCE_SECONDS" in os.environ'


@pytest.fixture
def run(repository, monkeypatch, quick_torch):
    """Runs the tiny notebook as the tests do, with the speed that its measured claim states."""

    def run(speed):
        repository.edit(repository.source, ", 2.3,", f", {speed},")
        repository.edit(repository.source, "peak =", "import os\n\npeak =")
        with monkeypatch.context() as record:
            record.delenv("EVIDENCE_SECONDS")
            notebooks.record("tiny", say=lambda text: None)
        environment = os.environ | {
            "EVIDENCE_VERIFY": str(Path("results").resolve()),
            "PYTHONPATH": os.pathsep.join([str(TESTS), os.environ["PYTHONPATH"]]),
            "ASKED": "again",
        }
        command = [sys.executable, "-m", "pytest", "-p", "again", "--nbval-lax", "--nbval-kernel-name=python3"]
        return subprocess.run([*command, "notebooks"], env=environment, capture_output=True, text=True)

    return run


def test_a_bound_that_breaks_in_few_repeats_and_holds_in_all_passes_with_a_warning(run):
    done = run(f"1.0 if {FEW} else 2.3")
    assert done.returncode == 0, done.stdout
    assert "5 passed, 1 warning" in done.stdout
    assert "measured again by all repeats: claim step-speed does not hold" in done.stdout


def test_a_bound_that_breaks_in_all_repeats_too_fails_and_both_runs_are_shown(run):
    done = run('1.0 if "ASKED" in os.environ else 2.3')
    assert done.returncode == 1
    assert "notebooks/tiny.ipynb::Cell 3" in done.stdout
    assert re.search(
        r"Measured again by all repeats.*notebooks/tiny\.py:\d+: cell 5 raised.*1x is under", done.stdout, re.S
    )
