"""Reads a trace that torch.profiler wrote: what each part of a step takes, and where nothing computes.

    python read_trace.py trace.json
"""
import json
import sys

ON_THE_GPU = {"kernel", "gpu_memcpy", "gpu_memset"}


# --8<-- [start:read]
def spans(events, wanted):
    """[(start, end)] of the events that are wanted, in order; those that overlap become one."""
    joined = []
    for start, end in sorted((event["ts"], event["ts"] + event["dur"]) for event in events if wanted(event)):
        if joined and start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((start, end))
    return joined


def read(events):
    """Shares of the time by part, the share in which something computes, and the longest gap with its part."""
    events = [event for event in events if event.get("ph") == "X"]
    parts = [event for event in events if event.get("cat") == "user_annotation" and "#" not in event["name"]]  # named by you
    begin, end = min(event["ts"] for event in parts), max(event["ts"] + event["dur"] for event in parts)
    shares = {}
    for event in parts:
        shares[event["name"]] = shares.get(event["name"], 0) + event["dur"] / (end - begin)
    gpu = any(event.get("cat") in ON_THE_GPU for event in events)
    busy = spans(events, lambda event: event.get("cat") in ON_THE_GPU if gpu else event.get("cat") == "cpu_op")
    busy = [(start, stop) for start, stop in busy if start >= begin]
    gaps = [(later - stop, stop) for (_, stop), (later, _) in zip([(0, begin), *busy], [*busy, (end, 0)])]
    longest, at = max(gaps)
    middle = at + longest / 2
    part = next((event["name"] for event in parts if event["ts"] <= middle < event["ts"] + event["dur"]), "between the parts")
    return shares, sum(stop - start for start, stop in busy) / (end - begin), (longest / 1000, part), gpu
# --8<-- [end:read]


if __name__ == "__main__":
    with open(sys.argv[1]) as file:
        shares, busy, (gap, part), gpu = read(json.load(file)["traceEvents"])
    for name, share in shares.items():
        print(f"{name:10} {share:4.0%}")
    print(f"{'kernels' if gpu else 'operators'} run in {busy:.0%} of the time; the longest gap: {gap:.1f} ms, in {part}")
