"""What must not be in a page. Each finding names file, line, what is wrong and the fix.

- a figure typed by hand: a number with a unit of a result, outside a claim and outside a link to its source
- a claim, table or column that no record has; a claim that no page shows; an exact figure of which two records differ
- a record that a hand has changed
- a link to a page, notebook or anchor of ours that does not exist; a section without an anchor of its own
- a code block that is not an included snippet; a snippet or region that is gone; a snippet that no page includes
"""

import os
import re
from pathlib import Path

import yaml
from markdown.extensions.toc import slugify

from .. import records
from . import pages
from ..notebooks import line_of_cell
from ..problems import Problem, line_of, nearest, read_text, shown
from ..records import find

DOCS, SNIPPETS = Path("docs"), Path("snippets")
RECORD_BLOCKS = {"table", "chart", "ledger", "changes", "machines"}
PER_SECOND = r"(/|\sper\s)\s?s(ec(ond)?s?)?\b"
UNITS = "|".join(
    (
        rf"%|(percent|per cent|percentage points)\b|[kKMGTP]i?B({PER_SECOND}|\b)|(\w{{2,4}})?bytes?\b",
        rf"[kMGTP]?b(its?)?{PER_SECOND}|[kMGT]bps\b|[kMGTPE]?FLOPs?({PER_SECOND}|\b)|[kMGTPE]?FLOPS\b|nats?\b",
        rf"(tok|tokens|it|iterations|samples|images|rows|steps|sequences|requests){PER_SECOND}",
        r"(ns|µs|ms|s|sec|(nano|micro|milli)?seconds?|minutes?|min|hours?|h|days?|weeks?)\b",
        r"(k?Wh?|watts?|[kMG]Hz|USD|euros?)\b",
        r"(x|×|-fold|fold|times)\b(?=\s+(as|faster|slower|more|less|fewer|smaller|larger|longer|shorter|higher|lower|the)\b)",
    )
)
NUMBER = r"\d(?:[\d.,]*\d)?"
LINK_RATE = r"(?:1|2\.5|10|25|40|50|100|200|400|800)\s?Gb(?:it)?/s\b"  # names a network, as 80GB names an H100
GAP = r"(?:\*\*|__)?(?:[^\S\n]|&nbsp;)?(?:\n[^\S\n]*)?"  # emphasis may end and a line may break before the unit
FIGURE = re.compile(
    rf"(?<![\w.\-/])(?!{LINK_RATE})[~≈]?{NUMBER}(?:\s?[-–—]\s?{NUMBER})?(?:{GAP}(?:{UNITS})|[x×](?!\w|\s*\d))|"
    rf"[$€]\s?{NUMBER}|\bfactors?\s+of\s+(?:about\s+|up\s+to\s+)?{NUMBER}"
)
MULTIPLES = (
    r"twice|thrice|double|triple|half|(a|one)\s+(third|quarter|fifth|tenth)\s+of|(two|three)\s+(thirds|quarters)\s+of|"
    r"(two|three|four|five|six|seven|eight|nine|ten|twenty|fifty|a\s+hundred|a\s+thousand)\s+times"
)
WORDS = re.compile(
    rf"\b({MULTIPLES})\s+(as\s+(fast|slow|much|large|long|small)|the\s+(speed|memory|time|throughput)|"
    r"faster|slower|more|less|larger|smaller)\b|\ban\s+order\s+of\s+magnitude\b",
    re.I,
)
PARAGRAPH = re.compile(r"^[^\S\n]*\|.*|^.*\S.*(?:\n(?![^\S\n]*\|).*\S.*)*", re.M)  # and each row of a table
INLINE_CODE = re.compile(r"`[^`]*`")
TARGET = r"<?([^)\s#:>]*)(?:#([^)\s>]+))?>?(?:\s+[\"'(][^\n]*?[\"')])?[^\S\n]*"  # in our site: others have a colon
LINK = re.compile(rf"(?<!!)\[[^\]]*\]\(\s*{TARGET}\)|^[^\S\n]*\[(?!\^)[^\]]+\]:[^\S\n]*(?=\S){TARGET}$", re.M)
ANCHOR = re.compile(r"\{[^}]*#([\w-]+)[^}]*\}")
HEADING = re.compile(r"^\s*#{1,6}\s")
SECTION = re.compile(r"^#{2,3}\s+(.+)")
CLAIM_IN_LINK = re.compile(r"\[[^\[\]]*(\[\[[^\]]*\]\])[^\[\]]*\]\(")
INCLUDE = re.compile(r'^[\s>]*--8<-- "([^":]+)(?::([\w-]+))?"\s*$')
FENCE = re.compile(r"^([\s>]*)(`{3,}|~{3,})\s*([\w-]*)")


def check(docs=DOCS, snippets=SNIPPETS, results=records.RESULTS):
    """All findings in the pages, as a list of Problems."""
    found = records.load_all(results)
    if not found:
        return [Problem(results, "there is no record", "run `make record`")]
    sources = sorted(Path(docs).rglob("*.md"))
    if not sources:
        return [Problem(docs, "there is no page", "run from the root of the repository")]
    problems, used, included = [], set(), set()
    for path in sources:
        text = read_text(path)
        problems += _front_matter(path, text)
        for block in blocks(text):
            if not block.closed:
                problems.append(
                    Problem(path, "this block has no end", "close it by a fence as long as the first", block.line)
                )
            elif block.language is None:
                problems += [*_prose(path, block, found, used), *_links(path, block, Path(docs))]
            elif block.language in RECORD_BLOCKS:
                problems += _record_block(path, block, found)
            else:
                problems += _code(path, block, Path(snippets), included)
    problems += _unused_claims(found, used, results)
    problems += _apart(found)
    problems += filter(None, (records.changed_by_hand(record) for kept in found.values() for record in kept))
    problems += _unused_snippets(Path(snippets), included)
    return problems


def check_notebook_prose(path, notebook):
    """Figures typed into the Markdown cells of a notebook."""
    for number, cell in enumerate(notebook.cells, 1):
        if cell.cell_type == "markdown":
            first = line_of_cell(path, number) or 1
            for line, figure in _typed_figures(cell.source):
                fix = "show it by a claim() in a cell, or link its source"
                yield Problem(path, f"a figure typed by hand: {figure}", fix, first + line)


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
    lines, start = text.splitlines(), _end_of_front_matter(text)
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


def _end_of_front_matter(text):
    """The number of its last line; 0 where there is none, or it has no end."""
    lines = text.splitlines()
    return lines.index("---", 1) + 1 if lines[:1] == ["---"] and "---" in lines[1:] else 0


def _front_matter(path, text):
    """Title and description are read too, in the results of a search."""
    end = _end_of_front_matter(text)
    if text.startswith("---\n") and not end:
        yield Problem(path, "the front matter has no end", "close it by a line ---", 1)
    for line, figure in _typed_figures("\n".join(text.splitlines()[:end])):
        yield Problem(path, f"a figure typed by hand: {figure}", "leave it to the page, where it is a claim", line + 1)


def _prose(path, block, found, used):
    for line, figure in _typed_figures(block.text):
        fix = "name a claim, [[notebook:claim]], or make the figure the text of a link to its source"
        yield Problem(path, f"a figure typed by hand: {figure}", fix, block.line + line)
    for line, paragraph in _paragraphs(block.text):
        without_code = _without(INLINE_CODE, paragraph)
        for match in re.finditer(r"\[\[([^\]]*)\]\]", without_code):
            number = block.line + line + without_code.count("\n", 0, match.start())
            yield from _claim(path, number, match[0], found, used)
        for match in CLAIM_IN_LINK.finditer(without_code):
            number = block.line + line + without_code.count("\n", 0, match.start(1))
            yield Problem(
                path, f"{match[1]} stands in a link, which may hold no button", "put it beside the link", number
            )
    for number, line in enumerate(block.lines, block.line):
        if HEADING.match(line) and "[[" in _without(INLINE_CODE, line):
            what = "a claim in a heading, whose anchor would change with the value"
            yield Problem(path, what, "put it into the sentence under the heading", number)
    yield from _headings(path, block)


def _headings(path, block):
    """A section is linked from elsewhere: its anchor must outlive its words, so it is written and not made from them."""
    for number, line in enumerate(block.lines, block.line):
        section = SECTION.match(line)
        if section and not ANCHOR.search(line) and "[[" not in line:
            what = f"this section has no anchor of its own: {section[1].strip()}"
            yield Problem(path, what, f"end the line with {{ #{slugify(section[1], '-')} }}", number)


def _links(path, block, docs):
    for line, paragraph in _paragraphs(block.text):
        without_code = _without(INLINE_CODE, paragraph)
        for match in LINK.finditer(without_code):
            target, anchor = match[1] or match[3], match[2] or match[4]
            number = block.line + line + without_code.count("\n", 0, match.start())
            file = path.parent / target if target else path
            if file.suffix == ".ipynb":  # the notebooks stand beside docs/, and their pages below it
                file = docs.parent / os.path.relpath(file, docs)
            if not file.exists():
                known = [os.path.relpath(other, path.parent) for other in docs.rglob("*.md")]
                yield Problem(path, f"there is no {target}{nearest(target, known)}", "correct the link", number)
            elif anchor and file.suffix == ".md":
                anchors = anchors_of(file)
                if anchor not in anchors:
                    what = f"{shown(file)} has no anchor #{anchor}{nearest(anchor, anchors)}"
                    yield Problem(path, what, f"correct it, or give a heading there {{ #{anchor} }}", number)


def anchors_of(page):
    """The ids that a page gives its headings and blocks."""
    return [name for block in blocks(read_text(page)) if block.language is None for name in ANCHOR.findall(block.text)]


def _claim(path, line, written, found, used):
    exact = re.fullmatch(pages.CLAIM, written)
    if not exact:
        what = f"{written} is not of the form [[notebook:claim]]"
        yield Problem(path, what, "write it so, with @cpu, @gpu or @any behind the claim where wanted", line)
        return
    try:
        find(found, exact[1], exact[2])
        used.add((exact[1], exact[2]))
    except LookupError as error:
        fix = "take a name of the ledger, or add the claim to the notebook and record it"
        yield Problem(path, f"unknown figure {written}: {error}", fix, line)


def _paragraphs(text):
    """(lines before it, paragraph); each row of a table is one of its own."""
    for match in PARAGRAPH.finditer(text):
        yield text.count("\n", 0, match.start()), match[0]


def _typed_figures(text):
    """(lines before it, figure) of every figure that is neither a claim, nor cited, nor code."""
    link_to_source = r"\[[^\]]*\]\(https?://[^)]*\)"
    markup = r"\]\([^)]*\)|\{[^}]*\}|</?[A-Za-z][^>]*>|<!--[\s\S]*?-->|https?://\S+"
    for line, paragraph in _paragraphs(text):
        for allowed in (r"\[\[[^\]]*\]\]", link_to_source, INLINE_CODE, markup):
            paragraph = _without(allowed, paragraph)
        for pattern in (FIGURE, WORDS):
            for match in pattern.finditer(paragraph):
                yield line + paragraph.count("\n", 0, match.start()), " ".join(match[0].split())


def _without(pattern, text):
    """The text without what matches, in as many lines."""
    return re.sub(pattern, lambda match: "\n" * match[0].count("\n"), text)


def _record_block(path, block, found):
    if block.language in ("ledger", "changes", "machines"):
        return
    try:
        asked = yaml.safe_load(block.text)
    except yaml.YAMLError as error:
        yield Problem(
            path,
            f"this {block.language} block is not YAML ({getattr(error, 'problem', error)})",
            "write it as `key: value` lines",
            block.line,
        )
        return
    if not isinstance(asked, dict) or not isinstance(asked.get("table"), str):
        yield Problem(
            path, f"this {block.language} block names no table", "begin with `table: notebook:name`", block.line
        )
        return
    notebook, _, name = asked["table"].partition(":")
    try:
        columns = find(found, notebook, name, "tables")[0][1]["columns"]
    except LookupError as error:
        yield Problem(path, f"unknown table: {error}", "take a table of the record", block.line_of_key("table"))
        return
    yield from _columns(path, block, asked, columns)
    yield from _keys(path, block, asked)
    for line, figure in _typed_figures(block.text):
        fix = "say it without the figure: the table holds it"
        yield Problem(path, f"a figure typed by hand: {figure}", fix, block.line + 1 + line)


def _columns(path, block, asked, columns):
    for place in ("columns", "x", "y"):
        named = asked.get(place, [])
        for key in named if isinstance(named, list) else [named]:
            if key not in columns:
                what = f"table {asked['table']} has no column {key}{nearest(str(key), columns)}"
                yield Problem(path, what, f"take one of {', '.join(columns)}", block.line_of_key(place))


def _keys(path, block, asked):
    needed, known = pages.BLOCKS[block.language]
    for key in needed:
        if not asked.get(key):
            what = f"a {block.language} without a {key}"
            yield Problem(path, what, f"add `{key}:`, {pages.BLOCK_KEYS[key]}", block.line)
    for key in asked:
        if key not in known:
            what = f"a {block.language} has no {key}{nearest(str(key), known)}"
            yield Problem(path, what, f"take one of {', '.join(known)}", block.line_of_key(key))
    axes = asked.get("log", [])
    if not isinstance(axes, list) or set(axes) - {"x", "y"}:
        what = f"log: {axes} names no axes"
        yield Problem(path, what, "write [x], [y] or [x, y]", block.line_of_key("log"))
    if asked.get("mark", pages.MARKS[0]) not in pages.MARKS:
        what = f"there is no mark {asked['mark']}{nearest(str(asked['mark']), pages.MARKS)}"
        yield Problem(path, what, f"take one of {', '.join(pages.MARKS)}", block.line_of_key("mark"))


def _code(path, block, snippets, included):
    for number, line in enumerate(block.lines, block.line + 1):
        match = INCLUDE.match(line)
        if not match:
            if line.strip():
                yield Problem(
                    path,
                    f"a code block that is not a snippet: {line.strip()[:60]}",
                    f'put it into {snippets}/ and include it: --8<-- "guide/file:region"',
                    number,
                )
                return
            continue
        name, region = match.groups()
        file = snippets / name
        if not file.is_file():
            known = [other.relative_to(snippets).as_posix() for other in snippets.rglob("*") if other.is_file()]
            yield Problem(
                path,
                f"there is no snippet {name}{nearest(name, known)}",
                f"add {file.as_posix()}, or correct the name",
                number,
            )
            continue
        included.add(file)
        text = read_text(file)
        if region and not (f"--8<-- [start:{region}]" in text and f"--8<-- [end:{region}]" in text):
            regions = [other for other in re.findall(r"--8<-- \[start:([\w-]+)\]", text) if other != region]
            yield Problem(
                path,
                f"snippet {name} has no region {region}{nearest(region, regions)}",
                f"mark it in {file.as_posix()} with --8<-- [start:{region}] and --8<-- [end:{region}]",
                number,
            )


def _unused_claims(found, used, results):
    for notebook, kept in found.items():
        for name in kept[0].data["claims"]:
            if (notebook, name) not in used:
                path = kept[0].path
                line = line_of(read_text(path), f'"{name}"')
                yield Problem(
                    path,
                    f"no page shows the claim {name}",
                    f"show it by [[{notebook}:{name}]], or remove it from the notebook",
                    line,
                )


def _apart(found):
    """What is traced or derived is the same on every machine: where it is not, a record is of other code than the newest."""
    for newest, *older in found.values():
        for record in older:
            for line, name, place, here, there in records.apart(record, newest):
                where = f"{name}, {place}," if place else name
                what = f"{where} is {here} here and {there} in {newest.path.name}, and it is the same on every machine"
                fix = f"make the record again on that machine (`make record NOTEBOOKS={record.notebook}`), or remove it"
                yield Problem(record.path, what, fix, line)


def _unused_snippets(snippets, included):
    for file in sorted(snippets.rglob("*")):
        if file.is_file() and file not in included and "__pycache__" not in file.parts:
            yield Problem(file, "no page includes this snippet", "include it, or delete it")
