"""What must not be in a page. Each finding names file, line, what is wrong and the fix.

- a figure typed by hand, outside a claim and outside a link to its source (figures.py); arithmetic with a wrong result (arithmetic.py)
- a claim, table or column that no record has, or a claim that no page shows (here, record_blocks.py)
- a unit typed after a claim that shows it (here), and two claims of a table in each other's rows (swaps.py)
- a record that was edited by hand
- a link to a page, notebook or anchor of ours that does not exist, a section without a written anchor (links.py)
- code that is no included snippet, a snippet or region that is gone, a snippet that no page includes (snippets.py)
"""

import re

import yaml

from dryrun.tables import data_sheets, gpu_files

from .. import cited, records
from ..notebooks import line_of_cell
from ..problems import Problem, line_of, read_text
from ..records import find
from . import (
    arithmetic,
    figures,
    hygiene,
    links,
    locks,
    model_rows,
    pages,
    prose,
    record_blocks,
    repository_docs,
    snippets,
    swaps,
)


def check():
    """All findings in the pages, as a list of Problems."""
    found = cited.with_cited(records.load_all())
    if not found:
        return [Problem(records.RESULTS, "there is no record", "run `make record`")]
    sources = sorted(links.DOCS.rglob("*.md"))
    if not sources:
        return [Problem(links.DOCS, "there is no page", "run from the root of the repository")]
    problems, used, included = [], set(), set()
    for path in sources:
        text = read_text(path)
        problems += _front_matter(path, text)
        for block in prose.blocks(text):
            problems += _block(path, block, found, used, included)
        problems += snippets.check_indented(path, text)
    problems += _unused_claims(found, used)
    problems += filter(None, (records.changed_by_hand(record) for kept in found.values() for record in kept if not cited.is_cited(record)))
    problems += snippets.check_unused(included)
    problems += check_comments()
    return problems


def check_repository():
    """All findings outside of the pages: in any tracked file, in README and CONTRIBUTING, in locks, in the data sheets and in rows of models."""
    return [*hygiene.check(), *repository_docs.check(), *locks.check(), *check_data_sheets(), *model_rows.check()]


def check_data_sheets():
    """Rows of accelerators that lack something, and values that contradict each other."""
    doubted = "give the value of the data sheet, or a reason under [exceptions]"
    for key, name, said, fix in (*data_sheets.faults(), *((*doubt, doubted) for doubt in data_sheets.doubts())):
        path = gpu_files.FOLDER / f"{key}.toml"
        lines = read_text(path).splitlines()
        line = next((number for number, text in enumerate(lines, 1) if text.partition("=")[0].strip() == name), 1)
        yield Problem(path, f"{name}: {said}", fix, line)


def check_notebook_prose(path, notebook):
    """Figures typed into the words of a notebook: its Markdown and its comments."""
    fix = "show it by a claim() in a cell, or link its source"
    for number, cell in enumerate(notebook.cells, 1):
        first = line_of_cell(path, number) or 1
        if cell.cell_type == "markdown":
            yield from figures.problems(path, cell.source, first, fix)
            yield from arithmetic.problems(path, cell.source, first)
        else:
            yield from figures.problems_of_comments(path, cell.source, ".py", first, fix)


def check_comments():
    """Figures typed into the comments of snippets."""
    for path in sorted(snippets.SNIPPETS.rglob("*")):
        if path.suffix in (".py", ".sh", ".yaml", ".yml"):
            fix = "leave it to the page, where it is a claim"
            yield from figures.problems_of_comments(path, read_text(path), path.suffix, 1, fix)


def _front_matter(path, text):
    """Title and description are read too, in the results of a search."""
    end = prose.end_of_front_matter(text)
    if text.startswith("---\n") and not end:
        yield Problem(path, "the front matter has no end", "close it by a line ---", 1)
    head = "\n".join(text.splitlines()[:end])
    try:
        yaml.safe_load(head.strip("-"))
    except yaml.MarkedYAMLError as error:  # MkDocs would show it as text, without a word
        yield Problem(path, f"the front matter is no YAML: {error.problem}", 'quote the value, as in description: "Memory: what fits"', error.problem_mark.line + 1)
    yield from figures.problems(path, head, 1, "leave it to the page, where it is a claim")


def _block(path, block, found, used, included):
    if not block.closed:
        yield Problem(path, "this block has no end", "close it by a fence as long as the first", block.line)
    elif block.language is None:
        fix = "name a claim, [[notebook:claim]], make the figure the text of a link to its source, or write arithmetic out in backticks with its result"
        yield from figures.problems(path, block.text, block.line, fix)
        yield from arithmetic.problems(path, block.text, block.line)
        yield from _claims(path, block, found, used)
        yield from swaps.check(path, block, found)
        yield from links.check_sections(path, block)
        yield from links.check(path, block)
        yield from links.check_words(path, block)
        yield from snippets.check_html(path, block)
    elif block.language in record_blocks.NAMES:
        yield from record_blocks.check(path, block, found)
    else:
        yield from snippets.check(path, block, included)


def _claims(path, block, found, used):
    for line, paragraph in prose.paragraphs(block.text):
        without_code = prose.without(prose.INLINE_CODE, paragraph)
        for match in re.finditer(r"\[\[([^\]]*)\]\]", without_code):
            number = block.line + line + without_code.count("\n", 0, match.start())
            yield from _claim(path, number, match[0], found, used)
            yield from _unit_typed(path, number, match[0], without_code[match.end() :], found)


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
        fix = f"take a name of the ledger, add the claim to the notebook and record it, or a row to results/{exact[1]}/cited.yml"
        yield Problem(path, f"unknown figure {written}: {error}", fix, line)


def _unit_typed(path, line, written, after, found):
    """`[[a:b]] GiB` shows the unit twice."""
    exact, typed = re.fullmatch(pages.CLAIM, written), figures.UNIT_BEHIND.match(after)
    if exact and typed:
        unit = next((claim["unit"] for record in found.get(exact[1], ()) for name, claim in record.data["claims"].items() if name == exact[2]), "")
        if unit:
            what = f"{written} shows its unit, {unit}, and “{typed[1]}” is typed after it"
            yield Problem(path, what, f"take “{typed[1]}” out", line)


def _unused_claims(found, used):
    """Claims that have a value on some machine, and no page that shows it."""
    for notebook, kept in found.items():
        where = {
            name: record.path
            for record in reversed(kept)  # the newest last, which counts
            for name, claim in record.data["claims"].items()
            if "because" not in claim
        }
        for name, path in where.items():
            if (notebook, name) not in used:
                text = read_text(path)
                line = line_of(text, f'"{name}"') or line_of(text, f"{name}:")
                of = "there" if path.suffix == ".yml" else f"from notebooks/{notebook}.py, and run the notebook again"
                fix = f"show it by [[{notebook}:{name}]], or remove it {of}"
                yield Problem(path, f"no page shows the claim {name}", fix, line)
