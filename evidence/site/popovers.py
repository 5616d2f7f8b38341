"""At the end of a page: where each of its figures comes from, once per claim, and the runs that the page rests on.

A tree processor and not a postprocessor: the table of contents runs postprocessors on every heading, and the first heading
would take the popovers.
"""

import xml.etree.ElementTree as etree
from pathlib import PurePosixPath

from markdown.treeprocessors import Treeprocessor
from markdown.util import AtomicString

from ..records import format_number, format_value
from .context import NOT_APPLICABLE, alternatives, html, shown_value, versions

KIND_MEANS = {
    "derived": "arithmetic, shown in the notebook",
    "traced": "the real model code on fake tensors: exact, the same on every machine",
    "predicted": "the kernels of the traced step on the data sheet of the GPU named; the band is as wide as the errors on published steps",
    "measured": "run on the machine named",
    "cited": "measured by others, see the source",
}


NO_NOTEBOOK = {"index.md"}  # its figures come from many


class Popovers(Treeprocessor):
    def __init__(self, md):
        super().__init__(md)
        self.context = md.evidence

    def run(self, root):
        used, self.context.used = self.context.used, {}
        if not used:
            return
        runs = self.context.shown_runs(used.values())
        foot = etree.SubElement(root, "div", {"class": "evidence-foot", "id": "runs", "data-search-exclude": ""})
        foot.text = self._stored(html("foot.html", runs=[_run(self.context, run) for run in runs]))
        popovers = [popover(self.context, identifier, *claim) for identifier, claim in used.items()]
        kinds = sorted({self.context.find(*claim)[0][1]["kind"] for claim in used.values()})
        described = "".join(f"<p id=kind-{kind}>{kind}: where this figure comes from</p>" for kind in kinds)
        hidden = f"<div hidden data-search-exclude>{described}</div>"
        etree.SubElement(root, "p").text = self._stored("".join([*popovers, hidden]))
        title = root.find("h1")
        if title is not None:
            line = _verified(self.context, runs)
            root.insert(list(root).index(title) + 1, line)
            if self.context.colab and self.context.page not in NO_NOTEBOOK:
                notebook = _own_notebook(self.context.page, [notebook for notebook, _ in used.values()])
                dot = line[-1] if len(line) else line
                dot.tail = f"{dot.tail or ''} · "
                etree.SubElement(line, "a", {"href": f"{self.context.colab}{notebook}.ipynb"}).text = "Open in Colab"

    def _stored(self, text):
        return self.md.htmlStash.store(text)


def _own_notebook(page, notebooks):
    """The notebook of a guide: the one of its name, else the one that most of its figures come from."""
    path = PurePosixPath(page)
    names = [name.replace("-", "_") for name in (path.stem, f"{path.parent.name}_{path.stem}")]
    return next((name for name in names if name in notebooks), max(notebooks, key=notebooks.count))


def _verified(context, runs):
    """The line under the title. A page is as old as the oldest of the runs that it rests on; its machine is the one chosen."""
    line = etree.Element("p", {"class": "verified", "data-search-exclude": ""})
    line.text = "Figures last verified "
    link = etree.SubElement(line, "a", {"href": "#runs"})
    link.text = min(run.date for run in runs)
    if context.offered:
        link.tail = ", measured on "
        line.set("data-machines", " ".join(context.offered))
    for number, machine in enumerate(context.offered):
        others = [name for name in context.machines if not number and name not in context.offered]
        hidden = {"hidden": "hidden"} if number else {}
        attributes = {"data-on": " ".join([machine, *others])} if len(context.offered) > 1 else {}
        etree.SubElement(line, "span", attributes | hidden).text = AtomicString(context.machines[machine])
    return line


def _run(context, run):
    return {
        "name": run.notebook,
        "notebook": context.notebook_url(run.notebook),
        "date": run.date,
        "machine": context.label(run),
        "versions": versions(run),
        "colab": context.colab and f"{context.colab}{run.notebook}.ipynb",
    }


def popover(context, identifier, notebook, name):
    """The HTML of one claim: kind, sentence, what each machine shows, bound, and links to what made it."""
    rows = _shown_rows(context, identifier, notebook, name)
    claim = next((entry for _, (_, entry) in rows if entry), context.find(notebook, name)[0][1])
    sentence, sentences = _shared([entry["sentence"] if entry else None for _, (_, entry) in rows])
    bound, bounds = _shared([_bound(entry) if entry else None for _, (_, entry) in rows])
    own = [f"{said and f'{said}.'} {limits}".strip() for said, limits in zip(sentences, bounds, strict=True)]
    return html(
        "popover.html",
        id=identifier,
        kind=claim["kind"],
        means=KIND_MEANS[claim["kind"]],
        sentence=sentence,
        bound=bound,
        runs=[_source(context, *row, name, said) | {"on": on} for (on, row), said in zip(rows, own, strict=True)],
        gpus=[_on_gpu(claim, gpu, said) for gpu, said in claim.get("on", {}).items()],
        source=claim.get("source"),
        cell=context.notebook_url(notebook, f"claim-{name}"),
    )


def _shown_rows(context, identifier, notebook, name):
    """[(machines, (record, entry))] of what the page shows of a claim; without record and entry where a machine has none."""
    entries = context.find(notebook, name)
    if entries[0][1]["kind"] != "measured":
        return [("", entries[0])]
    choices = context.each_machine(entries, context.where.get(identifier))
    of_each = {machine: row[0].path if row else None for machine, row in choices.items()}
    rows = {row[0].path if row else None: row or (None, None) for row in choices.values()}
    return [(" ".join(filter(None, names)), rows[path]) for path, names in alternatives(of_each).items()]


def _shared(texts):
    """(the text that all machines share, the text of each): one of the two is empty. None: a machine without a figure."""
    different = {text for text in texts if text is not None}
    return (*different, [""] * len(texts)) if len(different) == 1 else ("", [text or "" for text in texts])


def _bound(claim):
    limits = [
        f"{words} {format_value(claim[key], claim['unit'])}"
        for key, words in (("at_least", "at least"), ("at_most", "at most"))
        if key in claim
    ]
    return f"A run fails unless it is {' and '.join(limits)}." if limits else ""


def _source(context, record, claim, name, own):
    if record is None:
        return {"date": "", "code": None}
    number, unit = ("", "") if "on" in claim else shown_value((record, claim))
    return {
        "number": number,
        "unit": unit,
        "because": claim["because"] if number == NOT_APPLICABLE else "",
        "machine": context.label(record) if claim["kind"] == "measured" else "",
        "spread": _spread(claim) if "value" in claim else "",
        "versions": versions(record),
        "date": record.date,
        "record": context.record_url(record),
        "code": context.code_url(record, name),
        "own": own,
    }


def _on_gpu(claim, gpu, said):
    number, unit = shown_value((None, claim | said))
    return {"name": gpu, "label": said["label"], "number": number, "unit": unit, "because": said.get("because", "")}


def _spread(claim):
    if "spread" not in claim:
        return ""
    low, high, repeats = (format_number(claim["spread"][key]) for key in ("min", "max", "repeats"))
    return f"{repeats} repeats of {low} to {high} s"
