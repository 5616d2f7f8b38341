"""`make add` checks a record that somebody sent and puts it in its place; `summary` says what a pull request changes."""

import json
import subprocess

import pytest

from evidence import contributions, machine, notebook_lint, records
from evidence.__main__ import main
from evidence.problems import Problem


@pytest.fixture
def sent(repository, tmp_path_factory):
    """Writes a record as another machine would send it, changed and sealed again; returns the file."""

    def write(change=lambda data: None, name="mine.json", seal=True, **fields):
        place = repository.record_of_another_machine(change=change, **fields)
        file = tmp_path_factory.mktemp("mail") / name
        place.rename(file)
        if not seal:
            file.write_text(file.read_text().replace("2.3", "2.2"))
        return file

    return write


def refused(file, what):
    with pytest.raises(Problem) as caught:
        contributions.add(file)
    assert what in str(caught.value) and str(file) in str(caught.value) and "\n" not in str(caught.value)


OTHER = "results/tiny/other-cpu-2core.json"


def test_an_honest_record_goes_to_its_place_whatever_its_file_is_called(repository, sent):
    assert contributions.add(sent()).as_posix() == OTHER
    assert repository.notebook_problems() == []
    assert {record.machine for record in records.load_all()["tiny"]} == {"", "test-cpu-2core", "other-cpu-2core"}


def test_a_newer_record_of_one_machine_replaces_the_older_and_not_the_other_way_round(repository, sent):
    older, newer = (sent(date=f"2026-0{month}-01") for month in (1, 2))
    contributions.add(older)
    contributions.add(newer)
    refused(older, "other-cpu-2core.json is of 2026-02-01, and this record of 2026-01-01")
    assert records.load(OTHER).date == "2026-02-01"


def test_another_machine_of_the_same_name_gets_a_name_of_its_own(repository, sent):
    first, second = sent(), sent(lambda data: data["machine"].update(fingerprint="beef0000"))
    contributions.add(first)
    before = records.load(OTHER).data
    second = contributions.add(second)
    assert second.as_posix() == "results/tiny/other-cpu-2core-beef.json" and records.load(OTHER).data == before
    assert machine.describes(records.load(second).data["machine"]) is None
    assert repository.notebook_problems() == []


def test_what_is_wrong_is_said_with_the_file_as_it_was_sent_and_nothing_is_written(repository, sent):
    before = repository.files()
    refused(sent(seal=False), "edited by hand since its run wrote it")
    refused(sent(lambda data: data.update(source="0" * 64)), "the code of notebooks/tiny.py has changed since this run")
    refused(
        sent(lambda data: data["claims"]["step-speed"].update(unit="%")), "its unit is '%', and 'x' in the notebook"
    )
    refused(sent(lambda data: data.update(notebook="tinny")), "there is no notebook tinny (did you mean tiny?)")
    refused(sent(lambda data: data.pop("machine") and data.pop("code")), "it names no machine")
    refused(sent().with_stem("none"), "there is no such file")
    assert repository.files() == before


def test_one_that_is_refused_does_not_keep_the_others_out(repository, sent, capsys):
    broken, whole = sent(name="broken.json"), sent(name="whole.json")
    broken.write_text("{")
    assert main(["add", str(broken), str(whole)]) == 1
    printed = capsys.readouterr()
    assert printed.out == f"added {OTHER}\n" and "the record is not whole JSON" in printed.err


def test_a_much_faster_machine_is_taken_and_no_bound_of_the_project_is_blamed(repository, sent):
    """A card may be thousands of times from a bound that a small CPU must keep."""

    def on_a_card(data):
        data["machine"] |= {"name": "nvidia-geforce-rtx-4090", "label": "NVIDIA GeForce RTX 4090", "gpu": "NVIDIA GeForce RTX 4090"}
        data["machine"] |= {"gpu_memory_gib": 23.5, "compute_capability": "8.9"}
        data["software"] |= {"cuda": "13.0", "driver": "580.65"}
        data["claims"]["step-speed"] |= {"value": 4000.0, "spread": {"min": 3990, "max": 4010, "repeats": 5}}

    assert contributions.add(sent(on_a_card)).stem == "nvidia-geforce-rtx-4090"
    assert repository.notebook_problems() == [] and notebook_lint.check("tiny") == []


def test_a_record_of_the_machine_that_executed_the_notebook_does_not_replace_its_own(repository, sent):
    before = repository.files()
    own = json.loads(repository.record.read_text())["machine"]
    refused(sent(lambda data: data["machine"].update(own)), "executed notebooks/tiny.ipynb, whose outputs are those of its own run")
    assert repository.files() == before


class TestSummary:
    @pytest.fixture
    def committed(self, repository):
        def git(*arguments):
            who = ["-c", "user.name=Somebody", "-c", "user.email=somebody@example.org"]
            subprocess.run(["git", *who, *arguments], check=True, capture_output=True)

        git("init", "-q", "-b", "main")
        git("add", "-A")
        git("commit", "-q", "-m", "First")
        git("switch", "-q", "-c", "mine")
        repository.git = git
        return repository

    def said(self, committed, capsys):
        committed.git("add", "-A")
        committed.git("commit", "-q", "--allow-empty", "-m", "Second")
        assert not main(["summary", "main"])
        return capsys.readouterr().out

    def test_a_new_record_is_listed_with_its_figures_and_the_pages_that_show_them(self, committed, sent, capsys):
        contributions.add(sent(lambda data: data["claims"]["step-speed"].update(value=1.7)))
        said = self.said(committed, capsys)
        assert f"- New: `{OTHER}`" in said
        assert "| step-speed | – | 1.7x | at least 1.1 | 2.3x |" in said
        assert said.split("## Pages that change")[1].strip() == "- `docs/index.md`"

    def test_a_record_that_changes_shows_what_it_said_before(self, committed, capsys):
        committed.change_record(lambda data: data["claims"]["step-speed"].update(value=1.9))
        assert "| step-speed | 2.3x | 1.9x | at least 1.1 |" in self.said(committed, capsys)

    def test_a_record_that_goes_is_listed(self, committed, capsys):
        committed.record.unlink()
        said = self.said(committed, capsys)
        assert "- Gone: `results/tiny/test-cpu-2core.json`" in said and "| step-speed | 2.3x | – |" in said

    def test_a_pull_request_without_a_record_says_so(self, committed, capsys):
        assert self.said(committed, capsys) == "## Records\n\nNo record changes.\n"

    def test_a_commit_that_is_not_there_is_named(self, committed, capsys):
        assert main(["summary", "nowhere"]) == 1
        assert "Fix: name a commit that is here" in capsys.readouterr().err

    def test_a_forged_record_stops_it_in_one_line(self, committed, capsys):
        path = committed.record_of_another_machine()
        path.write_text(json.dumps({"schema": 4, "claims": {"<script>": 1}}))
        committed.git("add", "-A")
        committed.git("commit", "-q", "-m", "Second")
        assert main(["summary", "main"]) == 1
        printed = capsys.readouterr()
        assert printed.out == "" and "<script" not in printed.err and len(printed.err.splitlines()) == 1
