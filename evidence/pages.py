"""Python-Markdown extension: figures on pages come from records.

- `[[notebook:claim]]` in a sentence becomes the claim's value, marked by its kind; a click opens where it comes from.
  `[[notebook:claim@cpu]]` and `[[notebook:claim@gpu]]` take the newest record of a machine without or with a GPU.
- a fenced block `table`, `chart`, `ledger` or `machines` renders records.

A name that is not in the records raises, so a page can't be built with it. No plugin, no hook: it works wherever
Python-Markdown does. `page` is the path of the page below docs/, from which links are made.
"""

import re
import xml.etree.ElementTree as etree
from functools import wraps
from html import escape
from pathlib import Path, PurePosixPath

import yaml
from markdown.extensions import Extension
from markdown.inlinepatterns import InlineProcessor
from markdown.treeprocessors import Treeprocessor
from pymdownx.superfences import SuperFencesException

from . import charts, records
from .problems import Problem, line_of, nearest, read_text
from .records import EXACT, find, format_number, format_value

CLAIM = r"\[\[([a-z0-9_]+):([a-z0-9-]+)(?:@(cpu|gpu))?\]\]"
NOT_MEASURED = "not measured yet"
MARKS = charts.MARKS
BLOCK_KEYS = {
    "table": "notebook:name",
    "mark": f"one of {', '.join(MARKS)}",
    "x": "a column",
    "y": "a column, or several of one unit",
    "title": "what the chart shows",
    "description": "which is read to those who do not see the chart",
}
BLOCKS = {
    "table": (["table"], ["table", "columns"]),
    "chart": (list(BLOCK_KEYS), [*BLOCK_KEYS, "log"]),
}  # needed, known
KIND_MEANS = {
    "derived": "arithmetic, shown in the notebook",
    "traced": "the real model code on fake tensors: exact, the same on every machine",
    "measured": "run on the machine named",
    "cited": "measured by others, see the source",
}


class Context:
    """What one page knows: the records, and where it stands itself."""

    def __init__(self, results, page, colab=""):
        self.records, self.page, self.colab = records.load_all(results), page, colab
        path = PurePosixPath(page)
        depth = len(path.parts) - (1 if path.name == "index.md" else 0)
        self.root = "../" * depth if page else ""
        self.used = {}  # popover id -> (notebook, claim), in the order of the page

    def notebook_url(self, notebook, anchor=""):
        return f"{self.root}notebooks/{notebook}/{anchor and '#' + anchor}"

    def problem(self, what, fix, fragment):
        """A Problem in this page, at the first line that holds `fragment`."""
        path = Path("docs", self.page)
        return Problem(path, what, fix, line_of(read_text(path), fragment) if path.is_file() else None)

    def record_url(self, record):
        return f"{self.root}results/{record.notebook}/{record.machine}.json"


def has_gpu(record):
    return "gpu" in record.data["machine"]


def choose(entries, where=None):
    """The (record, claim) that a sentence shows: with a value, of the machine asked for, a GPU's before a CPU's, the newest."""
    valued = [entry for entry in entries if "value" in entry[1]]
    if where:
        valued = [entry for entry in valued if has_gpu(entry[0]) == (where == "gpu")]
    return max(valued, key=lambda entry: (has_gpu(entry[0]), entry[0].date), default=None)


class ClaimPattern(InlineProcessor):
    def __init__(self, context):
        super().__init__(CLAIM)
        self.context = context

    def handleMatch(self, match, data):
        notebook, name, where = match.groups()
        try:
            entries = find(self.context.records, notebook, name)
        except LookupError as error:
            fix = "take a name of the ledger, or add the claim to the notebook and record it"
            raise self.context.problem(f"unknown figure {match[0]}: {error}", fix, match[0]) from None
        chosen = choose(entries, where)
        kind = entries[0][1]["kind"]
        shown = format_value(chosen[1]["value"], chosen[1]["unit"]) if chosen else NOT_MEASURED
        identifier = f"claim-{notebook}-{name}"
        self.context.used[identifier] = (notebook, name)
        button = etree.Element(
            "button",
            {
                "class": f"claim claim-{kind}" if chosen else "claim claim-open",
                "type": "button",
                "popovertarget": identifier,
                "aria-label": f"{shown}, {kind}: where this figure comes from",
            },
        )
        button.text = shown
        return button, match.start(), match.end()


class ClaimPlaces(Treeprocessor):
    """No claim in a heading, whose anchor would change with the value, and none in a link, which may hold no button."""

    def run(self, root):
        for element in root.iter():
            button = element.find(".//button") if re.fullmatch(r"a|h[1-6]", element.tag) else None
            if button is not None:
                claim = ":".join(self.md.evidence.used[button.get("popovertarget")])
                what = f"the claim {claim} stands in a {'link' if element.tag == 'a' else 'heading'}"
                raise self.md.evidence.problem(what, "put it into the sentence after it", f"[[{claim}")


class Popovers(Treeprocessor):
    """At the end of the page: where each figure comes from, once per claim, and the records that the page rests on.

    Not a postprocessor: the table of contents runs those on every heading, and the first would take the popovers.
    """

    def __init__(self, md):
        super().__init__(md)
        self.context = md.evidence

    def run(self, root):
        used, self.context.used = self.context.used, {}
        if not used:
            return
        foot = _foot(self.context, {notebook for notebook, _ in used.values()})
        popovers = "".join(_popover(self.context, identifier, *claim) for identifier, claim in used.items())
        etree.SubElement(root, "p").text = self.md.htmlStash.store(f"{foot}\n{popovers}")


def _popover(context, identifier, notebook, name):
    entries = find(context.records, notebook, name)
    claim = entries[0][1]
    rows = entries[:1] if claim["kind"] in (*EXACT, "cited") else entries
    lines = "".join(_source_line(context, record, entry) for record, entry in rows)
    limits = [
        f"{words} {format_value(claim[key], claim['unit'])}"
        for key, words in (("at_least", "at least"), ("at_most", "at most"))
        if key in claim
    ]
    bound = f"<p>A run fails unless it is {' and '.join(limits)}.</p>" if limits else ""
    source = f'<a href="{escape(claim["source"])}">Source</a> · ' if "source" in claim else ""
    return (
        f'<div id="{identifier}" class="claim-source" popover data-search-exclude>'
        f'<p><strong class="kind kind-{claim["kind"]}">{claim["kind"]}</strong> {KIND_MEANS[claim["kind"]]}</p>'
        f"<p>{escape(claim['sentence'])}.</p>{lines}{bound}"
        f'<p>{source}<a href="{context.notebook_url(notebook, f"claim-{name}")}">The code</a></p></div>'
    )


def _source_line(context, record, claim):
    spread = claim.get("spread")
    between = (
        f"; {spread['repeats']} steps of {format_number(spread['min'])} to {format_number(spread['max'])} s"
        if spread
        else ""
    )
    shown = (
        format_value(claim["value"], claim["unit"])
        if "value" in claim
        else f"does not apply, because {claim['because']}"
    )
    machine = record.data["machine"]["label"] if claim["kind"] == "measured" else "any machine"
    where = f" on {escape(machine)}" if claim["kind"] == "measured" else ""
    return (
        f"<p><strong>{escape(shown)}</strong>{where}{between}<br>{escape(_versions(record))}, {record.date} · "
        f'<a href="{context.record_url(record)}">Record</a></p>'
    )


def _versions(record):
    return ", ".join(
        f"{name} {record.data['software'][name]}"
        for name in ("torch", "transformers")
        if name in record.data["software"]
    )


def _foot(context, notebooks):
    items = []
    for notebook in sorted(notebooks):
        newest = context.records[notebook][0]
        items.append(
            f'<li><a href="{context.notebook_url(notebook)}">{notebook}</a>: {newest.date}, {escape(newest.data["machine"]["label"])}, '
            f"{escape(_versions(newest))}{_in_colab(context, notebook)}</li>"
        )
    return f'<div class="evidence-foot" data-search-exclude><p>The figures of this page come from these runs:</p><ul>{"".join(items)}</ul></div>'


def _in_colab(context, notebook):
    return f' · <a href="{context.colab}{notebook}.ipynb">Open in Colab</a>' if context.colab else ""


def _fence(render):
    """A block that can't be rendered stops the build: after any other error SuperFences would show it as code."""

    @wraps(render)
    def fence(source, language, css_class, options, md, **kwargs):
        try:
            return render(source, language, css_class, options, md, **kwargs)
        except Exception as error:
            first = source.strip().split("\n")[0] or language
            fix = "correct the block; `make check` names the line"
            raise SuperFencesException(md.evidence.problem(f"{language}: {error}", fix, first)) from error

    return fence


@_fence
def table_fence(source, language, css_class, options, md, **kwargs):
    """```table: `table: notebook:name`, and where wanted `columns: [...]` of it."""
    context, asked = md.evidence, _asked(source, "table")
    record, table = _table(context, asked["table"])
    keys = asked.get("columns") or list(table["columns"])
    _known(keys, table, asked["table"])
    rows = [[row[list(table["columns"]).index(key)] for key in keys] for row in table["rows"]]
    return f'<div class="evidence-table">{_html_table([table["columns"][key] for key in keys], rows)}{_caption(context, record, table, asked["table"])}</div>'


@_fence
def chart_fence(source, language, css_class, options, md, **kwargs):
    """```chart: `table`, `mark` (line, bar, area), `x`, `y` (one column or several of one unit), `title`, `description`
    (the text alternative), and where wanted `log: [x, y]`. Drawn as SVG at build time; its colours are CSS variables."""
    context, asked = md.evidence, _asked(source, "table", "mark", "x", "y", "title", "description")
    record, table = _table(context, asked["table"])
    series = asked["y"] if isinstance(asked["y"], list) else [asked["y"]]
    _known([asked["x"], *series], table, asked["table"])
    if asked["mark"] not in MARKS:
        raise ValueError(f"there is no mark {asked['mark']}{nearest(str(asked['mark']), MARKS)}: {', '.join(MARKS)}")
    place = {key: number for number, key in enumerate(table["columns"])}
    x_title, labels = table["columns"][asked["x"]], {key: table["columns"][key].rsplit(", ", 1) for key in series}
    units = {label[-1] for label in labels.values()}
    if len(units) > 1:
        raise ValueError(f"chart of {asked['table']}: one axis, but the units {', '.join(sorted(units))}")
    points = {
        labels[key][0]: [
            (row[place[asked["x"]]], row[place[key]]) for row in table["rows"] if row[place[key]] is not None
        ]
        for key in series
    }
    drawing = charts.draw(points, asked["mark"], x_title, units.pop(), asked.get("log", []), asked["description"])
    rows = [[row[place[asked["x"]]], *(row[place[key]] for key in series)] for row in table["rows"]]
    figures = _html_table([x_title, *(table["columns"][key] for key in series)], rows)
    return (
        f'<figure class="chart" data-search-exclude><figcaption>{escape(asked["title"])}</figcaption>{drawing}'
        f"<details><summary>The figures</summary>{figures}</details>{_caption(context, record, table, asked['table'])}</figure>"
    )


@_fence
def ledger_fence(source, language, css_class, options, md, **kwargs):
    """```ledger: every claim of every notebook, with the newest record of each machine."""
    context, parts = md.evidence, []
    for notebook, found in context.records.items():
        names = dict.fromkeys(name for record in found for name in record.data["claims"])
        rows = "".join(_ledger_row(context, notebook, name) for name in names)
        parts.append(
            f'<h2 id="{notebook}"><a href="{context.notebook_url(notebook)}">{notebook}</a></h2><div class="evidence-table ledger"><table><thead><tr>'
            f"<th>Claim</th><th>Value</th><th>Kind</th><th>Machine, versions, date</th></tr></thead><tbody>{rows}</tbody></table></div>"
        )
    return "".join(parts)


@_fence
def machines_fence(source, language, css_class, options, md, **kwargs):
    """```machines: every machine that a record comes from."""
    newest = {}
    for found in md.evidence.records.values():
        for record in found:
            if record.machine not in newest or record.date > newest[record.machine].date:
                newest[record.machine] = record
    rows = [
        [
            name,
            record.data["machine"]["label"],
            record.data["machine"].get("gpu_memory_gib"),
            record.data["machine"]["cores"],
            record.data["machine"].get("memory_gib"),
            _versions(record),
            record.date,
        ]
        for name, record in sorted(newest.items())
    ]
    head = ["Name", "Machine", "GPU memory, GiB", "CPU cores", "Memory, GiB", "Newest versions", "Newest record"]
    return f'<div class="evidence-table">{_html_table(head, rows, missing="–")}</div>'


def _ledger_row(context, notebook, name):
    entries = find(context.records, notebook, name)
    claim = entries[0][1]
    rows = entries[:1] if claim["kind"] in (*EXACT, "cited") else entries
    values = "<br>".join(
        escape(
            format_value(entry["value"], entry["unit"]) if "value" in entry else "does not apply: " + entry["because"]
        )
        for _, entry in rows
    )
    sources = "<br>".join(
        f'<a href="{context.record_url(record)}">{escape(record.data["machine"]["label"])}</a>, {escape(_versions(record))}, {record.date}'
        for record, _ in rows
    )
    if "source" in claim:
        sources = f'<a href="{escape(claim["source"])}">source</a>'
    return (
        f'<tr id="{notebook}-{name}"><td><a href="{context.notebook_url(notebook, f"claim-{name}")}"><code>{name}</code></a><br>{escape(claim["sentence"])}</td>'
        f'<td class="number">{values}</td><td>{claim["kind"]}</td><td>{sources}</td></tr>'
    )


def _asked(source, *needed):
    asked = yaml.safe_load(source)
    if not isinstance(asked, dict) or (missing := [key for key in needed if key not in asked]):
        raise ValueError(
            f"this block needs {', '.join(needed)}: {source.strip()[:80]!r}"
            if not isinstance(asked, dict)
            else f"this block lacks {missing[0]!r}"
        )
    return asked


def _table(context, name):
    notebook, _, table = name.partition(":")
    entries = find(context.records, notebook, table, "tables")
    return max(entries, key=lambda entry: (has_gpu(entry[0]), entry[0].date))


def _known(keys, table, name):
    for key in keys:
        if key not in table["columns"]:
            raise LookupError(
                f"table {name} has no column {key!r}{nearest(key, table['columns'])}: {', '.join(table['columns'])}"
            )


def _html_table(headers, rows, missing=NOT_MEASURED):
    numeric = [all(value is None or isinstance(value, (int, float)) for value in column) for column in zip(*rows)]
    head = "".join(f"<th{_class(right)}>{escape(header)}</th>" for header, right in zip(headers, numeric))
    body = "".join(
        "<tr>" + "".join(_cell(value, right, missing) for value, right in zip(row, numeric)) + "</tr>" for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value, right, missing):
    shown = missing if value is None else format_number(value)
    return f"<td{_class(right)}>{escape(shown)}</td>"


def _class(right):
    return " class=number" if right else ""


def _caption(context, record, table, name):
    notebook, _, key = name.partition(":")
    machine = f" on {escape(record.data['machine']['label'])}" if table["kind"] == "measured" else ""
    source = (
        f'<a href="{escape(table["source"])}">source</a>'
        if "source" in table
        else f"{escape(_versions(record))}, {record.date}"
    )
    return (
        f'<p class="evidence-caption"><span class="kind kind-{table["kind"]}">{table["kind"]}</span>{machine}: {escape(table["title"])}. {source} · '
        f'<a href="{context.notebook_url(notebook, f"table-{key}")}">the code</a> · <a href="{context.record_url(record)}">record</a></p>'
    )


class EvidenceExtension(Extension):
    def __init__(self, **options):
        self.config = {
            "results": [str(records.RESULTS), "folder of the records"],
            "page": ["", "path of the page below docs/"],
            "colab": ["", "address of the notebooks in Colab, for the foot of a page"],
        }
        super().__init__(**options)

    def extendMarkdown(self, md):
        md.evidence = Context(self.getConfig("results"), self.getConfig("page"), self.getConfig("colab"))
        md.inlinePatterns.register(ClaimPattern(md.evidence), "claim", 175)  # before links take the brackets
        # after inline patterns (20), before the contents (5)
        md.treeprocessors.register(ClaimPlaces(md), "claim-places", 15)
        md.treeprocessors.register(Popovers(md), "claim-popovers", 14)


def makeExtension(**options):
    return EvidenceExtension(**options)
