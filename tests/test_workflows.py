"""What the project's automation on GitHub may do, and that GitHub understands it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from mkdocs.config import load_config

ROOT = Path(__file__).parent.parent
# GitHub reads expressions without regard to case. The job's own token is a secret too.
SECRET = re.compile(r"\bsecrets\b|\bgithub\s*\.\s*token\b", re.IGNORECASE)

ISSUE_CONFIG = ".github/ISSUE_TEMPLATE/config.yml"
FILES_BY_SCHEMA = {
    "vendor.github-workflows": ".github/workflows/*.y*ml",
    "custom.github-workflows-require-timeout": ".github/workflows/*.y*ml",
    "vendor.dependabot": ".github/dependabot.yml",
    "vendor.github-issue-forms": ".github/ISSUE_TEMPLATE/*.y*ml",
    "vendor.github-issue-config": ISSUE_CONFIG,
}


def files(pattern):
    found = sorted(ROOT.glob(pattern))
    assert found, f"{pattern}: no such file, so nothing was checked"
    return found


def workflows():
    return files(".github/workflows/*.y*ml")


def name(path):
    return path.relative_to(ROOT).as_posix()


def jobs():
    """Every job as (where it stands, what it says)."""
    found = [
        (f"{name(path)}: job {job_id}", job)
        for path in workflows()
        for job_id, job in yaml.safe_load(path.read_text())["jobs"].items()
    ]
    assert found, ".github/workflows: no job, so nothing was checked"
    return found


def run_tool(tool, *arguments):
    executable = Path(sys.executable).parent / tool
    if not executable.exists():
        raise FileNotFoundError(f"{executable} is missing. Install it: make install")
    run = subprocess.run([executable, *arguments], cwd=ROOT, capture_output=True, text=True)
    if run.returncode != 0:
        pytest.fail(f"{tool} {' '.join(arguments)}\n{run.stdout}{run.stderr}", pytrace=False)


def refuse(problems):
    if problems:
        pytest.fail("\n".join(problems), pytrace=False)


def test_no_workflow_reaches_for_a_secret():
    refuse(
        [
            f"{name(path)}:{number}: `{line.strip()}` names a secret; no workflow here needs one"
            for path in workflows()
            for number, line in enumerate(path.read_text().splitlines(), start=1)
            if SECRET.search(line)
        ]
    )


def test_no_checkout_leaves_its_token_behind():
    checkouts = [
        (place, step)
        for place, job in jobs()
        for step in job.get("steps", [])
        if step.get("uses", "").startswith("actions/checkout@")
    ]
    assert checkouts, ".github/workflows: nothing is checked out, so nothing was checked"
    refuse(
        [
            f"{place}: the checkout keeps its token on disk. Write `persist-credentials: false`"
            for place, step in checkouts
            if step.get("with", {}).get("persist-credentials") is not False
        ]
    )


def test_only_the_deployment_to_pages_may_write():
    deployment = ".github/workflows/publish.yml: job deploy"
    writes = {place: job["permissions"] for place, job in jobs() if "write" in str(job.get("permissions", ""))}
    assert writes == {deployment: {"pages": "write", "id-token": "write"}}


def test_a_job_on_our_own_machine_waits_in_the_protected_environment():
    on_our_machine = [(place, job) for place, job in jobs() if not str(job.get("runs-on")).startswith("ubuntu-")]
    assert on_our_machine, ".github/workflows: no job runs on a GPU, so nothing was checked"
    refuse(
        [
            f"{place}: runs on `{job.get('runs-on')}`, which is not GitHub's, in environment "
            f"`{job.get('environment')}`. Write `environment: gpu`"
            for place, job in on_our_machine
            if job.get("environment") != "gpu"
        ]
    )


def test_the_tests_run_for_every_pull_request_and_none_may_fail_unseen():
    workflow = yaml.safe_load((ROOT / ".github/workflows/check.yml").read_text())
    assert not workflow[True]["pull_request"], "a filter of branches or paths leaves pull requests out"  # YAML reads `on` as true
    test = workflow["jobs"]["test"]
    commands = [step.get("run", "") for step in test["steps"]]
    assert "make test" in commands
    passed_over = [step for step in (test, *test["steps"]) if step.get("continue-on-error") or "if" in step and "uses" not in step]
    assert passed_over == []


def test_each_part_of_all_tests_is_run_by_one_job_each_night_and_for_a_new_lock():
    workflow = yaml.safe_load((ROOT / ".github/workflows/everything.yml").read_text())
    assert workflow[True]["schedule"] and "requirements/**" in workflow[True]["pull_request"]["paths"]  # YAML reads `on` as true
    shards = workflow["jobs"]["test-all"]["strategy"]["matrix"]["shard"]
    assert shards == [f"{number}/{len(shards)}" for number in range(1, len(shards) + 1)]


def test_only_a_run_that_reports_its_outcome_goes_on_after_a_failed_step():
    for place, job in jobs():
        going_on = {step.get("id") for step in job.get("steps", []) if step.get("continue-on-error")}
        last = str(job.get("steps", [{}])[-1])
        assert all(f"steps.{step}.outcome" in last for step in going_on), f"{place}: nothing asks how {going_on} ended"


def test_a_run_on_a_gpu_is_green_only_where_all_that_it_did_held(tmp_path):
    steps = yaml.safe_load((ROOT / ".github/workflows/notebooks-gpu.yml").read_text())["jobs"]["notebooks"]["steps"]
    last, outcomes = steps[-1], dict.fromkeys(steps[-1]["env"], "success")
    for failed in (None, *outcomes):
        environment = os.environ | outcomes | ({failed: "failure"} if failed else {})
        done = subprocess.run(["bash", "-e", "-c", last["run"]], env=environment, capture_output=True)
        assert (done.returncode == 0) == (failed is None), failed
    driver = next(step["run"] for step in steps if "torch.cuda.is_available" in step.get("run", ""))
    (tmp_path / "torch.py").write_text("class cuda:\n    is_available = staticmethod(lambda: False)\n")
    done = subprocess.run(["bash", "-e", "-c", driver], env=os.environ | {"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True)
    assert done.returncode and "torch sees no GPU" in done.stderr


def test_what_is_published_is_the_folder_that_the_build_fills():
    steps = yaml.safe_load((ROOT / ".github/workflows/publish.yml").read_text())["jobs"]["build"]["steps"]
    (path,) = [step["with"]["path"] for step in steps if "upload-pages-artifact" in step.get("uses", "")]
    assert "make site" in [step.get("run") for step in steps]
    assert Path(path) == Path(load_config(str(ROOT / "mkdocs.yml"))["site_dir"]).relative_to(ROOT)


def test_an_outcome_that_a_step_asks_for_is_that_of_a_step():
    asked = 0
    for place, job in jobs():
        known = {step["id"] for step in job.get("steps", []) if "id" in step}
        for step in re.findall(r"\bsteps\.([\w-]+)", str(job)):
            asked += 1
            assert step in known, f"{place}: there is no step {step}; it has {', '.join(sorted(known))}"
    assert asked, ".github/workflows: no step asks for another's outcome, so nothing was checked"


def test_zizmor_finds_no_weakness():
    workflows()
    run_tool("zizmor", "--offline", "--no-progress", ".github")


@pytest.mark.parametrize("schema", FILES_BY_SCHEMA)
def test_github_understands_every_file(schema):
    paths = [name(path) for path in files(FILES_BY_SCHEMA[schema])]
    if schema == "vendor.github-issue-forms":
        paths.remove(ISSUE_CONFIG)
    run_tool("check-jsonschema", "--builtin-schema", schema, *paths)
