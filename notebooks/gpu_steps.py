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
# # Predicted first, then measured on a GPU
#
# **How far off are the predictions of this site on a GPU that nobody had asked about, with
# software that no published row has?**
#
# We had one H100 for a quarter of an hour. Before it, `python -m gpu_steps predict` wrote down
# the seconds and the memory of 40 steps. Then `python -m gpu_steps run` measured them, each in
# a process of its own. No constant was fitted on the results.
#
# What to expect:
#
# - *Memory of tensors* is counted, not estimated: it should agree to a percent.
# - *Seconds* come from constants that others' steps gave, on older software. A newer kernel is
#   faster than its constant.
# - *Ratios* of two steps should be closer than the seconds.
#
# This notebook reads the results. To measure your own GPU, run `make gpu` in a checkout.

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
import os
import statistics
from pathlib import Path

import matplotlib.pyplot as plt

from dryrun.hardware import accelerator
from evidence import plots
from evidence.claims import claim, start, table
from gpu_steps import compared, predict

GPU, GiB = "h100-sxm5", 2**30
results = Path(os.environ.get("GPU_STEPS", compared.MEASURED / "nvidia-h100-80gb-hbm3.jsonl"))
ran, rates, rows = compared.read(results, GPU)

# %%
plots.set_up("gpu_steps")
driver = ran["driver"]
software = ran["software"] | {"driver": driver["driver_version"]}
start("gpu_steps", ran={"date": ran["date"], "machine": ran["machine"], "software": software})

# %% [markdown]
# ## The GPU itself
#
# Large products and copies: the best of many repeats, and what the last ones sustain. Under a long
# row of products this H100 slows down, as its power limit asks.

# %% tags=["measures"]
SHEET = {"product bf16": "bf16", "product tf32": "tf32", "product fp32": "fp32", "memory copy": "bandwidth"}


def rate_row(name, rate):
    peak = accelerator(GPU)[SHEET[name]].value if name in SHEET else None
    return {"what": name, "best": rate["value"], "sustained": rate["sustained"], "unit": rate["unit"], "sheet": peak,
            "share": peak and 100 * rate["sustained"] / peak}


table("rates", f"What the H100 reaches: {driver['clocks.max.sm']} and {driver['power.limit']} at most",
      {"what": "Rate", "best": "Best", "sustained": "Sustained", "unit": "Unit", "sheet": "Data sheet",
       "share": "Sustained, % of the data sheet"},
      [rate_row(*one) for one in rates["rates"].items()], kind="measured")

# %% [markdown]
# ## Training steps
#
# Every step is a plain loop: random tokens, AdamW, bf16 weights unless the row says more. LoRA and
# QLoRA run under bf16 autocast, as `Trainer` runs them. *Predicted / measured* above 1: the GPU was
# faster than predicted.

# %%
steps = [row for row in rows if row.step.kind == "train" and row.ran]
ON = "training steps on an H100"

# %% tags=["measures"]
table("training", "Training steps on an H100: predicted before, then measured",
      {"step": "Step", "predicted": "Predicted, s", "low": "Low, s", "high": "High, s", "seconds": "Measured, s",
       "against": "Predicted / measured", "tokens": "Measured, tokens/s"},
      [{"step": row.words, "predicted": row.predicted["seconds"], "low": row.predicted["low"],
        "high": row.predicted["high"], "seconds": row.measured["seconds"], "against": row.against,
        "tokens": row.tokens_per_second} for row in steps], kind="measured")

# %% tags=["measures"] alt="Dots, measured seconds to the right, predicted ones upwards: nearly all above the line."
_, axes = plt.subplots(figsize=(6, 4))
axes.loglog([row.measured["seconds"] for row in steps], [row.predicted["seconds"] for row in steps], ".")
axes.loglog([0.05, 5], [0.05, 5], color=plots.GRAY, linewidth=1)
axes.set(xlabel="measured, s", ylabel="predicted, s")
plt.show()

# %% [markdown]
# Nearly all dots lie above the line: this H100 is faster than the constants say. The reason is in
# the rows that gave them. They are older, some are of H100 with a lower power limit, and most have
# older attention kernels: the longer the sequence, the larger the error.

# %% tags=["measures"]
median, mean = statistics.median, statistics.mean
error = 100 * median(abs(row.against - 1) for row in steps)
long = [row.against for row in steps if row.step.length >= 8192]
short = [row.against for row in steps if row.step.length < 8192]
for name, sentence, value, unit, least, most in (
    ("time-error", f"Median error of the predicted seconds of {ON}", error, "%", 10, 50),
    ("time-against", f"Median of predicted over measured seconds of {ON}", median(long + short), "x", 1, 1.6),
    ("time-against-long", f"The same of sequences of 8,192 tokens or more, {ON}", median(long), "x", 1.2, 2),
    ("time-against-short", f"The same of shorter sequences, {ON}", median(short), "x", 0.9, 1.5),
    ("time-inside", f"Share of {ON} whose measured seconds lie between low and high",
     100 * mean(row.inside for row in steps), "%", 25, 90),
    ("time-steps", f"How many {ON} were predicted, and then measured", len(steps), "", 25, 40),
):
    claim(name, sentence, value, unit, kind="measured", at_least=least, at_most=most)

# %% [markdown]
# ## The library of today on the same steps
#
# The rows showed one mistake at once. The prediction took FlashAttention 2 on a Hopper GPU, and PyTorch
# takes cuDNN's kernel there since 2.10. The library does so now. No constant changed. The figures below
# belong to whatever version of the library computed them last. They judge nothing any more, because the
# mistake was found on these steps.

# %%
again = predict.all_of(GPU)
now = [again[row.step.key]["seconds"] / row.measured["seconds"] for row in steps]
inside = [again[row.step.key]["low"] <= row.measured["seconds"] <= again[row.step.key]["high"] for row in steps]
long_now = [value for value, row in zip(now, steps) if row.step.length >= 8192]
for name, sentence, value, unit, least, most in (
    ("now-error", f"Median error of the predicted seconds of {ON}, by the library of today",
     100 * statistics.median(abs(value - 1) for value in now), "%", 1, 40),
    ("now-against", f"Median of predicted over measured seconds of {ON}, by the library of today",
     statistics.median(now), "x", 0.8, 1.4),
    ("now-against-long", f"The same of sequences of 8,192 tokens or more, {ON}", statistics.median(long_now), "x",
     0.8, 1.4),
    ("now-inside", f"Share of {ON} whose measured seconds lie between low and high, by the library of today",
     100 * statistics.mean(inside), "%", 40, 99),
):
    claim(name, sentence, value, unit, kind="derived", at_least=least, at_most=most)

# %% [markdown]
# ## Choices between methods
#
# What a reader asks is mostly a ratio: what does this method cost? Most of what a prediction of
# seconds misses is on both sides of a ratio.

# %% tags=["measures"]
EIGHT, ONE = "train llama3-8b 1x4096", "train llama3.2-1b 4x2048"
PAIRS = {
    "checkpointing": ("Checkpointing, LoRA, 8B", f"{EIGHT} method=lora checkpointing", f"{EIGHT} method=lora"),
    "checkpointing-1b": ("Checkpointing, full, 1B", f"{ONE} checkpointing", ONE),
    "qlora": ("QLoRA for LoRA, 8B", f"{EIGHT} method=qlora checkpointing", f"{EIGHT} method=lora checkpointing"),
    "lora": ("LoRA for full, 8B", f"{EIGHT} method=lora checkpointing", f"{EIGHT} checkpointing"),
    "fused-lora": ("Fused loss, LoRA, 8B", f"{EIGHT} method=lora checkpointing fused_loss",
                   f"{EIGHT} method=lora checkpointing"),
    "fused": ("Fused loss, full, 1B", f"{ONE} fused_loss", ONE),
    "compile": ("torch.compile, full, 1B", f"{ONE} compiled", ONE),
    "autocast": ("bf16 autocast for bf16 weights, full, 1B", f"{ONE} precision=mixed", ONE),
    "foreach": ("AdamW foreach for fused, full, 1B", f"{ONE} optimizer=adamw_foreach", ONE),
    "adam-8bit": ("8-bit AdamW for AdamW, full, 8B", f"{EIGHT} checkpointing optimizer=adamw_8bit",
                  f"{EIGHT} checkpointing"),
}

# %% tags=["measures"]
def ratios(kind):
    """{name: seconds with the change over seconds without it}, predicted or measured."""
    def seconds(key):
        return getattr(compared.by_key(rows, key), kind)["seconds"]
    return {name: seconds(one) / seconds(other) for name, (_, one, other) in PAIRS.items()}


expected, found = ratios("predicted"), ratios("measured")
table("ratios", "Time of a training step with a change against without it, on an H100; those of the 8B at 1 x 4,096 "
      "tokens, with checkpointing, those of the 1B at 4 x 2,048",
      {"change": "Change", "predicted": "Predicted, x", "measured": "Measured, x"},
      [{"change": words, "predicted": expected[name], "measured": found[name]}
       for name, (words, *_) in PAIRS.items()], kind="measured")

# %% tags=["measures"]
ON_8B, ON_1B = "8B Llama, 1 x 4,096 tokens, H100", "1B Llama, 4 x 2,048 tokens, H100"
CHANGES = (
    ("checkpointing", f"Time of a LoRA step with checkpointing against without, {ON_8B}", 1.2, 1.6),
    ("qlora", f"Time of a QLoRA step against LoRA, both with checkpointing, {ON_8B}", 0.8, 1.2),
    ("fused", f"Time of a step with Liger's fused loss against without, {ON_1B}", 0.9, 1.2),
    ("compile", f"Time of a step with torch.compile against without, {ON_1B}", 0.6, 0.95),
    ("adam-8bit", f"Time of a step with bitsandbytes' 8-bit AdamW against PyTorch's fused AdamW, {ON_8B}", 1.1, 1.6),
)
off = 100 * median(abs(expected[name] / found[name] - 1) for name in PAIRS)
claim("ratio-error", "Median error of the predicted ratio of two training steps on an H100", off, "%",
      kind="measured", at_least=1, at_most=20)
for name, sentence, least, most in CHANGES:
    claim(f"{name}-time", sentence, found[name], "x", kind="measured", at_least=least, at_most=most)

# %% [markdown]
# ## Memory
#
# *Tensors* is the traced peak, *allocated* what PyTorch's allocator counted. On the right, what the
# driver says of the whole GPU: expected, at most, and measured.

# %% tags=["measures"]
table("memory", "Peak memory of training steps on an H100: traced and expected before, then measured",
      {"step": "Step", "tensors": "Traced tensors, GiB", "allocated": "Allocated, GiB",
       "expected": "Expected on the GPU, GiB", "high": "At most, GiB", "device": "On the GPU, GiB"},
      [{"step": row.words, "tensors": row.predicted["tensors"] / GiB, "allocated": row.measured["allocated"] / GiB,
        "expected": row.predicted["device"] / GiB, "high": row.predicted["device_high"] / GiB,
        "device": row.measured["device"] / GiB} for row in steps], kind="measured")

# %% tags=["measures"]
CLOSE = 2  # percent
tensors = [100 * abs(row.predicted["tensors"] / row.measured["allocated"] - 1) for row in steps]
device = [100 * abs(row.predicted["device"] / row.measured["device"] - 1) for row in steps]
above = sum(row.measured["device"] > row.predicted["device_high"] for row in steps)
for name, sentence, value, unit, least, most in (
    ("tensors-error", f"Median distance of the traced peak from what PyTorch allocated, {ON}", median(tensors), "%",
     0.01, 1),
    ("tensors-close", f"Steps whose traced peak is a fiftieth or less from what PyTorch allocated, {ON}",
     sum(error <= CLOSE for error in tensors), "", 20, 40),
    ("device-error", f"Median error of the memory expected on the whole GPU, {ON}", median(device), "%", 1, 12),
    ("device-above", f"Steps that took more of the GPU than the upper end of their band, {ON}", above, "", 0, 2),
):
    claim(name, sentence, value, unit, kind="measured", at_least=least, at_most=most)

# %% tags=["measures"]
def allocated(key, than):
    """Percent more than `than`: the step's own traced peak, or the peak of another step."""
    row = compared.by_key(rows, key)
    other = compared.by_key(rows, than).measured["allocated"] if than else row.predicted["tensors"]
    return 100 * (row.measured["allocated"] / other - 1)


for name, sentence, value, least, most in (
    ("peft-memory", f"More than traced, allocated by a LoRA step without checkpointing under bf16 autocast, {ON_8B}",
     allocated(f"{EIGHT} method=lora", None), 4, 20),
    ("compile-memory", f"Less than traced, allocated by a step with torch.compile, {ON_1B}",
     -allocated(f"{ONE} compiled", None), 5, 30),
    ("fused-memory", f"Memory that Liger's fused loss takes off a step, {ON_1B}",
     -allocated(f"{ONE} fused_loss", ONE), 15, 50),
):
    claim(name, sentence, value, "%", kind="measured", at_least=least, at_most=most)

# %% [markdown]
# One step was expected to need more than the GPU has, and ran out of memory:

# %% tags=["measures"]
refused = [row for row in rows if "out of memory" in row.measured.get("log", "")]
for row in refused:
    print(f"{row.words}: expected {row.predicted['device'] / GiB:.1f} GiB, usable {rates['usable'] / GiB:.1f} GiB")
_ = claim("refused", "Steps that ran out of memory on an H100, as predicted",
          sum(row.predicted["device"] > rates["usable"] for row in refused), "", kind="measured", at_least=1, at_most=1)

# %% [markdown]
# ## Text
#
# `generate` of transformers on an 8B Llama, 1,024 tokens of prompt. Time to the first token, and the
# median time between two tokens. Nobody had published such rows of bitsandbytes, so nothing was
# predicted there.

# %% tags=["measures"]
texts = [row for row in rows if row.step.kind == "generate"]


def text_row(row):
    token = row.measured["seconds"]
    return {"how": row.words, "first": 1000 * row.measured["first"], "seconds": 1000 * token,
            "predicted": 1000 * row.predicted["seconds"] if "seconds" in row.predicted else None,
            "tokens": row.step.batch / token, "allocated": row.measured["allocated"] / GiB}


table("generation", "generate() on an 8B Llama, 1,024 tokens of prompt, H100",
      {"how": "How", "first": "First token, ms", "predicted": "Each token, predicted, ms",
       "seconds": "Each token, measured, ms", "tokens": "Tokens/s", "allocated": "Allocated, GiB"},
      list(map(text_row, texts)), kind="measured")

# %% tags=["measures"]
token = {row.step.key: row.measured["seconds"] for row in texts}
PLAIN = "generate llama3-8b 1x1024"
for name, sentence, other, least, most in (
    ("static-speed", "Tokens/s with a static cache, which transformers compiles", f"{PLAIN} cache=static", 1.5, 4),
    ("nf4-speed", "Tokens/s with nf4 weights of bitsandbytes", f"{PLAIN} weights=nf4", 0.5, 1.2),
    ("int8-speed", "Tokens/s with int8 weights of bitsandbytes", f"{PLAIN} weights=int8", 0.2, 0.7),
):
    claim(name, f"{sentence} against plain bf16, generate() on an 8B Llama, one prompt of 1,024 tokens, H100",
          token[PLAIN] / token[other], "x", kind="measured", at_least=least, at_most=most)

# %% [markdown]
# ## What came out, and what to do
#
# - **Trust the memory.** The traced tensors are those that PyTorch allocated. Where they are not,
#   a library keeps copies that the trace does not see: peft without checkpointing, Liger, and
#   `torch.compile`, which keeps fewer.
# - **Take predicted seconds on an H100 as a floor for its speed.** Software of today is faster.
# - **Choose by ratios.** What checkpointing, autocast or QLoRA cost came out as predicted. What
#   `torch.compile` buys was predicted too high, and what 8-bit AdamW costs was not predicted.
# - **Generate with a static cache** or an engine: without it, an H100 waits for its CPU.

# %%
# Compares this run with the published records. In Colab it also offers the record of this machine, to send.
from evidence.finish import finish

finish()
