"""One measurement in two files, or twice in one: found by what was measured, and not by its id.

A table is often copied from repository to repository, and a collector gives each row an id of its own. Rows that judge a prediction must not
have helped to fit it, so a new file is compared with `data/published.json` by GPU, model, batch, length and value first.
"""

import math
import re
from collections import defaultdict

SAME = ("kind", "gpu", "gpus", "batch", "seq")
CLOSE = 0.005  # of two values in seconds: one source prints tokens per second, the other milliseconds
SMALLEST_SHARE = 0.8  # of the letters of a model's name that both have, "llama3-8b" and "Meta-Llama-3-8B"


def pairs(rows, known):
    """[(row, the known row that measures the same)]. known may be `rows`: then each pair is there once."""
    alike = defaultdict(list)
    for place, row in enumerate(known):
        if row.get("seconds"):
            alike[_key(row)].append((place, row))
    return [
        (row, other)
        for place, row in enumerate(rows)
        if row.get("seconds")
        for where, other in alike[_key(row)]
        if (known is not rows or where < place) and _one(row, other)
    ]


def _key(row):
    return tuple(row.get(name) for name in SAME)


def _one(row, other):
    if row["source"] == other["source"]:  # variants of one program may take nearly as long
        close = (row["value"], row["unit"]) == (other["value"], other["unit"])
    else:
        close = math.isclose(row["seconds"], other["seconds"], rel_tol=CLOSE)
    return close and _shape(row) == _shape(other) and _same_model(str(row["model"]), str(other["model"]))


def _shape(row):
    return row.get("precision"), row.get("accumulation") or 1, row.get("checkpointing") or 0, str(row.get("method"))


def _same_model(name, other):
    one, two = (set(_parts(text)) for text in (name, other))
    return len(one & two) >= SMALLEST_SHARE * min(len(one), len(two))


def _parts(name):
    """Words and numbers of a model's name."""
    return re.findall(r"\d+(?:\.\d+)?b?|[a-z]+", name.lower().replace("meta", "").replace("instruct", ""))
