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
# # Inference on many GPUs: what fits, what is sent, and what it buys
#
# **When does a second GPU bring room, when speed, and when neither?**
#
# Three wishes lead to three ways:
#
# - *The model does not fit.* Split it. Each GPU holds a part of every layer (tensor
#   parallelism), or some of the layers (`device_map`).
# - *One answer shall come sooner.* Only tensor parallelism does that, because all GPUs work
#   on the same token.
# - *Many answers shall come sooner.* One copy per GPU sends nothing.
#
# Nothing here is timed. Bytes are counted on the real model code of transformers, at full
# size, on tensors without data. Limits follow from data sheets. Speeds that people measured
# on GPUs are cited, beside what the arithmetic says.
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
import contextlib
import logging
import math
import re
import statistics
from fractions import Fraction
from itertools import product

logging.disable(logging.WARNING)

import matplotlib.pyplot as plt
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore
from transformers import AutoModelForCausalLM, DeepseekV3Config, GptOssConfig, LlamaConfig, MiniMaxM2Config
from transformers import MixtralConfig, Qwen3_5MoeTextConfig, Qwen3Config, Qwen3MoeConfig
from transformers.distributed import DistributedConfig
from transformers.distributed.tensor_parallel import apply_tensor_parallelism

# %%
from dryrun.tables import hardware
from dryrun.cost import timing
from fitting import published
from dryrun.answer.answer import usable
from dryrun.tracing.collectives import RankTracker
from fitting.held_out import of_group
from dryrun.tables.formats import WEIGHT_BYTES
from dryrun.cost.setting import Setting
from fitting.rows import run_of
from dryrun.tracing import GiB, fake
from dryrun.cost.traces import traced
from dryrun.step.workload import Workload
from evidence import plots
from evidence.claims import claim, predicted, start, table

GB, BF16 = 1e9, torch.bfloat16
start("inference_many_gpus")
plots.set_up("inference_many_gpus")

# %% [markdown]
# ## Twelve models
#
# Each configuration is written from the dimensions that its authors published. The
# parameters that it gives are compared with the number they published. Of a model that also
# takes pictures this is the part for text.

# %%
def shape(vocabulary, hidden, layers, heads, kv_heads, **other):
    """What almost every configuration has."""
    return dict(vocab_size=vocabulary, hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads,
                num_key_value_heads=kv_heads, max_position_embeddings=131072, tie_word_embeddings=False) | other


def llama(hidden, layers, heads, inner):
    return LlamaConfig(**shape(128256, hidden, layers, heads, 8, intermediate_size=inner))


def qwen_moe(hidden, layers, heads, inner):
    return Qwen3MoeConfig(**shape(151936, hidden, layers, heads, 4, moe_intermediate_size=inner, head_dim=128,
                                  num_experts=128, num_experts_per_tok=8))


def qwen35_moe(hidden, layers, experts, chosen):
    return Qwen3_5MoeTextConfig(**shape(
        248320, hidden, layers, 32, 2, head_dim=256, moe_intermediate_size=1024, shared_expert_intermediate_size=1024,
        num_experts=experts, num_experts_per_tok=chosen, linear_num_key_heads=16, linear_num_value_heads=64,
        linear_key_head_dim=128, linear_value_head_dim=128))

# %%
DEEPSEEK = DeepseekV3Config(**shape(
    129280, 7168, 61, 128, 128, intermediate_size=18432, moe_intermediate_size=2048, n_shared_experts=1,
    n_routed_experts=256, num_experts_per_tok=8, first_k_dense_replace=3, q_lora_rank=1536, kv_lora_rank=512,
    qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128))
OSS = GptOssConfig(**shape(201088, 2880, 36, 64, 8, intermediate_size=2880, head_dim=64, sliding_window=128,
                           num_local_experts=128, num_experts_per_tok=4))
MINIMAX = MiniMaxM2Config(**shape(200064, 3072, 62, 48, 8, intermediate_size=1536, head_dim=128, num_local_experts=256,
                                  num_experts_per_tok=8))

# %%
MODELS = {  # name: (configuration, published parameters in billions)
    "Llama-3.1-8B": (llama(4096, 32, 32, 14336), 8.03),
    "Qwen3-30B-A3B": (qwen_moe(2048, 48, 32, 768), 30.5),
    "Qwen3-32B": (Qwen3Config(**shape(151936, 5120, 64, 64, 8, intermediate_size=25600, head_dim=128)), 32.8),
    "Mixtral-8x7B": (MixtralConfig(**shape(32000, 4096, 32, 32, 8, intermediate_size=14336, num_local_experts=8,
                                           num_experts_per_tok=2)), 46.7),
    "Llama-3.1-70B": (llama(8192, 80, 64, 28672), 70.6),
    "gpt-oss-120b": (OSS, 116.8),
    "Qwen3.5-122B-A10B": (qwen35_moe(3072, 48, 256, 8), 122),
    "MiniMax-M2": (MINIMAX, None),  # published as 230, in round tens: nothing to compare with
    "Qwen3-235B-A22B": (qwen_moe(4096, 94, 64, 1536), 235),
    "Qwen3.5-397B-A17B": (qwen35_moe(4096, 60, 512, 10), 397),
    "Llama-3.1-405B": (llama(16384, 126, 128, 53248), 405.9),
    "DeepSeek-V3": (DEEPSEEK, 671),
}

# %%
def on_meta(config):
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config, dtype=BF16).eval()


BUILT = {name: on_meta(config) for name, (config, _) in MODELS.items()}


def total(name):
    return sum(weight.numel() for weight in BUILT[name].parameters())


off = [abs(total(name) / 1e9 / published - 1) for name, (_, published) in MODELS.items() if published]
claim("parameters-off", "Largest difference between the parameters counted here and the published number, eleven "
      "models", 100 * max(off), "%", kind="derived", at_most=0.5)

# %% [markdown]
# ## What one rank holds
#
# Each model class of transformers has a plan that says how each weight is split, and one for
# its experts. A weight that no plan names lies whole on every rank: the norms, and the
# attention of DeepSeek-V3 and gpt-oss.

# %%
SPLIT = {"colwise", "rowwise", "packed_colwise", "embedding_rowwise", "colwise_gather_output", "grouped_gemm"}


def rule(plan, name):
    """The style that a plan gives a weight: rules name modules, or the experts' tensors themselves."""
    wild = re.sub(r"\.\d+\.", ".*.", name)
    return plan.get(wild) or plan.get(wild.rpartition(".")[0])


def parts(name):
    """{(split, rounded): parameters}: whether ranks divide them, and whether a 4-bit format rounds them."""
    model, found = BUILT[name], dict.fromkeys(product((True, False), repeat=2), 0)
    ends = {id(model.get_input_embeddings().weight), id(model.get_output_embeddings().weight)}
    for key, weight in model.named_parameters():
        rounded = weight.ndim >= 2 and id(weight) not in ends and "router" not in key
        found[not SPLIT.isdisjoint((rule(model.tp_plan, key), rule(model.ep_plan, key))), rounded] += weight.numel()
    return found


PARTS = {name: parts(name) for name in MODELS}

# %% [markdown]
# From these counts, the bytes on a rank:

# %%
def weight_bytes(name, ranks=1, bits=16):
    """On one rank. Embeddings, output layer and norms stay in 16 bits."""
    return sum(number * (bits / 8 if rounded else 2) / (ranks if split else 1)
               for (split, rounded), number in PARTS[name].items())


whole = sum(number for (split, _), number in PARTS["DeepSeek-V3"].items() if not split)
claim("deepseek-whole", "Parameters of DeepSeek-V3 that the plan of transformers leaves whole on every rank",
      whole / 1e9, "billion", kind="traced", at_least=8, at_most=16)
claim("weights-70b", "Weights of Llama-3.1-70B in bf16", weight_bytes("Llama-3.1-70B") / GiB, "GiB", kind="derived",
      at_least=130, at_most=133)
claim("weights-70b-8", "Weights of Llama-3.1-70B in bf16 on each of 8 ranks, by the plan of transformers",
      weight_bytes("Llama-3.1-70B", 8) / GiB, "GiB", kind="traced", at_least=16.4, at_most=16.6)

# %% [markdown]
# The KV cache goes with the heads. A rank keeps at least one of them, so more ranks than KV
# heads keep copies. A latent cache (MLA) has no heads: every rank keeps all of it. So it is with
# the state of a linear layer, whose outputs the plan of transformers gathers.

# %%
def state_bytes(config):
    """A linear layer's state, at any length: the last inputs of a convolution, and the recurrent state in fp32."""
    keys = config.linear_num_key_heads * config.linear_key_head_dim
    values = config.linear_num_value_heads * config.linear_value_head_dim
    return 2 * (2 * keys + values) * config.linear_conv_kernel_dim + 4 * values * config.linear_key_head_dim


def cache_bytes(name, tokens, ranks=1):
    """The KV cache of one sequence on one rank, in bf16."""
    config = MODELS[name][0]
    if getattr(config, "kv_lora_rank", None):
        return 2 * config.num_hidden_layers * (config.kv_lora_rank + config.qk_rope_head_dim) * tokens
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    kinds = getattr(config, "layer_types", None) or ["full_attention"] * config.num_hidden_layers
    linear = kinds.count("linear_attention")
    sliding = min(tokens, getattr(config, "sliding_window", None) or tokens) * kinds.count("sliding_attention")
    kept = sliding + tokens * kinds.count("full_attention")
    return 2 * 2 * head * kept * max(1, config.num_key_value_heads / ranks) + (linear and linear * state_bytes(config))


# %% [markdown]
# ## What fits on which GPU, and on how many
#
# *Weights on a rank + KV cache on a rank + reserve ≤ memory of a GPU.* The reserve is for
# what the prompt needs beside its cache, the CUDA context, communication buffers and
# rounding.
#
# Memory is what the package says of a GPU of that size. A GPU whose memory has no parts of
# its own for error correction (ECC) shows a sixteenth less, as an L4 does.

# %%
OF_SIZE = {8: "rtx-4060", 16: "rtx-5080", 24: "rtx-4090", 32: "rtx-5090", 48: "rtx-6000-ada", 80: "h100-sxm5",
           96: "rtx-pro-6000-bw", 141: "h200-sxm", 192: "mi300x"}
WITH_ECC = {16: "t4", 24: "l4", 48: "l40s"}
SIZES, RANKS, TOKENS, RESERVE = tuple(OF_SIZE), (1, 2, 4, 8), 8192, 2 * GiB


def memory(size, ecc=False):
    return usable(WITH_ECC.get(size, OF_SIZE[size]) if ecc else OF_SIZE[size])


def held(name, ranks, bits=16, tokens=TOKENS):
    return weight_bytes(name, ranks, bits) + cache_bytes(name, tokens, ranks)


def fewest(name, size, bits):
    """The fewest GPUs of that size, or a dash; "?" where ECC would leave too little on so many."""
    fits = [ranks for ranks in RANKS if held(name, ranks, bits) + RESERVE <= memory(size)]
    if not fits:
        return "–"
    return f"{fits[0]}" if held(name, fits[0], bits) + RESERVE <= memory(size, ecc=True) else f"{fits[0]}?"


def fits(key, bits, words):
    table(key, f"The fewest GPUs, of 1, 2, 4 and 8, that hold a model {words} and one sequence of "
          "8,192 tokens; ?: not where ECC takes some of the memory",
          {"model": "Model", "heads": "KV heads", **{f"gb{size}": f"{size} GB" for size in SIZES}},
          [{"model": name, "heads": getattr(config, "kv_lora_rank", None) and "MLA" or str(config.num_key_value_heads),
            **{f"gb{size}": fewest(name, size, bits) for size in SIZES}} for name, (config, _) in MODELS.items()],
          kind="derived")

# %%
fits("fits", 16, "in bf16")
fits("fits-4bit", 4.5, "in 4 bits with scales")
SEVENTY, EIGHT = "Llama-3.1-70B", "Llama-3.1-8B"
for key, ranks, least, most in (("70b-48", 4, 33, 34), ("70b-80", 2, 66, 68)):
    claim(f"held-{key}", f"Llama-3.1-70B in bf16 and 8,192 tokens on each of {ranks} GPUs, by the plan of transformers",
          held(SEVENTY, ranks) / GiB, "GiB", kind="derived", at_least=least, at_most=most)
AWQ = 8 * WEIGHT_BYTES["int4-128"]
claim("held-70b-24", "Llama-3.1-70B in AWQ's 4 bits and 8,192 tokens on each of 2 GPUs, by the plan of transformers",
      held(SEVENTY, 2, AWQ) / GiB, "GiB", kind="derived", at_least=19.5, at_most=20.5)
claim("tokens-70b-24", "Tokens in all that fit beside Llama-3.1-70B in AWQ's 4 bits on two RTX 4090",
      (memory(24) - RESERVE - weight_bytes(SEVENTY, 2, AWQ)) / cache_bytes(SEVENTY, 1, 2), "tokens", kind="derived",
      at_least=15e3, at_most=20e3)

# %% [markdown]
# How many sequences fit tells how many answers can come at once. Two GPUs that just hold the
# model hold few.

# %%
def sequences(name, ranks, size, bits=16):
    """Sequences of 8,192 tokens that fit beside the weights, over all GPUs of one copy."""
    room = memory(size) - RESERVE - weight_bytes(name, ranks, bits)
    return max(0, int(room // cache_bytes(name, TOKENS, ranks)))


table("room", "Llama-3.1-70B in bf16: sequences of 8,192 tokens that fit at once, on 8 GPUs in all",
      {"copies": "Copies x GPUs each", "gb80": "80 GB", "gb141": "141 GB", "gb192": "192 GB"},
      [{"copies": f"{8 // ranks} x {ranks}",
        **{f"gb{size}": 8 // ranks * sequences(SEVENTY, ranks, size) for size in (80, 141, 192)}} for ranks in RANKS],
      kind="derived")
claim("room-2", "Sequences of 8,192 tokens that fit beside one copy of Llama-3.1-70B in bf16 on two GPUs of 80 GB",
      sequences(SEVENTY, 2, 80), "", kind="derived", at_least=8, at_most=10)
claim("room-8", "Sequences of 8,192 tokens that fit beside one copy of Llama-3.1-70B in bf16 on eight GPUs of 80 GB",
      sequences(SEVENTY, 8, 80), "", kind="derived", at_least=150, at_most=200)

# %% [markdown]
# ## device_map: one GPU works at a time
#
# Layers lie on several GPUs, and layer 21 needs the result of layer 20. So for one sequence
# exactly one GPU works. The bytes read for a token are those of the whole model, one GPU
# after the other, whatever the number of GPUs:
#
# *tokens/s ≤ bandwidth of one GPU / bytes of all weights.*
#
# With tensor parallelism all GPUs read at once: *tokens/s ≤ n x bandwidth / bytes*.

# %%
def bandwidth(gpu):
    return hardware.accelerator(gpu).get("bandwidth") * GB


def read(name):
    """Bytes that a token reads at batch 1 in bf16, of a dense model: all weights but the embedding table."""
    return weight_bytes(name) - 2 * BUILT[name].get_input_embeddings().weight.numel()


LIMITS = {"device_map": bandwidth("rtx-4090") / read(SEVENTY), "tensor": 8 * bandwidth("rtx-4090") / read(SEVENTY)}
claim("limit-map", "Most tokens/s of Llama-3.1-70B in bf16 at batch 1, layers spread over eight RTX 4090, by bandwidth",
      LIMITS["device_map"], "tokens/s", kind="derived", at_least=7, at_most=7.5)
claim("limit-tensor", "Most tokens/s of Llama-3.1-70B in bf16 at batch 1, each layer split over eight RTX 4090, by "
      "bandwidth and before any communication", LIMITS["tensor"], "tokens/s", kind="derived", at_least=56, at_most=60)
claim("busy", "Share of the time that each of four GPUs works for one sequence, layers spread evenly by device_map",
      100 / 4, "%", kind="derived", at_least=25, at_most=25)

# %% [markdown]
# ## What tensor parallelism sends for a token
#
# By theory each layer makes two sums over all ranks (all-reduce), one after attention and
# one after the MLP. The embedding is split by vocabulary, so it makes one more. The output
# layer is split too, and its logits are gathered.
#
# The real code says the same. PyTorch's *fake* process group plays rank 0 of n: its
# collectives return at once. The model of full size runs on fake tensors, with the plan of
# transformers, and a tracker counts what goes to each collective.

# %%
@contextlib.contextmanager
def fake_ranks(number):
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=number)
    try:
        yield init_device_mesh("cpu", (number,))
    finally:
        dist.destroy_process_group()


@torch.no_grad()
def collectives(name, ranks, tokens=1):
    """The collectives of one pass of so many tokens on rank 0 of `ranks`."""
    with fake_ranks(ranks) as mesh, fake():
        model = AutoModelForCausalLM.from_config(MODELS[name][0], dtype=BF16).eval()
        plan, *_ = model._resolve_parallel_plans(DistributedConfig(tp_size=ranks))
        apply_tensor_parallelism(model, mesh, plan)
        ids = torch.zeros(1, tokens, dtype=torch.long)
        with RankTracker(model, torch.optim.SGD(model.parameters(), lr=1), {"input_ids": ids}) as tracker:
            model(ids, use_cache=True, logits_to_keep=1)
    return list(tracker.collectives.values())

# %%
def theory(name, ranks, tokens=1):
    """(all-reduces, bytes that a rank sends): each sum goes round a ring, each logit is gathered once."""
    config = MODELS[name][0]
    sums = 2 * config.num_hidden_layers + 1
    ring = (ranks - 1) / ranks
    return sums, ring * (2 * sums * tokens * config.hidden_size * 2 + config.vocab_size * 2)


counted = []
for name, ranks in product((EIGHT, SEVENTY), (2, 4, 8)):
    found, (sums, sent) = collectives(name, ranks), theory(name, ranks)
    counted.append({"model": name, "ranks": ranks, "reduced": sum(c.count for c in found if c.kind == "all-reduce"),
                    "gathered": sum(c.count for c in found if c.kind == "all-gather"), "theory": sums,
                    "sent": sum(c.sent for c in found) / 1e6, "formula": sent / 1e6})
table("collectives", "Collectives of one decoded token at batch 1 in bf16, on each rank, counted in the real code",
      {"model": "Model", "ranks": "GPUs", "reduced": "All-reduces", "theory": "2 x layers + 1",
       "gathered": "All-gathers", "sent": "Sent, MB", "formula": "By the formula, MB"}, counted, kind="traced")
claim("collectives-off", "Largest difference between counted and derived bytes of a token under tensor parallelism",
      100 * max(abs(row["sent"] / row["formula"] - 1) for row in counted), "%", kind="traced", at_most=0.01)
claim("sums-70b", "All-reduces for a token of Llama-3.1-70B under tensor parallelism", counted[-1]["reduced"], "",
      kind="traced", at_least=161, at_most=161)
claim("sent-70b", "Sent by each of 8 GPUs for one token of Llama-3.1-70B at batch 1 in bf16", counted[-1]["sent"], "MB",
      kind="traced", at_least=4, at_most=6)
claim("payload-70b", "What one all-reduce of a token of Llama-3.1-70B in bf16 sums", 8192 * 2 / 1024, "KiB",
      kind="derived", at_least=16, at_most=16)

# %% [markdown]
# ## Over which link
#
# A token sums little, a prompt much: the payload grows with the tokens. So bandwidth decides
# for prompts and large batches. Peaks of links and GPUs, one direction:

# %%
def links(gpu, ranks=8, prompt=8192):
    """What a token reads, and what a prompt of Llama-3.1-70B computes and sends, in ms at peak rates on each GPU."""
    card = hardware.accelerator(gpu)
    speed = hardware.bytes_per_second(card.get("peer_link"))
    arithmetic = 2 * total(SEVENTY) * prompt / ranks / (card.half * 1e12)
    return {"gpu": card.label, "link": card.get("peer_link"), "read": 1e3 * read(SEVENTY) / ranks / bandwidth(gpu),
            "token": 1e3 * theory(SEVENTY, ranks)[1] / speed, "compute": 1e3 * arithmetic,
            "send": 1e3 * theory(SEVENTY, ranks, prompt)[1] / speed}


LINKS = {gpu: links(gpu) for gpu in ("rtx-4090", "l40s", "a100-sxm4-80", "h100-sxm5")}
table("links", "Llama-3.1-70B in bf16 split over 8 GPUs: least times at the peaks of GPU and link",
      {"gpu": "GPU", "link": "Link", "read": "A token: reading, ms", "token": "A token: sending, ms",
       "compute": "A prompt of 8,192: computing, ms", "send": "A prompt of 8,192: sending, ms"}, list(LINKS.values()),
      kind="derived")
for key, gpu, least, most in (("4090", "rtx-4090", 1, 2), ("l40s", "l40s", 2.5, 4)):
    claim(f"prompt-{key}", f"Time to send over time to compute a prompt of 8,192 tokens, Llama-3.1-70B split over 8 "
          f"{LINKS[gpu]['gpu']}, both at peak rates", LINKS[gpu]["send"] / LINKS[gpu]["compute"], "x", kind="derived",
          at_least=least, at_most=most)
claim("prompt-h100", "Time to compute over time to send a prompt of 8,192 tokens, Llama-3.1-70B split over 8 H100 with "
      "NVLink, both at peak rates", LINKS["h100-sxm5"]["compute"] / LINKS["h100-sxm5"]["send"], "x", kind="derived",
      at_least=1.5, at_most=2)

# %% [markdown]
# A token's sums are too small for bandwidth to matter. Each costs the *latency* of an
# all-reduce instead, and there are two in each layer. Engines have kernels of their own for
# such sums, which the GPUs write into each other's memory. NCCL's go through more steps. What
# people measured, each with how it was launched:

# %%
UNIT_TEST = "https://github.com/sgl-project/sglang/pull/2904"
SWITCH = "https://github.com/haohervchb/sglang-V100/pull/2"
GEFORCE = "https://github.com/NVIDIA/nccl/issues/1530"
SUMS = {  # key: (where, which kernel, how launched, bytes summed, microseconds, source)
    "h100": ("8 H100, NVLink", "SGLang's", "one by one, 2025", 32768, 7.8, UNIT_TEST),
    "h100-vllm": ("8 H100, NVLink", "vLLM's", "one by one, 2025", 32768, 11.8, UNIT_TEST),
    "v100": ("4 V100, PCIe switch", "one-shot", "CUDA graph, 2026", 16384, 7.2, SWITCH),
    "v100-nccl": ("4 V100, PCIe switch", "NCCL", "CUDA graph, 2026", 16384, 22.3, SWITCH),
    "4090": ("8 RTX 4090, PCIe", "NCCL", "one by one", 8, 42.1, GEFORCE),
}
table("sums", "Time of one small all-reduce that people measured, and of those of a token at batch 1",
      {"where": "GPUs", "kernel": "Kernel", "how": "Launched", "bytes": "Bytes", "micro": "One sum, µs",
       "eight": "Llama-3.1-8B: a token's, ms", "seventy": "Llama-3.1-70B: a token's, ms"},
      [{"where": where, "kernel": kernel, "how": how, "bytes": size, "micro": micro,
        "eight": micro * theory(EIGHT, 8)[0] / 1e3, "seventy": micro * theory(SEVENTY, 8)[0] / 1e3}
       for where, kernel, how, size, micro, _ in SUMS.values()], kind="cited", source=UNIT_TEST)
for key, (where, kernel, how, _, micro, source) in SUMS.items():
    claim(f"sum-{key}", f"Time of one small all-reduce by {kernel} kernel, measured on {where}, {how}", micro, "µs",
          kind="cited", source=source)

# %% [markdown]
# ### When it pays, for one answer
#
# *Seconds of a token on n GPUs ≈ bytes / (n x bandwidth) + sums x latency.*
#
# On one GPU the second term is zero. So tensor parallelism pays as long as the sums take
# less than the part of the reading that it saves, (n - 1)/n.

# %%
def speedup(name, gpu, ranks, micro):
    """Tokens/s at batch 1 on so many GPUs over one that were large enough, if a sum takes so many microseconds."""
    alone = read(name) / bandwidth(gpu)
    return alone / (alone / ranks + theory(name, ranks)[0] * micro / 1e6)


def break_even(name, gpu, ranks):
    """Microseconds of a sum at which n GPUs are as fast as one."""
    return 1e6 * read(name) / bandwidth(gpu) * (1 - 1 / ranks) / theory(name, ranks)[0]


table("pays", "Tokens/s at batch 1 in bf16 on n GPUs over one, by the formula, if a sum takes so long",
      {"model": "Model", "gpu": "GPU", "ranks": "GPUs", **{f"us{micro}": f"{micro} µs" for micro in (10, 20, 40, 100)},
       "even": "No gain from, µs"},
      [{"model": name, "gpu": hardware.accelerator(gpu).label, "ranks": ranks,
        **{f"us{micro}": speedup(name, gpu, ranks, micro) for micro in (10, 20, 40, 100)},
        "even": break_even(name, gpu, ranks)}
       for name, gpu in ((EIGHT, "rtx-4090"), (EIGHT, "h100-sxm5"), (SEVENTY, "h100-sxm5")) for ranks in (2, 8)],
      kind="derived")
for key, name, gpu, ranks, micro, least, most in (("8b-4090", EIGHT, "rtx-4090", 2, 40, 1.2, 1.6),
                                                  ("70b-h100", SEVENTY, "h100-sxm5", 8, 10, 5.5, 7.5)):
    claim(f"pays-{key}", f"Tokens/s of {name} in bf16 at batch 1 on {ranks} {hardware.accelerator(gpu).label} over "
          f"one, by the formula, with {micro} µs for a sum", speedup(name, gpu, ranks, micro), "x", kind="derived",
          at_least=least, at_most=most)
claim("even-8b", "Time of a sum from which two H100 give no more tokens/s of Llama-3.1-8B in bf16 at batch 1 than one",
      break_even(EIGHT, "h100-sxm5", 2), "µs", kind="derived", at_least=30, at_most=45)

# %% [markdown]
# The same as curves, with sums as long as people measured them over NVLink and over PCIe. The
# dotted line is what a user hopes for: n GPUs, n times the speed.
#
# The larger the model, the longer its reading takes, and the less the sums matter. An H100
# reads the small model so fast that slow sums eat the gain: two of them are slower than one.
# An RTX 4090 reads it more slowly, so the same sums leave it more of the gain.

# %% alt="Speed over one GPU against GPUs: 70B over NVLink rises most; 8B with slow sums on H100 first falls below one."
_, axes = plt.subplots(figsize=(7, 3.2))
SLOW = "sums as over PCIe"
for name, gpu, key, link in ((SEVENTY, "h100-sxm5", "h100", "NVLink"), (SEVENTY, "h100-sxm5", "4090", SLOW),
                             (EIGHT, "h100-sxm5", "h100", "NVLink"), (EIGHT, "rtx-4090", "4090", "PCIe"),
                             (EIGHT, "h100-sxm5", "4090", SLOW)):
    axes.plot(RANKS, [1, *(speedup(name, gpu, ranks, SUMS[key][4]) for ranks in RANKS[1:])], marker="o",
              label=f"{name}, {hardware.accelerator(gpu).label}, {link}")
axes.plot(RANKS, RANKS, color=plots.GRAY, linestyle=":", linewidth=1)
axes.set(xlabel="GPUs", ylabel="tokens/s at batch 1, over one GPU", xticks=RANKS)
axes.legend()
plt.show()

# %% [markdown]
# ### What others measured: one answer on 1 to 8 GPUs
#
# gpt-fast, compiled, batch 1, on A100 with NVLink. Its rates at 1 and at n GPUs also
# tell what does not divide by n: *seconds on n GPUs - seconds on one / n*. Divided by the
# number of sums it is an upper bound for one of them.

# %%
GPT_FAST = "https://github.com/meta-pytorch/gpt-fast/blob/6ecad9b5b6b987d17ac4303965545873d0192086/README.md"
RATES = {"Llama-2-7B": {1: 104.9, 2: 168.84, 4: 254.02, 8: 328.43},
         "Llama-3.1-8B": {1: 93.83, 2: 149.10, 4: 217.21, 8: 276.01},
         "Llama-2-70B": {2: 21.32, 4: 38.01, 8: 62.50}}
table("published", "Tokens/s at batch 1 in bf16, compiled, A100 80GB with NVLink, measured by the authors of gpt-fast",
      {"model": "Model", **{f"gpus{ranks}": f"{ranks} GPUs" if ranks > 1 else "1 GPU" for ranks in RANKS}},
      [{"model": name, **{f"gpus{ranks}": rates.get(ranks, "–") for ranks in RANKS}}
       for name, rates in RATES.items()], kind="cited", source=GPT_FAST)
seven = RATES["Llama-2-7B"]
undivided = {ranks: 1e6 * (1 / seven[ranks] - 1 / seven[1] / ranks) / (2 * 32 + 1) for ranks in (2, 4, 8)}
for key, value, least, most in (("8", seven[8] / seven[1], 3, 3.3), ("2", seven[2] / seven[1], 1.5, 1.7),
                                ("70b", RATES["Llama-2-70B"][8] / RATES["Llama-2-70B"][2], 2.8, 3)):
    ratio = {"8": "Llama-2-7B on 8 over 1", "2": "Llama-2-7B on 2 over 1", "70b": "Llama-2-70B on 8 over 2"}[key]
    claim(f"published-{key}", f"Measured tokens/s at batch 1 of {ratio} A100, gpt-fast, tensor parallelism over NVLink",
          value, "x", kind="cited", source=GPT_FAST, at_least=least, at_most=most)
for ranks, least, most in ((2, 15, 20), (8, 25, 32)):
    claim(f"undivided-{ranks}", f"What does not divide by {ranks} GPUs in gpt-fast's token of Llama-2-7B, for each sum",
          undivided[ranks], "µs", kind="cited", source=GPT_FAST, at_least=least, at_most=most)

# %% [markdown]
# ## All three ways, predicted
#
# A limit says what no GPU exceeds. A *prediction* says what to expect, with a low and a high
# that hold nine of ten published measurements. It comes from the traced step: its bytes, its
# kernels, and constants fitted on published runs.
#
# How good is it for split layers? Each published row of a dense model at batch 1 is predicted
# by constants in which its own source had no part.

# %%
HELD_OUT = timing.fitted()["held_out"]["source"]


def judged(row):
    """A published row of a split model beside its prediction, by constants that its source had no part in."""
    workload, setting = run_of(row)
    found = timing.prediction(traced(workload), workload, setting, of_group(HELD_OUT, row["source"]))
    low, high = timing.band(found.klass, row["source"])
    return {"gpus": f"{row['gpus']} x {hardware.accelerator(row['gpu']).label}", "model": row["model"],
            "weights": row["precision"], "predicted": 1 / found.seconds, "published": row["value"],
            "inside": found.seconds * low <= row["seconds"] <= found.seconds * high}


def is_split_and_dense(row):
    split = (row.get("parallel") or {}).get("tp", 1) > 1 and row["kind"] == "decode" and row["batch"] == 1
    return split and row["usable"] and row["model"].startswith(("llama", "qwen2.5"))


JUDGED = [judged(row) for row in published.rows() if is_split_and_dense(row)]
table("judged", "Tokens/s at batch 1, each layer split over A100 with NVLink: predicted, and published",
      {"gpus": "GPUs", "model": "Model", "weights": "Weights", "predicted": "Predicted, tokens/s",
       "published": "Published, tokens/s"}, JUDGED, kind="predicted")
misses = [100 * abs(row["predicted"] / row["published"] - 1) for row in JUDGED]
claim("judged-rows", "Published rows of dense models that are split over several A100 with NVLink, batch 1",
      len(JUDGED), "", kind="derived", at_least=15, at_most=60)
claim("judged-inside", "Share of these published rows that lie inside the low and high of the prediction",
      100 * sum(row["inside"] for row in JUDGED) / len(JUDGED), "%", kind="derived", at_least=60, at_most=100)
claim("judged-error", "Median error of the predicted tokens/s of split models, constants from other sources",
      statistics.median(misses), "%", kind="derived", at_least=1, at_most=35)

# %% [markdown]
# All these rows are of NVLink. A sum takes what tables of the engines' own kernels say, and on
# GeForce cards, which reach each other through host memory, the latency of eight RTX 4090. One
# report has both sizes of a split over PCIe: Llama-3.1-70B in 4 bits on RTX 3090 Ti in vLLM.

# %%
CONTEXT = 512
REPORT_PCIE = "https://github.com/vllm-project/vllm/issues/6955"


def over_nvlink(gpu):
    """Whether GPUs of this kind come with NVLink. A bridge that is sold apart does not count."""
    return str(hardware.accelerator(gpu).get("peer_link")).startswith("NVLink")


def decoded(model, gpu, ranks=1, weights="bf16", source=None):
    """(tokens/s, low, high) of one sequence behind 512 tokens, in a server, each layer split over so many GPUs."""
    workload = Workload(model, 1, 1, kind="decode", compiled=True)
    setting = Setting(gpu=gpu, gpus=ranks, gpus_per_node=ranks, tensor=ranks, optimizer="", host="server",
                      precision=weights, weight_bytes=WEIGHT_BYTES[weights], context=CONTEXT)
    what = traced(workload)
    found = timing.prediction(what, workload, setting, source and of_group(HELD_OUT, source))
    reading = (what.weight_bytes * setting.weight_bytes + what.keys * CONTEXT) / ranks / bandwidth(gpu)
    soonest = max(found.low, min(found.seconds, reading))  # no token comes before its bytes
    return tuple(1 / seconds for seconds in (found.seconds, found.high, soonest))

# %%
def band_of(rates, times=1):
    value, low, high = (f"{times * rate:.0f}" for rate in rates)
    return f"{value} ({low} to {high})"


table("pcie", "Tokens/s of one client, Llama-3.1-70B in 4 bits split over RTX 3090 Ti, PCIe 4: predicted, and in vLLM",
      {"gpus": "GPUs", "predicted": "Predicted, low to high, tokens/s", "published": "Published, tokens/s"},
      [{"gpus": ranks, "predicted": band_of(decoded("llama3-70b", "rtx-3090ti", ranks, "int4-128")), "published": rate}
       for ranks, rate in ((2, 30), (4, 46))], kind="predicted", source=REPORT_PCIE)

# %% [markdown]
# The three ways on the same GPUs. *In turn*: each GPU holds some of the layers, so the speed
# is that of one GPU, were it large enough. *Copies*: each GPU answers another prompt.

# %%
WAYS = (("llama3-8b", "Llama-3.1-8B", "bf16", "rtx-4090", 2), ("llama3-8b", "Llama-3.1-8B", "bf16", "h100-sxm5", 2),
        ("llama3-70b", "Llama-3.1-70B", "int4-128", "rtx-4090", 4),
        ("llama3-70b", "Llama-3.1-70B", "bf16", "a100-sxm4-80", 8),
        ("llama3-70b", "Llama-3.1-70B", "bf16", "h100-sxm5", 8))


def has_room(name, weights, gpu, ranks):
    """Whether a copy, split over so many GPUs, fits with a sequence of 8,192 tokens."""
    return held(name, ranks, 16 if weights == "bf16" else 4.5) + RESERVE <= usable(gpu)


def ways(model, name, weights, gpu, ranks):
    alone, split = decoded(model, gpu, 1, weights), decoded(model, gpu, ranks, weights)
    return {"gpus": f"{ranks} x {hardware.accelerator(gpu).label}", "link": "NVLink" if over_nvlink(gpu) else "PCIe",
            "model": f"{name}, {'bf16' if weights == 'bf16' else '4-bit'}", "turn": band_of(alone),
            "split": band_of(split),
            "copies": band_of(alone, ranks) if has_room(name, weights, gpu, 1) else "does not fit"}


table("ways", "Tokens/s behind 512 tokens, one prompt for each copy, CUDA graphs: predicted, with low and high",
      {"gpus": "GPUs", "link": "Link", "model": "Model", "turn": "Layers in turn, tokens/s",
       "split": "Each layer split, tokens/s", "copies": "Copies together, tokens/s"},
      [ways(*each) for each in WAYS], kind="predicted")

# %% [markdown]
# And on four of the GPU that a reader chooses:

# %%
def on_four(model, name, weights, way):
    """{GPU: what a page shows} of one of the three ways on four GPUs."""
    found = {}
    for gpu in hardware.ON_PAGES:
        said = {"label": f"4 x {hardware.accelerator(gpu).label}"}
        if not has_room(name, weights, gpu, 1 if way == "copies" else 4):
            found[gpu] = said | {"words": "does not fit", "because": "weights and cache need more memory than there is"}
            continue
        times = 4 if way == "copies" else 1
        rates = (times * rate for rate in decoded(model, gpu, 4 if way == "split" else 1, weights))
        link = {"words": f"over {'NVLink' if over_nvlink(gpu) else 'PCIe'}"} if way == "split" else {}
        found[gpu] = said | link | dict(zip(("value", "low", "high"), rates))
    return found

# %%
for key, model, name, weights in (("8b", "llama3-8b", "Llama-3.1-8B", "bf16"),
                                  ("70b", "llama3-70b", "Llama-3.1-70B", "int4-128")):
    for way, words in (("turn", "layers in turn on four GPUs"), ("split", "each layer split over four GPUs"),
                       ("copies", "four copies together, one prompt each")):
        predicted(f"four-{key}-{way}", f"Tokens/s of {name} in {'bf16' if weights == 'bf16' else '4 bits'}, {words}",
                  on_four(model, name, weights, way), "tokens/s", at_least=1, at_most=3000)

# %% [markdown]
# ## Throughput: copies, or one split model
#
# NVIDIA's own table for TensorRT-LLM 0.17: Llama-3.1-70B, requests of 128 tokens in and
# 2,048 out, as many at once as fit. FP8, on the A100 FP16. Divided by the GPUs of a copy it
# tells which size of a copy gives most.

# %%
TRT = ("https://github.com/NVIDIA/TensorRT-LLM/blob/258c7540c03517def55d9a5aadfa9288af474e1b/docs/source/performance/"
       "perf-overview.md")
SERVED = {"H200": {1: 4165.68, 2: 8290.35, 4: 14156, 8: 21195.88},
          "H100": {1: 911.62, 2: 6169.58, 4: 11511.93, 8: 17061.82},
          "L40S": {4: 1942.66, 8: 2303.31}, "A100": {2: 531.26, 4: 2811.27, 8: 5241.5}}
table("served", "Llama-3.1-70B in TensorRT-LLM, 128 tokens in and 2,048 out: tokens/s for each GPU, by GPUs in a copy",
      {"ranks": "GPUs in a copy", "h200": "H200, FP8, tokens/s", "h100": "H100 80GB, FP8, tokens/s",
       "l40s": "L40S, FP8, no NVLink, tokens/s", "a100": "A100 80GB, FP16, tokens/s"},
      [{"ranks": ranks, **{gpu.lower(): rates[ranks] / ranks if ranks in rates else "–"
                           for gpu, rates in SERVED.items()}} for ranks in RANKS], kind="cited", source=TRT)
for key, sentence, value, least, most in (
        ("copies-h200", "Tokens/s of eight copies of Llama-3.1-70B on one H200 each over one copy on eight",
         8 * SERVED["H200"][1] / SERVED["H200"][8], 1.5, 1.7),
        ("copies-h100", "Tokens/s for each H100 80GB of Llama-3.1-70B, two GPUs in a copy over one",
         SERVED["H100"][2] / 2 / SERVED["H100"][1], 3.2, 3.6),
        ("copies-l40s", "Tokens/s of Llama-3.1-70B on eight L40S over four, one copy, without NVLink",
         SERVED["L40S"][8] / SERVED["L40S"][4], 1.1, 1.3)):
    claim(key, sentence, value, "x", kind="cited", source=TRT, at_least=least, at_most=most)

# %% [markdown]
# A copy on one GPU sends nothing, and wins where it has room for many caches (H200). Where
# weights leave little room (H100), a second GPU brings far more than its own share: half of
# the weights leave each GPU, and many more caches fit. Beyond that, each further GPU in a
# copy brings less. Without NVLink (L40S) it brings least.

# %% alt="Tokens per second for each GPU by GPUs in a copy, for four GPUs."
plots.bars({f"{ranks} in a copy": {gpu: rates[ranks] / ranks if ranks in rates else None
                                   for gpu, rates in SERVED.items()} for ranks in RANKS},
           "Llama-3.1-70B in TensorRT-LLM, tokens/s for each GPU")

# %% [markdown]
# Copies need equal shares. `split_between_processes` cuts a list into blocks. If the list is
# sorted by length, the last block holds the longest prompts. For lengths with an exponential
# distribution, the mean of the longest 1/n is 1 + ln n times the mean of all.

# %%
claim("block", "Tokens in the last of four blocks over the mean block, sorted prompts with exponential lengths",
      1 + math.log(4), "x", kind="derived", at_least=2.3, at_most=2.5)

# %% [markdown]
# ## Experts: whole, or split
#
# Expert parallelism gives each rank whole experts. A token of Qwen3-30B-A3B chooses 8 of
# 128. With tensor parallelism over 8 ranks each rank reads an eighth of each chosen expert:
# 1 expert in all. With whole experts it reads as many as lie there, and all wait for the
# busiest rank. If each choice is equally likely, the expected maximum follows exactly.

# %%
def busiest(chosen, experts, ranks):
    """Expected number of chosen experts on the busiest rank."""
    def ways(most):
        """In how many ways a token chooses, at most so many on each rank."""
        found = [1] + [0] * chosen
        for _ in range(ranks):
            found = [sum(found[sum_ - here] * math.comb(experts // ranks, here) for here in range(min(sum_, most) + 1))
                     for sum_ in range(chosen + 1)]
        return found[chosen]

    every = math.comb(experts, chosen)
    return float(sum(1 - Fraction(ways(most), every) for most in range(chosen)))


claim("busiest-8", "Expected experts that the busiest of 8 ranks reads for one token, 8 of 128 chosen, against 1 when "
      "each expert is split", busiest(8, 128, 8), "", kind="derived", at_least=2, at_most=3)
experts = sum(weight.numel() for key, weight in BUILT["Qwen3-30B-A3B"].named_parameters() if ".experts." in key)
claim("experts-share", "Share of the parameters of Qwen3-30B-A3B that are experts",
      100 * experts / total("Qwen3-30B-A3B"), "%", kind="derived", at_least=90, at_most=98)

# %% [markdown]
# ## Offload: what a token then costs
#
# What no GPU holds crosses PCIe for each token: *seconds per token ≥ bytes beyond the GPUs /
# bandwidth of the link*. `device_map` runs one layer after the other, so the links of
# several GPUs do not add up.

# %%
def offloaded(gpus, bits, size=24):
    """(bytes that no GPU holds, least seconds of a token) of Llama-3.1-70B."""
    beyond = max(0, weight_bytes(SEVENTY, 1, bits) - gpus * (memory(size) - RESERVE))
    reading = (weight_bytes(SEVENTY, 1, bits) - beyond) / bandwidth("rtx-4090")
    return beyond, beyond / hardware.bytes_per_second("PCIe 4 x16") + reading


OFFLOAD = {(gpus, bits): offloaded(gpus, bits) for gpus in RANKS for bits in (16, 4.5)}
table("offload", "Llama-3.1-70B on RTX 4090 with PCIe 4, the rest in host memory: least seconds of a token at batch 1",
      {"gpus": "GPUs", "beyond": "bf16: on the host, GB", "seconds": "bf16: s per token",
       "beyond4": "4-bit: on the host, GB", "seconds4": "4-bit: s per token"},
      [{"gpus": gpus, "beyond": OFFLOAD[gpus, 16][0] / GB, "seconds": OFFLOAD[gpus, 16][1],
        "beyond4": OFFLOAD[gpus, 4.5][0] / GB, "seconds4": OFFLOAD[gpus, 4.5][1]} for gpus in RANKS], kind="derived")
for key, gpus, bits, least, most in (("bf16-2", 2, 16, 2.8, 3.4), ("4bit-2", 2, 4.5, 0.03, 0.06)):
    claim(f"offload-{key}", f"Least time of a token of Llama-3.1-70B in {bits:g} bits on {gpus} RTX 4090, the rest in "
          "host memory over PCIe 4", OFFLOAD[gpus, bits][1], "s", kind="derived", at_least=least, at_most=most)

# %% [markdown]
# ## Disaggregated prefill: what moves
#
# One group of GPUs reads prompts, another writes answers. The KV cache of each prompt moves
# between them, once.

# %%
moved = cache_bytes(SEVENTY, TOKENS)
claim("moved", "KV cache of a prompt of 8,192 tokens of Llama-3.1-70B in bf16", moved / GB, "GB", kind="derived",
      at_least=2.6, at_most=2.8)
for key, link, least, most in (("ndr", "InfiniBand NDR", 50, 58), ("ethernet", "100 GbE", 200, 230)):
    claim(f"moved-{key}", f"Least time to move the KV cache of a prompt of 8,192 tokens of Llama-3.1-70B over {link}",
          1e3 * moved / hardware.bytes_per_second(link), "ms", kind="derived", at_least=least, at_most=most)

# %% [markdown]
# ## Old figures, and their units
#
# transformers' pages compared attention kernels under *Mem saving (%)*. They divided the
# larger value by the smaller and subtracted one. So a saving could exceed the whole.

# %%
BEIT = ("https://github.com/huggingface/transformers/blob/12813eb47947bf0861f4ed09d093facc39626c8a/docs/source/en/"
        "model_doc/beit.md")
OCTO = "https://github.com/huggingface/transformers/blob/v4.41.3/docs/source/en/llm_tutorial_optimization.md"
claim("sdpa-printed", "Memory saving of SDPA in training BEiT as the page prints it", 55.998, "%", kind="cited",
      source=BEIT)
claim("sdpa-true", "Memory saving of SDPA in training BEiT, from the two peaks of that page",
      100 * (1 - 4319.886 / 6738.915), "%", kind="cited", source=BEIT, at_least=35, at_most=37)
claim("sdpa-bytes", "Memory of BEiT in inference that the page prints as 3.76657e+08 MB, read as bytes",
      3.76657e8 / 1e6, "MB", kind="cited", source=BEIT, at_least=370, at_most=380)
claim("octo", "Peak of OctoCoder in bf16 that the tutorial prints as 29.026, and computes in GiB",
      29.0260648727417 * GiB / GB, "GB", kind="cited", source=OCTO, at_least=31, at_most=31.5)

# %% [markdown]
# ## What came out
#
# - **One copy per GPU wins for throughput**, as long as a copy leaves room for many caches.
# - **Tensor parallelism makes one answer faster.** What ends the gain is the latency of two
#   sums in each layer.
# - **Layers spread over GPUs bring room and no speed.**
#
# So ask in this order. Does a copy fit on one GPU, in fewer bits if need be? Then copy it.
# Does it fit on two? Then make copies of two. Split further only if one answer must come
# sooner, and only over a fast link.

# %%
# Compares this run with the published records. In Colab it also offers the record of this machine, to send.
from evidence.finish import finish

finish()
