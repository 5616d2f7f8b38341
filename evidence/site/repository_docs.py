"""README, CONTRIBUTING, pages, scripts and workflows name commands and files of this repository: both must exist."""

import re
from pathlib import Path

from ..problems import Problem, nearest, read_text
from . import figures, links, prose

ROOT_PAGES = ("README.md", "CONTRIBUTING.md")
TARGET = re.compile(r"^([a-z][\w-]*):(?!=)", re.M)
MAKE = re.compile(r"(?:^|[\s`(;&|])(?:[A-Z_]+=\S+\s+)*make\s+((?:[A-Z_]+=(?:\"[^\"]*\"|\S+)\s+)*)([a-z][\w-]*)")
CODE = re.compile(r"`([^`\n]+)`")
FENCED = re.compile(r"^[ >]*```[^\n]*\n(.*?)^[ >]*```", re.M | re.S)
OURS = (
    "docs/",
    "snippets/",
    "notebooks/",
    "results/",
    "tests/",
    "evidence/",
    "dryrun/",
    "fitting/",
    "gpu_steps/",
    "theme/",
    "requirements/",
    ".github/",
)
ROOT_FILE = re.compile(r"[A-Za-z][\w.-]*\.(?:md|toml|yml|txt)|Makefile|LICENSE")
ANY = re.compile(r"[<>*{}$…]|\.\.\.")  # stands for any name


def check():
    """All findings, as a list of Problems."""
    makefile = Path("Makefile")
    commands = set(TARGET.findall(read_text(makefile))) if makefile.is_file() else set()
    problems = []
    for path in map(Path, ROOT_PAGES):
        if not path.is_file():
            problems.append(Problem(path, "this file is missing", f"restore it with `git checkout {path}`"))
            continue
        text = read_text(path)
        problems += [*_commands(path, text, commands), *_files(path, text), *_links(path, text)]
        fix = "leave it to the page, where it is a claim, or link its source"
        for block in prose.blocks(text):
            if block.language is None:
                problems += figures.problems(path, block.text, block.line, fix)
    for path in sorted(links.DOCS.rglob("*.md")):
        text = read_text(path)
        problems += [*_commands(path, text, commands), *_files(path, text)]
    for path in [*sorted(Path("snippets").rglob("*.sh")), *sorted(Path(".github", "workflows").glob("*.y*ml"))]:
        problems += _commands(path, read_text(path), commands)
    return problems


def _commands(path, text, known):
    """`make x` in code: x must be a target of the Makefile."""
    if not known:
        return
    for start, code in _code(path, text):
        for match in MAKE.finditer(code):
            if match[2] not in known:
                what = f"there is no command `make {match[2]}`{nearest(match[2], known)}"
                yield Problem(path, what, "take one that `make help` lists", _line(text, start + match.start(2)))


def _code(path, text):
    """(position, code) of inline code and fenced blocks; of a script and a workflow, all of it."""
    if path.suffix != ".md":
        return [(0, text)]
    fenced = [(match.start(1), match[1]) for match in FENCED.finditer(text)]
    return fenced + [(match.start(1), match[1]) for match in CODE.finditer(FENCED.sub(_blank, text))]


def _blank(match):
    return re.sub(r"[^\n]", " ", match[0])


def _files(path, text):
    """`docs/x.md` in code: the file or folder must be there. A name with <...> or * stands for any."""
    for match in CODE.finditer(FENCED.sub(_blank, text)):
        name = match[1].split("#")[0].split(":")[0]
        is_ours = name.startswith(OURS) or path.name in ROOT_PAGES and ROOT_FILE.fullmatch(name)
        if not is_ours or ANY.search(name) or re.search(r"\s", name) or Path(name).exists():
            continue
        folder = Path(name).parent
        while not folder.is_dir():
            folder = folder.parent
        known = [other.as_posix() for other in folder.iterdir() if not other.name.startswith("__")]
        what = f"there is no {name}{nearest(name, known)}"
        yield Problem(path, what, "correct the name", _line(text, match.start(1)))


def _links(path, text):
    """Relative links of a page at the root, and their anchors."""
    for line, target, anchor in links.targets(text):
        file = Path(path.parent, target) if target else path
        if target and not file.exists():
            known = [other.as_posix() for other in Path(".").glob("*")] + [
                p.as_posix() for p in Path("docs").rglob("*.md")
            ]
            yield Problem(path, f"there is no {target}{nearest(target, known)}", "correct the link", line + 1)
        elif anchor and file.suffix == ".md":
            anchors = [*links.anchors_of(file), *map(_slug, re.findall(r"^#+\s+(.+)", read_text(file), re.M))]
            if anchor not in anchors:
                what = f"{file.as_posix()} has no section #{anchor}{nearest(anchor, anchors)}"
                yield Problem(path, what, "correct the link", line + 1)


def _slug(title):
    """The anchor that GitHub makes of a title."""
    return re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-")


def _line(text, position):
    return text.count("\n", 0, position) + 1
