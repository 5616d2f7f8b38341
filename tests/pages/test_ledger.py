"""docs/evidence/ledger.md lists every claim with its value, kind, machine and pages, below the records that hold it."""

import re

import markdown
import pytest
from bs4 import BeautifulSoup
from built import ROOT, source_of

from evidence import schema
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
    found = ledger.select("tbody tr")
    by_id = {"-".join(re.search(r"([^/]+)/#claim-(.+)$", row.a["href"]).groups()): row for row in found}
    assert len(by_id) == len(found)
    return by_id


def test_the_ledger_has_a_row_for_every_claim_of_every_record(rows, found):
    expected = {f"{notebook}-{name}" for notebook, kept in found.items() for r in kept for name in r.data["claims"]}
    assert len(expected) > 50
    assert rows.keys() == expected


def test_each_row_says_value_kind_and_machine_or_source(rows, found):
    for record in (record for kept in found.values() for record in kept):
        for name, claim in record.data["claims"].items():
            row = rows[f"{record.notebook}-{name}"]
            cells = [cell.get_text(" ") for cell in row.select("td")]
            if "on" in claim:
                shown = "GPUs"  # the range of all of them
            else:
                shown = schema.format_value(claim["value"], claim["unit"]) if "value" in claim else claim["because"]
            assert shown in cells[1]
            assert cells[2] == claim["kind"]
            if claim["kind"] == "cited":
                assert claim["source"] == row.select("td")[3].find("a")["href"]
            elif claim["kind"] == "measured":
                assert record.label in cells[3]


def test_each_row_links_to_the_code(rows):
    for row in rows.values():
        link = row.find("a")["href"]
        assert re.search(r"(^../../notebooks/|/tree/main/results/)\w+/#claim-", link)


def test_each_notebook_names_its_records_with_machine_versions_and_date(ledger, found):
    for notebook, kept in found.items():
        kept = [record for record in kept if record.path.suffix == ".json"]  # rows of others are in no run
        line = ledger.find(id=notebook).find_next_sibling("p")
        assert [link["href"] for link in line.select("a")] == [
            f"../../results/{notebook}/{record.path.name}" for record in kept
        ]
        for record in kept:
            assert f"torch {record.data['software']['torch']}" in line.text and record.date in line.text


def test_each_row_links_to_the_pages_that_show_the_claim(rows):
    linked = [(name, link) for name, row in rows.items() for link in row.select("td")[4].select("a")]
    assert len(linked) > 100
    for name, link in linked:
        page = "" if link.text == "overview" else f"{link.text}/"
        assert link["href"] == f"../../{page}"
        assert f"[[{name.replace('-', ':', 1)}" in source_of(page).read_text(encoding="utf-8")


def test_the_form_offers_every_kind_page_and_machine(ledger, found):
    offered = {
        choice["name"]: [option.text for option in choice.select("option")[1:]] for choice in ledger.select("select")
    }
    claims = [claim for kept in found.values() for record in kept for claim in record.data["claims"].values()]
    assert set(offered["kind"]) == {claim["kind"] for claim in claims}
    machines = {record.machine: record.label for kept in found.values() for record in kept if record.machine}
    assert len(offered["machine"]) == len(set(offered["machine"])) == len(machines), "two machines of one kind are told apart"
    assert {option.partition(" (")[0] for option in offered["machine"]} == {label.partition(" (")[0] for label in machines.values()}
    assert "training/one-gpu" in offered["page"]
