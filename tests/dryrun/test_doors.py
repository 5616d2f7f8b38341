"""One question, asked from Python, by the command, by a name and by a config.json: the same answer to the last digit."""

import ast
import inspect
import json
import subprocess
import sys
import tomllib
from dataclasses import MISSING, fields, replace

import pytest
from built import ROOT

import dryrun
from dryrun import Cluster, Generation, Job
from dryrun.answer import answer, planner
from dryrun.answer.answer import largest_batch
from dryrun.cost import timing
from dryrun.door import command, options
from dryrun.models import models

SHORT = ("--length", "256")
SMALL = "qwen3-0.6b"
TRAINED = {  # (options of the command, the same as fields of a Job, of a Cluster), of SMALL unless a model is named
    "full": ((), {}, {"gpu": "l4"}),
    "a batch": (("--batch", 4, "--accumulation", 3), {"batch": 4, "accumulation": 3}, {"gpu": "l40s"}),
    "LoRA, checkpointing": (("--lora", 8, "--checkpointing"), {"method": "lora", "rank": 8, "checkpointing": True}, {"gpu": "t4"}),
    "LoRA in mixed precision": (("--lora", 8, "--dtype", "mixed"), {"method": "lora", "rank": 8, "precision": "mixed"}, {"gpu": "a10g"}),
    "QLoRA, fused loss": (("--qlora", "--fused-loss"), {"method": "qlora", "fused_loss": True}, {"gpu": "rtx-3060-12"}),
    "mixed": (("--dtype", "mixed"), {"precision": "mixed"}, {"gpu": "a100-sxm4-80"}),
    "fp16": (("--dtype", "fp16"), {"precision": "fp16"}, {"gpu": "t4"}),
    "fp32": (("--dtype", "fp32"), {"precision": "fp32"}, {"gpu": "v100-32"}),
    "compiled": (("--compile",), {"compiled": True}, {"gpu": "h100-sxm5"}),
    "eager attention": (("--attention", "eager"), {"attention": "eager"}, {"gpu": "rtx-3090"}),
    "8-bit states": (("--optimizer", "adamw_8bit"), {"optimizer": "adamw_8bit"}, {"gpu": "rtx-4090"}),
    "Adafactor": (("--optimizer", "adafactor"), {"optimizer": "adafactor"}, {"gpu": "rtx-5090"}),
    "Muon": (("--optimizer", "muon"), {"optimizer": "muon"}, {"gpu": "h200-sxm"}),
    "SGD": (("--optimizer", "sgd_momentum"), {"optimizer": "sgd_momentum"}, {"gpu": "b200-hgx"}),
    "DPO": (("--objective", "dpo"), {"objective": "dpo"}, {"gpu": "l4"}),
    "DPO with LoRA": (("--objective", "dpo", "--lora", 16), {"objective": "dpo", "method": "lora"}, {"gpu": "l4"}),
    "GRPO": (("--objective", "grpo", "--new", 128), {"objective": "grpo", "new": 128}, {"gpu": "l4"}),
    "DDP without NVLink": (("--gpus", 4, "--strategy", "ddp"), {}, {"gpu": "rtx-4090", "gpus": 4}),
    "ZeRO-1": (("--gpus", 8, "--strategy", "zero1"), {}, {"gpu": "a100-sxm4-40", "gpus": 8}),
    "ZeRO-2": (("--gpus", 8, "--strategy", "zero2"), {}, {"gpu": "a100-sxm4-40", "gpus": 8}),
    "FSDP2, measured links": (("--gpus", 16, "--link", 100, "--network", 20, "--accumulation", 4), {"accumulation": 4},
                              {"gpu": "a100-sxm4-80", "gpus": 16, "link": 100, "network": 20}),
    "FSDP2, nodes of four": (("--gpus", 8, "--gpus-per-node", 4), {}, {"gpu": "l4", "gpus": 8, "gpus_per_node": 4}),
    "HSDP, a named network": (("--gpus", 16, "--strategy", "hsdp", "--network", "100 GbE", "--adapters", 2), {},
                              {"gpu": "l4", "gpus": 16, "network": "100 GbE", "adapters": 2}),
    "LoRA on GPUs": (("--gpus", 2, "--lora", 16), {"method": "lora"}, {"gpu": "rtx-4090", "gpus": 2}),
    "a mixture": (("--lora", 8), {"model": "mixtral-8x7b", "method": "lora", "rank": 8}, {"gpu": "h200-sxm"}),
    "a mixture on GPUs": (("--gpus", 8), {"model": "qwen3-30b-a3b"}, {"gpu": "h200-sxm", "gpus": 8}),
}  # fmt: skip
GENERATED = {  # the same of a Generation
    "16 bits": ((), {}, {"gpu": "t4"}),
    "4 bits, a batch": (("--weights", "int4-128", "--batch", 4), {"batch": 4, "weights": "int4-128"}, {"gpu": "l4"}),
    "fp8": (("--weights", "fp8"), {"weights": "fp8"}, {"gpu": "l40s"}),
    "of llama.cpp": (("--weights", "q4_k_m"), {"weights": "q4_k_m"}, {"gpu": "rtx-3090"}),
    "of bitsandbytes": (("--weights", "nf4"), {"weights": "nf4"}, {"gpu": "rtx-3090"}),
    "split, over PCIe": (("--gpus", 2), {}, {"gpu": "rtx-4090", "gpus": 2}),
    "split, over NVLink": (("--gpus", 8, "--batch", 32), {"batch": 32}, {"gpu": "h100-sxm5", "gpus": 8}),
    "latent attention": ((), {"model": "deepseek-v2-lite"}, {"gpu": "h100-sxm5"}),
    "windows": ((), {"model": "gemma-3-4b"}, {"gpu": "l4"}),
    "a hybrid": (("--batch", 16), {"model": "qwen3.5-4b", "batch": 16}, {"gpu": "l40s"}),
    "what does not fit": ((), {"model": "llama3-70b"}, {"gpu": "rtx-4090"}),
}  # fmt: skip


IN_CORE = {"full", "LoRA, checkpointing", "QLoRA, fused loss", "GRPO", "FSDP2, measured links", "a mixture on GPUs", "4 bits, a batch", "of llama.cpp"}


def rows(table):
    """Each kind of question in the core, all each night."""
    return [pytest.param(asked, marks=[] if asked in IN_CORE else pytest.mark.nightly) for asked in table]


pytestmark = pytest.mark.usefixtures("own_traces")


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """The config.json that transformers writes of a model."""

    def of(name):
        folder = tmp_path_factory.mktemp(name)
        model_class, config = models.configuration(name)
        (folder / "config.json").write_text(json.dumps(config.to_dict() | {"architectures": [model_class.__name__]}))
        return folder / "config.json"

    return of


def said(capsys, *words):
    assert command.main([*map(str, words), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def but_last_digits(answer):
    """A profile adds kernels up from two shallow models, and the trace of a file may have run every layer."""
    return json.loads(json.dumps(answer), parse_float=lambda number: f"{float(number):.9g}")


@pytest.mark.parametrize("asked", rows(TRAINED))
def test_a_training_step_is_answered_alike(capsys, file, asked):
    options, job, cluster = TRAINED[asked]
    job = Job(**{"model": SMALL, "length": 256} | job)
    words = ("--gpu", cluster["gpu"], *SHORT, *options)
    named, by_file = said(capsys, "train", job.model.name, *words), said(capsys, "train", file(job.model.name), *words)
    strategy = options[options.index("--strategy") + 1] if "--strategy" in options else "fsdp2"
    answer = dryrun.predict(job, Cluster(**cluster), strategy)
    found = answer.prediction
    assert (named["seconds"], named["low"], named["high"]) == (found.seconds, found.low, found.high)
    assert (named["expected_gib"], named["high_gib"]) == (answer.needed.expected / 2**30, answer.needed.high / 2**30)
    assert (named["verdict"], named["fit"], named["fits"]) == (str(answer.verdict), answer.verdict.fit, answer.fits)
    del named["model"], by_file["model"], named["left_out"], by_file["left_out"]  # a file of the text part alone leaves nothing out
    assert but_last_digits(named) == but_last_digits(by_file)


@pytest.mark.parametrize("name", ["gpt2", "mixtral-8x7b", "smollm3-3b"])
def test_the_config_file_of_a_model_with_a_profile_of_its_own_is_that_model(file, name):
    path = file(name)
    values = json.loads(path.read_text())
    assert dryrun.model(path).text == name
    path.write_text(json.dumps(values | {"_name_or_path": "mine", "eos_token_id": 7, "not_a_field": 1}))
    assert dryrun.model(path).text == name
    for other in ({"vocab_size": 32768}, {"quantization_config": {"quant_method": "awq"}}):
        path.write_text(json.dumps(values | other))
        assert dryrun.model(path).text == path.read_text()


@pytest.mark.parametrize("asked", rows(GENERATED))
def test_a_generation_is_answered_alike(capsys, file, asked):
    options, generation, cluster = GENERATED[asked]
    generation = Generation(**{"model": SMALL, "prompt": 100, "new": 28} | generation)
    words = ("--gpu", cluster["gpu"], "--prompt", 100, "--new", 28, *options)
    named, by_file = said(capsys, "infer", generation.model.name, *words), said(capsys, "infer", file(generation.model.name), *words)
    served = dryrun.predict(generation, Cluster(**cluster))
    assert (named["speed"] is not None) == served.predicted
    if served.predicted:
        assert named["speed"]["tokens_per_second"] == generation.batch / served.decode.seconds
    assert (named["users"], named["longest"], named["why"]) == (served.users, served.longest, served.verdict.why)
    del named["model"], by_file["model"], named["left_out"], by_file["left_out"]  # a file of the text part alone leaves nothing out
    assert named == by_file


@pytest.mark.parametrize(("gpu", "precision", "strategy"), [("a100-sxm4-80", "bf16", "FSDP2"), ("rtx-4090", "mixed", "FSDP2")])
def test_a_plan_says_of_a_strategy_what_predict_says_of_it(capsys, gpu, precision, strategy):
    job, cluster = Job("qwen3-0.6b", length=256, checkpointing=True, precision=precision), Cluster(gpu, gpus=8)
    (option,) = dryrun.plan(job, cluster, only=strategy)
    answer = dryrun.predict(job, cluster, strategy.lower())
    assert (option.seconds, option.needed.expected, option.needed.high) == (answer.prediction.seconds, answer.needed.expected, answer.needed.high)
    (line,) = said(capsys, "plan", "qwen3-0.6b", "--gpu", gpu, "--gpus", 8, "--checkpointing", *SHORT, "--dtype", precision, "--only", strategy)
    assert (line["seconds"], line["why"], line["margin_gib"]) == (option.seconds, option.verdict.why, option.verdict.margin_gib)


@pytest.mark.parametrize(("job", "gpu"), [(Job("qwen3-0.6b", length=256, checkpointing=True), "t4"), (Job("qwen3-0.6b", length=256), "rtx-4060")])
def test_the_largest_batch_fits_and_one_sequence_more_does_not(job, gpu):
    batch = largest_batch(job, Cluster(gpu))
    fits = [dryrun.predict(replace(job, batch=each), Cluster(gpu)).fits for each in (batch or 1, batch + 1)]
    assert fits == [batch > 0, False]


def test_a_plan_of_lora_has_no_full_training():
    job = Job("qwen3-0.6b", length=256, method="lora")
    assert {option.workload.rank for option in dryrun.plan(job, Cluster("l4", gpus=2))} == {16}


def test_more_tokens_in_a_step_take_more_memory_and_more_seconds():
    job = Job("qwen3-0.6b", length=256)
    less, more = (dryrun.predict(each, Cluster("l4")) for each in (job, replace(job, batch=8)))
    assert more.needed.expected > less.needed.expected and more.prediction.seconds > less.prediction.seconds


def test_more_users_fit_where_weights_are_narrower_and_none_where_they_do_not_fit():
    wide, narrow = (dryrun.predict(Generation("llama3-8b", weights=weights), Cluster("rtx-4090")) for weights in ("bf16", "int4-128"))
    assert 0 < wide.users < narrow.users and wide.longest < narrow.longest
    large = dryrun.predict(Generation("llama3-70b"), Cluster("rtx-4090"))
    assert (large.verdict.fit, large.users, large.longest) == ("no", 0, 0)
    assert [option for option, _ in large.alternatives()] == ["--gpus 2 --weights int4-128", "--gpus 4 --weights fp8", "--gpus 8"]
    larger = dryrun.predict(Generation("llama3-70b"), Cluster("h100-sxm"))
    assert [option for option, _ in larger.alternatives()] == ["--weights fp8", "--weights int4-128", "--gpus 2"]
    old = dryrun.predict(Generation("qwen3-32b"), Cluster("v100-sxm2-16"))
    assert old.alternatives() and not any("fp8" in option for option, _ in old.alternatives())  # engines do not run it there


def test_where_generated_text_does_not_fit_its_json_says_what_would():
    found = json.loads(command.VERBS["infer"](options.parser("").parse_args(["infer", "llama3-70b", "--gpu", "rtx-3090", "--gpus", "2", "--json"])))
    assert found["speed"] is None and not found["unpredicted"]
    narrow, wider, more = found["changes"]
    assert narrow["option"] == "--weights int4-128" and narrow["tokens_per_second"] > 0 and narrow["expected_gib"] < found["gpu_gib"]
    assert (wider["option"], more["option"]) == ("--gpus 4 --weights fp8", "--gpus 8")


@pytest.mark.parametrize(
    ("called", "name"),
    [("Llama 3.3 70B", "llama3-70b"), ("Qwen3 8B", "qwen3-8b"), ("qwen3:8b", "qwen3-8b"), ("Mistral_7B", "mistral-7b"), ("Qwen/Qwen2.5-14B-Instruct", "qwen2.5-14b")],
)
def test_a_model_is_known_by_its_name_as_people_write_it(called, name):
    assert Job(called).workload().model == name


def test_a_name_that_is_not_known_is_answered_with_other_models_each_once():
    with pytest.raises(ValueError, match="did you mean") as raised:
        Job("llama-3.3-71b")
    close = str(raised.value).partition("did you mean ")[2].partition("?")[0].split(", ")
    assert len(close) == len({Job(one).workload().model for one in close})


@pytest.mark.parametrize(("said", "tokens"), [("20B", 20e9), ("1.5 million", 1.5e6), ("300k", 3e5), ("2 thousand", 2000), ("2T", 2e12), ("1e9", 1e9)])
def test_tokens_can_be_given_in_thousands_to_trillions(said, tokens):
    assert options.parser("").parse_args(["train", "gpt2", "--gpu", "l4", "--tokens", said]).tokens == pytest.approx(tokens)


def test_adapters_on_4_bits_compute_what_adapters_on_16_compute():
    """MFU counts what the model computes: not what checkpointing computes again."""
    mfus = []
    for method in ("lora", "qlora"):
        for checkpointing in (False, True):
            found = dryrun.predict(Job("llama3-8b", length=1024, method=method, checkpointing=checkpointing), Cluster("h100-sxm5")).prediction
            mfus.append(found.mfu * found.seconds)
    assert mfus == pytest.approx([mfus[0]] * 4, rel=0.02)


@pytest.mark.parametrize(
    "name, job, cluster, options, offered",
    [
        ("qwen3-4b", {"length": 256, "precision": "mixed", "checkpointing": True}, {"gpu": "l4"}, ["--length", 256, "--dtype", "mixed", "--checkpointing"], ["--lora", "--qlora"]),
        ("llama3.2-1b", {"precision": "mixed", "checkpointing": True}, {"gpu": "rtx-4090", "gpus": 4}, ["--gpus", 4, "--dtype", "mixed", "--checkpointing"], ["--fused-loss --batch 8"]),
        pytest.param(*("qwen3-8b", {"length": 256, "precision": "mixed", "checkpointing": True}, {"gpu": "l4", "gpus": 4}, ["--length", 256, "--gpus", 4, "--dtype", "mixed", "--checkpointing"], ["--lora", "--qlora 16 --checkpointing --dtype bf16 --strategy ddp", "--strategy ddp --fused-loss", "--gpus 1"]), marks=pytest.mark.nightly),
        ("qwen3-0.6b", {"length": 256}, {"gpu": "l4", "gpus": 4, "gpus_per_node": 2}, ["--length", 256, "--gpus", 4, "--gpus-per-node", 2], ["--strategy hsdp", "--strategy ddp", "--gpus 1"]),
        pytest.param(*("qwen3-0.6b", {"length": 256, "precision": "mixed"}, {"gpu": "l4", "gpus": 4, "gpus_per_node": 2, "strategy": "hsdp"}, ["--length", 256, "--gpus", 4, "--gpus-per-node", 2, "--strategy", "hsdp", "--dtype", "mixed"], ["--strategy ddp", "--gpus 1 --strategy fsdp2"]), marks=pytest.mark.nightly),
        ("qwen3-0.6b", {"length": 256, "precision": "mixed"}, {"gpu": "l4", "gpus": 4, "strategy": "ddp"}, ["--length", 256, "--gpus", 4, "--strategy", "ddp", "--dtype", "mixed"], ["--strategy fsdp2", "--gpus 1 --fused-loss"]),
        ("llama3-8b", {"objective": "dpo", "checkpointing": True}, {"gpu": "h100-sxm5"}, ["--objective", "dpo", "--checkpointing"], ["--optimizer adamw_8bit"]),
        pytest.param(*("llama3-8b", {"objective": "dpo", "precision": "mixed", "checkpointing": True}, {"gpu": "h100-sxm5"}, ["--objective", "dpo", "--dtype", "mixed", "--checkpointing"], ["--dtype bf16 --optimizer adamw_8bit"]), marks=pytest.mark.nightly),
        pytest.param(*("mistral-7b", {"precision": "fp32", "checkpointing": True}, {"gpu": "a100-sxm4-80", "gpus": 8}, ["--dtype", "fp32", "--gpus", "8", "--checkpointing"], ["--dtype mixed"]), marks=pytest.mark.nightly),  # fp32 has no profile
        pytest.param(*("mistral-7b", {"precision": "fp32", "checkpointing": True}, {"gpu": "a100-sxm4-40", "gpus": 8, "strategy": "ddp"}, ["--dtype", "fp32", "--gpus", "8", "--strategy", "ddp", "--checkpointing"], ["--dtype mixed", "--optimizer adamw_8bit"]), marks=pytest.mark.nightly),  # fp32 has no profile
    ],
)  # fmt: skip
def test_a_change_is_what_the_command_answers_with_its_option(capsys, name, job, cluster, options, offered):
    """From mixed precision: adapters leave the weights in 16 bits, and the option says so."""
    words = ["train", name, "--gpu", cluster["gpu"], *options]
    cluster = dict(cluster)
    strategy = cluster.pop("strategy", "fsdp2")
    now = answer.of_job(Job(name, **job), Cluster(**cluster), strategy)
    found = [(option, answer.answer(workload, setting)) for _, option, workload, setting in answer._candidates(now)]
    assert all(any(part in option for option, _ in found) for part in offered)
    for option, then in found:
        changed = [word for word in words if word != option.removeprefix("without ")] if option.startswith("without ") else [*words, *option.split()]
        assert said(capsys, *changed)["expected_gib"] == pytest.approx(then.needed.expected / 2**30), option
        assert said(capsys, *changed)["tokens_per_second"] == pytest.approx(then.prediction.tokens_per_second), option


def test_over_a_slow_network_another_strategy_and_one_gpu_alone_are_recommended():
    """Two RTX 4090 in two machines with 10 GbE: FSDP2 sends every weight three times for each micro-batch, DDP the adapters' gradients once."""
    cluster = Cluster("rtx-4090", gpus=2, gpus_per_node=1, network="10 GbE")
    now = answer.of_job(Job("qwen3-8b", method="lora", checkpointing=True), cluster)
    found = {option: then for _, option, then in answer.changes(now)}
    ddp, alone = found["--strategy ddp --fused-loss"], found["--gpus 1 --fused-loss"]
    assert now.fits and ddp.fits and alone.fits
    assert ddp.prediction.tokens_per_second > 1.5 * alone.prediction.tokens_per_second > 10 * now.prediction.tokens_per_second


def test_where_all_weights_fit_no_adapters_are_recommended():
    """They are another training, and no faster way to the same one."""
    small, large = (answer.of_job(Job(name, precision="mixed", checkpointing=True), Cluster("l4", gpus=4)) for name in ("qwen3-0.6b", "qwen3-8b"))
    assert small.fits and not any("lora" in option for _, option, _ in answer.changes(small))
    assert not large.fits and any("lora" in option for _, option, _ in answer.changes(large))


def test_no_compiler_is_recommended_for_a_gpu_that_it_is_too_new_for():
    offered = {gpu: [option for _, option, *_ in answer._candidates(dryrun.predict(Job("gpt2", length=512), Cluster(gpu)))] for gpu in ("p100-pcie", "t4")}
    assert "--compile" in offered["t4"] and "--compile" not in offered["p100-pcie"]


def test_the_fast_end_of_a_band_is_no_faster_than_the_gpu_computes():
    found = dryrun.predict(Job("llama3.2-1b", length=4096, batch=4, compiled=True, fused_loss=True, optimizer="adamw_8bit"), Cluster("rtx-5090"))
    share = timing.counted_flops(found.traced) / timing.model_flops(found.traced, found.workload)
    assert 0.85 < share < 0.95, "MFU counts causal attention whole, and half of it is computed"
    assert found.prediction.mfu * share * found.prediction.seconds / found.prediction.low == pytest.approx(1.0), "the band alone would pass the peak"


def test_a_batch_that_is_several_times_as_large_is_named_where_each_doubling_is_faster():
    now = dryrun.predict(Job("llama3.2-1b", length=2048, checkpointing=True, fused_loss=True), Cluster("rtx-4090", gpus=4))
    assert now.prediction.bound == "communication"
    change, option, then = next(each for each in answer.changes(now) if each[1].startswith("--batch"))
    times = int(change.split()[0])
    assert times >= 4 and option == f"--batch {times}" and then.fits
    assert then.prediction.tokens_per_second > 3 * now.prediction.tokens_per_second


def test_a_step_whose_sending_takes_longer_than_its_computing_waits_for_links_however_long_it_computes():
    of = [dryrun.predict(Job("llama3.2-1b", batch=batch, length=2048, checkpointing=True, fused_loss=True), Cluster("rtx-4090", gpus=4)).prediction for batch in (1, 4)]
    assert of[0].seconds == pytest.approx(of[1].seconds, rel=0.02) and of[0].bound == of[1].bound == "communication"


def test_a_hybrid_keeps_a_state_beside_its_cache():
    served = dryrun.predict(Generation("qwen3.5-9b"), Cluster("l40s"))
    # 24 layers of linear attention: 32 heads of 128 x 128 in fp32, and the last 4 inputs of 8,192 channels in 16 bits
    assert served.traced.state == 24 * (32 * 128 * 128 * 4 + 8192 * 4 * 2)
    assert served.cache(0) == served.traced.state


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Job("llama3-8"), "did you mean llama3-8b"),
        (lambda: Job("gpt2", batch=0), "batch=0: give a whole number from 1"),
        (lambda: Job("gpt2", precision="bf32"), "did you mean 'fp32'? Choose one of: bf16"),
        (lambda: Job("gpt2", method="dora"), "method='dora' is not known"),
        (lambda: Cluster("rtx-409"), "did you mean rtx-4090"),
        (lambda: Cluster("l4", gpus=12), "take 16, or say how many a node has"),
        (lambda: Cluster("l4", gpus=2, link=-1.0), "give GB/s from 0.01"),
        (lambda: Cluster("l4", gpus=2, network="100 GbF"), "did you mean '100 GbE'"),
        (lambda: Cluster("l4", gpus=2, adapters=2), "of which network"),
        (lambda: Generation("gpt2", weights="int4"), "int4-128"),
        (lambda: dryrun.predict(Job("gpt2", length=4096), Cluster("l4")), "gpt2 has 1024 positions"),
        (lambda: dryrun.predict(Job("gpt2", length=64), Cluster("l4", gpus=2), strategy="hsdp"), "there is one node"),
        (lambda: dryrun.predict(Job("gpt2", attention="flash", length=64), Cluster("t4")), "FlashAttention has no code for T4"),
        (lambda: dryrun.predict(Job("gpt2", attention="flash", length=64, precision="fp32"), Cluster("l4")), "computes in 16 bits"),
        (lambda: dryrun.predict(Job("gpt-oss-20b", attention="flash", length=64), Cluster("h100")), "calls no fused attention kernel"),
        pytest.param(lambda: planner.of_job(Job("gpt-oss-20b", attention="flash", length=64), Cluster("h100", gpus=2)), "calls no fused attention kernel", marks=pytest.mark.nightly),
        (lambda: dryrun.predict(Generation("bert-base", prompt=100), Cluster("l4")), "generates no text"),
        (lambda: dryrun.predict(Generation("llama3-8b"), Cluster("l4", gpus=16)), "take 8 or fewer"),
        (lambda: dryrun.trace(Job("gpt2", compiled=True)), "change kernels of a GPU"),
        (lambda: dryrun.trace(Job("gpt2", method="lora")), "adapters are traced for a GPU"),
    ],
)
def test_a_question_that_makes_no_sense_is_one_line_with_the_nearest_that_does(make, message):
    with pytest.raises(ValueError) as raised:
        make()
    assert message in str(raised.value) and "\n" not in str(raised.value)


def test_names_and_profiles_need_no_torch_and_the_rest_says_what_to_install():
    program = """
import sys
sys.modules["torch"] = sys.modules["transformers"] = None  # as if they were not installed
import importlib.util
importlib.util.find_spec = lambda name, found=importlib.util.find_spec: None if name == "torch" else found(name)
import dryrun.models.config_file
dryrun.models.config_file.find_spec = importlib.util.find_spec
from dryrun.door.command import main
assert main(["gpus", "h100"]) == main(["models", "qwen"]) == 0
print(dryrun.Job("qwen3-8b").model.name, dryrun.gpu("h100").key)
assert main(["train", "qwen3-8b", "--gpu", "l4", "--qlora"]) == 0  # it has a profile
assert "numpy" not in sys.modules
sys.exit(main(["train", "qwen3-8b", "--gpu", "l4", "--attention", "eager"]))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 2 and "qwen3-8b h100-sxm5" in done.stdout
    assert done.stderr.strip() == "error: torch is not installed, and runs the model's code: pip install 'torch>=2.11' 'transformers>=5.23,<6'"


def test_without_the_repository_validate_prints_the_errors_that_come_with_the_package(monkeypatch, capsys):
    monkeypatch.setattr(command, "find_spec", lambda name: None)
    assert command.main(["validate"]) == 0
    assert "training, one GPU" in capsys.readouterr().out
    assert command.main(["validate", "--rows", "mine.json"]) == 2
    assert "run it in a clone of it" in capsys.readouterr().err


@pytest.mark.parametrize("kind", [Job, Generation, Cluster])
def test_what_type_checkers_read_are_the_fields(kind):
    """A field takes a name too: the signature that says so stands beside the fields, for type checkers alone."""
    (body,) = [node.body for node in ast.parse(inspect.getsource(kind)).body]
    (typed,) = [node.body[0] for node in body if isinstance(node, ast.If)]
    names = [argument.arg for argument in typed.args.args[1:]]
    defaults = [ast.literal_eval(value) for value in typed.args.defaults]
    of_fields = [(one.name, one.default) for one in fields(kind)]
    assert names == [name for name, _ in of_fields] and defaults == [value for _, value in of_fields if value is not MISSING]


def test_a_generation_ends_with_the_call_of_a_server_that_holds_as_many():
    served = [dryrun.predict(Generation(SMALL, prompt=100, new=28, weights=weights), Cluster("rtx-4090", gpus=gpus))
              for weights, gpus in (("fp8", 2), ("q4_k_m", 1))]  # fmt: skip
    of_vllm, of_llama_cpp = (one.server() for one in served)
    assert of_vllm == f"vllm serve MODEL --tensor-parallel-size 2 --max-model-len 128 --max-num-seqs {min(served[0].users, 1024)}"
    assert of_llama_cpp == "llama-server --model MODEL.gguf --ctx-size 8192 --parallel 64"


def test_python_and_the_command_list_the_same_names(capsys):
    assert list(dryrun.known_models("qwen3-4")) == list(said(capsys, "models", "qwen3-4"))
    assert [row.key for row in dryrun.known_gpus("a100")] == list(said(capsys, "gpus", "a100"))


def test_the_command_and_the_wheel_have_the_version_of_the_package(capsys):
    with pytest.raises(SystemExit, match="0"):
        command.main(["--version"])
    assert capsys.readouterr().out == f"dryrun {dryrun.__version__}\n"
    whole = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert dryrun.__version__ == whole, "dryrun/__init__.py and pyproject.toml are released together"
