"""A figure is as old as the code that measured it: what runs behind it counts; words, other figures and neutral edits do not."""

import ast
import importlib.util

import jupytext
import pytest

from evidence import freshness, measured_code, pairs, records, runs

MARK = '# %% tags=["measures"]\n'
NOTEBOOK = f"""\
# %%
# Installs what this notebook needs

# %%
import torch
from dryrun.tracing import Tracker
from evidence.claims import claim
from evidence.measure import interleaved, one_thread

one_thread()
torch.manual_seed(0)
GiB = 2**30

# %%
def model(width):
    return torch.nn.Linear(width, SIZE)

SIZE = 8
config = {{"layers": 2}}
config["layers"] = 3

# %%
CITED = {{"speed": 2.0}}
for name, value in CITED.items():
    claim(name, "A figure that others measured", value, kind="cited")

# %%
# %%writefile train.py
print("a program")

{MARK}\
with Tracker(model(4)) as tracker:
    time = interleaved({{"step": lambda: config["layers"]}})
claim("peak", "The peak of a step that the tests invent", tracker.peak / GiB, "GiB", kind="measured", at_most=1)

{MARK}\
alone = torch.ones(1)

{MARK}\
launch("train.py", time)
"""


def hashes(text):
    return list(measured_code.hashes(jupytext.reads(text, {"extension": ".py"})).values())


def changed(old, new):
    """Which of the three cells that measure belong to other code after an edit."""
    assert old in NOTEBOOK
    return [before != now for before, now in zip(hashes(NOTEBOOK), hashes(NOTEBOOK.replace(old, new, 1)), strict=True)]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('CITED = {"speed": 2.0}', 'CITED = {"speed": 2.0, "more": 3.0}'),  # one more cited figure
        ("    claim(name", '    claim("sum", "A derived figure", 20 * 3, kind="derived", at_most=60)\n    claim(name'),
        ("GiB = 2**30\n", "GiB = 2**30\nSHOWN = 12\n"),  # a constant that only a plot uses
        ("GiB = 2**30\n", "GiB = 2**30  # bytes\n"),
        ("import torch\n", "import os\nimport torch\n"),
        ("from evidence.claims import claim\n", "from evidence.claims import claim, table\n"),
        ("from dryrun.tracing import Tracker", "from dryrun.somewhere.tracker import Tracker"),  # a module that moved
        ("# Installs what this notebook needs", "# Installs what this notebook needs\nversion = 2"),
        ("# %%\nCITED", "# %% [markdown]\n# Words.\n\n# %%\nCITED"),
    ],
)
def test_what_measures_nothing_makes_no_measured_figure_old(old, new):
    assert changed(old, new) == [False, False, False]


@pytest.mark.parametrize(
    ("old", "new", "which"),
    [
        ("model(4)", "model(5)", [True, False, True]),  # its own cell, and the one that uses its time
        ("torch.ones(1)", "torch.ones(2)", [False, True, False]),
        ("SIZE = 8", "SIZE = 9", [True, False, True]),  # what a function takes when it is called
        ('config["layers"] = 3', 'config["layers"] = 4', [True, False, True]),  # a change of what a cell uses
        ("one_thread()\n", "", [True, True, True]),  # a helper called for its effect
        ("torch.manual_seed(0)", "torch.manual_seed(1)", [True, True, True]),
        ('print("a program")', 'print("another")', [False, False, True]),  # the program that a cell starts
    ],
)
def test_what_a_measuring_cell_leans_on_makes_its_figures_old_and_no_others(old, new, which):
    assert changed(old, new) == which


@pytest.mark.parametrize(("helper", "which"), [("evidence.measure", [True, True, True]), ("dryrun", [True, False, True])])
def test_a_higher_version_of_a_helper_makes_old_what_it_measured(monkeypatch, helper, which):
    before = hashes(NOTEBOOK)
    monkeypatch.setitem(measured_code.HELPERS, helper, 2)
    assert [one != other for one, other in zip(before, hashes(NOTEBOOK), strict=True)] == which


@pytest.mark.parametrize(
    ("code", "uses", "binds"),
    [
        ("found = [x + y for x in rows]", {"y", "rows"}, {"found"}),  # a loop in brackets is a scope in some versions of Python
        ("def peak(step, size=SIZE):\n    best = step()\n    return best / GiB", {"SIZE", "GiB"}, {"peak"}),
        ("for row in rows:\n    total += row", {"rows", "total"}, {"row", "total"}),
        ("fp32 |= {'a': fp32['b']}", {"fp32"}, {"fp32"}),
    ],
)
def test_the_names_of_a_statement_are_the_same_in_every_python(code, uses, binds):
    found, bound = measured_code.names(ast.parse(code).body[0])
    assert (found - {"row"}, bound) == (uses, binds)


def test_every_helper_that_has_a_version_exists():
    assert all(importlib.util.find_spec(helper) for helper in measured_code.HELPERS)


def test_a_module_of_ours_that_moves_makes_nothing_old_and_one_of_others_does(repository):
    def hash_of(text):
        return freshness.code_hash(jupytext.reads(text, {"extension": ".py"}), repository.source)

    here = hash_of("# %%\nfrom dryrun.here import (\n    f,\n    g,\n)\nimport torch\nx = f()")
    assert here == hash_of("# %%\nfrom dryrun.there import f\nfrom evidence import claim\nimport torch\nx = f()")
    assert here != hash_of("# %%\nfrom dryrun.here import f\nimport torch as there\nx = f()")
    assert here != hash_of("# %%\nfrom dryrun.here import f\nimport torch\nx = f(1)")


def test_a_program_that_a_cell_writes_is_no_older_where_a_module_of_ours_moves_to_another_folder():
    def hash_of(module):
        return hashes(f"# %%\n# %%writefile train.py\nfrom {module} import f\nf()\n\n{MARK}launch('train.py')\n")

    assert hash_of("dryrun.here") == hash_of("dryrun.room.here")
    assert hash_of("dryrun.here") != hash_of("dryrun.room.there")
    assert hash_of("torch.here") != hash_of("torch.room.here")


def test_a_hash_in_a_text_is_no_comment():
    assert measured_code.what_runs("x = '# no comment'  # a comment") == "x = '# no comment'"


def test_a_cited_figure_more_needs_no_measurement_and_the_measured_one_stays(repository):
    before = repository.record.read_bytes()
    more = 'claim("cited", "A figure of somebody else", 2.0, "x", kind="cited", source="https://example.org/a")\n'
    repository.edit(repository.source, "peak = 12.5\n", f"peak = 12.5\n{more}")
    assert any("make exact NOTEBOOKS=tiny" in problem for problem in repository.notebook_problems())
    runs.exact("tiny", say=lambda text: None)
    assert repository.notebook_problems() == [] and list(pairs.stale("tiny")) == []
    assert repository.record.read_bytes() == before
    assert records.load(repository.exact).data["claims"]["cited"]["value"] == 2


def test_an_edited_measuring_cell_is_an_error_until_its_figure_is_measured_or_marked(repository):
    repository.edit(repository.source, '"x", kind="measured", at_least=1.1', '"x", kind="measured", at_least=1.0')
    (problem,) = repository.notebook_problems()
    assert "run `make record NOTEBOOKS=tiny`, which measures, or `make exact NOTEBOOKS=tiny`, which marks" in problem
    runs.exact("tiny", say=lambda text: None)
    assert repository.notebook_problems() == []
    assert freshness.stale(records.load(repository.record)) == {("claims", "step-speed")}
    (warning,) = pairs.stale("tiny")
    assert warning.startswith(f"{repository.record}: 1 of 1 figures were measured by earlier code (step-speed)")
    runs.record("tiny", say=lambda text: None)
    assert list(pairs.stale("tiny")) == [] and repository.notebook_problems() == []
