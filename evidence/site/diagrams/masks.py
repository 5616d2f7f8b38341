"""Masks in blocks, as FlexAttention walks them: a block that hides every pair is skipped, and only one that hides some asks the rule."""

from .svg import figure

LENGTH, BLOCK = 1024, 128  # tokens of a row; of a block, FlexAttention's default
WINDOW = 256  # tokens that a token sees, itself included
TEXTS = (320, 192, 512)  # tokens of the texts in a packed row
FULL, PART, SKIPPED = "Computed", "Computed, asks the rule", "Skipped"


def text_of(token):
    for number, length in enumerate(TEXTS):
        token -= length
        if token < 0:
            return number


RULES = {
    "Causal": lambda query, key: query >= key,
    f"Window of {WINDOW}": lambda query, key: query >= key and query - key < WINDOW,
    f"{len(TEXTS)} packed texts": lambda query, key: query >= key and text_of(query) == text_of(key),
}


def blocks(rule):
    """[[kind of the block] for each block of queries]"""
    starts = range(0, LENGTH, BLOCK)
    return [[_kind(rule, range(row, row + BLOCK), range(column, column + BLOCK)) for column in starts] for row in starts]


def _kind(rule, queries, keys):
    seen = {rule(query, key) for query in queries for key in keys}
    return PART if len(seen) == 2 else FULL if True in seen else SKIPPED


def computed(rule):
    """Blocks that are computed, and all."""
    kinds = sum(blocks(rule), [])
    return len(kinds) - kinds.count(SKIPPED), len(kinds)


def diagram():
    drawn = {name: blocks(rule) for name, rule in RULES.items()}

    def draw(drawing):
        gap = 14 if drawing.narrow else 26
        size = (drawing.width - 2 - gap * (len(drawn) - 1)) / len(drawn)
        step = size / (LENGTH // BLOCK)
        for number, (name, rows) in enumerate(drawn.items()):
            left = 1 + number * (size + gap)
            drawing.text(left, 8, name, "start")
            for row, kinds in enumerate(rows):
                for column, kind in enumerate(kinds):
                    drawing.box(left + column * step, 20 + row * step, step, step, "", "lane" if kind == SKIPPED else kind)
            drawing.text(left, size + 32, "{} of {} blocks".format(*computed(RULES[name])), "start quiet")

    rows = "".join(
        f"<tr><th>{name}</th>" + "".join(f"<td>{sum(kinds, []).count(kind)}</td>" for kind in (FULL, PART, SKIPPED)) + "</tr>"
        for name, kinds in drawn.items()
    )
    return figure(
        f"Which blocks of {BLOCK} x {BLOCK} tokens are computed, in a row of {LENGTH:,}: queries run down, keys to the right",
        "Three squares of eight by eight blocks. Under a causal mask the lower triangle is computed, under a window a band along the diagonal, and with packed texts a small "
        "triangle for each text. The rule is asked on the borders alone.",
        draw,
        '<div class="scroll"><table aria-label="Blocks"><thead><tr><th>Mask</th>'
        + "".join(f"<th>{kind}</th>" for kind in (FULL, PART, SKIPPED))
        + f"</tr></thead><tbody>{rows}</tbody></table></div>",
        (FULL, PART),
    )
