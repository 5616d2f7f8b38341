"""The bits of the floating-point formats that one trains in: which of them give the range, and which the digits."""

from .svg import LETTER, figure

FORMATS = {"fp32": (8, 23), "tf32": (8, 10), "bf16": (8, 7), "fp16": (5, 10), "fp8 E5M2": (5, 2), "fp8 E4M3": (4, 3), "fp4 E2M1": (2, 1)}
NO_INFINITY = ("fp8 E4M3", "fp4 E2M1")  # the largest exponent is of numbers too; in E4M3 all but the largest, which is NaN
SIGN, EXPONENT, DIGITS = "Sign", "Exponent: the range", "Mantissa: the digits"


def largest(name):
    exponent, digits = FORMATS[name]
    bias, step = 2 ** (exponent - 1) - 1, 2.0**-digits
    if name in NO_INFINITY:
        return (2 - step * (1 + (name == "fp8 E4M3"))) * 2.0 ** (bias + 1)
    return (2 - step) * 2.0**bias


def smallest(name):
    """That has all its digits."""
    return 2.0 ** (2 - 2 ** (FORMATS[name][0] - 1))


def said(name):
    return f"{_short(smallest(name))} to {_short(largest(name))}, after 1 comes 1 + 1/{2 ** FORMATS[name][1]:,}"


def _short(number):
    return f"{number:,.0f}" if 1 <= number < 1e6 else f"{number:.1e}".replace("e+", "e") if number >= 1e6 or number < 1e-3 else f"{number:g}"


def diagram():
    def draw(drawing):
        bit, tall = (drawing.width - 2) / 32, 24
        for number, (name, (exponent, digits)) in enumerate(FORMATS.items()):
            below = number * (tall + (54 if drawing.narrow else 32)) + (35 if drawing.narrow else 20)
            drawing.text(0, below - (28 if drawing.narrow else 12), name, "start")
            drawing.text(0 if drawing.narrow else LETTER * 11, below - 12, said(name), "start quiet")
            for start, bits, kind in ((0, 1, SIGN), (1, exponent, EXPONENT), (1 + exponent, digits, DIGITS)):
                drawing.box(1 + start * bit, below, bits * bit, tall, str(bits) if bits * bit > 12 else "", kind)

    rows = "".join(f"<tr><th>{name}</th><td>1</td><td>{exponent}</td><td>{digits}</td><td>{said(name)}</td></tr>" for name, (exponent, digits) in FORMATS.items())
    head = "<tr><th>Format</th><th>Sign</th><th>Exponent</th><th>Mantissa</th><th>Range of the numbers that have all digits, and the digits</th></tr>"
    return figure(
        "The bits of a number in each format, and the smallest and largest number that have all these digits",
        "Seven rows of bits, each with a sign, an exponent and a mantissa. bf16 has the exponent of fp32, thus its range, and a third of its mantissa. fp16 has a "
        "shorter exponent and a longer mantissa than bf16. tf32 has the exponent of fp32 and the mantissa of fp16.",
        draw,
        f'<div class="scroll"><table aria-label="Bits of each format"><thead>{head}</thead><tbody>{rows}</tbody></table></div>',
        (SIGN, EXPONENT, DIGITS),
    )
