"""docs/training/sharding.md, docs/training/deepspeed.md, docs/training/sharding-trainer.md and docs/training/sharded-checkpoints.md, sentence by sentence. Its figures are tested where they are made, in the notebook."""

import ast
import inspect
import json
import logging
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest
import torch
import torch.distributed.checkpoint as dcp
from accelerate import Accelerator
from accelerate.commands import to_fsdp2
from accelerate.state import GradientState, PartialState
from accelerate.utils import FullyShardedDataParallelPlugin, fsdp_utils
from programs import ROOT, run
from shards import IDS, TINY, backward, sharded
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.distributed.fsdp import (
    FullyShardedDataParallel,
    MixedPrecisionPolicy,
    StateDictType,
    fully_shard,
    register_fsdp_forward_method,
)
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoModelForCausalLM, LlamaConfig, Trainer, TrainingArguments, set_seed
from transformers.distributed import consolidate_distributed_checkpoint
from transformers.distributed.fsdp import is_fsdp_managed_module
from transformers.integrations.deepspeed import HfTrainerDeepSpeedConfig
from transformers.training_args import OptimizerNames

from evidence.launch import run_ranks

FOLDER = ROOT / "snippets" / "sharding"
PAGE = ROOT / "docs" / "training" / "sharding.md"
TOLERANCE = 1e-4  # the page states it
STEPS = 7  # the last one: what was exported after six
pytestmark = pytest.mark.usefixtures("forget_deepspeed")


def kept(strategy, checkpointing, weights="frozen"):
    """Tensors as large as a layer's input that are alive where the backward pass of six layers ends."""
    program = Path(__file__).with_name("ranks") / "kept_inputs.py"
    return int(run_ranks(program, strategy, checkpointing, weights).stdout[0])


def test_fsdp1_keeps_inputs_and_their_gradients_under_reentrant_checkpointing_and_fsdp2_does_not():
    few = kept("fsdp2", "reentrant")
    assert kept("fsdp2", "not") == kept("fsdp1", "not") == few <= 3
    assert kept("fsdp1", "reentrant") == few + 2 * 5, "of each layer but the first"
    assert kept("fsdp1", "reentrant", "trained") <= few


def losses(text):
    return [float(loss) for loss in re.findall(r"loss ([\d.]+)", text)]


def reference():
    """The losses of one process: whole batch, whole model, clipped at 1."""
    set_seed(0)
    config = LlamaConfig(
        hidden_size=128, intermediate_size=352, num_hidden_layers=4, num_attention_heads=4, vocab_size=1000
    )
    model = AutoModelForCausalLM.from_config(config).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    ids = torch.randint(0, config.vocab_size, (8, 64), generator=torch.Generator().manual_seed(1))
    values = []
    for _ in range(STEPS):
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        values.append(loss.item())
    return values


@pytest.fixture(scope="module")
def alone():
    """The losses of one process."""
    return reference()


def on_ranks(name, *arguments, processes=2, **options):
    """What rank 0 printed. On a CPU DeepSpeed compiles an operator at its first start, which takes a while."""
    return run(name, *arguments, processes=processes, timeout=900, **options).ranks[0].stdout


def held_share(text, rank=0):
    held, of = map(int, re.search(rf"rank {rank} holds (\d+) of (\d+)", text).groups())
    return held / of


def saved_on_two_then_four():
    """checkpoint.py on 2 processes, then on 4 in the same folder."""
    first = run("sharding/checkpoint.py", processes=2)
    return first, run("sharding/checkpoint.py", processes=4, start=first.folder)


# The programs


@pytest.mark.parametrize(
    "name",
    [
        "sharding/fsdp2.py",
        "sharding/zero1.py",
        "sharding/offload.py",
        "sharding/load_broadcast.py",
        "sharding/load_sharded.py",
    ],
)
def test_a_program_on_2_processes_gives_the_losses_of_one(name, alone):
    assert losses(on_ranks(name)) == pytest.approx(alone[:4], abs=TOLERANCE)


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_deepspeed_zero_1_2_and_3_give_the_losses_of_one_process(stage, alone):
    assert losses(on_ranks("sharding/zero.py", stage)) == pytest.approx(alone[:4], abs=TOLERANCE)


def test_hsdp_on_2_nodes_of_2_gives_the_losses_of_one_process_and_holds_half_of_the_parameters(alone):
    said = on_ranks("sharding/hsdp.py", 2, processes=4)
    assert losses(said) == pytest.approx(alone[:4], abs=TOLERANCE)
    assert held_share(said) == pytest.approx(0.5, abs=0.01)


def test_zero_redundancy_optimizer_holds_half_of_the_state():
    held = int(re.search(r"rank 0 holds (\d+) numbers", on_ranks("sharding/zero1.py"))[1])
    assert held / (2 * 1_059_968) == pytest.approx(0.5, abs=0.02)


def test_a_model_that_from_pretrained_shards_on_2_processes_is_halved():
    assert held_share(on_ranks("sharding/load_sharded.py")) == pytest.approx(0.5, abs=0.01)


def test_a_checkpoint_of_2_processes_goes_on_with_4_and_then_with_1_as_if_nothing_had_been(alone, tmp_path):
    first, second = saved_on_two_then_four()
    shutil.copytree(second.folder, tmp_path / "next")
    checkpoints = tmp_path / "next" / "checkpoint"
    (checkpoints / "9").mkdir()  # of a run that was cut short
    (checkpoints / "9" / "__0_0.distcp").touch()
    third = run("sharding/checkpoint.py", torchrun=True, start=tmp_path / "next")
    found = [losses(each.ranks[0].stdout) for each in (first, second, third)]
    assert sum(found, []) == pytest.approx(alone[:6], abs=TOLERANCE)
    assert {path.parent.name for path in third.folder.glob("checkpoint/*/.metadata")} == {"2", "4", "6"}


def test_a_save_over_the_last_checkpoint_that_is_cut_short_leaves_one_that_loads_without_an_error(
    mesh, tmp_path, monkeypatch
):
    def cut_short(*args):
        raise KeyboardInterrupt

    dcp.save({"weight": torch.zeros(4)}, checkpoint_id=tmp_path)
    monkeypatch.setattr(dcp.FileSystemWriter, "finish", cut_short)
    with pytest.raises((KeyboardInterrupt, dcp.api.CheckpointException)):
        dcp.save({"weight": torch.ones(4)}, checkpoint_id=tmp_path)
    state = {"weight": torch.full((4,), 7.0)}
    dcp.load(state, checkpoint_id=tmp_path)
    assert state["weight"].tolist() == [1.0] * 4  # of the second save, by the metadata of the first


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_a_deepspeed_checkpoint_of_2_processes_goes_on_with_4_when_it_is_converted(stage, alone):
    first = run("sharding/zero_checkpoint.py", stage, processes=2, timeout=900)
    converted = run("sharding/to_universal.sh", start=first.folder)
    second = run("sharding/zero_checkpoint.py", stage, "universal", processes=4, start=converted.folder, timeout=900)
    assert losses(first.ranks[0].stdout + second.ranks[0].stdout) == pytest.approx(alone[:4], abs=TOLERANCE)


def test_only_zero_3_is_converted_without_the_missing_state():
    command = (FOLDER / "to_universal.sh").read_text().replace("--inject_missing_state", "")
    for stage in (2, 3):
        first = run("sharding/zero_checkpoint.py", stage, processes=2, timeout=900)
        said = subprocess.run(command.replace("python", sys.executable, 1), shell=True, cwd=first.folder, capture_output=True,
                              text=True)  # fmt: skip
        missing = "Required universal_checkpoint_info state is missing" in said.stderr
        assert (missing, bool(said.returncode)) == (stage == 2, stage == 2), said.stderr


def test_from_pretrained_loads_what_the_program_exported(alone):
    first, _ = saved_on_two_then_four()
    model = AutoModelForCausalLM.from_pretrained(first.folder / "exported")
    ids = torch.randint(0, 1000, (8, 64), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        loss = model(input_ids=ids, labels=ids).loss.item()
    assert loss == pytest.approx(alone[2], abs=TOLERANCE)


# Traps


def test_trainer_with_fsdp_on_a_cpu_is_silently_ddp():
    for number, rank in enumerate(run("sharding/trainer_fsdp.py", processes=2).ranks):
        assert f"rank {number}: DistributedDataParallel, sharded: False" in rank.stdout


def test_deepspeed_clips_at_1_unless_told_otherwise_and_ignores_a_misspelt_key():
    from deepspeed.runtime.config import get_gradient_clipping

    assert get_gradient_clipping({}) == 1.0
    assert get_gradient_clipping({"gradient_clipping": 0.0}) == 0.0
    assert get_gradient_clipping({"gradient_cliping": 0.0}) == 1.0


def test_an_empty_model_made_real_by_to_empty_has_wrong_buffers(mesh):
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(TINY)
    names = [name for name, _ in model.named_buffers()]
    assert "model.rotary_emb.inv_freq" in names
    assert not set(names) & set(model.state_dict())  # so no checkpoint brings them back


# FSDP2


def test_with_a_number_layers_are_gathered_by_all_ranks_in_forward_and_inside_small_groups_in_backward():
    program = Path(__file__).parent / "ranks" / "sharding.py"
    counted = run_ranks(program, processes=4, timeout=600).stdout[0].splitlines()
    assert "all-gather in groups of 4 x 4" in counted  # three layers and the root
    assert "all-gather in groups of 2 x 3" in counted  # the layers again


def test_shards_that_save_pretrained_wrote_become_one_checkpoint_in_one_process(tmp_path):
    AutoModelForCausalLM.from_config(TINY).save_pretrained(tmp_path / "model")
    run_ranks(Path(__file__).parent / "ranks" / "save_shards.py", timeout=600, folder=tmp_path)
    consolidate_distributed_checkpoint(tmp_path / "shards", tmp_path / "merged")
    TINY.save_pretrained(tmp_path / "merged")
    merged, whole = (AutoModelForCausalLM.from_pretrained(tmp_path / name).state_dict() for name in ("merged", "model"))
    assert merged.keys() == whole.keys()
    assert all(torch.equal(merged[name], whole[name]) for name in whole)


def test_checkpointing_in_fsdp_config_gives_wrong_gradients_with_dropout_and_the_argument_right_ones():
    said = run_ranks(Path(__file__).parent / "ranks" / "fsdp_dropout.py", timeout=600).stdout[0].splitlines()
    found = {tuple(line.split()[:2]): list(map(float, line.split()[2:])) for line in said}
    assert all(loss == 0 for loss, _ in found.values())  # the forward pass is the same, so nothing shows it
    assert found["0.1", "fsdp_config"][1] > 0.1
    for right in (("0.1", "argument"), ("0.0", "fsdp_config"), ("0.0", "argument")):
        assert found[right][1] < 1e-5, right


def test_under_fsdp2_pefts_wrapping_policy_wraps_no_layer_and_accelerates_own_wraps_each():
    said = run_ranks(Path(__file__).parent / "ranks" / "fsdp_lora.py", timeout=600).stdout[0]
    own, peft = re.findall(r"(\d) layers, ([\d.]+) of all weights", said)
    assert own[0] == "4" and float(own[1]) < 0.1
    assert peft[0] == "0" and float(peft[1]) > 0.9
    assert "with checkpointing: 'NoneType' object is not callable" in said


def test_fully_shard_sends_no_weights_so_replicas_of_other_seeds_stay_different():
    program = Path(__file__).parent / "ranks" / "hsdp_seeds.py"
    assert run_ranks(program, timeout=600).stdout[0].split() == ["different"]


def test_the_command_that_translates_to_fsdp2_drops_two_strategies_without_a_word():
    assert to_fsdp2.ARGUMENT_VALUE_MAPPING["fsdp_sharding_strategy"]["HYBRID_SHARD"] is True
    assert to_fsdp2.ARGUMENT_VALUE_MAPPING["fsdp_sharding_strategy"]["NO_SHARD"] is False


def test_what_the_root_alone_wraps_is_one_group(mesh):
    whole, layered = fully_shard(AutoModelForCausalLM.from_config(TINY), mesh=mesh), sharded(mesh)
    groups = [[m for m in model.modules() if hasattr(m, "unshard")] for model in (whole, layered)]
    assert [len(found) for found in groups] == [1, 1 + TINY.num_hidden_layers]


def test_parameters_become_dtensors_and_the_optimizers_state_too(mesh):
    model = sharded(mesh)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    backward(model)
    optimizer.step()
    assert all(isinstance(parameter, DTensor) for parameter in model.parameters())
    assert all(isinstance(state["exp_avg"], DTensor) for state in optimizer.state.values())


# Checkpoints


def test_dcp_to_torch_save_makes_one_file_of_it_without_a_process_group(mesh, tmp_path):
    model = sharded(mesh)
    dcp.save({"model": model.state_dict()}, checkpoint_id=tmp_path / "shards")
    dcp_to_torch_save(tmp_path / "shards", tmp_path / "one.pt")
    whole = AutoModelForCausalLM.from_config(TINY)
    whole.load_state_dict(torch.load(tmp_path / "one.pt")["model"])
    assert backward(whole) == pytest.approx(backward(model), abs=TOLERANCE)


def test_trainer_cannot_resume_a_model_that_was_sharded_at_load_time(tmp_path):
    model = AutoModelForCausalLM.from_config(TINY)
    model._is_distributed_loading_by_transformers = True  # what from_pretrained leaves with a DistributedConfig

    def trainer(**options):
        return Trainer(model=model, args=TrainingArguments(str(tmp_path), use_cpu=True, report_to="none", **options))

    with pytest.raises(ValueError, match="Resuming is not supported for models sharded at load time"):
        trainer()
    assert trainer(save_only_model=True) and trainer(save_strategy="no")


# Trainer's configuration


def test_trainer_knows_every_key_of_the_fsdp_configuration():
    tree = ast.parse((FOLDER / "trainer_fsdp.py").read_text())
    (written,) = (word.value for word in ast.walk(tree) if isinstance(word, ast.keyword) and word.arg == "fsdp_config")
    config = ast.literal_eval(written) | {"reshard_after_forward": False, "cpu_offload": True}  # not the defaults
    arguments = TrainingArguments("out", use_cpu=True, fsdp=True, fsdp_config=dict(config))
    config["fsdp_version"] = config.pop("version")
    assert config.items() <= arguments.fsdp_plugin_args.items()


def test_trainer_reduces_in_the_last_micro_batch_alone_unless_sync_each_batch(tmp_path, monkeypatch):
    on_the_page = re.search(r"accelerator_config=(\{.*\})`", PAGE.with_name("sharding-trainer.md").read_text())[1]
    waited, no_sync = [], Accelerator.no_sync
    monkeypatch.setattr(Accelerator, "no_sync", lambda self, model: waited.append(1) or no_sync(self, model))
    for config, expected in ((None, 1), (ast.literal_eval(on_the_page), 0)):
        GradientState._reset_state()  # one for the whole process, so maybe of another test
        arguments = TrainingArguments(
            str(tmp_path), max_steps=1, gradient_accumulation_steps=2, per_device_train_batch_size=1, use_cpu=True,
            save_strategy="no", report_to="none", disable_tqdm=True, accelerator_config=config,
        )  # fmt: skip
        model = AutoModelForCausalLM.from_config(TINY)
        trainer = Trainer(model=model, args=arguments, train_dataset=2 * [{"input_ids": IDS[0], "labels": IDS[0]}])
        trainer.train()
        assert len(waited) == expected
        waited.clear()
        GradientState._reset_state()


def test_trainer_keeps_parts_of_gradients_for_a_replicated_model_that_was_sharded_at_load_time():
    model = mock.Mock()
    model.config.distributed_config.dp_replicate_size = 2
    with Trainer._defer_fsdp_gradient_reduction(SimpleNamespace(model=model)):
        model.set_requires_all_reduce.assert_called_once_with(False)  # what each group has summed stays in parts
        model.set_requires_gradient_sync.assert_not_called()


def test_trainer_warns_of_its_own_checkpointing_beside_fsdp(caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    TrainingArguments("out", use_cpu=True, fsdp=True, activation_checkpointing=True)
    assert "redundant AllGather in the backward pass" in caplog.text


def test_distributed_config_replicates_across_nodes():
    from transformers.distributed import DistributedConfig

    config = DistributedConfig(fsdp_size=8, dp_replicate_size=4)
    assert (config.fsdp_size, config.dp_size) == (8, 32)


def test_parallelism_config_of_accelerate_replicates_across_nodes():
    from accelerate import ParallelismConfig

    layout = ParallelismConfig(dp_replicate_size=4, dp_shard_size=8)
    assert layout.total_size == 32
    assert layout.fsdp_dim_names == ["dp_replicate", "dp_shard_cp"]


# DeepSpeed's configuration


def test_deepspeed_sends_16_bit_gradients_in_bf16():
    from deepspeed import DeepSpeedEngine

    engine = SimpleNamespace(_config=SimpleNamespace(communication_data_type=None))
    engine.fp16_enabled, engine.bfloat16_enabled = lambda: False, lambda: True
    assert DeepSpeedEngine.communication_data_type.fget(engine) == torch.bfloat16


@pytest.mark.parametrize("name", ["zero3.json", "zero3_hpz.json", "zero3_experts.json"])
def test_the_deepspeed_files_are_strict_json_and_deepspeed_accepts_them(name):
    from deepspeed.runtime.zero.config import DeepSpeedZeroConfig

    config = json.loads((FOLDER / name).read_text())
    assert DeepSpeedZeroConfig(**config["zero_optimization"]).stage == 3


def test_trainer_fills_every_auto():
    from transformers.integrations.deepspeed import HfTrainerDeepSpeedConfig

    model = AutoModelForCausalLM.from_config(TINY)  # before the configuration, as long as there is no launcher
    config = HfTrainerDeepSpeedConfig(json.loads((FOLDER / "zero3.json").read_text()))
    arguments = TrainingArguments("out", use_cpu=True, gradient_accumulation_steps=4, max_steps=4)
    config.trainer_config_process(arguments)
    config.trainer_config_finalize(arguments, model, num_training_steps=4)
    assert "auto" not in json.dumps(config.config)
    assert config.config["gradient_clipping"] == arguments.max_grad_norm == 1.0


# What readers ask


def test_deepspeed_gathers_the_blocks_of_three_mixtures_whole_and_of_others_those_that_are_named():
    from deepspeed.runtime.zero.config import DeepSpeedZeroConfig
    from transformers.models.deepseek_v3 import modeling_deepseek_v3

    known = DeepSpeedZeroConfig(stage=3).leaf_module.classes
    assert {name.rpartition(".")[2] for name in known} >= {
        "MixtralSparseMoeBlock", "Qwen2MoeSparseMoeBlock", "Qwen3MoeSparseMoeBlock",
    }  # fmt: skip
    config = json.loads((FOLDER / "zero3_experts.json").read_text())
    (named,) = DeepSpeedZeroConfig(**config["zero_optimization"]).leaf_module.classes
    assert hasattr(modeling_deepseek_v3, named)


def test_a_checkpoint_written_from_a_thread_is_that_of_dcp_save(mesh, tmp_path):
    model = torch.nn.Linear(4, 4)
    fully_shard(model, mesh=mesh)
    saved = dcp.async_save({"model": model.state_dict()}, checkpoint_id=str(tmp_path / "thread"))
    saved.result()
    state = {"model": {name: torch.zeros_like(value) for name, value in model.state_dict().items()}}
    dcp.load(state, checkpoint_id=str(tmp_path / "thread"))
    assert all(
        value.full_tensor().equal(model.state_dict()[name].full_tensor()) for name, value in state["model"].items()
    )


def test_a_full_checkpoint_of_accelerate_holds_the_adapter_alone(mesh):
    from accelerate.utils.fsdp_utils import _get_model_state_dict
    from peft import LoraConfig, get_peft_model
    from torch.distributed.checkpoint.state_dict import StateDictOptions

    model = get_peft_model(AutoModelForCausalLM.from_config(TINY), LoraConfig(target_modules="all-linear"))
    fully_shard(model, mesh=mesh)
    saved = _get_model_state_dict(model, adapter_only=True, sd_options=StateDictOptions(full_state_dict=True))
    assert saved and all("lora_" in name and not isinstance(value, DTensor) for name, value in saved.items())


def test_the_average_of_shards_is_the_average_of_the_whole_weights():
    ran = run("sharding/ema.py", processes=2)
    held, of = map(int, re.search(r"held here (\d+) of (\d+)", ran.ranks[0].stdout).groups())
    assert held / of == pytest.approx(0.5, abs=0.01)

    set_seed(0)
    averaged = AutoModelForCausalLM.from_pretrained(ran.folder / "averaged")
    model = AutoModelForCausalLM.from_config(averaged.config).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    average = [parameter.detach().clone() for parameter in model.parameters()]
    ids = torch.randint(0, model.config.vocab_size, (8, 64), generator=torch.Generator().manual_seed(1))
    for _ in range(4):
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        for kept, parameter in zip(average, model.parameters(), strict=True):
            kept.copy_(0.9 * kept + 0.1 * parameter.detach())
    pairs = [*zip(averaged.parameters(), average, model.parameters(), strict=True)]
    assert all(torch.allclose(found, expected, atol=1e-4) for found, expected, _ in pairs)
    assert any(not torch.allclose(found, trained, atol=1e-4) for found, _, trained in pairs)

    printed = float(re.search(r"loss with the average ([\d.]+)", ran.ranks[0].stdout)[1])
    with torch.no_grad():
        assert averaged.eval()(input_ids=ids, labels=ids).loss.item() == pytest.approx(printed, abs=1e-4)


def test_a_forward_pass_without_a_backward_pass_leaves_the_root_gathered(mesh):
    model = sharded(mesh)
    with torch.no_grad():
        model(input_ids=IDS)
    assert not isinstance(model.lm_head.weight, DTensor)
    assert isinstance(model.model.layers[0].mlp.up_proj.weight, DTensor)
    model.reshard()
    assert isinstance(model.lm_head.weight, DTensor)


def test_transformers_and_accelerate_free_the_embedding_after_its_use(monkeypatch):
    model, units = AutoModelForCausalLM.from_config(TINY), []
    assert model._fsdp_plan["model.embed_tokens"] == "free_full_weight"
    monkeypatch.setattr("torch.distributed.fsdp.fully_shard", lambda unit, **given: units.append((unit, given)))
    state = SimpleNamespace(fsdp_plugin=FullyShardedDataParallelPlugin(fsdp_version=2, auto_wrap_policy="transformer_based_wrap"))
    accelerator = SimpleNamespace(state=state, mixed_precision="no", is_main_process=True, device=torch.device("cpu"))
    fsdp_utils.fsdp2_prepare_model(accelerator, model)
    (given,) = (given for unit, given in units if unit is model.get_input_embeddings())
    assert given["reshard_after_forward"]


def test_the_norm_of_clipping_is_a_dtensor_whose_item_is_the_number(mesh):
    model = sharded(mesh)
    backward(model)
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    assert isinstance(norm, DTensor)
    assert norm.item() == norm.full_tensor().item() > 0


def test_fp16_trains_with_pytorchs_own_scaler(mesh):
    model = AutoModelForCausalLM.from_config(TINY)
    policy = MixedPrecisionPolicy(param_dtype=torch.float16, reduce_dtype=torch.float32)
    for module in [*model.model.layers, model]:
        fully_shard(module, mesh=mesh, mp_policy=policy)
    optimizer, scaler, seen = torch.optim.AdamW(model.parameters(), lr=1e-2), torch.amp.GradScaler("cpu"), []
    for _ in range(3):
        loss = model(input_ids=IDS, labels=IDS).loss
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        seen.append(loss.item())
    assert seen[2] < seen[1] < seen[0]


def operators_of_an_update(mesh, layers, **form):
    """How many operators torch.optim.AdamW calls for a sharded model, and for how many tensors."""

    class Counts(TorchDispatchMode):
        def __torch_dispatch__(self, function, kinds, args=(), kwargs=None):
            self.count = getattr(self, "count", 0) + 1
            return function(*args, **(kwargs or {}))

    model = torch.nn.Sequential(*[torch.nn.Linear(4, 4) for _ in range(layers)])
    optimizer = torch.optim.AdamW(fully_shard(model, mesh=mesh).parameters(), **form)
    for _ in range(2):  # the first step makes the state
        model(torch.ones(1, 4)).sum().backward()
        with Counts() as counts:
            optimizer.step()
    return counts.count, 2 * layers


def test_fused_adamw_updates_all_dtensors_at_once_and_the_default_one_by_one(mesh):
    fused = {operators_of_an_update(mesh, layers, fused=True)[0] for layers in (2, 8)}
    assert len(fused) == 1 and fused.pop() <= 4
    for layers in (2, 8):
        count, tensors = operators_of_an_update(mesh, layers)
        assert count >= 10 * tensors


def test_every_program_of_the_pages_that_shards_has_fused_adamw():
    texts = {path: path.read_text() for path in (ROOT / "snippets").rglob("*.py")}
    sharded_ones = {path.name: text for path, text in texts.items() if re.search("fully_shard|DistributedConfig", text)}
    lines = [line for text in sharded_ones.values() for line in text.splitlines() if "optim.AdamW" in line]
    assert len(lines) >= 7
    assert [line for line in lines if "fused=True" not in line] == []


def test_8_bit_adamw_of_bitsandbytes_does_not_know_dtensors(mesh):
    bitsandbytes = pytest.importorskip("bitsandbytes", reason="2026-11: it has no wheel for every machine")
    large = torch.nn.Linear(128, 128)
    optimizer = bitsandbytes.optim.AdamW8bit(fully_shard(large, mesh=mesh).parameters())
    large(torch.ones(1, 128)).sum().backward()
    with pytest.raises(RuntimeError, match="got mixed torch.Tensor and DTensor"):
        optimizer.step()
    assert "adamw_torch_8bit" in [*OptimizerNames]


def test_layers_that_are_compiled_before_they_are_sharded_make_fewer_graphs_than_the_whole_model(mesh):
    def graphs(compile_layers):
        torch._dynamo.reset()
        found = []

        def backend(graph, _):
            found.append(graph)
            return graph.forward

        set_seed(0)
        model = AutoModelForCausalLM.from_config(TINY)
        for layer in model.model.layers:
            if compile_layers:
                layer.compile(backend=backend)
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        backward(model if compile_layers else torch.compile(model, backend=backend))
        return len(found)

    layers = graphs(compile_layers=True)
    assert 1 <= layers <= TINY.num_hidden_layers
    assert graphs(compile_layers=False) > layers  # it breaks at every layer


def test_only_forward_gathers_until_another_method_is_registered(mesh):
    class Encoder(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 4)

        def encode(self, rows):
            return self.layer(rows)

    with pytest.raises(RuntimeError, match="got mixed torch.Tensor and DTensor"):
        fully_shard(Encoder(), mesh=mesh).encode(torch.ones(1, 4))
    model = fully_shard(Encoder(), mesh=mesh)
    register_fsdp_forward_method(model, "encode")
    assert model.encode(torch.ones(1, 4)).shape == (1, 4)


def test_generate_waits_for_the_last_rank(mesh):
    assert is_fsdp_managed_module(sharded(mesh))


def test_accelerate_translates_the_strategies_of_fsdp1_as_the_table_does():
    mapping = to_fsdp2.ARGUMENT_VALUE_MAPPING["fsdp_sharding_strategy"]
    rows = re.findall(
        r"^\| `(FULL_SHARD|SHARD_GRAD_OP)` \| `reshard_after_forward=(True|False)` \|$", PAGE.read_text(), re.M
    )
    assert len(rows) == 2
    assert all(mapping[name] is (value == "True") for name, value in rows)


def test_fsdp2_reads_the_weights_that_fsdp1_saved(mesh, tmp_path):
    set_seed(0)
    model = AutoModelForCausalLM.from_config(TINY)
    old = FullyShardedDataParallel(model, device_id=torch.device("cpu"), use_orig_params=True)
    with FullyShardedDataParallel.state_dict_type(old, StateDictType.SHARDED_STATE_DICT):
        dcp.save({"model": old.state_dict()}, checkpoint_id=tmp_path)
    new = sharded(mesh)
    torch.nn.init.zeros_(new.model.layers[0].mlp.up_proj.weight.to_local())
    state = {"model": new.state_dict()}
    dcp.load(state, checkpoint_id=tmp_path)
    new.load_state_dict(state["model"])
    assert new(input_ids=IDS, labels=IDS).loss.item() == old(input_ids=IDS, labels=IDS).loss.item()


def test_trainer_sums_gradients_in_bf16_unless_told_otherwise():
    arguments = TrainingArguments("out", use_cpu=True, fsdp=True)
    plugin = FullyShardedDataParallelPlugin(**arguments.fsdp_plugin_args)
    plugin.set_mixed_precision("bf16")
    assert {plugin.mixed_precision_policy.reduce_dtype, plugin.mixed_precision_policy.output_dtype} == {torch.bfloat16}
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    plugin = FullyShardedDataParallelPlugin(**arguments.fsdp_plugin_args | {"mixed_precision_policy": policy})
    plugin.set_mixed_precision("bf16")
    assert plugin.mixed_precision_policy == policy


@pytest.mark.parametrize(("kind", "written"), [("SHARDED_STATE_DICT", 0), ("FULL_STATE_DICT", 1)])
def test_save_model_writes_nothing_while_the_state_is_sharded(kind, written):
    plugin = FullyShardedDataParallelPlugin(fsdp_version=2, state_dict_type="SHARDED_STATE_DICT")
    plugin.set_state_dict_type(kind)
    trainer = mock.Mock(is_fsdp_enabled=True, is_fsdp_xla_v1_enabled=False)
    trainer.accelerator.state.fsdp_plugin = plugin
    trainer.args.push_to_hub = False
    Trainer.save_model(trainer, "out")
    assert trainer._save.call_count == written
    assert TrainingArguments("out", use_cpu=True, fsdp=True).fsdp_plugin_args["state_dict_type"] == "FULL_STATE_DICT"


def test_from_pretrained_gathers_in_bf16_and_sums_in_fp32_if_asked():
    from transformers.distributed import DistributedConfig
    from transformers.distributed.fsdp import _get_fsdp_policy_kwargs

    assert not _get_fsdp_policy_kwargs(DistributedConfig(fsdp_size=2))
    policy = _get_fsdp_policy_kwargs(DistributedConfig(fsdp_size=2, fsdp_mixed_precision=True))["mp_policy"]
    assert (policy.param_dtype, policy.reduce_dtype) == (torch.bfloat16, torch.float32)


def test_accelerate_takes_the_two_backends_that_trainer_is_given(monkeypatch):
    backend = re.search(r'`ddp_backend="([^"]*)"`', PAGE.read_text())[1]
    assert "ddp_backend" in inspect.signature(TrainingArguments).parameters
    monkeypatch.setenv("LOCAL_RANK", "0")
    monkeypatch.setattr("accelerate.state.is_hpu_available", lambda **options: False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert PartialState._prepare_backend(None, backend=backend)[0] == backend


def test_the_sizes_and_names_of_deepspeeds_configuration_are_those_of_the_page():
    from deepspeed.runtime.zero.config import DeepSpeedZeroConfig

    config = DeepSpeedZeroConfig(stage=3)
    assert (config.reduce_bucket_size, config.max_live_parameters) == (5e8, 1e9)
    offload = {"device": "cpu", "super_offload": True}
    assert DeepSpeedZeroConfig(stage=3, offload_optimizer=offload).offload_optimizer.super_offload
    disk = {"device": "nvme", "nvme_path": "/local"}
    assert DeepSpeedZeroConfig(stage=3, offload_optimizer=disk).offload_optimizer.device == "nvme"
    auto = ("reduce_bucket_size", "stage3_prefetch_bucket_size", "stage3_param_persistence_threshold")
    model = AutoModelForCausalLM.from_config(TINY)
    filled = HfTrainerDeepSpeedConfig({"zero_optimization": {"stage": 3} | dict.fromkeys(auto, "auto")})
    filled.trainer_config_finalize(TrainingArguments("out", use_cpu=True), model, num_training_steps=4)
    assert all(isinstance(filled.config["zero_optimization"][name], int) for name in auto)
