"""The same eight texts, padded to the longest of their batch and packed into rows without padding."""

from .svg import timeline

LENGTHS = (310, 95, 512, 60, 140, 420, 75, 180)  # tokens of the texts
ROW = 512  # tokens of a packed row


def padded():
    """[[lengths of the texts in a row, then the padding]]"""
    return [([length], max(LENGTHS) - length) for length in LENGTHS]


def packed():
    """[[lengths of the texts in a row, then the padding]]: each text goes into the first row that has room, longest first."""
    rows = []
    for length in sorted(LENGTHS, reverse=True):
        row = next((row for row in rows if sum(row) + length <= ROW), None)
        if row is None:
            rows.append(row := [])
        row.append(length)
    return [(row, ROW - sum(row)) for row in rows]


def lanes(rows):
    found = {}
    for number, (lengths, padding) in enumerate(rows, 1):
        at, blocks = 0, []
        for length in lengths:
            blocks.append((at, length, str(length), "Tokens of a text"))
            at += length
        found[f"Row {number}"] = blocks + [(at, padding, "", "Padding")] * (padding > 0)
    return found


def padded_diagram():
    return timeline(
        f"Padded: {len(LENGTHS)} texts in {len(padded())} rows",
        "Eight rows, one text in each. The longest text fills its row. All others end early, and padding fills the rest.",
        lanes(padded()),
        axis="tokens",
        ends=str(ROW),
    )


def packed_diagram():
    return timeline(
        f"Packed: the same texts in {len(packed())} rows",
        "Four rows. Each holds one or several texts one after the other, and little padding at its end.",
        lanes(packed()),
        axis="tokens",
        ends=str(ROW),
    )
