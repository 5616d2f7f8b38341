"""What one measured step says of another on the same machine with the same software: `dryrun.cost.ran` applies it.

Of each group of published steps (one source, GPU, host and framework) each one in turn is the step that a reader ran, and the others of its
class are predicted with a share of its error. The share is the one that is best for other sources, so a source has no part in what judges it.
A class is kept where at least `timing.FEWEST_SOURCES` have such groups, the median error falls and the worst tenth does not grow.
"""

from collections import defaultdict

import numpy as np

from dryrun.cost import timing

from .held_out import source_of

SHARES = np.linspace(0, 1, 21)
WORST = 0.9  # quantile of the errors
CLASSES = ("training, one GPU", "training, many GPUs", "LoRA", "QLoRA", "fp8", "mixture of experts", "tensor and pipeline parallel", "forward", "decode")


def pairs_of(rows, errors, classes):
    """{class: {source: [(error of a row, error of the row that ran, weight)]}}. The weights of the pairs of one row sum to one."""
    groups = defaultdict(list)
    for row, error, klass in zip(rows, errors, classes, strict=True):
        groups[klass, source_of(row), row["gpu"], row.get("framework"), str(row.get("host"))].append(float(error))
    found = {klass: defaultdict(list) for klass in CLASSES}
    for (klass, source, *_), members in groups.items():
        if klass in found:
            found[klass][source] += [
                (error, ran, 1 / (len(members) - 1)) for place, error in enumerate(members) for at, ran in enumerate(members) if at != place
            ]
    return {klass: {source: np.array(pairs) for source, pairs in of.items() if pairs} for klass, of in found.items()}


def share_of(pairs, without=None):
    """The share of the error of the step that ran that is best to take off others, each source alike."""
    known = [of for source, of in pairs.items() if source != without]

    def left(share):
        return np.mean([np.average(np.abs(of[:, 0] - share * of[:, 1]), weights=of[:, 2]) for of in known])

    return float(min(SHARES, key=left)) if known else 0.0


def judged(rows, errors, classes):
    """[{class, sources, rows, share, median and worst tenth without and with a step that ran, inside: share of rows inside the band, kept}]: the
    errors are percent, by constants, shares and bands that had not seen the source."""
    return [one for klass, pairs in pairs_of(rows, errors, classes).items() if (one := _judged(klass, pairs))]


def _judged(klass, pairs):
    if len(pairs) < 2:
        return None
    left = {source: _left(of, share_of(pairs, source)) for source, of in pairs.items()}
    alone, given = (np.concatenate([of[source] for source in pairs]) for of in ({source: _left(of, 0.0) for source, of in pairs.items()}, left))
    bands = {source: _band({name: _left(of, share_of(pairs, source)) for name, of in pairs.items() if name != source}) for source in pairs}
    inside = np.concatenate([[(low <= np.exp(-error) <= high, weight) for error, weight in left[source]] for source, (low, high) in bands.items()])
    (median, worst), (median_given, worst_given) = (_quantiles(of) for of in (alone, given))
    return {
        "class": klass,
        "sources": len(pairs),
        "rows": round(float(alone[:, 1].sum())),
        "share": round(share_of(pairs), 2),
        "median": median,
        "worst": worst,
        "median_given": median_given,
        "worst_given": worst_given,
        "inside": round(100 * float(np.average(inside[:, 0], weights=inside[:, 1]))),
        "kept": bool(len(pairs) >= timing.FEWEST_SOURCES and median_given < median and worst_given <= worst),
    }


def carried(rows, errors, classes):
    """({class: {share, low, high}} of what `dryrun` takes, and what `judged` says)."""
    told, pairs = judged(rows, errors, classes), pairs_of(rows, errors, classes)
    kept = {}
    for one in told:
        if one["kept"]:
            of_class = pairs[one["class"]]
            low, high = _band({source: _left(of, one["share"]) for source, of in of_class.items()})
            kept[one["class"]] = {"share": one["share"], "low": round(low, 4), "high": round(high, 4)}
    return kept, told


def _left(pairs, share):
    """[(error that is left, weight)]."""
    return np.column_stack([pairs[:, 0] - share * pairs[:, 1], pairs[:, 2]])


def _band(left):
    """(low, high) as factors, from as many quantiles of each source as it has rows, and no more than other bands take of one."""
    from .fit import MOST_OF_SOURCE

    errors = []
    for of in left.values():
        count = min(round(float(of[:, 1].sum())), MOST_OF_SOURCE)
        errors += _weighted(of[:, 0], of[:, 1], (np.arange(count) + 0.5) / count)
    return timing.factors(errors)


def _quantiles(of):
    return [round(100 * (float(np.exp(error)) - 1), 1) for error in _weighted(np.abs(of[:, 0]), of[:, 1], (0.5, WORST))]


def _weighted(values, weights, shares):
    order = np.argsort(values)
    reached = np.cumsum(weights[order]) / np.sum(weights)
    return [float(values[order][min(np.searchsorted(reached, share), len(values) - 1)]) for share in shares]
