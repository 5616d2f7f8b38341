"""The place that answers a short query, from best_bets.yml: one or two words are on too many pages to be told apart by them."""

from pathlib import Path

import yaml

from ..problems import Problem, line_of, nearest, read_text
from . import redirects
from .links import DOCS, anchors_of

FILE = Path("best_bets.yml")
SHAPE = "write `page.md#section: [query, query]` lines"


def load(path=FILE):
    """{(page, anchor or nothing): queries}"""
    if not Path(path).is_file():
        return {}
    text = read_text(path)
    try:
        entries = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        raise Problem(path, f"not YAML ({getattr(error, 'problem', error)})", SHAPE, mark and mark.line + 1) from None
    if not isinstance(entries, dict):
        raise Problem(path, "not a list of places and queries", SHAPE)
    for place, queries in entries.items():
        if not isinstance(queries, list) or not all(isinstance(query, str) for query in queries):
            fix = f"{SHAPE}, with quotation marks round a query that YAML reads as something else"
            raise Problem(
                path, f"{place} has {queries!r} in place of a list of queries", fix, line_of(text, f"{place}:")
            )
    return {tuple(place.partition("#")[::2]): queries for place, queries in entries.items()}


def check(path=FILE, docs=DOCS):
    """Every place that is gone, and every query that has two."""
    known = [page.relative_to(docs).as_posix() for page in Path(docs).rglob("*.md")]
    text, seen = read_text(path) if Path(path).is_file() else "", {}
    for (page, anchor), queries in load(path).items():
        line = line_of(text, f"{page}#{anchor}:" if anchor else f"{page}:")
        if page not in known:
            yield Problem(
                path, f"{page} is no page{nearest(page, known)}", "name the page that has its answer now", line
            )
        elif anchor and anchor not in (anchors := anchors_of(Path(docs, page))):
            fix = f"correct it, or give a heading there {{ #{anchor} }}"
            yield Problem(path, f"{page} has no section #{anchor}{nearest(anchor, anchors)}", fix, line)
        for query in queries:
            words = " ".join(sorted(query.split()))
            if words in seen:
                yield Problem(
                    path, f"`{query}` stands here and under {seen[words]}", "keep it where it is answered", line
                )
            seen[words] = page


def places(path=FILE):
    """{the place of a section on the site: its queries}"""
    return {
        f"{redirects.address(page)}{anchor and '#' + anchor}": queries for (page, anchor), queries in load(path).items()
    }
