"""Errors of the predictions on published measurements: `dryrun validate [--rows FILE]`.

Without FILE the rows of `data/published.json` are judged: each by constants that were fitted without its source, without its
GPU family, and, in the table and the last line, without a random fifth of the rows that it is in. Rows of a FILE are judged by the constants of all rows
of `data/published.json`; what is in it already, under whatever id, is left out. A row that cannot be predicted is one line, and the others go on.
"""

import math
import statistics
import sys

import numpy as np

from dryrun.cost import timing

from . import duplicates, published
from .held_out import groups_of, of_group, pairs_of, predictable, prediction_errors
from .judged import UNSEEN, medians

TITLE = f"{'':34}{'rows':>5} {'median':>8} {'p90':>8} {'bias':>8} {'low-high':>9}"


def main(path=None):
    """Prints a table of errors; the last line is the summary. Returns the exit status."""
    try:
        rows = unknown(read(path)) if path else read(path)
    except (OSError, ValueError, RecursionError) as error:
        sys.exit(f"error: {' '.join(str(error).split())[:300]}")
    data = predictable(rows)
    for problem in data.problems:
        print(f"error: {problem}", file=sys.stderr)
    if not data.rows:
        sys.exit("error: no row of these can be predicted: see the lines above")
    if path:
        report(data, prediction_errors(data, timing.fitted()["constants"]))
    else:
        cross_validated(data)
    return 0


def read(path):
    """Rows in the schema of data/published.json; those with a problem of their own are named and left out."""
    rows, problems = published.checked(path or published.DEFAULT)
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    return rows


def unknown(rows):
    """The rows that measure nothing that data/published.json holds already, whatever their ids; the others are named."""
    known = {}
    for row, other in duplicates.pairs(rows, published.rows()):
        known.setdefault(row["id"], other["id"])
    for name, other in known.items():
        print(f"error: row {name}: it is row {other} of data/published.json, which helped to fit: left out", file=sys.stderr)
    return [row for row in rows if row["id"] not in known]


def cross_validated(data):
    held = timing.fitted()["held_out"]
    found = {name: held_out(data, held[name], of) for name, of in UNSEEN.items()}
    for name, what in (("family", "GPU family"), ("source", "source")):
        print(f"without the {what} of the row: {summary(*found[name])}")
    ratios(data, found["fold"][0])
    asked(data, {name: errors for name, (errors, _) in found.items()})
    print()
    report(data, found["fold"])


def asked(data, errors):
    """Prints the median errors that were asked for before anything was fitted, beside those reached."""
    classes = data.runs.classes(timing.fitted()["constants"])
    print(f"{'median error':44}{'asked':>6} {'row':>7} {'source':>7} {'family':>7}  (what the constants had not seen)")
    for wanted, count, reached in medians(data.rows, classes, errors):
        shown = " ".join(f"{reached[name]:6.1f}%" for name in UNSEEN)
        print(f"  {wanted.what:34}{count:6}  {wanted.most:5.0f}% {shown}")


def held_out(data, constants, of):
    """(errors, whether each is inside low and high) with the constants of the group that leaves the row out."""
    groups = groups_of(data, of)
    errors, inside = np.zeros(len(groups)), np.zeros(len(groups), bool)
    for group in set(groups):
        mine = groups == group
        found = prediction_errors(data, of_group(constants, group))
        errors[mine], inside[mine] = found[0][mine], found[1][mine]
    return errors, inside


def report(data, judged_errors):
    errors, inside = judged_errors
    classes = np.array(data.runs.classes(timing.fitted()["constants"]))
    print(TITLE)
    for title, names in (("class", classes), ("GPU", np.array([row["gpu"] for row in data.rows]))):
        print(f"by {title}")
        for name in sorted(set(names)):
            mine = names == name
            print(line(f"  {name}", errors[mine], inside[mine]))
    print()
    print(f"rows {len(errors)}  {summary(errors, inside)}")


def line(name, errors, inside):
    middle, tail = percent(errors)
    bias = 100 * (math.exp(statistics.median(errors)) - 1)
    return f"{name:34}{len(errors):5} {middle:7.1f}% {tail:7.1f}% {bias:+7.1f}% {100 * np.mean(inside):8.0f}%"


def summary(errors, inside):
    middle, tail = percent(errors)
    return f"median {middle:.1f} %  p90 {tail:.1f} %  within low-high {100 * np.mean(inside):.0f} %"


def percent(errors):
    """(median, ninth of ten) of how far predictions are from measurements, in percent of the measured seconds."""
    off = np.sort(100 * np.abs(np.exp(errors) - 1))
    return float(np.median(off)), float(off[min(len(off) - 1, math.ceil(0.9 * len(off)) - 1)])


def ratios(data, errors):
    """Prints how far the predicted effect of one change is from the measured one."""
    found = pairs_of(data.rows, errors)
    for name, off in sorted(found.items()):
        print(f"ratio, {name} changed: pairs {len(off)}  median {percent(np.array(off))[0]:.1f} %")
    every = [error for off in found.values() for error in off]
    if every:
        middle, tail = percent(np.array(every))
        print(f"ratios: pairs {len(every)}  median {middle:.1f} %  p90 {tail:.1f} %")
