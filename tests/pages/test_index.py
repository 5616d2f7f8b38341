"""docs/index.md: two clicks lead to every page."""

import re
from pathlib import Path, PurePosixPath

from built import ROOT

DOCS = ROOT / "docs"
LISTS = ("guides.md", "notebooks.md", "symptoms.md")


def links(page):
    """The pages that a page links to, as paths below docs/."""
    found = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", (DOCS / page).read_text())
    folder = PurePosixPath(page).parent
    return {Path(str(folder / link)).as_posix() for link in found if not link.startswith("https://")}


def test_two_clicks_lead_from_the_overview_to_every_page():
    assert set(LISTS) <= links("index.md")
    reached = links("index.md").union(*(links(page) for page in LISTS))
    pages = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")} - {"index.md"}
    notebooks = {f"notebooks/{path.name}" for path in (ROOT / "notebooks").glob("*.ipynb")}
    assert not (pages | notebooks) - reached
