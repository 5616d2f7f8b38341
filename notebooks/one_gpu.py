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

import matplotlib.pyplot as plt
import torch
from matplotlib_inline.backend_inline import set_matplotlib_formats
from transformers import (
    AutoModelForSequenceClassification, BertConfig, PrinterCallback, Trainer, TrainerCallback, TrainingArguments, logging, set_seed,
)

from evidence.claims import claim, start, table
from evidence.machine import describe
from evidence.measure import interleaved
from evidence.trace import GiB, training_step

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
LARGE = {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16}
SMALL = {"hidden_size": 384, "intermediate_size": 1536, "num_hidden_layers": 6, "num_attention_heads": 6, "vocab_size": 8192}
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}

if GPU and torch.cuda.get_device_properties(0).total_memory > 40 * GiB:
    size, config, batch_size, length = "BERT-large", BertConfig(**LARGE, **NO_DROPOUT), 32, 512
elif GPU:
    size, config, batch_size, length = "BERT-large", BertConfig(**LARGE, **NO_DROPOUT), 8, 512
else:
    size, config, batch_size, length = "small BERT", BertConfig(**SMALL, **NO_DROPOUT), 8, 128
    torch.set_num_threads(1)  # one thread and CPU time: comparable also on a busy machine
print(f"{size}, {batch_size} x {length} tokens per optimizer step")

# %% [markdown]
# ## One run
#
# `Trainer` does the work. The clock takes wall time around a synchronised step on a GPU, and CPU time on a CPU. The
# first step of each run warms up and does not count.

# %%
STEPS, ROUNDS = 4, 2  # optimizer steps of a run, of which the first does not count; runs of each method, in turn


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
    def __len__(self):
        return STEPS * batch_size

    def __getitem__(self, row):
        generator = torch.Generator().manual_seed(row)
        ids = torch.randint(1000, config.vocab_size, (length,), generator=generator)
        return {"input_ids": ids, "labels": int(ids[0] % 2)}


def train(dtype=torch.float32, divide_loss=True, **arguments):
    """Trains a fresh model for STEPS steps; returns step times in seconds, losses, and peak memory in bytes (GPU)."""
    set_seed(0)
    model = AutoModelForSequenceClassification.from_config(config, dtype=dtype)
    if divide_loss:
        model.accepts_loss_kwargs = False  # BERT's loss is a mean: Trainer must divide it by the micro-batches (see below)
    clock = StepClock()
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder, max_steps=STEPS, logging_steps=1, save_strategy="no", disable_tqdm=True, use_cpu=not GPU, learning_rate=1e-4,
            **{"per_device_train_batch_size": batch_size, **arguments},
        )
        trainer = Trainer(model=model, args=arguments, train_dataset=RandomText(), callbacks=[clock])
        trainer.remove_callback(PrinterCallback)
        if GPU:
            torch.cuda.reset_peak_memory_stats()
        trainer.train()
    peak = (torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()) if GPU else (None, None)
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    del model, trainer
    gc.collect()
    torch.cuda.empty_cache()
    return clock.seconds[1:], losses, peak


# %% [markdown]
# ## The methods, in turn
#
# Runs are interleaved, and the fastest step of each method counts: whatever disturbs a machine only makes a step slower.

# %%
HALF = {"bf16": True} if NATIVE_BF16 or not GPU else {"fp16": True}  # a T4 or V100 has no bf16 of its own
half = "bf16" if "bf16" in HALF else "fp16"
ACCUMULATE = {"per_device_train_batch_size": batch_size // 4, "gradient_accumulation_steps": 4}
NEW_NAME = "activation_checkpointing" in TrainingArguments.__dataclass_fields__  # transformers up to 5.17 has the old one
CHECKPOINT = {"activation_checkpointing" if NEW_NAME else "gradient_checkpointing": True}

methods = {
    "fp32": {},
    "accumulation, 4 micro-batches": ACCUMULATE,
    "activation checkpointing": CHECKPOINT,
    f"mixed {half}": HALF,
    "all three": ACCUMULATE | CHECKPOINT | HALF,
}
if half == "bf16":
    methods["pure bf16"] = {"dtype": torch.bfloat16}
if CAPABILITY >= (8, 0):
    methods["tf32"] = {"tf32": True}

seconds, losses, peaks = {name: [] for name in methods}, {}, {}
for number in range(ROUNDS):
    for name, arguments in methods.items():
        times, losses[name], peaks[name] = train(**arguments)
        seconds[name] += times
        if CAPABILITY >= (8, 0):
            torch.backends.fp32_precision = "ieee"  # tf32=True stays on in the process
    print(f"round {number + 1} of {ROUNDS}: " + ", ".join(f"{name} {min(times):.2f} s" for name, times in seconds.items()))
best = {name: min(times) for name, times in seconds.items()}

# %% [markdown]
# *Model FLOPs utilisation* is what the step computes, without recomputation, over what the machine could compute in that
# time. The rate that the machine could reach is measured here, with one large matrix product.

# %%
def matrix_rate(dtype):
    """FLOP/s of a large square matrix product."""
    size = 8192 if GPU else 1536
    a, b = (torch.randn(size, size, device="cuda" if GPU else "cpu").to(dtype) for _ in range(2))
    return 2 * size**3 / interleaved({"product": lambda: a @ b})["product"].best


traced = training_step(AutoModelForSequenceClassification, config, batch_size, length)
model_flops = traced.flops["forward"] + traced.flops["backward"]
half_dtype = torch.bfloat16 if half == "bf16" else torch.float16
rates = {"fp32": matrix_rate(torch.float32), half: matrix_rate(half_dtype)}


def utilisation(name):
    """In %, against the rate of the dtype that the method multiplies in."""
    return 100 * model_flops / best[name] / rates[half if half in name or name == "all three" else "fp32"]


# %% alt="Bars of the speed of each method against fp32."
table(
    "ladder", f"One optimizer step of {size}, {batch_size} x {length} tokens, AdamW",
    {"method": "Method", "seconds": "Step, s", "samples": "Throughput, samples/s", "tokens": "Throughput, tokens/s",
     "utilisation": "Utilisation, %", "allocated": "Peak allocated, GiB", "reserved": "Peak reserved, GiB", "loss": "Loss of the last step"},
    [{"method": name, "seconds": best[name], "samples": batch_size / best[name], "tokens": batch_size * length / best[name],
      "allocated": peaks[name][0] and peaks[name][0] / GiB, "reserved": peaks[name][1] and peaks[name][1] / GiB,
      "utilisation": utilisation(name), "loss": losses[name][-1]} for name in methods],
    kind="measured",
)
figure, axes = plt.subplots(figsize=(7, 2.5))
axes.barh(list(best), [best["fp32"] / value for value in best.values()], color="#0072b2")
axes.axvline(1, color="#5b5b66", linewidth=1)
axes.invert_yaxis()
axes.set(xlabel="speed against fp32 (higher is faster)")
plt.show()

# %% [markdown]
# ## What each method costs or buys in time

# %%
def spread(name):
    return {"min": min(seconds[name]), "max": max(seconds[name]), "repeats": len(seconds[name])}


claim("accumulation-time", "Time of an optimizer step with 4 accumulated micro-batches against one batch of the same size",
      best["accumulation, 4 micro-batches"] / best["fp32"], "x", kind="measured", at_least=0.85, at_most=2.5,
      spread=spread("accumulation, 4 micro-batches"))
claim("checkpointing-time", "Time of an optimizer step with activation checkpointing against one without",
      best["activation checkpointing"] / best["fp32"], "x", kind="measured", at_least=1.05, at_most=1.7,
      spread=spread("activation checkpointing"))
claim("mixed-speed", "Speed of an optimizer step in mixed 16-bit precision against fp32",
      best["fp32"] / best[f"mixed {half}"] if NATIVE_BF16 or half == "fp16" else None, "x", kind="measured", at_least=1.3,
      spread=spread(f"mixed {half}"), because="this CPU has no avx512_bf16 instructions")
claim("pure-speed", "Speed of an optimizer step in pure bf16 against fp32",
      best["fp32"] / best["pure bf16"] if NATIVE_BF16 else None, "x", kind="measured", at_least=1.3,
      spread=spread("pure bf16") if NATIVE_BF16 else None, because="this machine has no bf16 arithmetic of its own")
claim("together-speed", "Speed of an optimizer step with accumulation, checkpointing and mixed precision against fp32",
      best["fp32"] / best["all three"] if NATIVE_BF16 or half == "fp16" else None, "x", kind="measured", at_least=1.05,
      spread=spread("all three"), because="this CPU has no avx512_bf16 instructions")
claim("tf32-speed", "Speed of an optimizer step with tf32 matrix products against fp32",
      best["fp32"] / best["tf32"] if "tf32" in best else None, "x", kind="measured", at_least=1.2,
      spread=spread("tf32") if "tf32" in best else None, because="tf32 needs an NVIDIA GPU of compute capability 8.0 or later")

claim("utilisation-fp32", "Model FLOPs utilisation of the fp32 step, against one large fp32 matrix product on the same machine",
      utilisation("fp32"), "%", kind="measured", at_least=30, at_most=105)
claim("utilisation-mixed", "Model FLOPs utilisation of the mixed-precision step, against one large 16-bit matrix product on the same machine",
      utilisation(f"mixed {half}") if NATIVE_BF16 or half == "fp16" else None, "%", kind="measured", at_least=10, at_most=105,
      because="this CPU has no avx512_bf16 instructions")

# %% [markdown]
# ## The same loss?
#
# A method that is faster and learns something else is not a method. The largest relative difference from the fp32 loss,
# over all steps:

# %%
def difference(name):
    return max(abs(a - b) / b for a, b in zip(losses[name], losses["fp32"]))


claim("accumulation-loss", "Largest relative difference of the loss with 4 accumulated micro-batches from one batch of the same size",
      difference("accumulation, 4 micro-batches"), kind="measured", at_most=1e-3)
claim("checkpointing-loss", "Largest relative difference of the loss with activation checkpointing from the loss without",
      difference("activation checkpointing"), kind="measured", at_most=1e-4)
claim("mixed-loss", "Largest relative difference of the loss in mixed 16-bit precision from fp32",
      difference(f"mixed {half}"), kind="measured", at_most=0.05)

# %% [markdown]
# ## The accumulation trap
#
# `Trainer` asks a model whether it can normalise its loss over all micro-batches, and takes `**kwargs` in its `forward`
# for a yes. BERT's classifier has the `**kwargs` and ignores them. Then nobody divides, and the loss and its gradients
# come out too large by the number of micro-batches. `model.accepts_loss_kwargs = False` tells `Trainer` the truth.

# %%
_, undivided, _ = train(divide_loss=False, **ACCUMULATE)
claim("accumulation-trap", "Loss of BERT's classifier with 4 accumulated micro-batches in Trainer against one batch, without accepts_loss_kwargs = False",
      undivided[0] / losses["fp32"][0], "x", kind="measured", at_least=3.9, at_most=4.1)

# %% [markdown]
# ## The dtype trap
#
# Since transformers 5, `from_pretrained` loads a checkpoint in the dtype it was saved in. Many language models are saved
# in bf16. With `bf16=True` on top, that is *pure* bf16 training, not mixed precision: no fp32 weights anywhere.

# %%
with tempfile.TemporaryDirectory() as checkpoint:
    AutoModelForSequenceClassification.from_config(BertConfig(**SMALL), dtype=torch.bfloat16).save_pretrained(checkpoint)
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
      peaks["fp32"][0] / traced.peak if GPU else None, "x", kind="measured", at_least=0.95, at_most=1.1, because="this machine has no GPU")

# %% [markdown]
# ## What others measured
#
# Hugging Face published these figures in 2022: BERT-large, 512 sequences of 512 tokens, one Tesla V100-SXM2.
# The versions of torch and transformers are not stated. Memory is that of the whole device.

# %%
V100 = "https://github.com/huggingface/transformers/blob/0016acf7ef421c7fe8eff7945de52c71896c3b01/docs/source/en/perf_train_gpu_one.mdx"
table(
    "v100-2022", "BERT-large, 4 x 512 tokens per optimizer step, Tesla V100 16 GB, 2022",
    {"method": "Method", "samples": "Throughput, samples/s", "memory": "Device memory, MB"},
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
claim("v100-rule", "Slow-down by checkpointing as a rule of thumb in the same source", 20, "%", kind="cited", source=V100)
claim("v100-bytes", "Bytes per parameter of a mixed-precision AdamW step, by the same source", 18, "bytes", kind="cited", source=V100)
