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
# # Post-training: what SFT, DPO and GRPO hold, and where their time goes
#
# **Which of the three fits on your GPU, and what should you change first?**
#
# Supervised fine-tuning (SFT) learns from answers. Direct preference optimization (DPO)
# learns from pairs of a better and a worse answer. Group relative policy optimization (GRPO)
# lets the model write several answers to each prompt, scores them, and learns from the scores.
#
# What to expect:
#
# - With LoRA, DPO holds little more than SFT: the model without its adapters is the reference. GRPO
#   holds more.
# - With full fine-tuning DPO holds a second model.
# - GRPO writes thousands of tokens before each update. Where these are written one batch after
#   the other, writing takes longer than learning.
#
# No GPU is asked: steps are traced on fake tensors, and their seconds are predicted.

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
import warnings

os.environ["CUDA_VISIBLE_DEVICES"] = ""  # it counts: no step runs, so a GPU of this machine stays free for others
logging.disable(logging.WARNING)
warnings.simplefilter("ignore")

import matplotlib.pyplot as plt

from dryrun.answer.answer import answer, usable
from dryrun.tables.hardware import accelerator
from dryrun.cost.timing import generation
from dryrun.cost.setting import FP32_ADAPTERS, Setting
from dryrun.cost.traces import traced
from dryrun.step.workload import Workload
from evidence import plots
from evidence.claims import claim, predicted, start, table

plots.set_up("post_training")
start("post_training")

# %% [markdown]
# ## Memory of a step
#
# An 8B Llama with checkpointing, and without whole logits: TRL computes the log-probabilities
# in chunks. A micro-batch is one conversation of 2,048 tokens in SFT, one *pair* of them in
# DPO, and eight answers of one group, 1,024 tokens each with the prompt, in GRPO. An update
# has as many micro-batches as in the programs of the page: gradients stand beside the
# activations from the second one on.
#
# Five ways to keep the model:
#
# - *full, fp32*: all weights are trained, in fp32 with bf16 autocast;
# - *full, bf16*: all weights are trained, in bf16, and so is the state of AdamW;
# - *LoRA, fp32*: rank 16 on every linear layer of an fp32 model. TRL loads a model in fp32 where
#   you name it and say no more;
# - *LoRA, bf16*: the same on a bf16 model;
# - *QLoRA*: the same on weights in 4 bits.

# %%
GiB, MODEL = 2**30, "llama3-8b"
SMALL = dict(checkpointing=1, fused_loss=True)
LORA = SMALL | dict(rank=16, targets="all linear")
MIXED = dict(weights="float32", autocast="bfloat16")
WAYS = {"full, fp32": SMALL | MIXED, "full, bf16": SMALL, "LoRA, fp32": LORA | MIXED,
        "LoRA, bf16": LORA | dict(autocast="bfloat16"), "QLoRA": LORA | dict(four_bit=True)}
# Sequences of a micro-batch, tokens of each, micro-batches of an update.
MICRO = {"SFT": (1, 2048, 16), "DPO": (2, 2048, 16), "GRPO": (8, 1024, 8)}


def step(method, way, gpu="h100-sxm5"):
    sequences, tokens, micro_batches = MICRO[method]
    precision = "amp_bf16" if way.endswith("fp32") else "bf16"
    state = FP32_ADAPTERS if way == "LoRA, bf16" else ""
    return answer(Workload(MODEL, sequences, tokens, **WAYS[way]),
                  Setting(gpu=gpu, precision=precision, accumulation=micro_batches, state=state))


needed = {(method, way): step(method, way).needed.expected / GiB for method in MICRO for way in WAYS}
parameters = traced(Workload(MODEL, 1, 2048, **SMALL)).parameters
REFERENCE = {"full, fp32": 4, "full, bf16": 2}  # bytes for each parameter; adapters can be switched off
extra = {way: parameters * REFERENCE.get(way, 0) / GiB for way in WAYS}

# %% [markdown]
# DPO compares with a reference model, and so does GRPO where its `beta` is not 0. In full
# fine-tuning that is a second copy, in the dtype of the first. With adapters it is the same
# model with the adapters switched off.

# %%
rows = []
for method, reference in (("SFT", False), ("DPO", True), ("DPO", False), ("GRPO", False), ("GRPO", True)):
    name = {("DPO", True): "DPO", ("DPO", False): "DPO, reference computed before",
            ("GRPO", True): "GRPO with beta", ("GRPO", False): "GRPO"}.get((method, reference), method)
    rows.append({"method": name} | {way: needed[method, way] + reference * extra[way] for way in WAYS})
table("memory", "What a step of an 8B Llama needs on one GPU",
      {"method": "Method"} | {way: f"{way[0].upper()}{way[1:]}, GiB" for way in WAYS}, rows, kind="predicted")
claim("reference", "Weights of an 8B Llama in bf16, or of a copy", extra["full, bf16"], "GiB", kind="derived",
      at_least=14.5, at_most=15.5)
claim("reference-fp32", "Weights of an 8B Llama in fp32, or of a copy", extra["full, fp32"], "GiB", kind="derived",
      at_least=29, at_most=31)

# %% alt="Bars of memory by method, SFT, DPO and GRPO, and by precision, with lines at 24 and 80 GB: LoRA in bf16 and QLoRA stay below the first."
figure, axes = plt.subplots(figsize=(7, 3.2), layout="constrained")
for place, way in enumerate(WAYS):
    axes.bar([at + 0.17 * place for at in range(len(rows))], [row[way] for row in rows], width=0.16, label=way)
axes.set_xticks([at + 0.3 for at in range(len(rows))], [row["method"].replace(", ", ",\n") for row in rows])
axes.set(ylabel="GiB on one GPU")
for size in (24, 80):
    axes.axhline(size, color="gray", linewidth=0.8)
axes.legend()
plt.show()

# %% [markdown]
# ## Memory while GRPO writes
#
# All answers of a *generation batch* are written at once, and each keeps its keys and values.
# TRL's defaults make that batch `per_device_train_batch_size x gradient_accumulation_steps`.
# So accumulation, which saves memory in training, costs memory here.

# %%
cache = traced(Workload(MODEL, 1, 1, kind="decode", compiled=True)).keys
PROMPT, ANSWER, ACCUMULATION = 512, 512, 8
for answers in (8, 8 * ACCUMULATION):
    claim(f"cache-{answers}",
          f"Keys and values of {answers} answers of an 8B Llama, {PROMPT + ANSWER:,} tokens each, bf16",
          answers * (PROMPT + ANSWER) * cache / GiB, "GiB", kind="derived", at_least=answers / 9, at_most=answers / 7)
share = 2 * parameters / 1e9 / 0.3
claim("vllm-share",
      "GPU memory of which vLLM's default share in TRL, 0.3, just holds an 8B model in bf16, and no cache",
      share, "GB", kind="derived", at_least=50, at_most=55)

# %% [markdown]
# ## Where the time of a GRPO update goes
#
# Sixty-four answers for one update. They are written by an engine with CUDA graphs, such as
# vLLM, on the same GPU. Then the model learns from them by LoRA, eight at a time.

# %%
GPUS = ("h100-sxm5", "a100-sxm4-80", "h200-sxm", "l40s", "rtx-5090", "rtx-4090")
BATCH = 64


def update(gpu, answer_tokens, batch=BATCH):
    """(seconds of writing, seconds of learning) of one update, each with low and high."""
    writing = generation(MODEL, PROMPT, answer_tokens, gpu, batch=batch)
    learning = answer(Workload(MODEL, 8, PROMPT + answer_tokens, **WAYS["LoRA, bf16"]),
                      Setting(gpu=gpu, precision="bf16", state=FP32_ADAPTERS))
    times = BATCH // batch
    return [{"value": time.seconds * count, "low": time.low * count, "high": time.high * count}
            for time, count in ((writing, times), (learning.prediction, BATCH // 8))], learning


def held(gpu, answer_tokens, batch=BATCH):
    """Whether weights in bf16 for the engine, its cache and a LoRA step fit together."""
    learning = update(gpu, answer_tokens)[1]
    engine = 2 * parameters + batch * (PROMPT + answer_tokens) * cache
    return learning.needed.high + engine <= usable(gpu)


# %%
writes, learns, shares = {}, {}, {}
for gpu in GPUS:
    label = {"label": accelerator(gpu).label}
    if not held(gpu, ANSWER):
        too_large = {"words": "does not fit", "because": "two copies of the weights and the cache"}
        writes[gpu] = learns[gpu] = shares[gpu] = label | too_large
        continue
    (write, learn), _ = update(gpu, ANSWER)
    writes[gpu], learns[gpu] = label | write, label | learn
    shares[gpu] = label | {"value": 100 * write["value"] / (write["value"] + learn["value"]),
                           "low": 100 * write["low"] / (write["low"] + learn["high"]),
                           "high": 100 * write["high"] / (write["high"] + learn["low"])}
WHAT = f"{BATCH} answers of {ANSWER} tokens to prompts of {PROMPT}, an 8B Llama"
predicted("writes", f"Writing {WHAT}, with CUDA graphs", writes, "s", at_least=1, at_most=100)
predicted("learns", f"Learning from {WHAT}, LoRA", learns, "s", at_least=1, at_most=200)
predicted("share", f"Share of writing in a GRPO update: {WHAT}", shares, "%", at_least=10, at_most=90)

# %% [markdown]
# Eight at a time, the same sixty-four answers take far longer to write: every batch reads all
# weights for every token.

# %%
by_eight = {}
for gpu in GPUS:
    label = {"label": writes[gpu]["label"]}
    by_eight[gpu] = writes[gpu] if "words" in writes[gpu] else label | update(gpu, ANSWER, 8)[0][0]
predicted("writes-by-eight", f"Writing {WHAT}, eight at a time", by_eight, "s", at_least=5, at_most=500)
table("batches", "Writing 64 answers of 512 tokens",
      {"gpu": "GPU", "at_once": "All at once, s", "by_eight": "Eight at a time, s"},
      [{"gpu": said["label"], "at_once": said["value"], "by_eight": by_eight[gpu]["value"]}
       for gpu, said in writes.items() if "value" in said], kind="predicted")

# %% [markdown]
# ## What came out, and what to do
#
# - **Start with LoRA or QLoRA.** Then the reference model of DPO costs a forward pass and no
#   memory.
# - **Full DPO: compute the reference first**, with `precompute_ref_log_probs=True`. The copy is
#   gone before training starts.
# - **GRPO: write many answers at once**, by an engine that was made for it. What limits the
#   number is the cache.
# - **On one GPU, the engine's copy of the weights must fit beside the step.** Where it does
#   not, it sleeps while the model learns, or stands on another GPU.

# %%
# Compares this run with the published records. In Colab it also offers the record of this machine, to send.
from evidence.finish import finish

finish()
