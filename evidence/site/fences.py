"""Fenced blocks: `table`, `chart`, `timeline`, `ledger`, `machines` and `accelerators` render records, `diagram` draws a schedule."""

import re
from functools import wraps

import yaml
from markupsafe import Markup
from pymdownx.superfences import SuperFencesException

from .. import cited
from ..problems import nearest, read_text
from ..schema import format_number, format_value
from . import accelerators, charts, diagrams
from .context import NOT_APPLICABLE, alternatives, html, rows_of, versions
from .redirects import DOCS, address

MARKS = charts.MARKS
TIMELINE = ("lane", "start", "length", "label", "kind")  # the columns of a table that is drawn as a timeline
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
    "chart": (list(BLOCK_KEYS), [*BLOCK_KEYS, "log", "names"]),
    "timeline": (["table", "title", "description"], ["table", "title", "description"]),
}  # needed, known


def _fence(render):
    """A block that can't be rendered stops the build: after any other error SuperFences would show it as code."""

    @wraps(render)
    def fence(source, language, css_class, options, md, **kwargs):
        try:
            return render(source, md.evidence)
        except Exception as error:
            first = source.strip().split("\n")[0] or language
            raise SuperFencesException(md.evidence.problem(f"{language}: {error}", "correct the block", first)) from error

    return fence


@_fence
def table_fence(source, context):
    """```table: `table: notebook:name`, and where wanted `columns: [...]` of it."""
    asked = _asked(source, "table")
    return _on_each_machine(context, asked["table"], lambda record, table: _table(context, asked, record, table))


def _table(context, asked, record, table):
    keys = asked.get("columns") or list(table["columns"])
    return _figures(context, record, table, asked["table"], keys)


@_fence
def chart_fence(source, context):
    """```chart: `table`, `mark` (line, bar, area), `x`, `y` (one column or several of one unit), `title`, `description`
    (the text alternative), and where wanted `log: [x, y]` and `names: {column: its name in the legend}`, for a heading that only
    the column before it explains. Drawn as SVG at build time; its colors are CSS variables."""
    asked = _asked(source, "table", "mark", "x", "y", "title", "description")
    return _on_each_machine(context, asked["table"], lambda record, table: _chart(context, asked, record, table))


def _chart(context, asked, record, table):
    series = asked["y"] if isinstance(asked["y"], list) else [asked["y"]]
    _known([asked["x"], *series], table, asked["table"])
    if asked["mark"] not in MARKS:
        raise ValueError(f"there is no mark {asked['mark']}{nearest(str(asked['mark']), MARKS)}: {', '.join(MARKS)}")
    labels = {key: table["columns"][key].rsplit(", ", 1) for key in series}
    units = {label[-1] for label in labels.values()}
    if len(units) > 1:
        raise ValueError(f"chart of {asked['table']}: one axis, but the units {', '.join(sorted(units))}")
    columns = dict(zip(table["columns"], zip(*table["rows"])))
    names = {key: label[0] for key, label in labels.items()} | asked.get("names", {})
    points = {
        names[key]: [(x, y) for x, y in zip(columns[asked["x"]], columns[key]) if y is not None] for key in series
    }
    x_title, log = table["columns"][asked["x"]], asked.get("log", [])
    drawing = charts.draw(points, asked["mark"], x_title, units.pop(), log, asked["description"])
    chart = {"title": asked["title"], "drawing": Markup(drawing)}
    return _figures(context, record, table, asked["table"], [asked["x"], *series], chart)


@_fence
def ledger_fence(source, context):
    """```ledger: every claim of every notebook, with the newest record of each machine."""
    kept = [notebook for notebook, records in context.records.items() if records]
    pages = _pages_of_claims(DOCS)
    notebooks = [_in_ledger(context, notebook, pages) for notebook in kept]
    choices = {
        "page": sorted(
            {page["name"] for notebook in notebooks for claim in notebook["claims"] for page in claim["pages"]}
        ),
        "kind": sorted({claim["kind"] for notebook in notebooks for claim in notebook["claims"]}),
        "machine": list(context.machines.values()),
    }
    return html("ledger.html", notebooks=notebooks, choices=choices)


def _in_ledger(context, notebook, pages):
    kept = context.records[notebook]
    names = dict.fromkeys(name for record in kept for name in record.data["claims"])
    return {
        "name": notebook,
        "url": context.notebook_url(notebook),
        "runs": [_ledger_run(context, record) for record in kept if not cited.is_cited(record)],
        "claims": [_ledger_row(context, notebook, name, pages.get((notebook, name), ())) for name in names],
    }


def _ledger_run(context, record):
    return {
        "record": context.record_url(record),
        "machine": context.label(record) if record.machine else "the same on every machine",
        "versions": versions(record),
        "date": record.date,
    }


def _ledger_row(context, notebook, name, pages):
    rows = rows_of(context, notebook, name)
    claim = rows[0][1]
    return {
        "name": name,
        # ledger.js reads the names of notebook and claim from the link
        "cell": f"{context.repository}/tree/main/results/{notebook}/#claim-{name}" if "read" in claim else context.notebook_url(notebook, f"claim-{name}"),
        "sentence": claim["sentence"],
        "shown": [_ledger_value(entry) for _, entry in rows],
        "kind": claim["kind"],
        "machines": [context.label(record) for record, _ in rows] if claim["kind"] == "measured" else [],
        "source": claim.get("source"),
        "pages": [
            {"name": address(page).rstrip("/") or "overview", "url": f"{context.root}{address(page)}"} for page in pages
        ],
    }


def _pages_of_claims(docs):
    """{(notebook, claim): the pages that show it}"""
    found = {}
    for path in sorted(docs.rglob("*.md")):
        for claim in dict.fromkeys(re.findall(r"\[\[([a-z0-9_]+):([a-z0-9-]+)", read_text(path))):
            found.setdefault(claim, []).append(path.relative_to(docs).as_posix())
    return found


def _ledger_value(entry):
    if "on" in entry:
        return _range_of_gpus(entry)
    if "value" in entry:
        return format_value(entry["value"], entry["unit"])
    return f"{NOT_APPLICABLE}: {entry['because']}"


def _range_of_gpus(entry):
    values = sorted(said["value"] for said in entry["on"].values() if "value" in said)
    if not values:
        return NOT_APPLICABLE
    low, high = (format_value(value, entry["unit"]) for value in (values[0], values[-1]))
    return f"{low} to {high} on {len(values)} GPUs" if len(values) > 1 else low


@_fence
def accelerators_fence(source, context):
    """```accelerators: rows of the table of accelerators, each value with its source (accelerators.py)."""
    return accelerators.rendered(source)


@_fence
def timeline_fence(source, context):
    """```timeline: blocks on lanes over time: `table` with the columns `lane`, `start` and `length` (numbers), `label` and `kind`
    (what its color means), and the keys `title` and `description`. A name that lasts long is written into its block."""
    asked = _asked(source, "table", "title", "description")
    return _on_each_machine(context, asked["table"], lambda record, table: _timeline(context, asked, record, table))


def _timeline(context, asked, record, table):
    _known(TIMELINE, table, asked["table"])
    places = [list(table["columns"]).index(key) for key in TIMELINE]
    lanes = {}
    for row in table["rows"]:
        lane, *block = [row[place] for place in places]
        lanes.setdefault(lane, []).append(tuple(block))
    end = max(start + length for blocks in lanes.values() for start, length, *_ in blocks)
    ends = f"{format_number(end)} {table['columns']['length'].rpartition(', ')[2]}"
    caption = html("caption.html", of=_caption(context, record, table, asked["table"]))
    return diagrams.timeline(asked["title"], asked["description"], lanes, ends=ends, caption=caption)


@_fence
def diagram_fence(source, context):
    """```diagram: the name of a drawing in evidence/site/diagrams."""
    return diagrams.draw(source.strip())


@_fence
def machines_fence(source, context):
    """```machines: every machine that a record comes from, in the order in which pages show them."""
    newest, counts = {}, dict.fromkeys(context.machines, 0)
    for record in (record for found in context.records.values() for record in found if record.machine):
        counts[record.machine] += sum("value" in claim for claim in record.data["claims"].values())
        if record.machine not in newest or record.date > newest[record.machine].date:
            newest[record.machine] = record
    head = ["Name", "Machine", "GPU memory, GiB", "CPU cores", "Memory, GiB", "Newest versions", "Newest record", "Figures measured"]
    rows = [[*_machine(name, newest[name]), counts[name]] for name in context.machines]
    columns = _columns(head, rows)
    return html("rows.html", name="Machines", kind="machines", columns=columns, rows=_cells(rows), of=None, chart=None)


def _machine(name, record):
    here = record.data["machine"]
    memory, of_gpu = here.get("memory_gib"), here.get("gpu_memory_gib")
    return [name, here["label"], of_gpu, here["cores"], memory, versions(record), record.date]


def _on_each_machine(context, name, render):
    """A table of a record, or what is drawn from it, for every machine; where one has none, that of the first that has."""
    notebook, _, table = name.partition(":")
    choices = context.each_machine(context.find(notebook, table, "tables"))
    shown = alternatives({machine: render(*entry) for machine, entry in choices.items() if entry})
    if len(shown) == 1:
        return next(iter(shown))
    return html(
        "choices.html",
        choices=[(Markup(what), " ".join(filter(None, machines))) for what, machines in shown.items()],
    )


def _figures(context, record, table, name, keys, chart=None):
    """A table of a record with its caption; with a chart, folded under it."""
    _known(keys, table, name)
    places = [list(table["columns"]).index(key) for key in keys]
    rows = [[row[place] for place in places] for row in table["rows"]]
    columns = _columns([table["columns"][key] for key in keys], rows)
    of = _caption(context, record, table, name)
    return html("rows.html", name=table["title"], kind="", columns=columns, rows=_cells(rows), of=of, chart=chart)


def _columns(headers, rows):
    """The heading of each column. Behind the last comma of a column of numbers stands its unit."""
    numeric = [all(value in (None, "–") or isinstance(value, (int, float)) for value in column) for column in zip(*rows)]
    split = [header.rpartition(", ") if right else ("", "", header) for header, right in zip(headers, numeric)]
    return [
        {"name": name or unit, "unit": unit if name else "", "numeric": right}
        for (name, _, unit), right in zip(split, numeric)
    ]


def _cells(rows):
    return [["–" if value is None else format_number(value) for value in row] for row in rows]


def _caption(context, record, table, name):
    notebook, _, key = name.partition(":")
    cited = table["kind"] == "cited"
    return {
        "kind": table["kind"],
        "machine": context.label(record) if table["kind"] == "measured" else "",
        "title": table["title"],
        "versions": "" if cited else versions(record),
        "date": record.date,
        "stale": "stale" in table,
        "source": table.get("source"),
        "cell": context.table_url(notebook, key),
        "record": context.record_url(record),
    }


def _asked(source, *needed):
    asked = yaml.safe_load(source)
    if not isinstance(asked, dict):
        raise ValueError(f"this block needs {', '.join(needed)}: {source.strip()[:80]!r}")
    if missing := [key for key in needed if key not in asked]:
        raise ValueError(f"this block lacks {missing[0]!r}")
    return asked


def _known(keys, table, name):
    for key in keys:
        if key not in table["columns"]:
            raise LookupError(
                f"table {name} has no column {key!r}{nearest(key, table['columns'])}: {', '.join(table['columns'])}"
            )
