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
# # Training on one GPU
#
# **What do gradient accumulation, activation checkpointing and 16-bit precision cost in
# time *on this machine*, and do they leave the loss as it is?**
#
# `Trainer` trains BERT, one method after another, and every optimizer step is timed. A
# data-center GPU trains BERT-large at 32 x 512 tokens and a 1B Llama, a smaller GPU
# BERT-large at 8 x 512 tokens, a CPU BERT-base at 8 x 128 tokens. The weights are random,
# because neither time nor memory depends on their values.
#
# What to expect:
#
# - *Accumulation* does the same work in smaller pieces. A machine that was full stays as
#   fast, another gets slower.
# - *Checkpointing* computes most of the forward pass a second time: nearly one part of
#   work on top of three.
# - *16 bits* speed up the matrix products, and nothing else.
# - The loss does not change, up to rounding. A method that learns something else is not a
#   method.
#
# The memory of these steps at full size needs no GPU: it is in the notebook *Memory
# anatomy*.

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
import gc
import tempfile
import time
from typing import NamedTuple

os.chdir(tempfile.mkdtemp())  # what Trainer writes goes there

import torch
from transformers import (
    AutoModelForCausalLM, AutoModelForSequenceClassification, BertConfig, LlamaConfig, PrinterCallback, Trainer,
    TrainerCallback, TrainingArguments, logging, set_seed,
)

from evidence import plots
from evidence.claims import claim, start, table
from evidence.machine import native_bf16
from evidence.measure import interleaved

logging.set_verbosity_error()
logging.disable_progress_bar()
plots.set_up("one_gpu")
start("one_gpu")

# %% [markdown]
# ## The size that fits this machine
#
# For a run of your own, load a real checkpoint:
# `AutoModelForSequenceClassification.from_pretrained("google-bert/bert-large-uncased",
# dtype=torch.float32)`. Dropout is off here, so that all methods compute the same loss
# and can be compared.

# %%
GPU, GiB = torch.cuda.is_available(), 2**30
CAPABILITY = torch.cuda.get_device_capability() if GPU else (0, 0)
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
BERT_BASE = BertConfig(**NO_DROPOUT)
BERT_LARGE = BertConfig(
    hidden_size=1024, intermediate_size=4096, num_hidden_layers=24, num_attention_heads=16, **NO_DROPOUT,
)
LLAMA_1B = LlamaConfig(
    vocab_size=128256, hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_attention_heads=32,
    num_key_value_heads=8, tie_word_embeddings=True,
)


class Setup(NamedTuple):
    label: str
    model_class: type
    config: object
    batch_size: int  # sequences per optimizer step
    length: int  # tokens per sequence


if GPU and torch.cuda.get_device_properties(0).total_memory > 60 * GiB:
    bert = Setup("BERT-large", AutoModelForSequenceClassification, BERT_LARGE, 32, 512)
elif GPU:
    bert = Setup("BERT-large", AutoModelForSequenceClassification, BERT_LARGE, 8, 512)
else:
    bert = Setup("BERT-base", AutoModelForSequenceClassification, BERT_BASE, 8, 128)
    torch.set_num_threads(1)  # one thread and CPU time: comparable also on a busy machine
llama = Setup("1B Llama", AutoModelForCausalLM, LLAMA_1B, 4, 1024)
print(f"{bert.label}, {bert.batch_size} x {bert.length} tokens per optimizer step")

# %% [markdown]
# ## One run
#
# `Trainer` does the work, and a callback reads the clock: wall time around a synchronized
# step on a GPU, CPU time of one thread on a CPU. The first step of each run warms up and
# does not count.
#
# Three steps are few, and enough for time and memory: every step of these shapes does the
# same work.

# %% tags=["measures"]
STEPS, SEEDS = 3, range(3)  # optimizer steps of a run; runs of each method, in turn


class StepClock(TrainerCallback):
    def __init__(self):
        self.seconds = []

    def _now(self):
        if not GPU:
            return time.process_time()
        torch.cuda.synchronize()
        return time.perf_counter()

    def on_step_begin(self, *args, **kwargs):
        self.started = self._now()

    def on_step_end(self, *args, **kwargs):
        self.seconds.append(self._now() - self.started)


def random_text(setup):
    """Rows of random tokens; a language model's labels are its tokens, a classifier's one of two classes."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.randint(1000, setup.config.vocab_size, (STEPS * setup.batch_size, setup.length), generator=generator)
    return [{"input_ids": row, "labels": row if setup is llama else int(row[0] % 2)} for row in rows]

# %% [markdown]
# One line here is not obvious, and a section below is about it: `accepts_loss_kwargs =
# False`. BERT's loss is a mean over the rows, so `Trainer` must divide it by the number
# of micro-batches.

# %% tags=["measures"]
class Run(NamedTuple):
    seconds: list  # of the steps after the first
    losses: list  # of all steps
    memory: tuple  # bytes: allocated and reserved at the peak, of the whole device at the end; None on a CPU


def train(setup, seed=0, dtype=torch.float32, divide_loss=True, **arguments):
    """Trains a fresh model for STEPS optimizer steps."""
    set_seed(seed)
    with torch.device("cuda" if GPU else "cpu"):  # random weights are made there in a fraction of the time
        model = setup.model_class.from_config(setup.config, dtype=dtype)
    if setup is bert and divide_loss:
        model.accepts_loss_kwargs = False
    arguments = TrainingArguments("out", **{
        "max_steps": STEPS, "logging_steps": 1, "save_strategy": "no", "disable_tqdm": True, "use_cpu": not GPU,
        "learning_rate": 2e-5, "seed": seed, "per_device_train_batch_size": setup.batch_size, **arguments,
    })
    clock = StepClock()
    trainer = Trainer(model=model, args=arguments, train_dataset=random_text(setup), callbacks=[clock])
    trainer.remove_callback(PrinterCallback)
    if GPU:
        torch.cuda.reset_peak_memory_stats()
    trainer.train()
    free, total = torch.cuda.mem_get_info() if GPU else (0, 0)
    memory = (torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), total - free) if GPU else (None,) * 3
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    del model, trainer
    gc.collect()
    torch.cuda.empty_cache()
    return Run(clock.seconds[1:], losses, memory)

# %% [markdown]
# ## The methods, in turn
#
# Runs are interleaved, and the fastest step of each method counts: a disturbance only
# makes a step slower. A T4 or V100 has no bf16 in hardware and takes fp16. A CPU without
# it is left out: the notebook on CPUs says how slow it is there.

# %% tags=["measures"]
BF16 = native_bf16()
half = "bf16" if BF16 or not GPU else "fp16"
CHECKPOINT = {"activation_checkpointing": True}


def methods(setup):
    accumulate = {"per_device_train_batch_size": setup.batch_size // 4, "gradient_accumulation_steps": 4}
    found = {"fp32": {}, "accumulation, 4 micro-batches": accumulate, "checkpointing": CHECKPOINT}
    if BF16 or half == "fp16":
        found |= {f"mixed {half}": {half: True}, "all three": accumulate | CHECKPOINT | {half: True}}
    if BF16:
        found["pure bf16"] = {"dtype": torch.bfloat16}
    if CAPABILITY >= (8, 0):
        found["tf32"] = {"tf32": True}
    return found


def ladder(setup):
    """{method: [one run per seed]}."""
    runs = {name: [] for name in methods(setup)}
    for seed in SEEDS:
        print(f"{setup.label}, seed {seed}: each method trains for {STEPS} steps")
        for name, arguments in methods(setup).items():
            runs[name].append(train(setup, seed, **arguments))
            if CAPABILITY >= (8, 0):
                torch.backends.fp32_precision = "ieee"  # tf32=True stays on in the process
    return runs

# %% [markdown]
# Now the runs. Each method trains from the same weights on the same rows, once for each
# seed. A seed draws other weights, so three seeds say whether a difference of the losses
# is one of the method or of the start.

# %% tags=["measures"]
bert_runs = ladder(bert)
llama_runs = ladder(llama) if GPU and bert.batch_size == 32 else {}  # a 1B model needs the large GPU

# %% [markdown]
# *Model FLOPs utilization* is what the step computes, without recomputation, over what
# the machine could compute in that time. The rate that the machine can reach is measured
# here, with one large matrix product per precision. The FLOPs of the step are traced.

# %% tags=["measures"]
from dryrun.tracing import training_step


def matrix_rate(dtype):
    """FLOP/s of a large square matrix product."""
    size = 8192 if GPU else 2048
    a, b = (torch.randn(size, size, device="cuda" if GPU else "cpu").to(dtype) for _ in range(2))
    return 2 * size**3 / interleaved({"product": lambda: a @ b})["product"].best


def fastest(runs):
    return min(seconds for run in runs for seconds in run.seconds)


def show(name, setup, runs):
    traced = training_step(setup.model_class, setup.config, setup.batch_size, setup.length)
    flops = traced.flops["forward"] + traced.flops["backward"]
    rows = [{
        "method": method, "seconds": fastest(kept), "speed": fastest(runs["fp32"]) / fastest(kept),
        "tokens": setup.batch_size * setup.length / fastest(kept), "loss": kept[0].losses[-1],
        "utilization": 100 * flops / fastest(kept) / rates[precision_of(method)],
    } | dict(zip(MEMORY, [size and size / GiB for size in kept[0].memory])) for method, kept in runs.items()]
    columns = {"method": "Method", "seconds": "Step, s", "speed": "Speed against fp32, x", "tokens": "Tokens/s",
               "utilization": "Utilization, %", "loss": f"Loss of step {STEPS}"} | (MEMORY if GPU else {})
    where = "" if GPU else ", one CPU thread"
    table(name, f"One optimizer step of {setup.label}, {setup.batch_size} x {setup.length} tokens, AdamW{where}",
          columns, rows, kind="measured")
    return traced

# %% tags=["measures"]
MEMORY = {"allocated": "Peak allocated, GiB", "reserved": "Peak reserved, GiB", "device": "Device memory, GiB"}


def precision_of(method):
    """The precision of the matrix products of a method."""
    return "tf32" if method == "tf32" else "half" if half in method or method == "all three" else "fp32"


rates = {"fp32": matrix_rate(torch.float32), "half": matrix_rate(torch.bfloat16 if half == "bf16" else torch.float16)}
if CAPABILITY >= (8, 0):
    torch.backends.fp32_precision = "tf32"
    rates["tf32"] = matrix_rate(torch.float32)
    torch.backends.fp32_precision = "ieee"
traced = show("ladder", bert, bert_runs)
if llama_runs:
    show("ladder-llama", llama, llama_runs)

# %% tags=["measures"] alt="Bars of the speed of each method against fp32." chart={"table": "ladder", "x": "method", "y": "speed"}
speeds = {name: {setup.label: fastest(runs["fp32"]) / fastest(runs[name])
                 for setup, runs in ((bert, bert_runs), (llama, llama_runs)) if name in runs} for name in bert_runs}
plots.bars(speeds, "speed of an optimizer step against fp32, x", baseline=1)

# %% [markdown]
# ## The same loss?
#
# A method must not buy speed with another result. The largest relative difference from
# the fp32 loss, over all steps and seeds. Accumulation and checkpointing compute the same
# numbers in another order, so theirs must be tiny. Mixed precision rounds each product,
# so its loss may differ in the third digit.

# %% tags=["measures"]
def difference(name):
    pairs = [(a, b) for run, plain in zip(bert_runs[name], bert_runs["fp32"]) for a, b in zip(run.losses, plain.losses)]
    return max(abs(a - b) / b for a, b in pairs)


for name, method, words, most in (
    ("accumulation-loss", "accumulation, 4 micro-batches", "with 4 accumulated micro-batches", 1e-3),
    ("checkpointing-loss", "checkpointing", "with activation checkpointing", 1e-4),
    ("mixed-loss", f"mixed {half}", "in mixed 16-bit precision", 0.05),
):
    claim(name, f"Largest relative difference of the loss {words} from fp32, {STEPS} steps of {bert.label}, no dropout",
          difference(method) if method in bert_runs else None, kind="measured", at_most=most,
          because="this CPU has no instructions for bf16")

# %% [markdown]
# ## The accumulation trap
#
# `Trainer` asks a model whether it can normalize its loss over all micro-batches, and
# takes `**kwargs` in its `forward` for a yes. BERT's classifier has the `**kwargs` and
# ignores them. Then nobody divides: the loss and its gradients come out too large, by the
# number of micro-batches. `model.accepts_loss_kwargs = False` tells `Trainer` the truth.
#
# Adam hides the error, because the scale of the gradients does not change its update. The
# logged loss shows it, and so does gradient clipping, which then clips every step. The
# run below leaves the line out, on purpose.

# %% tags=["measures"]
undivided = train(bert, divide_loss=False, **methods(bert)["accumulation, 4 micro-batches"])
_ = claim("accumulation-trap", "Loss of BERT's classifier with 4 accumulated micro-batches in Trainer against one "
          "batch, without accepts_loss_kwargs = False", undivided.losses[0] / bert_runs["fp32"][0].losses[0], "x",
          kind="measured", at_least=3.9, at_most=4.1)

# %% [markdown]
# ## The dtype trap
#
# Since transformers 5, `from_pretrained` loads a checkpoint in the dtype it was saved in.
# Many language models are saved in bf16. With `bf16=True` on top, that is *pure* bf16
# training, not mixed precision: no fp32 weights anywhere. What that does at the learning
# rates of fine-tuning is in the notebook *Optimizers*.

# %%
small = BertConfig(hidden_size=64, intermediate_size=256, num_hidden_layers=1, num_attention_heads=1)
AutoModelForSequenceClassification.from_config(small, dtype=torch.bfloat16).save_pretrained("checkpoint")
for asked in ({}, {"dtype": torch.float32}):
    print(asked, "gives", AutoModelForSequenceClassification.from_pretrained("checkpoint", **asked).dtype)

# %% [markdown]
# ## Does the trace tell the truth?
#
# On a GPU: the peak that PyTorch's allocator counts in the fp32 run, against the peak
# traced on fake tensors.

# %% tags=["measures"]
_ = claim("traced-against-allocated", "Peak memory by the allocator against the traced peak, fp32",
      bert_runs["fp32"][0].memory[0] / traced.peak if GPU else None, "x", kind="measured",
      at_least=0.95, at_most=1.1, because="this machine has no GPU")

# %% [markdown]
# ## What others measured on GPUs
#
# Hugging Face published the first table in 2022: BERT-large, 512 sequences of 512 tokens,
# one Tesla V100-SXM2. The versions of torch and transformers are not stated. Memory is
# that of the whole device. The torchtitan team published the second at the end of 2024:
# Llama 3.1 8B on eight H100, two long sequences on each. These H100 are not the usual ones:
# they have more and slower memory, and a lower power limit.
#
# A V100 has no bf16; an H100 has fast 16-bit and 8-bit products. So the first table tells
# how the methods compare, and the second what a GPU of today adds.

# %%
V100 = ("https://github.com/huggingface/transformers/blob/0016acf7ef421c7fe8eff7945de52c71896c3b01/"
        "docs/source/en/perf_train_gpu_one.mdx")
TITAN = ("https://github.com/pytorch/torchtitan/blob/31a17bfdb70bab6f62a13d21816a5339b911d6e3/"
         "benchmarks/llama3_h100_202412_torchtitan.md")
V100_ROWS = {"fp32, batch 4": (8.86, 14949), "4 x batch 1": (7.75, 8681), "4 x batch 1, checkpointing": (5.99, 6775),
             "fp16, batch 4": (18.64, 13939), "4 x batch 1, checkpointing, fp16": (10.09, 7275)}
TITAN_ROWS = {"bf16, FSDP": (5762, 82.4), "+ torch.compile": (6667, 77.0), "+ float8": (8532, 76.8)}
table("v100-2022", "BERT-large, 4 x 512 tokens per optimizer step, Tesla V100 16 GB, 2022",
      {"method": "Method", "samples": "Throughput, samples/s", "memory": "Device memory, MiB"},
      [{"method": method, "samples": row[0], "memory": row[1]} for method, row in V100_ROWS.items()],
      kind="cited", source=V100)
table("h100-2024", "Llama 3.1 8B, selective checkpointing, 8 H100 of 96 GB at 500 W, torchtitan, December 2024",
      {"method": "Method", "tokens": "Throughput per GPU, tokens/s", "memory": "Peak memory, GiB"},
      [{"method": method, "tokens": row[0], "memory": row[1]} for method, row in TITAN_ROWS.items()],
      kind="cited", source=TITAN)

# %% [markdown]
# The ratios of these tables, and what the first source says beside its own:

# %%
ON_V100 = ", BERT-large, one Tesla V100, 2022"
CITED = {
    "v100-checkpointing": ("Time of a step with checkpointing against without, 4 x batch 1", 7.75 / 5.99, "x"),
    "v100-accumulation": ("Time of a step of 4 x batch 1 against batch 4", 8.86 / 7.75, "x"),
    "v100-fp16": ("Speed of a step in mixed fp16 against fp32, batch 4", 18.64 / 8.86, "x"),
    "v100-together-memory": ("What accumulation, checkpointing, fp16 and 8-bit Adam save of the device memory, batch 4",
                             100 * (1 - 5363 / 14949), "%"),
    "v100-together-speed": ("Speed of a step with all of these against fp32, batch 4", 10.35 / 8.86, "x"),
    "v100-rule": ("Slow-down by checkpointing as a rule of thumb", 20, "%"),
    "v100-bytes": ("Bytes per parameter of a mixed-precision AdamW step", 18, "bytes"),
    "v100-weights": ("Bytes per weight in mixed precision", 6, "bytes"),
}
for name, (sentence, value, unit) in CITED.items():
    claim(name, sentence + ON_V100, value, unit, kind="cited", source=V100)
for name, sentence, value in (
    ("h100-compile", "Speed of a step with torch.compile against eager", 6667 / 5762),
    ("h100-float8", "Speed of a step with float8 linear layers against bf16, both compiled", 8532 / 6667),
):
    claim(name, sentence + ", Llama 3.1 8B on 8 H100 of 96 GB at 500 W, December 2024", value, "x", kind="cited",
          source=TITAN)

# %% [markdown]
# ## What came out, and what to do
#
# - **Take 16 bits first.** It is the only method here that makes a step faster, and the
#   loss stays close to fp32. Take fp16 on a V100 or T4, bf16 on everything newer.
# - **Checkpointing and accumulation buy memory with time.** Take them when the batch does
#   not fit, and only then. The loss stays the same up to rounding.
# - **Test the division of the loss** when you accumulate with a model that is not a
#   causal language model.
# - **Print `model.dtype`** before a long run. Weights in bf16 under `bf16=True` are pure
#   bf16.
# - On an H100, `torch.compile` and float8 come after these: others' figures above say how
#   much.

# %%
# Compares this run with the published records. In Colab it also offers the record of this machine, to send.
from evidence.finish import finish

finish()
