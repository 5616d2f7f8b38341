"""The last cell of a notebook that a reader runs alone: a table, and a record that goes the contributor's way to the pages."""

import base64
import json
import os
import re
import shutil
import sys
import types
from urllib.parse import parse_qs, urlsplit

import nbformat
import pytest
from bs4 import BeautifulSoup
from nbclient import NotebookClient
from small_site import on, render

from conftest import ROOT
from evidence import claims, compare, contributions, finish, freshness, records, runs
from evidence.problems import Problem

REPOSITORY = "https://github.com/somebody/somewhere"


@pytest.fixture
def installed(repository, tmp_path_factory, monkeypatch, quick_torch):
    """Our packages as pip leaves them: with the published records inside, and without a checkout around them."""
    folder = tmp_path_factory.mktemp("installed")
    for room in ("evidence", "dryrun"):
        shutil.copytree(ROOT / room, folder / room, ignore=shutil.ignore_patterns("__pycache__", "site"))
    shutil.copytree("results", folder / "evidence" / "published")
    about = folder / "performance_and_scalability-0.1.0.dist-info" / "METADATA"
    about.parent.mkdir()
    about.write_text(
        "Metadata-Version: 2.4\nName: performance-and-scalability\nVersion: 0.1.0\n"
        f"Project-URL: Repository, {REPOSITORY}\n"
    )
    quick = os.environ["PYTHONPATH"].split(os.pathsep)[0]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([quick, str(folder)]))
    return folder


def run_alone(repository, tmp_path_factory, change=lambda notebook: None):
    """Runs the .ipynb alone in an empty folder, past what fails; returns what its last cell shows."""
    notebook = nbformat.read(repository.notebook, 4)
    change(notebook)
    alone = str(tmp_path_factory.mktemp("alone"))
    options = {"kernel_name": "python3", "timeout": 60, "allow_errors": True, "extra_arguments": ["--log-level=ERROR"]}
    NotebookClient(notebook, resources={"metadata": {"path": alone}}, **options).execute(env=dict(os.environ))
    said = notebook.cells[-1].outputs
    assert [output.output_type for output in said] == ["display_data"], said
    return said[0].data


def sent(shown):
    """(name, text) of the record that a link downloads."""
    link = BeautifulSoup(shown["text/html"], "html.parser").select_one("a[download]")
    return link["download"], base64.b64decode(link["href"].split(",", 1)[1]).decode()


def test_a_record_from_another_machine_goes_the_contributors_way_to_the_pages(
    repository, installed, tmp_path, tmp_path_factory
):
    shown = run_alone(repository, tmp_path_factory)
    assert "3 of 3 hold" in shown["text/plain"] and "2.3x (Test CPU 2 cores)" in shown["text/plain"]
    assert f"Download it, and send it: {REPOSITORY}/issues/new?template=record.yml" in shown["text/plain"]
    name, text = sent(shown)
    machine = json.loads(text)["machine"]
    assert name == f"tiny.{machine['name']}.json" and machine["name"] != "test-cpu-2core"
    file = tmp_path_factory.mktemp("mail") / name
    file.write_text(text)
    before = repository.record.read_bytes()
    place = contributions.add(file)
    assert place == repository.record.with_stem(machine["name"]) and repository.record.read_bytes() == before
    assert repository.notebook_problems() == []
    page = render("It runs at [[tiny:step-speed]] the speed.")
    assert any("2.3x" in said for said in on(page, machine["name"]))


def test_the_link_opens_a_page_of_the_repository_with_the_record_filled_in(repository, installed, tmp_path_factory):
    shown = run_alone(repository, tmp_path_factory)
    name, text = sent(shown)
    link = BeautifulSoup(shown["text/html"], "html.parser").select("a")[-1]["href"]
    assert link.startswith(f"{REPOSITORY}/new/main?") and len(link) <= finish.LONGEST_ADDRESS
    asked = parse_qs(urlsplit(link).query)
    assert asked["filename"] == [f"results/tiny/{json.loads(text)['machine']['name']}.json"] and asked["value"] == [
        text
    ]


def test_a_record_too_long_for_an_address_gets_a_form_that_github_has(repository):
    path = repository.record
    link = finish.Offer(path, "x" * finish.LONGEST_ADDRESS, REPOSITORY).address
    asked = {key: value[0] for key, value in parse_qs(urlsplit(link).query).items()}
    assert link.startswith(f"{REPOSITORY}/issues/new?")
    assert (asked["notebook"], asked["machine"]) == ("tiny", "test-cpu-2core")
    form = (ROOT / ".github" / "ISSUE_TEMPLATE" / asked["template"]).read_text()
    for field in asked.keys() - {"template", "title"}:
        assert re.search(rf"^    id: {field}$", form, re.M), field


def test_a_changed_notebook_is_compared_and_offers_no_record(repository, installed, tmp_path_factory):
    def change(notebook):
        notebook.cells[4].source = notebook.cells[4].source.replace("2.3", "2.4")

    shown = run_alone(repository, tmp_path_factory, change)
    assert "2.4x" in shown["text/plain"] and finish.CHANGED in shown["text/plain"]
    assert "download" not in shown["text/html"]


def test_a_comment_and_a_cell_that_ran_twice_change_nothing(repository, installed, tmp_path_factory):
    def change(notebook):
        notebook.cells[3].source += "  # mine"
        notebook.cells.insert(4, nbformat.v4.new_code_cell(notebook.cells[3].source))

    assert sent(run_alone(repository, tmp_path_factory, change))


def test_a_bound_that_breaks_lets_a_reader_go_on_and_asks_to_tell_the_project(repository, installed, tmp_path_factory):
    def change(notebook):
        notebook.cells[4].source = notebook.cells[4].source.replace("2.3", "1.05")

    shown = run_alone(repository, tmp_path_factory, change)
    assert "does not hold: 1.05x is under the bound: at least 1.1x" in shown["text/plain"]
    assert "2 of 3 hold, 1 does not hold" in shown["text/plain"] and "a[download]" not in shown["text/html"]
    link = BeautifulSoup(shown["text/html"], "html.parser").select("a")[-1]["href"]
    asked = {key: value[0] for key, value in parse_qs(urlsplit(link).query).items()}
    assert asked["claim"] == "tiny:step-speed" and asked["figure"].startswith("1.05x")
    form = (ROOT / ".github" / "ISSUE_TEMPLATE" / asked["template"]).read_text()
    assert all(re.search(rf"^    id: {field}$", form, re.M) for field in asked.keys() - {"template", "title"})


def test_in_colab_a_button_downloads_the_file_by_its_own_way(repository, installed, tmp_path_factory, monkeypatch):
    downloaded, called = [], {}
    colab = types.ModuleType("google.colab")
    colab.files = types.SimpleNamespace(download=downloaded.append)
    colab.output = types.SimpleNamespace(register_callback=lambda name, function: called.update({name: function}))
    monkeypatch.setitem(sys.modules, "google.colab", colab)
    monkeypatch.setitem(sys.modules, "google", types.SimpleNamespace(colab=colab))
    offer = finish.Offer(repository.record, '{"a": 1}\n', REPOSITORY)
    html = BeautifulSoup(finish._download(offer), "html.parser")
    (name,) = re.findall(r"invokeFunction\('([\w.]+)', \[\], \{\}\)", html.button["onclick"])
    called[name]()
    assert downloaded == ["tiny.test-cpu-2core.json"]
    with open(downloaded[0]) as file:
        assert file.read() == offer.text


def test_in_a_checkout_it_names_the_command_that_keeps_the_record(repository, capsys, monkeypatch):
    monkeypatch.setattr(finish, "CHECKOUT", repository.record.parent.parent)
    monkeypatch.setitem(sys.modules, "IPython.display", None)
    claims.start("tiny")
    finish.finish()
    said = capsys.readouterr().out
    assert "not reached: its cell has not run to its end" in said and said.endswith("make record NOTEBOOKS=tiny\n")


def test_without_a_run_it_says_what_to_do(capsys, machine_of_the_tests):
    finish.finish()
    assert capsys.readouterr().out == "Nothing to compare: no run is open. Fix: Run all cells\n"


def test_the_closing_cell_makes_no_record_stale(repository):
    line = repository.edit(repository.source, "from evidence.finish import finish\n\nfinish()", "print('closed')")
    assert line and freshness.is_of_today(records.load(repository.exact))
    assert any("is not the closing cell of this version" in problem for problem in repository.notebook_problems())


def test_a_record_whose_figures_break_the_schema_is_not_offered(repository):
    opened = {"notebook": "tiny", "date": "2026-10-01", "machine": runs.records.load(repository.record).data["machine"], "software": {"python": "3.11"}}  # fmt: skip
    wrong = {
        "sentence": "A sentence of the tests",
        "kind": "measured",
        "unit": "furlongs",
        "value": 1.0,
        "at_least": 0.5,
    }
    with pytest.raises(Problem, match="no unit 'furlongs'"):
        finish.make_offer(opened, {"claims": {"a": wrong}, "tables": {}}, "0" * 64)
    assert compare.all_hold([])
