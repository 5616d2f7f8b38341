"""The table of docs/index.md and the recipes: what notebooks/model_on_gpu.py says, and that it follows from `dryrun`."""

import pytest
from programs import ROOT

from dryrun.answer import answer
from dryrun.hardware import accelerator
from dryrun.rows import Setting
from dryrun.workload import Workload
from evidence import records

DATA = records.load(ROOT / "results" / "model_on_gpu" / "exact.json").data
CLAIMS = {name: claim["on"] for name, claim in DATA["claims"].items() if "on" in claim}
MODELS = {name.removeprefix("train-"): on for name, on in CLAIMS.items() if name.startswith("train-")}
METHODS = ("full", "LoRA", "QLoRA", "does not fit")


def method(said):
    return said["words"].split(":")[0]


def test_a_larger_model_never_gets_a_wider_method():
    for gpu in next(iter(MODELS.values())):
        ranks = [METHODS.index(method(on[gpu])) for on in MODELS.values()]
        assert ranks == sorted(ranks), gpu


def test_more_memory_never_means_a_narrower_method():
    for model, on in MODELS.items():
        by_memory = sorted(on, key=lambda gpu: accelerator(gpu).get("memory"))
        ranks = [METHODS.index(method(on[gpu])) for gpu in by_memory]
        assert ranks == sorted(ranks, reverse=True), model


def test_an_8b_model_is_fine_tuned_by_an_adapter_on_24_gb_and_70b_on_no_24_gb():
    assert method(MODELS["llama3-8b"]["rtx-4090"]) in ("LoRA", "QLoRA")
    assert method(MODELS["llama3-70b"]["rtx-4090"]) == "does not fit"


def test_between_two_gpus_that_run_the_same_weights_the_one_with_more_bandwidth_answers_sooner():
    on = CLAIMS["run-llama3-8b"]
    card = {gpu: accelerator(gpu).get("bandwidth") for gpu in on}
    same = [gpu for gpu, said in on.items() if said["words"] == "bf16"]
    pairs = [(slow, fast) for slow in same for fast in same if card[fast] > 1.2 * card[slow]]
    assert len(pairs) >= 10
    for slow, fast in pairs:
        assert on[slow]["value"] < on[fast]["value"], (slow, fast)


@pytest.mark.parametrize("gpu", ["rtx-4090", "a100-sxm4-80"])
def test_the_command_gives_what_the_recipe_shows(gpu):
    workload = Workload("qwen3-8b", 1, 2048, checkpointing=1, rank=16, targets="all linear", four_bit=True)
    found = answer(workload, Setting(gpu=gpu, precision="bf16", accumulation=16))
    assert found.needed.expected / 2**30 == pytest.approx(CLAIMS["recipe-memory"][gpu]["value"])
    assert found.prediction.tokens_per_second == pytest.approx(CLAIMS["recipe-tokens"][gpu]["value"])


def rows(name):
    table = DATA["tables"][name]
    return [dict(zip(table["columns"], row, strict=True)) for row in table["rows"]]


def needed(method, loss):
    return {row["tokens"]: row for row in rows("recipe-lengths") if (row["method"], row["loss"]) == (method, loss)}


def test_a_loss_in_chunks_makes_room_for_twice_the_length_on_24_gb():
    whole, chunks = needed("QLoRA", "whole"), needed("QLoRA", "in chunks")
    assert all(chunks[tokens]["needed"] < whole[tokens]["needed"] for tokens in chunks)
    assert whole["4,096"]["on24"] == "yes" and whole["8,192"]["on24"] == "maybe"
    assert chunks["16,384"]["on24"] == "yes"


def test_lora_in_bf16_may_fit_24_gb_with_short_conversations():
    assert needed("LoRA, bf16", "in chunks")["2,048"]["on24"] == "maybe"


def test_short_micro_batches_make_the_gpus_wait_and_from_4096_tokens_on_more_bring_nothing():
    micro = {row["tokens"]: row for row in rows("recipe-14b-micro")}
    for gpu in ("a100-rate", "h100-rate"):
        assert micro["1 x 512"][gpu] < 0.85 * micro["1 x 1,024"][gpu]
        assert micro["4 x 1,024"][gpu] > micro["1 x 1,024"][gpu]
        assert micro["1 x 8,192"][gpu] < micro["1 x 4,096"][gpu]
