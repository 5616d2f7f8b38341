"""A record of another machine is one of the notebook: its claims, units and columns, with other values. Nothing of it can harm a reader."""

import contextlib
import json

import pytest

from evidence import contributions, records, runs
from evidence.problems import Problem

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
        (change(unit="%"), "its unit is '%', and 'x' in the notebook"),
        (lambda data: data["claims"].update(other=data["claims"][CLAIM]), "the notebook has no claim other"),
        (lambda data: data["claims"].update({"step-sped": data["claims"].pop(CLAIM)}), "no claim step-sped (did you mean step-speed?)"),
        (lambda data: data["claims"].pop(CLAIM), "the claim step-speed of the notebook"),
        (lambda data: data["tables"].update({"extra": {"title": "Extra figures", "kind": "measured", "columns": {"a": "A", "b": "B"}, "rows": [[1, 2]]}}), "the notebook has no table extra"),
    ],
)  # fmt: skip
def test_what_is_of_another_notebook_is_named_with_its_field(repository, forge, what):
    def with_a_table(data):
        forge(data)
        if not data["claims"] and not data["tables"]:
            data["tables"]["rest"] = {"title": "The rest of it", "kind": "measured", "columns": {"a": "A", "b": "B"}, "rows": [[1, 2]]}

    path = repository.record_of_another_machine(change=with_a_table)
    problems = repository.notebook_problems()
    assert problems and all(problem.startswith(f"{path}:") for problem in problems)
    assert any(what in problem and "on Other CPU 2 cores" in problem for problem in problems), problems


def test_a_contributed_record_never_makes_the_check_blame_an_honest_one(repository):
    path = repository.record_of_another_machine(change=change(unit="%", value=99), date="2026-10-01")
    assert {problem.split(":")[0] for problem in repository.notebook_problems()} == {str(path)}


SCRIPT, TURNED = "<script>alert(1)</script>", "\u202egnorts"


def of_claim(key, value):
    return lambda data: data["claims"][CLAIM].update({key: value})


def of_machine(key, value):
    return lambda data: data["machine"].update({key: value})


def deep():
    value = 1
    for _ in range(900):
        value = [value]
    return value


# {what is wrong: a change of an honest record}. None of them may reach a page, or end in a traceback. test_schema.py has the rest.
HARMFUL = {
    "markup in a sentence": of_claim("sentence", f"A step {SCRIPT} is fast"),
    "a sentence turned round": of_claim("sentence", f"A step is fast {TURNED}"),
    "no bound": lambda data: data["claims"][CLAIM].pop("at_least"),
    "an address as the source of a measured figure": of_claim("source", "https://cards.example/"),
    "deep nesting": of_claim("spread", deep()),
    "a name that leads elsewhere": of_machine("name", "../x"),
    "a label that is not the hardware's": of_machine("label", "The best CPU"),
    "blanks": of_machine("cpu", " " * 20),
    "a whole number with a point": of_machine("cores", 2.0),
    "digits of another script": lambda data: data["software"].update(torch="\u0662.\u0661"),
    "ten megabytes": lambda data: data.update(command="x" * 10_000_000),
}


@pytest.mark.parametrize("name", HARMFUL)
def test_a_harmful_record_is_refused_in_a_line_and_never_makes_the_check_blame_an_honest_one(repository, tmp_path, name):
    honest = {path: path.read_bytes() for path in repository.record.parent.iterdir()}
    file = tmp_path / "sent.json"
    data = json.loads(repository.record_of_another_machine().read_text())
    HARMFUL[name](data)
    place = next(path for path in repository.record.parent.iterdir() if path not in honest)
    with contextlib.suppress(KeyError, TypeError):
        data["seal"] = records.seal(data)  # as a forger would
    file.write_text(json.dumps(data, indent=1, ensure_ascii=False))
    place.unlink()
    with pytest.raises(Problem) as caught:
        contributions.add(file)
    said = str(caught.value)
    assert "\n" not in said and len(said) < 700 and "<script" not in said and TURNED[0] not in said, said
    assert {path: path.read_bytes() for path in repository.record.parent.iterdir()} == honest
    place.write_bytes(file.read_bytes())  # past the script, by hand
    problems = repository.notebook_problems()
    assert problems and {problem.split(":")[0] for problem in problems} == {str(place)}, problems
    assert not any("<script" in problem or TURNED[0] in problem for problem in problems)


RATES = """
memory = {"memory": "Memory of the GPU, GiB"} if False else {}
table("rates", "Speed of a step by way", {"way": "Way", "speed": "Speed, x"} | memory, [{"way": "fast", "speed": 2.0}], kind="measured")
if False:
    table("large", "Speed of a large step", {"way": "Way", "speed": "Speed, x"}, [{"way": "fast", "speed": 3.0}], kind="measured")"""


def test_a_larger_machine_may_have_a_table_or_a_column_more_where_the_code_names_it(repository):
    repository.edit(repository.source, '"repeats": 5})', '"repeats": 5})' + RATES)
    runs.record("tiny", say=print)
    large = {"title": "Speed of a large step", "kind": "measured", "columns": {"way": "Way", "speed": "Speed, x"}, "rows": [["fast", 3.0]]}

    def more(column):
        def changed(data):
            data["tables"]["large"] = large
            data["tables"]["rates"] |= {"columns": {"way": "Way", "speed": "Speed, x", column: "More"}, "rows": [["fast", 2.0, 80]]}

        return changed

    repository.record_of_another_machine(change=more("memory"))
    assert repository.notebook_problems() == []
    repository.record_of_another_machine(change=more("memry"))
    (problem,) = repository.notebook_problems()
    assert "table rates: the notebook has no column memry" in problem
