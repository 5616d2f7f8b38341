"""docs/training/adapters-and-offload.md, docs/training/adapters-vision-mixtures.md, docs/training/qlora.md and docs/training/offload.md, sentence by sentence. Its figures are tested where they are made, in the notebook."""

import contextlib
import copy
import importlib.util
import inspect
import json
import re
import tempfile
import types
import warnings
from pathlib import Path
from unittest import mock

import peft
import pytest
import torch
import transformers
from bitsandbytes.functional import has_avx512bf16
from bitsandbytes.nn import Linear4bit
from peft import LoraConfig, PeftModel, get_peft_model, prepare_model_for_kbit_training
from peft.optimizers import create_loraplus_optimizer
from programs import SNIPPETS, run, shown_message
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch._subclasses.fake_tensor import DynamicOutputShapeException
from torchao.quantization import Int4WeightOnlyConfig, Int8WeightOnlyConfig
from transformers import (
    AutoModelForCausalLM,
    BitsAndBytesConfig,
    CompressedTensorsConfig,
    FalconMambaConfig,
    FineGrainedFP8Config,
    GgufConfig,
    GPT2Config,
    GPT2LMHeadModel,
    GptOssConfig,
    LlamaConfig,
    LlamaForCausalLM,
    Mxfp4Config,
    PrinterCallback,
    Qwen3_5TextConfig,
    Qwen3MoeConfig,
    Trainer,
    TrainingArguments,
    set_seed,
)
from transformers.quantizers.auto import AUTO_QUANTIZER_MAPPING
from transformers.trainer_utils import validate_quantization_for_training

from dryrun.tracing.tracing import fake, training_step
from dryrun.tracing.tracker import Tracker

FOLDER = SNIPPETS / "adapters_and_offload"
SMALL = {
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "vocab_size": 500,
}
NF4 = BitsAndBytesConfig(
    load_in_4bit=True,
    bnb_4bit_quant_type="nf4",
    bnb_4bit_use_double_quant=True,
    bnb_4bit_compute_dtype=torch.bfloat16,
)
IDS = torch.arange(32).view(2, 16)


def error(name):
    kind, _, message = shown_message("adapters_and_offload", name).partition(": ")
    return kind, message


def raised(caught):
    return type(caught.value).__name__, str(caught.value)


def warned(caught):
    return [(warning.category.__name__, str(warning.message)) for warning in caught]


def llama(dtype=torch.float32):
    set_seed(0)
    return AutoModelForCausalLM.from_config(LlamaConfig(**SMALL), dtype=dtype)


def with_adapters(model, **options):
    set_seed(0)
    adapters = LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM", init_lora_weights=False)
    return get_peft_model(model, adapters, **options)


def step(model):
    loss = model.train()(input_ids=IDS, labels=IDS).loss
    loss.backward()
    return loss


def gradients(model):
    step(model)
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.requires_grad])


def trained(model, **arguments):
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder, max_steps=1, use_cpu=True, disable_tqdm=True, save_strategy="no", **arguments
        )
        rows = [{"input_ids": row, "labels": row} for row in IDS]
        trainer = Trainer(model=model, args=arguments, train_dataset=rows)
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    return trainer.model


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkpoint")
    llama(torch.bfloat16).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def moe():
    return Qwen3MoeConfig(
        **SMALL, num_key_value_heads=2, num_experts=8, num_experts_per_tok=2, moe_intermediate_size=64, head_dim=64
    )


def quantized(checkpoint):
    return AutoModelForCausalLM.from_pretrained(checkpoint, quantization_config=NF4, dtype=torch.bfloat16)


# The programs


def test_the_mixture_of_experts_program_prints_total_active_and_peak():
    assert run("adapters_and_offload/mixture_of_experts.py").stdout.splitlines()[-3:] == [
        "30.53 billion parameters, 3.35 billion active per token",
        "full fine-tuning in bf16 with AdamW: peak 227 GiB",
        "frozen weights in bf16: 57 GiB",
    ]


# LoRA


def test_lora_freezes_the_weights_and_keeps_gradients_and_state_of_the_adapters_alone():
    model = with_adapters(llama())
    step(model)
    trainable = [p for p in model.parameters() if p.requires_grad]
    assert all("lora_" in name for name, p in model.named_parameters() if p.requires_grad)
    assert [p for p in model.parameters() if p.grad is not None] == trainable


def test_all_linear_leaves_the_output_layer_out():
    names = with_adapters(llama()).targeted_module_names
    assert len(names) == 7 * SMALL["num_hidden_layers"]
    assert not any("lm_head" in name for name in names)


def test_the_traced_bytes_of_a_lora_step_are_those_of_real_tensors():
    config = LlamaConfig(**SMALL, use_cache=False)

    def peak(model):
        trainable = [p for p in model.parameters() if p.requires_grad]
        optimizer = torch.optim.AdamW(trainable, fused=True)
        for p in trainable:
            p.grad = torch.empty_like(p)
        optimizer.step()
        optimizer.zero_grad()
        ids = torch.zeros(2, 64, dtype=torch.long)
        with Tracker(model, optimizer, [ids]) as tracker, torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(input_ids=ids, labels=ids).loss
            loss.backward()
            optimizer.step()
        return tracker.peak

    def build():
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16, attn_implementation="eager")
        return with_adapters(model)

    with torch.device("meta"):
        model = build()
    with fake():
        traced = peak(model.to_empty(device="cpu").train())
    assert traced == pytest.approx(peak(build().train()), rel=0.01)


def test_what_the_adapters_add_is_scaled_by_alpha_over_the_rank():
    linear = with_adapters(llama()).base_model.model.model.layers[0].mlp.up_proj
    x, (a, b) = torch.randn(1, SMALL["hidden_size"]), (linear.lora_A["default"], linear.lora_B["default"])
    scale = LoraConfig().lora_alpha / 4  # the rank that `with_adapters` asks for
    assert scale != 1
    assert torch.allclose(linear(x), linear.base_layer(x) + scale * b(a(x)), atol=1e-5)


def test_peft_keeps_the_adapters_of_a_bf16_model_in_fp32_unless_told_otherwise():
    def dtypes(**options):
        model = with_adapters(llama(torch.bfloat16), **options)
        return {p.dtype for p in model.parameters() if p.requires_grad}

    assert dtypes() == {torch.float32}
    assert dtypes(autocast_adapter_dtype=False) == {torch.bfloat16}


def test_trainer_makes_checkpointing_work_with_adapters_with_either_kind_of_reentrancy():
    for kind in (True, False):
        model = with_adapters(llama())
        before = [p.detach().clone() for p in model.parameters() if p.requires_grad]
        trained(model, activation_checkpointing=True, activation_checkpointing_kwargs={"use_reentrant": kind})
        after = [p for p in model.parameters() if p.requires_grad]
        assert any(not torch.equal(a, b) for a, b in zip(before, after))


def test_without_inputs_that_require_gradients_reentrant_checkpointing_warns_and_fails():
    model = with_adapters(llama())
    model.activation_checkpointing_enable({"use_reentrant": True})
    model.disable_input_require_grads()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with pytest.raises(RuntimeError) as failed:
            step(model)
    assert error("no_input_requires_grad") in warned(caught)
    assert raised(failed) == error("no_grad_fn")


def test_the_default_checkpointing_needs_no_such_inputs():
    model = with_adapters(llama())
    expected = gradients(model)
    again = with_adapters(llama())
    again.activation_checkpointing_enable()
    again.disable_input_require_grads()
    assert torch.allclose(gradients(again), expected, atol=1e-6)


def test_a_model_with_every_weight_frozen_fails_with_the_same_message():
    model = llama().requires_grad_(False)
    with pytest.raises(RuntimeError) as failed:
        step(model)
    assert raised(failed) == error("no_grad_fn")


def test_get_peft_model_warns_of_a_name_that_transformers_deprecates():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with_adapters(llama())
    assert error("is_gradient_checkpointing") in warned(caught)


def test_a_target_that_the_model_does_not_have_raises():
    with pytest.raises(Exception) as failed:
        get_peft_model(llama(), LoraConfig(target_modules=["query"], task_type="CAUSAL_LM"))
    assert raised(failed) == error("no_target")


# QLoRA


def test_4_bit_loading_quantizes_the_linear_layers_and_not_embedding_output_layer_and_norms(checkpoint):
    model = quantized(checkpoint)
    four_bit = {name for name, module in model.named_modules() if isinstance(module, Linear4bit)}
    assert len(four_bit) == 7 * SMALL["num_hidden_layers"]
    assert {
        p.dtype for name, p in model.named_parameters() if "norm" in name or "embed" in name or "lm_head" in name
    } == {torch.bfloat16}


def test_one_8_bit_scale_per_64_weights_and_one_fp32_scale_per_256_of_them(checkpoint):
    state = quantized(checkpoint).model.layers[0].mlp.up_proj.weight.quant_state
    weights = state.shape.numel()
    assert (state.absmax.dtype, state.absmax.numel()) == (torch.uint8, weights // 64)
    assert (state.state2.absmax.dtype, state.state2.absmax.numel()) == (torch.float32, weights // 64 // 256)


def test_the_defaults_of_4_bit_loading_are_fp4_fp32_compute_and_no_double_quantization():
    config = BitsAndBytesConfig(load_in_4bit=True)
    assert config.bnb_4bit_quant_type == "fp4"
    assert config.bnb_4bit_compute_dtype == torch.float32
    assert not config.bnb_4bit_use_double_quant


def test_prepare_model_for_kbit_training_casts_what_is_not_quantized_to_fp32(checkpoint):
    model = prepare_model_for_kbit_training(quantized(checkpoint))
    assert {p.dtype for p in model.parameters()} == {torch.uint8, torch.float32}
    assert model.lm_head.weight.dtype == torch.float32


def test_adapters_can_be_trained_on_a_quantized_model_without_prepare_model_for_kbit_training(checkpoint):
    model = with_adapters(quantized(checkpoint))
    trained(model, bf16=True, activation_checkpointing=True)
    assert all(p.isfinite().all() for p in model.parameters() if p.requires_grad)


def test_trainer_refuses_a_quantized_model_without_adapters(checkpoint):
    with pytest.raises(ValueError) as failed:
        trained(quantized(checkpoint))
    assert raised(failed) == error("purely_quantized")


def trainable(method, **settings):
    """Whether Trainer lets adapters be trained on a checkpoint of that format: transformers' own answer."""
    quantizer = types.SimpleNamespace(quantization_config=types.SimpleNamespace(**settings), **settings)
    return AUTO_QUANTIZER_MAPPING[method].is_trainable.fget(quantizer)


def test_which_quantized_checkpoints_trainer_trains_adapters_on():
    yes = ("bitsandbytes_4bit", "bitsandbytes_8bit", "gptq", "hqq", "quanto", "fp8")
    no = ("mxfp4", "gguf", "nvfp4", "auto-round", "higgs", "fbgemm_fp8")
    assert all(trainable(method) is True for method in yes)
    assert all(trainable(method) is False for method in no)
    assert trainable("compressed-tensors", use_fp8_kernel=False) and not trainable("compressed-tensors", use_fp8_kernel=True)
    assert trainable("torchao", quant_type=Int8WeightOnlyConfig()) and not trainable("torchao", quant_type=Int4WeightOnlyConfig())
    for config in (FineGrainedFP8Config, CompressedTensorsConfig, Mxfp4Config, GgufConfig):
        assert "dequantize" in inspect.signature(config).parameters


def test_trainer_refuses_adapters_on_a_format_that_it_does_not_train():
    model = get_peft_model(AutoModelForCausalLM.from_config(LlamaConfig(**SMALL)), LoraConfig(task_type="CAUSAL_LM"))
    model.is_quantized, model.hf_quantizer = True, types.SimpleNamespace(
        is_trainable=False, quantization_config=types.SimpleNamespace(quant_method="gguf")
    )
    with pytest.raises(ValueError) as failed:
        validate_quantization_for_training(model)
    assert raised(failed) == error("no_training")


def test_peft_wants_gptqmodel_7(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    monkeypatch.setattr(peft.import_utils.importlib_metadata, "version", {"gptqmodel": "6.9.9"}.__getitem__)
    with pytest.raises(ImportError, match=r"6\.9\.9.*`7\.0\.0` or higher"):
        peft.import_utils.is_gptqmodel_available.__wrapped__()


def test_after_an_evaluation_on_a_cpu_with_avx512_bf16_the_gradients_of_a_4_bit_model_are_wrong(checkpoint):
    expected = gradients(with_adapters(quantized(checkpoint)))
    model = with_adapters(quantized(checkpoint))
    with torch.no_grad():
        model.eval()(input_ids=IDS)
    kind, message = error("gemv_4bit")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        wrong = not torch.allclose(gradients(model), expected, rtol=0.2, atol=0.01)
    assert wrong == has_avx512bf16()
    if wrong:
        assert any(name == kind and text.startswith(message) for name, text in warned(caught))


def test_the_switch_on_the_layers_keeps_the_gradients_right(checkpoint):
    expected = gradients(with_adapters(quantized(checkpoint)))
    model = with_adapters(quantized(checkpoint))
    for module in model.modules():
        if isinstance(module, Linear4bit):
            module.support_avx512bf16_for_cpu = False
    with torch.no_grad():
        model.eval()(input_ids=IDS)
    assert torch.allclose(gradients(model), expected, rtol=0.01, atol=1e-3)


# Offload


@pytest.mark.skipif(torch.cuda.is_available(), reason="the message is that of a machine without a GPU")
def test_offloaded_activations_need_an_accelerator():
    with pytest.raises(RuntimeError) as failed:
        trained(llama(), activation_checkpointing=True, activation_checkpointing_kwargs={"offload": True})
    assert raised(failed) == error("pin_memory")


@pytest.mark.skipif(torch.cuda.is_available(), reason="the message is that of a machine without a GPU")
def test_cpu_offload_optimizer_needs_a_gpu():
    from torchao.optim import CPUOffloadOptimizer

    with pytest.raises(AssertionError) as failed:
        CPUOffloadOptimizer(llama().parameters(), torch.optim.AdamW, offload_gradients=True, lr=1e-5)
    assert raised(failed) == error("cpu_offload")


def test_deepspeed_accepts_the_configuration_and_refuses_a_key_that_it_does_not_know():
    from deepspeed.runtime.zero.config import DeepSpeedZeroConfig, OffloadDeviceEnum

    config = json.loads((FOLDER / "zero_offload.json").read_text())
    zero = DeepSpeedZeroConfig(**config["zero_optimization"])
    assert zero.stage == 2
    assert zero.offload_optimizer.device == OffloadDeviceEnum.cpu
    with pytest.raises(ValueError):
        DeepSpeedZeroConfig(**config["zero_optimization"], offload_optimizers={})


def test_trainer_fills_every_auto_of_the_deepspeed_configuration():
    from transformers.integrations.deepspeed import HfTrainerDeepSpeedConfig

    config = HfTrainerDeepSpeedConfig(json.loads((FOLDER / "zero_offload.json").read_text()))
    arguments = TrainingArguments("out", use_cpu=True, bf16=True, gradient_accumulation_steps=16, max_steps=4)
    config.trainer_config_process(arguments)
    config.trainer_config_finalize(arguments, llama(), num_training_steps=4)
    assert "auto" not in json.dumps(config.config)
    assert config.config["gradient_accumulation_steps"] == 16


def test_deepspeed_estimates_2_bytes_a_parameter_on_the_gpu_and_24_on_the_host():
    from deepspeed.runtime.zero.stage_1_and_2 import estimate_zero2_model_states_mem_needs

    assert estimate_zero2_model_states_mem_needs(1000, cpu_offload=True) == (24_000, 2_000)


def test_deepspeed_builds_its_cpu_adam_at_the_first_start():
    from deepspeed.git_version_info import installed_ops
    from deepspeed.ops.op_builder import CPUAdamBuilder

    assert not installed_ops["cpu_adam"]
    assert CPUAdamBuilder().sources()[0].endswith("cpu_adam.cpp")


def test_deepspeed_refuses_torchs_adamw_in_your_own_loop():
    from deepspeed.runtime.engine import DeepSpeedEngine

    # As deepspeed.initialize() leaves the engine for this file. All of initialize() would compile C++ first.
    engine = types.SimpleNamespace(
        _supported_optims=lambda: [torch.optim.Optimizer],
        zero_use_cpu_optimizer=lambda: True,
        zero_force_ds_cpu_optimizer=lambda: True,
    )
    optimizer = torch.optim.AdamW(llama().parameters())
    with pytest.raises(Exception) as failed:
        DeepSpeedEngine._configure_optimizer(engine, optimizer, None)
    assert raised(failed) == error("zero_offload")


# Mixture-of-experts


def test_4_bit_loading_leaves_the_experts_in_16_bits(moe, tmp_path):
    AutoModelForCausalLM.from_config(moe, dtype=torch.bfloat16).save_pretrained(tmp_path)
    model = quantized(tmp_path)
    assert isinstance(model.model.layers[0].self_attn.q_proj, Linear4bit)
    assert {p.dtype for name, p in model.named_parameters() if ".experts." in name} == {torch.bfloat16}


def test_all_linear_leaves_out_the_experts_of_gpt_oss_and_target_parameters_reaches_them():
    def adapted(**options):
        sizes = {"num_key_value_heads": 2, "num_local_experts": 2, "num_experts_per_tok": 1, "head_dim": 64}
        model = AutoModelForCausalLM.from_config(GptOssConfig(**SMALL, **sizes))
        return get_peft_model(model, LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM", **options))

    def reached(model):
        return any(".experts." in name for name, p in model.named_parameters() if p.requires_grad)

    assert not reached(adapted())
    assert reached(adapted(target_parameters=["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]))


def test_the_eager_experts_cannot_be_traced_because_their_shapes_depend_on_the_tokens(moe):
    moe = copy.deepcopy(moe)
    moe._experts_implementation = "eager"
    with pytest.raises(DynamicOutputShapeException):
        training_step(AutoModelForCausalLM, moe, 1, 16)


def test_memory_of_the_default_experts_does_not_depend_on_which_expert_gets_a_token(moe):
    """A real step whose tokens all go to two experts, and one whose tokens are spread."""

    def peak(one_token):
        set_seed(0)
        config = copy.deepcopy(moe)
        config.use_cache = False
        model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").train()
        ids = torch.zeros(2, 64, dtype=torch.long) if one_token else torch.randint(0, 500, (2, 64))
        optimizer = torch.optim.SGD(model.parameters())
        with Tracker(model, optimizer, [ids]) as tracker:
            torch.nn.functional.cross_entropy(model(input_ids=ids).logits.flatten(0, 1), ids.flatten())
        return tracker.peak

    assert peak(True) == pytest.approx(peak(False), rel=0.01)


def test_rank_stabilized_lora_divides_by_the_root_of_the_rank():
    scales = []
    for stabilized in (False, True):
        config = LoraConfig(r=16, lora_alpha=32, target_modules=["0"], use_rslora=stabilized)
        scales.append(get_peft_model(torch.nn.Sequential(torch.nn.Linear(8, 8)), config).base_model.model[0].scaling)
    assert [scale["default"] for scale in scales] == [32 / 16, 32 / 4]


def test_dora_trains_a_length_for_each_row():
    config = LoraConfig(r=2, target_modules=["0"], use_dora=True)
    model = get_peft_model(torch.nn.Sequential(torch.nn.Linear(8, 5)), config)
    lengths = [each for name, each in model.named_parameters() if "magnitude" in name]
    assert [tuple(each.shape) for each in lengths] == [(5,)] and lengths[0].requires_grad


# New tokens, loading, merging, second models


def adapted(model):
    return [name for name, parameter in model.named_parameters() if parameter.requires_grad]


def small(**more):
    return LlamaForCausalLM(LlamaConfig(**SMALL, **more))


def test_only_the_rows_of_new_tokens_move_and_the_file_stays_small():
    moved, size = run("adapters_and_offload/new_tokens.py").stdout.splitlines()[-2:]
    assert moved == "rows that moved: [1000, 1001]"
    assert int(size.split()[-1]) < 1002 * 64 * 4  # the embedding


def test_modules_to_save_keeps_the_whole_embedding_and_warns_that_a_tied_layer_parts():
    with pytest.warns(UserWarning, match="`ensure_weight_tying` is not set to True"):
        model = get_peft_model(
            small(tie_word_embeddings=True), LoraConfig(target_modules="all-linear", modules_to_save=["embed_tokens"])
        )
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        size = (Path(folder) / "adapter_model.safetensors").stat().st_size
    assert size > model.get_input_embeddings().weight.numel() * 4


def test_whole_copies_keep_the_dtype_of_the_model_while_adapters_become_fp32():
    settings = LoraConfig(target_modules="all-linear", modules_to_save=["embed_tokens", "lm_head"])
    model = get_peft_model(small().to(torch.bfloat16), settings)
    trained = {name: weight.dtype for name, weight in model.named_parameters() if weight.requires_grad}
    assert {dtype for name, dtype in trained.items() if "modules_to_save" in name} == {torch.bfloat16}
    assert {dtype for name, dtype in trained.items() if "lora_" in name} == {torch.float32}


@pytest.mark.parametrize("more", [{"rank_pattern": {"up_proj": 2}}, {"use_rslora": True}])
def test_merging_file_by_file_gives_the_weights_of_peft(more, tmp_path):
    base = small().to(torch.bfloat16)
    base.save_pretrained(tmp_path / "base", max_shard_size="200KB")
    assert len(list((tmp_path / "base").glob("*.safetensors"))) > 2
    model = get_peft_model(base, LoraConfig(r=4, lora_alpha=32, target_modules="all-linear", init_lora_weights=False, **more))
    model.save_pretrained(tmp_path / "adapter")
    made = run("adapters_and_offload/merge_by_file.py", "base", "adapter", "merged", start=tmp_path)
    merged = LlamaForCausalLM.from_pretrained(made.folder / "merged", dtype=torch.bfloat16).state_dict()
    expected = model.merge_and_unload().state_dict()
    for name, weight in expected.items():
        assert torch.allclose(merged[name].float(), weight.float(), atol=0.02, rtol=0.01), name
    assert any((merged[name] != weight).any() for name, weight in small().to(torch.bfloat16).state_dict().items())


def test_merging_file_by_file_stops_where_a_name_is_not_in_the_checkpoint(tmp_path):
    small().save_pretrained(tmp_path / "base")
    get_peft_model(small(), LoraConfig(target_modules="all-linear", modules_to_save=["lm_head"])).save_pretrained(
        tmp_path / "adapter"
    )
    made = run("adapters_and_offload/merge_by_file.py", "base", "adapter", "merged", start=tmp_path, check=False)
    assert made.returncode and "do not use merged" in made.stderr


@pytest.mark.parametrize("start", ["pissa", "olora"])
def test_merging_file_by_file_refuses_an_adapter_whose_start_changed_the_base(start, tmp_path):
    base = small()
    base.save_pretrained(tmp_path / "base")
    before = base.model.layers[0].mlp.up_proj.weight.clone()
    model = get_peft_model(base, LoraConfig(target_modules="all-linear", init_lora_weights=start))
    assert not torch.allclose(base.model.layers[0].mlp.up_proj.base_layer.weight, before, atol=1e-3)
    model.save_pretrained(tmp_path / "adapter")
    made = run("adapters_and_offload/merge_by_file.py", "base", "adapter", "merged", start=tmp_path, check=False)
    assert made.returncode and "take merge_and_unload" in made.stderr and not (made.folder / "merged").exists()


def test_merging_file_by_file_refuses_layers_that_store_the_transpose(tmp_path):
    base = GPT2LMHeadModel(GPT2Config(n_embd=32, n_layer=1, n_head=2, vocab_size=50))
    base.save_pretrained(tmp_path / "base")
    get_peft_model(base, LoraConfig(target_modules=["c_proj"])).save_pretrained(tmp_path / "adapter")
    made = run("adapters_and_offload/merge_by_file.py", "base", "adapter", "merged", start=tmp_path, check=False)
    assert made.returncode and "take merge_and_unload" in made.stderr


def test_merging_file_by_file_refuses_a_quantized_checkpoint(tmp_path):
    base = small()
    layer = base.model.layers[0].mlp.up_proj
    get_peft_model(small(), LoraConfig(target_modules="all-linear")).save_pretrained(tmp_path / "adapter")
    layer.weight = torch.nn.Parameter(layer.weight.detach().to(torch.float8_e4m3fn))
    base.save_pretrained(tmp_path / "base")
    made = run("adapters_and_offload/merge_by_file.py", "base", "adapter", "merged", start=tmp_path, check=False)
    assert made.returncode and "quantized checkpoint" in made.stderr


def test_the_first_layer_of_a_vision_tower_is_a_matrix_product():
    said = run("adapters_and_offload/patches_as_product.py").stdout
    assert float(said.split()[-1]) < 1e-4


def test_a_loaded_adapter_is_frozen_unless_is_trainable():
    trainable = [
        line for line in run("adapters_and_offload/load_adapter.py").stdout.splitlines() if "trainable" in line
    ]
    assert [line.startswith("trainable params: 0 ") for line in trainable] == [False, True]


def test_keys_that_fit_no_layer_leave_the_adapter_without_effect():
    model = get_peft_model(small(), LoraConfig(target_modules="all-linear"))
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.ones_(parameter)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        file = Path(folder) / "adapter_model.safetensors"
        save_file({name.replace("layers", "blocks"): weight for name, weight in load_file(file).items()}, file)
        base = small()
        with pytest.warns(UserWarning, match="Found missing adapter keys while loading the checkpoint"):
            loaded = PeftModel.from_pretrained(base, folder)
        with loaded.disable_adapter():
            without = loaded(IDS).logits
        assert torch.equal(loaded(IDS).logits, without)


def test_merging_into_4_bits_warns_as_the_page_shows_and_into_bf16_keeps_the_outputs():
    kind, message = error("merge_4bit")
    with tempfile.TemporaryDirectory() as folder:
        small().save_pretrained(folder)
        model = AutoModelForCausalLM.from_pretrained(folder, quantization_config=NF4)
    model = get_peft_model(model, LoraConfig(target_modules="all-linear", init_lora_weights=False))
    with pytest.warns(UserWarning, match="Merge lora module") as caught:
        model.merge_and_unload()
    assert (kind, message) in warned(caught)
    model = get_peft_model(small(), LoraConfig(target_modules="all-linear", init_lora_weights=False))
    expected = model(IDS).logits
    assert torch.allclose(model.merge_and_unload()(IDS).logits, expected, atol=1e-4)


def test_all_linear_reaches_the_vision_tower_and_exclude_modules_keeps_it_out():
    lines = run("adapters_and_offload/vision_language.py").stdout.splitlines()
    assert lines[-1] == "adapters in the vision tower: 0" and int(lines[-2].split()[-1]) > 0
    source = (FOLDER / "vision_language.py").read_text().replace(', exclude_modules=r".*visual.*"', "")
    names = {}
    exec(compile(source, "vision_language.py", "exec"), names)  # the program without the exclusion
    assert any("visual" in name for name in names["adapted"])


def test_all_linear_adapts_the_router_too_and_exclude_modules_does_not_keep_it_off():
    more = {"num_key_value_heads": 2, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64}
    for excluded in (None, r".*\.mlp\.gate"):
        model = AutoModelForCausalLM.from_config(Qwen3MoeConfig(**SMALL, **more))
        names = adapted(get_peft_model(model, LoraConfig(target_modules="all-linear", exclude_modules=excluded)))
        assert [name for name in names if ".experts." in name]
        assert [name for name in names if ".mlp.gate." in name]


@pytest.mark.parametrize("init", ["pissa", "olora"])
def test_pissa_and_olora_change_the_frozen_weights_and_can_be_converted(init, tmp_path):
    config = LlamaConfig(
        hidden_size=64, intermediate_size=128, num_hidden_layers=1, num_attention_heads=2, vocab_size=100
    )
    ids = torch.arange(16)[None]
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path / "base")

    def base():
        return AutoModelForCausalLM.from_pretrained(tmp_path / "base")

    weight = base().model.layers[0].mlp.up_proj.weight
    model = get_peft_model(base(), LoraConfig(r=4, init_lora_weights=init, target_modules="all-linear"))
    assert not torch.allclose(model.model.model.layers[0].mlp.up_proj.base_layer.weight, weight, atol=1e-3)
    model.peft_config["default"].init_lora_weights = True
    model.save_pretrained(tmp_path / "before")
    model.peft_config["default"].init_lora_weights = init
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.5)
    for _ in range(3):
        model(ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    wanted = model(ids).logits
    model.save_pretrained(tmp_path / "plain")
    model.save_pretrained(tmp_path / "converted", path_initial_model_for_weight_conversion=str(tmp_path / "before"))

    for folder, rank in (("plain", 4), ("converted", 8)):
        loaded = PeftModel.from_pretrained(base(), tmp_path / folder)
        assert loaded.peft_config["default"].r == rank
        assert torch.allclose(loaded(ids).logits, wanted, atol=1e-4)
    # What a server does that knows nothing of the initialization: the adapter on the original weights.
    settings = json.loads((tmp_path / "plain" / "adapter_config.json").read_text()) | {"init_lora_weights": True}
    (tmp_path / "plain" / "adapter_config.json").write_text(json.dumps(settings))
    assert not torch.allclose(PeftModel.from_pretrained(base(), tmp_path / "plain")(ids).logits, wanted, atol=1e-2)


def test_lora_plus_gives_b_a_higher_rate_than_a():
    config = LlamaConfig(
        hidden_size=64, intermediate_size=128, num_hidden_layers=1, num_attention_heads=2, vocab_size=100
    )
    model = get_peft_model(AutoModelForCausalLM.from_config(config), LoraConfig(r=4))
    optimizer = create_loraplus_optimizer(model, torch.optim.AdamW, lr=1e-4, loraplus_lr_ratio=16)
    names = {parameter: name for name, parameter in model.named_parameters()}
    rates = {
        group["lr"]: {names[one].split(".")[-3] for one in group["params"]}
        for group in optimizer.param_groups
        if group["params"]
    }
    assert rates == {1e-4: {"lora_A"}, 16e-4: {"lora_B"}}


def test_loftq_on_a_quantized_model_is_a_function_of_peft(tmp_path):
    small().save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="No bnb LoRA module found"):
        peft.replace_lora_weights_loftq(get_peft_model(small(), LoraConfig(r=4)), str(tmp_path / "model.safetensors"))


# Merging, several adapters, hybrid models


def test_a_merge_into_the_dequantized_weights_is_nearest_and_one_into_4_bits_farthest(tmp_path):
    set_seed(0)
    LlamaForCausalLM(LlamaConfig(**SMALL)).to(torch.bfloat16).save_pretrained(tmp_path / "base")

    def base(**arguments):
        return AutoModelForCausalLM.from_pretrained(tmp_path / "base", dtype=torch.bfloat16, **arguments)

    @torch.no_grad()
    def answers(model):
        return model.eval()(IDS).logits.float()

    model = get_peft_model(base(quantization_config=NF4), LoraConfig(target_modules="all-linear", init_lora_weights=False))
    model.save_pretrained(tmp_path / "adapter")
    trained = answers(model)

    def off(weights):
        merged = PeftModel.from_pretrained(weights, tmp_path / "adapter").merge_and_unload()
        return ((answers(merged) - trained).norm() / trained.norm()).item()

    dequantized = off(base(quantization_config=NF4).dequantize())
    assert 2 * dequantized < off(base()) < off(base(quantization_config=NF4))


def test_only_cat_gives_the_weighted_sum_of_two_adapters():
    said = run("adapters_and_offload/several_adapters.py").stdout
    off = {kind: float(value) for kind, value in re.findall(r"^(\w+) (\S+) off", said, re.MULTILINE)}
    assert off["cat"] < 1e-5 < 0.1 < off["svd"] < off["linear"]


def test_a_hybrid_has_adapters_in_each_layer_where_the_names_are_given():
    said = run("adapters_and_offload/hybrid.py").stdout
    assert "mamba.in_proj" in said and "layers with adapters: 2" in said


def test_heads_that_loading_drops_are_copied_beside_the_tuned_weights(tmp_path):
    torch.manual_seed(0)
    config = Qwen3_5TextConfig(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=4, num_attention_heads=2, head_dim=16,
        num_key_value_heads=1, linear_num_key_heads=2, linear_num_value_heads=2, linear_key_head_dim=8, linear_value_head_dim=8,
    )  # fmt: skip
    original, tuned = tmp_path / "original", tmp_path / "tuned"
    AutoModelForCausalLM.from_config(config).save_pretrained(original)
    weights = load_file(original / "model.safetensors")
    heads = {"mtp.norm.weight": torch.ones(32), "mtp.fc.weight": torch.randn(32, 64)}
    save_file(weights | heads, original / "model.safetensors", metadata={"format": "pt"})
    AutoModelForCausalLM.from_pretrained(original).save_pretrained(tuned)
    assert not heads.keys() & load_file(tuned / "model.safetensors").keys()
    said = run("adapters_and_offload/copy_heads.py", "original", "tuned", start=tmp_path)
    assert said.stdout.splitlines()[-1] == "2 weights of the heads copied"
    names = json.loads((said.folder / "tuned" / "model.safetensors.index.json").read_text())["weight_map"]
    assert names.keys() == weights.keys() | heads.keys()
    for name, file in names.items():
        with safe_open(said.folder / "tuned" / file, "pt") as kept:
            assert torch.equal(kept.get_tensor(name), (weights | heads)[name])


def test_the_loss_of_training_that_rounds_is_that_of_the_model_rounded_in_the_same_format_and_no_other():
    said = run("adapters_and_offload/quantization_aware.py").stdout
    training, saved, same, other = map(float, re.findall(r"^loss .* (\S+)$", said, re.MULTILINE))
    assert training == pytest.approx(same, abs=2e-4)
    assert abs(saved - same) > 1e-3
    assert other > same + 5e-3


@pytest.mark.parametrize("targets", ["all-linear", ["in_proj", "out_proj"]])
def test_peft_refuses_what_the_fused_kernel_of_mamba_reads_past_the_adapter(targets):
    small = FalconMambaConfig(vocab_size=64, hidden_size=32, num_hidden_layers=1, state_size=4)
    with pytest.raises(ValueError, match="'out_proj' is incompatible with Mamba"):
        get_peft_model(AutoModelForCausalLM.from_config(small), LoraConfig(target_modules=targets))


def test_a_target_that_fits_nothing_is_skipped_without_a_word():
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        get_peft_model(LlamaForCausalLM(LlamaConfig(**SMALL)), LoraConfig(target_modules=["q_proj", "no_such_layer"]))
    assert not [warning for warning in said if "no_such_layer" in str(warning.message)]


def test_adapters_on_experts_want_no_dropout():
    small = GptOssConfig(vocab_size=64, hidden_size=64, intermediate_size=64, num_hidden_layers=1, num_attention_heads=4,
                         num_key_value_heads=2, head_dim=16, num_local_experts=4)  # fmt: skip
    experts = LoraConfig(target_parameters=["mlp.experts.down_proj"], lora_dropout=0.05)
    with pytest.raises(ValueError, match="lora.ParamWrapper does not work with lora_dropout != 0"):
        get_peft_model(AutoModelForCausalLM.from_config(small), experts)


@pytest.mark.parametrize("version, loaded", [("3", True), ("2_5", False)])
def test_the_fused_patches_of_transformers_load_their_weights_for_qwen3_vl_and_not_for_qwen2_5_vl(version, loaded, tmp_path):
    text = {**SMALL, "num_key_value_heads": 2, "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [8, 12, 12]}}
    vision = {"depth": 2, "hidden_size": 32, "intermediate_size": 64, "num_heads": 2, "out_hidden_size": 128}
    if version == "3":
        vision["deepstack_visual_indexes"] = [0, 1]
    config = getattr(transformers, f"Qwen{version}{'VL' if version == '3' else '_VL'}Config")
    model_class = getattr(transformers, f"Qwen{version}{'VL' if version == '3' else '_VL'}ForConditionalGeneration")
    whole = model_class(config(text_config=text, vision_config=vision))
    whole.save_pretrained(tmp_path)
    fused = model_class.from_pretrained(tmp_path, fusion_config={"patch_embeddings": True})
    before, after = whole.model.visual.patch_embed, fused.model.visual.patch_embed
    patches = torch.randn(4, before.proj.weight[0].numel())
    assert torch.allclose(before(patches), after(patches), atol=1e-3) == loaded


@pytest.mark.parametrize("offload_gradients", [False, True])
def test_torchaos_optimizer_on_the_host_updates_by_copies_of_the_gradients_so_these_must_be_clipped(offload_gradients, monkeypatch):
    """Its own code, on a machine without streams and pinned memory."""
    from torchao.optim import cpu_offload

    monkeypatch.setattr(cpu_offload, "get_available_devices", lambda: ["cuda"])
    for name, stand_in in (("Stream", mock.Mock()), ("current_stream", mock.Mock()), ("stream", lambda _: contextlib.nullcontext())):
        monkeypatch.setattr(torch.cuda, name, stand_in)
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda *_: None)
    empty_like = torch.empty_like
    monkeypatch.setattr(torch, "empty_like", lambda *args, pin_memory=False, **more: empty_like(*args, **more))
    model = torch.nn.Linear(128, 128, bias=False)
    optimizer = cpu_offload.CPUOffloadOptimizer(model.parameters(), torch.optim.SGD, offload_gradients=offload_gradients, lr=1.0)
    assert model.weight.numel() >= optimizer.minimal_size == 4096

    def update(clipped):
        before = model.weight.detach().clone()
        model(torch.ones(1, 128)).sum().backward()
        torch.nn.utils.clip_grad_norm_(clipped, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return (model.weight - before).norm().item()

    assert update(model.parameters()) == pytest.approx(128, rel=1e-3)  # not clipped, and no error
    assert update(optimizer.param_d2h_map.values()) == pytest.approx(1, rel=1e-3)
