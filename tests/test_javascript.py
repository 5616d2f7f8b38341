"""The page's own code, docs/assets/, without a browser: what a linter and a type check say of it, and the unit tests of tests/javascript/
(they read data/misspelt_words.json)."""

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from dryrun.door import web
from evidence.site import node

ROOT = Path(__file__).resolve().parent.parent
HERE = ROOT / "tests" / "javascript"
PACKAGES = Path(os.environ.get("JAVASCRIPT", Path(sys.prefix) / "javascript"))  # of requirements/javascript
ESLINT, TSC = (PACKAGES / "node_modules" / name for name in ("eslint/bin/eslint.js", "typescript/bin/tsc"))


def said(*arguments, may_fail=False):
    """What node prints. Fails with it, and where a script is missing with how to install it."""
    script = Path(arguments[0])
    assert not script.is_absolute() or script.is_file(), f"{script} is not installed. Fix: {node.INSTALL}"
    environment = os.environ | {"JAVASCRIPT": str(PACKAGES)}
    done = subprocess.run([node.program(), *map(str, arguments)], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600)
    assert may_fail or done.returncode == 0, f"{done.stdout}{done.stderr}"
    return done.stdout


def test_the_linter_finds_nothing_in_the_scripts_of_the_pages():
    found = json.loads(said(ESLINT, "--config", HERE / "eslint.config.mjs", "--format", "json", "docs/assets", "tests/javascript", may_fail=True))
    problems = [f"{file['filePath']}:{one['line']}: {one['message']}" for file in found for one in file["messages"]]
    assert not problems, "\n".join(problems)
    linted = {Path(file["filePath"]) for file in found}
    assert {path for suffix in ("js", "mjs") for path in (ROOT / "docs" / "assets").rglob(f"*.{suffix}")} <= linted


def test_the_types_of_the_scripts_of_the_pages_hold():
    checked = said(TSC, "--project", HERE / "tsconfig.json", "--listFiles").splitlines()
    for suffix in ("js", "mjs"):
        assert {str(path) for path in (ROOT / "docs" / "assets").rglob(f"*.{suffix}")} <= set(checked)


def test_the_unit_tests_of_the_scripts_pass():
    files = sorted(HERE.glob("*.test.mjs"))
    assert files
    assert "\n# fail 0\n" in said("--test", "--test-reporter=tap", *files)


@pytest.mark.parametrize(
    "question, names",
    [
        ("train llama3-8b --gpu l4", ["gpus", "gpus-per-node", "length", "batch", "accumulation", "objective", "dtype", "optimizer", "strategy"]),
        ("train llama3-8b --gpu l4 --rows 100", ["epochs"]),
        ("infer llama3-8b --gpu l4", ["gpus", "prompt", "new", "batch", "weights"]),
    ],
)
def test_what_the_page_leaves_out_of_a_command_is_what_the_command_takes(question, names):
    defaults, short = _defaults(), question.split()
    ask = web.ask if short[0] == "infer" else web.first
    answer = ask(short)
    assert "error" not in answer
    assert answer == ask([*short, *(word for name in names for word in (f"--{name}", defaults[name]))])


def test_the_rank_that_the_page_leaves_out_is_that_of_the_command():
    asked = ["train", "llama3-8b", "--gpu", "l4", "--lora"]
    assert web.first(asked) == web.first([*asked, _defaults()["rank"]])


@cache
def _defaults():
    module = (ROOT / "docs" / "assets" / "planner" / "command.mjs").as_uri()
    return json.loads(said("--input-type=module", "--eval", f'import {{ DEFAULTS }} from "{module}"; console.log(JSON.stringify(DEFAULTS))'))
