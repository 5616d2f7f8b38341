"""Charts: SVG at build time, in the page's colours, for a desktop and a phone, with words for who cannot see them."""

import re

import pytest
from bs4 import BeautifulSoup

from evidence.charts import MARKS, WIDTHS, draw

CURVES = {"Plain": [(1, 5.0), (4, 6.0), (64, 36.6)], "Checkpointed": [(1, 5.0), (4, 5.0), (64, 8.7)]}
BARS = {"Peak": [("fp32, batch 32", 28.9), ("mixed bf16, 4 x batch 8, checkpointing", 6.04)]}
GIVEN = {"line": CURVES, "area": CURVES, "bar": BARS}


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
def test_a_chart_brings_no_style_script_colour_or_id_of_its_own(mark):
    text = str(drawn(GIVEN[mark], mark))
    assert not re.search(r"<style|<script|<desc|<title|\sstyle=|\sid=|http|#[0-9a-fA-F]{3,6}", text)
    assert "color-0" in text


@pytest.mark.parametrize("mark", MARKS)
def test_a_chart_is_the_same_at_every_build(mark):
    assert draw(GIVEN[mark], mark, "x", "GiB") == draw(GIVEN[mark], mark, "x", "GiB")


@pytest.mark.parametrize("mark", MARKS)
def test_nothing_of_a_chart_lies_outside_of_it(mark):
    for svg in drawn(GIVEN[mark], mark).select("svg"):
        width, height = numbers(svg["viewbox"])[2:]
        left = numbers(svg.select_one(".plot")["transform"])[0]
        for text in svg.select(".axis text"):
            half = 6.2 * len(text.get_text()) / (1 if "y" in text.find_parent(class_="axis")["class"] else 2)
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
    path = drawn(series, "line", log=["x", "y"]).select("svg")[0].select_one(".series path.line")
    x0, y0, x1, y1, x2, y2 = numbers(path["d"])
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.2)
    assert y0 - y1 == pytest.approx(y1 - y2, abs=0.2)


def test_areas_stand_on_one_another():
    series = {"Weights": [(0, 2.0), (50, 2.0), (100, 2.0)], "Activations": [(0, 0.0), (50, 4.0), (100, 0.0)]}
    svg = drawn(series, "area").select("svg")[0]
    weights, activations = [numbers(path["d"]) for path in svg.select(".series path.line")]
    ground, floor = weights[1], weights[3]  # the outline of an area begins on what it stands on
    assert activations[1] == pytest.approx(floor, abs=0.2)
    assert ground - activations[3] == pytest.approx(3 * (ground - floor), rel=0.02)


def test_bars_are_as_long_as_their_values_and_say_them():
    svg = drawn(BARS, "bar").select("svg")[0]
    short, long = sorted(float(bar["width"]) for bar in svg.select(".bar rect"))
    assert long / short == pytest.approx(28.9 / 6.04, rel=0.02)
    assert {text.get_text() for text in svg.select(".value")} == {"28.9", "6.04"}


def test_a_phone_shows_the_start_of_a_long_name_and_a_desktop_all_of_it():
    desktop, phone = drawn(BARS, "bar").select("svg")
    assert "mixed bf16, 4 x batch 8, checkpointing" in desktop.get_text()
    assert "mixed bf16, 4 x batch 8…" in phone.get_text()


def test_one_series_needs_no_legend_and_several_have_one():
    assert not drawn(BARS, "bar").select(".legend")
    assert [name.get_text() for name in drawn(CURVES, "line").select(".legend li")] == ["Plain", "Checkpointed"]


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
