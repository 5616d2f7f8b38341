"""The two constants of decoding on Macs and other machines with unified memory, from `data/shared_memory.json`: `python -m fitting.shared_memory`.

llama.cpp has become faster since its builds of 2024: rows of these stay in the file, and neither fit nor judge what runs today. Each kind's
constants are those with the least error, where each source counts the same, however many rows it has. The errors that a page shows, and the
band, are of constants that had not seen the row's source.
"""

import datetime
import json
import math
from collections import Counter
from pathlib import Path

from dryrun.cost import shared_memory
from dryrun.cost.traces import traced
from dryrun.step.workload import Workload
from dryrun.tables.hardware import GB, accelerator

ROWS = Path(__file__).with_name("data") / "shared_memory.json"
SINCE = "2025"  # date of the first builds that count
SHARES = [share / 100 for share in range(50, 101)]  # of the bandwidth, that are tried
LAYERS = [microseconds / 1e6 for microseconds in range(0, 301, 5)]


def rows():
    """{kind: [(row, layers, bytes read, bytes/s of the data sheet)]}"""
    found = {shared_memory.MAC: [], shared_memory.PC: []}
    for row in json.loads(ROWS.read_text(encoding="utf-8"))["rows"]:
        if row["date"] < SINCE:
            continue
        gpu, workload = accelerator(row["gpu"]), Workload(row["model"], 1, 1, kind="decode", compiled=True)
        trace = traced(workload)
        read = shared_memory.bytes_read(trace, workload, row["weights"], row["context"])
        found[shared_memory.kind(gpu)].append((row, trace.layers, read, gpu.get("bandwidth") * GB))
    return found


def error(one, constants):
    """The logarithm of predicted over measured seconds."""
    row, layers, read, bandwidth = one
    return math.log(sum(shared_memory.seconds(layers, read, bandwidth, constants).values()) * row["tokens_per_second"])


def fit(of_kind):
    """The constants with the least mean error of each source on these rows."""
    rows_of = Counter(row["source"] for row, *_ in of_kind)
    tried = ({"layer": layer, "share": share} for share in SHARES for layer in LAYERS)
    return min(tried, key=lambda constants: sum(abs(error(one, constants)) / rows_of[one[0]["source"]] for one in of_kind))


def judged(of_kind):
    """{source: [errors of its rows, by constants that had not seen it]}"""
    found = {}
    for source in sorted({row["source"] for row, *_ in of_kind}):
        constants = fit([one for one in of_kind if one[0]["source"] != source])
        found[source] = [round(error(one, constants), 3) for one in of_kind if one[0]["source"] == source]
    return found


def main():
    kinds = {kind: fit(of_kind) | {"rows": len(of_kind), "errors": judged(of_kind)} for kind, of_kind in rows().items()}
    text = json.dumps({"fitted": datetime.date.today().isoformat(), "kinds": kinds}, indent=1)
    shared_memory.DATA.write_text(text + "\n", encoding="utf-8")
    for kind, of in kinds.items():
        print(f"{kind}: {of['layer'] * 1e6:.0f} us for each layer, {of['share']:.0%} of the bandwidth, {of['rows']} rows")


if __name__ == "__main__":
    main()
