"""The site as `make site` builds it, made once for all tests, and a browser, for all tests of a process."""

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

from evidence.site.browser import DESKTOP, Host, chromium, forget

ROOT = Path(__file__).resolve().parent.parent
COLOUR = re.compile(r'<span class="\w{1,3}">([^<]*)</span>')  # as Pygments marks a token
_open = ExitStack()
atexit.register(_open.close)


@cache
def site():
    """The folder of the built site, which whoever asks first builds: the workers of a run share the folder of its tests."""
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
    """Runs the command of `make site` in a process of its own, and so cold."""
    environment = {name: value for name, value in os.environ.items() if name not in ("SITE_URL", "MIKE_DOCS_VERSION")}
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", folder],
        cwd=source,
        env=environment | {"SOURCE_DATE_EPOCH": "0", "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(source)},
        capture_output=True,
        text=True,
        timeout=300,
    )


@cache
def parsed_file(path):
    """A page, without the colours of its code: half of the elements, which carry nothing but their class."""
    return BeautifulSoup(COLOUR.sub(r"\1", path.read_text(encoding="utf-8")), "html.parser")


def parsed(page):
    """A page of the built site, by its address below the site's: "" is the overview."""
    return parsed_file(site() / page / "index.html")


def release():
    """Closes the browser and the host, and forgets what was parsed; who asks again gets them again."""
    _open.close()
    for kept in (parsed_file, host, browser, kept_tab):
        kept.cache_clear()


@cache
def host():
    """The built site on a host of its own, below the path of its address."""
    return _open.enter_context(Host(site()))


@cache
def browser():
    return _open.enter_context(chromium())


@cache
def kept_tab():
    return browser().new_context().new_page()


@contextmanager
def tab(viewport=DESKTOP, color_scheme="light", permissions=(), scripts=True):
    """A tab as good as new: a context of its own would take a process of its own, and a second of CPU time.

    What the built site has stored is forgotten. Other hosts have other ports, and what they store is out of reach.
    """
    opened = kept_tab()
    if host.cache_info().currsize:
        forget(opened, host())
    opened.goto("about:blank")
    opened.context.grant_permissions(list(permissions))
    opened.set_viewport_size(viewport)
    opened.emulate_media(media="null", color_scheme=color_scheme)
    session = opened.context.new_cdp_session(opened)
    session.send("Emulation.setScriptExecutionDisabled", {"value": not scripts})
    try:
        yield opened
    finally:
        session.send("Emulation.setScriptExecutionDisabled", {"value": False})
        session.detach()
        opened.context.clear_permissions()
        for other in opened.context.pages:
            if other != opened:
                other.close()


@contextmanager
def console(tab):
    """What a tab's console says meanwhile."""
    said = []
    heard = {"console": lambda message: said.append(message.text), "pageerror": lambda error: said.append(str(error))}
    for event, listener in heard.items():
        tab.on(event, listener)
    try:
        yield said
    finally:
        for event, listener in heard.items():
            tab.remove_listener(event, listener)
