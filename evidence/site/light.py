"""What a page weighs beyond what a reader sees: indents, blank lines, comments, colors that look like none, requests."""

import re
from pathlib import Path

import rcssmin
import rjsmin

JOINED = "assets/site.js"  # what extra_javascript of mkdocs.yml lists, as one file
# Names, operators, punctuation and blanks of code have the color of code itself (docs/assets/site.css).
PLAIN = re.compile(r'<span class="(?:n|o|p|w)">([^<]*)</span>')
KEPT = re.compile(r"(<(pre|script|style|textarea)\b.*?</\2>)", re.S)
INDENT = re.compile(r"\s*\n\s*")
MINIFIERS = {".js": rjsmin.jsmin, ".css": rcssmin.cssmin}


def without_plain_colors(html):
    return PLAIN.sub(r"\1", html)


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
