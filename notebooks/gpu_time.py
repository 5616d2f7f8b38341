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
# # Seconds on a GPU that you do not have
#
# **How long does a training step take on your GPU, what holds it back, and how far off can
# the answer be?**
#
# A training step is a list of kernels, and the list is the same on every GPU. The real model
# code, run on fake tensors, gives that list without a GPU: how many FLOPs each kernel
# computes, and how many bytes it moves. A data sheet says how fast a GPU does both. What is
# missing is how much of its peak a GPU reaches. A few constants say that. They are fitted on
# steps that other people measured and published.
#
# What to expect:
#
# - Most of a step of a large model is matrix products, so most of the time is compute.
# - A prediction is not exact. It is useful when you know its error, so the error is the
#   first result here, and every figure below comes with a low and a high.
# - What small kernels wait for is the CPU of the host. There the prediction says
#   "launch-bound" and gives no seconds.
#
# Nothing here runs on a GPU, and nothing is measured here.

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
import logging
import math
import statistics
import warnings

os.environ["CUDA_VISIBLE_DEVICES"] = ""  # it counts: no step runs, so a GPU of this machine stays free for others
logging.disable(logging.WARNING)
warnings.simplefilter("ignore")

import matplotlib.pyplot as plt

from dryrun.cost import timing
from fitting import contexts, judged, published, serving_logs, without
from dryrun.answer.answer import answer, usable
from dryrun.tables.hardware import CAPACITY, ON_PAGES, accelerator
from dryrun.cost.timing import training_step
from dryrun.cost.roofline import half_precision, processor
from dryrun.cost.setting import FP32_ADAPTERS, Setting
from dryrun.step.workload import Workload
from evidence import plots
from evidence.claims import claim, predicted, start, table

plots.set_up("gpu_time")
start("gpu_time")

# %% [markdown]
# ## One kernel
#
# A kernel computes, and it moves bytes between the memory of the GPU and its cores. Both go
# on at the same time, so the slower one decides:
#
# $$t \approx \max\left(\frac{\text{FLOPs}}{\text{peak}}, \frac{\text{bytes}}{\text{bandwidth}}\right)$$
#
# A product of two matrices of 4,096 x 4,096 in 16 bits computes 2 x 4,096³ FLOPs and moves
# three matrices of 2 x 4,096² bytes. A sum of two such matrices moves as many bytes and
# computes almost nothing. The table puts five GPUs into the formula, at the peaks of their
# data sheets.

# %%
SIZE = 4096
FIVE = ("t4", "rtx-4090", "a100-sxm4-80", "h100-sxm5", "b200-hgx")
FLOPS, MOVED = 2 * SIZE**3, 3 * 2 * SIZE**2
table("one-kernel", "Kernels on matrices of 4,096 x 4,096 in 16 bits, at the peaks of the data sheet",
      {"gpu": "GPU", "product": "Compute of the matmul, ms", "moved": "Memory of matmul or sum, ms",
       "balance": "FLOPs per byte where both take as long"},
      [{"gpu": accelerator(gpu).label, "product": 1000 * FLOPS / processor(gpu).half,
        "moved": 1000 * MOVED / processor(gpu).bandwidth, "balance": processor(gpu).half / processor(gpu).bandwidth}
       for gpu in FIVE], kind="derived")

# %% [markdown]
# How to read it: the product is compute-bound on all of them, the sum memory-bound. The
# last column is the border between the two. It rises from generation to generation, because
# peaks grow faster than bandwidths. So kernels that were compute-bound on an old GPU
# wait for memory on a new one, and fusing small kernels pays more there.
#
# ## One step
#
# The kernels of a real step: LoRA on an 8B Llama, one sequence of 2,048 tokens, with
# activation checkpointing. The trace sees what transformers and PyTorch really call.

# %%
LORA = dict(rank=16, targets="all linear")
step = training_step("llama3-8b", 1, 2048, checkpointing=1, **LORA)
sums = {}
for kernel, count in step.kernels.counts.items():
    calls, flops, moved = sums.get(kernel.kind, (0, 0, 0))
    sums[kernel.kind] = calls + count, flops + count * kernel.flops, moved + count * kernel.bytes
NAMES = {"memory": "all others", "product": "matrix products", "attention": "attention"}
table("kernels", "Kernels of a LoRA step of an 8B Llama, 1 x 2,048 tokens, checkpointing, eager",
      {"kind": "Kind", "count": "Kernels", "flops": "TFLOPs", "moved": "Moved, GB"},
      [{"kind": name, "count": sums[kind][0], "flops": sums[kind][1] / 1e12, "moved": sums[kind][2] / 1e9}
       for kind, name in NAMES.items()], kind="traced")

# %% [markdown]
# Nearly all FLOPs are in the products, and most kernels are small ones that only move bytes.
# `torch.compile` fuses these: that is where its gain comes from, and why it gains little
# where products take all the time.
#
# ## How far off is it?
#
# Published measurements decide. `fitting/data/published.json` holds each with its source,
# and the rejected ones with the reason. The constants are fitted on some sources and judged
# on others: no row is judged by constants that its own source helped to fit. That is your
# case too: nobody fitted anything on your software.
#
# The error is the distance of the predicted seconds from the published ones, in percent of
# the published. Half of the rows of a class have a smaller error than the median. *Within the
# band* counts the rows whose published seconds lie between low and high. *Launch-bound* steps
# wait for their CPU. The last line and the tables below leave them out.

# %%
MEASURED = {row["id"]: row["seconds"] for row in published.rows() if row.get("seconds")}
JUDGED = judged.read()
errors = {}
for one in JUDGED:
    off = 100 * abs(one.seconds / MEASURED[one.id] - 1)
    errors.setdefault(one.klass, []).append((off, one.low <= MEASURED[one.id] <= one.high))


def row_of(name, found):
    off = sorted(error for error, _ in found)
    return {"class": name, "rows": len(off), "median": statistics.median(off),
            "ninth": off[math.ceil(0.9 * len(off)) - 1],
            "inside": 100 * sum(inside for _, inside in found) / len(found)}


sure = {klass: found for klass, found in errors.items() if klass != "launch-bound"}
every = row_of("all but launch-bound", [one for found in sure.values() for one in found])
table("errors", "Predicted against published seconds, for sources that were not fitted",
      {"class": "Class", "rows": "Rows", "median": "Median error, %", "ninth": "Nine in ten are below, %",
       "inside": "Within the band, %"},
      [*(row_of(name, found) for name, found in sorted(errors.items(), key=lambda item: -len(item[1]))), every],
      kind="derived")

# %% [markdown]
# A fit has choices too, such as how much a row of a large source weighs. A choice that was made by looking at the
# rows that judge it would flatter itself, so it is nested: for the rows of one fold of sources it is made by the
# other folds. The table has the choices, over classes: the median error where each source counts the same, and by how
# many points the share inside the band stays below nine in ten.

# %%
fitted = timing.fitted()
table("choices", "Ways to fit the constants, judged on folds of sources that had no part",
      {"choice": "Rows and errors weighed by", "median": "Median error, mean of classes, %",
       "short": "Inside the band, points below 90 %", "taken": "Taken"},
      [{"choice": name, "taken": "yes" if name == fitted["choice"] else "no"} | found
       for name, found in fitted["choices"].items()], kind="derived")

# %% [markdown]
# What does one measured step say of another on the same machine, with the same software? Of each
# such group of published steps, each one in turn is the one that ran.

# %%
table("carried", "Errors without and with one measured step of the same machine and software, %",
      {"class": "Class", "sources": "Sources", "rows": "Steps", "median": "Without: median",
       "worst": "Nine in ten below", "median_given": "With: median", "worst_given": "Nine in ten below then",
       "inside": "Inside the range", "taken": "Taken"},
      [{**one, "taken": "yes" if one["kept"] else "no"} for one in fitted["carried_judged"]], kind="derived")

# %% [markdown]
# Why are they not smaller? Each source has its own software and machines, which are faster or
# slower than those of others. Take that out: allow each source one factor of its own, the
# median of its rows in the class. What is left is how well steps of one source are told apart.

# %%
SOURCE_OF = {row["id"]: row["source"] for row in published.rows()}
FEWEST_ROWS = 5  # of a source in a class: fewer say little of its factor
of_sources = {}
for one in JUDGED:
    log = math.log(one.seconds / MEASURED[one.id])
    of_sources.setdefault(one.klass, {}).setdefault(SOURCE_OF[one.id], []).append(log)


def percent(logarithms):
    return statistics.median(100 * abs(math.exp(log) - 1) for log in logarithms)


def split(klass):
    several = [found for found in of_sources[klass].values() if len(found) >= FEWEST_ROWS]
    factors = [statistics.median(found) for found in several]
    within = [log - factor for found, factor in zip(several, factors) for log in found]
    return {"class": klass, "sources": len(several), "total": percent(log for found in several for log in found),
            "factor": percent(factors), "within": percent(within)}


table("within", "Median error, and what is left of it where each source has a factor of its own",
      {"class": "Class", "sources": "Sources of five rows or more", "total": "Their rows, %",
       "factor": "Factor of a source, %", "within": "Rows beside it, %"},
      [row for row in map(split, sorted(sure, key=lambda name: -len(sure[name]))) if row["sources"] > 1],
      kind="derived")

# %% [markdown]
# And what does each part of the prediction buy? `python -m fitting without` takes one out at a
# time, fits the constants again and judges every row by those that had not seen its source.

# %%
BOUGHT = {"training, one GPU": "One GPU, %", "training, many GPUs": "Many GPUs, %",
          "tensor and pipeline parallel": "TP, PP, %", "QLoRA": "QLoRA, %", "LoRA": "LoRA, %",
          "forward": "Forward, %", "decode": "Decoding, %", "fp8": "fp8, %"}
table("without", "Median error for sources that were not fitted, where a part of the prediction is left out",
      {"part": "Left out"} | BOUGHT,
      [{"part": part} | {klass: medians[klass] for klass in BOUGHT} for part, medians in without.read().items()],
      kind="derived")

# %% [markdown]
# One figure for a class hides that GPUs differ. Below, the same rows by GPU, where at least
# five rows were published. *Against*: predicted over published seconds, the median. Above 1 the
# GPU is faster than predicted. *Sources*: how many groups of people measured.

# %%
ROW_OF = {row["id"]: row for row in published.rows()}
by_gpu = {}
for one in JUDGED:
    if one.klass in sure:
        by_gpu.setdefault(ROW_OF[one.id]["gpu"], []).append((one.seconds / MEASURED[one.id], ROW_OF[one.id]["source"]))
table("by-gpu", "Predicted against published seconds by GPU, for sources that were not fitted",
      {"gpu": "GPU", "rows": "Rows", "sources": "Sources", "median": "Median error, %", "against": "Against"},
      [{"gpu": accelerator(gpu).label, "rows": len(found), "sources": len({source for _, source in found}),
        "median": statistics.median(100 * abs(ratio - 1) for ratio, _ in found),
        "against": statistics.median(ratio for ratio, _ in found)}
       for gpu, found in sorted(by_gpu.items(), key=lambda item: -len(item[1])) if len(found) >= 5], kind="derived")

# %% [markdown]
# And by source, those with five rows or more: each was judged by constants that it had no part in.

# %%
WORDS = {"train": "training", "forward": "forward", "decode": "decoding"}
by_source = {}
for one in JUDGED:
    if one.klass in sure:
        by_source.setdefault(ROW_OF[one.id]["source"], []).append((one.seconds / MEASURED[one.id], ROW_OF[one.id]))


def years(rows):
    found = sorted({row["date"][:4] for row in rows if row["date"]})
    return "" if not found else found[0] if len(found) == 1 else f"{found[0]} to {found[-1]}"


table("by-source", "Predicted against published seconds by source, by constants that had not seen it",
      {"source": "Source", "what": "Steps", "years": "Years", "rows": "Rows", "median": "Median error, %",
       "against": "Against"},
      [{"source": source, "what": ", ".join(sorted({WORDS.get(row["kind"], row["kind"]) for _, row in found})),
        "years": years([row for _, row in found]), "rows": len(found),
        "median": statistics.median(100 * abs(ratio - 1) for ratio, _ in found),
        "against": statistics.median(ratio for ratio, _ in found)}
       for source, found in sorted(by_source.items(), key=lambda item: -len(item[1])) if len(found) >= 5],
      kind="derived")

# %%
for name, sentence, value, unit, least, most in (
    ("error-rows", "Published rows, launch-bound ones left out, predicted by constants that other sources gave",
     every["rows"], "", 1000, 3000),
    ("error-median", "Median error of the predicted seconds, launch-bound steps left out, sources that were not fitted",
     every["median"], "%", 5, 20),
    ("error-ninth", "Error that nine in ten predictions stay below, launch-bound steps left out, new sources",
     every["ninth"], "%", 20, 60),
    ("error-inside", "Published rows, launch-bound ones left out, inside a band that their source had no part in",
     every["inside"], "%", 85, 99),
):
    claim(name, sentence, value, unit, kind="derived", at_least=least, at_most=most)

# %% [markdown]
# Macs and other machines whose GPU shares the computer's memory have two constants of their own,
# and one thing that is predicted: text for one reader. The errors are of rows whose source the
# constants had not seen.

# %%
from dryrun.cost import shared_memory

of_machines = []
for name, known in shared_memory.fitted().items():
    off = [100 * abs(math.exp(error) - 1) for found in known["errors"].values() for error in found]
    signed = [math.exp(error) for found in known["errors"].values() for error in found]
    of_machines.append({"machine": name, "rows": len(off), "sources": len(known["errors"]),
                        "median": statistics.median(off), "against": statistics.median(signed),
                        "share": 100 * known["share"], "layer": 1e6 * known["layer"]})
table("shared-memory", "Text for one reader where CPU and GPU share the memory, for sources that were not fitted",
      {"machine": "Machine", "rows": "Rows", "sources": "Sources", "median": "Median error, %", "against": "Against",
       "share": "Share of the bandwidth, %", "layer": "And for each layer, µs"}, of_machines, kind="derived")

# %% [markdown]
# ## Is that good enough?
#
# Before anything was fitted we wrote down what a useful prediction must reach. A median
# error that was asked for afterwards proves nothing. The table compares. *New row* is a row
# of a source that the constants know, *new source* one of a source that they do not know,
# and *new GPU* one of a family of GPUs that they do not know. Your case is between the
# first column and the second: your software is new, but published steps are like yours.

# %%
logs = {unseen: [math.log(getattr(one, field) / MEASURED[one.id]) for one in JUDGED]
        for unseen, field in (("fold", "fold"), ("source", "seconds"), ("family", "family"))}
ROWS = {row["id"]: row for row in published.rows()}
reached = judged.medians([ROWS[one.id] for one in JUDGED], [one.klass for one in JUDGED], logs)
of_memory = timing.fitted()["memory"]
peak = [100 * abs(math.exp(error) - 1)
        for kind in ("", "_adapters", "_replayed", "_replayed_adapters") for error in of_memory[f"errors{kind}"]]
memory = {"what": "the peak memory on one GPU", "asked": 5, "fold": statistics.median(peak)}
memory |= {"source": None, "family": None}
table("asked", "Median error that was asked for before the fit, and what came out",
      {"what": "Prediction of", "asked": "Asked, at most %", "fold": "New row, %", "source": "New source, %",
       "family": "New GPU, %"},
      [*({"what": asked.what, "asked": asked.most} | errors for asked, _, errors in reached), memory], kind="derived")
off = {asked.what: errors for asked, _, errors in reached}
for name, sentence, value, least, most in (
    ("asked-training", "Median error of training steps on one GPU or many, for rows that were not fitted",
     off["a training step, on one GPU or many"]["fold"], 2, 12),
    ("asked-ratio", "Median error of the ratio of two steps on one GPU, for rows that were not fitted",
     off["the ratio of two steps on one GPU"]["fold"], 2, 12),
    ("asked-decode", "Median error of decoding one sequence, for rows that were not fitted",
     off["decoding one sequence"]["fold"], 4, 16),
    ("asked-memory", "Median error of the peak memory on one GPU, for rows that were not fitted",
     statistics.median(peak), 2, 12),
):
    claim(name, sentence, value, "%", kind="derived", at_least=least, at_most=most)

# %% [markdown]
# What a process holds beside PyTorch's memory is in no trace: the CUDA context, and with several GPUs buffers of NCCL as well.
# Out-of-memory messages in public issues say how much it is.

# %%
many = of_memory["errors_many"], of_memory["errors_many_adapters"]
for name, sentence, value, least, most in (
    ("memory-many", "Median error of the peak memory of full fine-tuning on several GPUs, rows that were not fitted",
     statistics.median(100 * abs(math.exp(error) - 1) for error in many[0]), 1, 10),
    ("memory-adapters", "Median error of the peak memory of LoRA and QLoRA on several GPUs, rows that were not fitted",
     statistics.median(100 * abs(math.exp(error) - 1) for error in many[1]), 0.5, 10),
):
    claim(name, sentence, value, "%", kind="derived", at_least=least, at_most=most)
for name, sentence, value, least, most in (
    ("context-one", "What a process holds beside PyTorch's memory, one GPU, in the median of published messages",
     of_memory["context"], 0.3, 0.7),
    ("context-many", "The same on several GPUs: nine of ten messages say less", of_memory["context_many"], 0.8, 3),
):
    claim(name, sentence, value, "GiB", kind="derived", at_least=least, at_most=most)
claim("context-messages", "Messages of one GPU that say what is not PyTorch's",
      len(contexts.messages(alone=True)), "", kind="derived", at_least=15, at_most=500)
claim("capacity-usual", "Part of its memory that an NVIDIA GPU offers to programs, in the median",
      100 * CAPACITY, "%", kind="derived", at_least=96, at_most=100)

# %% [markdown]
# A server says at its start what its weights and its KV cache take. Such logs are in many public issues, so what `dryrun` says of the same
# model, format and context is compared with them. A log that speaks of something else has a reason, and counts as one that was not compared.

# %%
served = serving_logs.compared()


def off_by(which):
    """Percent by which each log's figure is missed: 1 of weights, 2 of the cache."""
    return [100 * abs(ratio - 1) for ratio in serving_logs.ratios(one[which] for one in served)]


families = {}
for one in served:
    families.setdefault(serving_logs.family(one[0]), []).append(one)


def in_family(of, which):
    """(logs that were compared, predicted / logged at their median)"""
    found = serving_logs.ratios(one[which] for one in of)
    return len(found), statistics.median(found) if found else None


shown = sorted(families.items(), key=lambda each: (each[0] == serving_logs.UNLISTED, each[0]))
table("server-families", "Weights and KV cache as servers logged them at their start, and predicted, at the median",
      {"family": "Family", "logs": "Logs", "weights": "Weights compared", "weights_off": "Predicted / logged weights",
       "cache": "Caches compared", "cache_off": "Predicted / logged cache"},
      [{"family": family, "logs": len(of), "weights": in_family(of, 1)[0], "weights_off": in_family(of, 1)[1],
        "cache": in_family(of, 2)[0], "cache_off": in_family(of, 2)[1]} for family, of in shown], kind="derived")
# %% [markdown]
# Most caches are as the logs say. Weights are off where a checkpoint keeps layers in 16 bits that its format's name does not tell.

# %%
for name, sentence, value, unit, least, most in (
    ("server-logs", "Start-up logs of servers that others published", len(served), "", 120, 1000),
    ("server-logs-apart", "Start-up logs of which neither weights nor cache could be compared",
     sum(isinstance(one[1], str) and isinstance(one[2], str) for one in served), "", 5, 100),
    ("server-weights", "Median error of the weights that servers logged", statistics.median(off_by(1)), "%", 0.3, 3),
    ("server-weights-close", "Logged weights that were predicted within 5 %",
     100 * sum(error < 5 for error in off_by(1)) / len(off_by(1)), "%", 60, 100),
    ("server-cache-close", "Logged KV caches that were predicted within 2 %",
     100 * sum(error < 2 for error in off_by(2)) / len(off_by(2)), "%", 80, 100),
):
    claim(name, sentence, value, unit, kind="derived", at_least=least, at_most=most)

# %% [markdown]
# The guide says which wishes are not met, and why.
#
# The picture has a dot for each row: published seconds to the right, predicted ones upwards.
# On the line both are equal. Both axes are logarithmic, so a distance from the line is the
# same error everywhere. Look for classes that lie on one side: these are what a constant
# misses, and not chance.

# %% alt="Predicted against published seconds on log scales: the dots of all kinds lie along the diagonal, from milliseconds to minutes."
SHOWN = {"one": "training, one GPU", "many": "training, many GPUs", "decode": "decode", "lora": "LoRA",
         "qlora": "QLoRA"}
dots = {key: [(MEASURED[one.id], one.seconds) for one in JUDGED if one.klass == klass]
        for key, klass in SHOWN.items()}
table("agreement", "Published seconds, and those predicted, for every fourth row of five classes",
      {"published": "Published, s"} | {key: f"{klass[0].upper()}{klass[1:]}, s" for key, klass in SHOWN.items()},
      [{"published": x} | {other: y if other == key else None for other in SHOWN}
       for key, found in dots.items() for x, y in found[::4]], kind="derived")
_, axes = plt.subplots(figsize=(6, 4))
for key, klass in SHOWN.items():
    axes.loglog(*zip(*dots[key]), ".", label=klass)
axes.loglog([1e-3, 1e2], [1e-3, 1e2], color=plots.GRAY, linewidth=1)
axes.set(xlabel="published, s", ylabel="predicted, s")
axes.legend()
plt.show()

# %% [markdown]
# ## An 8B Llama on your GPU
#
# The ladder of an 8B fine-tuning, one sequence of 4,096 tokens: each rung needs less memory
# than the one above. Memory is what the trace holds at the peak, plus what GPUs show on top
# of tensors: the CUDA context, workspaces, and gaps between blocks of the allocator, which is
# [replayed](reserved_memory.ipynb). Published programs keep other tensors, so memory has a band too, and
# there are three answers: it fits, it may fit, it does not. Adapters are in fp32 under autocast, as peft and `Trainer`
# run them with `bf16=True`.

# %%
PEFT = LORA | dict(autocast="bfloat16")
LADDER = {
    "full-mixed": ("Full, bf16 autocast, fp32 weights", dict(weights="float32", autocast="bfloat16")),
    "full": ("Full, bf16 weights", {}),
    "lora": ("LoRA", PEFT),
    "lora-ck": ("LoRA, checkpointing", PEFT | dict(checkpointing=1)),
    "lora-fused": ("LoRA, checkpointing, fused loss", PEFT | dict(checkpointing=1, fused_loss=True)),
    "qlora": ("QLoRA, checkpointing, fused loss", LORA | dict(checkpointing=1, fused_loss=True, four_bit=True)),
}
SIZES = {16: "rtx-5080", 24: "rtx-4090", 32: "rtx-5090", 48: "rtx-6000-ada", 80: "h100-sxm5", 141: "h200-sxm"}


def on(gpu, options, length=4096):
    half = half_precision(gpu)
    precision = f"amp_{half}" if "autocast" in options else half
    state = FP32_ADAPTERS if "rank" in options else ""
    return answer(Workload("llama3-8b", 1, length, **options), Setting(gpu=gpu, precision=precision, state=state))


def fits(needed, size):
    return "yes" if needed.high <= size else "maybe" if needed.expected <= size else "no"


# %%
needs = {key: on("h200-sxm", options).needed for key, (_, options) in LADDER.items()}
table("ladder", "Fine-tuning an 8B Llama, 1 x 4,096 tokens, AdamW: memory, and GPUs of which size hold it",
      {"rung": "Method", "tensors": "Tensors, GiB", "expected": "On the GPU, GiB", "high": "At most, GiB"}
      | {f"on{size}": f"{size} GB" for size in SIZES},
      [{"rung": LADDER[key][0], "tensors": sum(needed.categories.values()) / 2**30, "expected": needed.expected / 2**30,
        "high": needed.high / 2**30}
       | {f"on{size}": fits(on(gpu, LADDER[key][1]).needed, size * 2**30) for size, gpu in SIZES.items()}
       for key, needed in needs.items()], kind="predicted")

# %% [markdown]
# Speed is a figure for each GPU. A rung that does not fit has none. The band is as wide as
# the errors of its class above.

# %%
def label(gpu):
    return accelerator(gpu).label


def rate(found, gpu):
    """Tokens per second with low and high, or why there are none."""
    step, needed = found.prediction, found.needed
    if needed.expected > usable(gpu):
        because = f"it needs about {needed.expected / 2**30:.0f} GiB"
        return {"label": label(gpu), "words": "does not fit", "because": because}
    tokens = step.tokens_per_second * step.seconds
    return {"label": label(gpu), "value": tokens / step.seconds, "low": tokens / step.high, "high": tokens / step.low}


for key, (what, options) in LADDER.items():
    if key != "full-mixed":  # no single GPU of the list holds it
        predicted(f"{key}-tokens", f"Tokens/s of fine-tuning an 8B Llama, {what}, 1 x 4,096 tokens",
                  {gpu: rate(on(gpu, options), gpu) for gpu in ON_PAGES}, "tokens/s", at_least=100, at_most=30_000)
short = {gpu: rate(on(gpu, LADDER["lora-ck"][1], 2048), gpu) for gpu in ON_PAGES}
predicted("lora-2048-tokens", "Tokens/s of fine-tuning an 8B Llama, LoRA, checkpointing, 1 x 2,048 tokens", short,
          "tokens/s", at_least=100, at_most=30_000)

# %% [markdown]
# ## What a method costs in time
#
# A ratio of two steps on one GPU is surer than either of them, because most of what a
# prediction misses is missing in both. Its band comes from pairs of published rows that
# differ in one thing. Where the band lies on both sides of 1, a run may go either way.

# %%
def ratio_on(gpu, slow, fast):
    value, low, high = timing.ratio(slow, fast, gpu)
    return {"label": label(gpu), "value": value, "low": low, "high": high}


def step_of(**options):
    return training_step("llama3-8b", 1, 4096, **LORA, **options)


for name, sentence, slow, fast, least, most in (
    ("checkpointing-time", "Time of a LoRA step of an 8B Llama with checkpointing against without, 1 x 4,096 tokens",
     step_of(checkpointing=1), step_of(), 1.1, 1.6),
    ("compile-speed", "Speed of a LoRA step of an 8B Llama with torch.compile against without, 1 x 4,096 tokens",
     step_of(checkpointing=1), step_of(checkpointing=1, compiled=True), 1, 2),
    ("qlora-time", "Time of a QLoRA step of an 8B Llama against LoRA, both with checkpointing, 1 x 4,096 tokens",
     step_of(checkpointing=1, four_bit=True), step_of(checkpointing=1), 0.9, 1.4),
):
    predicted(name, sentence, {gpu: ratio_on(gpu, slow, fast) for gpu in ON_PAGES}, "x", at_least=least, at_most=most)

# %% [markdown]
# ## What came out, and what to do
#
# - **Look at the band before the figure.** It is as wide as the errors on published rows.
#   Two GPUs or methods whose bands overlap by much are alike, as far as anyone can say
#   without a run.
# - **Large steps are compute-bound.** Then the peak of the GPU decides, and its
#   bandwidth decides little.
# - **Memory decides first.** The ladder goes down in memory and hardly in speed. What
#   checkpointing costs in time is small beside a step that does not fit at all.
# - **Do not ask for seconds of small steps.** A small model, or one row of a few tokens,
#   waits for the CPU that launches its kernels.
# - **Run it for your model**: `dryrun train config.json --gpu rtx-4090`.

# %%
# Compares this run with the published records. In Colab it also offers the record of this machine, to send.
from evidence.finish import finish

finish()
