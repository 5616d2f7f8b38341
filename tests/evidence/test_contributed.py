"""A record of another machine says what the notebook says: its claims, units, sentences and bounds, with other values."""

import contextlib
import json
import random

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


# {what is forged: a change of an honest record by chance}. Each is a lie of one kind; a generator makes several of each.
SCRIPT, TURNED, TAKEN = "<script>alert(1)</script>", "\u202egnorts", ["tokens/s", "GiB", "%", "s"]
WORDS = ["fast", "graphics", "card", "record", "buy", "doubles", "every", "step", "here", "now"]


def words(chance):
    return " ".join(chance.choices(WORDS, k=chance.randint(3, 9))).capitalize()


def claim_field(key, make):
    def forge(data, chance):
        data["claims"][CLAIM][key] = make(chance)

    return forge


def machine_field(key, make):
    def forge(data, chance):
        data["machine"][key] = make(chance)

    return forge


def field(key, make):
    def forge(data, chance):
        data[key] = make(chance)

    return forge


def of_no_type(chance):
    return chance.choice([None, True, [], {}, [1], {"a": 1}, ""])


def deep(chance):
    value = 1
    for _ in range(chance.randint(9, 900)):
        value = [value]
    return value


def extra_claim(data, chance):
    data["claims"][f"more-{chance.randint(1, 999)}"] = dict(data["claims"][CLAIM])


def missing(data, chance):
    del data[chance.choice(["schema", "source", "date", "command", "software", "claims", "tables"])]


def on_a_gpu(data, chance):
    """A card that is above its data sheet, or a CPU run under a card's name."""
    data["machine"] |= {
        "gpu": "NVIDIA H100 80GB HBM3",
        "gpu_memory_gib": chance.uniform(90, 1900),
        "label": "NVIDIA H100 80GB HBM3",
    }
    data["machine"]["name"] = "nvidia-h100-80gb-hbm3"
    data["software"] |= {"cuda": "13.0"} if chance.random() < 0.5 else {}


def a_reason(data, chance):
    """In place of the value."""
    claim = data["claims"][CLAIM]
    data["claims"][CLAIM] = {key: claim[key] for key in ("sentence", "kind", "unit", "at_least")} | {
        "because": words(chance)
    }


def a_card(data, chance):
    """One that nobody sells, above all that are sold, or one of another generation."""
    name, memory, capability = chance.choice(
        [("NVIDIA H1000 Ultra", chance.uniform(600, 1900), "9.0"), ("Tesla T4", 14.7, chance.choice(["9.0", "12.0"]))]
    )
    data["machine"] |= {"gpu": name, "label": name, "name": name.lower().replace(" ", "-"),
                        "gpu_memory_gib": memory, "compute_capability": capability}  # fmt: skip
    data["software"]["cuda"] = "13.0"


def an_address(data, chance):
    cpu = f"{chance.choice(WORDS)}.{chance.choice(['com', 'example', 'zone'])}"
    data["machine"] |= {"cpu": cpu, "label": f"{cpu} 2 cores", "name": f"{cpu.replace('.', '-')}-2core"}


KINDS = {
    "a sentence": claim_field("sentence", words),
    "a sentence that only begins as ours": claim_field("sentence", lambda chance: "Speed of that step " + words(chance)),
    "markup in a sentence": claim_field("sentence", lambda chance: chance.choice([SCRIPT, "A <b>step</b> is fast", "<!-- a step --> of ours"])),
    "a sentence turned round": claim_field("sentence", lambda chance: words(chance) + TURNED),
    "a long sentence": claim_field("sentence", lambda chance: "x" * chance.randint(301, 9000)),
    "a unit": claim_field("unit", lambda chance: chance.choice(TAKEN)),
    "markup in a unit": claim_field("unit", lambda chance: chance.choice([SCRIPT, "x<b>", "&lt;x"])),
    "a kind": claim_field("kind", lambda chance: chance.choice(["derived", "traced", "cited", "predicted", "seen"])),
    "a value under its bound": claim_field("value", lambda chance: chance.uniform(-99, 1.09)),
    "a value beyond its unit": claim_field("value", lambda chance: chance.choice([1e8, 1e18, 1e300, -1e30])),
    "a value of no type": claim_field("value", of_no_type),
    "a huge integer": claim_field("value", lambda chance: 10 ** chance.randint(19, 4000)),
    "a wider bound": claim_field("at_least", lambda chance: chance.uniform(-9, 1.05)),
    "a bound more": claim_field("at_most", lambda chance: chance.uniform(2.31, 9e9)),
    "no bound": lambda data, chance: data["claims"][CLAIM].pop("at_least"),
    "a spread": claim_field("spread", lambda chance: {"min": 2, "max": chance.uniform(-9, 1.9), "repeats": chance.randint(-3, 9)}),
    "a source": claim_field("source", lambda chance: chance.choice(["javascript:alert(1)", "http://x.org", f"https://x.org/{SCRIPT}"])),
    "a field of a claim": claim_field("note", words),
    "deep nesting": claim_field("spread", deep),
    "a claim more": extra_claim,
    "a claim of another name": lambda data, chance: data["claims"].update({f"step-{chance.choice(WORDS)}": data["claims"].pop(CLAIM)}),
    "a table more": lambda data, chance: data["tables"].update(more={"title": words(chance), "kind": "measured", "columns": {"a": "A", "b": "B"}, "rows": [[1, 2]]}),
    "a label": machine_field("label", words),
    "markup in a label": machine_field("label", lambda chance: chance.choice([SCRIPT, "<img src=x>", f"Other {TURNED}"])),
    "a name": machine_field("name", lambda chance: chance.choice(["exact", "../x", "toaster", "nvidia-h200", "other-cpu-64core", "A" * 99])),
    "a CPU": machine_field("cpu", lambda chance: chance.choice([SCRIPT, words(chance), TURNED, "x" * 200])),
    "cores": machine_field("cores", lambda chance: chance.choice([0, -2, 2.5, "2", 4097, 10**9])),
    "memory": machine_field("memory_gib", lambda chance: chance.choice([0, -8, "8", 1e9])),
    "a fingerprint": machine_field("fingerprint", lambda chance: chance.choice(["", "0123ABCD", SCRIPT, 12345678])),
    "a field of a machine": machine_field("owner", words),
    "a card above its data sheet": on_a_gpu,
    "a date": field("date", lambda chance: chance.choice(["0001-01-01", f"{chance.randint(2100, 9999)}-01-01", "2025-02-30", 20260101])),
    "software": lambda data, chance: data["software"].update({chance.choice(["torch", SCRIPT]): chance.choice([SCRIPT, 2.13, "nightly"])}),
    "a command": field("command", lambda chance: f"make record NOTEBOOKS=tiny; {chance.choice(WORDS)}"),
    "a schema": field("schema", lambda chance: chance.choice([0, 3, 4, 10**17, "5", 5.5])),
    "a field of a record": field("owner", words),
    "a field that is missing": missing,
    "an address as the source of a measured figure": claim_field("source", lambda chance: f"https://{chance.choice(WORDS)}.example/"),
    "a reason": a_reason,
    "a card that is none": a_card,
    "an address as a CPU": an_address,
    "another Python": lambda data, chance: data["software"].update(python=chance.choice(["2.7.18", "99.9.9", "3.4", "3.1.1"])),
    "software that the notebook does not use": lambda data, chance: data["software"].update({f"{chance.choice(WORDS)}.example": "1"}),
    "software that is missing": lambda data, chance: data["software"].pop(chance.choice(["torch", "transformers", "python"])),
    "letters and digits of another script": lambda data, chance: chance.choice([data["software"], data["machine"]]).update(
        torch=chance.choice(["2.13.0\u05d0", "\u0662.\u0661"]), cpu_features=["\u05d0\u05d1"]),
    "a whole number with a point": lambda data, chance: chance.choice([
        lambda: data.update(schema=5.0), lambda: data["machine"].update(cores=2.0),
        lambda: data["claims"][CLAIM]["spread"].update(repeats=5.0)])(),
    "blanks": machine_field("cpu", lambda chance: " " * chance.randint(1, 70)),
    "ten megabytes": field("command", lambda chance: "x" * 10_000_000),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_no_forged_record_is_added_none_raises_and_none_makes_the_check_blame_an_honest_one(repository, tmp_path, kind):
    honest = {path: path.read_bytes() for path in repository.record.parent.iterdir()}
    file = tmp_path / "sent.json"
    for seed in range(2 if kind == "ten megabytes" else 9):
        data = json.loads(repository.record_of_another_machine().read_text())
        KINDS[kind](data, random.Random(f"{kind} {seed}"))
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
        place.unlink()


RATES = """
memory = {"memory": "Memory of the GPU, GiB"} if False else {}
table("rates", "Speed of a step by way", {"way": "Way", "speed": f"Speed on {'a GPU' if False else 'here'}, x"} | memory,
      [{"way": "fast", "speed": 2.0}, {"way": "aten::mm", "speed": 2.0}], kind="measured")
if False:
    table("large", "Speed of a large step", {"way": "Way", "speed": "Speed, x"}, [{"way": "fast", "speed": 3.0}], kind="measured")"""


@pytest.fixture
def rates(repository):
    """The repository with a table that measures."""
    repository.edit(repository.source, '"repeats": 5})', '"repeats": 5})' + RATES)
    runs.record("tiny", say=print)
    return repository


@pytest.mark.parametrize(
    ("rows", "columns", "what"),
    [
        ([["fast", 1.9]], {}, None),
        ([["aten::addmm", 9], ["fast", None]], {}, None),
        ([["fast", 1]], {"speed": "Speed on a GPU, x"}, None),
        ([["Buy this card today", 1]], {}, "no code of the notebook writes the cell 'Buy this card today' of column way"),
        ([["cards.example", 1]], {}, "no code of the notebook writes the cell 'cards.example'"),
        ([["[here](https://x.org)", 1]], {}, "no code of the notebook writes the cell '[here](https://x.org)'"),
        ([["[[tiny:peak-memory]]", 1]], {}, "no code of the notebook writes the cell '[[tiny:peak-memory]]'"),
        ([["fast", "very"]], {}, "no code of the notebook writes the cell 'very' of column speed"),
        ([["fast", True]], {}, "its column speed holds yes or no, and numbers in the notebook"),
        ([["fast", 1]], {"speed": "Speed, TFLOP/s"}, "no code of the notebook writes the head of column speed, 'Speed, TFLOP/s'"),
        ([["fast", 1]], {"speed": "Speed on cards.example, x"}, "no code of the notebook writes the head of column speed"),
        ([["fast", 1]], {"other": "Other"}, "a row of 2 cells under 3 columns"),
        ([["fast", 1, 12.5]], {"memory": "Memory of the GPU, GiB"}, None),  # a column that the code gives a GPU alone
        ([["fast", 1, 12.5]], {"memory": "Best memory, GiB"}, "no code of the notebook writes the head of column memory"),
        ([["fast", 1, "large"]], {"memory": "Memory of the GPU, GiB"}, None),
        ([["fast", 1, "huge"]], {"memory": "Memory of the GPU, GiB"}, "no code of the notebook writes the cell 'huge' of column memory"),
        ([["fast", 1, 12.5]], {"other": "Other"}, "its columns are way, speed, other"),
    ],
)  # fmt: skip
def test_a_table_of_another_machine_has_the_words_that_the_notebook_can_write(rates, tmp_path, rows, columns, what):
    def forge(data):
        data["tables"]["rates"]["rows"] = rows
        data["tables"]["rates"]["columns"] |= columns

    place = rates.record_of_another_machine(change=forge)
    file = place.rename(tmp_path / "sent.json")
    if what is None:
        assert contributions.add(file) == place and rates.notebook_problems() == []
        return
    with pytest.raises(Problem) as caught:
        contributions.add(file)
    assert what in str(caught.value)


def test_a_reason_that_the_notebook_gives_elsewhere_is_one(repository):
    repository.edit(repository.source, "peak = 12.5", 'peak, WHY = 12.5, "this CPU has no such instruction"')
    runs.record("tiny", say=print)

    def without(data):
        claim = data["claims"][CLAIM]
        del claim["value"], claim["spread"]
        claim["because"] = "this CPU has no such instruction"

    repository.record_of_another_machine(change=without)
    assert repository.notebook_problems() == []


def test_the_forged_records_are_of_thirty_kinds_and_three_hundred_in_number():
    assert len(KINDS) >= 30 and 9 * (len(KINDS) - 1) >= 300


def test_a_larger_machine_may_have_a_table_more_where_the_code_names_it_and_writes_its_words(rates):
    def more(title, cell):
        table = {"title": title, "kind": "measured", "columns": {"way": "Way", "speed": "Speed, x"}, "rows": [[cell, 3.0]]}
        return lambda data: data["tables"].update(large=table)

    rates.record_of_another_machine(change=more("Speed of a large step", "fast"))
    assert rates.notebook_problems() == []
    for title, cell, what in (("Buy this card", "fast", "title 'Buy this card'"), ("Speed of a large step", "cards", "the cell 'cards'")):
        rates.record_of_another_machine(change=more(title, cell))
        assert any(what in problem for problem in rates.notebook_problems())
