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
# # Throughput: compile, data loading, padding and packing
#
# What do `torch.compile`, worker processes, padding and the shape of a batch cost and buy *on this machine*? This notebook
# measures each on a small model on a CPU and on a larger one on a GPU. What is arithmetic, the padding of a batch and the waves of
# a matrix product, is the same everywhere.

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
import ast
import math
import os
import pydoc_data.topics
import random
import resource
import shutil
import statistics
import sysconfig
import tempfile
import textwrap
import time
from contextlib import nullcontext
from pathlib import Path

tempfile.tempdir = tempfile.mkdtemp()  # PyTorch keeps its compiled headers below it
os.environ["TORCHINDUCTOR_CACHE_DIR"] = tempfile.mkdtemp()  # where it keeps kernels: every run compiles anew

import matplotlib.pyplot as plt
import torch
from accelerate.utils import compile_regions
from matplotlib_inline.backend_inline import set_matplotlib_formats
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from torch._inductor.utils import fresh_cache
from transformers import DataCollatorWithFlattening, LlamaConfig, LlamaForCausalLM, TokenizersBackend, logging, set_seed
from transformers.trainer_pt_utils import get_length_grouped_indices

from evidence.claims import claim, start, table
from evidence.machine import describe
from evidence.measure import interleaved

logging.set_verbosity_error()
logging.disable_progress_bar()
set_matplotlib_formats("svg")
plt.rcParams["svg.hashsalt"] = "throughput"  # the same figure at every run
start("throughput")

# %% [markdown]
# ## The size that fits this machine
#
# The weights are random: speed does not depend on them. On a GPU the model is larger and runs in 16 bits.

# %% tags=["measures"]
GPU = torch.cuda.is_available()
device = "cuda" if GPU else "cpu"
NATIVE_BF16 = torch.cuda.get_device_capability() >= (8, 0) if GPU else not {"avx512_bf16", "amx_bf16"}.isdisjoint(describe()["cpu_features"])
half = torch.bfloat16 if NATIVE_BF16 else torch.float16
if GPU:
    shape = {"hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 12, "num_attention_heads": 16, "num_key_value_heads": 16}
    size, length = "a Llama of 12 layers and hidden size 1,024", 256
else:
    shape = {"hidden_size": 128, "intermediate_size": 384, "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 4}
    size, length = "a Llama of 1 layer and hidden size 128", 64
    torch.set_num_threads(1)  # one thread and CPU time: comparable also on a busy machine
print(f"{size}, {length} tokens per row")


def llama(**other):
    set_seed(0)
    config = LlamaConfig(**{**shape, "vocab_size": 1024, "max_position_embeddings": 4096, "use_cache": False, **other})
    return LlamaForCausalLM(config).to(device)


def training_step(model, *batches):
    """A function that trains `model` for one step on each of the batches."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    batches = [{key: value.to(device) for key, value in batch.items()} for batch in batches]

    def step():
        for batch in batches:
            with torch.autocast(device, dtype=half) if GPU else nullcontext():
                loss = model(**batch).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        step.loss = loss.detach()

    return step


def random_rows(batch_size, length):
    ids = torch.randint(0, 1024, (batch_size, length), generator=torch.Generator().manual_seed(0))
    return {"input_ids": ids, "labels": ids}


def seconds_of(call):
    """Wall time on a GPU. On a CPU the CPU time of this process and of the C++ compiler that it starts."""

    def now():
        if GPU:
            torch.cuda.synchronize()
            return time.perf_counter()
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return sum(usage.ru_utime + usage.ru_stime for usage in used)

    started = now()
    call()
    return now() - started


# %% [markdown]
# ## torch.compile: what the first step costs, what every later step saves
#
# The old hypothesis says that the gain shrinks as the batch grows. Eager and compiled steps run in turn.

# %% tags=["measures"]
SMALL_BATCH, LARGE_BATCH = 1, 32
COMPILER = "this machine has no C++ compiler" if not GPU and not shutil.which("g++") else None
NOTHING = {"compile": None, "eager": None, "compiled": None, "speed": None, "pays": None, "loss": None}
if not GPU:
    torch._inductor.config.compile_threads = 1  # the compiler's time counts as ours


def whole(model):
    model.compile()
    return model


def compile_and_time(batch_size):
    if COMPILER:
        return NOTHING
    torch._dynamo.reset()
    rows = random_rows(batch_size, length)
    models = llama(), whole(llama())
    eager, compiled = (training_step(model, rows) for model in models)
    first = seconds_of(compiled)
    assert not torch._dynamo.utils.counters["inductor"]["fxgraph_cache_hit"], "a cached graph is no compile"
    eager()
    many = 10 if batch_size == SMALL_BATCH else 3
    timings = interleaved({name: lambda step=step: [step() for _ in range(many)] for name, step in (("eager", eager), ("compiled", compiled))}, repeats=4)
    loss = abs(compiled.loss - eager.loss) / eager.loss  # both have done the same number of steps
    plain, fast = timings["eager"].best / many, timings["compiled"].best / many
    spread = {"min": fast, "max": max(timings["compiled"].seconds) / many, "repeats": 4}
    return {"compile": first - fast, "eager": plain, "compiled": fast, "speed": plain / fast, "loss": float(loss), "spread": spread,
            "pays": (first - fast) / (plain - fast) if plain > fast else None, "models": models}


def compile_a_line():
    """In an empty cache this loads the compiler, and for the CPU compiles PyTorch's headers: no part of the cost of a model."""
    torch.compile(lambda x: torch.relu(x).sum())(torch.ones(64, device=device, requires_grad=True)).backward()


headers = None if COMPILER else seconds_of(compile_a_line)
large = compile_and_time(LARGE_BATCH)
small = NOTHING if COMPILER else compile_and_time(SMALL_BATCH)  # stays compiled, for other lengths

# %% tags=["measures"]
table(
    "compile", f"A training step of {size}, {length} tokens per row, eager and compiled",
    {"batch": "Batch size", "eager": "Eager step, s", "compiled": "Compiled step, s", "speed": "Speed-up, x", "compile": "Cost of the first step, s",
     "pays": "Pays from step"},
    [{"batch": batch_size, **{key: found[key] for key in ("eager", "compiled", "speed", "compile", "pays")}}
     for batch_size, found in ((SMALL_BATCH, small), (LARGE_BATCH, large))],
    kind="measured",
)
claim("compile-seconds", f"Time that the first compiled training step takes longer than the next ones, {'wall time' if GPU else 'CPU time with the C++ compiler'}, empty cache, {size}",
      large["compile"], "s", kind="measured", at_least=1, at_most=120, because=COMPILER)
claim("headers", f"Time of compiling a single line first, {'wall time' if GPU else 'CPU time with the C++ compiler'}, empty cache",
      headers, "s", kind="measured", at_least=1, at_most=120, because=COMPILER)
claim("compile-small-batch", f"Speed of a compiled training step against an eager one at batch {SMALL_BATCH}, {length} tokens per row, {size}",
      small["speed"], "x", kind="measured", at_least=1.05, at_most=5, spread=small.get("spread"), because=COMPILER)
claim("compile-large-batch", f"Speed of a compiled training step against an eager one at batch {LARGE_BATCH}, {length} tokens per row, {size}",
      large["speed"], "x", kind="measured", at_least=0.9, at_most=3, spread=large.get("spread"), because=COMPILER)
claim("compile-break-even", f"Training steps after which compiling has paid at batch {LARGE_BATCH}, {length} tokens per row, {size}",
      large["pays"], "steps", kind="measured", at_least=20, at_most=1e5, because=COMPILER or "compiled steps are no faster here")
claim("compile-loss", "Relative difference of the loss of a compiled model from the eager one after 16 training steps",
      large["loss"], kind="measured", at_most=1e-2 if GPU else 1e-3, because=COMPILER)

# %% [markdown]
# ## A new length in every step
#
# The model that is compiled for batch 1 gets 12 other lengths in turn, default arguments. The first pass compiles a second graph,
# for all of them.

# %% tags=["measures"]
def varying(models, first_graph):
    rows = [random_rows(SMALL_BATCH, length) for length in range(20, 116, 8)]
    eager, compiled = (training_step(model, *rows) for model in models)
    first = first_graph + seconds_of(compiled)
    timings = interleaved({"eager": eager, "compiled": compiled}, repeats=4)
    plain, fast = timings["eager"].best, timings["compiled"].best
    spread = {"min": fast / len(rows), "max": max(timings["compiled"].seconds) / len(rows), "repeats": 4}
    return {"speed": plain / fast, "spread": spread,
            "pays": len(rows) * (first - fast) / (plain - fast) if plain > fast else None}


lengths_vary = NOTHING if COMPILER else varying(small["models"], small["compile"])
claim("compile-varying-speed", "Speed of compiled steps against eager ones at batch 1, 12 lengths in turn, once all graphs are compiled",
      lengths_vary["speed"], "x", kind="measured", at_least=0.8, at_most=5, spread=lengths_vary.get("spread"), because=COMPILER)
claim("compile-varying-break-even", "Training steps after which compiling has paid at batch 1, 12 lengths in turn",
      lengths_vary["pays"], "steps", kind="measured", at_least=100, at_most=1e7, because=COMPILER or "compiled steps are no faster here")

# %% [markdown]
# ## One layer compiled and used for all
#
# The layers of a transformer are alike. `compile_regions` of Accelerate compiles one of them and runs it for all. Here the
# forward pass alone, which is enough to compare the two ways.

# %% tags=["measures"]
@torch.no_grad()
def cost_of_first(model, rows, how):
    """Seconds of the first forward pass beyond those of a later one."""
    torch._dynamo.reset()
    model, batch = how(model), {key: value.to(device) for key, value in rows.items()}
    with fresh_cache():  # no kernel of the cells above, or of the other way
        first = seconds_of(lambda: model(**batch))
    return first - min(seconds_of(lambda: model(**batch)) for _ in range(4))


LAYERS = 4
regional = {} if COMPILER else {
    name: cost_of_first(llama(num_hidden_layers=LAYERS), random_rows(SMALL_BATCH, length), how)
    for name, how in (("whole", whole), ("regions", compile_regions))
}
claim("compile-regions", f"Cost of the first forward pass where one layer is compiled for all {LAYERS}, against compiling the whole model",
      regional["regions"] / regional["whole"] if regional else None, "x", kind="measured", at_least=0.2, at_most=0.95, because=COMPILER)

# %% [markdown]
# ## How many graphs do 12 lengths need?
#
# Counted, not timed: a backend that only counts how often it is asked for a graph.

# %% tags=["measures"]
lengths_seen = random.Random(0).sample(range(20, 121), 12)


def graphs(lengths, dynamic=None):
    torch._dynamo.reset()
    asked = []

    def backend(graph, inputs):
        asked.append(graph)
        return graph.forward

    model = torch.compile(llama(num_hidden_layers=1, hidden_size=64), backend=backend, dynamic=dynamic)
    for length in lengths:
        model(**{key: value.to(device) for key, value in random_rows(4, length).items()}).loss.backward()
    return len(asked)


torch._logging.set_logs(dynamo=40)  # the warning of the limit is quoted on the page
claim("graphs-default", "Graphs that torch.compile makes for 12 batches of 12 different lengths, default arguments",
      graphs(lengths_seen), "graphs", kind="measured", at_least=2, at_most=2)
claim("graphs-static", "Graphs that torch.compile makes for 12 batches of 12 different lengths with dynamic=False, before it gives up",
      graphs(lengths_seen, dynamic=False), "graphs", kind="measured", at_least=8, at_most=8)
claim("graphs-padded", "Graphs that torch.compile makes with dynamic=False for the same batches padded to a multiple of 64",
      graphs([math.ceil(length / 64) * 64 for length in lengths_seen], dynamic=False), "graphs", kind="measured", at_least=2, at_most=2)
torch._dynamo.reset()

# %% [markdown]
# ## What others measured
#
# Hugging Face, 2023: vision models, *inference*, A100, milliseconds per batch. The gain of a ViT is gone at batch 4, that of DETR at
# batch 16; that of a convolutional net stays.

# %%
A100_2023 = "https://huggingface.co/datasets/docs-benchmarks/compile-benchmarks/blob/main/a100-benchmarks.csv"
table(
    "compile-2023", "Inference of vision models on an A100, 2023: time of the eager model against the compiled one",
    {"model": "Model", "one": "Batch 1, x", "four": "Batch 4, x", "sixteen": "Batch 16, x"},
    [{"model": model, "one": one, "four": four, "sixteen": sixteen} for model, one, four, sixteen in (
        ("ViT", 9.325 / 7.584, 14.832 / 14.499, 40.944 / 40.01),
        ("BeiT", 11.282 / 8.448, 13.205 / 13.048, 41.854 / 41.048),
        ("DETR", 34.619 / 19.04, 48.657 / 32.418, 164.382 / 161.902),
        ("ResNet", 6.531 / 4.124, 6.657 / 4.268, 7.018 / 5.024),
        ("MobileNet", 8.583 / 3.974, 14.174 / 8.515, 51.693 / 30.31),
    )],
    kind="cited", source=A100_2023,
)

# %% [markdown]
# ## Is the step waiting for data?
#
# A dataset that sleeps a moment for every row stands for decoding or a slow disk. The share of a step that passes between asking for a
# batch and having it, with and without worker processes.

# %% tags=["measures"]
class Rows(torch.utils.data.Dataset):
    def __init__(self, rows, sleep=0.0):
        self.rows, self.sleep = rows, sleep

    def __len__(self):
        return self.rows

    def __getitem__(self, row):
        time.sleep(self.sleep)
        ids = torch.arange(length) + row % 100
        return {"input_ids": ids, "labels": ids}


def waiting_share(loader, model):
    optimizer, waited, total = torch.optim.AdamW(model.parameters(), fused=True), 0.0, 0.0
    asked = time.perf_counter()
    for number, batch in enumerate(loader):
        arrived = time.perf_counter()
        model(**{key: value.to(device) for key, value in batch.items()}).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if GPU:
            torch.cuda.synchronize()
        done = time.perf_counter()
        if number:  # the first batch waits for the workers to start
            waited, total = waited + arrived - asked, total + done - asked
        asked = done
    return 100 * waited / total


def loader(data, workers):
    return torch.utils.data.DataLoader(data, batch_size=8, num_workers=workers, pin_memory=GPU)


model = llama()
starved, fed = (waiting_share(loader(Rows(128, sleep=0.01), workers), model) for workers in (0, 4))
claim("waiting-starved", "Share of a training step spent waiting for the next batch, 8 rows of 10 ms each, no worker",
      starved, "%", kind="measured", at_least=40)
claim("waiting-fed", "Share of a training step spent waiting for the next batch, the same rows, 4 workers",
      fed, "%", kind="measured", at_most=0.8 * starved)


def epoch(workers):
    started = time.perf_counter()
    for _batch in loader(Rows(512), workers):
        pass
    return time.perf_counter() - started


in_memory = {workers: [epoch(workers) for _ in range(3)] for workers in (0, 2)}
claim("workers-in-memory", "Time to read 64 batches that are in memory with 2 workers against none, start of the workers included",
      min(in_memory[2]) / min(in_memory[0]), "x", kind="measured", at_least=1.2,
      spread={"min": min(in_memory[2]), "max": max(in_memory[2]), "repeats": 3})


def copy_speed(pinned):
    batch = torch.empty(2**26, dtype=torch.uint8)
    batch = batch.pin_memory() if pinned else batch
    return interleaved({"copy": lambda: batch.to(device, non_blocking=True)})["copy"].best


claim("pinned-copy", "Speed of the copy of 64 MiB from pinned host memory to the GPU against pageable memory",
      copy_speed(False) / copy_speed(True) if GPU else None, "x", kind="measured", at_least=1, because="this machine has no GPU")

# %% [markdown]
# ## Tokenize in every epoch, or once?
#
# A byte-level tokenizer of 2,000 entries, trained on the reference texts that ship with Python, on one core. Text by text,
# as a dataset would do it row by row; as one list; and reading the ids that an earlier run has kept.

# %% tags=["measures"]
os.environ["TOKENIZERS_PARALLELISM"] = "false"  # one core, as in a worker process
TEXTS = [paragraph for text in pydoc_data.topics.topics.values() for paragraph in text.split("\n\n") if paragraph]
bpe = Tokenizer(models.BPE())
bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
bpe.train_from_iterator(TEXTS, trainers.BpeTrainer(vocab_size=2000, show_progress=False))
tokenizer = TokenizersBackend(tokenizer_object=bpe)
kept = [torch.tensor(ids, dtype=torch.int32) for ids in tokenizer(TEXTS)["input_ids"]]
tokens = sum(len(ids) for ids in kept)
tokenising = interleaved({
    "one by one": lambda: [tokenizer(text)["input_ids"] for text in TEXTS],
    "list": lambda: tokenizer(TEXTS)["input_ids"],
    "kept": lambda: [ids.long() for ids in kept],
}, repeats=3)
claim("tokenise-rate", f"Tokens per second that one core tokenises, {len(TEXTS):,} paragraphs one by one, vocabulary of 2,000",
      tokens / tokenising["one by one"].best, "tokens/s", kind="measured", at_least=2e4, at_most=1e7, spread=tokenising["one by one"].spread)
claim("tokenise-list", "Speed of tokenising the same paragraphs as one list against one by one, on one core",
      tokenising["one by one"].best / tokenising["list"].best, "x", kind="measured", at_least=0.8, at_most=3)
claim("tokenise-kept", "Time of tokenising a paragraph against that of reading its ids from memory",
      tokenising["one by one"].best / tokenising["kept"].best, "x", kind="measured", at_least=5)

# %% [markdown]
# ## How much of a batch is padding?
#
# 2,048 lengths from a log-normal distribution, cut at 512: many short texts, a few long ones, as in instruction data.

# %%
LIMIT = 512
draw = random.Random(0)
lengths = [max(8, min(LIMIT, round(draw.lognormvariate(4.4, 0.8)))) for _ in range(2048)]


def batches_of(order, size):
    return [order[first : first + size] for first in range(0, len(order), size)]


def padding(batches, to=None):
    slots = sum(len(batch) * (to or max(lengths[row] for row in batch)) for batch in batches)
    return 100 * (1 - sum(lengths) / slots)


def grouped(size):
    return batches_of(get_length_grouped_indices(lengths, size, generator=torch.Generator().manual_seed(0)), size)


order = list(range(2048))
rows = [{"batch": size, "fixed": padding(batches_of(order, size), LIMIT), "longest": padding(batches_of(order, size)),
         "grouped": padding(grouped(size)), "flat": 0.0} for size in (2, 4, 8, 16, 32)]
table("padding", f"Padding in a batch, log-normal lengths, mean {statistics.mean(lengths):.0f}, median {statistics.median(lengths):.0f}, at most {LIMIT} tokens",
      {"batch": "Batch size", "fixed": "Padded to 512, %", "longest": "Padded to the longest, %", "grouped": "Grouped by length, %",
       "flat": "Padding-free, %"}, rows, kind="derived")
at_8 = next(row for row in rows if row["batch"] == 8)
claim("padding-fixed", "Share of padding when every row is padded to 512 tokens, log-normal lengths with a mean of 111 tokens",
      at_8["fixed"], "%", kind="derived", at_least=77, at_most=79)
claim("padding-longest", "Share of padding when every batch of 8 is padded to its longest row, the same lengths",
      at_8["longest"], "%", kind="derived", at_least=57, at_most=62)
claim("padding-grouped", "Share of padding when batches of 8 are grouped by length, the same lengths",
      at_8["grouped"], "%", kind="derived", at_least=3, at_most=7)
slots = [len(batch) * max(lengths[row] for row in batch) for batch in grouped(8)]
claim("grouped-largest", "Tokens, padding included, of the largest batch of 8 grouped by length against the mean of its batches",
      max(slots) / (sum(slots) / len(slots)), "x", kind="derived", at_least=2, at_most=6)

figure, axes = plt.subplots(figsize=(7, 2.5))
for key, label, colour in (("fixed", "padded to 512", "#d55e00"), ("longest", "to the longest", "#0072b2"), ("grouped", "grouped", "#009e73")):
    axes.plot([row["batch"] for row in rows], [row[key] for row in rows], "o-", color=colour, label=label)
axes.set(xlabel="batch size", ylabel="padding, %", ylim=(0, 100))
axes.legend(frameon=False)
plt.show()

# %% [markdown]
# ## Time per real token
#
# Four forms of a batch. Padding-free puts it into one row; the mask that keeps the sequences apart then has the square of *all*
# tokens. Batches grouped by length are drawn from all 2,048 texts, from short to long; the other three forms share their texts.

# %% tags=["measures"]
flatten = DataCollatorWithFlattening(return_tensors="pt")


def tokens(row):
    return torch.randint(0, 1024, (lengths[row],), generator=torch.Generator().manual_seed(row))


def padded(batch, to=None):
    width = to or max(lengths[row] for row in batch)
    made = {"input_ids": torch.zeros(len(batch), width, dtype=torch.long), "labels": torch.full((len(batch), width), -100)}
    made["attention_mask"] = torch.zeros_like(made["input_ids"])
    for line, row in enumerate(batch):
        made["input_ids"][line, : lengths[row]] = made["labels"][line, : lengths[row]] = tokens(row)
        made["attention_mask"][line, : lengths[row]] = 1
    return made


def flat(batch):
    return flatten([{"input_ids": tokens(row)} for row in batch])


def microseconds_per_token(batch_size, number):
    plain = batches_of(order[: batch_size * number], batch_size)
    from_short_to_long = sorted(grouped(batch_size), key=lambda batch: max(lengths[row] for row in batch))
    alike = [from_short_to_long[(2 * place + 1) * len(from_short_to_long) // (2 * number)] for place in range(number)]
    chosen = {"fixed": plain, "longest": plain, "grouped": alike, "flat": plain}
    made = {"fixed": lambda batch: padded(batch, LIMIT), "longest": padded, "grouped": padded, "flat": flat}
    steps = {name: training_step(llama(), *map(made[name], batches)) for name, batches in chosen.items()}
    timings = interleaved(steps, repeats=3, warmup=0)
    real = {name: sum(lengths[row] for batch in batches for row in batch) for name, batches in chosen.items()}
    return {name: 1e6 * timing.best / real[name] for name, timing in timings.items()}


at_8, at_32 = microseconds_per_token(8, 5), microseconds_per_token(32, 1)
table("time-per-token", f"Training time per real token of {size}, sdpa attention",
      {"batch": "Batch size", "fixed": "Padded to 512, µs", "longest": "Padded to the longest, µs", "grouped": "Grouped by length, µs",
       "flat": "Padding-free, µs"},
      [{"batch": 8, **at_8}, {"batch": 32, **at_32}], kind="measured")
claim("longest-speed", "Training speed per real token, batches of 8 padded to their longest row against padded to 512 tokens",
      at_8["fixed"] / at_8["longest"], "x", kind="measured", at_least=1.4, at_most=3.5)
claim("grouped-speed", "Training speed per real token, batches of 8 grouped by length against random batches, both padded to the longest row",
      at_8["longest"] / at_8["grouped"], "x", kind="measured", at_least=1.15, at_most=4)
claim("flat-speed", "Training speed per real token, padding-free against padded to the longest row, batches of 8, sdpa attention",
      at_8["longest"] / at_8["flat"], "x", kind="measured", at_least=1.2, at_most=3)
claim("flat-speed-large", "Training speed per real token, padding-free against padded to the longest row, a batch of 32, sdpa attention",
      at_32["longest"] / at_32["flat"], "x", kind="measured", at_least=0.3, at_most=3 if GPU else 1.3)
claim("flat-against-grouped", "Training speed per real token, padding-free against batches grouped by length, batches of 8, sdpa attention",
      at_8["grouped"] / at_8["flat"], "x", kind="measured", at_least=0.3, at_most=3 if GPU else 1.15)

# %%
claim("mask-bytes", "Size of the mask that sdpa needs for one padding-free row of 16,384 tokens, one byte per pair",
      16_384**2 / 2**20, "MiB", kind="derived", at_least=256, at_most=256)

# %% [markdown]
# ## The same loss, if the sequences are isolated
#
# `position_ids` that start again at 0 tell transformers where a sequence begins. It looks at them only where there is no
# `attention_mask` and no cache.

# %% tags=["measures"]
model = llama().eval()
batch = [0, 1, 2, 3]
with torch.no_grad():
    apart, together = model(**{k: v.to(device) for k, v in padded(batch).items()}).loss, model(**{k: v.to(device) for k, v in flat(batch).items()}).loss
claim("flat-loss", "Relative difference of the loss of a padding-free batch from the padded one, sdpa attention",
      float(abs(apart - together) / apart), kind="measured", at_most=1e-4 if GPU else 1e-5)

# %% [markdown]
# ## What a leak does to a model that is really trained
#
# A byte-level Llama learns short functions of Python's own standard library, packed eight to a row: once isolated, once with
# `use_cache=True`, which lets every function see the ones before it. Both are evaluated on functions that stand alone.

# %% tags=["measures"]
functions = []
for path in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("[a-m]*.py")):
    source = path.read_text(encoding="utf-8", errors="replace")
    lines = source.splitlines()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef):
            text = textwrap.dedent("\n".join(lines[node.lineno - 1 : node.end_lineno])).encode()
            if 40 <= len(text) <= 160:
                functions.append({"input_ids": list(text)})
random.Random(0).shuffle(functions)
held_out, learned = functions[:128], functions[128:]
print(f"{len(functions)} functions")


STEPS = 50


def loss_of_a_trained_model(seed, leak, steps=STEPS, pack=8):
    """Nats per byte on functions that the model has not seen, each on its own."""
    set_seed(seed)
    model = LlamaForCausalLM(LlamaConfig(hidden_size=128, intermediate_size=384, num_hidden_layers=2, num_attention_heads=4, vocab_size=256,
                                         bos_token_id=None, eos_token_id=None, tie_word_embeddings=True)).to(device)
    optimizer, chosen = torch.optim.AdamW(model.parameters(), lr=3e-3, fused=True), random.Random(seed).sample(learned, steps * pack)
    for number in range(steps):
        optimizer.param_groups[0]["lr"] = 3e-3 * min(1, (number + 1) / 20) * (1 - 0.9 * number / steps)
        batch = {key: value.to(device) for key, value in flatten(chosen[number * pack : (number + 1) * pack]).items()}
        with torch.autocast(device, dtype=torch.bfloat16, enabled=NATIVE_BF16):
            model(**batch, use_cache=leak).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    with torch.no_grad():
        return statistics.mean(model(**{key: value.to(device) for key, value in flatten(held_out[first : first + 8]).items()}, use_cache=False).loss.item()
                               for first in range(0, len(held_out), 8))


losses = [{"seed": seed, "isolated": loss_of_a_trained_model(seed, False), "leaking": loss_of_a_trained_model(seed, True)} for seed in range(2)]
table("packing-loss", f"Loss on unseen functions after {STEPS} steps of 8 packed functions, byte-level Llama of 2 layers",
      {"seed": "Seed", "isolated": "Isolated, nats per byte", "leaking": "Not isolated, nats per byte"}, losses, kind="measured")
claim("packing-leak", "Loss on unseen functions of a small model trained on packed rows without isolation, above that of the same model with isolation, the smaller of two seeds",
      min(row["leaking"] - row["isolated"] for row in losses), "nats per byte", kind="measured", at_least=0.03, at_most=1)

# %% [markdown]
# ## Waves of tiles
#
# A matrix product is cut into tiles, one per streaming multiprocessor (SM) at a time. A last wave that is nearly empty costs
# as much as a full one. Arithmetic for an A100 with 108 SMs and tiles of 128 x 256.

# %%
def busy(rows, columns, multiprocessors=108, tile=(128, 256)):
    """The share of tile slots and of tile area that does useful work, in percent."""
    tiles = math.ceil(rows / tile[0]) * math.ceil(columns / tile[1])
    waves = math.ceil(tiles / multiprocessors)
    return 100 * rows * columns / (waves * multiprocessors * tile[0] * tile[1])


shapes = [{"tokens": tokens, "narrow": busy(tokens, 1024), "wide": busy(tokens, 14336)} for tokens in range(512, 8193, 256)]
table("waves", "Share of an A100 that a matrix product keeps busy, by tokens per micro-batch",
      {"tokens": "Tokens", "narrow": "1,024 output columns, %", "wide": "14,336 output columns, %"}, shapes, kind="derived")
claim("wave-full", "Share of an A100 that a product of 3,456 tokens and 1,024 output columns keeps busy, 128 x 256 tiles",
      busy(3456, 1024), "%", kind="derived", at_least=99, at_most=100)
claim("wave-spilled", "Share of an A100 that a product of 3,584 tokens and 1,024 output columns keeps busy, 128 x 256 tiles",
      busy(3584, 1024), "%", kind="derived", at_least=51, at_most=53)
claim("wave-wide", "Share of an A100 that a product of 4,096 tokens and 14,336 output columns keeps busy, 128 x 256 tiles",
      busy(4096, 14336), "%", kind="derived", at_least=90, at_most=98)
claim("vocabulary-rows", "Rows that padding GPT-2's vocabulary of 50,257 to a multiple of 64 adds, as a share",
      100 * (math.ceil(50257 / 64) * 64 - 50257) / 50257, "%", kind="derived", at_least=0.09, at_most=0.1)

# %% [markdown]
# The same two questions to this machine: a vocabulary padded to a multiple of 64, and more tokens per product.

# %% tags=["measures"]
width = 1024 if GPU else 256
hidden = torch.randn(4096 if GPU else 128, width, device=device, dtype=half if GPU else torch.float32)
heads = {rows: torch.randn(rows, width, device=device, dtype=hidden.dtype) for rows in (50257, 50304)}
timings = interleaved({rows: lambda head=head: torch.nn.functional.linear(hidden, head) for rows, head in heads.items()}, repeats=5)
claim("vocabulary-speed", f"Speed of the output layer with a vocabulary of 50,304 against 50,257, hidden size {width}",
      timings[50257].best / timings[50304].best, "x", kind="measured", at_least=0.8, at_most=10 if GPU else 2, spread=timings[50304].spread)

weight, inputs = torch.randn(width * 4, width, device=device, dtype=hidden.dtype), {rows: torch.randn(rows, width, device=device, dtype=hidden.dtype) for rows in (1, 8, 64, 512)}
timings = interleaved({rows: lambda rows=rows: [torch.nn.functional.linear(inputs[rows], weight) for _ in range(512 // rows)] for rows in inputs}, repeats=4)
per_token = {rows: timing.best / 512 for rows, timing in timings.items()}
table("tokens-per-product", f"Speed per token of a matrix product of {width} x {4 * width} weights, by tokens at a time",
      {"tokens": "Tokens at a time", "speed": "Speed per token against one at a time, x"},
      [{"tokens": rows, "speed": per_token[1] / value} for rows, value in per_token.items()], kind="measured")
claim("tokens-speed", f"Speed per token of a matrix product of 512 tokens at a time against one at a time, {width} x {4 * width} weights",
      per_token[1] / per_token[512], "x", kind="measured", at_least=1.5)
