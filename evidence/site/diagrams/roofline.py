"""Prefill and decode on the roofline of the reader's GPU: how many tokens share one reading of the weights."""

import math
from html import escape

from dryrun.tables import hardware

from .svg import figure

GPUS = {name: hardware.accelerator(name) for name in hardware.ON_PAGES}
BYTES = 2  # of a weight in 16 bits
POINTS = {"decode, batch 1": 1, "decode, batch 64": 64, "prefill, 2,048 tokens": 2048}
TOKENS, RATES = (0, 4), (-1, 4)  # powers of ten of the axes


def peak(gpu):
    """TFLOP/s of dense 16-bit products."""
    return gpu.half


def bandwidth(gpu):
    """TB/s"""
    return gpu["bandwidth"].value / 1000


def reached(gpu, tokens):
    """TFLOP/s that the roofline allows. A weight of two bytes takes part in two FLOPs for each token of the pass."""
    return min(peak(gpu), bandwidth(gpu) * intensity(tokens))


def intensity(tokens):
    """FLOPs per byte of weights."""
    return 2 * tokens / BYTES


def ridge(gpu):
    """Tokens in one pass from which on arithmetic is the limit."""
    return peak(gpu) / bandwidth(gpu) * BYTES / 2


def diagram():
    def draw(drawing):
        left, tall = 54, 210
        wide = drawing.width - left - 10

        def place(tokens, tflops):
            across, up = ((math.log10(value) - low) / (high - low) for value, (low, high) in ((tokens, TOKENS), (tflops, RATES)))
            return left + across * wide, 14 + (1 - up) * tall

        for power in range(RATES[0], RATES[1] + 1):
            x, y = place(1, 10**power)
            drawing.line((left, y), (drawing.width - 10, y), kind="guide")
            drawing.text(left - 5, y, f"{10**power:,}", "end quiet")
        for power in range(TOKENS[0], TOKENS[1] + 1):
            x, y = place(10**power, 10 ** RATES[0])
            drawing.text(x, y + 14, f"{10**power:,}", "end quiet" if power == TOKENS[1] else "middle quiet")
        for name, gpu in GPUS.items():
            parts = len(drawing.parts)
            _roof(drawing, gpu, place)
            drawing.of_gpu(name, parts, name != next(iter(GPUS)))
        drawing.text(left, 6, "TFLOP/s ↑", "start quiet")
        drawing.text(drawing.width - 10, tall + 46, "tokens in one pass →", "end quiet")

    cells = "".join(
        f"<tr><th>{escape(gpu.label)}</th><td>{peak(gpu):,.0f}</td><td>{ridge(gpu):,.0f}</td>"
        + "".join(f"<td>{reached(gpu, tokens):,.1f}</td>" for tokens in POINTS.values())
        + "</tr>"
        for gpu in GPUS.values()
    )
    heads = "".join(f"<th>{head}</th>" for head in ("GPU", "Peak, TFLOP/s", "Tokens that reach it", *POINTS))
    return figure(
        "Roofline, 16-bit weights: how many tokens in a pass reach the peak of the GPU that the header names",
        "Both axes logarithmic. A line rises with the tokens in a pass, and is flat from the ridge on. Decoding lies low on the slope, "
        "a batch moves it up, a prefill of a long prompt lies on the flat part.",
        draw,
        f'<div class="scroll"><table aria-label="Rooflines"><thead><tr>{heads}</tr></thead><tbody>{cells}</tbody></table></div>'
        "<p>The figures count weights only, not the KV cache.</p>",
    )


def _roof(drawing, gpu, place):
    """The line of a GPU, and on it each of the points."""
    end = 10 ** TOKENS[1]
    drawing.line(place(1, reached(gpu, 1)), place(ridge(gpu), peak(gpu)), place(end, peak(gpu)), kind="roof")
    right, roof = place(end, peak(gpu))
    said = f"{peak(gpu):,.0f} TFLOP/s from {ridge(gpu):,.0f} tokens on"
    drawing.text(right, roof - 12, said if drawing.narrow else f"{gpu.label}: {said}", "end")
    for name, tokens in POINTS.items():
        x, y = place(tokens, reached(gpu, tokens))
        drawing.box(x - 5, y - 5, 10, 10, "", "answer")
        label = name if drawing.narrow or tokens > ridge(gpu) else f"{name}: {reached(gpu, tokens):,.{int(reached(gpu, tokens) < 10)}f} TFLOP/s"
        if tokens > ridge(gpu):
            drawing.text(right, y + 16, label, "end")
        else:
            drawing.text(x + 10, y + 14, label, "start")
