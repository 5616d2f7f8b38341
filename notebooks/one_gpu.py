# ---
# jupyter:
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
# What do gradient accumulation, activation checkpointing and mixed precision cost and buy *on this machine*? This
# notebook trains BERT with `Trainer`, one method after another, and times every optimizer step. On a data-centre GPU it
# runs BERT-large at 32 x 512 tokens, on a T4 or the like at 8 x 512 tokens, and on a CPU a small BERT.
#
# The memory of these steps at full size, which needs no GPU, is in the notebook *Memory anatomy*.

# %%
# Installs what this notebook needs where it is not there yet (Colab, an empty folder). Colab's torch stays as it is.
import importlib.util
import os
import subprocess
import sys

if importlib.util.find_spec("evidence") is None:
    source = os.environ.get("EVIDENCE_SOURCE", "git+https://github.com/performance-and-scalability/performance-and-scalability")
    needs = ["transformers==5.23.0", "accelerate==1.15.0", "matplotlib", f"performance-and-scalability @ {source}"]
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", *needs], check=True)

# %%
import gc
import tempfile
import time
from typing import NamedTuple

import matplotlib.pyplot as plt
import torch
from matplotlib_inline.backend_inline import set_matplotlib_formats
from transformers import (
    AutoModelForCausalLM, AutoModelForSequenceClassification, BertConfig, LlamaConfig, PrinterCallback, Trainer, TrainerCallback,
    TrainingArguments, logging, set_seed,
)

from evidence.claims import claim, start, table
from evidence.machine import describe
from evidence.measure import interleaved, rounds
from dryrun.trace import GiB, training_step

logging.set_verbosity_error()
logging.disable_progress_bar()
set_matplotlib_formats("svg")
plt.rcParams["svg.hashsalt"] = "one_gpu"  # the same figure at every run
start("one_gpu")

# %% [markdown]
# ## The size that fits this machine
#
# The weights are random: speed and memory do not depend on them. For your own run, take a real checkpoint:
# `AutoModelForSequenceClassification.from_pretrained("google-bert/bert-large-uncased", dtype=torch.float32)`.
# Dropout is off, so that all methods compute the same loss and can be compared.

# %%
GPU = torch.cuda.is_available()
CAPABILITY = torch.cuda.get_device_capability() if GPU else (0, 0)
NATIVE_BF16 = CAPABILITY >= (8, 0) if GPU else not {"avx512_bf16", "amx_bf16"}.isdisjoint(describe()["cpu_features"])
BERT_LARGE = BertConfig(
    hidden_size=1024, intermediate_size=4096, num_hidden_layers=24, num_attention_heads=16,
    hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
)
BERT_SMALL = BertConfig(
    hidden_size=384, intermediate_size=1536, num_hidden_layers=3, num_attention_heads=6, vocab_size=4096,
    hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
)
LLAMA_1B = LlamaConfig(
    vocab_size=128256, hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_attention_heads=32, num_key_value_heads=8,
    tie_word_embeddings=True,
)
LLAMA_300M = LlamaConfig(
    vocab_size=32000, hidden_size=1024, intermediate_size=2816, num_hidden_layers=16, num_attention_heads=16, num_key_value_heads=4,
)
LLAMA_SMALL = LlamaConfig(
    vocab_size=2048, hidden_size=256, intermediate_size=688, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
)


class Setup(NamedTuple):
    label: str
    model_class: type
    config: object
    batch_size: int  # sequences per optimizer step
    length: int  # tokens per sequence


if GPU and torch.cuda.get_device_properties(0).total_memory > 60 * GiB:
    bert = Setup("BERT-large", AutoModelForSequenceClassification, BERT_LARGE, 32, 512)
    llama = Setup("Llama-1B class", AutoModelForCausalLM, LLAMA_1B, 4, 1024)  # in fp32 its grouped heads run the math kernel
elif GPU:
    bert = Setup("BERT-large", AutoModelForSequenceClassification, BERT_LARGE, 8, 512)
    llama = Setup("300M Llama", AutoModelForCausalLM, LLAMA_300M, 4, 1024)
else:
    bert = Setup("small BERT", AutoModelForSequenceClassification, BERT_SMALL, 8, 128)
    llama = Setup("small Llama", AutoModelForCausalLM, LLAMA_SMALL, 4, 256)
    torch.set_num_threads(1)  # one thread and CPU time: comparable also on a busy machine
for setup in (bert, llama):
    print(f"{setup.label}, {setup.batch_size} x {setup.length} tokens per optimizer step")

# %% [markdown]
# ## One run
#
# `Trainer` does the work. The clock takes wall time around a synchronised step on a GPU, and CPU time on a CPU. The
# first step of each run warms up and does not count.

# %%
STEPS, SEEDS = 3, range(rounds(2, least=1))  # optimizer steps of a run, of which the first does not count; runs of each method, in turn


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


class RandomText(torch.utils.data.Dataset):
    def __init__(self, setup):
        self.setup = setup

    def __len__(self):
        return STEPS * self.setup.batch_size

    def __getitem__(self, row):
        generator = torch.Generator().manual_seed(row)
        ids = torch.randint(1000, self.setup.config.vocab_size, (self.setup.length,), generator=generator)
        return {"input_ids": ids, "labels": ids if self.setup is llama else int(ids[0] % 2)}


class Run(NamedTuple):
    seconds: list  # of the steps after the first
    losses: list  # of all steps
    memory: tuple  # bytes: allocated and reserved at the peak, of the whole device at the end; None on a CPU


def train(setup, seed=0, dtype=torch.float32, divide_loss=True, **arguments):
    """Trains a fresh model for STEPS optimizer steps."""
    set_seed(seed)
    model = setup.model_class.from_config(setup.config, dtype=dtype)
    if setup is bert and divide_loss:
        model.accepts_loss_kwargs = False  # BERT's loss is a mean: Trainer must divide it by the micro-batches (see below)
    clock = StepClock()
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder, max_steps=STEPS, logging_steps=1, save_strategy="no", disable_tqdm=True, use_cpu=not GPU, learning_rate=1e-4, seed=seed,
            **{"per_device_train_batch_size": setup.batch_size, **arguments},
        )
        trainer = Trainer(model=model, args=arguments, train_dataset=RandomText(setup), callbacks=[clock])
        trainer.remove_callback(PrinterCallback)
        if GPU:
            torch.cuda.reset_peak_memory_stats()
        trainer.train()
    memory = (None, None, None)
    if GPU:
        free, total = torch.cuda.mem_get_info()
        memory = (torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), total - free)
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    del model, trainer
    gc.collect()
    torch.cuda.empty_cache()
    return Run(clock.seconds[1:], losses, memory)


# %% [markdown]
# ## The methods, in turn
#
# Runs are interleaved, and the fastest step of each method counts: whatever disturbs a machine only makes a step slower.

# %%
HALF = {"bf16": True} if NATIVE_BF16 or not GPU else {"fp16": True}  # a T4 or V100 has no bf16 of its own
half = "bf16" if "bf16" in HALF else "fp16"
HAS_HALF = NATIVE_BF16 or half == "fp16"
NEW_NAME = "activation_checkpointing" in TrainingArguments.__dataclass_fields__  # transformers up to 5.17 has the old one
CHECKPOINT = {"activation_checkpointing" if NEW_NAME else "gradient_checkpointing": True}


def methods(setup):
    accumulate = {"per_device_train_batch_size": setup.batch_size // 4, "gradient_accumulation_steps": 4}
    found = {
        "fp32": {},
        "accumulation, 4 micro-batches": accumulate,
        "activation checkpointing": CHECKPOINT,
    }
    if HAS_HALF:  # how slow a CPU without instructions for bf16 is in it stands in the notebook cpu_training
        found[f"mixed {half}"] = HALF
        found["all three"] = accumulate | CHECKPOINT | HALF
    if NATIVE_BF16:
        found["pure bf16"] = {"dtype": torch.bfloat16}
    if CAPABILITY >= (8, 0):
        found["tf32"] = {"tf32": True}
    return found


def ladder(setup):
    """{method: [one run per seed]}."""
    runs = {name: [] for name in methods(setup)}
    for seed in SEEDS:
        for name, arguments in methods(setup).items():
            runs[name].append(train(setup, seed, **arguments))
            if CAPABILITY >= (8, 0):
                torch.backends.fp32_precision = "ieee"  # tf32=True stays on in the process
        print(f"{setup.label}, seed {seed}: " + ", ".join(f"{name} {fastest(runs[name]):.2f} s" for name in runs))
    return runs


def fastest(runs):
    return min(seconds for run in runs for seconds in run.seconds)


bert_runs = ladder(bert)

# %%
llama_runs = ladder(llama)

# %% [markdown]
# *Model FLOPs utilisation* is what the step computes, without recomputation, over what the machine could compute in that
# time. The rate that the machine could reach is measured here, with one large matrix product.

# %%
def matrix_rate(dtype):
    """FLOP/s of a large square matrix product."""
    size = 8192 if GPU else 1536
    a, b = (torch.randn(size, size, device="cuda" if GPU else "cpu").to(dtype) for _ in range(2))
    return 2 * size**3 / interleaved({"product": lambda: a @ b})["product"].best


rates = {"fp32": matrix_rate(torch.float32)}
if HAS_HALF:
    rates[half] = matrix_rate(torch.bfloat16 if half == "bf16" else torch.float16)
traced = {setup.label: training_step(setup.model_class, setup.config, setup.batch_size, setup.length) for setup in (bert, llama)}


def utilisation(setup, runs, name):
    """In %, against the rate of the dtype that the method multiplies in; None if that rate is not measured here."""
    dtype = "tf32" if name == "tf32" else half if half in name or name == "all three" else "fp32"
    if dtype not in rates:
        return None
    flops = traced[setup.label].flops["forward"] + traced[setup.label].flops["backward"]
    return 100 * flops / fastest(runs[name]) / rates[dtype]


# %%
def show(name, setup, runs):
    rows = []
    for method, kept in runs.items():
        seconds, memory = fastest(kept), [None if size is None else size / GiB for size in kept[0].memory]
        rows.append({
            "method": method, "seconds": seconds, "samples": setup.batch_size / seconds, "tokens": setup.batch_size * setup.length / seconds,
            "utilisation": utilisation(setup, runs, method), "allocated": memory[0], "reserved": memory[1], "device": memory[2],
            "loss": sum(run.losses[-1] for run in kept) / len(kept),
        })
    columns = {
        "method": "Method", "seconds": "Step, s", "samples": "Throughput, samples/s", "tokens": "Throughput, tokens/s",
        "utilisation": "Utilisation, %", "allocated": "Peak allocated, GiB", "reserved": "Peak reserved, GiB", "device": "Device memory, GiB",
        "loss": f"Loss of step {STEPS}, mean of {len(SEEDS)} seeds",
    }
    table(name, f"One optimizer step of {setup.label}, {setup.batch_size} x {setup.length} tokens, AdamW", columns, rows, kind="measured")


show("ladder", bert, bert_runs)
show("ladder-llama", llama, llama_runs)

# %% alt="Bars of the speed of each method against fp32, for BERT and Llama."
figure, axes = plt.subplots(figsize=(7, 3.2))
for shift, (setup, runs), colour in ((-0.2, (bert, bert_runs), "#0072b2"), (0.2, (llama, llama_runs), "#c45500")):
    speeds = [fastest(runs["fp32"]) / fastest(kept) for kept in runs.values()]
    axes.barh([place + shift for place in range(len(runs))], speeds, height=0.38, color=colour, label=setup.label)
axes.set_yticks(range(len(bert_runs)), list(bert_runs))
axes.axvline(1, color="#5b5b66", linewidth=1)
axes.invert_yaxis()
axes.set(xlabel="speed against fp32 (higher is faster)")
axes.legend(frameon=False)
plt.show()

# %% [markdown]
# ## What each method costs or buys in time

# %%
NO_HALF = "this CPU has no avx512_bf16 instructions"


def spread(runs, name):
    seconds = [value for run in runs[name] for value in run.seconds] if name in runs else []
    return {"min": min(seconds), "max": max(seconds), "repeats": len(seconds)} if seconds else None


def of(setup):
    return f"{setup.label}, {setup.batch_size} x {setup.length} tokens"


def slowdown(runs, name):
    return fastest(runs[name]) / fastest(runs["fp32"])


claim("accumulation-time", f"Time of an optimizer step with 4 accumulated micro-batches against one batch of the same size, {of(bert)}",
      slowdown(bert_runs, "accumulation, 4 micro-batches"), "x", kind="measured", at_least=0.85, at_most=2.5,
      spread=spread(bert_runs, "accumulation, 4 micro-batches"))
claim("checkpointing-time", f"Time of an optimizer step with activation checkpointing against one without, {of(bert)}",
      slowdown(bert_runs, "activation checkpointing"), "x", kind="measured", at_least=1.05, at_most=1.7,
      spread=spread(bert_runs, "activation checkpointing"))
claim("mixed-speed", f"Speed of an optimizer step in mixed 16-bit precision against fp32, {of(bert)}",
      1 / slowdown(bert_runs, f"mixed {half}") if HAS_HALF else None, "x", kind="measured", at_least=1.3,
      spread=spread(bert_runs, f"mixed {half}"), because=NO_HALF)
claim("pure-speed", f"Speed of an optimizer step in pure bf16 against fp32, {of(bert)}",
      1 / slowdown(bert_runs, "pure bf16") if NATIVE_BF16 else None, "x", kind="measured", at_least=1.3,
      spread=spread(bert_runs, "pure bf16"), because="this machine has no bf16 arithmetic of its own")
claim("together-speed", f"Speed of an optimizer step with accumulation, checkpointing and mixed precision against fp32, {of(bert)}",
      1 / slowdown(bert_runs, "all three") if HAS_HALF else None, "x", kind="measured", at_least=0.8,
      spread=spread(bert_runs, "all three"), because=NO_HALF)
claim("tf32-speed", f"Speed of an optimizer step with tf32 matrix products against fp32, {of(bert)}",
      1 / slowdown(bert_runs, "tf32") if "tf32" in bert_runs else None, "x", kind="measured", at_least=1.2,
      spread=spread(bert_runs, "tf32"), because="tf32 needs an NVIDIA GPU of compute capability 8.0 or later")
claim("llama-accumulation-time", f"Time of an optimizer step with 4 accumulated micro-batches against one batch of the same size, {of(llama)}",
      slowdown(llama_runs, "accumulation, 4 micro-batches"), "x", kind="measured", at_least=0.85, at_most=2.5,
      spread=spread(llama_runs, "accumulation, 4 micro-batches"))
claim("llama-checkpointing-time", f"Time of an optimizer step with activation checkpointing against one without, {of(llama)}",
      slowdown(llama_runs, "activation checkpointing"), "x", kind="measured", at_least=0.95, at_most=1.7,
      spread=spread(llama_runs, "activation checkpointing"))
claim("llama-mixed-speed", f"Speed of an optimizer step in mixed 16-bit precision against fp32, {of(llama)}",
      1 / slowdown(llama_runs, f"mixed {half}") if HAS_HALF else None, "x", kind="measured", at_least=1.2,
      spread=spread(llama_runs, f"mixed {half}"), because=NO_HALF)
claim("utilisation-fp32", f"Model FLOPs utilisation of the fp32 step of {of(bert)}, against one large fp32 matrix product on the same machine",
      utilisation(bert, bert_runs, "fp32"), "%", kind="measured", at_least=30, at_most=105)
claim("utilisation-mixed", f"Model FLOPs utilisation of the mixed-precision step of {of(bert)}, against one large 16-bit matrix product on the same machine",
      utilisation(bert, bert_runs, f"mixed {half}") if HAS_HALF else None, "%", kind="measured", at_least=10, at_most=105, because=NO_HALF)

# %% [markdown]
# ## The same loss?
#
# A method that is faster and learns something else is not a method. The largest relative difference from the fp32 loss,
# over all steps and seeds:

# %%
def difference(runs, name):
    pairs = [(a, b) for run, plain in zip(runs[name], runs["fp32"]) for a, b in zip(run.losses, plain.losses)]
    return max(abs(a - b) / b for a, b in pairs)


claim("accumulation-loss", f"Largest relative difference of the loss with 4 accumulated micro-batches from one batch of the same size, {bert.label} without dropout",
      difference(bert_runs, "accumulation, 4 micro-batches"), kind="measured", at_most=1e-3)
claim("checkpointing-loss", f"Largest relative difference of the loss with activation checkpointing from the loss without, {bert.label} without dropout",
      difference(bert_runs, "activation checkpointing"), kind="measured", at_most=1e-4)
claim("llama-loss", "Largest relative difference of the loss of a Llama with accumulation, or with checkpointing, from the loss without",
      max(difference(llama_runs, "accumulation, 4 micro-batches"), difference(llama_runs, "activation checkpointing")),
      kind="measured", at_most=1e-3)
claim("mixed-loss", f"Largest relative difference of the loss in mixed 16-bit precision from fp32, {STEPS} steps, {bert.label} without dropout",
      difference(bert_runs, f"mixed {half}") if HAS_HALF else None, kind="measured", at_most=0.05, because=NO_HALF)

# %% [markdown]
# ## The accumulation trap
#
# `Trainer` asks a model whether it can normalise its loss over all micro-batches, and takes `**kwargs` in its `forward`
# for a yes. BERT's classifier has the `**kwargs` and ignores them. Then nobody divides, and the loss and its gradients
# come out too large by the number of micro-batches. `model.accepts_loss_kwargs = False` tells `Trainer` the truth.

# %%
undivided = train(bert, divide_loss=False, **methods(bert)["accumulation, 4 micro-batches"])
claim("accumulation-trap", "Loss of BERT's classifier with 4 accumulated micro-batches in Trainer against one batch, without accepts_loss_kwargs = False",
      undivided.losses[0] / bert_runs["fp32"][0].losses[0], "x", kind="measured", at_least=3.9, at_most=4.1)

# %% [markdown]
# ## The dtype trap
#
# Since transformers 5, `from_pretrained` loads a checkpoint in the dtype it was saved in. Many language models are saved
# in bf16. With `bf16=True` on top, that is *pure* bf16 training, not mixed precision: no fp32 weights anywhere.

# %%
with tempfile.TemporaryDirectory() as checkpoint:
    AutoModelForSequenceClassification.from_config(BERT_SMALL, dtype=torch.bfloat16).save_pretrained(checkpoint)
    as_saved = AutoModelForSequenceClassification.from_pretrained(checkpoint)
    as_asked = AutoModelForSequenceClassification.from_pretrained(checkpoint, dtype=torch.float32)
print(f"default: {as_saved.dtype}, dtype=torch.float32: {as_asked.dtype}")
claim("auto-dtype", "Bytes per weight after from_pretrained of a bf16 checkpoint with default arguments",
      next(as_saved.parameters()).element_size(), "bytes", kind="measured", at_least=2, at_most=2)
claim("asked-dtype", "Bytes per weight after from_pretrained of a bf16 checkpoint with dtype=torch.float32",
      next(as_asked.parameters()).element_size(), "bytes", kind="measured", at_least=4, at_most=4)

# %% [markdown]
# ## Does the trace tell the truth?
#
# On a GPU: the peak that PyTorch's allocator counts in the fp32 run, against the peak traced on fake tensors.

# %%
claim("traced-against-allocated", "Peak memory by the allocator against the traced peak, fp32",
      bert_runs["fp32"][0].memory[0] / traced[bert.label].peak if GPU else None, "x", kind="measured", at_least=0.95, at_most=1.1, because="this machine has no GPU")

# %% [markdown]
# ## What others measured
#
# Hugging Face published these figures in 2022: BERT-large, 512 sequences of 512 tokens, one Tesla V100-SXM2.
# The versions of torch and transformers are not stated. Memory is that of the whole device.

# %%
V100 = "https://github.com/huggingface/transformers/blob/0016acf7ef421c7fe8eff7945de52c71896c3b01/docs/source/en/perf_train_gpu_one.mdx"
table(
    "v100-2022", "BERT-large, 4 x 512 tokens per optimizer step, Tesla V100 16 GB, 2022",
    {"method": "Method", "samples": "Throughput, samples/s", "memory": "Device memory, MiB"},
    [{"method": method, "samples": samples, "memory": memory} for method, samples, memory in (
        ("fp32, batch 4", 8.86, 14949),
        ("4 x batch 1", 7.75, 8681),
        ("4 x batch 1, checkpointing", 5.99, 6775),
        ("fp16, batch 4", 18.64, 13939),
        ("4 x batch 1, checkpointing, fp16", 10.09, 7275),
    )],
    kind="cited", source=V100,
)
claim("v100-checkpointing", "Throughput of BERT-large without checkpointing against with it, Tesla V100, 4 x batch 1, 2022",
      7.75 / 5.99, "x", kind="cited", source=V100)
claim("v100-accumulation", "Throughput of BERT-large at batch 4 against 4 x batch 1, Tesla V100, 2022", 8.86 / 7.75, "x", kind="cited", source=V100)
claim("v100-fp16", "Throughput of BERT-large in mixed fp16 against fp32, Tesla V100, batch 4, 2022", 18.64 / 8.86, "x", kind="cited", source=V100)
claim("v100-together-memory", "What accumulation, checkpointing, fp16 and 8-bit Adam together saved of the memory of BERT-large, Tesla V100, 2022",
      100 * (1 - 5363 / 14949), "%", kind="cited", source=V100)
claim("v100-together-speed", "Throughput of BERT-large with all of these against fp32 at batch 4, Tesla V100, 2022",
      10.35 / 8.86, "x", kind="cited", source=V100)
claim("v100-weights", "Bytes per weight in mixed precision, by the same source", 6, "bytes", kind="cited", source=V100)
claim("v100-rule", "Slow-down by checkpointing as a rule of thumb in the same source", 20, "%", kind="cited", source=V100)
claim("v100-bytes", "Bytes per parameter of a mixed-precision AdamW step, by the same source", 18, "bytes", kind="cited", source=V100)
