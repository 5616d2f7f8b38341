"""Which tests a change can touch: what `make test CHANGED=origin/main` runs.

    python tests/changed.py origin/main     a test file in each line, of what differs from that commit; "tests" where it may be any, or without a commit
    python tests/changed.py origin/main --shard 2/4     of these the second of four parts that take about as long

A test file answers to a changed file if it imports it, through whichever modules, if it names it, or if it reads the whole site that the
file is a part of. What this does not know, such as a lock or the Makefile, may touch every test. Everything runs each night, and by
`make test` alone.
"""

import argparse
import ast
import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import watched

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("dryrun", "evidence", "fitting", "gpu_steps")
ALL = ["tests"]
OF_SITE = ("docs/", "theme/", "snippets/", "notebooks/", "results/", "mkdocs.yml", "redirects.yml", "addresses.txt", "evidence/site/")
ANY = ("conftest.py", "tests/conftest.py", "tests/programs.py", "tests/changed.py")
NAMED = ("README.md", "CONTRIBUTING.md")  # by the tests that read them
SECONDS = ROOT / "tests" / "seconds.json"  # what each file took on two cores: a run leaves today's in out/test_seconds.json
NEW = 30.0  # seconds of a file that it lacks
NO_TEST = ("LICENSE", ".gitignore")


@cache
def files_of_tests() -> tuple[Path, ...]:
    return tuple(path.relative_to(ROOT) for path in sorted((ROOT / "tests").rglob("test_*.py")))


@cache
def text(path: Path) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


@cache
def imported(path: Path) -> frozenset[Path]:
    """The files of this repository that one imports, anywhere in it, and through those."""
    found, new = set(), {path, *_fixtures(path)}
    while new:
        found |= new
        new = {other for one in new for other in _imports(one)} - found
    return frozenset(found)


def _fixtures(test: Path) -> list[Path]:
    """The files of fixtures of which a test names one."""
    files = [folder / "conftest.py" for folder in test.parents if (ROOT / folder / "conftest.py").is_file()]
    return [file for file in files if any(re.search(rf"\b{name}\b", text(test)) for name in re.findall(r"fixture.*\ndef (\w+)", text(file)))]


@cache
def _imports(path: Path) -> frozenset[Path]:
    found = set()
    for node in ast.walk(ast.parse(text(path))):
        if isinstance(node, ast.Import):
            found |= {_file(tuple(alias.name.split("."))) for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = list(path.parent.parts)[: len(path.parent.parts) + 1 - node.level] if node.level else []
            parts = (*base, *(node.module.split(".") if node.module else ()))
            found |= {_file(parts), *(_file((*parts, alias.name)) for alias in node.names)}
    return frozenset(found - {None})


@cache
def _file(parts: tuple[str, ...]) -> Path | None:
    for base in (Path(*parts), Path("tests", *parts)):
        for path in (base.with_suffix(".py"), base / "__init__.py", base / "__main__.py"):
            if parts and (ROOT / path).is_file():
                return path
    return None


@cache
def reads_every_page(test: Path) -> bool:
    """Whether it looks at all pages, built or as Markdown, and not at some that it names."""
    return "site_pages" in text(test) or bool(re.search(r'glob\("[^"]*\.md"\)', text(test)))


@cache
def reads_the_site(test: Path) -> bool:
    """Whether it looks at the site that is built of everything."""
    from_built = (node for node in ast.walk(ast.parse(text(test))) if isinstance(node, ast.ImportFrom) and node.module == "built")
    return any(alias.name != "ROOT" for node in from_built for alias in node.names)


def names(changed: str) -> list[str]:
    """How a test may name a file: by its path, below its first folder too, or by its folder."""
    path = Path(changed)
    below = "/".join(path.parts[1:])
    found = [changed, *([below] if "/" in below else [])]
    if path.parts[0] == "snippets" and len(path.parts) > 2:
        found.append(f'"{path.parts[1]}"')
    if changed.startswith("docs/") and path.suffix == ".md" and address(path):
        found.append(address(path))
    if path.parts[0] in ("notebooks", "results"):
        found += [f'"{path.stem if path.parts[0] == "notebooks" else path.parts[1]}"']
    if path.parts[0] == "tests":
        found += [path.name, f'"{path.stem}"']
    return found


def address(page: Path) -> str:
    """Where a page is on the site: "training/optimizers/" of docs/training/optimizers.md, "" of the overview."""
    below = page.relative_to("docs") if page.parts[0] == "docs" else page
    below = below.parent if below.name == "index.md" else below.with_suffix("")
    return f"{below.as_posix()}/".removeprefix("./")


def pages(commit: str, every: list[str]) -> list[str]:
    """Of the addresses of every page those that a change since a commit can touch: all where that is not known, or without a commit."""
    found: set[str] = set()
    for one in differing(commit) if commit else [""]:
        path = Path(one)
        if one.startswith(("docs/", "notebooks/")) and path.suffix in (".md", ".py", ".ipynb"):
            found.add(address(path))
        elif one.startswith("snippets/"):
            found |= {address(page.relative_to(ROOT)) for page in (ROOT / "docs").rglob("*.md") if "/".join(path.parts[1:]) in page.read_text(encoding="utf-8")}
        elif not one or one.startswith(OF_SITE) or touched(one) is None:
            return every
    return [page for page in every if page in found] or every


def touched(changed: str) -> list[str] | None:
    """The test files that answer to one changed file; None where it may be any."""
    path = Path(changed)
    package, python = path.parts[0] in PACKAGES, path.suffix == ".py"
    if changed in NO_TEST:
        return []
    if changed.startswith("tests/") and path in files_of_tests():
        return [changed]
    if changed in ANY or not (package or changed.startswith((*OF_SITE, *NAMED, "tests/", ".github/"))):
        return None
    found = {test for test in files_of_tests() if any(name in text(test) for name in names(changed))}
    if changed.startswith(".github/"):
        found |= {test for test in files_of_tests() if "workflow" in test.name}
    if python and (package or changed.startswith("tests/")):
        found |= {test for test in files_of_tests() if path in imported(test)}
    elif package:  # data: whoever imports the package may read it
        found |= {test for test in files_of_tests() if any(one.parts[0] == path.parts[0] for one in imported(test))}
    if path.parts[0] == "evidence":  # as text
        found |= {test for test in files_of_tests() if 'rglob("*.py")' in text(test)}
    if path.parts[0] == "dryrun":  # commands and programs that run it
        found |= {test for test in files_of_tests() if '"dryrun' in text(test) or "-m dryrun" in text(test)} | {Path("tests/test_exact.py")}
    if path.parts[0] == "notebooks" or path.parts[0] == "results":
        found.add(Path("tests/test_exact.py"))
    if path.parts[0] == "snippets":
        found.add(Path("tests/test_snippets.py"))
        if "/".join(path.parts[1:]) in watched.FILES:
            found.add(Path("tests/test_programs_do_what_they_say.py"))
    if changed.startswith(("docs/assets/", "tests/javascript/")):
        found.add(Path("tests/test_javascript.py"))
    if changed.startswith(OF_SITE):
        of_pages = path.parts[0] in ("snippets", "notebooks") or path.suffix == ".md" and changed != "docs/index.md"  # a page, or a program on one
        found |= {test for test in files_of_tests() if reads_every_page(test) or reads_the_site(test) and not of_pages}
        found |= {test for test in files_of_tests() if test.name == f"test_{path.stem.replace('-', '_')}.py"}
    if changed.startswith("evidence/site/"):  # mkdocs.yml names the hook, which imports them
        found |= {test for test in files_of_tests() if test.is_relative_to("tests/evidence/site")}
    if not found and changed.startswith("tests/"):  # a helper that none of them names
        found = {test for test in files_of_tests() if test.is_relative_to(path.parent)}
    return [test.as_posix() for test in sorted(found)] or None


def answering_to(changed: list[str]) -> list[str]:
    """The test files that answer to changed files."""
    found: set[str] = set()
    for one in changed:
        of_one = touched(one)
        if of_one is None:
            print(f"{one} may touch every test", file=sys.stderr)
            return ALL
        found.update(of_one)
    return sorted(found)


def differing(commit: str) -> list[str]:
    """Files that differ from the commit that this work started from, those that are not committed included."""
    start = subprocess.run(["git", "merge-base", commit, "HEAD"], cwd=ROOT, capture_output=True, text=True)
    if start.returncode:
        sys.exit(f"CHANGED={commit}: git knows no such commit here. Fix: git fetch, or name a branch, as in make test CHANGED=origin/main")
    done = subprocess.run(["git", "diff", "--name-only", "--no-renames", start.stdout.strip()], cwd=ROOT, capture_output=True, text=True, check=True)
    new = subprocess.run(["git", "ls-files", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True)
    return (done.stdout + new.stdout).splitlines()


def expected(tests: list[str], workers: int = 2) -> str:
    """How many test files, and about how many minutes."""
    files = [test.as_posix() for test in files_of_tests()] if tests == ALL else tests
    seconds = json.loads(SECONDS.read_text(encoding="utf-8"))
    taken = [seconds.get(file, NEW) for file in files]
    return f"{len(files)} test files: about {max(sum(taken) / workers, *taken) / 60:.0f} minutes"


def shard(tests: list[str], number: int, of: int) -> list[str]:
    """The files of one part: each in turn, the slowest first, goes to the part that takes least so far."""
    files = [test.as_posix() for test in files_of_tests()] if tests == ALL else tests
    seconds = json.loads(SECONDS.read_text(encoding="utf-8"))
    taken, parts = [0.0] * of, [[] for _ in range(of)]  # type: tuple[list[float], list[list[str]]]
    for file in sorted(files, key=lambda file: (-seconds.get(file, NEW), file)):
        least = taken.index(min(taken))
        taken[least] += seconds.get(file, NEW)
        parts[least].append(file)
    return sorted(parts[number - 1])


def main() -> None:
    parser = argparse.ArgumentParser(description="Prints the test files that a change can touch.")
    parser.add_argument("commit", nargs="?", default="", help="such as origin/main; all tests without one")
    parser.add_argument("--shard", default="", help="such as 2/4")
    asked = parser.parse_args()
    tests = ALL
    if asked.commit:
        if not (changed := differing(asked.commit)):
            sys.exit(f"CHANGED={asked.commit}: nothing differs from it. Fix: name the commit that your work started from, as in make test CHANGED=origin/main")
        tests = answering_to(changed)
    if asked.shard:
        part = re.fullmatch(r"([1-9]\d?)/([1-9]\d?)", asked.shard)
        if not part or int(part[1]) > int(part[2]):
            sys.exit(f"SHARD={asked.shard}: no part of a whole. Fix: write the second of four as SHARD=2/4")
        tests = shard(tests, int(part[1]), int(part[2]))
    if tests:
        print(f"{expected(tests)} on two cores like those of {SECONDS.relative_to(ROOT)}", file=sys.stderr)
    print("\n".join(tests))


if __name__ == "__main__":
    main()
