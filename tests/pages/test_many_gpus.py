"""docs/training/many-gpus.md and docs/training/communication.md, sentence by sentence. Its figures are tested where they are made, in the notebook."""

import functools
import math
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from accelerate.utils import FullyShardedDataParallelPlugin
from accelerate.utils.fsdp_utils import fsdp2_prepare_model
from planned import plan
from programs import run, shown_message
from torch.distributed.fsdp import FSDPModule
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, LlamaConfig

from dryrun.answer.verdict import of_step
from dryrun.cost import communication
from dryrun.cost.traces import traced
from dryrun.tables.hardware import accelerator, bytes_per_second
from dryrun.tracing.ranks import rank_step
from evidence.launch import run_ranks

SMALL = LlamaConfig(
    hidden_size=64, intermediate_size=128, num_hidden_layers=3, num_attention_heads=8, num_key_value_heads=8,
    vocab_size=512, tie_word_embeddings=False,
)  # fmt: skip
ROOT = 2 * 512 * 64 + 64  # embedding, output layer and the last norm


@functools.cache
def step(strategy, ranks=8, **options):
    return rank_step(AutoModelForCausalLM, SMALL, strategy, ranks, 1, 32, **options)


# Decide


def found(name, gpu_name, gpus, **arguments):
    return {option.strategy: option for option in plan(name, gpu_name, gpus, **{"length": 4096, **arguments})}


@functools.cache
def examples():
    """The four examples of decide.py, which `test_the_program_prints...` runs as they are."""
    return {
        "seven": found("llama2-7b", "A100 40GB", 8),
        "seventy": found("llama3-70b", "RTX 4090", 4, host_memory=512),
        "slow": found("qwen2.5-72b", "A100 40GB", 16, nodes=2, network="100 GbE"),
        "two": found("llama3.2-1b", "RTX 4090", 2, length=2048, accumulation=4),
    }


def test_the_program_prints_the_four_examples_and_that_of_its_reader():
    printed = run("many_gpus/decide.py", timeout=600).stdout
    titles = [line for line in printed.splitlines() if not line.startswith(" ")]
    assert len(titles) == 5
    assert printed.count("GiB of") == 5 * 4
    for options in examples().values():
        assert next(iter(options)) in printed


def test_the_advice_of_the_page_is_that_of_the_plan():
    first = {name: next(iter(options)) for name, options in examples().items()}
    assert (first["seven"], first["two"]) == ("FSDP2", "PP 2")
    assert not any(option.fits for option in examples()["seventy"].values())
    assert {name for name, option in examples()["slow"].items() if option.fits} == {"QLoRA x FSDP2", "QLoRA x HSDP"}


def test_7b_on_eight_a100_fits_under_fsdp2_and_not_under_zero_or_ddp():
    seven = examples()["seven"]
    assert seven["FSDP2"].fits
    assert not any(seven[name].fits for name in ("DDP", "ZeRO-1", "ZeRO-2"))


def test_70b_on_four_rtx_4090_fits_neither_the_gpus_nor_a_host_of_512_gb():
    seventy = examples()["seventy"]
    assert not seventy["QLoRA x FSDP2"].fits
    short, long = (found("llama3-70b", "RTX 4090", 4, length=length, only="QLoRA x FSDP2")["QLoRA x FSDP2"] for length in (512, 2048))
    assert short.fits and of_step(long.needed, long.size).fit == "maybe"
    offloaded = found("llama3-70b", "RTX 4090", 4, length=2048, host_memory=512, only="QLoRA x FSDP2 + offload")
    assert offloaded["QLoRA x FSDP2 + offload"].fits
    for name in ("FSDP2 + offload", "ZeRO-3 + offload"):
        assert seventy[name].host > 512e9


@pytest.mark.parametrize("storage, first, out", [(torch.uint8, True, 21), (torch.uint8, False, 21), (torch.bfloat16, True, 0)])
def test_accelerate_leaves_4_bit_weights_of_the_default_storage_out_of_fsdp2_and_warns(
    storage, first, out, tmp_path, monkeypatch, recwarn
):
    """`first`: on rank 0, which alone warns. Seven matrices in each of three layers."""
    assert BitsAndBytesConfig(load_in_4bit=True).bnb_4bit_quant_storage == torch.uint8
    AutoModelForCausalLM.from_config(SMALL, dtype=torch.bfloat16).save_pretrained(tmp_path)
    four_bit = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_storage=storage)
    model, left_out = AutoModelForCausalLM.from_pretrained(tmp_path, quantization_config=four_bit), []
    fully_shard = "torch.distributed.fsdp.fully_shard"
    monkeypatch.setattr(fully_shard, lambda unit, **given: left_out.append(given.get("ignored_params", ())))
    state = SimpleNamespace(fsdp_plugin=FullyShardedDataParallelPlugin(fsdp_version=2, auto_wrap_policy="transformer_based_wrap"))
    accelerator = SimpleNamespace(state=state, mixed_precision="no", is_main_process=first, device=torch.device("cpu"))
    fsdp2_prepare_model(accelerator, model)
    assert {len(weights) for weights in left_out} == {out}
    warned = [warning for warning in recwarn if "Excluding from FSDP2 sharding" in str(warning.message)]
    assert bool(warned) == bool(out and first)


def test_72b_over_two_slow_nodes_trains_4_bit_adapters_and_does_not_wait():
    slow = examples()["slow"]
    assert not any(option.fits for option in slow.values() if option.trains == "all")
    qlora, lora, sharded = slow["QLoRA x FSDP2"], slow["LoRA x HSDP"], slow["LoRA x FSDP2"]
    assert qlora.fits and lora.needed.expected > lora.size > sharded.needed.expected
    assert sharded.prediction.parts["communication"] > 0.4 * sharded.seconds
    for option in (qlora, lora):
        assert option.prediction.parts["communication"] < 0.1 * option.seconds


def test_one_step_of_the_1b_model_may_fit_under_zero_1_which_sends_less_than_fsdp2():
    two = examples()["two"]
    assert two["ZeRO-1"].needed.expected < 24 * 2**30 < two["ZeRO-1"].needed.high
    assert two["PP 2"].fits and not two["DDP"].fits
    assert two["FSDP2"].seconds > 1.5 * two["ZeRO-1"].seconds


def test_between_slow_nodes_a_pipeline_sends_least_and_hsdp_less_than_fsdp2():
    options = found("llama3-8b", "h100-sxm5", 16, nodes=2, network="100 GbE")
    pipeline = next(option for name, option in options.items() if "PP" in name and option.fits)
    assert pipeline.seconds < options["HSDP"].seconds < options["FSDP2"].seconds


def test_two_slow_nodes_are_slower_than_one_under_fsdp2_and_not_under_hsdp():
    def rate(nodes, strategy):
        where = {"nodes": nodes, "network": "100 GbE"} if nodes > 1 else {}
        option = found("qwen2.5-32b", "H200 141GB", 8 * nodes, accumulation=8, only=strategy, **where)[strategy]
        assert option.fits
        return option.prediction.tokens_per_second

    assert rate(2, "FSDP2") < rate(1, "FSDP2")
    assert rate(2, "HSDP") > rate(1, "FSDP2")


ERRORS = {
    "nodes": {"gpus": 7, "nodes": 2, "network": "10 GbE"},
    "network": {"gpus": 16, "nodes": 2, "network": "100GbE"},
}


@pytest.mark.parametrize("name", ERRORS)
def test_the_error_messages_are_those_of_the_page(name):
    with pytest.raises(ValueError) as caught:
        found("llama3-8b", "A100 80GB", **ERRORS[name])
    assert shown_message("many_gpus", name) == f"ValueError: {caught.value}"


# What each strategy sends and holds


def test_embedding_and_output_layer_stay_gathered_from_forward_to_backward():
    assert step("fsdp2").after_forward["gathered weights"] == pytest.approx(2 * ROOT, rel=0.01)


def test_accumulation_sends_once_under_ddp_and_each_time_under_fsdp2():
    assert step("ddp", accumulation=2).sent() == step("ddp").sent()
    once, twice = (step("fsdp2", accumulation=number) for number in (1, 2))
    assert twice.payload("reduce-scatter") == 2 * once.payload("reduce-scatter")
    assert twice.payload("all-gather") == pytest.approx(2 * once.payload("all-gather"), rel=0.01)


def test_hsdp_reduces_between_groups_once_a_step_if_told_so():
    assert hasattr(FSDPModule, "set_requires_all_reduce")
    once = step("hsdp", 16, shard=8)
    twice = step("hsdp", 16, shard=8, accumulation=2)
    assert twice.payload("all-reduce", "replicate") == once.payload("all-reduce", "replicate")
    assert twice.payload("reduce-scatter", "shard") == 2 * once.payload("reduce-scatter", "shard")


def test_hsdp_holds_at_any_number_of_nodes_what_fsdp2_holds_on_one():
    one, two, four = step("fsdp2", 8), step("hsdp", 16, shard=8), step("hsdp", 32, shard=8)
    for category in ("parameters", "gradients", "optimizer"):
        assert one.held[category] == two.held[category] == four.held[category]


def test_checkpointing_repeats_all_reduces_of_tensor_parallelism():
    plain, again = (step("tp", dtype=torch.bfloat16, activation_checkpointing=on) for on in (False, True))
    layers = SMALL.num_hidden_layers
    assert plain.count("all-reduce") == 4 * layers + 2
    assert again.count("all-reduce") == 5 * layers + 2


def test_with_sequence_parallelism_it_repeats_one_all_gather_more_in_each_layer():
    plain, again = (
        step("tp", dtype=torch.bfloat16, activation_checkpointing=on, sequence_parallel=True) for on in (False, True)
    )
    layers = SMALL.num_hidden_layers
    assert again.count("reduce-scatter") - plain.count("reduce-scatter") == layers
    assert again.count("all-gather") - plain.count("all-gather") == 2 * layers


@functools.cache
def zero():
    out = run_ranks(Path(__file__).parent / "ranks" / "zero.py", timeout=900).stdout[0]
    said = [line.split()[1:] for line in out.splitlines() if line.startswith("zero ")]
    return {(int(stage), int(micro), default == "True"): set(sent) for stage, micro, default, *sent in said}


def test_deepspeed_all_reduces_16_bit_gradients_by_default_and_zero_2_does_it_in_every_micro_batch():
    """Bytes of the whole tensors per parameter, of an optimizer step of two processes."""
    sent = zero()
    assert sent[1, 1, True] == sent[2, 1, True] == {"all_reduce=2", "all_gather_into_tensor=2"}
    assert sent[2, 3, True] == {"all_reduce=6", "all_gather_into_tensor=2"}
    assert sent[2, 1, False] == {"reduce=2", "all_gather_into_tensor=2"}


def test_plan_counts_what_deepspeed_sends():
    """An all-reduce sends 2 (W - 1) / W of its bytes, an all-gather half of that; ZeRO waits for both."""
    for strategy, each, once in (("ZeRO-1", 0, 6), ("ZeRO-2", 4, 2)):
        option = found("llama2-7b", "A100 40GB", 8, accumulation=3, only=strategy)[strategy]
        what = traced(option.workload)
        waits = communication.of_step(what, option.workload, option.setting)
        sent = [seconds * bytes_per_second("NVLink 3") for seconds in (waits.alone, waits.after)]
        assert sent == pytest.approx([7 / 8 * count * what.parameters for count in (each, once)])
        assert waits.every == waits.once == 0


# The programs


def test_the_program_that_traces_your_model_prints_every_collective():
    printed = run("many_gpus/trace_ranks.py", timeout=600).stdout
    for words in ("fsdp2: peak", "hsdp: peak", "tp_fsdp2: peak", "all-reduce over 8 ranks", "all-gather over 64 ranks"):
        assert words in printed


def test_the_link_is_measured_on_two_processes():
    first, second = run("many_gpus/measure_link.py", processes=2).ranks
    figure, unit = first.stdout.split()
    assert unit == "GB/s" and float(figure) > 0
    assert second.stdout == ""


def test_the_commands_show_topology_and_links_and_keep_what_nccl_says_of_its_way():
    stand_ins = {
        "nvidia-smi": 'echo nvidia-smi "$@"',
        "torchrun": 'echo "torchrun $*: $NCCL_DEBUG via P2P"; echo other',
    }
    assert run("many_gpus/look_at_links.sh", stand_ins=stand_ins).stdout.splitlines() == [
        "nvidia-smi topo -m",
        "nvidia-smi nvlink --status",
        "torchrun --nproc-per-node 2 measure_link.py: INFO via P2P",
    ]


# What readers ask


PAGE = "".join((Path(__file__).parents[2] / "docs" / "training" / name).read_text() for name in ("many-gpus.md", "communication.md"))


def test_the_table_of_how_many_gpus_is_the_formula_above_it():
    rows = re.findall(r"^\| (\d+) billion \| `([\d,]+) GB` \| (.*) \|$", PAGE, re.M)
    assert len(rows) == 6
    for billions, state, columns in rows:
        assert 16 * int(billions) == int(state.replace(",", ""))
        for memory, column in zip((80, 141, 180), columns.split(" | "), strict=True):
            least, taken = re.fullmatch(r"(\d+)(?:, so take (\d+))?", column).groups()
            needed = 16 * int(billions) / (0.7 * memory)
            assert math.floor(needed) <= int(least) <= math.ceil(needed)
            assert int(taken or least) >= needed


def test_the_tokens_that_hide_the_sending_are_the_quotient_beside_them():
    rows = re.findall(r"\| `([\d.]+) x ([\de.]+) / ([\de.]+)` \| `([\d,]+)` \|$", PAGE, re.M)
    assert len(rows) == 5
    for share, flops, bandwidth, tokens in rows:
        assert float(share) * float(flops) / float(bandwidth) == pytest.approx(int(tokens.replace(",", "")), rel=0.01)
    peaks = {float(flops) for _, flops, _, _ in rows}
    assert peaks == {989e12, 312e12, 165e12}
    for name, peak in (("H100", 989e12), ("A100 40GB", 312e12), ("RTX 4090", 165e12)):
        assert accelerator(name).half * 1e12 == pytest.approx(peak, rel=0.01)
    links = {float(bandwidth) for _, _, bandwidth, _ in rows} - {6e9}
    assert links == {bytes_per_second(link) for link in ("NVLink 4", "NVLink 3", "100 GbE", "10 GbE")}


def test_by_the_plan_half_as_many_gpus_hold_8b_and_may_hold_32b():
    for model, gpus, fit, least in (("llama3-8b", 2, "fits", 0.85), ("qwen2.5-32b", 8, "maybe", 1)):
        tight = found(model, "H100", gpus)["FSDP2"]
        assert of_step(tight.needed, tight.size).fit == fit and tight.needed.high / tight.size > least
        roomy = {} if gpus == 2 else {"nodes": 2, "network": "InfiniBand NDR"}
        assert found(model, "H100", 2 * gpus, **roomy)["FSDP2"].needed.high < 0.7 * tight.size
