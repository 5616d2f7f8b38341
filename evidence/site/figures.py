"""Figures typed by hand: a number, in digits or in words, with a unit of a result.

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

COUNT = (
    r"(?:two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|fifteen|sixteen|twenty|thirty|forty|fifty|sixty|seventy|"
    r"eighty|ninety|(?:a|one)\s+hundred|(?:a|one)\s+thousand|hundreds\s+of|thousands\s+of|dozens\s+of)"
)
PART = (
    r"(?:(?:an?|one)\s+(?:third|quarter|fifth|sixth|seventh|eighth|ninth|tenth|hundredth)|"
    r"(?:two|three|four|nine)[\s-](?:thirds|quarters|fifths|tenths))"
)
RESULT = (
    r"(?:(?:peak|activation|optimizer|step|training|run|total|GPU|host|wall)\s+)?(?:memory|time|speed|throughput|latency|"
    r"cost|costs|price|peak|footprint|traffic|bandwidth|runtime|duration|floor)\b"
)
MORE = (
    r"(?:faster|slower|quicker|more|less|fewer|larger|bigger|smaller|longer|shorter|higher|lower|cheaper)\b"
    r"(?!\s+(?:layers?|steps?|ranks?|GPUs?|heads?|batch|batches|rows?|epochs?|workers?|threads?|nodes?|processes)\b)"
)
AS = r"as\s+(?:fast|slow|quick|much|large|big|long|small|high|low|cheap)"
IN_WORDS = re.compile(
    rf"\b(?:twice|thrice|double|triple|half|{PART}\s+of|{COUNT}\s+times)\s+(?:{AS}\b|(?:the|its|their)\s+{RESULT}|{MORE})"
    rf"|(?<!batch\s){PART}\s+(?:{MORE}|off\b)|\bhalf\s+of\s+(?:the|its|their)\s+{RESULT}"
    rf"|\bby\s+(?:half|{PART})\b(?!\s+(?:per|every|each|a)\b)|\b(?:to|in)\s+half\s+(?:the|its|of)\b|\b(?:cut|cuts|cutting)\s+(?:\S+\s+){{1,6}}in\s+half\b"
    rf"|\b(?:halv|doubl|tripl|quadrupl)(?:e|es|ed|ing)\s+(?:the\s+|its\s+|their\s+|your\s+)?{RESULT}"
    rf"|\b(?:two|three|four|five|six|seven|eight|nine|ten|twenty|fifty|hundred|thousand)-?fold\b"
    rf"|\b(?!a\s+hundred\s+per){COUNT}\s+(?:percent|per\s+cent|percentage\s+points)\b"
    rf"|\b{COUNT}\s+(?:gigabytes|megabytes|terabytes)\b|"
    rf"\b(?:takes?|took|in|after|needs?|costs?|saves?|lasts?)\s+{COUNT}\s+(?:(?:nano|micro|milli)?seconds|minutes|hours|days|weeks)\b"
    r"|\b(?:an|one|two|three|four|several)\s+orders?\s+of\s+magnitude\b"
    rf"|\bfactors?\s+of\s+(?:about\s+|almost\s+|nearly\s+|up\s+to\s+)?{COUNT}\b",
    re.I,
)
MATH = r"\$(?=\S)[^$\n]+(?<=\S)\$(?!\d)"
LINK_TO_SOURCE = r"\[[^\]]*\]\(https?://[^)]*\)"
MARKUP = r"\]\([^)]*\)|\{[^}]*\}|</?[A-Za-z][^>]*>|<!--[\s\S]*?-->|https?://\S+"


def typed(text):
    """(lines before it, figure) of every figure that is neither a claim, nor cited, nor code."""
    for line, paragraph in paragraphs(text):
        for allowed in (r"\[\[[^\]]*\]\]", LINK_TO_SOURCE, INLINE_CODE, MATH, MARKUP):
            paragraph = without(allowed, paragraph)
        for pattern in (FIGURE, IN_WORDS):
            for match in pattern.finditer(paragraph):
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


RATIO = re.compile(rf"{NUMBER}\s?(?:[x×](?!\w|\s*\d)|%|percent\b|per cent\b|-?fold\b|times\b)|\bfactor", re.I)
JUDGES = re.compile(
    r"\b(?:saves?|takes|took|needs|costs?|faster|slower|less|(?<!or\s)more|fewer|instead|peaks?|peaked|measured|of\s+the\s+(?:time|memory|speed))\b",
    re.I,
)
STATES = re.compile(
    r"\b(?:is|are|was|takes?|took|needs?|saves?|costs?|uses?|reach(?:es)?|peaks?\s+at|(?:falls?|drops?|cuts?|goes|rises|down)\s+(?:\S+\s+){0,3}(?:to|by|from))"
    r"\s+(?:only\s+|about\s+|just\s+|nearly\s+)?$",
    re.I,
)
OF_A_MACHINE = re.compile(r"^\s+of\s+(?:its|the)\s+peak\b(?!\s+memory)")  # "at 40 % of its peak" is a condition


def typed_in_comment(comment):
    """Figures in a comment of code. An amount alone may be a setting (`# 1 GiB`); with a verdict it is a result."""
    for _, figure in typed(comment):
        if RATIO.match(figure) and not figure.endswith("%") or IN_WORDS.match(figure) or JUDGES.search(comment):
            yield figure


def typed_in_claim(sentence):
    """Figures of a result in a claim's own sentence, which shows its value behind it. Conditions stay: `at 40 % of its peak`."""
    for pattern in (FIGURE, IN_WORDS):
        for match in pattern.finditer(sentence):
            before, after = sentence[: match.start()], sentence[match.end() :]
            condition = re.search(r"\bat\s+$", before) or OF_A_MACHINE.match(after) or after.startswith(" again for")
            stated = STATES.search(before) or before.endswith(": ") and not after.strip(" .")
            if stated or (pattern is IN_WORDS or RATIO.match(match[0])) and not condition:
                yield match[0]
