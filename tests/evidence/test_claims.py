"""A claim bounds its value, shows it to the reader of the notebook, and leaves it as data; a wrong one fails the run."""

import math

import pytest

from evidence import claims
from evidence.claims import ClaimError, claim, predicted, start, table

SENTENCE = "Peak memory of a step that the tests invent"


@pytest.fixture
def shown(monkeypatch, machine_of_the_tests):
    """What the cells of a run display."""
    outputs = []
    monkeypatch.setattr(claims, "_show", outputs.append)
    start("tiny")
    outputs.clear()
    return outputs


def refused(what, *arguments, call=claim, **options):
    with pytest.raises(ClaimError) as caught:
        call(*arguments, **options)
    assert what in str(caught.value)


def test_a_claim_leaves_its_value_with_its_bound(shown):
    claim("peak-memory", SENTENCE, 12, "GiB", kind="traced", at_least=10, at_most=13)
    (output,) = shown
    data = {
        "name": "peak-memory",
        "sentence": SENTENCE,
        "kind": "traced",
        "unit": "GiB",
        "at_least": 10,
        "at_most": 13,
        "value": 12.0,
    }
    assert output._repr_mimebundle_()["application/vnd.evidence.claim+json"] == data


def test_a_reader_sees_sentence_value_kind_and_bound(shown):
    claim("peak-memory", "Peak <memory> of a step", 12, "GiB", kind="traced", at_most=13)
    seen = shown[0]._repr_mimebundle_()
    assert seen["text/plain"] == repr(shown[0]) == "Peak <memory> of a step: 12\u00a0GiB (traced; at most 13\u00a0GiB)"
    assert seen["text/html"] == (
        "<p>Peak &lt;memory&gt; of a step: <strong>12\u00a0GiB</strong> <small>(traced; at most 13\u00a0GiB)</small></p>"
    )


def test_a_claim_whose_bound_fails_raises_with_sentence_value_and_bound(shown):
    refused(
        f"claim peak-memory does not hold: {SENTENCE}: 14\u00a0GiB is over the bound: at most 13\u00a0GiB",
        "peak-memory", SENTENCE, 14, "GiB", kind="traced", at_most=13,
    )  # fmt: skip
    refused("1.05x is under the bound: at least 1.1x", "step-speed", SENTENCE, 1.05, "x", kind="measured", at_least=1.1)
    assert not shown


BAND = {"label": "RTX 4090", "value": 1.9, "low": 1.6, "high": 2.3}


def test_a_prediction_says_what_it_is_on_each_gpu_and_keeps_its_bound_there(shown):
    none = {"label": "T4", "because": "it is bound by launches"}
    predicted("bf16-speed", SENTENCE, {"rtx-4090": BAND, "t4": none}, "x", at_least=1.2)
    seen = f"{SENTENCE}: RTX 4090 1.9x (1.6–2.3); T4 does not apply, because it is bound by launches (predicted)"
    assert shown[0]._repr_mimebundle_()["text/plain"] == seen
    for what, band, options in (
        ("on rtx-4090 1.9x is under the bound: at least 2x", BAND, {"at_least": 2}),
        ("it has no bound", BAND, {}),
        ("on rtx-4090 its value 1.9 is not between low, 2, and high, 2.3", BAND | {"low": 2}, {"at_least": 1}),
        ("on rtx-4090 it needs a value, or in its place a reason", {"label": "RTX 4090"}, {"at_least": 1}),
        ("on rtx-4090 -1 x is out of the range of this unit", BAND | {"low": -1}, {"at_least": 1}),
    ):
        refused(what, "bf16-speed", SENTENCE, {"rtx-4090": band}, "x", call=predicted, **options)


def test_a_value_on_its_bound_holds(shown):
    assert claim("low", SENTENCE, 13, kind="traced", at_least=13) is None
    assert claim("high", SENTENCE, 13, kind="traced", at_most=13) is None


SOUND = {"name": "speed", "sentence": SENTENCE, "value": 2, "unit": "x", "kind": "measured", "at_least": 1}
NAME = "a name is lower-case words with hyphens, like checkpointing-memory"


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        *(({"value": value, "at_least": -math.pi}, f"claim speed: the value is {value}") for value in (math.nan, math.inf, -math.inf)),
        ({"value": "fast"}, "claim speed: the value is 'fast', which is no number"),
        ({"value": None}, "claim speed: there is no value, so say why: because="),
        ({"at_least": None}, "claim speed: give a bound (at_least, at_most)"),
        *(({"at_least": bound}, f"claim speed: the bound {bound} can't fail") for bound in (math.nan, math.inf, -math.inf)),
        ({"kind": "measuredd"}, "kind='measuredd' (did you mean measured?), choose one of derived, traced"),
        *(({"kind": "cited", "source": source}, "claim speed: a cited figure needs source=") for source in (None, "", "a book", "http://example.org")),
        ({"sentence": "Speed"}, "claim speed: 'Speed' is no sentence"),
        *(({"name": name}, NAME) for name in ("Peak memory", "peak_memory", "peak-", "", "peak:memory")),
    ],
)
def test_what_is_no_claim_is_refused(shown, changes, what):
    refused(what, **SOUND | changes)
    assert not shown


@pytest.mark.parametrize(
    ("rows", "options", "what"),
    [
        ([{"a": 1}], {"kind": "trace"}, "table t: kind='trace' (did you mean traced?)"),
        ([{"a": 1}], {"kind": "cited", "source": "a book"}, "table t: a cited figure needs source='https://...'"),
        ([{"b": 1}], {"kind": "traced"}, "table t: a row lacks 'a'"),
        ([{"a": 1.0}, {"a": math.nan}], {"kind": "traced"}, "table t, row 2, a: the value is nan"),
    ],
)
def test_what_is_no_table_is_refused(shown, rows, options, what):
    refused(what, "t", "Title", {"a": "A"}, rows, call=table, **options)
    assert not shown


def test_a_cited_figure_needs_no_bound(shown):
    claim("speed", SENTENCE, 2, "x", kind="cited", source="https://example.org/paper")
    assert len(shown) == 1


def test_a_claim_without_a_value_says_why(shown):
    claim("speed", SENTENCE, None, "x", kind="measured", at_least=1, because="this machine has no GPU")
    data = shown[0]._repr_mimebundle_()["application/vnd.evidence.claim+json"]
    assert data["because"] == "this machine has no GPU" and "value" not in data
    assert repr(shown[0]) == f"{SENTENCE}: does not apply here, because this machine has no GPU"


def test_a_figure_before_its_run_is_opened_is_refused(shown, monkeypatch):
    monkeypatch.setattr(claims, "_run", {"notebook": None, "names": set()})
    where = "stands before its run is opened: call start() in a cell above"
    refused(f"claim speed {where}", "speed", SENTENCE, 2, kind="measured", at_least=1)
    refused(f"table t {where}", "t", "Title", {"a": "A"}, [{"a": 1}], kind="traced", call=table)
    assert not shown


def test_two_claims_of_one_name_are_refused(shown):
    claim("speed", SENTENCE, 2, kind="measured", at_least=1)
    refused(
        "claim 'speed' stands twice in this notebook: give one of them another name",
        "speed",
        SENTENCE,
        3,
        kind="measured",
        at_least=1,
    )
    assert len(shown) == 1


def test_a_new_run_may_use_every_name_again(shown):
    claim("speed", SENTENCE, 2, kind="measured", at_least=1)
    start("tiny")
    assert claim("speed", SENTENCE, 2, kind="measured", at_least=1) is None


def test_start_shows_machine_and_software(monkeypatch, machine_of_the_tests):
    outputs = []
    monkeypatch.setattr(claims, "_show", outputs.append)
    start("tiny")
    assert (
        repr(outputs[0]) == "machine Test CPU 2 cores, memory 8.0 GiB, python 3.11.7, torch 2.13.0, transformers 5.23.0"
    )
    assert outputs[0].data["notebook"] == "tiny"


def test_a_table_leaves_its_columns_in_order_and_shows_missing_cells(shown):
    table(
        "by-batch",
        "Peak by batch",
        {"batch": "Batch", "peak": "Peak, GiB"},
        [{"peak": None, "batch": 1}],
        kind="traced",
    )
    data = shown[0].data
    assert list(data["columns"]) == ["batch", "peak"] and data["rows"] == [[1, None]]
    assert repr(shown[0]) == "Peak by batch\nBatch | Peak, GiB\n1 | –"
