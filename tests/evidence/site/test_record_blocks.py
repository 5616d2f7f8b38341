"""A `table` or `chart` block that cannot be drawn is named with the line of its key."""

import pytest

CHART = (
    "```chart\ntable: tiny:by-batch\nmark: line\nx: batch\ny: plain\ntitle: Peak memory\ndescription: It rises.\n```"
)


def test_a_sound_chart_passes(problems_of):
    assert problems_of(CHART) == []


@pytest.mark.parametrize(
    ("old", "new", "line", "what"),
    [
        ("x: batch", "x: bach", 4, "table tiny:by-batch has no column bach (did you mean batch?). Fix: take one of batch, plain, checkpointed"),
        ("y: plain", "y: [plain, plane]", 5, "table tiny:by-batch has no column plane (did you mean plain?)"),
        ("description: It rises.\n", "", 1, "a chart without a description. Fix: add `description:`, which is read to those who do not see"),
        ("description: It rises.", "description:", 1, "a chart without a description"),
        ("title: Peak memory\n", "", 1, "a chart without a title. Fix: add `title:`, what the chart shows"),
        ("mark: line\n", "", 1, "a chart without a mark. Fix: add `mark:`, one of line, bar, area"),
        ("mark: line", "mark: lin", 3, "there is no mark lin (did you mean line?). Fix: take one of line, bar, area"),
        ("title:", "names: {plane: Plain}\ntitle:", 6, "table tiny:by-batch has no column plane (did you mean plain?)"),
        ("title:", "log: true\ntitle:", 6, "log: True names no axes. Fix: write [x], [y] or [x, y]"),
        ("title:", "logs: [x]\ntitle:", 6, "a chart has no logs (did you mean log?). Fix: take one of table, mark"),
        ("tiny:by-batch", "tiny:by-bach", 2, "unknown table: no table 'by-bach' in the records of tiny (did you mean by-batch?)"),
        ("tiny:by-batch", "tinny:by-batch", 2, "unknown table: no record of a notebook 'tinny' (did you mean tiny?)"),
        ("table: tiny:by-batch\n", "", 1, "this chart block names no table. Fix: begin with `table: notebook:name`"),
        ("x: batch", "x: [batch", 1, "this chart block is not YAML"),
    ],
)  # fmt: skip
def test_a_chart_that_cannot_be_drawn_is_named(problems_of, old, new, line, what):
    (problem,) = problems_of(CHART.replace(old, new, 1))
    assert problem.startswith(f"{line}: {what}")


def test_an_unknown_column_of_a_table_gets_the_nearest_name(problems_of):
    (problem,) = problems_of("```table\ntable: tiny:by-batch\ncolumns: [batch, plainn]\n```")
    assert problem.startswith("3: table tiny:by-batch has no column plainn (did you mean plain?)")


def test_a_misspelt_key_of_a_table_is_not_ignored(problems_of):
    (problem,) = problems_of("```table\ntable: tiny:by-batch\ncolumnx: [batch]\n```")
    assert problem.startswith("3: a table has no columnx (did you mean columns?)")


@pytest.mark.parametrize("content", ["", "tiny:by-batch", "- 1", "table: 5"])
def test_a_block_that_names_no_table_is_told_how(problems_of, content):
    assert problems_of(f"```table\n{content}\n```") == [
        "1: this table block names no table. Fix: begin with `table: notebook:name`"
    ]
