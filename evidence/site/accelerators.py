"""A fenced block `accelerators`: rows of dryrun/data/accelerators, each value a link to its source.

rows: [rtx-4090, h100-sxm5]     keys, labels or aliases; left out: every product of the table
columns: [memory, bandwidth]    names of COLUMNS
filter: true                    a field that shows only the rows that hold its words
"""

from typing import NamedTuple

import yaml

from dryrun.tables import hardware

from ..problems import nearest
from ..schema import format_number
from .context import html

NOTHING = "–"


class Column(NamedTuple):
    name: str
    unit: str
    value: object  # accelerator -> hardware.Value, or a number that is computed from several


def _of(key):
    return lambda row: row[key]


COLUMNS = {
    "memory": Column("Memory", "GB", _of("memory")),
    "memory_type": Column("Memory type", "", _of("memory_type")),
    "bandwidth": Column("Bandwidth", "GB/s", _of("bandwidth")),
    "half": Column("16-bit products", "TFLOP/s", lambda row: row.half_value),
    "fp8": Column("fp8 products", "TFLOP/s", _of("fp8")),
    "fp32": Column("fp32", "TFLOP/s", _of("fp32")),
    "balance": Column("Balance", "FLOPs per byte", lambda row: row.flop_per_byte),
    "link": Column("Link to other GPUs", "", _of("link")),
    "link_rate": Column("One way, all links", "GB/s", _of("link_per_direction")),
    "host": Column("Link to the host", "", _of("host_link")),
    "power": Column("Power", "W", _of("tdp")),
    "year": Column("Year", "", _of("release_year")),
}
KEYS = ("rows", "columns", "filter")


def rendered(source):
    """The HTML of a block; ValueError in one line where it names what is not there."""
    asked = yaml.safe_load(source)
    if not isinstance(asked, dict) or "columns" not in asked:
        raise ValueError("a block of accelerators names its columns: columns: [memory, bandwidth]")
    for key in asked:
        if key not in KEYS:
            raise ValueError(f"a block of accelerators has no {key}{nearest(str(key), KEYS)}: {', '.join(KEYS)}")
    for name in asked["columns"]:
        if name not in COLUMNS:
            raise ValueError(f"there is no column {name}{nearest(str(name), COLUMNS)}: {', '.join(COLUMNS)}")
    columns = [COLUMNS[name] for name in asked["columns"]]
    rows = [_row(each, columns) for each in chosen(asked.get("rows"))]
    numeric = [all(row["cells"][place]["number"] for row in rows) for place in range(len(columns))]
    return html("accelerators.html", columns=columns, rows=rows, numeric=numeric, filter=bool(asked.get("filter")))


def chosen(names):
    if names:
        return [hardware.accelerator(name) for name in names]
    return sorted((row for row in hardware.ACCELERATORS.values() if row.product), key=lambda row: -(row.get("release_year") or 0))  # the newest first


def _row(row, columns):
    words = " ".join(dict.fromkeys((row.vendor, row.architecture, row.name, *row.aliases)))
    return {"label": row.label, "words": words, "cells": [_cell(column.value(row)) for column in columns]}


def _cell(value):
    if value is None or isinstance(value, int | float):  # computed: no single source
        return {"text": NOTHING if value is None else format_number(value), "number": True, "source": "", "read": ""}
    read = f"{value.read}, {value.date}" if value.value is not None else ""
    source = value.source if str(value.source).startswith("https://") else ""
    return {"text": _text(value.value), "number": not isinstance(value.value, str), "source": source, "read": read}


def _text(value):
    if value is None:
        return NOTHING
    return value if isinstance(value, str) else f"{value:,g}" if value >= 10_000 else f"{value:g}"
