"""`dryrun train ... --gpu ...`: it says whether a step fits, how fast it is and what would help, or why not."""

import json
import logging

import pytest

import dryrun
from dryrun import Cluster, Job
from dryrun.answer import answer
from dryrun.cost import timing
from dryrun.door import command

QUICK = ["--sequence", "512", "--batch", "1"]


pytestmark = pytest.mark.usefixtures("own_traces")


def printed(capsys, *arguments):
    assert command.main([*arguments]) == 0
    return capsys.readouterr().out


def as_json(capsys, *arguments):
    return json.loads(printed(capsys, *arguments, "--json"))


def refused(capsys, *arguments):
    """The one line that the command says before it ends with status 2."""
    logging.disable(logging.WARNING)  # as the console script does: libraries that are imported on the way warn
    try:
        assert command.main(list(arguments)) == 2
    finally:
        logging.disable(logging.NOTSET)
    (line,) = capsys.readouterr().err.strip().splitlines()
    return line


def test_an_8b_model_needs_qlora_on_24_gb(capsys):
    full = as_json(capsys, "train", "meta-llama-8b", "--gpu", "rtx-4090", *QUICK)
    small = as_json(capsys, "train", "meta-llama-8b", "--gpu", "rtx-4090", *QUICK, "--qlora", "--checkpointing")
    assert (full["fits"], small["fits"]) == (False, True)
    assert full["memory_gib"]["parameters"] == pytest.approx(8.03e9 * 2 / 2**30, rel=0.01)
    assert full["changes"][0]["fits"] and any("--qlora" in change["option"] for change in full["changes"])
    assert small["trained"] < 0.01 * small["parameters"]


def test_the_report_and_python_agree(capsys):
    text = printed(capsys, "train", "gpt2", "--gpu", "t4", *QUICK, "--dtype", "mixed")
    step = timing.training_step("gpt2", 1, 512, weights="float32", autocast="bfloat16")
    assert f"{step.on('t4').tokens_per_second:,.0f}" in text
    assert "T4 16GB" in text and "it fits" in text


def test_a_launch_bound_step_says_so(capsys):
    text = printed(capsys, "train", "gpt2", "--gpu", "h100-sxm5", *QUICK)
    assert "Launch-bound: the GPU waits for the CPU" in text


def test_changes_that_help_come_first_and_gain(capsys):
    found = as_json(capsys, "train", "gpt2", "--gpu", "a100-sxm4-80", "--batch", "16", "--sequence", "1024")
    speeds = [change["tokens_per_second"] for change in found["changes"]]
    assert 0 < len(speeds) <= answer.SHOWN
    assert speeds == sorted(speeds, reverse=True)
    assert min(speeds) > answer.WORTH * found["tokens_per_second"]


def test_a_config_of_ones_own_is_predicted(capsys, tmp_path):
    values = {"model_type": "llama", "hidden_size": 256, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 512,
              "vocab_size": 1000}  # fmt: skip
    path = tmp_path / "config.json"
    path.write_text(json.dumps(values))
    assert as_json(capsys, "train", str(path), "--gpu", "l4", *QUICK)["model"] == "llama"


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["train", "llama3-8", "--gpu", "l4"], "did you mean llama3-8b"),
        (["train", "gpt2", "--gpu", "rtx-409"], "did you mean rtx-4090"),
        (["train", "gpt2", "--gpu", "tpu-v4"], "no time is predicted"),
        (["train", "gpt2", "--gpu", "2x3090"], "the number stands apart: gpu='3090', gpus=2 (--gpus 2)"),
        (["infer", "gpt2", "--gpu", "MacBook Pro"], "a Mac is asked for by its chip: m1-max, m1-ultra"),
        (["train", "gpt2", "--gpu", "p100-pcie", "--length", "512", "--compile"], "Triton, which has no code for P100 PCIe"),
        (["train", "llama3.2-1b", "--gpu", "l4", "--lora", "100000"], "rank=100000: the model is 2,048 wide"),
        (["infer", "gpt2", "--gpu", "m4-max", "--memory", "10000"], "memory_gb=10000.0: give GB above 0, at most the 512"),
        (["train", "", "--gpu", "l4"], "no model: give a name"),
        (["train", "meta-llama/Llama-3.1-8B-Instruct-x", "--gpu", "l4"], "did you mean llama-3.1-8b"),
        (["plan", "llama3-8b", "--gpu", "h100-sxm", "--only", "ZeRO-4"], "did you mean 'ZeRO-3 + offload'"),
        (["infer", "gpt2", "--gpu", "l4", "--gpus", "8", "--prompt", "64"], "the 12 attention heads do not divide among them: take 6"),
        (["infer", "gpt2", "--gpu", "l4", "--prompt", "1000"], "gpt2 has 1024 positions"),
        (["train", "nowhere/config.json", "--gpu", "l4"], "there is no such file"),
        (["train", "nowhere/config.json"], "there is no such file"),
        (["train", "gpt2"], "gpt2 has 1024 positions: take 1024 or fewer"),
        (["train", "gpt2", "--gpu", "l4", "--price", "1"], "--price: of how much training? Add --tokens"),
        (["train", "gpt2", "--gpu", "l4", "--epochs", "2"], "--epochs: of how much training?"),
        (["train", "gpt2", "--gpu", "l4", "--tokens", "1e9", "--rows", "10"], "both say how much is trained: give one"),
    ],
)
def test_an_unknown_name_is_one_line_with_the_nearest(capsys, arguments, message):
    assert message in refused(capsys, *arguments)


LLAMA = '{"model_type": "llama", %s}'


@pytest.mark.parametrize(
    "text, message",
    [
        ("[" * 100_000, "too deep"),
        (LLAMA % ('"a": ' + '{"b": ' * 50 + "1" + "}" * 50), "too deep"),
        (LLAMA % '"num_hidden_layers": 1000000000', "at most 2,000 makes sense"),
        (LLAMA % '"hidden_size": 1000000000000', "at most 1,000,000,000 makes sense"),
        (LLAMA % '"hidden_size": -5', '"hidden_size" is -5, and must be 1 or more'),
        (LLAMA % '"num_hidden_layers": -3', '"num_hidden_layers" is -3, and must be 1 or more'),
        (LLAMA % '"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "max_position_embeddings": 16', "has 16 positions: take 16 or fewer"),
        ('{"model_type": "own", "auto_map": {"AutoConfig": "own.Config"}}', "comes with code of its own (auto_map)"),
        ('{"model_type": "t5"}', "'t5' has an encoder and a decoder"),
        (LLAMA % '"hidden_size": "wide"', "transformers refuses these values"),
        (LLAMA % '"hidden_size": 65, "num_attention_heads": 64', "transformers refuses these values"),
        ("{" + " " * 20_000_001 + "}", "bytes are no config.json"),
        ("no JSON", "this is no JSON"),
    ],
)
def test_a_hostile_config_is_refused_in_one_line(tmp_path, capsys, text, message):
    path = tmp_path / "config.json"
    path.write_text(text)
    assert message in refused(capsys, "train", str(path), "--gpu", "l4", *QUICK)


def test_options_that_only_a_gpu_answers_are_not_dropped(capsys, tmp_path):
    path = tmp_path / "config.json"
    path.write_text(LLAMA % '"num_hidden_layers": 2')
    assert "--qlora: it needs a GPU to answer for" in refused(capsys, "train", str(path), "--qlora", "8")


def test_gpus_that_are_no_whole_number_of_nodes_are_refused_with_the_nearest(capsys):
    said = refused(capsys, "train", "gpt2", "--gpu", "h100-sxm", "--gpus", "12", *QUICK)
    assert "no whole number of nodes of 8: take 16" in said


@pytest.mark.parametrize("option", [("--link", "nan"), ("--link", "-5"), ("--link", "inf"), ("--batch", "1" + 20 * "0")])
def test_numbers_that_mean_nothing_are_refused(option):
    assert command.main(["train", "gpt2", "--gpu", "t4", *option]) == 2


def test_a_cache_that_cannot_be_written_costs_no_answer(capsys, monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("DRYRUN_CACHE", str(tmp_path / "file"))
    assert command.main(["train", "gpt2", "--gpu", "t4", *QUICK]) == 0
    assert "tokens per second" in capsys.readouterr().out


@pytest.mark.parametrize(("gpu", "link"), [("rtx-4090", None), ("a100-sxm4-80", None), ("rtx-3090", 1.0)])
def test_the_command_python_and_the_plan_answer_alike_for_many_gpus(capsys, gpu, link):
    given = [] if link is None else ["--link", str(link)]
    said = as_json(capsys, "train", "llama3.2-1b", "--gpu", gpu, *QUICK, "--gpus", "2", *given)
    step = timing.training_step("llama3.2-1b", 1, int(QUICK[QUICK.index("--sequence") + 1]), checkpointing=0)
    python = step.on(gpu, gpus=2, link=(link or 0) * 1e9)
    assert said["seconds"] == python.seconds
    job = Job("llama3.2-1b", length=step.workload.length)
    (found,) = dryrun.plan(job, Cluster(gpu, gpus=2, link=link), only="FSDP2")
    assert found.prediction.seconds == pytest.approx(python.seconds, rel=1e-9)


def test_rows_and_epochs_are_tokens_and_a_price_is_of_every_gpu(capsys):
    def asked(*words):
        assert command.main(["train", "qwen3-0.6b", "--gpu", "l4", "--gpus", "2", "--length", "256", "--json", *words]) == 0
        return json.loads(capsys.readouterr().out)

    rows = asked("--rows", "1000", "--epochs", "3", "--price", "0.5")
    assert rows == asked("--tokens", "768000", "--price", "0.5")
    assert rows["hours"] == pytest.approx(768000 / rows["tokens_per_second"] / 3600)
    assert rows["hours_low"] < rows["hours"] < rows["hours_high"] and rows["cost"] == pytest.approx(rows["hours"] * 2 * 0.5)
    assert asked("--rows", "1000", "--objective", "dpo")["tokens"] == 2 * 1000 * 256  # of a pair both answers


def test_weights_are_called_by_their_library_too(capsys):
    found = [as_json(capsys, "infer", "gpt2", "--gpu", "l4", "--prompt", "256", "--weights", weights) for weights in ("AWQ", "gptq", "int4-128")]
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("gpu", ["rtx-4090", "h100-sxm5", "l40s"])
def test_the_link_that_an_answer_names_can_be_given_back(capsys, gpu):
    asked = ["train", "llama3-8b", "--gpu", gpu, "--gpus", "4", "--checkpointing", *QUICK]
    found = as_json(capsys, *asked)
    again = as_json(capsys, *asked, "--link", str(found["link_gb_per_s"]))
    assert (again["seconds"], again["link_gb_per_s"]) == pytest.approx((found["seconds"], found["link_gb_per_s"]), rel=1e-6)


def test_a_network_is_named_as_it_was_given(capsys):
    found = as_json(capsys, "train", "llama3-8b", "--gpu", "h100-sxm5", "--gpus", "16", "--network", "40", "--adapters", "8", *QUICK)
    assert found["network_gb_per_s"] == pytest.approx(40)


@pytest.mark.parametrize("gpu", ["rtx-4090", "rtx-2080-ti"])
def test_gpus_without_access_to_each_other_are_no_faster_in_nodes_of_their_own(capsys, gpu):
    asked = ["train", "qwen3-0.6b", "--gpu", gpu, "--gpus", "8", "--checkpointing", *QUICK]
    assert as_json(capsys, *asked, "--gpus-per-node", "1")["seconds"] >= as_json(capsys, *asked)["seconds"]


def test_fp32_is_sent_as_fp32_under_fsdp2(capsys):
    asked = ["plan", "llama3-8b", "--gpu", "a100-sxm4-80", "--gpus", "16", "--gpus-per-node", "1", "--network", "0.1", "--only", "FSDP2", *QUICK]
    mixed = as_json(capsys, *asked, "--dtype", "mixed")[0]["seconds"]
    whole = as_json(capsys, "train", "llama3-8b", "--gpu", "a100-sxm4-80", "--gpus", "16", "--gpus-per-node", "1", "--network", "0.1", "--dtype", "fp32", *QUICK)["seconds"]
    assert whole / mixed == pytest.approx((2 * 4 + 4) / (2 * 2 + 4), rel=0.1), "two gathers of 4 bytes, and not of 2, beside the sums"


@pytest.mark.parametrize(
    "asked, said",
    [
        (["train", "x" * 300, "--gpu", "t4"], "is not known"),
        (["train", '{"model_type": "llama"}', "--gpu", "t4"], "give the path of its file"),
        (["train", "llama:tied=1", "--gpu", "t4"], "tied takes no value"),
        (["train", "bert-large-cls", "--gpu", "t4", "--length", "512", "--objective", "dpo"], "generates no text"),
        (["plan", "qwen3-8b", "--gpu", "rtx-4090", "--lora", "--dtype", "mixed"], "keeps frozen weights in 16 bits"),
    ],
)
def test_what_cannot_be_answered_is_refused_in_a_line(capsys, asked, said):
    assert said in refused(capsys, *asked)


def test_ddp_in_a_plan_says_what_it_counts_on(capsys):
    text = printed(capsys, "plan", "gpt2", "--gpu", "a100-sxm4-80", "--gpus", "2", *QUICK)
    assert "DDP is counted with gradient_as_bucket_view=True" in text


def test_a_mac_that_is_too_small_names_the_formats_that_were_tried(capsys):
    assert "nothing of q8_0, q4_k_m" in printed(capsys, "infer", "llama3-70b", "--gpu", "m4-pro", "--memory", "24")
