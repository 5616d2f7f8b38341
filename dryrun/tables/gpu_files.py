"""Reads `dryrun/data/accelerators`: one TOML file for each accelerator, whose name is the file's. No torch.

    name, label, vendor, architecture, family       must be there; `aliases` are other spellings
    operations                                      a generation of generations.toml: peaks that no source prints follow from it,
                                                    as units x operations x clock
    [techpowerup]                                   the values of one entry of sources.toml; `url` where it has an address of its own
    [capacity]                                      what CUDA was seen to report as the whole memory, with the address
    [notes] [derived] [none] [exceptions]           of a value: a remark, how it follows from others, why there is none, and why it is not
                                                    what `data_sheets` expects

Units are those of `UNITS`: decimal, but memory is written as on the box. Matrix peaks are dense, and sum in fp32 where the name does not
say otherwise. What sources disagree about is a comment at the top of the file.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

DATA = Path(__file__).parents[1] / "data"
FOLDER = DATA / "accelerators"
PACKED = DATA / "accelerators.json"  # the same in one file, where the page has it: Python in a browser comes without a reader of TOML
UNITS: dict[str, str | None] = {name: unit for unit, names in {
    "GB": ("memory",),
    "GB/s": ("bandwidth", "link_per_direction"),
    "TFLOP/s": ("fp32", "tf32", "bf16", "fp16", "fp16_acc16", "fp8", "fp8_acc16", "fp4"),
    "TOP/s": ("int8",),
    "MHz": ("clock", "matrix_clock"),
    "MB": ("l2",),
    "W": ("tdp",),
    "count": ("units",),
    "year": ("release_year",),
    None: ("memory_type", "link", "peer_link", "host_link"),
}.items() for name in names}  # fmt: skip
SUMS_IN = {"fp16_acc16": "fp16", "fp8_acc16": "fp16", "int8": "int32"}  # and fp32 otherwise
NEEDED = ("name", "label", "vendor", "architecture", "family")
FIELDS: dict[str, Any] = {  # with what they are where a file does not say
    "aliases": [],
    "operations": None,
    "scope": "per device",
    "product": True,  # False: machines that a published measurement describes, with a clock or memory that nobody sells
    "clock_exception": None,
    "ecc": False,
}
ABOUT = ("capacity", "notes", "derived", "none", "exceptions")  # sections that are no source
NOT_SAID = {"matrix_clock": "peaks are stated at the clock above", "link_per_direction": "no link of its own between cards"}
EXPECTED = ("memory", "memory_type", "bandwidth", "peer_link", "tdp", "release_year")  # a file gives them, or says in [none] why not
VENDORS = ("NVIDIA", "AMD", "Intel", "Google", "AWS", "Apple")  # in the order of lists
PEAKS = [name for name, unit in UNITS.items() if unit in ("TFLOP/s", "TOP/s")]


def read() -> dict[str, dict[str, Any]]:
    """`sources`, `generations` and `accelerators` as the files have them."""
    if PACKED.is_file():
        packed: dict[str, dict[str, Any]] = json.loads(PACKED.read_text(encoding="utf-8"))
        return packed
    rows = {path.stem: _toml(path) for path in FOLDER.glob("*.toml")}
    return {"sources": _toml(DATA / "sources.toml"), "generations": _toml(DATA / "generations.toml"), "accelerators": rows}


def _toml(path: Path) -> dict[str, Any]:
    import tomllib  # here, since the browser's Python is without it

    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{_shown(path)}: no TOML: {error}. Fix: texts stand in quotes, a section in brackets, a name once in a section") from None


def _shown(path: Path) -> str:
    return f"dryrun/{path.relative_to(DATA.parent).as_posix()}"


def rows(files: dict[str, dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """(key, fields and `values` of an accelerator), the makers in the order of `VENDORS`, the oldest first. ValueError in one line where a
    file cannot be read so; what it says wrongly is found by `data_sheets`."""
    read = [(key, _row(key, row, files["sources"], files["generations"])) for key, row in files["accelerators"].items()]

    def place(one: tuple[str, dict[str, Any]]) -> tuple[int, int, str]:
        key, row = one
        vendor = VENDORS.index(row["vendor"]) if row["vendor"] in VENDORS else len(VENDORS)
        return vendor, row["values"]["release_year"]["value"] or 9999, key

    yield from sorted(read, key=place)


def _row(key: str, row: dict[str, Any], sources: dict[str, Any], generations: dict[str, Any]) -> dict[str, Any]:
    path = _shown(FOLDER / f"{key}.toml")
    fields = {name: value for name, value in row.items() if not isinstance(value, dict)}
    for name in NEEDED:
        if name not in fields:
            raise ValueError(f"{path}: {name} is missing. Fix: write it above the first section, as the file of a similar one has it")
    for name in fields.keys() - set(NEEDED) - FIELDS.keys():
        raise ValueError(f"{path}: there is no field {name}{_meant(name, (*NEEDED, *FIELDS))}. Fix: a value stands below [its source]")
    operations = fields.get("operations")
    if operations and operations not in generations:
        close = ", ".join(difflib.get_close_matches(operations, generations, 3, 0))
        said = f"{path}: operations: {operations!r} is no generation of dryrun/data/generations.toml: {close}, ..."
        raise ValueError(f"{said} Fix: write one of them, or leave it out where the papers do not say, which leaves peaks unchecked")
    about = {name: row.get(name, {}) for name in ABOUT}
    values: dict[str, dict[str, Any]] = {}
    for section, given in row.items():
        if not isinstance(given, dict) or section in ABOUT:
            continue
        if section not in sources:
            said = f"{path}: [{section}] is no entry of dryrun/data/sources.toml{_meant(section, (*sources, *ABOUT))}"
            raise ValueError(f"{said}. Fix: write an entry with url, title, date, date_kind and read, or the name of one that is there")
        for name, value in given.items():
            if name == "url":
                continue
            if name in values:
                raise ValueError(f"{path}: {name} stands below two sources. Fix: keep the better one, and say above the fields what the other has")
            values[name] = _sourced(name, value, sources[section], given.get("url")) | {"note": about["notes"].get(name)}
    for name, how in about["derived"].items():
        if name in values:
            values[name] |= {"read": "derived", "note": how}
    rates = generations.get(operations or "", {})
    for name in UNITS:
        if name not in values:
            made = None if name in about["none"] else _from_clock(name, values, rates, sources)
            why = about["none"].get(name) or NOT_SAID.get(name, None if name in EXPECTED else "no source found")
            values[name] = made or {"value": None, "unit": UNITS[name], "note": why}
    return FIELDS | fields | {"values": values, "exceptions": about["exceptions"], "capacity_gib": about["capacity"].get("gib")}


def _sourced(name: str, value: Any, source: dict[str, Any], url: str | None) -> dict[str, Any]:
    origin = {"source": url or source.get("url") or source.get("title"), "date": source.get("date"), "read": source.get("read")}
    of_peak = {"dtype": name.split("_")[0], "accumulate": SUMS_IN.get(name, "fp32")} if name in PEAKS else {}
    return {"value": value, "unit": UNITS.get(name), **of_peak, **origin}


def _from_clock(name: str, values: dict[str, dict[str, Any]], rates: dict[str, Any], sources: dict[str, Any]) -> dict[str, Any] | None:
    """A peak that nobody printed."""
    units, clock = values.get("units"), values.get("clock")
    if name != "fp32":
        clock = values.get("matrix_clock", clock)
    if name not in PEAKS or not (units and clock and name in rates):
        return None
    made = _sourced(name, round(units["value"] * rates[name] * clock["value"] / 1e6, 1), sources.get(rates.get("source", ""), {}), None)
    origin = {} if made["source"] else {"source": clock["source"], "date": clock["date"]}
    how = f"{units['value']} units x {rates[name]} per clock x {clock['value'] / 1000:g} GHz"
    return made | origin | {"read": "derived", "note": how}


def _meant(name: str, names: Collection[str]) -> str:
    close = difflib.get_close_matches(name, list(names), 1, 0.5)
    return f" (did you mean {close[0]}?)" if close else ""
