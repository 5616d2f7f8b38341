"""Fits the constants of the roofline to published measurements: `dryrun fit`, or `make fit`.

No row is judged by constants that it helped to fit. The usable rows are divided into folds at random. Each fold gets
constants from the rows of the other folds. The same is done for each source and each GPU family, which is harder. `data/constants.json` keeps the constants of
all rows (for predictions), those of each fold (for `validate`), and the errors of rows of unseen sources (for low and high).
"""

import contextlib
import datetime
import hashlib
import itertools
import json
import math
import random
from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np

from . import device_memory, published, timing
from .hardware import accelerator
from .roofline import processor
from .rows import klass_of, run_of
from .workload import traced

FOLDS = 5
START = {
    "product": 0.72, "product_recent": 0.85, "product_fp32": 0.85, "attention_forward": 0.6, "attention_backward": 0.5,
    "attention_recent": 0.7, "attention_triton": 0.5, "attention_cudnn": 0.7, "bandwidth": 0.7, "overlap": 0.4,
    "launch": 5e-6, "dispatch": 12e-6, "script": 9e-6,
    "power_limited": 0.6,
    "half_rate": 1.3,
    "bandwidth_gddr": 1.2,
    "bandwidth_large_cache": 1.3,
    "product_fp8": 0.7,
    "decode_dispatch": 15e-6,
    "unpack": 4, "contention": 1.05, "link": 0.6, "streaming": 0.8, "decode_launch": 6e-6,"graph_launch": 3e-6,
}  # fmt: skip
MEANING = {
    "product": "share of the 16-bit or TF32 peak that matrix products reach after padding to tiles and waves",
    "product_recent": "times this on Hopper and data-center Blackwell",
    "product_fp32": "share of the fp32 peak that matrix products without tensor cores reach",
    "attention_forward": "share of the 16-bit peak that fused attention reaches, forward",
    "attention_backward": "share of the 16-bit peak that fused attention reaches, backward",
    "attention_recent": "times this on Hopper and data-center Blackwell",
    "attention_triton": "times this with FlashAttention of 2022, written in Triton",
    "attention_cudnn": "times this on Hopper and data-center Blackwell, with the kernels of NVIDIA's own libraries",
    "bandwidth": "share of the memory bandwidth that kernels reach",
    "overlap": "share of the shorter of mathematics and memory time that is added to the longer",
    "launch": "seconds that each kernel adds on the GPU",
    "dispatch": "seconds of CPU for each operator that launches, in eager PyTorch",
    "script": "seconds of CPU for each operator that launches, in TorchScript",
    "power_limited": "share of the boost clock that GPUs of 160 W or less keep in matrix products",
    "half_rate": "times this share of the peak on GeForce, whose 16-bit peak with fp32 sums is half of what its tensor cores do",
    "bandwidth_gddr": "times this share of the memory bandwidth on GPUs with GDDR",
    "bandwidth_large_cache": "and on those with GDDR and an L2 cache of 24 MB or more",
    "product_fp8": "times this share of the fp8 peak: scaling and casting come on top",
    "decode_dispatch": "seconds of CPU for each operator of a decoded token, in eager PyTorch",
    "unpack": "fp32 operations that a weight of fewer than 16 bits costs when decoding, beside those of its product",
    "contention": "how much longer kernels take while collectives run",
    "link": "share of a link's peak that collectives reach",
    "streaming": "share of the memory bandwidth that long streams reach: weights when decoding, an optimizer's step",
    "decode_launch": "seconds that each kernel of a decoded token adds, launched from C++ or eager PyTorch",
    "graph_launch": "and in CUDA graphs",
}
AT_MOST_ONE = {"product", "product_fp32", "attention_forward", "attention_backward", "bandwidth", "overlap", "power_limited",
               "link", "streaming", "product_recent", "attention_recent", "attention_triton", "attention_cudnn"}  # fmt: skip
TIMED = ("train", "forward", "prefill", "decode")
FEWEST = 8  # rows of a source or GPU family that is held out alone
OTHERS = "others"
ROUNDS = 8
MOVES = 100  # of several constants at once, in each round
WORKSPACES = (0.0, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5)  # GiB, tried for what comes on top of the tensors
ROUNDINGS = (0.0, 0.02, 0.04, 0.06, 0.08, 0.1, 0.15, 0.2)  # share
FIRST_STEP, SHRINK = 0.25, 0.7
LARGEST_ERROR = 1.0  # of one row, as a logarithm: a wrong row does not pull the constants
TUNED = {
    "training, one GPU",
    "training, many GPUs",
    "forward",
    "decode",
    "fp8",
}  # the classes that the constants are fitted on

# What one change does: pairs of rows of one table that differ in it alone.
CHANGES = ("precision", "checkpointing", "attention", "compiled", "batch", "seq", "gpu", "method", "optimizer")
SAME = ("source", "gpu", "gpus", "kind", "model", "batch", "seq", "precision", "attention", "compiled", "checkpointing",
        "accumulation", "optimizer", "framework", "method", "group", "config")  # fmt: skip


@dataclass
class Judged:
    """Rows that can be predicted, their runs and what was measured."""

    rows: list = field(default_factory=list)
    runs: timing.Runs = field(default_factory=timing.Runs)
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


def judged(rows):
    found = Judged()
    for row in rows:
        if not (row.get("usable", True) and row.get("seconds") and row["kind"] in TIMED):
            continue
        if row.get("power_limited"):  # then the peak of the data sheet is not that of the run
            found.problems.append(
                f"row {row['id']}: its GPUs are held below their power, and by how much is not stated"
            )
            continue
        found.add(row)
    return found


def fit(data, chosen, start=START, free=None, rounds=ROUNDS):
    """Constants that make the mean error of the chosen rows small: one at a time, in shrinking steps."""
    chosen = np.asarray(chosen) & np.isin(data.classes, list(TUNED))
    weights = weights_of(data)[chosen]
    mine = data.runs.only(np.flatnonzero(chosen))
    measured = data.measured[chosen]

    def loss(constants):
        errors = np.abs(np.log(mine.seconds(constants) / measured))
        return float(np.average(np.minimum(errors, LARGEST_ERROR), weights=weights))

    constants, step = dict(start), FIRST_STEP
    best, source = loss(constants), random.Random(0)
    for _ in range(rounds):
        for name in free or constants:
            for factor in (1 + step, 1 / (1 + step)):
                while True:
                    tried = {**constants, name: constants[name] * factor}
                    if name in AT_MOST_ONE and tried[name] > 1:
                        break
                    now = loss(tried)
                    if now >= best - 1e-6:
                        break
                    constants, best = tried, now
        for names, signs in _several(list(free or constants), source):
            tried = {**constants, **{name: constants[name] * (1 + step) ** sign for name, sign in zip(names, signs)}}
            if all(tried[name] <= 1 for name in AT_MOST_ONE & set(names)) and (now := loss(tried)) < best - 1e-6:
                constants, best = tried, now
        step *= SHRINK
    return constants


def _several(names, source):
    """Moves of two or three constants at once: where two explain the same seconds, moving one alone gains nothing."""
    for _ in range(MOVES):
        chosen = source.sample(names, min(len(names), source.choice((2, 3))))
        yield chosen, [source.choice((-1, 1)) for _ in chosen]


def weights_of(data):
    """Rows of one table weigh less the more there are: a host measured often is no better known."""
    tables = [table_of(row) for row in data.rows]
    count = {name: tables.count(name) for name in set(tables)}
    return np.array([count[name] ** -0.5 for name in tables])


def table_of(row):
    return str(row.get("group") or row.get("path") or row["id"])


def groups_of(data, of):
    """The group of each row; those of few rows are held out together."""
    names = [str(of(row)) for row in data.rows]
    return np.array([name if names.count(name) >= FEWEST else OTHERS for name in names])


def of_group(held, group):
    """Constants that rows of this group had no part in. A group that came after the fit was in none."""
    return held.get(group) or held[OTHERS]


def source_of(row):
    return row["source"]


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


def everything(rows):
    """What `data/constants.json` holds."""
    data = judged(rows)
    held = {}
    for name, of in (("fold", fold_of), ("source", source_of), ("family", family_of)):
        groups = groups_of(data, of)
        held[name] = {group: _rounded(fit(data, groups != group)) for group in sorted({*groups, OTHERS})}
    return {
        "fitted": datetime.date.today().isoformat(),
        "rows": len(data.rows),
        "meaning": MEANING,
        "constants": _rounded(fit(data, np.ones(len(data.rows), bool))),
        "held_out": held,
        "memory": memory_constants(peaks(rows)),
        "errors": band_errors(data, held["source"]),
        "ratio_errors": ratio_errors(data, held["source"]),
    }


def band_errors(data, held):
    """{class: {source: errors of its rows, by constants that had not seen it}}: low and high come from these."""
    found = {}
    for row, error, klass in zip(data.rows, *unseen(data, held, source_of), strict=True):
        found.setdefault(klass, {}).setdefault(source_of(row), []).append(round(float(error), 3))
    return {klass: dict(sorted(by_source.items())) for klass, by_source in sorted(found.items())}


def unseen(data, held, of):
    """(error, class) of each row, by the constants that its group had no part in."""
    groups = groups_of(data, of)
    errors, classes = np.zeros(len(groups)), np.empty(len(groups), object)
    for group in set(groups):
        mine = groups == group
        errors[mine] = data.errors(of_group(held, group))[mine]
        classes[mine] = np.array(data.runs.classes(of_group(held, group)), object)[mine]
    return errors, classes


def ratio_errors(data, held):
    """{change: sorted errors of its effect}, on rows whose source the constants had not seen. A ratio is of one GPU."""
    errors, _ = unseen(data, held, source_of)
    pairs = pairs_of(data.rows, errors)
    return {change: sorted(round(error, 3) for error in found) for change, found in pairs.items() if change != "gpu"}


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


@dataclass
class Peaks:
    """Published peaks and the tensors that the same steps hold by their trace."""

    rows: list = field(default_factory=list)
    least_context: float = math.inf  # GiB by which the driver's figure exceeds the allocator's, where a row prints both
    tensors: list = field(default_factory=list)  # bytes
    certain: list = field(default_factory=list)  # bytes of them that are no guess
    measured: list = field(default_factory=list)  # bytes
    context: list = field(default_factory=list)  # whether the CUDA context is in the published figure
    reserved: list = field(default_factory=list)  # whether it is what the allocator reserved
    bands: list = field(default_factory=list)  # the name of the band that each belongs to
    failed: dict = field(default_factory=lambda: defaultdict(list))  # {band: [(bytes of tensors, certain ones, bytes of the GPU)]}

    def add(self, row):
        """Adds what the row says, if it is a peak whose kind is known and whose step can be traced."""
        kind, size = device_memory.kind_of(row), device_memory.gib(row)
        if kind is None or not size:
            return
        try:
            workload, setting = run_of(row)
            categories = device_memory.tensors(traced(workload), workload, setting)
        except Exception:  # `judged` names the row
            return
        driver = device_memory.driver_gib(row)
        if driver:
            self.least_context = min(self.least_context, driver - size)
        self.rows.append(row)
        self.tensors.append(sum(categories.values()))
        self.certain.append(device_memory.certain(categories))
        self.measured.append(size * device_memory.GiB)
        self.context.append(kind[0])
        self.reserved.append(kind[1])
        self.bands.append(device_memory.band(workload, setting))

    def add_failed(self, row):
        """Adds a step that ran out of memory."""
        with contextlib.suppress(Exception):  # `judged` names the row
            workload, setting = run_of(row)
            categories = device_memory.tensors(traced(workload), workload, setting)
            tensors, size = sum(categories.values()), accelerator(row["gpu"]).bytes
            self.failed[device_memory.band(workload, setting)].append((tensors, device_memory.certain(categories), size))

    def predicted(self, constants):
        """Bytes of each peak."""
        found = zip(self.tensors, self.context, self.reserved, strict=True)
        return np.array([device_memory.on_device(total, constants, context=c, reserved=r) for total, c, r in found])

    def errors(self, constants):
        """Logarithm of predicted over published, of each peak."""
        return np.log(self.predicted(constants) / np.array(self.measured))

    def growth(self, constants):
        """By how much the bytes that are not certain must grow to reach each published peak."""
        sure = np.array(self.certain)
        return (np.array(self.measured) - sure) / (self.predicted(constants) - sure)


def peaks(rows):
    found = Peaks()
    for row in rows:
        if row["kind"] == "train" and row.get("memory_gib"):
            found.add(row)
        elif row.get("fits") is False and "train" in row["klass"]:
            found.add_failed(row)
    return found


def fit_memory(data, chosen):
    """What comes on top of the tensors: a part that grows with them, and one that does not."""
    best, kept = math.inf, None
    for workspace, rounding in itertools.product(WORKSPACES, ROUNDINGS):
        tried = {"workspace": workspace, "rounding": rounding, "context": data.least_context}
        now = float(np.mean(np.minimum(np.abs(data.errors(tried)[chosen]), LARGEST_ERROR)))
        if now < best:
            best, kept = now, tried
    return kept


def memory_constants(data):
    """Constants of the peaks on one GPU, and `high`: by how much all but the certain bytes grow to hold nineteen of twenty peaks
    that were not fitted.

    Many GPUs have bands of their own: published peaks under FSDP hold more than the shards and the gathered layers. Steps
    with fused kernels have another one, because what these keep differs by library, and so has QLoRA. A band also reaches
    above every published step of its kind that ran out of memory; one of many GPUs at least as far as that of one GPU: its
    rows come from few sources.
    """
    one = np.array([row["gpus"] == 1 for row in data.rows])
    bands = np.array(data.bands)
    folds = np.array([fold_of(row) for row in data.rows])
    errors, growth = np.zeros(len(folds)), np.zeros(len(folds))
    for fold in set(folds):
        mine = folds == fold
        fitted = fit_memory(data, one & ~mine)
        errors[mine], growth[mine] = data.errors(fitted)[mine], data.growth(fitted)[mine]
    found = fit_memory(data, one)
    found["high_whole"] = round(float(np.exp(-np.quantile(errors[one], 0.05))), 3)  # of all bytes, where none are certain
    for name in ("high", "high_many", "high_many_fused", "high_many_qlora"):
        mine = bands == name
        above = [float(np.quantile(growth[mine], 0.95))] if mine.any() else []
        for total, sure, size in data.failed[name]:
            expected = device_memory.on_device(total, found, context=True, reserved=True)
            above.append(1.001 * (size - sure) / (expected - sure))
        found[name] = round(max([1.0, *above, found.get("high", 1.0)]), 3)
        found[f"errors{name.removeprefix('high')}"] = sorted(round(float(error), 3) for error in errors[mine])
    return found


def _rounded(constants):
    return {name: float(f"{value:.3g}") for name, value in constants.items()}


def main():
    """Writes data/constants.json."""
    result = everything(published.rows())
    text = json.dumps(result, indent=1)
    timing.CONSTANTS.write_text(text + "\n", encoding="utf-8")
    timing.fitted.cache_clear()
    print(f"{timing.CONSTANTS}: {result['rows']} rows; {json.dumps(result['constants'])}")
    return 0
