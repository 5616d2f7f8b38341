"""A step that you ran yourself, and what it says of others: your machine and software are slower or faster than those that were published.

    ran = Ran.of(prediction, tokens_per_second=2100)   # one:1.13: it took 1.13 times as long as predicted
    carried(other, ran)                                # a `Prediction` of another step there, with the narrower band of such a one

How much of the factor carries over to another step, and how far that one is off then, is what published steps of one machine show:
`fitting/carried.py`. Where these show nothing, a prediction stays as it is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from ..tables.refusal import Refusal
from .timing import Prediction, fitted

KINDS = {"one": "training, one GPU", "many": "training, many GPUs"}
MOST = 10  # times off: then another step ran than the one that was predicted
WRITTEN = "such as one:1.13 for a step on one GPU that took 1.13 times as long as predicted"


@dataclass(frozen=True)
class Ran:
    """kind: of `KINDS`, or another class of a `Prediction`, whose steps say nothing of each other. times: measured over predicted seconds."""

    kind: str
    times: float

    def __post_init__(self) -> None:
        if isinstance(self.times, bool) or not isinstance(self.times, (int, float)) or not 0 < self.times < math.inf:
            raise Refusal("times", self.times, "give measured over predicted seconds, above 0")

    @classmethod
    def of(cls, found: Prediction, tokens_per_second: float) -> Ran:
        """From what was measured, of all GPUs, in the middle of a run of just the step that was predicted."""
        if isinstance(tokens_per_second, bool) or not isinstance(tokens_per_second, (int, float)) or not 0 < tokens_per_second < math.inf:
            raise Refusal("measured", tokens_per_second, "give tokens per second of all GPUs, above 0")
        times = found.tokens_per_second / tokens_per_second
        if not 1 / MOST <= times <= MOST:
            raise Refusal("measured", tokens_per_second, f"{found.tokens_per_second:,.0f} tokens/s are predicted, more than {MOST} times off",
                          "is it of all GPUs, of this very step, in tokens per second?")  # fmt: skip
        return cls(kind_of(found) or found.klass, times)

    @classmethod
    def read(cls, text: str) -> Ran:
        """From what `str` gives; ValueError in one line."""
        kind, colon, times = text.partition(":")
        try:
            number = float(times)
        except ValueError:
            number = 0.0
        if not colon or kind not in KINDS or not 0 < number < math.inf:
            raise Refusal("ran", text, f"is no step that ran: give one of {', '.join(KINDS)}, and a factor", WRITTEN)
        return cls(kind, number)

    def __str__(self) -> str:
        return f"{self.kind}:{self.times:.3g}"

    @property
    def says(self) -> bool:
        """Whether a step of this kind says something of another of its kind."""
        return KINDS.get(self.kind) in fitted()["carried"]


def kind_of(found: Prediction) -> str | None:
    """Of `KINDS`, where a step of this class says something of another."""
    return next((name for name, klass in KINDS.items() if klass == found.klass and klass in fitted()["carried"]), None)


def carried(found: Prediction, ran: Ran | None) -> Prediction:
    """The prediction of a step, where another of its kind ran on the same machine with the same software; else what came in."""
    if ran is None or not ran.says or KINDS[ran.kind] != found.klass:
        return found
    of = fitted()["carried"][found.klass]
    by = ran.times ** of["share"]
    seconds = by * found.seconds
    return replace(
        found, seconds=seconds, low=seconds * of["low"], high=seconds * of["high"], tokens_per_second=found.tokens_per_second / by,
        mfu=found.mfu / by, parts={name: by * part for name, part in found.parts.items()},
    )  # fmt: skip
