# ---
# jupyter:
#   accelerator: GPU
#   colab:
#     gpuType: T4
#   needs: [bitsandbytes]
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
# # The speed of generate: batch, static cache, compiled, 8 and 4 bits
#
# **How near does `generate` come to the limit of your GPU's memory bandwidth, and what brings it
# nearer?**
#
# A token of one sequence reads all weights once, so the bandwidth of the memory over the bytes of
# the weights is the most tokens per second that batch 1 can give. [Inference on one
# GPU](inference_one_gpu.ipynb) counts that limit for many models. This notebook runs `generate` on
# the machine at hand: eager, with a static cache, compiled, at batch 1, 8 and 32, and with weights
# in 16, 8 and 4 bits. Then it times the attention kernels that the machine has, and the reading of
# a prompt.
#
# *What to expect.* On a fast GPU, eager decoding waits for Python, which launches one small kernel
# after the other, so a compiled step brings most at batch 1. A batch reads the weights once for all
# its sequences. Fewer bits can help only as far as the step is memory-bound, because dequantization
# costs time at every batch. We have not run it on a GPU yet.

# %%
# Installs what this notebook needs where it is not there yet (Colab, an empty folder). Colab's torch stays as it is.
import importlib.util
import os
import subprocess
import sys

PINS = {"transformers": "5.23.0", "accelerate": "1.15.0", "bitsandbytes": "0.50.2"}
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
# The packages of this notebook that are missing.
needs = {"bitsandbytes": "bitsandbytes==0.50.2"}
missing = [needed for name, needed in needs.items() if importlib.util.find_spec(name) is None]
if missing:
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", *missing], check=True)

# %%
import gc
from functools import partial

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoModelForCausalLM, CompileConfig, LlamaConfig, Qwen3Config, logging

from evidence import plots
from evidence.claims import claim, start, table
from evidence.machine import native_bf16
from evidence.measure import interleaved, one_thread
from gpu_steps.measure import quantize

start("generate_speed", packages=("bitsandbytes",))
plots.set_up("generate_speed")
GiB = 2**30

# %% [markdown]
# ## The model for this machine
#
# The model has random weights, because neither time nor memory depends on their values. Its size
# follows the machine: Llama-3.1-8B on a GPU with `40 GB` or more, Qwen3-1.7B on a smaller one such
# as a T4, and without a GPU a tiny Llama of two layers on one CPU thread. The tiny model proves that
# every cell runs, and that its claims hold there. It says nothing about the size of a gain on a GPU,
# nor about a real model on a CPU, which [a notebook of its own](cpu_inference.ipynb) measures.

# %%
logging.set_verbosity_error()
GPU = torch.cuda.is_available()
ROOM = torch.cuda.get_device_properties(0).total_memory / GiB if GPU else 0
DEVICE = torch.device("cuda" if GPU else "cpu")
HALF = torch.bfloat16 if native_bf16() else torch.float16 if GPU else torch.float32
LLAMA = LlamaConfig(vocab_size=128256, hidden_size=4096, num_hidden_layers=32, num_attention_heads=32,
                    num_key_value_heads=8, intermediate_size=14336, tie_word_embeddings=False)
QWEN = Qwen3Config(vocab_size=151936, hidden_size=2048, num_hidden_layers=28, num_attention_heads=16,
                   num_key_value_heads=8, head_dim=128, intermediate_size=6144, tie_word_embeddings=True)
TINY = LlamaConfig(vocab_size=8000, hidden_size=512, num_hidden_layers=2, num_attention_heads=8,
                   num_key_value_heads=4, intermediate_size=1536, tie_word_embeddings=True)
if ROOM > 40:
    RAN, CONFIG = "Llama-3.1-8B", LLAMA
elif GPU:
    RAN, CONFIG = "Qwen3-1.7B", QWEN
else:
    RAN, CONFIG = "a tiny Llama of two layers, one CPU thread", TINY
    one_thread()
READ, WRITTEN = (512, 64) if GPU else (32, 8)  # tokens of a prompt, and of its answer
BATCHES = (1, 8, 32)


def random_weights(config):
    """The model in 16 bits on this machine's device, made there in a fraction of the time."""
    torch.manual_seed(0)
    with DEVICE:
        model = AutoModelForCausalLM.from_config(config, dtype=HALF).eval()
    model.generation_config.eos_token_id = None  # random weights must not end early
    return model

# %% [markdown]
# ## How a token is timed
#
# Two calls of `generate` give the time of a token: one that writes a whole answer, and one that
# writes its first token. Their difference is the time of the tokens between, without the prompt.
# All ways run in turn, and the fastest repeat counts.
#
# On a GPU, `generate` compiles the decoding step by itself as soon as the cache is static. So
# `disable_compile` separates the two. A CPU is asked to compile as well, at batch 1, so that this
# branch runs everywhere.

# %% tags=["measures"]
COMPILED = CompileConfig(mode="reduce-overhead" if GPU else "default", dynamic=False)
COMPILED._compile_all_devices = True  # a CPU too, which transformers otherwise leaves eager
STATIC = {"cache_implementation": "static"}
WAYS = {"eager": {}, "static cache": STATIC | {"disable_compile": True},
        "static cache, compiled": STATIC | {"compile_config": COMPILED}}


def answer(model, batch, new, options):
    """Writes `new` tokens for each of `batch` prompts."""
    prompts = torch.randint(5, CONFIG.vocab_size, (batch, READ), device=DEVICE)
    model.generate(prompts, attention_mask=torch.ones_like(prompts), max_new_tokens=new, do_sample=False,
                   pad_token_id=0, **options)


def timed(model, ways, repeats=3 if GPU else 2):
    """{(way, batch): (tokens/s of the batch, seconds of the prompts)}, every way and batch in turn."""
    steps = {(way, batch, new): partial(answer, model, batch, new, options) for way, options in ways.items()
             for batch in BATCHES for new in (1, WRITTEN + 1) if GPU or batch == 1 or "compile_config" not in options}
    best = {key: timing.best for key, timing in interleaved(steps, repeats, warmup=2 if GPU else 1).items()}
    return {(way, batch): (batch * WRITTEN / (best[way, batch, WRITTEN + 1] - first), first)
            for (way, batch, new), first in best.items() if new == 1}

# %% [markdown]
# ## A batch, a static cache, a compiled step
#
# The weights are in 16 bits here. The limit is the bandwidth of this machine, measured by a copy, over the bytes
# that a token reads.

# %% tags=["measures"]
model = random_weights(CONFIG)
if GPU:
    torch.cuda.reset_peak_memory_stats()
answer(model, max(BATCHES), WRITTEN, {})
peak = torch.cuda.max_memory_allocated() if GPU else None
found = timed(model, WAYS)
block = torch.empty((2**30 if GPU else 2**27), dtype=torch.uint8, device=DEVICE)
copied = 2 * block.numel() / interleaved({"copy": block.clone})["copy"].best
weights = sum(p.numel() * p.element_size() for p in model.parameters())
limits = {batch: batch * copied / weights for batch in BATCHES}
table("run-ways", f"generate on {RAN}: {READ} tokens of prompt, {WRITTEN} new ones, random weights in {str(HALF)[6:]}",
      {"way": "How", "batch": "Batch", "rate": "Tokens/s of the batch", "first": "First token after, ms",
       "share": "Of the limit by a copy of the weights, %"},
      [{"way": way, "batch": batch, "rate": rate, "first": 1e3 * first, "share": 100 * rate / limits[batch]}
       for (way, batch), (rate, first) in found.items()], kind="measured")

# %% [markdown]
# What must hold on every machine: a larger batch writes more tokens per second, and at most as
# many times more as it has sequences. On a GPU no way of writing reads weights faster than its
# memory delivers them.

# %% tags=["measures"]
def rate(way, batch=1):
    return found[way, batch][0]


ON = f", generate on {RAN}"
for batch in BATCHES[1:]:
    claim(f"run-batch-{batch}", f"Tokens/s at batch {batch} over batch 1, eager{ON}",
          rate("eager", batch) / rate("eager"), "x", kind="measured", at_least=1, at_most=1.3 * batch)
claim("run-static", f"Speed of a token with a static cache that is not compiled, over eager, batch 1{ON}",
      rate("static cache") / rate("eager"), "x", kind="measured", at_least=0.4, at_most=1.5)
claim("run-compiled", f"Speed of a token with a static cache and a compiled step over eager, batch 1{ON}",
      rate("static cache, compiled") / rate("eager"), "x", kind="measured", at_least=0.7, at_most=30)
claim("run-limit", f"Tokens/s compiled at batch 1, of the limit by this machine's copy rate{ON}",
      100 * rate("static cache, compiled") / limits[1] if GPU else None, "%", kind="measured", at_least=5, at_most=110,
      because="the caches of this CPU hold the tiny model")
claim("run-prompt", f"Tokens/s of reading a prompt over those of writing, eager, batch 1{ON}",
      READ / found["eager", 1][1] / rate("eager"), "x", kind="measured", at_least=2)
key_and_value = 2 * CONFIG.num_key_value_heads * CONFIG.head_dim * HALF.itemsize  # bytes of a token in a layer
cache = max(BATCHES) * (READ + WRITTEN) * CONFIG.num_hidden_layers * key_and_value
claim("run-peak", f"Peak that the allocator counts over weights and cache, batch {max(BATCHES)}, eager{ON}",
      peak / (weights + cache) if GPU else None, "x", kind="measured", at_least=0.98, at_most=1.5,
      because="this machine has no GPU")

# %% tags=["measures"] alt="Bars of tokens per second against eager at batch 1: the batch counts more than the way to write."
plots.bars({way: {f"batch {batch}": rate(way, batch) / rate("eager") for batch in BATCHES if (way, batch) in found}
            for way in WAYS}, "tokens/s of the batch against eager at batch 1, x", baseline=1)

# %% [markdown]
# ## Fewer bits
#
# bitsandbytes keeps the weights of the linear layers in 8 or 4 bits and dequantizes them in every
# step. At batch 1 a token reads fewer bytes, so it cannot become faster than by the ratio of the
# bits. At larger batches the dequantization costs time that 16-bit weights do not need.

# %% tags=["measures"]
FULL = f"{8 * HALF.itemsize} bits"  # a CPU without bf16 computes in 32
in_bits, held = {FULL: found}, {FULL: weights}
for label, weights_kind in (("8 bits", "int8"), ("4 bits, nf4", "nf4")):
    del model
    torch.compiler.reset()  # a compiled step keeps its model alive
    gc.collect()
    model = random_weights(CONFIG)
    quantize(model, weights_kind, DEVICE, HALF)
    held[label] = sum(p.numel() * p.element_size() for p in model.parameters())
    in_bits[label] = timed(model, {"eager": {}})
table("run-bits", f"Eager generate on {RAN}, by the bits of the weights",
      {"bits": "Weights", "held": "Weights held, GiB",
       **{f"b{batch}": f"Batch {batch}, tokens/s" for batch in BATCHES}},
      [{"bits": label, "held": held[label] / GiB, **{f"b{batch}": rates["eager", batch][0] for batch in BATCHES}}
       for label, rates in in_bits.items()], kind="measured")
for name, label, bits in (("int8", "8 bits", 8), ("nf4", "4 bits, nf4", 4)):
    for batch in (1, max(BATCHES)):
        claim(f"run-{name}-{batch}", f"Speed of a token with weights in {label} of bitsandbytes over {FULL}, batch "
              f"{batch}{ON}", in_bits[label]["eager", batch][0] / rate("eager", batch), "x", kind="measured",
              at_least=0.02, at_most=1.25 * 8 * HALF.itemsize / bits)

# %% [markdown]
# ## Attention kernels
#
# `scaled_dot_product_attention` chooses a kernel. Here each one that this machine has reads the same
# long prompt. They must agree up to rounding. Only the math kernel writes the scores to
# memory, so it is the slowest at this length and the only one whose memory grows with the square.

# %% tags=["measures"]
LENGTH = 4096 if GPU else 512
HEADS = 32 if GPU else 8
states = [torch.randn(1, HEADS, LENGTH, 128, device=DEVICE, dtype=HALF) for _ in range(3)]  # queries, keys, values


def attend(backend):
    with sdpa_kernel(backend), torch.no_grad():
        return scaled_dot_product_attention(*states, is_causal=True)


def runs_here(backend):
    try:
        return attend(backend) is not None
    except RuntimeError:  # "No available kernel": of another device, or of a newer GPU
        return False


KERNELS = {"math": SDPBackend.MATH, "flash": SDPBackend.FLASH_ATTENTION, "cuDNN": SDPBackend.CUDNN_ATTENTION,
           "memory-efficient": SDPBackend.EFFICIENT_ATTENTION}
kernels = {name: backend for name, backend in KERNELS.items() if runs_here(backend)}
seconds = {name: timing.best for name, timing in
           interleaved({name: partial(attend, backend) for name, backend in kernels.items()}).items()}

# %% tags=["measures"]
table("run-kernels", f"Causal attention of {HEADS} heads of 128 over {LENGTH:,} tokens in {str(HALF)[6:]}",
      {"kernel": "Kernel", "time": "Time, ms", "speed": "Speed against math, x"},
      [{"kernel": name, "time": 1e3 * took, "speed": seconds["math"] / took} for name, took in seconds.items()],
      kind="measured")
apart = max((attend(backend) - attend(KERNELS["math"])).abs().max().item() for backend in kernels.values())
claim("run-kernels-apart", f"Largest difference between the attention kernels of this machine, {LENGTH:,} tokens, "
      "random values of size 1", apart, kind="measured", at_most=0.05)
claim("run-fused", f"Speed of the fastest fused attention kernel over the math kernel, {LENGTH:,} tokens",
      seconds["math"] / min(took for name, took in seconds.items() if name != "math"), "x", kind="measured",
      at_least=1)

# %% [markdown]
# ## Prompts
#
# Reading a prompt is bound by arithmetic, as training is. The rate that this machine reaches is
# measured by one large matrix product in the same dtype, and no prompt can be faster than that. Its
# FLOPs are counted on the meta device.

# %% tags=["measures"]
del model
gc.collect()
model = random_weights(CONFIG)
with torch.device("meta"):
    counted = AutoModelForCausalLM.from_config(CONFIG)
SIDE, LENGTHS_READ = (8192, (512, 2048, 8192)) if GPU else (1024, (64, 256, 512))
square = torch.randn(SIDE, SIDE, device=DEVICE).to(HALF)


@torch.no_grad()
def read(model, tokens, device):
    return model(torch.zeros(1, tokens, dtype=torch.long, device=device), use_cache=True, logits_to_keep=1)


def flops_read(tokens):
    with FlopCounterMode(display=False) as counter:
        read(counted, tokens, "meta")
    return counter.get_total_flops()


took = interleaved({tokens: partial(read, model, tokens, DEVICE) for tokens in LENGTHS_READ}
                   | {"product": lambda: square @ square}, repeats=5)
reached = 2 * SIDE**3 / took["product"].best
prompts = [{"tokens": tokens, "time": 1e3 * took[tokens].best, "rate": tokens / took[tokens].best,
            "share": 100 * flops_read(tokens) / took[tokens].best / reached} for tokens in LENGTHS_READ]
table("run-prompts", f"One prompt of {RAN}, eager, in {str(HALF)[6:]}",
      {"tokens": "Prompt, tokens", "time": "Time, ms", "rate": "Tokens/s", "share": "Of a large product's rate, %"},
      prompts, kind="measured")
claim("run-prefill", f"FLOP/s of a prompt of {LENGTHS_READ[1]:,} tokens, of the rate of a large product{ON}",
      prompts[1]["share"], "%", kind="measured", at_least=1, at_most=115)

# %% [markdown]
# ## What came out, and what to do
#
# - **Fill the batch first.** In this run a batch brought more than any way to write a token, because
#   all sequences share one read of the weights. It costs memory for their caches.
# - **Compile for one user.** A static cache lets the step be compiled, which removes the launch
#   overhead of eager decoding. On a fast GPU that overhead is most of a small model's token; on the
#   CPU of the published run it is little, and the gain there says nothing about a GPU.
# - **Take fewer bits to make a model fit**, and measure what they do to the speed: at batch 1 a token
#   reads fewer bytes, and at every batch the weights have to be dequantized. The guide *Quantization*
#   says on which GPUs bitsandbytes was faster, and on which slower.
# - **A prompt is another matter.** Reading it is compute-bound, so a static cache does not shorten it.

# %%
# Compares this run with the published records. In Colab it also offers the record of this machine, to send.
from evidence.finish import finish

finish()
