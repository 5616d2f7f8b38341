"""Arithmetic in a sentence is computed again."""

import pytest

from evidence.site import arithmetic


@pytest.mark.parametrize(
    "written",
    [
        "`32e9 x 2 bytes / 8 = 8 GB`",
        "`16 + 9 = 25 GB`",
        "`234 / 40 = 6 tokens/s`",
        "`16 KB / 4 GB/s = 4 µs`",
        "`1.39e14 / 1.65e14 = 84 %`",
        "`32 heads x 2,048² x 4 bytes =\n0.54 GB`",
        "`1,000 / (0.76 - 0.575 x 0.30) = 1,700 hours`",
        "`8.6e9 x 23 = 200 GB`",
        "`16384 x 56 KiB = 896 MiB`",
        "`1 / 0.1 = 10`",
    ],
)
def test_a_right_result_passes(written):
    assert arithmetic.value(" ".join(written.strip("`").split()).split(" = ")[0]), "it is read as arithmetic"
    assert not arithmetic.wrong_result(written)


@pytest.mark.parametrize(
    ("written", "right"),
    [
        ("`32e9 x 2 bytes / 8 = 9 GB`", "8 GB"),
        ("`32e8 x 2 bytes / 8 = 8 GB`", "0.8 GB"),
        ("`16 KB / 4 GB/s = 4 ms`", "0.004 ms"),
        ("`1.39e14 / 1.65e14 = 85 %`", "84.24 %"),
        ("`32 heads x 2,048² x 4 bytes = 0.53 GB`", "0.5369 GB"),
        ("`32 x 8192 x 8192 x 4 bytes = 8 GB`", "8.59 GB"),
        ("`24 / 3 = 7`", "8"),
        ("`24 / 3 ≈ 7`", "8"),
    ],
)
def test_a_wrong_one_is_named_with_the_right_one(written, right):
    assert arithmetic.wrong_result(written) == right


@pytest.mark.parametrize("written", ["`epsilon=3e-4, epsilon_high=4e-4`", "`a = 3 x b`", "`--flag x=3`", "`x * 3 = 4`", "`1 / 0 = 5`", "`2 ( 3 = 4`"])
def test_code_is_no_arithmetic(written):
    assert not arithmetic.wrong_result(written)


def test_a_page_with_a_wrong_result_is_named_with_its_line():
    (problem,) = arithmetic.problems("docs/x.md", "Some text.\n\nIt takes `2 x 3 GB = 7 GB` in\nall.", 10)
    assert str(problem) == "docs/x.md:12: `2 x 3 GB = 7 GB` is 6 GB. Fix: correct the result, or a term"
