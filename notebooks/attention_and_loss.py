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
# # Attention kernels and the loss of a large vocabulary
#
# Two parts of a training step can outgrow all others: attention, where its kernel writes the scores, grows with the square
# of the sequence length, and the logits are a row of the whole vocabulary for every token. This notebook traces both at full size, without
# a GPU, and times small versions of them on the machine that it runs on. It shows what a mask does to the fused kernels,
# and what a loss in chunks saves.

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
from functools import cache

import matplotlib.pyplot as plt
import torch
import torch.nn.functional as F
from matplotlib_inline.backend_inline import set_matplotlib_formats
from torch.utils.checkpoint import checkpoint
from transformers import (
    AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForSequenceClassification, BertConfig, LlamaConfig, MistralConfig,
    Qwen3Config, logging,
)

from evidence.claims import claim, start, table
from evidence.machine import describe
from evidence.measure import interleaved, one_thread, peak_memory
from dryrun.trace import (
    UNMASKED_SDPA, GiB, GpuOperators, Trace, Tracker, build_model, checkpoint_layers, create_state, end_part_in_mid_backward, fake,
)

logging.set_verbosity_error()
set_matplotlib_formats("svg")
plt.rcParams["svg.hashsalt"] = "attention_and_loss"  # the same figure at every run
start("attention_and_loss")

# %% [markdown]
# ## The step that is traced
#
# `dryrun.trace.training_step` builds the model and runs the usual step. Here the step itself changes, so it is written
# out: a batch with a mask, or a loss of one's own. `VocabularyTracker` files whatever has one column per token of the
# vocabulary, the logits and all that the loss makes of them, under a category of its own.

# %%
class VocabularyTracker(Tracker):
    CATEGORIES = (*Tracker.CATEGORIES, "logits and loss")

    def __init__(self, model, optimizer, batch):
        self.vocabulary = getattr(model.config, "vocab_size", None)
        super().__init__(model, optimizer, batch)

    def _see(self, tensor, category):
        is_logits = tensor.ndim > 1 and tensor.shape[-1] == self.vocabulary and category != "parameters"
        super()._see(tensor, "logits and loss" if is_logits else category)


def loss_of(model, batch):
    return model(**batch).loss


def traced(model_class, config, make_batch, *, attention=UNMASKED_SDPA, checkpointing=False, loss=loss_of, dtype=torch.bfloat16, train=True):
    """Traces forward, backward and, where `train`, an AdamW step. `attention="sdpa"` lets transformers make its mask."""
    with fake(), GpuOperators():
        model = build_model(model_class, config, dtype, attention).train()
        if checkpointing:
            checkpoint_layers(model, 1)
        optimizer = torch.optim.AdamW(model.parameters(), fused=True)
        if train:
            create_state(model, optimizer)
        batch = make_batch()
        step = Trace(sum(p.numel() for p in model.parameters()))
        with VocabularyTracker(model, optimizer, batch) as tracker:
            end_part_in_mid_backward(model, tracker)
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


def activations(step):
    return step.after_forward["activations"] / GiB


def logits(step):
    """GiB of the logits and of what the loss makes of them, at the peak."""
    return step.gib("logits and loss")


def flops(step):
    return step.flops["forward"] + step.flops["backward"]


llama_8b = LlamaConfig(
    vocab_size=128256, hidden_size=4096, intermediate_size=14336, num_hidden_layers=32,
    num_attention_heads=32, num_key_value_heads=8, max_position_embeddings=131072, tie_word_embeddings=False,
)
qwen_8b = Qwen3Config(
    vocab_size=151936, hidden_size=4096, intermediate_size=12288, num_hidden_layers=36, num_attention_heads=32,
    num_key_value_heads=8, head_dim=128, max_position_embeddings=131072, tie_word_embeddings=False,
)


def tokens(batch_size, length, mask=False):
    """A batch of a language model; with a mask, the one that transformers makes where a token is padding."""
    def make():
        ids = torch.zeros(batch_size, length, dtype=torch.long)
        masked = {"attention_mask": torch.ones(batch_size, 1, length, length, dtype=torch.bool)} if mask else {}
        return {"input_ids": ids, "labels": ids} | masked
    return make


# %% [markdown]
# ## Does the saving of SDPA grow with the length?
#
# BERT-base in fp16, forward and backward of a masked language model, batch 4: the peak with the eager kernel, which
# writes every score, and with a fused one. No optimizer, as in the figures of 2024 below.

# %%
HELD = []  # the benchmark of 2024 kept the model's output through the backward pass


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


LENGTHS = [128, 256, 512, 1024, 2048, 4096]
saving = {length: 100 * (1 - bert_base(4, length, UNMASKED_SDPA) / bert_base(4, length, "eager")) for length in LENGTHS}
table(
    "sdpa-saving", "Peak memory of forward and backward, BERT-base, fp16, batch 4, no optimizer",
    {"length": "Tokens", "eager": "Eager attention, GiB", "sdpa": "SDPA, GiB", "saving": "SDPA saves, %"},
    [{"length": length, "eager": bert_base(4, length, "eager"), "sdpa": bert_base(4, length, UNMASKED_SDPA), "saving": saving[length]}
     for length in LENGTHS],
    kind="traced",
)
claim("sdpa-saving-128", "What SDPA saves of the peak of BERT-base, fp16, forward and backward, batch 4 x 128 tokens",
      saving[128], "%", kind="traced", at_least=-0.5, at_most=0.5)
claim("sdpa-saving-4096", "What SDPA saves of the peak of BERT-base, fp16, forward and backward, batch 4 x 4,096 tokens",
      saving[4096], "%", kind="traced", at_least=80, at_most=95)

# %% [markdown]
# Hugging Face measured BERT-base so in 2024 on an A100 (PyTorch 2.2.0, fp16). The source's last column, "Mem
# saving", is eager / SDPA - 1. That is not a saving: it passes a hundred per cent when SDPA needs less than a half.
# The saving is 1 - SDPA / eager.

# %%
A100 = "https://github.com/huggingface/transformers/blob/0a5a45655f313b2ed8b384f279ecd5ad78d203de/docs/source/ko/model_doc/bert.md"
MEASURED = [  # batch, tokens, seconds eager and SDPA, peak MB eager and SDPA, "Mem saving (%)" as printed
    (4, 256, 0.023, 0.017, 939.213, 764.834, 22.800),
    (4, 512, 0.023, 0.018, 1970.447, 1227.162, 60.569),
    (8, 256, 0.023, 0.018, 1594.295, 1226.114, 30.028),
    (8, 512, 0.035, 0.025, 3629.401, 2134.262, 70.054),
    (16, 256, 0.030, 0.024, 2874.426, 2134.262, 34.680),
    (16, 512, 0.064, 0.044, 6964.659, 3961.013, 75.830),
]
table(
    "a100-2024", "Training step of BERT-base, fp16, NVIDIA A100 80 GB, PyTorch 2.2.0, 2024",
    {"batch": "Batch size", "length": "Tokens", "eager_s": "Eager, s", "sdpa_s": "SDPA, s", "eager": "Eager peak, MB", "sdpa": "SDPA peak, MB",
     "printed": "Saving as printed, %", "saving": "Saving by its own columns, %"},
    [dict(zip(("batch", "length", "eager_s", "sdpa_s", "eager", "sdpa", "printed"), row)) | {"saving": round(100 * (1 - row[5] / row[4]), 1)}
     for row in MEASURED],
    kind="cited", source=A100,
)
claim("a100-printed", "Memory that SDPA saves, as the source prints it, BERT-base, A100, batch 16 x 512 tokens, 2024", 75.83, "%", kind="cited", source=A100)
claim("a100-saving", "The same saving computed from the source's two columns of memory", 100 * (1 - 3961.013 / 6964.659), "%",
      kind="derived", source=A100, at_least=43, at_most=43.3)

# %% [markdown]
# Does the trace agree with that GPU? What a kernel and the allocator need cancels in the difference of the two peaks.

# %%
difference = {
    (batch, length): (bert_base(batch, length, "eager") - bert_base(batch, length, UNMASKED_SDPA)) * GiB / 1e6 / (eager - sdpa)
    for batch, length, _, _, eager, sdpa, _ in MEASURED
}
print({f"{batch} x {length}": round(ratio, 3) for (batch, length), ratio in difference.items()})
claim("trace-against-a100", "Difference of the bytes that SDPA saves by the trace from those that the A100 of 2024 saved, batch 16 x 512 tokens",
      100 * abs(difference[16, 512] - 1), "%", kind="traced", at_most=2)
claim("trace-against-a100-worst", "Largest such difference over the six shapes of that table, at batch 4 x 256 tokens", 100 * max(abs(ratio - 1) for ratio in difference.values()),
      "%", kind="traced", at_least=7, at_most=9)

# %% [markdown]
# ## What padding does
#
# One padding token in the batch, and transformers hands SDPA a mask. The flash kernel takes none; the memory-efficient
# one takes it as a 16-bit tensor of tokens x tokens per sequence, and keeps it for the backward pass, in every layer.
# BERT-large on 16,384 tokens, cut into ever longer sequences:

# %%
def classify(batch_size, length, mask):
    def make():
        masked = {"attention_mask": torch.ones(batch_size, 1, length, length, dtype=torch.bool)} if mask else {}
        return {"input_ids": torch.zeros(batch_size, length, dtype=torch.long), "labels": torch.zeros(batch_size, dtype=torch.long)} | masked
    return make


bert_large = BertConfig(hidden_size=1024, intermediate_size=4096, num_hidden_layers=24, num_attention_heads=16, max_position_embeddings=8192)
SHAPES = [(32, 512), (8, 2048), (2, 8192)]
padding = {}
for batch_size, length in SHAPES:
    for name, attention, mask in (("flash", UNMASKED_SDPA, False), ("masked", "sdpa", True), ("eager", "eager", False)):
        step = traced(AutoModelForSequenceClassification, bert_large, classify(batch_size, length, mask), attention=attention)
        padding[name, length] = activations(step)
table(
    "bert-padding", "Activations after the forward pass, BERT-large, pure bf16, 16,384 tokens per batch",
    {"shape": "Batch x tokens", "flash": "SDPA, no padding, GiB", "masked": "SDPA, one padding token, GiB", "eager": "Eager attention, GiB"},
    [{"shape": f"{batch_size} x {length:,}", **{name: padding[name, length] for name in ("flash", "masked", "eager")}} for batch_size, length in SHAPES],
    kind="traced",
)
claim("bert-padding-512", "What a padding mask adds to the activations of BERT-large with SDPA, pure bf16, batch 32 x 512 tokens",
      100 * (padding["masked", 512] / padding["flash", 512] - 1), "%", kind="traced", at_least=2, at_most=4)
claim("bert-padding-8192", "What a padding mask adds to the activations of BERT-large with SDPA, pure bf16, batch 2 x 8,192 tokens",
      100 * (padding["masked", 8192] / padding["flash", 8192] - 1), "%", kind="traced", at_least=40, at_most=55)

# %% [markdown]
# ## A sliding window
#
# A window limits which tokens are seen. SDPA knows no window: transformers makes a mask of tokens x tokens, so the model
# with the window needs *more* memory than the one without. Mistral-7B class, window of 4,096 tokens:

# %%
mistral = {"window": MistralConfig(sliding_window=4096, max_position_embeddings=131072), "full": MistralConfig(sliding_window=None, max_position_embeddings=131072)}
window = {}
for name, config in mistral.items():
    for checkpointing in (False, True):
        window[name, checkpointing] = traced(AutoModelForCausalLM, config, tokens(1, 32768), checkpointing=checkpointing,
                                             attention="sdpa" if name == "window" else UNMASKED_SDPA)
claim("window-cost", "What a sliding window of 4,096 tokens adds to the activations of Mistral-7B with SDPA, pure bf16, batch 1 x 32,768 tokens",
      activations(window["window", False]) - activations(window["full", False]), "GiB", kind="traced", at_least=74, at_most=78)
claim("window-by-hand", "A 16-bit mask of 32,768 x 32,768 in each of 32 layers, by arithmetic",
      32 * 2 * 32768**2 / GiB, "GiB", kind="derived", at_least=64, at_most=64)
claim("window-cost-checkpointed", "What the same window adds to the peak of the step with activation checkpointing",
      window["window", True].peak_gib - window["full", True].peak_gib, "GiB", kind="traced", at_least=3, at_most=4)

# %% [markdown]
# ## Attention in time
#
# Forward and backward of a small Llama: eager, SDPA without padding, and SDPA with one padding token. CPU time on one
# thread, or wall time on a GPU; interleaved, fastest repeat.

# %% tags=["measures"]
GPU = torch.cuda.is_available()
CAPABILITY = torch.cuda.get_device_capability() if GPU else (0, 0)
BIG = GPU and torch.cuda.get_device_properties(0).total_memory > 40 * GiB
DEVICE = "cuda" if GPU else "cpu"
DTYPE = torch.float32 if not GPU else torch.bfloat16 if CAPABILITY >= (8, 0) else torch.float16
if BIG:
    shape, timed_lengths = {"hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 4, "num_attention_heads": 16}, [512, 2048, 8192]
elif GPU:
    shape, timed_lengths = {"hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 4, "num_attention_heads": 8}, [512, 2048, 4096]
else:
    shape, timed_lengths = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 1, "num_attention_heads": 4}, [128, 512, 2048]
    one_thread()
small = LlamaConfig(vocab_size=512, max_position_embeddings=8192, **shape)


def timed(attention, length, padded=False):
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(small, attn_implementation=attention, dtype=DTYPE).to(DEVICE).train()
    ids = torch.randint(0, 512, (1, length), device=DEVICE)
    mask = torch.ones_like(ids)
    if padded:
        mask[0, -1] = 0

    def step():
        model.zero_grad()
        model(input_ids=ids, attention_mask=mask, labels=ids, use_cache=False).loss.backward()
    return step


times = {length: interleaved({"eager": timed("eager", length), "sdpa": timed("sdpa", length), "padded": timed("sdpa", length, True)},
                             repeats=3) for length in timed_lengths}
table(
    "attention-time", f"Forward and backward of a small Llama, batch 1, {'GPU' if GPU else 'CPU, one thread'}",
    {"length": "Tokens", "eager": "Eager attention, s", "sdpa": "SDPA, s", "padded": "SDPA, one padding token, s"},
    [{"length": length, **{name: timing.best for name, timing in row.items()}} for length, row in times.items()],
    kind="measured",
)
longest = times[timed_lengths[-1]]
claim("sdpa-speed", "Speed of forward and backward with SDPA against eager attention, small Llama, the longest sequence of the table",
      longest["eager"].best / longest["sdpa"].best, "x", kind="measured", at_least=0.8, at_most=100 if GPU else 1.4, spread=longest["sdpa"].spread)
claim("padding-time", "Time of forward and backward with SDPA and one padding token against no padding, the longest sequence of the table",
      longest["padded"].best / longest["sdpa"].best, "x", kind="measured", at_least=1.02, at_most=3, spread=longest["padded"].spread)

# %% [markdown]
# ## Logits and loss, by hand
#
# One logit per token and entry of the vocabulary: two bytes in bf16, four after the loss has taken them to fp32, four
# more of log-softmax, which the backward pass needs. There, the gradient of the loss, and the gradient behind log-softmax, are
# two more of four bytes. At most three fp32 tensors live at once.

# %%
TOKENS = 32768
claim("one-copy", "One fp32 copy of the logits, Llama-8B class, 32,768 tokens x 128,256 entries",
      4 * TOKENS * 128256 / GiB, "GiB", kind="derived", at_least=15.6, at_most=15.7)
claim("three-copies-qwen", "Three fp32 copies of the logits, Qwen class, 32,768 tokens x 151,936 entries",
      3 * 4 * TOKENS * 151936 / GiB, "GiB", kind="derived", at_least=55, at_most=56)

# %% [markdown]
# ## The loss in chunks
#
# The loss is a sum over tokens. So cut the tokens into chunks, and for each chunk compute logits and loss under
# checkpointing: the backward pass makes the logits of one chunk again, uses them and drops them.

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
    hidden = model.model(input_ids=batch["input_ids"]).last_hidden_state
    return chunked_cross_entropy(hidden, model.lm_head.weight, batch["labels"])


LONG = [4096, 16384, 32768, 131072]
plain = {length: traced(AutoModelForCausalLM, llama_8b, tokens(1, length), checkpointing=True) for length in LONG}
in_chunks = {length: traced(AutoModelForCausalLM, llama_8b, tokens(1, length), checkpointing=True, loss=chunked) for length in LONG}
table(
    "loss-length", "Peak memory of a step, Llama-8B class, batch 1, pure bf16, AdamW, activation checkpointing",
    {"length": "Tokens", "plain": "Peak, GiB", "logits": "of it logits and loss, GiB", "chunked": "Peak, loss in chunks, GiB"},
    [{"length": length, "plain": plain[length].peak_gib, "logits": logits(plain[length]), "chunked": in_chunks[length].peak_gib} for length in LONG],
    kind="traced",
)
claim("llama-peak-32k", "Peak memory of an 8B Llama step with checkpointing, pure bf16, batch 1 x 32,768 tokens",
      plain[TOKENS].peak_gib, "GiB", kind="traced", at_least=99, at_most=103)
claim("llama-logits-share", "Share of logits and loss in that peak",
      100 * logits(plain[TOKENS]) / plain[TOKENS].peak_gib, "%", kind="traced", at_least=45, at_most=48)
claim("chunked-peak-32k", "The same step with the loss in chunks of 2,048 tokens",
      in_chunks[TOKENS].peak_gib, "GiB", kind="traced", at_least=65, at_most=69)
claim("chunked-saving-32k", "What the loss in chunks saves of the peak of an 8B Llama step with checkpointing, 32,768 tokens",
      100 * (1 - in_chunks[TOKENS].peak_gib / plain[TOKENS].peak_gib), "%", kind="traced", at_least=32, at_most=36)
claim("chunked-saving-4k", "What the loss in chunks saves of the peak of an 8B Llama step with checkpointing, 4,096 tokens",
      100 * (1 - in_chunks[4096].peak_gib / plain[4096].peak_gib), "%", kind="traced", at_least=-0.5, at_most=0.5)
claim("chunked-flops", "FLOPs that the loss in chunks adds to an 8B Llama step with checkpointing, 32,768 tokens",
      100 * (flops(in_chunks[TOKENS]) / flops(plain[TOKENS]) - 1), "%", kind="traced", at_least=0.5, at_most=1.2)
qwen = traced(AutoModelForCausalLM, qwen_8b, tokens(1, TOKENS), checkpointing=True)
claim("qwen-logits", "Logits and loss at the peak of a Qwen3-8B class step with checkpointing, pure bf16, batch 1 x 32,768 tokens",
      logits(qwen), "GiB", kind="traced", at_least=55, at_most=56.5)

# %%
figure, axes = plt.subplots(figsize=(7, 2.8))
for label, steps, colour in (("usual loss", plain, "#c45500"), ("loss in chunks", in_chunks, "#0072b2")):
    axes.plot(LONG, [steps[length].peak_gib for length in LONG], marker="o", label=label, color=colour)
axes.set(xscale="log", yscale="log", xlabel="tokens", ylabel="peak, GiB")
axes.set_xticks(LONG, [f"{length:,}" for length in LONG])
axes.set_yticks([60, 100, 200], ["60", "100", "200"])
axes.minorticks_off()
axes.legend(frameon=False)
plt.show()

# %% [markdown]
# ## Only the tokens that count
#
# In instruction tuning the prompt's labels are -100: those tokens have no loss and need no logits. `logits_to_keep` takes
# their positions. Here one token in four is part of an answer:

# %%
def a_quarter(model, batch):
    positions = torch.zeros(TOKENS // 4, dtype=torch.long)
    return model(**batch, logits_to_keep=positions, shift_labels=torch.zeros(1, TOKENS // 4, dtype=torch.long)).loss


kept = traced(AutoModelForCausalLM, llama_8b, tokens(1, TOKENS), checkpointing=True, loss=a_quarter)
claim("quarter-peak", "Peak memory of an 8B Llama step with checkpointing at 32,768 tokens with logits for one token in four",
      kept.peak_gib, "GiB", kind="traced", at_least=65, at_most=70)

# %% [markdown]
# ## The same loss, the same gradients?
#
# In fp32 yes. In bf16 every chunk adds its gradient of the output layer to a bf16 sum, and each addition rounds. Errors
# are against fp64; 4,096 tokens in 32 chunks, 4 chunks, and at once; and `F.linear_cross_entropy` of torch 2.13, which
# cuts by itself.

# %% tags=["measures"]
torch.manual_seed(0)
HIDDEN, WEIGHT, LABELS = torch.randn(1, 4096, 256), torch.randn(4000, 256) / 16, torch.randint(0, 4000, (1, 4096))
BUILT_IN = getattr(torch.nn, "LinearCrossEntropyOptions", None)
SLOW_BF16 = not GPU and {"avx512_bf16", "amx_bf16"}.isdisjoint(describe()["cpu_features"])
NO_BF16 = "this CPU has no bf16 instructions, and is too slow without"


def usual(hidden, weight, labels):
    logits = F.linear(hidden, weight).float() if hidden.dtype != torch.float64 else F.linear(hidden, weight)
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())


def built_in(hidden, weight, labels):
    labels = F.pad(labels, (0, 1), value=-100)[:, 1:].flatten()
    return F.linear_cross_entropy(hidden.flatten(0, 1), weight, labels, ignore_index=-100, options=BUILT_IN())


def results(loss, dtype, device="cpu"):
    hidden, weight = (tensor.detach().to(device, dtype).clone().requires_grad_() for tensor in (HIDDEN, WEIGHT))
    value = loss(hidden, weight, LABELS.to(device))
    value.backward()
    return value.item(), hidden.grad.double().cpu(), weight.grad.double().cpu()


exact = results(usual, torch.float64)
LOSSES = {
    "usual": usual,
    "4 chunks": lambda *tensors: chunked_cross_entropy(*tensors, chunk=1024),
    "32 chunks": lambda *tensors: chunked_cross_entropy(*tensors, chunk=128),
} | ({"F.linear_cross_entropy": built_in} if BUILT_IN else {})
errors = {}
for name, loss in LOSSES.items():
    for dtype in (torch.float32,) if SLOW_BF16 else (torch.float32, torch.bfloat16):
        value, *gradients = results(loss, dtype, DEVICE if dtype == DTYPE else "cpu")
        relative = [float((a - b).norm() / b.norm()) for a, b in zip(gradients, exact[1:])]
        errors[name, dtype] = [abs(value - exact[0]) / exact[0], *relative]
table(
    "loss-errors", "Relative error against fp64, 4,096 tokens, vocabulary of 4,000",
    {"loss": "Loss", "value": "fp32, loss", "weight": "fp32, gradient of the output layer",
     "value16": "bf16, loss", "weight16": "bf16, gradient of the output layer"},
    [{"loss": name, "value": errors[name, torch.float32][0], "weight": errors[name, torch.float32][2],
      "value16": None if SLOW_BF16 else errors[name, torch.bfloat16][0],
      "weight16": None if SLOW_BF16 else errors[name, torch.bfloat16][2]} for name in LOSSES],
    kind="measured",
)
claim("chunked-error", "Largest relative difference of loss and gradients in fp32, loss in 32 chunks against fp64",
      max(errors["32 chunks", torch.float32]), kind="measured", at_most=1e-5)
claim("chunked-error-bf16", "Error of the output layer's gradient in bf16 with 32 chunks against one piece",
      None if SLOW_BF16 else errors["32 chunks", torch.bfloat16][2] / errors["usual", torch.bfloat16][2], "x", kind="measured",
      at_least=1.5, at_most=6, because=NO_BF16)
claim("built-in-error", "Relative error of the bf16 loss that F.linear_cross_entropy returns on a CPU",
      100 * errors["F.linear_cross_entropy", torch.bfloat16][0] if BUILT_IN and not GPU and not SLOW_BF16 else None, "%",
      kind="measured", at_least=0.1, at_most=3,
      because="this torch has no LinearCrossEntropyOptions" if not BUILT_IN else NO_BF16 if SLOW_BF16 else "this machine computes it on its GPU")

# %% [markdown]
# ## The loss in time
#
# Forward and backward of output layer and loss alone.

# %% tags=["measures"]
if BIG:
    count, width, vocabulary = 8192, 4096, 128256
elif GPU:
    count, width, vocabulary = 2048, 2048, 128256
else:
    count, width, vocabulary = 1024, 256, 16000
HIDDEN, WEIGHT = torch.randn(1, count, width, device=DEVICE, dtype=DTYPE), torch.randn(vocabulary, width, device=DEVICE, dtype=DTYPE) / 16
HIDDEN.requires_grad_(), WEIGHT.requires_grad_()
LABELS = torch.randint(0, vocabulary, (1, count), device=DEVICE)


def backward_of(loss):
    def step():
        HIDDEN.grad = WEIGHT.grad = None
        loss(HIDDEN, WEIGHT, LABELS).backward()
    return step


steps = {"usual": backward_of(usual), "chunked": backward_of(lambda *tensors: chunked_cross_entropy(*tensors, chunk=count // 4))}
if BUILT_IN:
    steps["built in"] = backward_of(built_in)
timings = interleaved(steps, repeats=3)
peaks = {name: peak_memory(step) for name, step in steps.items()} if GPU else None
claim("chunked-time", "Time of output layer and loss in 4 chunks against one piece, forward and backward",
      timings["chunked"].best / timings["usual"].best, "x", kind="measured", at_least=0.8, at_most=2.2, spread=timings["chunked"].spread)
claim("built-in-time", "Time of F.linear_cross_entropy with default options against output layer and loss in one piece",
      timings["built in"].best / timings["usual"].best if BUILT_IN else None, "x", kind="measured", at_least=0.5, at_most=4,
      spread=timings["built in"].spread if BUILT_IN else None, because="this torch has no LinearCrossEntropyOptions")
claim("chunked-allocated", "Peak that the allocator counts for output layer and loss in one piece against 4 chunks",
      peaks["usual"].allocated / peaks["chunked"].allocated if GPU else None, "x", kind="measured", at_least=1.3, because="this machine has no GPU")
claim("built-in-allocated", "Peak that the allocator counts for output layer and loss in one piece against F.linear_cross_entropy",
      peaks["usual"].allocated / peaks["built in"].allocated if GPU and BUILT_IN else None, "x", kind="measured", at_least=1.3,
      because="this machine has no GPU, or torch before 2.13")
