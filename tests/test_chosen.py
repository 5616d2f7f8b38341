"""`make test` runs the core and what a change can touch; `make test-all` everything, in parts and in the order of what has gone unproved."""

import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import chosen
import pytest

EXACT = "test_exact.py::test_what_is_derived_traced_and_cited_comes_out_as_recorded"


def answering(files):
    return [one.test for one in chosen.answering_to(files)]


@pytest.mark.parametrize(
    "file, tests, not_tests",
    [
        ("docs/training/optimizers.md", ["pages/test_optimizers.py", "evidence/site/test_search.py", "pages/test_index.py"], ["pages/test_servers.py", "pages/test_your_model.py", "dryrun/test_timing.py"]),
        ("docs/your-model.md", ["pages/test_your_model.py", "evidence/site/test_every_page.py"], ["pages/test_servers.py"]),
        ("docs/index.md", ["evidence/site/test_browser.py", "evidence/site/test_shell.py"], ["pages/test_servers.py"]),
        ("docs/assets/planner.js", ["pages/test_your_model.py", "evidence/site/test_browser.py"], ["pages/test_servers.py"]),
        ("docs/assets/planner/rows.mjs", ["test_javascript.py", "pages/test_your_model.py"], ["pages/test_servers.py"]),
        ("tests/javascript/sort.test.mjs", ["test_javascript.py"], ["pages/test_servers.py", "evidence/site/test_browser.py"]),
        ("snippets/servers/own.py", ["pages/test_servers.py", "test_snippets.py"], ["pages/test_optimizers.py", "test_programs_do_what_they_say.py"]),
        ("snippets/optimizers/adamw.py", ["pages/test_optimizers.py", "test_snippets.py", "test_programs_do_what_they_say.py"], ["pages/test_servers.py"]),
        ("dryrun/tracing/tracker.py", ["dryrun/test_tracing.py", "dryrun/test_profiles.py", f"{EXACT}[gpu_time]", "pages/test_dryrun.py"], ["pages/test_servers.py"]),
        ("dryrun/data/kernels.json", ["dryrun/test_kernels.py", f"{EXACT}[gpu_time]"], ["pages/test_servers.py"]),
        ("evidence/site/record_blocks.py", ["evidence/site/test_record_blocks.py", "evidence/site/test_site.py"], ["dryrun/test_timing.py"]),
        ("notebooks/one_gpu.py", [f"{EXACT}[one_gpu]", "pages/test_one_gpu.py"], ["dryrun/test_timing.py", f"{EXACT}[gpu_time]"]),
        ("tests/data/error_messages.yml", ["pages/test_debugging.py", "evidence/site/test_search.py"], ["pages/test_servers.py"]),
        ("tests/pages/test_servers.py", ["pages/test_servers.py"], ["pages/test_optimizers.py"]),
        ("tests/pages/ranks/sharding.py", ["pages/test_sharding.py"], ["dryrun/test_timing.py"]),
        ("CONTRIBUTING.md", ["pages/test_contribute.py"], ["dryrun/test_timing.py"]),
        ("results/hardware/cited.yml", ["pages/test_hardware.py", "evidence/site/test_site.py"], [f"{EXACT}[hardware]", "dryrun/test_timing.py"]),
        ("results/hardware/exact.json", ["pages/test_hardware.py", f"{EXACT}[hardware]"], [f"{EXACT}[one_gpu]"]),
        ("evidence/contributed.py", ["pages/test_contribute.py", "evidence/test_contributed.py"], ["dryrun/test_timing.py"]),
        (".github/workflows/check.yml", ["test_workflows.py"], ["dryrun/test_timing.py"]),
    ],
)
def test_a_change_runs_what_it_can_touch(file, tests, not_tests):
    found = answering([file])
    assert {f"tests/{test}" for test in tests} <= set(found)
    assert not {f"tests/{test}" for test in not_tests} & set(found)


def test_a_page_runs_the_tests_of_the_folder_whose_programs_it_shows_most():
    missing = []
    for page in sorted((chosen.ROOT / "docs").rglob("*.md")):
        folders = Counter(re.findall(r'--8<-- "(\w+)/', page.read_text(encoding="utf-8")))
        folder = folders.most_common(1)[0][0] if folders else ""
        test = f"tests/pages/test_{folder}.py"
        path = page.relative_to(chosen.ROOT).as_posix()
        if (chosen.ROOT / test).is_file() and test not in answering([path]):
            missing.append(f"{test}: add {path} to its docstring")
    assert not missing, "\n".join(missing)


def test_words_of_a_page_start_no_test_that_repeats_for_more_cases():
    found = {one.test: one.whole for one in chosen.answering_to(["docs/training/optimizers.md"])}
    assert not found["tests/evidence/site/test_search.py"] and found["tests/pages/test_optimizers.py"]
    assert f"{chosen.VISITS}[training/optimizers/]" in found


def test_every_test_answers_to_some_file_beside_itself():
    tracked = subprocess.run(["git", "ls-files"], cwd=chosen.ROOT, capture_output=True, text=True, check=True).stdout.split()
    reached = {one.test.partition("::")[0] for file in tracked for one in chosen.touched(file) or () if one.test != file}
    assert {test.as_posix() for test in chosen.files_of_tests()} <= reached


def test_the_core_is_every_file_but_those_of_pages():
    files = {one.test for one in chosen.core()}
    assert files == {test.as_posix() for test in chosen.files_of_tests() if test.parts[1] != "pages"}


def test_the_parts_of_a_run_hold_each_file_once_and_take_about_as_long():
    parts = [chosen.shard(chosen.everything(), number, 4) for number in (1, 2, 3, 4)]
    assert sorted(sum(parts, [])) == chosen.everything()
    took = [sum(map(chosen.seconds, part)) for part in parts]
    assert max(took) - min(took) <= max(map(chosen.seconds, chosen.everything()))


@pytest.mark.parametrize("part", ["5/4", "0/4", "2", "a/b"])
def test_a_part_that_is_none_is_named_with_the_right_form(part):
    done = subprocess.run([sys.executable, chosen.__file__, "all", "--shard", part], capture_output=True, text=True)
    assert done.returncode == 1 and f"SHARD={part}" in done.stderr and "SHARD=2/4" in done.stderr


def test_a_commit_that_is_not_there_is_named():
    done = subprocess.run([sys.executable, chosen.__file__, "core", "--changed", "no-such-branch"], capture_output=True, text=True)
    assert done.returncode == 1 and "CHANGED=no-such-branch" in done.stderr and "git fetch" in done.stderr


@pytest.mark.parametrize("minutes, status", [(1e6, 0), (0, 1)])
def test_whether_there_is_time_for_what_changed_is_told_by_the_exit_status(minutes, status, monkeypatch):
    monkeypatch.setattr(chosen, "changed_since_proved", chosen.everything)
    monkeypatch.setattr(sys, "argv", ["chosen.py", "all", "--only", "changed", "--within", str(minutes)])
    with pytest.raises(SystemExit) as ended:
        chosen.main()
    assert ended.value.code == status


def test_what_no_run_has_proved_counts_as_changed(monkeypatch):
    monkeypatch.setattr(chosen, "proofs", lambda: {})
    assert chosen.changed_since_proved() == chosen.everything()


def test_a_run_that_is_cut_off_is_red_and_names_what_it_did_not_begin():
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "tests/evidence/test_problems.py"]
    done = subprocess.run(command, cwd=chosen.ROOT, env=os.environ | {"MINUTES": "0", "TESTS_UNTIL": "0"}, capture_output=True, text=True)
    assert done.returncode != 0 and "not begun, since 0 minutes were over: tests/evidence/test_problems.py" in done.stdout


def test_only_a_run_of_an_unedited_commit_proves_it(monkeypatch, tmp_path):
    files = {"tests/test_make.py": {"seconds": 2.0, "passed": True, "whole": True}, "tests/test_warm.py": {"seconds": 1.0, "passed": True, "whole": False}}
    monkeypatch.setattr(chosen, "RUNS", tmp_path)
    monkeypatch.setattr(chosen, "PROVED", tmp_path / "proved.yml")
    monkeypatch.setattr(chosen, "ROOT", tmp_path)
    monkeypatch.setattr(chosen, "files_of_tests", lambda: tuple(map(Path, files)))
    for commit, proved in ((None, {}), ("abc", {"commit": "abc", "day": "2026-12-01"})):
        (tmp_path / "all.json").write_text(json.dumps({"commit": commit, "day": "2026-12-01", "files": files}))
        monkeypatch.setattr(chosen, "proofs", lambda: {})
        chosen.take_over()
        assert json.loads(chosen.PROVED.read_text()) == {"tests/test_make.py": {"seconds": 2.0} | proved, "tests/test_warm.py": {"core": 1.0}}


@pytest.mark.parametrize("commit, passed, proof", [("abc", True, {"commit": "abc", "day": "2026-12-01"}), ("abc", False, {}), ("older", True, None)])
def test_a_file_whose_core_and_whose_rest_ran_apart_is_proved_where_both_are_of_one_commit(commit, passed, proof, monkeypatch, tmp_path):
    monkeypatch.setattr(chosen, "ROOT", tmp_path)
    monkeypatch.setattr(chosen, "files_of_tests", lambda: (Path("tests/test_warm.py"),))
    monkeypatch.setattr(chosen, "RUNS", tmp_path / "runs")
    monkeypatch.setattr(chosen, "PROVED", tmp_path / "proved.json")
    chosen.RUNS.mkdir()
    for part, of, seconds, held in (("core", commit, 1.0, passed), ("rest", "abc", 3.0, True)):
        files = {"tests/test_warm.py": {"seconds": seconds, "passed": held, "whole": False}}
        (chosen.RUNS / f"{part}.json").write_text(json.dumps({"commit": of, "day": "2026-12-01", "files": files}))
    monkeypatch.setattr(chosen, "proofs", dict)
    chosen.take_over()
    together = {} if proof is None else {"seconds": 4.0} | proof
    assert json.loads(chosen.PROVED.read_text()) == {"tests/test_warm.py": {"core": 1.0} | together}
