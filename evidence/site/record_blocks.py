"""The fenced blocks that show a record: `table`, `chart` and `timeline` name a table and what they make of it. A `diagram` has a name."""

import yaml

from ..problems import Problem, nearest
from ..records import find
from . import diagrams, fences, figures

WITHOUT_KEYS = {"accelerators", "diagram", "ledger", "machines"}
NAMES = {"table", "chart", "timeline"} | WITHOUT_KEYS


def check(path, block, found):
    if block.language == "diagram":
        yield from _diagram(path, block)
    if block.language in WITHOUT_KEYS:
        return
    try:
        asked = yaml.safe_load(block.text)
    except yaml.YAMLError as error:
        what = f"this {block.language} block is not YAML ({getattr(error, 'problem', error)})"
        yield Problem(path, what, "write it as `key: value` lines", block.line)
        return
    if not isinstance(asked, dict) or not isinstance(asked.get("table"), str):
        what = f"this {block.language} block names no table"
        yield Problem(path, what, "begin with `table: notebook:name`", block.line)
        return
    notebook, _, name = asked["table"].partition(":")
    try:
        columns = find(found, notebook, name, "tables")[0][1]["columns"]
    except LookupError as error:
        yield Problem(path, f"unknown table: {error}", "take a table of the record", block.line_of_key("table"))
        return
    yield from _columns(path, block, asked, columns)
    yield from _keys(path, block, asked)
    yield from figures.problems(path, block.text, block.line + 1, "say it without the figure: the table holds it")


def _diagram(path, block):
    try:
        diagrams.known(block.text.strip())
    except LookupError as error:
        yield Problem(path, str(error), "take a name of evidence/site/diagrams", block.line)


def _columns(path, block, asked, columns):
    if block.language == "timeline" and (missing := [key for key in fences.TIMELINE if key not in columns]):
        what = f"table {asked['table']} has no column {missing[0]}, which a timeline needs"
        yield Problem(path, what, f"take a table with {', '.join(fences.TIMELINE)}", block.line_of_key("table"))
    for place in ("columns", "x", "y", "names"):
        named = asked.get(place, [])
        for key in named if isinstance(named, list | dict) else [named]:
            if key not in columns:
                what = f"table {asked['table']} has no column {key}{nearest(str(key), columns)}"
                yield Problem(path, what, f"take one of {', '.join(columns)}", block.line_of_key(place))


def _keys(path, block, asked):
    needed, known = fences.BLOCKS[block.language]
    for key in needed:
        if not asked.get(key):
            what = f"a {block.language} without a {key}"
            yield Problem(path, what, f"add `{key}:`, {fences.BLOCK_KEYS[key]}", block.line)
    for key in asked:
        if key not in known:
            what = f"a {block.language} has no {key}{nearest(str(key), known)}"
            yield Problem(path, what, f"take one of {', '.join(known)}", block.line_of_key(key))
    axes = asked.get("log", [])
    if not isinstance(axes, list) or set(axes) - {"x", "y"}:
        what = f"log: {axes} names no axes"
        yield Problem(path, what, "write [x], [y] or [x, y]", block.line_of_key("log"))
    if asked.get("mark", fences.MARKS[0]) not in fences.MARKS:
        what = f"there is no mark {asked['mark']}{nearest(str(asked['mark']), fences.MARKS)}"
        yield Problem(path, what, f"take one of {', '.join(fences.MARKS)}", block.line_of_key("mark"))
