"""docs/training/many-gpus.md, sentence by sentence. Its figures are tested where they are made, in the notebook."""

import functools
import inspect
from pathlib import Path

import pytest
import torch
from programs import SNIPPETS, run
from torch.distributed.fsdp import FSDPModule
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from dryrun.plan import SHARE, gpu, model, plan
from dryrun.ranks import rank_step
from evidence.launch import run_ranks

FOLDER = SNIPPETS / "many_gpus"
SMALL = LlamaConfig(
    hidden_size=64, intermediate_size=128, num_hidden_layers=3, num_attention_heads=8, num_key_value_heads=8,
    vocab_size=512, tie_word_embeddings=False,
)  # fmt: skip
ROOT = 2 * 512 * 64 + 64  # embedding, output layer and the last norm


@functools.cache
def step(strategy, ranks=8, **options):
    return rank_step(AutoModelForCausalLM, SMALL, strategy, ranks, 1, 32, **options)


# Decide


def found(name, gpu_name, **arguments):
    return {o.strategy: o for o in plan(**model(name), **gpu(gpu_name), **arguments)}


def test_the_program_prints_the_four_examples_and_that_of_its_reader():
    printed = run("many_gpus/decide.py").stdout
    titles = [line for line in printed.splitlines() if not line.startswith(" ")]
    assert len(titles) == 5
    assert printed.count("efficiency") == 5 * 4


def test_7b_on_eight_a100_fits_under_zero_2_and_not_under_zero_1_or_ddp():
    seven = found("llama-7b", "A100 40GB", gpus=8)
    assert next(iter(seven)) == "ZeRO-2"
    assert not seven["ZeRO-1"].fits and not seven["DDP"].fits and not seven["DDP, bucket views"].fits
    assert seven["ZeRO-1"].total < 1.2 * SHARE * 40e9  # by a little
    assert seven["FSDP2 (ZeRO-3)"].fits


def test_nothing_trains_all_of_70b_on_four_rtx_4090_without_the_host():
    seventy = found("llama-70b", "RTX 4090 24GB", gpus=4)
    full = [o for o in seventy.values() if o.trains == "all" and "offload" not in o.strategy]
    assert full and not any(o.fits for o in full)
    assert seventy["QLoRA, sharded"].fits and not seventy["LoRA, sharded"].fits
    assert "1,129 GB of each host's memory" in seventy["FSDP2 + offload"].reason


def test_72b_over_two_slow_nodes_waits_for_the_network_unless_only_adapters_cross():
    slow = found("qwen-72b", "A100 40GB", gpus=16, nodes=2, network="100 GbE")
    assert not slow["HSDP"].fits
    assert slow["LoRA, HSDP"].fits
    assert slow["LoRA, HSDP"].seconds_communication < 0.1 * slow["LoRA, HSDP"].seconds_compute
    assert slow["LoRA, sharded"].seconds_communication > slow["LoRA, sharded"].seconds_compute


def test_one_micro_batch_of_the_1b_model_fits_on_one_rtx_4090_and_under_ddp_not_on_two():
    one, two = (found("llama-1b", "RTX 4090 24GB", gpus=n) for n in (1, 2))
    assert one["one GPU"].fits and two["ZeRO-1"].fits
    assert not two["DDP"].fits and not two["DDP, bucket views"].fits
    assert not found("llama-1b", "RTX 4090 24GB", gpus=1, micro_batches=4)["one GPU"].fits


def test_two_slow_nodes_are_slower_than_one_and_hsdp_is_not():
    def throughput(nodes, strategy, micro_batches):
        where = {"nodes": nodes, "network": "100 GbE"} if nodes > 1 else {}
        options = found(
            "qwen-72b", "H200 141GB", gpus=8 * nodes, precision="bf16", micro_batches=micro_batches, **where
        )
        return nodes * micro_batches / options[strategy].seconds_overlapped

    one = throughput(1, "FSDP2 (ZeRO-3)", 8)
    assert throughput(2, "FSDP2 (ZeRO-3)", 8) < 0.5 * one
    assert throughput(2, "HSDP", 8) > 1.7 * one


ERRORS = {
    "nodes": {"gpus": 7, "nodes": 2, "network": "10 GbE"},
    "tensor": {"gpus": 16, "nodes": 2, "network": "100 GbE", "tensor": 16},
    "network": {"gpus": 16, "nodes": 2, "network": "100GbE"},
    "no_network": {"gpus": 16, "nodes": 2},
}


@pytest.mark.parametrize("name", ERRORS)
def test_the_error_messages_are_those_of_the_page(name):
    with pytest.raises(ValueError) as caught:
        found("llama-8b", "A100 80GB", **ERRORS[name])
    assert (FOLDER / "errors" / f"{name}.txt").read_text().strip() == f"ValueError: {caught.value}"


def test_every_error_of_the_page_is_tested():
    assert {path.stem for path in (FOLDER / "errors").glob("*.txt")} == set(ERRORS)


# What each strategy sends and holds


def test_ddp_holds_the_gradients_a_second_time_unless_told_otherwise():
    signature = inspect.signature(torch.nn.parallel.DistributedDataParallel.__init__)
    assert signature.parameters["gradient_as_bucket_view"].default is False
    assert step("ddp").held["gradient buckets"] == step("ddp").held["gradients"]
    assert "gradient buckets" not in step("ddp", bucket_view=True).held


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


def test_transformers_too_gathers_the_logits_of_a_split_output_layer():
    assert LlamaForCausalLM._tp_plan["lm_head"] == "colwise_gather_output"


def test_what_a_rank_sends_hardly_depends_on_the_number_of_ranks():
    assert step("fsdp2", 64).sent() / step("fsdp2", 8).sent() == pytest.approx((63 / 64) / (7 / 8), rel=0.02)


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
    """An all-reduce sends 2 (W - 1) / W of its bytes, an all-gather half of that."""
    for micro_batches in (1, 3):
        eight = found("llama-8b", "A100 40GB", gpus=8, micro_batches=micro_batches)
        parameters = model("llama-8b")["parameters"]
        assert eight["ZeRO-1"].sent == pytest.approx(7 / 8 * (2 * 2 + 2) * parameters)
        assert eight["ZeRO-2"].sent == pytest.approx(7 / 8 * (2 * 2 * micro_batches + 2) * parameters)
        assert (eight["ZeRO-2"].sent < eight["DDP"].sent) == (micro_batches == 1)
        assert eight["ZeRO-1"].sent < eight["DDP"].sent


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
