"""At the end of a page: where each of its figures comes from, once per claim, and the runs that the page rests on.

A tree processor and not a postprocessor: the table of contents runs postprocessors on every heading, and the first heading
would take the popovers.
"""

import xml.etree.ElementTree as etree
from pathlib import PurePosixPath

from markdown.treeprocessors import Treeprocessor
from markdown.util import AtomicString

from ..schema import format_number, format_value
from .context import NOT_APPLICABLE, alternatives, html, shown_value, versions

KIND_MEANS = {
    "derived": "arithmetic, shown in the notebook",
    "traced": "the real model code on fake tensors: exact, the same on every machine",
    "predicted": "the kernels of the traced step on the data sheet of the GPU named; the band is as wide as the errors on published steps",
    "measured": "run on the machine named",
    "cited": "measured by others, see the source",
}


NO_NOTEBOOK = {"index.md", "recipes/14b-on-8-gpus.md"}  # figures of many, and a program for eight GPUs
# What a page teaches as a notebook to run.
RECIPES = {"recipes/8b-on-24gb.md": "recipes/finetune_chat_model", "recipes/bert-on-a-cpu.md": "recipes/serve_encoder"}


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
        foot.text = self.md.htmlStash.store(html("foot.html", runs=[_run(self.context, run) for run in runs]))
        popovers = [popover(self.context, identifier, *claim) for identifier, claim in used.items()]
        kinds = sorted({self.context.find(*claim)[0][1]["kind"] for claim in used.values()})
        described = "".join(f"<p id=kind-{kind}>{kind}: where this figure comes from</p>" for kind in kinds)
        hidden = f"<div hidden data-search-exclude>{described}</div>"
        etree.SubElement(root, "p").text = self.md.htmlStash.store("".join([*popovers, hidden]))
        title = root.find("h1")
        if title is not None:
            line = _verified(self.context, runs)
            root.insert(list(root).index(title) + 1, line)
            if self.context.colab and self.context.page not in NO_NOTEBOOK:
                notebook = _own_notebook(self.context.page, [notebook for notebook, _ in used.values()])
                _after_dot(line, etree.Element("a", {"href": f"{self.context.colab}{notebook}.ipynb"}), "Open in Colab")
            mark = _after_dot(line, etree.Element("span", {"class": "claim-mark"}), "Dotted")
            mark.tail = " figures open their source"


def _after_dot(line, element, text):
    """Adds an element to the line, with a dot before it."""
    line[-1].tail = f"{line[-1].tail or ''} · "
    element.text = text
    line.append(element)
    return element


def _own_notebook(page, notebooks):
    """The notebook of a guide: its recipe, or the one of its name, else the one that most of its figures come from."""
    if page in RECIPES:
        return RECIPES[page]
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
    last = _names(line, "data-on", context.offered, context.machines)
    if context.offered_gpus:
        line.set("data-gpus", " ".join(context.offered_gpus))
        before = last if last is not None else link
        before.tail = f"{before.tail or ''}, predicted for "
        chosen = etree.SubElement(line, "span", {"class": "chosen-gpu"})  # shell.js writes the name of another one here
        chosen.text = AtomicString(context.predicted_for[context.offered_gpus[0]])
    return line


def _names(line, attribute, offered, labels):
    """Adds the names of machines to the line, all but the first hidden until the reader chooses; returns the last."""
    last = None
    for number, name in enumerate(offered):
        others = [other for other in labels if not number and other not in offered]
        hidden = {"hidden": "hidden"} if number else {}
        attributes = {attribute: " ".join([name, *others])} if len(offered) > 1 else {}
        last = etree.SubElement(line, "span", attributes | hidden)
        last.text = AtomicString(labels[name])
    return last


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
    """The HTML of one claim: kind, sentence, what each machine shows, and links to what made it."""
    rows = _shown_rows(context, identifier, notebook, name)
    claim = next((entry for _, (_, entry) in rows if entry), context.find(notebook, name)[0][1])
    sentence, sentences = _shared([entry["sentence"] if entry else None for _, (_, entry) in rows])
    return html(
        "popover.html",
        id=identifier,
        kind=claim["kind"],
        means=KIND_MEANS[claim["kind"]],
        sentence=sentence,
        runs=[_source(context, *row, name, said and f"{said}.") | {"on": on} for (on, row), said in zip(rows, sentences, strict=True)],
        planner=f"{context.root}your-model/" if claim["kind"] == "predicted" else "",
        gpus=_gpus(context, claim),
        source=claim.get("source"),
        cell="" if "read" in claim else context.notebook_url(notebook, f"claim-{name}"),
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


def _source(context, record, claim, name, own):
    if record is None:
        return {"date": "", "code": None, "stale": False}
    number, unit = ("", "") if "on" in claim else shown_value((record, claim))
    return {
        "number": number,
        "unit": unit,
        "because": claim["because"] if number == NOT_APPLICABLE else "",
        "machine": context.label(record) if claim["kind"] == "measured" else "",
        "spread": _spread(claim) if "value" in claim else "",
        "versions": versions(record),
        "date": record.date,
        "read": claim.get("read", ""),
        "stale": "stale" in claim,
        "record": context.record_url(record),
        "code": context.code_url(record, name),
        "own": own,
    }


def _gpus(context, claim):
    """Why GPUs that the page offers have no figure: what the button says of them, the reason, and their names, those of the first GPU first.
    All others show what the first shows."""
    on = claim.get("on", {})
    names = [gpu for gpu in context.offered_gpus if gpu in on] or list(on)
    reasons = {}
    for gpu in names:
        if "because" in on[gpu]:
            of_gpu = reasons.setdefault((shown_value((None, claim | on[gpu]))[0], on[gpu]["because"]), [])
            of_gpu += [gpu, *(other for other in context.predicted_for if other not in names and gpu == names[0])]
    return [{"names": " ".join(of_gpu), "said": said, "because": because, "first": names[0] in of_gpu} for (said, because), of_gpu in reasons.items()]


def _spread(claim):
    """The least and the most of the repeats. Behind a ratio or a rate they are seconds, of a ratio those of one of its sides."""
    if "spread" not in claim:
        return ""
    of_ratio, of_rate = claim["unit"] in ("x", "%"), claim["unit"].endswith("/s")
    unit, side = "s" if of_ratio or of_rate else claim["unit"], "one side of the ratio: " if of_ratio else ""
    low, high = (format_value(claim["spread"][key], unit) for key in ("min", "max"))
    return f"{format_number(claim['spread']['repeats'])} repeats of {side}{low} to {high}"
