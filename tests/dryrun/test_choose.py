"""Which fit is taken, and how wide a band is: by sources that had no part in either."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from dryrun.cost import timing
from fitting import __main__ as command
from fitting import bands, choose, held_out, judged

ROWS = [{"id": f"{source}{number}", "source": source, "group": source} for source, count in (("a", 40), ("b", 20), ("c", 20), ("d", 8), ("e", 8), ("f", 4)) for number in range(count)]


class Data(SimpleNamespace):
    """Rows whose error is that of the constants, which are a single number."""

    def errors(self, constants):
        return np.array([row["bias"] - constants for row in self.rows])


def data(**bias):
    rows = [row | {"bias": bias.get(row["source"], 0.0) + 0.05 * (number % 7 - 3)} for number, row in enumerate(ROWS)]
    return Data(rows=rows, classes=["decode"] * len(rows))


def test_a_fold_holds_whole_sources():
    of = choose.folds(data())
    assert all(len({fold for fold, row in zip(of, ROWS) if row["source"] == source}) == 1 for source in "abcdef")
    assert len(set(of.tolist())) == choose.FOLDS


def test_rows_of_a_fold_have_no_part_in_the_choice_that_judges_them():
    """One choice takes the mean, which is best for all but the largest source; the other suits that source alone."""
    asked = []

    def of(seen, choice, start):
        asked.append((choice.name, seen.copy()))
        return 0.0 if choice.name == "tables" else 0.5

    found = data(a=0.5)
    of_fold, _, reached = choose.nested(found, of)
    mine = choose.folds(found)[0]
    assert of_fold[mine].name == "tables"  # by the others alone; by all rows the second might be
    assert set(reached) == {choice.name for choice in choose.CHOICES}
    assert any(not seen[choose.folds(found) == mine].any() for _, seen in asked)


def test_the_rows_of_a_large_source_weigh_less_each():
    tables, sources = choose.CHOICES[:2]
    for choice, ratio in ((tables, math.sqrt(4 / 40)), (sources, math.sqrt(4 / 40) * (4 / 40) ** 0.25)):
        weights = choose.weights(ROWS, choice)
        assert weights[0] / weights[-1] == pytest.approx(ratio)


def test_rounds_of_one_benchmark_are_one_source():
    assert held_out.source_of({"source": "mlcommons/training_results_v5.0"}) == held_out.source_of({"source": "mlcommons/training_results_v5.1"})
    assert held_out.source_of({"source": "somebody/training_results_v5.0"}) == "somebody/training_results_v5.0"


def test_a_band_is_stretched_until_nine_in_ten_rows_of_other_sources_are_inside():
    spread = np.linspace(-0.1, 0.1, 40)
    apart = {"decode": {name: list(shift + spread) for name, shift in zip("abcdef", (-0.4, -0.2, 0.0, 0.1, 0.3, 0.6))}}
    alike = {"decode": {name: list(spread * 1.0) for name in "abcdef"}}
    assert 0.9 < bands.stretch(alike, "decode", set()) < 1.05
    assert bands.stretch(apart, "decode", set()) > 1.05
    assert bands.stretch({"decode": {"a": list(spread)}}, "decode", set()) == 1.0  # one source says nothing of another


def test_a_stretched_band_keeps_its_middle():
    low, high = timing.stretched((0.8, 1.5), 1.5)
    assert low * high == pytest.approx(0.8 * 1.5) and high / low == pytest.approx((1.5 / 0.8) ** 1.5)


def test_a_source_has_no_part_in_the_stretch_of_its_own_band():
    known = timing.fitted()
    assert known["stretched"] == bands.stretched(known["errors"])
    assert known["choice"] in {choice.name for choice in choose.CHOICES}


def test_a_fit_that_nobody_explains_changes_nothing(tmp_path, monkeypatch):
    files = {tmp_path / name: f"before {name}" for name in ("constants.json", "judged.json")}
    worse = [judged.Judged("x", "decode", 2.0, 1.9, 2.1, 0, 0)]
    monkeypatch.delenv("WHY", raising=False)
    monkeypatch.setattr(judged, "write", lambda rows: [path.write_text("after") for path in files])
    monkeypatch.setattr(judged, "read", iter([[judged.Judged("x", "decode", 1.1, 0.9, 1.3, 0, 0)], worse]).__next__)
    with pytest.raises(SystemExit, match="decode: worse on unseen sources, and nobody says why: the constants stay as they were"):
        command.again([{"id": "x", "seconds": 1.0}], files)
    assert {path: path.read_text() for path in files} == files


def test_a_worse_error_and_fewer_rows_inside_are_both_told():
    before, after = [judged.Judged("x", "decode", 1.1, 0.9, 1.3, 0, 0)], [judged.Judged("x", "decode", 1.3, 1.2, 1.4, 0, 0)]
    assert judged.worse(before, after, {"x": 1.0}) == {"decode": {"median error": (10.0, 30.0), "inside the band": (100, 0)}}
    assert not judged.worse(after, before, {"x": 1.0})
