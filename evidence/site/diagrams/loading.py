"""Batches from worker processes beside the steps: what torch's DataLoader asks of its workers, and when."""

from .svg import timeline

WORKERS, AHEAD, BATCHES = 2, 2, 8  # AHEAD: prefetch_factor, torch's default
MAKING, STEP = 3, 2  # lengths, for the picture
MAKES, TRAINS, WAITS = "Makes a batch", "Step", "Waits for data"


def played(workers):
    """{"GPU" or a worker: [(start, length, batch)]}. A batch is asked for when one is taken; workers take turns."""
    lanes = {"GPU": [], **{f"Worker {number}": [] for number in range(workers)}}
    ready, free = {}, dict.fromkeys(range(workers), 0)
    asked = [0] * (workers * AHEAD)  # when each batch was asked for
    now = 0
    for batch in range(BATCHES):
        for number in range(len(ready), min(len(asked), BATCHES)):
            worker = number % workers
            start = max(free[worker], asked[number])
            ready[number] = free[worker] = start + MAKING
            lanes[f"Worker {worker}"].append((start, MAKING, number))
        now = max(now, ready[batch])
        asked.append(now)
        lanes["GPU"].append((now, STEP, batch))
        now += STEP
    return lanes


def alone():
    """Without workers: the process that trains makes each batch first."""
    return {"GPU": [(batch * (MAKING + STEP) + MAKING, STEP, batch) for batch in range(BATCHES)]}


def lanes(played):
    found, before = {name: [] for name in played}, 0
    for start, length, batch in played["GPU"]:
        if start > before:
            found["GPU"].append((before, start - before, "", WAITS))
        found["GPU"].append((start, length, str(batch), TRAINS))
        before = start + length
    for name, blocks in played.items():
        found[name] += [] if name == "GPU" else [(start, length, str(batch), MAKES) for start, length, batch in blocks]
    return found


def end(played):
    return max(start + length for start, length, _ in played["GPU"])


def diagram():
    both = {"GPU, no worker": lanes(alone())["GPU"]} | {f"GPU, {WORKERS} workers" if name == "GPU" else name: blocks for name, blocks in lanes(played(WORKERS)).items()}
    return timeline(
        f"{BATCHES} batches: a GPU that waits for each, and one beside {WORKERS} workers. Making a batch takes {MAKING} here, a step {STEP}",
        "Timeline. Without a worker the GPU waits before each step while its batch is made. With two workers it waits for the first batch only: the "
        "workers make the next batches while it computes.",
        both,
    )
