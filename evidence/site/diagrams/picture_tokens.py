"""Tokens of a prompt with one picture, in Qwen3-VL: the limit of pixels decides, not the question."""

import math

from .svg import timeline

SIDE = 32  # pixels of a token's square
WIDTH, HEIGHT = 4000, 3000  # of a photograph
QUESTION, ANSWER = 40, 200  # tokens
LIMITS = {"As it comes": 16384 * SIDE**2, "2,048 tokens": 2048 * SIDE**2, "512 tokens": 512 * SIDE**2}  # pixels
TEXT, PICTURE = "Text", "The picture"


def tokens(limit):
    """Of the picture: made smaller until it has at most so many pixels, its sides multiples of SIDE."""
    high, wide = (max(SIDE, round(side / SIDE) * SIDE) for side in (HEIGHT, WIDTH))
    if high * wide > limit:
        by = math.sqrt(HEIGHT * WIDTH / limit)
        high, wide = (max(SIDE, math.floor(side / by / SIDE) * SIDE) for side in (HEIGHT, WIDTH))
    return high * wide // SIDE**2


def lanes():
    found = {}
    for name, limit in LIMITS.items():
        picture = tokens(limit)
        found[name] = [
            (0, picture, f"{picture:,}", PICTURE),
            (picture, QUESTION + ANSWER, "", TEXT),
        ]
    return found


def diagram():
    return timeline(
        f"A photograph of {WIDTH:,} x {HEIGHT:,} pixels, a question of {QUESTION} tokens and an answer of {ANSWER}, by the limit for pictures (Qwen3-VL)",
        "Three bars of tokens. As it comes, the picture fills nearly all of the first, and the text is a thin slice at its end. With a limit the bars are many times shorter.",
        lanes(),
        axis="tokens",
        ends=f"{max(start + length for blocks in lanes().values() for start, length, *_ in blocks):,}",
    )
