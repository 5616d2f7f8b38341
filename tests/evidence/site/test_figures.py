"""A figure typed by hand is found; conditions, names and cited figures pass."""

import pytest

from evidence.site import figures

LINK_OR_CLAIM = "name a claim, [[notebook:claim]], make the figure the text of a link to its source, or write arithmetic out in backticks with its result"


@pytest.mark.parametrize(
    ("text", "figure"),
    [
        ("It is 2.3x faster.", "2.3x"),
        ("It is 2.3× faster.", "2.3×"),
        ("It is 2.3 x faster.", "2.3 x"),
        ("It is 3 times slower.", "3 times"),
        ("It is 20 % slower.", "20 %"),
        ("It is 20 percent slower.", "20 percent"),
        ("It is 20 – 30 % slower.", "20 – 30 %"),
        ("It takes 12GB (or so).", "12GB"),
        ("It takes 12\u00a0GiB.", "12 GiB"),
        ("It takes 12&nbsp;GiB.", "12&nbsp;GiB"),
        ("It takes **12** GiB.", "12** GiB"),
        ("It takes 1,234.5 MB of it.", "1,234.5 MB"),
        ("It needs < 12 GiB, and a batch > 3.", "12 GiB"),
        ("It reads 3.35 TB/s.", "3.35 TB/s"),
        ("It does 1500 tokens per second.", "1500 tokens per second"),
        ("It takes 90 s.", "90 s"),
        ("It takes ~5 minutes.", "~5 minutes"),
        ("It takes 16 bytes per parameter.", "16 bytes"),
        ("It takes 3 gigabytes.", "3 gigabytes"),
        ("It sends 1.2 Gbit/s.", "1.2 Gbit/s"),
        ("It sends 5 gb per second or 7 Gb per second.", "7 Gb per second"),
        ("It does 312 TFLOPS.", "312 TFLOPS"),
        ("The loss is 0.14 nats higher.", "0.14 nats"),
        ("It takes 40 nanoseconds.", "40 nanoseconds"),
        ("It draws 700 W.", "700 W"),
        ("It costs $2.50 an hour.", "$2.50"),
        ("It is faster by a factor of 2.5.", "factor of 2.5"),
        ("| a | 12 GiB |\n|---|---|", "12 GiB"),
        ("> It takes 12 GiB.", "12 GiB"),
        ("It takes [12 GiB](index.md).", "12 GiB"),
        ('It takes <b class="x">12 GiB</b>.', "12 GiB"),
    ],
)
def test_a_figure_in_digits_is_found(text, figure):
    assert [found for _, found in figures.typed(text)] == [figure]


@pytest.mark.parametrize(
    "text",
    [
        "A batch of 4 x 512 tokens, 32 × 512 tokens, or 1,024 of 4x512.",
        "bf16, fp16, fp32, tf32, int8, and 16-bit weights.",
        "An 8B model, Llama-3-8B, a 1.5B one, GPT-2, and BERT-large.",
        "Python 3.11, torch 2.13.0, transformers 5.23, CUDA 12.8, compute capability 8.0.",
        "Since 2022, in 3 steps, with 24 layers, at batch 1, sections 2.1 to 2.3.",
        "It takes [12 GiB](https://example.org/paper) there.",
        "It is [2.3x faster, says\nits maker](https://example.org/paper).",
        "Set `max_memory={0: '12 GiB'}` or `--limit 20%`.",
        "[[tiny:peak-memory]] at most, [[tiny:step-speed@gpu]] or [[tiny:step-speed@cpu]] faster.",
        "## Title { #at-12-gib }",
        "An image: ![a drawing](assets/12gb.svg)",
        "See https://example.org/12GB for it.",
        "<!-- 12 GiB, to be deleted -->",
        "An H100-80GB, an A100-40GB, a 2-core machine.",
        "Learning rate 5e-5, 0.9 and 0.999.",
        "Over 1 Gbit/s, 400 Gb/s and 2.5 Gbit/s Ethernet, in 16 bits, with 4-bit weights.",
        "A model of ten times the size, half as many bytes, and 3 times in a row.",
        "Its cost is $6ND$ by arithmetic.",
    ],
)
def test_what_is_no_figure_of_a_result_passes(text):
    assert list(figures.typed(text)) == []


def test_a_figure_is_found_at_its_line_and_across_a_line_break():
    text = "First line.\nThe step of this model takes 12\nGiB.\n\nIt takes 7 s."
    assert list(figures.typed(text)) == [(1, "12 GiB"), (4, "7 s")]


@pytest.mark.parametrize("before", ["| ` | a |\n|---|---|", "Text ` of\ntwo lines"])
def test_an_open_quotation_of_code_hides_no_figure_in_a_row_of_a_table(before):
    assert list(figures.typed(f"{before}\n| 12 GiB | b |\n| ` | c |")) == [(2, "12 GiB")]


def test_a_ratio_in_a_comment_is_found_and_a_setting_passes():
    found = {"2.3x faster": ["2.3x"], "about 3x": ["3x"], "1 GiB": [], "10 % of the steps or more": [], "4 x 512 tokens": []}
    assert {comment: figures.typed_in_comment(comment) for comment in found} == found


def test_comments_are_read_and_strings_are_not():
    assert list(figures.comments('x = "# 2x faster"  # 3x faster\n', ".py")) == [(1, "3x faster")]
    assert list(figures.comments("#!/bin/sh\nrun  # 3x faster\necho '2#3'\n", ".sh")) == [(2, "3x faster")]


def test_a_figure_on_a_page_is_named_with_its_fix(problems_of):
    assert problems_of("Text.\n\nIt is 2.3x faster.") == [f"3: a figure typed by hand: 2.3x. Fix: {LINK_OR_CLAIM}"]


@pytest.mark.parametrize("key", ["title", "description"])
def test_a_figure_in_the_front_matter_is_named(repository, key):
    line = repository.edit(repository.page, f"{key}: ", f"{key}: Saves 12 GiB. ")
    (problem,) = repository.page_problems()
    assert problem.startswith(f"{repository.page}:{line}: a figure typed by hand: 12 GiB. Fix: leave it to the page")


@pytest.mark.parametrize("key", ["title", "description"])
def test_a_figure_in_the_words_of_a_chart_is_named(repository, key):
    head, tail = repository.page.read_text().rsplit(f"\n{key}: ", 1)
    repository.page.write_text(f"{head}\n{key}: 2.3x faster. {tail}")
    (problem,) = repository.page_problems()
    fix = "say it without the figure: the table holds it"
    assert problem == f"{repository.page}:{head.count(chr(10)) + 2}: a figure typed by hand: 2.3x. Fix: {fix}"


def test_a_figure_in_the_comment_of_a_snippet_is_named(repository):
    line = repository.edit(repository.snippet, "print('step')", "print('step')  # 2x faster")
    (problem,) = repository.page_problems()
    assert problem.startswith(
        f"{repository.snippet}:{line}: a figure typed by hand in a comment: 2x. Fix: "
    )
