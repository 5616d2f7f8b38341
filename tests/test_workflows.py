"""What the project's automation on GitHub may do, and that GitHub understands it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parent.parent
PINNED_ACTION = re.compile(r"uses: [\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$")
# GitHub reads expressions without regard to case. The job's own token is a secret too.
SECRET = re.compile(r"\bsecrets\b|\bgithub\s*\.\s*token\b", re.IGNORECASE)
MAKE_CALL = re.compile(r"\bmake ([\w-]+)")
MAKE_RULE = re.compile(r"^([\w -]+):(?!=)", re.MULTILINE)

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


def lines_of(key, node):
    """The line numbers where a YAML document gives `key` a value, however it is written."""
    if isinstance(node, yaml.MappingNode):
        for key_node, value_node in node.value:
            if key_node.value == key:
                yield key_node.start_mark.line + 1
            yield from lines_of(key, value_node)
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from lines_of(key, item)


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


def test_every_action_is_pinned_by_a_commit_with_its_version_beside_it():
    uses, problems = 0, []
    for path in workflows():
        text = path.read_text()
        lines = text.splitlines()
        for number in lines_of("uses", yaml.compose(text)):
            uses += 1
            if not PINNED_ACTION.search(lines[number - 1]):
                problems.append(
                    f"{name(path)}:{number}: `{lines[number - 1].strip()}` is not pinned. "
                    "Write `uses: owner/action@<40 hex digits> # vX.Y.Z`"
                )
    assert uses, ".github/workflows: no action is used, so nothing was checked"
    refuse(problems)


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


def test_every_workflow_starts_with_nothing_but_the_right_to_read():
    problems = []
    for path in workflows():
        permissions = yaml.safe_load(path.read_text()).get("permissions", "missing")
        if not isinstance(permissions, dict) or set(permissions.values()) - {"read"}:
            problems.append(
                f"{name(path)}: top-level permissions are `{permissions}`. Write `permissions: "
                "{}` or `contents: read`, and let the job that must write ask for it"
            )
    refuse(problems)


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


def test_every_make_target_of_a_workflow_exists():
    targets = " ".join(MAKE_RULE.findall((ROOT / "Makefile").read_text())).split()
    called = [
        (place, target)
        for place, job in jobs()
        for step in job.get("steps", [])
        for target in MAKE_CALL.findall(step.get("run", ""))
    ]
    assert called, ".github/workflows: no `make` is called, so nothing was checked"
    refuse(
        [
            f"{place}: `make {target}` is not in the Makefile, which has {', '.join(targets)}"
            for place, target in called
            if target not in targets
        ]
    )


# https://docs.github.com/en/actions/reference/workflows-and-actions/expressions#functions
FUNCTIONS = {"contains", "startswith", "endswith", "format", "join", "tojson", "fromjson", "hashfiles", "case", "success",
             "always", "cancelled", "failure"}  # fmt: skip


def expressions(node, key=""):
    """Every expression of a workflow: what stands in ${{ }}, and the whole of an `if`."""
    if isinstance(node, dict):
        for name_, value in node.items():
            yield from expressions(value, name_)
    elif isinstance(node, list):
        for value in node:
            yield from expressions(value)
    elif isinstance(node, str):
        found = re.findall(r"\$\{\{(.*?)\}\}", node, re.S)
        yield from found or ([node] if key == "if" else [])


def called_in(expression):
    return re.findall(r"\b([A-Za-z_]\w*)\s*\(", re.sub(r"'(?:[^']|'')*'", "", expression))


def test_every_function_of_an_expression_is_one_that_github_knows():
    found = [
        (path, function)
        for path in workflows()
        for expression in expressions(yaml.safe_load(path.read_text()))
        for function in called_in(expression)
    ]
    assert found, ".github/workflows: no expression calls a function, so nothing was checked"
    refuse(
        [
            f"{name(path)}: GitHub has no function {function}(). It has {', '.join(sorted(FUNCTIONS))}"
            for path, function in found
            if function.lower() not in FUNCTIONS
        ]
    )


@pytest.mark.parametrize(
    ("expression", "functions"),
    [
        ("!canceled()", ["canceled"]),
        ("failure() && !cancelled()", ["failure", "cancelled"]),
        ("github.ref == 'f(x)'", []),
    ],
)
def test_a_function_is_told_from_words(expression, functions):
    assert called_in(expression) == functions


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
