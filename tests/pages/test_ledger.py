"""docs/evidence/ledger.md lists every claim with its value, kind, machine, versions, date and record."""

import markdown
import pytest
from bs4 import BeautifulSoup
from built import ROOT

from evidence import records
from evidence.site.context import stored
from evidence.site.fences import ledger_fence


@pytest.fixture(scope="module")
def found():
    return {notebook: kept for notebook, kept in stored(ROOT / "results")[0].items() if kept}


@pytest.fixture(scope="module")
def ledger():
    page = markdown.Markdown(
        extensions=["evidence.site.pages"],
        extension_configs={"evidence.site.pages": {"results": str(ROOT / "results"), "page": "evidence/ledger.md"}},
    )
    return BeautifulSoup(ledger_fence("", "ledger", "", {}, page), "html.parser")


@pytest.fixture(scope="module")
def rows(ledger):
    """{id: row}."""
    found = ledger.select("tr[id]")
    by_id = {row["id"]: row for row in found}
    assert len(by_id) == len(found)
    return by_id


def test_the_ledger_has_a_row_for_every_claim_of_every_record(rows, found):
    expected = {f"{notebook}-{name}" for notebook, kept in found.items() for r in kept for name in r.data["claims"]}
    assert len(expected) > 50
    assert rows.keys() == expected


def test_each_row_says_value_kind_machine_versions_and_date(rows, found):
    for record in (record for kept in found.values() for record in kept):
        for name, claim in record.data["claims"].items():
            row = rows[f"{record.notebook}-{name}"]
            cells = [cell.get_text(" ") for cell in row.select("td")]
            if "on" in claim:
                shown = "GPUs"  # the range of all of them
            else:
                shown = records.format_value(claim["value"], claim["unit"]) if "value" in claim else claim["because"]
            assert shown in cells[1]
            assert cells[2] == claim["kind"]
            if claim["kind"] == "cited":
                assert claim["source"] == row.select("a")[-1]["href"]
            else:
                assert record.date in cells[3]
                assert record.label in cells[3]
                assert f"torch {record.data['software']['torch']}" in cells[3]


def test_each_row_links_to_the_code_and_to_the_record(rows):
    for row in rows.values():
        links = [link["href"] for link in row.select("a")]
        assert links[0].startswith("../../notebooks/") and "#claim-" in links[0]
        assert links[1].startswith("../../results/") or links[1].startswith("https://")
