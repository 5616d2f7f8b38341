"""Steps of a pipeline: which rank computes which micro-batch when. A backward pass takes as long as two forward passes."""

from .svg import timeline

RANKS, BATCHES = 4, 8
FORWARD, BACKWARD = "Forward", "Backward"
LENGTHS = {"F": 1, "B": 2}


def gpipe():
    """{rank: what it does, in order}: all forward passes, then all backward passes."""
    both = [("F", batch) for batch in range(BATCHES)] + [("B", batch) for batch in range(BATCHES)]
    return dict.fromkeys(range(RANKS), both)


def one_forward_one_backward():
    """{rank: what it does, in order}: forward passes until the pipe is full, then one backward for each forward."""
    orders = {}
    for rank in range(RANKS):
        ahead = min(RANKS - rank, BATCHES)
        orders[rank] = [("F", batch) for batch in range(ahead)]
        for batch in range(BATCHES):
            orders[rank].append(("B", batch))
            if batch + ahead < BATCHES:
                orders[rank].append(("F", batch + ahead))
    return orders


def played(orders):
    """{(rank, way, micro-batch): start}: each as soon as its rank is free and its input is there."""
    starts, free, todo = {}, dict.fromkeys(orders, 0), {rank: list(order) for rank, order in orders.items()}
    while any(todo.values()):
        for rank, order in todo.items():
            if not order:
                continue
            way, batch = order[0]
            source = (rank - 1 if way == "F" else rank + 1, way, batch)  # who sends the input
            if source[0] in orders and source not in starts:
                continue
            arrives = starts[source] + LENGTHS[way] if source in starts else 0
            starts[rank, way, batch] = max(free[rank], arrives)
            free[rank] = starts[rank, way, batch] + LENGTHS[way]
            order.pop(0)
    return starts


def lanes(orders):
    found = {f"GPU {rank}": [] for rank in orders}
    for (rank, way, batch), start in sorted(played(orders).items(), key=lambda item: item[1]):
        kind = {"F": FORWARD, "B": BACKWARD}[way]
        found[f"GPU {rank}"].append((start, LENGTHS[way], str(batch), kind))
    return found


def steps(orders):
    """[(end, who waits until then, and what each GPU holds)]: one from each start of a pass to the next."""
    starts = played(orders)
    ends = {each: start + LENGTHS[each[1]] for each, start in starts.items()}
    times = sorted({*starts.values(), *ends.values()})
    found = []
    for time, end in zip(times, times[1:], strict=False):
        busy = {rank for rank, way, batch in starts if starts[rank, way, batch] <= time < ends[rank, way, batch]}
        idle = [str(rank) for rank in orders if rank not in busy]
        waits = f"GPU {' and '.join(filter(None, [', '.join(idle[:-1]), idle[-1]]))} wait{'s' * (len(idle) == 1)}. " if idle else "No GPU waits. "
        holds = ", ".join(f"GPU {rank}: {_held(starts, ends, rank, time)}" for rank in orders)
        found.append((end, f"{waits}Micro-batches whose activations are held: {holds}."))
    return found


def _held(starts, ends, rank, time):
    """How many micro-batches a GPU has begun by then, whose backward pass there has not ended."""
    return sum(starts[rank, "F", batch] <= time < ends[rank, "B", batch] for batch in range(BATCHES))


def gpipe_diagram():
    return timeline(
        f"GPipe: {RANKS} stages, {BATCHES} micro-batches. The empty parts are the bubble",
        "Timeline of four GPUs. Each computes its forward passes one micro-batch after the other, and starts one pass after the "
        "GPU before it. When all are done, the backward passes run from GPU 3 back to GPU 0. GPU 0 waits in the middle.",
        lanes(gpipe()),
        steps=steps(gpipe()),
    )


def one_forward_one_backward_diagram():
    return timeline(
        f"1F1B: the same bubble, and GPU 0 holds the activations of {RANKS} micro-batches, not of {BATCHES}",
        "Timeline of four GPUs. GPU 3 alternates between a forward and a backward pass from its first micro-batch on. GPU 0 "
        "computes four forward passes, waits, and then alternates. The step ends at the same time as with GPipe.",
        lanes(one_forward_one_backward()),
        steps=steps(one_forward_one_backward()),
    )
