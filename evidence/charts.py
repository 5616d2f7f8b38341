"""Charts as SVG: lines, stacked areas and bars. Colours are CSS variables, so that a chart follows the page's palette.

Each is drawn twice, for a desktop and for a phone: text in one that is scaled down would be too small to read.
"""

import math
from html import escape

from .records import format_number

MARKS = ("line", "bar", "area")
WIDTHS = (680, 320)
HEIGHT = 230  # of the plot, without legend and axes
LINE = 15  # of text
BAR = 16


def draw(series, mark, x_title, unit, log=(), description=""):
    """series: {name: [(x, y), ...]}; log: the axes, of "x" and "y", that are logarithmic."""
    for name, points in series.items():
        if not points:
            raise ValueError(f"there is no value to draw for {name}")
        if mark == "bar":
            if min(y for _, y in points) < 0:
                raise ValueError(f"{name}: a bar cannot show a value below 0")
        elif not all(isinstance(x, int | float) for x, _ in points):
            raise ValueError(f"the mark {mark} needs numbers on its x axis; bar takes names")
        elif any(point[axis] <= 0 for point in points for axis, letter in enumerate("xy") if letter in log):
            raise ValueError(f"{name}: a logarithmic axis needs values above 0")
    return "".join(_draw(series, mark, x_title, unit, log, description, width) for width in WIDTHS)


def _draw(series, mark, x_title, unit, log, description, width):
    legend, top = _legend(series, width)
    if mark == "bar":
        parts, height = _bars(series, unit, width, top)
    else:
        parts, height = _curves(series, mark, x_title, unit, log, width, top)
    return (
        f'<svg role="img" aria-label="{escape(description)}" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" fill="currentColor" stroke="none">{"".join(legend + parts)}</svg>'
    )


def _legend(series, width):
    """The names of several series, in as many lines as they need; returns also where they end."""
    if len(series) == 1:
        return [], 0
    parts, x, y = [], 0, 10
    for number, name in enumerate(series, start=1):
        if x and x + 20 + _wide(name) > width:
            x, y = 0, y + LINE
        parts += [f'<circle cx="{x + 5}" cy="{y - 4}" r="5" fill="{_colour(number)}"/>', _text(x + 14, y, name)]
        x += 32 + _wide(name)
    return parts, y + 10


def _curves(series, mark, x_title, unit, log, width, top):
    series = {name: sorted(found) for name, found in series.items()}
    series = _stacked(series) if mark == "area" else {name: [(x, 0, y) for x, y in series[name]] for name in series}
    points = [point for found in series.values() for point in found]
    xs, ys = sorted({x for x, _, _ in points}), [y for _, _, y in points]
    y_ticks = _ticks(min(ys), max(ys), "y" in log)
    x_ticks = xs if "x" in log else [tick for tick in _ticks(xs[0], xs[-1], False) if tick <= xs[-1]]
    left, above = max(_wide(_number(tick)) for tick in y_ticks) + 8, top + LINE + 8
    below = above + HEIGHT
    across = _scale(x_ticks[0], xs[-1], left, width - 8, "x" in log)
    up = _scale(y_ticks[0], y_ticks[-1], below, above, "y" in log)
    parts, free = [_text(0, top + 10, unit)], 0
    for tick in y_ticks:
        parts += [_rule(left, up(tick), width - 8, up(tick)), _text(left - 6, up(tick) + 4, _number(tick), "end")]
    for tick in x_ticks:
        parts.append(_rule(across(tick), below, across(tick), below + 4))
        half = _wide(_number(tick)) / 2
        place = min(across(tick), width - half)
        if place - half >= free:  # no label over the one before it
            parts.append(_text(place, below + 16, _number(tick), "middle"))
            free = place + half + 6
    parts.append(_text((left + width) / 2, below + 32, x_title, "middle"))
    for number, found in enumerate(series.values(), start=1):
        line = [f"{_round(across(x))},{_round(up(y))}" for x, _, y in found]
        if mark == "area":
            back = [f"{_round(across(x))},{_round(up(low))}" for x, low, _ in reversed(found)]
            parts.append(f'<polygon points="{" ".join(line + back)}" fill="{_colour(number)}"/>')
        else:
            parts.append(
                f'<polyline points="{" ".join(line)}" fill="none" stroke="{_colour(number)}" stroke-width="2"/>'
            )
            dots = "".join(f'<circle cx="{x}" cy="{y}" r="3"/>' for x, y in (point.split(",") for point in line))
            parts.append(f'<g fill="{_colour(number)}">{dots}</g>')
    return parts, below + 38


def _bars(series, unit, width, top):
    """Lying bars with their values: long names read better on the left."""
    names = list(dict.fromkeys(x for found in series.values() for x, _ in found))
    labels = {name: str(name).split(", ") if width < 400 else [str(name)] for name in names}
    values = [y for found in series.values() for _, y in found]
    left = max(_wide(line) for label in labels.values() for line in label) + 8
    across = _scale(0, max(values), left, width - max(_wide(_number(value)) for value in values) - 6, False)
    parts, y = [_text(left, top + 10, unit)], top + LINE + 4
    for name in names:
        high = max(BAR * len(series), LINE * len(labels[name]))
        for number, line in enumerate(labels[name]):
            parts.append(_text(left - 6, y + (high - LINE * len(labels[name])) / 2 + LINE * number + 11, line, "end"))
        bar = y + (high - BAR * len(series)) / 2
        for number, found in enumerate(series.values(), start=1):
            for value in [value for x, value in found if x == name]:
                place = (
                    f'x="{_round(left)}" y="{_round(bar)}" width="{_round(across(value) - left)}" height="{BAR - 2}"'
                )
                parts += [
                    f'<rect {place} fill="{_colour(number)}"/>',
                    _text(across(value) + 4, bar + 11, _number(value)),
                ]
            bar += BAR
        y += high + 6
    return parts, _round(y)


def _stacked(series):
    """Each series on top of those before it, as (x, lower end, upper end)."""
    floor, stacked = {}, {}
    for name, found in series.items():
        stacked[name] = [(x, floor.get(x, 0), floor.get(x, 0) + y) for x, y in found]
        floor |= {x: y for x, _, y in stacked[name]}
    return stacked


def _ticks(low, high, log):
    """Round numbers that enclose low and high."""
    if log:
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        return [10.0**power for power in powers]
    step = 10 ** math.floor(math.log10((high - min(low, 0) or 1) / 4))
    step *= next(factor for factor in (1, 2, 5, 10) if (high - min(low, 0)) / (step * factor) <= 7)
    return [round(step * number, 10) for number in range(math.floor(min(low, 0) / step), math.ceil(high / step) + 1)]


def _scale(low, high, start, end, log):
    place = math.log10 if log else float
    return lambda value: start + (end - start) * (place(value) - place(low)) / (place(high) - place(low) or 1)


def _number(value):
    return format_number(value) if isinstance(value, int | float) else str(value)


def _wide(words):
    """About as wide as the words are in the page's font of 11 px."""
    return 6.1 * len(words)


def _round(number):
    return f"{number:.1f}".removesuffix(".0")


def _colour(number):
    return f"var(--chart-{(number - 1) % 6 + 1})"


def _rule(x1, y1, x2, y2):
    return f'<line x1="{_round(x1)}" y1="{_round(y1)}" x2="{_round(x2)}" y2="{_round(y2)}" stroke="var(--chart-rule)"/>'


def _text(x, y, words, anchor=""):
    anchored = anchor and f' text-anchor="{anchor}"'
    return f'<text x="{_round(x)}" y="{_round(y)}"{anchored}>{escape(words)}</text>'
