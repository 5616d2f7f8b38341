"""Code on a page is a snippet: a file of snippets/, or a region of one, which a test can run."""

import re

from ..problems import Problem, nearest, read_text
from .prose import INLINE_CODE, blocks, without

INCLUDE = re.compile(r'^[\s>]*--8<-- "([^":]+)(?::([\w-]+))?"\s*$')
RAW_CODE = re.compile(r"<(pre|code|samp|kbd|script|style)\b", re.I)
CONTAINER = re.compile(r"\s*(?:[-*+]\s|\d+[.)]\s|!!!|\?\?\?|===|\[\^[^\]]+\]:|:\s{3})")
FIX = 'put it into {}/ and include it: --8<-- "guide/file:region"'


def check(path, block, snippets, included):
    """What is wrong with a fenced block. Adds the snippets that it includes to `included`."""
    for number, line in enumerate(block.lines, block.line + 1):
        match = INCLUDE.match(line)
        if match:
            yield from _include(path, number, *match.groups(), snippets, included)
        elif line.strip():
            what = f"a code block that is not a snippet: {line.strip()[:60]}"
            yield Problem(path, what, FIX.format(snippets), number)
            return


def _include(path, number, name, region, snippets, included):
    file = snippets / name
    if not file.is_file():
        known = [other.relative_to(snippets).as_posix() for other in snippets.rglob("*") if other.is_file()]
        what = f"there is no snippet {name}{nearest(name, known)}"
        yield Problem(path, what, f"add {file.as_posix()}, or correct the name", number)
        return
    included.add(file)
    text = read_text(file)
    if region and not (f"--8<-- [start:{region}]" in text and f"--8<-- [end:{region}]" in text):
        regions = [other for other in re.findall(r"--8<-- \[start:([\w-]+)\]", text) if other != region]
        what = f"snippet {name} has no region {region}{nearest(region, regions)}"
        fix = f"mark it in {file.as_posix()} with --8<-- [start:{region}] and --8<-- [end:{region}]"
        yield Problem(path, what, fix, number)


def check_html(path, block, snippets):
    """Code written as HTML, in prose."""
    text = without(INLINE_CODE, block.text)
    for match in RAW_CODE.finditer(text):
        number = block.line + text.count("\n", 0, match.start())
        yield Problem(path, f"<{match[1]}> in a page", FIX.format(snippets), number)


def check_indented(path, text, snippets):
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
            what = f"an indented code block that is not a snippet: {line.strip()[:60]}"
            yield Problem(path, what, FIX.format(snippets), number)
        if not is_code:
            before.append((indent, bool(CONTAINER.match(line))))
        after_blank, in_code = number + 1 not in prose, is_code


def check_unused(snippets, included):
    for file in sorted(snippets.rglob("*")):
        if file.is_file() and file not in included and "__pycache__" not in file.parts:
            yield Problem(file, "no page includes this snippet", "include it, or delete it")
