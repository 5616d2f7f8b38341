"""The built site: that it holds together, carries its evidence, and fails to build when it should."""

import base64
import hashlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import unquote, urljoin, urlsplit

import built
import pytest
import yaml
from built import ROOT, site_pages
from small_site import make_site

from evidence import notebooks, runs_on
from evidence.schema import KINDS
from evidence.site import hook


@pytest.fixture(scope="session")
def checkout(tmp_path_factory):
    """A copy of the repository with its history: a test may edit it, and nobody else edits it meanwhile."""

    def ignored(folder, names):
        made = shutil.ignore_patterns(".venv*", "__pycache__", ".*_cache", ".ipynb_checkpoints", "*.part")(
            folder, names
        )
        return made | ({"site", "out", "dist"} if Path(folder) == ROOT else set())

    return shutil.copytree(ROOT, tmp_path_factory.mktemp("checkout") / "repository", ignore=ignored)


@pytest.fixture(scope="session")
def folder():
    return built.site()


def pages():
    """{address: page} of every page."""
    return {page: built.parsed(page) for page in site_pages()}


def documents(folder):
    """{path: page} of all HTML: pages, what only leads on, and the page for a lost reader."""
    return {path.relative_to(folder).as_posix(): built.parsed_file(path) for path in sorted(folder.rglob("*.html"))}


def notebook_pages():
    """{name: page} of every notebook."""
    return {name: built.parsed(f"notebooks/{name}/") for name in notebooks.names()}


@cache
def ids(address):
    """{id: its element} of a page."""
    return {element["id"]: element for element in built.parsed(address).select("[id]")}


def elements(selector):
    """Every element of a page that a CSS selector finds, with the page's address; at least one."""
    found = [(address, element) for address, page in pages().items() for element in page.select(selector)]
    assert found, f"no page has {selector}, so nothing was checked"
    return found


def target(page, link):
    """The file that a page's relative link leads to, and the anchor in it."""
    parts = urlsplit(urljoin(page, link))
    path = built.site() / unquote(parts.path)
    return (path / "index.html" if parts.path.endswith("/") or not parts.path else path), parts.fragment


def settings():
    """mkdocs.yml, without the functions that it names."""

    class Loader(yaml.SafeLoader):
        pass

    Loader.add_multi_constructor("tag:yaml.org,2002:python/name:", lambda *_: None)
    return yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), Loader)


def refuse(problems):
    if problems:
        pytest.fail("\n".join(problems), pytrace=False)


# The site holds together


def test_the_strict_build_prints_no_warning(folder):
    log = folder.with_name("site.log").read_text(encoding="utf-8")
    assert "Documentation built" in log
    refuse([line for line in log.splitlines() if re.search(r"WARN|ERROR|Traceback", line)])


def nav_pages(nav):
    for entry in nav:
        for value in entry.values():
            yield from nav_pages(value) if isinstance(value, list) else [value]


def nav_addresses():
    for named in map(Path, nav_pages(settings()["nav"])):
        folder = named.parent if named.stem == "index" else named.with_suffix("")
        yield f"{folder.as_posix()}/".removeprefix("./")


def test_every_page_is_in_the_navigation_once_and_has_one_title():
    assert sorted(nav_addresses()) == site_pages()
    refuse(
        [f"{address}: no title, or several" for address, page in pages().items() if len(page.select("article h1")) != 1]
    )


def test_every_link_and_every_anchor_leads_somewhere(folder):
    lychee = Path(sys.executable).parent / "lychee"
    assert lychee.exists(), f"{lychee} is missing. Install it: make install"
    options = ["--offline", "--include-fragments", "--index-files", "index.html", "--exclude-path", "404.html"]
    run = subprocess.run(
        [lychee, *options, "--no-progress", "--format", "json", f"{folder}/**/*.html"], capture_output=True, text=True
    )
    found = json.loads(run.stdout)
    assert found["successful"] > 10 * len(pages()), f"lychee looked at next to nothing\n{run.stderr}"
    refuse([f"{page}: {link['url']}" for page, links in found["error_map"].items() for link in links])
    assert run.returncode == 0, run.stderr


def test_no_link_leads_to_the_root_of_the_host():
    """The site may lie below any path."""
    links = [(page, element.get("href") or element["src"]) for page, element in elements("[href], [src]")]
    refuse([f"{page}: {link}" for page, link in links if link.startswith("/")])


def test_every_id_on_a_page_is_unique():
    ids = Counter((page, element["id"]) for page, element in elements("[id]"))
    refuse([f"{page}: {count} elements have the id {name}" for (page, name), count in ids.items() if count > 1])


def test_no_paragraph_stands_twice_on_a_page():
    twice = []
    for page in [*ROOT.glob("docs/**/*.md"), *ROOT.glob("notebooks/*.py")]:
        parts = Counter(part.strip() for part in re.split(r"\n#?\s*\n", page.read_text(encoding="utf-8")))
        twice += [f"{page.relative_to(ROOT)}: {part}" for part, count in parts.items() if count > 1 and len(part) > 80]
    refuse(twice)


def test_every_image_and_every_chart_says_in_words_what_it_shows():
    images = elements("article img, article svg[role=img]")
    assert {element.name for _, element in images} == {"img", "svg"}
    silent = [
        (page, image) for page, image in images if not (image.get("alt") or image.get("aria-label") or "").strip()
    ]
    refuse([f"{page}: no text alternative: {str(image)[:120]}" for page, image in silent])


def test_the_site_holds_no_template_no_source_of_a_page_and_no_source_map(folder):
    assert not [path for path in folder.rglob("*") if path.suffix in (".j2", ".yml", ".map")]
    sources = {path.read_bytes() for path in ROOT.glob("docs/**/*.md")}
    assert not [path for path in folder.rglob("*.md") if path.read_bytes() in sources]


# Figures carry their evidence


def test_every_figure_opens_to_its_kind_versions_date_code_and_record():
    problems = []
    for page, button in elements("button.claim"):
        popover = ids(page).get(button["popovertarget"])
        if popover is None or not popover.has_attr("popover"):
            problems.append(f"{page}: {button['popovertarget']} opens nothing")
        else:
            problems += [f"{page}: {button['popovertarget']}: {problem}" for problem in wrong_with(page, popover)]
    refuse(sorted(set(problems)))


def wrong_with(page, popover):
    """What a popover lacks."""
    text, (notebook, name) = popover.get_text(" "), popover["id"].removeprefix("claim-").split("-", 1)
    kind = popover.select_one(".kind").get_text()
    if kind not in KINDS:
        yield f"no kind but {kind!r}"
    if kind == "cited" and re.search(r"torch \d", text):
        yield "versions of ours, which have no part in what others measured"
    links = [link["href"] for link in popover.select("a") if "//" not in link["href"]]
    if re.search(r"read \d{4}-\d\d-\d\d", text):  # a row of a file: no run made it
        elsewhere = [link["href"] for link in popover.select("a") if "//" in link["href"]]
        if links or len(elsewhere) != 2 or not elsewhere[0].endswith(f"results/{notebook}/cited.yml"):
            yield f"a row of others leads to {links + elsewhere}"
        return
    cells = [target(page, link) for link in links if not link.endswith((".json", "your-model/"))]
    made_here = f"claim-{name}" in ids(f"notebooks/{notebook}/")
    if not made_here or cells != [(built.site() / f"notebooks/{notebook}/index.html", f"claim-{name}")]:
        yield "no link to the cell of the notebook that made it"
    stored = [target(page, link)[0] for link in links if link.endswith(".json")]
    if not stored and "Not measured yet" not in text:
        yield "no link to a record"
    for path in stored:
        record = json.loads(path.read_text(encoding="utf-8"))
        wanted = [record["date"], *(f"{name} {record['software'][name]}" for name in ("torch", "transformers"))]
        wanted = [] if kind == "cited" else wanted
        if "machine" in record and "value" in record["claims"][name]:
            wanted.append(record["machine"]["label"])
        yield from [f"does not say {words!r}" for words in wanted if words not in text]


def test_no_page_shows_the_marks_of_a_list_or_of_a_markdown_extension_that_is_not_switched_on():
    marks = re.compile(r'^(=== "|!!! |\?\?\?\+? |::: |--8<--)|\n- ')
    refuse([f"{page}: {text.get_text()[:60]}" for page, text in elements("article p") if marks.search(text.get_text())])


def test_search_finds_a_figure_in_its_sentence_but_not_what_its_popover_says(folder):
    index = (folder / "search" / "search_index.json").read_text(encoding="utf-8")
    text = " ".join(json.dumps(json.loads(index), ensure_ascii=False).replace("\\n", " ").split())
    sentences = [" ".join(sentence.get_text().split())[:80] for _, sentence in elements("article p:has(> button.claim)")]
    assert any(sentence in text for sentence in sentences), "the first sentence of a section is its teaser"
    assert not re.search(r"\bfails unless (it is at )?(least|most)\b", text), "a popover: each repeats its sentence for every search"


# Notebooks are pages like others


def test_every_notebook_page_hands_out_its_files_and_opens_in_colab_where_the_repository_has_an_address():
    address = notebooks.project()["urls"]["Repository"].removeprefix("https://github.com/")
    for name, page in notebook_pages().items():
        links = {link.get_text(): link["href"] for link in page.select("article a.md-button")}
        colab = f"https://colab.research.google.com/github/{address}/blob/main/notebooks/{name}.ipynb"
        assert links.get("Open in Colab") == (None if notebooks.placeholder() else colab)
        assert bool(page.select("a[rel=edit]")) != bool(notebooks.placeholder())
        for title, suffix in (("Download the notebook", "ipynb"), ("Download the script", "py")):
            path, _ = target(f"notebooks/{name}/", links[title])
            assert path.name == f"{name}.{suffix}"
            assert path.read_bytes() == (ROOT / "notebooks" / path.name).read_bytes()


def test_a_page_says_that_the_address_is_not_set_yet_where_it_is_not():
    for name in ("notebooks/", "contribute/"):
        said = "public address of this repository is not set" in built.parsed(name).select_one("article").get_text()
        assert said == bool(notebooks.placeholder()), name


def test_training_on_one_gpu_shows_the_gpu_first():
    answer = built.parsed("notebooks/one_gpu/").select_one("article .nb-answer")
    assert "H100" in answer.select_one("svg").find_next(string=re.compile("H100|Xeon")), "another machine stands under the first picture"


def test_the_list_says_what_every_notebook_runs_on_and_where_its_figures_come_from():
    rows = {}
    for row in built.parsed("notebooks/").select("article tr"):
        if (link := row.select_one("a")) and "recipes" not in link["href"]:
            rows[link["href"].strip("/").split("/")[-1]] = [cell.get_text() for cell in row.select("td")]
    assert rows.keys() == set(notebooks.names())
    assert rows["one_gpu"][2] == runs_on.SENTENCES["gpu"] and "H100" in rows["one_gpu"][3]
    assert rows["cpu_training"][2].startswith("a CPU: ") and "Xeon" in rows["cpu_training"][3]
    assert rows["how_it_works"][3] == "none: the same everywhere"


def test_a_notebook_page_reads_like_a_guide_without_prompts_in_the_margin():
    for name, page in notebook_pages().items():
        assert page.select("article .highlight") and page.select("article .nb-output"), f"{name}: no code, no output"
        assert not re.search(r"\b(In|Out) ?\[\d*\]", page.get_text()), name
        assert not page.select("[class*=jp-]"), f"{name}: the notebook interface is back"


def test_a_notebook_page_answers_its_question_before_it_tells_how():
    for name, page in notebook_pages().items():
        answer = page.select_one("article .nb-answer")
        assert answer and not answer.find_previous(class_="nb-output"), name
        assert "?" in answer.find_previous("p").get_text(), f"{name}: no question"
        assert len(answer.select("li")) >= 3, name
        picture = answer.select_one("img, svg")
        assert picture.get("alt") or picture.get("aria-label"), name
        assert re.search(r"Run of this page: |nothing on this page depends on the machine", answer.get_text()), f"{name}: no machine"
        whole = answer.select_one("a")["href"]
        assert page.select_one(f"article h2{whole}").get_text().startswith("What came out"), name


def test_a_recipe_shows_a_picture_of_its_run_before_it_tells_how():
    for name in sorted(path.parent.relative_to(built.site()).as_posix() for path in built.site().glob("notebooks/recipes/*/index.html")):
        picture = built.parsed(f"{name}/").select_one("article img")
        assert picture and not picture.find_previous(class_="nb-output") and not picture.find_previous("h2"), name
        assert "on a CPU" in picture.find_next("em").get_text(), name


# Nothing runs that the page does not name


def directives(page):
    policy = page.select_one("head > meta[http-equiv=Content-Security-Policy]")
    return policy, dict(rule.strip().split(" ", 1) for rule in policy["content"].split(";")) if policy else {}


def test_every_page_has_a_policy_before_anything_that_it_governs(folder):
    for name, page in documents(folder).items():
        policy, rules = directives(page)
        assert policy is not None, f"{name}: no policy"
        assert rules["default-src"] == "'none'", name
        assert not policy.find_all_previous(["script", "style", "link"]), f"{name}: something stands before its policy"
        assert "unsafe" not in policy["content"] and "http" not in policy["content"] and "*" not in policy["content"]


def test_no_page_needs_a_script_or_a_style_that_its_policy_refuses(folder):
    """Inside of the page and not named by their hash, an attribute with a style or a handler, or an address of a script."""
    for name, page in documents(folder).items():
        for tag in ("script", "style"):
            inside = page.select(f"{tag}:not([src], [type='application/json'])")
            digests = {base64.b64encode(hashlib.sha256(one.string.encode()).digest()).decode() for one in inside}
            assert digests <= set(re.findall(r"'sha256-([^']+)'", directives(page)[1].get(f"{tag}-src", ""))), name
        refuse(
            [
                f"{name}: <{element.name} {attribute}=...>"
                for element in page.find_all(True)
                for attribute, value in element.attrs.items()
                if attribute == "style" or attribute.startswith("on") or str(value).startswith("javascript:")
            ]
        )


def test_while_the_site_is_served_no_policy_stops_the_script_that_reloads_it(monkeypatch):
    monkeypatch.setattr(hook, "serving", False)  # and as it was after the test
    hook.on_startup(command="serve", dirty=False)
    assert hook.on_template_context({"base_url": "."}, template_name="main.html", config=None)["policy"] == ""


# Around a page


def test_a_page_leads_to_those_before_and_after_it_and_to_its_source():
    sources = [*ROOT.glob("docs/**/*.md"), *ROOT.glob("notebooks/**/*.py")]
    edits = tuple(f"/edit/main/{path.relative_to(ROOT).as_posix()}" for path in sources)
    last = len(pages()) - 1
    for number, address in enumerate(nav_addresses()):
        page = built.parsed(address)
        assert len(page.select(".md-footer__link")) == (number > 0) + (number < last), address
        if not notebooks.placeholder():
            assert page.select_one("a[rel=edit]")["href"].endswith(edits), address


def test_a_page_lists_its_sections():
    for address, page in pages().items():
        sections = [heading["id"] for heading in page.select("article :is(h2, h3)[id]")]
        listed = [link["href"].lstrip("#") for link in page.select(".md-sidebar--secondary a, .contents a")]
        assert sections and set(sections) <= set(listed), address


# The repository's address stands in one place


def test_the_address_of_the_repository_stands_in_one_place_and_in_what_is_made_from_it():
    owner, name = urlsplit(notebooks.project()["urls"]["Repository"]).path.strip("/").split("/")
    pattern = rf"{re.escape(owner)}/{re.escape(name)}|{re.escape(owner)}\.github\.io"
    found = subprocess.run(["git", "grep", "-lE", pattern], cwd=ROOT, capture_output=True, text=True).stdout.split()
    made = [f"notebooks/{notebook}.{suffix}" for notebook in notebooks.names() for suffix in ("py", "ipynb")]
    made += [f"notebooks/recipes/{path.name}" for path in (ROOT / "notebooks" / "recipes").iterdir()]  # `make check` compares them
    package = ["dryrun/README.md", "dryrun/SKILL.md", "dryrun/pyproject.toml", "snippets/dryrun/install.sh"]  # tests/pages/test_dryrun.py compares them
    assert sorted(found) == sorted(["pyproject.toml", *package, *made])


def test_another_address_there_changes_the_colab_links_the_site_and_the_install_cells(tmp_path, monkeypatch):
    text, address = (ROOT / "pyproject.toml").read_text(encoding="utf-8"), notebooks.project()["urls"]["Repository"]
    other = re.sub(r"placeholder = true.*", "", text.replace(address, "https://github.com/somebody/elsewhere"))
    (tmp_path / "pyproject.toml").write_text(other, encoding="utf-8")
    (tmp_path / "results").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SITE_URL", raising=False)
    config = hook.on_config(SimpleNamespace(extra={}, site_url=None))
    assert config.extra["colab"] == "https://colab.research.google.com/github/somebody/elsewhere/blob/main/notebooks/"
    assert config.repo_url == "https://github.com/somebody/elsewhere"
    assert config.site_url == "https://somebody.github.io/elsewhere/"
    assert "git+https://github.com/somebody/elsewhere" in notebooks.install_cell()


# The build


@pytest.mark.nightly
def test_the_build_is_the_same_to_the_byte_when_repeated_elsewhere(folder, checkout, tmp_path):
    run = built.build(tmp_path / "again", checkout)
    assert run.returncode == 0, run.stdout + run.stderr
    assert built.differences(folder, tmp_path / "again") == []


@pytest.mark.parametrize(
    "mistakes",
    [
        {"[a page](nowhere.md)": "nowhere.md", "[a section](notebooks/tiny.ipynb#nobody)": "#nobody"},
        {"It is [[tiny:nowhere]].": "nowhere"},
    ],
    ids=["a broken link and an unknown anchor", "an unknown claim"],
)
def test_a_mistake_fails_the_build_and_the_message_names_the_page(repository, mistakes):
    make_site()
    repository.add_to_page("\n\n".join(mistakes))
    run = built.build(Path("site").resolve(), Path.cwd())
    assert run.returncode != 0
    lines = [line for line in (run.stdout + run.stderr).splitlines() if "index.md" in line]
    assert not [message for message in mistakes.values() if not any(message in line for line in lines)], run.stderr


@pytest.mark.nightly
def test_an_edit_shows_while_the_site_is_served(checkout, tmp_path):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    address, log = f"http://127.0.0.1:{port}/contribute/", tmp_path / "log"
    page, snippet = checkout / "docs" / "contribute.md", checkout / "snippets" / "contribute" / "notes.txt"
    command = re.search(r"-m (mkdocs serve .*) --dev-addr", (checkout / "Makefile").read_text())[1].split()
    with log.open("w") as output:
        server = subprocess.Popen(
            [sys.executable, "-m", *command, "--dev-addr", f"127.0.0.1:{port}"],
            cwd=checkout,
            env=os.environ | {"NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(checkout)},
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        start = seconds_until(address, "Edit a page", 120)
        assert start, f"no page after 120 s\n{log.read_text()}"
        page.write_text(page.read_text(encoding="utf-8") + "\nA sentence nobody wrote before.\n", encoding="utf-8")
        elapsed = seconds_until(address, "A sentence nobody wrote before.", 60)
        assert elapsed, f"the edit did not show within 60 s; the start took {start:.1f} s\n{log.read_text()}"
        snippet.write_text(snippet.read_text() + "\n# Words of a snippet\n", encoding="utf-8")
        included = seconds_until(address, "Words of a snippet", 60)
        assert included, f"the edit of a snippet did not show\n{log.read_text()}"
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()
    assert elapsed < start, f"the edit showed after {elapsed:.1f} s: a build of everything takes {start:.1f} s"


def seconds_until(address, words, limit):
    """How long until a page holds the words; None when it does not within the limit."""
    begin = time.monotonic()
    while time.monotonic() < begin + limit:
        try:
            with urllib.request.urlopen(address, timeout=limit) as answer:
                if words in answer.read().decode():
                    return time.monotonic() - begin
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            pass
        time.sleep(0.05)
    return None
