"""Python-Markdown extension: figures on pages come from records.

- `[[notebook:claim]]` in a sentence becomes the claim's value, marked by its kind; a click opens where it comes from.
  `[[notebook:claim@cpu]]` and `[[notebook:claim@gpu]]` take a machine without or with a GPU. Where the machine that the
  reader has chosen has no value, these and `[[notebook:claim@any]]` take the first that has one, and name it.
- a fenced block `table`, `chart`, `ledger` or `machines` (fences.py) renders records.

What was measured on several machines is there for each, in elements that name their machines in `data-on`; all but the
first are hidden until the reader chooses another machine (theme/main.html, docs/assets/first.js). What is predicted is
there for each GPU in the same way, in `data-for`.

A name that is not in the records raises, so a page can't be built with it. No plugin, no hook: it works wherever
Python-Markdown does. `page` is the path of the page below docs/, from which links are made.
"""

import re
import xml.etree.ElementTree as etree

from markdown.extensions import Extension
from markdown.inlinepatterns import InlineProcessor
from markdown.preprocessors import Preprocessor
from markdown.treeprocessors import Treeprocessor
from markdown.util import AtomicString

from .. import records
from . import install
from .context import NOT_APPLICABLE, Context, alternatives, has_gpu, has_value, in_sentence
from .popovers import Popovers

CLAIM = r"\[\[([a-z0-9_]+):([a-z0-9-]+)(?:@(cpu|gpu|any))?\]\]"
AMOUNT = re.compile(
    r"[~≈<>]?\s?(?:[$€]\s?\d[\d.,]*|\d[\d.,]*(?:\s?(?:-|–|to|\+|x)\s?\d[\d.,]*)?\s?"
    r"(?:%|[kMGTP]i?B(?:/s)?|[kMGT]bit/s|[kMGTP]?FLOPS|k?W|[nµm]?s|min|h|(?:seconds|minutes|hours|days|bits|bytes|tokens|GPUs)(?:/s)?))"
)
UNBROKEN = 12  # letters of a name that needs no place to break
BREAKS = re.compile(r"(?<=[_./(=,])(?=\w)|(?<=[a-z])(?=[A-Z])|(?<=\w)(?=-{1,2}\w)")
TABLE = re.compile(r"^\s*table: *([a-z0-9_]+):([a-z0-9-]+)", re.M)


class Offered(Preprocessor):
    """Reads which figures the page will show, so that one machine can be shown throughout."""

    def run(self, lines):
        text = "\n".join(lines)
        claims = {(notebook, name, "claims") for notebook, name, _ in re.findall(CLAIM, text)}
        tables = {(notebook, name, "tables") for notebook, name in TABLE.findall(text)}
        self.md.evidence.offer(claims | tables)
        self.md.treeprocessors["install-line"].names = install.programs(self.md.evidence.page, text)
        return lines


class ClaimPattern(InlineProcessor):
    def __init__(self, context):
        super().__init__(CLAIM)
        self.context = context

    def handleMatch(self, match, data):
        notebook, name, where = match.groups()
        try:
            entries = self.context.find(notebook, name)
        except LookupError as error:
            fix = "take a name of the ledger, or add the claim to the notebook and record it"
            raise self.context.problem(f"unknown figure {match[0]}: {error}", fix, match[0]) from None
        identifier = f"claim-{notebook}-{name}"
        self.context.used[identifier] = (notebook, name)
        self.context.where.setdefault(identifier, where)
        button = _button(identifier, entries[0][1]["kind"])
        choices = self.context.each_machine(entries, where)
        borrowed = _borrowed(self.context, choices, where)
        shown = alternatives(
            {name: (*in_sentence(entry), borrowed.get(name), _old(entry)) for name, entry in choices.items()}
        )
        for number, (what, names) in enumerate(shown.items()):
            attribute = "data-for" if "on" in entries[0][1] else "data-on"
            place = button if len(shown) == 1 else etree.SubElement(button, "span", _on(attribute, names, number))
            _fill(place, *what)
            if has_value(entry := choices[names[0]]) and entry[1]["kind"] == "measured":
                place.set("title", self.context.label(entry[0]))
        return button, match.start(), match.end()


def _button(identifier, kind):
    attributes = {"type": "button", "popovertarget": identifier, "aria-describedby": f"kind-{kind}"}
    return etree.Element("button", {"class": f"claim claim-{kind}"} | attributes)


def _borrowed(context, choices, where):
    """{machine or GPU: label of the other one whose figure it shows}, so that no reader takes one for the other. A sentence
    about a CPU tells readers of a GPU in its own words that the figure is another machine's. Key "": without a choice."""
    shown = {}
    for name, entry in choices.items():
        if entry and entry[1].get("gpu", name) != name and name in context.offered_gpus:
            shown[name] = entry[1]["label"]
        reader = name if name in context.offered else next(iter(context.offered), None)
        if not reader or not entry or entry[1]["kind"] != "measured" or entry[0].machine == reader:
            continue
        if where in (None, "any") or has_gpu(entry[0]) == (reader in context.gpus):
            shown[name] = context.label(entry[0])
    return shown


def _old(entry):
    """The day of the run behind an entry whose code has changed since, else an empty string."""
    return entry[1].get("stale", "") if entry else ""


def _fill(element, number, unit, machine, day):
    """Writes a value into an element, its unit so that the style sheet can make it lighter, whose it is, and how old."""
    if number == NOT_APPLICABLE:
        element.set("class", f"{element.get('class', '')} claim-open".strip())
    element.text = AtomicString(number)  # text of a record, which Markdown must not read as markup
    if unit:
        etree.SubElement(element, "small").text = AtomicString(unit)
    if machine:
        etree.SubElement(element, "small", {"class": "claim-lent"}).text = AtomicString(f" ({machine})")
    if day:
        old = etree.SubElement(element, "small", {"class": "claim-lent", "title": "its code has changed since this run"})
        old.text = AtomicString(f" (run of {day})")


def _on(attribute, names, number):
    """The attributes of what some machines or GPUs show. All but the first is hidden, and is no text for a search."""
    hidden = {"hidden": "hidden", "data-search-exclude": ""} if number else {}
    return {attribute: " ".join(filter(None, names))} | hidden


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
    """A table wider than the screen scrolls in a box, without a script. The empty corner of a table heads nothing."""

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


class Code(Treeprocessor):
    """An amount in backticks is text that keeps together: the backticks say that no run made it. A long name in a table may
    break behind its marks, so that a narrow column does not break it anywhere."""

    def run(self, root):
        cells = {code for cell in root.iter("td") for code in cell.iter("code")}
        for code in [code for code in root.iter("code") if code.text and not len(code)]:
            if AMOUNT.fullmatch(code.text):
                code.tag = "span"
                code.set("class", "quantity")
            elif code in cells and len(code.text) > UNBROKEN:
                first, *others = BREAKS.split(code.text)
                code.text = AtomicString(first)
                for part in others:
                    etree.SubElement(code, "wbr").tail = AtomicString(part)


class TableNames(Treeprocessor):
    """To a screen reader a table has the name of its section, and a further one of that section its number too."""

    def run(self, root):
        section, number = "", 0
        for element in root.iter():
            if re.fullmatch(r"h[1-6]", element.tag):
                section, number = " ".join("".join(element.itertext()).split()), 0
            elif element.tag == "table" and section:
                number += 1
                element.set("aria-label", section if number == 1 else f"{section}, table {number}")


class EvidenceExtension(Extension):
    def __init__(self, **options):
        self.config = {
            "results": [str(records.RESULTS), "folder of the records"],
            "page": ["", "path of the page below docs/"],
            "colab": ["", "address of the notebooks in Colab, for the foot of a page"],
            "repository": ["", "address of the repository, for links to the code of a figure"],
        }
        super().__init__(**options)

    def extendMarkdown(self, md):
        md.evidence = Context(*map(self.getConfig, ("results", "page", "colab", "repository")))
        md.preprocessors.register(Offered(md), "offered-machines", 100)  # before blocks are rendered
        md.inlinePatterns.register(ClaimPattern(md.evidence), "claim", 175)  # before links take the brackets
        # after inline patterns (20), before the contents (5)
        md.treeprocessors.register(ClaimPlaces(md), "claim-places", 15)
        md.treeprocessors.register(Popovers(md), "claim-popovers", 14)
        md.treeprocessors.register(install.Install(md), "install-line", 13.5)
        md.treeprocessors.register(Tables(md), "tables-of-the-page", 13)
        md.treeprocessors.register(Code(md), "code-in-sentences", 12)
        md.treeprocessors.register(TableNames(md), "names-of-tables", 7)  # after attributes (8) are gone from the headings


def makeExtension(**options):
    return EvidenceExtension(**options)
