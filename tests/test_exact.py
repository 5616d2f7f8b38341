"""What is the same on every machine is computed again: each notebook runs without the cells that measure, and every figure
that it derives, traces or cites must be the one of results/<notebook>/exact.json."""

from pathlib import Path

import programs
import pytest

from evidence import notebooks, records, runs

NAMES = [name for name in notebooks.names() if (records.RESULTS / name / f"{records.ANY_MACHINE}.json").exists()]


IN_CORE = {"gpu_time", "hardware"}  # what is predicted, traced and derived


@pytest.mark.parametrize("name", [pytest.param(name, marks=[] if name in IN_CORE else pytest.mark.nightly) for name in NAMES])
def test_what_is_derived_traced_and_cited_comes_out_as_recorded(name, monkeypatch):
    if Path("requirements", f"{name.replace('_', '-')}.txt").is_file():
        programs.packages(name)
    programs.kernel(monkeypatch, notebooks.FOLDER / f"{name}.py")
    assert runs.recompute(name, say=lambda text: None) > 0
