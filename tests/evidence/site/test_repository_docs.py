"""A command, file or link that README, CONTRIBUTING, a page or a workflow names and that is not there is named with its line."""

from pathlib import Path

import pytest

from evidence.site import repository_docs

MAKEFILE = "VENV := .venv\nserve: ## build\n\techo\ntest: check\n\techo\nrecord:\n\techo\n"


@pytest.fixture
def problems_of(tmp_path, monkeypatch):
    """The problems of a README with this text after a first line."""
    monkeypatch.chdir(tmp_path)
    for name in ("docs", "snippets", "tests"):
        Path(name).mkdir()
    Path("docs/page.md").write_text("# Page\n\n## Part { #part }\n")
    Path("CONTRIBUTING.md").write_text("# Contributing\n\n## How to\n")
    Path("Makefile").write_text(MAKEFILE)

    def found(text, name="README.md"):
        Path("README.md").write_text("# A\n")
        Path(name).write_text(f"# A\n{text}\n")
        return [str(problem) for problem in repository_docs.check()]

    return found


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("Run `make tets`.", 2, "there is no command `make tets` (did you mean test?)"),
        ("x\n```bash\nmake serv  # builds\n```", 4, "there is no command `make serv` (did you mean serve?)"),
        ("Run `NOTEBOOKS=a make recrd`.", 2, "there is no command `make recrd` (did you mean record?)"),
        ("See `docs/pag.md`.", 2, "there is no docs/pag.md (did you mean docs/page.md?)"),
        ("| `tests/test_page.py` | the tests |", 2, "there is no tests/test_page.py"),
        ("See `LICENCE.md`.", 2, "there is no LICENCE.md"),  # codespell:ignore
        ("See [it](CONTRIBUTNG.md).", 2, "there is no CONTRIBUTNG.md (did you mean CONTRIBUTING.md?)"),
        ("See [it](docs/page.md#prt).", 2, "docs/page.md has no section #prt (did you mean part?)"),
        ("See [it](CONTRIBUTING.md#how).", 2, "CONTRIBUTING.md has no section #how (did you mean how-to?)"),
        ("It is 2.3x faster.", 2, "a figure typed by hand: 2.3x"),
    ],
)
def test_what_is_not_there_is_named(problems_of, text, line, what):
    (problem,) = problems_of(text)
    assert problem.startswith(f"README.md:{line}: {what}")


@pytest.mark.parametrize(
    "text",
    [
        "Run `make serve`, `make test` and `make record NOTEBOOKS=name`; they make sense.",
        "See `docs/page.md`, `docs/`, `results/<machine>.json`, `tests/test_*.py` and `python -m docs`.",
        "See [it](docs/page.md#part), [how](CONTRIBUTING.md#how-to) and [that](https://example.org/none.md).",
        "```text\ndocs/none.md\n```",
    ],
)
def test_what_is_there_passes(problems_of, text):
    assert problems_of(text) == []


def test_a_page_a_script_and_a_workflow_are_read_too(problems_of):
    Path("snippets/run.sh").write_text("make tets\n")
    Path(".github/workflows").mkdir(parents=True)
    Path(".github/workflows/check.yml").write_text("jobs:\n  test:\n    steps:\n      - run: make tets SHARD=1\n")
    found = problems_of("Run `make tets`, see `tests/none.py`.", "docs/page.md")
    assert [problem.partition(": there")[0] for problem in found] == [
        "docs/page.md:2",
        "docs/page.md:2",
        "snippets/run.sh:1",
        ".github/workflows/check.yml:4",
    ]


def test_a_readme_that_is_gone_is_named(problems_of):
    problems_of("x")
    Path("README.md").unlink()
    (problem,) = repository_docs.check()
    assert str(problem) == "README.md: this file is missing. Fix: restore it with `git checkout README.md`"
