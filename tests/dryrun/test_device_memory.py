"""Tensors at the peak of a step: beside the replay of the allocator, PyTorch's own compiler, and what GPUs allocated."""

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from dryrun import Cluster, Job
from dryrun.answer.answer import of_job
from dryrun.cost import device_memory, reserved, storage_factors, timing
from dryrun.cost.setting import Setting
from dryrun.step.workload import Workload
from dryrun.tables import optimizers
from dryrun.tracing import step_trace
from fitting import peaks, published
from gpu_steps import compared

ROWS = {row["id"]: row for row in published.rows()}
OURS = {"h100-sxm5": "nvidia-h100-80gb-hbm3.jsonl", "h200-sxm": "nvidia-h200.jsonl"}


def tensors(job, cluster, strategy="fsdp2"):
    asked = of_job(job, cluster, strategy)
    return device_memory.tensors(asked.traced, asked.workload, asked.setting)


@pytest.mark.parametrize("options", [{}, {"checkpointing": True}, {"fused_loss": True}, {"checkpointing": True, "fused_loss": True}, {"accumulation": 2},
                                     {"precision": "mixed", "checkpointing": True, "fused_loss": True}])  # fmt: skip
@pytest.mark.parametrize("method", ["full", "lora", "qlora"])
def test_one_gpu_holds_what_the_replay_of_the_allocator_gives_out(method, options):
    asked = of_job(Job("llama3.2-1b", batch=2, length=1024, method=method, **options), Cluster("rtx-4090"))
    storages, fitted = asked.traced.memory.storages, timing.fitted()["memory"]
    replayed = device_memory.replayed(asked.traced, asked.workload, asked.setting, fitted)
    if not options.keys() & {"fused_loss", "accumulation"} and method == "full":  # nothing changes what was traced
        assert replayed.allocated == pytest.approx(asked.traced.memory.peak + reserved.WORKSPACES * reserved.WORKSPACE, rel=0.005)
        assert sum(storages.highest({}, {}).values()) == asked.traced.memory.peak
    held = sum(device_memory.tensors(asked.traced, asked.workload, asked.setting).values())
    assert held + reserved.WORKSPACES * reserved.WORKSPACE == pytest.approx(replayed.allocated, rel=0.02)


@pytest.mark.parametrize("strategy", ["fsdp2", "hsdp", "ddp"])
@pytest.mark.parametrize("method", ["full", "lora", "qlora"])
@pytest.mark.parametrize("options", [{"checkpointing": True}, {"fused_loss": True}, {"compiled": True}, {"accumulation": 2}])
def test_the_replay_on_many_gpus_gives_out_what_a_rank_holds(options, method, strategy):
    asked = of_job(Job("llama3.2-1b", batch=2, length=1024, method=method, **options), Cluster("a100-sxm4-80", 16, network=50.0), strategy)
    replayed = device_memory.replayed(asked.traced, asked.workload, asked.setting, timing.fitted()["memory"])
    held = sum(device_memory.tensors(asked.traced, asked.workload, asked.setting).values())
    assert held + reserved.WORKSPACES * reserved.WORKSPACE == pytest.approx(replayed.allocated, rel=0.03)
    assert replayed.reserved <= asked.needed.expected <= asked.needed.high


def test_shards_take_the_state_apart_and_leave_the_activations_whole():
    """Under FSDP2 no allocator is replayed: a fused loss with checkpointing has its peak where the last layer is computed again."""
    job = Job("llama3-8b", batch=4, length=4096, checkpointing=True, fused_loss=True)
    one, eight = tensors(job, Cluster("h200-sxm")), tensors(job, Cluster("h200-sxm", 8))
    assert eight["parameters"] == pytest.approx(one["parameters"] / 8)
    layers = 2 * 4 * 4096 * 4096 * 32  # what checkpointing keeps of each
    assert layers < eight["activations"] < 2 * layers


@pytest.mark.parametrize("checkpointing", [0, pytest.param(1, marks=pytest.mark.nightly)])
def test_a_compiled_step_keeps_what_the_compiler_of_pytorch_keeps(checkpointing):
    config = LlamaConfig(
        hidden_size=128, intermediate_size=448, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2, vocab_size=4000, use_cache=False
    )
    model = LlamaForCausalLM._from_config(config, dtype=torch.bfloat16).train()
    if checkpointing:
        model.gradient_checkpointing_enable()
    tokens = torch.randint(0, 4000, (2, 64))
    real = saved(torch.compile(model, backend="aot_eager_decomp_partition"), model, tokens)
    logits = 2 * tokens.numel() * config.vocab_size
    assert logits in real  # in 16 bits, in place of their log-probabilities in fp32
    workload = Workload("", 2, 64, checkpointing=checkpointing, compiled=True)
    found = step_trace.recorded(workload, LlamaForCausalLM, config, 4).traced.kept
    eager, fused = found["forward"]
    assert fused == pytest.approx(sum(real) - logits, rel=0.06)
    assert eager == pytest.approx(sum(saved(model, model, tokens)) - 2 * logits, rel=0.03)


def test_a_compiled_step_never_keeps_more_than_pytorch():
    for job in ({"method": "lora"}, {"method": "lora", "checkpointing": True}, {"method": "qlora"}, {"precision": "mixed"}, {"precision": "fp32"}):
        for cluster, strategy in ((Cluster("h100-sxm5"), "fsdp2"), (Cluster("h100-sxm5", 8), "fsdp2"), (Cluster("h100-sxm5", 8), "ddp")):
            asked = of_job(Job("llama3.2-1b", length=1024, compiled=True, **job), cluster, strategy)
            assert all(0 < fused <= eager for eager, fused in asked.traced.kept.values() if eager), job
            eager = tensors(Job("llama3.2-1b", length=1024, **job), cluster, strategy)
            assert sum(device_memory.tensors(asked.traced, asked.workload, asked.setting).values()) < sum(eager.values()), job


def test_logits_in_fp32_are_written_by_a_product_and_stay():
    asked = of_job(Job("llama3.2-1b", batch=4, length=700, precision="fp32", compiled=True), Cluster("h100-sxm5"))
    logits = 4 * 700 * asked.traced.vocabulary
    wide = asked.traced.memory.storages.logits(4 * logits)
    factors = dict(storage_factors.factors(asked.traced, asked.workload, asked.setting))
    assert [factors[number] for number, kept in wide.items() if kept] == [1.0]
    assert factors[max(wide)] == 1.0


def test_scores_as_large_as_the_logits_are_none():
    """32 heads times 1,000 tokens are 32,000, the words of Mistral's vocabulary."""
    job = {"method": "qlora", "batch": 2, "attention": "eager", "fused_loss": True}
    at, beside = (sum(tensors(Job("mistral-7b", length=length, **job), Cluster("h100-sxm5")).values()) for length in (1000, 999))
    assert at == pytest.approx(beside, rel=0.01)


def saved(step, model, tokens):
    """Bytes of each storage that autograd keeps for the backward pass, without weights."""
    weights = {tensor.untyped_storage().data_ptr() for tensor in (*model.parameters(), *model.buffers())}
    found = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            found[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = step(input_ids=tokens, labels=tokens).loss
    loss.backward()
    return list(found.values())


def test_foreach_makes_the_roots_of_all_second_moments_at_once():
    weights = [torch.nn.Parameter(torch.ones(100, 100)) for _ in range(5)]
    optimizer = torch.optim.AdamW(weights, foreach=True)
    for weight in weights:
        weight.grad = torch.ones_like(weight)
    optimizer.step()
    with torch.profiler.profile(profile_memory=True) as profile:
        optimizer.step()
    made = [event for event in profile.events() if event.name == "aten::_foreach_sqrt"]
    moments = sum(weight.numel() * 4 for weight in weights)
    assert sum(event.cpu_memory_usage for event in made) == moments * optimizers.OPTIMIZERS["adamw_foreach"].at_once
    job = Job("llama3.2-1b", length=512, checkpointing=True)
    foreach, fused = tensors(Job(**vars(job) | {"optimizer": "adamw_foreach"}), Cluster("h100-sxm5")), tensors(job, Cluster("h100-sxm5"))
    assert foreach["temporaries"] == pytest.approx(fused["optimizer"] / 2)


@pytest.mark.parametrize("gpu", OURS)
def test_our_gpus_allocated_what_is_predicted(gpu):
    """None of these steps had a part in a constant."""
    off = {}
    for row in compared.read(compared.MEASURED / OURS[gpu], gpu)[2]:
        if row.step.kind == "train" and row.ran and row.step.options.keys() & {"compiled", "fused_loss", "optimizer"}:
            held = sum(tensors(Job(row.step.model, batch=row.step.batch, length=row.step.length, **row.step.of_job), Cluster(gpu)).values())
            off[row.words] = held / row.measured["allocated"] - 1
    compiled = [error for words, error in off.items() if "compiled" in words]
    others = [error for words, error in off.items() if "compiled" not in words]
    assert compiled and max(map(abs, compiled)) < 0.1, off
    assert others and max(map(abs, others)) < 0.015, off


def test_published_full_fine_tuning_on_one_gpu_takes_what_its_optimizer_makes_at_its_step():
    """Mistral 7B and Llama 3 8B at four batch sizes by transformers of 2024, whose AdamW was foreach: ten bytes for each weight."""
    chosen = [row for row in ROWS.values() if row["source"].endswith("fms-acceleration") and row["method"] == "full" and row["gpus"] == 1
              and row["model"] in ("mistral-7b", "llama3-8b") and row.get("memory_gib") and row["usable"]]  # fmt: skip
    data = peaks.peaks(chosen)
    assert len(data.published) > 6
    assert max(abs(data.errors(timing.fitted()["memory"]))) < 0.05


def test_a_row_with_fp32_weights_under_fsdp_has_fp32_state():
    wide = ROWS["h2-0222"]
    held = [peaks.held_by(row)[0]["optimizer"] for row in (wide | {"master_weights": None}, wide)]
    assert held[1] == pytest.approx(2 * held[0])


@pytest.mark.parametrize("name", ["adamw_8bit", "adamw_8bit_all"])
def test_adamw_in_8_bits_keeps_of_a_weight_what_bitsandbytes_keeps(name):
    from bitsandbytes.optim import AdamW8bit

    weight = torch.nn.Parameter(torch.randn(4096, 256))
    weight.grad = torch.randn_like(weight)
    optimizer = AdamW8bit([weight])
    optimizer.step()
    kept = {what: state.numel() * state.element_size() for what, state in optimizer.state[weight].items() if torch.is_tensor(state)}
    of_weights = sum(size for what, size in kept.items() if not what.startswith("qmap"))  # these are as large for any weight
    assert of_weights == optimizers.OPTIMIZERS[name].state * weight.numel()


def test_an_unknown_optimizer_is_not_taken_for_adamw():
    with pytest.raises(ValueError, match="optimizer='adamv' is not known, did you mean 'adamw'"):
        Setting("l4", optimizer="adamv")
