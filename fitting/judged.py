"""What each published row was predicted to take, by constants that had not seen it.

`make fit` writes `fitting/data/judged.json` after the constants, so that a page can show every error without tracing
hundreds of models. A test traces some of the rows again and compares.
"""

import datetime
import json
import math
import statistics
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from dryrun.cost import timing

from .held_out import family_of, fold_of, of_group, pairs_of, predictable, source_of

PATH = Path(__file__).with_name("data") / "judged.json"
REASONS = Path(__file__).with_name("data") / "reasons.json"
WORSE = 1.1  # times a median before: a change of constants that does that says why
FEWEST_INSIDE, FEWER_INSIDE = 88, 3  # percent of a class inside its band, and fewer than before by so many points: the same
UNSEEN = {"fold": fold_of, "source": source_of, "family": family_of}  # what the constants had no part of
TRAINING = ("training, one GPU", "training, many GPUs")


@dataclass(frozen=True)
class Judged:
    """One row of data/published.json: its id, its class, and the seconds predicted for it, with low and high.

    The constants have not seen its source, and neither has the band. fold and family: the seconds by constants that have not
    seen a random fifth of the rows with this one in it, or the row's family of GPUs.
    """

    id: str
    klass: str
    seconds: float
    low: float
    high: float
    fold: float
    family: float


@dataclass(frozen=True)
class Asked:
    """A median error that was asked for before anything was fitted, in percent, and the rows that it is about."""

    what: str
    most: float
    chosen: object  # of (row, class): whether it is one of them


ASKED = (
    Asked("a training step, on one GPU or many", 6, lambda row, klass: klass in TRAINING),
    Asked("a training step on one GPU", 8, lambda row, klass: klass == TRAINING[0]),
    Asked("a training step on many GPUs", 8, lambda row, klass: klass == TRAINING[1]),
    Asked("LoRA and QLoRA", 8, lambda row, klass: klass in ("LoRA", "QLoRA")),
    Asked("a mixture of experts", 12, lambda row, klass: klass == "mixture of experts"),
    Asked("tensor and pipeline parallelism", 9, lambda row, klass: klass == "tensor and pipeline parallel"),
    Asked("fp8", 12, lambda row, klass: klass == "fp8"),
    Asked("a forward pass, such as reading a prompt", 12, lambda row, klass: klass == "forward"),
    Asked("decoding one sequence", 8, lambda row, klass: klass == "decode" and row["batch"] == 1),
    Asked("decoding 4 to 64 sequences in a server", 18, lambda row, klass: klass == "decode" and row.get("prefill_share") is not None),
    Asked("everything on a T4", 15, lambda row, klass: row["gpu"] == "t4"),
    Asked("everything on an RTX 4090", 15, lambda row, klass: row["gpu"] == "rtx-4090"),
)
RATIOS = Asked("the ratio of two steps on one GPU", 6, None)


def medians(rows, classes, errors):
    """[(Asked, number of rows or pairs, {unseen: median error in percent})], from {unseen: logarithmic errors of the rows}."""
    found = []
    for asked in ASKED:
        places = [place for place, row in enumerate(rows) if asked.chosen(row, classes[place])]
        found.append((asked, len(places), {name: median(of[place] for place in places) for name, of in errors.items()}))
    pairs = {name: [error for change, errors in pairs_of(rows, of).items() if change != "gpu" for error in errors]
             for name, of in errors.items()}  # fmt: skip
    found.append((RATIOS, min(map(len, pairs.values())), {name: median(of) for name, of in pairs.items()}))
    return found


def median(errors):
    """Of logarithms of predicted over measured, in percent."""
    return float(statistics.median(100 * abs(np.exp(error) - 1) for error in errors))


def judge(data):
    """[Judged] of rows that `held_out.predictable` has traced, in their order."""
    seconds = {name: np.zeros(len(data.rows)) for name in UNSEEN}
    classes = data.runs.classes(timing.fitted()["constants"])
    for name, of in UNSEEN.items():
        held, groups = timing.fitted()["held_out"][name], np.array([str(of(row)) for row in data.rows])
        for group in set(groups):
            constants, mine = of_group(held, group), groups == group
            seconds[name][mine] = data.runs.seconds(constants)[mine]
    found = []
    for place, row in enumerate(data.rows):
        value, (low, high) = seconds["source"][place], timing.band(classes[place], source_of(row))
        shown = (value, value * low, value * high, seconds["fold"][place], seconds["family"][place])
        found.append(Judged(row["id"], classes[place], *(float(f"{number:.4g}") for number in shown)))
    return found


def write(rows):
    """Judges the published rows that can be traced, and stores what came out."""
    lines = ",\n".join(json.dumps(list(asdict(one).values())) for one in judge(predictable(rows)))
    PATH.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


def changes(before, after, measured):
    """One line for each class: its median error and the share inside the band, new source, before and after a fit. measured: {id: seconds}. Rows
    that only one has count there alone."""
    known = [_by_class(judged, measured) for judged in (before, after)]
    found = worse(before, after, measured)
    for klass in sorted({*known[0], *known[1]}):
        (old, had, was), (new, has, now) = (of.get(klass, (math.nan, 0, math.nan)) for of in known)
        word = f"  WORSE: {' and '.join(found[klass])}" if klass in found else ""
        yield f"{klass:32}{old:7.1f} % of {had:<5}{new:7.1f} % of {has:<5}{was:6.0f} % inside{now:6.0f} % inside{word}"


def worse(before, after, measured):
    """{class: {"median error" or "inside the band": (percent before, after)}} of those that a fit made worse."""
    old, new = (_by_class(judged, measured) for judged in (before, after))
    found = {}
    for klass in {*old} & {*new}:
        (error, _, inside), (error_now, _, inside_now) = old[klass], new[klass]
        if error_now > WORSE * error:
            found.setdefault(klass, {})["median error"] = (round(error, 1), round(error_now, 1))
        if inside_now < min(FEWEST_INSIDE, inside - FEWER_INSIDE):
            found.setdefault(klass, {})["inside the band"] = (round(inside), round(inside_now))
    return found


def give_reason(found, why):
    """Keeps why classes became worse, as `worse` found them: a fit that nobody explains is one that nobody can undo."""
    known = json.loads(REASONS.read_text(encoding="utf-8")) if REASONS.exists() else []
    today = datetime.date.today().isoformat()
    more = [
        {"date": today, "class": klass, "what": what, "before": old, "after": new, "why": why}
        for klass, of_class in sorted(found.items())
        for what, (old, new) in of_class.items()
    ]
    REASONS.write_text(json.dumps(known + more, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _by_class(judged, measured):
    errors = {}
    for one in judged:
        if one.id in measured:  # else it was taken out since
            seconds = measured[one.id]
            errors.setdefault(one.klass, []).append((math.log(one.seconds / seconds), one.low <= seconds <= one.high))
    return {
        klass: (median(error for error, _ in found), len(found), 100 * statistics.mean(inside for _, inside in found))
        for klass, found in errors.items()
    }


def read():
    """[Judged], in the order of data/published.json."""
    return [Judged(*row) for row in json.loads(PATH.read_text(encoding="utf-8"))]
