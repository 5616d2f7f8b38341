"""What a sequence keeps, of every kind of layer: as the model's own code fills its cache, or refused by name, and never nothing."""

import json

import pytest
import torch
import transformers
from transformers import configuration_utils
from transformers.cache_utils import DYNAMIC_LAYER_TYPE_MAPPING

from dryrun import Cluster, Generation, predict
from dryrun.answer.inference import Served
from dryrun.models import models
from dryrun.step.workload import Traced
from dryrun.tracing import caches, step_trace

SMALL = {"hidden_size": 64, "num_attention_heads": 4, "vocab_size": 100, "intermediate_size": 32, "max_position_embeddings": 4096}
MIXTURE = {"moe_intermediate_size": 16, "num_experts_per_tok": 2}
LATENT = {"kv_lora_rank": 24, "q_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16, "n_routed_experts": 4, "n_group": 1,
          "topk_group": 1, "n_shared_experts": 1, "first_k_dense_replace": 1}  # fmt: skip
INDEXER = {"index_n_heads": 2, "index_head_dim": 16, "index_topk": 8}
TINY = {
    "GptOssForCausalLM": {"num_hidden_layers": 4, "num_key_value_heads": 2, "head_dim": 16, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 512},
    "DeepseekV3ForCausalLM": {"num_hidden_layers": 3, "num_key_value_heads": 4, **LATENT, **MIXTURE},
    "DeepseekV32ForCausalLM": {"num_hidden_layers": 3, "num_key_value_heads": 4, **LATENT, **INDEXER, **MIXTURE},
    "GlmMoeDsaForCausalLM": {"num_hidden_layers": 4, "num_key_value_heads": 4, "indexer_types": ["full", "full", "shared", "full"], **LATENT, **INDEXER, **MIXTURE},
    "MiniMaxM3VLForCausalLM": {"num_hidden_layers": 3, "num_key_value_heads": 2, "head_dim": 16, "num_local_experts": 4, "num_experts_per_tok": 2,
                               "dense_intermediate_size": 32, "shared_intermediate_size": 16, "rotary_dim": 8, "index_n_heads": 2, "index_head_dim": 8,
                               "layer_types": ["full_attention", "minimax_m3_sparse", "minimax_m3_sparse"], "mlp_layer_types": ["dense", "sparse", "sparse"]},
    "MiMoV2FlashForCausalLM": {"num_hidden_layers": 4, "num_key_value_heads": 2, "head_dim": 24, "v_head_dim": 16, "swa_num_key_value_heads": 4,
                               "swa_num_attention_heads": 4, "swa_head_dim": 24, "swa_v_head_dim": 16, "sliding_window": 512, "n_routed_experts": 4,
                               "layer_types": ["full_attention", "sliding_attention", "sliding_attention", "full_attention"], **MIXTURE},
    "Gemma4ForCausalLM": {"num_hidden_layers": 6, "num_key_value_heads": 1, "head_dim": 16, "global_head_dim": 32, "num_kv_shared_layers": 2,
                          "sliding_window": 512, "hidden_size_per_layer_input": 16, "vocab_size_per_layer_input": 100,
                          "layer_types": ["sliding_attention", "full_attention"] * 3},
    "Qwen3_5ForCausalLM": {"num_hidden_layers": 4, "num_key_value_heads": 2, "head_dim": 16, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
                           "linear_key_head_dim": 16, "linear_value_head_dim": 16,
                           "layer_types": ["linear_attention", "linear_attention", "linear_attention", "full_attention"]},
    "NemotronHForCausalLM": {"num_hidden_layers": 4, "num_key_value_heads": 2, "head_dim": 16, "mamba_num_heads": 4, "mamba_head_dim": 16, "ssm_state_size": 16,
                             "n_groups": 2, "hybrid_override_pattern": "M*-M", "chunk_size": 16},
    "Lfm2ForCausalLM": {"num_hidden_layers": 3, "num_key_value_heads": 2, "layer_types": ["conv", "full_attention", "conv"]},
    "Llama4ForCausalLM": {"num_hidden_layers": 4, "num_key_value_heads": 2, "head_dim": 16, "attention_chunk_size": 512, "num_local_experts": 2,
                          "intermediate_size_mlp": 32, "interleave_moe_layer_step": 2},
}  # fmt: skip


def tiny(name):
    model_class = getattr(transformers, name)
    return model_class, model_class.config_class(**{**SMALL, **TINY[name]}, pad_token_id=0)


def held(model_class, config, tokens):
    """Bytes in the cache of a model with real weights."""
    torch.manual_seed(0)
    config.use_cache = True
    model = model_class._from_config(config, dtype=torch.bfloat16, attn_implementation="eager").eval()
    with torch.no_grad():
        made = model(input_ids=torch.zeros(1, tokens, dtype=torch.long), use_cache=True)
    layers = made.past_key_values.layers
    return sum({id(one): one.nbytes for layer in layers for one in caches._tensors(vars(layer).values())}.values())


@pytest.mark.parametrize("name", TINY)
def test_a_cache_holds_what_real_tensors_hold(name):
    model_class, config = tiny(name)
    found = Traced(**step_trace.of_cache(model_class, config))
    for tokens in (24, 96):
        assert found.cache(tokens) == held(model_class, config, tokens), tokens


COMPRESSED = {"num_hidden_layers": 4, "num_key_value_heads": 1, "head_dim": 32, "q_lora_rank": 32, "o_lora_rank": 16, "o_groups": 2, "qk_rope_head_dim": 8,
              "num_local_experts": 4, "n_routed_experts": 4, "sliding_window": 8, **INDEXER, **MIXTURE,
              "layer_types": ["sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention", "compressed_sparse_attention"],
              "compress_rates": {"compressed_sparse_attention": 4, "heavily_compressed_attention": 32}}  # fmt: skip


def test_compressed_attention_keeps_a_window_and_an_entry_of_each_few_tokens():
    """Sums by hand: one vector of 32 in 16 bits serves as key and value, and transformers keeps it twice in the layer that has a window alone."""
    config = transformers.DeepseekV4Config(**SMALL, **COMPRESSED)
    found = caches.kept(transformers.DeepseekV4ForCausalLM, config, 4)
    assert (found.keys, found.window_keys, found.window) == (0, 5 * 2 * 32, 8)
    assert found.shared == 2 * (2 * 32 + 2 * 16) // 4 + 2 * 32 // 32  # of two layers with an indexer, and of one without
    tokens = 256
    real = held(transformers.DeepseekV4ForCausalLM, config, tokens)
    assert Traced(**step_trace.of_cache(transformers.DeepseekV4ForCausalLM, config)).cache(tokens) - real == found.window_keys  # transformers keeps the window less one token


def test_an_indexer_that_layers_share_keeps_its_keys_once():
    each, shared = (caches.kept(*tiny(name), TINY[name]["num_hidden_layers"]) for name in ("DeepseekV32ForCausalLM", "GlmMoeDsaForCausalLM"))
    assert each.shared == 3 * 2 * 16 and shared.shared == 3 * 2 * 16  # three of its four layers have one
    assert (each.keys, shared.keys) == (3 * 2 * (24 + 8), 4 * 2 * (24 + 8))


def test_values_may_have_another_width_and_windows_other_heads():
    found = caches.kept(*tiny("MiMoV2FlashForCausalLM"), 4)
    assert (found.keys, found.heads) == (2 * 2 * 2 * (24 + 16), 2)
    assert (found.window_keys, found.window_heads) == (2 * 2 * 4 * (24 + 16), 4)


def test_layers_that_borrow_the_keys_of_others_keep_none():
    found = caches.kept(*tiny("Gemma4ForCausalLM"), 6)
    assert found.keys == 2 * 2 * 2 * 32 and found.window_keys == 2 * 2 * 2 * 16  # of two layers each


@pytest.mark.parametrize("kind", [*configuration_utils.ALLOWED_LAYER_TYPES, *configuration_utils._LEGACY_LAYER_TYPE_REMAP.values(),
                                  *(kind for kind in DYNAMIC_LAYER_TYPE_MAPPING if kind != "dummy")])  # fmt: skip
def test_every_kind_of_layer_that_transformers_has_is_known_or_refused_with_its_reason(kind):
    if kind in caches.KNOWN:
        caches.check(kind)
    else:
        assert kind in caches.REFUSED, f"{kind}: new in this transformers: read its cache and add it to dryrun/tracing/caches.py, or refuse it with a reason"


@pytest.mark.parametrize("kind", [*caches.REFUSED, "full_attentionn", "of_next_year"])
def test_a_kind_that_is_not_known_is_refused_by_name_and_counts_no_bytes(kind):
    model_class, config = tiny("GptOssForCausalLM")
    config.layer_types = ["full_attention", kind, "full_attention", kind]
    with pytest.raises(ValueError, match=f"layers of the type '{kind}'"):
        step_trace.of_cache(model_class, config)


def test_a_kind_is_refused_with_the_nearest_that_is_known():
    with pytest.raises(ValueError, match="the nearest that it knows: 'full_attention'"):
        caches.check("full_attentionn")


def test_a_layer_that_keeps_what_its_kind_does_not_is_refused(monkeypatch):
    """A model whose code fills its cache in another way than its configuration says."""
    model_class, config = tiny("Lfm2ForCausalLM")
    monkeypatch.setattr(caches, "kinds_of", lambda *_: ["moe", "full_attention", "moe"])
    with pytest.raises(ValueError, match="a layer of the type 'moe' keeps .* which its type does not"):
        step_trace.of_cache(model_class, config)


def test_a_state_outside_a_cache_is_refused_and_not_counted_as_nothing():
    config = transformers.RwkvConfig(hidden_size=64, attention_hidden_size=64, num_hidden_layers=2, vocab_size=100, context_length=64)
    with pytest.raises(ValueError, match="does not fill a cache on tensors without data"):
        step_trace.of_cache(transformers.RwkvForCausalLM, config)


def test_gpus_share_out_heads_and_repeat_what_serves_all():
    found = Traced(keys=800, cache_heads=2, shared_keys=30, window_keys=160, window_heads=8, window=10, state=640, state_heads=64)
    assert found.cache(100) == 100 * 830 + 10 * 160 + 640
    assert found.cache_on_each(100, 8) == 100 * (800 / 2 + 30) + 10 * 160 / 8 + 640 / 8


def test_no_speed_is_said_of_sparse_attention_because_nothing_published_judges_it(tmp_path):
    model_class, config = tiny("DeepseekV32ForCausalLM")
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config.to_dict() | {"architectures": [model_class.__name__]}))
    found = predict(Generation(path, prompt=100, new=28), Cluster("h200-sxm"))
    assert isinstance(found, Served) and found.fits and not found.predicted
    assert "sparse attention" in found.unpredicted
    assert found.cache(128) == 128 * (3 * 2 * (24 + 8) + 3 * 2 * 16)


@pytest.mark.parametrize("name, of_token", [("deepseek-v4-flash", 6880), ("minimax-m3", 137472), ("glm-5.2", 89856 + 5376), ("deepseek-v3", 70272)])
def test_bytes_of_a_token_of_models_of_today(name, of_token):
    """By hand. V4-Flash: 21 layers with 512 and 128 numbers of each 4 tokens, 20 with 512 of each 128; M3: 60 layers of 4 heads of 128, and 57 with
    an indexer of 128; GLM-5.2: 78 layers of 576, and 21 with an indexer of 128; V3: 61 layers of 576."""
    model_class, config = models.configuration(name)
    found = caches.kept(model_class, config, step_trace.layers_of(config))
    assert found.keys + found.shared == of_token
