"""A record of another machine says what the notebook says: its claims, units, sentences and bounds, with other values."""

import pytest

from evidence import runs

CLAIM = "step-speed"


def change(name=CLAIM, **fields):
    def changed(data):
        data["claims"][name] |= fields

    return changed


def test_an_honest_record_of_another_machine_is_no_problem(repository):
    repository.record_of_another_machine(change=change(value=1.7))
    assert repository.notebook_problems() == []


def test_a_sentence_with_the_words_of_that_machine_is_no_problem(repository):
    old = '"Speed of that step against another one"'
    repository.edit(
        repository.source, old, "f\"Speed of that step {'on a GPU' if False else 'here'} against another one\""
    )
    runs.record("tiny", say=print)
    repository.record_of_another_machine(change=change(sentence="Speed of that step on a GPU against another one"))
    assert repository.notebook_problems() == []


@pytest.mark.parametrize(
    ("forge", "what"),
    [
        (change(sentence="Buy this graphics card, it is the best one"), "no code of the notebook writes the sentence 'Buy this"),
        (change(unit="%"), "its unit is '%', and 'x' in the notebook"),
        (change(at_least=0.0001), "at_least=0.0001 is no bound of the notebook, which has 1.1"),
        (change(at_most=1000000), "at_most=1000000 is no bound of the notebook, which has None"),
        (lambda data: data["claims"].update(other=data["claims"][CLAIM]), "the notebook has no claim other"),
        (lambda data: data["claims"].update({"step-sped": data["claims"].pop(CLAIM)}), "no claim step-sped (did you mean step-speed?)"),
        (lambda data: data["tables"].update({"extra": {"title": "Extra figures", "kind": "measured", "columns": {"a": "A", "b": "B"}, "rows": [[1, 2]]}}), "the notebook has no table extra"),
    ],
)  # fmt: skip
def test_what_the_notebook_could_not_have_written_is_named_with_its_field(repository, forge, what):
    path = repository.record_of_another_machine(change=forge)
    problems = repository.notebook_problems()
    assert problems and all(problem.startswith(f"{path}:") for problem in problems)
    assert any(what in problem and "on Other CPU 2 cores" in problem for problem in problems), problems


def test_a_contributed_record_never_makes_the_check_blame_an_honest_one(repository):
    path = repository.record_of_another_machine(change=change(value=9999.0, at_most=100000), date="2026-10-01")
    assert {problem.split(":")[0] for problem in repository.notebook_problems()} == {str(path)}
