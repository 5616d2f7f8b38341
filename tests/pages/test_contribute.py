"""docs/contribute.md and CONTRIBUTING.md: what they tell a contributor to do works."""

import json
import re

import pytest
from programs import ROOT, run

from evidence import cited, notebooks, records

SHELL = sorted((ROOT / "snippets" / "contribute").glob("*.sh"))


def test_the_row_of_a_cited_figure_is_one_of_the_project():
    shown = cited.load(ROOT / "snippets" / "contribute" / "cited.yaml").data["claims"]
    assert shown.items() <= cited.load(ROOT / "results/attention_and_loss/cited.yml").data["claims"].items()


def test_a_claim_of_a_notebook_in_its_smallest_form_runs():
    printed = run("contribute/claim.py").stdout
    assert re.search(r"Activation checkpointing cuts the peak memory of a step: [\d.]+x", printed), printed


def test_a_step_that_one_timed_is_printed_beside_its_prediction_and_as_a_row():
    printed = run("contribute/own_step.py").stdout
    row = json.loads(printed[printed.index("{") :])
    assert "seconds of an update" in printed and (row["seconds"], row["gpu"]) == (4.2, "t4")


def test_every_message_of_the_page_is_one_that_the_code_gives():
    code = "".join(path.read_text() for folder in ("evidence", "dryrun/tables") for path in sorted((ROOT / folder).rglob("*.py")))
    table = (ROOT / "docs" / "contribute.md").read_text().split("| Message |")[1].split("\n\n")[0]
    messages = [message for row in table.splitlines()[2:] for message in re.findall(r"`([^`]+)`", row.split(" | ")[0])]
    assert len(messages) > 10
    for message in messages:  # an ellipsis stands for what differs from case to case
        for words in filter(None, message.split("…")):
            assert words in code, f"{message}: nothing in the code says {words!r}"


@pytest.mark.parametrize("name", ["PULL_REQUEST_TEMPLATE.md", "ISSUE_TEMPLATE/figure.yml"])
def test_a_claim_that_a_form_names_as_an_example_exists(name):
    named = re.findall(r"\b([a-z_]+):([a-z]+(?:-[a-z0-9]+)+)", (ROOT / ".github" / name).read_text())
    assert named
    for notebook, claim in named:
        assert records.find(records.load_all(ROOT / "results"), notebook, claim)


def test_notebooks_named_in_commands_exist():
    named = re.findall(r"NOTEBOOKS=([a-z_]+)", " ".join(path.read_text() for path in [*SHELL, ROOT / "Makefile"]))
    assert named
    assert set(named) <= set(notebooks.names())
