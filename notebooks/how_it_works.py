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
# # Three limits: memory, arithmetic, links
#
# **How well do four rules of thumb describe a real training step?**
#
# Rules that fit on a napkin are what engineers decide by. Each rule here is put beside a
# trace of the real model code, so that you know where it is good and where it is not.
#
# What to expect:
#
# - *Sixteen bytes for each parameter* is all but exact, because nothing else is as large.
# - *4 x tokens x width x layers* bytes of activations is what checkpointing keeps under
#   autocast. It leaves out the logits, which are larger for a large vocabulary.
# - *6 x parameters x tokens* FLOPs leaves out attention: little at short lengths, much at
#   long ones.
# - *Twice the gradients* is what each GPU sends in an all-reduce, on many GPUs.
#
# Nothing is measured, and no GPU is asked.

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

from dryrun.cost.roofline import processor
from dryrun.cost.traces import traced
from dryrun.step.workload import Workload
from evidence import plots
from evidence.claims import claim, start, table

plots.set_up("how_it_works")
start("how_it_works")

# %% [markdown]
# ## The step
#
# A full fine-tuning step of an 8B Llama on one sequence of 4,096 tokens: fp32 weights, bf16
# autocast, AdamW.

# %%
GiB, TOKENS = 2**30, 4096
MIXED = dict(weights="float32", autocast="bfloat16")


def step(tokens=TOKENS, **options):
    return traced(Workload("llama3-8b", 1, tokens, **MIXED, **options))


plain, checkpointed = step(), step(checkpointing=1)
parameters, layers, width = plain.parameters, plain.layers, plain.width
claim("parameters", "Parameters of an 8B Llama", parameters / 1e9, "billion", kind="traced", at_least=8.02,
      at_most=8.04)

# %% [markdown]
# ## Memory
#
# *Bytes = 16 x parameters + activations.* Sixteen: 4 for the weight, 4 for its gradient, 8
# for the two moments of AdamW.

# %%
claim("state", "Weights, gradients and AdamW state of an 8B Llama by hand: 16 bytes for each parameter",
      16 * parameters / GiB, "GiB", kind="derived", at_least=119, at_most=120)
STATE = ("parameters", "gradients", "optimizer")
at_update = plain.memory.parts[-1][1]
claim("state-traced", "Weights, gradients and AdamW state of an 8B Llama in the update, in the trace",
      sum(at_update.get(name, 0) for name in STATE) / GiB, "GiB", kind="traced", at_least=119, at_most=121)
by_hand = 4 * TOKENS * width * layers  # autocast keeps the hidden state between layers in fp32
claim("kept", "What checkpointing keeps by hand: 4 bytes x 4,096 tokens x width 4,096 x 32 layers", by_hand / GiB,
      "GiB", kind="derived", at_least=1.9, at_most=2.1)
for name, what, least, most in (("plain", plain, 10, 60), ("checkpointed", checkpointed, 1, 20)):
    held = max(categories.get("activations", 0) for _, categories in what.memory.parts)
    claim(f"activations-{name}", f"Activations of an 8B Llama at 1 x 4,096 tokens in bf16 autocast, {name}",
          held / GiB, "GiB", kind="traced", at_least=least, at_most=most)

# %%
held = {name: max(categories.get("activations", 0) for _, categories in what.memory.parts)
        for name, what in (("activations", plain), ("activations, checkpointed", checkpointed))}
sizes = {"weights": 4 * parameters, "gradients": 4 * parameters, "moments of AdamW": 8 * parameters} | held
table("memory", "What a step of an 8B Llama holds, 1 x 4,096 tokens", {"part": "Part", "size": "GiB"},
      [{"part": part, "size": size / GiB} for part, size in sizes.items()], kind="traced")

# %% [markdown]
# ## Arithmetic
#
# *FLOPs = 6 x parameters x tokens*: 2 for the forward pass, 4 for the backward pass. The
# time is at least FLOPs over the peak of the GPU. What a step really reaches of the peak is
# its MFU.

# %%
lengths = (1024, 4096, 16384, 32768)


def computed(what):
    """FLOPs of a step. A causal attention kernel leaves out the half of its square that is masked."""
    return sum(count * kernel.flops * (0.5 if kernel.kind == "attention" and kernel.shape[3] else 1)
               for kernel, count in what.kernels.counts.items())


flops = {tokens: computed(step(tokens)) for tokens in lengths}
rule = {tokens: 6 * parameters * tokens for tokens in lengths}
claim("flops", "FLOPs of a step of an 8B Llama on 4,096 tokens by the rule, 6 x parameters x tokens",
      rule[TOKENS] / 1e12, "TFLOPs", kind="derived", at_least=190, at_most=205)
claim("seconds-h100", "Seconds of these FLOPs at the bf16 peak of an H100", rule[TOKENS] / processor("h100-sxm5").half,
      "s", kind="derived", at_least=0.1, at_most=0.3)
claim("seconds-4090", "Seconds of these FLOPs at the bf16 peak of an RTX 4090",
      rule[TOKENS] / processor("rtx-4090").half, "s", kind="derived", at_least=0.5, at_most=3)
for tokens in (4096, 32768):
    claim(f"flops-off-{tokens}", f"FLOPs of a traced step of an 8B Llama at {tokens:,} tokens, above the rule",
          100 * (flops[tokens] / rule[tokens] - 1), "%", kind="traced", at_least=-20, at_most=200)
table("flops-by-length", "FLOPs of a step of an 8B Llama",
      {"tokens": "Tokens", "rule": "Rule, TFLOPs", "traced": "Traced, TFLOPs"},
      [{"tokens": tokens, "rule": rule[tokens] / 1e12, "traced": flops[tokens] / 1e12} for tokens in lengths],
      kind="traced")

# %% [markdown]
# ## Bandwidth
#
# A kernel waits for whichever is slower, its arithmetic or its bytes. One new token reads
# every weight once, to multiply and add: memory is the limit. A batch of tokens
# reads the weights once for all of them.

# %% alt="The most tokens per second of three GPUs against tokens at a time, on log scales: first a slope, then a flat roof."
card = processor("rtx-4090")
weights = 2 * parameters
claim("weights", "Bytes of an 8B Llama in bf16", weights / 1e9, "GB", kind="derived", at_least=16, at_most=16.2)
claim("token-bytes", "Time in which an RTX 4090 reads them once", 1000 * weights / card.bandwidth, "ms", kind="derived",
      at_least=10, at_most=25)
claim("token-flops", "Time in which it computes one token, at its bf16 peak", 1000 * 2 * parameters / card.half, "ms",
      kind="derived", at_least=0.05, at_most=0.5)
claim("balance", "Tokens at a time from which its arithmetic, not its memory, is the limit", card.half / card.bandwidth,
      "tokens", kind="derived", at_least=100, at_most=400)
counts = [2**power for power in range(11)]
figure, axes = plt.subplots(figsize=(6, 3.4), layout="constrained")
for gpu in ("rtx-4090", "a100-sxm4-80", "h100-sxm5"):
    limits = [count / max(weights / processor(gpu).bandwidth, 2 * parameters * count / processor(gpu).half)
              for count in counts]
    axes.loglog(counts, limits, label=gpu)
axes.set(xlabel="tokens at a time", ylabel="at most, tokens/s")
axes.legend()
plt.show()

# %% [markdown]
# ## Links
#
# *Bytes that each GPU sends in an all-reduce = 2 x (n - 1) / n x gradients.* They cost
# nothing as long as they take less time than the backward pass behind which they hide.

# %%
GPUS, NVLINK, NETWORK = 8, 450e9, 100e9 / 8  # bytes/s in one direction: NVLink 4 of an H100, 100 Gbit/s Ethernet
sent = 2 * (GPUS - 1) / GPUS * 4 * parameters
claim("sent", "What each of 8 GPUs sends in an all-reduce of the fp32 gradients of an 8B Llama", sent / 1e9, "GB",
      kind="derived", at_least=56, at_most=57)
claim("sent-nvlink", "Seconds of these bytes over NVLink of an H100, at its peak", sent / NVLINK, "s", kind="derived",
      at_least=0.1, at_most=0.2)
claim("sent-network", "Seconds of these bytes over Ethernet of 100 Gbit/s, at its peak", sent / NETWORK, "s",
      kind="derived", at_least=4, at_most=5)

# %% [markdown]
# ## What came out, and what to do
#
# - **Memory: count sixteen bytes for each parameter first.** If that does not fit, no batch size
#   helps: change the method or the number of GPUs. What checkpointing keeps is a small part.
# - **Arithmetic: the rule is good at 4,096 tokens and far too low at 32,768.** It counts the
#   embeddings, which compute nothing, and leaves out attention; at 4,096 tokens both are alike.
#   Use the trace for long sequences.
# - **One token at a time is bound by memory, thousands are bound by arithmetic.** That is why
#   a batch of users is nearly free, and why training does not wait for memory.
# - **A link is fast enough if the gradients arrive before the backward pass ends.** Compare
#   the two times before you buy a network.

# %%
# Compares this run with the published records. In Colab it also offers the record of this machine, to send.
from evidence.finish import finish

finish()
