"""A notebook as the Markdown of its page: nbconvert with our template (theme/notebook), which Python-Markdown then renders
as it renders a guide. One exporter serves all notebooks, because its templates are compiled anew with each.
"""

import ast
import re
from datetime import date
from pathlib import Path

import nbformat
import yaml
from bs4 import BeautifulSoup
from nbconvert.exporters import TemplateExporter
from traitlets.config import Config

from evidence import measured_code, runs_on
from evidence.claims import MIME
from evidence.measured_code import CLOSING_MARK, INSTALL_MARK
from evidence.site.context import has_gpu

OUTCOME = r"^## (What came out.*?)\n(.*?)(?=^## |\Z)"
MOST_POINTS = 4  # of what came out, beside the first picture
LABEL = 4  # words: a shorter beginning says what a point is about, and not yet what came out
SHOWN_FIRST = ["text/html", "image/svg+xml", "image/png", "text/plain"]  # of the forms that an output is stored in


def markdown(path, figure, records=()):
    """The text of the notebook `path`; `figure(data, suffix)` stores a figure and returns its link. A stored error raises.

    records: those of the notebook, of which the first picture shows one with a GPU, where there is one.
    """
    notebook = nbformat.read(path, as_version=4)
    _answer_first(notebook, figure, records)
    return EXPORTER.from_notebook_node(notebook, resources={"figure": figure})[0]


def _answer_first(notebook, figure, records):
    """Puts what came out and the first picture under the question, where a reader sees both. In the file they stay where they were made."""
    first, *_ = cells = notebook.cells
    question = re.match(r"# .+\n+(?:.+\n?)+", first.source)
    sections = [found for cell in cells if cell.cell_type == "markdown" if (found := re.search(OUTCOME, cell.source, re.M | re.S))]
    if not question:
        return
    recipe = not sections  # what comes out is its reader's
    answer = _first_picture(notebook, figure, records, recipe)
    if recipe:
        answer = f"{answer}\n*From the run of this page: a small model on a CPU.*"
    else:
        heading, text = sections[-1].groups()
        said = "\n".join(f"- {sentence}" for sentence in outcome(text))
        whole = f"[All of what came out](#{re.sub(r'[^a-z]+', '-', heading.lower())})"
        run = f"*{_run(notebook)}*"
        answer = f'<div class="nb-answer" markdown="1">\n<div markdown="1">\n\n{said}\n\n{whole}\n\n{run}\n\n</div>\n{answer}\n</div>'
    first.source = f"{question[0].strip()}\n\n{answer}\n\n{first.source[question.end() :]}"


def _run(notebook):
    """In words, the machine and date of the run that the page shows."""
    opened = next((output.data[MIME["start"]] for cell in notebook.cells for output in cell.get("outputs", ()) if MIME["start"] in output.get("data", {})), None)
    if not opened or not any(measured_code.measures(cell) for cell in notebook.cells if cell.cell_type == "code"):
        return "Counted, traced, predicted or cited: nothing on this page depends on the machine."
    day = date.fromisoformat(opened["date"])
    return f"Run of this page: {opened['machine']['label']}, {day.day} {day:%B %Y}."


def outcome(text):
    """The first sentences of what a notebook says came out, the most important ones first: of its points, or of its text."""
    points = re.findall(r"^(?:[-*]|\d+\.) +(.+(?:\n +.+)*)", text, re.M) or text.strip().split("\n\n")
    return [_first_sentence(" ".join(point.split())) for point in points[:MOST_POINTS]]


def _first_sentence(point):
    """The first sentence, and a second one after a label such as "*Ranges.*" or a question; a bold beginning stays whole."""
    sentences = re.findall(r"(?:\*\*.+?\*\*|\*[^*]+\*|.)+?(?:[.!?]|(?<=[.!?]\*)|(?<=[.!?]\*\*))(?=\s|$)", point) or [point]
    alone = len(sentences[0].split()) >= LABEL and "?" not in sentences[0]
    return "".join(sentences[: 1 if alone else 2]).strip()


def _first_picture(notebook, figure, records, recipe):
    """The Markdown of the first figure with what it comes from, or nothing. A figure whose cell says which table it draws
    (`chart={"table": ..., "x": ..., "y": ...}`) is drawn from the record of a GPU, where there is one."""
    for cell, measured in _figures(notebook):
        for output in cell.get("outputs", ()):
            for kind in SHOWN_FIRST[1:3]:
                if kind in output.get("data", {}):
                    if drawn := _of_a_gpu(cell, records):
                        return drawn
                    link = figure(output.data[kind], "svg" if "svg" in kind else "png")
                    if recipe:  # its run is named below
                        return f"\n![{cell.metadata.alt}]{link}\n"
                    of = _run(notebook) if measured else "Counted, traced or predicted, not measured."
                    return f"\n![{cell.metadata.alt}]{link}\n\n*{of}*\n"
    return ""


def _of_a_gpu(cell, records):
    """A chart block of the table that a figure shows, where a machine with a GPU left that table; else "". The machine with a GPU comes
    first, and its name stands under the chart."""
    asked = cell.metadata.get("chart")
    on_gpu = [record for record in records if asked and has_gpu(record) and asked["table"] in record.data["tables"]]
    if not on_gpu:
        return ""
    table = on_gpu[0].data["tables"][asked["table"]]
    block = {
        "table": f"{on_gpu[0].notebook}:{asked['table']}", "mark": "bar", "x": asked["x"], "y": asked["y"],
        "title": table["columns"][asked["y"]], "description": cell.metadata.alt,
    }  # fmt: skip
    return f"\n```chart\n{yaml.safe_dump(block, sort_keys=False)}```\n"


def _figures(notebook):
    """Each cell of code, and whether it shows what a cell that measures found: by its tag, or by a name that it uses."""
    known = set()  # names that hold what was measured
    for cell in notebook.cells:
        if cell.cell_type != "code":
            continue
        shows = measured_code.measures(cell)
        if not cell.source.startswith("%%") and measured_code.makes_figures(cell.source):
            for statement in ast.parse(measured_code.plain(cell.source)).body:
                uses, binds = measured_code.names(statement)
                shows = shows or bool(uses & known)
                if shows and not isinstance(statement, (*measured_code.SCOPES, ast.Import, ast.ImportFrom)):
                    known |= binds
        yield cell, shows


def summary(text):
    """What a notebook says it is about: the first paragraph under its title, to its first full stop, as plain text."""
    said = re.search(r"^# .+\n+((?:(?!#).+\n?)+)", text, re.M)
    first = re.match(r".+?[.:](?=\s|$)", " ".join(re.sub(r"[*`]", "", said[1]).split())) if said else None
    return first[0] if first else ""


def with_machines(text, records):
    """docs/notebooks.md: in each row of a notebook two cells more, what it runs on (its head says it), and the machines that its
    figures come from (its records say it)."""

    def row(found):
        name = found[1]
        machines = [record.data["machine"]["label"] for record in records.get(name, ()) if "machine" in record.data]
        measured = ", ".join(sorted(set(machines))) or "none: the same everywhere"
        return f"{found[0].rstrip().removesuffix('|')}| {runs_on.sentence(name)} | {measured} |"

    return re.sub(r"^\| \[[^\]]+\]\(notebooks/(\w+)\.ipynb\) \|.*$", row, text, flags=re.M)


def _of_every_notebook(cell):
    """Whether a cell is the same everywhere and nothing to read: it installs, or it compares with the records."""
    return cell.cell_type == "code" and cell.source.startswith((INSTALL_MARK, CLOSING_MARK))


def _folded(cell):
    """What stands for the code of a cell that the page folds, or "": set-up and bounds are for those who run the notebook."""
    shown = {kind for output in cell.outputs for kind in output.get("data", {})}
    tags = cell.metadata.get("tags", [])
    if MIME["start"] in shown or "set-up" in tags:
        return "Set-up"
    if shown & {MIME["claim"], MIME["table"]}:
        return "Code of these figures, with their bounds"
    if shown & set(SHOWN_FIRST[1:3]):
        return "Code of this figure"
    return "Code" if "fold" in tags else ""


def _without_bound(output):
    """A claim without the bound that a run must keep: the folded code has it."""
    return re.sub(r"<small>\((\w+); at [^<]*\)</small>", r"<small>(\1)</small>", output)


def _fence(text, language="text"):
    """A code block whose fence is longer than any fence inside it."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", text).rstrip()
    ticks = "`" * max([3] + [len(run) + 1 for run in re.findall(r"`{3,}", text)])
    return f"{ticks}{language}\n{text}\n{ticks}"


def _numbers_right(output):
    """Marks the columns of numbers with their headings, for the style sheet. Styles of other libraries are for their own pages."""
    if "<table" not in output:
        return output
    soup = BeautifulSoup(output, "html.parser")
    for element in soup.find_all(["style", "progress"]):
        element.decompose()
    for element in soup.find_all(True):
        for attribute in ("style", "border", "class"):
            element.attrs.pop(attribute, None)
    for column in zip(*[row.find_all(["th", "td"]) for row in soup.find_all("tr")]):
        if all(re.fullmatch(r"-?[\d.,]+(e-?\d+)?", cell.text) for cell in column[1:]):
            for cell in column:
                cell["class"] = "number"
    return f'<div class="scroll">{soup}</div>'


def _refuse(error):
    raise ValueError(f"the stored output is an error: {error}")


EXPORTER = TemplateExporter(
    config=Config(NbConvertBase={"display_data_priority": SHOWN_FIRST}),
    template_name="base",
    template_file="notebook.md.j2",
    extra_template_paths=[str(Path(__file__).resolve().parents[2] / "theme" / "notebook")],
    default_preprocessors=["nbconvert.preprocessors.CoalesceStreamsPreprocessor"],
    filters={
        "fence": _fence,
        "folded": _folded,
        "numbers_right": _numbers_right,
        "of_every_notebook": _of_every_notebook,
        "refuse": _refuse,
        "without_bound": _without_bound,
    },
)
