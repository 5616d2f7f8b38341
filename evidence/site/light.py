"""What a page weighs beyond what a reader sees: indents, blank lines, comments, colors that look like none, requests."""

import re
from functools import cache
from pathlib import Path

import rcssmin
import rjsmin

JOINED = "assets/site.js"  # what extra_javascript of mkdocs.yml lists, as one file
# Names, operators, punctuation and blanks of code have the color of code itself (docs/assets/site.css), and Pygments tells more
# kinds apart than there are colors: each color has one name.
COLORED = re.compile(r'<span class="(\w{1,3})">([^<]*)</span>')
PLAIN = {"n", "o", "p", "w", "kc", "fm", "vm"}
COLORS = {
    "c": "c[1hms]|sd",
    "k": "k[dnprt]|n[dilt]",
    "m": "il|m[bfhio]",
    "nb": "bp|no",
    "nf": "n[cen]",
    "s": "cpf|l|s[12abcis]",
}
SAME_AGAIN = re.compile(r'(<span class="(\w{1,3})">[^<]*)</span>(\s*)<span class="\2">')
KEPT = re.compile(r"(<(pre|script|style|textarea)\b.*?</\2>)", re.S)
INDENT = re.compile(r"\s*\n\s*")
MINIFIERS = {".js": rjsmin.jsmin, ".css": rcssmin.cssmin}


def without_plain_colors(html):
    html = COLORED.sub(_color, html)
    while html != (html := SAME_AGAIN.sub(r"\1\3", html)):
        pass
    return html


def _color(span):
    kind, text = span.groups()
    return text if kind in PLAIN else f'<span class="{one_name(kind)}">{text}</span>'


@cache
def one_name(kind):
    return next((color for color, kinds in COLORS.items() if re.fullmatch(kinds, kind)), kind)


def without_indents(html):
    """A page without the blank lines and indents of its templates. Code, scripts and styles stay to the byte."""
    parts = KEPT.split(html)  # text, element, its name, text, ...
    parts[::3] = [INDENT.sub("\n", text) for text in parts[::3]]
    del parts[2::3]
    return "".join(parts)


def join_scripts(site, names):
    """Writes the scripts of every page as one. Each is a block of its own, so none sees the names of another."""
    folder = Path(site)
    texts = [Path(folder, str(name)).read_text(encoding="utf-8") for name in names]
    Path(folder, JOINED).write_text("\n".join(texts), encoding="utf-8")


def pack(site):
    """Takes comments and blanks out of our scripts and style sheet."""
    for path in Path(site, "assets").iterdir():
        if minify := MINIFIERS.get(path.suffix):
            path.write_text(minify(path.read_text(encoding="utf-8")), encoding="utf-8")
