"""Links of the pages to pages, notebooks and anchors of ours; the anchors of sections."""

import os
import re
from pathlib import Path

from markdown.extensions.toc import slugify

from ..problems import Problem, nearest, read_text, shown
from .prose import INLINE_CODE, blocks, paragraphs, without

TARGET = r"<?([^)\s#:>?]*)(?:\?[^)\s#>]*)?(?:#([^)\s>]+))?>?(?:\s+[\"'(][^\n]*?[\"')])?[^\S\n]*"  # in our site: others have a colon
LINK = re.compile(rf"(?<!!)\[[^\]]*\]\(\s*{TARGET}\)|^[^\S\n]*\[(?!\^)[^\]]+\]:[^\S\n]*(?=\S){TARGET}$", re.M)
SAYS_NOTHING = re.compile(r"(?<!!)\[(click here|continue|go|here|learn more|link|more|page|read more|start|this)\]\(", re.I)
ANCHOR = re.compile(r"\{[^}]*#([\w-]+)[^}]*\}")
DOCS = Path("docs")
SECTION = re.compile(r"^#{2,3}\s+(.+)")


def anchors_of(page):
    """The ids that a page gives its headings and blocks."""
    return [name for block in blocks(read_text(page)) if block.language is None for name in ANCHOR.findall(block.text)]


def check(path, block):
    """Links that lead nowhere, from one block of prose."""
    for line, target, anchor in targets(block.text):
        number = block.line + line
        file = path.parent / target if target else path
        if file.suffix == ".ipynb":  # the notebooks stand beside docs/, and their pages below it
            file = DOCS.parent / os.path.relpath(file, DOCS)
        if not file.exists():
            known = [os.path.relpath(other, path.parent) for other in DOCS.rglob("*.md")]
            yield Problem(path, f"there is no {target}{nearest(target, known)}", "correct the link", number)
        elif anchor and file.suffix == ".md":
            anchors = anchors_of(file)
            if anchor not in anchors:
                what = f"{shown(file)} has no anchor #{anchor}{nearest(anchor, anchors)}"
                yield Problem(path, what, f"correct it, or give a heading there {{ #{anchor} }}", number)


def check_words(path, block):
    """Links whose words say nothing by themselves, as a search engine and a screen reader's list of links read them."""
    for line, paragraph in paragraphs(block.text):
        found = without(INLINE_CODE, paragraph)
        for match in SAYS_NOTHING.finditer(found):
            number = block.line + line + found.count("\n", 0, match.start())
            yield Problem(path, f"a link called {match[1]!r} does not say where it leads", "link words that do", number)


def targets(text):
    """(lines before it, target, anchor) of every link into our own site."""
    for line, paragraph in paragraphs(text):
        without_code = without(INLINE_CODE, paragraph)
        for match in LINK.finditer(without_code):
            yield line + without_code.count("\n", 0, match.start()), match[1] or match[3], match[2] or match[4]


def check_sections(path, block):
    """A section is linked from elsewhere: its anchor must outlive its words, so it is written and not made from them."""
    for number, line in enumerate(block.lines, block.line):
        section = SECTION.match(line)
        if section and not ANCHOR.search(line) and "[[" not in line:
            what = f"this section has no written anchor: {section[1].strip()}"
            yield Problem(path, what, f"end the line with {{ #{slugify(section[1], '-')} }}", number)
