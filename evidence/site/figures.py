"""Figures typed by hand: a number with a unit of a result.

A figure belongs into a claim, which a run made, or into the text of a link to its source. Conditions stay free: a batch
of 4 x 512 tokens, an 8B model, 16-bit weights, ten steps.
"""

import io
import re
import tokenize

from ..problems import Problem
from .prose import INLINE_CODE, paragraphs, without

PER_SECOND = r"(/|\sper\s)\s?s(ec(ond)?s?)?\b"
UNITS = "|".join(
    (
        rf"%|(percent|per cent|percentage points)\b|[kKMGTP]i?B({PER_SECOND}|\b)|(\w{{2,4}})?bytes?\b",
        rf"[kMGTP]?b(its?)?{PER_SECOND}|[kMGT]bps\b|[kMGTPE]?FLOPs?({PER_SECOND}|\b)|[kMGTPE]?FLOPS\b|nats?\b",
        rf"(tok|tokens|it|iterations|samples|images|rows|steps|sequences|requests){PER_SECOND}",
        r"(ns|µs|ms|s|sec|(nano|micro|milli)?seconds?|minutes?|min|hours?|h|days?|weeks?)\b",
        r"(k?Wh?|watts?|[kMG]Hz|USD|euros?|dollars?)\b",
        r"(x|×|-fold|fold|times)\b(?=\s+(as|faster|slower|more|less|fewer|smaller|larger|longer|shorter|higher|lower|the)\b)",
    )
)
NUMBER = r"\d(?:[\d.,]*\d)?"
LINK_RATE = r"(?:1|2\.5|10|25|40|50|100|200|400|800)\s?Gb(?:it)?/s\b"  # names a network, as 80GB names an H100
GAP = r"(?:\*\*|__)?(?:[^\S\n]|&nbsp;)?(?:\n[^\S\n]*)?"  # emphasis may end and a line may break before the unit
FIGURE = re.compile(
    rf"(?<![\w.\-/])(?!{LINK_RATE})[~≈]?{NUMBER}(?:\s?[-–—]\s?{NUMBER})?(?:{GAP}(?:{UNITS})|[x×](?!\w|\s*\d))|"
    rf"[$€]\s?{NUMBER}|\bfactors?\s+of\s+(?:about\s+|up\s+to\s+)?{NUMBER}"
)

UNIT_BEHIND = re.compile(  # of a claim, which shows its own
    r"(?:\s|&nbsp;)*(%|percent\b|[kMGT]i?B(?:/s)?\b|bytes\b(?! per)|[x×](?=[\s.,;:)])|times\b(?! as)|(?:n|µ|m)?s\b|seconds?\b|minutes?\b|"
    r"hours?\b|h\b|tokens/s\b|samples/s\b(?=[.,;)])|[GMT]bit/s\b|[GT]FLOPs?\b|nats\b)"
)
MATH = r"\$(?=\S)[^$\n]+(?<=\S)\$(?!\d)"
LINK_TO_SOURCE = r"\[[^\]]*\]\(https?://[^)]*\)"
MARKUP = r"\]\([^)]*\)|\{[^}]*\}|</?[A-Za-z][^>]*>|<!--[\s\S]*?-->|https?://\S+"


def typed(text):
    """(lines before it, figure) of every figure that is neither a claim, nor cited, nor code."""
    for line, paragraph in paragraphs(text):
        for allowed in (r"\[\[[^\]]*\]\]", LINK_TO_SOURCE, INLINE_CODE, MATH, MARKUP):
            paragraph = without(allowed, paragraph)
        for match in FIGURE.finditer(paragraph):
            yield line + paragraph.count("\n", 0, match.start()), " ".join(match[0].split())


def problems(path, text, first, fix):
    """The typed figures of a text that begins at line `first` of a file."""
    for line, figure in typed(text):
        yield Problem(path, f"a figure typed by hand: {figure}", fix, first + line)


def problems_of_comments(path, text, suffix, first, fix):
    """The typed figures in the comments of code that begins at line `first` of a file."""
    for line, comment in comments(text, suffix):
        for figure in typed_in_comment(comment):
            yield Problem(path, f"a figure typed by hand in a comment: {figure}", fix, first + line - 1)


def comments(text, suffix):
    """(line, comment) of every comment of a Python program, or of a shell script or configuration."""
    if suffix == ".py":
        try:
            tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
        except (tokenize.TokenError, SyntaxError):
            return
        for token in tokens:
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string.lstrip("#! ")
        return
    for number, line in enumerate(text.splitlines(), 1):
        if found := re.search(r"(?:^|\s)#\s?(?![!{])(.*)", line):
            yield number, found[1]


RATIO = re.compile(rf"{NUMBER}\s?(?:[x×](?!\w|\s*\d)|percent\b|-?fold\b|times\b)|\bfactor", re.I)


def typed_in_comment(comment):
    """Ratios in a comment of code. An amount may be a setting (`# 1 GiB`)."""
    return [figure for _, figure in typed(comment) if RATIO.match(figure)]
