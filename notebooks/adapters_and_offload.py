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
# # When the model itself is too large
#
# LoRA, QLoRA, offload to the host, and mixture-of-experts: what each takes off the GPU, what it leaves there, and what it
# costs. Memory is traced at full size on fake tensors, and needs no GPU. Bytes that follow from block sizes or link rates
# are derived. Time and loss are measured on this machine, with a model that fits it.

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
# And the packages of this notebook that are missing.
needs = {"peft": "peft==0.21.2", "bitsandbytes": "bitsandbytes==0.50.2", "torchao": "torchao==0.18.0"}
missing = [needed for name, needed in needs.items() if importlib.util.find_spec(name) is None]
if missing:
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", *missing], check=True)

# %%
import copy
import logging
import pydoc_data.topics
import tempfile
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from matplotlib_inline.backend_inline import set_matplotlib_formats

logging.disable(logging.WARNING)  # the packages below say at import what they do without
warnings.simplefilter("ignore")

from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from torch._subclasses.fake_tensor import unset_fake_temporarily
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, LlamaConfig, Qwen3Config, Qwen3MoeConfig, set_seed
from transformers.utils.logging import disable_progress_bar

from evidence.claims import claim, start, table
from evidence.machine import describe
from evidence.measure import interleaved, peak_memory
from dryrun.trace import GiB, fake, training_step

disable_progress_bar()
set_matplotlib_formats("svg")
plt.rcParams["svg.hashsalt"] = "adapters_and_offload"  # the same figure at every run
BF16 = torch.bfloat16
start("adapters_and_offload")

# %% [markdown]
# ## LoRA, traced at 8 billion parameters
#
# LoRA freezes the weights W and trains a narrow pair of matrices A and B beside each of them: y = Wx + BAx. Rank 16
# beside every linear layer of the decoder:

# %%
llama_8b = LlamaConfig(
    vocab_size=128256, hidden_size=4096, intermediate_size=14336, num_hidden_layers=32,
    num_attention_heads=32, num_key_value_heads=8, max_position_embeddings=131072, tie_word_embeddings=False, use_cache=False,
)
LORA = LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")


class WithAdapters:
    """For the tracer in place of a class of transformers: the same model with adapters, without data."""

    @staticmethod
    def from_config(config, **options):
        with unset_fake_temporarily(), torch.device("meta"):  # peft replaces modules, which fake tensors do not allow
            model = get_peft_model(AutoModelForCausalLM.from_config(config, **options), copy.deepcopy(LORA))  # which peft fills in
        return model.to_empty(device="cpu")


# %% [markdown]
# A traced step of it. peft keeps the adapters in fp32, and `Trainer(bf16=True)` computes under autocast. So autocast is on
# unless we ask otherwise.

# %%
def lora_step(length, config=llama_8b, autocast=BF16, **options):
    return training_step(WithAdapters, config, 1, length, dtype=BF16, autocast=autocast, **options)


def full_step(length, config=llama_8b, **options):
    return training_step(AutoModelForCausalLM, config, 1, length, dtype=BF16, **options)


LENGTHS = [512, 2048, 8192]
full = {length: full_step(length) for length in LENGTHS}
lora = {length: lora_step(length) for length in LENGTHS}
full_checkpointed = full_step(8192, activation_checkpointing=True)
lora_checkpointed = lora_step(8192, activation_checkpointing=True)

# %%
table(
    "lora-length", "Peak memory against sequence length, Llama-8B class, batch 1, bf16 weights, AdamW",
    {"length": "Tokens", "full": "Full fine-tuning, GiB", "lora": "LoRA, GiB",
     "full_activations": "Full: activations after forward, GiB", "lora_activations": "LoRA: activations after forward, GiB"},
    [{"length": length, "full": full[length].peak_gib, "lora": lora[length].peak_gib,
      "full_activations": full[length].after_forward["activations"] / GiB, "lora_activations": lora[length].after_forward["activations"] / GiB}
     for length in LENGTHS],
    kind="traced",
)
figure, axes = plt.subplots(figsize=(7, 3))
for label, peaks, colour in (
    ("full", [step.peak_gib for step in full.values()], "#c45500"),
    ("LoRA", [step.peak_gib for step in lora.values()], "#0072b2"),
):
    axes.plot(LENGTHS, peaks, marker="o", label=label, color=colour)
axes.set(xscale="log", xlabel="tokens", ylabel="peak, GiB", ylim=(0, None))
axes.set_xticks(LENGTHS, [f"{length:,}" for length in LENGTHS])
axes.plot([8192], [lora_checkpointed.peak_gib], marker="o", color="#00805c", label="LoRA, checkpointing")
axes.minorticks_off()
axes.legend(frameon=False)
plt.show()

# %%
with fake():
    base = WithAdapters.from_config(llama_8b)
adapter_parameters = sum(p.numel() for p in base.parameters() if p.requires_grad)
all_parameters = sum(p.numel() for p in base.parameters()) - adapter_parameters


def saving(before, after):
    return 100 * (1 - after / before)


def state(step):
    """Gradients and optimizer state at the peak, or all gradients where the peak came before them, in bytes."""
    return step.peak_by_category["optimizer"] + 4 * adapter_parameters


claim("lora-trainable", "Trainable parameters of LoRA, rank 16, beside every linear layer of an 8B Llama",
      adapter_parameters / 1e6, "million", kind="traced", at_least=41.9, at_most=42)
claim("lora-trainable-share", "Share of these trainable parameters in the parameters of the 8B Llama",
      100 * adapter_parameters / all_parameters, "%", kind="traced", at_least=0.51, at_most=0.53)
claim("lora-state", "Gradients and AdamW state of these adapters, in fp32",
      state(lora[512]) / GiB, "GiB", kind="traced", at_least=0.46, at_most=0.48)
claim("full-state", "Gradients and AdamW state of the same 8B Llama, fully fine-tuned in bf16",
      full[512].gib("gradients") + full[512].gib("optimizer"), "GiB", kind="traced", at_least=44.5, at_most=45.2)
claim("lora-saving-512", "What LoRA saves of the peak of full fine-tuning in bf16, 8B Llama, batch 1 x 512 tokens",
      saving(full[512].peak, lora[512].peak), "%", kind="traced", at_least=65, at_most=69)
claim("lora-saving-8192", "What LoRA saves of the peak of full fine-tuning in bf16, 8B Llama, batch 1 x 8,192 tokens",
      saving(full[8192].peak, lora[8192].peak), "%", kind="traced", at_least=22, at_most=26)
claim("lora-checkpointing-8192", "What LoRA saves of the peak of full fine-tuning in bf16 at 8,192 tokens, both with activation checkpointing",
      saving(full_checkpointed.peak, lora_checkpointed.peak), "%", kind="traced", at_least=50, at_most=54)
claim("lora-checkpointed-peak", "Peak memory of a LoRA step of an 8B Llama with activation checkpointing, batch 1 x 8,192 tokens",
      lora_checkpointed.peak_gib, "GiB", kind="traced", at_least=28.5, at_most=30)

# %% [markdown]
# The activations do not shrink. A frozen weight needs no saved input, but the adapter beside it does.

# %%
def flops(step):
    return step.flops["forward"] + step.flops["backward"]


claim("lora-activations", "Activations of a LoRA step after the forward pass against full fine-tuning, 8B Llama, 2,048 tokens",
      lora[2048].after_forward["activations"] / full[2048].after_forward["activations"], "x", kind="traced", at_least=1.03, at_most=1.12)
claim("lora-flops", "What LoRA saves of the FLOPs of a full fine-tuning step, 8B Llama, 2,048 tokens",
      saving(flops(full[2048]), flops(lora[2048])), "%", kind="traced", at_least=29, at_most=32)

# %% [markdown]
# ## LoRA on a model of one billion parameters
#
# The state that LoRA spares grows with the parameters, the activations grow with the tokens. A configuration of the
# TinyLlama class has less of the first.

# %%
llama_1b = LlamaConfig(
    vocab_size=32000, hidden_size=2048, intermediate_size=5632, num_hidden_layers=22, num_attention_heads=32, num_key_value_heads=4,
    tie_word_embeddings=False, use_cache=False,
)
full_1b = {length: full_step(length, llama_1b) for length in LENGTHS}
lora_1b = {length: lora_step(length, llama_1b) for length in LENGTHS}
checkpointed_1b = lora_step(8192, llama_1b, activation_checkpointing=True)
table(
    "lora-1b", "Peak memory against sequence length, a Llama of 1.1 billion parameters, batch 1, bf16 weights, AdamW",
    {"length": "Tokens", "full": "Full fine-tuning, GiB", "lora": "LoRA, GiB", "saving": "LoRA saves, %"},
    [{"length": length, "full": full_1b[length].peak_gib, "lora": lora_1b[length].peak_gib,
      "saving": saving(full_1b[length].peak, lora_1b[length].peak)} for length in LENGTHS],
    kind="traced",
)
claim("lora-1b-saving-8192", "What LoRA saves of the peak of full fine-tuning in bf16, 1.1B Llama, batch 1 x 8,192 tokens",
      saving(full_1b[8192].peak, lora_1b[8192].peak), "%", kind="traced", at_least=10, at_most=12)
claim("lora-1b-checkpointed", "What LoRA and activation checkpointing together save of that peak of full fine-tuning without checkpointing",
      saving(full_1b[8192].peak, checkpointed_1b.peak), "%", kind="traced", at_least=74, at_most=77)

# %% [markdown]
# ## The dtype of the adapters
#
# peft casts 16-bit adapters to fp32 (`autocast_adapter_dtype=True`). Without autocast, every adapter then casts its input
# to fp32 too, and keeps that copy for the backward pass.

# %%
DTYPES = {
    "fp32 adapters, autocast (bf16=True)": lora[2048],
    "fp32 adapters, no autocast": lora_step(2048, autocast=None),
}
table(
    "lora-dtypes", "LoRA on an 8B Llama with bf16 weights, batch 1 x 2,048 tokens",
    {"variant": "Adapters", "activations": "Activations after forward, GiB", "peak": "Peak, GiB"},
    [{"variant": variant, "activations": step.after_forward["activations"] / GiB, "peak": step.peak_gib} for variant, step in DTYPES.items()],
    kind="traced",
)
claim("lora-no-autocast", "Activations of LoRA with fp32 adapters and no autocast against those with autocast, 8B Llama, 2,048 tokens",
      DTYPES["fp32 adapters, no autocast"].after_forward["activations"] / lora[2048].after_forward["activations"], "x", kind="traced", at_least=1.28, at_most=1.38)

# %% [markdown]
# ## QLoRA: bytes of a 4-bit weight
#
# NF4 stores 4 bits a weight and one scale for each block of 64. Double quantization stores these scales in 8 bits, with
# one fp32 scale for each 256 of them. By arithmetic, and counted in a layer that bitsandbytes really quantised:

# %% tags=["measures"]
GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU else "cpu"
CAPABILITY = torch.cuda.get_device_capability() if GPU else (0, 0)
NATIVE_BF16 = CAPABILITY >= (8, 0) if GPU else not {"avx512_bf16", "amx_bf16"}.isdisjoint(describe()["cpu_features"])
IN_16_BITS = NATIVE_BF16 or GPU  # a T4 has no bf16 of its own but fp16, many a CPU neither
COMPUTE = BF16 if NATIVE_BF16 else torch.float16 if GPU else torch.float32
COMPUTE_NAME = {BF16: "bf16", torch.float16: "fp16", torch.float32: "fp32"}[COMPUTE]


def nf4(double=True):
    return BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=double, bnb_4bit_compute_dtype=COMPUTE)


def load(folder, quantized=False, double=True):
    arguments = {"device_map": {"": 0}} if GPU else {}
    if quantized:
        arguments["quantization_config"] = nf4(double)
    return AutoModelForCausalLM.from_pretrained(folder, dtype=COMPUTE, **arguments)


if GPU and torch.cuda.get_device_properties(0).total_memory > 40 * GiB:
    timed = LlamaConfig(vocab_size=32000, hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_attention_heads=32, num_key_value_heads=8)
    BATCHES = [(1, 256), (4, 1024)]
elif GPU:
    timed = LlamaConfig(vocab_size=32000, hidden_size=1024, intermediate_size=4096, num_hidden_layers=8, num_attention_heads=16, num_key_value_heads=8)
    BATCHES = [(1, 128), (2, 512)]
else:
    timed = LlamaConfig(vocab_size=4096, hidden_size=512, intermediate_size=1536, num_hidden_layers=3, num_attention_heads=8, num_key_value_heads=4)
    BATCHES = [(1, 32), (4, 128)]
    torch.set_num_threads(1)  # one thread and CPU time: comparable also on a busy machine
checkpoint = tempfile.TemporaryDirectory()
set_seed(0)
AutoModelForCausalLM.from_config(timed, dtype=COMPUTE).save_pretrained(checkpoint.name)


def bytes_per_weight(double):
    """All that bitsandbytes keeps for the largest linear layer, per weight: codes, scales, tables."""
    weight = load(checkpoint.name, quantized=True, double=double).model.layers[0].mlp.up_proj.weight
    kept = [weight.data, *weight.quant_state.as_dict(packed=False).values()]
    return sum(tensor.nbytes for tensor in kept if isinstance(tensor, torch.Tensor)) / weight.quant_state.shape.numel()


claim("nf4-bytes-counted", "Bytes per weight that bitsandbytes keeps for one really quantised layer, double quantization, tables included",
      bytes_per_weight(True), "bytes", kind="measured", at_least=0.515, at_most=0.52)

# %% [markdown]
# Only linear layers are quantised. Embedding and output layer stay in 16 bits, and `prepare_model_for_kbit_training` casts
# them to fp32.

# %%
NF4_BYTES = 4 / 8 + 1 / 64 + 4 / (64 * 256)
claim("nf4-bytes", "Bytes per weight in NF4 with double quantization, by arithmetic: 4 bits, an 8-bit scale per 64 weights, an fp32 scale per 64 x 256",
      NF4_BYTES, "bytes", kind="derived", at_least=0.515, at_most=0.517)
claim("nf4-bytes-single", "Bytes per weight in NF4 without double quantization, by arithmetic: 4 bits and an fp32 scale per 64 weights",
      4 / 8 + 4 / 64, "bytes", kind="derived", at_least=0.562, at_most=0.563)


def linear_parameters(config):
    """Parameters of the linear layers that 4-bit loading quantises: all but the output layer."""
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    return sum(m.weight.numel() for name, m in model.named_modules() if isinstance(m, torch.nn.Linear) and name != "lm_head")


linear_8b = linear_parameters(llama_8b)
qlora_8b = NF4_BYTES * linear_8b + 2 * (all_parameters - linear_8b)
claim("qlora-weights", "Weights of an 8B Llama in NF4 with double quantization, embedding and output layer in bf16, by arithmetic",
      qlora_8b / GiB, "GiB", kind="derived", at_least=5.2, at_most=5.4)
claim("kbit-cost", "What prepare_model_for_kbit_training adds by casting embedding, output layer and norms of the 8B Llama to fp32, by arithmetic",
      2 * (all_parameters - linear_8b) / GiB, "GiB", kind="derived", at_least=1.9, at_most=2)
claim("qlora-peak", "Peak of a QLoRA step of the 8B Llama with activation checkpointing at 8,192 tokens: LoRA's traced peak with NF4 weights in place of bf16 ones",
      (lora_checkpointed.peak - (2 - NF4_BYTES) * linear_8b) / GiB, "GiB", kind="derived", at_least=19, at_most=20.5)

# %% tags=["measures"]
prepared = prepare_model_for_kbit_training(load(checkpoint.name, quantized=True))
print({name: str(p.dtype) for name, p in prepared.named_parameters() if "layers." not in name})
del prepared

# %% [markdown]
# ## Time of a step: full, LoRA, QLoRA
#
# A small Llama with random weights, interleaved, the fastest repeat. LoRA's steps have fewer FLOPs and more small
# operators. QLoRA unpacks every weight twice: in the forward and in the backward pass.

# %% tags=["measures"]
def steps_of(model, autocast=True, optimizer=None):
    """A function that makes one training step of `model` on (batch size, tokens)."""
    model.train()
    optimizer = optimizer or torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-5, fused=True)

    def step(batch, tokens):
        ids = torch.randint(0, timed.vocab_size, (batch, tokens), device=DEVICE)
        with torch.autocast(DEVICE, dtype=COMPUTE if IN_16_BITS else BF16, enabled=autocast and IN_16_BITS):
            loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


WAYS = ("full", "LoRA", "LoRA, no autocast", "QLoRA")
steppers = {
    "full": steps_of(load(checkpoint.name)),
    "LoRA": steps_of(get_peft_model(load(checkpoint.name), LORA)),
    "QLoRA": steps_of(get_peft_model(load(checkpoint.name, quantized=True), LORA)),
}
if IN_16_BITS:  # without, there is no autocast that could be left out
    steppers["LoRA, no autocast"] = steps_of(get_peft_model(load(checkpoint.name), LORA), autocast=False)
timings = {
    batch: interleaved({name: lambda step=step, batch=batch: step(*batch) for name, step in steppers.items()}, repeats=3)
    for batch in BATCHES
}
table(
    "step-times", f"One training step of a {sum(p.numel() for p in load(checkpoint.name).parameters()) / 1e6:.0f}M Llama, {COMPUTE_NAME} weights, those of QLoRA in NF4",
    {"tokens": "Batch x tokens", **{name: f"{name}, s" for name in WAYS}, "ratio": "QLoRA against LoRA, x"},
    [{"tokens": f"{batch[0]} x {batch[1]}", **{name: timings[batch][name].best if name in steppers else "the same as LoRA" for name in WAYS},
      "ratio": timings[batch]["QLoRA"].best / timings[batch]["LoRA"].best} for batch in BATCHES],
    kind="measured",
)

# %% tags=["measures"]
small, large = (timings[batch] for batch in BATCHES)
claim("lora-time", f"Time of a LoRA step against full fine-tuning, the larger batch of the table, {COMPUTE_NAME}",
      large["LoRA"].best / large["full"].best, "x", kind="measured", at_least=0.5 if GPU else 0.6, at_most=1.6, spread=large["LoRA"].spread)
claim("qlora-time", f"Time of a QLoRA step against a LoRA step, the larger batch of the table, computing in {COMPUTE_NAME}",
      large["QLoRA"].best / large["LoRA"].best, "x", kind="measured", at_least=0.8, at_most=2.5 if GPU else 1.4, spread=large["QLoRA"].spread)
claim("qlora-time-small", f"Time of a QLoRA step against a LoRA step, the smaller batch of the table, computing in {COMPUTE_NAME}",
      small["QLoRA"].best / small["LoRA"].best, "x", kind="measured", at_least=0.95, at_most=4 if GPU else 1.8, spread=small["QLoRA"].spread)
del steppers


def allocated(model):
    """Peak memory that PyTorch allocates in a step of the larger batch, in bytes, with no other model around."""
    step = steps_of(model)
    step(*BATCHES[1])  # the optimizer's state exists from here on
    return peak_memory(lambda: step(*BATCHES[1])).allocated


MAKERS = {
    "full": lambda: load(checkpoint.name),
    "LoRA": lambda: get_peft_model(load(checkpoint.name), LORA),
    "QLoRA": lambda: get_peft_model(load(checkpoint.name, quantized=True), LORA),
}
peaks = {name: allocated(make()) for name, make in MAKERS.items()} if GPU else None
claim("lora-allocated", "What LoRA saves of the peak that PyTorch allocates in a full fine-tuning step, the larger batch of the table",
      saving(peaks["full"], peaks["LoRA"]) if GPU else None, "%", kind="measured", at_least=5, at_most=85, because="this machine has no GPU")
claim("qlora-allocated", "What QLoRA saves of the peak that PyTorch allocates in a LoRA step, the larger batch of the table",
      saving(peaks["LoRA"], peaks["QLoRA"]) if GPU else None, "%", kind="measured", at_least=5, at_most=75, because="this machine has no GPU")

# %% [markdown]
# ## The same loss?
#
# A small byte-level Llama learns Python code (the standard library's own files), then is adapted to English prose (the
# help texts of `pydoc`) in three ways, for as many steps each. What counts is the loss on prose that no way has seen.

# %% tags=["measures"]
small_llama = LlamaConfig(vocab_size=256, hidden_size=192, intermediate_size=512, num_hidden_layers=3, num_attention_heads=3)
CODE = b"".join(path.read_bytes() for path in sorted(Path(os.__file__).parent.glob("*.py")))
PROSE = "\n".join(text for _, text in sorted(pydoc_data.topics.topics.items())).encode()
ROWS, WIDTH, LEARN, ADAPT = 8, 96, 80, 30


def rows_of(text, generator):
    starts = torch.randint(0, len(text) - WIDTH, (ROWS,), generator=generator).tolist()
    return torch.tensor([list(text[begin : begin + WIDTH]) for begin in starts], device=DEVICE)


def learn(model, text, steps, rate):
    generator = torch.Generator().manual_seed(0)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=rate, fused=True)
    model.train()
    for _ in range(steps):
        ids = rows_of(text, generator)
        with torch.autocast(DEVICE, dtype=BF16, enabled=NATIVE_BF16):
            loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_([p for p in model.parameters() if p.requires_grad], 1.0)
        optimizer.step()
        optimizer.zero_grad()
    return model


@torch.no_grad()
def loss_on(model, text, batches=6):
    """In training mode, which without dropout computes the same: see the warning on bitsandbytes and CPUs in the guide."""
    model.train()
    generator = torch.Generator().manual_seed(1)
    total = 0.0
    for _ in range(batches):
        ids = rows_of(text, generator)
        with torch.autocast(DEVICE, dtype=BF16, enabled=NATIVE_BF16):
            total += model(input_ids=ids, labels=ids).loss.item()
    return total / batches


set_seed(0)
taught = learn(AutoModelForCausalLM.from_config(small_llama).to(DEVICE), CODE, LEARN, 2e-3)
trained = tempfile.TemporaryDirectory()
taught.to(COMPUTE).save_pretrained(trained.name)
seen, unseen = PROSE[: len(PROSE) * 9 // 10], PROSE[len(PROSE) * 9 // 10 :]
small_lora = LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")


def with_adapters(model):
    set_seed(0)  # the same adapters, whatever loading drew
    return get_peft_model(model, small_lora)


ways = {
    "none": (lambda: load(trained.name), None),
    "full": (lambda: load(trained.name).float(), 5e-4),  # fp32 weights: mixed precision
    "LoRA": (lambda: with_adapters(load(trained.name)), 2e-3),
    "QLoRA": (lambda: with_adapters(load(trained.name, quantized=True)), 2e-3),
}
losses, before = {}, {}
for way, (make, rate) in ways.items():
    model = make()
    before[way] = loss_on(model, unseen)
    losses[way] = loss_on(learn(model, seen, ADAPT, rate), unseen) if rate else before[way]
table(
    "losses", f"A byte-level Llama taught Python, then adapted to prose for {ADAPT} steps: loss on unseen prose",
    {"way": "Fine-tuning", "rate": "Learning rate", "start": "Before, nats per byte", "loss": "After, nats per byte"},
    [{"way": way, "rate": rate or "no training", "start": before[way], "loss": losses[way]} for way, (_, rate) in ways.items()],
    kind="measured",
)
claim("lora-loss", "Loss on unseen text after LoRA minus the loss after full fine-tuning, as many steps of a small model",
      losses["LoRA"] - losses["full"], "nats per byte", kind="measured", at_least=-0.1, at_most=0.6)
claim("qlora-loss", "Loss on unseen text after QLoRA minus the loss after LoRA, as many steps of a small model",
      losses["QLoRA"] - losses["LoRA"], "nats per byte", kind="measured", at_least=-0.05, at_most=0.05)

# %% [markdown]
# ## Offload: what crosses the link to the host
#
# The link and the compute rate are those that NVIDIA states for an A100. Both are peaks: real transfers and real steps are
# slower.

# %%
A100 = "https://developer.nvidia.com/blog/nvidia-ampere-architecture-in-depth/"
DEEPSPEED = "https://github.com/deepspeedai/DeepSpeed/blob/7dee2e061c20239ececb779bfaf3b1b5a2228a3c/deepspeed/runtime/zero/stage_1_and_2.py"
LINK, PEAK = 31.5e9, 312e12


def layer_inputs(length):
    """bf16 bytes that activation checkpointing keeps of the 8B model for one sequence: the input of every layer."""
    return llama_8b.num_hidden_layers * length * llama_8b.hidden_size * 2


OFFLOADED = [2048, 8192, 32768, 131072]
table(
    "offload-activations", "Offloaded activations of a checkpointed 8B Llama, batch 1, bf16",
    {"length": "Tokens", "bytes": "Off the GPU, GiB", "seconds": "There and back over a link of 31.5 GB/s, s"},
    [{"length": length, "bytes": layer_inputs(length) / GiB, "seconds": 2 * layer_inputs(length) / LINK} for length in OFFLOADED],
    kind="derived",
)
claim("offload-activations-saving", "What offloading the layer inputs takes off the peak of a checkpointed LoRA step of an 8B Llama at 8,192 tokens, at best",
      100 * layer_inputs(8192) / lora_checkpointed.peak, "%", kind="derived", at_least=6, at_most=7.5)
claim("offload-activations-cost", "Offloading the layer inputs of a checkpointed step of an 8B Llama, 8,192 tokens: time on a link of 31.5 GB/s against that of its FLOPs at the 312 TFLOP/s of an A100",
      100 * (2 * layer_inputs(8192) / LINK) / (flops(full_checkpointed) / PEAK), "%", kind="derived", source=A100, at_least=6.5, at_most=7.5)

# %%
per_step = (2 + 2) * all_parameters  # bf16 gradients go down, updated bf16 weights come up
claim("offload-optimizer-bytes", "Bytes over the link per optimizer step of an 8B Llama with the optimizer on the host: bf16 gradients down, bf16 weights up",
      per_step / 1e9, "GB", kind="derived", at_least=32, at_most=32.3)
claim("offload-optimizer-time", "Time of 2 + 2 bytes per parameter of an 8B Llama on a link of 31.5 GB/s, down and up one after the other", per_step / LINK, "s", kind="derived", source=A100, at_least=1, at_most=1.05)
claim("offload-break-even", "Tokens per optimizer step at which the FLOPs of an 8B model, 6 per parameter and token at the 312 TFLOP/s of an A100, take as long as 2 + 2 bytes per parameter on a link of 31.5 GB/s",
      per_step / LINK * PEAK / (6 * all_parameters), "tokens", kind="derived", source=A100, at_least=6500, at_most=6700)
claim("offload-gpu-floor", "What ZeRO-Offload leaves on the GPU for an 8B Llama by DeepSpeed's own estimate, activations apart: 2 bytes per parameter",
      2 * all_parameters / GiB, "GiB", kind="derived", source=DEEPSPEED, at_least=14.9, at_most=15)
claim("offload-host-deepspeed", "Host memory of ZeRO-Offload for an 8B Llama by DeepSpeed's own estimate, up to 4 GPUs: 16 bytes per parameter and half as much again for buffers",
      1.5 * 16 * all_parameters / GiB, "GiB", kind="derived", source=DEEPSPEED, at_least=179, at_most=180)

# %% [markdown]
# The update itself then runs on the host. One AdamW step in fp32, on one thread of this machine's CPU:

# %% tags=["measures"]
threads = torch.get_num_threads()
torch.set_num_threads(1)
weights = torch.nn.Parameter(torch.randn(32 * 2**20))
weights.grad = torch.randn_like(weights)
adam = interleaved({"adam": torch.optim.AdamW([weights], fused=True).step}, repeats=5)["adam"] if not GPU else None
torch.set_num_threads(threads)
claim("host-adam", "Time of an fp32 AdamW step on one CPU thread, per billion parameters",
      adam and adam.best / weights.numel() * 1e9, "s", kind="measured", at_least=0.1, at_most=10,
      because="its clock is CPU time, which the tests take on a machine without a GPU")
del weights

# %% [markdown]
# On a GPU, the real thing: a checkpointed step with its layer inputs on the host, and a step with torchao's optimizer on
# the host, each against the same without.

# %% tags=["measures"]
def offload_times():
    from torchao.optim import CPUOffloadOptimizer

    kept, moved, plain = load(checkpoint.name), load(checkpoint.name), load(checkpoint.name)
    kept.activation_checkpointing_enable()
    moved.activation_checkpointing_enable(offload=True)
    on_host = load(checkpoint.name)
    steps = {
        "kept": steps_of(kept), "moved": steps_of(moved), "plain": steps_of(plain),
        "host": steps_of(on_host, optimizer=CPUOffloadOptimizer(on_host.parameters(), torch.optim.AdamW, lr=1e-5)),
    }
    return interleaved({name: lambda step=step: step(*BATCHES[1]) for name, step in steps.items()}, repeats=3)


offloaded = offload_times() if GPU else None
claim("offload-activations-time", "Time of a checkpointed step with its layer inputs on the host against one without, the larger batch of the table above",
      offloaded["moved"].best / offloaded["kept"].best if GPU else None, "x", kind="measured", at_least=0.9, at_most=5,
      spread=offloaded and offloaded["moved"].spread, because="this machine has no GPU")
claim("offload-optimizer-step", "Time of a step with torchao's optimizer on the host against fused AdamW, the larger batch of the table above",
      offloaded["host"].best / offloaded["plain"].best if GPU else None, "x", kind="measured", at_least=0.9, at_most=50,
      spread=offloaded and offloaded["host"].spread, because="this machine has no GPU")

# %% [markdown]
# ## Mixture-of-experts
#
# A configuration of the Qwen3-30B-A3B class: 128 experts in every layer, 8 of them for each token. Beside it, a dense
# model with as many parameters.

# %%
moe = Qwen3MoeConfig(
    vocab_size=151936, hidden_size=2048, num_hidden_layers=48, num_attention_heads=32, num_key_value_heads=4, head_dim=128,
    num_experts=128, num_experts_per_tok=8, moe_intermediate_size=768, norm_topk_prob=True, tie_word_embeddings=False,
)
dense = Qwen3Config(
    vocab_size=151936, hidden_size=2048, num_hidden_layers=48, num_attention_heads=32, num_key_value_heads=4, head_dim=128,
    intermediate_size=128 * 768, tie_word_embeddings=False,
)
steps = {name: training_step(AutoModelForCausalLM, config, 1, 512, dtype=BF16) for name, config in (("moe", moe), ("dense", dense))}
experts = moe.num_hidden_layers * moe.num_experts * 3 * moe.hidden_size * moe.moe_intermediate_size
active = steps["moe"].parameters - experts * (1 - moe.num_experts_per_tok / moe.num_experts)
table(
    "moe", "One training step in bf16 with AdamW, 1 x 512 tokens",
    {"model": "Model", "parameters": "Parameters, billion", "active": "Active per token, billion", "floor": "Weights, gradients, AdamW state, GiB",
     "peak": "Peak, GiB", "flops": "Step, TFLOP"},
    [{"model": label, "parameters": step.parameters / 1e9, "active": count / 1e9, "floor": 8 * step.parameters / GiB, "peak": step.peak_gib,
      "flops": flops(step) / 1e12}
     for label, step, count in (("128 experts, 8 active", steps["moe"], active), ("dense", steps["dense"], steps["dense"].parameters))],
    kind="traced",
)
claim("moe-total", "Parameters of a model of the Qwen3-30B-A3B class", steps["moe"].parameters / 1e9, "billion", kind="traced", at_least=30.5, at_most=30.6)
claim("moe-active", "Parameters of that model that one token uses, with embeddings", active / 1e9, "billion", kind="traced", at_least=3.3, at_most=3.4)
claim("moe-peak", "Peak memory of a full fine-tuning step of that model in bf16 with AdamW, 1 x 512 tokens",
      steps["moe"].peak_gib, "GiB", kind="traced", at_least=226, at_most=229)
claim("moe-flops", "FLOPs of a step of a dense model with as many parameters against the mixture, 512 tokens",
      flops(steps["dense"]) / flops(steps["moe"]), "x", kind="traced", at_least=9, at_most=9.6)
claim("moe-experts", "Share of the experts in the parameters of that model, which bitsandbytes leaves in 16 bits",
      100 * experts / steps["moe"].parameters, "%", kind="traced", at_least=94, at_most=96)

# %% [markdown]
# Transformers has several ways to compute the experts. The default, `grouped_mm`, sorts the tokens by expert.
# `batched_mm` copies the weights of an expert for every token that uses it, which a two-layer cut of the model shows:

# %%
cut = copy.deepcopy(moe)
cut.num_hidden_layers = 2
implementations = {}
for way in ("grouped_mm", "batched_mm"):
    cut._experts_implementation = way
    implementations[way] = training_step(AutoModelForCausalLM, cut, 1, 512, dtype=BF16)
claim("moe-batched", "Activations of two layers with experts_implementation=batched_mm after the forward pass, 1 x 512 tokens, bf16",
      implementations["batched_mm"].after_forward["activations"] / GiB, "GiB", kind="traced", at_least=71, at_most=74)
claim("moe-grouped", "The same with the default, grouped_mm", implementations["grouped_mm"].after_forward["activations"] / GiB, "GiB",
      kind="traced", at_least=0.45, at_most=0.52)

# %% [markdown]
# ## Can I fine-tune a 7B model on one card?
#
# The floor of a 7B Llama: what must be on the GPU before the first activation. A card offers less than its label says, so
# a floor above nine tenths of it counts as too large.

# %%
llama_7b = LlamaConfig(tie_word_embeddings=False)  # the defaults of LlamaConfig are those of Llama-2-7B
with torch.device("meta"):
    model_7b = get_peft_model(AutoModelForCausalLM.from_config(llama_7b, dtype=BF16), LORA)
adapters_7b = sum(p.numel() for p in model_7b.parameters() if p.requires_grad)
total_7b = sum(p.numel() for p in model_7b.parameters()) - adapters_7b
linear_7b = linear_parameters(llama_7b)
FLOORS = {
    "full, fp32 or mixed precision": 16 * total_7b,
    "full, pure bf16": 8 * total_7b,
    "full, optimizer on the host": 2 * total_7b,
    "LoRA, bf16": 2 * total_7b + 16 * adapters_7b,
    "QLoRA, NF4": NF4_BYTES * linear_7b + 2 * (total_7b - linear_7b) + 16 * adapters_7b,
}


def fits(floor, card):
    return "no" if floor > 0.9 * card * GiB else "yes"


table(
    "floors", "Floor of a 7B Llama by method: weights, gradients, AdamW state, without activations",
    {"method": "Method", "bytes": "Bytes per parameter", "floor": "Floor, GiB", "small": "Under 24 GiB", "large": "Under 80 GiB"},
    [{"method": method, "bytes": floor / total_7b, "floor": floor / GiB, "small": fits(floor, 24), "large": fits(floor, 80)}
     for method, floor in FLOORS.items()],
    kind="derived",
)
claim("lora-state-7b", "Gradients and AdamW state of LoRA's adapters, rank 16, beside every linear layer of a Llama-2-7B, in fp32: 12 bytes each",
      12 * adapters_7b / 1e9, "GB", kind="derived", at_least=0.47, at_most=0.49)
claim("full-state-7b", "Gradients and AdamW state of a Llama-2-7B, fully fine-tuned in fp32 or mixed precision: 12 bytes per parameter",
      12 * total_7b / 1e9, "GB", kind="derived", at_least=80, at_most=82)
claim("parameters-7b", "Parameters of a Llama-2-7B", total_7b / 1e9, "billion", kind="traced", at_least=6.73, at_most=6.75)
claim("floor-lora", "Floor of LoRA on a 7B Llama in bf16", FLOORS["LoRA, bf16"] / GiB, "GiB", kind="derived", at_least=13, at_most=13.3)
claim("floor-qlora", "Floor of QLoRA on a 7B Llama", FLOORS["QLoRA, NF4"] / GiB, "GiB", kind="derived", at_least=4.1, at_most=4.3)

# %% tags=["measures"]
checkpoint.cleanup()
trained.cleanup()
