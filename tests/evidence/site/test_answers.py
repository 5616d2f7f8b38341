"""Answers as JSON by address: they are the command's, as the schema says, and the index leads to each."""

import json
import shlex

import jsonschema
import pytest

from dryrun.door import web
from evidence.site import addresses, answers, planner

MODELS = ("qwen3-8b", "bert-large-cls")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder, said = tmp_path_factory.mktemp("site"), []
    answers.write(folder, MODELS, said.append)
    assert said == ["answers: 1 of 2 models", "answers: 2 of 2 models"]
    return folder


@pytest.fixture(scope="module")
def index(site):
    return json.loads((site / "answers" / "index.json").read_text())


def test_the_index_is_as_the_schema_says(site, index):
    schema = read(site, index["schema"])
    jsonschema.validate(index, schema["$defs"]["index"])
    assert all(isinstance(question.format(model="m", length=1, prompt=1), str) for question in index["questions"])


def test_a_model_of_which_a_part_is_not_counted_says_so():
    (vision,) = (one for one in planner.choices()["models"] if one["name"] == "qwen2.5-vl-7b")
    assert answers.of(answers._model(vision), "l4", "")["left_out"] == "vision"


def read(site, address):
    return json.loads((site / address.removeprefix(addresses.of_site())).read_text())


def test_the_index_leads_to_a_file_for_each_model_and_gpu_and_each_is_as_the_schema_says(site, index):
    schema = read(site, index["schema"])
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    pairs = [(model["name"], gpu["name"]) for model in index["models"] for gpu in index["gpus"]]
    assert len(pairs) == len(list(site.glob("answers/*/*.json")))
    for model, gpu in pairs:
        found = read(site, index["address"].format(model=model, gpu=gpu))
        validator.validate(found)
        assert (found["model"], found["gpu"]) == (model, gpu)


@pytest.mark.parametrize("gpu", ["rtx-4090", "m4-max", *(pytest.param(gpu, marks=pytest.mark.nightly) for gpu in ("h100-sxm5", "t4"))])
def test_each_answer_is_what_its_command_prints(site, index, gpu):
    for one in read(site, index["address"].format(model="qwen3-8b", gpu=gpu))["answers"]:
        found = web.ask(shlex.split(one["command"])[1:])
        assert one["verdict"] == found["verdict"]
        assert [one["expected_gib"], one["high_gib"]] == pytest.approx([found["expected_gib"], found["high_gib"]], rel=1e-3)
        speed = found.get("speed", found) or {"tokens_per_second": None}
        if one["fit"] == "no":
            speed = {"tokens_per_second": None}  # nobody can have it
        if speed["tokens_per_second"] is None:
            assert one["tokens_per_second"] is None
        else:
            assert one["tokens_per_second"] == pytest.approx(speed["tokens_per_second"], rel=1e-3)
            assert one["low"] < one["tokens_per_second"] < one["high"]


def test_what_no_gpu_answers_is_in_the_index_with_its_reason_and_in_no_file(site, index):
    (bert,) = (model for model in index["models"] if model["name"] == "bert-large-cls")
    assert {error for error in bert["refused"].values()} == {
        "model='bert-large-cls': BertForSequenceClassification generates no text, and that is what is asked here"
    }
    found = read(site, index["address"].format(model="bert-large-cls", gpu="l4"))["answers"]
    asked = {" ".join(one["command"].split()[1:-2]) for one in found if "--gpus" not in one["command"]}
    wanted = {question.format(**bert, model=bert["name"]) for question in index["questions"]}
    assert not asked & bert["refused"].keys() and asked | bert["refused"].keys() >= wanted


def test_a_gpu_without_bf16_says_so(site, index):
    notes = {gpu: read(site, index["address"].format(model="qwen3-8b", gpu=gpu)).get("note") for gpu in ("t4", "l4")}
    assert notes == {"t4": answers.OLD, "l4": None}


def test_a_field_that_the_schema_does_not_know_is_found(site, index):
    found = read(site, index["address"].format(model="qwen3-8b", gpu="l4"))
    found["answers"][0]["tokens_per_hour"] = 1.0
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(found, read(site, index["schema"]))
