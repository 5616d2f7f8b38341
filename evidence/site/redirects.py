"""Old addresses lead on: redirects.yml names each and the page that took its place; `write` puts a page there.

A static host serves x.html for /x and /x.html, and x/index.html for /x/: both are written, unless a page of ours is
there. They need no script and hold relative links, so that they work from any folder of a host.
"""

from html import escape
from pathlib import Path, PurePosixPath

import yaml

from ..problems import Problem, line_of, nearest, read_text
from .links import DOCS, anchors_of

FILE = Path("redirects.yml")
PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'">
<meta name="viewport" content="width=device-width,initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="refresh" content="0; url={link}">
<link rel="canonical" href="{canonical}">
<title>This page has moved</title>
</head>
<body>
<main><h1>This page has moved</h1><p><a href="{link}">Go to its new address</a></p></main>
</body>
</html>
"""


def load(path=FILE):
    """{old address: (page, anchor or nothing)}"""
    if not Path(path).is_file():
        return {}
    text = read_text(path)
    try:
        entries = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise Problem(path, f"not YAML ({getattr(error, 'problem', error)})", "write `old: page.md` lines") from None
    if not isinstance(entries, dict) or not all(isinstance(value, str) for value in entries.values()):
        raise Problem(path, "not a list of addresses and pages", "write `old: page.md` lines")
    found = {}
    for old, value in entries.items():
        page, _, anchor = value.partition("#")
        found[old] = (page, anchor)
    return found


def check(path=FILE, docs=DOCS):
    """Every target that is gone."""
    known = [page.relative_to(docs).as_posix() for page in Path(docs).rglob("*.md")]
    text = read_text(path) if Path(path).is_file() else ""
    for old, (page, anchor) in load(path).items():
        line = line_of(text, f"{old}:")
        if page not in known:
            fix = "name the page that has its answer now"
            yield Problem(path, f"{old} leads to {page}, which is gone{nearest(page, known)}", fix, line)
        elif anchor and anchor not in (anchors := anchors_of(Path(docs, page))):
            what = f"{old} leads to {page}#{anchor}, and that section is gone{nearest(anchor, anchors)}"
            yield Problem(path, what, f"correct it, or give a heading there {{ #{anchor} }}", line)


def address(page):
    """Where the site shows a page of docs/: training/one-gpu.md at training/one-gpu/."""
    folder = PurePosixPath(page).with_suffix("")
    folder = folder.parent if folder.name == "index" else folder
    return "" if folder == PurePosixPath(".") else f"{folder}/"


def write(site, site_url, path=FILE):
    """Puts the pages into the built site."""
    for old, (page, anchor) in load(path).items():
        for file in (Path(site, f"{old}.html"), Path(site, old, "index.html")):
            if not file.exists():
                up = "../" * (len(file.relative_to(site).parts) - 1) or "./"
                link = f"{up}{address(page)}{anchor and '#' + anchor}"
                file.parent.mkdir(parents=True, exist_ok=True)
                text = PAGE.format(link=escape(link), canonical=escape(f"{site_url or up}{address(page)}"))
                file.write_text(text, encoding="utf-8")
