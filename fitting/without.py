"""What each part of the prediction buys: `python -m fitting without`, in some minutes.

A part is taken out, the constants are fitted again, and every row is judged by those that had not seen its source. What a part costs to keep
is code and data; what it buys stands in `data/without.json`, and on the page about the predicted seconds.
"""

import datetime
import json
import math
import statistics
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np

from dryrun.cost import decoding, kernel_tables, roofline, runs, timing
from dryrun.tables.hardware import table

from . import choose, fit, published
from .held_out import OTHERS, groups_of, predictable, source_of, unseen
from .judged import median

PATH = Path(__file__).with_name("data") / "without.json"
WHOLE = "nothing"


def _of_tables(name):
    """The table of this name of each GPU that has tables of its own."""
    return [of[name] for of in table("kernels")["gpus"].values()]


def _one_attention():
    """One share of the peak and one number of reads for all GPUs and head sizes."""
    known = [of for gpu in _of_tables("attention") for of in gpu.values()]
    share, reads = (statistics.median(of[key] for of in known) for key in ("share", "reads"))
    return [mock.patch.object(kernel_tables, "attention", lambda gpu, head: (share, reads))]


def _one_stream():
    """One floor and one share of the bandwidth for what decoding reads, at every number of rows."""
    products = _of_tables("products")
    share = statistics.median(share for of in products for share in of["shares"]["bf16"].values())
    product = kernel_tables.Alone(statistics.median(of["floor"] for of in products) * kernel_tables.MICRO, share)
    caches = _of_tables("cache")
    cache = kernel_tables.Alone(*(statistics.median(of[key] for of in caches) for key in ("floor", "share")))
    cache = cache._replace(floor=cache.floor * kernel_tables.MICRO)
    return [mock.patch.object(kernel_tables, "product", lambda *_: product), mock.patch.object(kernel_tables, "cache", lambda gpu: cache)]


def _no_cache():
    honest = roofline._row
    return [mock.patch.object(roofline, "_row", lambda kernel, count, gpu, *rest: honest(kernel, count, replace(gpu, cache=0), *rest))]


# What is taken out, by the words of the page, and how.
PARTS = {
    "tiles and waves of matrix products": lambda: [mock.patch.object(roofline, "padded", lambda shape, *_: 2 * math.prod(shape))],
    "how far each newer GPU's peak can be reached": lambda: [mock.patch.object(kernel_tables, "level", lambda *_: 1.0)],
    "attention by GPU and head size": _one_attention,
    "what the L2 cache still holds": _no_cache,
    "the CPU that launches each kernel": lambda: [mock.patch.object(runs, "_dispatched", lambda trace: 0.0)],
    "latency of all-reduces": lambda: [mock.patch.object(kernel_tables, "all_reduce", lambda *_, **__: 0.0)],
    "engines: few fused kernels for each layer": lambda: [mock.patch.object(decoding, "ENGINES", ())],
    "floor and bandwidth by GPU and rows, in decoding": _one_stream,
}  # fmt: skip


def main():
    """Writes data/without.json: {what is taken out: {class: median error in percent, by constants that had not seen the source}}."""
    rows, found, classes = published.rows(), {}, None
    for name, part in {WHOLE: list, **PARTS}.items():
        print(f"without {name}", file=sys.stderr, flush=True)
        with ExitStack() as taken_out:
            for patch in part():
                taken_out.enter_context(patch)
            data = predictable(rows)
            if classes is None:  # the same rows in each class, whatever is taken out
                classes = np.array(data.runs.classes(timing.fitted()["constants"]))
            found[name] = medians(data, classes)
    PATH.write_text(json.dumps({"made": datetime.date.today().isoformat(), "medians": found}, indent=1) + "\n", encoding="utf-8")


def medians(data, classes):
    """{class: median error in percent} of rows by constants that are fitted without their source."""
    groups = groups_of(data, source_of)
    errors = unseen(data, {group: fit.fit(data, groups != group, None, choose.named(timing.fitted()["choice"])) for group in sorted({*groups, OTHERS})}, source_of)
    return {klass: round(median(errors[classes == klass]), 1) for klass in sorted(set(classes.tolist()))}


def read():
    """{what is taken out: {class: median error in percent}}, the whole first."""
    return json.loads(PATH.read_text(encoding="utf-8"))["medians"]
