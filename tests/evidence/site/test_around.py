"""Around the page: its Markdown twin, llms.txt, the card of a link, the page for a lost reader, the sitemap, versions."""

import json
import re
import struct
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urljoin, urlsplit
from urllib.request import urlopen

import pytest
from bs4 import BeautifulSoup
from built import ROOT, console, host, parsed, site, tab
from test_browser import PAGES, SOURCES, address
from test_machine_switch import build

from evidence.site import pages, twins
from evidence.site.browser import DESKTOP, PHONE, Host, violations
from evidence.records import find, format_value

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page or "overview")
SOURCE = {address(source): source for source in SOURCES}


def twin_of(page):
    source = SOURCE[page]
    return source.relative_to(ROOT / "docs" if source.suffix == ".md" else ROOT).with_suffix(".md").as_posix()


# Markdown twins


@every_page
def test_a_page_has_a_twin_in_markdown_and_names_it(page):
    links = [parsed(page).select_one(place)["href"] for place in ("link[type='text/markdown']", "a#as-markdown")]
    assert {urljoin(f"https://x/{page}", link) for link in links} == {f"https://x/{twin_of(page)}"}
    text = (site() / twin_of(page)).read_text(encoding="utf-8")
    assert text.startswith("# ") and len(text) > 300


@every_page
def test_a_twin_holds_no_markup_of_ours(page):
    text = (site() / twin_of(page)).read_text(encoding="utf-8")
    code = re.compile(r"^([ >]*)(```+)[\s\S]*?^\1\2$|`[^`\n]*`", re.M)
    prose = code.sub("", text)
    assert len(prose) < len(text) or "`" not in text
    for mark in ("[[", "--8<--", "{ #", "???", "!!!", "<div", ".ipynb)"):
        assert mark not in prose, f"{mark} in {twin_of(page)}: {prose[max(0, prose.find(mark) - 60) :][:120]!r}"


@pytest.mark.parametrize(
    "page", [page for page in PAGES if SOURCE[page].suffix == ".md"], ids=lambda page: page or "overview"
)
def test_a_twin_says_all_figures_with_their_kind(page):
    """A notebook says them in its own outputs."""
    source = SOURCE[page]
    text, context = (site() / twin_of(page)).read_text(encoding="utf-8"), pages.Context(str(ROOT / "results"), "")
    code = re.compile(r"```[\s\S]*?```|`[^`\n]*`")
    for notebook, name, where in re.findall(pages.CLAIM, code.sub("", source.read_text(encoding="utf-8"))):
        entries = find(context.records, notebook, name)
        chosen = pages.per_machine(context, entries, where)[""]
        if chosen and "value" in chosen[1]:
            assert f"{format_value(chosen[1]['value'], chosen[1]['unit'])} ({chosen[1]['kind']}" in text, name
        else:
            assert pages.NOT_MEASURED in text or pages.NOT_APPLICABLE in text


@pytest.fixture
def small(tmp_path, monkeypatch):
    for name, text in {
        "snippets/guide/a.py": "x = 0\n# --8<-- [start:use]\nx = 1\n# --8<-- [end:use]\n",
        "docs/a.md": "---\ntitle: A page\ndescription: What it says.\n---\n\n# A page\n\n"
        '[B](b.ipynb#c) `[[kept:as-it-is]]`\n\n## Use { #use }\n\n??? example "Whole"\n    ```python\n    --8<-- "guide/a.py"\n    ```\n\nAfter.\n\n'
        '```python\n--8<-- "guide/a.py:use"\n```\n',
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "results").mkdir()
    return tmp_path


def test_a_twin_word_for_word(small):
    assert twins.page(small, "a.md") == (
        "A page",
        "What it says.",
        "# A page\n\n[B](b.md#c) `[[kept:as-it-is]]`\n\n## Use\n\n**Whole**\n\n```python\nx = 0\nx = 1\n```\n\nAfter.\n\n```python\nx = 1\n```\n",
    )


def test_llms_txt_lists_every_page_with_what_it_says_and_llms_full_holds_them_all():
    listed = (site() / "llms.txt").read_text(encoding="utf-8")
    assert listed.startswith("# Performance and Scalability\n\n> ")
    entries = dict(re.findall(r"^- \[[^\]]+\]\(https://[^/]+/[^/]+/([^)]+)\)(.*)$", listed, re.M))
    assert sorted(entries) == sorted(map(twin_of, PAGES))
    assert [twin for twin, what in entries.items() if len(what) < 20] == []
    whole = (site() / "llms-full.txt").read_text(encoding="utf-8")
    for page in PAGES:
        assert (site() / twin_of(page)).read_text(encoding="utf-8").strip() in whole, page


def test_a_press_copies_the_page_as_markdown_and_without_scripts_the_link_opens_it():
    with tab(permissions=["clipboard-read", "clipboard-write"]) as opened:
        opened.goto(f"{host().address}contribute/")
        opened.locator("#as-markdown").click()
        opened.locator("#as-markdown[title=Copied]").wait_for()
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
    assert sorted(found) == sorted(home + page for page in PAGES)


# Several versions


VERSIONS = {}  # once for all tests: they only read them


@pytest.fixture
def versions(request, tmp_path_factory):
    if not VERSIONS:
        request.getfixturevalue("repository")
        VERSIONS["folder"] = two_versions(tmp_path_factory.mktemp("versions"))
    return VERSIONS["folder"]


def two_versions(folder):
    """Two versions of the small site, laid out as mike does: what tells them apart comes from the theme, on every page."""
    build(folder / "0.1", MIKE_DOCS_VERSION="0.1")
    (folder / "0.2").symlink_to("0.1")
    (folder / "latest").symlink_to("0.1")
    (folder / "versions.json").write_text(
        json.dumps(
            [
                {"version": "0.2", "title": "0.2", "aliases": ["latest"]},
                {"version": "0.1", "title": "0.1", "aliases": []},
            ]
        )
    )
    (folder / "index.html").write_text('<link rel="canonical" href="https://example.org/">')
    return folder


@pytest.mark.parametrize(("version", "older"), [("0.1", True), ("0.2", False), ("latest", False)])
def test_a_reader_of_an_older_version_is_told_and_can_choose(versions, version, older):
    with Host(versions) as several, tab(PHONE) as opened:
        opened.goto(f"{several.address}{version}/notebooks/tiny/")
        opened.locator(".versions option").first.wait_for(state="attached")  # the list of versions comes after the page
        assert opened.locator(".versions option").all_inner_texts() == ["0.2", "0.1"]
        assert opened.locator(".outdated").is_visible() == older
        if older:
            assert violations(opened) == []
            opened.locator(".versions").select_option(label="0.2")
            opened.wait_for_url("**/latest/notebooks/tiny/")


def test_every_version_names_the_newest_as_the_one_to_be_found(versions):
    page = BeautifulSoup((versions / "0.1/notebooks/tiny/index.html").read_bytes(), "html.parser")
    assert page.select_one("link[rel=canonical]")["href"].endswith("/latest/notebooks/tiny/")


def test_a_site_of_one_version_asks_for_no_others():
    assert not [page for page in PAGES if parsed(page).select("script[src*=versions], .outdated")]
    assert Path(site() / "assets" / "versions.js").exists()
