"""Around the page: its Markdown twin, llms.txt, the card of a link, the page for a lost reader, the sitemap."""

import re
import struct
from urllib.error import HTTPError
from urllib.parse import urljoin, urlsplit
from urllib.request import urlopen

import pytest
from bs4 import BeautifulSoup
from built import ROOT, console, host, parsed, site, site_pages, source_of, tab

from evidence.site import llms_txt, pages
from evidence.site.browser import DESKTOP, PHONE, violations

every_page = pytest.mark.parametrize("page", site_pages(), ids=lambda page: page or "overview")


def twin_of(page):
    source = source_of(page)
    return source.relative_to(ROOT / "docs" if source.suffix == ".md" else ROOT).with_suffix(".md").as_posix()


# Markdown twins


@every_page
def test_a_page_has_a_twin_in_markdown_and_names_it(page):
    links = [parsed(page).select_one(place)["href"] for place in ("link[type='text/markdown']", "a#as-markdown")]
    assert {urljoin(f"https://x/{page}", link) for link in links} == {f"https://x/{twin_of(page)}"}
    text = (site() / twin_of(page)).read_text(encoding="utf-8")
    assert text.startswith(f"# {parsed(page).select_one('h1').find(string=True)}") and len(text) > 300


@pytest.mark.parametrize(
    "page", [page for page in site_pages() if source_of(page).suffix == ".md"], ids=lambda page: page or "overview"
)
def test_a_twin_shows_every_figure_of_its_page(page):
    text = (site() / twin_of(page)).read_text(encoding="utf-8")
    source = re.sub(r"```[\s\S]*?```|`[^`\n]*`", "", source_of(page).read_text(encoding="utf-8"))
    said = re.findall(r"\((?:traced|derived|cited|predicted|(?:measured on|predicted for) [^)]+)\)|does not apply", text)
    assert len(said) >= len(re.findall(pages.CLAIM, source))


def test_a_twin_word_for_word():
    html = (
        '<h1 id="a">A page<a class="headerlink" href="#a">¶</a></h1>'
        '<p>It takes <button class="claim claim-traced">12.5<small>&nbsp;GiB</small></button>, at '
        '<button class="claim claim-measured"><span data-on="x" title="X">2.3<small>x</small></span>'
        '<span data-on="y" hidden title="Y">7<small>x</small></span></button> the speed; see '
        '<a href="../b/#c">b</a>, <a href="#a">above</a>.</p><details><summary>Whole</summary>'
        '<div class="language-python highlight"><pre><span></span><code><span class="n">x_a</span> = "*"'
        ' <b class="note">1</b>\n</code></pre></div></details>'
        '<div class="scroll"><table><tr><th>A</th></tr><tr><td>1</td></tr></table></div>'
        '<figure><figcaption>Memory</figcaption><svg role="img" aria-label="It rises."></svg><svg aria-label="It '
        'rises."></svg></figure><div id="claim-x" class="claim-source" popover><p>Popover</p></div>'
    )
    known = {"https://x/b/": "b.md"}
    assert llms_txt.markdown(html, "https://x/a/", "https://x/", known) == (
        "# A page\n\n"
        "It takes 12.5\u00a0GiB (traced), at 2.3x (measured on X) the speed; see [b](https://x/b.md#c), [above](#a).\n\n"
        '**Whole**\n\n```python\nx_a = "*"\n```\n\n'
        "| A |\n| --- |\n| 1 |\n\n**Memory**\n\nIt rises.\n"
    )


def test_words_of_a_record_that_read_as_a_link_are_none_in_the_twin():
    assert llms_txt.markdown("<p>[here](https://x.org)</p>", "https://x/a/") == "[here]\\(https://x.org)\n"


def test_llms_txt_lists_every_page_with_what_it_says_and_llms_full_holds_them_all():
    listed = (site() / "llms.txt").read_text(encoding="utf-8")
    assert listed.startswith("# Performance and Scalability\n\n> ")
    entries = dict(re.findall(r"^- \[[^\]]+\]\(https://[^/]+/[^/]+/([^)]+)\)(.*)$", listed, re.M))
    assert sorted(entries) == sorted(map(twin_of, site_pages()))
    assert [twin for twin, what in entries.items() if len(what) < 20] == []
    whole = (site() / "llms-full.txt").read_text(encoding="utf-8")
    for page in site_pages():
        assert (site() / twin_of(page)).read_text(encoding="utf-8").strip() in whole, page


def test_a_press_copies_the_page_as_markdown_and_without_scripts_the_link_opens_it():
    with tab(permissions=["clipboard-read", "clipboard-write"]) as opened:
        opened.goto(f"{host().address}contribute/")
        opened.locator("#as-markdown").click()
        opened.locator("#as-markdown[data-said=Copied]").wait_for()
        copied = opened.evaluate("navigator.clipboard.readText()")
        assert copied == (site() / "contribute.md").read_text(encoding="utf-8")
    with urlopen(f"{host().address}contribute.md") as answer:
        assert answer.headers["Content-Type"].startswith("text/markdown")


# The card of a link


@every_page
def test_a_link_to_a_page_has_a_card(page):
    card = {element["property"]: element["content"] for element in parsed(page).select("meta[property^='og:']")}
    assert card["og:title"] and len(card["og:description"]) > 20
    assert card["og:url"] == parsed(page).select_one("link[rel=canonical]")["href"]
    assert card["og:description"] == parsed(page).select_one("meta[name=description]")["content"]
    image = site() / urlsplit(card["og:image"]).path.removeprefix(host().path)
    assert card["og:image"].startswith("https://") and image.is_file()
    size = struct.unpack(">II", image.read_bytes()[16:24])
    assert size == (int(card["og:image:width"]), int(card["og:image:height"])) == (1200, 630)


# For a lost reader


@pytest.mark.parametrize("address", ["nowhere", "training/nowhere/", "a/b/c/d.html"])
def test_an_unknown_address_offers_ways_on_from_any_depth(address):
    with pytest.raises(HTTPError) as answer:
        urlopen(host().address + address)
    assert answer.value.code == 404
    lost = BeautifulSoup(answer.value.read(), "html.parser")
    ways = {urljoin(host().origin, link["href"]).partition("#")[0] for link in lost.select("article a")}
    assert {host().address, f"{host().address}training/one-gpu/"} <= ways
    for way in ways:
        with urlopen(way) as found:
            assert found.status == 200
    assert lost.select_one("meta[name=robots]")["content"] == "noindex"


@pytest.mark.parametrize(("size", "scheme"), [(PHONE, "dark"), (DESKTOP, "light")], ids=["phone-dark", "desktop-light"])
def test_the_page_for_a_lost_reader_is_a_page_like_others(size, scheme):
    with tab(size, scheme) as opened, console(opened) as messages:
        opened.goto(f"{host().address}training/nowhere/")
        assert violations(opened) == []
        assert [said for said in messages if "404" not in said] == []  # which the browser itself says of a lost page
        opened.keyboard.press("/")
        opened.keyboard.type("lora")
        opened.locator(".md-search-result__item").first.wait_for()


# Sitemap


def test_the_sitemap_has_the_addresses_of_the_site_below_its_path():
    found = re.findall(r"<loc>([^<]+)</loc>", (site() / "sitemap.xml").read_text(encoding="utf-8"))
    home = parsed("").select_one("link[rel=canonical]")["href"]
    assert sorted(found) == sorted(home + page for page in site_pages())


@pytest.mark.parametrize("every", [8, pytest.param(1, marks=pytest.mark.nightly)], ids=["an eighth", "all"])
def test_text_keeps_off_the_edges_of_a_small_laptop(every):
    touching = """() => { const box = document.querySelector("article h1, article p").getBoundingClientRect()
                            return Math.min(box.left, document.documentElement.clientWidth - box.right) }"""
    with tab({"width": 1024, "height": 768}) as opened:
        for page in site_pages()[::every]:
            opened.goto(host().address + page, wait_until="domcontentloaded")
            assert opened.evaluate(touching) >= 12, page or "overview"


def test_the_filter_of_accelerators_takes_a_name_as_it_is_written_elsewhere():
    names = "[...document.querySelectorAll('.filterable tbody')][0].querySelectorAll('tr:not([hidden]) td:first-child')"
    with tab() as opened:
        opened.goto(f"{host().address}hardware/accelerators/")
        field = opened.locator(".filterable input").first
        for asked, name in (("rtx4090", "RTX 4090 24GB"), ("RTX 4090", "RTX 4090 24GB"), ("rtx-4090", "RTX 4090 24GB")):
            field.fill(asked)
            found = opened.evaluate(f"[...{names}].map(cell => cell.innerText.trim())")
            assert name in found, (asked, found)
        field.fill("24 gb")
        found = opened.evaluate(f"[...{names}].map(cell => cell.innerText.trim())")
        assert "RTX 4090 24GB" in found and "V100 16GB" not in found


def test_a_long_table_keeps_its_heads_and_names_in_sight():
    with tab() as opened:
        opened.goto(f"{host().address}hardware/accelerators/")
        box = opened.locator(".scroll").first
        box.evaluate("box => { box.scrollTop = 900; box.scrollLeft = 300 }")
        seen = """box => { const at = box.getBoundingClientRect(), head = box.querySelector("th").getBoundingClientRect()
                         const row = [...box.querySelectorAll("tbody tr")].find(row => row.getBoundingClientRect().top > head.bottom)
                         return [head.top - at.top, head.left - at.left, row.cells[0].getBoundingClientRect().left - at.left] }"""
        assert all(abs(distance) < 2 for distance in box.evaluate(seen))
