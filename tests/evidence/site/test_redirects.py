"""redirects.yml: every old address leads to the page that took its place, on any static host and without a script."""

import re
from functools import cache
from pathlib import Path
from urllib.parse import urljoin, urlsplit
from urllib.request import urlopen

import pytest
from bs4 import BeautifulSoup
from built import ROOT, host, site, tab

from evidence.site import redirects
from evidence.site.browser import Host

OLD = redirects.load(ROOT / "redirects.yml")
PROMISED = [
    "performance",
    "perf_train_gpu_one",
    "perf_train_gpu_many",
    "perf_train_cpu",
    "perf_train_cpu_many",
    "perf_train_tpu_tf",
    "perf_train_special",
    "perf_hardware",
    "hpo_train",
    "perf_infer_cpu",
    "perf_infer_gpu_one",
    "perf_infer_gpu_many",
    "perf_infer_gpu_multi",
    "llm_optims",
    "llm_tutorial_optimization",
    "tf_xla",
    "big_models",
    "debugging",
    "model_memory_anatomy",
    "perf_torch_compile",
]


def test_every_page_that_this_site_succeeds_has_a_line():
    assert [old for old in PROMISED if old not in OLD] == []


@cache
def page_of(body):
    """Most forms of an address bring the same bytes."""
    return BeautifulSoup(body, "html.parser")


@pytest.mark.parametrize("old", OLD)
def test_an_address_leads_on_in_every_form_that_a_link_may_have(old):
    page, anchor = OLD[old]
    wanted = host().address + redirects.address(page)
    for form in (old, f"{old}.html", f"{old}/", f"{old}/index.html"):
        with urlopen(host().address + form) as answer:
            address, found = answer.url, page_of(answer.read())
        refresh = found.select_one("meta[http-equiv=refresh]")
        if not refresh:  # a page of ours has that address now
            assert address.removesuffix("index.html").rstrip("/") == wanted.rstrip("/"), f"{form} is no redirect"
            continue
        seconds, _, link = refresh["content"].partition("; url=")
        assert seconds == "0"
        assert urljoin(address, link) == wanted + (anchor and f"#{anchor}"), form
        assert found.select_one("main a")["href"] == link, "who has no refresh follows the link"
        canonical = found.select_one("link[rel=canonical]")["href"]
        assert urlsplit(canonical).path == urlsplit(wanted).path and canonical.startswith("https://")
        assert not found.select("script"), "it works without scripts"


@pytest.mark.parametrize("path", ["/", "/some/folder/"])
@pytest.mark.parametrize("form", ["model_memory_anatomy", "model_memory_anatomy/", "model_memory_anatomy.html"])
def test_a_browser_without_scripts_arrives_below_any_path(path, form):
    with Host(site(), path) as elsewhere, tab(scripts=False) as opened:
        opened.goto(elsewhere.address + form)
        opened.wait_for_url(f"{elsewhere.address}training/one-gpu/#where-the-memory-goes")


def test_no_page_of_ours_is_overwritten(tmp_path):
    ours = tmp_path / "debugging" / "index.html"
    ours.parent.mkdir()
    ours.write_text("a page")
    redirects.write(tmp_path, "", ROOT / "redirects.yml")
    assert ours.read_text() == "a page"
    assert (tmp_path / "debugging.html").exists()


# What `make check` says


@pytest.fixture
def pages(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, text in {
        "index.md": "# Start\n\n## Training { #training }\n",
        "training/one-gpu.md": "# One GPU\n",
    }.items():
        Path("docs", name).parent.mkdir(exist_ok=True)
        Path("docs", name).write_text(text)

    def problems(*lines):
        Path("redirects.yml").write_text("# a comment\n" + "\n".join(lines) + "\n")
        return [str(problem) for problem in redirects.check()]

    return problems


def test_what_is_right_passes(pages):
    assert pages("a: training/one-gpu.md", "b: index.md#training") == []


def test_a_page_that_is_gone_is_named_with_the_line_and_the_nearest_page(pages):
    assert pages("a: index.md", "b: training/one-gpus.md") == [
        "redirects.yml:3: b leads to training/one-gpus.md, which is gone (did you mean training/one-gpu.md?). "
        "Fix: name the page that has its answer now"
    ]


def test_a_section_that_is_gone_is_named_with_the_line_and_the_nearest_section(pages):
    assert pages("a: index.md#trainings") == [
        "redirects.yml:2: a leads to index.md#trainings, and that section is gone (did you mean training?). "
        "Fix: correct it, or give a heading there { #trainings }"
    ]


@pytest.mark.parametrize(
    ("text", "what"), [("a: [", "not YAML"), ("- a", "not a list of addresses and pages"), ("a: {b: c}", "not a list")]
)
def test_a_file_that_is_no_list_is_refused(pages, text, what):
    with pytest.raises(redirects.Problem, match=re.escape(what)):
        pages(text)
