"""Reads a memory snapshot without a browser: the peak, what was alive at it, and which line allocated it.

    python read_snapshot.py memory.pickle
"""
import pickle
import re
import sys
from collections import Counter

LIBRARIES = ("/torch/", "<built-in", "torch/")


# --8<-- [start:replay]
def replay(snapshot, device):
    """(bytes before the first event, peak, events until the peak, {address: event} alive at the peak)."""
    events = [event for event in snapshot["device_traces"][device] if event["action"] in ("alloc", "free_completed")]
    at_the_end = sum(block["size"] for segment in snapshot["segments"] if segment["device"] == device
                     for block in segment["blocks"] if block["state"] == "active_allocated")  # fmt: skip
    changes = [event["size"] if event["action"] == "alloc" else -event["size"] for event in events]
    held = before = at_the_end - sum(changes)
    peak, until = before, 0
    for number, change in enumerate(changes, 1):
        held += change
        if held > peak:
            peak, until = held, number
    alive = {}
    for event in events[:until]:
        if event["action"] == "alloc":
            alive[event["addr"]] = event
        else:
            alive.pop(event["addr"], None)  # not there: it was allocated before the recording began
    return before, peak, until, alive
# --8<-- [end:replay]


def line_of(event):
    """The innermost frame that is no part of PyTorch: file, line and function."""
    for frame in event.get("frames", ()):
        text = frame["name"] if frame["filename"] == "none" else f"{frame['filename']}({frame['line']}): {frame['name']}"
        if ".py(" in text and not any(library in text for library in LIBRARIES):
            return re.sub(r"^.*/(?=[^/]*/[^/]*\.py)", "", text)
    return "no line of Python: the backward pass, or before the recording"


if __name__ == "__main__":
    with open(sys.argv[1], "rb") as file:
        snapshot = pickle.load(file)  # only files that you wrote yourself: a pickle can run code
    for device, events in enumerate(snapshot["device_traces"]):
        if not events:
            continue
        before, peak, until, alive = replay(snapshot, device)
        print(f"held before the step {before / 2**20:.1f} MiB, at the peak {peak / 2**20:.1f} MiB, after {until} events")
        lines = Counter()
        for event in alive.values():
            lines[line_of(event)] += event["size"]
        for line, size in lines.most_common(6):
            print(f"{size / 2**20:8.1f} MiB  {line}")
