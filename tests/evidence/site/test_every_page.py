"""Every page in a real browser: nothing from elsewhere, no error, light enough, and no wider than a phone."""

import os
from functools import cache

import changed
import pytest
from built import browser, host, site_pages

from evidence.site.audit import bar
from evidence.site.browser import PHONE, Visit

WIDTH = "document.documentElement.scrollWidth"

# With CHANGED=origin/main those that the change can touch.
every_page = pytest.mark.parametrize("page", changed.pages(os.environ.get("CHANGED", ""), site_pages()), ids=lambda page: page or "overview")


@cache
def visits(page):
    """One first visit of each page, on a phone."""
    return Visit(browser(), host(), page, look=lambda tab: tab.evaluate(WIDTH))


@every_page
def test_a_page_asks_no_other_host_and_says_nothing_in_the_console(page):
    visit = visits(page)
    assert {"assets/site.css", "assets/site.js"} <= visit.fetched.keys(), "something was kept: this is no first visit"
    assert (visit.hosts, visit.messages) == (set(), [])


@every_page
def test_a_first_visit_is_light(page):
    visit, most = visits(page), bar(page)
    heaviest = sorted(visit.fetched.items(), key=lambda entry: -entry[1])
    assert visit.weight <= most, f"{page}: {visit.weight:,} bytes of at most {most:,}: {heaviest[:5]}"


@every_page
def test_nothing_is_wider_than_a_phone(page):
    width = visits(page).seen
    assert width <= PHONE["width"], f"{page} is {width} pixels wide on a phone of {PHONE['width']}"
