"""What a GPU can't do: compute or copy faster than its data sheet says, or hold more. A GPU that the table of accelerators
lacks is held to the ranges of units alone."""

import re

from dryrun import hardware

OVER = 1.2  # of the data sheet: clocks above the stated one, and what a cache adds
NARROW = re.compile(
    r"\b(fp8|float8|int8|fp4|8 bits|4 bits)\b", re.I
)  # products with higher peaks than those in 16 bits
RATE = re.compile(r"\b([TGM]FLOP/s|GB/s)")
TO_TABLE = {"TFLOP/s": 1, "GFLOP/s": 1e-3, "MFLOP/s": 1e-6, "GB/s": 1}


def beyond(machine, data):
    """Every figure of a record that its GPU cannot reach: (what is wrong, the keys that lead there)."""
    try:
        gpu = hardware.accelerator(machine["gpu"])
    except ValueError:
        return
    holds = gpu.get("memory")
    if holds and machine["gpu_memory_gib"] > holds * 1.02:  # vendors write GiB as GB
        yield (
            f"machine: {gpu.label} has {holds:g} GB, and the record says {machine['gpu_memory_gib']:g} GiB",
            "machine",
            "gpu_memory_gib",
        )
    for name, claim in data["claims"].items():
        if "value" in claim and (wrong := _beyond(gpu, claim["value"], claim["unit"], claim["sentence"])):
            yield f"claim {name}: {wrong}", "claims", name, "value"
    for name, table in data["tables"].items():
        for value, unit, words in _rates(table):
            if wrong := _beyond(gpu, value, unit, words):
                yield f"table {name}: {wrong}", "tables", name
                break


def _rates(table):
    """(value, unit, words) of each cell whose column or whose row names a rate."""
    for row in table["rows"]:
        words = " ".join(cell for cell in row if isinstance(cell, str))
        in_row = RATE.search(words)
        for cell, header in zip(row, table["columns"].values()):
            unit = RATE.search(header) or in_row
            if unit and isinstance(cell, int | float) and not isinstance(cell, bool):
                yield cell, unit[1], f"{words} {header}"


def _beyond(gpu, value, unit, words):
    peak = _peak(gpu, unit, words)
    rate = value * TO_TABLE.get(unit, 0)
    if peak and rate > OVER * peak:
        kind = "GB/s" if unit == "GB/s" else "TFLOP/s"
        return f"{rate:,.4g} {kind} is over the {peak:,.4g} {kind} of the data sheet of {gpu.label}"
    return None


def _peak(gpu, unit, words):
    if unit == "GB/s":
        return gpu.get("bandwidth")
    if unit not in TO_TABLE:
        return None
    names = ("fp8", "int8", "fp4") if NARROW.search(words) else ()
    return max(
        filter(None, [gpu.half, *(gpu.values[name].value for name in names if name in gpu.values)]), default=None
    )
