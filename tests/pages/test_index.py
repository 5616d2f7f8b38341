"""docs/index.md: the entry point leads to every page, from every task, hardware and symptom."""

import re

from built import ROOT

PAGE = (ROOT / "docs" / "index.md").read_text()
LINKS = [link for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", PAGE) if not link.startswith("https://")]


def section(identifier):
    return PAGE.split(f"{{ #{identifier} }}")[1].split("\n## ")[0]


def test_the_overview_leads_to_every_page_of_the_site():
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")} - {"index.md"}
    notebooks = {f"notebooks/{path.name}" for path in (ROOT / "notebooks").glob("*.ipynb")}
    assert pages | notebooks <= set(LINKS)


def test_one_starts_from_the_hardware_from_training_from_both_or_from_a_symptom():
    for identifier in ("start", "training", "both", "symptoms"):
        assert section(identifier).count("](") >= 2


def test_the_first_table_sends_everybody_on_by_hardware():
    rows = [row.strip("| ").split(" | ") for row in section("start").splitlines() if row.startswith("|")]
    assert rows[0] == ["You have", "Start here", "Then"]
    assert len(rows) > 4 and {len(row) for row in rows[2:]} == {3}
    for _, start, then in rows[2:]:
        assert re.match(r"\*\*\[.+\]\(.+\)\*\*", start) and "](" in then


def test_the_first_table_answers_for_a_model_and_the_chosen_gpu_whether_it_trains_and_runs_and_how_fast():
    rows = [row.strip("| ").split(" | ") for row in section("your-model").splitlines() if row.startswith("|")]
    assert rows[0] == ["Model", "Fine-tuning", "One answer"] and len(rows) == 9
    for _, train, run in rows[2:]:
        assert train.startswith("[[model_on_gpu:train-") and run.startswith("[[model_on_gpu:run-")


def test_the_first_table_stands_on_the_first_screen():
    """Title, two sentences, table: nothing between a reader and his way."""
    before = PAGE.split("# Performance and Scalability")[1].split("| Model |")[0]
    assert len(before.split()) < 90


def test_each_guide_has_a_line_that_says_what_it_answers():
    rows = [
        row for row in (section("training") + section("inference")).splitlines() if row.startswith("|") and "](" in row
    ]
    assert rows
    assert all(len(row.split("|")[3]) > 40 for row in rows)


def test_who_claims_that_a_is_better_than_b_brings_a_benchmark_or_a_source():
    text = " ".join(section("contribute").split())
    assert "who claims that A is better than B brings a reproducible benchmark, or a link to the source" in text
