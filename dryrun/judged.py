"""What each published row was predicted to take, by constants and with a band that its own source had no part in.

`python -m dryrun fit` writes `data/judged.json` after the constants, so that a page can show every error without tracing
hundreds of models. A test traces some of the rows again and compares.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from . import predict
from .fit import judged, of_group, source_of

PATH = Path(__file__).with_name("data") / "judged.json"


@dataclass(frozen=True)
class Judged:
    """One row of data/published.json: its id, its class, and the seconds predicted for it, with low and high."""

    id: str
    klass: str
    seconds: float
    low: float
    high: float


def judge(data):
    """[Judged] of rows that `fit.judged` has traced, in their order."""
    held, found = predict.fitted()["held_out"]["source"], {}
    sources = [source_of(row) for row in data.rows]
    for source in set(sources):
        constants = of_group(held, source)
        seconds, classes = data.runs.seconds(constants), data.runs.classes(constants)
        for place in (place for place, other in enumerate(sources) if other == source):
            value, (low, high) = float(seconds[place]), predict.band(classes[place], source)
            shown = (float(f"{number:.4g}") for number in (value, value * low, value * high))
            found[place] = Judged(data.rows[place]["id"], classes[place], *shown)
    return [found[place] for place in range(len(data.rows))]


def write(rows):
    """Judges the published rows that can be traced, and stores what came out."""
    lines = ",\n".join(json.dumps(list(asdict(one).values())) for one in judge(judged(rows)))
    PATH.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


def read():
    """[Judged], in the order of data/published.json."""
    return [Judged(*row) for row in json.loads(PATH.read_text(encoding="utf-8"))]
