"""addresses.txt: a page or section that links from elsewhere may lead to stays, or its author hears of it."""

from pathlib import Path

import pytest

from evidence.__main__ import main
from evidence.site import addresses

PAGES = {
    "index.md": "# Start\n\n## Training { #training }\n",
    "training/one-gpu.md": "# One GPU\n\nSee [below](#tf32).\n\n## At a glance { #at-a-glance }\n\n### tf32 { #tf32 }\n",
}
LIST = Path("addresses.txt")


@pytest.fixture
def pages(tmp_path, monkeypatch):
    """Changes a page that was listed before."""
    monkeypatch.chdir(tmp_path)
    for name, text in PAGES.items():
        Path("docs", name).parent.mkdir(parents=True, exist_ok=True)
        Path("docs", name).write_text(text)
    addresses.add()

    def changed(name, old, new):
        text = Path("docs", name).read_text()
        assert old in text
        Path("docs", name).write_text(text.replace(old, new))

    return changed


def problems():
    return [str(problem) for problem in addresses.check()]


def test_every_page_and_every_section_is_listed(pages):
    assert LIST.read_text().splitlines()[1:] == [
        "index.md",
        "index.md#training",
        "training/one-gpu.md",
        "training/one-gpu.md#at-a-glance",
        "training/one-gpu.md#tf32",
    ]
    assert problems() == []


def test_a_renamed_anchor_is_named_twice_where_it_was_listed_and_where_it_is_now(pages):
    pages("training/one-gpu.md", "{ #at-a-glance }", "{ #glance }")
    assert problems() == [
        "addresses.txt:5: training/one-gpu.md#at-a-glance is gone (did you mean glance?), and links from elsewhere may lead "
        "there. Fix: give a heading of docs/training/one-gpu.md { #at-a-glance } again, or remove this line and break them",
        "docs/training/one-gpu.md:5: the list of addresses lacks training/one-gpu.md#glance. Fix: run `make addresses`",
    ]


def test_a_new_section_is_named_by_its_heading_and_not_by_a_link_to_it(pages):
    pages("training/one-gpu.md", "### tf32 { #tf32 }", "### tf32 { #tf32 }\n\n[on](#off)\n\n### Off { #off }")
    assert problems() == [
        "docs/training/one-gpu.md:11: the list of addresses lacks training/one-gpu.md#off. Fix: run `make addresses`"
    ]


def test_a_section_with_other_words_and_its_old_anchor_passes(pages):
    pages("training/one-gpu.md", "### tf32 { #tf32 }", "### Faster products { #tf32 }")
    assert problems() == []


def test_a_page_that_is_gone_is_one_problem_and_a_redirect_mends_it(pages):
    Path("docs/training/one-gpu.md").unlink()
    assert problems() == [
        "addresses.txt:4: training/one-gpu.md is gone, and links from elsewhere may lead there. "
        "Fix: write `training/one-gpu: page.md` into redirects.yml, with the page that has its answer"
    ]
    Path("redirects.yml").write_text("training/one-gpu: index.md#training\n")
    assert problems() == []


def test_a_redirect_of_the_same_name_as_a_page_excuses_no_lost_section_of_it(pages):
    Path("redirects.yml").write_text("training/one-gpu: training/one-gpu.md\n")
    pages("training/one-gpu.md", "{ #tf32 }", "{ #tensor-float }")
    assert any("training/one-gpu.md#tf32 is gone" in problem for problem in problems())


def test_a_line_taken_out_by_hand_is_a_section_given_up(pages):
    pages("training/one-gpu.md", "### tf32 { #tf32 }", "")
    LIST.write_text(LIST.read_text().replace("training/one-gpu.md#tf32\n", ""))
    assert problems() == []


def test_the_command_adds_what_is_new_and_removes_nothing(pages, capsys):
    pages("training/one-gpu.md", "{ #at-a-glance }", "{ #glance }")
    assert not main(["addresses"])
    assert capsys.readouterr().out == "added training/one-gpu.md#glance\n"
    assert "training/one-gpu.md#at-a-glance\n" in LIST.read_text()
    assert len(problems()) == 1


def test_a_list_that_is_gone_is_one_problem(pages):
    LIST.unlink()
    assert problems() == [
        "addresses.txt: there is no list of addresses. Fix: restore it with `git checkout addresses.txt`"
    ]


def test_a_section_whose_page_alone_was_taken_out_is_named(pages):
    Path("docs/training/one-gpu.md").unlink()
    LIST.write_text(LIST.read_text().replace("training/one-gpu.md\n", ""))
    assert [problem.partition(" is gone")[0] for problem in problems()] == ["addresses.txt:4: training/one-gpu.md"] + [
        "addresses.txt:5: training/one-gpu.md"
    ]
