"""Rows of models that transformers would read as other models, without a word."""

import pytest

from evidence.site import model_rows

SIZES = {"hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 100}


def said(fields):
    rows = {name: {"class": "LlamaForCausalLM", "fields": SIZES} for name in "abc"} | {"mine": {"class": "LlamaForCausalLM", "fields": fields}}
    return [str(problem) for problem in model_rows.check(rows)]


def test_the_rows_of_today_are_sound():
    assert list(model_rows.check()) == []


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"hidden_size": 64, "num_hidden_layer": 2, "vocab_size": 100}, "mine: num_hidden_layer: no other row has this field (did you mean num_hidden_layers?)"),
        ({"hidden_size": 64, "vocab_size": 100}, "mine: num_hidden_layers is missing, and every other LlamaForCausalLM has it"),
    ],
)
def test_a_field_that_is_misspelt_or_missing_is_named_with_its_row(fields, expected):
    (problem,) = said(fields)
    assert expected in problem


def test_a_field_that_no_other_row_has_may_be_one_of_a_new_kind():
    assert said(SIZES | {"window_of_experts": 4}) == []
