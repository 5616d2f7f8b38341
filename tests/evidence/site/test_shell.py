"""What surrounds every page, in a real browser: colours, search on demand, contents, copying, navigation, policy."""

import re

import built
import pytest
from test_machine_switch import address, host, two  # noqa: F401, the fixtures

from evidence.site.browser import PHONE

BACKGROUND = "getComputedStyle(document.body).backgroundColor"
PAPER, NIGHT = "rgb(255, 255, 255)", "rgb(18, 24, 29)"


@pytest.fixture
def tab(address):  # noqa: F811
    """The small site's overview; whatever its console says fails the test."""
    with built.tab() as opened, built.console(opened) as messages:
        opened.goto(address)
        yield opened
        assert messages == []


def fetched(host):  # noqa: F811
    return {re.sub(r"\.[0-9a-f]{8}\.", ".", path) for path, _ in host.served}


SEARCH = {
    "assets/javascripts/bundle.min.js",
    "assets/search.js",
    "assets/javascripts/workers/search.min.js",
    "search/search_index.json",
}


def test_the_search_and_its_index_are_fetched_when_somebody_searches_and_not_before(tab, host):  # noqa: F811
    tab.wait_for_load_state("networkidle")
    before = fetched(host)
    assert "assets/shell.js" in before and not before & SEARCH
    assert not [path for path in before if "search" in path or "bundle" in path]
    tab.keyboard.press("/")
    tab.keyboard.type("quagmire")
    tab.locator(".md-search-result__item a").first.wait_for()
    assert not SEARCH - fetched(host)
    tab.locator(".md-search-result__item a[href$='#errors']").wait_for(state="attached")


def test_who_arrives_from_a_result_sees_his_words_marked_and_fetches_no_index(tab, address, host):  # noqa: F811
    tab.goto(f"{address}?h=quagmire+tests")
    tab.wait_for_load_state("networkidle")
    marked = (
        "[...CSS.highlights.get('found')].map(one => one.startContainer.data.slice(one.startOffset, one.endOffset))"
    )
    assert {"quagmire", "tests"} == set(tab.evaluate(marked))
    assert not fetched(host) & SEARCH


def test_colours_follow_the_system_until_the_reader_chooses_and_then_stay(tab):
    assert tab.evaluate(BACKGROUND) == PAPER
    tab.emulate_media(color_scheme="dark")
    assert tab.evaluate(BACKGROUND) == NIGHT
    tab.click("#scheme")
    assert tab.evaluate(BACKGROUND) == PAPER
    tab.reload()
    assert tab.evaluate(BACKGROUND) == PAPER
    tab.click("#scheme")
    assert tab.evaluate(BACKGROUND) == NIGHT
    tab.emulate_media(media="print")
    assert tab.evaluate(BACKGROUND) == PAPER


def test_colours_need_no_script(address):  # noqa: F811
    with built.tab(scripts=False, color_scheme="dark") as tab:
        tab.goto(address)
        assert tab.evaluate(BACKGROUND) == NIGHT


def test_a_block_of_code_is_copied_as_it_stands(tab):
    tab.context.grant_permissions(["clipboard-read", "clipboard-write"])
    tab.locator("article pre").first.hover()
    tab.click("article pre .copy")
    tab.locator(".copy", has_text="Copied").wait_for()
    assert tab.evaluate("navigator.clipboard.readText()") == "print('step')\n"


def test_the_contents_tell_where_one_is(tab):
    active = ".md-sidebar--secondary .md-nav__link--active"
    assert tab.locator(active).count() == 0
    tab.set_viewport_size({"width": 1280, "height": 300})
    tab.evaluate("document.getElementById('errors').scrollIntoView()")
    tab.locator(active).wait_for()
    assert tab.locator(active).inner_text().strip() == "Error messages"


def test_on_a_phone_the_navigation_opens_and_closes_by_keyboard(tab):
    tab.set_viewport_size(PHONE)
    button = tab.locator("button[data-toggles=__drawer]")
    button.focus()
    tab.keyboard.press("Enter")
    assert tab.evaluate("!!document.activeElement.closest('.md-sidebar--primary')")
    tab.keyboard.press("Escape")
    assert not tab.is_checked("#__drawer")
    assert tab.evaluate("document.activeElement.dataset.toggles") == "__drawer"


def test_a_page_is_never_wider_than_a_phone(tab):
    tab.set_viewport_size(PHONE)
    assert tab.evaluate("document.documentElement.scrollWidth") == PHONE["width"]


def test_the_policy_refuses_a_script_and_a_style_that_it_does_not_name(address):  # noqa: F811
    with built.tab() as tab:
        tab.goto(address)
        tab.evaluate("""() => {
            document.head.append(Object.assign(document.createElement("script"), {textContent: "window.injected = true"}))
            document.head.append(Object.assign(document.createElement("style"), {textContent: "body { background: red }"}))
        }""")
        assert tab.evaluate("window.injected") is None and tab.evaluate(BACKGROUND) == PAPER


def test_the_site_works_from_a_folder_of_the_disk(host):  # noqa: F811
    """But for the search, whose index a browser does not read from there."""
    with built.tab() as tab, built.console(tab) as messages:
        tab.goto((host.site / "index.html").as_uri())
        tab.select_option("#machine", "test-machine")
        assert "2.3x" in tab.locator("article p button.claim").nth(1).inner_text()
        tab.click("#scheme")
        assert tab.evaluate(BACKGROUND) == NIGHT and messages == []
        tab.evaluate("localStorage.clear()")  # the only address that a later test may have too
