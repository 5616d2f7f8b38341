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
# # Many GPUs: what each strategy holds and sends
#
# **How much memory and how much traffic does each parallel strategy cost a GPU, from 8
# GPUs to 1,024, and when does the link eat the gain?**
#
# *What to expect.*
#
# - Sharding divides weights, gradients and optimizer state by the number of GPUs. What is
#   left, activations and gathered layers, is a floor that no number of GPUs lowers.
# - What a GPU sends in a step hardly depends on the number of GPUs. So the question is
#   never "how many", but "over which link, and how often per step".
# - Tensor parallelism does not lower the floor for the same work. It lets several GPUs
#   share one sequence.
# - Over slow links, what is sent once per step wins over what is sent in every
#   micro-batch.
#
# *How it is measured.* Rank 0 of 8 to 1,024 ranks is traced in one process: the real
# sharding code runs on tensors without data and a process group that sends nothing. It
# says what a rank holds and what it hands to each collective, to the byte. Arithmetic
# turns bytes into seconds on a link, and what others published says how far that is from
# real steps.

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

import matplotlib.pyplot as plt
import torch

logging.disable(logging.WARNING)
warnings.simplefilter("ignore")

from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig

from dryrun import Cluster, Job, plan
from dryrun.models import models
from fitting import validate_plan
from dryrun.tables.hardware import GPUS, LINKS
from dryrun.answer.planner import STAGED, seconds
from dryrun.tracing.ranks import many_layers, rank_step
from dryrun.tracing import GiB
from evidence import plots
from evidence.claims import claim, start, table

GB = 1e9
AMPERE, NETWORKS_MD = GPUS["A100 40GB"].source, LINKS["NVLink 3"].source
plots.set_up("many_gpus")
start("many_gpus")

# %% [markdown]
# ## Your own model
#
# Put your configuration and your number of ranks here. Nothing is downloaded but the
# configuration, if you name a model of the hub by `AutoConfig.from_pretrained`.

# %%
mine = LlamaConfig(hidden_size=1024, intermediate_size=4096, num_hidden_layers=4, num_attention_heads=16,
                   num_key_value_heads=4)
step = rank_step(AutoModelForCausalLM, mine, "fsdp2", 64, 1, 512, activation_checkpointing=True)
print(f"rank 0 of {step.ranks}: peak {step.peak_gib:.2f} GiB, sends {step.sent() / GB:.2f} GB in a step")

# %% [markdown]
# ## Two models at 8 to 1,024 ranks
#
# One sequence of 4,096 tokens on each rank, activation checkpointing, fp32 weights that
# are computed with in bf16, gradients reduced in fp32, AdamW.
#
# - *FSDP2* shards over all ranks.
# - *FSDP2, kept* is `reshard_after_forward=False`.
# - *HSDP* shards in groups of 8 and replicates across them.
# - *TP 8 and FSDP2* splits each matrix over 8 ranks with sequence parallelism, and shards
#   over the rest. The 8 ranks of a group work on their 8 sequences together. "One
#   sequence" is the same with one sequence for the group: an eighth of the work.
#
# Every layer adds the same, so a model of 2 and one of 3 layers give the line that the
# deep one lies on. Where the peak of two layers of the 70B model comes with the loss, 4
# and 5 layers do. `tests/dryrun/test_ranks.py` traces deep ones whole and compares.

# %%
LLAMA_8B = LlamaConfig(
    vocab_size=128256, hidden_size=4096, intermediate_size=14336, num_hidden_layers=32,
    num_attention_heads=32, num_key_value_heads=8, tie_word_embeddings=False,
)
LLAMA_70B = LlamaConfig(
    vocab_size=128256, hidden_size=8192, intermediate_size=28672, num_hidden_layers=80,
    num_attention_heads=64, num_key_value_heads=8, tie_word_embeddings=False,
)
CONFIGS, RANKS = {"8b": LLAMA_8B, "70b": LLAMA_70B}, [8, 64, 1024]
SPLIT = {"tensor": 8, "sequence_parallel": True}
VARIANTS = {  # strategy, sequences of a rank or of a tensor-parallel group, options
    "fsdp2": ("fsdp2", 1, {}), "hsdp": ("hsdp", 1, {"shard": 8}), "tp": ("tp_fsdp2", 8, SPLIT),
    "tp_one": ("tp_fsdp2", 1, SPLIT),
}


def trace(size, strategy, ranks, batch, **options):
    layers = (4, 5) if size == "70b" and strategy in ("fsdp2", "hsdp") else (2, 3)
    return many_layers(AutoModelForCausalLM, CONFIGS[size], strategy, ranks, batch, 4096,
                       activation_checkpointing=True, layers=layers, **options)

# %%
traced = {}
for size in CONFIGS:
    for name, (strategy, batch, options) in VARIANTS.items():
        for ranks in RANKS:
            alone = name == "hsdp" and ranks == 8  # one group of 8 is FSDP2
            traced[size, name, ranks] = (
                traced[size, "fsdp2", ranks] if alone else trace(size, strategy, ranks, batch, **options))
ddp = trace("8b", "ddp", 8, 1)
keep = trace("8b", "fsdp2_keep", 8, 1)

# %% [markdown]
# The chart to keep. Follow one line from left to right: where it is level, more GPUs of
# this kind do not help.

# %% alt="Two charts of peak memory against ranks on logarithmic axes: FSDP2 falls and flattens out, HSDP stays level. Tensor parallelism with FSDP2 flattens out high above FSDP2 for the same work, and lies lowest with one sequence per group."
LABELS = {"fsdp2": "FSDP2", "hsdp": "HSDP, groups of 8", "tp": "TP 8 and FSDP2", "tp_one": "the same, one sequence"}
figure, axes = plt.subplots(1, 2, figsize=(7, 2.9), sharey=True)
for axis, size in zip(axes, CONFIGS):
    for name, label in LABELS.items():
        axis.plot(RANKS, [traced[size, name, ranks].peak_gib for ranks in RANKS], marker="o", label=label)
    axis.set(xscale="log", yscale="log", xlabel="ranks", title=size.upper())
    axis.set_xticks(RANKS, [f"{ranks:,}" for ranks in RANKS])
    axis.minorticks_off()
axes[0].set_ylabel("peak of a rank, GiB")
figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
plt.show()

# %%
PEAKS = {"ranks": "Ranks", "fsdp2": "FSDP2, GiB", "hsdp": "HSDP in groups of 8, GiB",
         "tp": "TP 8 with sequence parallelism, and FSDP2, GiB", "tp_one": "The same, one sequence per group of 8, GiB"}
BYTES = {"ranks": "Ranks", "fsdp2": "FSDP2, GB", "hsdp": "HSDP, GB", "hsdp_network": "of that between the groups, GB",
         "tp": "TP 8 and FSDP2, GB", "tp_tensor": "of that inside the TP group, GB",
         "tp_one": "TP 8 and FSDP2, one sequence per group, GB"}
INSIDE = {"hsdp_network": ("hsdp", "replicate"), "tp_tensor": ("tp", "tensor")}


def sent(size, column, ranks):
    name, dimension = INSIDE.get(column, (column, None))
    return traced[size, name, ranks].sent(dimension=dimension) / GB


for size, label in (("8b", "Llama-8B class"), ("70b", "Llama-70B class")):
    table(f"memory-{size}", f"Peak memory of a rank against ranks, {label}, 1 x 4,096 tokens per rank, checkpointing, "
          "mixed bf16, AdamW", PEAKS,
          [{"ranks": ranks} | {name: traced[size, name, ranks].peak_gib for name in VARIANTS} for ranks in RANKS],
          kind="traced")
    table(f"sent-{size}", f"Bytes that a rank sends in a step against ranks, {label}, 1 x 4,096 tokens per rank", BYTES,
          [{"ranks": ranks} | {column: sent(size, column, ranks) for column in list(BYTES)[1:]} for ranks in RANKS],
          kind="traced")

# %% [markdown]
# Peaks in words. The rest of the peak at 1,024 ranks is what sharding cannot divide:
# activations, gathered layers and temporaries, mostly the logits.

# %%
f8, f64, f1024 = (traced["8b", "fsdp2", ranks] for ranks in RANKS)
tp64 = traced["8b", "tp", 64]
STEP = "8B Llama, mixed bf16, 1 x 4,096 tokens, checkpointing"
SEVENTY = "70B Llama, mixed bf16, checkpointing"
for name, sentence, value, least, most in (
    ("ddp-peak", f"Peak of a rank of 8 under DDP with default buckets, {STEP}", ddp.peak_gib, 148, 151),
    ("ddp-buckets", f"Gradient buckets of DDP, which gradient_as_bucket_view=True saves, {STEP}",
     ddp.held["gradient buckets"] / GiB, 29.8, 30),
    ("fsdp2-peak-8", f"Peak of a rank of 8 under FSDP2, {STEP}", f8.peak_gib, 20, 21),
    ("fsdp2-peak-64", f"Peak of a rank of 64 under FSDP2, {STEP}", f64.peak_gib, 10.5, 11),
    ("fsdp2-peak-1024", f"Peak of a rank of 1,024 under FSDP2, {STEP}", f1024.peak_gib, 9.2, 9.7),
    ("fsdp2-rest", f"Activations, gathered layers and temporaries at the peak of a rank of 1,024 under FSDP2, {STEP}",
     sum(map(f1024.gib, ("activations", "gathered weights", "temporaries"))), 9.1, 9.6),
    ("keep-peak-8", f"Peak of a rank of 8 under FSDP2 with reshard_after_forward=False, {STEP}", keep.peak_gib, 32.5,
     34),
    ("tp-peak-64", "Peak of a rank of 64, 8B Llama, TP 8 with sequence parallelism and FSDP2, 8 sequences of 4,096 "
     "tokens per group of 8, checkpointing", tp64.peak_gib, 49, 51),
    ("fsdp2-70b-8", f"Peak of a rank of 8 under FSDP2, 1 x 4,096 tokens, {SEVENTY}",
     traced["70b", "fsdp2", 8].peak_gib, 143, 146),
    ("fsdp2-70b-64", f"Peak of a rank of 64 under FSDP2, 1 x 4,096 tokens, {SEVENTY}",
     traced["70b", "fsdp2", 64].peak_gib, 30, 35),
    ("tp-70b-64", "Peak of a rank of 64, TP 8 with sequence parallelism and FSDP2 over 8, one sequence of 4,096 tokens "
     f"per group of 8, {SEVENTY}", traced["70b", "tp_one", 64].peak_gib, 19.2, 20.2),
):
    claim(name, sentence, value, "GiB", kind="traced", at_least=least, at_most=most)

# %% [markdown]
# And what a rank sends. Compare 8 ranks with 1,024: the bytes hardly grow. What grows is
# the number of messages, which get smaller, and the time of a trip round the ring. No
# figure here holds that.

# %%
for name, sentence, value, unit, least, most in (
    ("ddp-sent", f"What a rank of 8 sends in a step under DDP, {STEP}", ddp.sent() / GB, "GB", 56, 56.5),
    ("fsdp2-sent-8", f"What a rank of 8 sends in a step under FSDP2, {STEP}", f8.sent() / GB, "GB", 54, 55),
    ("fsdp2-sent-1024", f"What a rank of 1,024 sends in a step under FSDP2, {STEP}", f1024.sent() / GB, "GB", 61.5,
     62.5),
    ("keep-saving", f"What reshard_after_forward=False saves of the bytes that a rank of 8 sends, {STEP}",
     100 * (1 - keep.sent() / f8.sent()), "%", 21, 24),
    ("tp-sent-64", "What a rank of 64 sends in a step of the 8B Llama with TP 8 and FSDP2, against FSDP2 alone, for "
     "the same work", tp64.sent() / f64.sent(), "x", 1.55, 1.65),
    ("tp-sent-70b", "What a rank of 64 sends in a step of the 70B Llama with TP 8 and FSDP2, against FSDP2 alone, for "
     "the same work", traced["70b", "tp", 64].sent() / traced["70b", "fsdp2", 64].sent(), "x", 0.85, 0.9),
):
    claim(name, sentence, value, unit, kind="traced", at_least=least, at_most=most)

# %% [markdown]
# A trace of the 70B model on 1,024 ranks needs no cluster, only a little patience. How
# much?

# %% tags=["measures"]
from dryrun.tracing.ranks import many_layers

claim("trace-seconds", "Time to trace rank 0 of 1,024 of the 70B Llama under FSDP2 on this machine, by way of 4 and 5 "
      "of its layers", trace("70b", "fsdp2", 1024, 1).seconds, "s", kind="measured", at_most=300)

# %% [markdown]
# ## The step of a recipe
#
# [A recipe](../recipes/14b-on-8-gpus.md) trains Qwen2.5-14B on 8 GPUs, one conversation of
# 4,096 tokens at a time, eight of them in an update. It reduces gradients in every
# micro-batch. From the third on, micro-batches repeat the second. Had it reduced in the last
# one alone (`set_requires_gradient_sync`), every GPU would hold whole gradients in fp32. A
# test traces the loop of the program itself and compares.

# %%
RECIPE = models.configuration("qwen2.5-14b", 4096)
recipe, whole = (
    many_layers(*RECIPE, "fsdp2", 8, 1, 4096, activation_checkpointing=True, accumulation=3, embedding_apart=True,
                whole_gradients=kept, layers=(2, 3)) for kept in (False, True))
OF = "All tensors at the peak of an update of Qwen2.5-14B on each of 8 GPUs, FSDP2, 8 x 1 x 4,096 tokens, checkpointing"
for name, sentence, value, least, most in (
    ("recipe-14b-peak", OF, recipe.peak_gib, 37, 40),
    ("recipe-14b-whole", f"{OF}, gradients reduced in the last micro-batch alone", whole.peak_gib, 84, 89),
    ("recipe-14b-whole-gradients", "Whole gradients of Qwen2.5-14B in fp32: 4 bytes x parameters",
     4 * recipe.parameters / GiB, 54, 56),
):
    claim(name, sentence, value, "GiB", kind="traced", at_least=least, at_most=most)

# %% [markdown]
# ## Against the closed formulas
#
# Does the trace send what the textbook says? N parameters, of which R are embedding and
# output layer; L layers; activations of A bytes, one sequence of 4,096 tokens of width
# 4,096 in bf16. FSDP2 gathers 16-bit weights twice, but the root with its R only once.

# %%
N, R, A = ddp.parameters, 2 * 128256 * 4096, 2 * 4096 * 4096
gathered = 2 * (2 * (N - R) + R)
hsdp = traced["8b", "hsdp", 64]
tensor = {"layers": (2, 3), "dtype": torch.bfloat16}
plain_tp = many_layers(AutoModelForCausalLM, LLAMA_8B, "tp", 8, 1, 4096, **tensor)
checkpointed_tp = many_layers(AutoModelForCausalLM, LLAMA_8B, "tp", 8, 1, 4096, activation_checkpointing=True, **tensor)
ROWS = [  # strategy, step, collective, dimension of the mesh, formula, bytes by formula
    ("DDP, 8 ranks", ddp, "all-reduce", None, "4N", 4 * N),
    ("FSDP2, 64 ranks", f64, "all-gather", None, "2(2(N - R) + R)", gathered),
    ("FSDP2, 64 ranks", f64, "reduce-scatter", None, "4N", 4 * N),
    ("HSDP, 8 groups of 8", hsdp, "all-reduce", None, "4N/8", 4 * N / 8),
    ("TP 8, without checkpointing", plain_tp, "all-reduce", None, "(4L + 2)A", (4 * 32 + 2) * A),
    ("TP 8 and FSDP2, 64 ranks", tp64, "all-gather", "shard", "2(2(N - R) + R)/8", gathered / 8),
]
table("collectives", "Collectives of one step, 8B Llama, traced and by formula: bytes of the whole tensors",
      {"strategy": "Strategy", "collective": "Collective", "count": "Calls", "traced": "Traced, GB",
       "formula": "Formula, bytes", "expected": "By formula, GB"},
      [{"strategy": strategy, "collective": kind, "count": step.count(kind, dimension),
        "traced": step.payload(kind, dimension) / GB, "formula": formula, "expected": expected / GB}
       for strategy, step, kind, dimension, formula, expected in ROWS], kind="traced")

# %% [markdown]
# The formulas of most texts leave out two things. Checkpointing repeats all-reduces of
# tensor parallelism in the recomputation. And sequence parallelism repeats an all-gather
# there.

# %%
errors = [abs(step.payload(kind, dimension) / expected - 1) for _, step, kind, dimension, _, expected in ROWS]
claim("formula-error", "Largest difference between traced bytes and the closed formulas in this table",
      100 * max(errors), "%", kind="traced", at_most=1)
TP_STEP = "8B Llama under tensor parallelism, one sequence of 4,096 tokens, bf16, checkpointing"
for name, sentence, value, unit, least, most in (
    ("tp-recompute", "What activation checkpointing adds to the bytes that tensor parallelism all-reduces in a step of "
     "the 8B Llama", 100 * (checkpointed_tp.payload("all-reduce") / plain_tp.payload("all-reduce") - 1), "%", 20, 30),
    ("tp-sent", f"What a rank of 8 sends in a step of the {TP_STEP}", checkpointed_tp.sent() / GB, "GB", 10.2, 10.6),
    ("tp-sp-sent", f"What a rank of 8 sends with sequence parallelism in a step of the {TP_STEP}",
     traced["8b", "tp_one", 8].sent() / GB, "GB", 11.2, 11.5),
):
    claim(name, sentence, value, unit, kind="traced", at_least=least, at_most=most)

# %% [markdown]
# ## Seconds on a link
#
# Bytes that a rank sends, over the peak of the link in one direction. Compare with the
# time that an A100 computes: a link can hide what stays well below it.
#
# ZeRO-1 and ZeRO-2 are DeepSpeed's own code, which is not traced here. With its defaults
# it all-reduces gradients in 16 bits and gathers weights in 16 bits. The links with their
# sources are in `dryrun/data/links.json`.

# %%
SENT = {"ddp": ddp.sent(), "zero": 7 / 8 * (2 * 2 + 2) * N, "fsdp2": f8.sent(), "tp": checkpointed_tp.sent()}
NAMES = ["PCIe 3 x16", "PCIe 4 x16", "PCIe 5 x16", "NVLink 2", "NVLink 3", "NVLink 4", "NVLink 5", "10 GbE", "100 GbE",
         "InfiniBand HDR", "InfiniBand NDR"]
compute = 8 * N * 4096 / (312e12 * 0.4)
table("links", "Seconds at the peak of the link, step of the 8B Llama on 8 ranks, 1 x 4,096 tokens per rank",
      {"link": "Link", "peak": "Peak, GB/s", "ddp": "DDP, s", "zero": "ZeRO-1 and 2, s", "fsdp2": "FSDP2, s",
       "tp": "TP, s per sequence"},
      [{"link": name, "peak": LINKS[name].gb_per_s} | {key: seconds(size, name) for key, size in SENT.items()}
       for name in NAMES], kind="derived")
for name, sentence, value, unit, source, least, most in (
    ("zero-sent", "What a rank of 8 sends in a step of the 8B Llama under ZeRO-1 or ZeRO-2 with DeepSpeed's defaults, "
     "one micro-batch", SENT["zero"] / GB, "GB", None, 42, 42.5),
    ("compute-seconds", "The computation of that step on an A100 at 40 % of its peak, 8 FLOPs per parameter and token "
     "with checkpointing", compute, "s", AMPERE, 2, 2.2),
    ("fsdp2-10gbe", "FSDP2's bytes of that step over 10 GbE", seconds(SENT["fsdp2"], "10 GbE"), "s", None, 43, 44),
):
    claim(name, sentence, value, unit, kind="derived", source=source, at_least=least, at_most=most)
claim("nvlink-seen", "All-reduce of 8 A100 over NVLink 3, in one direction", 235, "GB/s", kind="cited",
      source=NETWORKS_MD)

# %% alt="Bars of the seconds that FSDP2's bytes take on each link, with a line at the time of the computation."
plots.bars({name: seconds(SENT["fsdp2"], name) for name in NAMES if name != "10 GbE"},
           "seconds for FSDP2's bytes, 8B Llama on 8 GPUs; dashed: an A100 computes", baseline=compute)

# %% [markdown]
# ## The plan beside what others measured
#
# `plan()` takes its seconds from [predictions](../evidence/gpu-time.md): the traced step's
# kernels on the data sheet of the GPU, and what the strategy sends over the link. How good
# is that? Here it plans published steps at the conditions that they state. The constants
# come from other sources than the one that is judged.
#
# Read the last column first: 1 is right, above 1 the plan says more than was measured.

# %%
compared = validate_plan.compared()
table("published", "Published figures, and what the plan says at the same conditions",
      {"step": "Step", "published": "Published", "planned": "Planned", "unit": "Unit", "ratio": "Ratio"},
      [{"step": one.what, "published": one.published, "planned": one.planned, "unit": one.unit, "ratio": one.ratio}
       for one in compared], kind="predicted")
stated = [one for one in compared if not one.why and not one.formula]
pairs = validate_plan.pairs()
for name, sentence, value, unit, least, most in (
    ("plan-close", "Measured steps with stated conditions that the plan comes within a fifth of",
     100 * sum(abs(one.ratio - 1) <= 0.2 for one in stated) / len(stated), "%", 80, 100),
    ("plan-pairs", "Published pairs of strategies of which one is clearly faster: the plan has the same one first",
     100 * sum(right for _, _, right in pairs) / len(pairs), "%", 85, 100),
    ("plan-pairs-number", "Published pairs of strategies on the same GPUs of which one is clearly faster", len(pairs),
     "", 500, 1000),
):
    claim(name, sentence, value, unit, kind="derived", at_least=least, at_most=most)

# %% [markdown]
# torchtitan published Llama 3.1 8B under FSDP2 on 8 and on 128 H100, of a type with slower
# memory and a lower power limit than most. How much of a GPU's throughput is left among
# 128?

# %%
TITAN = ("https://github.com/pytorch/torchtitan/blob/31a17bfdb70bab6f62a13d21816a5339b911d6e3/benchmarks/"
         "llama3_h100_202412_torchtitan.md")
ON_8, ON_128 = 5762, 5605
for name, value, words in (
    ("titan-8", ON_8, "on 8 H100"), ("titan-128", ON_128, "on 128 H100 with one 400 Gb/s adapter for each"),
):
    claim(name, f"Tokens per second and GPU, Llama 3.1 8B, FSDP2 in bf16, torchtitan, {words}", value, "tokens/s",
          kind="cited", source=TITAN)
planned = [one.planned for one in compared[:2]]
for name, sentence, value, least, most in (
    ("titan-kept", "by torchtitan's figures", 100 * ON_128 / ON_8, 97, 97.5),
    ("titan-planned", "by the plan", 100 * planned[1] / planned[0], 90, 101),
):
    claim(name, f"Throughput of an H100 among 128 against one among 8, Llama 3.1 8B, FSDP2, {sentence}", value, "%",
          kind="derived", source=TITAN, at_least=least, at_most=most)

# %% [markdown]
# A user reports TinyLlama on two RTX 4090, with one micro-batch per step and with four.
# From the first and from one GPU follows what the link costs; four micro-batches pay it
# once. The last claim is that prediction.

# %%
TINY = "https://github.com/whyNLP/tinyllama/issues/1"
ONE, TWO, FOUR = 1.8, 1.5, 2.7  # thousand tokens/s
for name, value, words in (
    ("tiny-one", ONE, "one RTX 4090, 4 micro-batches a step"),
    ("tiny-two", TWO, "DDP on two RTX 4090, 1 micro-batch a step"),
    ("tiny-four", FOUR, "DDP on two RTX 4090, 4 micro-batches a step"),
):
    claim(name, f"TinyLlama 1.1B, as a user reports, {words}", value, "thousand tokens/s", kind="cited", source=TINY)
communication = 2 * ONE / TWO - 1  # per unit of computation, with one micro-batch a step
claim("tiny-predicted", "Throughput of TinyLlama on two RTX 4090 with 4 micro-batches a step that the model predicts "
      "from one GPU and from 1 micro-batch", 2 * ONE / (1 + communication / 4), "thousand tokens/s", kind="derived",
      source=TINY, at_least=2.6, at_most=2.75)

# %% [markdown]
# ### A table of 2021, read again
#
# An old page printed steps per second as samples per second, so two GPUs seemed to win
# nothing. With the run time of each row the rates follow: 200 steps, 4 sequences per GPU.

# %%
HISTORY = ("https://github.com/huggingface/transformers/blob/032b32abfb07ba36e8fc1a8e5251514523edce34/docs/source/en/"
           "perf_train_gpu_many.md")
RUNS = [("1 GPU", 102.0, "left out", 1), ("2, DataParallel, NVLink", 110.5948, 1.808, 2),
        ("2, DDP, NVLink", 101.9003, 1.963, 2), ("2, DDP, NCCL_P2P_DISABLE=1", 131.4367, 1.522, 2)]
table("titan-rtx", "GPT-2 on TITAN RTX in January 2021, 200 steps of 4 sequences per GPU; the first row is from issue "
      "9371 alone", {"setting": "Setting", "runtime": "Run time, s", "printed": "Printed as samples per second"},
      [{"setting": setting, "runtime": runtime, "printed": printed} for setting, runtime, printed, _ in RUNS],
      kind="cited", source=HISTORY)
table("titan-rtx-rates", "The rates that follow: 200 steps, and 800 sequences per GPU, over the run time",
      {"setting": "Setting", "steps": "Steps/s", "samples": "Samples/s"},
      [{"setting": setting, "steps": 200 / runtime, "samples": 200 * 4 * number / runtime}
       for setting, runtime, _, number in RUNS], kind="derived", source=HISTORY)
lost = (RUNS[3][1] - RUNS[2][1]) / 200  # seconds per step without peer-to-peer access
with torch.device("meta"):
    gpt2 = AutoModelForCausalLM.from_config(GPT2Config()).num_parameters()
staged = 4 * gpt2 / lost
for name, sentence, value, unit, least, most in (
    ("titan-rtx-link", "Bandwidth that explains the difference between the two DDP runs of GPT-2 on TITAN RTX, if "
     "nothing overlapped", staged / GB, "GB/s", 3, 4),
    ("staged", "That bandwidth as a share of the card's slot, PCIe 3 with 16 lanes",
     100 * staged * seconds(1, "PCIe 3 x16"), "%", 20, 23),
):
    claim(name, sentence, value, unit, kind="derived", source=HISTORY, at_least=least, at_most=most)
assert abs(STAGED - staged * seconds(1, "PCIe 3 x16")) < 0.01  # what plan() takes for cards without peer-to-peer access

# %% [markdown]
# ## Four examples, from the plan that you can call
#
# `plan()` traces the model and answers three questions for each strategy: does it fit, how
# long does a step take, and why is another one better? It fits by the upper end of what
# published peaks show on top of tensors. Of strategies that are about as fast, the simpler
# one is first.

# %%
COLUMNS = {"strategy": "Strategy", "memory": "On a GPU, GiB", "high": "Up to, GiB", "seconds": "Step, s", "why": "Why"}
SHORT = ("ZeRO-3 + offload", "QLoRA x FSDP2 + offload")  # as their neighbors, with another host


def rows(options):
    return [{"strategy": o.strategy, "memory": o.needed.expected / GiB, "high": o.needed.high / GiB,
             "seconds": o.seconds, "why": o.verdict}
            for o in options if o.strategy not in SHORT and "CP" not in o.strategy]


STEP = {"length": 4096, "precision": "mixed", "checkpointing": True}
TWO_NODES = Cluster("A100 40GB", gpus=16, network="100 GbE")
EXAMPLES = {
    "plan-7b": ("Llama 7B on 8 x A100 40GB with NVLink, 4,096 tokens per GPU",
                plan(Job("llama2-7b", **STEP), Cluster("A100 40GB", gpus=8))),
    "plan-70b": ("Llama 70B on 4 x RTX 4090, 4,096 tokens per GPU, hosts of 512 GB",
                 plan(Job("llama3-70b", **STEP), Cluster("RTX 4090", gpus=4, host_memory_gb=512))),
    "plan-72b": ("Qwen 72B on 2 nodes of 8 x A100 40GB, one 100 GbE adapter in each, 4,096 tokens per GPU",
                 plan(Job("qwen2.5-72b", **STEP), TWO_NODES)),
    "plan-two": ("Llama 1B on 2 x RTX 4090, 4 micro-batches of 2,048 tokens",
                 plan(Job("llama3.2-1b", **STEP | {"length": 2048}, accumulation=4), Cluster("RTX 4090", gpus=2))),
}
for name, (title, options) in EXAMPLES.items():
    table(name, title, COLUMNS, rows(options), kind="predicted")

# %% [markdown]
# What the GPUs hold before the first activation follows from bytes per parameter.

# %%
SEVEN = 6738415616  # parameters of Llama 7B
for name, sentence, value, least, most in (
    ("seven-one", "Weights, gradients and AdamW state of a 7B Llama on one GPU, mixed precision", 16 * SEVEN / GB, 107,
     108.5),
    ("seven-zero2", "Weights, gradients and AdamW state of a 7B Llama on each of 8 GPUs under ZeRO-2, fp32 gradients",
     (2 + 18 / 8) * SEVEN / GB, 28, 29),
    ("seven-zero1-paper", "Llama 7B on 8 GPUs under ZeRO-1, 2 + 2 + 12/8 bytes per parameter",
     (4 + 12 / 8) * SEVEN / GB, 36.9, 37.2),
    ("seven-zero2-paper", "Llama 7B on 8 GPUs under ZeRO-2, 2 + 14/8 bytes per parameter",
     (2 + 14 / 8) * SEVEN / GB, 25.1, 25.4),
    ("seventy-host", "Weights, gradients and AdamW state of a 70B Llama in host memory, FSDP2 with offload",
     16 * 70553706496 / GB, 1128, 1130),
    ("two-bucket-cost", "What DDP's buckets add on each GPU for the 1B Llama, fp32 gradients", 4 * 1235814400 / GB,
     4.9, 5),
):
    claim(name, sentence, value, "GB", kind="derived", at_least=least, at_most=most)

# %% [markdown]
# ## Slow links: why adding nodes makes it worse
#
# Full fine-tuning of a 32B model in mixed precision. Its state fits on one node of 8 x H200,
# so HSDP is a choice. Micro-batches of 4,096 tokens per GPU, one 100 GbE adapter in each
# node. With 8 micro-batches FSDP2 reduces in each of them.
#
# On one node FSDP2 sends over NVLink. From the second node on, all its bytes pass the one
# adapter, in every micro-batch. HSDP sends only gradients through it, once per step.

# %%
def tokens_per_second(nodes, strategy, accumulation):
    alone = "FSDP2" if nodes == 1 else strategy  # on one node HSDP is FSDP2
    job = Job("qwen2.5-32b", **STEP, accumulation=accumulation)
    cluster = Cluster("H200 141GB", gpus=8 * nodes, network="100 GbE" if nodes > 1 else None)
    (option,) = plan(job, cluster, only=alone)
    assert option.fits
    return option.prediction.tokens_per_second


NODES = [1, 2, 4, 8]
CURVES = {"fsdp1": ("FSDP2", 1), "hsdp1": ("HSDP", 1), "fsdp8": ("FSDP2", 8), "hsdp8": ("HSDP", 8)}
curves = {key: [tokens_per_second(nodes, *what) for nodes in NODES] for key, what in CURVES.items()}
table("slow-nodes", "Tokens per second of all nodes together, Qwen 32B in mixed precision, predicted, one 100 GbE "
      "adapter per node",
      {"nodes": "Nodes of 8 x H200", "fsdp1": "FSDP2, 1 micro-batch, tokens/s",
       "hsdp1": "HSDP, 1 micro-batch, tokens/s",
       "fsdp8": "FSDP2, 8 micro-batches, tokens/s", "hsdp8": "HSDP, 8 micro-batches, tokens/s"},
      [{"nodes": nodes} | {key: curve[row] for key, curve in curves.items()} for row, nodes in enumerate(NODES)],
      kind="predicted")

# %% alt="Lines of throughput against nodes: FSDP2 falls from one node to two, HSDP with eight micro-batches rises with each node."
_, axes = plt.subplots(figsize=(7, 2.6))
for (strategy, number), curve in zip(CURVES.values(), curves.values()):
    label = f"{strategy}, {number} micro-batch{'es' if number > 1 else ''}"
    axes.plot(NODES, curve, "--o" if number > 1 and "FSDP2" in label else "-o", label=label)
axes.set(xlabel="nodes of 8 x H200, one 100 GbE adapter each", ylabel="tokens/s", ylim=(0, None))
axes.set_xticks(NODES, NODES)
axes.legend()
plt.show()

# %% [markdown]
# The bytes alone: FSDP2 gathers 16-bit weights twice and reduces fp32 gradients, in every
# micro-batch. HSDP all-reduces fp32 gradients between the nodes once.

# %%
THIRTY_TWO = 32763876352  # parameters of Qwen2.5 32B
crossing = 8 * THIRTY_TWO
hybrid = 2 * 4 * THIRTY_TWO * 7 / 8
for name, sentence, value, unit, least, most in (
    ("slow-fsdp2", "Seconds that FSDP2's bytes take over the border of a node at the peak, 32B, 100 GbE, 1 micro-batch",
     seconds(crossing, "100 GbE"), "s", 20, 22),
    ("slow-10gbe", "Seconds that FSDP2's bytes take over the border of a node at the peak, 32B, 10 GbE, 1 micro-batch",
     seconds(crossing, "10 GbE"), "s", 205, 215),
    ("slow-hsdp-1", "What HSDP saves of the bytes over the border, 8 nodes, 1 micro-batch",
     100 * (1 - hybrid / crossing), "%", 12, 13),
    ("slow-hsdp-8", "What HSDP saves of the bytes over the border, 8 nodes, 8 micro-batches",
     100 * (1 - hybrid / crossing / 8), "%", 88, 90),
):
    claim(name, sentence, value, unit, kind="derived", at_least=least, at_most=most)

# %% [markdown]
# ## What came out, and what to do
#
# - **Take the first strategy that fits**, with room for activations: DDP, ZeRO, FSDP2,
#   and then tensor parallelism inside a node. Then ask the plan whether another one is
#   clearly faster: on slow links one often is.
# - **Know the floor of your step.** When activations and gathered layers are the peak,
#   more GPUs do not help. The loss in chunks, shorter sequences or a group of GPUs per
#   sequence do.
# - **Divide bytes by the slowest link before you add nodes.** If sending takes longer than
#   computing, more nodes make a step slower.
# - **Over slow links send once per step.** Accumulate with HSDP, where a node holds the
#   states.
# - **Count bandwidth that you measured.** Peaks flatter, most of all PCIe without
#   peer-to-peer access.

# %%
# Compares this run with the published records. In Colab it also offers the record of this machine, to send.
from evidence.finish import finish

finish()
