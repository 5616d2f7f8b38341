"""How much the published medians depend on how the constants were looked for: `python -m fitting draws`, in some minutes.

The error of many rows is nearly flat round its minimum. A search with other random moves ends elsewhere, with an error on what it saw that
is the same within some percent, and with another one on sources that it did not see. `data/draws.json` holds the medians of several.
"""

import datetime
import json
import multiprocessing
from pathlib import Path

import numpy as np

from dryrun import timing

from . import fit, published
from .held_out import OTHERS, groups_of, predictable, source_of, unseen
from .judged import median

PATH = Path(__file__).with_name("data") / "draws.json"
SEEDS = range(1, 7)  # `make fit` takes 0


def main():
    """Writes data/draws.json: {class: the median error of each draw in percent, by constants that had not seen the source}."""
    data = predictable(published.rows())
    classes = np.array(data.runs.classes(timing.fitted()["constants"]))
    with multiprocessing.get_context("fork").Pool(initializer=_keep, initargs=(data,)) as pool:
        errors = pool.map(_errors, SEEDS)
    medians = {klass: sorted(round(median(of[classes == klass]), 1) for of in errors) for klass in sorted(set(classes.tolist()))}
    PATH.write_text(json.dumps({"made": datetime.date.today().isoformat(), "medians": medians}, indent=1) + "\n", encoding="utf-8")


def read():
    """{class: median errors of the draws in percent, the smallest first}."""
    return json.loads(PATH.read_text(encoding="utf-8"))["medians"]


def _keep(data):
    global DATA
    DATA = data


def _errors(seed):
    groups = groups_of(DATA, source_of)
    return unseen(DATA, {group: fit.fit(DATA, groups != group, seed=seed) for group in sorted({*groups, OTHERS})}, source_of)
