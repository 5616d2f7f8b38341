# ---
# jupyter:
#   accelerator: GPU
#   colab:
#     gpuType: T4
#   runs_on: gpu
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
# # Debugging
#
# **Where does the time of a training step go, is that good, which numbers overflow, and
# what do the tools cost that tell you?**
#
# A slow run and a run that ends in NaN have one thing in common: the last line of the log
# does not name the cause. A profiler names the operator that takes the time. A table of
# ranges tells which dtype an activation leaves first. Both are cheap to use once, and some
# are too expensive to leave on.
#
# *What to expect.* In a step of a model of real size, matrix products should take most of
# the time. In a step of a tiny model, the calls themselves should, so that a larger batch
# costs little more. A tool that looks at every number should cost much more than one that
# notes when an operator begins and ends.
#
# *How it is measured.* BERT-base trains on random tokens, in fp32, on one CPU thread or on
# the GPU. The variants run in turn, and the fastest repeat counts. Ranges and FLOPs are
# arithmetic and tracing, and need no run.

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
import json
import time

import matplotlib.pyplot as plt
import torch
from torch.cuda import _memory_viz
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, BertConfig, LlamaConfig, logging
from transformers.debug_utils import DebugUnderflowOverflow

from dryrun.tables.hardware import GPUS
from dryrun.tracing import training_step
from evidence.claims import claim, start, table
from evidence.measure import interleaved, one_thread
from evidence.plots import BLUE, GREEN, ORANGE, PURPLE, set_up

logging.set_verbosity_error()
set_up("debugging")
start("debugging")

# %% [markdown]
# ## Which numbers fit into which dtype
#
# A dtype has bits for the size of a number and bits for its digits. fp16 spends few on the
# size, so large activations become `inf` and small gradients become zero. bf16 spends as many
# as fp32 and has fewer digits instead. The two forms of fp8 are the same trade again.
#
# The column on the right is the smallest number that keeps all of its digits. Below it, digits
# get lost, and finally the number is zero.

# %%
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16,
          "fp8, E5M2": torch.float8_e5m2, "fp8, E4M3": torch.float8_e4m3fn}
limits = {name: torch.finfo(dtype) for name, dtype in DTYPES.items()}
table("ranges", "Range and precision of the dtypes of training",
      {"dtype": "dtype", "largest": "Largest number", "digits": "Step from one to the next number",
       "smallest": "Smallest number with all its digits"},
      [{"dtype": name, "largest": f"{each.max:.3g}", "digits": f"{each.eps:.2g}",
        "smallest": f"{each.smallest_normal:.2g}"} for name, each in limits.items()], kind="derived")

# %% [markdown]
# How large may the operands of an attention score be? A score is a sum over the head's
# width. With a width of 128, equal signs and equal sizes, the sum passes the limit of fp16
# when each operand passes the square root of the limit over 128.

# %%
WIDTH = 128
operand = (limits["fp16"].max / WIDTH) ** 0.5
scores = [float(torch.full((WIDTH,), size, dtype=torch.float16) @ torch.full((WIDTH,), size, dtype=torch.float16))
          for size in (0.98 * operand, 1.02 * operand)]
assert scores[0] < float("inf") == scores[1]
claim("fp16-operand", "Size of all operands at which an attention score of 128 products overflows in fp16", operand,
      kind="derived", at_least=22, at_most=23)

# %% [markdown]
# ## Is my throughput good?
#
# Model FLOPs utilization (MFU) is what the model computes, without recomputation, over what
# the GPU could compute in the same time. The rule of thumb counts six FLOPs for each parameter
# and token: two forward, four backward. It leaves out attention. The tracer counts all of it,
# and attention in full where a causal kernel skips half.
#
# The example is published: Llama 3.1 8B on eight H100, by the torchtitan team. It is the
# trace of one sequence of 8,192 tokens.

# %%
TITAN = ("https://github.com/pytorch/torchtitan/blob/31a17bfdb70bab6f62a13d21816a5339b911d6e3/"
         "benchmarks/llama3_h100_202412_torchtitan.md")
PUBLISHED, LENGTH, H100 = 5762, 8192, GPUS["H100 80GB"]
llama = LlamaConfig(vocab_size=128256, hidden_size=4096, intermediate_size=14336, num_hidden_layers=32,
                    num_attention_heads=32, num_key_value_heads=8, max_position_embeddings=LENGTH)
step = training_step(AutoModelForCausalLM, llama, 1, LENGTH, dtype=torch.bfloat16)
per_token = (step.flops["forward"] + step.flops["backward"]) / LENGTH
by_rule = 6 * step.parameters

# %%
claim("titan-speed", "Tokens per second and GPU, Llama 3.1 8B, FSDP2 in bf16 without compile, 8 H100, torchtitan",
      PUBLISHED, "tokens/s", kind="cited", source=TITAN)
claim("titan-mfu", "MFU of this run by the rule of six FLOPs per parameter and token",
      100 * by_rule * PUBLISHED / (H100.tflops * 1e12), "%", kind="derived", source=TITAN, at_least=27, at_most=29)
claim("titan-mfu-traced", "MFU of the same run by the traced FLOPs, which count attention in full",
      100 * per_token * PUBLISHED / (H100.tflops * 1e12), "%", kind="derived", source=TITAN, at_least=30, at_most=40)
claim("flops-above-rule", "FLOPs per token of Llama 3.1 8B at 8,192 tokens, traced, over the rule of six per parameter",
      per_token / by_rule, "x", kind="traced", at_least=1.05, at_most=1.4)
products = step.parameters - llama.vocab_size * llama.hidden_size  # looking up an embedding multiplies nothing
claim("h100-bound", "Tokens per second that no H100 can pass with this model in bf16, from its dense peak alone",
      H100.tflops * 1e12 / (6 * products), "tokens/s", kind="derived", source=H100.source,
      at_least=21000, at_most=23000)

# %% [markdown]
# ## A step, seen by the profiler
#
# BERT-base, two sequences of 128 tokens. `record_function` names the parts of the step, so
# that they show up in the trace beside the operators.

# %% tags=["measures"]
one_thread()
torch.manual_seed(0)
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BATCH, TOKENS = (32 if DEVICE == "cuda" else 2), 128
NAMES = ("forward", "backward", "optimizer")


def bert():
    return AutoModelForSequenceClassification.from_config(BertConfig()).to(DEVICE)


def trainer_of(model, batch=BATCH, tokens=TOKENS):
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    ids = torch.randint(1000, 30000, (batch, tokens), device=DEVICE)
    labels = torch.zeros(batch, dtype=torch.long, device=DEVICE)

    def train():
        with torch.profiler.record_function("forward"):
            loss = model(input_ids=ids, labels=labels).loss
        with torch.profiler.record_function("backward"):
            loss.backward()
        with torch.profiler.record_function("optimizer"):
            optimizer.step()
            optimizer.zero_grad()

    return train


# %% [markdown]
# The first two steps stay out: they allocate, and create the optimizer's state.

# %% tags=["measures"]
plain = trainer_of(bert())
plain(), plain()
with torch.profiler.profile() as profile:
    plain()
clock = "self_device_time_total" if DEVICE == "cuda" else "self_cpu_time_total"
rows = [(row.key, row.count, getattr(row, clock)) for row in profile.key_averages() if row.key not in NAMES]
total = sum(time for _, _, time in rows)
rows = sorted(rows, key=lambda row: -row[2])[:6]
table("operators", "Operators of one training step of BERT-base that take most of its time",
      {"operator": "Operator", "calls": "Calls", "share": "Share of the time, %"},
      [{"operator": name, "calls": calls, "share": 100 * time / total} for name, calls, time in rows], kind="measured")

# %% [markdown]
# Which of them are matrix products? On a CPU their names say so. On a GPU a kernel has
# another name, and the operator that started it is the row above in the trace.

# %% tags=["measures"]
PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "attention", "gemm", "cutlass", "sgemm", "nvjet")
in_products = sum(getattr(row, clock) for row in profile.key_averages() if any(word in row.key for word in PRODUCTS))
claim("products-share", "Share of the time of a training step of BERT-base in matrix products and attention",
      100 * in_products / total, "%", kind="measured", at_least=30, at_most=99)

# %% [markdown]
# The picture that a trace viewer draws, in its simplest form: the parts of the step over
# time, and under them the operators.

# %% tags=["measures"] alt="A step of BERT-base on a time line: forward, backward and optimizer, and below them the matrix products, which fill the first two."
events = [event for event in profile.events() if event.device_type == torch.autograd.DeviceType.CPU]
parts = [event for event in events if event.name in NAMES]
begin = min(event.time_range.start for event in parts)
_, axes = plt.subplots(figsize=(7, 2.2))
for lane, chosen in enumerate((parts, [event for event in events if "mm" in event.name])):
    for event in chosen:
        color = dict(zip(NAMES, (BLUE, ORANGE, GREEN))).get(event.name, PURPLE)
        span = ((event.time_range.start - begin) / 1000, (event.time_range.end - event.time_range.start) / 1000)
        axes.broken_barh([span], (-lane - 0.4, 0.8), color=color)
for event in parts:
    axes.text((event.time_range.start - begin) / 1000, 0.5, event.name, fontsize="small")
axes.set_yticks([0, -1], ["parts", "matrix products"])
axes.set_ylim(-1.5, 0.9)
axes.set_xlabel("milliseconds of one step of BERT-base")
plt.show()

# %% [markdown]
# ## A trace, read by a program
#
# A viewer shows a trace to people. The file is JSON, so a program can read it too. Here the
# loop has a fault on purpose: each row of the data sleeps, as a slow disk or a tokenizer in
# the loop would. The model is small. What should one see? A part called `data` in which no
# operator runs.

# %% tags=["measures"]
class SlowRows(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, row):
        time.sleep(0.05)
        return torch.arange(TOKENS) + row


SLIM = BertConfig(hidden_size=256, intermediate_size=1024, num_hidden_layers=2, num_attention_heads=4, vocab_size=1000)
slim = AutoModelForSequenceClassification.from_config(SLIM).to(DEVICE)
slim_optimizer = torch.optim.AdamW(slim.parameters(), fused=True)
batches = iter(torch.utils.data.DataLoader(SlowRows(), batch_size=4))

# %% [markdown]
# Each part of the step gets a name. The third step is recorded, and the trace exported.

# %% tags=["measures"]
def slow_step():
    with torch.profiler.record_function("data"):
        ids = next(batches).to(DEVICE)
    with torch.profiler.record_function("forward"):
        loss = slim(input_ids=ids, labels=torch.zeros(len(ids), dtype=torch.long, device=DEVICE)).loss
    with torch.profiler.record_function("backward"):
        loss.backward()
    with torch.profiler.record_function("optimizer"):
        slim_optimizer.step()
        slim_optimizer.zero_grad()


slow_step(), slow_step()
with torch.profiler.profile() as profile:
    slow_step()
    if DEVICE == "cuda":
        torch.cuda.synchronize()
profile.export_chrome_trace("trace.json")

# %% [markdown]
# Times in the file are microseconds. `user_annotation` marks the parts that we named,
# `cpu_op` an operator, `kernel` what ran on a GPU. Operators contain others, so spans that
# overlap become one.

# %% tags=["measures"]
with open("trace.json") as file:
    written = [event for event in json.load(file)["traceEvents"] if event.get("ph") == "X"]
step_parts = [event for event in written if event["name"] in ("data", *NAMES) and event["cat"] == "user_annotation"]
first = min(event["ts"] for event in step_parts)
whole = max(event["ts"] + event["dur"] for event in step_parts) - first
category = "kernel" if DEVICE == "cuda" else "cpu_op"
runs = [event for event in written if event["cat"] == category and event["ts"] >= first]


def spans(events):
    """Begin and end of what runs without a pause that an eye could see."""
    joined = []
    for begun, ended in sorted((event["ts"], event["ts"] + event["dur"]) for event in events):
        if joined and begun <= joined[-1][1] + whole / 200:
            joined[-1][1] = max(joined[-1][1], ended)
        else:
            joined.append([begun, ended])
    return joined

# %% [markdown]
# Three lanes: the named parts, the time in which any operator runs, and that of matrix products.

# %% tags=["measures"]
lanes = [("Parts", event["ts"], event["ts"] + event["dur"], event["name"], event["name"].capitalize())
         for event in sorted(step_parts, key=lambda event: event["ts"])]
lanes += [("Operators", begun, ended, "", "An operator runs") for begun, ended in spans(runs)]
in_a_product = [event for event in runs if any(word in event["name"] for word in PRODUCTS)]
lanes += [("Products", begun, ended, "", "A matrix product runs") for begun, ended in spans(in_a_product)]
table("trace", "One training step with slow data, from the exported trace",
      {"lane": "Lane", "start": "Start, ms", "length": "Length, ms", "label": "Name", "kind": "Kind"},
      [{"lane": lane, "start": (begun - first) / 1000, "length": (ended - begun) / 1000, "label": label, "kind": kind}
       for lane, begun, ended, label, kind in lanes], kind="measured")
in_data = sum(event["dur"] for event in step_parts if event["name"] == "data")
claim("data-share", "Share of the time of a training step with slow data in the part that loads them",
      100 * in_data / whole, "%", kind="measured", at_least=20, at_most=95)

# %% [markdown]
# ## A memory snapshot, read by a program
#
# A snapshot lists every allocation and every free, in order. Replayed, they give the memory
# at each moment. On a GPU the allocator records them. On a CPU the profiler does, and PyTorch
# converts its record into the format of a snapshot, with a category for each allocation.

# %% tags=["measures"]
slow_step()  # the gradients of the step before are gone, the optimizer's state is there
if DEVICE == "cuda":
    torch.cuda.memory._record_memory_history(max_entries=100_000)
    slow_step()
    snapshot = torch.cuda.memory._snapshot()
    torch.cuda.memory._record_memory_history(enabled=None)
    device = torch.cuda.current_device()
else:
    with torch.profiler.profile(profile_memory=True, with_stack=True, record_shapes=True) as profile:
        slow_step()
    snapshot = _memory_viz._profile_to_snapshot(profile)
    device = len(snapshot["device_traces"]) - 1

# %% [markdown]
# What was there before the recording began is not among the events. It follows from the end:
# what is alive then, less what was allocated, plus what was freed.

# %% tags=["measures"]
BANDS = {"gradient": "gradients", "activation": "activations", "parameter": "before", "optimizer_state": "before"}
changes = [event for event in snapshot["device_traces"][device] if event["action"] in ("alloc", "free_completed")]
at_the_end = sum(block["size"] for segment in snapshot["segments"] if segment["device"] == device
                 for block in segment["blocks"] if block["state"] == "active_allocated")
net = sum(event["size"] if event["action"] == "alloc" else -event["size"] for event in changes)
held = dict.fromkeys(("before", "gradients", "activations", "others"), 0) | {"before": at_the_end - net}
alive, replayed = {}, []
for number, event in enumerate(changes):
    if event["action"] == "alloc":
        band = alive[event["addr"]] = BANDS.get(event.get("category"), "others")
        held[band] += event["size"]
    else:
        held[alive.pop(event["addr"], "before")] -= event["size"]
    replayed.append({"event": number} | {name: size / 2**20 for name, size in held.items()})
peak = max(replayed, key=lambda row: sum(row.values()) - row["event"])
every = max(1, len(replayed) // 150)
table("snapshot", "Memory of one training step, replayed from a snapshot",
      {"event": "Allocations and frees", "before": "Weights and optimizer state, MiB", "gradients": "Gradients, MiB",
       "activations": "Activations, MiB", "others": "Others, MiB"},
      [row for number, row in enumerate(replayed) if number % every == 0 or row is peak], kind="measured")
assert min(min(row.values()) for row in replayed) >= 0, "more was freed than there was"

# %% [markdown]
# ## Bound by the calls, or by the arithmetic?
#
# The test needs no profiler: double the batch. If the time of a step doubles too, arithmetic or
# memory is the limit. If it takes about as long as before, the time goes into starting
# operators. The second model has layers so small, and sequences so short, that this must happen.

# %% tags=["measures"] alt="Time of a step against batch size: that of BERT-base grows with the batch, that of a tiny model hardly."
SMALL = BertConfig(hidden_size=64, intermediate_size=128, num_hidden_layers=12, num_attention_heads=2)
BATCHES = (1, 2, 4, 8)
torch.manual_seed(0)
steps = {}
for batch in BATCHES:
    small = AutoModelForSequenceClassification.from_config(SMALL).to(DEVICE)
    steps["tiny", batch] = trainer_of(small, batch, tokens=16)
    steps["BERT-base", batch] = trainer_of(bert(), batch)
timings = interleaved(steps, repeats=3)
growth = {name: [timings[name, batch].best / timings[name, 1].best for batch in BATCHES]
          for name in ("tiny", "BERT-base")}
table("doubling", "Time of a training step over its time at batch size 1",
      {"batch": "Batch size", "tiny": "Tiny layers, short sequences, x", "base": "BERT-base, 128 tokens, x"},
      [{"batch": batch, "tiny": tiny, "base": base}
       for batch, tiny, base in zip(BATCHES, growth["tiny"], growth["BERT-base"])], kind="measured")
for name, values in growth.items():
    plt.plot(BATCHES, values, "o-", label=name)
plt.xlabel("batch size")
plt.ylabel("time of a step, x")
plt.legend()
plt.show()

# %% [markdown]
# ## What do the tools cost?
#
# The same step of BERT-base with each of them on. The profiler notes when operators begin and
# end. Anomaly detection keeps the stack of every forward operator and looks at every gradient.
# `DebugUnderflowOverflow` reads every weight, input and output of every module.

# %% tags=["measures"]
watched_model = bert()
watcher = DebugUnderflowOverflow(watched_model)
watched = trainer_of(watched_model)


def profiled():
    with torch.profiler.profile():
        plain()


def anomaly():
    with torch.autograd.detect_anomaly(check_nan=True):
        plain()


tools = interleaved({"none": plain, "profiler": profiled, "anomaly": anomaly, "watcher": watched}, repeats=3)
cost = {name: timing.best / tools["none"].best for name, timing in tools.items()}
assert cost["watcher"] > 1, "it reads every number and still costs nothing"
LABELS = {"profiler": "torch.profiler", "anomaly": "anomaly detection", "watcher": "DebugUnderflowOverflow"}
table("tool-costs", "Time of a training step of BERT-base with a tool over that of a plain one",
      {"tool": "Tool", "cost": "Time of a step, x"},
      [{"tool": label, "cost": round(cost[name], 1)} for name, label in LABELS.items()], kind="measured")

# %% [markdown]
# ## What came out, and what to do
#
# - *Ranges.* fp16 is the only 16-bit dtype that overflows at activations which models really
#   have. Prefer bf16 where the hardware has it.
# - *MFU.* Compute it before you tune. It takes one line, and tells how much there is to gain.
# - *The step.* In a model of real size, matrix products are the largest part. If a trace
#   shows anything else on top, start there.
# - *A trace* is a file that a program can read too. Look first where no operator runs.
# - *A snapshot*, replayed, shows when the memory is at its peak and what fills it then.
# - *Doubling the batch* separates the two reasons for a slow step without any tool.
# - *The tools* are for a few steps. Switch them off afterwards.

# %%
# Compares this run with the published records. In Colab it also offers the record of this machine, to send.
from evidence.finish import finish

finish()
