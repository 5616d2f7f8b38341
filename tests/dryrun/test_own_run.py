"""A run of one's own beside its prediction, and as a row of published measurements."""

import json

import pytest

import dryrun
from dryrun import Cluster, Job
from fitting import published

JOB = Job("Qwen/Qwen3-4B", method="qlora", checkpointing=True, batch=8, accumulation=2, length=128)


@pytest.mark.parametrize(("slower", "said"), [(0.2, "below the band"), (1.0, "inside the band"), (3.0, "above the band")])
def test_a_measured_update_is_said_to_be_below_inside_or_above_the_band(slower, said):
    predicted = dryrun.predict(JOB, Cluster("t4"))
    compared = dryrun.compare(JOB, Cluster("t4"), seconds=slower * predicted.prediction.seconds, gib=6.5)
    assert compared.ratio == pytest.approx(slower) and compared.inside == (slower == 1)
    assert f"{slower:.2f} of the predicted time, {said}" in str(compared)
    assert f"{predicted.needed.expected / 2**30:.2f}" in str(compared) and "6.50" in str(compared)


@pytest.mark.parametrize(("gpu", "precision", "attention"), [("Tesla T4", "fp16", "efficient"), ("NVIDIA L4", "bf16", "flash")])
def test_its_row_is_one_of_published_measurements_once_it_has_an_address(gpu, precision, attention):
    row = json.loads(json.dumps(dryrun.compare(JOB, Cluster(gpu), seconds=9.1, gib=6.5).row))
    (problem,) = published.row_problems(row)
    assert problem == "url: None: give the address of the source"
    assert not list(published.row_problems(row | {"url": "https://example.org/1"}))
    assert (row["precision"], row["attention"], row["seconds"], row["memory_gib"]) == (precision, attention, 9.1, 6.5)
    assert "torch 2." in row["note"]


def test_a_row_that_no_gpu_could_have_run_is_refused_like_any_published_one():
    row = dryrun.compare(JOB, Cluster("t4"), seconds=0.01).row | {"url": "https://example.org/1"}
    (problem,) = published.row_problems(row)
    assert problem.startswith("value: the products take ")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"seconds": 0}, "seconds=0: give what was measured, above 0"),
        ({"seconds": float("nan")}, "seconds=nan: give what was measured, above 0"),
        ({"seconds": 1, "gib": -1}, "gib=-1: give what was measured, above 0"),
    ],
)
def test_what_nobody_can_have_measured_is_refused_in_one_line(options, said):
    with pytest.raises(ValueError, match=said):
        dryrun.compare(JOB, Cluster("t4"), **options)


def test_a_run_on_several_gpus_is_refused():
    with pytest.raises(ValueError, match="gpus=2: a run is compared on one GPU: take gpus=1"):
        dryrun.compare(JOB, Cluster("t4", gpus=2), seconds=1)


def test_a_token_is_compared_and_offered_as_a_step_is():
    written = dryrun.Generation("qwen3-4b", prompt=512, new=128)
    compared = dryrun.compare(written, Cluster("t4"), seconds=0.04)
    assert compared.prediction == dryrun.predict(written, Cluster("t4")).decode
    assert "seconds of a token" in str(compared)
    row = json.loads(json.dumps(compared.row)) | {"url": "https://example.org/1"}
    assert not list(published.row_problems(row)) and (row["kind"], row["seq"]) == ("decode", 576)
    assert (row["precision"], row["attention"]) == ("fp16", "sdpa")  # what a T4 computes in, and what a static cache takes
    assert dryrun.compare(written, Cluster("l4"), seconds=0.04).row["precision"] == "bf16"
    (problem,) = published.row_problems(row | {"value": 0.001, "seconds": 0.001})
    assert problem.startswith("value: reading the weights takes ")


def test_what_has_no_prediction_or_no_place_in_a_row_is_refused_with_the_reason():
    with pytest.raises(ValueError, match="qwen3-14b on T4 16GB: no speed is predicted: it does not fit"):
        dryrun.compare(dryrun.Generation("qwen3-14b"), Cluster("t4"), seconds=0.05)
    with pytest.raises(ValueError, match="objective='dpo': a row says nothing of a reference"):
        dryrun.compare(Job("qwen3-0.6b", method="lora", objective="dpo", length=512), Cluster("l4"), seconds=1)


def test_a_model_of_a_folder_has_the_folder_s_name_in_the_row(tmp_path):
    folder = tmp_path / "My-Model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 256, "intermediate_size": 512,
        "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 1000,
    }))  # fmt: skip
    for given in (folder, folder / "config.json"):
        row = dryrun.compare(Job(str(given), batch=4, length=256), Cluster("t4"), seconds=1).row
        assert row["model"] == "my-model" and row["id"].startswith("own-t4-my-model-train-1gpu-4x256-")


def test_mixed_precision_is_called_as_published_rows_call_it():
    job = Job("qwen3-0.6b", precision="mixed", checkpointing=True, length=512)
    assert dryrun.compare(job, Cluster("h100-sxm5"), seconds=1).row["precision"] == "amp_bf16"
