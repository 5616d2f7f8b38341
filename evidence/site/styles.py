"""Material's style sheet without the rules that no page can meet: half of what a first visit would fetch. And without
those for tabs, one for each of twenty: ours are in docs/assets/site.css, which takes what is left.

A rule can meet an element if the elements that its selector names stand one within the other on some page, told by tag and
classes, or if a script makes one of them."""

import re
from pathlib import Path

OURS = "assets/site.css"
CLASS = re.compile(r"\.(-?[A-Za-z_][\w-]*)")
EITHER = re.compile(r":(?:not|is|where|has)\((?:[^()]|\([^()]*\))*\)")  # says nothing of what must be there
PROPERTY = re.compile(r"(?<=[{;])(--[\w-]+):(?:\"[^\"]*\"|'[^']*'|[^;}])*;?")
STATE = re.compile(r"::?[\w-]+(?:\([^()]*\))?")
ATTRIBUTE = re.compile(r"\[([\w-]+)[^\]]*\]")
STEP = re.compile(r"\s*[>+~]\s*|\s+")
TEXT_OF_SCRIPT = re.compile(r'"([^"\n]*)"|`([^`]*)`')
WORDS = re.compile(r"[\w-]+")
CHANGING = {"open", "hidden"}  # attributes that come and go while one reads
MARKUP = re.compile(r"<(/?)([a-zA-Z][\w-]*)((?:\"[^\"]*\"|'[^']*'|[^>\"'])*)>")
ATTRIBUTES = re.compile(r"""([\w:-]+)(?:=(?:"([^"]*)"|'([^']*)'|([^\s"'>]+)))?""")
EMPTY = re.compile(r"(?:area|base|br|circle|col|embed|hr|img|input|line|link|meta|path|rect|source|track|wbr)$")


def slim(site):
    """Puts what is left of Material's style sheet before ours in a built site, and takes its own files away."""
    site = Path(site)
    theirs = sorted(site.glob("assets/stylesheets/*.css"))
    ours = site.joinpath(OURS).read_text(encoding="utf-8")
    scripts = "".join(path.read_text(encoding="utf-8") for path in site.joinpath("assets").glob("*.js"))
    elements = Elements([path.read_text(encoding="utf-8") for path in site.rglob("*.html")], scripts)
    main = next(path for path in theirs if path.name.startswith("main."))
    css = _without_unused_properties(_rules(main.read_text(encoding="utf-8"), elements), ours + scripts)
    site.joinpath(OURS).write_text(f"{css}\n{ours}", encoding="utf-8")
    for path in theirs:
        path.unlink()


class Elements:
    """The elements of the pages: a name is a tag with its classes and the names of its attributes; above: {name: names that it
    stands within}. A script makes elements of the tags and classes that stand in its texts."""

    def __init__(self, pages, scripts=""):
        self.above, self.seen = {}, {}
        for page in pages:
            self._read(page)
        self.made = {
            word for found in TEXT_OF_SCRIPT.finditer(scripts) for word in WORDS.findall(found[1] or found[2] or "")
        }
        self.classes = {name for _, classes, _ in self.above for name in classes}

    def _read(self, page):
        within = []  # (tag, name)
        for end, tag, attributes in MARKUP.findall(page):
            tag = tag.lower()
            if end:
                if tag in [open_tag for open_tag, _ in within]:
                    while within.pop()[0] != tag:
                        pass
                continue
            name = self._name(tag, attributes)
            self.above.setdefault(name, set()).update(outer for _, outer in within)
            if not EMPTY.match(tag) and not attributes.endswith("/"):
                within.append((tag, name))

    def _name(self, tag, attributes):
        if (tag, attributes) not in self.seen:
            found = {name: one or two or three for name, one, two, three in ATTRIBUTES.findall(attributes)}
            self.seen[tag, attributes] = (tag, frozenset(found.pop("class", "").split()), frozenset(found))
        return self.seen[tag, attributes]

    def can_meet(self, selector):
        """Whether some element can meet a selector. What stands before or beside it counts as around it."""
        plain = ATTRIBUTE.sub(r"[\1]", STATE.sub("", EITHER.sub("", selector)))
        steps = [step for step in STEP.split(plain) if step.strip("*")]
        beside = re.search(r"[+~]", plain)
        inner = None
        for step in reversed(steps):
            found = self._named(step)
            if not found:
                if not self._can_be_made(step):
                    return False
                inner = None  # what is around it is not known
                continue
            if inner is not None and not beside:
                around = set().union(*(self.above[name] for name in inner))
                found = found & around
                if not found:
                    return False
            inner = found
        return True

    def _named(self, step):
        tag, classes, attributes = _parts(step)
        return {name for name in self.above if tag in ("", name[0]) and classes <= name[1] and attributes <= name[2]}

    def _can_be_made(self, step):
        """By a script, which may also add a class to what is there."""
        tag, classes, _ = _parts(step)
        return (
            (not tag or tag in self.made) and classes <= self.made | self.classes and bool(classes & self.made or tag)
        )


def _parts(step):
    tag = re.match(r"[a-z]\w*", step)
    return tag[0] if tag else "", frozenset(CLASS.findall(step)), frozenset(ATTRIBUTE.findall(step)) - CHANGING


def _rules(css, elements):
    """The rules that can meet an element. An at-rule that holds rules is looked through, one without rules left is gone."""
    kept = []
    for head, body in _blocks(css):
        if body is None or re.match(r"@(?!media|supports|layer|container)", head):
            kept.append(f"{head}{{{body}}}" if body is not None else head)
        elif head.startswith("@"):
            inner = _rules(body, elements)
            kept += [f"{head}{{{inner}}}"] if inner else []
        else:
            selectors = [selector for selector in _split(head) if _can_meet(selector, elements)]
            kept += [f"{','.join(selectors)}{{{body}}}"] if selectors else []
    return "".join(kept)


def _can_meet(selector, elements):
    return "[dir=rtl]" not in selector and ".tabbed-" not in selector and elements.can_meet(selector)


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
