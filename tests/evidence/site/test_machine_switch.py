"""One choice of a machine for the claims, tables and charts of the whole site, tried with two machines in a real browser."""

import os
import re
import shutil
import subprocess
import sys

import pytest
from bs4 import BeautifulSoup
from built import ROOT, browser, console, tab
from playwright.sync_api import expect
from test_pages import CHART, add_record, block, render, shown

from evidence import records
from evidence.site import pages
from evidence.site.browser import Host

GPU = {"name": "nvidia-x", "label": "NVIDIA X", "gpu": "NVIDIA X", "gpu_memory_gib": 80.0}
PAGE = """---
title: Tiny
---

# Tiny

It takes [[tiny:peak-memory]] and runs at [[tiny:step-speed]] the speed, on a CPU [[tiny:step-speed@cpu]].

```table
table: tiny:by-batch
```

{chart}

## Use it {{ #use }}

```python
--8<-- "guide/step.py:step"
```

## Error messages {{ #errors }}

A sentence of the tests about a quagmire.
"""


@pytest.fixture
def two(repository):
    """A CPU's and a GPU's record, with different measured values; and a claim that only the CPU's has a value for."""

    def measured(data):
        data["tables"]["by-batch"]["kind"] = "measured"
        data["claims"]["cpu-only"] = data["claims"]["step-speed"] | {"value": 3.4}

    repository.change_record(measured)
    add_record(repository, GPU, step_speed=7.5, cpu_only=None)
    gpu = repository.record.with_name("nvidia-x.json")
    gpu.write_text(gpu.read_text().replace("3.0,", "30.5,"))
    assert "30.5," in gpu.read_text()
    return repository


def on(element, machine):
    """What a reader sees of an element who has chosen a machine, as the style in theme/main.html does it."""
    return [choice.text for choice in element.select("[data-on]") if machine in choice["data-on"].split()]


class TestThePage:
    def test_a_measured_claim_holds_the_value_of_every_machine_and_shows_the_first(self, two):
        button = render("[[tiny:step-speed]]").find("button")
        assert on(button, "nvidia-x") == ["7.5x"] and on(button, "test-machine") == ["2.3x"]
        assert shown(button) == "7.5x"

    def test_what_is_the_same_on_every_machine_stands_once(self, two):
        button = render("[[tiny:peak-memory]]").find("button")
        assert not button.select("[data-on]") and button.text == "12.5\u00a0GiB"

    def test_a_claim_about_a_cpu_or_a_gpu_does_not_follow_the_choice(self, two):
        for where, value in (("cpu", "2.3x"), ("gpu", "7.5x")):
            button = render(f"[[tiny:step-speed@{where}]]").find("button")
            assert not button.select("[data-on]") and button.text == value

    def test_where_it_does_not_apply_it_says_so_and_without_a_choice_the_other_machine_counts(self, two):
        button = render("[[tiny:cpu-only]]").find("button")
        assert on(button, "nvidia-x") == ["does not apply"] and on(button, "test-machine") == ["3.4x"]
        assert shown(button) == "3.4x"

    def test_a_machine_without_a_record_of_the_notebook_says_not_measured_and_never_another_value(self, two):
        other = records.RESULTS / "other" / "third.json"
        other.parent.mkdir()
        text = two.record.read_text().replace('"notebook": "tiny"', '"notebook": "other"')
        other.write_text(text.replace('"name": "test-machine"', '"name": "third"'))
        page = render("[[tiny:step-speed]]\n\n" + block("table", table="tiny:by-batch"))
        assert on(page.find("button"), "third") == ["not measured yet"]
        assert on(page, "third")[1] == "Not measured yet on this machine: tiny:by-batch."

    def test_a_measured_table_and_chart_stand_there_for_every_machine(self, two):
        for text in (block("table", table="tiny:by-batch"), block("chart", **CHART)):
            page = render(text)
            assert "30.5" in on(page, "nvidia-x")[0] and "30.5" not in on(page, "test-machine")[0]
            assert "NVIDIA X" in on(page, "nvidia-x")[0] and "Test machine" in on(page, "test-machine")[0]
            assert "30.5" in shown(page)

    def test_a_search_finds_the_first_value_only(self, two):
        """Material ends an exclusion at the first end of an element of the same name."""
        page = render("[[tiny:step-speed]]\n\n" + block("table", table="tiny:by-batch"))
        hidden = page.select("[data-on][hidden]")
        assert len(hidden) == 2 and all(choice.has_attr("data-search-exclude") for choice in hidden)
        assert not [choice for choice in hidden if choice.find(choice.name)]

    def test_with_one_machine_a_page_holds_no_choice(self, repository):
        assert not render(repository.page.read_text().split("---")[2]).select("[data-on]")

    def test_machines_stand_in_the_order_in_which_they_are_shown(self, two):
        add_record(two, {"name": "older"}, date="2020-01-01")
        assert list(pages.machines(pages.stored("results"))) == ["nvidia-x", "test-machine", "older"]


# In the browser


def make_site():
    """Gives the small repository of the tests our theme, assets, hook and settings: a site with one page of its own."""
    for name in ("evidence", "theme"):
        if not os.path.lexists(name):
            os.symlink(ROOT / name, name)
    shutil.copytree(ROOT / "docs" / "assets", "docs/assets", dirs_exist_ok=True)
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    nav = "nav:\n  - Overview: index.md\n  - Notebooks:\n      - Tiny: notebooks/tiny.ipynb\n\n"
    settings, found = re.subn(r"^nav:\n(?:[ #-].*\n|\n)+", nav, text, flags=re.M)
    assert found == 1
    with open("mkdocs.yml", "w", encoding="utf-8") as file:
        file.write(settings)


def build(folder, **environment):
    make_site()
    run = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", folder],
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)} | environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return folder


BUILT = {}  # once for all tests: they only read it


@pytest.fixture
def host(request, tmp_path_factory):
    if not BUILT:
        two = request.getfixturevalue("two")
        two.page.write_text(PAGE.format(chart=block("chart", **CHART | {"description": "Both rise."})))
        BUILT["site"] = build(tmp_path_factory.mktemp("two") / "site")
    with Host(BUILT["site"]) as host:
        yield host


@pytest.fixture
def address(host):
    return host.address


@pytest.fixture
def context():
    opened = browser().new_context()
    yield opened
    opened.close()


VALUES = "[...document.querySelectorAll('article button.claim')].map(button => button.innerText)"
FIGURES = "[...document.querySelectorAll('article :is(table, figure)')].filter(e => e.checkVisibility()).map(e => e.textContent)"
FIRST, CPU = ["12.5\u00a0GiB", "7.5x", "2.3x"], ["12.5\u00a0GiB", "2.3x", "2.3x"]


def test_the_switch_changes_every_claim_table_and_chart_and_holds_on_other_pages_and_visits(address):
    with tab() as opened, console(opened) as messages:
        the_switch_holds(opened, address)
    assert messages == []


def the_switch_holds(tab, address):
    tab.goto(address)
    assert tab.evaluate(VALUES) == FIRST
    assert all("30.5" in text for text in tab.evaluate(FIGURES))
    options = tab.locator("#machine option").all_inner_texts()
    assert options == ["any machine", "NVIDIA X", "Test machine"]
    tab.select_option("#machine", "test-machine")
    assert tab.evaluate(VALUES) == CPU
    shown_now = tab.evaluate(FIGURES)
    assert len(shown_now) == 2 and not any("30.5" in text for text in shown_now)
    other = tab.context.new_page()
    other.goto(f"{address}notebooks/tiny/")
    assert other.input_value("#machine") == "test-machine"
    other.select_option("#machine", "nvidia-x")
    expect(tab.locator("#machine")).to_have_value("nvidia-x")  # the other tab follows
    tab.select_option("#machine", "")
    tab.reload()
    assert tab.evaluate(VALUES) == FIRST and tab.evaluate("document.documentElement.dataset.machine") is None


def test_the_choice_holds_before_the_page_has_a_body(context, address):
    """So that no other value is ever painted."""
    context.add_init_script("""
        localStorage.setItem("machine", "test-machine")
        localStorage.setItem("scheme", "dark")
        new MutationObserver((_, watch) => {
            if (!document.body) return
            window.atFirst = {...document.documentElement.dataset}
            watch.disconnect()
        }).observe(document, {childList: true, subtree: true})
    """)
    tab = context.new_page()
    tab.goto(address)
    assert tab.evaluate("window.atFirst") == {"machine": "test-machine", "scheme": "dark"}
    assert tab.evaluate(VALUES) == CPU


def test_a_machine_that_is_gone_is_forgotten(address):
    with tab() as opened:
        opened.goto(f"{address}404.html")
        opened.evaluate("localStorage.setItem('machine', 'gone')")
        opened.goto(address)
        assert opened.evaluate(VALUES) == FIRST and opened.input_value("#machine") == ""


def test_without_scripts_the_first_machine_is_shown_and_no_switch(address):
    with tab(scripts=False) as opened:
        opened.goto(address)
        buttons = [text.strip() for text in opened.locator("article button.claim").all_inner_texts()]
        assert buttons == FIRST and not opened.locator("#machine").is_visible()
        opened.locator("article button.claim").first.click()
        assert opened.locator(".claim-source").first.is_visible()  # where a figure comes from needs no script either


def test_while_all_records_come_from_one_machine_there_is_no_switch(repository, tmp_path):
    page = BeautifulSoup((build(tmp_path / "built") / "index.html").read_text(), "html.parser")
    assert not page.select("#machine, head style") and page.select("#scheme")
