"""Fits the constants and judges every published row by those that had not seen it: `python -m fitting`. `python -m fitting memory` fits
what comes on top of the tensors alone, in two minutes; `judged` judges the rows again and fits nothing; `without` takes parts of the prediction
out and fits again, and keeps the medians alone."""

import os
import sys

from . import fit, judged, kernel_tables, published, shared_memory, without


def everything():
    kernel_tables.main()
    fit.main()
    shared_memory.main()
    again(published.rows())


def again(rows):
    """Judges every row, and prints how the median of each class has changed. One that is worse asks for a reason."""
    before, measured = judged.read(), {row["id"]: row["seconds"] for row in rows}
    judged.write(rows)
    print("\n".join(judged.changes(before, judged.read(), measured)))
    if found := judged.worse(before, judged.read(), measured):
        if not os.environ.get("WHY"):
            fix = f"git checkout fitting/data/{judged.PATH.name}, then WHY='one sentence' make fit, which keeps it in fitting/data/{judged.REASONS.name}"
            sys.exit(f"error: {', '.join(found)}: worse by more than a tenth, and nobody says why. Fix: {fix}")
        judged.give_reason(found, os.environ["WHY"])


def judged_alone():
    rows = published.rows()
    fit.errors_alone(rows)
    again(rows)


VERBS = {(): everything, ("memory",): fit.memory_alone, ("judged",): judged_alone, ("without",): without.main}

if __name__ == "__main__":
    asked = tuple(sys.argv[1:])
    if asked not in VERBS:
        sys.exit(f"error: {' '.join(asked)}: python -m fitting takes no argument, or one of memory, judged, without")
    VERBS[asked]()
