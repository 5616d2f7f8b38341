"""An address stays once it is published: addresses.txt lists every page and section, and one that is gone is a Problem.

Links from elsewhere lead to them, and no other check hears of those. `add` appends what is new and removes nothing: a line
goes by hand, and who takes it out accepts that such links break.
"""

import os
from pathlib import Path

from .. import recipes
from ..problems import Problem, nearest, read_text
from ..records import write_atomically
from . import redirects
from .links import ANCHOR, DOCS, anchors_of

FILE = Path("addresses.txt")
HEAD = "# Every page and section, since links from elsewhere lead there. `make addresses` adds new ones.\n"


def of_site():
    """Where the site stands: SITE_URL, or the pages of the repository that pyproject.toml names."""
    return (os.environ.get("SITE_URL") or recipes.site_address()).rstrip("/") + "/"


def present():
    """{address: its page} of every page, `training/one-gpu.md`, and of its sections, `training/one-gpu.md#tf32`."""
    found = {}
    for page in sorted(DOCS.rglob("*.md")):
        name = page.relative_to(DOCS).as_posix()
        found |= {address: page for address in [name, *(f"{name}#{anchor}" for anchor in anchors_of(page))]}
    return found


def listed():
    """{address: its line} of the list, empty where there is none."""
    lines = read_text(FILE).splitlines() if FILE.is_file() else []
    return {line.strip(): number for number, line in enumerate(lines, 1) if line.strip() and not line.startswith("#")}


def check():
    """Every address of the list that leads nowhere, and every one that the list lacks."""
    known, there, old = listed(), present(), redirects.load()
    if not known:
        yield Problem(FILE, "there is no list of addresses", f"restore it with `git checkout {FILE}`")
        return
    for address, line in known.items():
        page, _, anchor = address.partition("#")
        if address in there or (page not in there and page.removesuffix(".md") in old):
            continue
        if page in there:
            others = [other.partition("#")[2] for other in there if other.startswith(f"{page}#") and other not in known]
            what = f"{address} is gone{nearest(anchor, others)}, and links from elsewhere may lead there"
            fix = f"give a heading of {there[page]} {{ #{anchor} }} again, or remove this line and break them"
            yield Problem(FILE, what, fix, line)
        elif not anchor or page not in known:  # the sections of a page go with it
            what = f"{page} is gone, and links from elsewhere may lead there"
            fix = f"write `{page.removesuffix('.md')}: page.md` into {redirects.FILE}, with the page that has its answer"
            yield Problem(FILE, what, fix, line)
    for address, page in there.items():
        if address not in known:
            line = line_of_anchor(page, address.partition("#")[2])
            yield Problem(page, f"the list of addresses lacks {address}", "run `make addresses`", line)


def line_of_anchor(page, anchor):
    """The number of the line that gives a heading or a block this id; the first line for no anchor."""
    lines = enumerate(read_text(page).splitlines(), 1)
    return next((number for number, line in lines if anchor in ANCHOR.findall(line)), 1)


def add():
    """Writes the list with the addresses that it lacks; returns them."""
    known, there = listed(), present()
    write_atomically(FILE, HEAD + "".join(f"{address}\n" for address in sorted({*known, *there})))
    return [address for address in there if address not in known]
