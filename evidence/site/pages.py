"""Python-Markdown extension: figures on pages come from records.

- `[[notebook:claim]]` in a sentence becomes the claim's value, marked by its kind; a click opens where it comes from.
  `[[notebook:claim@cpu]]` and `[[notebook:claim@gpu]]` take a machine without or with a GPU. Where the machine that the
  reader has chosen has no value, these and `[[notebook:claim@any]]` take the first that has one, and name it.
- a fenced block `table`, `chart`, `ledger`, `changes` or `machines` renders records, and what changed in them.

What was measured on several machines is there for each, in elements that name their machines in `data-on`; all but the
first are hidden until the reader chooses another machine (theme/main.html, docs/assets/first.js).

A name that is not in the records raises, so a page can't be built with it. No plugin, no hook: it works wherever
Python-Markdown does. `page` is the path of the page below docs/, from which links are made.
"""

import re
import xml.etree.ElementTree as etree
from functools import lru_cache, wraps
from html import escape
from pathlib import Path, PurePosixPath

import yaml
from markdown.extensions import Extension
from markdown.inlinepatterns import InlineProcessor
from markdown.treeprocessors import Treeprocessor
from pymdownx.superfences import SuperFencesException

from .. import records
from . import charts
from ..problems import Problem, line_of, nearest, read_text
from ..records import EXACT, find, format_number, format_value

CLAIM = r"\[\[([a-z0-9_]+):([a-z0-9-]+)(?:@(cpu|gpu|any))?\]\]"
NOT_MEASURED = "not measured yet"
NOT_APPLICABLE = "does not apply"
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
        self.records, self.page, self.colab = stored(results), page, colab
        self.results = results
        self.machines = list(machines(self.records))
        self.gpus = {record.machine for found in self.records.values() for record in found if has_gpu(record)}
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

    def shown_run(self, notebook):
        """The record of a notebook that a page shows until the reader has chosen a machine."""
        return min(self.records[notebook], key=lambda record: self.machines.index(record.machine))

    def record_url(self, record):
        return f"{self.root}results/{record.notebook}/{record.machine}.json"


def stored(results):
    """Every record. Read once for all pages, and again when one of their files has changed."""
    folder = Path(results)  # one key for every way to write it
    return _stored(folder, tuple((path, path.stat().st_mtime_ns) for path in sorted(folder.rglob("*.json"))))


@lru_cache(maxsize=1)
def _stored(results, files):
    return records.load_all(results)


def machines(found):
    """{name: label} of every machine, in the order in which a page shows them: with a GPU, with more records, newer."""
    kept = {}
    for record in (record for newest_first in found.values() for record in newest_first):
        kept.setdefault(record.machine, []).append(record)
    newest = {name: max(kept[name], key=lambda record: record.date) for name in sorted(kept)}
    order = sorted(newest, key=lambda name: (has_gpu(newest[name]), len(kept[name]), newest[name].date), reverse=True)
    return {name: newest[name].data["machine"]["label"] for name in order}


def has_gpu(record):
    return "gpu" in record.data["machine"]


def per_machine(context, entries, where=None):
    """{machine: its entry, or None}. Under "" stands what is shown until the reader has chosen a machine: the first that
    has a value; nothing else, where the figure is the same everywhere or there is no other machine.

    where: "cpu" or "gpu", for a sentence about one. It shows no machine of the other kind: who has chosen one sees the
    first. "any", for a sentence about either. In all three, who has chosen a machine without a value sees the first with
    one."""
    kinds = {"cpu": False, "gpu": True}
    asked = [name for name in context.machines if where not in kinds or (name in context.gpus) == kinds[where]]
    on = {record.machine: (record, entry) for record, entry in entries if record.machine in asked}
    found = {name: on.get(name) for name in asked}
    measured = entries[0][1]["kind"] == "measured"
    ranked = filter(None, found.values()) if measured else on.values()
    first = next(filter(_has_value, ranked), None)
    others = {name: first for name in context.machines if name not in asked}
    if where and first:
        found = {name: entry if _has_value(entry) else first for name, entry in found.items()}
    return {"": first} | (found | others if measured and len(found) > 1 else {})


def _has_value(entry):
    return entry is not None and bool(entry[1].keys() & {"value", "rows"})


def shown_value(entry):
    """What a sentence shows of an entry that `per_machine` has found."""
    if entry is None:
        return NOT_MEASURED, ""
    if "value" not in entry[1]:
        return NOT_APPLICABLE, ""
    number = format_number(entry[1]["value"])
    return number, format_value(entry[1]["value"], entry[1]["unit"])[len(number) :]


def _lent(context, choices, where):
    """{machine: label of the one whose figure it shows}, which nobody must take for its own. A sentence about a CPU says
    itself to who has chosen a GPU that the figure is another machine's."""
    others = {
        name: entry[0] for name, entry in choices.items() if where and name and entry and entry[0].machine != name
    }
    return {
        name: record.data["machine"]["label"]
        for name, record in others.items()
        if where == "any" or has_gpu(record) == (name in context.gpus)
    }


def alternatives(choices):
    """{what is shown: names of the machines that show it}, the first first."""
    shown = {}
    for name, what in choices.items():
        shown.setdefault(what, []).append(name)
    return shown


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
        kind = entries[0][1]["kind"]
        identifier = f"claim-{notebook}-{name}"
        self.context.used[identifier] = (notebook, name)
        button = etree.Element(
            "button",
            {
                "class": f"claim claim-{kind}",
                "type": "button",
                "popovertarget": identifier,
                "aria-describedby": f"kind-{kind}",
            },
        )
        choices = per_machine(self.context, entries, where)
        shown = {name: shown_value(entry) for name, entry in choices.items()}
        lent = _lent(self.context, choices, where)
        shown = alternatives(shown | {name: (*shown[name], machine) for name, machine in lent.items()})
        for number, (what, names) in enumerate(shown.items()):
            place = button if len(shown) == 1 else etree.SubElement(button, "span", _on(names, number))
            _fill(place, *what)
        return button, match.start(), match.end()


def _fill(element, number, unit, machine=None):
    """Writes a value into an element, its unit so that the style sheet can make it lighter, and whose it is."""
    if number in (NOT_MEASURED, NOT_APPLICABLE):
        element.set("class", f"{element.get('class', '')} claim-open".strip())
    element.text = number
    if unit:
        etree.SubElement(element, "small").text = unit
    if machine:
        etree.SubElement(element, "small", {"class": "claim-lent"}).text = f" ({machine})"


def _on(names, number):
    """The attributes of what some machines show. All but the first is hidden, and is no text for a search."""
    return {"data-on": " ".join(filter(None, names))} | (
        {"hidden": "hidden", "data-search-exclude": ""} if number else {}
    )


class ClaimPlaces(Treeprocessor):
    """No claim in a heading, whose anchor would change with the value, and none in a link, which may hold no button."""

    def run(self, root):
        for element in root.iter():
            button = element.find(".//button") if re.fullmatch(r"a|h[1-6]", element.tag) else None
            if button is not None:
                claim = ":".join(self.md.evidence.used[button.get("popovertarget")])
                what = f"the claim {claim} stands in a {'link' if element.tag == 'a' else 'heading'}"
                raise self.md.evidence.problem(what, "put it into the sentence after it", f"[[{claim}")


class Tables(Treeprocessor):
    """A table wider than the screen scrolls in a box of its own, without a script. The empty corner of one heads nothing."""

    def run(self, root):
        for corner in root.iter("th"):
            if not len(corner) and not (corner.text or "").strip():
                corner.tag = "td"
        parents = [(parent, table) for parent in root.iter() for table in parent if table.tag == "table"]
        for parent, table in parents:
            box = etree.Element("div", {"class": "scroll"})
            box.tail, table.tail = table.tail, None
            parent[list(parent).index(table)] = box
            box.append(table)


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
        notebooks = {notebook for notebook, _ in used.values()}
        popovers = "".join(_popover(self.context, identifier, *claim) for identifier, claim in used.items())
        kinds = {find(self.context.records, *claim)[0][1]["kind"] for claim in used.values()}
        described = "".join(f"<p id=kind-{kind}>{kind}: where this figure comes from</p>" for kind in sorted(kinds))
        foot = etree.SubElement(root, "div", {"class": "evidence-foot", "id": "runs", "data-search-exclude": ""})
        foot.text = self.md.htmlStash.store(_foot(self.context, notebooks))
        etree.SubElement(root, "p").text = self.md.htmlStash.store(
            f"{popovers}<div hidden data-search-exclude>{described}</div>"
        )
        title = root.find("h1")
        if title is not None:
            root.insert(list(root).index(title) + 1, _verified(self.context, notebooks))


def _verified(context, notebooks):
    """The line under the title. A page is as old as the oldest of the runs that it rests on."""
    line = etree.Element("p", {"class": "verified", "data-search-exclude": ""})
    line.text = "Figures last verified "
    link = etree.SubElement(line, "a", {"href": "#runs"})
    link.text = min(context.shown_run(notebook).date for notebook in notebooks)
    return line


def _popover(context, identifier, notebook, name):
    entries = find(context.records, notebook, name)
    claim = entries[0][1]
    rows = entries[:1] if claim["kind"] in (*EXACT, "cited") else entries
    sentence, sentences = _shared([_sentence(entry) for _, entry in rows])
    bound, bounds = _shared([_bound(entry) for _, entry in rows])
    lines = "".join(
        _source_line(context, record, entry, f"{said} {limits}".strip())
        for (record, entry), said, limits in zip(rows, sentences, bounds, strict=True)
    )
    source = f'<a href="{escape(claim["source"])}">Source</a> · ' if "source" in claim else ""
    return (
        f'<div id="{identifier}" class="claim-source" popover data-search-exclude>'
        f'<p><strong class="kind kind-{claim["kind"]}">{claim["kind"]}</strong> {KIND_MEANS[claim["kind"]]}</p>'
        f"{sentence and f'<p>{sentence}</p>'}{lines}{bound and f'<p>{bound}</p>'}"
        f'<p>{source}<a href="{context.notebook_url(notebook, f"claim-{name}")}">The code</a></p></div>'
    )


def _shared(texts):
    """(the text that all machines share, the text of each): one of the two is empty."""
    return (texts[0], [""] * len(texts)) if len(set(texts)) == 1 else ("", texts)


def _sentence(claim):
    return f"{escape(claim['sentence'])}."


def _bound(claim):
    limits = [
        f"{words} {format_value(claim[key], claim['unit'])}"
        for key, words in (("at_least", "at least"), ("at_most", "at most"))
        if key in claim
    ]
    return f"A run fails unless it is {' and '.join(limits)}." if limits else ""


def _source_line(context, record, claim, own):
    spread = claim.get("spread")
    between = (
        f"; {spread['repeats']} repeats of {format_number(spread['min'])} to {format_number(spread['max'])} s"
        if spread and "value" in claim
        else ""
    )
    shown = "{}<small>{}</small>".format(*map(escape, shown_value((record, claim))))
    if "value" not in claim:
        shown = escape(f"{NOT_APPLICABLE}, because {claim['because']}")
    machine = record.data["machine"]["label"] if claim["kind"] == "measured" else "any machine"
    where = f" on {escape(machine)}" if claim["kind"] == "measured" else ""
    return (
        f"<p><strong>{shown}</strong>{where}{between}<br>{escape(_versions(record))}, {record.date} · "
        f'<a href="{context.record_url(record)}">Record</a>{own and f"<br>{own}"}</p>'
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
        run = context.shown_run(notebook)
        items.append(
            f'<li><a href="{context.notebook_url(notebook)}">{notebook}</a>: {run.date}, {escape(run.data["machine"]["label"])}, '
            f"{escape(_versions(run))}{_in_colab(context, notebook)}</li>"
        )
    return f"<p>The figures of this page come from these runs:</p><ul>{''.join(items)}</ul>"


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
    return _on_each_machine(context, asked["table"], lambda record, table: _one_table(context, asked, record, table))


def _one_table(context, asked, record, table):
    keys = asked.get("columns") or list(table["columns"])
    _known(keys, table, asked["table"])
    rows = [[row[list(table["columns"]).index(key)] for key in keys] for row in table["rows"]]
    return f'<div class="evidence-table">{_html_table([table["columns"][key] for key in keys], rows)}{_caption(context, record, table, asked["table"])}</div>'


def _on_each_machine(context, name, render):
    """A table of a record, or what is drawn from it, for every machine."""
    notebook, _, table = name.partition(":")
    choices = per_machine(context, find(context.records, notebook, table, "tables"))
    missing = f'<p class="evidence-caption">{NOT_MEASURED.capitalize()} on this machine: {escape(name)}.</p>'
    shown = alternatives({machine: render(*entry) if entry else missing for machine, entry in choices.items()})
    if len(shown) == 1:
        return next(iter(shown))
    # a section, because Material's search ends an exclusion at the first element inside of the same name
    return "".join(
        f"<section {_attributes(_on(names, number))}>{what}</section>"
        for number, (what, names) in enumerate(shown.items())
    )


def _attributes(named):
    return " ".join(f'{name}="{escape(value)}"' for name, value in named.items())


@_fence
def chart_fence(source, language, css_class, options, md, **kwargs):
    """```chart: `table`, `mark` (line, bar, area), `x`, `y` (one column or several of one unit), `title`, `description`
    (the text alternative), and where wanted `log: [x, y]`. Drawn as SVG at build time; its colours are CSS variables."""
    context, asked = md.evidence, _asked(source, "table", "mark", "x", "y", "title", "description")
    return _on_each_machine(context, asked["table"], lambda record, table: _one_chart(context, asked, record, table))


def _one_chart(context, asked, record, table):
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
    context = md.evidence
    links = ", ".join(f'<a href="#{notebook}">{notebook}</a>' for notebook in context.records)
    parts = [f'<p class="contents" data-search-exclude>{links}</p>']  # the page's own knows headings of Markdown only
    for notebook, found in context.records.items():
        names = dict.fromkeys(name for record in found for name in record.data["claims"])
        rows = "".join(_ledger_row(context, notebook, name) for name in names)
        parts.append(
            f'<h2 id="{notebook}"><a href="{context.notebook_url(notebook)}">{notebook}</a></h2><div class="evidence-table ledger scroll"><table><thead><tr>'
            f"<th>Claim</th> <th class=number>Value</th> <th>Kind</th> <th>Machine, versions, date</th></tr></thead><tbody>{rows}</tbody></table></div>"
        )
    return "".join(parts)


@_fence
def changes_fence(source, language, css_class, options, md, **kwargs):
    """```changes: every figure that another run replaced, with what it was."""
    context = md.evidence
    days = changes.by_day(changes.load(context.results))
    feed = f'<p data-search-exclude><a href="{context.root}{changes.FEED}">The RSS feed</a></p>'
    if not days:
        return f"<p>{changes.NOTHING}</p>{feed}"
    contents, parts = [], []
    for date, notebooks in days.items():
        links = ", ".join(f'<a href="#{changes.anchor(date, name)}">{name}</a>' for name in notebooks)
        contents.append(f'<a href="#{changes.anchor(date)}">{date}</a>: {links}')
        parts.append(f'<h3 id="{changes.anchor(date)}">{date}</h3>')
        parts += [_changed(context, date, notebook, kept) for notebook, kept in notebooks.items()]
    return f'{feed}<p class="contents" data-search-exclude>{"<br>".join(contents)}</p>{"".join(parts)}'


@_fence
def machines_fence(source, language, css_class, options, md, **kwargs):
    """```machines: every machine that a record comes from, in the order of `machines`."""
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
        for name, record in ((name, newest[name]) for name in md.evidence.machines)
    ]
    head = ["Name", "Machine", "GPU memory, GiB", "CPU cores", "Memory, GiB", "Newest versions", "Newest record"]
    return f'<div class="evidence-table machines">{_html_table(head, rows, missing="–")}</div>'


def _changed(context, date, notebook, kept):
    """The figures of one notebook that changed on one day. A notebook or a claim that is gone has no link."""
    newest = context.records[notebook][0].data["claims"] if notebook in context.records else None
    title = notebook if newest is None else f'<a href="{context.notebook_url(notebook)}">{notebook}</a>'
    labels, rows = machines(context.records), []
    for change in kept:
        name, (figure, before) = change["claim"], changes.in_words(change)
        claim = f"<code>{name}</code>"
        if newest and name in newest:
            link = context.notebook_url(notebook, f"claim-{name}")
            claim = f'<a href="{link}">{claim}</a><br>{escape(newest[name]["sentence"])}'
        rows.append(
            f'<tr><td>{claim}</td> <td class="number">{escape(figure)}</td> <td>{escape(before)}</td> '
            f"<td>{escape(labels.get(change['machine'], change['machine']))}</td></tr>"
        )
    return (
        f'<h4 id="{changes.anchor(date, notebook)}">{title}</h4><div class="evidence-table ledger scroll"><table><thead><tr>'
        f"<th>Claim</th> <th class=number>Figure</th> <th>Before</th> <th>Machine</th></tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def _ledger_row(context, notebook, name):
    entries = find(context.records, notebook, name)
    claim = entries[0][1]
    rows = entries[:1] if claim["kind"] in (*EXACT, "cited") else entries
    values = "<br>".join(
        escape(
            format_value(entry["value"], entry["unit"]) if "value" in entry else f"{NOT_APPLICABLE}: {entry['because']}"
        )
        for _, entry in rows
    )
    sources = "<br>".join(
        f'<a href="{context.record_url(record)}">{escape(record.data["machine"]["label"])}</a>, {escape(_versions(record))}, {record.date}'
        for record, _ in rows
    )
    if "source" in claim:  # a cited figure is of nobody's machine; arithmetic on one has both
        cited = f'<a href="{escape(claim["source"])}">source</a>'
        sources = cited if claim["kind"] == "cited" else f"{sources}<br>{cited}"
    return (
        f'<tr id="{notebook}-{name}"><td><a href="{context.notebook_url(notebook, f"claim-{name}")}"><code>{name}</code></a><br>{escape(claim["sentence"])}</td> '
        f'<td class="number">{values}</td> <td>{claim["kind"]}</td> <td>{sources}</td></tr>'
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


def _known(keys, table, name):
    for key in keys:
        if key not in table["columns"]:
            raise LookupError(
                f"table {name} has no column {key!r}{nearest(key, table['columns'])}: {', '.join(table['columns'])}"
            )


def _html_table(headers, rows, missing=NOT_MEASURED):
    numeric = [all(value is None or isinstance(value, (int, float)) for value in column) for column in zip(*rows)]
    # with white space between cells: the search index drops the tags, and would glue their words together
    head = " ".join(f"<th{_class(right)}>{_header(header, right)}</th>" for header, right in zip(headers, numeric))
    body = " ".join(
        "<tr>" + " ".join(_cell(value, right, missing) for value, right in zip(row, numeric)) + "</tr>" for row in rows
    )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _header(header, right):
    """The heading of a column; behind the last comma of one of numbers stands its unit."""
    name, comma, unit = header.rpartition(", ") if right else (header, "", "")
    return f"{escape(name)}<small>{comma}{escape(unit)}</small>" if comma else escape(header)


def _cell(value, right, missing):
    shown = missing if value is None else format_number(value)
    return f"<td{_class(right)}>{escape(shown)}</td>"


def _class(right):
    return " class=number" if right else ""


def _caption(context, record, table, name):
    notebook, _, key = name.partition(":")
    machine = f" on {escape(record.data['machine']['label'])}" if table["kind"] == "measured" else ""
    parts = [] if table["kind"] == "cited" else [f"{escape(_versions(record))}, {record.date}"]
    if "source" in table:
        parts.append(f'<a href="{escape(table["source"])}">source</a>')
    source = " · ".join(parts)
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
        md.treeprocessors.register(Tables(md), "tables-of-the-page", 13)


def makeExtension(**options):
    return EvidenceExtension(**options)
