# ---
# jupyter:
#   runs_on: "records, what `make gpu` measured on an H100 and an H200"
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
# # What PyTorch's allocator reserves, replayed
#
# **How much more than its tensors does a training step take of a GPU, and can that be known before?**
#
# PyTorch asks the driver for memory in segments, and cuts its tensors from them. Other programs cannot use
# what is free between two tensors. The rules are public, and a traced step says which tensors come and go, and when. So
# `dryrun` replays the rules, on a deep model's whole step, without a GPU. This notebook compares the outcome
# with what our [H100](gpu_steps.ipynb) and our [H200](h200_steps.ipynb) reserved for the same steps. The replay
# has no constant that was fitted: the sizes of blocks and workspaces are those of PyTorch's source.

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
import statistics
import warnings

os.environ["CUDA_VISIBLE_DEVICES"] = ""  # it counts: no step runs, so a GPU of this machine stays free for others
logging.disable(logging.WARNING)
warnings.simplefilter("ignore")

import matplotlib.pyplot as plt

from dryrun import Cluster, Job
from dryrun.cost import device_memory, timing
from dryrun.answer.answer import of_job
from evidence import plots
from evidence.claims import claim, start, table
from gpu_steps import compared

GPUS = {"H100": ("h100-sxm5", "nvidia-h100-80gb-hbm3.jsonl"), "H200": ("h200-sxm", "nvidia-h200.jsonl")}
GB = 1e9
plots.set_up("reserved_memory")
start("reserved_memory")

# %% [markdown]
# Each measured step is asked of `dryrun` again, as its job. Compiled steps come last: their tensors are not
# those that were traced.

# %%
def ask(row, gpu):
    """The answer to a measured step."""
    step = row.step
    return of_job(Job(step.model, batch=step.batch, length=step.length, **step.of_job), Cluster(gpu))


measured = [(name, row, ask(row, gpu)) for name, (gpu, file) in GPUS.items()
            for row in compared.read(compared.MEASURED / file, gpu)[2] if row.step.kind == "train" and row.ran]
steps = []
for name, row, asked in measured:
    if not row.step.options.get("compiled"):
        steps.append((name, row, device_memory.replayed(asked.traced, asked.workload, asked.setting,
                                                        timing.fitted()["memory"])))

# %% alt="Dots, reserved over allocated as measured to the right, as replayed upwards: most of them on the line, from 1.01 to 1.25."
_, axes = plt.subplots(figsize=(6, 4))
for name in GPUS:
    axes.plot([row.measured["reserved"] / row.measured["allocated"] for of, row, _ in steps if of == name],
              [peak.reserved / peak.allocated for of, _, peak in steps if of == name], ".", label=name)
axes.plot([1, 1.27], [1, 1.27], color=plots.GRAY, linewidth=1)
axes.set(xlabel="reserved / allocated, measured", ylabel="replayed")
axes.legend()
plt.show()

# %% [markdown]
# Each dot is a training step. To the right, the allocator reserved more than it had given out.

# %%
table("steps", "Allocated and reserved at the peak of a training step: replayed without a GPU, and measured",
      {"gpu": "GPU", "step": "Step", "allocated": "Allocated, replayed, GB", "allocated_there": "Measured, GB",
       "reserved": "Reserved, replayed, GB", "reserved_there": "Measured, GB", "off": "Replayed / measured"},
      [{"gpu": name, "step": row.words, "allocated": peak.allocated / GB,
        "allocated_there": row.measured["allocated"] / GB, "reserved": peak.reserved / GB,
        "reserved_there": row.measured["reserved"] / GB, "off": peak.reserved / row.measured["reserved"]}
       for name, row, peak in steps], kind="derived")

# %%
def off(chosen, which="reserved"):
    """Percent by which the replay misses what was reserved, or allocated, step by step."""
    return [100 * abs(getattr(peak, which) / row.measured[which] - 1) for _, row, peak in chosen]


once = list({row.words: (name, row, peak) for name, row, peak in steps}.values())  # many steps ran on both GPUs
full = [one for one in once if "method" not in one[1].step.options]
adapters = [one for one in once if one not in full]
gap = [row.measured["reserved"] / row.measured["allocated"] for _, row, _ in once]

# %% [markdown]
# Adapters run as peft runs them under autocast: in fp32, each with a 16-bit copy of its input, and in a mixture of experts
# beside all experts and the router. Some steps have no checkpointing, some a fused loss.

# %%
for name, sentence, value, unit, least, most in (
    ("gap", "Median of reserved over allocated memory, training steps on an H100 and an H200", statistics.median(gap),
     "x", 1.02, 1.2),
    ("gap-most", "Most that was reserved over what was allocated, among these steps", max(gap), "x", 1.2, 1.3),
    ("off-full", "Median error of the replayed reserved memory, full fine-tuning, H100 and H200",
     statistics.median(off(full)), "%", 0.05, 2),
    ("off-full-most", "Largest error of the replayed reserved memory, full fine-tuning, H100 and H200", max(off(full)),
     "%", 0.5, 12),
    ("off-adapters", "Median error of the replayed reserved memory, LoRA and QLoRA, H100 and H200",
     statistics.median(off(adapters)), "%", 0.1, 2),
    ("off-adapters-most", "Largest error of the replayed reserved memory, LoRA and QLoRA, H100 and H200",
     max(off(adapters)), "%", 1, 5),
    ("mixture-trained", "Parameters that LoRA of rank 16 trains in Qwen3 30B-A3B with all-linear, as an H200 ran it",
     next(row.measured["trained"] for _, row, _ in once if "a3b" in row.step.model) / 1e6, "million", 990, 1000),
    ("allocated-adapters", "Largest error of the replayed allocated memory, LoRA and QLoRA, H100 and H200",
     max(off(adapters, "allocated")), "%", 0.1, 2),
):
    claim(name, sentence, value, unit, kind="derived", at_least=least, at_most=most)

# %% [markdown]
# A compiler makes kernels of its own. A compiled step keeps less for the backward pass: the input of a cheap kernel in
# place of its results, and 16-bit logits in place of their log-probabilities in fp32. `dryrun` decides so as PyTorch's
# partitioner does, and a test compares both on a small model. Here are the steps that our GPUs compiled.

# %%
compiled = {(name, row.words): 100 * (sum(asked.needed.categories.values()) / row.measured["allocated"] - 1)
            for name, row, asked in measured if row.step.options.get("compiled")}
for key, error in compiled.items():
    print(*key, f"{error:+.0f} %")
claim("compiled-off", "Largest error of the tensors of a step with torch.compile, Llama 1B and GPT-2, H100 and H200",
      max(map(abs, compiled.values())), "%", kind="derived", at_least=1, at_most=10)

# %% [markdown]
# ## What came out, and what to do
#
# - **Believe the memory of full fine-tuning**, gaps included, where the program is plain PyTorch as here.
# - **Believe adapters** as well, where peft makes them and `Trainer` runs them. Other libraries keep other copies.
# - **Give a compiled step a tenth more** than is predicted.
# - **Gaps are largest with long sequences and checkpointing.** `PYTORCH_ALLOC_CONF=expandable_segments:True`
#   is made against them; it is not replayed.
# - **A full GPU reserves less.** Before it gives up, the allocator returns what it does not use. `dryrun` replays
#   that too, with the memory of the GPU that you name.

# %%
# Compares this run with the published records. In Colab it also offers the record of this machine, to send.
from evidence.finish import finish

finish()
