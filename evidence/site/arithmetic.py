"""Arithmetic that a page writes out in a code span, as `32e9 x 2 bytes / 8 = 8 GB`: is its result right?

Units count by what they scale: GiB is 2**30, % a hundredth. Words such as tokens or heads count nothing. Where the left side has no unit that
scales, as in `16 + 9 = 25 GB`, the result may be in the unit of its terms.
"""

import ast
import re

from ..problems import Problem
from .prose import INLINE_CODE, paragraphs

NUMBER = r"\d[\d,]*(?:\.\d+)?(?:e-?\d+)?"
ARITHMETIC = re.compile(rf"`([(\d][^`=≈]* [x×*/+-] [^`=≈]*?)\s[=≈]\s[~≈]?({NUMBER})\s?([^\d`=≈]*)`")
PREFIXES = {"k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "": 1}
SECONDS = {"s": 1, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}
UNIT = re.compile(r"([kKMGTP]i?|)(B|bytes?|FLOPs?|FLOP|bits?|bit)(/s)?")
TERM = re.compile(rf"\s*(?:(?P<number>{NUMBER})(?P<square>²?)|(?P<operator>[×*/+()-]|x(?!\w))|(?P<word>%|[^\W\d][\w/]*))")
ROUNDED = 0.02  # what a result whose last digits are zeros may be off by: 198 is 200


def problems(path, text, first):
    for line, paragraph in paragraphs(text):
        for written in INLINE_CODE.finditer(paragraph):
            if wrong := wrong_result(written[0]):
                number = first + line + paragraph.count("\n", 0, written.start())
                yield Problem(path, f"{written[0]} is {wrong}", "correct the result, or a term", number)


def wrong_result(written):
    """What the arithmetic of a code span gives, in the unit of its result; "" where it is right, or no arithmetic."""
    match = ARITHMETIC.fullmatch(" ".join(written.split()))
    computed = match and value(match[1])
    if not computed:
        return ""
    said, unit, scale = float(match[2].replace(",", "")), match[3], scale_of(match[3].split(" ")[0])
    if any(abs(result - said) <= _slack(match[2]) for result in (computed / scale, computed)):
        return ""
    return f"{computed / scale:.4g} {unit}".strip()


def value(terms):
    """What is left of the equals sign, in units without prefix; None where it is no arithmetic."""
    code, place = [], 0  # what Python would compute
    while place < len(terms):
        term = TERM.match(terms, place)
        if not term:
            return None
        place = term.end()
        if term["number"]:
            code.append(float(term["number"].replace(",", "")) ** (2 if term["square"] else 1))
        elif term["operator"]:
            code.append({"x": "*", "×": "*"}.get(term["operator"], term["operator"]))
        elif not code or code[-1] in ("*", "/", "+", "-", "("):
            return None
        elif isinstance(code[-1], float):
            code[-1] *= scale_of(term["word"])
    try:
        return _evaluated(ast.parse(" ".join(map(str, code)), mode="eval").body)
    except (SyntaxError, ZeroDivisionError):
        return None


def scale_of(unit):
    if unit == "%":
        return 0.01
    named = UNIT.fullmatch(unit)
    return SECONDS.get(unit) or (PREFIXES.get(named[1], 1) if named else 1)


def _evaluated(node):
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.BinOp):
        left, right = _evaluated(node.left), _evaluated(node.right)
        return {ast.Add: left.__add__, ast.Sub: left.__sub__, ast.Mult: left.__mul__, ast.Div: left.__truediv__}[type(node.op)](right)
    raise SyntaxError(ast.dump(node))


def _slack(written):
    """Half of the last digit that is written, in which zeros at the end of a whole number may be rounded ones."""
    digits = written.replace(",", "").split("e")
    exponent = int(digits[1]) if len(digits) > 1 else 0
    last = 10.0 ** (exponent - (len(digits[0].split(".")[1]) if "." in digits[0] else 0))
    rounded = ROUNDED * float(written.replace(",", "")) if digits[0].endswith("0") and "." not in digits[0] else 0
    return max(last / 2 * 1.01, rounded)
