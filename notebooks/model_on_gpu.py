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
# # Your model on your GPU
#
# **Can you fine-tune this model on this GPU, with which method, and how fast? Can you run it,
# and how many tokens per second does one user get?**
#
# For each of seven models and some thirty GPUs this notebook takes the first method that
# surely fits, or else the last that may fit, and predicts its speed.
#
# What to expect:
#
# - Memory decides the method. Full fine-tuning keeps sixteen bytes for each parameter, LoRA
#   about two, QLoRA about a half.
# - Where the same method fits on two GPUs, the matrix throughput decides between them for
#   training, and the memory bandwidth for generation.
#
# No GPU is asked: the step is traced on fake tensors, and its seconds are predicted.
# [Seconds on a GPU that you do not have](gpu_time.ipynb) says how, and how far off that is.

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

from dryrun import Cluster, Generation
from dryrun.cost import device_memory, timing
from dryrun.answer.answer import answer, usable
from dryrun.tables.hardware import ON_PAGES, accelerator
from dryrun.answer.inference import serve
from dryrun.cost.roofline import half_precision
from dryrun.cost.timing import generation
from dryrun.cost.setting import FP32_ADAPTERS, Setting
from dryrun.cost.traces import traced
from dryrun.step.workload import Workload
from evidence import plots
from evidence.claims import claim, predicted, start, table

plots.set_up("model_on_gpu")
start("model_on_gpu")

# %% [markdown]
# ## What is asked
#
# Training: one sequence of 4,096 tokens, with activation checkpointing and a fused loss,
# which keep activations small. Three methods, in the order in which you would want them:
#
# - *full*: all weights in fp32 with bf16 autocast, and AdamW;
# - *LoRA*: rank 16 on every linear layer, the model in bf16;
# - *QLoRA*: the same on weights in 4 bits.
#
# The first that fits is taken. It fits if the GPU holds the upper end of what the step may
# need. Where none does, QLoRA *may fit* if the GPU holds what is expected.

# %%
MODELS = {"qwen3-0.6b": "Qwen3-0.6B", "llama3.2-1b": "Llama-3.2-1B", "llama3.2-3b": "Llama-3.2-3B",
          "llama3-8b": "Llama-3-8B", "qwen2.5-14b": "Qwen2.5-14B", "qwen2.5-32b": "Qwen2.5-32B",
          "llama3-70b": "Llama-3-70B"}
IN_TABLE = ("rtx-4090", "t4", "rtx-3090", "rtx-5090", "l4", "a10g", "l40s", "a100-sxm4-40", "a100-sxm4-80", "h100-sxm5",
            "h200-sxm")
SMALL = dict(checkpointing=1, fused_loss=True)
LORA = SMALL | dict(rank=16, targets="all linear")
METHODS = {"full": SMALL | dict(weights="float32", autocast="bfloat16"), "LoRA": LORA | dict(autocast="bfloat16"),
           "QLoRA": LORA | dict(four_bit=True)}

# %% [markdown]
# A T4 and a V100 have no bf16: they compute in fp16. A page shows the method and its tokens per second, or
# why there are none.

# %%
def step(model, method, gpu):
    half = half_precision(gpu)
    precision = f"amp_{half}" if "autocast" in METHODS[method] else half
    state = FP32_ADAPTERS if "rank" in METHODS[method] else ""
    return answer(Workload(model, 1, 4096, **METHODS[method]), Setting(gpu=gpu, precision=precision, state=state))


def training(model, gpu):
    """What a page shows for a model on a GPU: the first method that fits, with its tokens per second."""
    said = {"label": accelerator(gpu).label}
    for method in METHODS:
        found = step(model, method, gpu)
        if found.fits:
            break
    else:
        if found.needed.expected > usable(gpu):
            return said | {"words": "does not fit", "because": f"QLoRA needs {found.needed.expected / 2**30:.0f} GiB"}
        method = f"{method}, may fit"
    time = found.prediction
    if not time.sure:
        return said | {"words": f"{method}: launch-bound", "because": "the CPU that launches the kernels decides"}
    tokens = time.tokens_per_second * time.seconds
    return said | {"words": method, "value": tokens / time.seconds, "low": tokens / time.high,
                   "high": tokens / time.low}


# %%
fine_tuning = {model: {gpu: training(model, gpu) for gpu in ON_PAGES} for model in MODELS}
for model, on in fine_tuning.items():
    predicted(f"train-{model.replace('.', '-')}",
              f"Tokens/s of fine-tuning {MODELS[model]} with the first method that fits, 1 x 4,096 tokens, "
              "checkpointing, fused loss", on, "tokens/s", at_least=10, at_most=100_000)

# %% [markdown]
# How to read it: the word is the method. A pair that says *launch-bound* fits well and has so
# little to compute that the host's CPU sets the pace: take more sequences at a time.
#
# The methods alone, in a table: which is the first that fits.

# %%
table("methods", "The first method that fits, fine-tuning on 1 x 4,096 tokens",
      {"model": "Model"} | {gpu: f"{accelerator(gpu).label}" for gpu in IN_TABLE},
      [{"model": MODELS[model]} | {gpu: on[gpu]["words"].split(":")[0] for gpu in IN_TABLE}
       for model, on in fine_tuning.items()], kind="predicted")

# %% [markdown]
# ## Two of them as recipes
#
# [A recipe](../recipes/8b-on-24gb.md) fine-tunes an 8B model by QLoRA, with conversations of
# up to 2,048 tokens, one at a time, an update for 16 of them. Its loss is that of the model,
# not a fused one.
#
# The trace above has adapters in the 16 bits of the model. The program of the recipe has
# them in fp32, as peft makes them, and so their gradients and both moments of AdamW. It
# adds up the gradients of 16 conversations, so they are there from the second one on, under
# its logits. `state` and `accumulation` say both. A test runs the program on fake tensors and compares.

# %%
RECIPE = Workload("qwen3-8b", 1, 2048, checkpointing=1, rank=16, targets="all linear", four_bit=True)


def needed_by(workload, setting):
    return device_memory.needed(traced(workload), workload, setting, timing.fitted()["memory"])


# %% [markdown]
# Memory is that of the program, and what its allocator [reserves](reserved_memory.ipynb) beside it. Speed is
# that of the trace: the products are the same.

# %%
at_work = {}
for gpu in ON_PAGES:
    setting = Setting(gpu=gpu, precision=half_precision(gpu), accumulation=16, state=FP32_ADAPTERS)
    at_work[gpu] = answer(RECIPE, setting).prediction, needed_by(RECIPE, setting)


def figure_of(gpu, value, low, high, timed=True):
    said, (time, needed) = {"label": accelerator(gpu).label}, at_work[gpu]
    if needed.expected > usable(gpu):
        return said | {"words": "does not fit", "because": f"{needed.expected / 2**30:.0f} GiB are needed"}
    if timed and not time.sure:
        return said | {"words": "launch-bound", "because": "the CPU that launches the kernels decides"}
    words = {} if needed.fits(usable(gpu)) else {"words": "may fit"}
    return said | words | {"value": value, "low": low, "high": high}


memory, rate, minutes = {}, {}, {}
for gpu, (time, needed) in at_work.items():
    tokens = time.tokens_per_second * time.seconds
    memory[gpu] = figure_of(gpu, needed.expected / 2**30, needed.expected / 2**30, needed.high / 2**30,
                            timed=False)
    rate[gpu] = figure_of(gpu, tokens / time.seconds, tokens / time.high, tokens / time.low)
    minutes[gpu] = figure_of(gpu, *(1e6 * seconds / tokens / 60 for seconds in (time.seconds, time.low, time.high)))
for name, what, on, unit, least, most in (
    ("recipe-memory", "Memory at the peak", memory, "GiB", 5, 30),
    ("recipe-tokens", "Tokens/s", rate, "tokens/s", 100, 50_000),
    ("recipe-minutes", "Minutes for a million tokens", minutes, "minutes", 0.1, 500),
):
    predicted(name, f"{what} of a QLoRA step of Qwen3-8B, 1 x 2,048 tokens, checkpointing, 16 for an update", on, unit,
              at_least=least, at_most=most)

# %% [markdown]
# Longer conversations need more, and the logits most of it: Qwen3's vocabulary has 151,936
# tokens. A loss in chunks never holds all logits. How much is needed, and which GPUs hold it:

# %%
LOSSES = {"whole": ({}, (2048, 4096, 8192, 16384)), "in chunks": ({"fused_loss": True}, (2048, 4096, 8192, 16384))}
SIZES = {12: "rtx-3060-12", 16: "rtx-5080", 24: "rtx-4090", 32: "rtx-5090"}


def fits(needed, gpu):
    return "yes" if needed.fits(usable(gpu)) else "maybe" if needed.expected <= usable(gpu) else "no"


def row_of_length(method, loss, length, **options):
    asked = Workload("qwen3-8b", 1, length, checkpointing=1, rank=16, targets="all linear", **options)
    needed = {size: needed_by(asked, Setting(gpu=gpu, accumulation=16, state=FP32_ADAPTERS))
              for size, gpu in SIZES.items()}
    return {"tokens": f"{length:,}", "method": method, "loss": loss, "needed": needed[24].expected / 2**30} | {
        f"on{size}": fits(needed[size], gpu) for size, gpu in SIZES.items()}


lengths = [row_of_length("QLoRA", loss, length, four_bit=True, **options)
           for loss, (options, asked) in LOSSES.items() for length in asked]
lengths += [row_of_length("LoRA, bf16", loss, 2048, autocast="bfloat16", **options)
            for loss, (options, _) in LOSSES.items()]
table("recipe-lengths", "Fine-tuning Qwen3-8B, one conversation at a time, rank 16, activation checkpointing",
      {"tokens": "Tokens", "method": "Method", "loss": "Loss", "needed": "On 24 GB, GiB"}
      | {f"on{size}": f"{size} GB" for size in SIZES}, lengths, kind="predicted")

# %% [markdown]
# [Another](../recipes/14b-on-8-gpus.md) trains all weights of a 14B model on the 8 GPUs of a
# node, by FSDP2: fp32 weights in shards, computed with in bf16. Gradients are reduced in
# every micro-batch. Its memory is traced in [another notebook](many_gpus.ipynb).

# %%
ALL, NODE = Workload("qwen2.5-14b", 1, 4096, checkpointing=1), 8


def on_a_node(gpu):
    return answer(ALL, Setting(gpu=gpu, gpus=NODE, gpus_per_node=NODE, strategy="fsdp2", state="fp32", accumulation=8))


large = {gpu: on_a_node(gpu) for gpu in ON_PAGES}
claim("recipe-14b-state",
      "Weights, gradients and AdamW state of Qwen2.5-14B on each of 8 GPUs: 16 bytes x parameters / 8",
      16 * traced(ALL).parameters / NODE / 2**30, "GiB", kind="derived", at_least=27, at_most=28)

# %%
rate, minutes = {}, {}
for gpu, found in large.items():
    time, said = found.prediction, {"label": accelerator(gpu).label}
    if not found.fits:
        rate[gpu] = minutes[gpu] = said | {"words": "does not fit", "because": "tensors and what comes on top fill it"}
        continue
    if not accelerator(gpu).get("peer_link").startswith("NVLink"):
        rate[gpu] = minutes[gpu] = said | {"words": "no NVLink", "because": "the slots and bridges of the host decide"}
        continue
    tokens = time.tokens_per_second * time.seconds
    rate[gpu] = said | {"value": tokens / time.seconds, "low": tokens / time.high, "high": tokens / time.low}
    minutes[gpu] = said | dict(zip(("value", "low", "high"),
                                   (1e7 * seconds / tokens / 60 for seconds in (time.seconds, time.low, time.high))))
for name, what, on, unit, least, most in (
    ("recipe-14b-tokens", "Tokens/s of 8 GPUs", rate, "tokens/s", 100, 100_000),
    ("recipe-14b-minutes", "Minutes of 8 GPUs for ten million tokens", minutes, "minutes", 1, 2000),
):
    predicted(name, f"{what}, full fine-tuning of Qwen2.5-14B, FSDP2, 8 x 4,096 tokens on each in an update", on, unit,
              at_least=least, at_most=most)

# %% [markdown]
# How many tokens does a GPU need in each micro-batch? All weights are gathered for each of
# them, twice, so short conversations make the GPUs wait for the links: the rule of
# [Training on many GPUs](../training/many-gpus.md). MFU counts the FLOPs of the model and
# attention, and none that checkpointing repeats.

# %%
SHAPES = ((1, 512), (1, 1024), (4, 1024), (1, 4096), (1, 8192))


def on_node(batch, length, gpu):
    return answer(Workload("qwen2.5-14b", batch, length, checkpointing=1),
                  Setting(gpu=gpu, gpus=NODE, gpus_per_node=NODE, strategy="fsdp2", state="fp32", accumulation=8))


micro = []
for batch, length in SHAPES:
    found = {"a100": on_node(batch, length, "a100-sxm4-80"), "h100": on_node(batch, length, "h100-sxm5")}
    micro.append({"tokens": f"{batch} x {length:,}"}
                 | {f"{gpu}-rate": one.prediction.tokens_per_second for gpu, one in found.items()}
                 | {f"{gpu}-mfu": 100 * one.prediction.mfu for gpu, one in found.items()})
table("recipe-14b-micro", "Full fine-tuning of Qwen2.5-14B on 8 GPUs of 80 GB, FSDP2, by the tokens of a micro-batch",
      {"tokens": "On each GPU", "a100-rate": "A100, tokens/s", "a100-mfu": "A100, MFU, %",
       "h100-rate": "H100, tokens/s", "h100-mfu": "H100, MFU, %"}, micro, kind="predicted")

# %% [markdown]
# ## Running it
#
# One user, a prompt of 512 tokens and an answer of 256, weights in 16 bits; where these do not
# fit, in the 4 bits of AWQ and GPTQ. Layers take 4.25 bits for each weight then, with their
# scales; embeddings and the output layer stay in 16 bits. *weights + KV cache + reserve ≤ GPU memory* is the rule
# of [Inference on one GPU](../inference/one-gpu.md). What fits only with a smaller reserve *may fit*.
#
# The rate is that of the whole answer, prompt included, with CUDA graphs, as vLLM and a
# compiled static cache run it. No token comes sooner than its weights can be read: where the
# band would go beyond that limit, it ends there.

# %%
PROMPT, ANSWER = 512, 256


def running(model, gpu):
    said, half = {"label": accelerator(gpu).label}, half_precision(gpu)
    tried = {weights: serve(Generation(model, prompt=PROMPT, new=ANSWER, weights=weights), Cluster(gpu))
             for weights in (half, "int4-128")}
    weights = next((weights for weights, found in tried.items() if found.fits), "int4-128")
    found = tried[weights]
    if not found.predicted:
        return said | {"words": "does not fit", "because": f"4 bits need {found.expected / 2**30:.0f} GiB"}
    words = (half if weights == half else "4 bits") + ("" if found.fits else ", may fit")
    time = generation(model, PROMPT, ANSWER, gpu, weights=weights)
    return said | {"words": words, "value": ANSWER / time.seconds, "low": ANSWER / time.high, "high": ANSWER / time.low}


generating = {model: {gpu: running(model, gpu) for gpu in ON_PAGES} for model in MODELS}
for model, on in generating.items():
    predicted(f"run-{model.replace('.', '-')}",
              f"Tokens/s of an answer of {MODELS[model]} for one user, with the widest weights that fit, "
              f"a prompt of {PROMPT} tokens and {ANSWER} new ones", on, "tokens/s", at_least=1, at_most=5_000)

# %% [markdown]
# ## One model on all of them
#
# An 8B model on every GPU that holds it. The band is as wide as the errors of the prediction
# on published rows: where two bands overlap by much, the prediction does not tell which GPU
# is the faster one.

# %% alt="Bars with error bars by GPU: tokens per second in fine-tuning an 8B model, and of one answer that it writes."
figure, axes = plt.subplots(1, 2, figsize=(8, 3.4), layout="constrained")
for axis, (title, on) in zip(axes, (("fine-tuning, tokens/s", fine_tuning), ("one answer, tokens/s", generating))):
    shown = {gpu: said for gpu, said in on["llama3-8b"].items() if "value" in said}
    names = [f"{said['label']}, {said['words']}" for said in shown.values()]
    values = [said["value"] for said in shown.values()]
    sides = [[said["value"] - said["low"] for said in shown.values()],
             [said["high"] - said["value"] for said in shown.values()]]
    axis.barh(names, values, xerr=sides, capsize=2)
    axis.set(xlabel=title)
    axis.invert_yaxis()
plt.show()

# %% [markdown]
# ## What came out, and what to do
#
# - **Look for your model's row first, and take the method that it names.** A GPU with more
#   memory changes the method; a faster one changes only the seconds.
# - **For one user, bandwidth decides.** A GPU with twice the matrix throughput and the same
#   bandwidth gives one user nothing. Batches do: they share every read of the weights.
# - **Your length, batch and rank differ?** `dryrun train llama3-8b --gpu rtx-4090
#   --sequence 2048 --batch 4 --lora 16` answers for yours, with what would help.

# %%
# Compares this run with the published records. In Colab it also offers the record of this machine, to send.
from evidence.finish import finish

finish()
