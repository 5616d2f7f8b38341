"""A lock that does not hold what its source asks for is named at the line that asks."""

from pathlib import Path

import pytest

from evidence.site import locks

PROJECT = '[project]\n[project.optional-dependencies]\nexamples = ["torch>=2.11", "peft==0.21.2"]\n'
LOCK = "mkdocs==1.6.1 \\\n    --hash=sha256:aa\nruff==0.9.0 ; python_version < '4' \\\n    --hash=sha256:bb\npeft==0.21.2 \\\n    --hash=sha256:cc\n"


@pytest.fixture
def problems_of(tmp_path, monkeypatch):
    """The problems of this source, beside a sound lock."""
    monkeypatch.chdir(tmp_path)
    Path("requirements").mkdir()
    Path("pyproject.toml").write_text(PROJECT)
    Path("Makefile").write_text("NOT_LOCKED := torch triton\n")

    def found(source, lock=LOCK):
        Path("requirements/site.in").write_text("mkdocs==1.6.1  # the generator\n")
        Path("requirements/site.txt").write_text(LOCK)
        Path("requirements/test.in").write_text(source)
        Path("requirements/test.txt").write_text(lock)
        return [str(problem) for problem in locks.check()]

    return found


def test_a_lock_that_holds_what_is_asked_passes(problems_of):
    assert problems_of("-r site.in\nruff>=0.8  # lints\nPEFT==0.21.2\ntorch==2.13.0\n\n") == []


@pytest.mark.parametrize(
    ("source", "what"),
    [
        (
            "# what\nruff==0.9.1\n",
            "requirements/test.in:2: ruff==0.9.1 is wanted, and test.txt holds 0.9.0. Fix: run `make lock`",
        ),
        ("ruf\n", "requirements/test.in:1: test.txt lacks ruf (did you mean ruff?). Fix: run `make lock`"),
        ("-r site.in\nnumpy\n", "requirements/test.in:2: test.txt lacks numpy"),
        ("ruff =\n", "requirements/test.in:1: 'ruff =' is no requirement"),
    ],
)
def test_a_lock_older_than_its_source_is_named(problems_of, source, what):
    (problem,) = problems_of(source)
    assert problem.startswith(what)


def test_two_versions_of_one_package_are_named(problems_of):
    found = problems_of("peft==0.22.0\n", LOCK.replace("0.21.2", "0.22.0"))
    assert found == [
        "requirements/test.in:1: peft==0.22.0 here, and peft==0.21.2 in pyproject.toml. Fix: write one version in both"
    ]


def test_a_missing_lock_and_no_source_at_all_fail(problems_of):
    problems_of("ruff\n")
    Path("requirements/test.txt").unlink()
    assert [str(problem) for problem in locks.check()] == [
        "requirements/test.in: test.txt is missing. Fix: run `make lock`"
    ]
    (problem,) = locks.check(folder=Path("none"))
    assert str(problem).startswith("none: there is no list of requirements")
