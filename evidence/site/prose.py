"""How a page is read: its front matter, its fenced blocks, the prose between them, and the paragraphs of that prose."""

import re

FENCE = re.compile(r"^([\s>]*)(`{3,}|~{3,})\s*([\w-]*)")
PARAGRAPH = re.compile(r"^[^\S\n]*\|.*|^.*\S.*(?:\n(?![^\S\n]*\|).*\S.*)*", re.M)  # and each row of a table
INLINE_CODE = re.compile(r"`[^`]*`")


class Block:
    """Consecutive lines of prose (language None) or one fenced block: first line number, lines."""

    def __init__(self, language, line):
        self.language, self.line, self.lines, self.closed = language, line, [], True

    @property
    def text(self):
        return "\n".join(self.lines)

    def line_of_key(self, key):
        found = re.search(rf"^[ >]*{re.escape(str(key))}\s*:", self.text, re.M)
        return self.line + (self.text.count("\n", 0, found.start()) + 1 if found else 0)


def blocks(text):
    """Cuts a page into prose and fenced blocks; front matter is left out."""
    lines, start = text.splitlines(), end_of_front_matter(text)
    current, fence = Block(None, start + 1), None
    for number, line in enumerate(lines[start:], start + 1):
        match = FENCE.match(line)
        if fence is None and match:
            yield current
            fence, current = match[2], Block(match[3].lower(), number)
        elif fence and match and match[2].startswith(fence) and not match[3]:
            yield current
            fence, current = None, Block(None, number + 1)
        else:
            current.lines.append(line)
    current.closed = fence is None
    yield current


def end_of_front_matter(text):
    """The number of its last line; 0 where there is none, or it has no end."""
    lines = text.splitlines()
    return lines.index("---", 1) + 1 if lines[:1] == ["---"] and "---" in lines[1:] else 0


def paragraphs(text):
    """(lines before it, paragraph); each row of a table is a paragraph."""
    for match in PARAGRAPH.finditer(text):
        yield text.count("\n", 0, match.start()), match[0]


def without(pattern, text):
    """The text without what matches, in as many lines."""
    return re.sub(pattern, lambda match: "\n" * match[0].count("\n"), text)
