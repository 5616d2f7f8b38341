"""docs/training/sharding-messages.md, entry by entry: each message is raised, and its fix clears it."""

import ctypes.util
import functools
import json
import subprocess
import sys
from unittest import mock

import pytest
import torch
import torch.distributed.checkpoint as dcp
from accelerate import Accelerator
from accelerate.utils import DynamoBackend, FullyShardedDataParallelPlugin
from accelerate.utils.fsdp_utils import fsdp2_prepare_auto_wrap_policy
from peft import LoraConfig, get_peft_model
from programs import run, shown_message
from shards import IDS, TINY, backward, message_of, raised, sharded
from torch.distributed.fsdp import CPUOffloadPolicy, FullyShardedDataParallel, MixedPrecisionPolicy, fully_shard
from torch.optim.swa_utils import AveragedModel
from transformers import AutoModelForCausalLM, LlamaConfig, Trainer, TrainingArguments, set_seed

pytestmark = pytest.mark.usefixtures("forget_deepspeed")


def error(name):
    return message_of("sharding_messages", name)


@pytest.mark.skipif(not ctypes.util.find_library("stdc++"), reason="2026-11: the words are those of GNU's library")
def test_the_message_at_the_end_of_a_program_is_that_of_cpp():
    library = ctypes.util.find_library("stdc++")
    program = f"import ctypes; ctypes.CDLL({library!r})._ZSt9terminatev()"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ended.stderr.strip() == shown_message("sharding_messages", "teardown")


def test_an_optimizer_made_before_sharding_trains_nothing_and_says_nothing(mesh):
    set_seed(0)
    model = AutoModelForCausalLM.from_config(TINY)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    fully_shard(model, mesh=mesh)
    seen = []
    for _ in range(3):
        seen.append(backward(model))
        optimizer.step()
        optimizer.zero_grad()
    assert seen[0] == seen[1] == seen[2]


@pytest.mark.parametrize("options", [{}, {"foreach": False}])
def test_the_default_adamw_takes_tensors_beside_dtensors(mesh, options):
    model = sharded(mesh, root=False)
    backward(model)
    torch.optim.AdamW(model.parameters(), **options).step()


def test_fused_adamw_refuses_tensors_beside_dtensors(mesh):
    model = sharded(mesh, root=False)
    backward(model)
    with pytest.raises(RuntimeError) as failed:
        torch.optim.AdamW(model.parameters(), fused=True).step()
    assert raised(failed) == error("mixed_optimizer")


def test_clipping_refuses_tensors_beside_dtensors(mesh):
    model = sharded(mesh, root=False)
    backward(model)
    with pytest.raises(RuntimeError) as failed:
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    assert raised(failed) == error("mixed_clipping")


def test_a_call_that_goes_round_the_root_finds_its_weights_sharded(mesh):
    with pytest.raises(RuntimeError) as failed:
        sharded(mesh).model(input_ids=IDS)
    assert raised(failed) == error("inner_module")


def test_ranks_that_do_not_divide_into_nodes_are_refused():
    refused = run("sharding/hsdp.py", 3, processes=4, check=False)
    assert refused.returncode and ": ".join(error("nodes")) in refused.stderr


def test_a_deepspeed_checkpoint_is_refused_by_another_number_of_processes():
    first = run("sharding/zero_checkpoint.py", 2, processes=2, timeout=900)
    refused = run("sharding/zero_checkpoint.py", 2, "as-it-is", processes=4, start=first.folder, check=False, timeout=900)
    assert refused.returncode and ": ".join(error("world_size")) in refused.stderr


def test_an_adapter_that_was_saved_empty_does_not_load():
    config = LoraConfig(target_modules=["q_proj"], layers_to_transform=[0], task_type="CAUSAL_LM")
    model = get_peft_model(AutoModelForCausalLM.from_config(TINY), config)
    saved = dict.fromkeys((name for name in model.state_dict() if "lora_A" in name), torch.empty(0))
    with pytest.raises(RuntimeError) as failed:
        model.load_state_dict(saved, strict=False)
    assert raised(failed) == error("size_zero")


def layers_wrapped(model, **options):
    """Which layers of a Llama get a unit of their own from Accelerate."""
    plugin = FullyShardedDataParallelPlugin(fsdp_version=2, auto_wrap_policy="transformer_based_wrap", **options)
    policy = fsdp2_prepare_auto_wrap_policy(plugin, model)
    return [policy(layer) for layer in model.model.layers]


def test_trainer_wraps_the_layers_that_a_model_names_and_none_where_it_names_none():
    model = AutoModelForCausalLM.from_config(TINY)
    assert all(layers_wrapped(model))
    model._no_split_modules = None
    assert not any(layers_wrapped(model))
    assert all(layers_wrapped(model, transformer_cls_names_to_wrap=["LlamaDecoderLayer"]))


def test_the_name_of_another_models_layer_is_refused():
    with pytest.raises(ValueError) as failed:
        layers_wrapped(AutoModelForCausalLM.from_config(TINY), transformer_cls_names_to_wrap=["MistralDecoderLayer"])
    assert raised(failed) == error("layer_class")


@pytest.mark.skipif(torch.cuda.is_available(), reason="2026-11: the message is that of a machine without a GPU")
def test_pinned_offload_needs_an_accelerator(mesh):
    with pytest.raises(RuntimeError) as failed:
        fully_shard(AutoModelForCausalLM.from_config(TINY), mesh=mesh, offload_policy=CPUOffloadPolicy())
    assert raised(failed) == error("offload")
    policy = CPUOffloadPolicy(pin_memory=False)
    assert fully_shard(AutoModelForCausalLM.from_config(TINY), mesh=mesh, offload_policy=policy)


def test_a_sharded_checkpoint_is_a_folder_which_torch_load_refuses_and_whose_files_it_misreads(
    mesh, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    dcp.save({"model": sharded(mesh).state_dict()}, checkpoint_id="checkpoint/2")
    with pytest.raises(IsADirectoryError) as failed:
        torch.load("checkpoint/2")
    assert raised(failed) == error("torch_load")
    assert isinstance(torch.load("checkpoint/2/__0_0.distcp"), torch.Tensor)  # the first of many tensors, and no error


def test_zero_redundancy_optimizer_wants_its_state_gathered_before_it_is_saved(mesh):
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = AutoModelForCausalLM.from_config(TINY)
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=1e-3)
    backward(model)
    optimizer.step()
    with pytest.raises(RuntimeError) as failed:
        optimizer.state_dict()
    assert raised(failed) == error("consolidate")
    optimizer.consolidate_state_dict(to=0)
    assert optimizer.state_dict()["state"]


def test_fsdp_in_one_process_is_refused(tmp_path):
    arguments = TrainingArguments(str(tmp_path), use_cpu=True, fsdp=True)
    with pytest.raises(ValueError) as failed:
        Trainer(model=AutoModelForCausalLM.from_config(TINY), args=arguments)
    assert raised(failed) == error("fsdp_alone")


def test_an_unknown_key_inside_zero_optimization_is_refused():
    from deepspeed.runtime.zero.config import DeepSpeedZeroConfig

    with pytest.raises(ValueError) as failed:
        DeepSpeedZeroConfig(stage=3, stage3_prefetch=1)
    assert ": ".join(raised(failed)).startswith(": ".join(error("unknown_key")))


def test_batch_sizes_that_do_not_multiply_are_refused(monkeypatch):
    from deepspeed.runtime.config import DeepSpeedConfig

    monkeypatch.setenv("WORLD_SIZE", "1")
    sizes = {"train_batch_size": 16, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4}
    with pytest.raises(AssertionError) as failed:
        DeepSpeedConfig(sizes)
    assert raised(failed) == error("batch")
    del sizes["train_batch_size"]
    assert DeepSpeedConfig(sizes).train_batch_size == 2 * 4 * 1


def test_a_trailing_comma_is_refused_by_trainer(tmp_path):
    path = tmp_path / "zero3.json"
    path.write_text('{\n  "zero_optimization": {"stage": 3},\n  "train_batch_size": "auto",\n}\n')
    with pytest.raises(json.JSONDecodeError) as failed:
        TrainingArguments(str(tmp_path), use_cpu=True, deepspeed=str(path))
    kind, message = error("trailing_comma")
    assert (f"json.decoder.{type(failed.value).__name__}", str(failed.value)) == (kind, message)


def test_deepspeed_itself_reads_a_trailing_comma_and_a_comment(tmp_path, monkeypatch):
    from deepspeed.runtime.config import DeepSpeedConfig

    monkeypatch.setenv("WORLD_SIZE", "1")
    path = tmp_path / "zero3.json"
    path.write_text('{\n  # a comment\n  "train_batch_size": 2,\n}\n')
    assert DeepSpeedConfig(str(path)).train_batch_size == 2


def test_a_micro_batch_that_differs_from_trainers_is_refused():
    from transformers.integrations.deepspeed import HfTrainerDeepSpeedConfig

    model = AutoModelForCausalLM.from_config(TINY)
    config = HfTrainerDeepSpeedConfig({"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 3}})
    arguments = TrainingArguments("out", use_cpu=True, per_device_train_batch_size=2, max_steps=4)
    config.trainer_config_process(arguments)
    with pytest.raises(ValueError) as failed:
        config.trainer_config_finalize(arguments, model, num_training_steps=4)
    assert raised(failed) == error("mismatch")


def test_bf16_and_fp32_weights_in_one_layer_are_refused(mesh):
    layer = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4).bfloat16())
    fully_shard(layer, mesh=mesh, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16))
    with pytest.raises(AssertionError, match="FSDP expects uniform original parameter dtype"):
        layer(torch.ones(1, 4))


def test_averaged_model_copies_what_fully_shard_does_not_let_be_copied(mesh):
    with pytest.raises(AssertionError) as caught:
        AveragedModel(sharded(mesh))
    assert raised(caught) == error("averaged_model")


def tied(mesh, *units):
    """Embedding and output layer are one tensor, and `units` are sharded before the root."""
    config = LlamaConfig(**{**TINY.to_dict(), "tie_word_embeddings": True})
    model = AutoModelForCausalLM.from_config(config)
    parts = {"embedding": model.model.embed_tokens, "output": model.lm_head}
    for unit in units:
        fully_shard([parts[name] for name in unit], mesh=mesh)
    return fully_shard(model, mesh=mesh)


def test_one_tensor_in_two_units_is_refused_and_in_one_unit_or_in_the_root_it_trains(mesh):
    with pytest.raises(ValueError) as failed:
        backward(tied(mesh, ["embedding"]))
    assert raised(failed) == error("tied")
    assert backward(tied(mesh, ["embedding", "output"])) and backward(tied(mesh))


def test_zero_3_refuses_no_sync_and_an_embedding_refuses_an_empty_weight():
    from deepspeed import DeepSpeedEngine

    engine = mock.Mock()
    engine.zero_optimization_stage.return_value = 3
    with pytest.raises(AssertionError) as failed, DeepSpeedEngine.no_sync(engine):
        pass
    assert raised(failed) == error("no_sync")
    assert hasattr(DeepSpeedEngine, "coalesce_grad_reduction")
    with pytest.raises(RuntimeError) as failed:
        torch.nn.functional.embedding(IDS, torch.empty(0))
    assert raised(failed) == error("weight_2d")


def test_one_configuration_that_is_tied_and_two_tensors_end_in_the_message_with_its_fix(monkeypatch):
    """While it shards, Accelerate ties by the configuration, as `tie` does here."""

    def tie(accelerator, model):
        model.lm_head.weight = model.model.embed_tokens.weight
        return model

    accelerator = mock.Mock(_models=[], _prepare_one=lambda part, **options: part)
    accelerator._get_named_parameters = functools.partial(Accelerator._get_named_parameters, accelerator)
    accelerator.state.fsdp_plugin.activation_checkpointing = False
    accelerator.state.dynamo_plugin.backend = DynamoBackend.NO
    monkeypatch.setattr("accelerate.accelerator.fsdp2_prepare_model", tie)
    with pytest.raises(ValueError, match="FSDP2 mapping failed") as failed:
        Accelerator._prepare_fsdp2(accelerator, AutoModelForCausalLM.from_config(TINY))
    assert "Set `model.config.tie_word_embeddings = False` after loading" in str(failed.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda layer: layer.requires_grad_(False), "Must flatten tensors with uniform `requires_grad`"),
        (lambda layer: layer.bfloat16(), "Must flatten tensors with uniform dtype"),
    ],
)
def test_parameters_of_two_kinds_in_one_unit_are_refused_by_fsdp1(mesh, change, words):
    layer = torch.nn.Sequential(torch.nn.Linear(4, 4), change(torch.nn.Linear(4, 4)))
    with pytest.raises(ValueError) as failed:
        FullyShardedDataParallel(layer, device_id=torch.device("cpu"))
    assert words in str(failed.value)


def test_frozen_and_trained_parameters_share_a_unit_of_fsdp2(mesh):
    layer = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4).requires_grad_(False))
    assert fully_shard(layer, mesh=mesh)(torch.ones(1, 4)).requires_grad


def test_deepspeed_prints_a_changed_order_only_if_it_is_asked_to():
    from deepspeed.runtime.zero.config import DeepSpeedZeroConfig

    assert not DeepSpeedZeroConfig(stage=3).log_trace_cache_warnings
