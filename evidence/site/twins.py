"""Each page once more as plain Markdown, for who reads with curl or a language model: docs/x.md at x.md, figures in words.

`[[notebook:claim]]` becomes its value with its kind, a block of a record a table, an included snippet its code. llms.txt
lists the pages and llms-full.txt holds them all (https://llmstxt.org). Nothing here needs MkDocs.
"""

import re
import textwrap
from pathlib import Path

import nbformat
import yaml

from . import pages
from .lint import INCLUDE, INLINE_CODE, blocks
from ..problems import read_text
from ..records import find, format_number, format_value

ATTRIBUTES = re.compile(r"[^\S\n]*\{:?[^\S\n]*[#.][^{}\n]*\}")
MARKER = re.compile(r"^.*--8<-- \[(?:start|end):.*\n?", re.M)
HTML = re.compile(r"^[^\S\n]*</?(?:div|section|figure|picture|svg|span|p|details|summary)\b[^>]*>[^\S\n]*$\n?", re.M)
ADMONITION = re.compile(r'^( *)(?:!!!|\?\?\?\+?) \w+(?: "([^"]*)")?')
TO_NOTEBOOK = re.compile(r"(\]\([^)\s:]*)\.ipynb(?=[)#])")
ANSI = re.compile(r"\x1b\[[0-9;]*m")


def write(site, name, description, address, nav, root="."):
    """Writes every twin, llms.txt and llms-full.txt into the built site. `nav` is that of mkdocs.yml."""
    found, lists = {}, []
    for title, sources in sections(nav):
        entries = []
        for source in sources:
            twin = source.removesuffix(".ipynb").removesuffix(".md") + ".md"
            title_of, what, text = notebook(root, source) if source.endswith(".ipynb") else page(root, source)
            found[twin] = text
            entries.append(f"- [{title_of}]({address}{twin}){what and ': ' + what}")
        lists.append(f"## {title}\n\n" + "\n".join(entries))
    for twin, text in found.items():
        _write(Path(site, twin), text)
    head = f"# {name}\n\n> {description}\n\nEvery page is there as Markdown too: the same address, ending in .md."
    _write(Path(site, "llms.txt"), "\n\n".join([head, *lists]) + "\n")
    whole = "\n\n---\n\n".join(f"Source: {address}{twin}\n\n{text.strip()}" for twin, text in found.items())
    _write(Path(site, "llms-full.txt"), f"{head}\n\n---\n\n{whole}\n")


def sections(nav):
    """[(title, pages)] of a navigation; what stands outside of any section comes under the first title."""
    alone, grouped = [], []
    for entry in nav:
        for title, value in entry.items():
            if isinstance(value, str):
                alone.append(value)
            else:
                grouped.append((title, [page for _, pages in sections(value) for page in pages]))
    return ([("Start", alone)] if alone else []) + grouped


def page(root, source):
    """(title, description, Markdown) of a page of docs/."""
    text = read_text(Path(root, "docs", source))
    front = yaml.safe_load(text.split("---\n")[1]) if text.startswith("---\n") else {}
    context = pages.Context(str(Path(root, "results")), source)
    parts, used = [], {}
    for block in blocks(text):
        if block.language is None:
            parts.append(_prose(context, block.text, used))
        else:
            parts.append(_block(context, Path(root, "snippets"), block))
    markdown = _admonitions("\n".join(parts))
    markdown = re.sub(r"\n{3,}", "\n\n", markdown).strip()
    title = front.get("title") or re.search(r"^# (.+)$", markdown, re.M)[1]
    return title, front.get("description", ""), f"{markdown}\n{_runs(context, used)}"


def notebook(root, source):
    """(title, description, Markdown) of a notebook with its stored outputs. A figure is left to the page."""
    parts = []
    for cell in nbformat.read(Path(root, source), 4).cells:
        if "hide" in cell.metadata.get("tags", []):
            continue
        if cell.cell_type == "markdown":
            parts.append(TO_NOTEBOOK.sub(r"\1.md", cell.source))
        elif cell.cell_type == "code":
            parts += [_fenced(cell.source, "python"), *filter(None, map(_output, cell.outputs))]
    text = re.sub(r"\]\(\.\./docs/", "](../", "\n\n".join(parts))
    title = re.search(r"^# (.+)$", text, re.M)
    return title[1] if title else Path(source).stem, summary(text), text.strip() + "\n"


def summary(text):
    """What a notebook says it is about: the first paragraph under its title, to its first full stop, as plain text."""
    said = re.search(r"^# .+\n+((?:(?!#).+\n?)+)", text, re.M)
    first = re.match(r".+?[.:](?=\s|$)", " ".join(re.sub(r"[*`]", "", said[1]).split())) if said else None
    return first[0] if first else ""


def _output(output):
    text = output.text if output.output_type == "stream" else output.get("data", {}).get("text/plain", "")
    return _fenced(ANSI.sub("", text).rstrip(), "text") if text and "image/png" not in output.get("data", {}) else ""


def _prose(context, text, used):
    """The text with its figures in words, without markup for the browser."""

    def figure(match):
        used[match[1]] = True
        entries = find(context.records, match[1], match[2])
        chosen = pages.per_machine(context, entries, match[3])[""]
        if not chosen or "value" not in chosen[1]:
            return pages.shown_value(chosen)[0]
        record, claim = chosen
        machine = f" on {record.data['machine']['label']}" if claim["kind"] == "measured" else ""
        return f"{format_value(claim['value'], claim['unit'])} ({claim['kind']}{machine})"

    def outside_code(part):
        part = re.sub(pages.CLAIM, figure, part)
        return TO_NOTEBOOK.sub(r"\1.md", ATTRIBUTES.sub("", part))

    codes = INLINE_CODE.findall(text)
    parts = INLINE_CODE.split(text)
    return HTML.sub("", "".join(outside_code(part) + code for part, code in zip(parts, [*codes, ""])))


def _block(context, snippets, block):
    indent = re.match(r"[ >]*", block.lines[0] if block.lines else "")[0]
    source = textwrap.dedent(block.text)
    if block.language in ("table", "chart"):
        text = _table(context, yaml.safe_load(source))
    elif block.language == "ledger":
        text = _ledger(context)
    elif block.language == "changes":
        text = _changes(context)
    elif block.language == "machines":
        text = "\n".join(f"- {name}: {label}" for name, label in pages.machines(context.records).items())
    else:
        text = _fenced("\n".join(_code(snippets, line) for line in source.splitlines()), block.language)
    return "\n" + textwrap.indent(text, indent) + "\n"


def _code(snippets, line):
    included = INCLUDE.match(line)
    if not included:
        return (
            line.removeprefix(";") if line.startswith(";--8<--") else line
        )  # the semicolon keeps it from being included
    text, region = read_text(snippets / included[1]), included[2]
    if region:
        text = re.search(rf"--8<-- \[start:{region}\].*\n([\s\S]*?)^.*--8<-- \[end:{region}\]", text, re.M)[1]
    return MARKER.sub("", text).rstrip()


def _table(context, asked):
    notebook, _, name = asked["table"].partition(":")
    record, table = pages.per_machine(context, find(context.records, notebook, name, "tables"))[""]
    series = asked.get("y", [])
    keys = asked.get("columns") or ([asked["x"], *([series] if isinstance(series, str) else series)] if series else [])
    keys = keys or list(table["columns"])
    places = [list(table["columns"]).index(key) for key in keys]
    rows = [[_cell(row[place]) for place in places] for row in table["rows"]]
    head = [[table["columns"][key] for key in keys], ["---"] * len(keys)]
    lines = "\n".join(f"| {' | '.join(cells)} |" for cells in head + rows)
    machine = f" on {record.data['machine']['label']}" if table["kind"] == "measured" else ""
    title = f"**{asked['title']}.** {asked.get('description', '')}\n\n" if "title" in asked else ""
    return f"{title}{lines}\n\n{table['kind']}{machine}: {table['title']}, {record.date}."


def _cell(value):
    return pages.NOT_MEASURED if value is None else format_number(value).replace("|", "\\|")


def _ledger(context):
    parts = []
    for notebook, found in context.records.items():
        lines = [f"## {notebook}", ""]
        for name in dict.fromkeys(name for record in found for name in record.data["claims"]):
            for record, claim in find(context.records, notebook, name):
                value = format_value(claim["value"], claim["unit"]) if "value" in claim else pages.NOT_APPLICABLE
                where = f"{record.data['machine']['label']}, {record.date}"
                lines.append(f"- {name}: {claim['sentence']}: {value} ({claim['kind']}, {where})")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def _changes(context):
    labels, parts = pages.machines(context.records), []
    for date, notebooks in changes.by_day(changes.load(context.results)).items():
        parts.append(f"### {date}")
        for notebook, kept in notebooks.items():
            lines = [
                f"- {change['claim']}: {', '.join(changes.in_words(change))} ({labels.get(change['machine'], change['machine'])})"
                for change in kept
            ]
            parts.append("\n".join([f"#### {notebook}", "", *lines]))
    return "\n\n".join(parts) or changes.NOTHING


def _admonitions(text):
    """`??? example "Title"` and the lines indented under it become the title in bold and those lines as they are."""
    lines, inside = [], None
    for line in text.splitlines():
        opening = ADMONITION.match(line)
        if opening:
            inside = len(opening[1]) + 4
            line = f"{opening[1]}**{opening[2] or 'Note'}**\n"
        elif inside and line.strip() and not line.startswith(" " * inside):
            inside = None
        elif inside:
            line = line[:inside].lstrip() + line[inside:]
        lines.append(line)
    return "\n".join(lines)


def _runs(context, used):
    if not used:
        return ""
    lines = [
        f"- {name}: {run.date}, {run.data['machine']['label']}, "
        + ", ".join(f"{library} {version}" for library, version in run.data["software"].items())
        for name, run in sorted((name, context.shown_run(name)) for name in used)
    ]
    return "\nThe figures of this page come from these runs:\n\n" + "\n".join(lines) + "\n"


def _fenced(text, language):
    ticks = "`" * max([3] + [len(run) + 1 for run in re.findall(r"`{3,}", text)])
    return f"{ticks}{language}\n{text}\n{ticks}"


def _write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
