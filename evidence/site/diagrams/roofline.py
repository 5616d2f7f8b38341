"""Prefill and decode on the roofline of an H100: how many tokens share one reading of the weights."""

import math

from dryrun.hardware import accelerator

from .svg import figure

GPU = "H100 80GB"
BYTES = 2  # of a weight in 16 bits
POINTS = {"decode, batch 1": 1, "decode, batch 64": 64, "prefill, 2,048 tokens": 2048}


def peak():
    """TFLOP/s of dense 16-bit products."""
    return accelerator(GPU).half


def bandwidth():
    """TB/s"""
    return accelerator(GPU)["bandwidth"].value / 1000


def reached(tokens):
    """TFLOP/s that the roofline allows. A weight of two bytes takes part in two FLOPs for each token of the pass."""
    return min(peak(), bandwidth() * intensity(tokens))


def intensity(tokens):
    """FLOPs per byte of weights."""
    return 2 * tokens / BYTES


def ridge():
    """Tokens in one pass from which on arithmetic is the limit."""
    return peak() / bandwidth() * BYTES / 2


def diagram():
    low, high = 0, 4  # powers of ten on the x axis
    bottom, top = 0, 3

    def draw(drawing):
        left, tall = 42, 210
        wide = drawing.width - left - 10

        def place(tokens, tflops):
            across = (math.log10(tokens) - low) / (high - low)
            up = (math.log10(tflops) - bottom) / (top - bottom)
            return left + across * wide, 14 + (1 - up) * tall

        for power in range(bottom, top + 1):
            x, y = place(1, 10**power)
            drawing.line((left, y), (drawing.width - 10, y), kind="guide")
            drawing.text(left - 5, y, f"{10**power:,}", "end quiet")
        for power in range(low, high + 1):
            x, y = place(10**power, 1)
            drawing.text(x, y + 14, f"{10**power:,}", "end quiet" if power == high else "middle quiet")
        drawing.line(place(1, reached(1)), place(ridge(), peak()), place(10**high, peak()), kind="roof")
        for name, tokens in POINTS.items():
            x, y = place(tokens, reached(tokens))
            drawing.box(x - 5, y - 5, 10, 10, "", "answer")
            label = name if drawing.narrow else f"{name}: {reached(tokens):,.0f} TFLOP/s"
            if tokens > ridge():
                drawing.text(drawing.width - 10, y + 16, label, "end")
            else:
                drawing.text(x + 10, y + 14, label, "start")
        drawing.text(left, 6, "TFLOP/s ↑", "start quiet")
        drawing.text(drawing.width - 10, tall + 46, "tokens in one pass →", "end quiet")

    return figure(
        f"Roofline of an {accelerator(GPU).label}, 16-bit weights: a pass needs {ridge():.0f} tokens to reach the peak",
        "Both axes logarithmic. A line rises with the tokens in a pass, and is flat from the ridge on. Decoding lies low on the slope, "
        "a batch moves it up, a prefill of a long prompt lies on the flat part.",
        draw,
        "<p>"
        + "; ".join(f"{name}: at most {reached(tokens):,.1f} TFLOP/s" for name, tokens in POINTS.items())
        + f". The peak is {peak():,.1f} TFLOP/s. The figures count weights only, not the KV cache.</p>",
    )
