"""A message names file and line, what is wrong, the nearest right thing and the fix."""

import pytest

from evidence.problems import Problem, line_of, nearest, read_text


def test_a_message_is_one_line_with_file_line_what_and_fix(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    problem = Problem(tmp_path / "docs" / "index.md", "this is\n   wrong", "mend it", 7)
    assert str(problem) == "docs/index.md:7: this is wrong. Fix: mend it"


def test_a_message_without_a_line_still_names_its_file():
    assert (
        str(Problem("Makefile", "the port is taken", "take another"))
        == "Makefile: the port is taken. Fix: take another"
    )


def test_a_file_outside_the_working_directory_is_named_in_full(tmp_path, monkeypatch):
    (tmp_path / "inside").mkdir()
    monkeypatch.chdir(tmp_path / "inside")
    assert str(Problem(tmp_path / "x.json", "wrong", "mend it", 1)).startswith(f"{tmp_path}/x.json:1: ")


def test_the_nearest_name_is_offered_and_a_far_one_is_not():
    assert nearest("peak-memry", ["peak-memory", "step-speed"]) == " (did you mean peak-memory?)"
    assert nearest("qqq", ["peak-memory", "step-speed"]) == ""
    assert nearest("anything", []) == ""


def test_the_line_of_a_fragment_is_the_first_or_the_asked_for():
    text = "one\ntwo\ntwo"
    assert (line_of(text, "two"), line_of(text, "two", 2), line_of(text, "three")) == (2, 3, None)


def test_a_file_that_is_not_utf8_is_named_with_the_line(tmp_path):
    path = tmp_path / "page.md"
    path.write_bytes("fine\ncaf\u00e9".encode("latin-1"))
    with pytest.raises(Problem, match=r"page\.md:2: not UTF-8 text .* Fix: save it as UTF-8"):
        read_text(path)
