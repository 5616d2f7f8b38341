"""What must not be in a page. Each finding names file, line, what is wrong and the fix.

- a figure typed by hand: a number with a unit of a result, outside a claim and outside a link to its source
- a claim, table or column that no record has; a claim that no page shows
- a code block that is not an included snippet; a snippet or region that is gone; a snippet that no page includes
"""

import re
from pathlib import Path

import yaml

from . import pages, records
from .problems import Problem, nearest
from .records import find

DOCS, SNIPPETS = Path("docs"), Path("snippets")
RECORD_BLOCKS = {"table", "chart", "ledger", "machines"}
UNITS = (
    r"%|percent\b|[kKMGT]i?B(/s)?\b|bytes?\b|[kMGTP]?FLOPs?(/s)?\b|FLOP/s\b|(tokens|samples|steps|sequences)\s?(/|per\s)\s?s(ec(ond)?s?)?\b|"
    r"(µs|ms|s|sec|seconds?|minutes?|min|hours?|h)\b|(x|×|-fold|fold|times)\b(?=\s+(as|faster|slower|more|less|smaller|larger|the)\b)"
)
FIGURE = re.compile(rf"(?<![\w.\-/])[~≈]?\d[\d.,]*(?:\s?(?:{UNITS})|[x×](?!\w))(?!\s*\d)")
WORDS = re.compile(
    r"\b(twice|thrice|double|triple|two times|three times|half) (as (fast|slow|much|large|long)|the (speed|memory|time))\b",
    re.I,
)
INCLUDE = re.compile(r'^\s*--8<-- "([^":]+)(?::([\w-]+))?"\s*$')
FENCE = re.compile(r"^(\s*)(`{3,}|~{3,})\s*([\w-]*)")


def check(docs=DOCS, snippets=SNIPPETS, results=records.RESULTS):
    """All findings in the pages and in the Markdown of the notebooks, as a list of Problems."""
    found = records.load_all(results)
    if not found:
        return [Problem(results, "there is no record", "run `make record`")]
    sources = sorted(Path(docs).rglob("*.md"))
    if not sources:
        return [Problem(docs, "there is no page", "run from the root of the repository")]
    problems, used, included = [], set(), set()
    for path in sources:
        for block in blocks(path.read_text(encoding="utf-8")):
            if block.language is None:
                problems += _prose(path, block, found, used)
            elif block.language in RECORD_BLOCKS:
                problems += _record_block(path, block, found)
            else:
                problems += _code(path, block, Path(snippets), included)
    problems += _unused_claims(found, used, results)
    problems += _unused_snippets(Path(snippets), included)
    return problems


def check_notebook_prose(path, notebook):
    """Figures typed into the Markdown cells of a notebook."""
    text = path.read_text(encoding="utf-8")
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            for line in cell.source.splitlines():
                for figure in _typed_figures(line):
                    number = next((n for n, source in enumerate(text.splitlines(), 1) if line and line in source), None)
                    yield Problem(
                        path,
                        f"a figure typed by hand: {figure}",
                        "show it by a claim() in a cell, or link its source",
                        number,
                    )


class Block:
    """Consecutive lines of prose (language None) or one fenced block: first line number, lines."""

    def __init__(self, language, line):
        self.language, self.line, self.lines = language, line, []


def blocks(text):
    """Cuts a page into prose and fenced blocks; front matter is left out."""
    lines, start = text.splitlines(), 0
    if lines and lines[0] == "---":
        start = lines.index("---", 1) + 1
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
    yield current


def _prose(path, block, found, used):
    for number, line in enumerate(block.lines, block.line):
        for figure in _typed_figures(line):
            yield Problem(
                path,
                f"a figure typed by hand: {figure}",
                "name a claim, [[notebook:claim]], or make the figure the text of a link to its source",
                number,
            )
        for match in re.finditer(r"\[\[([^\]]*)\]\]", re.sub(r"`[^`]*`", "", line)):
            exact = re.fullmatch(pages.CLAIM, match[0])
            if not exact:
                yield Problem(
                    path,
                    f"{match[0]} is not of the form [[notebook:claim]]",
                    "write it so, with @cpu or @gpu behind the claim where wanted",
                    number,
                )
                continue
            try:
                find(found, exact[1], exact[2])
                used.add((exact[1], exact[2]))
            except LookupError as error:
                yield Problem(
                    path,
                    f"unknown figure {match[0]}: {error}",
                    "take a name of the ledger, or add the claim to the notebook and record it",
                    number,
                )


def _typed_figures(line):
    line = re.sub(r"\[\[[^\]]*\]\]", "", line)  # claims
    line = re.sub(r"\[[^\]]*\]\(https?://[^)]*\)", "", line)  # a link to a source may hold the figure
    line = re.sub(r"`[^`]*`|\]\([^)]*\)|\{[^}]*\}|<[^>]*>|https?://\S+", "", line)
    return [match[0].strip() for pattern in (FIGURE, WORDS) for match in pattern.finditer(line)]


def _record_block(path, block, found):
    if block.language in ("ledger", "machines"):
        return
    try:
        asked = yaml.safe_load("\n".join(block.lines))
        notebook, _, name = asked["table"].partition(":")
    except (yaml.YAMLError, KeyError, TypeError, AttributeError):
        yield Problem(
            path, f"this {block.language} block names no table", "begin with `table: notebook:name`", block.line
        )
        return
    try:
        columns = find(found, notebook, name, "tables")[0][1]["columns"]
    except LookupError as error:
        yield Problem(path, f"unknown table: {error}", "take a table of the record", block.line)
        return
    y = asked.get("y", [])
    for key in [
        *asked.get("columns", []),
        *([asked["x"]] if "x" in asked else []),
        *(y if isinstance(y, list) else [y]),
    ]:
        if key not in columns:
            yield Problem(
                path,
                f"table {asked['table']} has no column {key}{nearest(key, columns)}",
                f"take one of {', '.join(columns)}",
                block.line,
            )
    if block.language == "chart" and not asked.get("description"):
        yield Problem(
            path,
            "a chart without a description",
            "add `description:`, which is read to those who do not see the chart",
            block.line,
        )


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
        if not file.exists():
            known = [other.relative_to(snippets).as_posix() for other in snippets.rglob("*") if other.is_file()]
            yield Problem(
                path,
                f"there is no snippet {name}{nearest(name, known)}",
                f"add {file.as_posix()}, or correct the name",
                number,
            )
            continue
        included.add(file)
        text = file.read_text(encoding="utf-8")
        if region and not (f"--8<-- [start:{region}]" in text and f"--8<-- [end:{region}]" in text):
            regions = re.findall(r"--8<-- \[start:([\w-]+)\]", text)
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
                line = records.line_of(path.read_text(encoding="utf-8"), f'"{name}"')
                yield Problem(
                    path,
                    f"no page shows the claim {name}",
                    f"show it by [[{notebook}:{name}]], or remove it from the notebook",
                    line,
                )


def _unused_snippets(snippets, included):
    for file in sorted(snippets.rglob("*")):
        if file.is_file() and file not in included and "__pycache__" not in file.parts:
            yield Problem(file, "no page includes this snippet", "include it, or delete it")
