# ---
# jupyter:
#   needs: [peft]
#   runs_on: cpu, several processes on one machine stand for several machines
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
# # Training on many CPUs
#
# **What must the network between CPU processes carry in a step, and which way of sending less
# pays?**
#
# Two real processes train BERT-base with random weights on two cores of this machine, by gloo.
# Where the machine allows a network namespace, their network is also slowed to that of a cable
# between two nodes. No GPU is used, even where there is one.
#
# What to expect:
#
# - Bytes and FLOPs of a step both grow with the parameters. So the network that you need
#   depends on your *tokens* and your FLOP/s, and not on the size of the model.
# - On a slow network DDP on two nodes can be slower than one node.
# - What sends less is faster there. What averages less often trains another model.
#
# How it is measured: wall time, because waiting is the question, and the fastest repeat. The
# bytes are those that the TCP connections of a process had acknowledged. The two processes take
# one thread each, unless a row says otherwise.

# %%
# Installs what this notebook needs where it is not there yet (Colab, an empty folder). Colab's torch stays as it is.
import importlib.util
import os
import subprocess
import sys

PINS = {"transformers": "5.23.0", "accelerate": "1.15.0", "peft": "0.21.2"}
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
# And the packages of this notebook that are missing.
needs = {"peft": "peft==0.21.2"}
missing = [needed for name, needed in needs.items() if importlib.util.find_spec(name) is None]
if missing:
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", *missing], check=True)

# %%
import json
import logging
import os
import shutil
import tempfile
import warnings

os.chdir(tempfile.mkdtemp())  # where the programs go

import matplotlib.pyplot as plt
import torch

logging.disable(logging.WARNING)
warnings.simplefilter("ignore")

from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, BertConfig, LlamaConfig

from evidence import plots
from evidence.claims import claim, start, table
from evidence.launch import run_ranks

plots.set_up("many_cpus")
start("many_cpus")

# %% [markdown]
# ## How fast must the network be?
#
# A ring all-reduce sends `2(n-1)/n` of the gradients from each of n processes. It can hide
# behind the backward pass of the last micro-batch, because gradients of the last layers are
# ready while the first layers still compute.
#
# The forward pass takes a multiplication and an addition for each parameter and token. The
# backward pass has two such products, one for the gradients of the inputs and one for those
# of the weights. Frozen weights need only the first.
#
#     sent     = 2 (n-1)/n x bytes per gradient x trained parameters
#     backward = (2 x parameters + 2 x trained) x tokens / FLOP/s
#     needed   = 8 x sent / backward                                  in bits per second
#
# Parameters stand above and below the line of the last fraction, and cancel. What is left is
# tokens and FLOP/s: a process that computes long between two all-reduces can afford a slow
# network, and a fast processor needs a fast one.
#
# The formula leaves out latency, stragglers and switches that are shared. It says what a network
# must have at least.

# %%
def network(parameters, tokens, tflops, trained=None, processes=2, gradient_bytes=4, accumulation=1):
    """What a step of one of `processes` sends and computes.

    tokens: of a micro-batch of one process. tflops: what the process reaches in training, in TFLOP/s, not its peak.
    trained: parameters with a gradient, if not all (LoRA). Returns megabytes sent, seconds of computation, and the
    bandwidth in Gbit/s that hides the sending behind the backward pass of the last micro-batch.
    """
    trained = parameters if trained is None else trained
    sent = 2 * (processes - 1) / processes * gradient_bytes * trained
    forward = 2 * parameters * tokens / (tflops * 1e12)
    backward = (2 * parameters + 2 * trained) * tokens / (tflops * 1e12)
    return {"sent": sent / 1e6, "seconds": accumulation * (forward + backward), "needed": 8 * sent / backward / 1e9}

# %% [markdown]
# BERT-base and a Llama of 1.2 billion parameters, 1,024 tokens per process and step. LoRA of
# rank 16 on every linear layer of the Llama's blocks has 16 x (inputs + outputs) parameters for
# each. The three right-hand columns are for a core or two, a socket, and a socket with bf16
# units.
#
# The forward and backward pass of one micro-batch at one TFLOP/s is the column of computation.
# The plan has two times for sending, over a network of one and of ten Gbit/s, next to the time
# of computing. Where sending is the longer one, no overlap can hide it.

# %%
LLAMA_1B = LlamaConfig(vocab_size=128256, hidden_size=2048, intermediate_size=8192, num_hidden_layers=16,
                       num_attention_heads=32, num_key_value_heads=8, tie_word_embeddings=True)
with torch.device("meta"):
    bert, llama = AutoModelForMaskedLM.from_config(BertConfig()), AutoModelForCausalLM.from_config(LLAMA_1B)
BERT, LLAMA = (sum(p.numel() for p in model.parameters()) for model in (bert, llama))
LORA = sum(16 * sum(layer.weight.shape) for layer in llama.model.modules() if isinstance(layer, torch.nn.Linear))
WAYS = {
    "BERT-base": {"parameters": BERT},
    "BERT-base, 16-bit gradients": {"parameters": BERT, "gradient_bytes": 2},
    "BERT-base, 8 micro-batches": {"parameters": BERT, "accumulation": 8},
    "Llama-1B": {"parameters": LLAMA},
    "Llama-1B, LoRA of rank 16": {"parameters": LLAMA, "trained": LORA},
}

# %%
def planned(way, options):
    slow, step, fast = (network(tokens=1024, tflops=tflops, **options) for tflops in (0.1, 1, 5))
    return {"way": way, "sent": step["sent"], "slow": step["sent"] / 125, "fast": step["sent"] / 1250,
            "seconds": step["seconds"], "tenth": slow["needed"], "one": step["needed"], "five": fast["needed"]}


plan = {way: planned(way, options) for way, options in WAYS.items()}
table("plan", "Two processes of 1,024 tokens each: what a step sends, and the network that hides it behind the "
      "backward pass", {"way": "Training", "sent": "Sent by each, MB", "seconds": "Computation at 1 TFLOP/s, s",
               "slow": "Sending at 1 Gbit/s, s", "fast": "Sending at 10 Gbit/s, s",
               "tenth": "Needed at 0.1 TFLOP/s, Gbit/s", "one": "Needed at 1 TFLOP/s, Gbit/s",
               "five": "Needed at 5 TFLOP/s, Gbit/s"}, list(plan.values()), kind="derived")

# %% [markdown]
# How to read it:
#
# - *BERT-base and the Llama*: the larger model sends far more, and both need the same network.
# - *Micro-batches*: they lengthen the computation, not the last backward pass, so they need the
#   same network to *hide* the sending. They win because what is not hidden comes once in a
#   longer step.
# - *LoRA*: hardly any gradients, and two thirds of the FLOPs. The network hardly matters.
# - *The column of your FLOP/s*: where it exceeds your network, the difference is waiting.

# %%
PLAN, bert_row = "two processes of 1,024 tokens at 1 TFLOP/s", plan["BERT-base"]
unhidden = bert_row["slow"] / (bert_row["slow"] + bert_row["seconds"])
for name, sentence, value, unit, least, most in (
    ("bert-sent", "Gradients that each of two processes sends in a step of BERT-base in fp32", bert_row["sent"], "MB",
     437, 439),
    ("bert-needed", f"Bandwidth that hides the all-reduce of BERT-base behind the backward pass, {PLAN}",
     bert_row["one"], "Gbit/s", 7.8, 7.9),
    ("bert-sixteen", "The same bandwidth with 16 processes", network(BERT, 1024, 1, processes=16)["needed"], "Gbit/s",
     14.6, 14.7),
    ("bert-slow-share", f"Share of a step that is sending, BERT-base, {PLAN}, 1 Gbit/s, nothing hidden", 100 * unhidden,
     "%", 83, 84),
    ("lora-numbers", "Gradients of LoRA of rank 16 on all linear layers against all gradients of a Llama of 1.2 "
     "billion parameters", 100 * LORA / LLAMA, "%", 0.9, 0.93),
    ("lora-needed", "Bandwidth that hides the all-reduce of LoRA of rank 16 behind the backward pass, Llama-1B, "
     f"{PLAN}", plan["Llama-1B, LoRA of rank 16"]["one"], "Gbit/s", 0.13, 0.15),
    ("wide-batch", "Tokens per process and micro-batch at which 1 Gbit/s hides the all-reduce of fp32 gradients, two "
     "processes at 1 TFLOP/s, any number of parameters", 1024 * bert_row["one"], "tokens", 7999, 8001),
):
    claim(name, sentence, value, unit, kind="derived", at_least=least, at_most=most)

# %% [markdown]
# The plot is the same for any speed of a process. Find yours on the horizontal axis: it is what
# you *reach* in training, and a cell below measures it for one core of this machine. To measure
# yours, time a step and divide `6 x parameters x tokens` by its seconds.
#
# The gray lines are common networks. A training below the line of your network can hide its
# all-reduce; one above waits for it.

# %% alt="The network that hides all communication against a process's speed, on log scales: BERT-base needs most, with 16-bit gradients less, LoRA least."
_, axes = plt.subplots(figsize=(7, 3))
rates = [0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10]
for way in ("BERT-base", "BERT-base, 16-bit gradients", "Llama-1B, LoRA of rank 16"):
    needed = [network(tokens=1024, tflops=rate, **WAYS[way])["needed"] for rate in rates]
    axes.plot(rates, needed, marker="o", label=way)
for speed in (1, 10, 100):
    axes.axhline(speed, color=plots.GRAY, linewidth=0.7)
axes.set(xscale="log", yscale="log", xlabel="TFLOP/s of a process in training", ylabel="Gbit/s that hide it all")
axes.legend()
plt.show()

# %% [markdown]
# ## One run, or two?
#
# Before any speed: are two processes one run? `Trainer` looks for GPUs first. On a machine
# without one it joins the other process only with `use_cpu=True`; without it each process
# trains its own model on all of the data, and nothing fails. Two logs of a falling loss look
# like a working run.
#
# The program asks `TrainingArguments` and `Trainer` what they make of the same two processes,
# once with the argument and once without. The total batch and the steps per epoch give it away.

# %% tags=["measures"]
# %%writefile one_run.py
"""What TrainingArguments makes of two processes of torchrun, with use_cpu and without."""
import json
import logging

import torch

logging.disable(logging.WARNING)
from accelerate.state import AcceleratorState
from transformers import AutoModelForMaskedLM, BertConfig, Trainer, TrainingArguments

tiny = BertConfig(vocab_size=100, hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=1)
data = [{"input_ids": torch.ones(4, dtype=torch.long), "labels": torch.ones(4, dtype=torch.long)}] * 64
found = []
for way, options in (("use_cpu=True", {"use_cpu": True}), ("without use_cpu", {})):  # the first starts gloo
    arguments = TrainingArguments("out", per_device_train_batch_size=4, report_to=[], **options)
    trainer = Trainer(model=AutoModelForMaskedLM.from_config(tiny), args=arguments, train_dataset=data)
    found.append({"way": way, "mode": arguments.parallel_mode.value, "world": arguments.world_size,
                  "batch": trainer.get_total_train_batch_size(arguments), "steps": len(trainer.get_train_dataloader())})
    AcceleratorState._reset_state(reset_partial_state=True)
print("FOUND", json.dumps(found))

# %% tags=["measures"]
ON_CPU = {"CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1"}


def found_in(text):
    line = next(line for line in text.splitlines() if line.startswith("FOUND "))
    return json.loads(line.removeprefix("FOUND "))


def found_by(program, *arguments):
    """Runs a program on two processes; returns what rank 0 found."""
    return found_in(run_ranks(program, *arguments, timeout=900, environment=ON_CPU).stdout[0])


runs = found_by("one_run.py")
table("one-run", "What Trainer makes of two processes of torchrun on a machine without a GPU: 64 rows, 4 per device",
      {"way": "TrainingArguments", "mode": "parallel_mode", "world": "world_size", "batch": "Total batch",
       "steps": "Steps per epoch"}, runs[::-1], kind="measured")
assert [run["mode"] for run in runs] == ["distributed", "not_parallel"], "the guide says how to see it"
assert runs[1]["steps"] == 2 * runs[0]["steps"], "the guide says that each process goes through all rows"
for name, words, run, least, most in (("world-with", "with use_cpu=True", runs[0], 2, 2),
                                      ("world-without", "without use_cpu, no GPU", runs[1], 1, 1)):
    claim(name, f"world_size that Trainer sees in each of two processes of torchrun {words}", run["world"],
          kind="measured", at_least=least, at_most=most)

# %% [markdown]
# And the threads: what torchrun makes of `OMP_NUM_THREADS` where nobody has set it. Two
# processes print theirs. The default protects a machine from many processes that take all
# cores each. On a machine with many cores and few processes it leaves most of them idle.

# %% tags=["measures"]
plain = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--no-python",
           "printenv", "OMP_NUM_THREADS"]
printed = subprocess.run(command, env=plain, capture_output=True, text=True, timeout=120, check=True).stdout.split()
claim("omp-default", "Threads that torchrun gives to each of two processes where OMP_NUM_THREADS is not set",
      max(map(int, printed)), "thread", kind="measured", at_least=1, at_most=1)

# %% [markdown]
# ## The ways to train
#
# A module that all programs below share: BERT-base, and ways to train it that differ in what
# they send and when. *DDP* sends all gradients after each micro-batch, in buckets, while the
# backward pass goes on. With *one bucket* it can only begin at the end. *bf16* halves the bytes.
# *LoRA* has few gradients. *Accumulation* sends after four micro-batches. *Local SGD* never
# sends gradients: each process steps by itself, and every eight steps all average their weights.
#
# The model has the size that people train on CPUs. The tokens are random, because neither bytes
# nor seconds depend on them.

# %% tags=["measures"]
# %%writefile ways.py
"""BERT-base with random weights on two cores, and ways to train it that send less."""
import contextlib
import gc
import os
import time

import torch
import torch.distributed as dist
from peft import LoraConfig, get_peft_model
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
from torch.distributed.algorithms.model_averaging.utils import average_parameters
from torch.nn.parallel import DistributedDataParallel
from transformers import AutoModelForMaskedLM, BertConfig

os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])  # two cores for both, however many there are
torch.set_num_threads(1)
dist.init_process_group("gloo")
MICRO_BATCHES = {"accumulation": 4, "local": 8}  # of a step, which sends once


def bf16(state, bucket):  # a name of ours: DDP refuses the hook's own name without NCCL
    return bf16_compress_hook(state, bucket)


def model_of(name):
    gc.collect()  # the model of the way before holds itself in cycles
    torch.manual_seed(0)
    model = AutoModelForMaskedLM.from_config(BertConfig())
    return get_peft_model(model, LoraConfig(r=8, target_modules="all-linear")) if name == "lora" else model

# %% tags=["measures"]
# %%writefile -a ways.py


class Way:
    """One way to train. A step is some micro-batches and one all-reduce, of gradients or of weights."""

    def __init__(self, name, sequences=2, length=128):
        model = model_of(name)
        self.micro_batches, self.averages = MICRO_BATCHES.get(name, 1), name == "local"
        self.ids = torch.randint(1000, 30000, (sequences, length))
        self.optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4)
        cap, alone = (1000 if name == "one" else None), name in ("alone", "local")
        self.model = model if alone else DistributedDataParallel(model, bucket_cap_mb=cap, broadcast_buffers=False)
        self.quiet = contextlib.nullcontext if alone else self.model.no_sync
        if name == "bf16":
            self.model.register_comm_hook(None, bf16)

    def backward(self, send=True):
        with contextlib.nullcontext() if send else self.quiet():
            self.model(input_ids=self.ids, labels=self.ids).loss.backward()

    def step(self):
        for number in range(self.micro_batches):
            last = number == self.micro_batches - 1
            self.backward(send=last)
            if last or self.averages:
                self.optimizer.step()
                self.optimizer.zero_grad()
        if self.averages:
            average_parameters(self.model.parameters(), dist.group.WORLD)

# %% [markdown]
# A step ends with exactly one all-reduce, whatever the way. Under `no_sync()` a backward pass of
# DDP sends nothing and adds to the gradients that are there.
#
# Two helpers. The first two backward passes of DDP do not count, because it makes its buckets
# anew after the first one. And a measured time is that of *all* ranks: it begins and ends with a
# barrier.

# %% tags=["measures"]
# %%writefile -a ways.py


def warm(way):
    for _ in range(2):
        way.backward()
    way.optimizer.zero_grad()
    return way


def wall(work, *arguments, everybody=True):
    """Seconds until all ranks are through; with everybody=False rank 0 works, and the others wait without a core."""
    dist.barrier()
    started = time.perf_counter()
    if everybody or dist.get_rank() == 0:
        work(*arguments)
    dist.barrier()
    return time.perf_counter() - started

# %% [markdown]
# ## What is sent
#
# One step of each way, with a few tokens, because as much is sent with any number of them. The
# bytes are divided by the micro-batches of the step.
#
# What to expect follows from the formula: two processes send their gradients once. So BERT-base
# in fp32 must send the number of the first row of the plan, and so must it with one bucket,
# because buckets change when something is sent and not how much.

# %% tags=["measures"]
# %%writefile sent.py
"""Bytes that this process sends per micro-batch, by way of training."""
import json
import sys

import torch.distributed as dist
from ways import Way, warm

from evidence.wire import sent_during

found = {}
for name in sys.argv[1:]:
    way = warm(Way(name, sequences=1, length=8))
    found[name] = sent_during(way.step) / way.micro_batches
    del way
if dist.get_rank() == 0:
    print("FOUND", json.dumps(found))
dist.destroy_process_group()

# %% tags=["measures"]
NAMES = {"ddp": "DDP", "one": "DDP, one bucket", "bf16": "DDP, bf16 hook", "lora": "LoRA of rank 8",
         "accumulation": "4 micro-batches", "local": "weights averaged every 8 steps"}
wire = found_by("sent.py", *NAMES)
table("sent", "BERT-base on two processes, fp32: bytes that each sends per micro-batch",
      {"way": "Way", "wire": "Sent by each process, MB", "share": "Against DDP, %"},
      [{"way": NAMES[name], "wire": size / 1e6, "share": 100 * size / wire["ddp"]} for name, size in wire.items()],
      kind="measured")
assert 1 < wire["ddp"] / (4 * BERT) < 1.01, "the guide says that each of two processes sends its gradients once"
for name, sentence, key, least, most in (
    ("bf16-sent", "with bf16 gradients", "bf16", 49, 51),
    ("lora-sent", "with LoRA of rank 8 on all linear layers of BERT-base", "lora", 0.5, 2),
):
    claim(name, f"Bytes that a step sends {sentence}, against DDP in fp32", 100 * wire[key] / wire["ddp"], "%",
          kind="measured", at_least=least, at_most=most)

# %% [markdown]
# ## Processes or threads?
#
# The same two cores, in turn: one process of one thread; one of two threads with two times the
# batch; two processes of one thread; two of two threads, which are more threads than cores.
# Threads split each matrix product, and wait for each other after each. Processes split the
# batch, and wait for each other once per step.
#
# Other programs on the same cores would falsify this, so the program also counts what the rest
# of the machine used meanwhile, and the claims are left open where that was much.
#
# The single core has half of the batch, so that no shape is judged by small matrices. While one
# process works alone, the other waits at a barrier and uses no core.

# %% tags=["measures"]
# %%writefile shapes.py
"""Seconds of a step on two cores, by processes x threads; and the CPU time that other programs used meanwhile."""
import json
import time

import psutil
import torch
import torch.distributed as dist
from ways import Way, wall, warm

SHAPES = {"1x1": (1, 2, False), "1x2": (2, 4, False), "2x1": (1, 2, True), "2x2": (2, 2, True)}


def machine_seconds():
    """CPU time that somebody got: user, system, and what a hypervisor took away."""
    times = psutil.cpu_times()
    return times.user + times.nice + times.system + getattr(times, "steal", 0)


def timed(threads, sequences, everybody):
    torch.set_num_threads(threads)
    way.ids = torch.randint(1000, 30000, (sequences, 128))
    way.model = ddp if everybody else ddp.module  # under DDP even no_sync() sends: the buffers, before the forward pass
    cpu = time.process_time()
    return wall(way.step, everybody=everybody), time.process_time() - cpu

# %% tags=["measures"]
# %%writefile -a shapes.py


way = warm(Way("ddp"))
way.step()
ddp = way.model
seconds, cpu = {name: [] for name in SHAPES}, []
began, used, own = time.perf_counter(), machine_seconds(), time.process_time()
for turn in range(3):
    for name, shape in SHAPES.items():
        if name == "2x2" and turn < 2:  # once: it can take minutes
            continue
        elapsed, computed = timed(*shape)
        seconds[name].append(elapsed)
        if name == "1x1":
            cpu.append(computed)
own = torch.tensor(time.process_time() - own, dtype=torch.float64)
dist.all_reduce(own)
others = (machine_seconds() - used - own.item()) / (time.perf_counter() - began)
if dist.get_rank() == 0:
    print("FOUND", json.dumps({"seconds": seconds, "cpu": min(cpu), "others": others}))
dist.destroy_process_group()

# %% tags=["measures"] alt="Bars of samples per second over one core: one process with two threads gains most, two processes less, and too many threads lose."
shapes = found_by("shapes.py")
LABELS = {"1x1": "1 process, 1 thread", "1x2": "1 process, 2 threads", "2x1": "2 processes, 1 thread each",
          "2x2": "2 processes, 2 threads each"}
BATCHES = {"1x1": 2, "1x2": 4, "2x1": 4, "2x2": 4}
best = {name: min(seconds) for name, seconds in shapes["seconds"].items()}
speed = {name: BATCHES[name] / seconds for name, seconds in best.items()}
print(f"other programs used {shapes['others']:.2f} cores meanwhile")
table("shapes", "BERT-base, 2 sequences of 128 tokens per process (4 for one process of two threads), fp32, AdamW",
      {"way": "On two cores", "seconds": "Step, s", "slowest": "Slowest, s", "speed": "Samples/s",
       "against": "Against one core, x"},
      [{"way": LABELS[name], "seconds": best[name], "slowest": max(shapes["seconds"][name]), "speed": speed[name],
        "against": speed[name] / speed["1x1"]} for name in LABELS], kind="measured")
plots.bars({LABELS[name]: speed[name] / speed["1x1"] for name in LABELS}, "samples/s against one core, x", baseline=1)

# %% tags=["measures"]
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
BUSY = shapes["others"] > 0.3  # of a core
NOT_TWO = "this machine has one core" if CORES < 2 else "other programs used the cores meanwhile" if BUSY else None
for name, sentence, left, right, least, most in (
    ("two-processes", "two processes of one thread against one process of one thread", "2x1", "1x1", 0.8, 2.2),
    ("two-threads", "one process of two threads against one of one thread, twice the batch", "1x2", "1x1", 0.5, 2.2),
    ("oversubscribed", "two processes of two threads against two of one thread, on two cores, a single step", "2x2",
     "2x1", 0.005, 1.1),
):
    claim(name, f"Samples/s of {sentence}, BERT-base", None if NOT_TWO else speed[left] / speed[right], "x",
          kind="measured", at_least=least, at_most=most, because=NOT_TWO)
claim("flops", "FLOP/s of one core in training BERT-base, fp32: 6 x parameters x tokens over CPU time, with the "
      "optimizer's step", 6 * BERT * 2 * 128 / shapes["cpu"] / 1e12, "TFLOP/s", kind="measured", at_least=0.01,
      at_most=2)

# %% [markdown]
# ## gloo through memory
#
# Read the row of more threads than cores as a warning. Threads of one process wait for each
# other after each product, and a thread that waits keeps the core that the other process needs.
# This is what happens when every rank of a node takes all cores, which is the default without
# torchrun.
#
# ## gloo through memory
#
# Two processes of one machine, so no cable: what gloo and TCP cost by themselves. The smallest
# all-reduce is all latency, the largest all bandwidth. Compare the bandwidth, times eight, with
# the plan: gloo itself is the limit of a fast network. And latency counts for each bucket, so
# many small buckets cost more than a few large ones.

# %% tags=["measures"]
# %%writefile link.py
"""Seconds of an all-reduce between the processes, by size."""
import json

import torch
import torch.distributed as dist
from ways import wall

found = []
for numbers in (1_000, 250_000, 4_000_000, 16_000_000):
    tensor = torch.ones(numbers)
    found.append([numbers, min([wall(dist.all_reduce, tensor) for _ in range(1 + 7)][1:])])
if dist.get_rank() == 0:
    print("FOUND", json.dumps(found))
dist.destroy_process_group()

# %% tags=["measures"]
link = found_by("link.py")
table("link", "All-reduce of fp32 between two processes of this machine, fastest of seven",
      {"numbers": "Numbers", "time": "Time, ms", "bandwidth": "Bandwidth, GB/s"},
      [{"numbers": numbers, "time": 1000 * seconds, "bandwidth": 4 * numbers / seconds / 1e9}
       for numbers, seconds in link], kind="measured")
(_, small), (largest, long) = link[0], link[-1]
claim("latency", "All-reduce of 1,000 numbers between two processes of this machine", 1000 * small, "ms",
      kind="measured", at_least=0.01, at_most=5)
claim("loopback", "All-reduce of 64 MB of fp32 between two processes of this machine, per process and direction",
      4 * largest / long / 1e9, "GB/s", kind="measured", at_least=0.05, at_most=10)

# %% [markdown]
# ## A slow network
#
# The same two processes in a network namespace, whose loopback device `tc` slows to a cable of
# one or ten Gbit/s. A cable carries each direction, the loopback device both together, so the
# limit is two times that of the cable. Nothing outside of the namespace notices. Only the
# bandwidth is limited, no latency is added, so this network is a good one of its speed.
#
# Each way trains with 256 tokens per process and micro-batch. For a core like those here the
# slower of the two networks is too slow by the formula, and the faster one is not. So both sides
# of the line can be seen.
#
# Every rank updates its weights after its micro-batches, so the optimizer's time is in these
# figures: once per micro-batch in DDP, once in four with accumulation.

# %% tags=["measures"]
# %%writefile slow.py
"""Seconds per micro-batch over a network of so many Gbit/s, by way of training; and of an all-reduce."""
import json
import subprocess
import sys

import torch
import torch.distributed as dist
from ways import Way, wall, warm

gigabits, *names = sys.argv[1:]
if dist.get_rank() == 0:
    limit = ["tbf", "rate", f"{2 * int(gigabits)}gbit", "burst", "256kb", "latency", "50ms"]
    subprocess.run(["tc", "qdisc", "replace", "dev", "lo", "root", *limit], check=True)
dist.barrier()
found = {}
for name in names:
    way = warm(Way(name))
    found[name] = [wall(way.step, everybody=name != "alone") / way.micro_batches for _ in range(3)]
    del way
tensor = torch.ones(4_000_000)
found["all-reduce"] = [wall(dist.all_reduce, tensor) for _ in range(4)][1:]
if dist.get_rank() == 0:
    print("FOUND", json.dumps(found))
dist.destroy_process_group()

# %% tags=["measures"]
# %%writefile launcher.py
"""Starts a program on two processes; runs inside the namespace."""
import sys

from evidence.launch import run_ranks

print(run_ranks(*sys.argv[1:], timeout=900, environment={"CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1"}).stdout[0])

# %% tags=["measures"]
NAMESPACE = ["unshare", "--map-root-user", "--net", "bash", "-c", 'ip link set lo up && exec "$@"', "bash"]
LIMIT = ["tc", "qdisc", "add", "dev", "lo", "root", "tbf", "rate", "2gbit", "burst", "256kb", "latency", "50ms"]
OWN = all(map(shutil.which, ("unshare", "ip", "tc"))) and not subprocess.run([*NAMESPACE, *LIMIT]).returncode
NO_NETWORK = None if OWN else "this machine does not let us have a network namespace and slow it"


def over(gigabits, *names):
    """{way: seconds of the fastest micro-batch} over a network that is limited to so many Gbit/s."""
    if not OWN:
        return {}
    command = [*NAMESPACE, sys.executable, "launcher.py", "slow.py", str(gigabits), *names]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=1000)
    assert ran.returncode == 0, ran.stderr[-3000:]
    return {name: min(seconds) for name, seconds in found_in(ran.stdout).items()}


slow = {1: over(1, "alone", *NAMES), 10: over(10, "alone", "ddp")}

# %% [markdown]
# The samples per second of two processes against one that trains alone and sends nothing. Two
# would be ideal. Below one the second node is a loss: it costs a machine, and the training
# takes longer than on the first node alone.
#
# Compare each way with DDP in the same table, not with two.

# %% tags=["measures"] alt="Bars of two processes over one by network and method: at 1 Gbit/s plain DDP loses, LoRA and fewer exchanges win."
def gain(gigabits, name):
    """Samples/s of two processes against one; None where the network was not slowed."""
    return 2 * slow[gigabits]["alone"] / slow[gigabits][name] if OWN else None


rows = [(10, "ddp"), *((1, name) for name in NAMES)]
table("slow", "BERT-base on two processes over a slowed network against one, 256 tokens per process and micro-batch",
      {"network": "Network, Gbit/s", "way": "Way", "seconds": "Time per micro-batch, s",
       "gain": "Samples/s against one process, x"},
      [{"network": gigabits, "way": NAMES[name], "seconds": slow[gigabits].get(name), "gain": gain(gigabits, name)}
       for gigabits, name in rows], kind="measured")
if OWN:
    plots.bars({f"{gigabits} Gbit/s, {NAMES[name]}": gain(gigabits, name) for gigabits, name in rows},
               "samples/s of two processes against one, x", baseline=1)

# %% tags=["measures"]
for name, way, gigabits, least, most in (
    ("slow-ddp", "ddp", 1, 0.3, 1.7), ("slow-one", "one", 1, 0.3, 1.5), ("slow-bf16", "bf16", 1, 0.4, 1.9),
    ("slow-lora", "lora", 1, 0.8, 4), ("slow-accumulation", "accumulation", 1, 0.5, 2.1),
    ("slow-local", "local", 1, 0.5, 2.1), ("ten-ddp", "ddp", 10, 0.6, 2.1),
):
    claim(name, f"Samples/s of two processes over a network of {gigabits} Gbit/s, {NAMES[way]}, against one process, "
          "BERT-base", gain(gigabits, way), "x", kind="measured", at_least=least, at_most=most, because=NO_NETWORK)
claim("rate-one", "What gloo makes of a network limited to 1 Gbit/s per direction, all-reduce of 16 MB",
      8 * 16e6 / slow[1]["all-reduce"] / 1e9 if OWN else None, "Gbit/s", kind="measured", at_least=0.3, at_most=1.1,
      because=NO_NETWORK)

# %% [markdown]
# Does the arithmetic foretell it? With one bucket nothing can hide, so the time of a step must
# be that of computing plus that of sending. The distance of DDP from that is what its overlap
# hides.
#
# It cannot hide all that the formula allows: gloo's own threads need a core to send, and the
# cores here are busy with the backward pass. On a socket with more cores than ranks use, one is
# left for it.

# %% tags=["measures"]
def foretold():
    """Samples/s of two processes against one at 1 Gbit/s, when nothing is hidden."""
    alone, sending = slow[1]["alone"], 4 * BERT / 125e6
    print(f"{alone:.2f} s of computing and {sending:.2f} s of sending")
    return 2 * alone / (alone + sending)


claim("foretold", "Measured samples/s of DDP with one bucket at 1 Gbit/s against what the arithmetic says without "
      "overlap", gain(1, "one") / foretold() if OWN else None, "x", kind="measured", at_least=0.5, at_most=1.3,
      because=NO_NETWORK)

# %% [markdown]
# ## What sending less often costs
#
# bf16 gradients change rounding, and the notebook on data parallelism finds no loss in it. To
# send less *often* is another training: accumulation takes fewer steps with a larger batch, and
# local SGD lets each process go its own way. A small model of the bytes of Python's reference
# texts shows the direction.
#
# A fair comparison gives each way its best of four learning rates, because a larger batch bears
# a larger one, and five seeds, because chance reaches as far as many a difference. All see as
# many micro-batches, and are judged on text that none has seen.

# %% tags=["measures"]
# %%writefile small.py
"""A small language model of bytes, and the text that comes with Python."""
import pydoc_data.topics

import torch
import torch.distributed as dist
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


def loss_of(model, ids):
    return model(input_ids=ids, labels=ids).loss


def build(seed):
    torch.manual_seed(seed)
    return AutoModelForCausalLM.from_config(CONFIG)

# %% [markdown]
# The three ways differ in two numbers: after how many micro-batches a process steps, and
# whether gradients are averaged before the step or weights after some of them. An average of
# gradients is the one of DDP, written out.
#
# In local SGD the weights of the processes drift apart between two averages, and the moments of
# AdamW are never averaged at all.
#
# Each way is compared with DDP seed by seed: the same weights at the start, the same rows. If the
# sign of the difference changes from seed to seed, the two are about the same.

# %% tags=["measures"]
# %%writefile quality.py
"""Held-out loss by way, learning rate and seed, after as many micro-batches."""
import json

import torch
import torch.distributed as dist
from small import RANK, WORLD, build, loss_of, rows
from torch.distributed.algorithms.model_averaging.utils import average_parameters

STEPS, RATES, SEEDS = 48, (1e-3, 2e-3, 4e-3, 8e-3), range(5)
WAYS = {"ddp": (1, None), "accumulation": (4, None), "local": (1, 8)}  # micro-batches of a step, steps of an average


def average_gradients(parameters, micro_batches):
    flat = torch.cat([parameter.grad.flatten() for parameter in parameters])
    dist.all_reduce(flat)
    parts = (flat / WORLD / micro_batches).split([parameter.numel() for parameter in parameters])
    for parameter, part in zip(parameters, parts):
        parameter.grad.copy_(part.view_as(parameter))

# %% tags=["measures"]
# %%writefile -a quality.py


def train(way, rate, seed):
    micro_batches, period = WAYS[way]
    model = build(seed)
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=rate)
    for number in range(1, STEPS + 1):
        loss_of(model, rows(number)[RANK::WORLD]).backward()
        if number % micro_batches == 0:
            if not period:
                average_gradients(parameters, micro_batches)
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()
            optimizer.zero_grad()
        if period and number % period == 0:
            average_parameters(iter(parameters), dist.group.WORLD)
    with torch.no_grad():
        return loss_of(model, rows(10**6, count=64)).item()


found = {way: {rate: [train(way, rate, seed) for seed in SEEDS] for rate in RATES} for way in WAYS}
if RANK == 0:
    print("FOUND", json.dumps(found))
dist.destroy_process_group()

# %% tags=["measures"]
quality = found_by("quality.py")
losses = {way: min(by_rate.values(), key=sum) for way, by_rate in quality.items()}
rates = {way: next(float(rate) for rate, kept in by_rate.items() if kept is losses[way])
         for way, by_rate in quality.items()}
table("loss", "A small byte-level Llama on two processes: held-out loss after 48 micro-batches, at the best of four "
      "learning rates, five seeds", {"way": "Way", "rate": "Best learning rate", "least": "Least, nats per byte",
                                     "mean": "Mean, nats per byte", "most": "Most, nats per byte"},
      [{"way": NAMES[way], "rate": rates[way], "least": min(kept), "mean": sum(kept) / len(kept), "most": max(kept)}
       for way, kept in losses.items()], kind="measured")


def more(way):
    """What the loss is above that of DDP, seed by seed."""
    return [other - ddp for other, ddp in zip(losses[way], losses["ddp"])]


for name, way, words, least, most in (
    ("accumulation-loss", "accumulation", "4 micro-batches per step", 0.01, 0.6),
    ("local-loss", "local", "weights averaged every 8 steps", -0.05, 0.15),
):
    claim(name, f"Held-out loss with {words} minus that of DDP after as many micro-batches, a small model, each at its "
          "best learning rate, mean of five seeds", sum(more(way)) / 5, "nats per byte", kind="measured",
          at_least=least, at_most=most, spread={"min": min(more(way)), "max": max(more(way)), "repeats": 5})

# %% [markdown]
# ## What came out, and what to do
#
# - **Divide before you buy nodes**: tokens per process and FLOP/s give the network that hides
#   the all-reduce. The size of the model cancels out. More tokens per micro-batch is the cure
#   that costs nothing but memory.
# - **Say `use_cpu=True`** and look at `parallel_mode`, or two processes train two models.
# - **Set `OMP_NUM_THREADS`** to cores divided by processes. More threads than cores are slower
#   than either processes or threads.
# - **On a slow network send less.** LoRA where it learns enough, accumulation or local SGD where
#   your loss allows it, bf16 gradients in any case.
# - **Keep DDP's default buckets**: they hide a part of the sending. One bucket hides none.
# - **Judge accumulation and local SGD by the loss after as many samples.** Both send less often,
#   and both train another model.

# %%
# Compares this run with the published records. In Colab it also offers the record of this machine, to send.
from evidence.finish import finish

finish()
