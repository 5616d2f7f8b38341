# ---
# jupyter:
#   needs: [jax, jaxlib, torchax, optax]
#   runs_on: cpu, eight simulated devices run the programs of a TPU
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
# # TPU and XLA, without a TPU
#
# **What fits on which slice, when does XLA compile, and what do the chips send to
# each other?**
#
# XLA is the compiler of TPUs. It also compiles for a CPU, and a CPU can play eight
# devices. The compiled program is text: it says which shapes it is for, and which
# collectives the chips carry out.
#
# *What to expect.*
#
# - A chip has less memory than a data-center GPU, so even a model of 8 billion
#   parameters needs a slice.
# - Each new shape is a new program.
# - Data parallelism sends the gradients, FSDP also the weights, and tensor
#   parallelism the activations.
# - The loss is that of PyTorch, whatever is sharded.
#
# *How it is measured.* Memory is derived, and traced where it depends on the model's
# code. Programs and collectives are counted in what XLA compiles, which needs no
# TPU. Seconds are those of a CPU: they say nothing of a TPU's speed.

# %%
# Installs what this notebook needs where it is not there yet (Colab, an empty folder). Colab's torch stays as it is.
import importlib.util
import os
import subprocess
import sys

PINS = {"transformers": "5.23.0", "accelerate": "1.15.0", "jax": "0.10.2", "jaxlib": "0.10.2",
        "torchax": "0.0.14.dev20261026", "optax": "0.2.8"}
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
needs = {"jax": "jax==0.10.2", "torchax": "torchax==0.0.14.dev20261026", "optax": "optax"}
missing = [needed for name, needed in needs.items() if importlib.util.find_spec(name) is None]
if missing:
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", *missing], check=True)

# %%
os.environ["JAX_PLATFORMS"] = "cpu"  # also where there is a GPU: the question is what XLA makes of a program
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count=8 {os.environ.get('XLA_FLAGS', '')}"

# %% [markdown]
# The number of devices is set before JAX is imported, which reads it once.

# %%
import logging
import math
import re
import time
import warnings

logging.disable(logging.WARNING)
warnings.simplefilter("ignore")

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax
import torch
import torchax
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from torchax.interop import call_jax, jax_view, torch_view
from transformers import AttentionInterface, AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, StaticCache

from dryrun.tables.hardware import accelerator
from dryrun.tracing.ranks import many_layers
from evidence import plots
from evidence.claims import claim, start, table

GB, GiB = 1e9, 2**30
plots.set_up("tpu")
start("tpu", packages=("jax", "torchax"))

# %% [markdown]
# ## The chips
#
# Vendor figures, for one chip. Floating-point operations per byte say how often a
# number must be used after it was read, or the chip waits for its memory.

# %%
PODS = {"tpu-v4": 4096, "tpu-v5e": 256, "tpu-v5p": 8960, "tpu-v6e": 256, "tpu-v7x": 9216}
chips = {name: accelerator(name) for name in PODS}
table("chips", "TPU chips, as Google publishes them",
      {"chip": "Chip", "memory": "Memory, GB", "bandwidth": "Bandwidth, GB/s", "bf16": "bf16, TFLOP/s",
       "pod": "Chips in a pod"},
      [{"chip": chip.name.removesuffix(" (chip)"), "memory": chip.get("memory"), "bandwidth": chip.get("bandwidth"),
        "bf16": chip.half, "pod": PODS[name]} for name, chip in chips.items()],
      kind="cited", source="https://docs.cloud.google.com/tpu/docs/system-architecture-tpu-vm")
for name, words, least, most in (("tpu-v5e", "v5e", 235, 246), ("tpu-v6e", "v6e", 550, 570)):
    claim(f"per-byte-{words}", f"bf16 FLOPs that a TPU {words} chip does while it reads one byte of its memory",
          chips[name].flop_per_byte, "FLOPs", kind="derived", at_least=least, at_most=most)

# %% [markdown]
# ## What fits
#
# AdamW in mixed precision holds `16 bytes` per parameter: weight, gradient, two moments and the
# copy in 16 bits. FSDP divides all of it by the chips. What is not divided is traced: the
# activations of one sequence of 2,048 tokens with activation checkpointing, the logits, and the layers that are
# gathered at that moment. The trace is of PyTorch's FSDP2, with attention that does not write its scores. XLA plans
# memory by itself and can do better or worse. A slice of v5p has at least 4 chips.

# %%
def llama(hidden, ffn, layers, heads, tied):
    return LlamaConfig(vocab_size=128256, hidden_size=hidden, intermediate_size=ffn, num_hidden_layers=layers,
                       num_attention_heads=heads, num_key_value_heads=8, tie_word_embeddings=tied, use_cache=False)


MODELS = {"1B": llama(2048, 8192, 16, 32, True), "8B": llama(4096, 14336, 32, 32, False),
          "70B": llama(8192, 28672, 80, 64, False)}

# %% [markdown]
# A slice fits where `90 %` of a chip's memory is enough. The rest is for fragments and the runtime.

# %%
SLICES = [1, 4, 8, 16, 32, 64, 128, 256]
LEAST = {"tpu-v5p": 4}  # chips of its smallest slice
FULL = 0.9


def parameters_of(config):
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in AutoModelForCausalLM.from_config(config).parameters())


def not_divided(config, parameters):
    """GB on each chip beside its share of the 16 bytes per parameter."""
    step = many_layers(AutoModelForCausalLM, config, "fsdp2", 8, 1, 2048, activation_checkpointing=True)
    return step.peak_gib * GiB / GB - 16 * parameters / 8 / GB


sizes = {name: parameters_of(config) for name, config in MODELS.items()}
rest = {name: not_divided(config, sizes[name]) for name, config in MODELS.items()}


def on_each_chip(model, number):
    return 16 * sizes[model] / number / GB + rest[model]


def smallest(model, chip):
    enough = (number for number in SLICES if number >= LEAST.get(chip, 1))
    return next((number for number in enough if on_each_chip(model, number) < FULL * chips[chip].get("memory")), None)


# %%
table("fits", "The smallest slice that trains a Llama with AdamW, all weights, one sequence of 2,048 tokens per chip",
      {"model": "Llama", "state": "State, GB", "rest": "Not divided, GB per chip",
       "v5e": "v5e, chips", "v6e": "v6e, chips", "v5p": "v5p, chips"},
      [{"model": name, "state": 16 * sizes[name] / GB, "rest": rest[name]}
       | {chip: smallest(name, f"tpu-{chip}") for chip in ("v5e", "v6e", "v5p")} for name in MODELS], kind="traced")
claim("state-8b", "Weights, gradients and AdamW state of an 8B Llama in mixed precision, 16 bytes per parameter",
      16 * sizes["8B"] / GB, "GB", kind="derived", at_least=128, at_most=129)
claim("state-8b-eighth", "An eighth of the 16 bytes per parameter of an 8B Llama, on each of 8 chips",
      16 * sizes["8B"] / 8 / GB, "GB", kind="derived", at_least=16, at_most=16.2)
for name, model, chip, least, most in (("slice-8b", "8B", "v5e", 16, 32), ("slice-8b-v6e", "8B", "v6e", 8, 16)):
    claim(name, f"Chips of the smallest {chip} slice that trains a {model} Llama with AdamW and FSDP",
          smallest(model, f"tpu-{chip}"), kind="traced", at_least=least, at_most=most)

# %% [markdown]
# How to read the picture: a bar that crosses the line does not fit on a v5e chip.

# %%
names = [f"v5e-{number}" for number in (8, 16, 32, 64)]
shares = [16 * sizes["8B"] / number / GB for number in (8, 16, 32, 64)]
table("by-slice", "Memory of each v5e chip, Llama 8B, AdamW, FSDP, one sequence of 2,048 tokens per chip",
      {"slice": "Slice", "state": "State, GB", "rest": "Not divided, GB"},
      [{"slice": name, "state": share, "rest": rest["8B"]} for name, share in zip(names, shares)], kind="traced")

# %% alt="Bars of the memory of an 8B model on each chip of a slice: state shrinks with the chips, the rest does not."
_, axes = plt.subplots(figsize=(7, 2.8))
axes.barh(names, shares, label="state")
axes.barh(names, [rest["8B"]] * 4, left=shares, label="not divided")
axes.axvline(chips["tpu-v5e"].get("memory"), color="black", linewidth=1)
axes.invert_yaxis()
axes.set_xlabel("GB on each chip, Llama 8B; the line is the memory of a v5e chip")
axes.legend()
plt.show()

# %% [markdown]
# ## A shape, a program
#
# JAX runs the Python of a compiled function once for each new shape. So a line in that
# function counts programs. Ten batches of ten lengths follow, first as they are, then padded to
# the next power of two (*buckets*). Expect one program for each length that the compiler sees.
# Padding costs arithmetic instead. One long length for all would cost more of it than buckets do.

# %%
LENGTHS = [30, 41, 52, 63, 74, 85, 96, 107, 118, 129]


def programs(lengths):
    traced = []

    @jax.jit
    def step(ids):
        traced.append(ids.shape)
        return jnp.sum(ids * 2)

    for length in lengths:
        step(np.ones((8, length), np.int32))
    return len(traced)


def bucket(length, smallest=32):
    return max(smallest, 1 << (length - 1).bit_length())


padded = [bucket(length) for length in LENGTHS]
claim("programs-plain", "Programs that XLA compiles for ten batches of ten lengths", programs(LENGTHS),
      kind="traced", at_least=10, at_most=10)
claim("programs-buckets", "Programs for the same batches, padded to powers of two", programs(padded),
      kind="traced", at_least=4, at_most=4)
claim("padding-cost", "Tokens computed against tokens given, ten lengths from 30 to 129 padded to powers of two",
      sum(padded) / sum(LENGTHS), "x", kind="derived", at_least=1.2, at_most=1.5)

# %% [markdown]
# ## What the chips send
#
# A Llama of two layers, one training step, eight devices. Only the placement of the weights
# differs:
#
# - *data*: each device has all weights and an eighth of the batch.
# - *fsdp*: the same, and each device keeps an eighth of each matrix.
# - *tensor*: each device computes an eighth of each layer, on the whole batch.

# %%
ROWS, LENGTH, RATE = 8, 64, 1e-3
SMALL = LlamaConfig(
    hidden_size=256, intermediate_size=512, num_hidden_layers=2, num_attention_heads=8, num_key_value_heads=8,
    vocab_size=256, max_position_embeddings=LENGTH, use_cache=False, bos_token_id=None, eos_token_id=None,
)
LAYOUTS = {"data": (8, 1), "fsdp": (8, 1), "tensor": (1, 8), "one": (1, 1)}
BY_OUTPUT, BY_INPUT = ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj"), ("o_proj", "down_proj")
OPTIMIZER = optax.adamw(RATE, eps=1e-8, weight_decay=0.01)


def place(layout, name, tensor):
    if layout == "fsdp" and tensor.ndim == 2:
        return P("data", None)
    if layout == "tensor" and any(part in name for part in BY_OUTPUT):
        return P("model", None)
    if layout == "tensor" and any(part in name for part in BY_INPUT):
        return P(None, "model")
    return P()


def jax_attention(module, query, key, value, attention_mask, **_):
    query, key, value = (tensor.transpose(1, 2) for tensor in (query, key, value))
    return call_jax(jax.nn.dot_product_attention, query, key, value, is_causal=True), None


AttentionInterface.register("jax", jax_attention)

# %% [markdown]
# The step is a function of weights, optimizer state and batch.

# %%
def prepared(model, layout, rematerialize=False):
    """The jitted step of a transformers model, its weights, its optimizer state, and where a batch goes."""
    mesh = jax.make_mesh(LAYOUTS[layout], ("data", "model"), axis_types=(AxisType.Auto, AxisType.Auto))
    weights = {name: jax.device_put(tensor.detach().numpy(), NamedSharding(mesh, place(layout, name, tensor)))
               for name, tensor in model.named_parameters()}
    buffers = {name: jax.device_put(tensor.numpy(), NamedSharding(mesh, P())) for name, tensor in model.named_buffers()}

    def loss_of(weights, ids):
        with torchax.default_env():
            tensors, ids = torch_view((weights | buffers, ids))
            return jax_view(torch.func.functional_call(model, tensors, (), {"input_ids": ids, "labels": ids}).loss)

    @jax.jit
    def step(weights, state, ids):
        loss, gradients = jax.value_and_grad(jax.checkpoint(loss_of) if rematerialize else loss_of)(weights, ids)
        updates, state = OPTIMIZER.update(gradients, state, weights)
        return optax.apply_updates(weights, updates), state, loss

    return step, weights, OPTIMIZER.init(weights), NamedSharding(mesh, P("data", None))


def small_model(attention="jax"):
    torch.manual_seed(0)
    return LlamaForCausalLM._from_config(SMALL, attn_implementation=attention)


def batch(number):
    return np.random.default_rng(number).integers(0, 256, (ROWS, LENGTH), dtype=np.int32)

# %% [markdown]
# The collectives are read in the program that XLA made. Bytes are those of their results.
# Round a ring of eight, an all-reduce sends 2 x 7/8 of its bytes from each device, and an
# all-gather 7/8. Nobody wrote these collectives: the compiler derives them from where the
# weights and the batch lie. So read them after each change of a layout. A collective that you
# did not expect is the usual reason for a slow step.

# %%
BYTES = {"f32": 4, "s32": 4, "u32": 4, "pred": 1}


def collectives(text, kind):
    """How many collectives of a kind a compiled program has, and the bytes of their results."""
    results = re.findall(rf"= (.+?) {kind}(?:-start)?\(", text)
    shapes = [shape for result in results for shape in re.findall(r"(\w+)\[([\d,]*)\]", result)]
    size = sum(BYTES[dtype] * math.prod(map(int, filter(None, shape.split(",")))) for dtype, shape in shapes)
    return len(results), size


WAYS = {
    "data": ("data", "jax", False), "FSDP": ("fsdp", "jax", False), "FSDP, jax.checkpoint": ("fsdp", "jax", True),
    "tensor, PyTorch's attention": ("tensor", "sdpa", False), "tensor, JAX's attention": ("tensor", "jax", False),
}
reduced, gathered = {}, {}
for way, (layout, attention, rematerialize) in WAYS.items():
    step, weights, state, rows = prepared(small_model(attention), layout, rematerialize)
    text = step.lower(weights, state, jax.device_put(batch(0), rows)).compile().as_text()
    assert not collectives(text, "reduce-scatter")[0], "the guide says: a CPU has none"
    reduced[way], gathered[way] = collectives(text, "all-reduce"), collectives(text, "all-gather")

# %%
MB = 1e6
sent = {way: (2 * reduced[way][1] + gathered[way][1]) * 7 / 8 / MB for way in WAYS}
table("collectives", "Collectives of a training step on eight devices, Llama of two layers, 8 x 64 tokens, fp32",
      {"way": "Way", "reduces": "All-reduces", "reduced": "All-reduced, MB", "gathers": "All-gathers",
       "gathered": "Gathered, MB", "sent": "Sent by each device, MB"},
      [{"way": way, "reduces": reduced[way][0], "reduced": reduced[way][1] / MB, "gathers": gathered[way][0],
        "gathered": gathered[way][1] / MB, "sent": sent[way]} for way in WAYS], kind="traced")

# %% alt="Bars of the bytes that each device sends; FSDP with jax.checkpoint and tensor parallelism send the most."
plots.bars(sent, "sent by each device, MB")

# %% [markdown]
# Against theory. Data parallelism reduces one gradient per parameter. FSDP gathers each weight
# once where memory is not short, and twice with `jax.checkpoint`, as PyTorch's FSDP does. Tensor parallelism
# sums up activations: the textbook has four sums in a layer.

# %%
small = sum(parameter.numel() for parameter in small_model().parameters())
activation = 4 * ROWS * LENGTH * SMALL.hidden_size
for name, words, value, least, most in (
    ("sent-data", "Bytes that data parallelism all-reduces against 4 bytes per parameter",
     reduced["data"][1] / 4 / small, 1, 1.01),
    ("gathered-fsdp", "Bytes that FSDP gathers against 4 bytes per parameter",
     gathered["FSDP"][1] / 4 / small, 0.99, 1.01),
    ("gathered-checkpoint", "Bytes that FSDP gathers with jax.checkpoint against 4 bytes per parameter",
     gathered["FSDP, jax.checkpoint"][1] / 4 / small, 1.98, 2.02),
):
    claim(name, f"{words}, Llama of two layers on eight devices", value, "x", kind="traced",
          at_least=least, at_most=most)
claim("tensor-sums", "Activations that tensor parallelism all-reduces in each layer of a step, as XLA compiles it",
      reduced["tensor, JAX's attention"][1] / activation / 2, kind="traced", at_least=7, at_most=7)
claim("attention-gathers", "All-gathers of a step of two layers, tensor parallelism, PyTorch's attention by torchax",
      gathered["tensor, PyTorch's attention"][0], kind="traced", at_least=8, at_most=8)
claim("attention-gathers-jax", "All-gathers of the same step with JAX's attention",
      gathered["tensor, JAX's attention"][0], kind="traced", at_most=0)

# %% [markdown]
# ## What one product in bf16 costs in precision
#
# A TPU's matrix unit multiplies bf16 numbers and adds them up in fp32. A number in fp32 is
# rounded to bf16 first: one pass. Three passes also multiply what the rounding left over.
# `jax.default_matmul_precision` chooses among them. A comparison with fp32 on another machine
# needs the highest, and training seldom does.

# %%
generator = np.random.default_rng(0)
left, right = (generator.standard_normal((256, 256), dtype=np.float32) for _ in range(2))
exact = left.astype(np.float64) @ right.astype(np.float64)


def halves(matrix):
    """A matrix as the sum of two in bf16, the second of which is the rounding error of the first."""
    high = np.asarray(jnp.asarray(matrix, jnp.bfloat16).astype(jnp.float32))
    low = np.asarray(jnp.asarray(matrix - high, jnp.bfloat16).astype(jnp.float32))
    return high.astype(np.float64), low.astype(np.float64)


(a, a_rest), (b, b_rest) = halves(left), halves(right)


def off(product):
    return 100 * np.linalg.norm(product - exact) / np.linalg.norm(exact)


claim("bf16-one-pass", "Relative error of a product of two fp32 matrices, 256 x 256, that are rounded to bf16",
      off(a @ b), "%", kind="derived", at_least=0.1, at_most=0.5)
claim("bf16-three-passes", "Relative error of the same product in three passes of bf16",
      off(a @ b + a_rest @ b + a @ b_rest), "%", kind="derived", at_least=0.0001, at_most=0.01)

# %% [markdown]
# ## Generation
#
# A static cache is an argument of the compiled function. Its size is the same for every
# token, so decoding is one program. Reading a prompt is one program for each length.
# So prompts are padded on the right, to powers of two. The answer begins at the last real
# token, and each new token overwrites one that was padded. The tokens must stay the same.

# %%
ROOM = 256
torch.manual_seed(0)
WRITER = LlamaConfig(
    hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
    vocab_size=512, max_position_embeddings=ROOM, bos_token_id=None, eos_token_id=None, pad_token_id=0,
)
writer = LlamaForCausalLM(WRITER).eval()
read = {name: tensor.detach().numpy() for name, tensor in [*writer.named_parameters(), *writer.named_buffers()]}
prompts = [np.arange(5, 5 + length)[None] for length in (5, 9, 12, 20, 31)]
NEW = 8
traced = []


@jax.jit
def forward(weights, arrays, ids, filled, last):
    traced.append(ids.shape)
    with torchax.default_env():
        cache = StaticCache(WRITER, max_cache_len=ROOM)
        for layer, (keys, values) in zip(cache.layers, torch_view(arrays)):
            layer.lazy_initialization(keys, values)
            layer.keys, layer.values, layer.cumulative_length = keys, values, torch_view(filled + 0)
        inputs = {"input_ids": torch_view(ids), "past_key_values": cache, "logits_to_keep": torch_view(last[None])}
        logits = torch.func.functional_call(writer, torch_view(weights), (), inputs).logits
        token = jnp.argmax(jax_view(logits)[:, 0], axis=-1)
        return token, [(jax_view(layer.keys), jax_view(layer.values)) for layer in cache.layers]

# %%
def generate(ids, width):
    shape = (1, WRITER.num_key_value_heads, ROOM, WRITER.head_dim)
    arrays = [(jnp.zeros(shape), jnp.zeros(shape)) for _ in range(WRITER.num_hidden_layers)]
    length = ids.shape[1]
    ids = jnp.pad(ids, ((0, 0), (0, width - length)))
    token, arrays = forward(read, arrays, ids, jnp.array(0), jnp.array(length - 1))
    answer = [token]
    for position in range(length, length + NEW - 1):
        token, arrays = forward(read, arrays, token[:, None], jnp.array(position), jnp.array(0))
        answer.append(token)
    return np.stack(answer, axis=1)


def programs_of(widths):
    """How many programs the prompts need when they are padded to these widths, and the answers."""
    traced.clear()
    forward.clear_cache()
    answers = [generate(ids, width) for ids, width in zip(prompts, widths)]
    return len(traced), answers

# %%
plain, _ = programs_of([ids.shape[1] for ids in prompts])
padded_count, answers = programs_of([bucket(ids.shape[1], 16) for ids in prompts])
claim("generate-plain", "Programs that XLA compiles to answer five prompts of five lengths, static cache", plain,
      kind="traced", at_least=6, at_most=6)
claim("generate-buckets", "Programs for the same prompts, padded to powers of two", padded_count, kind="traced",
      at_least=3, at_most=3)

# %% tags=["measures"]
expected = [writer.generate(torch.from_numpy(ids), max_new_tokens=NEW, do_sample=False)[:, ids.shape[1]:].numpy()
            for ids in prompts]
claim("tokens-differ", "Tokens of 5 answers of 8 that padded generation by XLA chooses otherwise than PyTorch",
      int(sum((answer != tokens).sum() for answer, tokens in zip(answers, expected))), "tokens", kind="measured",
      at_most=1)

# %% [markdown]
# What a 70B model leaves on eight v5e chips of `16 GB`, weights divided, without cache:

# %%
seventy = sizes["70B"]
claim("weights-70b", "Weights of a 70B Llama in bf16, 2 bytes per parameter", 2 * seventy / GB, "GB", kind="derived",
      at_least=141, at_most=142)
claim("left-70b-int8", "What the int8 weights of a 70B Llama leave on each of eight v5e chips of 16 GB",
      16 - seventy / 8 / GB, "GB", kind="derived", at_least=7, at_most=7.4)

# %% [markdown]
# ## The losses, and the first step
#
# Five steps in PyTorch, and in each layout, from the same weights on the same batches.

# %% tags=["measures"]
def losses_in_pytorch():
    model = small_model("sdpa")
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, eps=1e-8, weight_decay=0.01)
    for number in range(5):
        ids = torch.from_numpy(batch(number)).long()
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield loss.item()


def losses_of(layout):
    step, weights, state, rows = prepared(small_model(), layout)
    for number in range(5):
        weights, state, loss = step(weights, state, jax.device_put(batch(number), rows))
        yield float(loss)


expected = list(losses_in_pytorch())
apart = {layout: max(abs(a - b) for a, b in zip(expected, losses_of(layout), strict=True)) for layout in LAYOUTS}
claim("loss-apart", "Largest difference of a loss from PyTorch's in five steps, eight devices, data, FSDP and tensor",
      max(apart.values()), "nats", kind="measured", at_most=0.001)

# %% [markdown]
# The shape of SmolLM2-135M, one device, one batch of 2 x 128 tokens. The first step traces and compiles.
# It says how the two relate on this CPU; a TPU computes far faster, and compiles no faster.

# %% tags=["measures"]
smol = LlamaConfig(
    hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9, num_key_value_heads=3,
    vocab_size=49152, max_position_embeddings=128, tie_word_embeddings=True, use_cache=False, bos_token_id=None,
    eos_token_id=None,
)
real = LlamaForCausalLM._from_config(smol, attn_implementation="jax")
step, weights, state, rows = prepared(real, "one")
seconds = []
for number in range(4):
    begun = time.perf_counter()
    weights, state, loss = step(weights, state, jax.device_put(batch(number)[:2].repeat(2, axis=1), rows))
    loss.block_until_ready()
    seconds.append(time.perf_counter() - begun)
claim("first-step", "Seconds of the first step against a later one, Llama of 135 million parameters, 256 tokens, XLA",
      seconds[0] / min(seconds[1:]), "x", kind="measured", at_least=1.5, at_most=200)

# %% [markdown]
# ## What others reach
#
# MaxText publishes what it reaches in bf16 on TPUs, and the share of the peak. The last column
# is arithmetic: tokens per second times 3,600.

# %%
MAXTEXT = "https://maxtext.readthedocs.io/en/maxtext-v0.2.0/_sources/reference/models/tiering.md"
REACHED = [("Llama 3.1 8B", "v6e", 256, 8192, 45.46, 7207), ("Llama 3.1 70B", "v6e", 256, 8192, 50.33, 960),
           ("Llama 2 70B", "v6e", 256, 4096, 43.8, 900), ("Llama 2 70B", "v5p", 512, 4096, 65.4, 692),
           ("Mixtral 8x7B", "v5p", 256, 4096, 52.56, 2909)]
table("throughput", "Training with MaxText 0.2.0 in bf16",
      {"model": "Model", "chips": "Chips", "length": "Tokens per sequence", "mfu": "MFU, %",
       "tokens": "Tokens/s per chip"},
      [{"model": model, "chips": f"{chips_} {chip}", "length": length, "mfu": mfu, "tokens": tokens}
       for model, chip, chips_, length, mfu, tokens in REACHED], kind="cited", source=MAXTEXT)
claim("tokens-hour", "Tokens on which one v6e chip trains Llama 3.1 8B in an hour at MaxText's 7,207 tokens/s",
      7207 * 3600 / 1e6, "million", kind="derived", at_least=25, at_most=27)

# %% [markdown]
# ## What came out, and what to do
#
# - **Count the slice first.** Weights, gradients and AdamW need the memory of several
#   chips, even for a model of 8 billion parameters. FSDP divides them.
# - **Pad to a few lengths.** XLA compiles each new shape, in training and in generation.
#   Powers of two keep the programs few, at the price of some padding.
# - **Take data parallelism or FSDP before tensor parallelism.** The first two send what
#   the weights weigh. The third sends activations in every layer, and more of them where
#   the attention is not written for JAX.
# - **Compare the losses once.** Every layout gave those of PyTorch, up to rounding. A
#   layout that gives others has an error.
# - **Leave the first step out of a timing.** It holds the compilation.

# %%
# Compares this run with the published records. In Colab it also offers the record of this machine, to send.
from evidence.finish import finish

finish()
