"""The site as `make site` builds it, made once for all tests of a run, and a browser, once for the tests of a process."""

import atexit
import fcntl
import os
import re
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path

from bs4 import BeautifulSoup

from evidence.site.browser import DESKTOP, Host, chromium

ROOT = Path(__file__).resolve().parent.parent
COLOR = re.compile(r'<span class="\w{1,3}">([^<]*)</span>')  # as Pygments marks a token
_open = ExitStack()
atexit.register(_open.close)


@cache
def site():
    """The folder of the built site. The first test that asks builds it: the workers of a run share the folder of its tests."""
    shared = Path(os.environ["TEST_FOLDER"])
    with (shared / "site.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (shared / "site").exists():
            run = build(shared / "unfinished")
            assert run.returncode == 0, f"mkdocs build --strict failed\n{run.stdout}{run.stderr}"
            (shared / "site.log").write_text(run.stdout + run.stderr, encoding="utf-8")
            (shared / "unfinished").rename(shared / "site")
    return shared / "site"


def build(folder, source=ROOT):
    """Runs the command that `make site` begins with, in the repository at `source`. tests/evidence/site/test_answers.py has what comes after."""
    environment = {name: value for name, value in os.environ.items() if name != "SITE_URL"}
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", folder],
        cwd=source,
        env=environment | {"SOURCE_DATE_EPOCH": "0", "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(source)},
        capture_output=True,
        text=True,
        timeout=300,
    )


def differences(one, other):
    """The files that are not the same, to the byte, in two folders."""
    found = [
        {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        for folder in (one, other)
    ]
    return sorted(name for name in found[0].keys() | found[1].keys() if found[0].get(name) != found[1].get(name))


@cache
def parsed_file(path):
    """A page, without the colors of its code: half of the elements, which carry nothing but their class."""
    return BeautifulSoup(COLOR.sub(r"\1", path.read_text(encoding="utf-8")), "html.parser")


def parsed(page):
    """A page of the built site, by its address below the site's: "" is the overview."""
    return parsed_file(site() / page / "index.html")


def source_of(page):
    """The file that a page of the site is made from, by the page's address."""
    name = page.strip("/")
    notebook = ROOT / f"{name}.ipynb"
    below = ROOT / "docs" / name
    return notebook if notebook.is_file() else below / "index.md" if below.is_dir() else below.with_suffix(".md")


def site_pages():
    """The addresses of all pages, from their sources; the overview is ""."""
    guides = [path.relative_to(ROOT / "docs").with_suffix("") for path in ROOT.glob("docs/**/*.md")]
    folders = [path.parent if path.name == "index" else path for path in guides]
    notebooks = [path.relative_to(ROOT).with_suffix("") for path in ROOT.glob("notebooks/**/*.ipynb")]
    return sorted(f"{path.as_posix()}/".removeprefix("./") for path in [*folders, *notebooks])


@cache
def host():
    """The built site on a host, below the path of its address."""
    return _open.enter_context(Host(site()))


@cache
def browser():
    return _open.enter_context(chromium())


@contextmanager
def tab(viewport=DESKTOP, color_scheme="light", permissions=(), scripts=True):
    """A tab that has visited nothing before."""
    context = browser().new_context(
        viewport=viewport, color_scheme=color_scheme, permissions=list(permissions), java_script_enabled=scripts
    )
    try:
        yield context.new_page()
    finally:
        context.close()


@contextmanager
def console(tab):
    """What a tab's console says."""
    said = []
    tab.on("console", lambda message: said.append(message.text))
    tab.on("pageerror", lambda error: said.append(str(error)))
    yield said
