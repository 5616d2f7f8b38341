"""Code on a page is a snippet: a file of snippets/, or a region of one, which a test can run."""

import re
from pathlib import Path

from ..problems import Problem, line_of, nearest, read_text
from .prose import INLINE_CODE, blocks, without

START = re.compile(r"--8<-- \[start:([\w-]+)\]")
INCLUDE = re.compile(r'^[\s>]*--8<-- "([^":]+)(?::([\w-]+))?"\s*$')
MESSAGES = "messages.txt"  # of each guide: what programs and libraries say, one region each
RAW_CODE = re.compile(r"<(pre|code|samp|kbd|script|style)\b", re.I)
CONTAINER = re.compile(r"\s*(?:[-*+]\s|\d+[.)]\s|!!!|\?\?\?|===|\[\^[^\]]+\]:|:\s{3})")
SNIPPETS = Path("snippets")
FIX = 'put it into snippets/ and include it: --8<-- "guide/file:region"'


def check(path, block, included):
    """What is wrong with a fenced block. Adds the (snippet, region or None) that it includes to `included`."""
    for number, line in enumerate(block.lines, block.line + 1):
        match = INCLUDE.match(line)
        if match:
            yield from _include(path, number, *match.groups(), included)
        elif line.strip():
            yield Problem(path, f"a code block that is not a snippet: {line.strip()[:60]}", FIX, number)
            return


def _include(path, number, name, region, included):
    file = SNIPPETS / name
    if not file.is_file():
        known = [other.relative_to(SNIPPETS).as_posix() for other in SNIPPETS.rglob("*") if other.is_file()]
        what = f"there is no snippet {name}{nearest(name, known)}"
        yield Problem(path, what, f"add {file.as_posix()}, or correct the name", number)
        return
    included.add((file, region))
    text = read_text(file)
    if region and not (f"--8<-- [start:{region}]" in text and f"--8<-- [end:{region}]" in text):
        regions = [other for other in START.findall(text) if other != region]
        what = f"snippet {name} has no region {region}{nearest(region, regions)}"
        if f"--8<-- [start:{region}]" in text:
            what = f"region {region} of snippet {name} begins and has no end"
        fix = f"correct the name, or mark it in {file.as_posix()} with --8<-- [start:{region}] and --8<-- [end:{region}]"
        yield Problem(path, what, fix, number)


def check_html(path, block):
    """Code written as HTML, in prose."""
    text = without(INLINE_CODE, block.text)
    for match in RAW_CODE.finditer(text):
        number = block.line + text.count("\n", 0, match.start())
        yield Problem(path, f"<{match[1]}> in a page", FIX, number)


def check_indented(path, text):
    """Lines of a page that Markdown takes for code because they are indented."""
    prose = {
        n: line for block in blocks(text) if block.language is None for n, line in enumerate(block.lines, block.line)
    }
    before = []  # (indentation, whether it is an item or the like) of the lines that may hold this one
    after_blank, in_code = True, False
    for number, line in prose.items():
        line = line.expandtabs(4)
        if not line.strip():
            after_blank = True
            continue
        indent = len(line) - len(line.lstrip())
        before = [(at, holds) for at, holds in before if at < indent]
        outer, holds = before[-1] if before else (0, False)
        is_code = (after_blank or in_code) and indent >= outer + (8 if holds else 4)
        if is_code and not in_code:
            yield Problem(path, f"an indented code block that is not a snippet: {line.strip()[:60]}", FIX, number)
        if not is_code:
            before.append((indent, bool(CONTAINER.match(line))))
        after_blank, in_code = number + 1 not in prose, is_code


def check_unused(included):
    for file in sorted(SNIPPETS.rglob("*")):
        if not file.is_file() or "__pycache__" in file.parts or (file, None) in included:
            continue
        shown = {region for name, region in included if name == file}
        if not shown:
            yield Problem(file, "no page includes this snippet", "include it, or delete it")
        elif file.name == MESSAGES:
            for region in START.findall(text := read_text(file)):
                if region not in shown:
                    what = f"no page shows the message {region}"
                    yield Problem(file, what, "include it, or delete it", line_of(text, f"[start:{region}]"))
