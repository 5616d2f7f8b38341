"""A fault in a notebook's source is named before any run; the sound notebook of the tests passes."""

from pathlib import Path

import pytest

from evidence import notebook_lint

CLAIM = 'claim("a-b", "What is claimed in this cell", value, "x", kind="derived", at_least=2)'
IMPORT = "from evidence.claims import claim, start, table\n\nstart('tiny')"


@pytest.fixture
def problems_of(tmp_path, monkeypatch):
    """The problems of a notebook of these cells: (number of the cell, or its line in it, and the message)."""
    monkeypatch.chdir(tmp_path)
    Path("notebooks").mkdir()

    def found(*cells, head=IMPORT):
        text, places = "", {}
        for number, cell in enumerate((head, *cells)):
            _, tag, code = cell.rpartition("|measures|")
            text += '# %% tags=["measures"]\n' if tag else "# %%\n"
            for line in range(1, code.count("\n") + 2):
                places[text.count("\n") + line] = (number, line)
            text += f"{code}\n\n"
        Path("notebooks/tiny.py").write_text(text)
        problems = []
        for problem in notebook_lint.check("tiny"):
            assert problem.where == "notebooks/tiny.py", problem
            problems.append((places.get(problem.line), f"{problem.what}. Fix: {problem.fix}"))
        return problems

    return found


def test_the_notebook_of_the_tests_is_sound(repository):
    assert notebook_lint.check("tiny") == []


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        (", at_least=2", "", "it has no bound. Fix: give at_least=, at_most= or both, which a wrong value would break"),
        ("at_least=2", "at_least=None", "it has no bound"),
        ("at_least=2", "at_least=0", "at_least=0 is a bound that nothing breaks"),
        ("at_least=2", "at_least=-1", "at_least=-1 is a bound that nothing breaks"),
        ("at_least=2", "at_most=float('inf')", "at_most=inf is a bound that nothing breaks"),
        ("at_least=2", "at_most=math.inf if GPU else 3", "at_most=inf is a bound that nothing breaks"),
        ("at_least=2", "at_least=0, at_most=1e9", "at_least=0 is a bound that nothing breaks"),
        ("at_least=2", "at_least=3, at_most=2", "at_least=3 is over at_most=2. Fix: turn them round"),
        ('"derived"', '"derved"', "there is no kind 'derved' (did you mean derived?)"),
        (', kind="derived"', "", "it has no kind"),
        ('"derived", at_least=2', '"cited"', "a cited figure needs a source"),
        ('"x"', '"Gib"', "there is no unit 'Gib' (did you mean GiB?)"),
        ('"What is claimed in this cell"', '"Speed"', "'Speed' is no sentence"),
        ('"What is claimed in this cell"', 'f"The gain, {value}, of it"', "its sentence holds its value"),
    ],
)
def test_a_fault_of_a_claim_is_named_at_its_line(problems_of, old, new, what):
    assert old in CLAIM
    ((place, message),) = problems_of(f"value = 3\n{CLAIM.replace(old, new)}")
    assert place == (1, 2)
    assert message.startswith(f"claim a-b: {what}")


@pytest.mark.parametrize("name", ["A-b", "a_b", "a--b", "-a", "a b", " a", ""])
def test_a_bad_name_gets_a_good_one(problems_of, name):
    found = problems_of(CLAIM.replace("a-b", name))
    assert f"claim {name!r}: a name has lower-case letters, digits and single hyphens. Fix: write " in found[0][1]


@pytest.mark.parametrize(
    "call",
    [
        'claim(f"speed-{way}", f"What is claimed of {way} here", 3, "x", kind="derived", at_least=low)',
        'claim("a", "What is claimed in this cell", 3, kind="derived", **limits)',
        'claim("a", "What is claimed in this cell", 3, "%", kind="derived", at_least=0)',
        'claim("a", "What is claimed in this cell", 0, "steps", kind="derived", at_most=0)',
        'claim("a", "What is claimed in this cell", 3, "GiB", kind="derived", at_least=2**30 / 1e9)',
        'claim("a", "What others claimed in a paper", 3, "x", kind="cited", source=PAPER)',
        'if GPU:\n    claim("a", "What is claimed in this cell", 3, "x", kind="derived", at_least=2)\n'
        'else:\n    claim("a", "What is claimed in this cell", 4, "x", kind="derived", at_least=2)',
    ],
)
def test_a_sound_claim_passes(problems_of, call):
    assert problems_of(call) == []


def test_two_claims_of_one_name_are_named_at_the_second(problems_of):
    ((place, message),) = problems_of(CLAIM, f"x = 1\n{CLAIM}")
    assert place == (2, 2)
    assert message.startswith("claim a-b stands here and in line 7. Fix: give one of them another name")


def test_a_claim_and_a_table_may_share_a_name(problems_of):
    assert problems_of(CLAIM, 'table("a-b", "Title of it", {"a": "A", "b": "B"}, rows, kind="derived")') == []


@pytest.mark.parametrize(
    ("head", "what"),
    [
        ("x = 1", 'the notebook opens no run. Fix: call start("tiny") in a cell before the first claim'),
        ("start('tinny')", 'the notebook opens a run of tinny. Fix: call start("tiny")'),
        (
            "|measures|start('tiny')",
            "start() stands in a cell that measures. Fix: open the run in a cell without the tag",
        ),
    ],
)
def test_a_run_is_opened_under_the_notebooks_name_in_every_run(problems_of, head, what):
    ((_, message),) = problems_of(head=head)
    assert message.startswith(what)


MEASURED = 'claim("a-b", "What is claimed in this cell", 3, "x", kind="measured", at_least=2)'


def test_a_measured_claim_needs_the_tag_and_an_exact_one_none(problems_of):
    ((place, message),) = problems_of(MEASURED)
    assert place == (1, 1)
    assert (
        message == 'claim a-b is measured, and its cell has no tag. Fix: begin the cell with `# %% tags=["measures"]`'
    )
    ((place, message),) = problems_of(f"|measures|value = 3\n{CLAIM}")
    assert place == (1, 2)
    assert message.startswith("claim a-b is derived, and its cell measures. Fix: move it into a cell without the tag")
    assert problems_of(f"|measures|{MEASURED}", CLAIM.replace("a-b", "c")) == []


def test_a_claim_in_a_function_counts_where_it_is_called(problems_of):
    function = f"def state(value):\n    {MEASURED}"
    assert problems_of(function, "|measures|state(3)") == []
    ((place, message),) = problems_of(function, "x = 1\nstate(3)")
    assert place == (2, 2)
    assert "claim a-b is measured, and its cell has no tag" in message


def test_a_cell_without_the_tag_must_not_lean_on_one_with_it(problems_of):
    ((place, message),) = problems_of("|measures|seconds = 3", "x = 1\nprint(seconds)")
    assert place == (2, 2)
    assert message.startswith(
        "seconds comes from cell 2, which measures, and this cell has no tag. Fix: begin this cell with"
    )


@pytest.mark.parametrize(
    "cells",
    [
        ("|measures|seconds = 3", "|measures|print(seconds)"),
        ("seconds = 1", "|measures|seconds = 3", "print(seconds)"),
        ("|measures|for step in range(3):\n    pass", "print([step for step in range(3)])"),
        ("|measures|seconds = 3", "def f(seconds):\n    return seconds"),
        ("steps = 3", "|measures|print(steps)"),
    ],
)
def test_names_that_every_run_has_pass(problems_of, cells):
    assert problems_of(*cells) == []


def test_a_long_cell_and_a_wide_line_are_named(problems_of):
    ((place, message),) = problems_of("\n".join(f"x{n} = {n}" for n in range(31)))
    assert place == (1, 1)
    assert message.startswith("cell 2 has 31 lines; a cell has at most 30. Fix: split it where a thought ends")
    ((place, message),) = problems_of(f"x = 1\ny = '{'a' * 120}'")
    assert place == (1, 2)
    assert message.startswith("a line of 126 columns; code has at most 120")


@pytest.mark.parametrize(
    ("value", "unit", "limits", "loose"),
    [
        (2.3, "x", {"at_least": 0.01}, True),
        (2.3, "x", {"at_least": 0.01, "at_most": 1000}, True),
        (2.3, "x", {"at_least": 1.5}, False),
        (2.3, "x", {"at_least": 0.001, "at_most": 3}, False),
        (40, "%", {"at_least": 0}, False),
        (40, "%", {"at_least": -10000}, True),
        (12.5, "GiB", {"at_most": 5000}, True),
    ],
)
def test_a_bound_far_from_the_recorded_value_is_named(value, unit, limits, loose):
    found = notebook_lint.too_far({"sentence": "Peak of a step", "unit": unit, "value": value} | limits)
    assert bool(found) == loose


def test_a_difference_may_be_far_under_its_bound():
    claim = {"sentence": "Largest difference of two losses", "unit": "", "value": 1e-9, "at_most": 1e-4}
    assert notebook_lint.too_far(claim) is None


def test_a_far_bound_is_named_in_the_notebook(repository):
    repository.change_record(lambda data: data["claims"]["step-speed"].update(at_least=0.001))
    line = repository.source.read_text().split('claim("step-speed"')[0].count("\n") + 1
    (problem,) = notebook_lint.check("tiny")
    assert str(problem).startswith(
        f"{repository.source}:{line}: claim step-speed: 0.001x is over 100 times from the recorded 2.3x"
    )


LOOP = """\
for name, sentence, value, *bounds in (
    ("a-b", "What is claimed in this cell", 3, 2),
    ("{second}", "What is claimed in the second", 4, {bound}),
):
    claim(name, sentence, value, "x", kind="derived", at_least=bounds[0])"""
FUNCTION = """\
def derived(*statements, kind="derived"):
    for name, sentence, value, least in statements:
        claim(name, sentence, value, "x", kind=kind, at_least=least)"""
CALLS = """\
derived(
    ("a-b", "What is claimed in this cell", 3, 2),
    ("{second}", "What is claimed in the second", 4, {bound}),
)"""


@pytest.mark.parametrize(
    ("second", "bound", "what"),
    [
        ("A_b", "2", "claim 'A_b': a name has lower-case letters, digits and single hyphens"),
        ("a-b", "2", "claim a-b stands here and in line 13"),
        ("c", "0", "claim c: at_least=0 is a bound that nothing breaks"),
    ],
)
def test_each_tuple_that_a_function_is_called_with_is_read(problems_of, second, bound, what):
    ((place, message),) = problems_of(FUNCTION, CALLS.format(second=second, bound=bound))
    assert place == (2, 3)
    assert message.startswith(what)


def test_each_tuple_of_a_loop_is_read(problems_of):
    ((place, message),) = problems_of(LOOP.format(second="A_b", bound=2))
    assert place == (1, 3)
    assert message.startswith("claim 'A_b': a name has")
    assert problems_of(LOOP.format(second="c", bound=2)) == []


def test_what_a_function_claims_belongs_to_the_cell_that_calls_it(problems_of):
    ((place, message),) = problems_of(
        FUNCTION,
        "|measures|" + CALLS.format(second="c", bound=2).replace('"a-b"', '"d"', 1)[:-1] + ', kind="measured")\nx = 1',
        'derived(("e", "What is claimed here", 3, 2), kind="measured")',
    )
    assert place == (3, 1)
    assert message.startswith("claim e is measured, and its cell has no tag")


def test_text_kept_in_a_variable_and_bounds_in_a_dictionary_are_read(problems_of):
    cell = 'WAY = "fast"\nfor name, bound in (("a", {"at_least": 2}), ("b", {})):\n    claim(f"{WAY}-{name}", f"What is claimed of {WAY}", 3, "x", kind="derived", **bound)'
    ((place, message),) = problems_of(cell)
    assert place == (1, 2)
    assert message.startswith("claim fast-b: it has no bound")


def test_a_notebook_that_looks_for_a_gpu_asks_colab_for_one_and_no_other_does(problems_of):
    gpu = "GPU = torch.cuda.is_available()"
    ((place, said),) = problems_of("x = 1", gpu)
    assert place == (2, 1) and "uses a GPU where there is one, and Colab would start it without. Fix: write `acc" in said
    head = "# ---\n# jupyter:\n#   accelerator: GPU\n# ---\n\n"
    source = Path("notebooks/tiny.py").read_text()
    Path("notebooks/tiny.py").write_text(head + source)
    assert notebook_lint.check("tiny") == []
    Path("notebooks/tiny.py").write_text(head + source.replace(gpu, "y = 1"))
    (problem,) = notebook_lint.check("tiny")
    assert "the head asks Colab for an accelerator, and no cell looks for one" in str(problem)
