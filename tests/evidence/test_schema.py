"""A record may come from a stranger: what is no honest record is refused in one line that names file and field."""

import contextlib
import copy
import datetime
import json
import re

import pytest

from evidence import records, schema
from evidence.problems import Problem

SCRIPT = "<script>alert(1)</script>"
TURNED = "\u202eBiG 21"  # right to left
TODAY = datetime.datetime.now(datetime.UTC).date()


def message_of(path, text):
    """What reading this text as the record at `path` says: one line, with the file. No other exception passes."""
    path.write_text(text, encoding="utf-8", errors="surrogatepass")
    with pytest.raises(Problem) as caught:
        schema.read(path)
    message = str(caught.value)
    assert re.match(rf"{path}:\d+: [^\n]+\. Fix: [^\n]+$", message) and len(message) < 700, message
    assert "<script" not in message and TURNED[0] not in message
    return message


def sound(repository):
    return json.loads(repository.record.read_text())


def write(data):
    """The text of a record with the seal that it should have, as a forger would write it."""
    with contextlib.suppress(KeyError, TypeError):
        data["seal"] = records.seal(data)
    return json.dumps(data, indent=1, ensure_ascii=False)


def at(data, *keys):
    for key in keys:
        data = data[key]
    return data


CLAIM = ("claims", "step-speed")
TABLE = {"title": "A table of tests", "kind": "measured", "columns": {"a": "A", "b": "B"}, "rows": [[1, 2]]}

# {what is forged: ([keys of the place], [values that no honest run leaves])}
FORGED = {
    "a script as a label": (["machine", "label"], [SCRIPT, "<img src=x>", "</style>", "<!--", 5, None, [], {}, "x" * 81, ""]),
    "a script as a CPU": (["machine", "cpu"], [SCRIPT, "</title>", "A\nB", "A\x00", TURNED, 7, True, None, "y" * 200, "Other CPU"]),
    "another name of the machine": (["machine", "name"], ["exact", "My Laptop", "../../x", "", "a" * 99, SCRIPT, 1, None, "nvidia-h200", "test-cpu-64core"]),
    "cores": (["machine", "cores"], [0, -1, 2.5, "2", None, 10**9, True, [2], 1e308, 4097]),
    "memory": (["machine", "memory_gib"], [0, -8, "8", 99_999, True, [8], {}, 0.01, 1e308, -0.1]),
    "a GPU on a CPU run": (["machine", "gpu"], ["NVIDIA H200", SCRIPT, TURNED, 1, None, "", [], {}, "z" * 61, "NVIDIA\tH200"]),
    "features": (["machine", "cpu_features"], ["avx2", [SCRIPT], [1], [None], ["a b"], ["x" * 21], ["avx2"] * 21, {}, 3, [["avx2"]]]),
    "a fingerprint": (["machine", "fingerprint"], ["", "0123abc", "0123ABCD", 1234, None, "0123abcd0", SCRIPT, "zzzzzzzz", [], "0123abcd\n"]),
    "a field that no machine has": (["machine", "owner"], ["me", 1, None, SCRIPT, [], {}, TURNED, True, "", 0.5]),
    "software": (["software", "torch"], [2.13, SCRIPT, None, [], "nightly", "", "2 13", TURNED, "1" * 80, "2.13\n"]),
    "a name of software": (["software", SCRIPT], ["1.0"]),
    "a date": (["date"], ["0001-01-01", "2999-01-01", "2025-13-01", "2025-02-30", "yesterday", 20250101, None, "2024-12-31", "2025-1-1", "2026-01-01T00:00"]),
    "a notebook": (["notebook"], ["../tiny", "Tiny", "", SCRIPT, 1, None, "other", "tiny/..", "a" * 70, "tiny\n"]),
    "a command": (["command"], ["rm -rf /", "", SCRIPT, "make record NOTEBOOKS=a;b", 1, None, "make record", TURNED, [], "make record NOTEBOOKS=$(x)"]),
    "a source hash": (["source"], ["", "0" * 63, "0" * 65, "G" * 64, 0, None, SCRIPT, [], {}, "0" * 64 + "\n"]),
    "a package": (["package"], [None, [], "x", {"evidence/measure.py": 1}, {"../x.py": "0" * 64}, {SCRIPT: "0" * 64}, 1, {"os.py": "0" * 64}, {"evidence/measure.py": "0"}, True]),
    "a schema": (["schema"], [0, 3, 4, "5", None, 5.5, [5], {}, 10**17, -5]),
    "a value": ([*CLAIM, "value"], ["2.3", None, True, [2], {}, -1, 1e308, 1e8, 0.5, 10**17]),
    "a bound": ([*CLAIM, "at_least"], ["1", None, [], {}, 5, 1e300, True, 2.4, SCRIPT, 10**17]),
    "a sentence": ([*CLAIM, "sentence"], [SCRIPT, "Short", "", 5, None, "x" * 301, TURNED + " of a step", "A step\nof tests", "A step \u200b of tests", [] ]),
    "a unit": ([*CLAIM, "unit"], [SCRIPT, "furlongs", "GiB<b>", 5, None, "x" * 40, TURNED, "gib", "seconds", []]),
    "a kind": ([*CLAIM, "kind"], ["traced", "derived", "cited", "guessed", "", 1, None, SCRIPT, [], "Measured"]),
    "a spread": ([*CLAIM, "spread"], [5, [], None, {"min": 1}, {"min": 2, "max": 1, "repeats": 3}, {"min": 1, "max": 2, "repeats": 0}, {"min": 1, "max": 2, "repeats": 1.5}, {"min": "1", "max": 2, "repeats": 3}, {"min": 1, "max": 2, "repeats": 3, "x": 1}, {"min": 1, "max": 1e300, "repeats": 3}]),
    "a reason beside a value": ([*CLAIM, "because"], ["it does not", SCRIPT, 1, None, "", "no", [], TURNED, "x" * 300, {}]),
    "a source of a claim": ([*CLAIM, "source"], ["http://x.org", "javascript:alert(1)", "https://", "https://x.org/\"onclick=\"a b", 1, None, "https://x.org/<b>", [], "ftp://x", "https://x.org/" + "a" * 300]),
    "a field that no claim has": ([*CLAIM, "note"], ["x", 1, None, SCRIPT, [], {}, True, 0.5, "", TURNED]),
    "a claim under a name that no page writes": (["claims", SCRIPT], [{}, 1, None, [], "x", TABLE, True, 0.1, "", {"value": 1}]),
    "a table": (["tables", "by-size"], [
        {}, 1, None, TABLE | {"kind": "traced"}, TABLE | {"rows": []}, TABLE | {"rows": [[1]]}, TABLE | {"rows": [[SCRIPT, 1]]},
        TABLE | {"rows": [[1, 1e300]]}, TABLE | {"columns": {"a": SCRIPT, "b": "B"}}, TABLE | {"title": SCRIPT}]),
    "a field that no record has": (["owner"], ["me", 1, None, SCRIPT, [], {}, TURNED, True, "", 0.5]),
}  # fmt: skip


@pytest.mark.parametrize("forged", FORGED)
def test_what_no_honest_run_leaves_is_refused(repository, forged):
    keys, values = FORGED[forged]
    for value in values:
        data = sound(repository)
        at(data, *keys[:-1])[keys[-1]] = value
        message_of(repository.record.with_suffix(".json"), write(data))


@pytest.mark.parametrize(
    ("broken", "what"),
    [
        ("[" * 100_000 + "]" * 100_000, "nested 100000 deep; a record is at most 8 deep"),
        ('{"schema": ' + "9" * 5000 + "}", "a whole number of 5000 digits; a record has at most 18"),
        ('{"schema": 4, "x": "' + "y" * 10_000_000 + '"}', "10,000,022 bytes; a record has at most 1,000,000"),
        ('{"schema": NaN}', "NaN is not a number"),
        ('{"schema": 1e999}', "1e999 is not a number"),
        ('{"schema": 4, "schema": 4}', "schema stands twice"),
        ("", "the record is not whole JSON"),
        ('"text"', "the record: "),
        ('{"schema": 4, "x": "\ud800"}', "not UTF-8 text"),
        ('{"schema": -' + "1" * 30 + "}", "a whole number of 31 digits"),
    ],
    ids=range(10),
)
def test_text_that_is_no_record_is_refused_in_one_line(repository, broken, what):
    assert what in message_of(repository.record, broken)


def test_a_field_that_is_missing_is_named(repository):
    for place in ([], ["machine"], CLAIM):
        data = sound(repository)
        for key in schema_required(place):
            changed = copy.deepcopy(data)
            del at(changed, *place)[key]
            text = json.dumps(changed, indent=1)
            assert f"'{key}' is a required property" in message_of(repository.record, text)


def schema_required(place):
    return {(): ["schema", "notebook", "source", "date", "software", "claims", "tables", "seal"], ("machine",): ["name", "label", "cpu", "cores", "fingerprint"]}.get(tuple(place), ["sentence", "kind", "unit"])  # fmt: skip


def test_a_record_cut_anywhere_is_refused_with_file_and_line(repository):
    whole = repository.record.read_bytes()
    for end in range(0, len(whole) - 2, 7):
        repository.record.write_bytes(whole[:end])
        with pytest.raises(Problem, match=rf"^{repository.record}:\d+: "):
            schema.read(repository.record)


def test_a_message_names_the_line_of_the_field(repository):
    text = repository.record.read_text().replace('"unit": "x"', '"unit": "furlongs"')
    line = 1 + text[: text.index('"value"')].count("\n")
    assert message_of(repository.record, text).startswith(
        f"{repository.record}:{line}: claim step-speed: no unit 'furlongs'"
    )


def test_a_unit_gets_the_nearest_one(repository):
    text = repository.record.read_text().replace('"unit": "x"', '"unit": "token/s"')
    assert "no unit 'token/s' (did you mean tokens/s?)" in message_of(repository.record, text)


def test_a_gpu_goes_with_a_version_of_cuda(repository):
    data = sound(repository)
    data["machine"] |= {"gpu": "NVIDIA H200", "gpu_memory_gib": 140.0, "name": "nvidia-h200", "label": "NVIDIA H200"}
    path = repository.record.with_stem("nvidia-h200")
    assert "a GPU goes with a CUDA or ROCm version" in message_of(path, write(data))
    data["software"]["cuda"] = "13.0"
    path.write_text(write(data))
    assert schema.read(path)["machine"]["gpu"] == "NVIDIA H200"


def test_a_record_of_tomorrow_is_read_since_it_is_tomorrow_somewhere(repository):
    tomorrow = (TODAY + datetime.timedelta(days=1)).isoformat()
    path = repository.record
    path.write_text(write(sound(repository) | {"date": tomorrow}))
    assert schema.read(path)["date"] == tomorrow


def test_a_new_file_is_not_sent_to_git_for_a_version_that_git_does_not_have(repository):
    assert "git checkout" not in message_of(repository.record, "")


def test_a_file_of_git_is_restored_from_there(repository, monkeypatch):
    monkeypatch.setattr(schema, "_known_to_git", lambda path: True)
    assert f"restore it with `git checkout {repository.record}`, or make it again" in message_of(repository.record, "")


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.01234, "0.0123"), (2.3449, "2.34"), (119.7, "120"), (13979.4, "13,979"), (4, "4"), (4.0, "4"), (None, "–"), (True, "True")],
)  # fmt: skip
def test_a_number_is_shown_by_three_significant_digits(value, shown):
    assert schema.format_number(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.493, "0.49"), (2.3449, "2.3"), (2.04, "2.0"), (1.0, "1"), (19.7, "20"), (0, "0"), (0.0996, "0.10"), (-0.0111, "-0.011"),
     (163.8, "160"), (13979.4, "14,000"), (87, "87"), (512.0, "510"), (99.7, "100")],
)  # fmt: skip
def test_a_sentence_shows_two_significant_digits(value, shown):
    assert schema.format_rounded(value) == shown


def test_a_unit_never_stands_alone_on_the_next_line():
    assert schema.format_value(119.7, "GiB") == "120\u00a0GiB"
    assert [schema.format_value(2.3, unit) for unit in ("x", "%", "")] == ["2.3x", "2.3%", "2.3"]
