"""What the site does in a real browser, on some pages of each kind: search, tables, the ledger, and nothing that axe-core finds wrong."""

import pytest
from built import browser, host, tab

from evidence.problems import Problem
from evidence.site.audit import SEARCH
from evidence.site.browser import DESKTOP, LOOKS, PHONE, Host, Visit, executable, violations

# axe looks at these as a whole: the overview, a guide with figures of all four kinds, tables, charts, folds and notes, the
# page on evidence, a notebook, the page for a lost reader. `make audit` looks at every page.
JUDGED = ["", "training/attention-and-loss/", "training/one-gpu/", "evidence/", "notebooks/memory_anatomy/", "404.html"]
IN_CORE = {("training/attention-and-loss/", "light"), ("notebooks/memory_anatomy/", "dark"), ("", "light")}
PHONE_LIGHT, DESKTOP_DARK = (next(look for look in LOOKS if look[1:] == wanted) for wanted in ((PHONE, "light"), (DESKTOP, "dark")))
TWO_LOOKS = [PHONE_LIGHT, DESKTOP_DARK]  # each width and each scheme


def looks(core=("light", "dark")):
    """The looks at a page; those that are not in the core each night."""
    return pytest.mark.parametrize(
        ("viewport", "scheme"),
        [pytest.param(*look[1:], marks=[] if look[2] in core else pytest.mark.nightly, id=f"{look[0]}-{look[2]}") for look in TWO_LOOKS],
    )


def judged():
    return [pytest.param(page, *look[1:], marks=[] if (page, look[2]) in IN_CORE else pytest.mark.nightly, id=f"{page or 'overview'}-{look[2]}")
            for page in JUDGED for look in TWO_LOOKS]  # fmt: skip


def refuse(problems):
    if problems:
        pytest.fail("\n".join(problems), pytrace=False)


def test_the_search_is_light_when_it_opens():
    def look(tab):
        tab.keyboard.press("/")
        tab.keyboard.type("memory")
        tab.locator(".md-search-result__item").first.wait_for()

    parts = ("assets/find.js", "assets/search.js", "assets/javascripts/workers/", "search/")
    fetched = Visit(browser(), host(), "", look=look).fetched
    found = {path: size for path, size in fetched.items() if path.startswith(parts)}
    assert len(found) == 4 and sum(found.values()) <= SEARCH, found


OPEN_ALL = """() => {
    document.querySelectorAll("article details").forEach(fold => { fold.open = true })
    document.querySelectorAll(".tabbed-block").forEach(block => { block.style.display = "block" })
}"""
CLIPPED = """[...document.querySelectorAll("article .highlight code")]
    .filter(code => !code.closest(".nb-output") && code.scrollWidth > code.clientWidth + 1).map(code => code.innerText.slice(0, 60))"""
TABLES = """[...document.querySelectorAll("article .scroll")].map(box => {
    const columns = [...box.querySelectorAll("tr > :first-child")]
    const more = box.scrollWidth > box.clientWidth + 1 && !getComputedStyle(box).backgroundImage.includes("gradient")
    return [box.innerText.slice(0, 60), more, columns.some(cell => cell.scrollWidth > cell.clientWidth + 1)]
})"""
LONG = ["training/one-gpu/", "debugging/", "inference/cpu/", "training/launching/", "notebooks/throughput/"]


@pytest.mark.nightly
@pytest.mark.parametrize("page", LONG)
def test_on_a_laptop_no_code_hides_the_end_of_a_line(page):
    with tab({"width": 1400, "height": 900}) as opened:
        opened.goto(host().address + page)
        opened.evaluate(OPEN_ALL)
        assert opened.evaluate(CLIPPED) == []


@pytest.mark.parametrize("page", ["training/many-gpus/", "training/launching/", "evidence/", "hardware/accelerators/"])
def test_on_a_phone_a_shade_tells_that_a_table_goes_on_and_its_first_column_cuts_no_word(page):
    with tab(PHONE) as opened:
        opened.goto(host().address + page)
        opened.evaluate(OPEN_ALL)
        tables = opened.evaluate(TABLES)
        assert tables and [table for table in tables if table[1] or table[2]] == []


def test_what_a_page_asks_late_counts_too_and_its_own_host_is_no_other():
    def look(tab):
        for address in ("late.png", "http://elsewhere.invalid/late.png"):
            tab.evaluate("address => fetch(address, {mode: 'no-cors'}).catch(() => {})", address)

    assert Visit(browser(), host(), "", look=look, bypass_csp=True).hosts == {"elsewhere.invalid"}


@pytest.mark.parametrize(("page", "viewport", "scheme"), judged())
def test_axe_finds_nothing_wrong_with_a_page(page, viewport, scheme):
    with tab(viewport, scheme) as opened:
        opened.goto(host().address + page)
        opened.evaluate("document.querySelectorAll('details').forEach(fold => { fold.open = true })")
        refuse(violations(opened))


@pytest.mark.nightly
@looks()
def test_axe_finds_nothing_wrong_with_what_a_figure_opens(viewport, scheme):
    with tab(viewport, scheme) as opened:
        opened.goto(f"{host().address}training/attention-and-loss/")
        opened.evaluate("document.querySelectorAll('details').forEach(fold => { fold.open = true })")
        names = opened.evaluate("[...document.querySelectorAll('[popover]')].map(box => box.id)")
        assert names
        for name in names:
            opened.locator(f"[popovertarget={name}]").first.click()
            opened.locator(f"#{name}").wait_for(state="visible")
            refuse([f"{name}: {problem}" for problem in violations(opened, f"#{name}")])
        opened.evaluate("scrollTo(0, 0)")  # where no entry of the contents is cut in half
        refuse(violations(opened))  # the whole page with the last of them open


@looks(core=["dark"])
def test_axe_finds_nothing_wrong_with_the_results_of_a_search(viewport, scheme):
    with tab(viewport, scheme) as opened:
        opened.goto(host().address)
        opened.keyboard.press("/")
        opened.keyboard.type("memory")
        opened.locator(".md-search-result__item").first.wait_for()
        refuse(violations(opened, ".md-search"))


@looks(core=["light"])
@pytest.mark.parametrize("question", ["task=full&model=llama3.2-1b&gpu=rtx-4090&gpus=4&tokens=20B", "task=infer&model=llama3-70b&gpu=rtx-3090&price=1"])
def test_axe_finds_nothing_wrong_with_an_answer_of_the_planner(question, viewport, scheme):
    with tab(viewport, scheme) as opened:
        opened.goto(f"{host().address}your-model/?{question}")
        opened.locator("#planner-answer[aria-busy=false] h2:has-text('What would')").wait_for(timeout=60_000)
        refuse(violations(opened))


def test_a_search_on_a_phone_is_as_wide_as_the_phone():
    """A phone shows the whole width of a page, so what is wider makes everything else small."""
    context = browser().new_context(viewport=PHONE, is_mobile=True, has_touch=True)
    try:
        opened = context.new_page()
        opened.goto(host().address)
        opened.locator("button[data-toggles=__search]").first.click()
        opened.keyboard.type("memory")
        opened.locator(".md-search-result__item").first.wait_for()
        assert opened.evaluate("[innerWidth, document.querySelector('.md-search-result__item').getBoundingClientRect().width]") == [PHONE["width"]] * 2
    finally:
        context.close()


LEDGER_ROWS = (
    "[...document.querySelectorAll('.ledger tbody tr')].filter(row => row.checkVisibility()).map(row => row.id)"
)


def test_the_ledger_shows_what_its_form_asks_for_and_is_folded_until_then():
    with tab(PHONE) as opened:
        opened.goto(f"{host().address}evidence/ledger/")
        assert opened.evaluate(LEDGER_ROWS) == []
        assert opened.evaluate("document.documentElement.scrollHeight") < 20 * PHONE["height"]
        opened.select_option("#ledger-filter [name=kind]", "predicted")
        predicted = opened.evaluate(LEDGER_ROWS)
        open_folds, folds = (opened.locator(f".fold{state} summary:visible").count() for state in ("[open]", ""))
        assert open_folds == folds > 0, "a notebook without such a claim is still there"
        assert predicted and opened.locator("#ledger-filter output").inner_text() == f"{len(predicted)} claims"
        opened.goto(f"{host().address}evidence/ledger/?page=training/optimizers&kind=traced")
        opened.select_option("#ledger-filter [name=kind]", "")
        opened.fill("#ledger-filter [name=words]", "AdamW")
        assert opened.evaluate("location.search") == "?page=training%2Foptimizers&words=AdamW", "the address is not of what is shown"
        opened.fill("#ledger-filter [name=words]", "no claim says this")
        assert opened.locator("#ledger-filter output").inner_text() == "No claim: take a word or a choice away"
        opened.goto(f"{host().address}evidence/ledger/?page=training/optimizers&kind=traced")
        found = opened.evaluate(LEDGER_ROWS)
        rows = opened.locator(".ledger tbody tr")
        texts = [opened.locator(f"[id='{name}']").inner_text() for name in found[:20]]
        assert 0 < len(found) < rows.count() and all("training/optimizers" in text for text in texts)


def test_an_address_leads_to_a_claim_of_the_ledger_and_words_find_it_by_its_name():
    with tab() as opened:
        opened.goto(f"{host().address}evidence/ledger/#memory_anatomy-fp32-bytes-per-parameter")
        row = opened.locator("tr:target")
        assert row.is_visible() and row.locator("code").inner_text() == "fp32-bytes-per-parameter"
        assert 0 <= row.bounding_box()["y"] < DESKTOP["height"]
        opened.fill("#ledger-filter [name=words]", "fp32-bytes-per")
        assert "memory_anatomy-fp32-bytes-per-parameter" in opened.evaluate(LEDGER_ROWS)


def test_axe_does_find_what_is_wrong():
    """An image without words, gray on gray, in a popover too: a gate that finds nothing in anything would be none."""
    gray = '<p style="color: #999; background: #aaa">gray on gray</p>'
    popover = f"<button popovertarget=opened>open</button><div id=opened popover>{gray}</div>"
    with tab() as opened:
        opened.set_content(f'<html lang="en"><title>Wrong</title><main><h1>Wrong</h1><img src="x.png">{popover}</main>')
        assert [problem.split()[0] for problem in violations(opened)] == ["image-alt"]
        opened.click("button")
        assert [problem.split()[0] for problem in violations(opened, "#opened")] == ["color-contrast"]


def test_the_site_works_below_another_path_than_its_own():
    """Pages, styles, scripts and the search: their links are relative."""
    with Host(host().site, "/somewhere/else/") as elsewhere:
        for page in ("", "training/own-loop/", "evidence/ledger/"):
            visit = Visit(browser(), elsewhere, page)
            assert (visit.hosts, visit.messages) == (set(), []), page
            assert "assets/site.css" in visit.fetched
        with tab() as opened:
            opened.goto(f"{elsewhere.address}training/own-loop/")
            opened.keyboard.press("/")
            opened.keyboard.type("lora")
            found = opened.locator(".md-search-result__item a").first
            found.wait_for()
            assert "/somewhere/else/training/" in found.evaluate("link => link.href")


def test_a_missing_browser_is_an_error_that_names_the_command(monkeypatch):
    monkeypatch.delenv("CHROMIUM", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(Problem, match="no Chromium on this machine. Fix: `apt-get install chromium`"):
        executable("/nowhere/chrome")
    monkeypatch.setenv("CHROMIUM", "no-such-browser")
    with pytest.raises(Problem, match="CHROMIUM=no-such-browser is no program"):
        executable("/nowhere/chrome")
