"""Which fit is taken: the one that is best on sources that it has not seen, by error and by band.

A loss on rows that a fit has seen says little: a refit with a smaller loss has made unseen rows worse. So several ways to weigh rows and errors are
tried, each on folds of whole sources. For rows of a fold the choice is made without them: its folds of sources are fitted and judged among
themselves. Then their errors are those of a reader's own source, which had no part in the constants, in the band, or in the choice.
"""

import itertools
import math
import sys
from collections import Counter, defaultdict
from dataclasses import dataclass

import numpy as np

from dryrun.cost import timing

from . import bands
from .held_out import source_of

FOLDS = 6  # of sources
LOOSE = 3e-4  # the search of a fit that only ranks choices ends here
CLEARLY = 0.05  # better by this share, or the plainest choice stays
WANTED = 0.9  # share of rows inside their band


@dataclass(frozen=True)
class Choice:
    """How rows and errors count in a fit."""

    name: str
    by_source: bool  # rows of one source weigh less the more it has
    large_error: float  # as a logarithm, beyond which an error counts by its size and no longer by its square


CHOICES = (
    Choice("tables", False, 0.1),
    Choice("sources", True, 0.1),
    Choice("sources, typical rows", True, 0.05),
    Choice("sources, all rows", True, 0.2),
)


def named(name):
    return next(choice for choice in CHOICES if choice.name == name)


def weights(rows, choice):
    """Rows of one table weigh less the more there are, since a host measured often is no better known; so may those of one source."""
    tables = Counter(map(table_of, rows))
    found = np.array([tables[table_of(row)] ** -0.5 for row in rows])
    if not choice.by_source:
        return found
    sources = Counter()
    for row, weight in zip(rows, found, strict=True):
        sources[source_of(row)] += weight
    return found * np.array([sources[source_of(row)] ** -0.5 for row in rows])


def table_of(row):
    return str(row.get("group") or row.get("path") or row["id"])


def folds(data):
    """The fold of each row: whole sources, the largest first, each to the fold with the fewest rows."""
    size, of = Counter(), {}
    for source, rows in sorted(Counter(map(source_of, data.rows)).items(), key=lambda item: (-item[1], item[0])):
        of[source] = min(range(FOLDS), key=lambda fold: (size[fold], fold))
        size[of[source]] += rows
    return np.array([of[source_of(row)] for row in data.rows])


def nested(data, fit):
    """({fold: the choice that rows of other folds made}, the choice of all rows, {name of a choice: what it reaches, in percent}).

    fit: of (chosen rows, choice, start): constants.
    """
    of, errors = folds(data), {}
    for choice in CHOICES:
        print(f"choice {choice.name!r}", file=sys.stderr, flush=True)
        start = fit(np.ones(len(of), bool), choice, None)
        errors[choice] = {out: np.full(len(of), np.nan) for out in (None, *range(FOLDS))}
        for one, other in itertools.combinations_with_replacement(range(FOLDS), 2):
            constants = fit((of != one) & (of != other), choice, start)
            found = data.errors(constants)
            for out, judged in {(one, other), (other, one)}:
                mine = of == judged
                errors[choice][None if out == judged else out][mine] = found[mine]
    classes = np.array(data.classes)
    scores = {out: {choice: score(data.rows, classes, errors[choice][out]) for choice in CHOICES} for out in (None, *range(FOLDS))}
    best = {out: _best(of_choice) for out, of_choice in scores.items()}
    reached = {
        choice.name: {"median": round(100 * of_choice[0], 1), "short": round(100 * of_choice[1], 1)} for choice, of_choice in scores[None].items()
    }
    return {fold: best[fold] for fold in range(FOLDS)}, best[None], reached


def _best(of_choice):
    """The plainest one, unless another is clearly better: between two that are as good a single source decides, and constants would change with every new one."""
    plainest, best = CHOICES[0], min(CHOICES, key=lambda choice: sum(of_choice[choice]))
    return best if sum(of_choice[best]) < (1 - CLEARLY) * sum(of_choice[plainest]) else plainest


def score(rows, classes, errors):
    """(mean over classes of the median error, each source alike; mean of how far the share inside the band is below the wanted one). Errors that
    are nan are of a fold that has no part."""
    by_class = defaultdict(lambda: defaultdict(list))
    for row, klass, error in zip(rows, classes, errors, strict=True):
        if not math.isnan(error):
            by_class[klass][source_of(row)].append(float(error))
    medians, short = [], []
    for klass, by_source in by_class.items():
        medians.append(np.mean([np.median(np.abs(found)) for found in by_source.values()]))
        inside = []
        for source, found in by_source.items():
            low, high = timing.stretched(timing.factors(timing.pool(by_class, klass, {source})), bands.stretch(by_class, klass, {source}))
            inside += [low <= math.exp(-error) <= high for error in found]
        short.append(max(0.0, WANTED - np.mean(inside)))
    return float(np.mean(medians)), float(np.mean(short))
