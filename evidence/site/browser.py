"""The built site as readers get it: from a static host, below a sub-path, compressed, in a real Chromium.

`python -m evidence audit` and the tests use it. It needs playwright (requirements/test.in) and a Chromium: the one that
CHROMIUM names, one on PATH, or playwright's own.
"""

import gzip
import mimetypes
import os
import re
import shutil
import threading
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit
from urllib.request import Request, urlopen

from ..problems import Problem

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
INSTALL = "`apt-get install chromium` (Debian), or name yours: `CHROMIUM=/path/to/it make test`"
AXE = Path(__file__).resolve().parents[2] / "tests" / "axe-core" / "axe.min.js"
PHONE, DESKTOP = {"width": 390, "height": 844}, {"width": 1280, "height": 900}
LOOKS = [
    (name, size, scheme) for name, size in (("phone", PHONE), ("desktop", DESKTOP)) for scheme in ("light", "dark")
]
COMPRESSED = re.compile(r"text/|javascript|json|xml|svg")


class Host:
    """Serves a built site below the path of its address, as a static host does. `served` is [(path, bytes sent)]."""

    def __init__(self, site, path=None, port=0):
        self.site, self.served = Path(site), []
        home = (self.site / "index.html").read_text(encoding="utf-8")
        self.built_for = urlsplit(re.search(r'<link rel="canonical" href="([^"]+)"', home)[1]).path
        self.path = path or self.built_for
        self._server = ThreadingHTTPServer(("127.0.0.1", port), lambda *request: _Handler(self, *request))
        self.origin = f"http://127.0.0.1:{self._server.server_port}"
        self.address = self.origin + self.path

    def __enter__(self):
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()

    def find(self, path):
        """(status, file) of a path, as GitHub Pages answers: /x is x.html, or sends on to /x/ if that is a folder."""
        below = unquote(path).removeprefix(self.path) if path.startswith(self.path) else None
        if below is not None and ".." not in below.split("/"):
            file = self.site / below
            if below == "" or below.endswith("/"):
                file = file / "index.html"
            elif not file.is_file() and file.with_name(f"{file.name}.html").is_file():
                file = file.with_name(f"{file.name}.html")
            elif file.is_dir():
                return 301, file
            if file.is_file():
                return 200, file
        return 404, self.site / "404.html"

    @property
    def pages(self):
        """The addresses of all pages, from the site's own sitemap."""
        found = re.findall(r"<loc>([^<]+)</loc>", (self.site / "sitemap.xml").read_text(encoding="utf-8"))
        return [urlsplit(address).path.removeprefix(self.built_for) for address in found]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def __init__(self, host, *request):
        self.host = host
        super().__init__(*request)

    def do_GET(self):
        path = urlsplit(self.path).path
        status, file = self.host.find(path)
        body, compressed, kind = _content(file) if status != 301 else (b"", b"", None)
        if compressed and "gzip" in self.headers.get("Accept-Encoding", ""):
            body = compressed
        else:
            compressed = None
        self.send_response(status)
        if status == 301:
            self.send_header("Location", f"{path}/")
        if kind:
            self.send_header("Content-Type", f"{kind}; charset=utf-8" if COMPRESSED.search(kind) else kind)
        if compressed:
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Cache-Control", "max-age=600")
        self.send_header("Content-Length", str(len(body)))
        sent = sum(map(len, self._headers_buffer)) + len(body)
        self.host.served.append((path.removeprefix(self.host.path), sent))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_GET

    def log_message(self, *_):
        pass


@cache
def _content(file):
    """(bytes, gzipped bytes where that is done, kind) of a file."""
    body, kind = file.read_bytes(), mimetypes.guess_type(file.name)[0] or "application/octet-stream"
    kind = "text/markdown" if file.suffix == ".md" else kind
    return body, gzip.compress(body, 6, mtime=0) if COMPRESSED.search(kind) else b"", kind


def found(own=None):
    """A Chromium: the one that CHROMIUM names, one on PATH, or playwright's own; None where there is none."""
    named = os.environ.get("CHROMIUM")
    if named and not shutil.which(named):
        raise Problem("evidence/site/browser.py", f"CHROMIUM={named} is no program", INSTALL)
    return shutil.which(named) if named else next(filter(None, map(shutil.which, NAMES)), own)


def executable(own=None):
    """The same, and none is a Problem."""
    path = found(own if own and Path(own).exists() else None)
    if not path:
        raise Problem("evidence/site/browser.py", "there is no Chromium on this machine", INSTALL)
    return path


@contextmanager
def chromium():
    """A Chromium, without a window, that can reach this machine only."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        raise Problem("evidence/site/browser.py", "playwright is not installed", "make install") from None
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=executable(playwright.chromium.executable_path),
            args=["--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"],
        )
        try:
            yield browser
        finally:
            browser.close()


class Visit:
    """What one first visit of a page fetched: {path: bytes}, the hosts it asked, and what the console said.

    look: a function of the open tab, called once the page is there; what it returns is `seen`.
    """

    def __init__(self, browser, host, page, look=None, **context):
        self.page, self.hosts, self.messages = page, set(), []
        opened = browser.new_page(**{"viewport": PHONE, **context})
        host.served.clear()
        own = {"", urlsplit(host.origin).netloc}
        opened.on("request", lambda request: self.hosts.update({urlsplit(request.url).netloc} - own))
        opened.on("console", lambda message: self.messages.append(message.text))
        opened.on("pageerror", lambda error: self.messages.append(str(error)))
        opened.goto(host.address + page)
        self.seen = look(opened) if look else None
        opened.wait_for_load_state("networkidle")
        icon = opened.locator("link[rel~=icon]").first.get_attribute("href")
        address = opened.evaluate("link => new URL(link, document.baseURI).href", icon)
        if urlsplit(address).path.removeprefix(host.path) not in dict(
            host.served
        ):  # a browser without a window omits it
            urlopen(Request(address, headers={"Accept-Encoding": "gzip"})).read()
        self.fetched = dict(host.served)
        opened.close()

    @property
    def figures(self):
        """What of it are the pictures of a notebook."""
        return {path: size for path, size in self.fetched.items() if re.search(r"_files/\d+\.\w+$", path)}

    @property
    def weight(self):
        return sum(self.fetched.values()) - sum(self.figures.values())


def violations(tab, inside="html"):
    """What axe-core finds wrong inside an element of the page in a tab, one line for each rule and element."""
    if not tab.evaluate("'axe' in window"):
        tab.evaluate(AXE.read_text(encoding="utf-8"))
    options = "{resultTypes: ['violations'], rules: {'target-size': {enabled: true}}}"  # which Lighthouse asks for
    run = f"async inside => (await axe.run(inside, {options})).violations"
    return [
        f"{rule['id']} ({rule['help']}): {' '.join(map(str, node['target']))}"
        for rule in tab.evaluate(run, inside)
        for node in rule["nodes"]
    ]
