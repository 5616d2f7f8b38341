"""Published measurements: each row is sound, and a row that is not is named with its file, line and field."""

import json

import pytest

from dryrun.cost import timing
from fitting import contexts, published

ROWS = {row["id"]: row for row in published.rows()}
TRAIN, DECODE = "h2-0088", "0577"  # Mistral 7B on one A100; Llama 3 8B in fp16 on one A100


def first(**wanted):
    """The first usable row with these fields."""
    return next(row for row in ROWS.values() if row["usable"] and all(row.get(key) == wanted[key] for key in wanted))


@pytest.mark.parametrize("key", ["url", "date", "source", "path"])
def test_a_row_says_where_its_figure_comes_from(key):
    missing = [row["id"] for row in ROWS.values() if not row[key] and not row["note"]]
    assert missing == []


def broken(change, of):
    """The problems of one row after a change."""
    return list(published.row_problems(ROWS[of] | change))


@pytest.mark.parametrize(
    ("of", "change", "said"),
    [
        (TRAIN, {"unit": "tok/s/GPU"}, "unit: 'tok/s/GPU' is not known, did you mean 'tokens/s/GPU'"),
        (TRAIN, {"kind": "training"}, "kind: 'training' is not known, did you mean 'train'"),
        (TRAIN, {"gpu": None}, "gpu: no GPU is named"),
        (TRAIN, {"gpu": "a100-sxm4-81"}, "gpu: gpu='a100-sxm4-81' is not known: did you mean a100-sxm4-80"),
        (TRAIN, {"gpus": 0}, "gpus: 0: give the number of GPUs"),
        (TRAIN, {"value": 0}, "value: 0: give a number above zero"),
        (TRAIN, {"value": None}, "value: null: a row of time needs a value"),
        (TRAIN, {"seconds": 5.9}, "seconds: 5.9, but 3062.69 tokens/s/GPU give 5.34954"),
        (TRAIN, {"unit": "tokens/s", "gpus": 8}, "seconds: 5.34954, but 3062.69 tokens/s give"),
        (TRAIN, {"seconds": None}, "seconds: null in a usable row: 5.34954 follow"),
        (TRAIN, {"value": 30626.94, "seconds": 0.534954}, "value: the products take"),
        (TRAIN, {"usable": False, "note": ""}, "note: the row is rejected without a reason"),
        (TRAIN, {"usable": "yes"}, "usable: 'yes'"),
        (TRAIN, {"url": "github.com/x"}, "url: 'github.com/x': give the address"),
        (TRAIN, {"date": None, "note": ""}, "date: null without a note"),
        (DECODE, {"value": 531.8, "seconds": 1 / 531.8}, "value: reading the weights takes"),
    ],
)
def test_a_wrong_row_is_told_by_field(of, change, said):
    assert not broken({}, of)
    found = broken(change, of)
    assert len(found) == 1
    assert found[0].startswith(said)


def test_a_field_that_is_missing_is_named():
    row = {key: value for key, value in ROWS[TRAIN].items() if key != "batch"}
    assert list(published.row_problems(row)) == [
        "batch: the field is missing: write null where the source does not state it"
    ]


@pytest.mark.parametrize(
    ("fits", "change", "said"),
    [
        (False, {"memory_gib": 70}, "memory_gib: a run that stopped for lack of memory has no peak"),
        (True, {"memory_gib": None}, "memory_gib: null: a row of memory needs a peak, or fits: false"),
        (True, {"unit": "Gb"}, "unit: 'Gb' is not known, did you mean 'GB'"),
        (True, {"memory_gib": 900}, "memory_gib: 900 are more than the"),
    ],
)
def test_a_wrong_row_of_memory_is_told(fits, change, said):
    row = first(kind="memory", fits=fits)
    assert not list(published.row_problems(row))
    assert [text[: len(said)] for text in published.row_problems(row | change)] == [said]


def written(rows, tmp_path):
    path = tmp_path / "rows.json"
    path.write_text('{"rows": [\n' + ",\n".join(map(json.dumps, rows)) + "\n]}\n")
    return path


def test_the_sound_rows_of_a_file_are_kept_and_each_other_is_one_line(tmp_path):
    path = written([ROWS[TRAIN], ROWS[DECODE] | {"unit": "parsecs"}, ROWS[TRAIN]], tmp_path)
    sound, problems = published.checked(path)
    assert [row["id"] for row in sound] == [TRAIN]
    assert problems[0].startswith(f"{path}:3: row {DECODE}: unit: 'parsecs' is not known")
    assert f"row {TRAIN}: id: '{TRAIN}' is the id of another row" in problems[1]
    with pytest.raises(ValueError, match=r"unit: 'parsecs' is not known.*\(1 more\)"):
        published.rows(path)


def test_a_file_of_the_same_schema_needs_no_address(tmp_path):
    row = {key: value for key, value in ROWS[TRAIN].items() if key != "url"}
    assert published.rows(written([row], tmp_path))[0]["url"] == ROWS[TRAIN]["url"]


@pytest.mark.parametrize("text", ["[]", "{}", "no JSON", '{"rows": 7}'])
def test_a_file_without_rows_is_one_line(tmp_path, text):
    path = tmp_path / "rows.json"
    path.write_text(text)
    with pytest.raises(ValueError, match="no table of rows") as caught:
        published.rows(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "ranks"),
    [
        ({"gpus": 8, "parallel": None}, 8),
        ({"gpus": 256, "parallel": {"fsdp": 32, "tp": 8}}, 32),
        ({"gpus": 32, "parallel": {"dp": 2, "tp": 4, "pp": 4, "cp": 1}}, 2),
        ({"gpus": 64, "parallel": {"dp": 64, "ep": 64}}, 64),
    ],
)
def test_ranks_are_the_gpus_that_have_sequences_of_their_own(change, ranks):
    assert published.ranks(ROWS[TRAIN] | change) == ranks


def test_what_is_not_pytorchs_of_a_gpu_is_what_messages_say_and_a_wrong_one_is_named():
    message = {"in_use_gib": 22.69, "allocated_gib": 21.72, "reserved_gib": 0.51, "total_gib": 23.61, "url": "https://example.org/1"}
    assert contexts.outside(message) == pytest.approx(0.46)
    with pytest.raises(ValueError, match=r"https://example.org/1: -0.31 GiB cannot be"):
        contexts.outside(message | {"allocated_gib": 22.49})
    assert {name: timing.fitted()["memory"][name] for name in ("context", "context_many")} == contexts.constants()
