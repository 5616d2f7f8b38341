# ---
# jupyter:
#   runs_on: "records, what `make gpu` measured on an H200"
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
# # Predicted once more: an H200
#
# **Do the predictions hold on a second GPU, after the constants were made again?**
#
# The [steps on an H100](gpu_steps.ipynb) showed mistakes. They were mended, and the constants fitted
# again, on the rows of others alone. Then an H200 was at hand for a quarter of an hour. Before it,
# `python -m gpu_steps predict` wrote down what today's library expects, also of steps that the
# H100 does not hold. `make gpu` measured them, until the time was over. This notebook reads the results.

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

from evidence import plots
from evidence.claims import claim, start, table
from gpu_steps import compared

GPU, GiB = "h200-sxm", 2**30
ran, rates, rows = compared.read(compared.MEASURED / "nvidia-h200.jsonl", GPU)
steps = [row for row in rows if row.step.kind == "train" and row.ran]
plots.set_up("h200_steps")
driver = ran["driver"]
software = ran["software"] | {"driver": driver["driver_version"], "clock": driver["clocks.max.sm"].replace(" ", "")}
start("h200_steps", ran={"date": ran["date"], "machine": ran["machine"], "software": software})

# %% tags=["measures"] alt="Dots, measured seconds to the right, predicted ones upwards: close to the line, but for a few short steps and the mixture below it."
_, axes = plt.subplots(figsize=(6, 4))
axes.loglog([row.measured["seconds"] for row in steps], [row.predicted["seconds"] for row in steps], ".")
axes.loglog([0.03, 8], [0.03, 8], color=plots.GRAY, linewidth=1)
axes.set(xlabel="measured, s", ylabel="predicted, s")
plt.show()

# %% [markdown]
# Each dot is a training step. On the line, it took as long as predicted; above it, less.
#
# ## Training steps: time and memory
#
# The loops are those of the [H100](gpu_steps.ipynb): random tokens, AdamW, bf16 weights unless the row
# says more, LoRA and QLoRA under bf16 autocast with fp32 adapters. *Expected on the GPU* is what the whole
# GPU should hold, *at most* the upper end of its band.

# %% tags=["measures"]
table("training", "Training steps on an H200: predicted before, then measured",
      {"step": "Step", "predicted": "Predicted, s", "seconds": "Measured, s", "against": "Predicted / measured",
       "tokens": "Measured, tokens/s", "expected": "Expected on the GPU, GiB", "high": "At most, GiB",
       "device": "On the GPU, GiB"},
      [{"step": row.words, "predicted": row.predicted["seconds"], "seconds": row.measured["seconds"],
        "against": row.against, "tokens": row.tokens_per_second, "expected": row.predicted["device"] / GiB,
        "high": row.predicted["device_high"] / GiB, "device": row.measured["device"] / GiB} for row in steps],
      kind="measured")

# %% tags=["measures"]
median, mean = statistics.median, statistics.mean
ON = "training steps on an H200"
pairs = [(one.predicted["seconds"] / other.predicted["seconds"] * other.measured["seconds"] / one.measured["seconds"])
         for one, other in compared.pairs(rows)]
tensors = [100 * abs(row.predicted["tensors"] / row.measured["allocated"] - 1) for row in steps]
above = sum(row.measured["device"] > row.predicted["device_high"] for row in steps)
for name, sentence, value, unit, least, most in (
    ("time-error", f"Median error of the predicted seconds of {ON}",
     100 * median(abs(row.against - 1) for row in steps), "%", 1, 12),
    ("time-against", f"Median of predicted over measured seconds of {ON}", median(row.against for row in steps), "x",
     0.9, 1.2),
    ("time-inside", f"Share of {ON} whose measured seconds lie between low and high",
     100 * mean(row.inside for row in steps), "%", 80, 99),
    ("ratio-error", "Median error of the predicted ratio of two training steps that differ in one option, H200",
     100 * median(abs(ratio - 1) for ratio in pairs), "%", 1, 10),
    ("tensors-error", f"Median distance of the traced peak from what PyTorch allocated, {ON}", median(tensors), "%",
     0.01, 1),
    ("device-above", f"Number of {ON} that took more of the GPU than the upper end of their band", above, "", 1, 2),
):
    claim(name, sentence, value, unit, kind="measured", at_least=least, at_most=most)

# %% tags=["measures"]
def row_of(key):
    return compared.by_key(rows, key)


mixture = row_of("train qwen3-30b-a3b 2x2048 method=lora checkpointing")
compiled = row_of("train gpt2 16x1024 precision=mixed compiled")
for name, sentence, value, unit, least, most in (
    ("mixture-time", "Measured over predicted seconds of a LoRA step of Qwen3 30B-A3B, 2 x 2,048 tokens, H200",
     1 / mixture.against, "x", 1.5, 2.5),
    ("mixture-memory", "Allocated more than traced, by the same step",
     100 * (mixture.measured["allocated"] / mixture.predicted["tensors"] - 1), "%", 10, 25),
    ("compiled-memory", "Allocated less than traced, by GPT-2 with torch.compile, 16 x 1,024 tokens, H200",
     100 * (1 - compiled.measured["allocated"] / compiled.predicted["tensors"]), "%", 30, 60),
):
    claim(name, sentence, value, unit, kind="measured", at_least=least, at_most=most)

# %% [markdown]
# ## Text
#
# `generate` of transformers on an 8B Llama, 1,024 tokens of prompt and 96 new ones.

# %% tags=["measures"]
texts = [row for row in rows if row.step.kind == "generate" and row.ran]
table("generation", "generate() on an 8B Llama, 1,024 tokens of prompt, H200",
      {"how": "How", "expected": "First token, predicted, ms", "first": "Measured, ms",
       "predicted": "Each token, predicted, ms", "seconds": "Measured, ms", "tokens": "Tokens/s",
       "allocated": "Allocated, GiB"},
      [{"how": row.words, "expected": 1000 * row.predicted["first"]["seconds"], "first": 1000 * row.measured["first"],
        "predicted": 1000 * row.predicted["seconds"], "seconds": 1000 * row.measured["seconds"],
        "tokens": row.step.batch / row.measured["seconds"], "allocated": row.measured["allocated"] / GiB}
       for row in texts], kind="measured")

# %% tags=["measures"]
MANY = "generate llama3-8b 64x1024"
plain, static = (row_of(key).measured["seconds"] for key in (MANY, f"{MANY} cache=static"))
claim("static-many", "Time of a token with a static cache against without, generate() on an 8B Llama, 64 prompts, H200",
      static / plain, "x", kind="measured", at_least=1.05, at_most=2)

# %% [markdown]
# ## The GPU itself

# %% tags=["measures"]
table("rates", f"What the H200 reaches: {driver['clocks.max.sm']} and {driver['power.limit']} at most",
      {"what": "Rate", "best": "Best", "sustained": "Sustained", "unit": "Unit", "sheet": "Data sheet",
       "share": "Sustained, % of the data sheet"},
      compared.rate_rows(GPU, rates), kind="measured")

# %% [markdown]
# ## What came out, and what to do
#
# - **Believe the seconds of dense models** within their band, on Hopper GPUs.
# - **Short steps wait for their CPU.** With 1 x 1,024 tokens LoRA of the 8B takes nearly twice what is
#   expected. The band of such steps is wide for this reason.
# - **Do not believe the fine-tuning of mixtures of experts yet.** Both its time and its memory were expected
#   too low. We did not find out why.
# - **A compiled step needs less memory** than expected, most of all where the vocabulary outweighs the model.
# - **Leave the static cache out for many prompts.** With its mask, the compiled step of transformers 5.23
#   copies keys and values for each query head (`repeat_kv` in `integrations/sdpa_attention.py`).

# %%
# Compares this run with the published records. In Colab it also offers the record of this machine, to send.
from evidence.finish import finish

finish()
