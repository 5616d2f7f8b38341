"""Material's style sheet without the rules that no page can meet: half of what a first visit would fetch. And without
those for tabs, one for each of twenty: ours are in docs/assets/site.css."""

import re
from pathlib import Path

CLASS = re.compile(r"\.(-?[A-Za-z_][\w-]*)")
EITHER = re.compile(r":(?:not|is|where|has)\((?:[^()]|\([^()]*\))*\)")  # says nothing of what must be there
PROPERTY = re.compile(r"(?<=[{;])(--[\w-]+):(?:\"[^\"]*\"|'[^']*'|[^;}])*;?")
WORDS = re.compile(r"[\w-]+")


def slim(site):
    """Rewrites the style sheets of Material in a built site."""
    site = Path(site)
    pages = "".join(path.read_text(encoding="utf-8") for path in site.rglob("*.html"))
    own = [
        path.read_text(encoding="utf-8")
        for pattern in ("*.js", "*.css")
        for path in site.joinpath("assets").glob(pattern)
    ]
    known = set(WORDS.findall(" ".join([*re.findall(r'class="([^"]*)"', pages), *own])))
    for path in site.glob("assets/stylesheets/*.css"):
        css = _without_unused_properties(_rules(path.read_text(encoding="utf-8"), known), "".join(own))
        path.write_text(css, encoding="utf-8")


def _rules(css, known):
    """The rules that can meet an element. An at-rule that holds rules is looked through, one without rules left is gone."""
    kept = []
    for head, body in _blocks(css):
        if body is None or re.match(r"@(?!media|supports|layer|container)", head):
            kept.append(f"{head}{{{body}}}" if body is not None else head)
        elif head.startswith("@"):
            inner = _rules(body, known)
            kept += [f"{head}{{{inner}}}"] if inner else []
        else:
            selectors = [selector for selector in _split(head) if _can_meet(selector, known)]
            kept += [f"{','.join(selectors)}{{{body}}}"] if selectors else []
    return "".join(kept)


def _can_meet(selector, known):
    return (
        "[dir=rtl]" not in selector
        and ".tabbed-" not in selector
        and set(CLASS.findall(EITHER.sub("", selector))) <= known
    )


def _blocks(css):
    """[(what stands before a block, its content)]; a statement without a block has None as its content."""
    start, position = 0, 0
    while position < len(css):
        char = css[position]
        if char in "\"'":
            position = _end_of_text(css, position)
        elif char == ";":
            yield css[start : position + 1].strip(), None
            start = position + 1
        elif char == "{":
            end = _end_of_block(css, position)
            yield css[start:position].strip(), css[position + 1 : end]
            start = position = end + 1
            continue
        position += 1


def _end_of_block(css, position):
    depth = 0
    while True:
        if css[position] in "\"'":
            position = _end_of_text(css, position)
        depth += (css[position] == "{") - (css[position] == "}")
        if depth == 0:
            return position
        position += 1


def _end_of_text(css, position):
    end = position + 1
    while css[end] != css[position]:
        end += 2 if css[end] == "\\" else 1
    return end


def _split(selectors):
    """The selectors of a list; a comma inside of parentheses or brackets parts none."""
    return re.split(r",(?![^()]*\))(?![^\[\]]*\])", selectors)


def _without_unused_properties(css, own):
    """Custom properties, mostly icons, that no rule left takes."""
    used = set(re.findall(r"var\((--[\w-]+)", css + own))
    return PROPERTY.sub(lambda found: found[0] if found[1] in used else "", css)
