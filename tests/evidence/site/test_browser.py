"""Every page in a real browser: nothing from elsewhere, light enough, no error, and nothing that axe-core finds wrong."""

import re
from functools import cache

import pytest
from built import ROOT, browser, host, kept_tab, tab

from evidence.site.audit import bar
from evidence.site.browser import DESKTOP, PHONE, Host, Visit, executable, violations
from evidence.problems import Problem

CODE = ".highlight code"
WIDTH = "document.documentElement.scrollWidth"
SETTLED = """async () => {
  const frame = () => new Promise(requestAnimationFrame)
  const fading = () => document.getAnimations().filter(animation => animation.playState !== "finished")
  do await frame()
  while (fading().map(animation => animation.finish()).length)
}"""
FIRST_OF_EACH_KIND = """code => {
  const words = [...document.querySelectorAll(`${code} [class]`)], visible = new Set(words.filter(word => word.checkVisibility()))
  const seen = new Set(), left = new Set()
  for (const word of visible) for (const kind of word.classList) {
    if (!seen.has(kind)) left.add(word)
    seen.add(kind)
  }
  for (const word of words) if (!left.has(word)) word.replaceWith(...word.childNodes)
  for (const block of document.querySelectorAll(code)) block.normalize()
  return [...seen]
}"""
AROUND = [".md-header", ".md-tabs", ".md-sidebar", ".md-footer"]  # what a phone hides
SAMPLES = """known => {
  const kinds = new Map(known.map(kind => [kind, 3])), backgrounds = new Map([[null, ""]])
  const background = element => {
    if (!backgrounds.has(element)) {
      const {backgroundColor, backgroundImage, opacity} = getComputedStyle(element)
      const own = `${backgroundColor} ${backgroundImage} ${opacity}`.replace("rgba(0, 0, 0, 0) none 1", "")
      backgrounds.set(element, own + background(element.parentElement))
    }
    return backgrounds.get(element)
  }
  for (const element of document.querySelectorAll("body *")) {
    const speaks = element.matches("input, select") || [...element.childNodes].some(node => node.data?.trim())
    if (!speaks || !element.checkVisibility({visibilityProperty: true})) continue
    const {color, fontSize, fontWeight} = getComputedStyle(element)
    const link = element.closest("a"), {textDecorationLine} = link ? getComputedStyle(link) : {}
    const text = link ? getComputedStyle(link.parentElement).color : ""
    const kind = [color, fontSize, fontWeight, background(element), textDecorationLine, text].join()
    kinds.set(kind, (kinds.get(kind) ?? 0) + 1)
    if (kinds.get(kind) <= 3) element.dataset.sample = kinds.get(kind)
  }
  return [...kinds.keys()].slice(known.length)
}"""
ONLY_WHAT_IS_LOOKED_AT = """looked_at => {
  const kept = new Set()
  for (let element of document.querySelectorAll(looked_at)) for (; element; element = element.parentElement) kept.add(element)
  const inside = looked_at.split(",").map(one => `${one} *`).join()
  for (const element of document.querySelectorAll("body *")) {
    if (!kept.has(element) && kept.has(element.parentElement) && !element.matches(inside)) element.replaceChildren()
  }
}"""
# What nobody sees, and table rows and links of the navigation that are built as three before them: no rule of axe finds
# anything in them that it does not find in those. A row that holds a sample of a kind of text stays.
WITHOUT_WHAT_IS_ALIKE = """() => {
  for (const unseen of document.querySelectorAll("[popover], [hidden], details:not([open]) > :not(summary)")) unseen.remove()
  const seen = new Map()
  const kind = element => [element.tagName, element.getAttribute("class"), element.getAttributeNames(), !!element.textContent.trim()]
  for (const part of document.querySelectorAll("tbody > tr, .md-nav__item")) {
    const place = part.closest("table, .md-sidebar")
    const form = [...part.querySelectorAll("*")].map(kind).join()
    if (!seen.has(place)) seen.set(place, {})
    seen.get(place)[form] = (seen.get(place)[form] ?? 0) + 1
    if (seen.get(place)[form] > 3 && !part.querySelector("[data-sample]")) part.remove()
  }
}"""
# What kinds of elements surround the page, with what each stands in.
KINDS_AROUND = """around => [...new Set([...document.querySelectorAll(around)].flatMap(part => [...part.querySelectorAll("*")])
  .map(element => [element.parentElement, element].map(one =>
    [one.tagName, one.getAttribute("class"), one.getAttributeNames(), !!one.textContent.trim()].join(" ")).join(" > ")))]"""
COLORS = ["color-contrast", "link-in-text-block"]  # the rules that ask for colors
LOOK = "[innerWidth, getComputedStyle(document.body).backgroundColor.match(/\\d+/g).slice(0, 3).map(Number)]"
SOURCES = sorted([*ROOT.glob("docs/**/*.md"), *ROOT.glob("notebooks/*.ipynb")])


def address(source):
    below = source.relative_to(ROOT / "docs" if source.suffix == ".md" else ROOT).with_suffix("")
    folder = below.parent if below.name == "index" else below
    return "" if folder.as_posix() == "." else f"{folder.as_posix()}/"


PAGES = [address(source) for source in SOURCES]
every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page or "overview")


def refuse(problems):
    if problems:
        pytest.fail("\n".join(problems), pytrace=False)


def test_the_sitemap_names_every_page_and_nothing_else():
    assert sorted(host().pages) == sorted(PAGES)


def phone_and_desk(tab, look, second=None):
    """What `look` sees of a page on a phone in the light, and then it or `second` on a desk in the dark."""
    tab.evaluate(SETTLED)  # the page hears of a phone's width in the next frame, which a busy machine draws late
    phone = look(tab)
    tab.set_viewport_size(DESKTOP)
    tab.emulate_media(color_scheme="dark")
    tab.evaluate(SETTLED)  # colors fade from one look to the other
    return phone, (second or look)(tab)


@cache
def nothing_wrong_in(what):
    """The kinds of texts, or of elements around a page, in which axe has found nothing on the pages so far."""
    return set()


def samples(tab):
    """Marks three elements of each new kind of text, by its colors and its size; returns the new kinds. The contrast of a
    kind is the same on every page."""
    return tab.evaluate(SAMPLES, list(nothing_wrong_in("texts")))


def wrong(tab):
    """What axe finds, with the contrast of each new kind of text. `make audit` looks at every element of a page."""
    kinds = samples(tab)
    tab.evaluate(WITHOUT_WHAT_IS_ALIKE)
    found = violations(tab, contrast="[data-sample]")
    if not found:
        nothing_wrong_in("texts").update(kinds)
    return found


def wrong_in_the_second_look(tab):
    """What axe finds in what differs from the first look: the colors, and what a phone hides, which is much the same around
    every page. The rest of the page is emptied, since axe looks through every element of it whatever it is asked about."""
    kinds, looked_at, around = (
        samples(tab),
        ["[data-sample]", *AROUND],
        set(tab.evaluate(KINDS_AROUND, ",".join(AROUND))),
    )
    known_around = around <= nothing_wrong_in("around")
    if known_around and not kinds:
        return []
    tab.evaluate(ONLY_WHAT_IS_LOOKED_AT, ",".join(looked_at))
    found = violations(tab, include=looked_at, rules=COLORS if known_around else (), contrast="[data-sample]")
    if not found:
        nothing_wrong_in("texts").update(kinds)
        nothing_wrong_in("around").update(around)
    return found


def both_looks(tab):
    """How wide the page is on a phone, what axe finds in both looks, and the kinds of words in code, of which the first of
    each keeps its color: the words are half of a page's elements, of a dozen colors."""
    width, kinds = tab.evaluate(WIDTH), set(tab.evaluate(FIRST_OF_EACH_KIND, CODE))
    looks = phone_and_desk(tab, wrong, wrong_in_the_second_look)
    return width, *looks, kinds


@cache
def visits(page):
    """One first visit of each page, on a phone."""
    kept_tab().set_viewport_size(PHONE)
    kept_tab().emulate_media(media="null", color_scheme="light")
    return Visit(browser(), host(), page, look=both_looks, tab=kept_tab())


@every_page
def test_a_page_asks_no_other_host_and_says_nothing_in_the_console(page):
    visit = visits(page)
    assert len(visit.fetched) > 3, f"hardly anything was fetched, so nothing was checked: {visit.fetched}"
    assert {"assets/site.css", "assets/page.js"} <= visit.fetched.keys(), "something was kept: this is no first visit"
    assert (visit.hosts, visit.messages) == (set(), [])


def test_what_a_page_asks_late_counts_too_and_its_own_host_is_no_other():
    def look(tab):
        for address in ("late.png", "http://elsewhere.invalid/late.png"):
            tab.evaluate("address => fetch(address, {mode: 'no-cors'}).catch(() => {})", address)

    assert Visit(browser(), host(), "", look=look, bypass_csp=True).hosts == {"elsewhere.invalid"}


def test_a_visit_in_an_open_tab_is_a_first_one_too():
    kept = "[document.cookie, localStorage.length, sessionStorage.length]"
    keep = "() => { document.cookie = 'a=b'; localStorage.a = sessionStorage.a = 'b' }"
    with tab(PHONE) as opened:
        before = Visit(browser(), host(), "contribute/", look=lambda tab: tab.evaluate(keep), tab=opened)
        again = Visit(browser(), host(), "contribute/", look=lambda tab: tab.evaluate(kept), tab=opened)
    assert again.seen == ["", 0, 0] and again.fetched == before.fetched


@every_page
def test_a_first_visit_is_light(page):
    visit, most = visits(page), bar(page)
    heaviest = sorted(visit.fetched.items(), key=lambda entry: -entry[1])
    refuse([f"{page}: {visit.weight:,} bytes of at most {most:,}: {heaviest[:5]}"] * (visit.weight > most))


@every_page
def test_axe_finds_nothing_wrong_with_a_page_on_a_phone_in_the_light(page):
    refuse(visits(page).seen[1])


@every_page
def test_axe_finds_nothing_wrong_with_a_page_on_a_desk_in_the_dark(page):
    refuse(visits(page).seen[2])


def test_both_looks_are_at_every_kind_of_word_in_code():
    kinds = set().union(*(visits(page).seen[3] for page in PAGES))
    assert len(kinds) > 20


def test_the_second_look_is_at_a_dark_page_on_a_desk():
    with tab(PHONE) as opened:
        opened.goto(host().address)
        light, dark = phone_and_desk(opened, lambda tab: tab.evaluate(LOOK))
    assert light[0] == PHONE["width"] and dark[0] == DESKTOP["width"]
    assert sum(light[1]) > 600 and sum(dark[1]) < 150, "red, green and blue of the background"


def test_of_each_kind_of_text_three_elements_stand_for_all():
    """Gray on gray is a kind of its own, also where the gray behind it belongs to what is around it."""
    gray = '<div style="background: #aaa"><p style="color: #999">gray on gray</p></div>'
    with tab() as opened:
        opened.set_content(
            f'<html lang="en"><title>Wrong</title><main><h1>Wrong</h1>{"<p>black on white</p>" * 9}{gray}</main>'
        )
        kinds, found = samples(opened), wrong(opened)
        marked = opened.locator("[data-sample]").count()
    assert (len(kinds), marked) == (3, 1 + 3 + 1)
    assert len(found) == 1 and "color-contrast" in found[0]


def test_a_kind_of_text_is_looked_at_until_nothing_is_wrong_with_it():
    """Then the next page is only asked about the other kinds, and in the dark the same text is another kind."""
    page = (
        '<html lang="en"><title>{0}</title><main><h1>{0}</h1><p style="color: #123; background: {1}">a text</p></main>'
    )
    with tab() as opened:
        looks = []
        for background in ("#234", "#234", "#def", "#def"):
            opened.set_content(page.format("Right or wrong", background))
            looks.append((len(samples(opened)), len(wrong(opened))))
        opened.set_content(
            '<html lang="en"><title>A link</title><main><h1>A link</h1><p>In <a href="#">a text</a></p></main>'
        )
        samples(opened)
        marked = opened.locator("a[data-sample]").count()
    assert looks == [(2, 1), (2, 1), (2, 0), (0, 0)] and marked == 1


def test_what_the_second_look_leaves_out_hides_no_color_and_nothing_around_the_page():
    """Of nine paragraphs that are alike six are emptied; a gray that is only there in the dark is found, and a nameless link."""
    style = "<style>@media (prefers-color-scheme: dark) { .last { color: #999; background: #aaa } }</style>"
    text = f"{'<p>black on white</p>' * 9}<div><p class=last>gray</p></div>"
    around = '<div class="md-header"><a href="#"><img src="x.png" alt=""></a></div>'
    with tab(color_scheme="dark") as opened:
        opened.set_content(f'<html lang="en"><title>Wrong</title>{style}{around}<main><h1>Wrong</h1>{text}</main>')
        found = wrong_in_the_second_look(opened)
        left = opened.evaluate("[...document.querySelectorAll('main p')].filter(text => text.innerText).length")
    assert left == 3 + 1 and sorted(problem.split()[0] for problem in found) == ["color-contrast", "link-name"]


def test_axe_does_find_what_is_wrong():
    """An image without words, gray on gray: a gate that finds nothing in anything would be none."""
    wrong = '<img src="x.png"><p style="color: #999; background: #aaa">gray on gray</p>'
    code = '<div class="highlight"><code><span class="k" style="color: #999; background: #aaa">gray</span></code></div>'
    with tab() as opened:
        opened.set_content(f'<html lang="en"><title>Wrong</title><main><h1>Wrong</h1>{wrong}</main>')
        found = " ".join(violations(opened))
        opened.set_content(f'<html lang="en"><title>Wrong</title><main><h1>Wrong</h1>{code}</main>')
        assert opened.evaluate(FIRST_OF_EACH_KIND, CODE) == ["k"]
        samples(opened)
        in_code = violations(opened, contrast="[data-sample]")
        elsewhere = violations(opened, exclude=[CODE])
    assert "image-alt" in found and "color-contrast" in found
    assert len(in_code) == 1 and "color-contrast" in in_code[0] and elsewhere == []


@every_page
def test_nothing_is_wider_than_a_phone(page):
    width = visits(page).seen[0]
    assert width <= PHONE["width"], f"{page} is {width} pixels wide on a phone of {PHONE['width']}"


def test_the_search_is_fetched_when_somebody_searches():
    with tab() as opened:
        host().served.clear()
        opened.goto(host().address, wait_until="networkidle")
        before = [path for path, _ in host().served]
        opened.keyboard.press("/")
        opened.keyboard.type("lora")
        opened.locator(".md-search-result__item").first.wait_for()
        after = [path for path, _ in host().served]
    wanted = ["search/search_index.json", "assets/search.js"]
    assert not [path for path in before if path in wanted] and set(wanted) <= set(after)


def test_the_site_works_below_another_path_than_its_own():
    """Pages, styles, scripts and the search: their links are relative."""
    with Host(host().site, "/somewhere/else/") as elsewhere, tab(PHONE) as opened:
        for page in ("", "training/own-loop/", "evidence/changes/"):
            visit = Visit(browser(), elsewhere, page, tab=opened)
            assert (visit.hosts, visit.messages) == (set(), []), page
            assert "assets/site.css" in visit.fetched


def test_a_missing_browser_is_an_error_that_names_the_command(monkeypatch):
    monkeypatch.delenv("CHROMIUM", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(Problem, match="no Chromium on this machine. Fix: `apt-get install chromium`"):
        executable("/nowhere/chrome")
    monkeypatch.setenv("CHROMIUM", "no-such-browser")
    with pytest.raises(Problem, match="CHROMIUM=no-such-browser is no program"):
        executable("/nowhere/chrome")


def test_a_column_of_times_sorts_by_speed_and_what_is_not_measured_stays_last():
    """Half the time is twice the speed; the table of training/one-gpu has both forms in one column."""
    cells = "[...document.querySelectorAll('.sortable tbody tr')].map(row => row.cells[1].innerText)"
    with tab() as opened:
        opened.goto(host().address + "training/one-gpu/")
        for direction in (1, -1):
            opened.click(".sortable thead th:nth-child(2) button")
            texts = opened.evaluate(cells)
            found = [re.search(r"([\d.]+)x?\s+the (time|speed)", text) for text in texts]
            speeds = [1 / float(one[1]) if one[2] == "time" else float(one[1]) for one in found if one]
            assert len(speeds) > 10 and speeds == sorted(speeds, reverse=direction < 0)
            assert all(found[: len(speeds)]), texts
