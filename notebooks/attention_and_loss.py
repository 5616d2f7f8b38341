# ---
# jupyter:
#   needs: [peft]
#   runs_on: cpu, it traces the tensors of a GPU's step and compares only losses and gradients, which need no speed
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
# # Attention kernels and the loss of a large vocabulary
#
# **Which tensors of a training step outgrow all others, and what keeps them small?**
#
# Two parts of a step can. *Attention*, where its kernel writes the scores, grows with the
# square of the sequence length. The *logits* are one row of the whole vocabulary for
# every token.
#
# *What to expect.* A fused attention kernel writes no scores, so its memory grows with
# the length and not with the square. A mask brings the square back. A loss in chunks
# keeps the logits of one chunk at a time, so it should save what the logits take at the
# peak, and nothing where the peak lies elsewhere in the step.
#
# For whom this matters: whoever sees memory grow faster than the batch. If it grows with
# the square of the length, look at masks and at the attention kernel. If it grows with
# the length and checkpointing is already on, look at the logits.
#
# *How it is measured.* Everything about memory is traced at full size on fake tensors,
# without a GPU, and compared with what others published for real GPUs. Only rounding
# errors are measured, because they need numbers.

# %%
# Installs what this notebook needs where it is not there yet (Colab, an empty folder). Colab's torch stays as it is.
import importlib.util
import os
import subprocess
import sys

PINS = {"transformers": "5.23.0", "accelerate": "1.15.0", "peft": "0.21.2"}
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
missing = [] if importlib.util.find_spec("peft") else ["peft==0.21.2"]
if missing:
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", *missing], check=True)

# %%
import contextlib
import tempfile
from functools import cache

import matplotlib.pyplot as plt
import torch
import torch.nn.functional as F
from peft import LoraConfig, get_peft_model
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.utils.checkpoint import checkpoint
from transformers import (
    AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForSequenceClassification, BertConfig, LlamaConfig,
    MistralConfig,
    Qwen3Config, logging,
)

from dryrun.step.depth import line_of, with_layers
from dryrun.tracing import (
    UNMASKED_SDPA, GiB, GpuOperators, Trace, Tracker, build_model, checkpoint_layers, create_state,
    end_part_in_mid_backward, fake,
)
from evidence.claims import claim, start, table
from evidence.plots import BLUE, ORANGE, bars, set_up

logging.set_verbosity_error()
os.chdir(tempfile.mkdtemp())
set_up("attention_and_loss")
start("attention_and_loss")

# %% [markdown]
# ## The step that is traced
#
# `dryrun.tracing.training_step` builds a model and runs the usual step. Here the step
# itself changes, so it is written out: with a mask in the batch, or with a loss of our
# own. `VocabularyTracker` files whatever has one column per entry of the vocabulary under
# a category of its own: the logits, and all that the loss makes of them.

# %%
class VocabularyTracker(Tracker):
    CATEGORIES = (*Tracker.CATEGORIES, "logits and loss")

    def __init__(self, model, optimizer, batch):
        self.vocabulary = getattr(model.config, "vocab_size", None)
        super().__init__(model, optimizer, batch)

    def _see(self, tensor, category):
        is_logits = tensor.ndim > 1 and tensor.shape[-1] == self.vocabulary and category != "parameters"
        super()._see(tensor, "logits and loss" if is_logits else category)


class WithAdapters:
    """In place of a class of transformers: the same model with LoRA beside every linear layer, without data."""

    @staticmethod
    def from_config(config, **options):
        adapters = LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")
        with unset_fake_temporarily(), torch.device("meta"):  # peft replaces modules, which fake tensors do not allow
            return get_peft_model(AutoModelForCausalLM.from_config(config, **options), adapters).to_empty(device="cpu")


def loss_of(model, batch):
    return model(**batch).loss


# %% [markdown]
# A step has parts: forward, two halves of backward, and the optimizer. The tracker notes
# the peak of each, because memory rises or falls steadily inside a part. LoRA computes
# under autocast, as with `Trainer(bf16=True)`. All other steps here are pure bf16 or
# fp16, which needs no autocast.
#
# `attention="sdpa"` lets transformers make its mask, as it does for a batch with padding.
# The name `UNMASKED_SDPA` stands for the same kernel without a mask, as in a batch whose
# sequences have one length.

# %%
def traced_whole(model_class, config, make_batch, *, attention=UNMASKED_SDPA, checkpointing=False, loss=loss_of,
                 dtype=torch.bfloat16, train=True):
    """Traces forward, backward and, where `train`, an AdamW step. `attention="sdpa"` lets transformers make its "
    "mask."""
    lora = model_class is WithAdapters
    with fake(), GpuOperators():
        model = build_model(model_class, config, dtype, attention).train()
        if checkpointing:
            checkpoint_layers(model, 1)
        optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], fused=True)
        if train:
            create_state(model, optimizer)
        batch = make_batch()
        step = Trace(sum(p.numel() for p in model.parameters()))
        with VocabularyTracker(model, optimizer, batch) as tracker:
            end_part_in_mid_backward(model, tracker)
            with torch.autocast("cpu", dtype=torch.bfloat16) if lora else contextlib.nullcontext():
                result = loss(model, batch)
            step.after_forward = tracker.snapshot()
            tracker.part()
            result.backward()
            del result
            tracker.part()
            if train:
                optimizer.step()
                optimizer.zero_grad()
            tracker.part()
    step.take(tracker)
    return step

# %% [markdown]
# The layers of a model are alike. So two and four of them are traced, and a model of any
# depth lies on the line through both.

# %%
def traced(model_class, config, make_batch, **options):
    few = (2, 4)
    steps = [traced_whole(model_class, with_layers(config, number), make_batch, **options) for number in few]
    return line_of(steps, few, config.num_hidden_layers, Trace())


# %%
def activations(step):
    return step.after_forward["activations"] / GiB


def flops(step):
    return step.flops["forward"] + step.flops["backward"]


def saved(before, after):
    return 100 * (1 - after / before)


def exact(kind, *statements):
    for name, sentence, value, unit, least, most, *source in statements:
        source = source[0] if source else None
        claim(name, sentence, value, unit, kind=kind, at_least=least, at_most=most, source=source)


def tokens(batch_size, length, mask=False):
    """A batch of a language model; with a mask, the one that transformers makes where a token is padding."""
    def make():
        ids = torch.zeros(batch_size, length, dtype=torch.long)
        masked = {"attention_mask": torch.ones(batch_size, 1, length, length, dtype=torch.bool)} if mask else {}
        return {"input_ids": ids, "labels": ids} | masked
    return make


# %%
llama_8b = LlamaConfig(
    vocab_size=128256, hidden_size=4096, intermediate_size=14336, num_hidden_layers=32, num_attention_heads=32,
    num_key_value_heads=8, max_position_embeddings=131072, tie_word_embeddings=False,
)

# %% [markdown]
# ## Does the saving of SDPA grow with the length?
#
# BERT-base in fp16, forward and backward of a masked language model, batch 4: the peak
# with the eager kernel, which writes every score, and with a fused one.
#
# By hand: eager attention keeps one score for each pair of tokens, each head, each layer
# and each sequence, more than once, because softmax and dropout keep theirs too. So twice
# the length is four times the scores. All other activations are one row per token, so
# twice the length is twice of them. At some length the scores overtake the rest, and from
# there on the peak follows the square.
#
# There is no optimizer, as in the published figures below, and the model's output lives
# through the backward pass, as it did there.

# %%
HELD = []


def sum_of_logits(model, batch):
    HELD[:] = [model(input_ids=batch["input_ids"])]
    return HELD[0].logits.sum()


@cache
def bert_base(batch_size, length, attention):
    config = BertConfig(max_position_embeddings=max(512, length))
    step = traced(AutoModelForMaskedLM, config, tokens(batch_size, length), attention=attention, dtype=torch.float16,
                  loss=sum_of_logits, train=False)
    HELD.clear()
    return step.peak_gib


LENGTHS = [128, 512, 1024, 4096]
peaks = {length: (bert_base(4, length, "eager"), bert_base(4, length, UNMASKED_SDPA)) for length in LENGTHS}
table(
    "sdpa-saving", "Peak memory of forward and backward, BERT-base, fp16, batch 4, no optimizer",
    {"length": "Tokens", "eager": "Eager attention, GiB", "sdpa": "SDPA, GiB", "saving": "SDPA saves, %"},
    [{"length": length, "eager": eager, "sdpa": sdpa, "saving": saved(eager, sdpa)}
     for length, (eager, sdpa) in peaks.items()],
    kind="traced",
)

# %% alt="Peak memory against tokens, both on log scales: eager attention leaves SDPA further behind the longer the sequence is."
_, axes = plt.subplots(figsize=(7, 2.8))
for number, (label, color) in enumerate((("eager attention", ORANGE), ("SDPA", BLUE))):
    axes.plot(LENGTHS, [pair[number] for pair in peaks.values()], marker="o", label=label, color=color)
axes.set(xscale="log", yscale="log", xlabel="tokens", ylabel="peak, GiB")
axes.set_xticks(LENGTHS, [f"{length:,}" for length in LENGTHS])
axes.minorticks_off()
axes.legend()
plt.show()
OF_BERT = "What SDPA saves of the peak of BERT-base, fp16, forward and backward, batch 4"
exact(
    "traced",
    ("sdpa-saving-128", f"{OF_BERT} x 128 tokens", saved(*peaks[128]), "%", -0.5, 0.5),
    ("sdpa-saving-4096", f"{OF_BERT} x 4,096 tokens", saved(*peaks[4096]), "%", 80, 95),
)

# %% [markdown]
# At the shortest length nothing is saved, because there the peak is the end of the
# backward pass, where no score is left. At the longest, eager attention is nearly all of
# the peak: one score for each head and each pair of tokens, in each layer.
#
# ## What a real GPU says
#
# Hugging Face measured BERT-base so in 2024 on an A100 (PyTorch 2.2.0, fp16). The
# source's last column, "Mem saving", is eager / SDPA - 1. That is not a saving: it passes
# a hundred per cent when SDPA needs less than half. The saving is 1 - SDPA / eager. We
# leave the printed column out and compute the saving from the two columns of memory.
#
# The table also holds times, which no trace can give. Read them beside the savings: speed
# and saving grow together, because both come from scores that are never written.

# %%
A100 = ("https://github.com/huggingface/transformers/blob/0a5a45655f313b2ed8b384f279ecd5ad78d203de/"
        "docs/source/ko/model_doc/bert.md")
MEASURED = [  # batch, tokens, seconds eager and SDPA, peak MB eager and SDPA
    (4, 256, 0.023, 0.017, 939.213, 764.834), (4, 512, 0.023, 0.018, 1970.447, 1227.162),
    (8, 256, 0.023, 0.018, 1594.295, 1226.114), (8, 512, 0.035, 0.025, 3629.401, 2134.262),
    (16, 256, 0.030, 0.024, 2874.426, 2134.262), (16, 512, 0.064, 0.044, 6964.659, 3961.013),
]
table(
    "a100-2024", "Training step of BERT-base, fp16, NVIDIA A100 80 GB, PyTorch 2.2.0, 2024",
    {"shape": "Batch x tokens", "eager_s": "Eager, s", "sdpa_s": "SDPA, s", "speed": "Speed of SDPA, x",
     "eager": "Eager peak, MB", "sdpa": "SDPA peak, MB", "saving": "SDPA saves, %"},
    [{"shape": f"{batch} x {length}", "eager_s": eager_s, "sdpa_s": sdpa_s, "speed": round(eager_s / sdpa_s, 2),
      "eager": eager, "sdpa": sdpa, "saving": round(saved(eager, sdpa), 1)}
     for batch, length, eager_s, sdpa_s, eager, sdpa in MEASURED],
    kind="cited", source=A100,
)
speeds = [eager_s / sdpa_s for _, _, eager_s, sdpa_s, *_ in MEASURED]
exact(
    "derived",
    ("a100-speed-least", "Least speed of SDPA against eager attention in this table", min(speeds), "x", 1.2, 1.3, A100),
    ("a100-speed-most",
     "Highest speed of SDPA against eager attention in this table", max(speeds), "x", 1.4, 1.5, A100),
    ("a100-saving",
     "Memory that SDPA saves, BERT-base, A100, batch 16 x 512 tokens, 2024, from the source's two columns of "
     "memory", saved(6964.659, 3961.013), "%", 43, 43.3, A100),
)

# %% [markdown]
# Does the trace agree with that GPU? What a kernel and the allocator need beside tensors
# cancels in the difference of the two peaks. So we compare differences: the bytes that
# SDPA saved on the GPU, and the bytes that it saves in the trace.
#
# The source does not state its program. We suppose forward and backward pass without an
# optimizer, because that fits its peaks. A ratio of one means that the trace saw what the
# GPU saw.

# %% alt="Bars of the bytes that SDPA saves, traced over measured on an A100: all lie near one, the smallest shape above it."
ratios = {
    f"{batch} x {length}": (bert_base(batch, length, "eager") - bert_base(batch, length, UNMASKED_SDPA)) * GiB / 1e6
    / (eager - sdpa) for batch, length, _, _, eager, sdpa in MEASURED
}
bars(ratios, "bytes that SDPA saves: trace against A100, x", baseline=1)
exact(
    "traced",
    ("trace-against-a100",
     "Difference of the bytes that SDPA saves by the trace from those that the A100 of 2024 saved, "
     "batch 16 x 512 tokens", 100 * abs(ratios["16 x 512"] - 1), "%", 0, 2),
    ("trace-against-a100-worst", "Largest such difference over the six shapes of that table, at batch 4 x 256 tokens",
     100 * max(abs(ratio - 1) for ratio in ratios.values()), "%", 7, 9),
)

# %% [markdown]
# ## What padding does
#
# One padding token in the batch, and transformers hands SDPA a mask. The flash kernel
# takes none. The memory-efficient one takes it as a 16-bit tensor of tokens x tokens per
# sequence, and keeps it for the backward pass, in every layer.
#
# Why does one padding token matter so much? transformers cannot tell a kernel "the last
# token is padding"; it can only say, for every pair of tokens, whether the pair counts.
# That table of pairs is the mask, and it is as large for one padding token as for a
# thousand.
#
# We trace BERT-large on 16,384 tokens, cut into ever longer sequences. The number of
# tokens stays the same, so without a mask the activations should stay the same too. With
# a mask they should grow with the length of a sequence, though far less than with eager
# attention, which keeps a score for every head.

# %%
def classify(batch_size, length, mask):
    def make():
        masked = {"attention_mask": torch.ones(batch_size, 1, length, length, dtype=torch.bool)} if mask else {}
        ids, labels = torch.zeros(batch_size, length, dtype=torch.long), torch.zeros(batch_size, dtype=torch.long)
        return {"input_ids": ids, "labels": labels} | masked
    return make


bert_large = BertConfig(hidden_size=1024, intermediate_size=4096, num_hidden_layers=24, num_attention_heads=16,
                        max_position_embeddings=8192)
WAYS = {"flash": (UNMASKED_SDPA, False), "masked": ("sdpa", True), "eager": ("eager", False)}
kept = {
    (batch_size, length): {name: activations(traced(AutoModelForSequenceClassification, bert_large,
                                                    classify(batch_size, length, mask), attention=attention))
                           for name, (attention, mask) in WAYS.items()}
    for batch_size, length in ((32, 512), (8, 2048), (2, 8192))
}
table(
    "bert-padding", "Activations after the forward pass, BERT-large, pure bf16, 16,384 tokens per batch",
    {"shape": "Batch x tokens", "flash": "SDPA, no padding, GiB", "masked": "SDPA, one padding token, GiB",
     "eager": "Eager attention, GiB"},
    [{"shape": f"{batch_size} x {length:,}", **row} for (batch_size, length), row in kept.items()], kind="traced",
)

# %% alt="Bars of activations with and without one padding token, at the same number of tokens: the longer the sequence, the more the token costs."
bars({f"{batch_size} x {length:,}": {"SDPA, no padding": row["flash"], "SDPA, one padding token": row["masked"]}
      for (batch_size, length), row in kept.items()}, "activations, GiB")
ADDS = "What a padding mask adds to the activations of BERT-large with SDPA, pure bf16, batch"
exact(
    "traced",
    ("bert-padding-512", f"{ADDS} 32 x 512 tokens", -saved(kept[32, 512]["flash"], kept[32, 512]["masked"]), "%", 2, 4),
    ("bert-padding-8192", f"{ADDS} 2 x 8,192 tokens",
     -saved(kept[2, 8192]["flash"], kept[2, 8192]["masked"]), "%", 40, 55),
)

# %% [markdown]
# A *causal* model padded on the right needs no mask at all. No real token comes after a
# padding token, so none sees one, and labels of -100 keep the padding tokens out of the
# loss.
#
# Drop `attention_mask` from such a batch and the flash kernel is back. Is the loss the
# same? A tiny Llama shows it: this is behavior, and does not depend on size.

# %% tags=["measures"]
torch.manual_seed(0)
tiny = AutoModelForCausalLM.from_config(LlamaConfig(vocab_size=100, hidden_size=64, intermediate_size=128,
                                                    num_hidden_layers=2, num_attention_heads=2, use_cache=False))
ids = torch.randint(1, 100, (2, 12))
real = torch.tensor([[1] * 12, [1] * 7 + [0] * 5])
labels = ids.masked_fill(real == 0, -100)
with_mask, without = tiny(input_ids=ids, attention_mask=real, labels=labels).loss, tiny(input_ids=ids,
                                                                                        labels=labels).loss
print("with the mask", with_mask.item(), "without", without.item())
torch.testing.assert_close(with_mask, without)

# %% [markdown]
# ## A sliding window
#
# A window limits which tokens are seen, so one expects it to save memory, and in a kernel
# that knows windows it does. But SDPA knows no window: transformers makes a mask of
# tokens x tokens. We trace a Mistral-7B with its window of 4,096 tokens and without, once
# with all activations kept and once with activation checkpointing, which keeps the mask
# of one layer at a time.

# %%
window = {}
for name, size, attention in (("window", 4096, "sdpa"), ("full", None, UNMASKED_SDPA)):
    config = MistralConfig(sliding_window=size, max_position_embeddings=131072)
    for checkpointing in (False, True):
        window[name, checkpointing] = traced(AutoModelForCausalLM, config, tokens(1, 32768),
                                             checkpointing=checkpointing,
                                             attention=attention)
exact(
    "traced",
    ("window-cost", "What a sliding window of 4,096 tokens adds to the activations of Mistral-7B with SDPA, pure bf16, "
     "batch 1 x 32,768 tokens", activations(window["window", False]) - activations(window["full", False]), "GiB", 74,
     78),
    ("window-cost-checkpointed", "What the same window adds to the peak of the step with activation checkpointing",
     window["window", True].peak_gib - window["full", True].peak_gib, "GiB", 3, 4),
)
exact("derived", ("window-by-hand", "A 16-bit mask of 32,768 x 32,768 in each of 32 layers", 32 * 2 * 32768**2 / GiB,
                  "GiB", 63.9, 64.1))

# %% [markdown]
# ## Logits and loss, by hand
#
# One logit per token and entry of the vocabulary: two bytes in bf16, four after the loss
# has taken them to fp32, four more of log-softmax, which the backward pass needs. There,
# the gradient of the loss and the gradient behind log-softmax are two more of four bytes.
# At most three fp32 tensors live at once. The trace of a Qwen3-8B class step should show
# three.

# %%
TOKENS = 32768
qwen_8b = Qwen3Config(
    vocab_size=151936, hidden_size=4096, intermediate_size=12288, num_hidden_layers=36, num_attention_heads=32,
    num_key_value_heads=8, head_dim=128, max_position_embeddings=131072, tie_word_embeddings=False,
)
qwen = traced(AutoModelForCausalLM, qwen_8b, tokens(1, TOKENS), checkpointing=True)
exact(
    "derived",
    ("one-copy", "One fp32 copy of the logits, Llama-8B class, 32,768 tokens x 128,256 entries",
     4 * TOKENS * 128256 / GiB, "GiB", 15.6, 15.7),
    ("three-copies-qwen", "Three fp32 copies of the logits, Qwen class, 32,768 tokens x 151,936 entries",
     3 * 4 * TOKENS * 151936 / GiB, "GiB", 55, 56),
)
exact("traced", ("qwen-logits", "Logits and loss at the peak of a Qwen3-8B class step with checkpointing, pure bf16, "
                 "batch "
                 "1 x 32,768 tokens", qwen.gib("logits and loss"), "GiB", 55, 56.5))

# %% [markdown]
# ## The loss in chunks
#
# Checkpointing the layers does not touch the logits, because they lie behind the last
# layer. So they are what is left.
#
# The loss is a sum over tokens. So cut the tokens into chunks, and compute logits and
# loss of each chunk under checkpointing. The forward pass then keeps the hidden states,
# which are as narrow as the model. The backward pass makes the logits of one chunk again,
# uses them and drops them. The price is one more product with the output layer.

# %%
def chunk_loss(hidden, weight, labels):
    return F.cross_entropy(F.linear(hidden, weight).float(), labels, ignore_index=-100, reduction="sum")


def chunked_cross_entropy(hidden, weight, labels, num_items=None, chunk=2048):
    """The loss of a causal language model from its last hidden state, without the logits of all tokens at once."""
    labels = F.pad(labels, (0, 1), value=-100)[:, 1:].flatten()  # token n predicts token n + 1
    if num_items is None:
        num_items = (labels != -100).sum()
    pieces = zip(hidden.flatten(0, 1).split(chunk), labels.split(chunk))
    return sum(checkpoint(chunk_loss, piece, weight, label, use_reentrant=False) for piece, label in pieces) / num_items


def chunked(model, batch):
    model = model.get_base_model() if hasattr(model, "get_base_model") else model
    hidden = model.model(input_ids=batch["input_ids"]).last_hidden_state
    return chunked_cross_entropy(hidden, model.lm_head.weight, batch["labels"])


def pair(batch_size, length, model_class=AutoModelForCausalLM):
    """The same step of the 8B Llama with the usual loss, and with the loss in chunks."""
    return [traced(model_class, llama_8b, tokens(batch_size, length), checkpointing=True, loss=loss)
            for loss in (loss_of, chunked)]


# %% [markdown]
# First along the sequence length, for full fine-tuning of one sequence. The logits of a
# token have as many entries as the vocabulary; the checkpointed input of a layer has as
# many as the model is wide. So expect the logits to take most of what grows with the
# length, and the loss in chunks to flatten the line.

# %% alt="Peak memory against tokens: with the usual loss it climbs steeply, with a loss in chunks slowly."
LONG = [4096, 16384, 32768, 65536]
steps = {length: pair(1, length) for length in LONG}
table(
    "loss-length", "Peak memory of a step, Llama-8B class, batch 1, pure bf16, AdamW, activation checkpointing",
    {"length": "Tokens", "plain": "Peak, GiB", "logits": "of it logits and loss, GiB",
     "chunked": "Peak, loss in chunks, GiB"},
    [{"length": length, "plain": plain.peak_gib, "logits": plain.gib("logits and loss"), "chunked": cut.peak_gib}
     for length, (plain, cut) in steps.items()],
    kind="traced",
)
_, axes = plt.subplots(figsize=(7, 2.8))
for number, (label, color) in enumerate((("usual loss", ORANGE), ("loss in chunks", BLUE))):
    axes.plot(LONG, [pair[number].peak_gib for pair in steps.values()], marker="o", label=label, color=color)
axes.set(xscale="log", xlabel="tokens", ylabel="peak, GiB", ylim=(0, None))
axes.set_xticks(LONG, [f"{length:,}" for length in LONG])
axes.minorticks_off()
axes.legend()
plt.show()

# %%
plain, cut = steps[TOKENS]
exact(
    "traced",
    ("llama-peak-32k", "Peak memory of an 8B Llama step with checkpointing, pure bf16, batch 1 x 32,768 tokens",
     plain.peak_gib, "GiB", 99, 103),
    ("llama-logits-share", "Share of logits and loss in that peak",
     100 * plain.gib("logits and loss") / plain.peak_gib, "%", 45, 48),
    ("chunked-saving-32k", "What the loss in chunks of 2,048 tokens saves of the peak of an 8B Llama step with "
     "checkpointing, full fine-tuning, batch 1 x 32,768 tokens", saved(plain.peak, cut.peak), "%", 32, 36),
    ("chunked-flops", "FLOPs that the loss in chunks adds to an 8B Llama step with checkpointing, 32,768 tokens",
     -saved(flops(plain), flops(cut)), "%", 0.5, 1.2),
)

# %% [markdown]
# The chart shows one setting: full fine-tuning, one sequence. It would be wrong to read
# from its left end that chunks are for long sequences only.
#
# Then at short sequences. Does the loss in chunks save nothing there? It depends on where
# the peak lies. In full fine-tuning of one short sequence the peak is the end of the
# backward pass, where all gradients exist and the logits are gone. The loss in chunks
# then shrinks something that is not the peak.
#
# A larger batch makes the logits larger and the gradients not. LoRA has few gradients, so
# its peak is at the logits even for one sequence. Expect chunks to save something in each
# of these cases.

# %% alt="Bars of what a loss in chunks saves: nothing for full fine-tuning at batch 1, most for LoRA at batch 4."
short = {
    ("full", 1): steps[4096], ("full", 4): pair(4, 4096), ("LoRA", 1): pair(1, 4096, WithAdapters),
    ("LoRA", 4): pair(4, 4096, WithAdapters),
}
savings = {key: saved(plain.peak, cut.peak) for key, (plain, cut) in short.items()}
table(
    "loss-batch", "Peak memory of a step of 4,096-token sequences, Llama-8B class, bf16 weights, AdamW, checkpointing",
    {"training": "Training", "batch": "Batch size", "plain": "Peak, GiB", "chunked": "Peak, loss in chunks, GiB",
     "saving": "Chunks save, %"},
    [{"training": training, "batch": batch, "plain": plain.peak_gib, "chunked": cut.peak_gib,
      "saving": savings[training, batch]} for (training, batch), (plain, cut) in short.items()],
    kind="traced",
)
bars({f"{training}, batch {batch}": saving for (training, batch), saving in savings.items()}, "loss in chunks saves, %")
SAVES = "What the loss in chunks saves of the peak of an 8B Llama step with checkpointing"
exact(
    "traced",
    ("chunked-saving-4k", f"{SAVES}, full fine-tuning, batch 1 x 4,096 tokens", savings["full", 1], "%", -0.5, 0.5),
    ("chunked-saving-4x4k", f"{SAVES}, full fine-tuning, batch 4 x 4,096 tokens", savings["full", 4], "%", 12, 16),
    ("chunked-saving-lora", f"{SAVES}, LoRA, batch 1 x 4,096 tokens", savings["LoRA", 1], "%", 11, 15),
    ("chunked-saving-lora-4", f"{SAVES}, LoRA, batch 4 x 4,096 tokens", savings["LoRA", 4], "%", 40, 45),
)

# %% [markdown]
# What does it cost? In the trace, the FLOPs of one more product with the output layer,
# which is little beside a whole step. On a GPU the chunks are also smaller products,
# which may run less well.

# %% [markdown]
# ## Only the tokens that count
#
# The loss in chunks computes every logit, one chunk at a time. Some logits need not be
# computed at all.
#
# In instruction tuning the prompt's labels are -100: those tokens have no loss and need
# no logits. `logits_to_keep` takes the positions of the others. Here one token in four is
# part of an answer. The peak should fall about as far as with chunks, and nothing is
# computed twice.

# %% alt="Bars of peak memory: a loss in chunks and logits for answers only need the same, and clearly less than all logits."
def a_quarter(model, batch):
    positions = torch.zeros(TOKENS // 4, dtype=torch.long)
    return model(**batch, logits_to_keep=positions, shift_labels=torch.zeros(1, TOKENS // 4, dtype=torch.long)).loss


answers = traced(AutoModelForCausalLM, llama_8b, tokens(1, TOKENS), checkpointing=True, loss=a_quarter)
exact("traced", ("quarter-saving", "What logits for one token in four save of the peak of an 8B Llama step with "
                 "checkpointing, 32,768 tokens", saved(plain.peak, answers.peak), "%", 31, 36))
bars({"all logits": plain.peak_gib, "loss in chunks": cut.peak_gib, "logits for answers only": answers.peak_gib},
     "peak of an 8B Llama step, 32,768 tokens, GiB")

# %% [markdown]
# ## The same loss, the same gradients?
#
# A method that saves memory must not change what is learned. So we compare loss and
# gradients, and not only the loss.
#
# In exact arithmetic they are the same. In fp32 they agree to rounding. In bf16 every
# chunk adds its gradient of the output layer to a bf16 sum, and each addition rounds:
# expect that error to grow with the number of chunks. By how much depends on the
# vocabulary: the more entries, the fewer chunks touch the same one. We compute the loss
# of an output layer of SmolLM2's size in fp64, and then in fp32 and bf16: at once, in 4
# chunks, in 32 chunks, and by `F.linear_cross_entropy` of torch 2.13, which cuts by
# itself.

# %% tags=["measures"]
torch.manual_seed(0)
HIDDEN, WEIGHT, LABELS = torch.randn(1, 2048, 576), torch.randn(49152, 576) / 24, torch.randint(0, 49152, (1, 2048))
BUILT_IN = getattr(torch.nn, "LinearCrossEntropyOptions", None)


def usual(hidden, weight, labels):
    logits = F.linear(hidden, weight)
    logits = logits if hidden.dtype == torch.float64 else logits.float()
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())


def built_in(hidden, weight, labels):
    labels = F.pad(labels, (0, 1), value=-100)[:, 1:].flatten()
    return F.linear_cross_entropy(hidden.flatten(0, 1), weight, labels, ignore_index=-100, options=BUILT_IN())


LOSSES = {
    "usual": usual,
    "4 chunks": lambda *tensors: chunked_cross_entropy(*tensors, chunk=512),
    "32 chunks": lambda *tensors: chunked_cross_entropy(*tensors, chunk=64),
} | ({"F.linear_cross_entropy": built_in} if BUILT_IN else {})


def computed(loss, dtype):
    hidden, weight = (tensor.to(dtype).clone().requires_grad_() for tensor in (HIDDEN, WEIGHT))
    value = loss(hidden, weight, LABELS)
    value.backward()
    return value.double(), hidden.grad.double(), weight.grad.double()


# %% tags=["measures"] alt="Bars of the relative error of the output layer's gradient in bf16: four ways to compute the loss, all nearly alike."
right = computed(usual, torch.float64)
errors = {}
for name, loss in LOSSES.items():
    for dtype in (torch.float32, torch.bfloat16):
        errors[name, dtype] = [((ours - exactly).norm() / exactly.norm()).item()
                               for ours, exactly in zip(computed(loss, dtype), right)]
table(
    "loss-errors", "Relative error against fp64, 2,048 tokens, width 576, vocabulary of 49,152, on a CPU",
    {"loss": "Loss", "value": "fp32, loss", "weight": "fp32, gradient of the output layer",
     "value16": "bf16, loss", "weight16": "bf16, gradient of the output layer"},
    [{"loss": name, "value": errors[name, torch.float32][0], "weight": errors[name, torch.float32][2],
      "value16": errors[name, torch.bfloat16][0], "weight16": errors[name, torch.bfloat16][2]} for name in LOSSES],
    kind="measured",
)
bars({name: errors[name, torch.bfloat16][2] for name in LOSSES}, "bf16: relative error of the output layer's gradient")

# %% tags=["measures"]
of_32 = errors["32 chunks", torch.bfloat16][2] / errors["usual", torch.bfloat16][2]
claim("chunked-error", "Largest relative difference of loss and gradients in fp32, loss in 32 chunks against fp64",
      max(errors["32 chunks", torch.float32]), kind="measured", at_most=1e-5)
claim("chunked-error-bf16", "Error of the output layer's gradient in bf16, loss in 32 chunks against one piece, an "
      "output "
      "layer of SmolLM2's size", of_32, "x", kind="measured", at_least=1.02, at_most=2)
claim("built-in-error", "Relative error of the bf16 loss that F.linear_cross_entropy returns on a CPU",
      100 * errors["F.linear_cross_entropy", torch.bfloat16][0] if BUILT_IN else None, "%", kind="measured",
      at_least=0.1, at_most=10, because="this torch has no LinearCrossEntropyOptions")

# %% [markdown]
# ## What came out, and what to do
#
# - **Keep SDPA, and keep masks away from it.** A padding token or a sliding window brings
#   the square of the length back. In a causal model padded on the right, leave
#   `attention_mask` out.
# - **Compute the loss in chunks when the peak lies at the logits**: long sequences,
#   batches of several sequences, and LoRA at any length. In full fine-tuning of one short
#   sequence it saves nothing.
# - **In instruction tuning, keep logits for the answers only.** It saves as much and
#   computes nothing twice.
# - **In bf16, chunks round the output layer's gradient more often**, and with a real
#   vocabulary that adds little to the error. `F.linear_cross_entropy` returns a bf16 loss
#   that is visibly off; its gradient is not.
#
# To ask the same of your model, put its configuration in place of `llama_8b`, and your
# batch and length into `pair`. The trace takes seconds and no GPU. The bounds of the
# claims belong to the models that their sentences name.

# %%
# Compares this run with the published records. In Colab it also offers the record of this machine, to send.
from evidence.finish import finish

finish()
