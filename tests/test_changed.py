"""`make test CHANGED=origin/main` runs the tests that a change can touch, and all where that is not known."""

import json
import re
import subprocess
import sys
from collections import Counter

import changed
import pytest


@pytest.mark.parametrize(
    "file, tests, not_tests",
    [
        ("docs/training/optimizers.md", ["pages/test_optimizers.py", "evidence/site/test_search.py", "pages/test_index.py"], ["pages/test_servers.py", "pages/test_your_model.py", "dryrun/test_timing.py"]),
        ("docs/your-model.md", ["pages/test_your_model.py", "evidence/site/test_every_page.py"], ["pages/test_servers.py"]),
        ("docs/index.md", ["evidence/site/test_browser.py", "evidence/site/test_shell.py"], ["pages/test_servers.py"]),
        ("docs/assets/planner.js", ["pages/test_your_model.py", "evidence/site/test_browser.py"], ["pages/test_servers.py"]),
        ("docs/assets/planner/rows.mjs", ["test_javascript.py", "pages/test_your_model.py"], ["pages/test_servers.py"]),
        ("tests/javascript/sort.test.mjs", ["test_javascript.py"], ["pages/test_servers.py", "evidence/site/test_browser.py"]),
        ("snippets/servers/own.py", ["pages/test_servers.py", "test_snippets.py"], ["pages/test_optimizers.py", "test_exact.py", "test_programs_do_what_they_say.py"]),
        ("snippets/optimizers/adamw.py", ["pages/test_optimizers.py", "test_snippets.py", "test_programs_do_what_they_say.py"], ["pages/test_servers.py"]),
        ("dryrun/tracker.py", ["dryrun/test_tracing.py", "dryrun/test_profiles.py", "test_exact.py", "pages/test_dryrun.py"], ["pages/test_servers.py"]),
        ("dryrun/data/kernels.json", ["dryrun/test_kernels.py", "test_exact.py"], ["pages/test_servers.py"]),
        ("evidence/site/record_blocks.py", ["evidence/site/test_record_blocks.py", "evidence/site/test_site.py"], ["dryrun/test_timing.py"]),
        ("notebooks/one_gpu.py", ["test_exact.py", "pages/test_one_gpu.py"], ["dryrun/test_timing.py"]),
        ("tests/data/error_messages.yml", ["pages/test_debugging.py", "evidence/site/test_search.py"], ["pages/test_servers.py"]),
        ("tests/pages/test_servers.py", ["pages/test_servers.py"], ["pages/test_optimizers.py"]),
        ("tests/pages/ranks/sharding.py", ["pages/test_sharding.py"], ["dryrun/test_timing.py"]),
        ("CONTRIBUTING.md", ["pages/test_contribute.py"], ["test_exact.py"]),
        ("tests/seconds.json", ["test_changed.py"], ["test_exact.py"]),
        ("evidence/contributed.py", ["pages/test_contribute.py", "evidence/test_contributed.py"], ["dryrun/test_timing.py"]),
        (".github/workflows/check.yml", ["test_workflows.py"], ["test_exact.py"]),
    ],
)
def test_a_change_runs_what_it_can_touch(file, tests, not_tests):
    found = changed.answering_to([file])
    assert {f"tests/{test}" for test in tests} <= set(found)
    assert not {f"tests/{test}" for test in not_tests} & set(found)


def test_a_page_runs_the_tests_of_the_folder_whose_programs_it_shows_most():
    missing = []
    for page in sorted((changed.ROOT / "docs").rglob("*.md")):
        folders = Counter(re.findall(r'--8<-- "(\w+)/', page.read_text(encoding="utf-8")))
        folder = folders.most_common(1)[0][0] if folders else ""
        test = f"tests/pages/test_{folder}.py"
        path = page.relative_to(changed.ROOT).as_posix()
        if (changed.ROOT / test).is_file() and test not in changed.answering_to([path]):
            missing.append(f"{test}: add {path} to its docstring")
    assert not missing, "\n".join(missing)


def test_every_test_answers_to_some_file_beside_itself():
    tracked = subprocess.run(["git", "ls-files"], cwd=changed.ROOT, capture_output=True, text=True, check=True).stdout.split()
    reached = {test for file in tracked for test in changed.touched(file) or () if test != file}
    assert {test.as_posix() for test in changed.files_of_tests()} <= reached


def test_the_parts_of_a_run_hold_each_file_once_and_take_about_as_long():
    parts = [changed.shard(["tests"], number, 4) for number in (1, 2, 3, 4)]
    assert sorted(sum(parts, [])) == [test.as_posix() for test in changed.files_of_tests()]
    seconds = json.loads(changed.SECONDS.read_text())
    took = [sum(seconds.get(file, changed.NEW) for file in part) for part in parts]
    assert max(took) - min(took) <= max(seconds.values())


@pytest.mark.parametrize("part", ["5/4", "0/4", "2", "a/b"])
def test_a_part_that_is_none_is_named_with_the_right_form(part):
    done = subprocess.run([sys.executable, changed.__file__, "--shard", part], capture_output=True, text=True)
    assert done.returncode == 1 and f"SHARD={part}" in done.stderr and "SHARD=2/4" in done.stderr


def test_a_commit_that_is_not_there_is_named():
    done = subprocess.run([sys.executable, changed.__file__, "no-such-branch"], capture_output=True, text=True)
    assert done.returncode == 1 and "CHANGED=no-such-branch" in done.stderr and "git fetch" in done.stderr
