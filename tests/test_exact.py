"""What is the same on every machine is computed again: each notebook runs without the cells that measure, and every figure
that it derives, traces or cites must be the one of results/<notebook>/exact.json."""

import programs
import pytest

from evidence import notebooks, records, runs

NAMES = [name for name in notebooks.names() if (records.RESULTS / name / f"{records.ANY_MACHINE}.json").exists()]


@pytest.mark.parametrize("name", NAMES)
def test_what_is_derived_traced_and_cited_comes_out_as_recorded(name, monkeypatch):
    programs.kernel(monkeypatch, notebooks.FOLDER / f"{name}.py")
    assert runs.recompute(name, say=lambda text: None) > 0
