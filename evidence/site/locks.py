"""A lock must be younger than its source: what requirements/*.in ask for, requirements/*.txt hold.

Not by dates of files, which a checkout sets anew: by names and versions. That each has its hash asks pip.
"""

import re
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from ..notebooks import project
from ..problems import Problem, nearest, read_text

FOLDER = Path("requirements")
NOT_LOCKED = re.compile(r"^NOT_LOCKED\s*:=\s*(.*)$", re.M)
PINNED = re.compile(r"^([A-Za-z0-9][\w.-]*)(?:\[[^\]]*\])?==([^\s;\\]+)", re.M)
FIX = "run `make lock`"


def check(folder=FOLDER, makefile=Path("Makefile")):
    """All findings, as a list of Problems."""
    sources = sorted(Path(folder).glob("*.in"))
    if not sources:
        return [Problem(folder, "there is no list of requirements", "run from the root of the repository")]
    found = NOT_LOCKED.search(read_text(makefile)) if Path(makefile).is_file() else None
    free = set(map(canonicalize_name, found[1].split() if found else ()))
    problems = []
    for source in sources:
        lock = source.with_suffix(".txt")
        if not lock.is_file():
            problems.append(Problem(source, f"{lock.name} is missing", FIX))
            continue
        problems += _lock(source, lock, free)
    return [*problems, *_pins(folder)]


def requirements(source):
    """(file, line, Requirement or the text that is none) of a list and of those that it includes by -r."""
    for number, line in enumerate(read_text(source).splitlines(), 1):
        text = line.partition("#")[0].strip()
        if text.startswith("-r "):
            yield from requirements(source.parent / text[3:].strip())
        elif text:
            try:
                yield source, number, Requirement(text)
            except InvalidRequirement:
                yield source, number, text


def _lock(source, lock, free):
    locked = {}
    for name, version in PINNED.findall(read_text(lock)):
        locked.setdefault(canonicalize_name(name), []).append(version)
    for file, number, wanted in requirements(source):
        if isinstance(wanted, str):
            yield Problem(file, f"{wanted!r} is no requirement", "write `name==1.2.3`", number)
            continue
        name = canonicalize_name(wanted.name)
        if name in locked:
            if not any(wanted.specifier.contains(version, prereleases=True) for version in locked[name]):
                what = f"{wanted} is wanted, and {lock.name} holds {', '.join(locked[name])}"
                yield Problem(file, what, FIX, number)
        elif name not in free:
            yield Problem(file, f"{lock.name} lacks {wanted.name}{nearest(name, locked)}", FIX, number)


def _pins(folder):
    """The same package pinned in pyproject.toml and the lists has one version."""
    pins = {}
    for text in project()["optional-dependencies"]["examples"]:
        wanted = Requirement(text)
        pins.setdefault(canonicalize_name(wanted.name), []).append((Path("pyproject.toml"), text, wanted))
    source = Path(folder, "test.in")
    for file, number, wanted in requirements(source) if source.is_file() else ():
        for other, text, theirs in [] if isinstance(wanted, str) else pins.get(canonicalize_name(wanted.name), []):
            ours = [pin.version for pin in wanted.specifier if pin.operator == "=="]
            if ours and not theirs.specifier.contains(ours[0], prereleases=True):
                what = f"{wanted} here, and {text} in {other}"
                yield Problem(file, what, "write one version in both", number)
