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
# # Memory anatomy of a training step
#
# **Where does the memory of a training step go, and what changes it?**
#
# Whole training steps of BERT-large and of an 8-billion-parameter Llama are traced. The
# real model code runs on *fake tensors*, which have a size and no data. So it needs no
# GPU, a few hundred MiB of RAM, and seconds per step.
#
# Expect four parts. Weights, gradients and optimizer state depend on the model alone.
# Activations depend on batch, length and precision, and only they answer to a smaller
# batch, to accumulation and to checkpointing. The peak is the moment at which the sum of
# all four is largest, and that moment moves.
#
# The bytes are those of the real tensors. A real GPU adds what no tensor holds: the CUDA
# context, workspaces of the kernels, and the allocator's rounding and fragmentation. The
# last section says how much. Sizes are in GiB, which is 2³⁰ bytes.

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
from functools import cache

import matplotlib.pyplot as plt
import torch
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, BertConfig, LlamaConfig

from evidence import plots
from evidence.claims import claim, start, table
from dryrun.tracing import GiB, many_layers, training_step

plots.set_up("memory_anatomy")
start("memory_anatomy")


def traced(claims):
    """States traced claims: {name: (sentence, value, unit, at least, at most)}."""
    for name, (sentence, value, unit, least, most) in claims.items():
        claim(name, sentence, value, unit, kind="traced", at_least=least, at_most=most)


def less(small, large):
    """How far `small` is under `large`, in %."""
    return 100 * (1 - small / large)

# %% [markdown]
# ## Two models
#
# Random weights are enough: memory and FLOPs do not depend on their values. Put your own
# model here. Any transformers configuration works, for example
# `AutoConfig.from_pretrained("Qwen/Qwen3-8B")`.
#
# All layers of a model are alike, so two and four of them are traced: what more layers
# hold and compute lies on a line. A step is asked for by batch, length and options, and
# kept, because several tables share it.

# %%
bert_large = BertConfig(hidden_size=1024, intermediate_size=4096, num_hidden_layers=24, num_attention_heads=16)
llama_8b = LlamaConfig(
    vocab_size=128256, hidden_size=4096, intermediate_size=14336, num_hidden_layers=32,
    num_attention_heads=32, num_key_value_heads=8, max_position_embeddings=131072, tie_word_embeddings=False,
)
DEFAULTS = {"activation_checkpointing": False, "optimizer": "adamw"}


@cache  # the same step is asked for more than once below
def step_of(model_class, batch_size, sequence_length, options):
    config = {AutoModelForSequenceClassification: bert_large, AutoModelForCausalLM: llama_8b}[model_class]
    return many_layers(model_class, config, batch_size, sequence_length, **dict(options))


def asked(options):
    return frozenset((name, value) for name, value in options.items() if DEFAULTS.get(name) != value)


def bert(batch_size, sequence_length=512, **options):
    return step_of(AutoModelForSequenceClassification, batch_size, sequence_length, asked(options))


def llama(batch_size, sequence_length, **options):
    return step_of(AutoModelForCausalLM, batch_size, sequence_length, asked(options))


MIXED, PURE = {"autocast": torch.bfloat16}, {"dtype": torch.bfloat16}
PRECISIONS = {"fp32": {}, "mixed bf16": MIXED, "pure bf16": PURE}

# %% [markdown]
# ## The budget: weights, gradients, optimizer
#
# First by arithmetic. AdamW keeps two moments beside each weight and its gradient: four
# numbers, each as wide as the dtype of the weights. A real AdamW on one small tensor
# shows it:

# %%
def bytes_per_parameter(dtype):
    """Weight, gradient and AdamW's moments of a real tensor, in bytes per element."""
    weight = torch.nn.Parameter(torch.ones(4096, dtype=dtype))
    weight.grad = torch.ones_like(weight)
    optimizer = torch.optim.AdamW([weight], fused=True)
    optimizer.step()
    state = [tensor for tensor in optimizer.state[weight].values() if tensor.numel() > 1]
    return sum(tensor.numel() * tensor.element_size() for tensor in (weight, weight.grad, *state)) / weight.numel()


for name, dtype, words, expected in (("fp32", torch.float32, "4 + 4 + 8", 16),
                                     ("bf16", torch.bfloat16, "2 + 2 + 4", 8)):
    claim(f"{name}-bytes-by-hand", f"{name} weights, gradients and two AdamW moments: {words} bytes per parameter",
          bytes_per_parameter(dtype), "bytes", kind="derived", at_least=expected, at_most=expected)

# %% [markdown]
# Then the whole step: full fine-tuning of the 8B model with AdamW, at batch 1 and 512
# tokens. *Mixed* keeps the weights in fp32 and computes under autocast. *Pure* has
# weights, gradients and optimizer state in bf16.

# %%
budget = {precision: llama(1, 512, **options) for precision, options in PRECISIONS.items()}
PARTS = {"parameters": "Weights, GiB", "gradients": "Gradients, GiB", "optimizer": "AdamW state, GiB"}
table("llama-budget", "Peak memory of one training step, Llama-8B class, batch 1 x 512 tokens, AdamW",
      {"precision": "Precision", **PARTS, "activations": "Activations after forward, GiB",
       "copies": "bf16 copies of the weights after forward, GiB", "peak": "Peak, GiB"},
      [{"precision": precision, **{part: step.gib(part) for part in PARTS}, "peak": step.peak_gib,
        "activations": step.after_forward["activations"] / GiB,
        "copies": step.after_forward.get("weight copies", 0) / GiB} for precision, step in budget.items()],
      kind="traced")

# %% [markdown]
# The peak of each step is the arithmetic once more: parameters times bytes. Activations,
# 16-bit copies and the loss do not show in it, although they exist during the step.

# %%
fp32, mixed, pure = budget.values()
STEP = "of a full fine-tuning step of an 8B Llama in {} with AdamW, batch 1 x 512 tokens"
for name, label, step, low in (("fp32", "fp32", fp32, 119), ("mixed", "mixed bf16", mixed, 119),
                               ("bf16", "pure bf16", pure, 59)):
    per = step.peak / step.parameters
    traced({
        f"llama-{name}": (f"Peak memory {STEP.format(label)}", step.peak_gib, "GiB", low, low + 2),
        f"{name}-bytes-per-parameter": (f"Bytes per parameter at the peak {STEP.format(label)}", per, "bytes",
                                        round(per) - 0.1, round(per) + 0.1),
    })


def fixed(step):
    """Weights, gradients and optimizer state in bytes: what stays whatever the batch."""
    return step.peak_by_category["parameters"] * 2 + step.peak_by_category["optimizer"]


traced({
    "llama-parameters": ("Parameters of the Llama-8B class model", fp32.parameters / 1e9, "billion", 8.0, 8.1),
    "llama-fixed-share": (f"Share of weights, gradients and AdamW state in the peak {STEP.format('pure bf16')}",
                          100 * fixed(pure) / pure.peak, "%", 99, 100),
    "llama-first-activations": ("Activations of an 8B Llama in pure bf16 after the forward pass, batch 1 x 512 tokens",
                                pure.after_forward["activations"] / GiB, "GiB", 3, 4),
    "llama-weight-copies": ("bf16 copies of the weights that autocast keeps for the backward pass of an 8B Llama",
                            mixed.after_forward["weight copies"] / GiB, "GiB", 13, 15),
})

# %% [markdown]
# For a *large* model at a *small* batch the peak comes at the end of the backward pass,
# when every gradient exists and no activation is left. Then the batch does not matter
# yet. The next section shows the other case.
#
# ## A step over time
#
# BERT-large, batch 4 x 512 tokens, fp32: the step of the table that Hugging Face
# published in 2022. Activations pile up in the forward pass and give way to gradients in
# the backward pass. Here the activations are large beside the model, so the peak comes in
# the *middle*, where the forward pass ends.

# %% alt="Areas over a step: weights and optimizer state constant, activations grow, then give way to gradients."
bert_fp32 = training_step(AutoModelForSequenceClassification, bert_large, 4, 512, timeline=True)  # whole
CATEGORIES = ["parameters", "optimizer", "gradients", "activations", "temporaries"]
points = len(bert_fp32.timeline)
moments = range(0, points, max(1, points // 60))
over_time = [{"point": round(100 * at / points)} | {category: bert_fp32.timeline[at].get(category, 0) / GiB
                                                    for category in CATEGORIES} for at in moments]
figure, axes = plt.subplots(figsize=(7, 3))
axes.stackplot([moment["point"] for moment in over_time],
               [[moment[category] for moment in over_time] for category in CATEGORIES], labels=CATEGORIES)
axes.set(xlabel="operators of the step, %", ylabel="GiB", xlim=(0, 100))
axes.legend(loc="upper center", bbox_to_anchor=(0.5, 1.2), ncols=5, fontsize=8)
plt.show()

# %%
table("bert-timeline", "Memory over one training step, BERT-large, batch 4 x 512 tokens, fp32, AdamW",
      {"point": "Operators of the step, %", **{category: f"{category.capitalize()}, GiB" for category in CATEGORIES}},
      over_time, kind="traced")
traced({
    "bert-fp32": ("Peak memory of a BERT-large training step in fp32 with AdamW, batch 4 x 512 tokens",
                  bert_fp32.peak_gib, "GiB", 6.5, 7.2),
    "bert-fp32-activations": ("Activations at the peak of a BERT-large step in fp32, batch 4 x 512 tokens",
                              bert_fp32.gib("activations"), "GiB", 2.9, 3.3),
    "bert-fixed": ("Weights, gradients and AdamW state of BERT-large in fp32", fixed(bert_fp32) / GiB, "GiB",
                   4.9, 5.1),
})

# %% [markdown]
# ## Batch size
#
# Activations grow in proportion to the batch. The peak does not move until they outgrow
# the gradients: for BERT-large that is at once, for the 8B Llama at a batch of several
# sequences. Checkpointing moves that point far to the right.
#
# So the question "which batch fits" has two answers. Below the bend the batch is free:
# take a larger one. Above it each sequence costs the same amount again, and the line says
# how many fit.

# %%
BATCHES, LLAMA_BATCHES = (1, 4, 16, 32, 64), (1, 4, 8, 16, 32)


def against_batch(name, title, step, batches):
    """Leaves a table of peaks by batch size, without and with checkpointing; returns {batch: peak in bytes}."""
    plain = {batch: step(batch) for batch in batches}
    less_kept = {batch: step(batch, activation_checkpointing=True) for batch in batches}
    columns = {"batch": "Batch size", "plain": "Peak, GiB", "checkpointed": "Peak with activation checkpointing, GiB"}
    peaks = ((batch, plain[batch].peak_gib, less_kept[batch].peak_gib) for batch in batches)
    table(name, title, columns, [dict(zip(columns, row)) for row in peaks], kind="traced")
    return {batch: step.peak for batch, step in plain.items()}


against_batch("bert-batch-size", "Peak memory against batch size, BERT-large, 512 tokens, mixed bf16, AdamW",
              lambda batch, **options: bert(batch, **MIXED, **options), BATCHES)
llama_peaks = against_batch(
    "llama-batch-size", "Peak memory against batch size, Llama-8B class, 512 tokens, pure bf16, AdamW",
    lambda batch, **options: llama(batch, 512, **PURE, **options), LLAMA_BATCHES)
traced({
    "llama-batch-1-to-4": ("Growth of the peak of an 8B Llama step in pure bf16 from batch 1 to batch 4, at 512 tokens",
                           -less(llama_peaks[4], llama_peaks[1]), "%", 0, 3),
    "llama-batch-1-to-32": ("Peak of an 8B Llama step in pure bf16 at batch 32 against batch 1, at 512 tokens",
                            llama_peaks[32] / llama_peaks[1], "x", 2, 4),
})

# %% [markdown]
# ## Gradient accumulation
#
# Four micro-batches of one sequence, then one optimizer step, against one batch of four.
# Memory sees the micro-batch. But the gradients stay from one micro-batch to the next:
# the activations of the second one, and in mixed precision the 16-bit copies of the
# weights, come on top of a whole set of gradients, which the first one did not have. So
# accumulation lowers the peak where activations make it, and *raises* it where gradients
# do.

# %%
def all_flops(step):
    return step.flops["forward"] + step.flops["backward"]


accumulated, of_llama = bert(1, accumulation=4), llama(1, 512, **PURE, accumulation=4)
of_mixed = llama(1, 512, **MIXED, accumulation=2)
TWO = "of an 8B Llama in mixed bf16 with AdamW, two micro-batches of 1 x 512 tokens"
FOUR = "What four micro-batches of 1 {} the peak of one batch of 4, {}, 512 tokens"
traced({
    "accumulation-bert": ("Peak memory of a BERT-large step in fp32 with four micro-batches of 1 x 512 tokens",
                          accumulated.peak_gib, "GiB", 5.6, 6.0),
    "accumulation-saving": (FOUR.format("save of", "BERT-large in fp32"), less(accumulated.peak, bert_fp32.peak),
                            "%", 12, 20),
    "accumulation-flops": ("FLOPs of four micro-batches of 1 against one batch of 4, BERT-large",
                           all_flops(accumulated) / all_flops(bert_fp32), "x", 0.99, 1.01),
    "accumulation-llama-cost": (FOUR.format("add to", "8B Llama in pure bf16"),
                                -less(of_llama.peak, llama_peaks[4]), "%", 3, 9),
    "accumulation-mixed": (f"Peak memory of a full fine-tuning step {TWO}", of_mixed.peak_gib, "GiB", 138, 141),
    "accumulation-mixed-bytes": (f"Bytes per parameter at the peak of a step {TWO}",
                                 of_mixed.peak / of_mixed.parameters, "bytes", 18.4, 18.9),
})

# %% [markdown]
# ## Activation checkpointing
#
# Keeps only the input of every layer, and computes the rest of the layer again in the
# backward pass. By arithmetic that is a second forward pass: one part of work on top of
# three, one forward and two backward. Less is counted below, because neither the output
# layer nor the last product of each layer is computed again.
#
# The 8B model in pure bf16 on one sequence of 4,096 tokens:

# %%
kept = llama(1, 4096, **PURE)
checkpointed = llama(1, 4096, **PURE, activation_checkpointing=True)
every_second = llama(1, 4096, **PURE, activation_checkpointing=2)


def activations(step):
    """GiB after the forward pass."""
    return step.after_forward["activations"] / GiB


table("checkpointing", "Activation checkpointing, Llama-8B class, batch 1 x 4,096 tokens, pure bf16, AdamW",
      {"variant": "Checkpointed layers", "activations": "Activations after forward, GiB", "peak": "Peak, GiB",
       "flops": "Step, TFLOP"},
      [{"variant": variant, "activations": activations(step), "peak": step.peak_gib, "flops": all_flops(step) / 1e12}
       for variant, step in (("none", kept), ("every second", every_second), ("all", checkpointed))], kind="traced")

# %%
AT, EVERY = "8B Llama, pure bf16, batch 1 x 4,096 tokens", "with checkpointing in every layer"
traced({
    "checkpointing-activations-before": (f"Activations after the forward pass, {AT}", activations(kept), "GiB", 25, 28),
    "checkpointing-activations-after": (f"Activations after the forward pass {EVERY}, {AT}", activations(checkpointed),
                                        "GiB", 2.5, 3.5),
    "checkpointing-activations": (f"Activations without checkpointing against those {EVERY}, {AT}",
                                  activations(kept) / activations(checkpointed), "x", 7, 10),
    "checkpointing-peak-before": (f"Peak memory of a step, {AT}", kept.peak_gib, "GiB", 74, 77),
    "checkpointing-peak-after": (f"Peak memory of a step {EVERY}, {AT}", checkpointed.peak_gib, "GiB", 59, 61),
    "checkpointing-peak-saving": (f"What checkpointing in every layer saves of the peak, {AT}",
                                  less(checkpointed.peak, kept.peak), "%", 15, 25),
    "checkpointing-flops": (f"FLOPs that checkpointing in every layer adds to a step, {AT}",
                            -less(all_flops(checkpointed), all_flops(kept)), "%", 20, 27),
})
for name, batch, low, high in (("checkpointing-bert-saving", 4, 20, 35), ("checkpointing-small-batch", 1, -1, 1)):
    saved = less(bert(batch, activation_checkpointing=True).peak, bert(batch).peak)
    claim(name, f"What checkpointing saves of the peak of a BERT-large step in fp32, batch {batch} x 512 tokens", saved,
          "%", kind="traced", at_least=low, at_most=high)

# %% [markdown]
# ## Precision
#
# A narrower dtype shrinks the activations. Under autocast it does nothing to weights,
# gradients and optimizer state, and adds 16-bit copies of the weights. So mixed precision
# saves memory at a large batch, and none at batch 1.
#
# Pure bf16 shrinks all of it. What it does to the updates of the weights is another
# matter: the notebook *Optimizers* shows that most of them are rounded away at the
# learning rates of fine-tuning.

# %%
by_precision = {precision: bert(32, **options) for precision, options in PRECISIONS.items()}
table("bert-precision", "Peak memory by precision, BERT-large, batch 32 x 512 tokens, AdamW",
      {"precision": "Precision", "fixed": "Weights, gradients, AdamW state, GiB",
       "activations": "Activations after forward, GiB", "copies": "bf16 copies of the weights after forward, GiB",
       "peak": "Peak, GiB"},
      [{"precision": precision, "fixed": fixed(step) / GiB, "activations": activations(step), "peak": step.peak_gib,
        "copies": step.after_forward.get("weight copies", 0) / GiB} for precision, step in by_precision.items()],
      kind="traced")
in_fp32, in_mixed, in_pure = by_precision.values()
AT_32 = "BERT-large, batch 32 x 512 tokens"
traced({
    "mixed-activations-saving": (f"What mixed bf16 saves of the activations, {AT_32}",
                                 less(activations(in_mixed), activations(in_fp32)), "%", 25, 50),
    "mixed-peak-saving": (f"What mixed bf16 saves of the peak of a step, {AT_32}", less(in_mixed.peak, in_fp32.peak),
                          "%", 20, 40),
    "mixed-small-batch": ("What mixed bf16 saves of the peak of a BERT-large step, batch 1 x 512 tokens",
                          less(bert(1, **MIXED).peak, bert(1).peak), "%", -1, 1),
    "pure-peak-saving": (f"What pure bf16 saves of the peak of a step, {AT_32}", less(in_pure.peak, in_fp32.peak),
                         "%", 45, 52),
})

# %% [markdown]
# ## Sequence length
#
# With a fused attention kernel activations grow in proportion to the length. The eager
# kernel writes every score, and grows with its square. Checkpointing keeps the proportion
# and lowers the line.

# %%
LENGTHS = (512, 2048, 4096, 8192, 32768)
CURVES = {
    "eager": {length: activations(llama(1, length, **PURE, attention="eager")) for length in LENGTHS[:4]},
    "fused": {length: activations(llama(1, length, **PURE)) for length in LENGTHS},
    "checkpointed": {length: activations(llama(1, length, **PURE, activation_checkpointing=True))
                     for length in LENGTHS},
}
table("llama-sequence-length",
      "Activations after the forward pass against sequence length, Llama-8B class, batch 1, pure bf16",
      {"length": "Tokens", "eager": "Eager attention, GiB", "fused": "Fused attention, GiB",
       "checkpointed": "Fused and checkpointing, GiB"},
      [{"length": length} | {name: curve.get(length) for name, curve in CURVES.items()} for length in LENGTHS],
      kind="traced")
eager, fused = CURVES["eager"], CURVES["fused"]
traced({
    "eager-at-4096": (f"Activations with eager attention after the forward pass, {AT}", eager[4096], "GiB", 90, 140),
    "fused-saving-512": ("Eager attention's activations against the fused kernel's, 8B Llama, 512 tokens",
                         eager[512] / fused[512], "x", 1.2, 2),
    "fused-saving-8192": ("Eager attention's activations against the fused kernel's, 8B Llama, 8,192 tokens",
                          eager[8192] / fused[8192], "x", 5, 12),
})

# %% alt="Activations against tokens on logarithmic axes: eager attention rises steepest, checkpointing stays lowest."
figure, axes = plt.subplots(figsize=(7, 3))
for label, curve in CURVES.items():
    axes.plot(list(curve), list(curve.values()), marker="o", label=label)
axes.set(xscale="log", yscale="log", xlabel="tokens", ylabel="activations after the forward pass, GiB")
axes.set_xticks(LENGTHS, [f"{length:,}" for length in LENGTHS])
axes.minorticks_off()
axes.legend()
plt.show()

# %% [markdown]
# ## Optimizers
#
# The state is a fixed cost per parameter. The way the optimizer steps matters too:
# `foreach` updates all parameters at once and needs a temporary copy of them. The
# notebook *Optimizers* counts many more.

# %%
OPTIMIZERS = {"AdamW, fused": "adamw", "AdamW, foreach": "adamw_foreach", "SGD with momentum": "sgd_momentum",
              "SGD": "sgd"}
by_optimizer = {label: llama(1, 512, **PURE, optimizer=name) for label, name in OPTIMIZERS.items()}
table("llama-optimizers", "Peak memory by optimizer, Llama-8B class, batch 1 x 512 tokens, pure bf16",
      {"optimizer": "Optimizer", "state": "State, GiB", "peak": "Peak, GiB", "bytes": "Peak, bytes per parameter"},
      [{"optimizer": label, "state": step.gib("optimizer"), "peak": step.peak_gib,
        "bytes": step.peak / step.parameters} for label, step in by_optimizer.items()], kind="traced")
added = by_optimizer["AdamW, foreach"].peak_gib - by_optimizer["AdamW, fused"].peak_gib
traced({"foreach-cost": ("What the foreach form of AdamW adds to the peak of the fused form, 8B Llama in pure bf16",
                         added, "GiB", 13, 16)})

# %% [markdown]
# ## All together
#
# One method after another, at the same number of sequences per optimizer step: first
# BERT-large at 32 x 512 tokens.
#
# Watch two columns. The peak falls with each rung until the fixed part is most of what is
# left. The FLOPs stay as they are but for checkpointing, which adds most of a forward
# pass.

# %% alt="Bars of peak memory in six settings, from fp32 to bf16 with accumulation and checkpointing: the last needs a small part of the first."
def ladder(step, batch):
    """The same step of `batch` sequences, one method after another; `step(batch_size, **options)` traces it."""
    quarter, small = {"batch_size": batch // 4, "accumulation": 4}, f"4 x batch {batch // 4}"
    return {
        f"fp32, batch {batch}": step(batch), "mixed bf16": step(batch, **MIXED),
        f"mixed bf16, {small}": step(**quarter, **MIXED),
        "mixed bf16, checkpointing": step(batch, activation_checkpointing=True, **MIXED),
        f"mixed bf16, {small}, checkpointing": step(**quarter, activation_checkpointing=True, **MIXED),
        f"pure bf16, {small}, checkpointing": step(**quarter, activation_checkpointing=True, **PURE),
    }


def show(name, sentence, rungs):
    table(name, sentence, {"rung": "Methods", "peak": "Peak, GiB", "flops": "Step, TFLOP"},
          [{"rung": rung, "peak": step.peak_gib, "flops": all_flops(step) / 1e12} for rung, step in rungs.items()],
          kind="traced")
    plots.bars({rung: step.peak_gib for rung, step in rungs.items()}, "peak of a step, GiB")


LADDER = ladder(bert, 32)
show("ladder", "BERT-large, 32 x 512 tokens per optimizer step, AdamW", LADDER)
first, *_, mixed_all, _ = LADDER.values()
THREE = "mixed bf16, accumulation and checkpointing"
traced({
    "together-saving": (f"What {THREE} save of the peak, {AT_32}", less(mixed_all.peak, first.peak), "%", 75, 90),
    "together-peak": (f"Peak memory with {THREE}, {AT_32}", mixed_all.peak_gib, "GiB", 5.5, 6.2),
    "together-before": (f"Peak memory in fp32, {AT_32}", first.peak_gib, "GiB", 25, 32),
    "together-flops": (f"FLOPs that {THREE} add to the step, {AT_32}",
                       -less(all_flops(mixed_all), all_flops(first)), "%", 25, 35),
})

# %% [markdown]
# The same for a 1-billion-parameter Llama at 8 sequences of 2,048 tokens. Its vocabulary
# is large for its size, so the logits weigh more. Its key and value heads are grouped. In
# fp32 PyTorch's fused kernels do not take that, and the plain kernel keeps every score.

# %% alt="The same bars for a 1B Llama: again the last setting needs a small part of the first."
llama_1b = LlamaConfig(
    vocab_size=128256, hidden_size=2048, intermediate_size=8192, num_hidden_layers=16,
    num_attention_heads=32, num_key_value_heads=8, max_position_embeddings=131072, tie_word_embeddings=True,
)


def small_llama(batch_size, **options):
    return many_layers(AutoModelForCausalLM, llama_1b, batch_size, 2048, **options)


LADDER_1B = ladder(small_llama, 8)
show("ladder-1b", "Llama-1B class, 8 x 2,048 tokens per optimizer step, AdamW", LADDER_1B)
traced({
    "together-1b-before": ("Peak memory of a 1B Llama in fp32 at 8 x 2,048 tokens", LADDER_1B["fp32, batch 8"].peak_gib,
                           "GiB", 151, 156),
    "together-1b-peak": (f"Peak memory of a 1B Llama at 8 x 2,048 tokens with {THREE}",
                         LADDER_1B["mixed bf16, 4 x batch 2, checkpointing"].peak_gib, "GiB", 25, 28),
})

# %% [markdown]
# ## Does a GPU need what the trace says?
#
# Hugging Face published device memory for five of these steps in 2022: BERT-large on a
# Tesla V100, 512 tokens, with the eager attention of that time. Part of each figure was
# there before any tensor, the CUDA context: that page gives it as [1,343
# MB](https://github.com/huggingface/transformers/blob/0016acf7ef421c7fe8eff7945de52c71896c3b01/docs/source/en/perf_train_gpu_one.mdx).
# The rest is compared with the trace of the same step.

# %%
V100 = ("https://github.com/huggingface/transformers/blob/0016acf7ef421c7fe8eff7945de52c71896c3b01/"
        "docs/source/en/perf_train_gpu_one.mdx")
FP16, CHECKPOINTED, ONES = {"autocast": torch.float16}, {"activation_checkpointing": True}, {"accumulation": 4}
PUBLISHED = {  # rung: batch, options, device memory in MiB
    "fp32, batch 4": (4, {}, 14949), "4 x batch 1": (1, ONES, 8681),
    "4 x batch 1, checkpointing": (1, ONES | CHECKPOINTED, 6775), "fp16, batch 4": (4, FP16, 13939),
    "4 x batch 1, checkpointing, fp16": (1, ONES | CHECKPOINTED | FP16, 7275),
}
checks = []
for rung, (batch, options, device) in PUBLISHED.items():
    peak = bert(batch, attention="eager", **options).peak_gib
    beyond = (device - 1343) / 1024
    checks.append({"rung": rung, "trace": peak, "device": beyond, "above": 100 * (beyond / peak - 1)})
table("against-v100", "Traced peak against device memory less the CUDA context, BERT-large, Tesla V100, 2022",
      {"rung": "Methods", "trace": "Traced peak, GiB", "device": "Device memory, GiB", "above": "Above the trace, %"},
      checks, kind="traced", source=V100)
above = [check["above"] for check in checks]
for name, value, words, least, most in (("least", min(above), "smallest", 0, 10),
                                        ("most", max(above), "largest", 20, 45)):
    claim(f"device-above-{name}", f"Device memory above the traced peak, {words} of five BERT-large steps, Tesla V100",
          value, "%", kind="traced", at_least=least, at_most=most, source=V100)

# %% [markdown]
# So plan with room above the trace. The difference is the allocator's cache, which kept
# freed blocks of other sizes, and the workspaces of kernels. It was largest where large
# activations of many sizes come and go.
#
# ## How long a trace takes
#
# One traced step of the 8B model on this machine:

# %% tags=["measures"]
from dryrun.tracing import training_step as trace_step

again = trace_step(AutoModelForCausalLM, llama_8b, 1, 4096, dtype=torch.bfloat16)
SENTENCE = "Time to trace one training step of the 8B Llama without a GPU, in a process that has traced others before"
_ = claim("trace-seconds", SENTENCE, again.seconds, "s", kind="measured", at_least=0.1, at_most=60)

# %% [markdown]
# ## What came out, and what to do
#
# A step's peak is one of two sums: the fixed part with all gradients, at the end of the
# backward pass, or the fixed part with the activations, where the forward pass ends.
# Which one is larger says what helps.
#
# - **Count the fixed part first:** parameters times bytes per parameter. If it does not
#   fit, no batch size helps. Take a narrower dtype, an optimizer with less state, an
#   adapter, or more GPUs.
# - **If it fits, shrink the activations** until the batch fits: mixed precision, then
#   checkpointing, then accumulation.
# - **A large model at a small batch** peaks at the end of the backward pass: a smaller
#   batch, checkpointing and accumulation change nothing there, and accumulation adds.
# - **Use a fused attention kernel** for long sequences, and the fused form of AdamW.
# - **Leave room above the trace** on a real GPU.

# %%
# Compares this run with the published records. In Colab it also offers the record of this machine, to send.
from evidence.finish import finish

finish()
