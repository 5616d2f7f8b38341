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
# # Throughput: compile, data loading, padding and packing
#
# **Where does the time of a training step go that trains nothing, and what wins it
# back?**
#
# A step can waste time in four ways. It computes padding, which teaches nothing. It waits
# for data. It launches many small kernels, which a compiler could fuse. And it cuts its
# matrix products into shapes that leave part of the GPU idle.
#
# *What to expect.* Padding is arithmetic: its share follows from the lengths of the texts
# alone, on any hardware. Waiting depends on one comparison, the time to make a batch
# against the time of a step. What `torch.compile` wins depends on the GPU, so we show
# what others published, and when that pays for compiling. Packing several texts into one
# row wins as much as removing padding can, and it is only right if the model keeps the
# texts apart.
#
# *How it is measured.* What is arithmetic is computed for real sizes. Time per token is
# measured with a Llama of the shape of SmolLM2-135M and random weights, because time does
# not depend on them. Whether texts leak into each other is tested on tiny models, because
# behavior does not depend on size.

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
import math
import random
import statistics
import tempfile
import time

import matplotlib.pyplot as plt
import torch
from transformers import DataCollatorWithFlattening, LlamaConfig, LlamaForCausalLM, logging, set_seed
from transformers.trainer_pt_utils import get_length_grouped_indices

from evidence.claims import claim, start, table
from evidence.machine import native_bf16
from evidence.measure import interleaved, one_thread
from evidence.plots import bars, set_up

logging.set_verbosity_error()
logging.disable_progress_bar()
os.chdir(tempfile.mkdtemp())  # what this notebook writes goes into a temporary folder
set_up("throughput")
start("throughput")

# %% [markdown]
# ## How much of a batch is padding?
#
# Rows of a batch must have one length, so short ones are padded. We draw 2,048 lengths
# from a log-normal distribution, cut at 512: many short texts and a few long ones, as in
# instruction data. Then we count how many tokens of a batch are padding, for three ways
# to make it:
#
# - *fixed*: every row is padded to 512 tokens;
# - *longest*: every batch is padded to its longest row;
# - *grouped*: texts of similar length come into one batch, as with
#   `train_sampling_strategy="group_by_length"`.
#
# A batch that puts all its texts into one row, *padding-free*, has no padding at all.

# %%
LIMIT = 512
draw = random.Random(0)
lengths = [max(8, min(LIMIT, round(draw.lognormvariate(4.4, 0.8)))) for _ in range(2048)]


def batches_of(order, size):
    return [order[first : first + size] for first in range(0, len(order), size)]


def grouped(size):
    return batches_of(get_length_grouped_indices(lengths, size, generator=torch.Generator().manual_seed(0)), size)


def padding(batches, to=None):
    """Percent of the tokens of these batches that are padding, each padded to its longest row or to a given length."""
    slots = sum(len(batch) * (to or max(lengths[row] for row in batch)) for batch in batches)
    return 100 * (1 - sum(lengths) / slots)


order = list(range(2048))
rows = [{"batch": size, "fixed": padding(batches_of(order, size), LIMIT), "longest": padding(batches_of(order, size)),
         "grouped": padding(grouped(size)), "flat": 0.0} for size in (2, 4, 8, 16, 32)]
table("padding", f"Padding in a batch, log-normal lengths, mean {statistics.mean(lengths):.0f}, at most {LIMIT} tokens",
      {"batch": "Batch size", "fixed": "Padded to 512, %", "longest": "Padded to the longest, %",
       "grouped": "Grouped by length, %", "flat": "Padding-free, %"}, rows, kind="derived")

# %% [markdown]
# Padding to the longest row gets worse as the batch grows, because a larger batch has a
# longer longest row. Grouping hardly does. Its price: batches are of very different
# sizes, and the largest must fit into memory.

# %% alt="Share of padding against batch size: padded to a fixed length it is always high, padded to the longest it grows, grouped by length it stays low."
_, axes = plt.subplots(figsize=(7, 2.6))
for key, label in (("fixed", "padded to 512"), ("longest", "padded to the longest"), ("grouped", "grouped by length")):
    axes.plot([row["batch"] for row in rows], [row[key] for row in rows], "o-", label=label)
axes.set(xlabel="batch size", ylabel="padding, %", ylim=(0, 100))
axes.legend()
plt.show()
slots = [len(batch) * max(lengths[row] for row in batch) for batch in grouped(8)]
at_8 = next(row for row in rows if row["batch"] == 8)
LENGTHS = "log-normal lengths with a mean of 111 tokens"
for name, sentence, value, unit, least, most in (
    ("padding-fixed",
     f"Share of padding when every row is padded to 512 tokens, {LENGTHS}", at_8["fixed"], "%", 77, 79),
    ("padding-longest", f"Share of padding when every batch of 8 is padded to its longest row, {LENGTHS}",
     at_8["longest"], "%", 57, 62),
    ("padding-grouped",
     f"Share of padding when batches of 8 are grouped by length, {LENGTHS}", at_8["grouped"], "%", 3, 7),
    ("grouped-largest", "Tokens of the largest batch of 8 grouped by length, padding included, against the mean of its "
     "batches", max(slots) / statistics.mean(slots), "x", 2, 6),
    ("mask-bytes", "Size of the mask that sdpa needs for one padding-free row of 16,384 tokens, one byte per pair",
     16_384**2 / 2**20, "MiB", 255, 257),
):
    claim(name, sentence, value, unit, kind="derived", at_least=least, at_most=most)

# %% [markdown]
# ## Time per real token
#
# If a step's time follows its tokens, padding included, the time per *real* token follows
# from the shares above. Does it? We train on eight texts in four forms. Three forms share
# the same texts; the grouped batch is the one of middle length, because eight texts alone
# cannot be grouped.
#
# The padding-free row has no padding, but under `sdpa` it needs a mask with the square of
# *all* its tokens, and the CPU computes every pair that the mask then hides.
# FlashAttention with sequence borders does neither. So on a CPU expect less than on a GPU
# with FlashAttention, for which [up to twice the
# throughput](https://huggingface.co/blog/packing-with-FA2) has been published.

# %% tags=["measures"]
GPU = torch.cuda.is_available()
device = "cuda" if GPU else "cpu"
HALF = torch.bfloat16 if native_bf16() else torch.float16
MIXED = GPU or native_bf16()  # emulated bf16 would be slower than fp32
if not GPU:
    one_thread()
smollm = LlamaConfig(vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30,
                     num_attention_heads=9,
                     num_key_value_heads=3, tie_word_embeddings=True, use_cache=False, max_position_embeddings=8192)


def training_step(model, batch):
    """A function that trains `model` for one step on this batch."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    batch = {key: value.to(device) for key, value in batch.items()}

    def step():
        with torch.autocast(device, dtype=HALF, enabled=MIXED):
            loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


# %% tags=["measures"]
def ids_of(row):
    return torch.randint(0, 49152, (lengths[row],), generator=torch.Generator().manual_seed(row))


def padded(batch, to=None):
    width = to or max(lengths[row] for row in batch)
    ids, labels = torch.zeros(len(batch), width, dtype=torch.long), torch.full((len(batch), width), -100)
    for line, row in enumerate(batch):
        ids[line, : lengths[row]] = labels[line, : lengths[row]] = ids_of(row)
    return {"input_ids": ids, "labels": labels}  # causal and padded on the right: no attention_mask is needed


def flat(batch):
    return DataCollatorWithFlattening(return_tensors="pt")([{"input_ids": ids_of(row)} for row in batch])


texts = order[:8]
alike = sorted(grouped(8), key=lambda batch: max(lengths[row] for row in batch))[128]
forms = {"Padded to 512": (texts, padded(texts, LIMIT)), "Padded to the longest": (texts, padded(texts)),
         "Grouped by length": (alike, padded(alike)), "Padding-free, sdpa": (texts, flat(texts))}
print("one model trains on four batches in turn, about two minutes on a CPU")
set_seed(0)
model = LlamaForCausalLM(smollm).to(device)
steps = {name: training_step(model, batch) for name, (_, batch) in forms.items()}
timings = interleaved(steps, repeats=2, clock=lambda: os.times().user)  # without the system's time, see below
microseconds = {name: 1e6 * timings[name].best / sum(lengths[row] for row in batch) for name, (batch,
                                                                                               _) in forms.items()}

# %% [markdown]
# The padded rows carry no `attention_mask`. In a causal model that is padded on the right
# no real token sees a padding token, and labels of -100 keep padding out of the loss. So
# the loss is the same without the mask, and the kernel is not slowed down by one.
#
# On a CPU we count the seconds that the process itself computes. The system's seconds are
# left out: it hands out fresh memory for the logits of the widest batch in every step, and
# on a virtual machine that can take longer than the arithmetic. On such a machine padding
# costs even more than is shown here.

# %% tags=["measures"] alt="Bars of time per real token: padding to a fixed length takes most, grouped by length and padding-free least."
table("time-per-token", f"Training time per real token, eight texts, Llama of 135 million parameters, "
      f"{'GPU' if GPU else 'one CPU thread'}", {"form": "Form of the batch", "time": "Time per real token, µs"},
      [{"form": name, "time": value} for name, value in microseconds.items()], kind="measured")
bars(microseconds, "µs per real token")
for name, sentence, slow, fast, least, most in (
    ("longest-speed", "eight texts padded to their longest against padded to 512 tokens",
     "Padded to 512", "Padded to the longest", 1.2, 4),
    ("grouped-speed", "eight texts of similar length against eight random ones, both padded to the longest",
     "Padded to the longest", "Grouped by length", 1.2, 4),
    ("flat-speed", "eight texts padding-free with sdpa against padded to their longest",
     "Padded to the longest", "Padding-free, sdpa", 1.1, 4),
):
    claim(name, f"Training speed per real token, {sentence}, Llama of 135 million parameters",
          microseconds[slow] / microseconds[fast], "x", kind="measured", at_least=least, at_most=most)

# %% [markdown]
# ## Does the model keep packed texts apart?
#
# `position_ids` that start again at zero tell transformers where a text begins. A decoder
# such as Llama makes its mask from them. An encoder such as BERT does not look. And
# *hybrid* models have layers that are no attention at all, convolutions or a linear
# recurrence, which no mask reaches.
#
# The test: change the first text of a packed row, and see whether the outputs of the
# other texts change. The models are tiny, with one layer of each kind. We test three
# settings of the collator: its default, with the sequence borders that FlashAttention
# takes, and with the index of each token's sequence as well.

# %% tags=["measures"]
from transformers import (
    BertConfig, BertForMaskedLM, Lfm2Config, Lfm2ForCausalLM, Qwen3_5ForCausalLM, Qwen3_5TextConfig, Qwen3NextConfig,
    Qwen3NextForCausalLM,
)

tiny = dict(vocab_size=500, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2)
heads = tiny | {"num_key_value_heads": 2, "use_cache": False}
linear = heads | dict(layer_types=["linear_attention", "full_attention"], head_dim=32, linear_key_head_dim=32,
                      linear_value_head_dim=32, linear_num_key_heads=2, linear_num_value_heads=2)
experts = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32, shared_expert_intermediate_size=32)
MODELS = {
    "Llama": lambda: LlamaForCausalLM(LlamaConfig(**heads)),
    "BERT": lambda: BertForMaskedLM(BertConfig(**tiny)),
    "LFM2": lambda: Lfm2ForCausalLM(Lfm2Config(**heads, layer_types=["conv", "full_attention"])),
    "Qwen3.5": lambda: Qwen3_5ForCausalLM(Qwen3_5TextConfig(**linear)),
    "Qwen3-Next": lambda: Qwen3NextForCausalLM(Qwen3NextConfig(**linear, **experts)),
}
BORDERS = {"return_flash_attn_kwargs": True}
FLAGS = {"default": {}, "borders": BORDERS, "index": {**BORDERS, "return_seq_idx": True}}

# %% tags=["measures"]
PACKED = [torch.randint(0, 500, (length,), generator=torch.Generator().manual_seed(length)).tolist() for length in (5,
                                                                                                                    40,
                                                                                                                    17)]


@torch.no_grad()
def verdict(model, flags):
    def rest_after(first):
        row = DataCollatorWithFlattening(return_tensors="pt", **flags)([{"input_ids": ids} for ids in (first,
                                                                                                       *PACKED[1:])])
        return model(**row).logits[:, len(first) :]

    try:
        same = torch.allclose(rest_after(PACKED[0]), rest_after(PACKED[1][:5]), atol=1e-5)
    except ValueError as error:
        print(error)
        return "refuses"
    return "isolated" if same else "leaks"


set_seed(0)
models = {name: make().eval() for name, make in MODELS.items()}
verdicts = {name: {key: verdict(model, flags) for key, flags in FLAGS.items()} for name, model in models.items()}
table("isolation", "Packed texts under sdpa, without the packages flash-linear-attention and causal_conv1d",
      {"model": "Model", "default": "DataCollatorWithFlattening()", "borders": "return_flash_attn_kwargs=True",
       "index": "and return_seq_idx=True"}, [{"model": name, **found} for name, found in verdicts.items()],
       kind="measured")
assert verdicts["Llama"]["default"] == "isolated", "the guide says that Llama keeps packed texts apart"
assert all(verdicts[name]["default"] == "leaks" for name in verdicts if name != "Llama"), "the guide says that these "
"leak"

# %% [markdown]
# With the default settings only Llama isolates, and none of the others says a word. The
# messages above are what the hybrid models raise once they are told that the row is
# packed: install the package that they name, or pad. LFM2 needs both flags to notice. For
# BERT no flag helps under `sdpa`.
#
# ## How many graphs do varying lengths need?
#
# `torch.compile` compiles a graph for the shapes that it sees. "Every new length compiles
# again" was true once. Today the second length makes it assume that lengths vary. We
# count graphs for 12 different lengths with a backend that only counts.

# %% tags=["measures"]
torch._logging.set_logs(dynamo=40)  # the warning about the limit is quoted in the guide


def graphs(lengths, dynamic=None):
    torch._dynamo.reset()
    asked = []

    def count(graph, inputs):
        asked.append(graph)
        return graph.forward

    model = torch.compile(LlamaForCausalLM(LlamaConfig(**heads)), backend=count, dynamic=dynamic)
    for length in lengths:
        ids = torch.zeros(4, length, dtype=torch.long)
        model(input_ids=ids, labels=ids)
    return len(asked)


twelve = random.Random(0).sample(range(20, 121), 12)
for name, sentence, value, least, most in (
    ("graphs-default", "for 12 batches of 12 different lengths, default arguments", graphs(twelve), 2, 2),
    ("graphs-static", "for 12 batches of 12 different lengths with dynamic=False, before it gives up",
     graphs(twelve, dynamic=False), 8, 8),
    ("graphs-padded", "with dynamic=False for the same batches padded to a multiple of 64",
     graphs([64 * math.ceil(length / 64) for length in twelve], dynamic=False), 2, 2),
):
    claim(name, f"Graphs that torch.compile makes {sentence}", value, "graphs", kind="measured", at_least=least,
          at_most=most)
torch._dynamo.reset()

# %% [markdown]
# ## When does compiling pay?
#
# Compiling costs time once and wins a little in every step, so it pays after *cost / gain
# per step* steps. The cost you see in your log: it is the first step. The gain depends on
# the GPU. The torchtitan team measured Llama 3.1 8B on eight H100. From their tokens per
# second, and two sequences of 8,192 tokens per GPU and step, follow the seconds that each
# compiled step wins, and after how many steps one minute of compiling has paid.

# %%
TORCHTITAN = ("https://github.com/pytorch/torchtitan/blob/31a17bfdb70bab6f62a13d21816a5339b911d6e3/"
              "benchmarks/llama3_h100_202412_torchtitan.md")
EAGER, COMPILED, TOKENS = 5762, 6667, 2 * 8192  # tokens per second and GPU; tokens per GPU and step
claim("compile-break-even", "Steps after which one minute of compiling has paid, at the tokens/s that torchtitan "
      "measured for "
      "Llama 3.1 8B eager and compiled, 2 x 8,192 tokens per GPU, 8 H100 at 500 W, 2024",
      60 / (TOKENS / EAGER - TOKENS / COMPILED),
      "steps", kind="derived", source=TORCHTITAN, at_least=140, at_most=170)

# %% [markdown]
# Does the gain shrink as the batch grows? Hugging Face measured *inference* of vision
# models on an A100 in 2023, in milliseconds per batch. The gain of a ViT is gone at batch
# 4, that of DETR at batch 16; that of convolutional nets stays. The larger the batch, the
# more of the time is matrix products, and a compiler does not make those faster.

# %% alt="Bars of compiled over eager speed for vision models at batch 1, 4 and 16, on an A100: most gain at batch 1, little at batch 16."
A100_2023 = "https://huggingface.co/datasets/docs-benchmarks/compile-benchmarks/blob/main/a100-benchmarks.csv"
MILLISECONDS = {  # eager and compiled, at batch 1, 4 and 16
    "ViT": ((9.325, 7.584), (14.832, 14.499), (40.944, 40.01)),
    "BeiT": ((11.282, 8.448), (13.205, 13.048), (41.854, 41.048)),
    "DETR": ((34.619, 19.04), (48.657, 32.418), (164.382, 161.902)),
    "ResNet": ((6.531, 4.124), (6.657, 4.268), (7.018, 5.024)),
    "MobileNet": ((8.583, 3.974), (14.174, 8.515), (51.693, 30.31)),
}
gains = {model: [eager / compiled for eager, compiled in pairs] for model, pairs in MILLISECONDS.items()}
table(
    "compile-2023", "Inference of vision models on an A100, 2023: time of the eager model against the compiled one",
    {"model": "Model", "one": "Batch 1, x", "four": "Batch 4, x", "sixteen": "Batch 16, x"},
    [{"model": model, "one": one, "four": four, "sixteen": sixteen} for model, (one, four, sixteen) in gains.items()],
    kind="cited", source=A100_2023,
)
bars({model: dict(zip(("batch 1", "batch 4", "batch 16"), gain)) for model, gain in gains.items()},
     "speed of compiled inference over eager, x", baseline=1)

# %% [markdown]
# ## Is the step waiting for data?
#
# Worker processes make the next batches while the current step runs. They help if, and
# only if, making a batch takes longer than they have time for: *seconds to make a batch /
# workers > seconds of a step*.
#
# The next cell constructs both sides of that comparison. Its data set sleeps for every
# row, as if it were decoding, and its "step" sleeps too. So the shares below are made up;
# what they show is where the line runs. In your own loop, measure the time between asking
# for a batch and having it, and divide by the time of a step. The guide has a program for
# that.

# %% tags=["measures"] alt="Bars of the share of time spent waiting for data: much without workers, hardly any with two."
class SlowRows(torch.utils.data.Dataset):
    def __len__(self):
        return 160

    def __getitem__(self, row):
        time.sleep(0.01)
        return row


def waiting_share(workers, step_seconds=0.05):
    """Percent of the time that passes between asking for a batch and having it, from the third batch on."""
    waits, asked = [], time.perf_counter()
    for _batch in torch.utils.data.DataLoader(SlowRows(), batch_size=8, num_workers=workers):
        waits.append(time.perf_counter() - asked)
        time.sleep(step_seconds)
        asked = time.perf_counter()
    return 100 * statistics.mean(waits[2:]) / (statistics.mean(waits[2:]) + step_seconds)


shares = {f"{workers} workers": waiting_share(workers) for workers in (0, 1, 2, 4)}
bars(shares, "share of the time spent waiting (constructed), %")
assert shares["4 workers"] < shares["0 workers"], "the guide says that workers take the waiting away"

# %% [markdown]
# ## Tokenize in every epoch, or once?
#
# Tokenizing is what a text data set does most. How many tokens does one core make per
# second? The tokenizer is a byte-level BPE, trained here on the reference texts that ship
# with Python; the texts come one by one, as from a data set. Compare the rate with the
# tokens per second of your training.

# %% tags=["measures"]
import pydoc_data.topics

from tokenizers import Tokenizer, models as kinds, pre_tokenizers, trainers
from transformers import TokenizersBackend

os.environ["TOKENIZERS_PARALLELISM"] = "false"  # one core, as in a worker process
TEXTS = [part for topic in pydoc_data.topics.topics.values() for part in topic.split("\n\n") if part]
bpe = Tokenizer(kinds.BPE())
bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
bpe.train_from_iterator(TEXTS, trainers.BpeTrainer(vocab_size=8000, show_progress=False))
tokenizer = TokenizersBackend(tokenizer_object=bpe)
made = interleaved({"one by one": lambda: [tokenizer(text)["input_ids"] for text in TEXTS]}, repeats=3)["one by one"]
count = sum(len(tokenizer(text)["input_ids"]) for text in TEXTS)
claim("tokenize-rate", f"Tokens per second that one core makes from {len(TEXTS):,} paragraphs, one by one",
      count / made.best, "tokens/s", kind="measured", at_least=2e4, at_most=1e7)

# %% [markdown]
# ## Waves of tiles
#
# A GPU cuts the output of a matrix product into tiles, one per streaming multiprocessor
# (SM) at a time. A last wave that is nearly empty takes as long as a full one. So a few
# tokens more can cost a whole wave.
#
# Arithmetic for an A100 with 108 SMs and tiles of 128 x 256. With few output columns
# there are few tiles, so the last wave is a large share of all. With many columns it is
# one of many. The library chooses the tile, so take the result as a reason to measure two
# shapes and not as a forecast.

# %%
def busy(rows, columns, multiprocessors=108, tile=(128, 256)):
    """The share of tile slots and of tile area that does useful work, in percent."""
    tiles = math.ceil(rows / tile[0]) * math.ceil(columns / tile[1])
    waves = math.ceil(tiles / multiprocessors)
    return 100 * rows * columns / (waves * multiprocessors * tile[0] * tile[1])


shapes = [{"tokens": count, "narrow": busy(count, 1024), "wide": busy(count, 14336)} for count in range(512, 8193, 256)]
table("waves", "Share of an A100 that a matrix product keeps busy, by tokens per micro-batch",
      {"tokens": "Tokens", "narrow": "1,024 output columns, %", "wide": "14,336 output columns, %"}, shapes,
      kind="derived")
BUSY = "output columns keeps busy, 128 x 256 tiles"
for name, sentence, value, least, most in (
    ("wave-full", f"Share of an A100 that a product of 3,456 tokens and 1,024 {BUSY}", busy(3456, 1024), 99, 100),
    ("wave-spilled", f"Share of an A100 that a product of 3,584 tokens and 1,024 {BUSY}", busy(3584, 1024), 51, 53),
    ("wave-wide", f"Share of an A100 that a product of 4,096 tokens and 14,336 {BUSY}", busy(4096, 14336), 90, 98),
    ("vocabulary-rows", "Rows that padding GPT-2's vocabulary of 50,257 to a multiple of 64 adds, as a share",
     100 * (64 * math.ceil(50257 / 64) - 50257) / 50257, 0.09, 0.1),
):
    claim(name, sentence, value, "%", kind="derived", at_least=least, at_most=most)

# %% alt="Share of a GPU that is busy against tokens per micro-batch: saw teeth for a narrow layer, nearly flat for a wide one."
_, axes = plt.subplots(figsize=(7, 2.6))
for key, label in (("narrow", "1,024 output columns"), ("wide", "14,336 output columns")):
    axes.plot([shape["tokens"] for shape in shapes], [shape[key] for shape in shapes], label=label)
axes.set(xlabel="tokens per micro-batch", ylabel="busy, %", ylim=(0, 105))
axes.legend(loc="lower right")
plt.show()

# %% [markdown]
# ## What came out, and what to do
#
# - **Stop computing padding first.** Most of a padded batch of mixed texts is padding,
#   and the time per real token follows the share. Group by length, or go padding-free
#   where the model isolates.
# - **Test isolation before you pack.** Encoders and hybrid models leak without a word
#   under `sdpa`. The test above takes seconds.
# - **Compile long runs.** One minute of compiling pays within some hundred steps of an 8B
#   model on H100s, and never in a run of a few steps. Varying lengths do not compile
#   again and again, unless you ask for `dynamic=False`.
# - **Count workers by one division**: seconds to make a batch by seconds of a step. More
#   workers only cost memory.
# - **Choose token counts that fill waves**, for narrow layers. For wide ones it hardly
#   matters.

# %%
# Compares this run with the published records. In Colab it also offers the record of this machine, to send.
from evidence.finish import finish

finish()
