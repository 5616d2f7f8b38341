"""Notes under a program mark the lines that they are about, and cannot outlive them."""

import markdown
import pytest
from bs4 import BeautifulSoup

from evidence.problems import Problem

PROGRAM = """```python
first = 1
second = "<two>"
third = first
```
"""


def render(text):
    extensions = [
        "evidence.site.pages",
        "evidence.site.notes",
        "md_in_html",
        "pymdownx.superfences",
        "pymdownx.highlight",
    ]
    html = markdown.markdown(
        text, extensions=extensions, extension_configs={"evidence.site.pages": {"page": "index.md"}}
    )
    return BeautifulSoup(html, "html.parser")


def noted(*notes):
    return f'{PROGRAM}\n<div class="notes" markdown>\n\n' + "\n".join(f"1. {note}" for note in notes) + "\n\n</div>\n"


def test_the_first_line_that_holds_the_code_of_a_note_gets_its_number(repository):
    lines = render(noted('`"<two>"` is the second.', "`first` is the first.")).find("pre").text.rstrip().split("\n")
    assert lines == ["first = 1 2", 'second = "<two>" 1', "third = first"]


def test_the_numbers_are_not_read_as_code_nor_copied(repository):
    marks = render(noted("`third` is the last.")).select("pre .note")
    assert [(mark.text, mark["aria-hidden"]) for mark in marks] == [("1", "true")]
    assert marks[0].has_attr("data-search-exclude")


def test_notes_belong_to_the_block_above_them(repository):
    page = render(PROGRAM + "\nText.\n\n" + noted("`third` is the last."))
    assert [len(block.select(".note")) for block in page.select("pre")] == [0, 1]


def test_without_notes_a_program_stays_as_it_is(repository):
    assert not render(PROGRAM).select(".note")


@pytest.mark.parametrize(
    ("note", "what"),
    [
        (
            "`thrd = first` is gone.",
            "a note about 'thrd = first', which is not in the block above it (did you mean third",
        ),
        ("No code at all.", "a note that does not begin with the code it is about"),
    ],
)
def test_a_note_to_no_line_stops_the_build_with_page_and_line(repository, note, what):
    repository.page.write_text(noted(note))
    with pytest.raises(Problem) as caught:
        render(noted(note))
    message = str(caught.value)
    assert message.startswith("docs/index.md:") and what in message and "Fix: " in message
