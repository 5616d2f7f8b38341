"""A notebook as the Markdown of its page: nbconvert with our template (theme/notebook), which Python-Markdown then renders
as it renders a guide. One exporter serves all notebooks, because its templates are compiled anew with each.
"""

import re
from pathlib import Path

from bs4 import BeautifulSoup
from nbconvert.exporters import TemplateExporter
from traitlets.config import Config

from evidence.claims import MIME

SHOWN_FIRST = ["text/html", "image/svg+xml", "image/png", "text/plain"]  # of the forms that an output is stored in


def markdown(path, figure):
    """The text of the notebook `path`; `figure(data, suffix)` stores a figure and returns its link. A stored error raises."""
    return EXPORTER.from_filename(str(path), resources={"figure": figure})[0]


def summary(text):
    """What a notebook says it is about: the first paragraph under its title, to its first full stop, as plain text."""
    said = re.search(r"^# .+\n+((?:(?!#).+\n?)+)", text, re.M)
    first = re.match(r".+?[.:](?=\s|$)", " ".join(re.sub(r"[*`]", "", said[1]).split())) if said else None
    return first[0] if first else ""


def _fence(text, language="text"):
    """A code block whose fence is longer than any fence inside it."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", text).rstrip()
    ticks = "`" * max([3] + [len(run) + 1 for run in re.findall(r"`{3,}", text)])
    return f"{ticks}{language}\n{text}\n{ticks}"


def _numbers_right(output):
    """Marks the columns of numbers with their headings, for the style sheet."""
    if "<table" not in output:
        return output
    soup = BeautifulSoup(output, "html.parser")
    for column in zip(*[row.find_all(["th", "td"]) for row in soup.find_all("tr")]):
        if all(re.fullmatch(r"-?[\d.,]+(e-?\d+)?", cell.text) for cell in column[1:]):
            for cell in column:
                cell["class"] = "number"
    return f'<div class="scroll">{soup}</div>'


def _shown_above(result, cell):
    """Whether a cell's result is the value of a claim in it, which `claim` has shown already."""
    claims = [output.get("data", {}).get(MIME["claim"], {}) for output in cell.outputs]
    return result.data["text/plain"] in [str(claim.get("value")) for claim in claims]


def _refuse(error):
    raise ValueError(f"the stored output is an error: {error}")


EXPORTER = TemplateExporter(
    config=Config(NbConvertBase={"display_data_priority": SHOWN_FIRST}),
    template_name="base",
    template_file="notebook.md.j2",
    extra_template_paths=[str(Path(__file__).resolve().parents[2] / "theme" / "notebook")],
    default_preprocessors=["nbconvert.preprocessors.CoalesceStreamsPreprocessor"],
    filters={"fence": _fence, "numbers_right": _numbers_right, "refuse": _refuse, "shown_above": _shown_above},
)
