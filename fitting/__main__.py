"""Fits the constants and judges every published row by those that had not seen it: `python -m fitting`. `python -m fitting memory` fits
what comes on top of the tensors alone, in two minutes; `judged` judges the rows again and fits nothing; `without` takes parts of the prediction
out and fits again, and keeps the medians alone."""

import os
import sys

from dryrun.cost import timing

from . import fit, judged, kernel_tables, published, shared_memory, without


def everything():
    before = {path: path.read_text(encoding="utf-8") for path in (timing.CONSTANTS, judged.PATH)}
    kernel_tables.main()
    fit.main()
    shared_memory.main()
    again(published.rows(), before)


def again(rows, texts):
    """Judges every row, and prints how the median error of each class and the share inside its band have changed. A class that is worse asks for a
    reason, and without one what was there before stays: texts, by their files."""
    before, measured = judged.read(), {row["id"]: row["seconds"] for row in rows}
    judged.write(rows)
    after = judged.read()
    print("\n".join(judged.changes(before, after, measured)))
    if found := judged.worse(before, after, measured):
        if not os.environ.get("WHY"):
            for path, text in texts.items():
                path.write_text(text, encoding="utf-8")
            fix = f"WHY='one sentence' make fit, which keeps it in fitting/data/{judged.REASONS.name}"
            sys.exit(f"error: {', '.join(sorted(found))}: worse on unseen sources, and nobody says why: the constants stay as they were. Fix: {fix}")
        judged.give_reason(found, os.environ["WHY"])


def judged_alone():
    rows, before = published.rows(), {path: path.read_text(encoding="utf-8") for path in (timing.CONSTANTS, judged.PATH)}
    fit.errors_alone(rows)
    again(rows, before)


VERBS = {(): everything, ("memory",): fit.memory_alone, ("judged",): judged_alone, ("without",): without.main}

if __name__ == "__main__":
    asked = tuple(sys.argv[1:])
    if asked not in VERBS:
        sys.exit(f"error: {' '.join(asked)}: python -m fitting takes no argument, or one of memory, judged, without")
    VERBS[asked]()
