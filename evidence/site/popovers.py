"""At the end of a page: where each of its figures comes from, once per claim, and the runs that the page rests on.

A tree processor and not a postprocessor: the table of contents runs postprocessors on every heading, and the first heading
would take the popovers.
"""

import xml.etree.ElementTree as etree

from markdown.treeprocessors import Treeprocessor

from ..records import format_number, format_value
from .context import NOT_APPLICABLE, html, rows_of, shown_value, versions

KIND_MEANS = {
    "derived": "arithmetic, shown in the notebook",
    "traced": "the real model code on fake tensors: exact, the same on every machine",
    "predicted": "the kernels of the traced step on the data sheet of the GPU named; the band is as wide as the errors on published steps",
    "measured": "run on the machine named",
    "cited": "measured by others, see the source",
}


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
            root.insert(list(root).index(title) + 1, _verified(runs))

    def _stored(self, text):
        return self.md.htmlStash.store(text)


def _verified(runs):
    """The line under the title. A page is as old as the oldest of the runs that it rests on."""
    line = etree.Element("p", {"class": "verified", "data-search-exclude": ""})
    line.text = "Figures last verified "
    link = etree.SubElement(line, "a", {"href": "#runs"})
    link.text = min(run.date for run in runs)
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
    """The HTML of one claim: kind, sentence, the value of each machine, bound, and links to what made it."""
    rows = rows_of(context, notebook, name)
    claim = rows[0][1]
    sentence, sentences = _shared([entry["sentence"] for _, entry in rows])
    bound, bounds = _shared([_bound(entry) for _, entry in rows])
    own = [f"{said and f'{said}.'} {limits}".strip() for said, limits in zip(sentences, bounds, strict=True)]
    return html(
        "popover.html",
        id=identifier,
        kind=claim["kind"],
        means=KIND_MEANS[claim["kind"]],
        sentence=sentence,
        bound=bound,
        runs=[_source(context, record, entry, name, said) for (record, entry), said in zip(rows, own, strict=True)],
        gpus=[_on_gpu(claim, gpu, said) for gpu, said in claim.get("on", {}).items()],
        source=claim.get("source"),
        cell=context.notebook_url(notebook, f"claim-{name}"),
    )


def _shared(texts):
    """(the text that all machines share, the text of each): one of the two is empty."""
    return (texts[0], [""] * len(texts)) if len(set(texts)) == 1 else ("", texts)


def _bound(claim):
    limits = [
        f"{words} {format_value(claim[key], claim['unit'])}"
        for key, words in (("at_least", "at least"), ("at_most", "at most"))
        if key in claim
    ]
    return f"A run fails unless it is {' and '.join(limits)}." if limits else ""


def _source(context, record, claim, name, own):
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
