"""Records are found, compared and written whole, or not at all."""

import os

import pytest

from evidence import records
from evidence.problems import Problem


@pytest.mark.parametrize(
    ("place", "what"),
    [
        ("results/other/test-cpu-2core.json", r":\d+: .* results/tiny/test-cpu-2core\.json: move it"),
        ("results/tiny/other-machine.json", r":\d+: .* results/tiny/test-cpu-2core\.json: move it"),
        ("results/test-cpu-2core.json", ": a record in the wrong folder. Fix: move it to results/<notebook>/<machine>.json"),
        ("results/old/tiny/test-cpu-2core.json", ": a record in the wrong folder. Fix: move it to results/<notebook>/<machine>.json"),
    ],
)
def test_a_record_in_the_wrong_place_says_where_it_belongs(repository, place, what):
    os.makedirs(os.path.dirname(place), exist_ok=True)
    repository.record.rename(place)
    with pytest.raises(Problem, match=place + what):
        records.load_all()


def test_the_newest_record_comes_first(repository):
    repository.record_of_another_machine(date="2025-06-01")
    assert records.load_all()["tiny"][-1].machine == "other-cpu-2core"


def test_a_record_that_reading_would_refuse_is_not_prepared(repository):
    bad = records.load(repository.record).data
    bad["claims"]["step-speed"]["value"] = 1
    with pytest.raises(Problem, match="under the bound.* Fix: mend the notebook; the stored record is as before"):
        records.prepared(bad)


@pytest.mark.parametrize("function", ["fsync", "chmod", "replace"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_an_interrupted_write_leaves_the_old_file_whole_and_nothing_beside_it(tmp_path, monkeypatch, function, error):
    path = tmp_path / "record.json"
    path.write_text("old")

    def interrupt(*arguments):
        raise error

    monkeypatch.setattr(os, function, interrupt)
    with pytest.raises(error):
        records.write_atomically(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_written_file_is_whole_and_readable_by_all(tmp_path):
    path = tmp_path / "new" / "record.json"
    records.write_atomically(path, "text – text")
    assert path.read_text(encoding="utf-8") == "text – text"
    assert path.stat().st_mode & 0o777 == 0o644
    assert list(path.parent.iterdir()) == [path]


def cells(*rows, columns=("batch", "plain")):
    return {"columns": dict.fromkeys(columns, "Words"), "rows": rows}


TWO = cells([1, 3.0], [2, None])


@pytest.mark.parametrize(
    ("here", "there", "found"),
    [
        ({"value": 100.9}, {"value": 100}, None),  # an exact value may differ by one part in a hundred
        ({"value": 101.1}, {"value": 100}, ("", "101.1", "100")),
        ({"value": 98.9}, {"value": 100}, ("", "98.9", "100")),
        ({"value": 0}, {"value": 0}, None),
        ({"value": 0.001}, {"value": 0}, ("", "0.001", "0")),
        ({"value": 12.5}, {"because": "no tracer here"}, ("", "12.5", "nothing")),
        ({"because": "no tracer here"}, {"value": 12.5}, ("", "nothing", "12.5")),
        (cells([1, 3.01], [2, None]), TWO, None),
        (cells([1, 3.5], [2, None]), TWO, ("row 1, plain", "3.5", "3")),
        (cells([1, 3.0], [2, 4.0]), TWO, ("row 2, plain", "4", "nothing")),
        (cells([1, None], [2, None]), TWO, ("row 1, plain", "nothing", "3")),
        (cells([1, "three"], [2, None]), TWO, ("row 1, plain", "three", "3")),
        (cells([2, None], [1, 3.0]), TWO, ("row 1, batch", "2", "1")),
        (cells([1, 3.0], [2, None], [4, 9.0]), TWO, ("row 3, batch", "4", "no such cell")),
        (cells([1, 3.0]), TWO, ("row 2, batch", "no such cell", "2")),
        (cells([1], [2], columns=["batch"]), TWO, ("row 1, plain", "no such cell", "3")),
    ],
)
def test_the_first_difference_of_two_entries_is_named_with_its_place(here, there, found):
    assert records.difference(here, there) == found
