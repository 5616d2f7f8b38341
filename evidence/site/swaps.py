"""Two claims of one table or list that stand in each other's rows.

No text of a table says what is right, but each claim has a sentence of its own. Where the words of two rows fit the claims of one column
better the other way round, they have probably been exchanged. tests/evidence/site/test_swaps.py exchanges neighbors in every table of
the site.
"""

import re
from collections import Counter
from fractions import Fraction
from itertools import combinations, islice

from ..problems import Problem
from ..records import find

CLAIM = re.compile(r"\[\[([a-z0-9_]+):([a-z0-9-]+)(?:@\w+)?\]\]")
EMPTY_WORDS = {
    "an", "the", "of", "in", "on", "at", "to", "and", "or", "with", "without", "against", "by", "for", "from", "as", "is", "are",
    "that", "this", "than", "it", "its",
}  # fmt: skip
ITEM = re.compile(r"\s*(?:[-*+]|\d+[.)])\s")
STEM = 5  # letters, so that `compiling` meets `compiled`
HEAD = 2  # rows of a table: the header and the line below it


def check(path, block, found):
    """The Problems of the tables and lists in a block of prose."""
    rows, items = [], []
    for number, line in enumerate([*block.lines, ""], block.line):
        if line.lstrip().startswith("|"):
            rows.append((number, line))
        else:
            yield from _exchanged(path, rows[HEAD:], found)
            rows = []
        if ITEM.match(line):
            items.append((number, line.replace("|", " ")))
        elif items and line.strip() and line.startswith(" "):
            items[-1] = (items[-1][0], f"{items[-1][1]} {line.strip()}".replace("|", " "))
        else:
            yield from _exchanged(path, items, found, most=1)  # those after it are part of a sentence about the first
            items = []


def _exchanged(path, rows, found, most=None):
    """rows: [(number, text)] of a table, or of a list, which has one column. most: claims of a cell that are looked at."""
    labels = {number: _words(CLAIM.sub(" ", line)) for number, line in rows}
    seen = Counter(word for words in labels.values() for word in words)

    def fit(number, sentence):
        """How well a row goes with a claim: the words that both have, of which one that fewer rows have counts more."""
        return sum(Fraction(1, seen[word]) for word in labels[number] & sentence if seen[word] < len(labels))  # exact: a set has no order

    for column in zip(*(line.strip().strip("|").split("|") for _, line in rows)):
        claims = [(number, match) for (number, _), cell in zip(rows, column) for match in islice(CLAIM.finditer(cell), most)]
        sentences = {match[0]: _sentence(found, match) for _, match in claims}
        for (upper, one), (lower, other) in combinations(claims, 2):
            if upper == lower:
                continue
            now = fit(upper, sentences[one[0]]), fit(lower, sentences[other[0]])
            exchanged = fit(upper, sentences[other[0]]), fit(lower, sentences[one[0]])
            if sum(exchanged) > sum(now) and all(after >= before for before, after in zip(now, exchanged)):
                what = f"{one[0]} and {other[0]} in line {lower} fit each other's row better than their own"
                yield Problem(path, what, "exchange them, or say in each row what its claim is about", upper)


def _sentence(found, match):
    try:
        _, claim = find(found, match[1], match[2])[0]
    except LookupError:
        return frozenset()  # is a Problem already
    return _words(f"{claim['sentence']} {match[2]}")


def _words(text):
    words = re.findall(r"[a-z][a-z0-9]+|\d[\d,.]*", text.lower())
    return frozenset(word[:STEM].rstrip(".,") for word in words if word not in EMPTY_WORDS)
