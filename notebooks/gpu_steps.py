# ---
# jupyter:
#   runs_on: "records, what `make gpu` measured on an H100"
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
# the seconds and the memory of some steps. Then `python -m gpu_steps run` measured them, each in
# a process of its own, until the time was over: GPT-2 and Mistral 7B did not run. Up to three
# more processes imported Python packages meanwhile, on 16 CPU cores. No constant was fitted on
# the results.
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
import statistics

import matplotlib.pyplot as plt

from dryrun.tables.hardware import accelerator
from dryrun.cost.traces import traced
from dryrun.step.workload import Workload
from evidence import plots
from evidence.claims import claim, start, table
from gpu_steps import compared, predict

GPU, GiB = "h100-sxm5", 2**30
ran, rates, rows = compared.read(compared.MEASURED / "nvidia-h100-80gb-hbm3.jsonl", GPU)

# %%
plots.set_up("gpu_steps")
driver = ran["driver"]
software = ran["software"] | {"driver": driver["driver_version"], "clock": driver["clocks.max.sm"].replace(" ", "")}
start("gpu_steps", ran={"date": ran["date"], "machine": ran["machine"], "software": software})

# %% [markdown]
# ## The GPU itself
#
# Large products and copies: the best of many repeats, and what the last ones sustain. Under a long
# row of products this H100 slows down.

# %% tags=["measures"]
table("rates", f"What the H100 reaches: {driver['clocks.max.sm']} and {driver['power.limit']} at most",
      {"what": "Rate", "best": "Best", "sustained": "Sustained", "unit": "Unit", "sheet": "Data sheet",
       "share": "Sustained, % of the data sheet"},
      compared.rate_rows(GPU, rates), kind="measured")

# %% [markdown]
# ## Training steps
#
# Every step is a plain loop: random tokens, AdamW, bf16 weights unless the row says more. It does
# less than `Trainer`: no clipping, no data loading, no logging, and it runs for seconds, not hours.
# LoRA and QLoRA run under bf16 autocast with fp32 adapters, as in `Trainer`; the prediction traced
# them without autocast. *Predicted / measured* above 1: the GPU was faster than predicted.

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
# Nearly all dots lie above the line: these steps were faster than the constants say, and those of
# long sequences most. The rows that gave the constants are older, and of whole training runs.

# %% tags=["measures"]
median, mean = statistics.median, statistics.mean
error = 100 * median(abs(row.against - 1) for row in steps)
long = [row.against for row in steps if row.step.length >= 8192]
for name, sentence, value, unit, least, most in (
    ("time-error", f"Median error of the predicted seconds of {ON}", error, "%", 10, 50),
    ("time-against", f"Median of predicted over measured seconds of {ON}",
     median(row.against for row in steps), "x", 1, 1.6),
    ("time-against-long", f"The same of sequences of 8,192 tokens or more, {ON}", median(long), "x", 1.2, 2),
    ("time-inside", f"Share of {ON} whose measured seconds lie between low and high",
     100 * mean(row.inside for row in steps), "%", 25, 90),
):
    claim(name, sentence, value, unit, kind="measured", at_least=least, at_most=most)

# %% [markdown]
# ## The library of today on the same steps
#
# The rows showed one mistake at once. The prediction took FlashAttention 2 on a Hopper GPU, and PyTorch
# takes cuDNN's kernel there since 2.10. The library does so now. Later the times of attention and of
# products came from tables of kernels, and the constants were fitted again, on rows of others. No constant
# is fitted on the steps of this notebook. The figures below belong to whatever version of the library
# computed them last.

# %%
again = predict.all_of(GPU)
now = [again[row.step.key]["seconds"] / row.measured["seconds"] for row in steps]
inside = [again[row.step.key]["low"] <= row.measured["seconds"] <= again[row.step.key]["high"] for row in steps]
for name, sentence, value, unit, least, most in (
    ("now-against", f"Median of predicted over measured seconds of {ON}, by the library of today",
     statistics.median(now), "x", 0.8, 1.4),
    ("now-inside", f"Share of {ON} whose measured seconds lie between low and high, by the library of today",
     100 * statistics.mean(inside), "%", 40, 99),
):
    claim(name, sentence, value, unit, kind="derived", at_least=least, at_most=most)

# %% [markdown]
# ## Choices between methods
#
# What a reader asks is mostly a ratio: what does this method cost? The table has every two steps
# that differ in one option.

# %% tags=["measures"]
pairs = compared.pairs(rows)
changes = [{
    "step": one.words, "change": compared.changed(one, other),
    "predicted": other.predicted["seconds"] / one.predicted["seconds"],
    "measured": other.measured["seconds"] / one.measured["seconds"],
} for one, other in pairs]
table("ratios", "Time of a training step with one change against without it, on an H100",
      {"step": "Step", "change": "Change", "predicted": "Predicted, x", "measured": "Measured, x"}, changes,
      kind="measured")
off = [100 * abs(row["predicted"] / row["measured"] - 1) for row in changes]
claim("ratio-error", "Median error of the predicted ratio of two training steps that differ in one option, H100",
      median(off), "%", kind="measured", at_least=1, at_most=20)

# %% tags=["measures"]
EIGHT, ONE = "train llama3-8b 1x4096", "train llama3.2-1b 4x2048"
ON_8B, ON_1B = "8B Llama, 1 x 4,096 tokens, H100", "1B Llama, 4 x 2,048 tokens, H100"


def times(key, than):
    """How many times as long the step takes."""
    one, other = (compared.by_key(rows, name).measured["seconds"] for name in (key, than))
    return one / other


LORA, CK = f"{EIGHT} method=lora", f"{EIGHT} checkpointing"
for name, sentence, value, least, most in (
    ("checkpointing-time", f"Time of a LoRA step with checkpointing against without, {ON_8B}",
     times(f"{LORA} checkpointing", LORA), 1.2, 1.6),
    ("qlora-time", f"Time of a QLoRA step against LoRA, both with checkpointing, {ON_8B}",
     times(f"{EIGHT} method=qlora checkpointing", f"{LORA} checkpointing"), 0.8, 1.2),
    ("compile-speed", f"Speed of a full step with torch.compile against without, {ON_1B}",
     times(ONE, f"{ONE} compiled"), 1.1, 1.6),
    ("adam-8bit-time", f"Time of a step with bitsandbytes' 8-bit AdamW against PyTorch's fused AdamW, {ON_8B}",
     times(f"{CK} optimizer=adamw_8bit", CK), 1.1, 1.6),
):
    claim(name, sentence, value, "x", kind="measured", at_least=least, at_most=most)

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
more = [100 * (row.measured["device"] / row.predicted["device"] - 1) for row in steps]
above = sum(row.measured["device"] > row.predicted["device_high"] for row in steps)
for name, sentence, value, unit, least, most in (
    ("tensors-error", f"Median distance of the traced peak from what PyTorch allocated, {ON}", median(tensors), "%",
     0.01, 1),
    ("tensors-close", f"Share of {ON} whose traced peak is a fiftieth or less from what PyTorch allocated",
     100 * mean(error <= CLOSE for error in tensors), "%", 70, 100),
    ("device-more", f"Share of {ON} that took more of the whole GPU than expected",
     100 * mean(value > 0 for value in more), "%", 50, 100),
    ("device-most", f"How much more than expected, the largest, {ON}", max(more), "%", 5, 40),
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
for row in (row for row in rows if "out of memory" in row.measured.get("log", "")):
    print(f"{row.words}: expected {row.predicted['device'] / GiB:.1f} GiB, usable {rates['usable'] / GiB:.1f} GiB")
    assert row.predicted["device"] > rates["usable"], f"{row.words} was expected to fit"

# %% [markdown]
# ## Text
#
# `generate` of transformers on an 8B Llama, 1,024 tokens of prompt. Time to the first token, and the
# median time between two tokens. No decoding with bitsandbytes is predicted, because the published
# rows are older than its kernels. Here nf4 has double quantization, and int8 leaves out the
# decomposition of outliers that transformers asks for.

# %% tags=["measures"]
texts = [row for row in rows if row.step.kind == "generate"]


def text_row(row):
    token = row.measured["seconds"]
    predicted = row.predicted if "seconds" in row.predicted else {}
    return {"how": row.words, "first": 1000 * row.measured["first"], "seconds": 1000 * token,
            "expected": predicted and 1000 * predicted["first"]["seconds"] or None,
            "predicted": predicted and 1000 * predicted["seconds"] or None,
            "tokens": row.step.batch / token, "allocated": row.measured["allocated"] / GiB}


table("generation", "generate() on an 8B Llama, 1,024 tokens of prompt, H100",
      {"how": "How", "expected": "First token, predicted, ms", "first": "Measured, ms",
       "predicted": "Each token, predicted, ms", "seconds": "Measured, ms", "tokens": "Tokens/s",
       "allocated": "Allocated, GiB"},
      list(map(text_row, texts)), kind="measured")

# %% tags=["measures"]
PLAIN, SIXTEEN = "generate llama3-8b 1x1024", "generate llama3-8b 16x1024"
ON_ONE = "generate() on an 8B Llama, one prompt of 1,024 tokens, H100"
decode = traced(Workload("llama3-8b", 1, 1, kind="decode"))
read = 2 * decode.weight_bytes + decode.cache(1024 + 48)  # in the middle of the answer
limit = read / (1e9 * accelerator(GPU)["bandwidth"].value)


def share(key):
    """Percent of the data sheet's bandwidth that one sequence reaches."""
    return 100 * limit / compared.by_key(rows, key).measured["seconds"]


for name, sentence, value, unit, least, most in (
    ("plain-share", f"Share of the bandwidth's limit, plain, {ON_ONE}", share(PLAIN), "%", 10, 40),
    ("static-share", f"The same with a static cache, which transformers compiles, {ON_ONE}",
     share(f"{PLAIN} cache=static"), "%", 40, 90),
    ("nf4-speed", f"Tokens/s with nf4 weights of bitsandbytes, doubly quantized, against bf16, {ON_ONE}",
     times(PLAIN, f"{PLAIN} weights=nf4"), "x", 0.5, 1.2),
    ("int8-speed", f"Tokens/s with int8 weights of bitsandbytes, outliers not decomposed, against bf16, {ON_ONE}",
     times(PLAIN, f"{PLAIN} weights=int8"), "x", 0.2, 0.7),
    ("static-sixteen", "Tokens/s with a static cache against without, generate() on an 8B Llama, 16 prompts, H100",
     times(SIXTEEN, f"{SIXTEEN} cache=static"), "x", 1, 2),
):
    claim(name, sentence, value, unit, kind="measured", at_least=least, at_most=most)

# %% [markdown]
# ## What came out, and what to do
#
# - **Trust the traced tensors**, and plan with *at most*: the whole GPU held more than expected.
#   Where tensors differ, a library keeps copies that the trace does not see: peft without
#   checkpointing, and Liger. `torch.compile` keeps fewer.
# - **Expect an H100 to be faster than predicted** in large steps, with software of today.
# - **Choose by ratios.** What checkpointing and autocast cost came out as predicted. QLoRA was
#   predicted slower than LoRA, and was faster. `torch.compile` buys less than predicted, and 8-bit
#   AdamW costs more.
# - **Generate one text with a static cache** or an engine: without it, an H100 waits for its CPU.

# %%
# Compares this run with the published records. In Colab it also offers the record of this machine, to send.
from evidence.finish import finish

finish()
