# ---
# jupyter:
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
# # Memory anatomy of a training step
#
# Where does the memory of a training step go, and what changes it? This notebook traces whole training steps of
# BERT-large and of an 8-billion-parameter Llama. The real model code runs on *fake tensors*, which have a size and no
# data. So it needs no GPU, a few hundred MiB of RAM, and about a second per step.
#
# The bytes are those of the real tensors. A real GPU adds what no tensor holds: the CUDA context, workspaces of the
# kernels, and the allocator's rounding and fragmentation. Sizes are in GiB, which is 2³⁰ bytes.

# %%
# Installs what this notebook needs where it is not there yet (Colab, an empty folder). Colab's torch stays as it is.
import importlib.util
import os
import subprocess
import sys

if importlib.util.find_spec("evidence") is None:
    source = os.environ.get("EVIDENCE_SOURCE", "git+https://github.com/performance-and-scalability/performance-and-scalability")
    needs = ["transformers==5.23.0", "accelerate==1.15.0", "matplotlib", f"performance-and-scalability @ {source}"]
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", *needs], check=True)

# %%
from functools import cache

import matplotlib.pyplot as plt
import torch
from matplotlib_inline.backend_inline import set_matplotlib_formats
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, BertConfig, LlamaConfig

from evidence.claims import claim, start, table
from dryrun.trace import GiB, training_step

set_matplotlib_formats("svg")
plt.rcParams["svg.hashsalt"] = "memory_anatomy"  # the same figure at every run
start("memory_anatomy")

# %% [markdown]
# ## Two models
#
# Random weights are enough: memory and FLOPs do not depend on their values. Put your own model here: any transformers
# configuration works, for example `AutoConfig.from_pretrained("Qwen/Qwen3-8B")`.

# %%
bert_large = BertConfig(hidden_size=1024, intermediate_size=4096, num_hidden_layers=24, num_attention_heads=16)
llama_8b = LlamaConfig(
    vocab_size=128256, hidden_size=4096, intermediate_size=14336, num_hidden_layers=32,
    num_attention_heads=32, num_key_value_heads=8, max_position_embeddings=131072, tie_word_embeddings=False,
)


AS_IT_IS = {"activation_checkpointing": False, "optimizer": "adamw"}  # what a step does if not told otherwise


@cache  # the same step is asked for more than once below
def step_of(model_class, batch_size, sequence_length, options):
    config = {AutoModelForSequenceClassification: bert_large, AutoModelForCausalLM: llama_8b}[model_class]
    return training_step(model_class, config, batch_size, sequence_length, **dict(options))


def asked(options):
    return frozenset((name, value) for name, value in options.items() if name not in AS_IT_IS or AS_IT_IS[name] != value)


def bert(batch_size, sequence_length=512, **options):
    return step_of(AutoModelForSequenceClassification, batch_size, sequence_length, asked(options))


def llama(batch_size, sequence_length, **options):
    return step_of(AutoModelForCausalLM, batch_size, sequence_length, asked(options))


PRECISIONS = {
    "fp32": {},
    "mixed bf16": {"autocast": torch.bfloat16},
    "pure bf16": {"dtype": torch.bfloat16},
}

# %% [markdown]
# ## The budget: weights, gradients, optimizer
#
# One full fine-tuning step of the 8B model with AdamW, at batch 1 and 512 tokens. *Mixed* keeps the weights in fp32 and
# computes under autocast; *pure* has weights, gradients and optimizer state in bf16.

# %%
budget = {precision: llama(1, 512, **options) for precision, options in PRECISIONS.items()}
table(
    "llama-budget", "Peak memory of one training step, Llama-8B class, batch 1 x 512 tokens, AdamW",
    {"precision": "Precision", "parameters": "Weights, GiB", "gradients": "Gradients, GiB", "optimizer": "AdamW state, GiB",
     "activations": "Activations after forward, GiB", "copies": "bf16 copies of the weights after forward, GiB", "peak": "Peak, GiB"},
    [{"precision": precision, "parameters": step.gib("parameters"), "gradients": step.gib("gradients"), "optimizer": step.gib("optimizer"),
      "activations": step.after_forward["activations"] / GiB, "copies": step.after_forward.get("weight copies", 0) / GiB,
      "peak": step.peak_gib} for precision, step in budget.items()],
    kind="traced",
)

# %%
fp32, mixed, pure = budget.values()
claim("llama-parameters", "Parameters of the Llama-8B class model", fp32.parameters / 1e9, "billion", kind="traced", at_least=8.0, at_most=8.1)
claim("llama-fp32", "Peak memory of a full fine-tuning step of an 8B Llama in fp32 with AdamW, batch 1 x 512 tokens",
      fp32.peak_gib, "GiB", kind="traced", at_least=119, at_most=121)
claim("llama-mixed", "Peak memory of a full fine-tuning step of an 8B Llama in mixed bf16 with AdamW, batch 1 x 512 tokens",
      mixed.peak_gib, "GiB", kind="traced", at_least=119, at_most=121)
claim("llama-bf16", "Peak memory of a full fine-tuning step of an 8B Llama in pure bf16 with AdamW, batch 1 x 512 tokens",
      pure.peak_gib, "GiB", kind="traced", at_least=59, at_most=61)
claim("fp32-bytes-per-parameter", "Bytes per parameter at the peak of an fp32 step of an 8B Llama at batch 1 x 512 tokens",
      fp32.peak / fp32.parameters, "bytes", kind="traced", at_least=15.9, at_most=16.1)
claim("mixed-bytes-per-parameter", "Bytes per parameter at the peak of a mixed bf16 step of an 8B Llama at batch 1 x 512 tokens",
      mixed.peak / mixed.parameters, "bytes", kind="traced", at_least=15.9, at_most=16.1)
claim("bf16-bytes-per-parameter", "Bytes per parameter at the peak of a pure bf16 step of an 8B Llama at batch 1 x 512 tokens",
      pure.peak / pure.parameters, "bytes", kind="traced", at_least=7.9, at_most=8.1)
claim("fp32-bytes-by-hand", "fp32 weights, gradients and two AdamW moments, by arithmetic: 4 + 4 + 8 bytes per parameter",
      4 + 4 + 4 + 4, "bytes", kind="derived", at_least=16, at_most=16)
claim("bf16-bytes-by-hand", "bf16 weights, gradients and two AdamW moments, by arithmetic: 2 + 2 + 4 bytes per parameter",
      2 + 2 + 2 + 2, "bytes", kind="derived", at_least=8, at_most=8)

# %% [markdown]
# At batch 1 the peak comes at the *end* of the backward pass, when every gradient exists and every activation is gone.
# So the batch does not matter yet. The share of the peak that no batch size can touch:

# %%
def fixed(step):
    """Weights, gradients and optimizer state in bytes: what stays whatever the batch."""
    return step.peak_by_category["parameters"] * 2 + step.peak_by_category["optimizer"]


claim("llama-fixed-share", "Share of weights, gradients and AdamW state in the peak of an 8B Llama step in pure bf16, batch 1 x 512 tokens",
      100 * fixed(pure) / pure.peak, "%", kind="traced", at_least=99)
claim("llama-first-activations", "Activations of an 8B Llama in pure bf16 after the forward pass, batch 1 x 512 tokens",
      pure.after_forward["activations"] / GiB, "GiB", kind="traced", at_least=3, at_most=4)
claim("llama-weight-copies", "bf16 copies of the weights that autocast keeps for the backward pass of an 8B Llama",
      mixed.after_forward["weight copies"] / GiB, "GiB", kind="traced", at_least=13, at_most=15)

# %% [markdown]
# ## A step over time
#
# BERT-large, batch 4 x 512 tokens, fp32: the step of the table that Hugging Face published in 2022. Activations pile up
# in the forward pass and are replaced by gradients in the backward pass.

# %% alt="Stacked areas over one step: weights and optimizer state are constant, activations grow and then give way to gradients."
bert_fp32 = bert(4, timeline=True)
CATEGORIES = ["parameters", "optimizer", "gradients", "activations", "temporaries"]
COLOURS = ["#0072b2", "#00805c", "#8a6d00", "#c45500", "#5b5b66"]  # readable by the colour-blind
points = len(bert_fp32.timeline)
moments = range(0, points, max(1, points // 60))
figure, axes = plt.subplots(figsize=(7, 3))
axes.stackplot([100 * at / points for at in moments],
               [[bert_fp32.timeline[at].get(category, 0) / GiB for at in moments] for category in CATEGORIES],
               labels=CATEGORIES, colors=COLOURS)
axes.set(xlabel="operators of the step, %", ylabel="GiB", xlim=(0, 100))
axes.legend(loc="upper center", bbox_to_anchor=(0.5, 1.2), ncols=5, frameon=False, fontsize=8)
plt.show()

# %%
table(
    "bert-timeline", "Memory over one training step, BERT-large, batch 4 x 512 tokens, fp32, AdamW",
    {"point": "Operators of the step, %", **{category: f"{category.capitalize()}, GiB" for category in CATEGORIES}},
    [{"point": round(100 * at / points), **{category: bert_fp32.timeline[at].get(category, 0) / GiB for category in CATEGORIES}}
     for at in moments],
    kind="traced",
)
claim("bert-fp32", "Peak memory of a BERT-large training step in fp32 with AdamW, batch 4 x 512 tokens",
      bert_fp32.peak_gib, "GiB", kind="traced", at_least=6.5, at_most=7.2)
claim("bert-fp32-activations", "Activations at the peak of a BERT-large step in fp32, batch 4 x 512 tokens",
      bert_fp32.gib("activations"), "GiB", kind="traced", at_least=2.9, at_most=3.3)
claim("bert-fixed", "Weights, gradients and AdamW state of BERT-large in fp32",
      fixed(bert_fp32) / GiB, "GiB", kind="traced", at_least=4.9, at_most=5.1)

# %% [markdown]
# ## Batch size
#
# Activations grow in proportion to the batch. The peak does not move until they outgrow the gradients.

# %%
BATCHES = [1, 4, 16, 32, 64]
by_batch = {(batch, checkpointing): bert(batch, autocast=torch.bfloat16, activation_checkpointing=checkpointing)
            for batch in BATCHES for checkpointing in (False, True)}
table(
    "bert-batch-size", "Peak memory against batch size, BERT-large, 512 tokens, mixed bf16, AdamW",
    {"batch": "Batch size", "plain": "Peak, GiB", "checkpointed": "Peak with activation checkpointing, GiB"},
    [{"batch": batch, "plain": by_batch[batch, False].peak_gib, "checkpointed": by_batch[batch, True].peak_gib} for batch in BATCHES],
    kind="traced",
)

# %%
llama_batches = {(batch, checkpointing): llama(batch, 512, dtype=torch.bfloat16, activation_checkpointing=checkpointing)
                 for batch in (1, 4, 8, 16, 32) for checkpointing in (False, True)}
table(
    "llama-batch-size", "Peak memory against batch size, Llama-8B class, 512 tokens, pure bf16, AdamW",
    {"batch": "Batch size", "plain": "Peak, GiB", "checkpointed": "Peak with activation checkpointing, GiB"},
    [{"batch": batch, "plain": llama_batches[batch, False].peak_gib, "checkpointed": llama_batches[batch, True].peak_gib}
     for batch in (1, 4, 8, 16, 32)],
    kind="traced",
)
claim("llama-batch-1-to-4", "Growth of the peak of an 8B Llama step in pure bf16 from batch 1 to batch 4, at 512 tokens",
      100 * (llama_batches[4, False].peak / llama_batches[1, False].peak - 1), "%", kind="traced", at_most=2)
claim("llama-batch-1-to-32", "Peak of an 8B Llama step in pure bf16 at batch 32 against batch 1, at 512 tokens",
      llama_batches[32, False].peak / llama_batches[1, False].peak, "x", kind="traced", at_least=2, at_most=4)

# %% [markdown]
# ## Gradient accumulation
#
# Four micro-batches of one sequence, then one optimizer step, against one batch of four.

# %%
accumulated = bert(1, accumulation=4)
claim("accumulation-bert", "Peak memory of a BERT-large step in fp32 with four accumulated micro-batches of 1 x 512 tokens",
      accumulated.peak_gib, "GiB", kind="traced", at_least=5.6, at_most=6.0)
claim("accumulation-saving", "What four micro-batches of 1 save of the peak of one batch of 4, BERT-large in fp32, 512 tokens",
      100 * (1 - accumulated.peak / bert_fp32.peak), "%", kind="traced", at_least=12, at_most=20)
claim("accumulation-flops", "FLOPs of four accumulated micro-batches of 1 against one batch of 4, BERT-large",
      (accumulated.flops["forward"] + accumulated.flops["backward"]) / (bert_fp32.flops["forward"] + bert_fp32.flops["backward"]),
      "x", kind="traced", at_least=0.99, at_most=1.01)
accumulated_llama = llama(1, 512, dtype=torch.bfloat16, accumulation=4)
claim("accumulation-llama-cost", "What four micro-batches of 1 add to the peak of one batch of 4, 8B Llama in pure bf16, 512 tokens",
      100 * (accumulated_llama.peak / llama_batches[4, False].peak - 1), "%", kind="traced", at_least=3, at_most=9)
accumulated_mixed = llama(1, 512, autocast=torch.bfloat16, accumulation=2)
claim("accumulation-mixed", "Peak memory of a full fine-tuning step of an 8B Llama in mixed bf16 with AdamW, two micro-batches of 1 x 512 tokens",
      accumulated_mixed.peak_gib, "GiB", kind="traced", at_least=138, at_most=141)
claim("accumulation-mixed-bytes", "Bytes per parameter at the peak of a mixed bf16 step of an 8B Llama, two micro-batches of 1 x 512 tokens",
      accumulated_mixed.peak / accumulated_mixed.parameters, "bytes", kind="traced", at_least=18.4, at_most=18.9)

# %% [markdown]
# Accumulation keeps the gradients from one micro-batch to the next. So the activations of the second micro-batch, and in mixed
# precision the 16-bit copies of the weights, come on top of a whole set of gradients, which the first one did not have.

# %% [markdown]
# ## Activation checkpointing
#
# Keeps only the input of every layer, and computes the rest of the layer again in the backward pass. The 8B model in
# pure bf16 on one sequence of 4,096 tokens:

# %%
LENGTH = 4096
kept = llama(1, LENGTH, dtype=torch.bfloat16)
checkpointed = llama(1, LENGTH, dtype=torch.bfloat16, activation_checkpointing=True)
every_second = llama(1, LENGTH, dtype=torch.bfloat16, activation_checkpointing=2)


def all_flops(step):
    return step.flops["forward"] + step.flops["backward"]


table(
    "checkpointing", "Activation checkpointing, Llama-8B class, batch 1 x 4,096 tokens, pure bf16, AdamW",
    {"variant": "Checkpointed layers", "activations": "Activations after forward, GiB", "peak": "Peak, GiB", "flops": "Step, TFLOP"},
    [{"variant": variant, "activations": step.after_forward["activations"] / GiB, "peak": step.peak_gib, "flops": all_flops(step) / 1e12}
     for variant, step in (("none", kept), ("every second", every_second), ("all", checkpointed))],
    kind="traced",
)
claim("checkpointing-activations-before", "Activations of an 8B Llama after the forward pass, pure bf16, batch 1 x 4,096 tokens",
      kept.after_forward["activations"] / GiB, "GiB", kind="traced", at_least=25, at_most=28)
claim("checkpointing-activations-after", "The same with activation checkpointing in every layer",
      checkpointed.after_forward["activations"] / GiB, "GiB", kind="traced", at_least=2.5, at_most=3.5)
claim("checkpointing-activations", "Activation checkpointing shrinks the activations of an 8B Llama at 4,096 tokens",
      kept.after_forward["activations"] / checkpointed.after_forward["activations"], "x", kind="traced", at_least=7, at_most=10)
claim("checkpointing-peak-before", "Peak memory of an 8B Llama step in pure bf16, batch 1 x 4,096 tokens",
      kept.peak_gib, "GiB", kind="traced", at_least=74, at_most=77)
claim("checkpointing-peak-after", "The same with activation checkpointing in every layer",
      checkpointed.peak_gib, "GiB", kind="traced", at_least=59, at_most=61)
claim("checkpointing-peak-saving", "What activation checkpointing saves of the peak of an 8B Llama step at 4,096 tokens",
      100 * (1 - checkpointed.peak / kept.peak), "%", kind="traced", at_least=15, at_most=25)
claim("checkpointing-flops", "FLOPs that activation checkpointing adds to an 8B Llama step at 4,096 tokens",
      100 * (all_flops(checkpointed) / all_flops(kept) - 1), "%", kind="traced", at_least=20, at_most=27)
claim("checkpointing-flops-by-hand", "A second forward pass on top of one forward and a backward of twice its size, by arithmetic",
      100 * 1 / 3, "%", kind="derived", at_least=33, at_most=34)
bert_checkpointed = bert(4, activation_checkpointing=True)
claim("checkpointing-bert-saving", "What activation checkpointing saves of the peak of a BERT-large step in fp32, batch 4 x 512 tokens",
      100 * (1 - bert_checkpointed.peak / bert_fp32.peak), "%", kind="traced", at_least=20, at_most=35)
claim("checkpointing-small-batch", "What activation checkpointing saves of the peak of a BERT-large step in fp32, batch 1 x 512 tokens",
      100 * (1 - bert(1, activation_checkpointing=True).peak / bert(1).peak), "%", kind="traced", at_most=1, at_least=-1)

# %% [markdown]
# ## Precision
#
# What a wider or narrower dtype does to the activations, and what it does not do to the rest.

# %%
by_precision = {precision: bert(32, **options) for precision, options in PRECISIONS.items()}
table(
    "bert-precision", "Peak memory by precision, BERT-large, batch 32 x 512 tokens, AdamW",
    {"precision": "Precision", "fixed": "Weights, gradients, AdamW state, GiB", "activations": "Activations after forward, GiB",
     "copies": "bf16 copies of the weights after forward, GiB", "peak": "Peak, GiB"},
    [{"precision": precision, "fixed": fixed(step) / GiB, "activations": step.after_forward["activations"] / GiB,
      "copies": step.after_forward.get("weight copies", 0) / GiB, "peak": step.peak_gib} for precision, step in by_precision.items()],
    kind="traced",
)
claim("mixed-activations-saving", "What mixed bf16 saves of the activations of BERT-large, batch 32 x 512 tokens",
      100 * (1 - by_precision["mixed bf16"].after_forward["activations"] / by_precision["fp32"].after_forward["activations"]),
      "%", kind="traced", at_least=25, at_most=50)
claim("mixed-peak-saving", "What mixed bf16 saves of the peak of a BERT-large step, batch 32 x 512 tokens",
      100 * (1 - by_precision["mixed bf16"].peak / by_precision["fp32"].peak), "%", kind="traced", at_least=20, at_most=40)
claim("mixed-small-batch", "What mixed bf16 saves of the peak of a BERT-large step, batch 1 x 512 tokens",
      100 * (1 - bert(1, autocast=torch.bfloat16).peak / bert(1).peak), "%", kind="traced", at_least=-1, at_most=1)
claim("pure-peak-saving", "What pure bf16 saves of the peak of a BERT-large step, batch 32 x 512 tokens",
      100 * (1 - by_precision["pure bf16"].peak / by_precision["fp32"].peak), "%", kind="traced", at_least=45, at_most=52)

# %% [markdown]
# ## Sequence length
#
# With a fused attention kernel activations grow in proportion to the length. The eager kernel writes every score, and
# grows with its square.

# %%
LENGTHS = [512, 2048, 4096, 8192, 32768]
by_length = {length: llama(1, length, dtype=torch.bfloat16, activation_checkpointing=True) for length in LENGTHS}
plain = {length: llama(1, length, dtype=torch.bfloat16) for length in LENGTHS}
eager = {length: llama(1, length, dtype=torch.bfloat16, attention="eager") for length in LENGTHS[:4]}
table(
    "llama-sequence-length", "Activations after the forward pass against sequence length, Llama-8B class, batch 1, pure bf16",
    {"length": "Tokens", "eager": "Eager attention, GiB", "fused": "Fused attention, GiB", "checkpointed": "Fused and checkpointing, GiB"},
    [{"length": length, "eager": eager[length].after_forward["activations"] / GiB if length in eager else None,
      "fused": plain[length].after_forward["activations"] / GiB,
      "checkpointed": by_length[length].after_forward["activations"] / GiB} for length in LENGTHS],
    kind="traced",
)
claim("eager-at-4096", "Activations of an 8B Llama with eager attention after the forward pass, pure bf16, batch 1 x 4,096 tokens",
      eager[4096].after_forward["activations"] / GiB, "GiB", kind="traced", at_least=90, at_most=140)
claim("fused-saving-512", "Eager attention's activations against the fused kernel's, 8B Llama, 512 tokens",
      eager[512].after_forward["activations"] / plain[512].after_forward["activations"], "x", kind="traced", at_least=1.2, at_most=2)
claim("fused-saving-8192", "Eager attention's activations against the fused kernel's, 8B Llama, 8,192 tokens",
      eager[8192].after_forward["activations"] / plain[8192].after_forward["activations"], "x", kind="traced", at_least=5, at_most=12)

# %% alt="Activations against tokens on logarithmic axes: eager attention rises steepest, fused attention in proportion, checkpointing lowest."
curves = {
    "eager attention": (eager, "#c45500"), "fused attention": (plain, "#0072b2"), "fused and checkpointing": (by_length, "#00805c"),
}
figure, axes = plt.subplots(figsize=(7, 3))
for label, (steps, colour) in curves.items():
    axes.plot(list(steps), [step.after_forward["activations"] / GiB for step in steps.values()], marker="o", label=label, color=colour)
axes.set(xscale="log", yscale="log", xlabel="tokens", ylabel="activations after the forward pass, GiB")
axes.set_xticks(LENGTHS, [f"{length:,}" for length in LENGTHS])
axes.minorticks_off()
axes.legend(frameon=False)
plt.show()

# %% [markdown]
# ## Optimizers
#
# The state is a fixed cost per parameter. The way the optimizer steps matters too: `foreach` updates all parameters at
# once and needs a temporary copy of them.

# %%
OPTIMIZERS = {"AdamW, fused": "adamw", "AdamW, foreach": "adamw_foreach", "SGD with momentum": "sgd_momentum", "SGD": "sgd"}
by_optimizer = {label: llama(1, 512, dtype=torch.bfloat16, optimizer=name) for label, name in OPTIMIZERS.items()}
table(
    "llama-optimizers", "Peak memory by optimizer, Llama-8B class, batch 1 x 512 tokens, pure bf16",
    {"optimizer": "Optimizer", "state": "State, GiB", "peak": "Peak, GiB", "bytes": "Peak, bytes per parameter"},
    [{"optimizer": label, "state": step.gib("optimizer"), "peak": step.peak_gib, "bytes": step.peak / step.parameters}
     for label, step in by_optimizer.items()],
    kind="traced",
)
claim("foreach-cost", "What the foreach form of AdamW adds to the peak of the fused form, 8B Llama in pure bf16",
      by_optimizer["AdamW, foreach"].peak_gib - by_optimizer["AdamW, fused"].peak_gib, "GiB", kind="traced", at_least=13, at_most=16)

# %% [markdown]
# ## All together
#
# BERT-large at an effective batch of 32 x 512 tokens, one method after another.

# %%
BF16 = {"autocast": torch.bfloat16}


def ladder(step, batch):
    """The same optimizer step of `batch` sequences, one method after another; `step(batch_size, **options)` traces it."""
    quarter = {"batch_size": batch // 4, "accumulation": 4}
    small = f"4 x batch {batch // 4}"
    return {
        f"fp32, batch {batch}": step(batch),
        "mixed bf16": step(batch, **BF16),
        f"mixed bf16, {small}": step(**quarter, **BF16),
        "mixed bf16, checkpointing": step(batch, activation_checkpointing=True, **BF16),
        f"mixed bf16, {small}, checkpointing": step(**quarter, activation_checkpointing=True, **BF16),
        f"pure bf16, {small}, checkpointing": step(**quarter, activation_checkpointing=True, dtype=torch.bfloat16),
    }


def show(name, sentence, rungs):
    table(name, sentence, {"rung": "Methods", "peak": "Peak, GiB", "flops": "Step, TFLOP"},
          [{"rung": rung, "peak": step.peak_gib, "flops": all_flops(step) / 1e12} for rung, step in rungs.items()], kind="traced")


LADDER = ladder(bert, 32)
show("ladder", "BERT-large, 32 x 512 tokens per optimizer step, AdamW", LADDER)
first, *_, mixed_all, _ = LADDER.values()
claim("together-saving", "What mixed bf16, accumulation and checkpointing together save of the peak of BERT-large at 32 x 512 tokens",
      100 * (1 - mixed_all.peak / first.peak), "%", kind="traced", at_least=75, at_most=90)
claim("together-peak", "Peak memory of BERT-large at 32 x 512 tokens with mixed bf16, accumulation and checkpointing",
      mixed_all.peak_gib, "GiB", kind="traced", at_least=5.5, at_most=6.2)
claim("together-before", "Peak memory of BERT-large in fp32 at batch 32 x 512 tokens", first.peak_gib, "GiB", kind="traced", at_least=25, at_most=32)
claim("together-flops", "FLOPs that all methods together add to the BERT-large step",
      100 * (all_flops(mixed_all) / all_flops(first) - 1), "%", kind="traced", at_least=25, at_most=35)

# %% [markdown]
# The same ladder for a 1-billion-parameter Llama at 8 sequences of 2,048 tokens. Its vocabulary is large for its size, so
# the logits weigh more. Its key and value heads are grouped: in fp32 PyTorch's fused kernels do not take that, and the plain one
# keeps every score.

# %%
llama_1b = LlamaConfig(
    vocab_size=128256, hidden_size=2048, intermediate_size=8192, num_hidden_layers=16,
    num_attention_heads=32, num_key_value_heads=8, max_position_embeddings=131072, tie_word_embeddings=True,
)


def small_llama(batch_size, **options):
    return training_step(AutoModelForCausalLM, llama_1b, batch_size, 2048, **options)


LADDER_1B = ladder(small_llama, 8)
show("ladder-1b", "Llama-1B class, 8 x 2,048 tokens per optimizer step, AdamW", LADDER_1B)
claim("together-1b-before", "Peak memory of a 1B Llama in fp32 at 8 x 2,048 tokens", LADDER_1B["fp32, batch 8"].peak_gib, "GiB",
      kind="traced", at_least=151, at_most=156)
claim("together-1b-peak", "Peak memory of a 1B Llama at 8 x 2,048 tokens with mixed bf16, accumulation and checkpointing",
      LADDER_1B["mixed bf16, 4 x batch 2, checkpointing"].peak_gib, "GiB", kind="traced", at_least=25, at_most=28)

# %% [markdown]
# ## How long it took
#
# One traced step of the 8B model on this machine:

# %% tags=["measures"]
claim("trace-seconds", "Time to trace one training step of the 8B Llama without a GPU, in a process that has traced others before", kept.seconds, "s", kind="measured", at_most=60)
