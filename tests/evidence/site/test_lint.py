"""What must not be in a page is named with line and fix; what is allowed passes. The parts have tests of their own names."""

import json

import pytest

from evidence import notebooks
from evidence.site import lint


def test_a_sound_page_has_no_problem(repository):
    assert repository.page_problems() == []


def test_an_unknown_claim_gets_the_nearest_name(problems_of):
    assert problems_of("Text.\n\nIt takes [[tiny:peak-memry]].") == [
        "3: unknown figure [[tiny:peak-memry]]: no claim 'peak-memry' in the records of tiny (did you mean peak-memory?). "
        "Fix: take a name of the ledger, add the claim to the notebook and record it, or a row to results/tiny/cited.yml"
    ]


def test_an_unknown_notebook_gets_the_nearest_name(problems_of):
    (problem,) = problems_of("It takes [[tinny:peak-memory]].")
    assert "1: unknown figure [[tinny:peak-memory]]: no record of a notebook 'tinny' (did you mean tiny?)" in problem


@pytest.mark.parametrize(
    "written", ["[[peak-memory]]", "[[tiny:Peak]]", "[[tiny:peak-memory@tpu]]", "[[tiny: peak-memory]]"]
)
def test_a_claim_that_is_misspelt_does_not_pass_as_text(problems_of, written):
    assert problems_of(f"It takes {written}.") == [
        f"1: {written} is not of the form [[notebook:claim]]. Fix: write it so, with @cpu, @gpu or @any behind the claim where wanted"
    ]


def test_a_claim_broken_over_two_lines_does_not_pass_as_text(problems_of):
    (problem,) = problems_of("It takes [[tiny:\npeak-memory]].")
    assert problem.startswith("1: [[tiny: peak-memory]] is not of the form")


def test_a_claim_that_no_page_shows_is_named_in_its_record(repository):
    repository.edit(repository.page, "[[tiny:step-speed]]", "so")
    (problem,) = repository.page_problems()
    line = repository.record.read_text().split('"step-speed"')[0].count("\n") + 1
    assert problem == (
        f"{repository.record}:{line}: no page shows the claim step-speed. "
        "Fix: show it by [[tiny:step-speed]], or remove it from notebooks/tiny.py, and run the notebook again"
    )


@pytest.mark.parametrize(
    ("path", "old", "new"),
    [
        ("exact", '"value": 12.5', '"value": 12.6'),
        ("exact", '"at_most": 13', '"at_most": 14'),
        ("record", '"max": 0.2', '"max": 0.3'),
        ("record", "Speed of that", "Speed of this"),
        ("exact", " 2.0\n", " 2.5\n"),
    ],
)
def test_a_record_in_which_anything_was_edited_is_named(repository, path, old, new):
    file = getattr(repository, path)
    repository.edit(file, old, new)
    line = file.read_text().split('"seal"')[0].count("\n") + 1
    (problem,) = repository.page_problems()
    assert problem.startswith(f"{file}:{line}: edited by hand since its run wrote it. Fix: ")


def test_the_spaces_of_a_record_may_change_and_the_order_of_its_columns_may_not(repository):
    data = json.loads(repository.exact.read_text())
    repository.exact.write_text(json.dumps(data))
    assert repository.page_problems() == []
    columns = data["tables"]["by-batch"]["columns"]
    data["tables"]["by-batch"]["columns"] = dict(reversed(columns.items()))
    repository.exact.write_text(json.dumps(data))
    (problem,) = repository.page_problems()
    assert "edited by hand since its run wrote it" in problem


def test_a_claim_in_code_is_not_shown(repository):
    repository.edit(repository.page, "[[tiny:step-speed]]", "`[[tiny:step-speed]]`")
    (problem,) = repository.page_problems()
    assert "no page shows the claim step-speed" in problem


def test_no_record_fails(repository):
    repository.record.unlink()
    repository.exact.unlink()
    assert repository.page_problems() == ["results: there is no record. Fix: run `make record`"]


def test_no_page_fails(repository):
    repository.page.unlink()
    assert repository.page_problems() == ["docs: there is no page. Fix: run from the root of the repository"]


def test_front_matter_without_an_end_is_named(repository):
    repository.page.write_text(repository.page.read_text().replace("\n---\n", "\n", 1))
    assert (
        f"{repository.page}:1: the front matter has no end. Fix: close it by a line ---" in repository.page_problems()
    )


def test_a_colon_that_takes_the_front_matter_apart_is_named_with_its_line(repository):
    repository.page.write_text("---\ntitle: A page\ndescription: What fits: memory.\n---\n\n" + repository.page.read_text())
    (problem,) = repository.page_problems()
    assert problem.startswith(f"{repository.page}:3: the front matter is no YAML: mapping values are not allowed here. Fix: quote the value")


def test_a_page_that_is_not_utf8_is_named(repository):
    repository.page.write_bytes(repository.page.read_bytes() + "café".encode("latin-1"))
    with pytest.raises(Exception, match=r"^docs/index\.md:\d+: not UTF-8 text"):
        lint.check()


def test_every_page_is_checked_however_deep(repository):
    deep = repository.page.parent / "a" / "b" / "page.md"
    deep.parent.mkdir(parents=True)
    deep.write_text("It takes 12 GiB.\n")
    (problem,) = repository.page_problems()
    assert problem.startswith("docs/a/b/page.md:1: a figure typed by hand: 12 GiB")


def test_a_figure_in_the_text_of_a_notebook_is_named_with_its_line(repository):
    line = repository.edit(
        repository.source, "# A notebook of the tests.", "# A notebook of the tests.\n# It takes 12 GiB."
    )
    (problem,) = lint.check_notebook_prose(repository.source, notebooks.read_source("tiny"))
    fix = "show it by a claim() in a cell, or link its source"
    assert str(problem) == f"{repository.source}:{line + 1}: a figure typed by hand: 12 GiB. Fix: {fix}"


def test_a_figure_in_the_comment_of_a_cell_is_named_with_its_line(repository):
    line = repository.edit(repository.source, "peak = 12.5", "peak = 12.5  # 2x less memory")
    (problem,) = lint.check_notebook_prose(repository.source, notebooks.read_source("tiny"))
    assert str(problem).startswith(
        f"{repository.source}:{line}: a figure typed by hand in a comment: 2x. Fix: "
    )


def test_a_unit_typed_after_a_claim_that_shows_it_is_named(problems_of):
    assert problems_of("It takes [[tiny:peak-memory]] at most, and [[tiny:peak-memory]] GiB.") == [
        "1: [[tiny:peak-memory]] shows its unit, GiB, and “GiB” is typed after it. Fix: take “GiB” out"
    ]
