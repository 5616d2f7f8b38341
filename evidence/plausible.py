"""What a machine can't do: compute or copy faster than the data sheet of its GPU says, or hold more. A GPU that the table of
accelerators lacks is held to the most that any of the table does, and a CPU to what its cores can do at all."""

import re
from typing import NamedTuple

from dryrun import hardware

OVER = 1.2  # of the data sheet: clocks above the stated one, and what a cache adds
NARROW = re.compile(
    r"\b(fp8|float8|int8|fp4|8 bits|4 bits)\b", re.I
)  # products with higher peaks than those in 16 bits
RATE = re.compile(r"\b([TGM]FLOP/s|GB/s)")
TO_TABLE = {"TFLOP/s": 1, "GFLOP/s": 1e-3, "MFLOP/s": 1e-6, "GB/s": 1}
# The matrix unit of a core does 2,048 operations a cycle at most (AMX, int8), and a core reads and writes 64 bytes each; at 5 GHz.
CPU_TFLOPS, CPU_GB_PER_S = 10, 640
# The first number of the compute capability, by NVIDIA's families.
CAPABILITY = {"pascal": {6}, "volta": {7}, "turing": {7}, "ampere": {8}, "ada": {8}, "hopper": {9}}
CAPABILITY["blackwell"] = {10, 11, 12}


class Limits(NamedTuple):
    """What a machine does at most: TFLOP/s of products by the kind of number, GB/s; and whose limits these are, in words."""

    half: float | None
    narrow: float | None  # in 8 bits or fewer
    bandwidth: float | None
    whose: str


def beyond(machine, data):
    """Every figure of a record that its machine cannot reach: (what is wrong, the keys that lead there)."""
    if "gpu" not in machine:
        most, cores = CPU_TFLOPS * machine["cores"], machine["cores"]
        limits = Limits(most, most, CPU_GB_PER_S * cores, f"that {cores} cores of any CPU reach")
    else:
        try:
            gpu = hardware.accelerator(machine["gpu"])
        except ValueError:
            gpu = None
        yield from _beyond_as_a_card(machine, gpu)
        limits = _of(gpu) if gpu else _of_the_table()
    for name, claim in data["claims"].items():
        if "value" in claim and (wrong := _beyond(limits, claim["value"], claim["unit"], claim["sentence"])):
            yield f"claim {name}: {wrong}", "claims", name, "value"
    for name, table in data["tables"].items():
        for value, unit, words in _rates(table):
            if wrong := _beyond(limits, value, unit, words):
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


def _beyond(limits, value, unit, words):
    peak = _peak(limits, unit, words)
    rate = value * TO_TABLE.get(unit, 0)
    if peak and rate > OVER * peak:
        kind = "GB/s" if unit == "GB/s" else "TFLOP/s"
        return f"{rate:,.4g} {kind} is over the {peak:,.4g} {kind} {limits.whose}"
    return None


def _peak(limits, unit, words):
    if unit == "GB/s":
        return limits.bandwidth
    return (limits.narrow if NARROW.search(words) else limits.half) if unit in TO_TABLE else None


def _of(gpu):
    narrow = [gpu.values[name].value for name in ("fp8", "int8", "fp4") if name in gpu.values]
    most = max(filter(None, [gpu.half, *narrow]), default=None)
    return Limits(gpu.half, most, gpu.get("bandwidth"), f"of the data sheet of {gpu.label}")


def _of_the_table():
    rows = [_of(gpu) for gpu in hardware.ACCELERATORS.values()]
    most = (max(filter(None, (row[number] for row in rows))) for number in range(3))
    return Limits(*most, "of the fastest GPU in dryrun/data/accelerators.json, which lacks this one")


def _beyond_as_a_card(machine, gpu):
    """A size or a compute capability that the GPU does not have."""
    rows = [gpu] if gpu else list(hardware.ACCELERATORS.values())
    sizes = [row.get("memory") for row in rows if row.get("memory")]
    if sizes and machine["gpu_memory_gib"] > max(sizes) * 1.02:  # vendors write GiB as GB
        what = gpu.label if gpu else "the largest GPU in dryrun/data/accelerators.json, which lacks this one,"
        yield (
            f"machine: {what} has {max(sizes):g} GB, and the record says {machine['gpu_memory_gib']:g} GiB",
            "machine",
            "gpu_memory_gib",
        )
    said, known = machine.get("compute_capability"), CAPABILITY.get(gpu.family) if gpu else None
    if said and known and int(said.split(".")[0]) not in known:
        yield f"machine: {gpu.label} has no compute capability {said}", "machine", "compute_capability"
