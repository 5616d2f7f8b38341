"""Charts: SVG at build time, in the page's colors, for a desktop and a phone, with words for who cannot see them."""

import math
import re
from itertools import combinations

import pytest
from bs4 import BeautifulSoup
from built import ROOT

from evidence.site.charts import MARKS, WIDTHS, draw

CURVES = {"Plain": [(1, 5.0), (4, 6.0), (64, 36.6)], "Checkpointed": [(1, 5.0), (4, 5.0), (64, 8.7)]}
BARS = {"Peak": [("fp32, batch 32", 28.9), ("mixed bf16, 4 x batch 8, checkpointing", 6.04)]}
PAIRS = {"One GPU": [(0.1, 0.12), (1.0, 0.9), (5.0, 6.0)], "FSDP": [(2.0, 2.1)]}
GIVEN = {"line": CURVES, "area": CURVES, "bar": BARS, "agreement": PAIRS}


def drawn(series, mark, **options):
    return BeautifulSoup(draw(series, mark, "Batch size", "GiB", description="What it shows", **options), "html.parser")


def numbers(text):
    return [float(number) for number in re.findall(r"-?\d+(?:\.\d+)?", text)]


@pytest.mark.parametrize("mark", MARKS)
def test_a_chart_is_drawn_for_a_desktop_and_for_a_phone_with_its_words_for_who_cannot_see_it(mark):
    svgs = drawn(GIVEN[mark], mark).select("svg")
    assert [numbers(svg["viewbox"])[2] for svg in svgs] == list(WIDTHS)
    assert {(svg["role"], svg["aria-label"]) for svg in svgs} == {("img", "What it shows")}


@pytest.mark.parametrize("mark", MARKS)
def test_a_chart_brings_no_style_script_color_or_id_of_its_own(mark):
    text = str(drawn(GIVEN[mark], mark))
    assert not re.search(r"<style|<script|<desc|<title|\sstyle=|\sid=|http|#[0-9a-fA-F]{3,6}", text)
    assert "color-0" in text


@pytest.mark.parametrize("mark", MARKS)
def test_nothing_of_a_chart_lies_outside_of_it(mark):
    for svg in drawn(GIVEN[mark], mark).select("svg"):
        width, height = numbers(svg["viewbox"])[2:]
        left = numbers(svg.select_one(".plot")["transform"])[0]
        for text in svg.select(".axis text"):
            longest = max(len(line.get_text()) for line in text.select("tspan") or [text])
            half = 6.2 * longest / (1 if "y" in text.find_parent(class_="axis")["class"] else 2)
            assert left + float(text["x"]) - half >= -6
            assert 0 <= float(text["y"]) <= height
            if "x" in text.find_parent(class_="axis")["class"]:
                assert left + float(text["x"]) + half <= width + 6


def test_a_line_rises_as_its_values_do_and_both_start_at_the_same_point():
    svg = drawn(CURVES, "line").select("svg")[0]
    plain, checkpointed = [numbers(path["d"]) for path in svg.select(".series path.line")]
    assert plain[:2] == checkpointed[:2]
    assert plain[1] > plain[3] > plain[5]  # y grows downwards
    assert plain[5] < checkpointed[5]


def test_on_logarithmic_axes_equal_ratios_are_equal_distances():
    series = {"Eager": [(512, 5.0), (1024, 20.0), (2048, 80.0)]}
    svg = drawn(series, "line", log=["x", "y"]).select("svg")[0]
    (x0, y0), (x1, y1), (x2, y2) = [(float(dot["cx"]), float(dot["cy"])) for dot in svg.select(".series circle.dot")]
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.2)
    assert y0 - y1 == pytest.approx(y1 - y2, abs=0.2)


def test_a_dot_lies_on_the_line_of_agreement_where_both_values_are_equal():
    svg = drawn({"One GPU": [(0.1, 0.1), (1.0, 3.0), (100.0, 100.0)]}, "agreement").select("svg")[0]
    dots = [numbers(f"{dot['cx']} {dot['cy']}") for dot in svg.select(".series circle.dot")]
    x0, y0, x1, y1 = numbers(svg.select_one(".series path.line")["d"])
    assert dots[0] == pytest.approx([x0, y0], abs=0.2) and dots[2] == pytest.approx([x1, y1], abs=0.2)
    on_the_line = y0 + (dots[1][0] - x0) * (y1 - y0) / (x1 - x0)
    assert dots[1][1] < on_the_line - 5, "three times as long lies above"


def test_areas_stand_on_one_another():
    series = {"Weights": [(0, 2.0), (50, 2.0), (100, 2.0)], "Activations": [(0, 0.0), (50, 4.0), (100, 0.0)]}
    svg = drawn(series, "area").select("svg")[0]
    weights, activations = [numbers(path["d"]) for path in svg.select(".series path.line")]
    ground, floor = weights[1], weights[3]  # the outline of an area begins on what it stands on
    assert activations[1] == pytest.approx(floor, abs=0.2)
    assert ground - activations[3] == pytest.approx(3 * (ground - floor), rel=0.02)


def test_a_line_that_goes_straight_on_is_drawn_from_end_to_end_and_a_corner_stays():
    series = {"Memory": [(x, 5.0 if x < 60 else 5.0 + x - 60) for x in range(101)]}
    path = numbers(drawn(series, "line").select("svg")[0].select_one(".series path.line")["d"])
    assert len(path) == 6 and path[1] == path[3] > path[5]
    assert path[2] - path[0] == pytest.approx(1.5 * (path[4] - path[2]), rel=0.05)


def test_an_area_lies_where_its_values_do_also_where_their_distances_differ():
    series = {"Memory": [(0, 0.0), (10, 4.0), (100, 0.0)]}
    path = numbers(drawn(series, "area").select("svg")[0].select_one(".series path.line")["d"])
    left, peak, right = path[0], path[2], path[4]
    assert (peak - left) / (right - left) == pytest.approx(0.1, abs=0.01)


def test_bars_are_as_long_as_their_values_and_say_them():
    svg = drawn(BARS, "bar").select("svg")[0]
    short, long = sorted(float(bar["width"]) for bar in svg.select(".bar rect"))
    assert long / short == pytest.approx(28.9 / 6.04, rel=0.02)
    assert {text.get_text() for text in svg.select(".value")} == {"28.9", "6.04"}


def test_long_values_stand_inside_of_the_chart_and_those_of_its_axis_apart():
    for svg in drawn({"H100": [("1 x 512", 13_396), ("4 x 1,024", 27_508)], "A100": [("1 x 512", 8_915), ("4 x 1,024", 11_311)]}, "bar").select("svg"):
        left = numbers(svg.select_one(".plot")["transform"])[0]
        for text in svg.select(".value"):
            assert left + float(text["x"]) + 6.2 * len(text.get_text()) / 2 <= numbers(svg["viewbox"])[2]
        places = sorted((float(text["x"]), 6.2 * len(text.get_text()) / 2) for text in svg.select(".axis.x text") if text.get_text()[0].isdigit())
        assert len(places) > 2
        for (one, half), (other, its_half) in zip(places, places[1:]):
            assert one + half < other - its_half


def test_a_phone_shows_a_long_name_in_two_lines_and_a_desktop_in_one():
    desktop, phone = drawn(BARS, "bar").select("svg")
    assert "mixed bf16, 4 x batch 8, checkpointing" in desktop.get_text()
    first, second = (line.get_text() for line in phone.select("tspan"))
    assert f"{first} {second}" == "mixed bf16, 4 x batch 8, checkpointing"


def test_of_a_very_long_name_a_phone_leaves_the_end_out():
    name = "from_pretrained with a device map, weights of fp32 and offload to a disk"
    for line in drawn({"Memory": [(name, 2), ("short", 1)]}, "bar").select("svg")[1].select("tspan"):
        assert len(line.get_text()) <= 24
    assert line.get_text().endswith("…")


def test_values_whose_names_would_touch_are_no_steps_of_a_logarithmic_axis():
    series = {"Rate": [(1, 10), (8, 60), (32, 100), (128, 200), (192, 210)]}
    for svg in drawn(series, "line", log=("x",)).select("svg"):
        places = sorted((float(text["x"]), 3.5 * len(text.get_text())) for text in svg.select(".axis.x text") if text.get_text()[0].isdigit())
        assert len(places) > 2
        for (one, half), (other, its_half) in zip(places, places[1:]):
            assert one + half < other - its_half


def test_one_series_needs_no_legend_and_several_have_one():
    assert not drawn(BARS, "bar").select(".legend")
    assert [name.get_text() for name in drawn(CURVES, "line").select(".legend li")] == ["Plain", "Checkpointed"]


# Six colors must be told apart on paper and at night, by everybody: simulated after Machado, Oliveira and Fernandes (2009)
SIGHT = {
    "all colors": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "no red": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "no green": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "no blue": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}
STYLE = (ROOT / "docs" / "assets" / "site.css").read_text()


def colors(name):
    """A color of the style sheet, on paper and at night."""
    return re.search(rf"--{name}: light-dark\((#\w+), (#\w+)\)", STYLE).groups()


def linear(color):
    digits = color[1:] if len(color) == 7 else "".join(2 * digit for digit in color[1:])
    parts = [int(digits[place : place + 2], 16) / 255 for place in (0, 2, 4)]
    return [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]


def brightness(color):
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear(color)))


def contrast(one, other):
    low, high = sorted((brightness(one), brightness(other)))
    return (high + 0.05) / (low + 0.05)


def lab(color, sight):
    red, green, blue = [min(1, max(0, sum(a * b for a, b in zip(row, linear(color))))) for row in sight]
    xyz = (0.4125 * red + 0.3576 * green + 0.1804 * blue) / 0.9505, 0.2127 * red + 0.7152 * green + 0.0722 * blue, 0
    xyz = (*xyz[:2], (0.0193 * red + 0.1192 * green + 0.9503 * blue) / 1.0890)
    x, y, z = [part ** (1 / 3) if part > 0.008856 else 7.787 * part + 16 / 116 for part in xyz]
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


@pytest.mark.parametrize("night", [0, 1], ids=["on paper", "at night"])
def test_every_color_of_a_chart_stands_out_from_the_page(night):
    paper = colors("paper")[night]
    for number in range(1, 7):
        assert contrast(colors(f"chart-{number}")[night], paper) >= 3, number


@pytest.mark.parametrize("night", [0, 1], ids=["on paper", "at night"])
@pytest.mark.parametrize("sight", SIGHT)
def test_the_colors_of_a_chart_are_told_apart_by_every_eye(sight, night):
    """Four series are common, more are rare. Ten is a difference that one sees at a glance."""
    points = {number: lab(colors(f"chart-{number}")[night], SIGHT[sight]) for number in range(1, 7)}
    for one, other in combinations(points, 2):
        assert math.dist(points[one], points[other]) >= (20 if other <= 4 else 12), (one, other)


def test_the_lines_of_a_chart_differ_by_their_dashes_too():
    dashes = re.findall(r"\.color-(\d) \.line\.nofill \{ stroke-dasharray: ([\d ]+) \}", STYLE)
    assert [number for number, _ in dashes] == list("12345")  # the first is drawn through
    assert len({pattern for _, pattern in dashes}) == len(dashes)


def test_the_axis_of_an_area_says_round_numbers():
    series = {"Memory": [(x * 2.1, 1.0 + x) for x in range(46)]}
    labels = [text.get_text() for text in drawn(series, "area").select("svg")[0].select(".axis.x text")]
    assert labels == ["0", "20", "40", "60", "80"]


@pytest.mark.parametrize(
    ("xs", "labels"),
    [
        ([512, 1024, 2048], ["512", "1,024", "2,048"]),
        ([0.559, 0.596, 1.19, 2.38], ["0.5", "1", "2"]),
        ([0.0003 * 1.3**number for number in range(24)], ["0.001", "0.01", "0.1"]),
    ],
)
def test_a_logarithmic_axis_says_its_values_where_they_are_few_and_apart_and_else_round_numbers(xs, labels):
    svg = drawn({"Loss": [(x, 1.0) for x in xs]}, "line", log=["x"]).select("svg")[1]
    assert [text.get_text() for text in svg.select(".axis.x text")] == labels


@pytest.mark.parametrize("mark", MARKS)
def test_what_a_machine_lacks_is_named_and_the_others_keep_their_colors(mark):
    less = drawn({"Less": []} | GIVEN[mark], mark)
    items = less.select(".legend li")
    assert items[0].text == "Less: none on this machine"
    for number, name in enumerate(GIVEN[mark], 1):
        assert items[number].text == name and f"color-{number}" in items[number]["class"]
        assert less.select_one("svg").select(f".serie-{number}")


@pytest.mark.parametrize(
    "series, mark, log, what",
    [
        ({"a": []}, "line", (), "no value to draw for a"),
        ({"a": [("name", 1.0)]}, "line", (), "needs numbers on its x axis"),
        ({"a": [(0, 1.0)]}, "line", ("x",), "a logarithmic axis needs values above 0"),
        ({"a": [(1, 0.0)]}, "line", ("y",), "a logarithmic axis needs values above 0"),
        ({"a": [("name", -1.0)]}, "bar", (), "a bar cannot show a value below 0"),
        ({"a": [(1, 1.0), (2, 2.0)]}, "area", ("y",), "which a logarithmic axis cannot show"),
    ],
)
def test_what_cannot_be_drawn_is_refused(series, mark, log, what):
    with pytest.raises(ValueError, match=what):
        drawn(series, mark, log=log)
