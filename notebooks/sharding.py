# ---
# jupyter:
#   needs: [deepspeed, ninja]
#   runs_on: gpus
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
# # Sharding: ZeRO and FSDP2
#
# **What does each stage of sharding take off a GPU, what does it send in return, and what
# stays whole on every GPU?**
#
# Under DDP every GPU holds all weights, all gradients and all optimizer state. ZeRO and
# FSDP2 give each GPU a part. A GPU that needs a layer gathers it, and drops it again.
#
# *What to expect.*
#
# - The three states shrink with the number of GPUs, and two GPUs can at best halve them.
#   Activations do not shrink at all.
# - Gathering weights costs traffic. The textbook says three passes over the model where
#   DDP has two, but that counts weights and gradients in one dtype.
# - Between nodes the slow link decides, and there the number of micro-batches per step
#   matters more than the strategy.
# - The loss is that of one process, whatever is sharded.
# - The wrong loading code needs more host memory than the training.
#
# *How it is measured.* What follows from the number of parameters is arithmetic. Memory
# and traffic of models with billions of parameters are traced: the real sharding code
# runs on tensors without data. The losses, and the host memory while a checkpoint loads,
# come from two real processes, on GPUs where there are two, else on the CPU.

# %%
# Installs what this notebook needs where it is not there yet (Colab, an empty folder). Colab's torch stays as it is.
import importlib.util
import os
import subprocess
import sys

PINS = {"transformers": "5.23.0", "accelerate": "1.15.0", "deepspeed": "0.19.8", "ninja": "1.13.2"}
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
# And the packages of this notebook that are missing. On a CPU, DeepSpeed compiles an operator with ninja.
needs = {"deepspeed": "deepspeed==0.19.8", "ninja": "ninja"}
missing = [needed for name, needed in needs.items() if importlib.util.find_spec(name) is None]
if missing:
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", *missing], check=True)

# %%
import json
import logging
import tempfile
import warnings

import matplotlib.pyplot as plt
import torch

logging.disable(logging.WARNING)
warnings.simplefilter("ignore")

from transformers import AutoModelForCausalLM, FalconConfig, LlamaConfig

from dryrun.answer.planner import LINKS
from dryrun.tracing.ranks import many_layers
from evidence import plots
from evidence.claims import claim, start, table
from evidence.launch import run_ranks

GB, GiB = 1e9, 2**30
os.chdir(tempfile.mkdtemp())  # where the programs go
plots.set_up("sharding")
start("sharding")

# %% [markdown]
# ## Bytes per parameter
#
# AdamW in mixed precision holds, for each parameter:
#
# - the 16-bit weight that the model computes with: `2` bytes,
# - its 16-bit gradient: `2` bytes,
# - the optimizer state, which is the fp32 weight and two fp32 moments: `12` bytes.
#
# Each stage of ZeRO divides one more of the three by the number of GPUs, d. ZeRO-1
# divides the optimizer state, ZeRO-2 also the gradients, ZeRO-3 also the weights. FSDP2
# gets to the same sum in another way: weight, gradient and two moments in fp32, all of it
# divided.

# %%
STAGES = {
    "DDP": ("2 + 2 + 12", lambda d: 2 + 2 + 12),
    "ZeRO-1": ("2 + 2 + 12/d", lambda d: 2 + 2 + 12 / d),
    "ZeRO-2": ("2 + (2 + 12)/d", lambda d: 2 + 14 / d),
    "ZeRO-3, FSDP2": ("(2 + 2 + 12)/d", lambda d: 16 / d),
}
GPUS = [2, 4, 8, 64]
table("bytes-per-parameter", "Bytes per parameter on each of d GPUs, AdamW, mixed precision, without activations",
      {"stage": "Stage", "formula": "Weight + gradient + optimizer"} | {f"d{d}": f"{d} GPUs, bytes" for d in GPUS},
      [{"stage": name, "formula": formula} | {f"d{d}": bytes_of(d) for d in GPUS}
       for name, (formula, bytes_of) in STAGES.items()], kind="derived")

# %% [markdown]
# ZeRO-1 and ZeRO-2 run into a floor, because something whole stays on each GPU. Only
# ZeRO-3 goes on falling, and after some ten GPUs there is little left to gain.

# %% alt="Bytes per parameter against GPUs: DDP flat, ZeRO-1 and ZeRO-2 falling to a floor, ZeRO-3 falling on."
_, axes = plt.subplots(figsize=(7, 3))
for name, (_, bytes_of) in STAGES.items():
    axes.plot([1, *GPUS], [bytes_of(d) for d in [1, *GPUS]], marker="o", label=name)
axes.set(xscale="log", xlabel="GPUs", ylabel="bytes per parameter", ylim=(0, None))
axes.set_xticks([1, *GPUS], [str(d) for d in [1, *GPUS]])
axes.minorticks_off()
axes.legend()
plt.show()

# %% [markdown]
# Now a model: a Llama of the 8B class on 8 GPUs. `ZeroRedundancyOptimizer` is ZeRO-1 in
# plain PyTorch. With fp32 weights it holds weight and gradient whole, `4 + 4` bytes, and
# its part of the two moments, `8/d` bytes.

# %%
llama_8b = LlamaConfig(
    vocab_size=128256, hidden_size=4096, intermediate_size=14336, num_hidden_layers=32,
    num_attention_heads=32, num_key_value_heads=8, tie_word_embeddings=False, use_cache=False,
)


def parameters_of(config):
    with torch.device("meta"):
        return [parameter.numel() for parameter in AutoModelForCausalLM.from_config(config).parameters()]


EIGHT_B = sum(parameters_of(llama_8b))
ON_EIGHT = {"ddp": ("DDP", 16, 118, 121), "zero1": ("ZeRO-1", 5.5, 40, 42), "zero2": ("ZeRO-2", 3.75, 27, 29),
            "zero3": ("ZeRO-3 or FSDP2", 2, 14.5, 15.5), "zero-optimizer": ("ZeroRedundancyOptimizer, fp32", 9, 66, 69)}
for name, (words, size, least, most) in ON_EIGHT.items():
    claim(f"{name}-eight", f"Weights, gradients and AdamW state of an 8B Llama on each of 8 GPUs with {words}",
          size * EIGHT_B / GiB, "GiB", kind="derived", at_least=least, at_most=most)

# %% [markdown]
# ## Falcon-7B on 8 small A100
#
# Does the arithmetic say what fits? DeepSpeed ships an estimate of its own. It is higher
# than the formula of the ZeRO paper: for ZeRO-2 it counts gradients in fp32, for ZeRO-3
# two more bytes per parameter and the largest layer in fp32. The guide compares both
# with what a user measured on small A100s.
#
# How to read the table: the last column is what remains for activations, buckets and
# fragments. A small remainder is no room: with long sequences activations alone take
# more. A negative one rules a stage out.

# %%
from deepspeed.runtime.zero.stage3 import estimate_zero3_model_states_mem_needs
from deepspeed.runtime.zero.stage_1_and_2 import estimate_zero2_model_states_mem_needs

sizes = parameters_of(FalconConfig())  # the defaults of the class are those of Falcon-7B
falcon, on_gpus = sum(sizes), {"num_gpus_per_node": 8, "num_nodes": 1, "cpu_offload": False}
estimates = {
    "ZeRO-2": estimate_zero2_model_states_mem_needs(falcon, **on_gpus)[1] / GB,
    "ZeRO-3, FSDP2": estimate_zero3_model_states_mem_needs(
        falcon, max(sizes), **on_gpus, cpu_offload_params=False)[1] / GB,
}
table("falcon", "Falcon-7B on each of 8 GPUs: weights, gradients, optimizer state, without activations",
      {"stage": "Stage", "states": "By the formula, GB", "estimate": "DeepSpeed's estimate, GB",
       "left": "Left of 40, GB"},
      [{"stage": name, "states": falcon * bytes_of(8) / GB, "estimate": estimates.get(name, "none given"),
        "left": 40 - falcon * bytes_of(8) / GB} for name, (_, bytes_of) in STAGES.items()], kind="derived")
for name, words, value, least, most in (
    ("falcon-ddp", "Weights, gradients and optimizer state of Falcon-7B under DDP, mixed precision, AdamW",
     16 * falcon / GB, 110, 111),
    ("falcon-zero2", "What DeepSpeed estimates for ZeRO-2 of Falcon-7B on each of 8 GPUs, without activations",
     estimates["ZeRO-2"], 29, 30),
    ("falcon-zero3", "What DeepSpeed estimates for ZeRO-3 of Falcon-7B on each of 8 GPUs, without activations",
     estimates["ZeRO-3, FSDP2"], 16, 17.5),
):
    claim(name, words, value, "GB", kind="derived", at_least=least, at_most=most)

# %% [markdown]
# ## Two GPUs: DDP and FSDP2
#
# Many readers have two GPUs, and hope that FSDP2 shares everything out between them. It shares
# the states, and nothing else. So the saving depends on what the peak consists of.
#
# A Llama of the 1B class, traced as rank 0 of 2: fp32 weights, bf16 compute. With short
# sequences the states are the peak. With long ones the activations are, and the logits.

# %%
llama_1b = LlamaConfig(
    vocab_size=128256, hidden_size=2048, intermediate_size=8192, num_hidden_layers=16,
    num_attention_heads=32, num_key_value_heads=8, tie_word_embeddings=True, use_cache=False,
)
PARTS = {"states": ("parameters", "gradients", "gradient buckets", "optimizer"), "activations": ("activations",)}


def peak_of(strategy, batch, length, **options):
    """The peak of rank 0 of 2 and its parts, in GiB."""
    step = many_layers(AutoModelForCausalLM, llama_1b, strategy, 2, batch, length, layers=(2, 4), **options)
    parts = {part: round(sum(map(step.gib, categories)), 3) for part, categories in PARTS.items()}
    return {"peak": step.peak_gib} | parts | {"rest": step.peak_gib - sum(parts.values())}


peaks = {}
for batch, size in (("1 x 512", (1, 512)), ("4 x 4,096", (4, 4096))):
    peaks[batch, "DDP"] = peak_of("ddp", *size, bucket_view=True)
    peaks[batch, "FSDP2"] = peak_of("fsdp2", *size)

# %%
table("two-gpus", "Peak memory of one of two GPUs, Llama-1B class, fp32 weights, bf16 compute, AdamW",
      {"batch": "Batch per GPU", "strategy": "Strategy", "peak": "Peak, GiB", "states": "States, GiB",
       "activations": "Activations, GiB", "rest": "The rest, GiB"},
      [{"batch": batch, "strategy": strategy} | peak for (batch, strategy), peak in peaks.items()], kind="traced")
for name, batch, least, most in (("two-gpus-short", "1 x 512", 40, 55), ("two-gpus-long", "4 x 4,096", 15, 25)):
    claim(name, f"What FSDP2 saves of the peak of DDP on 2 GPUs, Llama-1B class, {batch} tokens per GPU",
          100 * (1 - peaks[batch, "FSDP2"]["peak"] / peaks[batch, "DDP"]["peak"]), "%", kind="traced",
          at_least=least, at_most=most)

# %% [markdown]
# The picture says it at once. The first part of each bar is what sharding divides.

# %% alt="Stacked bars of the peak: FSDP2 cuts the states in two, activations and the rest stay."
_, axes = plt.subplots(figsize=(7, 2.6))
names, left = [f"{strategy}, {batch}" for batch, strategy in peaks], [0.0] * len(peaks)
for part in ("states", "activations", "rest"):
    widths = [peak[part] for peak in peaks.values()]
    axes.barh(names, widths, left=left, label=part)
    left = [a + b for a, b in zip(left, widths)]
axes.invert_yaxis()
axes.set_xlabel("peak of one of two GPUs, GiB")
axes.legend()
plt.show()

# %% [markdown]
# ## What it sends
#
# DDP all-reduces the gradients. FSDP2 gathers the weights twice, for the forward and the
# backward pass, and reduce-scatters the gradients. An all-reduce is a reduce-scatter and
# an all-gather, so in one dtype that is three passes over the model against two. The last
# group, with embedding and output layer, is gathered only once, which takes a little off.
#
# But FSDP2's policy gathers weights in bf16, while both reduce gradients in fp32. Count
# bytes per parameter: DDP 4 + 4, FSDP2 2 + 2 + 4. The sums are equal.

# %%
def sent(strategy, **options):
    """GB that rank 0 of 8 sends in a step of the 8B Llama; the length does not matter for it."""
    return many_layers(AutoModelForCausalLM, llama_8b, strategy, 8, 1, 64, layers=(2, 4), **options).sent() / GB


STRATEGIES = {"DDP": "ddp", "FSDP2": "fsdp2", "FSDP2, reshard_after_forward=False": "fsdp2_keep"}
traffic = {name: {"fp32": sent(strategy, compute=None), "bf16 compute": sent(strategy)}
           for name, strategy in STRATEGIES.items()}
table("sent", "What each of 8 GPUs sends in a step of an 8B Llama, one micro-batch",
      {"way": "Way", "one": "All in fp32, GB", "mixed": "Weights gathered in bf16, gradients reduced in fp32, GB"},
      [{"way": name, "one": size["fp32"], "mixed": size["bf16 compute"]} for name, size in traffic.items()],
      kind="traced")
whole, kept = (traffic[name] for name in list(STRATEGIES)[1:])
claim("sent-one-dtype", "Bytes that a GPU sends with FSDP2 against DDP, 8 GPUs, 8B Llama, all in fp32",
      whole["fp32"] / traffic["DDP"]["fp32"], "x", kind="traced", at_least=1.4, at_most=1.5)
claim("sent-kept", "What reshard_after_forward=False saves of the bytes that FSDP2 sends, 8 GPUs, 8B Llama, mixed bf16",
      100 * (1 - kept["bf16 compute"] / whole["bf16 compute"]), "%", kind="traced", at_least=21, at_most=24)
assert abs(whole["bf16 compute"] / traffic["DDP"]["bf16 compute"] - 1) < 0.05, "the guide says: about the same bytes"

# %% alt="Bars of the bytes sent: FSDP2 sends more than DDP in one dtype, and as much in mixed precision."
plots.bars(traffic, "sent by each of 8 GPUs in a step of an 8B Llama, GB")

# %% [markdown]
# ## Slow links between nodes
#
# A model of 72 billion parameters on 4 nodes of 8 GPUs. What leaves a node?
#
# - *One group of 32.* Each collective crosses the border of every node, in every
#   micro-batch: two gathers and a reduce-scatter.
# - *FSDP2 with `reshard_after_forward=8`.* After the forward pass the weights stay in
#   shards over the 8 GPUs of the node. The backward pass gathers inside the node.
# - *ZeRO++ hpZ.* A second copy of the weights, sharded inside the node. Only the first
#   forward pass after an optimizer step gathers across nodes.
# - *HSDP.* Shards inside a node, replicas across. Only the all-reduce of the gradients
#   crosses, as 8 shards side by side, and once per optimizer step, because what waits for
#   it are the parts (`set_requires_all_reduce`).
#
# Why can one group not reduce once per step too? Each GPU would have to keep whole
# gradients until then.
#
# The arithmetic: a gather or a reduce-scatter round a ring of W ranks passes each byte on
# (W-1)/W times per rank. Of one group over all nodes, what a node sends to the next is
# that share of the whole tensor. The all-reduce of HSDP goes round the nodes only, twice
# (n-1)/n for n nodes.

# %%
N, NODES, PER_NODE = 72.7e9, 4, 8
WORLD = NODES * PER_NODE
GATHER, REDUCE = 2, 4  # bytes per parameter: weights gathered in bf16, gradients reduced in fp32
ONCE = (WORLD - 1) / WORLD * N / GB  # GB that leave a node when 32 GPUs gather or reduce one byte per parameter
ALL_REDUCE = 2 * (NODES - 1) / NODES * N * REDUCE / GB
LOCAL = N * 2 / PER_NODE / GB  # a 16-bit copy of the weights, sharded inside the node
WAYS = {  # what leaves a node in a step of m micro-batches, and what each GPU holds, in GB
    "one group of 32": (lambda m: ONCE * (2 * GATHER + REDUCE) * m, 16 * N / WORLD / GB),
    "FSDP2, reshard_after_forward=8": (lambda m: ONCE * (GATHER + REDUCE) * m, 16 * N / WORLD / GB + LOCAL),
    "ZeRO++ hpZ": (lambda m: ONCE * (GATHER + REDUCE * m), 16 * N / WORLD / GB + LOCAL),
    "ZeRO++ hpZ, gradients reduced in bf16": (lambda m: ONCE * (GATHER + 2 * m), 16 * N / WORLD / GB + LOCAL),
    "HSDP": (lambda m: ALL_REDUCE, 16 * N / PER_NODE / GB),
}
LINK = LINKS["100 GbE"].gb_per_s
table("nodes", "72B on 4 nodes of 8 GPUs: GB that leave each node in an optimizer step, and their time at 100 Gbit/s",
      {"way": "Way", "states": "States per GPU, GB", "one": "1 micro-batch, GB", "seconds": "1 micro-batch, s",
       "sixteen": "16 micro-batches, GB", "sixteen_seconds": "16 micro-batches, s"},
      [{"way": way, "states": states, "one": crossing(1), "seconds": crossing(1) / LINK, "sixteen": crossing(16),
        "sixteen_seconds": crossing(16) / LINK} for way, (crossing, states) in WAYS.items()], kind="derived")

# %% [markdown]
# DeepSpeed reduces gradients in the dtype of the model, unless `communication_data_type`
# says otherwise. That is the row with bf16.

# %% alt="Bars of what leaves a node: with 16 micro-batches HSDP sends a small part of what the others send."
plots.bars({way: {"1 micro-batch": crossing(1), "16 micro-batches": crossing(16)}
            for way, (crossing, _) in WAYS.items()},
           "leaves each node in an optimizer step of a 72B model, GB")
one_group, hybrid = WAYS["one group of 32"][0], WAYS["HSDP"][0]
AGAINST = "Bytes that leave a node with one group of 32 GPUs against HSDP, 72B, 4 nodes"
for name, sentence, value, unit, least, most in (
    ("hsdp-one", f"{AGAINST}, one micro-batch per step", one_group(1) / hybrid(1), "x", 1.25, 1.35),
    ("hsdp-sixteen", f"{AGAINST}, 16 micro-batches per step", one_group(16) / hybrid(16), "x", 20, 21.5),
    ("hsdp-states", "Weights, gradients and optimizer state of a 72B model on each GPU with HSDP in nodes of 8",
     WAYS["HSDP"][1], "GB", 145, 146),
    ("one-group-time", "Time for what leaves a node in a step of 72B in one group of 4 nodes, at the peak rate of "
     "100 Gbit/s per node", one_group(1) / LINK, "s", 44, 46),
):
    claim(name, sentence, value, unit, kind="derived", at_least=least, at_most=most)

# %% [markdown]
# ## Offload: the host's link
#
# `CPUOffloadPolicy` keeps the fp32 shards in host memory. In each micro-batch a GPU
# fetches its shard for the forward pass and again for the backward pass, and brings back
# the fp32 gradient: three times `4` bytes per parameter of its shard. The peak of the slot
# gives the least time that can take. AdamW on the host comes on top.

# %%
offloaded = EIGHT_B / 8 * (4 + 4 + 4) / GB
for name, sentence, value, unit, least, most in (
    ("offload-bytes", "Bytes between each of 8 GPUs and the host per micro-batch of an 8B model under "
     "CPUOffloadPolicy, fp32 shards", offloaded, "GB", 12, 12.1),
    ("offload-time", "Time of these bytes at the peak rate of PCIe 4.0 with 16 lanes",
     offloaded / LINKS["PCIe 4 x16"].gb_per_s, "s", 0.38, 0.39),
):
    claim(name, sentence, value, unit, kind="derived", at_least=least, at_most=most)

# %% [markdown]
# ## For real, on two processes
#
# The rest runs in real processes that torchrun starts. The programs share one small
# module: the process group, and a model that is replicated or sharded over it.

# %% tags=["measures"]
# %%writefile two_ranks.py
import json
import os

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
gpu = torch.cuda.device_count() >= world
device = torch.device("cuda", rank) if gpu else torch.device("cpu")
if gpu:
    torch.cuda.set_device(device)
dist.init_process_group("nccl" if gpu else "gloo")
mesh = init_device_mesh(device.type, (world,))


def replicated(model):
    return DistributedDataParallel(model, gradient_as_bucket_view=True)


def sharded(model, layers=True, **options):
    for layer in model.model.layers if layers else []:
        fully_shard(layer, mesh=mesh, **options)
    return fully_shard(model, mesh=mesh, **options)

# %% tags=["measures"]
# %%writefile -a two_ranks.py


def end(result):
    if rank == 0:
        print(json.dumps(result), flush=True)
    waits = dist.barrier(async_op=True)  # named, so that gloo does not free it while Python ends
    waits.wait()
    dist.destroy_process_group()

# %% tags=["measures"]
def run(program, folder=None, **environment):
    """Runs a program on two ranks, in a folder of its own or in the given one; returns what rank 0 printed last."""
    if torch.cuda.device_count() < 2:
        environment |= {"CUDA_VISIBLE_DEVICES": "", "DS_ACCELERATOR": "cpu"}
    ran = run_ranks(program, timeout=900, folder=folder, environment=environment)
    return json.loads(ran.stdout[0].strip().splitlines()[-1])

# %% [markdown]
# ### The loss is the same
#
# A strategy must not change what is learned. Six steps of AdamW from the same weights,
# each rank on its half of the batch, against one process on the whole batch. The model
# is tiny, because equality does not depend on size. Everything is fp32, so differences
# can come from the order of sums alone.
#
# What a fault would look like: gradients that are summed and not averaged, or an
# optimizer that holds replaced parameters, move the loss in the second digit at once.

# %% tags=["measures"]
# %%writefile small.py
import torch
import torch.distributed as dist
from transformers import LlamaConfig, LlamaForCausalLM
from two_ranks import device, rank, world

CONFIG = LlamaConfig(hidden_size=128, intermediate_size=352, num_hidden_layers=4, num_attention_heads=4,
                     vocab_size=1000, use_cache=False)
ids = torch.randint(0, 1000, (8, 64), generator=torch.Generator().manual_seed(1)).to(device)
mine = ids[rank::world]  # the rows of this rank


def small_model():
    torch.manual_seed(0)
    return LlamaForCausalLM(CONFIG).to(device).train()


def losses(step, steps=6):
    """The losses of some steps, averaged over the ranks."""
    values = torch.stack([step() for _ in range(steps)])
    dist.all_reduce(values)
    return (values / world).tolist()

# %% tags=["measures"]
# %%writefile plain.py
import functools

import torch
from small import ids, losses, mine, small_model
from torch.distributed.optim import ZeroRedundancyOptimizer
from two_ranks import end, replicated, sharded


def train(model, batch=mine, clip=None, optimizer_class=torch.optim.AdamW):
    optimizer = optimizer_class(model.parameters(), lr=3e-3)

    def step():
        loss = model(input_ids=batch, labels=batch).loss
        loss.backward()
        if clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return losses(step)


zero1 = functools.partial(ZeroRedundancyOptimizer, optimizer_class=torch.optim.AdamW)
end({"one process": train(small_model(), ids), "one process, clipped at 1": train(small_model(), ids, clip=1.0),
     "DDP": train(replicated(small_model())),
     "ZeRO-1, ZeroRedundancyOptimizer": train(replicated(small_model()), optimizer_class=zero1),
     "FSDP2": train(sharded(small_model())),
     "FSDP2, reshard_after_forward=False": train(sharded(small_model(), reshard_after_forward=False))})

# %% [markdown]
# DeepSpeed has an engine that runs the backward pass and the step. It takes the whole
# strategy from a configuration. One detail of it changes what is learned: whether it
# names `gradient_clipping`. The last run leaves it out, on purpose, so its losses must
# leave those of the others.

# %% tags=["measures"]
# %%writefile zero.py
import deepspeed
import torch
from small import losses, mine, small_model
from two_ranks import end


def train(stage, **clipping):
    settings = {"zero_optimization": {"stage": stage}, "train_micro_batch_size_per_gpu": len(mine),
                "zero_allow_untested_optimizer": True, "steps_per_print": 1000} | clipping
    model = small_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=settings)

    def step():
        loss = engine(input_ids=mine, labels=mine).loss
        engine.backward(loss)
        engine.step()
        return loss.detach()

    found = losses(step)
    engine.destroy()
    return found


found = {f"DeepSpeed ZeRO-{stage}": train(stage, gradient_clipping=0.0) for stage in (1, 2, 3)}
end(found | {"DeepSpeed ZeRO-3, no word on clipping": train(3)})

# %% tags=["measures"]
losses = run("plain.py") | run("zero.py")
plain, clipped = losses["one process"], losses["one process, clipped at 1"]
silent = losses["DeepSpeed ZeRO-3, no word on clipping"]


def apart(values, others):
    """The largest difference of two runs, in millionths."""
    return 1e6 * max(abs(a - b) for a, b in zip(values, others))


table("losses", "Loss of a small Llama over 6 steps of AdamW, 2 processes, fp32",
      {"way": "Way", "first": "Step 1", "third": "Step 3", "last": "Step 6",
       "apart": "Largest difference to one process, millionths"},
      [{"way": name, "first": values[0], "third": values[2], "last": values[-1], "apart": apart(values, plain)}
       for name, values in losses.items()], kind="measured")
equal = [values for name, values in losses.items() if "clip" not in name]
claim("loss-apart", "Largest difference of the loss of DDP, ZeRO-1, FSDP2 and DeepSpeed ZeRO-1, 2, 3 without clipping "
      "from one process, 6 steps, fp32, in millionths", max(apart(values, plain) for values in equal), "millionths",
      kind="measured", at_most=100)
claim("deepspeed-clipped", "Largest difference of the loss of DeepSpeed ZeRO-3 without a word on clipping from one "
      "process that clips at norm 1, in millionths", apart(silent, clipped), "millionths", kind="measured", at_most=100)
assert len(equal) == 8 and apart(silent, plain) > 1000, "the guide says: DeepSpeed clips unless told otherwise"

# %% [markdown]
# ### Memory: wrap the layers, not only the root
#
# FSDP2 gathers one group of parameters at a time, and each call of `fully_shard` makes
# one group. Calling it on the root alone makes one group of the whole model. Then all of
# it is gathered at the first layer and stays until the backward pass ends.
#
# A Llama of the shape of SmolLM2-135M, output layer not tied, in fp32, one step of 128
# tokens on real ranks. A tracker counts every storage that rank 0 holds and every
# collective that it starts.
#
# Expect less than the arithmetic promises, even with every layer wrapped. What is in no
# layer belongs to the group of the root: embedding and output layer. It is gathered from
# the forward pass to the end of the backward pass. In a small model with a large
# vocabulary that is a good part of all parameters, in an 8B a small one.

# %% tags=["measures"]
# %%writefile smollm.py
from transformers import LlamaConfig

SMOLLM = LlamaConfig(vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30,
                     num_attention_heads=9, num_key_value_heads=3, use_cache=False)

# %% tags=["measures"]
# %%writefile memory.py
import functools

import torch
from smollm import SMOLLM
from torch.distributed.optim import ZeroRedundancyOptimizer
from transformers import LlamaForCausalLM
from two_ranks import device, end, replicated, sharded

from dryrun.tracing.collectives import RankTracker

ids = torch.zeros(1, 128, dtype=torch.long, device=device)
WAYS = {"DDP": replicated, "DDP, ZeroRedundancyOptimizer": replicated,
        "FSDP2, the root alone": functools.partial(sharded, layers=False), "FSDP2, every layer": sharded,
        "FSDP2, every layer, reshard_after_forward=False": functools.partial(sharded, reshard_after_forward=False)}


def optimizer_of(name, model):
    options = {"lr": 1e-3, "fused": True}
    if name == "DDP, ZeroRedundancyOptimizer":
        return ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, **options)
    return torch.optim.AdamW(model.parameters(), **options)


def step(model, optimizer):
    model(input_ids=ids, labels=ids).loss.backward()
    optimizer.step()
    optimizer.zero_grad()

# %% [markdown]
# The first step makes the state of the optimizer, the second is counted. All ranks make
# a tracker, because a tracker gathers each group once to know its storage, and that is a
# collective.

# %% tags=["measures"]
# %%writefile -a memory.py


def counted(name):
    model = WAYS[name](LlamaForCausalLM(SMOLLM).to(device))
    optimizer = optimizer_of(name, model)
    step(model, optimizer)
    with RankTracker(model, getattr(optimizer, "optim", optimizer), [ids]) as tracker:
        step(model, optimizer)
    collectives = tracker.collectives.values()
    return {"peak": tracker.peak, "count": {c.kind: c.count for c in collectives},
            "payload": {c.kind: c.payload for c in collectives}}


parameters = sum(p.numel() for p in LlamaForCausalLM(SMOLLM).parameters())
end({name: counted(name) | {"parameters": parameters} for name in WAYS})

# %% tags=["measures"] alt="Bars of bytes per parameter: wrapping the root alone saves hardly anything."
counted = run("memory.py")
kinds = {"all-gather": "All-gathers", "reduce-scatter": "Reduce-scatters", "all-reduce": "All-reduces"}
per_parameter = {name: found["peak"] / found["parameters"] for name, found in counted.items()}
table("wrapping", "Peak of a step of rank 0 of 2, a Llama of the shape of SmolLM2-135M, fp32, AdamW, counted by tensor",
      {"way": "Way", "bytes": "Peak, bytes per parameter"} | kinds,
      [{"way": name, "bytes": per_parameter[name]} | {kind: found["count"].get(kind, 0) for kind in kinds}
       for name, found in counted.items()], kind="measured")
plots.bars(per_parameter, "peak of a step, bytes per parameter")

# %% tags=["measures"]
for name, way, least, most in (("root-only", "the root alone", 0, 12), ("every-layer", "every layer", 30, 42)):
    claim(name, f"What FSDP2 on {way} saves of the peak of DDP on 2 ranks, fp32, Llama of the shape of SmolLM2-135M",
          100 * (1 - per_parameter[f"FSDP2, {way}"] / per_parameter["DDP"]), "%", kind="measured", at_least=least,
          at_most=most)

# %% [markdown]
# `ZeroRedundancyOptimizer` all-reduces the gradients as DDP does, and then each rank
# broadcasts the weights that it updated. Round a ring of n ranks, an all-reduce passes
# each byte on 2 (n-1)/n times, the broadcasts of all ranks together (n-1)/n times. So
# the expected ratio of bytes is three to two.

# %% tags=["measures"]
reduced, zero1 = counted["DDP"]["payload"]["all-reduce"], counted["DDP, ZeroRedundancyOptimizer"]["payload"]
claim("zero-optimizer-sent", "Bytes that a rank sends with ZeroRedundancyOptimizer against DDP, fp32, 2 ranks",
      (2 * zero1["all-reduce"] + zero1["broadcast"]) / (2 * reduced), "x", kind="measured", at_least=1.49, at_most=1.51)

# %% [markdown]
# ### Host memory while a checkpoint is loaded
#
# Eight ranks that each load the whole checkpoint can fill the host before the first step.
# Six ways to get from a file to a sharded model, with the same 135M shape. A good way
# needs room for the rank's own shard, and none for a copy of the whole.
#
# The peak is that of *anonymous* memory, which no file backs. Pages of a mapped file do
# not count: the ranks share them, and the system can drop them.

# %% tags=["measures"]
# %%writefile loading.py
import torch
import torch.distributed.checkpoint as dcp
from accelerate import init_empty_weights
from smollm import SMOLLM
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, set_model_state_dict
from transformers import LlamaForCausalLM
from transformers.distributed import DistributedConfig
from two_ranks import device, rank, sharded, world


def read(folder, **options):
    return LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32, **options)


def whole_then_shard():
    return sharded(read("whole").to(device))


def converted_then_shard():
    return sharded(read("half").to(device))


def unpickled_then_shard():
    model = LlamaForCausalLM(SMOLLM)
    model.load_state_dict(torch.load("whole.pt"))
    return sharded(model.to(device))

# %% [markdown]
# The next lets `from_pretrained` shard. The last two begin with an empty model: one gets
# its weights from rank 0, the other from a checkpoint that was saved in shards.

# %% tags=["measures"]
# %%writefile -a loading.py


def shard_at_load():
    return read("whole", distributed_config=DistributedConfig(fsdp_size=world))


def empty():
    with init_empty_weights():
        model = LlamaForCausalLM(SMOLLM)
    return sharded(model)


def broadcast():
    weights = read("whole").state_dict() if rank == 0 else {}
    model = empty()
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    set_model_state_dict(model, weights, options=options)
    return model


def from_shards():
    model = empty()
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            setattr(module, name, torch.nn.Parameter(torch.empty_like(parameter, device=device)))
    state = get_model_state_dict(model)
    dcp.load(state, checkpoint_id="shards")
    return model

# %% [markdown]
# A thread watches the memory while a way loads. At the end each way computes a loss: what
# loads little must still have loaded the right weights.

# %% tags=["measures"]
# %%writefile load.py
import gc
import os
import threading
import time
from pathlib import Path

import loading as ways
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_model_state_dict
from transformers import LlamaForCausalLM
from two_ranks import device, end, rank, world

line = torch.zeros(1, 16, dtype=torch.long, device=device)


def anonymous():
    """Bytes of this process that no file backs."""
    resident, shared = Path("/proc/self/statm").read_text().split()[1:3]
    return os.sysconf("SC_PAGE_SIZE") * (int(resident) - int(shared))


def watch(before, peak, running):
    while running:
        peak[0] = max(peak[0], anonymous() - before)
        time.sleep(0.002)

# %% tags=["measures"]
# %%writefile -a load.py


def peak_of(way):
    gc.collect()
    dist.barrier()
    peak, running = [0], [True]
    watcher = threading.Thread(target=watch, args=(anonymous(), peak, running))
    watcher.start()
    model = way()
    running.clear()
    watcher.join()
    with torch.no_grad():
        loss = model(input_ids=line, labels=line).loss.item()
    peaks = [None] * world
    dist.all_gather_object(peaks, peak[0])
    return {"peaks": peaks, "loss": loss}


if rank == 0:
    model = LlamaForCausalLM(ways.SMOLLM)
    size = 4 * sum(p.numel() for p in model.parameters())
    model.save_pretrained("whole")
    torch.save(model.state_dict(), "whole.pt")
    model.bfloat16().save_pretrained("half")
    del model
dist.barrier()

# %% tags=["measures"]
# %%writefile -a load.py
dcp.save(get_model_state_dict(ways.shard_at_load()), checkpoint_id="shards")
WAYS = {
    "from_pretrained with DistributedConfig": ways.shard_at_load,
    "empty model, torch.distributed.checkpoint": ways.from_shards,
    "from_pretrained whole, then fully_shard": ways.whole_then_shard,
    "rank 0 reads, empty models, broadcast": ways.broadcast,
    "from_pretrained whole into another dtype, then fully_shard": ways.converted_then_shard,
    "torch.load and load_state_dict, then fully_shard": ways.unpickled_then_shard,
}
found = {name: peak_of(way) for name, way in WAYS.items()}
end({"size": size, "ways": found} if rank == 0 else None)

# %% [markdown]
# `MALLOC_MMAP_THRESHOLD_` makes large blocks go back to the system as soon as they are
# freed. It costs time, and it makes the peak one of memory in use.

# %% tags=["measures"] alt="Bars of the peak of host memory per rank: from hardly anything to twice the model."
LINUX = sys.platform == "linux"
with tempfile.TemporaryDirectory() as checkpoints:
    loaded = run("load.py", checkpoints, MALLOC_MMAP_THRESHOLD_="65536") if LINUX else {"ways": {}}
peaks = {name: [peak / loaded["size"] for peak in found["peaks"]] for name, found in loaded["ways"].items()}
if LINUX:
    table("host-memory", "Peak of anonymous host memory per rank while a checkpoint is loaded, 2 ranks, in sizes of "
          "the fp32 model", {"way": "Way", "rank0": "Rank 0", "rank1": "Rank 1"},
          [{"way": name, "rank0": first, "rank1": second} for name, (first, second) in peaks.items()], kind="measured")
    plots.bars({name: max(values) for name, values in peaks.items()}, "peak per rank, in sizes of the fp32 model")
    same = [found["loss"] for name, found in loaded["ways"].items() if "another dtype" not in name]
    assert max(same) - min(same) < 1e-4, same
    assert max(peaks["from_pretrained with DistributedConfig"]) < 0.05, "the guide says: hardly any memory"

# %% tags=["measures"]
for name, way, words, least, most in (
    ("load-unpickled", "torch.load and load_state_dict, then fully_shard", "torch.load and load_state_dict", 1.8,
     2.2),
    ("load-converted", "from_pretrained whole into another dtype, then fully_shard",
     "from_pretrained into another dtype than the file's", 0.95, 1.3),
    ("load-whole", "from_pretrained whole, then fully_shard",
     "from_pretrained in the file's dtype, then fully_shard", 0.4, 0.65),
    ("load-broadcast", "rank 0 reads, empty models, broadcast", "rank 0 that reads and broadcasts", 0.4, 0.8),
):
    claim(name, f"Peak of anonymous host memory per rank of 2 for {words}, in sizes of the fp32 model",
          max(peaks[way]) if peaks else None, "x", kind="measured", at_least=least, at_most=most,
          because="this system has no /proc")

# %% [markdown]
# ## What came out, and what to do
#
# - **Take the lowest stage that fits.** Each stage divides one more of the three states.
#   After ZeRO-3 or FSDP2 only more GPUs, offload or a smaller model make states smaller.
# - **Look at what the peak consists of first.** Sharding divides states. Long sequences
#   need activation checkpointing, and the loss in chunks.
# - **Do not fear FSDP2's traffic inside a node.** With bf16 gathers and fp32 reduction it
#   sends as many bytes as DDP.
# - **Between nodes, accumulate with HSDP**, if a node can hold the states. If it cannot,
#   keep the backward gathers inside the node: `reshard_after_forward` with a number.
# - **Wrap every layer.** On the root alone FSDP2 saves hardly anything.
# - **Write `gradient_clipping` down** in DeepSpeed's configuration, whatever you want.
# - **Load with `from_pretrained(distributed_config=...)`**, or let rank 0 read. Never
#   unpickle a whole checkpoint on every rank.

# %%
# Compares this run with the published records. In Colab it also offers the record of this machine, to send.
from evidence.finish import finish

finish()
