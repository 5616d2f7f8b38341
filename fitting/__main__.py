"""Fits the constants and judges every published row by those that had not seen it: `python -m fitting`. `python -m fitting memory` fits
what comes on top of the tensors alone, in two minutes; `judged` judges the rows again and fits nothing; `draws` looks for the constants by
other random moves, and keeps the medians alone."""

import sys

from . import draws, fit, judged, kernel_tables, published, shared_memory


def everything():
    kernel_tables.main()
    fit.main()
    shared_memory.main()
    again(published.rows())


def again(rows):
    """Judges every row, and prints how the median of each class has changed."""
    before = judged.read()
    judged.write(rows)
    print("\n".join(judged.changes(before, judged.read(), {row["id"]: row["seconds"] for row in rows})))


def judged_alone():
    rows = published.rows()
    fit.errors_alone(rows)
    again(rows)


VERBS = {(): everything, ("memory",): fit.memory_alone, ("judged",): judged_alone, ("draws",): draws.main}

if __name__ == "__main__":
    asked = tuple(sys.argv[1:])
    if asked not in VERBS:
        sys.exit(f"error: {' '.join(asked)}: python -m fitting takes no argument, or one of memory, judged, draws")
    VERBS[asked]()
