"""Doubts about the table of accelerators: values that contradict each other, as text. No torch.

    python -m dryrun.tables.data_sheets

A wrong value in a table with sources is mostly a right value of another thing: a peak with sparsity, a rate of another card
with the same chip, GB for GiB. Such a value contradicts another value:

- a dense peak is units x operations of the generation x clock
- peaks of two precisions stand in the ratio of their operations
- cards with graphics chips multiply at the full or at half of the rate; where the name does not say which, a source must
- cards with the same chip and as many multiprocessors have the same L2
- a memory of one type is read a certain number of times per second
- CUDA reports nearly as many bytes as `Accelerator.bytes`, and never more
- the links are among those of links.json

Before these come the faults of a row by itself (`faults`): a value that is missing, misspelt or no number, a source without a date.

What is known and stays has its reason in the file, as `clock_exception` or under `exceptions`, and what other sources say in a comment. It cannot see what contradicts nothing: all peaks of a TPU doubled, a power limit, a year.
"""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Iterable, Iterator

from . import gpu_files, hardware

MATRIX = ("tf32", "bf16", "fp16", "fp16_acc16", "fp8", "fp8_acc16", "fp4", "int8")
ROUNDED = 0.012  # vendors round clocks and peaks
PRINTED = 0.03  # and print peaks of two precisions by two clocks
BELOW, ABOVE = 0.8, 1.03  # of units x operations x clock: matrix peaks that the vendor states at a clock of its own
# Ratios to the 16-bit peak where the architecture papers give no operations for each unit.
RATIOS = {"tf32": (0.5, 1), "bf16": (1,), "fp16": (1,), "fp16_acc16": (1,), "fp8": (1, 2), "fp4": (4, 6), "int8": (1, 2)}
CLOCKS = (900, 3200)  # MHz, where a row has no clock
READ = ("vendor-copy", "vendor-quoted", "table", "press", "community", "derived")
DATE = r"\d{4}(-\d\d){0,2}"
WITHOUT_HALF = ("arc-b580", "gb10")  # nobody printed a dense peak in 16 bits
READS = {"GDDR": (10, 90), "HBM": (20, 60), "LPDDR": (1.5, 6)}  # of the whole memory per second
L2_SPREAD = 3  # cards with parts of one chip cut off
SIZE = 0.06  # of the memory: what a driver keeps to itself


def faults(rows: dict[str, hardware.Accelerator] | None = None) -> Iterator[tuple[str, str, str, str]]:
    """Yields (key, name of the field or value, what is wrong, what to do) for what a row lacks by itself."""
    for key, row in (hardware.ACCELERATORS if rows is None else rows).items():
        for name in ("name", "label", "vendor", "architecture", "family", "scope"):
            if not getattr(row, name):
                yield key, name, "is empty", "write what the row of a similar one has"
        for name in row.values.keys() - gpu_files.UNITS.keys():
            yield key, name, f"there is no such value{_meant(name, gpu_files.UNITS)}", "spell it as the other files do"
        for name, value in row.values.items():
            if name in gpu_files.UNITS:
                yield from ((key, name, *fault) for fault in _value_faults(name, value))
        if row.values.keys() >= {"bf16", "fp16"} and not (row.half or row.vendor == "Apple" or key in WITHOUT_HALF):
            yield key, "bf16", "there is no peak in 16 bits, so no time would be predicted", "give the dense one of the data sheet as bf16 or fp16"


def _value_faults(name: str, value: hardware.Value) -> Iterator[tuple[str, str]]:
    unit = gpu_files.UNITS[name]
    if value.value is None:
        if not value.note:
            yield "is missing", f"give it below its source{f' in {unit}' if unit else ''}, or say below [none] why there is no value"
        return
    if not re.fullmatch(DATE, value.date or ""):
        yield f"the date of its source is {value.date!r}", "write 2026, 2026-11 or 2026-11-30 in sources.toml"
    if not (value.source or "").startswith(("https://", "http://")) and value.read != "community":
        yield f"its source is {value.source!r}", "give the address as `url`, in sources.toml or below the source's name"
    if value.read not in READ:
        yield f"`read` is {value.read!r}{_meant(str(value.read), READ)}", f"write one of {', '.join(READ)}"
    if unit and not (isinstance(value.value, int | float) and not isinstance(value.value, bool) and value.value > 0):
        yield f"the value is {value.value!r}", f"write a number of {unit} above 0"


def _meant(name: str, names: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(names), 1, 0.5)
    return f" (did you mean {close[0]}?)" if close else ""


def doubts(rows: dict[str, hardware.Accelerator] | None = None) -> Iterator[tuple[str, str, str]]:
    """Yields (key, name of the value, what contradicts it) for each doubt without a reason in its row."""
    rows = hardware.ACCELERATORS if rows is None else rows
    for key, row in rows.items():
        for name, said in [*_clock(row), *_ratios(row), *_rate(row), *_memory(row), *_bandwidth(row), *_link(row)]:
            if name not in row.exceptions:
                yield key, name, said
    yield from _caches(rows)


def _clock(row: hardware.Accelerator) -> Iterator[tuple[str, str]]:
    """Peaks that are not units x operations x clock."""
    for dtype in row.operations:
        computed, printed = row.from_clock(dtype), row.get(dtype)
        if not (computed and printed):
            fits = True
        elif row.clock_exception:
            fits = BELOW <= printed / computed <= ABOVE
        else:
            fits = abs(computed / printed - 1) <= ROUNDED
        if not fits:
            yield dtype, f"{printed} TFLOP/s, and the clock gives {computed:.1f}"
        if printed and row.get("units") and not row.get("clock"):
            clock = printed * 1e6 / (row.get("units") * row.operations[dtype])
            if not CLOCKS[0] < clock < CLOCKS[1]:
                yield dtype, f"{printed} TFLOP/s would need a clock of {clock:,.0f} MHz"


def _ratios(row: hardware.Accelerator) -> Iterator[tuple[str, str]]:
    """Peaks that do not stand in the ratio of their operations."""
    ours = {name: row.get(name) for name in MATRIX if row.get(name)}
    if not row.half or row.family == "pascal":
        return
    for name, value in ours.items():
        expected = RATIOS.get(name, ())
        if row.operations:
            half = row.operations.get("bf16") or row.operations["fp16"]
            expected = (row.operations[name] / half,) if name in row.operations else expected
        if expected and not any(abs(value / row.half / ratio - 1) < PRINTED for ratio in expected):
            yield name, f"{value / row.half:.2f} of the 16-bit peak, and not {' or '.join(f'{ratio:g}' for ratio in expected)}"


def _rate(row: hardware.Accelerator) -> Iterator[tuple[str, str]]:
    """A card of the other line's rate, or one that may have either rate and whose peaks nobody printed."""
    rate = re.search("geforce|pro", row.operations_name or "")
    if not rate:
        return
    line = "geforce" if "GeForce" in row.name else "pro" if re.match("RTX|Quadro|TITAN", row.name) else None
    if line and line != rate[0]:
        yield "fp16", f"a {line} card at the rate of {rate[0]} cards"
    if not line and not any(row.get(name) and not _from_clock(row[name]) for name in MATRIX):
        yield "fp16", "at the full or at half of the rate? All peaks were computed from the clock, and none was printed"


def _from_clock(value: hardware.Value) -> bool:
    return value.read == "derived" and "per clock" in str(value.note)


def _memory(row: hardware.Accelerator) -> Iterator[tuple[str, str]]:
    built = row.bytes and row.bytes / 2**30
    if built and row.capacity_gib and not (1 - SIZE) * built < row.capacity_gib <= built:
        yield "memory", f"{built:.2f} GiB, and CUDA reports {row.capacity_gib:.2f}"


def _bandwidth(row: hardware.Accelerator) -> Iterator[tuple[str, str]]:
    """Memory that is read too seldom or too often for its type."""
    kind = next((kind for kind in READS if str(row.get("memory_type")).startswith(kind)), None)
    if kind and row.reads_per_second and not READS[kind][0] <= row.reads_per_second <= READS[kind][1]:
        yield "bandwidth", f"{kind} whose whole memory is read {row.reads_per_second:.2g} times per second"


def _link(row: hardware.Accelerator) -> Iterator[tuple[str, str]]:
    """A name of a link that links.json lacks."""
    link = row.get("peer_link")
    if link and link not in hardware.LINKS:
        yield "peer_link", f"{link!r} is none of links.json: {', '.join(difflib.get_close_matches(link, hardware.LINKS, 3, 0))}, ..."


def _caches(rows: dict[str, hardware.Accelerator]) -> Iterator[tuple[str, str, str]]:
    """L2 of cards with one chip."""
    for key, row in rows.items():
        for other in rows.values():
            if other.architecture != row.architecture or not (row.get("l2") and other.get("l2")) or "l2" in row.exceptions:
                continue
            less = other.get("l2") / row.get("l2")
            if less > L2_SPREAD or (less > 1 and row.get("units") == other.get("units")):
                yield key, "l2", f"{row.get('l2'):g} MB, and {other.label} with the same chip has {other.get('l2'):g}"


def main() -> bool:
    found = [f"{key}, {name}: {said}" for key, name, said, *_ in (*faults(), *doubts())]
    print("\n".join(found) or "No doubts.")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
