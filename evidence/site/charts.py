"""Charts as SVG, drawn by pygal: lines, stacked areas, bars, and dots round the line on which x and y agree. Their colors are CSS variables (docs/assets/site.css), so
that a chart follows the page's palette.

Each is drawn twice, for a desktop and for a phone: text in one that is scaled down would be too small to read.
"""

import itertools
import math
import re
import textwrap
from html import escape

import pygal

from ..schema import format_number

MARKS = ("line", "bar", "area", "agreement")
WIDTHS = (680, 340)
CHARACTER = 7  # pixels of a figure or letter
NARROW = 24  # letters of a line of a name on a phone
PLACEHOLDER = 0xE000  # a letter that no name has, for each label
SHOWS_NOTHING = re.compile(
    r'<rect [^>]*class="background" ?/>|<g[^>]*/>|<g[^>]*></g>| class=""| tooltip-trigger| class="major"|(?<=class=")major |'
    r'(?<=class="axis) major(?= line")'
)
ROUND_ONE = re.compile(r'<g class="(?:guides|dots)">((?:<(?:path|text|circle)\b[^>]*>[^<]*(?:</text>)?)*)</g>')


def draw(series, mark, x_title, unit, log=(), description=""):
    """series: {name: [(x, y), ...]}, of which some may be empty; log: the axes, of "x" and "y", that are logarithmic."""
    if not any(series.values()):
        raise ValueError(f"there is no value to draw for {', '.join(series)}")
    for name, points in series.items():
        if points:
            _check(name, points, mark, log)
    return _legend(series, mark) + "".join(
        _draw(series, mark, x_title, unit, log, description, width) for width in WIDTHS
    )


def _legend(series, mark):
    """As text of the page, which wraps where pygal's does not."""
    if len(series) == 1:
        return ""
    names = "".join(
        f'<li class="color-{number}">{escape(name)}{"" if points else ": none on this machine"}</li>'
        for number, (name, points) in enumerate(series.items())
    )
    return f'<ul class="legend legend-{mark}">{names}</ul>'


def _check(name, points, mark, log):
    if mark == "bar":
        if min(y for _, y in points) < 0:
            raise ValueError(f"{name}: a bar cannot show a value below 0")
    elif not all(isinstance(x, int | float) for x, _ in points):
        raise ValueError(f"the mark {mark} needs numbers on its x axis; bar takes names")
    elif any(
        point[axis] <= 0 for point in points for axis, letter in enumerate("xy") if letter in log or mark == "agreement"
    ):
        raise ValueError(f"{name}: a logarithmic axis needs values above 0")


def _draw(series, mark, x_title, unit, log, description, width):
    chart = {"line": _lines, "area": _areas, "bar": _bars, "agreement": _agreement}[mark](series, log, width)
    chart, labels = chart if mark == "bar" else (chart, {})
    chart.config.width = width
    across, up = (unit, None) if mark == "bar" else (x_title, unit)
    is_log = ["x", "y"] if mark == "agreement" else log
    chart.config.x_title = f"{across} (log scale)" if "x" in is_log else across
    chart.config.y_title = f"{up} (log scale)" if "y" in is_log else up
    svg = _in_lines(_inline(chart.render(is_unicode=True), description), labels)
    return svg.replace(" nofill", "") if mark == "area" else svg


def _options(**options):
    return pygal.Config(
        css=[],
        js=[],
        disable_xml_declaration=True,
        height=300,
        margin=4,
        show_legend=False,
        truncate_label=-1,
        value_formatter=format_number,
        **{"include_x_axis": True, "margin_right": 24, "max_scale": 7} | options,  # the margin: the last label of the x axis stands half beyond it
    )


def _lines(series, log, width):
    """pygal's own logarithmic axis turns both axes, so the values are placed here and only the labels are given."""
    chart = pygal.XY(_options(dots_size=3, include_x_axis="y" not in log))
    across, up = (math.log10 if axis in log else float for axis in "xy")
    xs, ys = (sorted({point[axis] for points in series.values() for point in points}) for axis in (0, 1))
    chart.x_labels = _labels(_ratio_steps(xs, width) if "x" in log else _round_steps(xs[0], xs[-1]), across)
    if "y" in log:
        chart.y_labels = _labels(_powers(ys[0], ys[-1]), up)
    for name, points in series.items():
        chart.add(name, [(across(x), up(y)) for x, y in sorted(points)])
    return chart


def _agreement(series, log, width):
    """Two figures of the same thing, one dot each, and the line on which they are equal. Both axes are logarithmic."""
    chart = pygal.XY(_options(dots_size=2, stroke=False, include_x_axis=False))
    chart.config.height = 380
    found = [value for points in series.values() for point in points for value in point]
    chart.x_labels = chart.y_labels = _labels(_powers(min(found), max(found)), math.log10)
    for name, points in series.items():
        chart.add(name, [(math.log10(x), math.log10(y)) for x, y in points])
    ends = [math.log10(end) for end in (min(found), max(found))]
    chart.add("equal", [(end, end) for end in ends], stroke=True, show_dots=False)
    return chart


def _ratio_steps(xs, width):
    """What a logarithmic axis names: the values themselves, as 512, 1,024, 2,048, if they are few and apart, else round numbers."""
    most = 7 if width > 400 else 5
    room = (width - 120) / (math.log(xs[-1] / xs[0]) or 1)  # pixels of a factor of e; beside the plot stands the other axis
    if len(xs) <= most and all(math.log(right / left) * room > CHARACTER * len(format_number(right)) + 8 for left, right in itertools.pairwise(xs)):
        return xs
    steps = [factor * power for power in _powers(xs[0], xs[-1]) for factor in (1, 2, 5)]
    steps = [step for step in steps if xs[0] / 1.15 <= step <= xs[-1] * 1.15]
    return steps if len(steps) <= most else [step for step in steps if step in _powers(xs[0], xs[-1])]


def _powers(low, high):
    """The powers of ten from at most `low` to at least `high`."""
    return [10.0**power for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)]


def _labels(values, place):
    return [{"value": place(value), "label": format_number(value)} for value in values]


def _areas(series, log, width):
    """Each series stands on those before it: its outline goes along its upper edge and comes back along the lower one."""
    if log:
        raise ValueError("the mark area stacks its series, which a logarithmic axis cannot show")
    chart = pygal.XY(_options(show_dots=False))
    xs = sorted({x for points in series.values() for x, _ in points})
    chart.x_labels = _labels(_round_steps(xs[0], xs[-1]), float)
    floor = dict.fromkeys(xs, 0.0)
    for name, points in series.items():
        found = dict(points)
        top = {x: floor[x] + found.get(x, 0.0) for x in xs} if points else {}
        chart.add(name, [(xs[0], floor[xs[0]]), *top.items(), *reversed(floor.items())] if points else [])
        floor = top or floor
    return chart


def _bars(series, log, width):
    """Lying bars with their values: long names read better on the left."""
    names = list(dict.fromkeys(x for points in series.values() for x, _ in points))[::-1]  # pygal begins at the bottom
    lines = [_wrapped(str(name)) if width < 400 else [str(name)] for name in names]
    labels = [chr(PLACEHOLDER + number) * max(map(len, parts)) for number, parts in enumerate(lines)]  # a label of pygal has one line
    value = CHARACTER * max(len(format_number(y)) for points in series.values() for _, y in points)  # stands behind its bar
    room = width - value - CHARACTER * max(map(len, labels))
    steps = min(7, max(3, room // (value + 12)))
    chart = pygal.HorizontalBar(_options(print_values=True, print_values_position="top", margin_right=max(24, value + 8), max_scale=steps))
    chart.config.height = 90 + 26 * len(names) * len(series)
    chart.x_labels = labels
    for name, points in series.items():
        found = dict(points)
        chart.add(name, [found.get(x) for x in names])
    return chart, dict(zip(labels, lines))


def _wrapped(name):
    """The lines of a long name, for a phone: two, of which the second may lose its end; the whole name stands in the table below."""
    first, *others = textwrap.wrap(name, NARROW)
    rest = " ".join(others)
    return [first, *([rest if len(rest) <= NARROW else rest[: NARROW - 1].rstrip(" ,") + "…"] if rest else [])]


def _in_lines(svg, labels):
    """The labels as they are, in place of what pygal measured."""
    for label, lines in labels.items():
        start, end = svg.index(label), svg.index(label) + len(label)
        if len(lines) == 1:
            svg = svg[:start] + escape(lines[0]) + svg[end:]
            continue
        x = re.findall(r' x="([^"]*)"', svg[svg.rindex("<text", 0, start) : start])[0]
        parts = (f'<tspan x="{x}" dy="{dy}">{escape(line)}</tspan>' for dy, line in zip(("-.5em", "1.1em"), lines))
        svg = svg[:start] + "".join(parts) + svg[end:]
    return svg


def _round_steps(low, high):
    """Round numbers from low to high, at most seven."""
    step = 10 ** math.floor(math.log10((high - low or 1) / 4))
    step *= next(factor for factor in (1, 2, 5, 10) if (high - low) / (step * factor) <= 6)
    return [number * step for number in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _inline(svg, description):
    """pygal's SVG as a part of a page: no style, script, tool tip or id of its own, and words for who cannot see it."""
    svg = re.sub(r"<!--.*?-->|<defs>.*?</defs>|<desc[^>]*>.*?</desc>|<title>.*?</title>", "", svg, flags=re.S)
    svg = re.sub(r'<g[^>]*class="(?:tooltip|no_data)[^>]*>.*?</g>', "", svg, flags=re.S)
    svg = re.sub(r'\s(?:id|xmlns|xmlns:\w+|rx|ry)="[^"]*"', "", svg)
    svg = re.sub(r'="[^"]*\.\d{2}[^"]*"', lambda attribute: _rounded(attribute[0]), svg)
    svg = re.sub(r'(?<= d=")M[-\d. ]+L[-\d. ]+(?=")', lambda path: _straight(path[0]), svg)
    while svg != (svg := ROUND_ONE.sub(r"\1", SHOWS_NOTHING.sub("", svg))):
        pass
    return svg.replace("<svg", f'<svg role="img" aria-label="{escape(description)}"', 1)


def _rounded(places):
    return re.sub(r"-?\d+\.\d+", lambda number: f"{float(number[0]):.1f}".removesuffix(".0"), places)


def _straight(path):
    """A line without the points between which it goes straight on, to a tenth of a pixel."""
    numbers = [float(number) for number in re.findall(r"-?[\d.]+", path)]
    kept = []
    for point in zip(numbers[::2], numbers[1::2]):
        while len(kept) > 1 and _lies_between(kept[-1], kept[-2], point):
            kept.pop()
        if point not in kept[-1:]:
            kept.append(point)
    first, *others = [f"{x:g} {y:g}" for x, y in kept]
    return f"M{first}" + (f" L{' '.join(others)}" if others else "")


def _lies_between(point, start, end):
    (x, y), (x0, y0), (x1, y1) = point, start, end
    length = math.dist(start, end)
    ahead = (x - x0) * (x1 - x0) + (y - y0) * (y1 - y0)
    return 0 <= ahead <= length**2 and abs((x - x0) * (y1 - y0) - (y - y0) * (x1 - x0)) <= 0.1 * length
