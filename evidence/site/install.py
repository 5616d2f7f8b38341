"""The line under a guide's title that installs what its programs import. Made from the programs, so it cannot grow stale.

A page that shows an install script of its own has no line. A package that no list of requirements/ names is left to the
section that needs it.
"""

import ast
import re
import xml.etree.ElementTree as etree
from functools import cache
from pathlib import Path

from markdown.treeprocessors import Treeprocessor
from markdown.util import AtomicString

from . import locks

INCLUDED = re.compile(r'--8<-- "([^":]+)')
OWN_SCRIPT = re.compile(r"/install\w*\.sh$")
LISTS = ("requirements/test.in", "requirements/tpu.in")
NEEDS_ACCELERATE = re.compile(r"\bTrainer\b|\bdevice_map\b")  # transformers imports it when one of these is used
ELSEWHERE = {"contribute.md", "hardware/other.md"}  # its programs are ours; each maker has wheels of torch of its own
FIRST = ("torch", "transformers", "accelerate")


def programs(page, text):
    """The snippets that a page includes; none of a page that needs no line."""
    return [] if page in ELSEWHERE else INCLUDED.findall(text)


def packages(names, snippets=Path("snippets")):
    """What `pip install` is told for the programs of these names, with versions, the best known first."""
    if any(map(OWN_SCRIPT.search, names)):
        return []
    wanted = set().union(*(_imports(Path(snippets, name)) for name in names if name.endswith(".py")))
    found = {package: text for package, text in _listed().items() if package in wanted}
    return [found[name] for name in sorted(found, key=lambda name: FIRST.index(name) if name in FIRST else len(FIRST))]


@cache
def _imports(path):
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    found = {"accelerate"} if NEEDS_ACCELERATE.search(text) and "transformers" in text else set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add(node.module.split(".")[0])
    return found


@cache
def _listed():
    """{package: how a list of requirements names it}"""
    found = {"PIL": "pillow"}  # imported by another name than it is installed by
    for source in filter(Path.is_file, map(Path, LISTS)):
        for _, _, wanted in locks.requirements(source):
            if not isinstance(wanted, str):
                found.setdefault(wanted.name, str(wanted))
    return found


class Install(Treeprocessor):
    """`names`: the programs that the page shows."""

    names = ()

    def run(self, root):
        title, wanted = root.find("h1"), packages(self.names)
        if title is None or not wanted:
            return
        line = etree.Element("p", {"class": "install", "data-search-exclude": ""})
        line.text = "To run the programs of this page: "
        etree.SubElement(line, "code").text = AtomicString(f"pip install {' '.join(wanted)}")
        before = root.find("p[@class='verified']")
        root.insert(list(root).index(title if before is None else before) + 1, line)
