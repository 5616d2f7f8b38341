"""Changes: the figures that became others when a run replaced a record, in results/changes.jsonl. Find, read, check, feed.

One line per figure, appended by the run itself. A line holds what a page showed and shows now, as text: the record that
said the one is gone.
"""

import datetime
import json
import xml.etree.ElementTree as etree
from email.utils import format_datetime
from html import escape
from pathlib import Path

import jsonschema

from . import records
from .problems import Problem, read_text, shown

FILE = "changes.jsonl"  # not .json: every .json below results/ is a record
PAGE = "evidence/changes/"  # where the site lists them, and the feed leads
FEED = "feed.xml"
NEWEST = 50  # runs in the feed
NOISE = 0.1  # a measured figure that moves by no more than this part of itself is no news
NOTHING = "No figure has changed since it was first recorded."

_NAME = {"type": "string", "pattern": r"^\w[\w-]*\Z"}
_VALUE = {"type": ["string", "null"], "pattern": "^[^\x00-\x1f\ufffe\uffff]+\\Z"}  # what XML can hold
_KEYS = {
    "date": records.SCHEMA["properties"]["date"],
    "notebook": _NAME,
    "machine": _NAME,
    "claim": _NAME,
    "was": _VALUE,
    "is": _VALUE,
}
SCHEMA = {"type": "object", "additionalProperties": False, "required": list(_KEYS), "properties": _KEYS}


def between(old, new):
    """What changed from one record to the next of the same notebook and machine, in the order of the notebook."""
    for name in dict.fromkeys([*new["claims"], *old["claims"]]):
        was, now = old["claims"].get(name), new["claims"].get(name)
        if _shown(was) != _shown(now) and not _noise(was, now):
            yield {
                "date": new["date"],
                "notebook": new["notebook"],
                "machine": new["machine"]["name"],
                "claim": name,
                "was": _shown(was),
                "is": _shown(now),
            }


def _shown(claim):
    """What a page shows of a claim; None where there is none, or it does not apply."""
    return records.format_value(claim["value"], claim["unit"]) if claim and "value" in claim else None


def _noise(was, now):
    """Whether both are measured, in the same unit, and no further apart than two runs of the same code may be."""
    if not (was and now and "value" in was and "value" in now):
        return False
    alike = was["kind"] == now["kind"] == "measured" and was["unit"] == now["unit"]
    return alike and abs(now["value"] - was["value"]) <= NOISE * abs(was["value"])


def prepared(new, results=records.RESULTS):
    """{the file: its text with what `new` changes in the record that it replaces}; empty where that is nothing."""
    replaced, path = Path(results) / new["notebook"] / f"{new['machine']['name']}.json", Path(results) / FILE
    try:
        lines = [_line(change) for change in between(records.load(replaced).data, new)] if replaced.exists() else []
    except Problem:
        return {}  # a broken record is mended by recording again, and what it showed is not known
    if not lines:
        return {}
    before = read_text(path) if path.exists() else ""
    return {path: before + "\n" * (before[-1:] not in ("", "\n")) + "".join(lines)}


def _line(change):
    return json.dumps(change, ensure_ascii=False) + "\n"


def load(results=records.RESULTS):
    """Every change, as they were appended. The first line that is none is a Problem."""
    path = Path(results) / FILE
    if not path.exists():
        return []
    fix = f"restore it with `git checkout {shown(path)}`, or delete the line"
    text = read_text(path, fix)
    lines = text.removesuffix("\n").split("\n") if text else []
    return [_validated(line, path, number, fix) for number, line in enumerate(lines, 1)]


def _validated(line, path, number, fix):
    try:
        change = json.loads(line)
    except json.JSONDecodeError as error:
        raise Problem(path, f"the line is not whole JSON ({error.msg})", fix, number) from None
    for error in jsonschema.Draft202012Validator(SCHEMA).iter_errors(change):
        place = "/".join(map(str, error.absolute_path)) or "the line"
        raise Problem(path, f"{place}: {error.message[-160:]}", fix, number)
    if not records.is_date(change["date"]):
        raise Problem(path, f"there is no date {change['date']}", fix, number)
    if change["date"] > records.tomorrow():
        raise Problem(
            path, f"the change is from the future ({change['date']})", f"set this machine's clock, then {fix}", number
        )
    if change["was"] == change["is"]:
        raise Problem(path, f"{change['claim']} was {change['was']} and is the same", fix, number)
    if _line(change) != f"{line}\n":  # a key that stands twice, for one: JSON would silently take the second
        raise Problem(path, "the line is not as `make record` writes it", fix, number)
    return change


def check(results=records.RESULTS):
    """A figure whose last change did not end at what its record shows: the one was taken back and not the other.

    A measured one may have moved since, by less than is listed.
    """
    last = {}
    for number, change in enumerate(load(results), 1):
        last[change["notebook"], change["machine"], change["claim"]] = number, change["is"]
    kept = {
        (record.notebook, record.machine): record for found in records.load_all(results).values() for record in found
    }
    for (notebook, machine, name), (number, became) in last.items():
        record = kept.get((notebook, machine))
        claim = record.data["claims"].get(name) if record else None
        says = _shown(claim)
        if record and says != became and not (says and became and claim["kind"] == "measured"):
            what = f"{name} became {became or 'nothing'}, and {shown(record.path)} says {says or 'nothing'}"
            fix = f"restore both, or none (`git checkout {shown(results)}`), and run `make record NOTEBOOKS={notebook}`"
            yield Problem(Path(results) / FILE, what, fix, number)


def by_day(changes):
    """{date: {notebook: changes}}, the newest date first. Several of one figure on a day are one, or none."""
    folded = {}
    for change in changes:
        key = tuple(change[part] for part in ("date", "notebook", "machine", "claim"))
        folded[key] = {**change, "was": folded.get(key, change)["was"]}
    days = {}
    for change in sorted(folded.values(), key=lambda change: change["date"], reverse=True):
        if change["was"] != change["is"]:
            days.setdefault(change["date"], {}).setdefault(change["notebook"], []).append(change)
    return days


def in_words(change):
    """(what the figure is now, what it was)."""
    return change["is"] or "gone", f"was\u00a0{change['was']}" if change["was"] else "new"


def anchor(date, notebook=""):
    """Where on its page a day, or a notebook on that day, stands."""
    return "-".join(filter(None, ("on", date, notebook)))


def feed(changes, title, address, machines):
    """The changes as RSS 2.0, an item for each notebook and day. `machines` is {name: label}."""
    rss = etree.Element("rss", {"version": "2.0"})
    channel = etree.SubElement(rss, "channel")
    days = by_day(changes)
    about = {
        "title": f"{title}: what changed",
        "link": f"{address}{PAGE}",
        "description": "Figures that another run replaced, with what they were.",
        **({"lastBuildDate": _rss_date(next(iter(days)))} if days else {}),
    }
    _fill(channel, about)
    runs = [(date, notebook, kept) for date, notebooks in days.items() for notebook, kept in notebooks.items()]
    for date, notebook, kept in runs[:NEWEST]:
        lines = "".join(
            f"<li>{escape(change['claim'])}: {escape(', '.join(in_words(change)))} ({escape(machines.get(change['machine'], change['machine']))})</li>"
            for change in kept
        )
        link = f"{address}{PAGE}#{anchor(date, notebook)}"
        item = {
            "title": f"{notebook}: {len(kept)} figure{'s' * (len(kept) > 1)} changed",
            "link": link,
            "guid": link,
            "pubDate": _rss_date(date),
            "description": f"<ul>{lines}</ul>",
        }
        _fill(etree.SubElement(channel, "item"), item)
    etree.indent(rss, " ")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{etree.tostring(rss, encoding="unicode")}\n'


def _fill(element, texts):
    for name, text in texts.items():
        etree.SubElement(element, name).text = text


def _rss_date(date):
    return format_datetime(datetime.datetime.fromisoformat(f"{date}T00:00:00+00:00"))
