"""A best bet leads to a place that is there, from one place alone; the check names the line and the nearest right thing."""

import json

import pytest

from evidence.problems import Problem
from evidence.site import best_bets, search_index


@pytest.fixture
def checked(tmp_path):
    """What the check says of a file of best bets, beside a page with one section."""
    page = tmp_path / "docs" / "debugging.md"
    page.parent.mkdir()
    page.write_text("# Debugging\n\n## Hangs { #hangs }\n")

    def run(text):
        file = tmp_path / "best_bets.yml"
        file.write_text(text)
        return [str(problem).replace(f"{tmp_path}/", "") for problem in best_bets.check(file, tmp_path / "docs")]

    return run


def test_a_page_and_a_section_that_are_there_are_fine(checked):
    assert checked("debugging.md: [crash]\ndebugging.md#hangs: [stuck, hang]\n") == []


@pytest.mark.parametrize(
    "text, says",
    [
        ("debug.md: [crash]", ["best_bets.yml:1", "debug.md is no page", "debugging.md"]),
        ("# a\ndebugging.md#hang: [stuck]", ["best_bets.yml:2", "no section #hang", "hangs"]),
        (
            "debugging.md: [it hangs]\ndebugging.md#hangs: [hangs it]",
            ["best_bets.yml:2", "`hangs it` stands here and under debugging.md"],
        ),
    ],
)
def test_a_bet_that_leads_nowhere_or_twice_is_named_with_its_line(checked, text, says):
    (problem,) = checked(text)
    for part in says:
        assert part in problem


@pytest.mark.parametrize(
    "text, says",
    [
        ("debugging.md: nan", "in place of a list of queries"),
        ("debugging.md: [1]", "quotation marks"),
        ("a: [", "not YAML"),
    ],
)
def test_a_file_of_another_shape_says_what_it_should_be(checked, text, says):
    with pytest.raises(Problem, match=says):
        checked(text)


def test_the_index_takes_the_bets_along_by_their_place_on_the_site(tmp_path):
    index, bets = tmp_path / "index.json", tmp_path / "bets.yml"
    index.write_text(json.dumps({"config": {}, "docs": [{"location": "a/", "title": "A", "text": "a"}]}))
    bets.write_text("inference/one-gpu.md#fits: [does it fit]\nindex.md: [home]\n")
    search_index.slim(index, tmp_path / "none.yml", bets)
    assert json.loads(index.read_text())["bets"] == {"inference/one-gpu/#fits": ["does it fit"], "": ["home"]}
