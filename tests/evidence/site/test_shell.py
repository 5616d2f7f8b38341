"""What surrounds every page, in a real browser: colors, search on demand, contents, copying, navigation, policy."""

import re

import pytest
from bs4 import BeautifulSoup
from built import console, host, tab
from mkdocs.commands.build import build
from mkdocs.config import load_config
from playwright.sync_api import expect
from small_site import make_site

from evidence.site import context
from evidence.site.browser import PHONE

BACKGROUND = "getComputedStyle(document.body).backgroundColor"
PAPER, NIGHT = "rgb(255, 255, 255)", "rgb(18, 24, 29)"
SEARCH = {
    "assets/find.js",
    "assets/search.js",
    "assets/javascripts/workers/search.min.js",
    "search/search_index.json",
}


def fetched(host):
    return {re.sub(r"\.[0-9a-f]{8}\.", ".", path) for path, _ in host.served}


def test_the_search_and_its_index_are_fetched_when_somebody_searches_and_not_before(small_tab, two_machines):
    small_tab.wait_for_load_state("networkidle")
    before = fetched(two_machines)
    assert "assets/site.js" in before and not before & SEARCH
    assert not [path for path in before if "search" in path or "bundle" in path]
    for _ in range(12):
        small_tab.keyboard.press("Tab")  # past the search box
    small_tab.wait_for_load_state("networkidle")
    assert not fetched(two_machines) & SEARCH and not small_tab.is_checked("#__search")
    small_tab.keyboard.press("/")
    small_tab.keyboard.type("quagmire")
    small_tab.locator(".md-search-result__item a").first.wait_for()
    assert not SEARCH - fetched(two_machines)
    small_tab.locator(".md-search-result__item a[href$='#errors']").wait_for(state="attached")


def test_text_that_a_mouse_pastes_is_searched(small_tab):
    """An input without a key."""
    small_tab.evaluate("""() => {
        const box = document.forms.search.elements.query
        box.value = "RuntimeError: quagmire"
        box.dispatchEvent(new InputEvent("input", {bubbles: true, inputType: "insertFromPaste"}))
    }""")
    small_tab.locator(".md-search-result__item a[href$='#errors']").wait_for()


def test_a_result_shows_the_first_sentence_of_its_section_and_enter_opens_it(small_tab):
    small_tab.keyboard.press("/")
    small_tab.keyboard.type("quagmire")
    result = small_tab.locator(".md-search-result__item").first
    assert result.inner_text() == "Error messages Tiny\n\nA sentence of the tests about a quagmire."
    small_tab.keyboard.press("Enter")
    small_tab.wait_for_url("**/#errors")
    small_tab.wait_for_function("CSS.highlights.get('found').size")
    assert "?" not in small_tab.url  # what one shares is the section


@pytest.mark.parametrize("keys", ["/", "Control+k", "Meta+k"])
def test_a_key_opens_the_search(small_tab, keys):
    small_tab.keyboard.press(keys)
    assert small_tab.evaluate("document.activeElement.name") == "query"


def test_a_typing_error_is_searched_as_the_word_and_named(small_tab):
    small_tab.keyboard.press("/")
    small_tab.keyboard.type("qagmire")
    small_tab.locator(".md-search-result__item a[href$='#errors']").wait_for()
    assert small_tab.locator(".md-search-result__meta").inner_text() == "1 page, with “quagmire” for “qagmire”"


def test_escape_closes_the_search_and_the_focus_stays_where_it_was(small_tab):
    small_tab.keyboard.press("/")
    small_tab.keyboard.type("quagmire")
    small_tab.locator(".md-search-result__item a").first.wait_for()
    small_tab.keyboard.press("ArrowDown")
    assert small_tab.evaluate("document.activeElement.hash") == "#errors"
    small_tab.keyboard.press("Escape")
    assert not small_tab.is_checked("#__search")
    assert small_tab.evaluate("document.activeElement.name") == "query"


def test_a_reader_who_arrives_from_a_result_sees_the_words_marked_and_fetches_no_index(small_tab, two_machines):
    small_tab.goto(f"{two_machines.address}?h=quagmire+tests")
    small_tab.wait_for_load_state("networkidle")
    marked = (
        "[...CSS.highlights.get('found')].map(one => one.startContainer.data.slice(one.startOffset, one.endOffset))"
    )
    assert {"quagmire", "tests"} == set(small_tab.evaluate(marked))
    assert not fetched(two_machines) & SEARCH


def test_of_a_pasted_message_the_rarest_words_are_marked_and_no_single_letter(small_tab, two_machines):
    """`torch._C` leaves a "c", which begins every third word."""
    small_tab.goto(f"{two_machines.address}?h=c+quagmire+a+sentence+of+the+tests+about+tiny+error+messages")
    small_tab.wait_for_function("CSS.highlights.get('found')?.size")
    marked = "[...new Set([...CSS.highlights.get('found')].map(one => one.startContainer.data.slice(one.startOffset, one.endOffset).toLowerCase()))]"
    words = set(small_tab.evaluate(marked))
    assert "quagmire" in words and len(words) <= 6 and min(map(len, words)) > 1


def test_colors_follow_the_system_until_the_reader_chooses_and_then_stay(small_tab):
    assert small_tab.evaluate(BACKGROUND) == PAPER
    small_tab.emulate_media(color_scheme="dark")
    assert small_tab.evaluate(BACKGROUND) == NIGHT
    small_tab.click("#scheme")
    assert small_tab.evaluate(BACKGROUND) == PAPER
    small_tab.reload()
    assert small_tab.evaluate(BACKGROUND) == PAPER
    small_tab.click("#scheme")
    assert small_tab.evaluate(BACKGROUND) == NIGHT
    small_tab.emulate_media(media="print")
    assert small_tab.evaluate(BACKGROUND) == PAPER


def test_colors_need_no_script(two_machines):
    with tab(scripts=False, color_scheme="dark") as opened:
        opened.goto(two_machines.address)
        assert opened.evaluate(BACKGROUND) == NIGHT


def test_the_theme_still_styles_a_page_without_the_rules_that_nothing_meets(small_tab):
    """A rule from the end of its style sheet: the mark behind a heading shows under the mouse only."""
    assert small_tab.evaluate("getComputedStyle(document.querySelector('h2 .headerlink')).opacity") == "0"
    small_tab.hover("#errors")
    expect(small_tab.locator("#errors .headerlink")).to_have_css("opacity", "1")


def test_a_block_of_code_is_copied_as_it_stands(small_tab):
    small_tab.context.grant_permissions(["clipboard-read", "clipboard-write"])
    small_tab.locator("article pre").first.hover()
    small_tab.click("article pre .copy")
    small_tab.locator(".copy", has_text="Copied").wait_for()
    assert small_tab.evaluate("navigator.clipboard.readText()") == "print('step')\n"


def test_the_contents_tell_where_one_is(small_tab):
    active = ".md-sidebar--secondary .md-nav__link--active"
    assert small_tab.locator(active).count() == 0
    small_tab.set_viewport_size({"width": 1280, "height": 300})
    small_tab.evaluate("document.getElementById('errors').scrollIntoView()")
    small_tab.locator(active).wait_for()
    assert small_tab.locator(active).inner_text().strip() == "Error messages"


def test_on_a_phone_the_navigation_opens_and_closes_by_keyboard(small_tab):
    small_tab.set_viewport_size(PHONE)
    small_tab.locator("button[data-toggles=__drawer]").focus()
    small_tab.keyboard.press("Enter")
    assert small_tab.evaluate("!!document.activeElement.closest('.md-sidebar--primary')")
    small_tab.keyboard.press("Escape")
    assert not small_tab.is_checked("#__drawer")
    assert small_tab.evaluate("document.activeElement.dataset.toggles") == "__drawer"


def test_a_column_of_times_sorts_by_speed_and_what_is_not_measured_stays_last(small_tab, two_machines):
    """Half the time is twice the speed, and both forms stand in one column."""
    small_tab.goto(f"{two_machines.address}sorted/")
    rows = "[...document.querySelectorAll('.sortable tbody tr')].map(row => row.cells[0].innerText)"
    rising = ["Slower", "Half the time", "Thrice the speed"]
    for wanted in (rising, rising[::-1]):
        small_tab.click(".sortable thead th:nth-child(2) button")
        assert small_tab.evaluate(rows) == [*wanted, "None"]


MIXED = """() => {
    const box = document.querySelector(".sortable"), cell = text => `<td>${text}</td>`
    const figure = text => `<button class="claim">${text}</button>`
    const rows = ["batch 64: " + figure("12 %") + " less", "at 512 tokens: " + figure("800 MiB"), figure("25 %") + " more",
                  figure("1.5 GiB"), "8B: about the same", figure("40 %") + " less"]
    box.querySelector("tbody").innerHTML = rows.map(text => `<tr>${cell(text)}${cell(text)}</tr>`).join("")
}"""


def test_a_column_of_figures_sorts_by_the_figure_and_never_a_share_among_amounts(small_tab, two_machines):
    """Not by the batch or model that stands before it; less is below more; MiB and GiB are one measure."""
    small_tab.goto(f"{two_machines.address}sorted/")
    small_tab.evaluate(MIXED)
    small_tab.click(".sortable thead th:nth-child(2) button")
    found = small_tab.evaluate(
        "[...document.querySelectorAll('.sortable tbody tr')].map(row => row.cells[0].innerText)"
    )
    assert [text.split(": ")[-1] for text in found] == [
        "40 % less",
        "12 % less",
        "25 % more",
        "800 MiB",
        "1.5 GiB",
        "about the same",
    ]


def test_a_script_and_a_style_in_the_content_of_a_page_are_refused_while_our_own_script_runs(two_machines):
    with tab() as opened, console(opened) as messages:
        opened.goto(f"{two_machines.address}raw/")
        assert "window.injected" in opened.content(), "the page brings no script, so nothing was refused"
        opened.click("#clicked")
        assert opened.evaluate("window.injected") is None
        assert opened.evaluate(BACKGROUND) == PAPER
        opened.click("#scheme")
        assert opened.evaluate("document.documentElement.dataset.scheme") == "dark", "our own script did not run"
    assert len(messages) == 3 and all("Content Security Policy" in message for message in messages)


def test_a_script_and_a_style_that_are_added_later_are_refused_too(two_machines):
    with tab() as opened:
        opened.goto(two_machines.address)
        opened.evaluate("""() => {
            document.head.append(Object.assign(document.createElement("script"), {textContent: "window.injected = true"}))
            document.head.append(Object.assign(document.createElement("style"), {textContent: "body { background: red }"}))
        }""")
        assert opened.evaluate("window.injected") is None and opened.evaluate(BACKGROUND) == PAPER


def test_the_label_of_a_machine_is_text_in_the_header_of_every_page(repository, monkeypatch, tmp_path):
    labels = {"one": "</option><script>alert(1)</script>", "two": '" onclick="alert(1)'}
    monkeypatch.setattr(context, "machines", lambda found: labels)
    make_site()
    build(load_config("mkdocs.yml", site_dir=str(tmp_path / "built")))
    page = BeautifulSoup((tmp_path / "built" / "index.html").read_text(), "html.parser")
    assert [option.text for option in page.select("#machine option")] == [*labels.values()]
    assert [sorted(option.attrs) for option in page.select("#machine option")] == [["value"]] * 2
    assert not [script for script in page.select("script") if "alert" in script.text]


def test_while_all_records_come_from_one_machine_there_is_no_switch(repository, tmp_path):
    make_site()
    build(load_config("mkdocs.yml", site_dir=str(tmp_path / "built")))
    page = BeautifulSoup((tmp_path / "built" / "index.html").read_text(), "html.parser")
    assert not page.select("#machine, head style, [data-on]") and page.select("#scheme")


def test_on_a_phone_a_bar_says_in_which_section_one_is_and_opens_the_contents():
    with tab(PHONE) as opened, console(opened) as messages:
        opened.goto(f"{host().address}training/one-gpu/")
        bar, title = opened.locator(".here"), opened.locator(".here summary")
        assert title.inner_text() == "On this page"
        opened.evaluate("document.getElementById('mixed-precision').scrollIntoView()")
        expect(title).to_have_text("Mixed precision: bf16 or fp16")
        title.focus()
        opened.keyboard.press("Enter")
        active = bar.locator(".md-nav__link--active")
        assert active.inner_text().strip() == "Mixed precision: bf16 or fp16"
        bar.get_by_text("At a glance", exact=True).click()
        expect(bar).not_to_have_attribute("open", "")
        assert opened.evaluate("location.hash") == "#at-a-glance"
        below = opened.evaluate("[document.getElementById('at-a-glance'), document.querySelector('.here')].map(one => one.getBoundingClientRect())")
        assert below[0]["top"] >= below[1]["bottom"] - 1, "the bar covers no heading"
        title.click()
        opened.keyboard.press("Escape")
        expect(bar).not_to_have_attribute("open", "")
        assert messages == []


def test_a_desktop_has_the_contents_beside_the_page_and_no_bar():
    with tab() as opened:
        opened.goto(f"{host().address}training/one-gpu/")
        assert not opened.locator(".here").is_visible()


def test_the_page_that_one_reads_is_in_sight_in_a_long_menu():
    with tab({"width": 1400, "height": 600}) as opened:
        opened.goto(f"{host().address}training/sharding-messages/")
        link = opened.locator(".md-sidebar--primary a.md-nav__link--active").last
        box = link.bounding_box()
        assert 0 < box["y"] < 600 - box["height"]
        assert opened.evaluate("scrollY") == 0


def test_two_switches_have_a_row_of_their_own_on_a_phone_with_whole_labels():
    with tab(PHONE) as opened:
        opened.goto(f"{host().address}training/one-gpu/")
        rows = {round(opened.locator(f"#{name}").bounding_box()["y"]) for name in ("machine", "gpu")}
        assert len(rows) == 1 and rows.pop() > opened.locator("#scheme").bounding_box()["y"] + 20
        assert opened.locator(".site-name").is_visible()
        assert opened.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
