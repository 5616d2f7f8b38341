"""Python-Markdown extension: notes to lines of a program, without a comment in the program and without a script.

A list in `<div class="notes" markdown>` under a block of code explains it: each entry begins with the code it is about,
and the first line that holds it gets the entry's number. Code that is not in the block raises, so a note cannot outlive
the line it explains.
"""

import re
from html import unescape

from markdown.extensions import Extension
from markdown.postprocessors import Postprocessor

from ..problems import nearest

NOTED = re.compile(r'<code>((?:(?!</code>).)*)</code></pre></div>\s*(<div class="notes">.*?</div>)', re.S)
ABOUT = re.compile(r"<li>\s*(?:<p>)?<code>(.*?)</code>")


class Notes(Postprocessor):
    def run(self, text):
        return NOTED.sub(self._marked, text) if 'class="notes"' in text else text

    def _marked(self, match):
        lines, notes = match[1].split("\n"), match[2]
        plain = [unescape(re.sub(r"<[^>]*>", "", line)) for line in lines]
        about = [unescape(code) for code in ABOUT.findall(notes)]
        if len(about) < notes.count("<li>"):
            what = "a note that does not begin with the code it is about"
            raise self.md.evidence.problem(what, "begin it with `code`", 'class="notes"')
        for number, code in enumerate(about, 1):
            place = next((place for place, line in enumerate(plain) if code in line), None)
            if place is None:
                what = f"a note about {code!r}, which is not in the block above it{nearest(code, plain)}"
                raise self.md.evidence.problem(what, "quote a part of one of its lines", code)
            lines[place] += f' <b class="note" aria-hidden="true" data-search-exclude>{number}</b>'
        return match[0].replace(match[1], "\n".join(lines), 1)


class NotesExtension(Extension):
    def extendMarkdown(self, md):
        md.postprocessors.register(Notes(md), "notes", 5)  # after raw HTML (30) has taken its place


def makeExtension(**options):
    return NotesExtension(**options)
