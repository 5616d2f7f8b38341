"""How much wider or narrower a class's band must be than the quantiles of its errors, so that nine in ten rows of a new source are inside.

Quantiles of errors on known sources hold fewer of a new one, because sources differ from each other by more than rows of one source do. So each
source of a class is held against the band of the others, and the band is stretched until nine in ten of these rows are inside.
"""

import math

from dryrun.cost import timing

LEAST, MOST = 0.7, 1.5
FEWEST_SOURCES = 2  # of a class, besides the one that is judged


def stretched(errors):
    """{class: {source: the stretch without it, "": of all}} of {class: {source: errors}}."""
    return {klass: {source: round(stretch(errors, klass, {source}), 3) for source in ("", *by_source)} for klass, by_source in errors.items()}


def stretch(errors, klass, without):
    """What a band's distance from its middle is multiplied by."""
    sources = [source for source in errors.get(klass, {}) if source not in without]
    if len(sources) < FEWEST_SOURCES:
        return 1.0
    needed = []
    for source in sources:
        low, high = timing.factors(timing.pool(errors, klass, {*without, source}))
        middle, half = math.log(low * high) / 2, math.log(high / low) / 2
        share = len(errors[klass][source]) ** -0.5  # a source with many rows is no better known
        needed += [(abs(-error - middle) / half, share) for error in errors[klass][source]]
    if len(needed) < timing.FEWEST:
        return 1.0
    narrowest = LEAST if len(sources) >= timing.FEWEST_SOURCES else 1.0  # the band of all classes is no narrower because two sources agree
    needed.sort()
    inside, every = 0.0, sum(share for _, share in needed)
    for least, share in needed:
        inside += share
        if inside >= timing.INSIDE * every:
            return min(MOST, max(narrowest, least))
    return MOST
