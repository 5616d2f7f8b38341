"""What the project's automation on GitHub may do, and that GitHub understands it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from mkdocs.config import load_config

from evidence import notebooks, runs

ROOT = Path(__file__).parent.parent
# GitHub reads expressions without regard to case. The job's own token is a secret too.
SECRET = re.compile(r"\bsecrets\b|\bgithub\s*\.\s*token\b", re.IGNORECASE)

TAGS = ".github/workflows/release.yml: job tag"  # pushes one tag, and does nothing else
PYPI = ".github/workflows/release.yml: job publish"  # uploads the wheel that another job built, and does nothing else
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
            if step.get("with", {}).get("persist-credentials") is not False and place != TAGS
        ]
    )


def test_only_the_deployment_to_pages_and_the_release_may_write():
    deployment = ".github/workflows/publish.yml: job deploy"
    writes = {place: job["permissions"] for place, job in jobs() if "write" in str(job.get("permissions", ""))}
    assert writes == {deployment: {"pages": "write", "id-token": "write"}, TAGS: {"contents": "write"}, PYPI: {"id-token": "write"}}


def test_the_release_runs_nothing_of_the_project_beside_its_token():
    (job,) = [job for place, job in jobs() if place == TAGS]
    assert job["if"] == "github.ref == 'refs/heads/main'"
    script = "".join(step.get("run", "") for step in job["steps"])
    assert not re.search(r"\b(make|python3?|pip|npm|bash|sh) ", script) and [step["uses"].split("@")[0] for step in job["steps"] if "uses" in step] == ["actions/checkout"]


def test_the_wheel_is_published_by_a_job_that_runs_no_code_of_the_project_after_the_one_that_built_and_tried_it():
    release, check = (yaml.safe_load((ROOT / ".github/workflows" / name).read_text())["jobs"] for name in ("release.yml", "check.yml"))
    assert (release["publish"]["needs"], release["wheel"]["needs"]) == ("wheel", "tag")
    assert [step["uses"].split("@")[0] for step in release["publish"]["steps"]] == ["actions/download-artifact", "pypa/gh-action-pypi-publish"]
    assert all({"run": "make wheel"} in job["wheel"]["steps"] for job in (release, check))


@pytest.fixture
def released(tmp_path):
    """Runs what makes the tag in a repository with a pyproject.toml and a CHANGELOG; returns (what it said, the tags that came)."""
    (job,) = [job for place, job in jobs() if place == TAGS]

    def run(pyproject, changes):
        work, origin = tmp_path / "work", tmp_path / "origin"
        for command in (["init", "-q", "--bare", origin], ["init", "-q", work]):
            subprocess.run(["git", *command], check=True)
        (work / "pyproject.toml").write_text(pyproject)
        (work / "CHANGELOG.md").write_text(changes)
        for command in (["remote", "add", "origin", origin], ["add", "."], ["-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "-qm", "a"]):
            subprocess.run(["git", *command], cwd=work, check=True)
        done = subprocess.run(["bash", "-e", "-c", job["steps"][-1]["run"]], cwd=work, capture_output=True, text=True)
        tags = subprocess.run(["git", "tag"], cwd=origin, capture_output=True, text=True, check=True).stdout.split()
        return done.stderr, tags

    return run


VERSION = '[project]\nname = "a"\nversion = "1.2.0"\n'


@pytest.mark.parametrize(
    ("pyproject", "changes", "said"),
    [
        (VERSION + "[tool.evidence]\nplaceholder = true\n", "## 1.2.0 (today)\n", "the address is a placeholder"),
        (VERSION, "## 1.1.0 (yesterday)\n", 'there is no section "## 1.2.0"'),
    ],
)
def test_nothing_is_released_that_nobody_could_install_or_that_says_no_change(released, pyproject, changes, said):
    message, tags = released(pyproject, changes)
    assert said in message and tags == []


def test_a_release_is_the_tag_that_install_cells_name(released):
    assert released(VERSION, "# Changes\n\n## 1.2.0 (today)\n")[1] == ["v1.2.0"]
    assert "@v{version}" in notebooks.INSTALL


def test_the_site_is_published_from_the_commit_of_a_push_that_passed():
    workflow = yaml.safe_load((ROOT / ".github/workflows/publish.yml").read_text())
    check = yaml.safe_load((ROOT / ".github/workflows/check.yml").read_text())
    (trigger,) = workflow[True].items()  # YAML reads `on` as true
    assert trigger == ("workflow_run", {"workflows": [check["name"]], "types": ["completed"], "branches": ["main"]})
    build = workflow["jobs"]["build"]
    assert build["if"] == "github.event.workflow_run.conclusion == 'success' && github.event.workflow_run.event == 'push'"
    assert build["steps"][0]["with"]["ref"] == "${{ github.event.workflow_run.head_sha }}"


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


def gpu_steps_of():
    """{name of a step: the step} of the run on a GPU."""
    steps = yaml.safe_load((ROOT / ".github/workflows/notebooks-gpu.yml").read_text())["jobs"]["notebooks"]["steps"]
    return {step.get("name", step.get("uses")): step for step in steps}


def test_a_run_on_a_gpu_is_green_only_where_all_that_it_did_held():
    last = list(gpu_steps_of().values())[-1]
    outcomes = dict.fromkeys(last["env"], "success")
    for failed in (None, *outcomes):
        environment = os.environ | outcomes | ({failed: "failure"} if failed else {})
        done = subprocess.run(["bash", "-e", "-c", last["run"]], env=environment, capture_output=True)
        assert (done.returncode == 0) == (failed is None), failed


def test_a_run_without_a_gpu_ends_before_it_measures(tmp_path):
    (tmp_path / "torch.py").write_text("class cuda:\n    is_available = staticmethod(lambda: False)\n    device_count = staticmethod(lambda: 0)\n")
    environment = os.environ | {"PYTHONPATH": str(tmp_path), "PYTHON": sys.executable}
    for step, said in (("Ask for the GPU", "torch sees no GPU"), ("Run the notebooks as tests", "torch sees no GPU, so no notebook uses one here")):
        done = subprocess.run(["bash", "-e", "-c", gpu_steps_of()[step]["run"]], env=environment, capture_output=True, text=True, cwd=ROOT)
        assert done.returncode and said in done.stderr


def test_a_run_on_a_gpu_measures_what_uses_one_in_one_locked_environment():
    workflow, steps = yaml.safe_load((ROOT / ".github/workflows/notebooks-gpu.yml").read_text()), gpu_steps_of()
    made = steps["Make the environment"]["run"]
    assert "--system-site-packages" in made and "--no-deps --require-hashes -r requirements/test.txt" in made and "pip freeze" in made
    for step in ("Ask for the GPU", "Run the notebooks as tests", "Run the recipes as tests", "Make the records", "Check what came out"):
        assert '"$PYTHON" -' in steps[step]["run"], step
    assert "make gpu" in steps["Measure the steps of gpu_steps"]["run"]
    assert {"requirements/**", "pyproject.toml", "gpu_steps/**"} <= set(workflow[True]["pull_request"]["paths"]) and workflow[True]["schedule"]
    handed_back = steps["Hand back what was executed, and its records"]["with"]["path"].split()
    assert {"out/gpu_steps/", "out/pip-freeze.txt", "results/"} <= set(handed_back)


def test_no_test_of_a_cell_ends_before_nbval_and_record_would_end_it():
    limit = int(yaml.safe_load((ROOT / ".github/workflows/notebooks-gpu.yml").read_text())["env"]["PYTEST_TIMEOUT"])
    cells = {int(found) for found in re.findall(r"--nbval-cell-timeout=(\d+)", (ROOT / "Makefile").read_text() + str(gpu_steps_of()))}
    assert cells == {runs.TIMEOUT} and limit > runs.TIMEOUT


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
