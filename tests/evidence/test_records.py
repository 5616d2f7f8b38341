"""Records are found, compared and written whole, or not at all."""

import os
import re

import pytest

from evidence import records
from evidence.problems import Problem


def test_sound_records_are_read(repository):
    found = {record.machine: record for record in records.load_all()["tiny"]}
    assert found["test-cpu-2core"].path == repository.record and found[""].path == repository.exact
    assert found["test-cpu-2core"].data["claims"]["step-speed"]["value"] == 2.3
    assert found[""].data["claims"]["peak-memory"]["value"] == 12.5 and "machine" not in found[""].data


def test_a_record_in_the_folder_of_another_notebook_says_where_it_belongs(repository):
    (repository.record.parent.parent / "other").mkdir()
    repository.record.rename("results/other/test-cpu-2core.json")
    with pytest.raises(
        Problem, match=r"results/other/test-cpu-2core\.json:\d+: .* results/tiny/test-cpu-2core\.json: move it"
    ):
        records.load_all()


def test_a_record_under_the_name_of_another_machine_says_where_it_belongs(repository):
    repository.record.rename("results/tiny/other-machine.json")
    with pytest.raises(
        Problem, match=r"results/tiny/other-machine\.json:\d+: .* results/tiny/test-cpu-2core\.json: move it"
    ):
        records.load_all()


@pytest.mark.parametrize("place", ["results/test-cpu-2core.json", "results/old/tiny/test-cpu-2core.json"])
def test_a_record_outside_its_notebook_s_folder_is_not_overlooked(repository, place):
    os.makedirs(os.path.dirname(place), exist_ok=True)
    repository.record.rename(place)
    with pytest.raises(
        Problem, match=f"{place}: a record in the wrong folder. Fix: move it to results/<notebook>/<machine>.json"
    ):
        records.load_all()


def test_no_record_is_an_empty_answer_that_the_checks_refuse(tmp_path):
    assert records.load_all(tmp_path) == {}


def test_the_newest_record_comes_first(repository):
    repository.record_of_another_machine(date="2025-06-01")
    assert records.load_all()["tiny"][-1].machine == "other-cpu-2core"


def test_an_unknown_claim_table_or_notebook_gets_the_nearest_name(repository):
    found = records.load_all()
    with pytest.raises(
        LookupError, match=r"no claim 'peak-memry' in the records of tiny \(did you mean peak-memory\?\)"
    ):
        records.find(found, "tiny", "peak-memry")
    with pytest.raises(LookupError, match=r"no table 'by-bach' in the records of tiny \(did you mean by-batch\?\)"):
        records.find(found, "tiny", "by-bach", "tables")
    with pytest.raises(LookupError, match=r"no record of a notebook 'tinny' \(did you mean tiny\?\)"):
        records.find(found, "tinny", "peak-memory")


def test_a_record_that_reading_would_refuse_is_not_prepared(repository):
    bad = records.load(repository.record).data
    bad["claims"]["step-speed"]["value"] = 1
    with pytest.raises(Problem, match="under the bound.* Fix: mend the notebook; the stored record is as before"):
        records.prepared(bad)


def test_an_edit_by_hand_breaks_the_seal(repository):
    assert records.changed_by_hand(records.load(repository.record)) is None
    repository.edit(repository.record, '"value": 2.3', '"value": 2.4')
    problem = str(records.changed_by_hand(records.load(repository.record)))
    assert re.match(rf"{repository.record}:\d+: edited by hand since its run wrote it", problem)


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


def test_of_two_files_neither_is_replaced_while_one_is_not_on_the_disk(tmp_path, monkeypatch):
    paths = [tmp_path / "one", tmp_path / "two"]
    for path in paths:
        path.write_text("old")
    calls, fsync = [], os.fsync

    def interrupt_second(handle):
        calls.append(handle)
        if len(calls) == 2:
            raise KeyboardInterrupt
        fsync(handle)

    monkeypatch.setattr(os, "fsync", interrupt_second)
    with pytest.raises(KeyboardInterrupt):
        records.write_together(dict.fromkeys(paths, "new"))
    assert [path.read_text() for path in paths] == ["old", "old"]
    assert sorted(tmp_path.iterdir()) == paths


def test_a_written_file_is_whole_and_readable_by_all(tmp_path):
    path = tmp_path / "new" / "record.json"
    records.write_atomically(path, "text – text")
    assert path.read_text(encoding="utf-8") == "text – text"
    assert path.stat().st_mode & 0o777 == 0o644
    assert list(path.parent.iterdir()) == [path]


def test_an_exact_value_may_differ_by_one_part_in_a_hundred():
    assert not records.differs(100.9, 100)
    assert records.differs(101.1, 100)
    assert records.differs(98.9, 100)
    assert not records.differs(0, 0)
    assert records.differs(0.1, 0)
