"""Diagrams as SVG, drawn at build time: boxes, arrows, timelines, decision trees. No library; the colors are CSS variables.

Each is drawn twice, for a desktop and for a phone: on a phone time runs down, and a decision tree is an outline. The words
for readers who cannot see a timeline or a tree come from the same data, so they cannot differ. A label that is too long for
its box raises. A timeline with `steps` can be gone through step by step: docs/assets/steps.js adds the buttons, and without scripts
the picture stays as it is, with all steps.
"""

import json
import math
import textwrap
from html import escape

WIDTHS = (680, 340)
LINE, LETTER = 15, 6.6  # pixels: a line of text, and a letter of a wide system font at 12 pixels


def figure(title, description, draw, words, kinds=(), caption="", steps=()):
    """draw(drawing) is called for each width; words, caption: HTML; kinds: what the colors mean, in order; steps: [(end, text)]."""
    drawings = [Drawing(width, list(kinds)) for width in WIDTHS]
    for drawing in drawings:
        draw(drawing)
    names = "".join(f'<li class="color-{number}">{escape(kind)}</li>' for number, kind in enumerate(kinds))
    said = f' data-steps="{escape(json.dumps(steps))}"' if steps else ""
    return (
        f'<figure class="chart diagram" data-search-exclude{said}><figcaption>{escape(title)}</figcaption>'
        + (f'<ul class="legend">{names}</ul>' if names else "")
        + "".join(drawing.svg(description) for drawing in drawings)
        + f"<details><summary>In words</summary>{words}</details>{caption}</figure>\n"
    )


class Drawing:
    """What a diagram is drawn with, in pixels from the top left. Its height follows from what is on it."""

    def __init__(self, width, kinds=()):
        self.width, self.height, self.kinds, self.parts = width, 0, list(kinds), []
        self.narrow = width < 400

    def box(self, x, y, width, height, label="", kind="box"):
        """kind: one of the kinds, or a class of the style sheet. The label takes as many lines as it needs."""
        name = f"color-{self.kinds.index(kind)}" if kind in self.kinds else kind
        place = f'x="{short(x)}" y="{short(y)}" width="{short(width)}" height="{short(height)}"'
        self._add(f'<rect class="{name}" {place}/>', y + height)
        lines = wrapped(label, width)
        if len(lines) * LINE > height + 1 or any(len(line) * LETTER > width for line in lines):
            raise ValueError(f"the label {label!r} does not fit into {width:.0f} x {height:.0f} pixels")
        for number, line in enumerate(lines):
            self.text(x + width / 2, y + height / 2 + (number - (len(lines) - 1) / 2) * LINE, line)

    def text(self, x, y, words, kind="middle"):
        """One line, centered on the height y. kind: which end of it x is (start, middle, end), and `quiet`."""
        self._add(f'<text class="{kind}" x="{short(x)}" y="{short(y + 4)}">{escape(words)}</text>', y + LINE / 2)

    def line(self, *points, kind=""):
        places = " ".join(f"{short(x)},{short(y)}" for x, y in points)
        self._add(f'<polyline{kind and f" class={chr(34)}{kind}{chr(34)}"} points="{places}"/>', max(y for _, y in points))

    def arrow(self, *points, label=""):
        """Along the points. The label is at the last stretch: above its left end, or right of its lower end."""
        (x, y), (tip_x, tip_y) = points[-2:]
        dx, dy = (6 * way / math.dist(points[-1], points[-2]) for way in (tip_x - x, tip_y - y))
        self.line(*points)
        head = f"{short(-dx - dy / 2)} {short(dx / 2 - dy)}l{short(dy)} {short(-dx)}z"
        self.parts.append(f'<path d="M{short(tip_x)} {short(tip_y)}l{head}"/>')
        if label:
            left, low = min(x, tip_x), max(y, tip_y)
            self.text(left + 5, y - 8 if y == tip_y else low - 14, label, "start quiet")

    def lasting(self, start, end, parts):
        """What lasts from start to end of a timeline, for steps: what the drawing got since it had so many parts."""
        self.parts[parts:] = [f'<g data-from="{short(start)}" data-to="{short(end)}">{"".join(self.parts[parts:])}</g>']

    def of_gpu(self, name, parts, is_hidden):
        """What is there for one GPU of the header: what the drawing got since it had so many parts."""
        hidden = " hidden" if is_hidden else ""
        self.parts[parts:] = [f'<g data-for="{name}"{hidden}>{"".join(self.parts[parts:])}</g>']

    def svg(self, description):
        box = f"0 0 {self.width} {self.height + 2:.0f}"
        return f'<svg role="img" aria-label="{escape(description)}" viewBox="{box}">{"".join(self.parts)}</svg>'

    def _add(self, part, bottom):
        self.parts.append(part)
        self.height = max(self.height, bottom)


def timeline(title, description, lanes, axis="time", ends="", caption="", until=0, steps=()):
    """Lanes of blocks: rows over time; on a phone columns, in which time runs down.

    lanes: {name: [(start, length, label, kind), ...]}; axis: what runs along them; ends: what the end of the axis is called;
    until: the least end of the axis, so that two timelines have one scale; steps: [(where on the axis a step ends, what happens in it)].
    A label that has no room in its block is left out: it is in the words.
    """
    end = max(until, *(start + length for blocks in lanes.values() for start, length, *_ in blocks))
    kinds = list(dict.fromkeys(kind for blocks in lanes.values() for *_, kind in blocks))

    def draw(drawing):
        down, room = drawing.narrow, drawing.width - 2
        name_room = 14 + LETTER * max(map(len, lanes))
        tall = max(15 * end if end <= 40 else 420, 240)
        head, lane, step = (50, room / len(lanes), tall / end) if down else (name_room, 26, (room - name_room) / end)

        def block(number, start, length, label="", kind="lane"):
            along, across = (head + start * step, length * step), (number * lane + 1, lane - 2)
            (x, width), (y, height) = (across, along) if down else (along, across)
            fits = height >= LINE - 1 and len(label) * LETTER <= width
            drawing.box(x, y, width, height, "", kind)
            if label and fits:
                drawing.text(x + width / 2, y + height / 2, label)

        for number, (name, blocks) in enumerate(lanes.items()):
            if down:
                drawing.box(number * lane, 0, lane + 2, 32, name, "none")
            else:
                drawing.text(0, (number + 0.5) * lane, name, "start")
            block(number, 0, end)
            for given in blocks:
                parts = len(drawing.parts)
                block(number, *given)
                if steps:
                    drawing.lasting(given[0], given[0] + given[1], parts)
        if axis and down:
            drawing.text(2, head - 10, f"{axis} ↓{ends and f' to {ends}'}", "start quiet")
        elif axis:
            drawing.text(head, len(lanes) * lane + 12, f"{axis} →", "start quiet")
            if ends:
                drawing.text(drawing.width - 2, len(lanes) * lane + 12, ends, "end quiet")

    return figure(title, description, draw, table_of(lanes), kinds, caption, steps)


def table_of(lanes):
    """The lanes in words: each kind of block once for each run of blocks of that kind."""
    rows = ""
    for name, blocks in lanes.items():
        said = []
        for _, _, label, kind in sorted(blocks, key=lambda block: block[0]):
            if said and said[-1][0] == kind:
                said[-1][1].append(label)
            else:
                said.append((kind, [label]))
        text = "; ".join(f"{kind} {', '.join(filter(None, labels))}".strip() for kind, labels in said)
        rows += f"<tr><th>{escape(name)}</th><td>{escape(text)}</td></tr>"
    return f'<div class="scroll"><table aria-label="In words">{rows}</table></div>'


def decisions(title, description, tree):
    """tree: an answer, or (question, tree if yes, tree if no). Yes goes right and no goes down; on a phone yes is indented."""

    def draw(drawing):
        def place(tree, x, y):
            question, *branches = [tree] if isinstance(tree, str) else tree
            width = drawing.width - x - 2 if drawing.narrow else 200
            height = 12 + LINE * len(wrapped(question, width))
            drawing.box(x, y, width, height, question, "box" if branches else "answer")
            bottom = y + height
            if not branches:
                return bottom
            if drawing.narrow:
                drawing.arrow((x + 26, bottom), (x + 26, bottom + 26), (x + 54, bottom + 26), label="yes")
                below = place(branches[0], x + 54, bottom + 12)
            else:
                drawing.arrow((x + width, y + 14), (x + width + 38, y + 14), label="yes")
                below = max(bottom, place(branches[0], x + width + 38, y))
            drawing.arrow((x + 10, bottom), (x + 10, below + 26), label="no")
            return place(branches[1], x, below + 26)

        place(tree, 1, 1)

    return figure(title, description, draw, _said(tree))


def _said(tree):
    if isinstance(tree, str):
        return escape(tree)
    question, yes, no = tree
    return f"{escape(question)}<ul><li>Yes: {_said(yes)}</li><li>No: {_said(no)}</li></ul>"


def wrapped(label, width):
    return textwrap.wrap(label, max(1, int(width / LETTER)), break_long_words=False)


def short(number):
    return f"{number:.1f}".removesuffix(".0")
