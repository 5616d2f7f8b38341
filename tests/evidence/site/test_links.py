"""Links into the site lead somewhere, and sections keep their anchors."""

import pytest


def test_a_link_to_a_page_that_does_not_exist_is_named_with_the_nearest(repository, problems_of):
    (repository.page.parent / "other.md").write_text("# Other\n")
    found = problems_of("See [the other](othr.md).")
    assert found == ["1: there is no othr.md (did you mean other.md?). Fix: correct the link"]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("See [the\nother](othr.md).", 1),
        ("See [the other](\nothr.md) or\nit.", 1),
        ('First.\nSee [the other](othr.md "The other").', 2),
        ("See [the other](<othr.md>).", 1),
        ("See [the other][it].\n\n[it]: othr.md 'The other'", 3),
        ("See [the other](othr.md#trap), [and it](other.md).", 1),
        ("See [the other](othr.md?gpu=t4#trap), [and it](other.md?gpu=t4).", 1),
    ],
)
def test_no_form_of_a_link_is_overlooked(repository, problems_of, text, line):
    (repository.page.parent / "other.md").write_text("# Other\n")
    found = problems_of(text)
    assert found == [f"{line}: there is no othr.md (did you mean other.md?). Fix: correct the link"]


@pytest.mark.parametrize("level", ["##", "###"])
def test_a_section_without_an_anchor_of_its_own_is_named_with_one(problems_of, level):
    assert problems_of(f"Text.\n\n{level} What it does") == [
        "3: this section has no written anchor: What it does. Fix: end the line with { #what-it-does }"
    ]


def test_a_section_with_an_anchor_and_a_comment_in_code_pass(problems_of):
    assert problems_of("## What it does { #what }\n\n#### Small\n\n`## no section`") == []


def test_a_link_to_an_anchor_that_is_gone_is_named_with_the_nearest(repository, problems_of):
    (repository.page.parent / "other.md").write_text("# Other\n\n## The trap { #dtype-trapp }\n")
    found = problems_of("Text.\n\nSee [the trap](other.md#dtype-trap).")
    assert len(found) == 1
    assert found[0].startswith("3: ") and "has no anchor #dtype-trap (did you mean dtype-trapp?)" in found[0]


@pytest.mark.parametrize(
    "link", ["other.md", "other.md#trap", "https://example.org/a.md#b", "`[a](none.md)`", 'other.md "a (b)"']
)
def test_a_sound_link_passes(repository, problems_of, link):
    (repository.page.parent / "other.md").write_text("# Other\n\n## The trap { #trap }\n")
    assert problems_of(link if link.startswith("`") else f"See [it]({link}).") == []


def test_a_link_whose_words_say_nothing_is_named_with_its_line(repository, problems_of):
    (repository.page.parent / "other.md").write_text("# Other\n")
    found = problems_of("Text.\n\nIt is explained\n[here](other.md), and [the rest](other.md) too.")
    assert found == ["4: a link called 'here' does not say where it leads. Fix: link words that do"]
