# ---
# jupyter:
#   runs_on: counts
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Inference on one GPU: what fits, and how fast it can be
#
# **Which model fits on which GPU, and how many tokens per second can it give at most?**
#
# Weights and KV caches are counted on the real model code of transformers, at full size, on
# PyTorch's *meta* device: tensors with a shape and no data. Limits on speed follow from the data
# sheets of the GPUs. Speeds that other people measured are cited, next to the limit. How near
# `generate` comes to the limit on the machine at hand is measured in
# [the next notebook](generate_speed.ipynb).
#
# **What to expect.** Two quantities decide almost everything. *Bytes held* decide what fits:
# the weights, and a cache that grows with every token of every sequence. *Bytes read* decide
# the speed of an answer, because each new token reads all active weights and its whole cache.
# Arithmetic matters for the prompt, and for large batches.
#
# A GiB has 2³⁰ bytes. A vendor's GB of memory is a GiB; bandwidths are decimal.

# %%
# Installs what this notebook needs where it is not there yet (Colab, an empty folder). Colab's torch stays as it is.
import importlib.util
import os
import subprocess
import sys

PINS = {"transformers": "5.23.0", "accelerate": "1.15.0"}
if importlib.util.find_spec("evidence") is None:
    source = os.environ.get("EVIDENCE_SOURCE", "git+https://github.com/performance-and-scalability/performance-and-scalability@v0.1.0")
    source = os.path.abspath(source) if os.path.exists(source) else source
    done = subprocess.run([sys.executable, "-m", "pip", "install", "-q", source], capture_output=True, text=True)
    if done.returncode:
        fix = "set EVIDENCE_SOURCE to the folder of a copy of the repository, and run this cell again"
        raise RuntimeError(f"{done.stderr}Nothing could be installed from {source}. Fix: {fix}")

from evidence.session import prepare

prepare(PINS)

# %%
import matplotlib.pyplot as plt
import torch
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoModelForCausalLM
from transformers import (DeepseekV2Config, DeepseekV3Config, FalconMambaConfig, Gemma3TextConfig, Gemma4TextConfig,
                          GemmaConfig, GptOssConfig, LlamaConfig, MistralConfig, MixtralConfig, Qwen3_5MoeTextConfig,
                          Qwen3_5TextConfig, Qwen3Config, Qwen3MoeConfig, Qwen3NextConfig)

from dryrun.tables import hardware
from dryrun.answer.answer import usable
from dryrun.tracing import GiB, fake
from dryrun.tracing.tracker import Tracker
from evidence import plots
from evidence.claims import claim, start, table

start("inference_one_gpu")
plots.set_up("inference_one_gpu")

# %% [markdown]
# ## Twenty-two models
#
# Each configuration is written from the dimensions that its authors published. The
# parameters that it gives are compared with the number they published. Of a model that also
# takes pictures this is the part for text.

# %%
def shape(vocabulary, hidden, layers, heads, kv_heads, **other):
    """What almost every configuration has."""
    return dict(vocab_size=vocabulary, hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads,
                num_key_value_heads=kv_heads, max_position_embeddings=131072, tie_word_embeddings=False) | other


def llama(*sizes, **other):
    return LlamaConfig(**shape(*sizes, **other))


def qwen3(*sizes, **other):
    return Qwen3Config(**shape(151936, *sizes, head_dim=128, **other))


DENSE = {  # name: (attention, configuration, published parameters in billions)
    "Llama-3.2-1B": ("GQA", llama(128256, 2048, 16, 32, 8, intermediate_size=8192, tie_word_embeddings=True), 1.24),
    "Gemma-2B": ("MQA", GemmaConfig(**shape(256000, 2048, 18, 8, 1, intermediate_size=16384, head_dim=256,
                                            tie_word_embeddings=True)), 2.51),
    "Llama-2-7B": ("MHA", llama(32000, 4096, 32, 32, 32, intermediate_size=11008), 6.74),
    "Llama-3.1-8B": ("GQA", llama(128256, 4096, 32, 32, 8, intermediate_size=14336), 8.03),
    "Qwen3-8B": ("GQA", qwen3(4096, 36, 32, 8, intermediate_size=12288), 8.19),
    "Qwen3-32B": ("GQA", qwen3(5120, 64, 64, 8, intermediate_size=25600), 32.8),
    "Llama-3.1-70B": ("GQA", llama(128256, 8192, 80, 64, 8, intermediate_size=28672), 70.6),
}

# %% [markdown]
# Layers that do not keep every token in full: sliding windows, latent vectors (MLA), linear
# layers, state spaces.

# %%
MISTRAL = MistralConfig(**shape(32000, 4096, 32, 32, 8, intermediate_size=14336, sliding_window=4096))
MAMBA = FalconMambaConfig(vocab_size=65024, hidden_size=4096, num_hidden_layers=64, state_size=16,
                          tie_word_embeddings=False)
GEMMA = Gemma3TextConfig(**shape(262208, 3840, 48, 16, 8, intermediate_size=15360, head_dim=256, sliding_window=1024,
                                 tie_word_embeddings=True))
LATENT = dict(kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128)
DEEPSEEK_LITE = DeepseekV2Config(**shape(
    102400, 2048, 27, 16, 16, intermediate_size=10944, moe_intermediate_size=1408, n_shared_experts=2,
    n_routed_experts=64, num_experts_per_tok=6, first_k_dense_replace=1, q_lora_rank=None, **LATENT))
DEEPSEEK = DeepseekV3Config(**shape(
    129280, 7168, 61, 128, 128, intermediate_size=18432, moe_intermediate_size=2048, n_shared_experts=1,
    n_routed_experts=256, num_experts_per_tok=8, first_k_dense_replace=3, q_lora_rank=1536, **LATENT))
GEMMA4 = dict(head_dim=256, global_head_dim=512, attention_k_eq_v=True, hidden_size_per_layer_input=0,
              sliding_window=1024, tie_word_embeddings=True)
GEMMA4_31B = Gemma4TextConfig(**shape(262144, 5376, 60, 32, 16, intermediate_size=21504, num_global_key_value_heads=4,
                                      **GEMMA4))
LINEAR = dict(head_dim=256, linear_num_key_heads=16, linear_key_head_dim=128, linear_value_head_dim=128)
QWEN35_9B = Qwen3_5TextConfig(**shape(248320, 4096, 32, 16, 4, intermediate_size=12288, linear_num_value_heads=32,
                                      **LINEAR))
QWEN35_27B = Qwen3_5TextConfig(**shape(248320, 5120, 64, 24, 4, intermediate_size=17408, linear_num_value_heads=48,
                                       **LINEAR))

# %% [markdown]
# Mixtures of experts read a part of their weights for each token.

# %%
def gpt_oss(layers, experts):
    return GptOssConfig(**shape(201088, 2880, layers, 64, 8, intermediate_size=2880, head_dim=64, sliding_window=128,
                                num_local_experts=experts, num_experts_per_tok=4))


GEMMA4_MOE = Gemma4TextConfig(**shape(
    262144, 2816, 30, 16, 8, intermediate_size=2112, num_global_key_value_heads=2, enable_moe_block=True,
    num_experts=128, top_k_experts=8, moe_intermediate_size=704, **GEMMA4))
QWEN35_MOE = Qwen3_5MoeTextConfig(**shape(
    248320, 2048, 40, 16, 2, moe_intermediate_size=512, shared_expert_intermediate_size=512, num_experts=256,
    num_experts_per_tok=8, linear_num_value_heads=32, **LINEAR))
NEXT = Qwen3NextConfig(**shape(
    151936, 2048, 48, 16, 2, moe_intermediate_size=512, shared_expert_intermediate_size=512, num_experts=512,
    num_experts_per_tok=10, linear_num_value_heads=32, **LINEAR))
QWEN_MOE = Qwen3MoeConfig(**shape(151936, 2048, 48, 32, 4, intermediate_size=6144, moe_intermediate_size=768,
                                  head_dim=128, num_experts=128, num_experts_per_tok=8))
MIXTRAL = MixtralConfig(**shape(32000, 4096, 32, 32, 8, intermediate_size=14336, num_local_experts=8,
                                num_experts_per_tok=2))
# %%
MODELS = DENSE | {
    "Mistral-7B-v0.1": ("sliding", MISTRAL, 7.24),
    "Falcon-Mamba-7B": ("state space", MAMBA, 7.27),
    "Qwen3.5-9B": ("3 of 4 layers linear", QWEN35_9B, 9),
    "Gemma-3-12B": ("5 of 6 layers sliding", GEMMA, 11.77),
    "DeepSeek-V2-Lite": ("MLA", DEEPSEEK_LITE, 15.7),
    "gpt-oss-20b": ("every second layer sliding", gpt_oss(24, 32), 20.9),
    "Gemma-4-26B-A4B": ("5 of 6 layers sliding", GEMMA4_MOE, 25.2),
    "Qwen3.5-27B": ("3 of 4 layers linear", QWEN35_27B, 27),
    "Gemma-4-31B": ("5 of 6 layers sliding", GEMMA4_31B, 30.7),
    "Qwen3.5-35B-A3B": ("3 of 4 layers linear", QWEN35_MOE, 35),
    "gpt-oss-120b": ("every second layer sliding", gpt_oss(36, 128), 117),
    "Qwen3-30B-A3B": ("GQA", QWEN_MOE, 30.5),
    "Mixtral-8x7B": ("GQA", MIXTRAL, 46.7),
    "Qwen3-Next-80B-A3B": ("3 of 4 layers linear", NEXT, 80),
    "DeepSeek-V3": ("MLA", DEEPSEEK, 671),
}


def on_meta(config):
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()

# %% [markdown]
# All are built whole, on the meta device, in order of size.

# %%
MODELS = dict(sorted(MODELS.items(), key=lambda item: item[1][-1]))
BUILT = {name: on_meta(config) for name, (_, config, _) in MODELS.items()}


def experts_of(model):
    """Parameters of routed experts: tensors of three dimensions, the first of which counts the experts."""
    return sum(p.numel() for name, p in model.named_parameters() if ".experts." in name and p.ndim == 3)


def total(name):
    return sum(p.numel() for p in BUILT[name].parameters())


def active(name):
    """Parameters that one token reads."""
    config, counts = MODELS[name][1], ("num_local_experts", "n_routed_experts", "num_experts")
    number = next((getattr(config, count) for count in counts if getattr(config, count, None)), 1)
    chosen = getattr(config, "num_experts_per_tok", None) or getattr(config, "top_k_experts", None) or 1
    return total(name) - experts_of(BUILT[name]) * (1 - chosen / number)


off = {name: abs(total(name) / 1e9 / published - 1) for name, (*_, published) in MODELS.items()}
claim("parameters-off", "Largest difference between the parameters counted here and the published number, "
      "twenty-two models", 100 * max(off.values()), "%", kind="derived", at_most=1)

# %% [markdown]
# ## Weights: bytes for each format
#
# Formats of fewer bits round the matrix products inside the layers. Embeddings, the output
# layer and norms stay in 16 bits. A 4-bit format also stores scales: with one fp32 scale for
# 64 weights, as in bitsandbytes' nf4, 4 bits become 4 + 32/64 = 4.5.

# %%
BITS = {"bf16": 16, "8-bit": 8, "4-bit": 4.5}
MX = 4 + 8 / 32  # MXFP4: an 8-bit scale for 32 weights


def linear_of(model):
    """Parameters in `torch.nn.Linear` without the output layer: what bitsandbytes replaces."""
    head = model.get_output_embeddings()
    return sum(m.weight.numel() for m in model.modules() if type(m) is torch.nn.Linear and m is not head)


def weight_bytes(name, bits):
    rounded = linear_of(BUILT[name]) + experts_of(BUILT[name])
    return rounded * bits / 8 + (total(name) - rounded) * 2


def nf4_of_bitsandbytes(name):
    """`load_in_4bit` replaces `nn.Linear`. Routed experts are none in transformers 5 and stay in bf16."""
    linear = linear_of(BUILT[name])
    return linear * BITS["4-bit"] / 8 + (total(name) - linear) * 2


EIGHT, OSS, MOE = "Llama-3.1-8B", "gpt-oss-20b", "Qwen3-30B-A3B"
mxfp4 = experts_of(BUILT[OSS]) * MX / 8 + (total(OSS) - experts_of(BUILT[OSS])) * 2


def derived(unit, claims):
    """States derived claims of one unit: {name: (sentence, value, at least, at most)}."""
    for name, (sentence, value, least, most) in claims.items():
        claim(name, sentence, value, unit, kind="derived", at_least=least, at_most=most)

# %% [markdown]
# In GiB:

# %%
derived("GiB", {name: (words, size / GiB, least, most) for name, (words, size, least, most) in {
    "weights-8b": ("Weights of Llama-3.1-8B in bf16: 8.03e9 parameters x 2 bytes", weight_bytes(EIGHT, 16), 14.9, 15),
    "weights-8b-4bit": ("Weights of Llama-3.1-8B in 4 bits with scales, embeddings and output layer in bf16",
                        weight_bytes(EIGHT, 4.5), 5.3, 5.8),
    "weights-oss": ("Weights of gpt-oss-20b as published, experts in MXFP4", mxfp4, 12, 13.5),
    "weights-oss-bf16": ("Weights of gpt-oss-20b unpacked to bf16", weight_bytes(OSS, 16), 38, 40),
    "moe-nf4": ("Weights of Qwen3-30B-A3B after load_in_4bit of bitsandbytes, which leaves the routed experts in bf16",
                nf4_of_bitsandbytes(MOE), 50, 57),
    "moe-4bit": ("Weights of Qwen3-30B-A3B in a 4-bit format that rounds the experts too", weight_bytes(MOE, 4.5),
                 15, 18),
}.items()})

# %% [markdown]
# ## KV cache: the formula, and what transformers allocates
#
# Each layer keeps something of every token:
#
# | Layer | Numbers kept |
# |---|---|
# | full attention (MHA, GQA, MQA) | 2 x KV heads x head size x tokens |
# | sliding attention | 2 x KV heads x head size x min(tokens, window) |
# | MLA | (latent size + rotary size) x tokens |
# | linear attention, state space | a fixed state, whatever the length |
#
# The formula is checked against the cache object: a prompt runs through the whole model on
# the meta device, then one more token, and the bytes of the storages are added up.

# %%
def layer_numbers(config, kind, tokens):
    """Numbers that one layer keeps of one sequence, by the formula."""
    if getattr(config, "kv_lora_rank", None):
        return (config.kv_lora_rank + config.qk_rope_head_dim) * tokens
    if isinstance(config, Gemma4TextConfig):  # its full layers have fewer, larger heads
        config = config.per_layer_config[kind]
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    kept = min(tokens, config.sliding_window) if kind == "sliding_attention" else tokens
    return 2 * config.num_key_value_heads * head * kept


def state_bytes(config, width):
    """One linear layer's state: the last inputs of a short convolution, and the recurrent state, which is in fp32."""
    if isinstance(config, FalconMambaConfig):
        return config.intermediate_size * (config.conv_kernel * width + config.state_size * 4)
    keys = config.linear_num_key_heads * config.linear_key_head_dim
    values = config.linear_num_value_heads * config.linear_value_head_dim
    return (2 * keys + values) * config.linear_conv_kernel_dim * width + values * config.linear_key_head_dim * 4

# %% [markdown]
# A model's cache is the sum over its layers, each with its kind:

# %%
def layer_kinds(config):
    if isinstance(config, FalconMambaConfig):
        return ["linear_attention"] * config.num_hidden_layers
    if getattr(config, "layer_types", None):
        return config.layer_types
    sliding = isinstance(config, MistralConfig) and config.sliding_window
    return ["sliding_attention" if sliding else "full_attention"] * config.num_hidden_layers


def cache_bytes(name, tokens, width=2):
    """The KV cache of one sequence, by the formula, with `width` bytes for each number."""
    config = MODELS[name][1]
    return sum(state_bytes(config, width) if kind == "linear_attention" else width * layer_numbers(config, kind, tokens)
               for kind in layer_kinds(config))


# %% [markdown]
# Then what transformers allocates:

# %%
def storages(cache):
    """Bytes of the tensors that a cache object holds alive."""
    kept = [value for layer in cache.layers for name, value in vars(layer).items() if name != "_sliding_window_tensor"]
    found = [value.untyped_storage() for value in tree_leaves(kept) if isinstance(value, torch.Tensor)]
    return sum({id(storage): storage.nbytes() for storage in found}.values())


@torch.no_grad()
def allocated(name, tokens):
    """(bytes after the prompt, bytes after one more token) of the cache that transformers makes."""
    model = BUILT[name]
    key = "cache_params" if "Mamba" in type(model).__name__ else "past_key_values"
    ids = torch.zeros(1, tokens - 1, dtype=torch.long, device="meta")
    cache = getattr(model(ids, use_cache=True, logits_to_keep=1), key)
    after_prompt = storages(cache)
    cache = getattr(model(ids[:, :1], use_cache=True, **{key: cache}), key)
    return after_prompt, storages(cache)


# %% [markdown]
# The prompt is longer than every window. It is short where a model without its own kernels
# runs token by token.

# %%
def length_for(attention):
    return 8192 if "sliding" in attention else 256 if "linear" in attention else 2048


LENGTHS = {name: length_for(attention) for name, (attention, *_) in MODELS.items()} | {"Falcon-Mamba-7B": 16}
ALLOCATED = {name: allocated(name, length) for name, length in LENGTHS.items()}
wrong = {name: abs(ALLOCATED[name][1] / cache_bytes(name, LENGTHS[name]) - 1) for name in MODELS}
claim("cache-off", "Largest difference between the formula of the KV cache and the bytes that transformers "
      "allocates, twenty-two models", 100 * max(wrong.values()), "%", kind="traced", at_most=0.1)

# %%
SHORT, LONG = 8192, 131072
table("models", "Twenty-two models: weights in GiB, and the KV cache of one sequence in bf16",
      {"model": "Model", "attention": "Attention", "parameters": "Parameters, billions", "active": "Active, billions",
       "bf16": "Weights in bf16, GiB", "eight": "8-bit, GiB", "four": "4-bit, GiB",
       "short": "Cache at 8,192 tokens, GiB", "long": "Cache at 131,072 tokens, GiB"},
      [{"model": name, "attention": attention, "parameters": total(name) / 1e9, "active": active(name) / 1e9,
        "bf16": weight_bytes(name, 16) / GiB, "eight": weight_bytes(name, 8) / GiB,
        "four": weight_bytes(name, 4.5) / GiB, "short": cache_bytes(name, SHORT) / GiB,
        "long": cache_bytes(name, LONG) / GiB} for name, (attention, *_) in MODELS.items()], kind="traced")

# %% [markdown]
# ### Five ways to keep the past
#
# The same lengths, five models. Both axes are logarithmic, so a cache that keeps every token
# in full is a straight line. Fewer KV heads move the line down (Llama 2 to Llama 3.1). A
# latent cache moves it down further, although DeepSeek-V3 is the largest model here. Sliding
# layers bend the line once the window is full. A state space is flat: its state has one size.

# %% alt="Cache against tokens on logarithmic axes: three parallel rising lines, one that bends, and one flat line."
LENGTHS_SHOWN = [2**power for power in range(10, 18)]
_, axes = plt.subplots(figsize=(7, 3.4))
for name in ("Llama-2-7B", "Llama-3.1-8B", "Gemma-3-12B", "DeepSeek-V3", "Falcon-Mamba-7B"):
    axes.plot(LENGTHS_SHOWN, [cache_bytes(name, tokens) / GiB for tokens in LENGTHS_SHOWN], marker="o", markersize=3,
              label=f"{name} ({MODELS[name][0]})")
axes.set(xscale="log", yscale="log", xlabel="tokens of one sequence", ylabel="KV cache in bf16, GiB")
axes.set_xticks(LENGTHS_SHOWN, [f"{tokens // 1024}k" for tokens in LENGTHS_SHOWN])
axes.minorticks_off()
axes.legend()
plt.show()

# %% [markdown]
# The models of 2025 and 2026 that spend less on long contexts: in gpt-oss every second layer
# keeps a window of 128 tokens, in Qwen3.5 three of four layers keep one state.

# %%
KEPT = {"full": "Qwen3-8B", "windows": "gpt-oss-20b", "states": "Qwen3.5-9B", "space": "Falcon-Mamba-7B"}
table("kept", "What one sequence keeps in bf16, GiB",
      {"tokens": "Tokens", "full": "Qwen3-8B (every layer keeps all tokens), GiB",
       "windows": "gpt-oss-20b (every second layer keeps 128), GiB",
       "states": "Qwen3.5-9B (three of four layers keep a state), GiB",
       "space": "Falcon-Mamba-7B (a state alone), GiB"},
      [{"tokens": tokens} | {key: cache_bytes(name, tokens) / GiB for key, name in KEPT.items()}
       for tokens in LENGTHS_SHOWN], kind="derived")

# %% [markdown]
# For a server, multiply by the number of sequences at once. What one token keeps, and what
# kinds of layers save:

# %%
full_gemma = 2 * 48 * 2 * 8 * 256 * LONG
derived("KiB", {"cache-token-8b": ("KV cache of Llama-3.1-8B for each token: 2 x 32 layers x 8 heads x 128 x 2 bytes",
                                   cache_bytes(EIGHT, 1) / 1024, 128, 128)})
derived("MiB", {"cache-state": ("State of Falcon-Mamba-7B, whatever the length",
                                cache_bytes("Falcon-Mamba-7B", LONG) / 2**20, 30, 40)})
derived("GiB", {"cache-long-8b": ("KV cache of Llama-3.1-8B at 131,072 tokens", cache_bytes(EIGHT, LONG) / GiB, 15.9,
                                  16.1),
                "cache-short-8b": ("KV cache of Llama-3.1-8B at 8,192 tokens", cache_bytes(EIGHT, SHORT) / GiB, 0.9,
                                   1.1),
                "check-yourself": ("KV cache of Qwen3-8B for 16 sequences of 4,096 tokens",
                                   16 * cache_bytes("Qwen3-8B", 4096) / GiB, 8.9, 9.1),
                "weights-qwen": ("Weights of Qwen3-8B in bf16", weight_bytes("Qwen3-8B", 16) / GiB, 15, 15.5)})
derived("x", {
    "cache-gqa": ("KV cache of Llama-2-7B, 32 KV heads, over that of Llama-3.1-8B, 8 KV heads, at the same length",
                  cache_bytes("Llama-2-7B", SHORT) / cache_bytes(EIGHT, SHORT), 4, 4),
    "cache-mla": ("KV cache of Llama-3.1-8B over that of DeepSeek-V3, 671 billion parameters, at the same length",
                  cache_bytes(EIGHT, SHORT) / cache_bytes("DeepSeek-V3", SHORT), 1.8, 1.95),
    "cache-slid": ("KV cache of Gemma-3-12B with full layers only over the one that it has, 131,072 tokens",
                   full_gemma / cache_bytes("Gemma-3-12B", LONG), 5.5, 6),
})

# %% [markdown]
# A sliding layer of a dynamic cache keeps a *view* of what the prompt left, and a view keeps
# the whole tensor alive. The next token makes a new tensor of the window's size. So the peak
# of a long prompt is that of full layers:

# %%
before, after = ALLOCATED["Gemma-3-12B"]
claim("sliding-prompt", "Bytes that the cache of Gemma-3-12B holds after a prompt of 8,191 tokens, over those after "
      "the next token", before / after, "x", kind="traced", at_least=3, at_most=4.5)

# %% [markdown]
# ## What a prompt needs beside weights and cache
#
# Traced on fake tensors, with the fused attention kernels of a GPU. `generate` asks for the
# logits of the last token only. A call of the model itself returns those of all tokens.

# %%
from dryrun.tracing.gpu_operators import GpuOperators
from dryrun.tracing import UNMASKED_SDPA


def prompt_peak(name, tokens, logits):
    """GiB of temporary tensors at the peak of a prompt, cache excluded."""
    with fake(), GpuOperators("auto"), torch.no_grad():
        config = MODELS[name][1]
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16, attn_implementation=UNMASKED_SDPA).eval()
        ids = torch.zeros(1, tokens, dtype=torch.long)
        stateless = torch.optim.SGD(model.parameters(), lr=1)  # the tracker counts an optimizer's state; here is none
        with Tracker(model, stateless, {"input_ids": ids}) as tracker:
            model(ids, use_cache=True, logits_to_keep=logits)
            tracker.part()
    peak = tracker.parts[0]
    return (peak.bytes - peak.by_category["parameters"] - peak.by_category["inputs"]) / GiB


PROMPTS = (1024, 8192, 32768)
needed = {tokens: (prompt_peak(EIGHT, tokens, 1), prompt_peak(EIGHT, tokens, 0), cache_bytes(EIGHT, tokens) / GiB)
          for tokens in PROMPTS}
table("prompt", "Llama-3.1-8B, one prompt in bf16: tensors alive at the peak beside the weights, the cache included",
      {"tokens": "Prompt, tokens", "cache": "of which KV cache, GiB", "last": "Logits of the last token, GiB",
       "all": "Logits of all tokens, GiB"},
      [{"tokens": tokens, "cache": cache, "last": last, "all": every}
       for tokens, (last, every, cache) in needed.items()],
      kind="traced")
claim("logits-all", "What logits of all tokens add to the peak of a prompt of 32,768 tokens, Llama-3.1-8B in bf16",
      needed[32768][1] - needed[32768][0], "GiB", kind="traced", at_least=4, at_most=5)

# %% [markdown]
# ## What fits on which GPU
#
# *Weights + KV cache + reserve ≤ memory of the GPU.* The reserve is for what the
# prompt needs beside its cache, the CUDA context and the allocator's rounding.
#
# Memory is what CUDA reports of a GPU of that size: the driver keeps a part. Where the memory
# has no parts of its own for error correction (ECC), that takes a sixteenth, as in an L4. So the
# GPUs of three sizes are of two kinds.

# %%
OF_SIZE = {8: "rtx-4060", 12: "rtx-3060-12", 16: "rtx-5080", 24: "rtx-4090", 32: "rtx-5090", 48: "rtx-6000-ada",
           80: "h100-sxm5", 96: "rtx-pro-6000-bw", 141: "h200-sxm", 192: "mi300x"}
SIZES, RESERVE = tuple(OF_SIZE), 2 * GiB
WITH_ECC = {16: "t4", 24: "l4", 48: "l40s"}


def memory(size, ecc=False):
    return usable(WITH_ECC.get(size, OF_SIZE[size]) if ecc else OF_SIZE[size])


def widest(name, size, tokens):
    """The widest format that fits with one sequence of this length, or a dash; "?" where ECC would leave too little."""
    needed = {label: weight_bytes(name, bits) + cache_bytes(name, tokens) + RESERVE for label, bits in BITS.items()}
    found = next((label for label in needed if needed[label] <= memory(size)), None)
    if found is None:
        return "–"
    return found if needed[found] <= memory(size, ecc=True) else f"{found}?"


table("fits", "The widest weights with which one sequence of 8,192 tokens fits, by GPU memory; ?: not where ECC takes "
      "some of it",
      {"model": "Model", **{f"gb{size}": f"{size} GB" for size in SIZES}},
      [{"model": name, **{f"gb{size}": widest(name, size, SHORT) for size in SIZES}} for name in MODELS],
      kind="derived")

# %% [markdown]
# Instead of one sequence: how many tokens in all.

# %%
def tokens_that_fit(name, bits, size):
    """In all sequences of a batch together; None where the weights do not fit."""
    room = memory(size) - RESERVE - weight_bytes(name, bits)
    return room / cache_bytes(name, 1) if room > 0 else None


def in_thousands(tokens):
    return tokens / 1000 if tokens else "–"


table("longest", "Thousands of tokens that fit beside Llama-3.1-8B, in all sequences together, KV cache in bf16",
      {"size": "GPU memory, GB", **{label: f"{label} weights" for label in BITS}},
      [{"size": size, **{label: in_thousands(tokens_that_fit(EIGHT, bits, size)) for label, bits in BITS.items()}}
       for size in SIZES[1:]], kind="derived")
derived("tokens", {
    "fits-24": ("Tokens in all that fit beside Llama-3.1-8B in bf16 on an RTX 4090", tokens_that_fit(EIGHT, 16, 24),
                53e3, 60e3),
    "fits-24-4bit": ("Tokens in all that fit beside Llama-3.1-8B in 4 bits on an RTX 4090",
                     tokens_that_fit(EIGHT, 4.5, 24), 130e3, 140e3),
})
derived("GiB", {"usable-24": ("What an RTX 4090 offers to programs, as CUDA reports it", memory(24) / GiB, 23, 24)})
derived("GiB", {"long-needs": ("Weights of Llama-3.1-8B in bf16 and its KV cache at 131,072 tokens",
                               (weight_bytes(EIGHT, 16) + cache_bytes(EIGHT, LONG)) / GiB, 30, 32),
                "held-32b": ("Weights of Qwen3-32B in 4 bits and its KV cache at 8,192 tokens",
                             (weight_bytes("Qwen3-32B", 4.5) + cache_bytes("Qwen3-32B", SHORT)) / GiB, 21, 21.5)})

# %% [markdown]
# ## FLOPs and bytes of a prompt and of a token
#
# FLOPs are counted on the meta device. A token reads every weight but the embedding once,
# and the whole cache.

# %%
@torch.no_grad()
def flops(name, prompt):
    """(FLOPs of a prompt, FLOPs of the next token)."""
    model, ids = BUILT[name], torch.zeros(1, prompt, dtype=torch.long, device="meta")
    with FlopCounterMode(display=False) as first:
        cache = model(ids, use_cache=True, logits_to_keep=1).past_key_values
    with FlopCounterMode(display=False) as later:
        model(ids[:, :1], past_key_values=cache)
    return first.get_total_flops(), later.get_total_flops()


def read_bytes(name, tokens, bits=16):
    """Bytes that one token at batch 1 reads: active weights without the embedding table, and the cache."""
    idle = (total(name) - active(name)) * bits / 8
    if not MODELS[name][1].tie_word_embeddings:
        idle += BUILT[name].get_input_embeddings().weight.numel() * 2
    return weight_bytes(name, bits) - idle + cache_bytes(name, tokens)


PROMPT = 2048
prefill, decode = flops(EIGHT, PROMPT)
claim("flops-prompt", "FLOPs of a prompt of 2,048 tokens, Llama-3.1-8B", prefill / 1e12, "TFLOPs", kind="traced",
      at_least=28, at_most=36)
claim("intensity", "FLOPs for each byte read by one token at batch 1, Llama-3.1-8B in bf16",
      decode / read_bytes(EIGHT, PROMPT), "", kind="traced", at_least=0.9, at_most=1.2)

# %% [markdown]
# ## The limits of your GPU
#
# Decoding at batch 1: *tokens/s ≤ bandwidth / bytes read for a token*. A prompt:
# *seconds ≥ FLOPs / peak FLOP/s*. Bandwidth and dense 16-bit peaks are those of the data
# sheets, with sources in `dryrun/data/accelerators`.

# %%
GPUS = ("t4", "l4", "a10g", "rtx-3090", "rtx-4090", "rtx-5090", "l40s", "a100-sxm4-80", "h100-sxm5", "h200-sxm",
        "b200-hgx", "mi300x")


def bandwidth(gpu):
    return hardware.accelerator(gpu).get("bandwidth") * 1e9


def limit(gpu, name=EIGHT, tokens=PROMPT, bits=16):
    """Most tokens/s at batch 1."""
    return bandwidth(gpu) / read_bytes(name, tokens, bits)


def limit_of_file(gpu, bits=4.5, tokens=PROMPT):
    """The same with the output layer in 4 bits too, as llama.cpp's Q4_0 and the predictions count it."""
    head = BUILT[EIGHT].get_output_embeddings().weight.numel()
    return bandwidth(gpu) / (read_bytes(EIGHT, tokens, bits) - head * (2 - bits / 8))


def fits(gpu, bits):
    return weight_bytes(EIGHT, bits) + cache_bytes(EIGHT, PROMPT) + RESERVE <= usable(gpu)

# %% [markdown]
# A dash: the 16-bit weights do not fit. Formats of 4 bits differ in the output layer, which
# is a fifth of what this model then reads: AWQ, GPTQ and bitsandbytes leave it in 16.

# %%
CARDS = {gpu: hardware.accelerator(gpu) for gpu in GPUS}
table("limits", "Llama-3.1-8B on twelve GPUs, batch 1, 2,048 tokens of context: limits by the data sheets",
      {"gpu": "GPU", "bandwidth": "Bandwidth, GB/s", "peak": "16-bit peak, TFLOP/s", "balance": "FLOP for each byte",
       "bf16": "16-bit, at most tokens/s", "four": "4-bit, output layer in 16, at most tokens/s",
       "file": "4-bit throughout, at most tokens/s", "prompt": "Prompt of 2,048, at least ms"},
      [{"gpu": card.label, "bandwidth": bandwidth(gpu) / 1e9, "peak": card.half, "balance": card.flop_per_byte,
        "bf16": limit(gpu) if fits(gpu, 16) else "–", "four": limit(gpu, bits=4.5), "file": limit_of_file(gpu),
        "prompt": 1e3 * prefill / (card.half * 1e12)} for gpu, card in CARDS.items()], kind="derived")
derived("tokens/s", {
    "limit-4090": ("Most tokens/s of Llama-3.1-8B in bf16 on an RTX 4090 at batch 1, by its bandwidth",
                   limit("rtx-4090"), 60, 70),
    "limit-h100": ("Most tokens/s of Llama-3.1-8B in bf16 on an H100 SXM at batch 1, by its bandwidth",
                   limit("h100-sxm5"), 200, 230),
})
derived("GB/s", {"bandwidth-4090": ("Memory bandwidth of an RTX 4090, by its data sheet", bandwidth("rtx-4090") / 1e9,
                                    1000, 1020)})
derived("GB", {"read-token": ("Bytes that a token of Llama-3.1-8B in bf16 reads at batch 1 and 2,048 tokens of context",
                              read_bytes(EIGHT, PROMPT) / 1e9, 15, 15.6)})
derived("s", {"offload-token": ("Time to move a KV cache of 131,072 tokens of Llama-3.1-8B over PCIe 4.0 at its peak",
                               cache_bytes(EIGHT, LONG) / hardware.bytes_per_second("PCIe 4 x16"), 0.4, 0.8)})
derived("x", {"limit-moe": ("Most tokens/s of Qwen3-30B-A3B at batch 1 over those of Qwen3-32B, both in bf16, by "
                            "active weights", limit("h100-sxm5", MOE) / limit("h100-sxm5", "Qwen3-32B"), 8, 12)})

# %% [markdown]
# A batch shares the weights and not the cache: *bytes of a step = weights + batch x cache*.
# So tokens/s rise with the batch until the arithmetic or the memory ends it.

# %%
def batch_limit(gpu, batch, tokens):
    """(most tokens/s of a batch in all, what binds it)."""
    seconds = {"bandwidth": (read_bytes(EIGHT, 0) + batch * cache_bytes(EIGHT, tokens)) / bandwidth(gpu),
               "arithmetic": batch * decode / (hardware.accelerator(gpu).half * 1e12)}
    bound = max(seconds, key=seconds.get)
    return batch / seconds[bound], bound


def room_for(gpu, tokens):
    """Sequences of this length that fit beside the bf16 weights."""
    return int((usable(gpu) - RESERVE - weight_bytes(EIGHT, 16)) // cache_bytes(EIGHT, tokens))


batches = []
for batch in (1, 8, 32, 128, 192):
    shared, bound = batch_limit("h100-sxm5", batch, PROMPT)
    batches.append({"batch": batch, "rate": shared, "each": shared / batch, "bound": bound,
                    "cache": batch * cache_bytes(EIGHT, PROMPT) / GiB})
table("batches", "Llama-3.1-8B in bf16 on an H100 80GB, 2,048 tokens each: the limit by batch size",
      {"batch": "Batch", "rate": "At most tokens/s in all", "each": "At most tokens/s for each",
       "cache": "KV cache, GiB", "bound": "Bound by"}, batches, kind="derived")
claim("batch-gain", "Most tokens/s at batch 32 over batch 1, Llama-3.1-8B in bf16 at 2,048 tokens, by bandwidth",
      batches[2]["rate"] / batches[0]["rate"], "x", kind="derived", at_least=15, at_most=32)
claim("batch-room", "Sequences of 2,048 tokens that fit beside Llama-3.1-8B in bf16 on a GPU of 80 GB",
      room_for("h100-sxm5", PROMPT), "", kind="derived", at_least=200, at_most=260)

# %% [markdown]
# ### Where the gain of a batch ends
#
# Each line ends where the caches fill the GPU, before arithmetic binds it. At long lengths the
# caches are soon the larger part of what a step reads. Then more sequences bring little, and
# few of them fit. So the length of your conversations decides how many users one GPU serves,
# and how many tokens per second it gives in all.

# %% alt="Most tokens per second against batch: the shorter the context, the higher and longer the line rises."
_, axes = plt.subplots(figsize=(7, 3.2))
for tokens in (512, PROMPT, SHORT, 32768):
    fitting = [2**power for power in range(12) if 2**power <= room_for("h100-sxm5", tokens)]
    axes.plot(fitting, [batch_limit("h100-sxm5", batch, tokens)[0] for batch in fitting], marker="o", markersize=3,
              label=f"{tokens:,} tokens each")
axes.set(xscale="log", yscale="log", xlabel="batch", ylabel="at most tokens/s in all")
axes.set_xticks([1, 4, 16, 64, 256, 1024], ["1", "4", "16", "64", "256", "1,024"])
axes.minorticks_off()
axes.legend(title="Llama-3.1-8B in bf16, one H100", title_fontsize="small")
plt.show()

# %% [markdown]
# ## What others measured
#
# A limit is what no program exceeds. How near do programs come? First plain `generate`,
# which launches every kernel from Python, token by token. On the slower GPU the kernels take
# longer than their launches. On the faster one the GPU waits for Python.
#
# bitsandbytes' own benchmark of December 2024: Llama-3.1-8B, tokens/s of the whole batch.

# %%
BNB = ("https://github.com/bitsandbytes-foundation/bitsandbytes/blob/81e6345ddf893c594f6d76406a388fa012cb0a29/"
       "benchmarking/README.md")
MEASURED = {  # GPU: batch: (bf16, nf4, int8)
    "rtx-4090": {1: (47.46, 67.71, 45.39), 8: (334.64, 188.08, 361.61), 32: (1054.35, 694.6, 1390.54)},
    "h100-sxm5": {1: (40.99, 30.14, 19.17), 8: (313.9, 168.05, 155.44), 32: (1227.96, 658.65, 586.26)},
}
table("bitsandbytes", "Llama-3.1-8B in transformers with bitsandbytes, tokens/s of the batch, measured by its authors",
      {"gpu": "GPU", "batch": "Batch", "bf16": "bf16", "nf4": "nf4", "int8": "LLM.int8()"},
      [{"gpu": CARDS[gpu].label, "batch": batch, "bf16": bf16, "nf4": nf4, "int8": int8}
       for gpu, rows in MEASURED.items() for batch, (bf16, nf4, int8) in rows.items()], kind="cited", source=BNB)
OF_LIMIT = {gpu: 100 * MEASURED[gpu][1][0] / limit(gpu, tokens=128) for gpu in MEASURED}
claim("eager-4090", "Measured tokens/s of Llama-3.1-8B in bf16 at batch 1 on an RTX 4090, eager, of the limit by "
      "bandwidth", OF_LIMIT["rtx-4090"], "%", kind="cited", source=BNB, at_least=60, at_most=80)
claim("eager-h100", "Measured tokens/s of Llama-3.1-8B in bf16 at batch 1 on an H100, eager, of the limit by "
      "bandwidth", OF_LIMIT["h100-sxm5"], "%", kind="cited", source=BNB, at_least=15, at_most=25)
for gpu, key in (("rtx-4090", "4090"), ("h100-sxm5", "h100")):
    bf16, nf4, _ = MEASURED[gpu][8]
    claim(f"nf4-slower-{key}", f"Tokens/s in bf16 over nf4 of bitsandbytes at batch 8, Llama-3.1-8B, {key.upper()}",
          bf16 / nf4, "x", kind="cited", source=BNB, at_least=1.5, at_most=2.2)
bf16, nf4, _ = MEASURED["rtx-4090"][1]
claim("nf4-faster-4090", "Tokens/s in nf4 of bitsandbytes over bf16 at batch 1, Llama-3.1-8B, RTX 4090", nf4 / bf16,
      "x", kind="cited", source=BNB, at_least=1.3, at_most=1.6)

# %% [markdown]
# An engine launches a whole step at once. The smaller the model, the more of eager decoding is
# launching, and the more an engine gains. Quantized weights help only where reading them is
# what takes the time.
#
# The authors of Qwen2.5 measured transformers and vLLM on the same A100: batch 1, a
# prompt of one token, 2,048 new tokens.

# %%
QWEN = ("https://github.com/QwenLM/Qwen3/blob/a912d239c2d0e2e5d10bb8d02e6f5685edb43e68/docs/source/benchmark/"
        "speed_benchmark.rst")
ENGINES = {  # model: ((transformers, vLLM) in bf16, the same in int4 by GPTQ)
    "Qwen2.5-0.5B": ((47.4, 311.55), (50.6, 260.93)), "Qwen2.5-1.5B": ((39.68, 183.33), (43.33, 217.03)),
    "Qwen2.5-7B": ((40.38, 84.28), (43.1, 154.05)), "Qwen2.5-14B": ((24.74, 46.3), (25.89, 98.02)),
    "Qwen2.5-32B": ((17.54, 22.13), (19.2, 55.83)),
}
table("engines", "Tokens/s at batch 1 on an A100 80GB, measured by Qwen's authors in November 2024",
      {"model": "Model", "hf": "transformers, bf16", "vllm": "vLLM, bf16", "hf4": "transformers, GPTQ int4",
       "vllm4": "vLLM, GPTQ int4"},
      [{"model": name, "hf": bf16[0], "vllm": bf16[1], "hf4": int4[0], "vllm4": int4[1]}
       for name, (bf16, int4) in ENGINES.items()], kind="cited", source=QWEN)
ratios = {name: bf16[1] / bf16[0] for name, (bf16, _) in ENGINES.items()}
for key, name, least, most in (("vllm-small", "Qwen2.5-0.5B", 6, 7), ("vllm-7b", "Qwen2.5-7B", 2, 2.2),
                               ("vllm-32b", "Qwen2.5-32B", 1.2, 1.4)):
    claim(key, f"Tokens/s of vLLM over transformers of 2024, eager, {name} in bf16 at batch 1 on an A100",
          ratios[name], "x", kind="cited", source=QWEN, at_least=least, at_most=most)

# %% [markdown]
# No engine is needed for that gain. gpt-fast shows what plain PyTorch reaches when the whole step is compiled and replayed as a
# CUDA graph: Llama-2-7B on an A100 at batch 1.

# %%
AO = "https://github.com/pytorch/ao/blob/03d01adcbcf8f85b0e61bef84957013b89e6902f/torchao/quantization/README.md"
COMPILED = {"bf16": (107.38, 16), "int8 weights": (170.83, 8), "int4 weights": (201.14, 4.5)}
table("compiled", "Llama-2-7B, compiled with a static cache, batch 1, A100 80GB, measured by torchao's authors in 2024",
      {"weights": "Weights", "rate": "Tokens/s", "limit": "Limit by bandwidth, tokens/s"},
      [{"weights": name, "rate": rate, "limit": limit("a100-sxm4-80", "Llama-2-7B", 128, bits)}
       for name, (rate, bits) in COMPILED.items()], kind="cited", source=AO)
claim("compiled-share", "Measured tokens/s of Llama-2-7B in bf16, compiled, on an A100 of the limit by bandwidth",
      100 * COMPILED["bf16"][0] / limit("a100-sxm4-80", "Llama-2-7B", 128), "%", kind="cited", source=AO, at_least=60,
      at_most=80)
claim("compiled-int4", "Measured tokens/s of Llama-2-7B with int4 weights over bf16, both compiled, A100",
      COMPILED["int4 weights"][0] / COMPILED["bf16"][0], "x", kind="cited", source=AO, at_least=1.7, at_most=2)

# %% [markdown]
# ## Speculative decoding
#
# A draft proposes *k* tokens; each is accepted with probability *a*, up to the first miss.
# A pass of the large model then gives (1 - a^(k+1)) / (1 - a) tokens on average
# ([Leviathan and others](https://arxiv.org/abs/2211.17192)). Each drafted token costs *c* of a
# pass of the large model. So the speed is that number over 1 + k c.
#
# Read the rows from the bottom: a draft that is often right pays at any price here, one that
# is often wrong has to be free. At large batches the passes are bound by arithmetic, and
# rejected tokens are then work that others wait for.

# %%
def speculative(accepted, drafted, cost):
    return (1 - accepted ** (drafted + 1)) / (1 - accepted) / (1 + drafted * cost)


COSTS = {"free": 0.0, "tenth": 0.1, "third": 1 / 3}
table("speculative", "Speed against decoding without a draft, five drafted tokens, bandwidth-bound at batch 1",
      {"accepted": "Accepted, %", "free": "Prompt lookup, free draft", "tenth": "Draft of a tenth",
       "third": "Draft of a third"},
      [{"accepted": 100 * accepted, **{name: speculative(accepted, 5, cost) for name, cost in COSTS.items()}}
       for accepted in (0.3, 0.5, 0.7, 0.9)], kind="derived")
claim("draft-slower", "Speed without a draft over that with a draft of a third of the model, half of its tokens "
      "accepted, five drafted", 1 / speculative(0.5, 5, 1 / 3), "x", kind="derived", at_least=1.2)
claim("draft-faster", "Speed with a draft of a tenth of the model that gets seven of ten tokens accepted, five drafted",
      speculative(0.7, 5, 0.1), "x", kind="derived", at_least=1.7, at_most=2.2)

# %% [markdown]
# ## Cost of a million tokens
#
# *GPU hours for a million tokens = 1e6 / (tokens/s x 3600)*; times your price of an hour. The
# rates are of one H100 and three engines, measured by GPUStack at the end of 2025. The more
# requests at once, the cheaper a token, and the longer each of them waits for its first one.

# %%
STACK = "https://github.com/gpustack/gpustack/tree/47277d79f4a5bae12a2d25e9ecbed2a2177a5f2d/docs/performance-lab"
SERVED = (  # model and weights, engine, requests at once, output tokens/s of all, mean ms to the first token
    ("Qwen3-8B, bf16", "SGLang 0.5.3", 4, 525.59, 27.7), ("Qwen3-8B, fp8", "SGLang 0.5.3", 4, 657.83, 39.66),
    ("Qwen3-8B, fp8, EAGLE-3", "SGLang 0.5.3", 4, 979.24, 50.7),
    ("Qwen3-14B, bf16", "SGLang 0.5.5", 1000, 4043.89, 9230.85),
    ("Qwen3-14B, fp8", "SGLang 0.5.5", 1000, 5019.64, 7320.6),
    ("Qwen3-32B, bf16", "TensorRT-LLM 1.2.0rc1", 1000, 1280.04, 65281.52),
    ("Qwen3-32B, fp8, chunked prefill", "TensorRT-LLM 1.2.0rc1", 1000, 2060.4, 31208.75),
)
table("cost", "GPU hours for a million output tokens on one H100, ShareGPT's conversations, measured by GPUStack, 2025",
      {"model": "Model", "engine": "Engine", "requests": "Requests at once", "rate": "Tokens/s in all",
       "first": "First token after, s", "hours": "GPU hours for a million tokens"},
      [{"model": model, "engine": engine, "requests": requests, "rate": rate, "first": first / 1e3,
        "hours": 1e6 / rate / 3600} for model, engine, requests, rate, first in SERVED], kind="cited", source=STACK)

# %% [markdown]
# ## What came out
#
# - **Count first:** weights, then the cache at your length and batch. GQA, MLA, sliding and
#   linear layers differ widely. To count your own model, write its configuration into
#   `MODELS` above and run the notebook again.
# - **Decoding is bound by bytes.** Fewer bytes for each token, or more tokens for each read.
#   For one user, quantize or speculate. For many users, batch.
# - **The cache ends the batch.** Where conversations are long, a smaller cache brings more
#   users than smaller weights do.
# - **Eager decoding of a small model is bound by the CPU on a fast GPU.** A compiled step
#   comes several times nearer to the limit.
# - **Measure yours.** [The next notebook](generate_speed.ipynb) says how near `generate` comes to
#   the limit of the bandwidth on your GPU, and what a batch, a compiled step and fewer bits bring.

# %%
# Compares this run with the published records. In Colab it also offers the record of this machine, to send.
from evidence.finish import finish

finish()
