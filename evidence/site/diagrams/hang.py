"""Two ranks that wait for each other, as the flight recorder shows them: the program is snippets/debugging/stuck.py."""

from .svg import timeline

BATCHES = {0: 4, 1: 3}
CALL, WAIT = 1, 3  # lengths, for the picture


def collectives(rank):
    """What a rank calls, in order."""
    return ["all_reduce"] * BATCHES[rank] + ["barrier"]


def lanes():
    """Calls go on while both ranks make the same one. At the first that differs, both wait."""
    both = [collectives(rank) for rank in BATCHES]
    same = next(number for number, calls in enumerate(zip(*both)) if len(set(calls)) > 1)
    found = {}
    for rank, calls in zip(BATCHES, both):
        done = [(number * CALL, CALL, str(number + 1), f"{calls[number]}, done") for number in range(same)]
        found[f"Rank {rank}"] = done + [(same * CALL, WAIT, str(same + 1), f"{calls[same]}, waits")]
    return found


def diagram():
    return timeline(
        "The collectives of two ranks: number 4 is an all_reduce on rank 0 and a barrier on rank 1",
        "Timeline of two ranks. Three all_reduce calls are done on both. Then rank 0 waits in the fourth all_reduce, and rank 1 in a "
        "barrier, until the time-out.",
        lanes(),
    )
