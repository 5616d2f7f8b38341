"""What else a step may be: another optimizer, preference and reinforcement learning, and what to type for a strategy."""

import pytest
import torch
import yaml
from accelerate.commands.config.config_args import load_config_from_file
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from transformers import Adafactor, LlamaConfig, LlamaForCausalLM

import dryrun
from dryrun import Cluster, Job
from dryrun.answer.answer import answer
from dryrun.cost.device_memory import needed, tensors
from dryrun.cost.runs import newton_schulz
from dryrun.cost.setting import Setting
from dryrun.cost.timing import fitted
from dryrun.cost.traces import traced
from dryrun.door import command, launch
from dryrun.step.workload import Workload
from dryrun.tables.optimizers import OPTIMIZERS
from dryrun.tracing import tracing

pytestmark = pytest.mark.usefixtures("own_traces")
SMALL = Job("qwen3-0.6b", length=256)
LLAMA = LlamaConfig(hidden_size=256, intermediate_size=512, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, vocab_size=1000)


def muon(model):
    """As its documentation says: matrices of the layers by Muon, everything else by AdamW."""
    matrices = [weight for weight in model.model.layers.parameters() if weight.dim() == 2]
    rest = {*model.parameters()} - {*matrices}
    return torch.optim.Muon(matrices), torch.optim.AdamW(list(rest))


REAL = {
    "adamw": lambda model: (torch.optim.AdamW(model.parameters()),),
    "adafactor": lambda model: (Adafactor(model.parameters(), lr=1e-3, scale_parameter=False, relative_step=False),),  # as `Trainer` makes it
    "muon": muon,
    "sgd": lambda model: (torch.optim.SGD(model.parameters()),),
    "sgd_momentum": lambda model: (torch.optim.SGD(model.parameters(), momentum=0.9),),
}


@pytest.mark.parametrize("name", REAL)
def test_an_optimizers_state_is_as_large_as_that_of_the_real_one(name):
    model = LlamaForCausalLM(LLAMA).to(torch.bfloat16)
    optimizers = REAL[name](model)
    model(input_ids=torch.zeros(1, 8, dtype=torch.long), labels=torch.zeros(1, 8, dtype=torch.long)).loss.backward()
    for optimizer in optimizers:
        optimizer.step()
    state = (value for optimizer in optimizers for held in optimizer.state.values() for key, value in held.items() if key != "step")
    real = sum(tensor.nbytes for tensor in state if torch.is_tensor(tensor))
    workload = Workload(LLAMA.to_json_string(use_diff=False), 1, 8)
    found = needed(traced(workload), workload, Setting("l4", optimizer=name), fitted()["memory"])
    assert found.categories.get("optimizer", 0) == pytest.approx(real, rel=0.01, abs=2048)


def test_adafactor_makes_copies_of_the_largest_tensor_in_its_step():
    config = LlamaConfig(**LLAMA.to_dict() | {"vocab_size": 64000, "hidden_size": 256, "intermediate_size": 512, "tie_word_embeddings": True})
    make = lambda parameters: Adafactor(parameters, lr=1e-3, scale_parameter=False, relative_step=False)  # noqa: E731
    real = tracing.training_step(LlamaForCausalLM, config, 1, 16, dtype=torch.bfloat16, optimizer=make)
    workload = Workload(config.to_json_string(use_diff=False), 1, 16)
    assert sum(tensors(traced(workload), workload, Setting("l4", optimizer="adafactor")).values()) == pytest.approx(real.peak, rel=0.03)


def test_all_optimizers_that_can_be_named_are_traced_or_compared_with_a_real_one():
    assert set(OPTIMIZERS) == set(REAL) | set(tracing.OPTIMIZERS) | {"adamw_8bit", "adamw_8bit_all"}  # its kernels need a GPU


def test_muon_computes_more_than_adamw_and_holds_less():
    plain, found = (dryrun.predict(Job("qwen3-0.6b", length=256, optimizer=name), Cluster("l4")) for name in ("adamw", "muon"))
    assert found.prediction.parts["compute"] > 1.1 * plain.prediction.parts["compute"]
    # five steps of Newton-Schulz on 28 layers of 1024 x 2048 (2), 1024 x 1024 (2) and 1024 x 3072 (3): 4 n^2 m + 2 n^3 FLOPs each
    flops = 5 * 28 * sum(count * (4 * 1024**2 * wide + 2 * 1024**3) for count, wide in ((2, 2048), (2, 1024), (3, 3072)))
    assert sum(count * kernel.flops for kernel, count in newton_schulz(found.traced, ranks=1).items()) == flops
    assert found.needed.expected < plain.needed.expected
    with pytest.raises(ValueError, match="take strategy='ddp'"):
        dryrun.predict(Job("qwen3-0.6b", length=256, optimizer="muon"), Cluster("l4", gpus=2))


def test_dpo_is_two_sequences_of_training_and_one_more_forward_pass():
    sft, dpo = (dryrun.predict(Job("qwen3-0.6b", length=256, batch=batch, objective=name), Cluster("l4")) for batch, name in ((2, "sft"), (1, "dpo")))
    forward = traced(Workload("qwen3-0.6b", 2, 256, kind="forward")).kernels.flops
    assert dpo.traced.kernels.flops == sft.traced.kernels.flops + forward
    assert dpo.needed.expected - sft.needed.expected == pytest.approx(2 * sft.traced.parameters * 1.04, rel=0.05)  # a second copy
    adapted = dryrun.predict(Job("qwen3-0.6b", length=256, objective="dpo", method="lora"), Cluster("l4"))
    assert "reference weights" not in adapted.needed.categories


def test_grpo_is_a_generation_and_a_training_step():
    job = Job("qwen3-0.6b", length=256, batch=2, accumulation=4, objective="grpo", new=128)
    found = dryrun.predict(job, Cluster("l4"))
    written = dryrun.predict(dryrun.Generation("qwen3-0.6b", prompt=128, new=128, batch=8), Cluster("l4"))
    assert found.prediction.parts["writing answers"] == pytest.approx(written.prefill.seconds + 128 * written.decode.seconds)
    assert found.prediction.seconds > found.prediction.parts["writing answers"]
    assert found.needed.categories["engine's caches"] == 8 * written.cache(256)
    alone = answer(found.workload, Setting("l4", accumulation=4))
    assert found.needed.expected == alone.needed.expected + found.needed.categories["engine's weights"] + found.needed.categories["engine's caches"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"objective": "grpo"}, "how many of the 256 tokens of a sequence are written"),
        ({"objective": "grpo", "new": 256}, "From 1 to 255"),
        ({"new": 8}, "only objective='grpo' writes answers"),
        ({"objective": "grp"}, "did you mean 'grpo'"),
        ({"optimizer": "lion"}, "optimizer='lion' is not known"),
    ],
)
def test_an_objective_that_makes_no_sense_is_refused_in_one_line(fields, message):
    with pytest.raises(ValueError) as raised:
        Job("qwen3-0.6b", length=256, **fields)
    assert message in str(raised.value) and "\n" not in str(raised.value)


PLANS = {
    "DDP": (Cluster("l4", gpus=2), {"multi_gpu": True, "num_processes": 2, "mixed_precision": "no"}),
    "FSDP2": (Cluster("l4", gpus=8), {"use_fsdp": True, "fsdp_version": 2, "fsdp_offload_params": False, "mixed_precision": "no"}),
    "HSDP": (Cluster("l4", gpus=16, network="100 GbE"), {"use_fsdp": True, "num_machines": 2, "parallelism_config_dp_replicate_size": 2,
                                                         "parallelism_config_dp_shard_size": 8}),
    "ZeRO-2": (Cluster("l4", gpus=2), {"use_deepspeed": True, "zero_stage": 2, "mixed_precision": "bf16"}),
    "LoRA x FSDP2": (Cluster("l4", gpus=2), {"use_fsdp": True, "mixed_precision": "bf16"}),
    "FSDP2 + offload": (Cluster("l4", gpus=2, host_memory_gb=256), {"use_fsdp": True, "fsdp_offload_params": True}),
}  # fmt: skip


@pytest.mark.parametrize("strategy", PLANS)
def test_accelerate_reads_the_file_of_a_strategy_as_it_is_meant(strategy, tmp_path):
    cluster, meant = PLANS[strategy]
    (option,) = dryrun.plan(SMALL, cluster, only=strategy)
    path = tmp_path / "accelerate.yaml"
    path.write_text(launch.file_of(option))
    config = load_config_from_file(str(path))
    assert (config.num_processes, config.num_machines) == (cluster.gpus, cluster.nodes)
    arguments, _, _ = _validate_launch_command(launch_command_parser().parse_args(["--config_file", str(path), "train.py"]))
    assert {name: getattr(arguments, name) for name in meant} == meant


@pytest.mark.parametrize("gpu, half", [("l4", "bf16"), ("t4", "fp16")])
@pytest.mark.parametrize("strategy", ["FSDP2", "LoRA x DDP", "QLoRA x FSDP2"])
def test_mixed_precision_is_that_of_accelerate(gpu, half, strategy):
    (option,) = dryrun.plan(Job("qwen3-0.6b", length=256, precision="mixed"), Cluster(gpu, gpus=2), only=strategy)
    assert yaml.safe_load(launch.file_of(option))["mixed_precision"] == half


def test_the_command_writes_the_file_or_names_the_guide(tmp_path, capsys):
    path = tmp_path / "accelerate.yaml"
    words = ("plan", "qwen3-0.6b", "--gpu", "l4", "--gpus", "2", "--length", "256", "--launch", str(path))
    assert command.main([*words, "--only", "FSDP2"]) == 0 and "fsdp_version: 2" in path.read_text()
    assert command.main([*words, "--only", "TP"]) == 2  # no such name: TP 2
    assert "did you mean 'TP 2'" in capsys.readouterr().err
    assert command.main([*words, "--only", "TP 2"]) == 2
    assert "TP 2 is not set up by a file alone: it needs a program: the page Model parallelism" in capsys.readouterr().err
