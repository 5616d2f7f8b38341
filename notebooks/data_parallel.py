# ---
# jupyter:
#   runs_on: cpu, two processes send the bytes that two GPUs would send
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
# # Data parallelism, counted
#
# **What does DDP send in a step, when does sending cost more than a second GPU brings, and
# is it still the training of one process?**
#
# `DistributedDataParallel` (DDP) keeps a copy of the model on every GPU and averages the
# gradients once per optimizer step. Everything else follows from that: what it sends, when
# it can hide it, and what changes when the number of processes changes.
#
# What to expect:
#
# - Each process sends less than twice the bytes of its gradients, however many processes
#   there are.
# - Communication goes with the *parameters*, computation with the *tokens*. So the same two
#   GPUs can be faster or slower than one.
# - The losses are those of one process, up to rounding.
#
# How it is measured: two and four real processes of this machine train a Llama in the
# shape of SmolLM2-135M, with random weights, by gloo. A hook notes what DDP hands to each
# all-reduce, and Linux says what the connections really sent. Bytes and collectives are the
# same on any hardware. Time is not measured here: a CPU that computes and sends with the
# same two cores says nothing about GPUs. Published runs of two GPUs stand in for it.

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
import contextlib
import io
import json
import logging
import math
import tempfile
import warnings
from unittest import mock

os.chdir(tempfile.mkdtemp())  # where the programs go

import matplotlib.pyplot as plt
import torch
import torch.distributed as dist

logging.disable(logging.WARNING)  # what some packages say at import
warnings.simplefilter("ignore")

from torch.testing._internal.distributed.fake_pg import FakeStore
from transformers import (
    AutoModelForCausalLM, AutoModelForSequenceClassification, BertConfig, GPT2Config, LlamaConfig, Trainer,
    TrainingArguments,
)

from evidence import plots
from evidence.claims import claim, start, table
from evidence.launch import run_ranks

plots.set_up("data_parallel")
start("data_parallel")

# %% [markdown]
# ## The bytes of a step
#
# A *ring all-reduce* of B bytes over n processes has two rounds. In the first each process
# sends `B (n-1)/n`, until each holds the sum of one n-th. In the second it sends as much
# again, until all hold all sums. So each sends
#
#     2 (n-1)/n x B        B = parameters x bytes per gradient
#
# Two processes send 2 x 1/2 = 1 times B each, eight send 2 x 7/8 of it, and a thousand hardly
# twice B. What grows with n is the number of messages, and so the latency, not the bytes.
#
# The plot is this factor. Read it before you fear that many GPUs drown the network: from
# eight on the line is nearly flat.

# %% alt="What each process sends in an all-reduce over its gradients, against the number of processes: it nears two and never reaches it."
def ring(processes, size):
    """Bytes that each of `processes` sends in an all-reduce of `size` bytes."""
    return 2 * (processes - 1) / processes * size


counts = [2, 4, 8, 16, 32, 64]
_, axes = plt.subplots(figsize=(6, 2.4))
axes.plot(list(map(str, counts)), [ring(count, 1) for count in counts], marker="o")
axes.axhline(2, color=plots.GRAY, linewidth=1, linestyle="--")
axes.set(ylim=(0, 2.2), xlabel="processes", ylabel="sent by each / gradients")
plt.show()
claim("ring-eight", "What each of eight processes sends in an all-reduce, against its gradients", ring(8, 1), "x",
      kind="derived", at_least=1.74, at_most=1.76)

# %% [markdown]
# Now with models that people train. The table counts the parameters of each on the meta
# device and puts them into the formula, for two links: one like the slowest below, and one
# that is many times as fast. *PowerSGD* is one of the compressions of a later section: of a
# matrix it sends two narrow ones.

# %%
# SmolLM2-135M, a small model that two CPU cores can train
SMOLLM = dict(vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9,
              num_key_value_heads=3, tie_word_embeddings=True, use_cache=False)
MODELS = {
    "SmolLM2-135M": (AutoModelForCausalLM, LlamaConfig(**SMOLLM)),
    "BERT-large": (AutoModelForSequenceClassification, BertConfig(
        hidden_size=1024, intermediate_size=4096, num_hidden_layers=24, num_attention_heads=16)),
    "Llama-1B": (AutoModelForCausalLM, LlamaConfig(
        vocab_size=128256, hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_attention_heads=32,
        num_key_value_heads=8, tie_word_embeddings=True)),
    "Llama-8B": (AutoModelForCausalLM, LlamaConfig(
        vocab_size=128256, hidden_size=4096, intermediate_size=14336, num_hidden_layers=32, num_attention_heads=32,
        num_key_value_heads=8)),
}

# %%
with torch.device("meta"):
    SHAPES = {name: [parameter.shape for parameter in auto.from_config(config).parameters()]
              for name, (auto, config) in MODELS.items()}
PARAMETERS = {name: sum(map(math.prod, shapes)) for name, shapes in SHAPES.items()}

# %%
def power_sgd(shape, rank=4, worth=2):
    """Numbers that PowerSGD all-reduces for one parameter; whole where that is not `worth` times less."""
    if len(shape) < 2:
        return math.prod(shape)
    rows, columns = shape[0], math.prod(shape[1:])
    return (rows + columns) * rank if (rows + columns) * rank * worth < rows * columns else rows * columns


def kept(name):
    """Percent of the numbers that are left for the all-reduce by PowerSGD of rank 4."""
    return 100 * sum(map(power_sgd, SHAPES[name])) / PARAMETERS[name]


sent = {name: ring(8, 4 * count) / 1e9 for name, count in PARAMETERS.items()}
table("sizes", "One all-reduce of fp32 gradients on eight processes, by model",
      {"model": "Model", "parameters": "Parameters, million", "gradients": "Gradients, GB", "sent": "Sent by each, GB",
       "slow": "At 6 GB/s, ms", "fast": "At 50 GB/s, ms", "power": "Left by PowerSGD of rank 4, %"},
      [{"model": name, "parameters": count / 1e6, "gradients": 4 * count / 1e9, "sent": sent[name],
        "slow": 1000 * sent[name] / 6, "fast": 1000 * sent[name] / 50, "power": kept(name)}
       for name, count in PARAMETERS.items()], kind="derived")
claim("power-billion", "Numbers that PowerSGD of rank 4 all-reduces for a Llama of a billion parameters, against all "
      "gradients", kept("Llama-1B"), "%", kind="derived", at_least=0.2, at_most=0.4)

# %% [markdown]
# How to read it: hold the milliseconds of your link beside the time of one micro-batch on
# your GPU. Where they are alike, a second GPU brings little, unless the sending hides.
#
# The last row needs a remark. DDP shards nothing: weights, gradients and AdamW's two moments
# of an 8B model in fp32 are more than most GPUs have. The row is there for comparison, and for
# what LoRA spares.
#
# ## Does a real run send that?
#
# A formula is not a measurement. A small module builds the model and wraps it. Its hook
# sees each *bucket*: DDP copies gradients into buckets in the order in which the backward
# pass makes them, and starts the all-reduce of a bucket as soon as it is full.
#
# The sequences are short here, eight tokens, because the bytes of a step do not depend on
# them. That is the point of the section on two GPUs below.

# %% tags=["measures"]
# %%writefile counted.py
"""A Llama in the shape of SmolLM2-135M under DDP, and a hook that notes what DDP hands to each all-reduce."""
import json
import sys

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel
from transformers import AutoModelForCausalLM, LlamaConfig

torch.set_num_threads(1)
dist.init_process_group("gloo")
CONFIG = LlamaConfig(**json.loads(sys.argv[1]))


def wrapped(hook=None, state=None, **options):
    torch.manual_seed(0)
    ddp = DistributedDataParallel(AutoModelForCausalLM.from_config(CONFIG), **options)
    ddp.register_comm_hook(state, hook or allreduce_hook)
    return ddp


def step(ddp):
    ids = torch.randint(0, CONFIG.vocab_size, (1, 8))
    ddp(input_ids=ids, labels=ids).loss.backward()

# %% tags=["measures"]
# %%writefile -a counted.py


def note_bytes(sizes, bucket):
    """A communication hook that does what DDP does without one, and notes the bytes."""
    sizes.append(bucket.buffer().nbytes)
    return allreduce_hook(None, bucket)

# %% [markdown]
# The first program runs a step for each `bucket_cap_mb`, and reads beside the hook what the
# TCP connections of the process have sent. The first step does not count: after it DDP
# makes its buckets anew, in the order in which the gradients really came.

# %% tags=["measures"]
# %%writefile buckets.py
"""Buckets of a step and the bytes that they put on the wire, for several values of bucket_cap_mb."""
import json
import sys

import torch.distributed as dist
from counted import note_bytes, step, wrapped

from evidence.wire import sent_during

found = {}
for cap in map(int, sys.argv[2:]):
    sizes = []
    ddp = wrapped(note_bytes, sizes, bucket_cap_mb=cap)
    step(ddp)
    step(ddp)
    sizes.clear()
    found[cap] = {"sent": sent_during(step, ddp), "buckets": sizes[:]}
if dist.get_rank() == 0:
    print("FOUND", json.dumps(found))
dist.destroy_process_group()

# %% tags=["measures"]
def found_by(program, *arguments, processes=2):
    """Runs a program on some processes; returns what rank 0 found."""
    run = run_ranks(program, json.dumps(SMOLLM), *arguments, processes=processes, timeout=900,
                    environment={"HF_HUB_OFFLINE": "1"})
    line = next(line for line in run.stdout[0].splitlines() if line.startswith("FOUND "))
    return json.loads(line.removeprefix("FOUND "))


MiB = 2**20
on_two = found_by("buckets.py", 1, 5, 25, 100, 1000)
on_four = found_by("buckets.py", 25, processes=4)
gradients = 4 * PARAMETERS["SmolLM2-135M"]
assert all(sum(seen["buckets"]) == gradients for seen in on_two.values()), "each gradient goes into one bucket, once"
table("buckets", "Gradients of SmolLM2-135M in fp32, one step on two processes, by bucket_cap_mb",
      {"cap": "bucket_cap_mb, MiB", "count": "Buckets", "largest": "Largest bucket, MiB",
       "wire": "Sent by each process, MiB"},
      [{"cap": int(cap), "count": len(seen["buckets"]), "largest": max(seen["buckets"]) / MiB,
        "wire": seen["sent"] / MiB} for cap, seen in on_two.items()], kind="measured")

# %% [markdown]
# Read the last column downwards: the bytes do not depend on the buckets. Read the column
# before it: from some point on a smaller cap makes no smaller largest bucket.
#
# What the sockets sent above the formula is the headers of the messages. If gloo sent
# everything to one process and back, as a parameter server does, four processes would be far
# off the formula, and the claims would fail.

# %% tags=["measures"]
def above_formula(processes, seen):
    """Percent that a process sent more than the formula says."""
    return 100 * (seen["25"]["sent"] / ring(processes, gradients) - 1)


for name, processes, seen in (("wire-two", "two", above_formula(2, on_two)),
                              ("wire-four", "four", above_formula(4, on_four))):
    claim(name, f"Bytes that each of {processes} processes sends in a step above 2(n-1)/n x the gradients", seen, "%",
          kind="measured", at_least=0, at_most=1)

# %% [markdown]
# ## When can it hide?
#
# The gradients of the last layer come first. A bucket that is full early is sent while the
# backward pass goes on with the layers below: this is the *overlap*. The plot shows where in
# the order of the gradients each bucket is full, that is, when its all-reduce can start. The
# distance of the last mark from the end of the line is all that one cannot hide.
#
# Two things limit the overlap. A parameter is never cut, so the embedding, whose gradient
# comes last, makes a bucket that no setting makes smaller. And one bucket for everything
# starts when there is nothing left to hide behind.

# %% tags=["measures"] alt="For each bucket_cap_mb a line with a mark where a bucket is full."
_, axes = plt.subplots(figsize=(7, 2.6))
for row, seen in enumerate(on_two.values()):
    full = [sum(seen["buckets"][: number + 1]) / MiB for number in range(len(seen["buckets"]))]
    axes.plot([0, *full], [row] * (len(full) + 1), marker="|", markersize=12, color=plots.COLORS[row])
axes.set(yticks=range(len(on_two)), yticklabels=[f"{cap} MiB" for cap in on_two], ylabel="bucket_cap_mb",
         xlabel="gradients that the backward pass has made, MiB")
axes.invert_yaxis()
plt.show()

# %% [markdown]
# ## Accumulation, views, and the search for unused parameters
#
# Three switches, each counted on the same model.
#
# - *Accumulation*: the optimizer needs the sum over all micro-batches, and a sum of averages
#   is an average of sums. So only the last micro-batch needs an all-reduce, and `no_sync()`
#   leaves it out of the others.
# - *Views*: a gradient exists twice, as `.grad` and in its bucket, unless
#   `gradient_as_bucket_view=True` makes one of them a window into the other. What it saves
#   is one copy of the gradients.
# - *Search*: a parameter that takes no part in the loss never gets a gradient, and its bucket
#   would never be full. `find_unused_parameters=True` walks the graph after each forward pass
#   and makes the ranks agree on which parameters took part. That is a collective more.

# %% tags=["measures"]
# %%writefile switches.py
"""What no_sync, gradient_as_bucket_view and find_unused_parameters change about a step."""
import contextlib
import json

import torch.distributed as dist
from counted import note_bytes, step, wrapped
from torch.profiler import ProfilerActivity, profile


def reduced(micro_batches, quiet):
    """Bytes handed to all-reduces in some micro-batches, the first `quiet` of them under no_sync()."""
    sizes = []
    ddp = wrapped(note_bytes, sizes)
    for number in range(micro_batches):
        with ddp.no_sync() if number < quiet else contextlib.nullcontext():
            step(ddp)
    return sum(sizes)


def collectives(**options):
    ddp = wrapped(bucket_cap_mb=1000, **options)  # one bucket: the search keeps DDP from making new ones
    for _ in range(2):
        step(ddp)
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        step(ddp)
    return sum("gloo:all_reduce" in event.name for event in profiler.events())

# %% [markdown]
# The memory of gradients and buckets is counted by storage: two tensors that share one count
# once.

# %% tags=["measures"]
# %%writefile -a switches.py


def held(view):
    """Bytes of all gradients and buckets, each storage once."""
    storages = {}

    def note(_, bucket):
        storages[bucket.buffer().untyped_storage().data_ptr()] = bucket.buffer().untyped_storage().nbytes()
        return note_bytes([], bucket)

    ddp = wrapped(note, gradient_as_bucket_view=view)
    for _ in range(3):  # the buckets of the first step are freed
        ddp.zero_grad()
        storages.clear()
        step(ddp)
    gradients = [parameter.grad.untyped_storage() for parameter in ddp.parameters()]
    return sum((storages | {storage.data_ptr(): storage.nbytes() for storage in gradients}).values())


found = {"no_sync": reduced(4, quiet=3), "plain": reduced(4, quiet=0), "once": reduced(1, quiet=0),
         "searched": collectives(find_unused_parameters=True) - collectives(),
         "copied": held(view=False), "viewed": held(view=True)}
if dist.get_rank() == 0:
    print("FOUND", json.dumps(found))
dist.destroy_process_group()

# %% tags=["measures"]
switches = found_by("switches.py")
assert switches["plain"] == 4 * switches["once"], "without no_sync() each micro-batch reduces all gradients"
for name, sentence, value, unit, least, most in (
    ("reduced-no-sync", "All-reduces of the gradients in four micro-batches, the first three under no_sync()",
     switches["no_sync"] / switches["once"], "", 1, 1),
    ("view-saving", "What gradient_as_bucket_view takes off the memory of gradients and buckets",
     100 * (1 - switches["viewed"] / switches["copied"]), "%", 49, 51),
    ("search-collectives", "Collectives that find_unused_parameters=True adds to a step", switches["searched"], "",
     1, 1),
):
    claim(name, sentence, value, unit, kind="measured", at_least=least, at_most=most)

# %% [markdown]
# ## Fewer bytes by compression
#
# A *communication hook* replaces the all-reduce of a bucket. `bf16_compress_hook` casts the
# bucket to 16 bits. PowerSGD replaces a matrix of m x n numbers by two of m x r and r x n:
# `r (m + n)` numbers in place of `m n`. For a matrix of 4,096 x 4,096 and r = 4 that is
# 32,768 in place of 16.8 million. So wide matrices gain most. Vectors, and matrices where it
# does not pay, are sent as they are. What it lost it adds to the gradients of the next step.
#
# What that leaves follows from the shapes alone. The program below checks it on the wire:
# the two columns of bytes in its table must agree, row by row.

# %% tags=["measures"]
# %%writefile hooks.py
"""Communication hooks that send the gradients in fewer bytes, by name: (hook, its state)."""
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook, bf16_compress_hook
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook


def bf16(state, bucket):  # a name of ours: DDP refuses the hook's own name without NCCL
    return bf16_compress_hook(state, bucket)


def hooks(start):
    """start: the step from which PowerSGD compresses; before, it sends all."""
    def power(rank):
        return powerSGD_hook, PowerSGDState(None, matrix_approximation_rank=rank, start_powerSGD_iter=start)

    return {"none": (allreduce_hook, None), "bf16": (bf16, None), "PowerSGD, rank 4": power(4),
            "PowerSGD, rank 1": power(1)}

# %% tags=["measures"]
# %%writefile compressed.py
"""Bytes on the wire in a step of DDP, by compression of the gradients."""
import json

import torch.distributed as dist
from counted import step, wrapped
from hooks import hooks

from evidence.wire import sent_during

found = {}
for name, (hook, state) in hooks(start=2).items():
    ddp = wrapped(hook, state, bucket_cap_mb=1000)  # one bucket: the order of PowerSGD's collectives is then fixed
    for _ in range(3):
        step(ddp)
    found[name] = sent_during(step, ddp)
    del ddp, hook, state
if dist.get_rank() == 0:
    print("FOUND", json.dumps(found))
dist.destroy_process_group()

# %% tags=["measures"] alt="Bars of MB sent by each process and step: bf16 sends less, PowerSGD hardly anything."
compressed = found_by("compressed.py")
expected = {"none": gradients, "bf16": gradients / 2} | {
    f"PowerSGD, rank {rank}": 4 * sum(power_sgd(shape, rank) for shape in SHAPES["SmolLM2-135M"]) for rank in (4, 1)}
table("compression", "Gradients of SmolLM2-135M on two processes, by communication hook",
      {"way": "Hook", "wire": "Sent by each process and step, MB", "formula": "From the shapes, MB",
       "share": "Against none, %"},
      [{"way": way, "wire": size / 1e6, "formula": expected[way] / 1e6, "share": 100 * size / compressed["none"]}
       for way, size in compressed.items()], kind="measured")
for name, way, least, most in (("bf16-bytes", "bf16", 49, 51), ("power-bytes", "PowerSGD, rank 4", 97, 99.9)):
    claim(name, f"Bytes of a step that a hook saves, {way}, SmolLM2-135M",
          100 * (1 - compressed[way] / compressed["none"]), "%", kind="measured", at_least=least, at_most=most)
plots.bars({way: size / 1e6 for way, size in compressed.items()}, "sent by each process and step, MB")

# %% [markdown]
# ## Is it the same training?
#
# Three questions about losses. They need many steps, so a small model answers them: a Llama
# of three layers that learns the bytes of the reference texts that ship with Python. It
# shows a *behavior*. How large a difference is with your model, you measure with yours.

# %% tags=["measures"]
# %%writefile small.py
"""A small language model of bytes, and its training on any number of ranks, or by one of them alone."""
import pydoc_data.topics

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from transformers import AutoModelForCausalLM, LlamaConfig

torch.set_num_threads(1)
dist.init_process_group("gloo")
RANK, WORLD = dist.get_rank(), dist.get_world_size()
CONFIG = LlamaConfig(vocab_size=256, hidden_size=128, intermediate_size=512, num_hidden_layers=3, num_attention_heads=2)
TEXT = "\n".join(text for _, text in sorted(pydoc_data.topics.topics.items())).encode()


def rows(number, count=8, width=64):
    """A batch of text: the same rows for the same number, on every rank."""
    starts = torch.randint(0, len(TEXT) - width, (count,), generator=torch.Generator().manual_seed(number)).tolist()
    return torch.tensor([list(TEXT[begin : begin + width]) for begin in starts])


def build(seed):
    torch.manual_seed(seed)
    return AutoModelForCausalLM.from_config(CONFIG)

# %% tags=["measures"]
# %%writefile -a small.py


def train(model, steps, rate=2e-3, hook=None, state=None, alone=False):
    """Trains on batches that are dealt out to the ranks, or given whole to this one; returns the mean loss by step."""
    ddp = model if alone else DistributedDataParallel(model, bucket_cap_mb=1000)
    if hook:
        ddp.register_comm_hook(state, hook)
    optimizer, losses = torch.optim.AdamW(model.parameters(), lr=rate), []
    for number in range(steps):
        ids = rows(number) if alone else rows(number)[RANK::WORLD]
        loss = ddp(input_ids=ids, labels=ids).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        loss = loss.detach()
        if not alone:
            dist.all_reduce(loss)
            loss /= WORLD
        losses.append(loss.item())
    return losses


@torch.no_grad()
def held_out(model):
    ids = rows(10**6, count=64)
    return model(input_ids=ids, labels=ids).loss.item()

# %% [markdown]
# First: does dealing out the batch change the loss? One process trains on the whole batch,
# then two and four share the very same rows. A mean of means over equal parts is the mean of
# all, so only the order of the additions differs, in fp32. Dropout is off in this model: with
# it, two processes would draw other masks than one.

# %% tags=["measures"]
# %%writefile same.py
"""The losses of one process with the whole batch, and of all ranks together."""
import json

import torch.distributed as dist
from small import RANK, build, train

alone = train(build(0), 10, alone=True) if RANK == 0 else None
together = train(build(0), 10)
if RANK == 0:
    print("FOUND", json.dumps({"alone": alone, "together": together}))
dist.destroy_process_group()

# %% tags=["measures"]
def difference(processes):
    found = found_by("same.py", processes=processes)
    return 1e6 * max(abs(one - many) / one for one, many in zip(found["alone"], found["together"], strict=True))


for name, processes, count in (("loss-two", "two", 2), ("loss-four", "four", 4)):
    claim(name, f"Largest relative difference between the losses of {processes} processes and of one, the same batch, "
          "ten steps in fp32", difference(count), "ppm", kind="measured", at_most=20)

# %% [markdown]
# Second: what does compression do to the loss? A comparison holds only when every way has
# its best learning rate and when the seeds say how far chance reaches. So each hook trains
# at three rates and from five seeds, and is judged on text that it has not seen.
#
# PowerSGD sends everything for the first steps, `start_powerSGD_iter`, because early gradients
# change direction fast and its narrow matrices would follow too late.

# %% tags=["measures"]
# %%writefile quality.py
"""Held-out loss by hook, learning rate and seed."""
import json

import torch.distributed as dist
from hooks import hooks
from small import RANK, build, held_out, train

STEPS, RATES, SEEDS = 40, (1e-3, 2e-3, 4e-3), range(5)
found = {name: {rate: [] for rate in RATES} for name in hooks(start=10)}
for rate in RATES:
    for seed in SEEDS:
        for name, (hook, state) in hooks(start=10).items():
            model = build(seed)
            train(model, STEPS, rate, hook, state)
            found[name][rate].append(held_out(model))
if RANK == 0:
    print("FOUND", json.dumps(found))
dist.destroy_process_group()

# %% tags=["measures"] alt="Held-out loss of each seed by compression: none and bf16 lie together, PowerSGD of rank 4 a little higher, of rank 1 highest."
quality = found_by("quality.py")
best = {way: min(by_rate.values(), key=lambda losses: sum(losses)) for way, by_rate in quality.items()}
rates = {way: next(float(rate) for rate, losses in quality[way].items() if losses is best[way]) for way in best}
table("compression-loss", "A small byte-level Llama on two processes: held-out loss at the best of three rates, "
      "five seeds", {"way": "Hook", "rate": "Best learning rate", "least": "Least, nats per byte",
                     "mean": "Mean, nats per byte", "most": "Most, nats per byte"},
      [{"way": way, "rate": rates[way], "least": min(losses), "mean": sum(losses) / len(losses), "most": max(losses)}
       for way, losses in best.items()], kind="measured")
_, axes = plt.subplots(figsize=(6, 2.2))
for row, losses in enumerate(best.values()):
    axes.plot(losses, [row] * len(losses), "o", color=plots.COLORS[row])
axes.set(yticks=range(len(best)), yticklabels=list(best), xlabel="held-out loss, nats per byte, one mark per seed")
axes.invert_yaxis()
plt.show()

# %% [markdown]
# bf16 gradients differ from none by less than one seed differs from the next. PowerSGD is
# another matter: count the seeds, each against the same seed without compression.

# %% tags=["measures"]
spread = max(best["none"]) - min(best["none"])
pairs = zip(best["bf16"], best["none"])
assert all(abs(half - plain) < spread for half, plain in pairs), "the guide says that bf16 gradients cost no loss"
claim("power-seeds", "Seeds of five in which the held-out loss with PowerSGD of rank 1 is higher than without "
      "compression, each at its best learning rate",
      sum(power > plain for power, plain in zip(best["PowerSGD, rank 1"], best["none"])), kind="measured",
      at_least=3, at_most=5)

# %% [markdown]
# ## What Trainer plans
#
# The batch of an optimizer step is *per device x processes x micro-batches*. `Trainer`
# counts everything in optimizer steps, so more processes mean fewer steps and a shorter
# warm-up. The installed `Trainer` sets itself up below as rank 0 of n, on PyTorch's fake
# process group, whose collectives send nothing.

# %%
tiny = AutoModelForSequenceClassification.from_config(
    BertConfig(vocab_size=100, hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=1))
tiny.eval()  # no dropout
DATA = [{"input_ids": torch.ones(4, dtype=torch.long), "labels": 0}] * 10_000


@contextlib.contextmanager
def trainer_of(processes, micro_batches):
    """The installed Trainer as rank 0 of some processes."""
    world = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": str(processes), "LOCAL_WORLD_SIZE": str(processes),
             "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}
    with mock.patch.dict(os.environ, world), contextlib.redirect_stderr(io.StringIO()):
        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=processes)
        arguments = TrainingArguments("plans", use_cpu=True, report_to=[], num_train_epochs=3, warmup_steps=0.1,
                                      per_device_train_batch_size=8, gradient_accumulation_steps=micro_batches)
        yield Trainer(model=tiny, args=arguments, train_dataset=DATA)
        dist.destroy_process_group()

# %%
def planned(processes, micro_batches=4):
    with trainer_of(processes, micro_batches) as trainer:
        values = trainer.set_initial_training_values(trainer.args, trainer.get_train_dataloader())
        _, per_epoch, _, _, batch, _, steps = values
    return {"processes": processes, "micro": micro_batches, "batch": batch, "per_epoch": per_epoch, "steps": steps,
            "warmup": trainer.args.get_warmup_steps(steps)}


plans = [planned(processes) for processes in (1, 2, 4, 8, 64)] + [planned(2, 2), planned(4, 1)]
table("plans", "What Trainer plans: 10,000 rows, 8 per device, 3 epochs, warm-up of a tenth",
      {"processes": "Processes", "micro": "Micro-batches", "batch": "Batch", "per_epoch": "Steps per epoch",
       "steps": "Steps", "warmup": "Warm-up steps"}, plans, kind="derived")
claim("warmup-64", "Warm-up steps that Trainer plans on 64 processes for the example",
      next(plan["warmup"] for plan in plans if plan["processes"] == 64), kind="derived", at_least=2, at_most=2)

# %% [markdown]
# Look at the row of 64 processes: the batch has grown with the processes, and the warm-up
# that was a tenth of many steps is hardly a step. The last two rows keep the batch of one
# process: the micro-batches are divided by the number of processes. That is how a run moves to
# more GPUs with its learning rate and its schedule.
#
# `Trainer` also corrects the average for ranks with different numbers of tokens. It counts
# the items of all ranks, multiplies the loss by the number of processes, and leaves the
# division to the model. A model that takes `**kwargs` and ignores them does not divide.

# %% tags=["measures"]
with trainer_of(8, 1) as trainer, torch.no_grad():
    batch = {"input_ids": torch.ones(8, 4, dtype=torch.long), "labels": torch.zeros(8, dtype=torch.long)}
    items = trainer._get_num_items_in_batch([batch], torch.device("cpu"))
    taken = trainer.compute_loss(tiny, dict(batch), num_items_in_batch=items)
claim("trap-8", "The loss of a BERT classifier in Trainer on eight processes against the loss that the model "
      "returned, accepts_loss_kwargs left as it is", (taken / tiny(**batch).loss).item(), "x", kind="measured",
      at_least=7.99, at_most=8.01)

# %% [markdown]
# ## What plain python gives you: DataParallel
#
# Without `torchrun`, on a machine with several GPUs, `Trainer` takes all of them in one
# process: *DataParallel*. `TrainingArguments` are made to believe in four GPUs here. A step
# then has four times the samples that you asked for.
#
# In each step DataParallel sends the weights out, the logits in, the gradients of the logits
# out and the gradients of the weights in. DDP sends gradients, each way. Logits are tokens x
# vocabulary: for the 2 x 1,024 tokens of the second GPU and 50,257 words there are nearly as
# many numbers in them as in GPT-2 itself.

# %%
with mock.patch("torch.cuda.device_count", lambda: 4), mock.patch("torch.cuda.is_available", lambda: False):
    arguments = TrainingArguments("plans", report_to=[], per_device_train_batch_size=8)
    dp_batch = arguments.train_batch_size
    assert arguments.parallel_mode.value == "not_distributed"
with torch.device("meta"):
    gpt2, medium = (4 * sum(p.numel() for p in AutoModelForCausalLM.from_config(
        GPT2Config(n_layer=layers, n_embd=width, n_head=width // 64)).parameters())
        for layers, width in ((12, 768), (24, 1024)))
logits = 2 * 1024 * 50257 * 4  # of the half of the batch that the second GPU has
for name, sentence, value, unit, least, most in (
    ("dp-batch", "Samples of a step with per_device_train_batch_size=8, started by plain python on a machine with four "
     "GPUs", dp_batch, "samples", 32, 32),
    ("gpt2-gradients", "Gradients of GPT-2 in fp32", gpt2 / 1e6, "MB", 497, 498),
    ("dp-bytes", "Over the link between two GPUs in a step of DataParallel, both directions: GPT-2 in fp32, "
     "4 x 1,024 tokens: weights out, logits in, their gradients out, gradients in", 2 * (gpt2 + logits) / 1e9, "GB",
     1.8, 1.85),
    ("ddp-bytes", "Over the link between two GPUs in a step of DDP, both directions: GPT-2 in fp32", 2 * gpt2 / 1e9,
     "GB", 0.99, 1),
):
    claim(name, sentence, value, unit, kind="derived", at_least=least, at_most=most)

# %% [markdown]
# ## Two GPUs that were slower than one
#
# A thread of January 2021 holds two sets of runs. On two RTX 3090 a script trains GPT-2 on as
# many samples: so many steps on one GPU or half as many on two, with NVLink and without
# (`NCCL_P2P_DISABLE=1`). On two TITAN RTX every run has as many steps.
#
# They are old, and the GPUs are. What they show is not: the same two GPUs, the same program,
# and only the tokens per sequence and the link differ.

# %%
THREAD = "https://github.com/huggingface/transformers/issues/9371"
STEPS_ALONE, STEPS_BOTH = 400, 200
RUNS = {  # model, tokens: seconds on 1 GPU, DataParallel, DDP, DDP without NVLink
    ("gpt2", 128): (19.5621, 16.6426, 13.5368, 30.0181),
    ("gpt2", 256): (30.423, 22.6101, 18.6943, 35.4208),
    ("gpt2", 512): (58.0856, 37.6376, 32.3616, 49.1999),
    ("gpt2-medium", 128): (49.3823, 40.5947, 33.4365, 74.9924),
    ("gpt2-medium", 256): (79.6724, 56.0446, 47.7543, 89.3616),
    ("gpt2-medium", 512): (152.6255, 92.4563, 82.1935, 124.1163),
}
table("published", "Time for as many samples, batch 4 per GPU, by tokens per sequence",
      {"model": "Model", "tokens": "Tokens", "one": "1 GPU, s", "dp": "2 GPUs, DataParallel, s",
       "ddp": "2 GPUs, DDP, s", "slow": "2 GPUs, DDP, no NVLink, s"},
      [dict(zip(("model", "tokens", "one", "dp", "ddp", "slow"), (*key, *seconds))) for key, seconds in RUNS.items()],
      kind="cited", source=THREAD)
table("published-speed", "GPT-2 on two GPUs: samples/s against one GPU, by tokens per sequence",
      {"tokens": "Tokens", "ddp": "DDP, NVLink, x", "dp": "DataParallel, NVLink, x", "slow": "DDP, no NVLink, x"},
      [{"tokens": tokens, "ddp": one / ddp, "dp": one / dp, "slow": one / slow}
       for (model, tokens), (one, dp, ddp, slow) in RUNS.items() if model == "gpt2"], kind="derived", source=THREAD)

# %% [markdown]
# Read the last column of the second table: it crosses one. The reason shows in the
# difference of two columns of the first. Without NVLink a step takes longer by a time that
# does not grow with the tokens, and that grows with the parameters: it is communication.
# Gradients over that time is what the link gave, at most.

# %%
def extra(model, tokens):
    """Seconds that a step took longer without NVLink."""
    _, _, ddp, slow = RUNS[model, tokens]
    return (slow - ddp) / STEPS_BOTH


def without_nvlink(tokens):
    """Samples/s of two GPUs without NVLink against one, GPT-2."""
    one, _, _, slow = RUNS["gpt2", tokens]
    return one / slow


LINK = gpt2 / extra("gpt2", 128)
SLOW = "Samples/s of two RTX 3090 without NVLink against one, GPT-2, DDP"
MORE = "What a step takes longer without NVLink"
for name, sentence, value, unit, least, most in (
    ("published-slow", f"{SLOW}, 128 tokens, from the published times", without_nvlink(128), "x", 0.65, 0.66),
    ("published-slow-512", f"{SLOW}, 512 tokens, from the published times", without_nvlink(512), "x", 1.17, 1.19),
    ("extra-128", f"{MORE}, GPT-2, 128 tokens, from the published times", 1000 * extra("gpt2", 128), "ms", 82, 83),
    ("extra-512", f"{MORE}, GPT-2, 512 tokens, from the published times", 1000 * extra("gpt2", 512), "ms", 84, 85),
    ("extra-medium", f"{MORE}, GPT-2 medium, 512 tokens, from the published times",
     1000 * extra("gpt2-medium", 512), "ms", 209, 210),
    ("published-link", "What that link gave at most: bytes of an all-reduce of GPT-2's gradients over the extra time",
     LINK / 1e9, "GB/s", 6, 6.1),
):
    claim(name, sentence, value, unit, kind="derived", source=THREAD, at_least=least, at_most=most)

# %% [markdown]
# Without NVLink a step of 128 tokens and one of 512 pay the same: the gradients do not know how
# long the sequences were. The larger model pays more, with its gradients.
#
# The second set of the thread looks like bad news: as many seconds on two GPUs as on one. But
# every run there has as many *steps*, and a step on two GPUs has twice the samples. Compare
# samples per second, never steps.

# %%
TITAN = {"1 GPU": 102, "2 GPUs, DataParallel, NVLink": 110, "2 GPUs, DDP, NVLink": 101, "2 GPUs, DDP, no NVLink": 131}
table("titan", "Two TITAN RTX, GPT-2, batch 4 per GPU, 200 steps", {"way": "Run", "seconds": "Time, s"},
      [{"way": way, "seconds": seconds} for way, seconds in TITAN.items()], kind="cited", source=THREAD)
claim("titan-nvlink", "Samples/s of two TITAN RTX against one, DDP and NVLink: as many steps of twice the samples",
      2 * TITAN["1 GPU"] / TITAN["2 GPUs, DDP, NVLink"], "x", kind="derived", source=THREAD, at_least=2, at_most=2.1)

# %% [markdown]
# ## A model of the time
#
# Two numbers decide: the time that a step computes and the time that it sends.
#
#     computing = micro-batches x seconds of one
#     sending   = 2 (n-1)/n x gradient bytes / link
#     speedup   = n x computing / (computing + sending - hidden)
#
# At worst nothing is hidden. At best sending hides behind the last backward pass. That is two
# thirds of a micro-batch, because a backward pass has twice the matrix products of a forward
# pass: one for the inputs and one for the weights of each layer.

# %%
def speedup(parameters, seconds_alone, link, gpus=2, gradient_bytes=4, accumulation=1):
    communication = ring(gpus, gradient_bytes * parameters) / link
    computation = accumulation * seconds_alone
    hidden = min(communication, 2 / 3 * seconds_alone)
    return tuple(gpus * computation / (computation + exposed) for exposed in (communication, communication - hidden))

# %% [markdown]
# Is it true? The link comes from one of the published rows, the time alone from the runs on
# one GPU. That predicts the rows without NVLink, five of which the link has not seen. They
# cover two models and three lengths, on both sides of one.

# %% alt="Bars of two GPUs over one, predicted without overlap and published: short sequences are slower on two, and the prediction is a little too good."
rows = []
for (model, tokens), (one, _, _, slow) in RUNS.items():
    size = gpt2 if model == "gpt2" else medium
    worst, at_best = speedup(size / 4, one / STEPS_ALONE, LINK)
    rows.append({"run": f"{model}, {tokens} tokens", "worst": worst, "best": at_best, "published": one / slow})
table("validated", "Two RTX 3090 without NVLink against one: predicted samples/s and published",
      {"run": "Run", "worst": "Predicted, no overlap, x", "best": "Predicted, full overlap, x",
       "published": "Published, x"}, rows, kind="derived", source=THREAD)
plots.bars({row["run"]: {"predicted, no overlap": row["worst"], "published": row["published"]} for row in rows},
           "samples/s of two GPUs against one, x", baseline=1)
claim("validated-gap", "How far the prediction without overlap lies above the published samples/s at most, two RTX "
      "3090 without NVLink", 100 * max(row["worst"] / row["published"] - 1 for row in rows), "%", kind="derived",
      source=THREAD, at_least=0, at_most=20)

# %% [markdown]
# The published runs lie at the prediction *without* overlap, or a little below: one must not
# count on overlap. On these GPUs the copies go through the memory of the host, and the formula
# leaves out the latency of each bucket.
#
# Now the cures, for a small model with little work per step on the same link. Each changes one
# number of the formula. Compare accumulation with the larger batch: at worst they do the same,
# but only the larger batch has a longer backward pass to hide behind.

# %%
EXAMPLE = {"parameters": 124e6, "seconds_alone": 0.050, "link": 6e9}
FIXES = {
    "as it is": {}, "four times the batch per GPU": {"seconds_alone": 0.200}, "accumulation of 4": {"accumulation": 4},
    "gradients in 16 bits": {"gradient_bytes": 2}, "a link of 50 GB/s": {"link": 50e9},
}
predicted = {way: speedup(**EXAMPLE | changed) for way, changed in FIXES.items()}
table("predicted", "Two GPUs against one, 124 million parameters, 50 ms per micro-batch, 6 GB/s: predicted samples/s",
      {"way": "Change", "worst": "No overlap, x", "best": "Full overlap, x"},
      [{"way": way, "worst": worst, "best": at_best} for way, (worst, at_best) in predicted.items()], kind="derived")
for name, way, words, least, most in (
    ("predicted-worst", "as it is", "", 0.75, 0.76),
    ("predicted-accumulated", "accumulation of 4", " with accumulation of 4", 1.41, 1.42),
):
    claim(name, f"Predicted samples/s of two GPUs against one in that example{words}, without overlap",
          predicted[way][0], "x", kind="derived", at_least=least, at_most=most)

# %% [markdown]
# ## What came out, and what to do
#
# - **Divide two times before you rent a second GPU**: bytes of the gradients by the link, and
#   the seconds of a micro-batch. Where the first is longer, two GPUs can be slower than one.
#   Count on no overlap.
# - **More work per all-reduce is the first cure**, and accumulation with `no_sync` gives it
#   without memory. Fewer bytes and a faster link come after it.
# - **Start with `torchrun`.** Plain `python` gives you DataParallel, which sends more and
#   changes your batch.
# - **Keep the batch** when you add processes: divide the micro-batches. Then the losses are
#   those of one process.
# - **Leave `find_unused_parameters` off** and switch `gradient_as_bucket_view` on: the one
#   adds a collective to each step, the other saves a copy of the gradients.
# - **16-bit gradients are a safe saving** on a slow link. PowerSGD saves far more, and is to be
#   tested on your loss first.
# - **Set `accepts_loss_kwargs = False`** on a classifier in `Trainer`, or its loss grows with
#   the number of processes.

# %%
# Compares this run with the published records. In Colab it also offers the record of this machine, to send.
from evidence.finish import finish

finish()
