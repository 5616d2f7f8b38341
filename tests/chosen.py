"""Which tests run: the core, what a change can touch, everything, or a part of it. The Makefile asks, and passes the answer to pytest.

    python tests/chosen.py core                        the core, and whatever differs from the branch origin/main: `make test`
    python tests/chosen.py core --only core            the core alone
    python tests/chosen.py core --changed COMMIT       only what a change since that commit can touch: `make test CHANGED=COMMIT`
    python tests/chosen.py all [--shard 2/4]           every test, or the second of four parts that take about as long: `make test-all`
    python tests/chosen.py all --only changed          what has changed since a whole run last proved it (tests/proved.json), without the core
    python tests/chosen.py all --only unchanged        all the rest
    python tests/chosen.py proved                      takes what the last runs proved over into tests/proved.json: `make proved`

The core is every test outside tests/pages that is not marked `nightly`. A test file answers to a changed file if it imports it, through
whichever modules, if it names it, or if it reads the whole site that the file is a part of. What this does not know, such as a lock or
the Makefile, may touch every test; `make test-all` runs them each night.
"""

import argparse
import ast
import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

import watched

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("dryrun", "evidence", "fitting", "gpu_steps")
OF_SITE = ("docs/", "theme/", "snippets/", "notebooks/", "results/", "mkdocs.yml", "redirects.yml", "best_bets.yml", "addresses.txt", "evidence/site/")
ANY = ("conftest.py", "tests/conftest.py", "tests/programs.py", "tests/chosen.py")
NAMED = ("README.md", "CONTRIBUTING.md")  # by the tests that read them
PROVED = ROOT / "tests" / "proved.json"  # of each test file: seconds on two cores, and the commit and day at which all of it last passed
RUNS = ROOT / "out" / "tests"  # what the last run of each kind left: conftest.py writes it
PAGES = "tests/pages/"  # programs and sentences of the pages: not in the core
SLOWER = 1.5  # how much longer a machine may take than the one that PROVED has its seconds from
NEW = 30.0  # seconds of a file that PROVED lacks
NO_TEST = ("LICENSE", ".gitignore", "tests/proved.json")
EXACT = "tests/test_exact.py"
# Tables of which anybody adds a row: what reads rows one by one. All else that imports the library would run too, and ask nothing new.
ROWS = {
    "dryrun/data/accelerators": ["tests/dryrun/test_hardware.py", "tests/dryrun/test_profiles.py", "tests/pages/test_hardware.py", "tests/pages/test_other_hardware.py"],
    "fitting/data/published.json": ["tests/dryrun/test_published.py", "tests/dryrun/test_timing.py", "tests/pages/test_gpu_time.py"],
}
VISITS = "tests/evidence/site/test_every_page.py::test_a_first_visit_asks_no_other_host_is_light_and_fits_a_phone"
MAIN = "origin/main"


class Chosen(NamedTuple):
    """A test file that runs, or the tests of it that an id names."""

    test: str
    whole: bool = True  # with its nightly tests


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


def exact(notebook: str) -> str:
    return f"{EXACT}::test_what_is_derived_traced_and_cited_comes_out_as_recorded[{notebook}]"


def notebooks_that_name(word: str) -> list[str]:
    return [path.stem for path in sorted((ROOT / "notebooks").glob("*.py")) if re.search(rf"\b{word}\b", path.read_text(encoding="utf-8"))]


def touched(changed: str) -> list[Chosen] | None:
    """What answers to one changed file; None where it may be any test."""
    path = Path(changed)
    package, python = path.parts[0] in PACKAGES, path.suffix == ".py"
    if changed in NO_TEST:
        return []
    if changed.startswith("tests/") and path in files_of_tests():
        return [Chosen(changed)]
    table = changed if changed in ROWS else path.parent.as_posix()
    if table in ROWS:
        read = {Chosen(test, whole=test.startswith(PAGES)) for test in ROWS[table]}
        return sorted(read | {Chosen("tests/evidence/site/test_site.py", whole=False), Chosen(exact("hardware")), Chosen(exact("gpu_time"))})
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
        found |= {test for test in files_of_tests() if '"dryrun' in text(test) or "-m dryrun" in text(test)}
    if path.parts[0] == "snippets":
        found.add(Path("tests/test_snippets.py"))
        if "/".join(path.parts[1:]) in watched.FILES:
            found.add(Path("tests/test_programs_do_what_they_say.py"))
    if changed.startswith(("docs/assets/", "tests/javascript/")):
        found.add(Path("tests/test_javascript.py"))
    if changed.startswith(OF_SITE):
        found |= {test for test in files_of_tests() if test.name == f"test_{path.stem.replace('-', '_')}.py"}
    if changed.startswith("evidence/site/"):  # mkdocs.yml names the hook, which imports them
        found |= {test for test in files_of_tests() if test.is_relative_to("tests/evidence/site")}
    words = changed.startswith("docs/") and path.suffix == ".md"  # of a page: its programs are files of snippets/
    chosen = {Chosen(test.as_posix(), whole=_whole(test, path.parts[0], words)) for test in found - {Path(EXACT)}}
    if path.suffix in (".md", ".ipynb") and changed.startswith(("docs/", "notebooks/")) and (ROOT / path).exists():
        chosen.add(Chosen(f"{VISITS}[{address(path) or 'overview'}]"))
    if words:
        chosen.add(Chosen("tests/test_names_in_sentences.py"))
    if changed.startswith(OF_SITE):  # the core of what looks at the site as a whole
        of_pages = path.parts[0] in ("snippets", "notebooks", "results") or path.suffix == ".md" and changed != "docs/index.md"  # a page, or a program on one
        of_site = {test for test in files_of_tests() if reads_every_page(test) or reads_the_site(test) and not of_pages}
        chosen |= {Chosen(test.as_posix(), whole=False) for test in of_site - found if not test.is_relative_to(PAGES)}
        chosen |= {Chosen(test.as_posix()) for test in of_site if test.is_relative_to(PAGES) and (reads_every_page(test) or not of_pages)}
    chosen |= {Chosen(exact(notebook)) for notebook in _computed_anew(path)}
    if not chosen and changed.startswith("tests/"):  # a helper that none of them names
        chosen = {Chosen(test.as_posix()) for test in files_of_tests() if test.is_relative_to(path.parent)}
    return sorted(chosen) or None


def _whole(test: Path, room: str, words: bool) -> bool:
    """Whether the nightly tests of a file are asked too. Those of the site repeat for each page, query or message what the core asks."""
    if words:
        return test.is_relative_to(PAGES)
    return room != "dryrun" or not test.is_relative_to("tests/evidence")


def _computed_anew(path: Path) -> list[str]:
    """The notebooks whose exact figures a changed file can change. Rows of cited.yml are computed by none."""
    if path.parts[0] == "dryrun":
        return notebooks_that_name("dryrun")
    if path.parts[0] == "fitting":
        return notebooks_that_name("fitting")
    notebook = path.stem if path.parts[0] == "notebooks" else path.parts[1] if path.parts[0] == "results" else ""
    recorded = notebook and (ROOT / "results" / notebook / "exact.json").exists()
    return [notebook] if recorded and path.name != "cited.yml" else []


def answering_to(changed: list[str]) -> list[Chosen]:
    """What answers to changed files."""
    found: set[Chosen] = set()
    for one in changed:
        of_one = touched(one)
        if of_one is None:
            print(f"{one} may touch every test: `make test-all` runs them, as each night does", file=sys.stderr)
        found.update(of_one or [])
    return sorted(one for one in found if one.whole or Chosen(one.test) not in found)


def git(*arguments: str) -> str | None:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    return None if done.returncode else done.stdout


@cache
def differing(commit: str) -> tuple[str, ...]:
    """Files that differ from the commit that this work started from, those that are not committed included."""
    start = git("merge-base", commit, "HEAD")
    if start is None:
        sys.exit(f"CHANGED={commit}: git knows no such commit here. Fix: git fetch, or name a branch, as in make test CHANGED=origin/main")
    return tuple((git("diff", "--name-only", "--no-renames", start.strip()) + git("ls-files", "--others", "--exclude-standard")).splitlines())


def since_main() -> list[Chosen]:
    """What answers to the differences from origin/main: nothing in a fresh clone of it."""
    if git("rev-parse", "--verify", "--quiet", MAIN) is None:
        print(f"git knows no {MAIN} here, so only the core runs. With CHANGED=<commit> it is what differs from that one", file=sys.stderr)
        return []
    return answering_to([*differing(MAIN)])


# Which ones, in which order


@cache
def proofs() -> dict[str, dict]:
    return json.loads(PROVED.read_text(encoding="utf-8"))


def seconds(one: Chosen) -> float:
    """How long it takes on two cores like those of PROVED."""
    file, _, name = one.test.partition("::")
    known = proofs().get(file, {})
    if name:
        return known.get("seconds", NEW) / 20  # one of many notebooks
    if one.whole:
        return known.get("seconds", NEW)
    return known.get("core", known.get("seconds", NEW))


def core() -> list[Chosen]:
    return [Chosen(test.as_posix(), whole=False) for test in files_of_tests() if not test.is_relative_to(PAGES)]


def everything() -> list[Chosen]:
    return [Chosen(test.as_posix()) for test in files_of_tests()]


def changed_since_proved() -> list[Chosen]:
    """Of each test file whether it answers to what differs from the commit at which all of it last passed."""
    found = []
    for commit in sorted({one["commit"] for one in proofs().values() if "commit" in one}):
        if git("cat-file", "-e", f"{commit}^{{commit}}") is None:
            print(f"{PROVED.name} names {commit}, which git does not have here: what was proved then counts as unproved", file=sys.stderr)
            continue
        of_it = {file for file, one in proofs().items() if one.get("commit") == commit}
        found += [one for one in answering_to([*differing(commit)]) if one.whole and one.test.partition("::")[0] in of_it]
    files = {test.as_posix() for test in files_of_tests()}
    return sorted({*found, *(Chosen(file) for file in files if "commit" not in proofs().get(file, {}))})


def shard(tests: list[Chosen], number: int, of: int) -> list[Chosen]:
    """The files of one part: each in turn, the slowest first, goes to the part that takes least so far."""
    taken, parts = [0.0] * of, [[] for _ in range(of)]  # type: tuple[list[float], list[list[Chosen]]]
    for one in sorted(tests, key=lambda one: (-seconds(one), one)):
        least = taken.index(min(taken))
        taken[least] += seconds(one)
        parts[least].append(one)
    return sorted(parts[number - 1])


def minutes_of(tests: list[Chosen], workers: int = 2) -> float:
    taken = [seconds(one) for one in tests]
    return max(sum(taken) / workers, *taken) / 60 if taken else 0.0


def expected(tests: list[Chosen]) -> str:
    """How many test files, and about how many minutes."""
    minutes = minutes_of(tests)
    return f"{len({one.test.partition('::')[0] for one in tests})} test files: about {minutes:.0f} minutes" if minutes >= 1 else f"{len(tests)} test files: less than a minute"


def arguments(tests: list[Chosen], part: str) -> list[str]:
    """The same for pytest; conftest.py reads the options."""
    whole = [f"--whole={one.test}" for one in tests if one.whole] if part != "all" else []
    return [f"--part={part}", *whole, *dict.fromkeys(one.test for one in tests)]


def take_over() -> None:
    """What the last runs proved, into PROVED. A run of edited files proves no commit: it gives seconds alone."""
    known = proofs()
    runs = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(RUNS.glob("*.json"))}
    if not runs:
        sys.exit(f"{RUNS.relative_to(ROOT)}: no run left anything there. Fix: make test-all")
    for part, run in runs.items():
        for file, one in run["files"].items():
            entry = known.setdefault(file, {})
            if part == "rest" and not one["whole"]:  # its other tests are of the core
                core = runs.get("core", {"commit": None})
                if not core["commit"] or core["commit"] != run["commit"] or file not in core["files"]:
                    continue
                of_core = core["files"][file]
                one = {"seconds": round(one["seconds"] + of_core["seconds"], 1), "passed": one["passed"] and of_core["passed"], "whole": True}
            entry["seconds" if one["whole"] else "core"] = one["seconds"]
            if one["whole"] and one["passed"] and run["commit"]:
                entry |= {"commit": run["commit"], "day": run["day"]}
    here = {test.as_posix() for test in files_of_tests()}
    kept = sorted(((file, one) for file, one in known.items() if file in here), key=lambda entry: -entry[1].get("seconds", NEW))
    lines = ",\n".join(f"{json.dumps(file)}: {json.dumps(one)}" for file, one in kept)
    PROVED.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")
    days = sorted(one.get("day", "never") for _, one in kept)
    print(f"{PROVED.relative_to(ROOT)}: {len(kept)} files; the longest unproved: {days[0]}")


def choose(asked: argparse.Namespace) -> tuple[list[Chosen], str]:
    """What runs, and of these tests which part: conftest.py."""
    if asked.kind == "core" and asked.changed:
        if not (changed := differing(asked.changed)):
            sys.exit(f"CHANGED={asked.changed}: nothing differs from it. Fix: name the commit that your work started from, as in make test CHANGED=origin/main")
        return answering_to([*changed]), "core"
    if asked.kind == "core":
        more = [] if asked.only == "core" else since_main()
        named = {one.test for one in more if one.whole}
        return sorted([*(one for one in core() if one.test not in named), *(one for one in more if one.whole)]), "core"
    if not asked.only:
        return everything(), "all"
    changed = changed_since_proved()
    if asked.only == "changed":
        return changed, "rest"
    return [one for one in everything() if one not in changed], "rest"


def main() -> None:
    parser = argparse.ArgumentParser(description="Prints the arguments with which pytest runs the tests that are asked for.")
    parser.add_argument("kind", choices=["core", "all", "proved"])
    parser.add_argument("--changed", default="", help="such as origin/main: only what a change since then can touch")
    parser.add_argument("--shard", default="", help="such as 2/4")
    parser.add_argument("--only", default="", choices=["", "core", "changed", "unchanged"])
    parser.add_argument("--within", type=float, metavar="MINUTES", help="only say whether they take no longer, by the exit status")
    asked = parser.parse_args()
    if asked.kind == "proved":
        return take_over()
    tests, part = choose(asked)
    if asked.shard:
        named = re.fullmatch(r"([1-9]\d?)/([1-9]\d?)", asked.shard)
        if not named or int(named[1]) > int(named[2]):
            sys.exit(f"SHARD={asked.shard}: no part of a whole. Fix: write the second of four as SHARD=2/4")
        tests = shard(tests, int(named[1]), int(named[2]))
    if asked.within is not None:
        print(f"{expected(tests) if tests else 'no test'}; there are {asked.within:.0f} minutes", file=sys.stderr)
        sys.exit(int(SLOWER * minutes_of(tests) > asked.within))
    if not tests:
        print("No test answers to this change", file=sys.stderr)
        return print("--version")  # of pytest: it runs nothing, and says so
    print(f"{expected(tests)} on two cores like those of {PROVED.relative_to(ROOT)}", file=sys.stderr)
    print("\n".join(arguments(tests, part)))


if __name__ == "__main__":
    main()
