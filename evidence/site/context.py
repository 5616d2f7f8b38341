"""What one page knows while it is rendered: the records, the machines, and the way to the rest of the site."""

from functools import lru_cache
from pathlib import Path, PurePosixPath

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from .. import cited, freshness, records
from ..problems import Problem, line_of, read_text
from ..records import find
from ..schema import format_band, format_number, format_rounded, format_value
from . import commits

NOT_APPLICABLE = "does not apply"

# Records come from strangers: every value that a template writes is escaped.
TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).with_name("templates")),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def html(template, **values):
    return TEMPLATES.get_template(template).render(**values).strip()


class Context:
    def __init__(self, results, page, colab="", repository=""):
        self.page, self.colab, self.repository = page, colab, repository
        self.records, self.stale = stored(results)
        self.codes = codes(results) if repository else {}
        self.machines = machines(self.records)
        self.predicted_for = predicted_for(self.records)
        self.gpus = {record.machine for found in self.records.values() for record in found if has_gpu(record)}
        path = PurePosixPath(page)
        depth = len(path.parts) - (1 if path.name == "index.md" else 0)
        self.root = "../" * depth if page else ""
        self.used = {}  # popover id -> (notebook, claim), in the order of the page
        self.where = {}  # popover id -> the kind of machine that its sentence is about
        self.offered = []  # the machines that have the figures of the page; the first is shown without a choice
        self.offered_gpus = []  # the GPUs that the figures of the page are predicted for; the first likewise

    def find(self, notebook, name, collection="claims"):
        """[(record, entry)] of a claim or a table, the newest first. An entry that earlier code measured has the key "stale",
        the day of its run. A name that no record has raises LookupError."""
        return [
            (record, entry | ({"stale": record.date} if (collection, name) in self.stale.get(record.path, ()) else {}))
            for record, entry in find(self.records, notebook, name, collection)
        ]

    def notebook_url(self, notebook, anchor=""):
        return f"{self.root}notebooks/{notebook}/{anchor and '#' + anchor}"

    def table_url(self, notebook, name):
        """Where the notebook's page shows the table; its top where the executed notebook has none, because a larger machine made it."""
        path = Path("notebooks") / f"{notebook}.ipynb"
        shown = path.exists() and f'"name": "{name}"' in path.read_text(encoding="utf-8")
        return self.notebook_url(notebook, f"table-{name}" if shown else "")

    def record_url(self, record):
        if cited.is_cited(record):
            return f"{self.repository}/blob/main/results/{record.notebook}/{record.path.name}"
        return f"{self.root}results/{record.notebook}/{record.path.name}"

    def code_url(self, record, name):
        """The line of a claim in the notebook's script, at the commit that brought the record; None where git has none, and for the figures
        of others, which no code made."""
        found = None if cited.is_cited(record) else self.codes.get(record.path.resolve())
        if not found:
            return None
        line = found.line_of(name)
        return f"{self.repository}/blob/{found.commit}/notebooks/{record.notebook}.py{f'#L{line}' if line else ''}"

    def problem(self, what, fix, fragment):
        """A Problem in this page, at the first line that holds `fragment`."""
        path = Path("docs", self.page)
        return Problem(path, what, fix, line_of(read_text(path), fragment) if path.is_file() else None)

    def shown_runs(self, claims):
        """The records whose figures a page shows until the reader has chosen a machine, in the order of their notebooks; without the
        rows of others, which no run made, unless it shows nothing else."""
        entries = [self.find(*claim) for claim in sorted(claims)]
        shown = [(self.each_machine(found)[""] or found[0])[0] for found in entries]
        runs = list({record.path: record for record in shown}.values())
        return [run for run in runs if not cited.is_cited(run)] or runs

    def offer(self, wanted):
        """Chooses the machines and GPUs of a page by its claims and tables, [(notebook, name, collection)]: those that have
        half of the figures or more. A machine with a GPU is shown first, then the one with most values; of the GPUs that figures are
        predicted for the first in the order of the site, unless it has less than half of the values that another has."""
        said, values = dict.fromkeys(self.machines, 0), dict.fromkeys(self.machines, 0)
        gpus, fitting = dict.fromkeys(self.predicted_for, 0), dict.fromkeys(self.predicted_for, 0)
        for notebook, name, collection in set(wanted):
            for record, entry in self._known(notebook, name, collection):
                if entry["kind"] == "measured" and record.machine in said:
                    said[record.machine] += 1
                    values[record.machine] += has_value((record, entry))
                for gpu, found in entry.get("on", {}).items():
                    gpus[gpu] += 1
                    fitting[gpu] += "value" in found
        self.offered = sorted(_half_or_more(said), key=lambda name: (name not in self.gpus, -values[name]))
        well = _half_or_more(fitting)
        self.offered_gpus = sorted(_half_or_more(gpus), key=lambda name: name not in well)

    def _known(self, *named):
        try:
            return self.find(*named)
        except LookupError:  # is refused where it stands on the page, with its line
            return []

    def each_machine(self, entries, where=None):
        """{machine: its entry, or None}. Key "": what is shown until the reader has chosen a machine, which is that of the
        first machine of the page, or of another that has a value. A machine that the page does not offer, and one that no
        record of this figure comes from, shows the same. No other key where the figure is the same everywhere or there is one
        machine.

        where: "cpu" or "gpu", for a sentence about one kind of machine, or "any". Whoever has chosen a machine of the
        other kind, or one without a value, sees the first with a value.
        """
        if "on" in entries[0][1]:
            return self.each_gpu(*entries[0])
        if entries[0][1]["kind"] != "measured":
            return {"": next(filter(has_value, entries), entries[0])}
        kinds = {"cpu": False, "gpu": True}
        asked = [name for name in self.machines if where not in kinds or (name in self.gpus) == kinds[where]]
        on = {record.machine: (record, entry) for record, entry in entries}
        found = {name: on.get(name) for name in asked}
        first = next(filter(has_value, map(found.get, [*self.offered, *asked])), None)
        if len(found) < 2:
            return {"": first}
        found = {
            name: entry if has_value(entry) or entry and not where else first or entry for name, entry in found.items()
        }
        offered = self.offered or self.machines
        return {"": first} | {name: found.get(name, first) if name in offered else first for name in self.machines}

    def each_gpu(self, record, entry):
        """{GPU: what is predicted for it}. Key "": the first GPU of the page, which the header names until the reader chooses
        another. A GPU that the page does not offer, or that this figure lacks, shows the same."""
        of_each = {gpu: (record, entry | said | {"gpu": gpu}) for gpu, said in entry["on"].items()}
        first = next(filter(None, map(of_each.get, self.offered_gpus)), next(iter(of_each.values())))
        return {"": first} | {
            gpu: of_each.get(gpu, first) if gpu in self.offered_gpus else first for gpu in self.predicted_for
        }

    def label(self, record):
        return self.machines.get(record.machine, record.label)


def _half_or_more(counts):
    """The names with at least half of the largest count, in their order."""
    most = max(counts.values(), default=0)
    return [name for name, count in counts.items() if count and 2 * count >= most]


def stored(results):
    """({notebook: its records}, {path of a record: {(collection, name)} that earlier code measured}). Read once for all pages,
    and again when one of their files has changed."""
    folder = Path(results)  # one key for every way to write it
    return _stored(folder, _state(folder), _state(freshness.FOLDER, "*.py"))


@lru_cache(maxsize=1)
def _stored(results, files, notebooks):
    known = cited.with_cited(records.load_all(results), results)
    return known, {record.path: freshness.stale(record) for found in known.values() for record in found}


def codes(results):
    """{path of a record: the Code behind it}."""
    folder = Path(results).resolve()
    return commits.codes(folder, _state(folder))


def _state(folder, files="*.[jy]*"):  # records, and rows of cited figures
    return tuple((path, path.stat().st_mtime_ns) for path in sorted(folder.rglob(files)))


def machines(found):
    """{name: label} of every machine, in the order in which a page shows them: with a GPU, with more records, newer."""
    kept = {}
    for record in (record for newest_first in found.values() for record in newest_first if record.machine):
        kept.setdefault(record.machine, []).append(record)
    newest = {name: max(kept[name], key=lambda record: record.date) for name in sorted(kept)}
    order = sorted(newest, key=lambda name: (has_gpu(newest[name]), len(kept[name]), newest[name].date), reverse=True)
    labels = {name: newest[name].data["machine"]["label"] for name in order}
    # Two kinds of one name: the later one has four digits behind it (records.name_apart), and shows them.
    return {name: f"{label} ({name[-4:]})" if name[:-5] in labels and labels[name[:-5]] == label else label for name, label in labels.items()}


def predicted_for(found):
    """{GPU: label} of every GPU that a record predicts for, in the order of the records."""
    claims = [claim for records in found.values() for record in records for claim in record.data["claims"].values()]
    return {gpu: said["label"] for claim in claims for gpu, said in claim.get("on", {}).items()}


def has_gpu(record):
    return "gpu" in record.data.get("machine", {})


def has_value(entry):
    return entry is not None and bool(entry[1].keys() & {"value", "rows"})


def in_sentence(entry):
    """(number, unit) as a sentence shows an entry that `each_machine` has found.

    Two digits of what was measured, and of shares and ratios that were traced: a third one decides nothing. What is
    derived or cited is shown as its source has it, and so are traced amounts, which readers add up.
    """
    number, unit = shown_value(entry)
    if (
        not has_value(entry)
        or "low" in entry[1]
        or not (entry[1]["kind"] == "measured" or entry[1]["kind"] == "traced" and unit in ("x", "%"))
    ):
        return number, unit
    return format_rounded(entry[1]["value"]), unit


def shown_value(entry):
    """(number, unit) of an entry, to three digits, as a popover and the ledger show it. A figure that no machine of the kind
    asked for has does not apply."""
    if entry is None:
        return NOT_APPLICABLE, ""
    said = entry[1]
    if "value" not in said:
        return said.get("words", NOT_APPLICABLE), ""
    if "low" in said:
        number, unit = format_band(said["value"], said["low"], said["high"], said["unit"])
        return (f"{said['words']}: {number}" if "words" in said else number), unit
    number = format_number(said["value"])
    return number, format_value(said["value"], said["unit"])[len(number) :]


def alternatives(choices):
    """{what is shown: names of the machines that show it}, the first first."""
    shown = {}
    for name, what in choices.items():
        shown.setdefault(what, []).append(name)
    return shown


def versions(record):
    software = record.data["software"]
    return ", ".join(f"{name} {software[name]}" for name in ("torch", "transformers", "driver", "clock") if name in software)


def rows_of(context, notebook, name):
    """The entries of a claim that differ by machine; one, where the figure is the same on all."""
    entries = context.find(notebook, name)
    return entries if entries[0][1]["kind"] == "measured" else entries[:1]
