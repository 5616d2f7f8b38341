"""Rank 0 of many: its bytes are those of a real run on two processes, and those of the closed formulas."""

import functools
import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from dryrun import Cluster, Job
from dryrun.answer.answer import of_job
from dryrun.cost import communication, device_memory
from dryrun.cost.setting import Setting
from dryrun.cost.traces import traced
from dryrun.step.workload import Workload
from dryrun.tables import hardware
from dryrun.tracing import ranks
from dryrun.tracing.ranks import rank_step
from evidence.launch import run_ranks

SMALL = dict(hidden_size=64, intermediate_size=128, num_hidden_layers=3, num_attention_heads=4, vocab_size=512)
LLAMA = LlamaConfig(**SMALL, num_key_value_heads=2, tie_word_embeddings=False)
EIGHT = dict(
    vocab_size=128256,
    hidden_size=4096,
    intermediate_size=14336,
    num_hidden_layers=32,
    num_attention_heads=32,
    num_key_value_heads=8,
    tie_word_embeddings=False,
)
WIDE = LlamaConfig(
    **SMALL | {"hidden_size": 256, "intermediate_size": 512}, num_key_value_heads=2, tie_word_embeddings=False
)


@pytest.fixture(scope="module")
def real():
    config = {key: value for key, value in WIDE.to_dict().items() if key in SMALL}
    config |= {"num_key_value_heads": 2, "tie_word_embeddings": False}
    program = Path(__file__).with_name("two_ranks.py")
    here = {"PYTHONPATH": str(Path(__file__).parents[2])}
    run = run_ranks(program, json.dumps(config), timeout=300, environment=here)
    return json.loads(run.stdout[0].splitlines()[-1])


@functools.cache
def eight(strategy, world, layers=32, length=2048, **options):
    """All 32 layers by way of 2 and 3; whether that is right is a test of its own."""
    config = LlamaConfig(**EIGHT | {"num_hidden_layers": layers})
    options |= {"layers": (2, 3)} if layers == 32 else {}
    trace = ranks.many_layers if layers == 32 else rank_step
    return trace(AutoModelForCausalLM, config, strategy, world, 1, length, **options)


@pytest.mark.parametrize("strategy", ["fsdp2", "fsdp2_keep", "tp"])
def test_fake_bytes_and_collectives_equal_those_of_two_real_processes(real, strategy):
    options = {"compute": None} if strategy == "tp" else {}
    traced = rank_step(AutoModelForCausalLM, WIDE, strategy, 2, 2, 32, attention="eager", **options)
    assert sorted([c.kind, c.count, c.payload] for c in traced.collectives) == real[strategy]["collectives"]
    for category in ("parameters", "optimizer", "activations"):
        assert traced.after_forward[category] == real[strategy]["after_forward"][category]
    for category in ("parameters", "gradients", "optimizer"):
        assert traced.held[category] == real[strategy]["held"][category]
    # Why it is higher is not known; buffers that gloo's threads keep for longer would be one reason. Seen: 4 to 11 %.
    layer = (traced.parameters - 2 * WIDE.vocab_size * WIDE.hidden_size) / WIDE.num_hidden_layers
    assert traced.peak <= real[strategy]["peak"] <= traced.peak + 2 * 4 * layer


def test_the_emulated_buckets_reduce_what_ddp_reduces(real):
    traced = rank_step(AutoModelForCausalLM, WIDE, "ddp", 2, 2, 32, compute=None)
    assert sum(real["ddp"]) == traced.payload("all-reduce") == 4 * traced.parameters


N8 = 8_030_261_248
ROOT8 = 2 * 128256 * 4096


@pytest.mark.parametrize("world", [8, 64])
def test_fsdp2_sends_what_the_formula_says_and_holds_a_part_of_everything(world):
    step = eight("fsdp2", world)
    assert step.parameters == N8
    assert step.count("all-gather") == 65 and step.count("reduce-scatter") == 33
    assert step.payload("all-gather") == pytest.approx(2 * (2 * (N8 - ROOT8) + ROOT8), rel=0.01)
    assert step.payload("reduce-scatter") == pytest.approx(4 * N8, rel=0.01)
    assert step.sent() == pytest.approx((world - 1) / world * (4 * N8 + 2 * (2 * N8 - ROOT8)), rel=0.01)
    for category, size in (("parameters", 4), ("gradients", 4), ("optimizer", 8)):
        assert step.held[category] == pytest.approx(size * N8 / world, rel=0.01)


def planned(strategy, world, **options):
    """(bytes that the plan counts, tensors that it counts) on one rank of the 8B model."""
    workload = Workload("llama3-8b", 1, 2048, **options)
    setting = Setting("h100-sxm5", world, 8 if strategy == "hsdp" else world, strategy, state="fp32")
    what = traced(workload)
    waits = communication.of_step(what, workload, setting)
    return [size * LINK for size in waits], device_memory.tensors(what, workload, setting)


LINK = hardware.bytes_per_second("NVLink 4")


def test_the_plan_sends_what_the_trace_sends():
    fp32 = {"weights": "float32", "autocast": "bfloat16"}
    assert planned("fsdp2", 64)[0][0] == pytest.approx(eight("fsdp2", 64).sent(), rel=0.05)
    assert planned("ddp", 8, **fp32)[0][1] == pytest.approx(eight("ddp", 8).sent(), rel=0.01)
    inside = eight("hsdp", 64, shard=8).sent(dimension="shard")
    assert planned("hsdp", 64)[0][0] == pytest.approx(inside, rel=0.05)


def test_the_plan_holds_what_the_trace_holds():
    held, step = planned("fsdp2", 64)[1], eight("fsdp2", 64)
    for category in ("parameters", "optimizer"):
        assert held[category] == pytest.approx(step.held[category], rel=0.02), category


@pytest.mark.parametrize(
    ("precision", "options"),
    [
        ("mixed", {}),
        pytest.param("bf16", {"dtype": torch.bfloat16, "compute": torch.bfloat16}, marks=pytest.mark.nightly),
        pytest.param("fp32", {"compute": None}, marks=pytest.mark.nightly),
    ],
)
def test_where_the_last_gradients_are_reduced_the_plan_holds_what_the_trace_holds(precision, options):
    """A short sequence: embedding and output layer are its peak, and activations are not."""
    trace = ranks.many_layers(AutoModelForCausalLM, LlamaConfig(**EIGHT), "fsdp2", 8, 1, 1024, activation_checkpointing=True, layers=(6, 8, 10), **options)
    asked = of_job(Job("llama3-8b", precision=precision, length=1024, checkpointing=True), Cluster("h100-sxm5", 8))
    held = sum(device_memory.tensors(asked.traced, asked.workload, asked.setting).values())
    assert held == pytest.approx(trace.peak, rel=0.05)


def test_ddp_holds_gradients_twice_unless_they_are_views_of_the_buckets():
    config = LlamaConfig(**EIGHT | {"num_hidden_layers": 2})
    twice, once = (
        rank_step(AutoModelForCausalLM, config, "ddp", 8, 1, 128, bucket_view=view) for view in (False, True)
    )
    assert twice.held["gradients"] + twice.held["gradient buckets"] == pytest.approx(8 * twice.parameters, rel=0.001)
    assert "gradient buckets" not in once.held  # they are the gradients
    assert once.held["gradients"] == pytest.approx(4 * once.parameters, rel=0.001)


def test_reshard_after_forward_false_gathers_once_and_keeps_the_weights():
    again, keep = eight("fsdp2", 64, layers=4), eight("fsdp2_keep", 64, layers=4)
    assert keep.payload("all-gather") == pytest.approx(2 * keep.parameters, rel=0.01)
    assert keep.sent("reduce-scatter") == again.sent("reduce-scatter")
    assert keep.after_forward["gathered weights"] == pytest.approx(2 * keep.parameters, rel=0.01)


def test_whole_gradients_are_kept_until_the_last_micro_batch_and_reduced_once():
    config = LlamaConfig(**EIGHT | {"num_hidden_layers": 2})
    options = {"accumulation": 3, "activation_checkpointing": True}
    sharded, whole = (
        rank_step(AutoModelForCausalLM, config, "fsdp2", 8, 1, 128, whole_gradients=kept, **options)
        for kept in (False, True)
    )
    assert 3 * whole.payload("reduce-scatter") == sharded.payload("reduce-scatter")
    assert whole.payload("all-gather") == sharded.payload("all-gather")
    assert whole.after_forward["gradients"] == pytest.approx(4 * whole.parameters, rel=0.001)
    assert sharded.after_forward["gradients"] == pytest.approx(4 * whole.parameters / 8, rel=0.001)
    assert whole.held["gradients"] == sharded.held["gradients"]


def test_tensor_parallelism_reduces_four_activations_a_layer_and_sequence_parallelism_sends_as_much():
    layers, size = 4, 2 * 2048 * 4096
    plain = eight("tp", 8, layers=layers, dtype=torch.bfloat16)
    assert plain.count("all-reduce") == 4 * layers + 2
    assert plain.payload("all-reduce") == (4 * layers + 2) * size
    split = eight("tp", 8, layers=layers, dtype=torch.bfloat16, sequence_parallel=True)
    sent = split.sent("reduce-scatter") + split.sent("all-gather") - plain.sent("all-gather")
    assert sent == pytest.approx(plain.sent("all-reduce"), rel=0.01)
    assert split.after_forward["activations"] < plain.after_forward["activations"]


def test_a_pipeline_holds_as_many_micro_batches_as_stages_and_sends_one_activation_for_each():
    config = LlamaConfig(**EIGHT | {"num_hidden_layers": 4})
    steps = {
        m: rank_step(AutoModelForCausalLM, config, "pp", 4, 1, 512, micro_batches=m, dtype=torch.bfloat16)
        for m in (1, 6, 8)
    }
    assert steps[8].payload("send") == steps[8].payload("receive") == 8 * 512 * 4096 * 2
    assert steps[8].peak == steps[6].peak > steps[1].peak


def test_a_pipeline_stage_with_checkpointing_recomputes_the_gpus_operators():
    """It calls torch.autograd.backward on an activation, where the other strategies call loss.backward()."""
    config = LlamaConfig(**EIGHT | {"num_hidden_layers": 4})
    plain, checkpointed = (
        rank_step(AutoModelForCausalLM, config, "pp", 2, 1, 512, dtype=torch.bfloat16, activation_checkpointing=on)
        for on in (False, True)
    )
    recomputed = checkpointed.flops["recomputation"]
    assert recomputed > 0
    assert checkpointed.flops["backward"] - recomputed == plain.flops["backward"]
    assert checkpointed.after_forward["activations"] < plain.after_forward["activations"]


SEVENTY = EIGHT | {"hidden_size": 8192, "intermediate_size": 28672, "num_attention_heads": 64}
SPLIT = {"tensor": 8, "sequence_parallel": True}
DEEP = 10


@pytest.mark.parametrize(
    "strategy, world, options, part, layers", [("fsdp2", 64, {}, 0, (4, 5)), pytest.param("tp_fsdp2", 8, SPLIT, 1, (2, 3), marks=pytest.mark.nightly)]
)
def test_a_deep_model_is_traced_by_two_shallow_ones_even_if_its_peak_comes_later(
    strategy, world, options, part, layers
):
    def arguments(layers):
        deep = LlamaConfig(**SEVENTY | {"num_hidden_layers": layers})
        return AutoModelForCausalLM, deep, strategy, world, 1, 4096

    options = {"activation_checkpointing": True} | options
    whole = rank_step(*arguments(DEEP), **options)
    assert whole.peak == whole.parts[part][0]
    if part:  # with the last gradients, and in a shallow model with the loss
        shallow = rank_step(*arguments(2), **options)
        assert shallow.peak == shallow.parts[0][0]
    line = ranks.many_layers(*arguments(DEEP), layers=layers, **options)
    assert line.parameters == whole.parameters
    assert line.collectives == whole.collectives
    assert line.held == whole.held
    assert line.peak == pytest.approx(whole.peak, rel=0.001)
    assert line.gib("gradients") == pytest.approx(whole.gib("gradients"), rel=0.001)


@pytest.mark.parametrize(
    "arguments, message",
    [
        (("zero1", 8, 1, 8), "which is not traced: see dryrun.answer.planner"),
        (("fsdp", 8, 1, 8), "choose one of ddp, fsdp2"),
        (("fsdp2", 1, 1, 8), "take at least 2"),
        (("tp", 8, 1, 8), "8 ranks cannot split 2 key and value heads: take a divisor of 2"),
        (("hsdp", 8, 1, 8), "hsdp on 8 ranks needs a divisor of 8"),
        (("pp", 2, 1, 8), "3 layers do not divide into 2 stages"),
    ],
)
def test_what_cannot_be_split_is_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        rank_step(AutoModelForCausalLM, LLAMA, *arguments)


def test_whole_gradients_are_refused_where_no_gradients_are_sharded():
    with pytest.raises(ValueError, match="ddp shards no gradients: take one of fsdp2"):
        rank_step(AutoModelForCausalLM, LLAMA, "ddp", 2, 1, 8, whole_gradients=True)


def test_the_depths_must_lie_on_one_line():
    seventy = LlamaConfig(**EIGHT | {"hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80})
    with pytest.raises(ValueError, match="take deeper ones"):
        ranks.many_layers(
            AutoModelForCausalLM, seventy, "fsdp2", 64, 1, 4096, activation_checkpointing=True, layers=(1, 2, 4)
        )


def test_no_process_group_stays_behind():
    eight("fsdp2_keep", 64, layers=4)
    assert not torch.distributed.is_initialized()
