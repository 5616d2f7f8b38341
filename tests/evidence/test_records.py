"""A record that cannot be trusted is refused with file, line and fix; a write is whole or does not happen."""

import datetime
import json
import os
import re

import pytest

from evidence import records
from evidence.problems import Problem

FIX = "restore it with `git checkout results/tiny/test-machine.json` or make it again with `make record NOTEBOOKS=tiny`"


def refused(repository, what, line=None, fix=FIX):
    with pytest.raises(Problem) as caught:
        records.load_all()
    message = str(caught.value)
    assert re.match(rf"{repository.record}:{line or '[0-9]+'}: ", message), message
    assert what in message
    assert message.endswith(f"Fix: {fix}")


def test_a_sound_record_is_read(repository):
    (record,) = records.load_all()["tiny"]
    assert (record.notebook, record.machine, record.path) == ("tiny", "test-machine", repository.record)
    assert record.data["claims"]["peak-memory"]["value"] == 12.5


def test_a_record_cut_in_half_names_its_file_and_line(repository):
    lines = repository.record.read_text().splitlines(keepends=True)
    half = lines[: len(lines) // 2]
    repository.record.write_text("".join(half))
    refused(repository, "the record is not whole JSON", len(half) + 1)


def test_a_record_cut_anywhere_is_refused(repository):
    repository.edit(repository.record, "of a step that", "of a – step that")
    whole = repository.record.read_bytes()
    for end in range(0, len(whole) - 2, 7):
        repository.record.write_bytes(whole[:end])
        with pytest.raises(Problem, match=r"^results/tiny/test-machine\.json:\d+: "):
            records.load(repository.record)


def test_a_record_cut_inside_a_character_is_refused(repository):
    line = repository.edit(repository.record, "of a step that", "of a – step that")
    content = repository.record.read_bytes()
    repository.record.write_bytes(content[: content.index("–".encode()) + 1])
    refused(repository, "not UTF-8 text", line)


def test_an_empty_record_is_refused(repository):
    repository.record.write_text("")
    refused(repository, "the record is not whole JSON", 1)


@pytest.mark.parametrize("text", ["[]", "null", '"text"', "{}"])
def test_json_that_is_no_record_is_refused(repository, text):
    repository.record.write_text(text)
    refused(repository, "the record: ", 1)


@pytest.mark.parametrize(
    ("old", "new", "what", "at"),
    [
        ('"kind": "traced"', '"kind": "tracd"', "claims/peak-memory/kind: 'tracd' is not one of ['derived', 'traced', 'measured', 'cited']", '"tracd"'),
        ('"unit": "GiB",', "", "claims/peak-memory: 'unit' is a required property", '"peak-memory"'),
        ('"value": 12.5', '"value": "12.5"', "claims/peak-memory/value: '12.5' is not of type 'number'", '"12.5"'),
        ('"value": 12.5', '"vlaue": 12.5', "('vlaue' was unexpected)", '"peak-memory"'),
        ('"value": 12.5', '"at_least": 1', "claim peak-memory: it needs a value, or in its place a reason (because)", '"peak-memory"'),
        ('"value": 12.5', '"value": 12.5, "because": "no reason"', "claim peak-memory: it needs a value, or in its place", "12.5"),
        ('"at_most": 13,', "", "claim peak-memory: it has no bound (at_least, at_most)", '"value": 12.5'),
        ('"kind": "traced"', '"kind": "cited"', "claim peak-memory: a cited figure needs a source", '"value": 12.5'),
        ('"repeats": 5', '"repeat": 5', "claims/step-speed/spread: 'repeats' is a required property", '"spread"'),
        ('"peak-memory"', '"Peak memory"', "'Peak memory' does not match", '"claims"'),
        ('"schema": 3', '"schema": 0', "schema: 3 was expected", '"schema"'),
        ('"schema": 3', '"schema": "1"', "schema: 3 was expected", '"schema"'),
        ('"label": "Test machine"', '"label": null', "machine/label: None is not of type 'string'", '"label"'),
    ],
)  # fmt: skip
def test_a_record_of_another_schema_is_refused_at_the_line(repository, old, new, what, at):
    repository.edit(repository.record, old, new)
    line = next(number for number, text in enumerate(repository.record.read_text().splitlines(), 1) if at in text)
    refused(repository, what, line)


def test_a_record_of_a_newer_schema_asks_for_a_newer_version(repository):
    line = repository.edit(repository.record, '"schema": 3', '"schema": 4')
    fix = "update the project (`git pull`), or make the record again with this version"
    refused(repository, "the record has schema 4, this version reads up to 3", line, fix)


def test_a_record_from_the_future_is_refused(repository):
    today = records.load(repository.record).date
    line = repository.edit(repository.record, today, "2999-01-01")
    refused(repository, "the record is from the future (2999-01-01)", line, f"set this machine's clock, then {FIX}")


def test_a_record_of_tomorrow_is_read_since_it_is_tomorrow_somewhere(repository):
    tomorrow = datetime.datetime.now(datetime.UTC).date() + datetime.timedelta(days=1)
    repository.edit(repository.record, records.load(repository.record).date, tomorrow.isoformat())
    assert records.load_all()


@pytest.mark.parametrize("date", ["2025-13-01", "2025-02-30"])
def test_a_date_that_does_not_exist_is_refused(repository, date):
    line = repository.edit(repository.record, records.load(repository.record).date, date)
    refused(repository, f"there is no date {date}", line)


def test_a_value_that_breaks_its_bound_is_refused_at_its_line(repository):
    line = repository.edit(repository.record, '"value": 12.5', '"value": 14')
    refused(repository, "claim peak-memory: 14\u00a0GiB is over the bound: at most 13\u00a0GiB", line)
    repository.edit(repository.record, '"value": 14', '"value": 12.5')
    line = repository.edit(repository.record, '"value": 2.3', '"value": 1.05')
    refused(repository, "claim step-speed: 1.05x is under the bound: at least 1.1x", line)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_a_value_that_is_not_finite_is_refused_since_it_breaks_no_bound(repository, number):
    line = repository.edit(repository.record, '"value": 2.3', f'"value": {number}')
    refused(repository, f"{number} is not a number", line)


def test_two_claims_of_one_name_are_refused_at_the_second(repository):
    line = repository.edit(repository.record, '"step-speed"', '"peak-memory"')
    refused(repository, "peak-memory stands twice", line)


def test_a_row_of_another_length_than_the_columns_is_refused(repository):
    repository.change_record(lambda data: data["tables"]["by-batch"]["rows"][1].pop())
    refused(repository, "table by-batch: a row of 2 cells under 3 columns")


def test_a_record_in_the_folder_of_another_notebook_says_where_it_belongs(repository):
    (repository.record.parent.parent / "other").mkdir()
    repository.record.rename("results/other/test-machine.json")
    with pytest.raises(Problem) as caught:
        records.load_all()
    assert re.fullmatch(
        r"results/other/test-machine\.json:\d+: the record says notebook tiny and machine test-machine\. "
        r"Fix: move it to results/tiny/test-machine\.json",
        str(caught.value),
    )


def test_a_record_under_the_name_of_another_machine_says_where_it_belongs(repository):
    repository.record.rename("results/tiny/other-machine.json")
    with pytest.raises(
        Problem, match=r"results/tiny/other-machine\.json:\d+: .* Fix: move it to results/tiny/test-machine\.json"
    ):
        records.load_all()


@pytest.mark.parametrize("place", ["results/test-machine.json", "results/old/tiny/test-machine.json"])
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
    older = json.loads(repository.record.read_text())
    older["date"], older["machine"]["name"] = "2020-01-01", "old-machine"
    records.write(older)
    assert [record.machine for record in records.load_all()["tiny"]] == ["test-machine", "old-machine"]


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


def test_writing_a_record_that_reading_would_refuse_keeps_the_old_one(repository):
    before = repository.files()
    bad = json.loads(repository.record.read_text())
    bad["claims"]["peak-memory"]["value"] = 14
    with pytest.raises(Problem, match="over the bound.* Fix: mend the notebook; the stored record is as before"):
        records.write(bad)
    assert repository.files() == before


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


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.01234, "0.0123"), (2.3449, "2.34"), (119.7, "120"), (13979.4, "13,979"), (4, "4"), (4.0, "4"), (None, "–"), (True, "True")],
)  # fmt: skip
def test_a_number_is_shown_by_three_significant_digits(value, shown):
    assert records.format_number(value) == shown


def test_a_unit_never_stands_alone_on_the_next_line():
    assert records.format_value(119.7, "GiB") == "120\u00a0GiB"
    assert [records.format_value(2.3, unit) for unit in ("x", "%", "")] == ["2.3x", "2.3%", "2.3"]


def test_an_exact_value_may_differ_by_one_part_in_a_hundred():
    assert not records.differs(100.9, 100)
    assert records.differs(101.1, 100)
    assert records.differs(98.9, 100)
    assert not records.differs(0, 0)
    assert records.differs(0.1, 0)
