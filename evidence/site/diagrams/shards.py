"""A weight in a sharded checkpoint: which rank writes which rows, and from which files other numbers of ranks read them."""

from .svg import timeline

ROWS = 4096  # of the weight
SAVED, READ = 4, (2, 6)  # ranks


def bounds(ranks):
    """[(first row, row after the last)] of each rank: FSDP2 splits the first dimension as torch.chunk does."""
    each = -(-ROWS // ranks)
    return [(rank * each, min((rank + 1) * each, ROWS)) for rank in range(ranks)]


def pieces(ranks):
    """[(rank, file, first row, row after the last)] of what each rank reads."""
    return [
        (rank, file, max(first, start), min(last, end))
        for rank, (first, last) in enumerate(bounds(ranks))
        for file, (start, end) in enumerate(bounds(SAVED))
        if max(first, start) < min(last, end)
    ]


def lane(ranks):
    return [(first, last - first, f"rank {rank}", f"File {file}") for rank, file, first, last in pieces(ranks)]


def diagram():
    return timeline(
        f"A weight of {ROWS:,} rows, saved by {SAVED} ranks, and what {' or '.join(map(str, READ))} ranks read of which file",
        "Three bars of all rows. The first has a part for each of the four ranks, which is the file that it writes. In the others each rank has as many rows, from one "
        "file or from two.",
        {f"Saved by {SAVED}": lane(SAVED)} | {f"Read by {ranks}": lane(ranks) for ranks in READ},
        axis="rows",
        ends=f"{ROWS:,}",
    )
