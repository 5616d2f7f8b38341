"""evidence/charts.py: what a chart shows is what its values are, at both widths, whatever fonts a machine has."""

import re

import pytest
from bs4 import BeautifulSoup

from evidence import charts

TWO = {"plain": [(1, 5.0), (64, 36.6)], "checkpointed": [(1, 5.0), (64, 8.7)]}


def drawn(series, mark, log=(), x_title="Batch size"):
    return BeautifulSoup(charts.draw(series, mark, x_title, "GiB", log, "What it shows."), "html.parser").find_all(
        "svg"
    )


def words(drawing):
    return [text.get_text() for text in drawing.find_all("text")]


@pytest.mark.parametrize("mark", charts.MARKS)
def test_a_chart_is_drawn_for_a_desktop_and_for_a_phone_with_its_words_for_who_cannot_see_it(mark):
    drawings = drawn(TWO, mark)
    assert [drawing["width"] for drawing in drawings] == ["680", "320"]
    assert {(drawing["role"], drawing["aria-label"]) for drawing in drawings} == {("img", "What it shows.")}


@pytest.mark.parametrize("mark", charts.MARKS)
def test_nothing_of_a_chart_is_cut_off(mark):
    """A character is taken as 6.1 wide, more than it is in 11 px."""
    for drawing in drawn(TWO, mark):
        width, height = float(drawing["width"]), float(drawing["height"])
        for text in drawing.find_all("text"):
            before = {"end": 1, "middle": 0.5}.get(text.get("text-anchor"), 0) * 6.1 * len(text.get_text())
            start = float(text["x"]) - before
            assert -0.1 <= start and start + 6.1 * len(text.get_text()) <= width + 0.1, text
            assert 0 < float(text["y"]) <= height, text


def test_a_line_rises_as_its_values_do_and_both_start_at_the_same_point():
    plain, checkpointed = [
        [tuple(map(float, point.split(","))) for point in line["points"].split()]
        for line in drawn(TWO, "line")[0].find_all("polyline")
    ]
    assert plain[0] == checkpointed[0]
    assert plain[1][0] == checkpointed[1][0] and plain[1][1] < checkpointed[1][1] < plain[0][1]


def test_on_logarithmic_axes_equal_ratios_are_equal_distances():
    line = drawn({"all": [(1, 1), (10, 100), (100, 10000)]}, "line", ("x", "y"))[0].find("polyline")["points"]
    (x1, y1), (x2, y2), (x3, y3) = [tuple(map(float, point.split(","))) for point in line.split()]
    assert x2 - x1 == pytest.approx(x3 - x2, abs=0.2) and y1 - y2 == pytest.approx(y2 - y3, abs=0.2)


def test_areas_stand_on_one_another():
    low, high = drawn({"low": [(0, 1), (1, 1)], "high": [(0, 2), (1, 2)]}, "area")[0].find_all("polygon")
    assert low["points"].split()[:2] == high["points"].split()[:1:-1]


def test_bars_are_as_long_as_their_values_and_say_them():
    drawing = drawn({"peak": [("fp32", 28.9), ("mixed bf16, 4 x batch 8", 14.45)]}, "bar")[0]
    long, short = [float(bar["width"]) for bar in drawing.find_all("rect")]
    assert long == pytest.approx(2 * short, rel=0.01)
    assert {"fp32", "28.9", "mixed bf16, 4 x batch 8", "14.4", "GiB"} >= set(words(drawing)) - {"14.5"}


def test_on_a_phone_a_long_name_takes_several_lines():
    assert "4 x batch 8" in words(drawn({"peak": [("mixed bf16, 4 x batch 8", 14.4)]}, "bar")[1])


def test_one_series_needs_no_legend_and_several_have_one():
    assert "plain" not in words(drawn({"plain": TWO["plain"]}, "line")[0])
    assert set(TWO) <= set(words(drawn(TWO, "line")[0]))


def test_no_label_of_an_axis_lies_over_another():
    lengths = [128, 130, 132, 512, 513, 32768]
    labels = words(drawn({"all": [(x, x) for x in lengths]}, "line", ("x",), "Tokens")[1])
    assert "128" in labels and "130" not in labels and "512" in labels and "513" not in labels


@pytest.mark.parametrize(
    ("series", "mark", "log", "what"),
    [
        ({"a": []}, "line", (), "there is no value to draw for a"),
        ({"a": [("fp32", 1)]}, "line", (), "needs numbers on its x axis"),
        ({"a": [(0, 1)]}, "line", ("x",), "a logarithmic axis needs values above 0"),
        ({"a": [("fp32", -1)]}, "bar", (), "a bar cannot show a value below 0"),
    ],
)
def test_what_cannot_be_drawn_is_refused(series, mark, log, what):
    with pytest.raises(ValueError, match=re.escape(what)):
        drawn(series, mark, log)
