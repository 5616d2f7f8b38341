"""What a notebook says: `start`, then `claim` and `table`.

Each shows its statement to the reader of the notebook and leaves it, as data, in the cell's output; a record is made
from these outputs and from nothing else. A claim whose bound does not hold raises, and so fails the notebook. Where
EVIDENCE_GO_ON is set (`make verify` sets it) and in a reader's own session it says so, and the notebook goes on.
"""

import datetime
import math
import os
import re
from dataclasses import is_dataclass
from html import escape

from . import machine
from .problems import nearest
from .schema import KINDS, broken_bound, format_band, format_number, format_value, wrong_claim
from .session import readers_session

MIME = {kind: f"application/vnd.evidence.{kind}+json" for kind in ("start", "claim", "table")}

_run = {"notebook": None, "names": set(), "left": {}}


class ClaimError(AssertionError):
    """A claim does not hold, or is not one."""


class Shown:
    """What a cell displays: HTML and text for people, and the data that a record is made from."""

    def __init__(self, kind, data, text, html):
        self.kind, self.data, self.text, self.html = kind, data, text, html

    def _repr_mimebundle_(self, include=None, exclude=None):
        data = self.data  # a stored notebook sorts the keys of an object, and columns have an order
        if self.kind == "table":
            data = data | {"columns": [list(column) for column in data["columns"].items()]}
        return {"text/plain": self.text, "text/html": self.html, MIME[self.kind]: data}

    def __repr__(self):
        return self.text


def start(notebook, packages=(), ran=None):
    """Opens a run of the named notebook and shows the machine and the software it runs on.

    packages: whose versions the record names too, because the notebook measures them.
    ran: {"date", "machine", "software"} of a run whose results the notebook reads, where another machine measured them; None
    where the notebook measures.
    """
    _run.update(notebook=notebook, names=set(), left={})
    here = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": machine.describe(),
        "software": machine.software(packages),
    }
    data = {"notebook": notebook} | (ran or here)
    _run["left"]["start", "start"] = data
    _show(Shown("start", data, *_rendered_start(data)))


def claim(name, sentence, value, unit="", *, kind, at_least=None, at_most=None, spread=None, source=None, because=None):
    """States a value and bounds it.

    name: lower case with hyphens, unique in the notebook; a page shows the value by `[[notebook:name]]`.
    sentence: what is claimed, with the conditions that a reader needs; without the value.
    value: a number in `unit`; None where this machine cannot give one, with the reason in `because`.
    kind: "derived" (arithmetic), "traced" (fake tensors), "measured" (timed or counted here), "cited" (with `source`).
    at_least, at_most: the bound, at least one side of it for whatever a run computed.
    spread: min, max and repeats of a measurement (`Timing.spread`).
    """
    _check_run_and_kind(f"claim {name}", kind, source)
    if len(sentence) < 10:
        raise ClaimError(f"claim {name}: {sentence!r} is no sentence: say what is claimed, and under which conditions")
    if kind != "cited" and at_least is None and at_most is None:
        raise ClaimError(f"claim {name}: give a bound (at_least, at_most) that a wrong value would break")
    for limit in (at_least, at_most):
        if limit is not None and not math.isfinite(limit):
            raise ClaimError(f"claim {name}: the bound {limit} can't fail: give one that a wrong value would break")
    data = {"sentence": sentence, "kind": kind, "unit": unit}
    data |= {
        key: given
        for key, given in (("at_least", at_least), ("at_most", at_most), ("spread", spread), ("source", source))
        if given is not None
    }
    if value is None:
        if len(because or "") < 5:
            raise ClaimError(f"claim {name}: there is no value, so say why: because='this machine has no GPU'")
        data["because"] = because
        _leave("claim", name, data)
        return
    try:
        value = float(value)
    except (TypeError, ValueError):
        raise ClaimError(f"claim {name}: the value is {value!r}, which is no number") from None
    if not math.isfinite(value):
        raise ClaimError(f"claim {name}: the value is {value}")
    data["value"] = value
    if broken := broken_bound(value, data):
        if not _goes_on():
            raise ClaimError(f"claim {name} does not hold: {sentence}: {broken}")
        data["broken"] = broken
    elif wrong := wrong_claim(data):
        raise ClaimError(f"claim {name}: {wrong}")
    _leave("claim", name, data)


def predicted(name, sentence, on, unit, *, at_least=None, at_most=None):
    """States what a step is predicted to take on each of several GPUs; a page shows the GPU that its reader has chosen.

    on: {GPU: {"label", "value", "low", "high"} in `unit`, or {"label", "because"} where no figure can be given}. Either may
    have "words": what is shown before the figure, such as the method that it is of, or in place of one: "does not fit".
    at_least, at_most: the bound that the value on every GPU keeps. The rest is as in `claim`.
    """
    _check_run_and_kind(f"claim {name}", "predicted", None)
    bounds = {key: given for key, given in (("at_least", at_least), ("at_most", at_most)) if given is not None}
    data = {"sentence": sentence, "kind": "predicted", "unit": unit} | bounds | {"on": on}
    if wrong := wrong_claim(data):
        raise ClaimError(f"claim {name}: {wrong}")
    _leave("claim", name, data)


def table(name, title, columns, rows, *, kind, source=None):
    """Shows a table and leaves it for pages and charts.

    columns: {key: header}, with the unit in the header, e.g. {"batch": "Batch size", "peak": "Peak memory, GiB"}.
    rows: a list of {key: value}; None where a cell is not measured.
    """
    _check_run_and_kind(f"table {name}", kind, source)
    if missing := [key for row in rows for key in columns if key not in row]:
        raise ClaimError(f"table {name}: a row lacks {missing[0]!r}")
    cells = [[str(row[key]) if is_dataclass(row[key]) else row[key] for key in columns] for row in rows]  # an object in its own words
    data = {"title": title, "kind": kind, "columns": dict(columns), "rows": cells} | (
        {"source": source} if source else {}
    )
    for row, line in enumerate(cells):
        for key, cell in zip(columns, line):
            if isinstance(cell, float) and not math.isfinite(cell):
                raise ClaimError(f"table {name}, row {row + 1}, {key}: the value is {cell}")
    _leave("table", name, data)


def _rendered_start(data):
    here = data["machine"]
    facts = {"machine": here["label"], "memory": f"{here['memory_gib']} GiB"} | data["software"]
    if "gpu" in here:
        facts["GPU memory"] = f"{here['gpu_memory_gib']} GiB"
    text = ", ".join(f"{name} {value}" for name, value in facts.items())
    return text, f"<p>{escape(text)}</p>"


def _rendered_claim(data):
    sentence, unit = data["sentence"], data["unit"]
    if "on" in data:
        shown = "; ".join(f"{found['label']} {_on_gpu(found, unit)}" for found in data["on"].values())
        return (
            f"{sentence}: {shown} (predicted)",
            f"<p>{escape(sentence)}: {escape(shown)} <small>(predicted)</small></p>",
        )
    if "because" in data:
        reason = f"does not apply here, because {data['because']}"
        return f"{sentence}: {reason}", f"<p>{escape(sentence)}: <em>{escape(reason)}</em></p>"
    shown = format_value(data["value"], unit)
    if "broken" in data:
        note = f"does not hold here: {data['broken']}"
        return f"{sentence}: {note}", f"<p>{escape(sentence)}: <strong>{escape(note)}</strong></p>"
    bounds = [
        f"{words} {format_value(data[key], unit)}"
        for words, key in (("at least", "at_least"), ("at most", "at_most"))
        if key in data
    ]
    note = f"{data['kind']}; {', '.join(bounds)}" if bounds else data["kind"]
    return (
        f"{sentence}: {shown} ({note})",
        f"<p>{escape(sentence)}: <strong>{escape(shown)}</strong> <small>({escape(note)})</small></p>",
    )


def _on_gpu(found, unit):
    if "because" in found:
        return f"{found.get('words', 'does not apply')}, because {found['because']}"
    words = f"{found['words']}: " if "words" in found else ""
    return words + "".join(format_band(found["value"], found["low"], found["high"], unit))


def _rendered_table(data):
    headers, lines = list(data["columns"].values()), [[format_number(cell) for cell in row] for row in data["rows"]]
    head = "".join(f"<th>{escape(header)}</th>" for header in headers)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in line) + "</tr>" for line in lines)
    text = "\n".join(" | ".join(line) for line in [headers, *lines])
    return f"{data['title']}\n{text}", (
        f"<p><strong>{escape(data['title'])}</strong> <small>({data['kind']})</small></p>"
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    )


def _check_run_and_kind(what, kind, source):
    if not _run["notebook"]:
        raise ClaimError(f"{what} stands before its run is opened: call start() in a cell above")
    if kind not in KINDS:
        raise ClaimError(f"{what}: kind={kind!r}{nearest(str(kind), KINDS)}, choose one of {', '.join(KINDS)}")
    if kind == "cited" and not (source or "").startswith("https://"):
        raise ClaimError(f"{what}: a cited figure needs source='https://...'")


def _leave(kind, name, data):
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name):
        raise ClaimError(f"{kind} {name!r}: a name is lower-case words with hyphens, like checkpointing-memory")
    if name in _run["names"] and not readers_session():  # a reader runs a cell again
        raise ClaimError(f"{kind} {name!r} stands twice in this notebook: give one of them another name")
    _run["names"].add(name)
    _run["left"][kind, name] = data
    rendered = _rendered_table if kind == "table" else _rendered_claim
    _show(Shown(kind, {"name": name} | data, *rendered(data)))


def _show(shown):
    try:
        from IPython.display import display
    except ImportError:  # run as a plain script
        print(shown.text)
    else:
        display(shown)


def display_or_print(text, html):
    """Shows what is for the reader alone, and leaves nothing for a record."""
    try:
        from IPython.display import display
    except ImportError:
        print(text)
    else:
        display({"text/plain": text, "text/html": html}, raw=True)


def left():
    """{(kind, name): data} of all that the open run has shown, in its order."""
    return dict(_run.get("left", {}))


def _goes_on():
    """Whether a claim that does not hold lets its notebook go on: not where a run makes a record or a test asks."""
    return "EVIDENCE_GO_ON" in os.environ or readers_session() is not None
