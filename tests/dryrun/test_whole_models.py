"""Counts, memory and KV cache of models whose layers differ, and of what a shallow model does not show."""

import json

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    DeepseekV3Config,
    Gemma3Config,
    Gemma3TextConfig,
    JambaConfig,
    LlamaConfig,
)

from dryrun.cost.setting import Setting, klass_of
from dryrun.models import config_file, models
from dryrun.step.workload import Workload
from dryrun.tracing import step_trace
from dryrun.tracing.caches import of_tokens

SMALL = dict(hidden_size=64, intermediate_size=128, num_attention_heads=4, num_key_value_heads=2, vocab_size=500)
MIXTURE = dict(n_routed_experts=4, num_experts_per_tok=2, n_shared_experts=1, moe_intermediate_size=32, n_group=1, topk_group=1)
LATENT = dict(kv_lora_rank=16, q_lora_rank=32, qk_rope_head_dim=8, qk_nope_head_dim=16, v_head_dim=16)
DEEPSEEK = DeepseekV3Config(**SMALL | {"num_key_value_heads": 4}, **MIXTURE, **LATENT, num_hidden_layers=7, first_k_dense_replace=3)
GEMMA = Gemma3TextConfig(**SMALL, num_hidden_layers=12, head_dim=16, sliding_window=32)
JAMBA = JambaConfig(**SMALL, num_hidden_layers=8, num_experts=4, num_experts_per_tok=2, use_mamba_kernels=False)


def on_meta(config):
    with torch.device("meta"):
        return sum(p.numel() for p in AutoModelForCausalLM.from_config(config).parameters())


def text_of(config):
    return json.dumps(config.to_dict() | {"model_type": config.model_type}, default=str)


@pytest.mark.parametrize("config", [DEEPSEEK, GEMMA, JAMBA], ids=lambda config: config.model_type)
def test_a_model_whose_layers_differ_has_the_parameters_that_transformers_gives(config):
    assert step_trace.run(Workload(text_of(config), 1, 16)).parameters == on_meta(config)


@pytest.mark.parametrize("vocabulary, length, checkpointing", [(20_000, 256, 0), pytest.param(300, 64, 1, marks=pytest.mark.nightly)])
def test_the_memory_of_a_deep_model_is_that_of_all_its_layers_where_its_peak_moves(vocabulary, length, checkpointing):
    """With logits as large as a shallow model's layers, the peak of a part of the step moves as the model grows. In the second model it
    has moved by the fourth layer: a line through two and four layers would give gradients that no weights have."""
    config = LlamaConfig(**SMALL | {"vocab_size": vocabulary}, num_hidden_layers=24)
    job = Workload(text_of(config), 1, length, checkpointing=checkpointing)
    deep, whole = step_trace.run(job).memory, step_trace._run(job, *step_trace.config_of(job.model, job.length), 24).memory
    assert [peak for peak, _ in deep.parts] == [pytest.approx(peak, rel=0.002) for peak, _ in whole.parts]
    weights = whole.peak_by_category["parameters"]
    assert all(part.get("gradients", 0) <= 1.001 * weights for _, part in deep.parts)


def test_the_text_part_of_a_model_with_images_is_traced_and_the_rest_is_named():
    config = Gemma3Config(text_config=GEMMA.to_dict())
    text, left_out = config_file.language_model(config)
    assert left_out == "vision" and isinstance(text, Gemma3TextConfig)
    assert step_trace.run(Workload(text_of(config), 1, 16)).parameters == on_meta(GEMMA)


@pytest.mark.parametrize(
    ("config", "each", "windowed"),
    [
        (DEEPSEEK, 7 * 2 * (16 + 8), 0),  # one compressed vector and the part with positions
        (GEMMA, 2 * 2 * 2 * 2 * 16, 10 * 2 * 2 * 2 * 16),  # every sixth layer keeps all tokens
        (JAMBA, 2 * 2 * 2 * 16, 0),  # one of eight layers has attention
    ],
    ids=lambda value: getattr(value, "model_type", ""),
)
def test_the_kv_cache_is_what_the_layers_keep(config, each, windowed):
    assert of_tokens(config, config.num_hidden_layers)[:2] == (each, windowed)


def test_a_mixture_is_one_by_name_and_by_its_file():
    for model in ("qwen3-30b-a3b", text_of(DEEPSEEK)):
        assert models.is_mixture(model)
        assert klass_of(Workload(model, 1, 16), Setting(gpu="h100-sxm5")) == "mixture of experts"
    assert not models.is_mixture("llama3-8b")
