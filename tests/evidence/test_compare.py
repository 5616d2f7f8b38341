"""`make verify`, and the last cell of a notebook: each figure here beside the published one, past what fails."""

import json

import nbformat
import pytest

from evidence import compare, runs
from evidence.__main__ import main


def verified(repository, name="tiny"):
    return {row.name: row for row in runs.verify(name, say=lambda text: None)}


def says(row, *words):
    return (row.published, row.machine, row.here, row.verdict, row.why) == words


SPEED = 'claim("step-speed", "Speed of that step against another one", 2.3, "x", kind="measured", at_least=1.1,'


def test_where_nothing_changed_every_figure_holds_and_no_file_changes(repository):
    before = repository.files()
    rows = verified(repository)
    assert says(rows["peak-memory"], "12.5\u00a0GiB", "", "12.5\u00a0GiB", "holds", "")
    assert says(rows["step-speed"], "2.3x", "Test CPU 2 cores", "2.3x", "holds", "")
    assert says(rows["by-batch"], "2 rows", "", "2 rows", "holds", "")
    assert compare.counted(list(rows.values())) == "3 of 3 hold"
    assert repository.files() == before


def test_a_bound_that_breaks_here_is_named_and_the_run_goes_on(repository):
    repository.edit(repository.source, 'another one", 2.3,', 'another one", 1.05,')
    rows = verified(repository)
    assert rows["step-speed"].verdict == "does not hold"
    assert rows["step-speed"].why == "1.05x is under the bound: at least 1.1x"
    assert rows["by-batch"].verdict == "holds"
    assert compare.counted(list(rows.values())) == "2 of 3 hold, 1 does not hold"


def test_a_measured_figure_may_differ_within_its_bound(repository):
    repository.record_of_another_machine(cpu="Other CPU", date="2026-01-01")
    repository.edit(repository.source, 'another one", 2.3,', 'another one", 9.5,')
    row = verified(repository)["step-speed"]
    assert (row.here, row.verdict) == ("9.5x", "holds")


@pytest.mark.parametrize(
    ("old", "new", "name", "why"),
    [
        ("peak = 12.5", "peak = 12.2", "peak-memory", "this run gives 12.2, the record says 12.5"),
        ('"plain": 3.0', '"plain": 4.0', "by-batch", "row 1, plain: this run gives 4, the record says 3"),
        ('claim("peak-memory"', 'claim("peak"', "peak", "no published record has it"),
    ],
)
def test_an_exact_figure_that_comes_out_otherwise_does_not_hold(repository, old, new, name, why):
    repository.edit(repository.source, old, new)
    row = verified(repository)[name]
    assert (row.verdict, row.why) == ("does not hold", why)


def test_a_figure_that_needs_another_machine_does_not_apply_and_says_why(repository):
    repository.edit(
        repository.source, SPEED, SPEED.replace(' 2.3, "x",', ' None, "x", because="this machine has no GPU",')
    )
    row = verified(repository)["step-speed"]
    assert (row.here, row.verdict, row.why) == ("–", "does not apply", "this machine has no GPU")
    assert compare.all_hold([row])


def test_a_figure_that_the_notebook_has_no_more_is_not_reached(repository):
    repository.edit(repository.source, 'claim("peak-memory"', 'print("peak-memory"')
    repository.edit(repository.source, ', "GiB", kind="traced", at_most=13)', ")")
    assert says(verified(repository)["peak-memory"], "12.5\u00a0GiB", "", "–", "not reached", compare.NOT_LEFT)


def test_a_table_that_only_another_machine_measured_does_not_apply_where_every_cell_ran(repository):
    published = runs.records.load_all()["tiny"]
    there = next(record for record in published if record.machine)
    there.data["tables"]["of-a-large-model"] = {"kind": "measured", "rows": [{"seconds": 1}]}
    made = {"claims": {}, "tables": {}}
    for machine, missing, verdict in (
        ("elsewhere", compare.NOT_LEFT, "does not apply"), ("elsewhere", "cell 4 raised", "not reached"), (there.machine, compare.NOT_LEFT, "not reached"),
    ):  # fmt: skip
        found = {row.name: row.verdict for row in compare.rows(made, published, {"name": machine}, missing)}
        assert found["of-a-large-model"] == verdict and found["step-speed"] == found["peak-memory"] == "not reached"


def test_of_several_published_machines_the_one_like_this_is_shown(repository):
    def gpu(data):
        data["machine"] |= {"name": "nvidia-x", "label": "NVIDIA X", "gpu": "NVIDIA X", "gpu_memory_gib": 80.0}
        data["software"]["cuda"] = "13.0"
        data["claims"]["step-speed"]["value"] = 7.5

    path = repository.record_of_another_machine(change=gpu)
    path.rename(path.with_stem("nvidia-x"))
    found = runs.records.load_all()["tiny"]
    made = {"claims": {}, "tables": {}}
    for here, published in (({"name": "elsewhere", "gpu": "NVIDIA Y"}, "7.5x"), ({"name": "elsewhere"}, "2.3x")):
        (row,) = [row for row in compare.rows(made, found, here) if row.name == "step-speed"]
        assert row.published == published


def test_the_table_of_a_notebook_takes_no_markup_from_a_figure():
    row = compare.Row("a", "traced", "<b>1</b>", "", "<script>", "does not hold", "<img>")
    shown = compare.as_html([row])
    assert "<script" not in shown and "<img" not in shown and "<b>1" not in shown


class TestCommand:
    def test_it_prints_a_table_and_a_count_and_ends_with_nothing_where_all_hold(self, repository, capsys):
        assert not main(["verify"])
        lines = capsys.readouterr().out.splitlines()
        assert lines[1].split() == ["claim", "kind", "published", "(machine)", "here", "verdict"]
        assert lines[3].split() == ["step-speed", "measured", "2.3x", "(Test", "CPU", "2", "cores)", "2.3x", "holds"]
        assert lines[-1] == "1 notebook: 3 of 3 hold"

    def test_it_goes_on_past_a_notebook_that_fails_and_names_it(self, repository, capsys):
        other = repository.source.with_stem("another")
        other.write_text(repository.source.read_text().replace('start("tiny")', "1 / 0"))
        assert main(["verify"]) == 1
        printed = capsys.readouterr().out
        assert "raised ZeroDivisionError: division by zero" in printed
        assert printed.splitlines()[-1] == "2 notebooks: 3 of 4 hold, 1 does not hold"

    def test_a_figure_that_does_not_hold_ends_it_with_one(self, repository, capsys):
        repository.edit(repository.source, 'another one", 2.3,', 'another one", 1.05,')
        assert main(["verify"]) == 1
        assert "does not hold: 1.05x is under the bound: at least 1.1x" in capsys.readouterr().out

    def test_as_json_the_tables_alone_go_to_the_output(self, repository, capsys):
        assert not main(["verify", "--json"])
        said = json.loads(capsys.readouterr().out)
        assert (said["tiny"]["hold"], said["tiny"]["of"]) == (3, 3)
        assert said["tiny"]["rows"][1] == {
            "name": "step-speed", "kind": "measured", "published": "2.3x", "machine": "Test CPU 2 cores", "here": "2.3x",
            "verdict": "holds", "why": "",
        }  # fmt: skip


class TestKernel:
    """With a real kernel, which takes a second each."""

    def test_it_goes_on_past_a_broken_bound_and_a_cell_that_raises(self, repository, monkeypatch, quick_torch):
        monkeypatch.setattr(runs, "_execute", repository.kernel)
        repository.edit(repository.source, "peak = 12.5", "peak = 1 / 0")
        repository.edit(repository.source, 'another one", 2.3,', 'another one", 1.05,')
        rows = verified(repository)
        assert (rows["peak-memory"].verdict, rows["peak-memory"].why) == ("not reached", "cell 4 raised ZeroDivisionError: division by zero")
        assert (rows["cell 4"].verdict, rows["cell 4"].why) == ("does not hold", "raised ZeroDivisionError: division by zero")
        assert rows["step-speed"].why == "1.05x is under the bound: at least 1.1x"
        assert rows["by-batch"].verdict == "holds"

    def test_a_process_that_dies_leaves_what_came_before(self, repository, monkeypatch, quick_torch):
        monkeypatch.setattr(runs, "_execute", repository.kernel)
        repository.edit(repository.source, 'claim("step-speed"', 'import os\nos._exit(1)\nclaim("step-speed"')
        rows = verified(repository)
        assert rows["peak-memory"].verdict == "holds"
        assert rows["step-speed"].verdict == "not reached" and "ended the process that ran it" in rows["step-speed"].why

    def test_the_closing_cell_runs_in_no_run_of_ours_and_stays_at_the_end(self, repository, monkeypatch, quick_torch):
        monkeypatch.setattr(runs, "_execute", repository.kernel)
        runs.record("tiny", say=lambda text: None)
        last = nbformat.read(repository.notebook, 4).cells[-1]
        assert last.source.startswith("# Compares this run") and last.outputs == [] and last.execution_count is None
        assert repository.notebook_problems() == []
