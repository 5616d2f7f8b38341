"""Published rows that can be predicted, in groups that are held out in turn, and how far off the predictions are.

Nothing is judged by constants that it helped to fit: a row's group (its random fold, its source, its family of GPUs) had no part
in the constants that judge it.
"""

import hashlib
import json
import math
import re
import sys
import time
from dataclasses import dataclass, field

import numpy as np

from dryrun.cost import timing
from dryrun.cost.roofline import processor
from dryrun.cost.setting import klass_of
from dryrun.cost.traces import traced

from .columns import Runs
from .rows import run_of

FOLDS = 5
TIMED = ("train", "forward", "prefill", "decode")
FEWEST = 8  # rows of a source or GPU family that is held out alone
OTHERS = "others"
ROUNDS = re.compile(r"(?<=mlcommons/training_results)_v[\d.]+$")
QUIET = 10  # seconds of work without a word

# What one change does: pairs of rows of one table that differ in it alone.
CHANGES = ("precision", "checkpointing", "attention", "compiled", "batch", "seq", "gpu", "method", "optimizer")
SAME = ("source", "gpu", "gpus", "kind", "model", "batch", "seq", "precision", "attention", "compiled", "checkpointing",
        "accumulation", "optimizer", "framework", "method", "group", "config")  # fmt: skip


@dataclass
class Predictable:
    """Rows that can be predicted, their runs and what was measured."""

    rows: list = field(default_factory=list)
    runs: Runs = field(default_factory=Runs)
    classes: list = field(default_factory=list)
    problems: list = field(default_factory=list)

    def add(self, row):
        """Adds the row, or one line to the problems."""
        try:
            workload, setting = run_of(row)
            self.runs.add(traced(workload), workload, setting)
        except Exception as error:  # a model's own code raises what it likes on sizes that make no sense
            self.problems.append(f"row {row.get('id')}: {' '.join(str(error).split())[:200]}")
            return
        self.rows.append(row)
        self.classes.append(klass_of(workload, setting))

    @property
    def measured(self):
        return np.array([row["seconds"] for row in self.rows])

    def errors(self, constants):
        """Logarithm of predicted over measured, of each row."""
        return np.log(self.runs.seconds(constants) / self.measured)


def predictable(rows):
    found, said = Predictable(), time.monotonic()
    for number, row in enumerate(rows):
        if time.monotonic() - said > QUIET:
            said = time.monotonic()
            print(f"{number:,} of {len(rows):,} rows; a step without a profile is traced once and kept", file=sys.stderr, flush=True)
        if not (row.get("usable", True) and row.get("seconds") and row["kind"] in TIMED):
            continue
        if row.get("power_limited"):  # then the peak of the data sheet is not that of the run
            found.problems.append(
                f"row {row['id']}: its GPUs are held below their power, and by how much is not stated"
            )
            continue
        found.add(row)
    return found


def groups_of(data, of):
    """The group of each row; those of few rows are held out together."""
    names = [str(of(row)) for row in data.rows]
    return np.array([name if names.count(name) >= FEWEST else OTHERS for name in names])


def of_group(held, group):
    """Constants that rows of this group had no part in. A group that came after the fit was in none."""
    return held.get(group) or held[OTHERS]


def source_of(row):
    """Rounds of one benchmark are of the same submitters, machines and code."""
    return ROUNDS.sub("", row["source"])


def fold_of(row):
    return int(hashlib.sha256(str(row["id"]).encode()).hexdigest(), 16) % FOLDS


def family_of(row):
    """GPUs that share a chip are one family."""
    gpu = processor(row["gpu"])
    name = gpu.name.split("-")
    return (
        name[0]
        if name[0] in ("v100", "a100", "h100", "t4", "a10", "l4")
        else {"h200": "h100", "gh200": "h100"}.get(name[0], gpu.name)
    )


def unseen(data, held, of):
    """The error of each row, by the constants that its group had no part in."""
    groups = groups_of(data, of)
    errors = np.zeros(len(groups))
    for group in set(groups):
        mine = groups == group
        errors[mine] = data.errors(of_group(held, group))[mine]
    return errors


def pairs_of(rows, errors):
    """{change: errors of the ratio} over pairs of rows that are neighbors in one table and differ in one thing."""
    found = {}
    for name in CHANGES:
        groups = {}
        for row, error in zip(rows, errors, strict=True):
            same = [
                json.dumps(row.get(other), sort_keys=True)
                for other in SAME
                if other != name and not (name == "gpu" and other == "group")
            ]
            groups.setdefault(tuple(same), []).append((json.dumps(row.get(name), sort_keys=True), error))
        for members in groups.values():
            members.sort(key=lambda member: member[0])
            for (value, error), (next_value, next_error) in zip(members, members[1:]):
                if value != next_value:
                    found.setdefault(name, []).append(float(next_error - error))
    return found


def prediction_errors(data, constants):
    """(logarithm of predicted over measured, whether the measurement is inside low and high) of rows that `fit` read."""
    errors = data.errors(constants)
    classes = data.runs.classes(constants)
    bands = [timing.band(klass, source_of(row)) for klass, row in zip(classes, data.rows, strict=True)]
    inside = [low <= math.exp(-error) <= high for error, (low, high) in zip(errors, bands, strict=True)]
    return errors, np.array(inside)
