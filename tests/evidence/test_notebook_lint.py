"""What a reader would stumble over in a notebook is named without a run; the sound notebook of the tests passes."""

from pathlib import Path

import pytest

from evidence import notebook_lint

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


HEAD = "# ---\n# jupyter:\n#   runs_on: {}\n# ---\n\n"
COLAB = "# ---\n# jupyter:\n#   accelerator: GPU\n#   runs_on: {}\n# ---\n\n"
ASKS, HIDES = "GPU = torch.cuda.is_available()", 'os.environ["CUDA_VISIBLE_DEVICES"] = ""'


@pytest.mark.parametrize(
    ("head", "cells", "said"),
    [
        (COLAB.format("gpu"), ["|measures|" + ASKS], None),
        (HEAD.format("gpu"), ["|measures|" + ASKS], "the head asks Colab for no GPU"),
        (COLAB.format("gpu"), [ASKS], "no cell measures"),
        (COLAB.format("gpu"), ["|measures|x = 1"], "no cell asks for a GPU"),
        (HEAD.format("gpus"), ["|measures|" + ASKS], None),
        (HEAD.format("counts"), [ASKS], "a cell asks for a GPU"),
        (COLAB.format("counts"), ["x = 1"], "the head asks Colab for a GPU"),
        (COLAB.format("gpu"), [HIDES, "|measures|" + ASKS], "it hides the GPU of its machine"),
        (HEAD.format("counts"), [HIDES], None),
        (HEAD.format("cpu, its question is about CPUs"), [HIDES], None),
        (HEAD.format("cpu"), ["x = 1"], "needs a reason"),
        (HEAD.format("counts, as always"), ["x = 1"], "needs no reason"),
        (HEAD.format("gpuz"), ["x = 1"], "runs_on: there is no gpuz"),
    ],
)
def test_a_notebook_does_what_its_head_says_it_runs_on(problems_of, head, cells, said):
    problems_of(*cells)
    source = Path("notebooks/tiny.py").read_text()
    Path("notebooks/tiny.py").write_text(head + source)
    assert [said in str(problem) for problem in notebook_lint.check("tiny")] == ([True] if said else [])
