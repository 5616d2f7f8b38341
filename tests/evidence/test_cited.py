"""Figures of others are rows of a file: pages show them like any claim, and a wrong row is named with its line."""

from pathlib import Path

import pytest
from small_site import render

from evidence import cited, records
from evidence.problems import Problem

ROW = """\
# Of others.
paper-speed:
  sentence: Speed of that step in the paper, on an A100
  value: 1.8
  unit: x
  source: https://example.org/paper
  read: 2026-11-20
"""


@pytest.fixture
def rows(repository):
    path = Path("results/tiny/cited.yml")
    path.write_text(ROW)
    return path


def test_a_page_shows_a_row_with_its_source_and_the_day_it_was_read(rows, repository):
    repository.add_to_page("The paper has [[tiny:paper-speed]].")
    assert repository.page_problems() == [] and repository.notebook_problems() == []
    page = render("# Page\n\nThe paper has [[tiny:paper-speed]] and [[tiny:step-speed]].", repository="https://example.org/us")
    popover = next(found for found in page.select("[popover]") if "the paper" in found.text)
    assert "1.8x, read 2026-11-20" in " ".join(popover.text.split())
    links = [link["href"] for link in popover.select("a")]
    assert links == ["https://example.org/us/blob/main/results/tiny/cited.yml", "https://example.org/paper"]
    assert "cited" not in page.select_one("#runs").text  # no run made it


def test_a_row_that_no_page_shows_is_named(rows, repository):
    assert repository.page_problems() == [
        "results/tiny/cited.yml:2: no page shows the claim paper-speed. Fix: show it by [[tiny:paper-speed]], or remove it there"
    ]


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("value: 1.8", "value: 1,800", "paper-speed: the value is '1,800', which is no number. Fix: write a number without a comma"),
        ("unit: x", "unit: Watt", "paper-speed: there is no unit 'Watt'. Fix: take one of: bytes, kB,"),
        ("unit: x", "unit: x\n  color: red", "('color' was unexpected)"),
        ("  unit: x\n", "", "'unit' is a required property"),
        ("  read: 2026-11-20\n", "", "'read' is a required property"),
        ("read: 2026-11-20", "read: 20.11.2026", "paper-speed: read: '20.11.2026' is none. Fix: write the day on which you read it"),
        ("read: 2026-11-20", "read: 2099-01-01", "paper-speed: read: 2099-01-01 is to come"),
        ("https://example.org/paper", "http://example.org", "paper-speed: source: 'http://example.org' is none. Fix: write the address with https://"),
        ("on an A100", "on an <b>A100</b>", "does not match"),
        ("paper-speed", "step-speed", "step-speed is the name of a claim of the notebook"),
        ("# Of others.\n", ROW, "paper-speed stands twice, in line 2 too"),
        ("value: 1.8", "value: 1.8: 2", "not YAML"),
    ],
)
def test_a_wrong_row_is_named_with_its_file_and_line(rows, old, new, what):
    rows.write_text(ROW.replace(old, new))
    with pytest.raises(Problem) as caught:
        cited.with_cited(records.load_all())
    said = str(caught.value)
    assert said.startswith(f"{rows}:") and what in said and "\n" not in said
