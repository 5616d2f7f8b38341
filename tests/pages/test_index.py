"""docs/index.md: the entry point leads on by task, hardware and symptom; two clicks lead to every page."""

import re
from pathlib import Path, PurePosixPath

import pytest
from built import ROOT

DOCS = ROOT / "docs"
DOORS = ("training/one-gpu.md", "training/many-gpus.md", "inference/one-gpu.md", "training/hardware.md", "debugging.md")
LISTS = ("guides.md", "notebooks.md", "symptoms.md")


def links(page):
    """The pages that a page links to, as paths below docs/."""
    found = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", (DOCS / page).read_text())
    folder = PurePosixPath(page).parent
    return {Path(str(folder / link)).as_posix() for link in found if not link.startswith("https://")}


def section(identifier, page="index.md"):
    return (DOCS / page).read_text().split(f"{{ #{identifier} }}")[1].split("\n## ")[0]


def rows(identifier, page="index.md"):
    """The cells of the first table of a section, row by row, without the line below the heads."""
    lines = [line for line in section(identifier, page).splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines]
    return [cells[0], *cells[2:]]


def test_two_clicks_lead_from_the_overview_to_every_page():
    assert set(LISTS) <= links("index.md")
    reached = links("index.md").union(*(links(page) for page in LISTS))
    pages = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")} - {"index.md"}
    notebooks = {f"notebooks/{path.name}" for path in (ROOT / "notebooks").glob("*.ipynb")}
    assert not (pages | notebooks) - reached


@pytest.mark.parametrize("page", DOORS)
def test_a_door_of_the_overview_is_a_heading_that_links_to_its_guide(page):
    assert re.search(rf"^### \[[^\]]+\]\({re.escape(page)}\)", section("start"), re.MULTILINE)


def test_the_list_of_guides_sends_everybody_on_by_hardware():
    heads, *body = rows("start", "guides.md")
    assert heads == ["You have", "Start here", "Then"]
    for _, start, then in body:
        assert re.match(r"\*\*\[.+\]\(.+\)\*\*", start) and "](" in then


def test_the_first_table_answers_for_a_model_and_the_chosen_gpu_whether_it_trains_and_runs_and_how_fast():
    heads, *body = rows("your-model")
    assert heads == ["Model", "Fine-tuning", "One answer"] and body
    for _, train, run in body:
        assert train.startswith("[[model_on_gpu:train-") and run.startswith("[[model_on_gpu:run-")


def test_each_guide_has_a_line_that_says_what_it_answers():
    for identifier in ("training", "inference"):
        _, *body = rows(identifier, "guides.md")
        assert body and all(len(row[2]) > 40 for row in body if "](" in row[0])
