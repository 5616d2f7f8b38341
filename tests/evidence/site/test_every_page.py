"""Every page in a real browser: nothing from elsewhere, no error, light enough, and no wider than a phone."""

import pytest
from built import browser, host, site_pages

from evidence.site.audit import bar
from evidence.site.browser import PHONE, Visit

WIDTH = "document.documentElement.scrollWidth"
# One of each kind: overview, guide, reference of messages, planner, paste box, ledger, notebook, recipe.
KINDS = ["", "training/one-gpu/", "inference/server-messages/", "your-model/", "debugging/", "evidence/ledger/", "notebooks/throughput/", "notebooks/recipes/finetune_chat_model/"]
PAGES = [pytest.param(page, marks=[] if page in KINDS else pytest.mark.nightly, id=page or "overview") for page in site_pages()]


@pytest.mark.parametrize("page", PAGES)
def test_a_first_visit_asks_no_other_host_is_light_and_fits_a_phone(page):
    visit, most = Visit(browser(), host(), page, look=lambda tab: tab.evaluate(WIDTH)), bar(page)
    assert {"assets/site.css", "assets/site.js"} <= visit.fetched.keys(), "something was kept: this is no first visit"
    assert (visit.hosts, visit.messages) == (set(), [])
    heaviest = sorted(visit.fetched.items(), key=lambda entry: -entry[1])
    assert visit.weight <= most, f"{page}: {visit.weight:,} bytes of at most {most:,}: {heaviest[:5]}"
    assert visit.seen <= PHONE["width"], f"{page} is {visit.seen} pixels wide on a phone of {PHONE['width']}"


def test_the_kinds_of_pages_are_pages():
    assert set(KINDS) <= set(site_pages())
