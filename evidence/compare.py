"""A run beside the published records: figure by figure, what is published, what came out here, and whether it holds.

An exact figure holds where it is the published one within `records.TOLERANCE`. A measured one holds where its bound does: the
machines differ, so the values may.
"""

from collections import Counter
from dataclasses import asdict, dataclass, replace
from html import escape

from . import records
from .schema import format_value

HOLDS, BROKEN, ELSEWHERE, MISSING = VERDICTS = "holds", "does not hold", "does not apply", "not reached"
NOT_LEFT = "this run does not leave it"
MEASURED_ELSEWHERE = "measured on another machine, and not by this run"
NOT_PUBLISHED = "no published record has it"
NOTHING = "–"


@dataclass(frozen=True)
class Row:
    """One claim or table: its name, its kind, what is published and on which machine, what came out here, the verdict, and
    the reason where it is not `holds`."""

    name: str
    kind: str
    published: str
    machine: str
    here: str
    verdict: str
    why: str = ""


def rows(made, published, here=None, missing=NOT_LEFT):
    """made: {"claims": {name: data}, "tables": {name: data}} of this run, a claim whose bound does not hold with "broken".

    published: the records of the notebook. here: the machine of this run as `machine.describe` has it; the figures of the
    published machine most like it are shown. missing: why a figure did not come; where every cell has run, NOT_LEFT: then a
    table that another machine measured and this one does not, such as that of a model that only a larger GPU trains, does not apply.
    A claim says itself why there is no value.
    """
    found = sorted(published, key=lambda record: _likeness(record, here or {}), reverse=True)
    for collection in ("claims", "tables"):
        kinds = {name: entry["kind"] for record in found for name, entry in record.data[collection].items()}
        for name in dict.fromkeys([*made[collection], *kinds]):
            said = [(record, record.data[collection][name]) for record in found if name in record.data[collection]]
            row = _row(name, kinds.get(name), made[collection].get(name), said, missing)
            of_another = all(record.machine != (here or {}).get("name") for record, _ in said)
            if collection == "tables" and row.kind == "measured" and row.why == NOT_LEFT and of_another:
                row = replace(row, verdict=ELSEWHERE, why=MEASURED_ELSEWHERE)
            yield row


def raised(number, what):
    """The row of a cell that ended with an error: a run holds only where all cells ran."""
    return Row(f"cell {number}", "", NOTHING, "", NOTHING, BROKEN, what)


def _likeness(record, here):
    there = record.data.get("machine", {})
    return record.machine == here.get("name"), ("gpu" in there) == ("gpu" in here), record.date


def _row(name, kind, ours, said, missing):
    record, theirs = next(((record, entry) for record, entry in said if _has_value(entry)), (said or [(None, None)])[0])
    row = {"name": name, "kind": ours["kind"] if ours else kind, "published": shown(theirs), "here": shown(ours)}
    row["machine"] = record.label if record and record.machine else ""
    return Row(**row, **dict(zip(("verdict", "why"), _verdict(ours, theirs, missing))))


def _has_value(entry):
    return "because" not in entry


def _verdict(ours, theirs, missing):
    if ours is None:
        return MISSING, missing
    if "broken" in ours:
        return BROKEN, ours["broken"]
    if ours["kind"] == "measured":
        return (ELSEWHERE, ours["because"]) if "because" in ours else (HOLDS, "")
    if theirs is None:
        return BROKEN, NOT_PUBLISHED
    if found := records.difference(ours, theirs):
        place, here, there = found
        return BROKEN, f"{place}{': ' * bool(place)}this run gives {here}, the record says {there}"
    return (ELSEWHERE, ours["because"]) if "because" in ours else (HOLDS, "")


def shown(entry):
    """The value of a claim in short, or what there is of a table or a prediction."""
    if entry is None or "because" in entry:
        return NOTHING
    if "rows" in entry:
        return f"{len(entry['rows'])} rows"
    if "on" in entry:
        return f"on {len(entry['on'])} GPUs"
    return format_value(entry["value"], entry["unit"])


def counted(found):
    """'5 of 7 hold, 1 does not apply, 1 does not hold'"""
    of = Counter(row.verdict for row in found)
    others = [f"{of[verdict]} {verdict}" for verdict in VERDICTS[1:] if of[verdict]]
    return ", ".join([f"{of[HOLDS]} of {len(found)} hold", *others])


def all_hold(found):
    return all(row.verdict in (HOLDS, ELSEWHERE) for row in found)


def _cells(row):
    published = f"{row.published} ({row.machine})" if row.machine and row.published != NOTHING else row.published
    return row.name, row.kind, published, row.here, f"{row.verdict}{': ' * bool(row.why)}{row.why}"


HEAD = ("claim", "kind", "published (machine)", "here", "verdict")


def as_text(found):
    """The table in columns, for a terminal, with the count below."""
    lines = [HEAD, *map(_cells, found)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEAD))]
    table = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in lines]
    return "\n".join([*table, counted(found)])


def as_html(found):
    """The table for a notebook, with the count below."""
    head = "".join(f"<th>{escape(cell)}</th>" for cell in HEAD)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in _cells(row)) + "</tr>" for row in found)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table><p>{escape(counted(found))}</p>"


def as_data(found):
    """The table for `--json`."""
    return {
        "hold": sum(row.verdict == HOLDS for row in found),
        "of": len(found),
        "rows": [asdict(row) for row in found],
    }
