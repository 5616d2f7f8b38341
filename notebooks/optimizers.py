# ---
# jupyter:
#   accelerator: GPU
#   colab:
#     gpuType: T4
#   needs: [bitsandbytes, torchao, peft, galore-torch, apollo-torch, schedulefree, lomo-optim]
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
# # Optimizers: state, speed and rounding
#
# **What does an optimizer cost beyond AdamW's two moments per parameter, in memory and in
# time, and what happens to its updates when the weights are bf16?**
#
# State and peak memory are traced on an 8-billion-parameter Llama, on fake tensors,
# without a GPU: exact bytes. Time is measured on this machine. The rounding is
# arithmetic, and a small run confirms it.
#
# Which optimizer reaches the better loss is not asked here. That takes learning rates
# swept for each of them, many seeds and a long run of a real model. What others found
# that way is linked at the end.
#
# Expect the state to shrink with the bits of the moments: from two numbers of 32 bits per
# parameter to two of 8 or 4, and to next to nothing with Adafactor, which keeps one
# number per row and column. Expect the peak of a step to fall less, because temporaries
# come on top.

# %%
# Installs what this notebook needs where it is not there yet (Colab, an empty folder). Colab's torch stays as it is.
import importlib.util
import os
import subprocess
import sys

PINS = {"transformers": "5.23.0", "accelerate": "1.15.0", "bitsandbytes": "0.50.2", "torchao": "0.18.0",
        "peft": "0.21.2", "galore-torch": "1.0", "apollo-torch": "1.0.3", "schedulefree": "1.4.1",
        "lomo-optim": "0.1.1"}
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
# And the packages that hold the optimizers.
from importlib import metadata

WANTED = {"bitsandbytes": "0.50.2", "torchao": "0.18.0", "peft": "0.21.2", "galore-torch": "1.0",
          "apollo-torch": "1.0.3", "schedulefree": "1.4.1", "lomo-optim": "0.1.1"}
have = {found.name.replace("_", "-"): found.version for found in metadata.distributions()}
needs = [f"{name}=={version}" for name, version in WANTED.items() if have.get(name) != version]
if needs:
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", *needs], check=True)

# %%
import contextlib
import gc
import logging
import math
import tempfile
import warnings

os.chdir(tempfile.mkdtemp())  # what Trainer writes goes there
logging.disable(logging.WARNING)  # at import, the packages below list what they do without
warnings.simplefilter("ignore")

import apollo_torch.apollo
import apollo_torch.random_projector
import torch
import torchao.optim.adam
from bitsandbytes.optim import GlobalOptimManager
from peft import LoraConfig, get_peft_model
from torch._subclasses.fake_tensor import unset_fake_temporarily
from transformers import AutoModelForCausalLM, LlamaConfig, Trainer, TrainingArguments, set_seed

from evidence import plots
from evidence.claims import claim, start, table
from evidence.measure import interleaved, one_thread
from dryrun.tracing import UNMASKED_SDPA, GiB, GpuOperators, Tracker, fake, language_batch

plots.set_up("optimizers")
start("optimizers", packages=tuple(WANTED))

# %% [markdown]
# ## The optimizers, as Trainer makes them
#
# `Trainer` reads `optim`, `optim_args` and `optim_target_modules`, and builds the
# optimizer with its parameter groups. So does `make`, which trains nothing.
# `torch.optim.Muon` takes matrices only and has no name in `Trainer`: the class puts it
# and AdamW behind one `step()`.
#
# The names on the left of `METHODS` are those of the tables. `optim_target_modules`
# chooses the layers that GaLore and APOLLO project; embedding and output layer keep plain
# AdamW, as in `Trainer`.

# %%
class MuonAndAdamW(torch.optim.Optimizer):
    """Muon for the matrices inside the layers, fused AdamW for embedding, head and norms."""

    def __init__(self, model, lr):
        named = list(model.named_parameters())
        inside = {id(p) for name, p in named if p.ndim == 2 and "embed" not in name and "lm_head" not in name}
        matrices, others = ([p for _, p in named if (id(p) in inside) is wanted] for wanted in (True, False))
        self.parts = [torch.optim.Muon(matrices, lr=lr, adjust_lr_fn="match_rms_adamw"),
                      torch.optim.AdamW(others, lr=lr, fused=True)]
        super().__init__([part.param_groups[0] for part in self.parts], {})

    def step(self, closure=None):
        for part, group in zip(self.parts, self.param_groups):
            part.state, part.param_groups = self.state, [group]
            part.step()


class StayingTrainer(Trainer):
    def _move_model_to_device(self, model, device):
        """The model stays where it is: fake, or on the GPU already."""

# %%
def make(model, name, lr=1e-5, **arguments):
    """The optimizer of this name for this model. AdamW's three forms and Muon by hand, the rest by Trainer."""
    GlobalOptimManager._instance = None  # what bitsandbytes remembers of earlier models
    if name == "muon":
        return MuonAndAdamW(model, lr)
    if name.startswith("adamw "):
        form = name.removeprefix("adamw ")
        return torch.optim.AdamW(model.parameters(), lr=lr, fused=form == "fused", foreach=form == "foreach")
    arguments = TrainingArguments("out", optim=name, learning_rate=lr, use_cpu=True, **arguments)
    optimizer = StayingTrainer(model=model, args=arguments).create_optimizer()
    if hasattr(optimizer, "train"):  # schedule-free
        optimizer.train()
    return optimizer


LOW_RANK = {"optim_target_modules": ["attn", "mlp"]}
METHODS = {  # label: name, arguments
    "AdamW, fused": ("adamw fused", {}), "AdamW, foreach": ("adamw foreach", {}), "AdamW, loop": ("adamw loop", {}),
    "Adafactor": ("adafactor", {}), "bitsandbytes 8-bit": ("adamw_bnb_8bit", {}),
    "torchao 8-bit": ("adamw_torch_8bit", {}), "torchao 4-bit": ("adamw_torch_4bit", {}),
    "GaLore, rank 128": ("galore_adamw", LOW_RANK), "APOLLO, rank 128": ("apollo_adamw", LOW_RANK),
    "Schedule-free AdamW": ("schedule_free_adamw", {}), "LOMO": ("lomo", {}), "Muon and AdamW": ("muon", {}),
}

# %% [markdown]
# ## State, counted at 8 billion parameters
#
# The bytes of every tensor that the optimizer holds after a step: inner tensors of
# torchao's quantized ones, scales and tables of bitsandbytes, and the projection matrices
# of GaLore and APOLLO, which hide in an object in the state. A view counts as the storage
# that it keeps alive.

# %%
def storages(thing):
    """{address: bytes} of all storages in a tensor, a container of them, or an object of an optimizer's package."""
    if isinstance(thing, torch.Tensor):
        if hasattr(thing, "__tensor_flatten__"):  # a quantized tensor of torchao: what is inside it
            return storages([getattr(thing, name) for name in thing.__tensor_flatten__()[0]])
        return {thing.untyped_storage()._cdata: thing.untyped_storage().nbytes()}
    if isinstance(thing, dict):
        return storages(list(thing.values()))
    if isinstance(thing, (list, tuple)):
        return {address: size for one in thing for address, size in storages(one).items()}
    return storages(vars(thing)) if hasattr(thing, "ortho_matrix") else {}


def state_bytes(optimizer):
    return sum(storages(list(optimizer.state.values())).values())

# %% [markdown]
# Fake tensors have no values. So tables of quantization levels are made outside the fake
# mode, and three functions that look at values give way to ones that do not: APOLLO's
# next random seed, the limiter that compares two norms, and torchao's arithmetic (its
# state is made before). None of them changes a size.

# %%
@contextlib.contextmanager
def without_values():
    """Replaces what looks at the values of tensors, and puts it back."""
    patches = [(apollo_torch.random_projector, "next_seed", lambda seed: seed + 1),
               (apollo_torch.apollo, "max", lambda a, b: a),
               (torchao.optim.adam, "single_param_adam", lambda *arguments: None)]
    before = [(module, name, vars(module).get(name)) for module, name, _ in patches]
    for module, name, function in patches:
        setattr(module, name, function)
    try:
        with fake(), GpuOperators(), torch.compiler.set_stance("force_eager"):
            yield
    finally:
        for module, name, function in before:
            setattr(module, name, function) if function else delattr(module, name)


for low_bit in (torchao.optim.adam.AdamW8bit, torchao.optim.adam.AdamW4bit):  # makes torchao's tables of levels
    for signed in (True, False):
        low_bit([torch.nn.Parameter(torch.zeros(4096))])._new_buffer(torch.zeros(4096), signed)

# %% [markdown]
# One trace gives the state after a step, and where it is asked for the peak of a whole
# step: one sequence of 512 tokens.

# %%
def trace(name, config, dtype=torch.bfloat16, step=True, **arguments):
    """{parameters, state, bytes of GaLore's projections and what they keep alive, peak of a training step}."""
    with without_values():
        model = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation=UNMASKED_SDPA).train()
        with unset_fake_temporarily():
            optimizer = make(model, name, **arguments)
        if name == "lomo":  # its hooks update during backward(); what is left is the last parameter
            optimizer.step = lambda: optimizer.grad_func(0)
        for parameter in model.parameters():
            parameter.grad = torch.empty_like(parameter)
        optimizer.step()
        optimizer.zero_grad()
        kept = [state["projector"].ortho_matrix for state in optimizer.state.values()
                if "projector" in state and name.startswith("galore")]
        result = {"parameters": sum(p.numel() for p in model.parameters()), "state": state_bytes(optimizer),
                  "projections": sum(p.numel() * p.element_size() for p in kept),
                  "kept alive": sum(p.untyped_storage().nbytes() for p in kept)}
        if step:
            batch = language_batch(model, 1, 512)
            with Tracker(model, optimizer, batch) as tracker:
                model(**batch).loss.backward()
                optimizer.step()
                optimizer.zero_grad()
            result["peak"] = tracker.peak
    return result

# %% [markdown]
# Twice through the list: with fp32 weights for the state, with bf16 weights for state and
# peak. torchao's quantized tensors are opaque to the tracker during a step, so they have
# a state here and no peak.

# %%
llama_8b = LlamaConfig(
    vocab_size=128256, hidden_size=4096, intermediate_size=14336, num_hidden_layers=32,
    num_attention_heads=32, num_key_value_heads=8, tie_word_embeddings=False, use_cache=False,
)
SAME_STATE = {"AdamW, foreach": "AdamW, fused", "AdamW, loop": "AdamW, fused"}
print("Tracing an 8B Llama under each optimizer: this takes minutes")
fp32 = {label: trace(name, llama_8b, torch.float32, step=False, **arguments)
        for label, (name, arguments) in METHODS.items() if label not in SAME_STATE}
fp32 |= {label: fp32[like] for label, like in SAME_STATE.items()}
bf16 = {label: trace(name, llama_8b, step="torchao" not in label, **arguments)
        for label, (name, arguments) in METHODS.items()}
per_parameter = {label: fp32[label]["state"] / fp32[label]["parameters"] for label in METHODS}
table("state", "Optimizer state of an 8B Llama after a step",
      {"optimizer": "Optimizer", "fp32": "State with fp32 weights, bytes per parameter",
       "bf16": "State with bf16 weights, bytes per parameter", "gib": "State with fp32 weights, GiB"},
      [{"optimizer": label, "fp32": per_parameter[label], "gib": fp32[label]["state"] / GiB,
        "bf16": bf16[label]["state"] / bf16[label]["parameters"]} for label in METHODS], kind="traced")

# %% [markdown]
# bf16 weights halve AdamW's state, because its moments take their dtype. The quantized
# forms and Adafactor do not depend on it.

# %% alt="Bars of the optimizer's state in bytes per parameter, with fp32 and with bf16 weights."
plots.bars({label: {"fp32 weights": per_parameter[label],
                    "bf16 weights": bf16[label]["state"] / bf16[label]["parameters"]} for label in METHODS},
           "state, bytes per parameter")
STATES = {  # name of the claim: label, bounds
    "adamw": ("AdamW, fused", 7.99, 8.01), "adafactor": ("Adafactor", 0.0015, 0.0017),
    "bnb": ("bitsandbytes 8-bit", 2.40, 2.45), "torchao-8bit": ("torchao 8-bit", 2.02, 2.05),
    "torchao-4bit": ("torchao 4-bit", 1.02, 1.05), "galore": ("GaLore, rank 128", 2.4, 3.2),
    "apollo": ("APOLLO, rank 128", 1.2, 1.5), "schedule-free": ("Schedule-free AdamW", 7.99, 8.01),
    "muon": ("Muon and AdamW", 4.5, 4.6),
}
for name, (label, least, most) in STATES.items():
    claim(f"state-{name}", f"State of {label}, 8B Llama with fp32 weights", per_parameter[label], "bytes per parameter",
          kind="traced", at_least=least, at_most=most)

# %% [markdown]
# The same for a 3-billion-parameter Llama, in GB of 10⁹ bytes.

# %%
llama_3b = LlamaConfig(
    vocab_size=128256, hidden_size=3072, intermediate_size=8192, num_hidden_layers=28,
    num_attention_heads=24, num_key_value_heads=8, tie_word_embeddings=True, use_cache=False,
)
for name, label, least, most in (("adamw", "AdamW, fused", 25, 27), ("bnb", "bitsandbytes 8-bit", 6, 10),
                                 ("adafactor", "Adafactor", 0.001, 0.02)):
    state = trace(METHODS[label][0], llama_3b, torch.float32, step=False)["state"]
    claim(f"state-3b-{name}", f"State of {label}, 3B Llama with fp32 weights", state / 1e9, "GB", kind="traced",
          at_least=least, at_most=most)

# %% [markdown]
# ## Peak memory at 8 billion parameters
#
# State is not all: an optimizer also makes temporaries. The peak of a whole step in pure
# bf16, which for most methods comes in `optimizer.step()`. Weights and gradients alone
# are half of fused AdamW's peak, so an optimizer that keeps the gradients cannot get
# below that. LOMO gets there, because it frees each gradient as soon as it is used.
#
# Read the table as a budget: the peak is weights, gradients, state, and what the
# optimizer makes for a moment. foreach and schedule-free make a copy as large as all
# weights. The fused form makes none.

# %%
peaks = {label: step["peak"] / GiB for label, step in bf16.items() if "peak" in step}
table("peak", "Peak memory of a training step of an 8B Llama in pure bf16, batch 1 x 512 tokens",
      {"optimizer": "Optimizer", "peak": "Peak, GiB", "state": "Of it state, GiB", "saved": "Below fused AdamW, GiB"},
      [{"optimizer": label, "peak": peaks[label], "state": bf16[label]["state"] / GiB,
        "saved": peaks["AdamW, fused"] - peaks[label]} for label in peaks], kind="traced")

# %% alt="Bars of the peak memory of a step of the 8B Llama, by optimizer."
plots.bars(peaks, "peak of a step, GiB: 8B Llama, pure bf16, batch 1 x 512 tokens")

# %%
WHERE = "peak of an 8B Llama step in pure bf16, batch 1 x 512 tokens"
CHANGES = {  # name of the claim: label, "saves" or "adds", bounds
    "foreach": ("AdamW, foreach", "adds", 23, 27), "adafactor": ("Adafactor", "saves", 33, 40),
    "bnb": ("bitsandbytes 8-bit", "saves", 15, 25), "galore": ("GaLore, rank 128", "saves", 30, 45),
    "apollo": ("APOLLO, rank 128", "saves", 30, 45), "schedule-free": ("Schedule-free AdamW", "adds", 20, 30),
    "muon": ("Muon and AdamW", "saves", 18, 24),
}
for name, (label, verb, least, most) in CHANGES.items():
    saved = 100 * (1 - peaks[label] / peaks["AdamW, fused"])
    claim(f"peak-{name}", f"What {label} {verb} {'of' if verb == 'saves' else 'to'} the {WHERE}, against fused AdamW",
          saved if verb == "saves" else -saved, "%", kind="traced", at_least=least, at_most=most)
for name, label, least, most in (("adamw", "AdamW, fused", 59, 61), ("lomo", "LOMO", 20, 24)):
    claim(f"peak-{name}", f"The {WHERE}, {label}", peaks[label], "GiB", kind="traced", at_least=least, at_most=most)

# %% [markdown]
# ## What stays in 32 bits, what a view keeps alive, what LoRA leaves
#
# Three surprises, none of which an optimizer's name tells. `Trainer` tells bitsandbytes
# to keep every embedding in 32 bits, so a small model with a large vocabulary saves
# little. GaLore's projection is a slice of the factor that the SVD returned, and in fp32
# nothing copies it: the slice keeps the whole factor. Under LoRA only the adapters have
# state, so there is little to save.

# %%
half_billion = LlamaConfig(  # the shapes of Qwen2-0.5B: one matrix is embedding and head
    vocab_size=151936, hidden_size=896, intermediate_size=4864, num_hidden_layers=24, num_attention_heads=14,
    num_key_value_heads=2, tie_word_embeddings=True, use_cache=False,
)


def lora_state(name):
    """Bytes of state of LoRA adapters on the meta device, where tensors have a size and nothing else."""
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(llama_8b, dtype=torch.bfloat16)
        model = get_peft_model(model, LoraConfig(r=16, target_modules="all-linear"))
    optimizer = make(model, name)
    for parameter in model.parameters():
        parameter.grad = torch.empty_like(parameter) if parameter.requires_grad else None
    optimizer.step()
    return state_bytes(optimizer)

# %%
embedding = 8 * llama_8b.vocab_size * llama_8b.hidden_size
tied, galore = trace("adamw_bnb_8bit", half_billion, torch.float32, step=False), fp32["GaLore, rank 128"]
lora, lora_8bit = lora_state("adamw loop"), lora_state("adamw_bnb_8bit")
BNB = "bitsandbytes' 8-bit AdamW"
for name, sentence, value, unit, least, most in (
    ("bnb-embedding-share", f"Share of the embedding in the state of {BNB}, 8B Llama as Trainer sets it up",
     100 * embedding / fp32["bitsandbytes 8-bit"]["state"], "%", 20, 23),
    ("bnb-small-model", f"State of {BNB}, a Llama of half a billion parameters with a tied embedding of 151,936 rows",
     tied["state"] / tied["parameters"], "bytes per parameter", 3.4, 4),
    ("galore-view", "Bytes that GaLore's projections keep alive with fp32 weights against the bytes of their elements, "
     "8B Llama, rank 128", galore["kept alive"] / galore["projections"], "x", 20, 60),
    ("lora-state", "State of AdamW with LoRA of rank 16 on every linear layer of an 8B Llama", lora / GiB, "GiB",
     0.25, 0.4),
    ("lora-8bit-saving", f"What {BNB} saves of that state", (lora - lora_8bit) / GiB, "GiB", 0.15, 0.35),
):
    claim(name, sentence, value, unit, kind="traced", at_least=least, at_most=most)

# %% [markdown]
# ## Time: Muon by arithmetic
#
# Most optimizers read and write each parameter a few times. That is little beside
# thousands of tokens per step, in each of which the parameter is multiplied three times.
# Muon is different: it multiplies matrices. Five iterations, each of three products, cost
# $30\,n^3$ FLOPs for a square matrix of width $n$, whatever the batch. The passes cost
# $6\,n^2$ per token. So Muon adds about
#
# $$\frac{5 \times \text{width}}{\text{tokens per optimizer step}}$$
#
# to the FLOPs of a step. The matrices of an MLP are not square and cost a little less.
# For the shapes of the 8B Llama:

# %%
def muon_flops(rows, columns, iterations=5):
    """FLOPs of Muon's orthogonalization: X X^T, its square, and their product with X, in each iteration."""
    short, long = sorted((rows, columns))
    return iterations * (4 * short**2 * long + 2 * short**3)


width, inner, kv = 4096, 14336, 1024
MATRICES = 2 * [(width, width)] + 2 * [(kv, width)] + 3 * [(inner, width)]
of_muon = 32 * sum(muon_flops(*shape) for shape in MATRICES)
per_token = 6 * fp32["Muon and AdamW"]["parameters"]
for name, tokens, words, least, most in (("sequence", 4096, "4,096 tokens", 200, 500),
                                         ("million", 2**20, "2²⁰ tokens", 1, 2)):
    claim(f"muon-{name}", f"FLOPs that Muon adds to a step of an 8B Llama with {words} per optimizer step",
          100 * of_muon / (per_token * tokens), "%", kind="derived", at_least=least, at_most=most)

# %% [markdown]
# ## Time: measured here
#
# On a CPU: the shape of SmolLM2-135M, 2 rows of 512 tokens, CPU time of one thread. Each
# optimizer steps on the same weights and gradients. They run one after another, because
# their states together would not fit into memory. The whole step is the forward and
# backward pass plus the optimizer.
#
# A CPU says little about a GPU here. On a CPU, low-bit arithmetic is unpacked in
# software, and the optimizer waits less for memory. GPU figures of others are in the last
# section.

# %% tags=["measures"]
GPU = torch.cuda.is_available()
MEMORY = torch.cuda.get_device_properties(0).total_memory / 2**30 if GPU else 0
DEVICE = "cuda" if GPU else "cpu"
HALF = torch.bfloat16 if not GPU or torch.cuda.get_device_capability() >= (8, 0) else torch.float16
if GPU:  # square matrices, so that torchao compiles few kernels
    wide, rows_of_tokens = (2048, (16, 512)) if MEMORY > 40 else (1024, (8, 512))
    timed = dict(vocab_size=wide, hidden_size=wide, intermediate_size=wide, num_hidden_layers=4, num_attention_heads=16)
else:
    one_thread()
    rows_of_tokens = (2, 512)
    timed = dict(vocab_size=49_152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30,
                 num_attention_heads=9, num_key_value_heads=3, tie_word_embeddings=True)
set_seed(0)
model = AutoModelForCausalLM.from_config(LlamaConfig(**timed, use_cache=False), dtype=torch.float32).to(DEVICE)
ids = torch.randint(timed["vocab_size"], rows_of_tokens, device=DEVICE)
size = sum(p.numel() for p in model.parameters())


def passes():
    model.zero_grad()
    with torch.autocast(DEVICE, dtype=HALF, enabled=GPU):
        loss = model(input_ids=ids, labels=ids).loss
    loss.backward()

# %% [markdown]
# LOMO steps inside the backward pass, so it has no step of its own to time. Paged state
# exists on a GPU only.

# %% tags=["measures"]
names = {label: method for label, method in METHODS.items() if label != "LOMO"}
if GPU:
    names["bitsandbytes 8-bit, paged"] = ("paged_adamw_8bit", {})
print("A step of each optimizer. torchao compiles its own at first: this takes minutes")
both = interleaved({"passes": passes}, repeats=3)["passes"]
first, steps = {}, {}
for label, (name, arguments) in names.items():
    optimizer = make(model, name, **arguments)
    first[label] = interleaved({label: optimizer.step}, repeats=1, warmup=0)[label].best
    steps[label] = interleaved({label: optimizer.step}, repeats=3, warmup=0)[label]
    del optimizer
    gc.collect()
reference = both.best + steps["AdamW, fused"].best
table("time", f"Time of a step, Llama of {size / 1e6:.0f} million parameters, {rows_of_tokens[0]} x 512 tokens"
      + ("" if GPU else ", one CPU thread"),
      {"optimizer": "Optimizer", "alone": "Optimizer alone, ms", "ratio": "Whole step, x of fused AdamW"},
      [{"optimizer": label, "alone": 1e3 * timing.best, "ratio": (both.best + timing.best) / reference}
       for label, timing in sorted(steps.items(), key=lambda one: one[1].best)], kind="measured")

# %% tags=["measures"] alt="Bars of the time of a whole step against fused AdamW, by optimizer."
plots.bars({label: (both.best + timing.best) / reference for label, timing in steps.items()},
           "time of a whole step against fused AdamW, x", baseline=1)
OF = f"Llama of {size / 1e6:.0f} million parameters, {rows_of_tokens[0]} x 512 tokens"
for name, sentence, value, unit, least, most in (
    ("adamw-share", "Share of fused AdamW in a whole step", 100 * steps["AdamW, fused"].best / reference, "%", 0.1, 25),
    ("galore-refresh", "Time of GaLore's step when it decomposes the gradients anew, against its other steps",
     first["GaLore, rank 128"] / steps["GaLore, rank 128"].best, "x", 3, 1e4),
):
    claim(name, f"{sentence}, {OF}", value, unit, kind="measured", at_least=least, at_most=most)

# %% [markdown]
# ## bf16 weights: does the update arrive?
#
# bf16 has 8 significant bits. Between $2^e$ and $2^{e+1}$ its numbers are $2^{e-7}$
# apart, so an update under half of that, $2^{e-8}$, is rounded away. AdamW's first update
# is as large as the learning rate, and later ones are mostly smaller. So at a learning
# rate $\eta$ no update moves a weight with
#
# $$|w| \ge 2^{\lceil \log_2 (256\,\eta) \rceil}.$$
#
# Weights of a Transformer have a standard deviation of about 0.02. How many of them are
# that large?

# %%
def stuck(rate, deviation=0.02):
    """Share of normally distributed bf16 weights, in %, that no update of the size of the learning rate can move."""
    smallest = 2 ** math.ceil(math.log2(256 * rate))
    return 100 * math.erfc(smallest / deviation / math.sqrt(2))


RATES = (1e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4)
table("stuck", "bf16 weights of standard deviation 0.02 that no update of the size of the learning rate can move",
      {"rate": "Learning rate", "share": "Weights that stay, %"},
      [{"rate": f"{rate:.0e}".replace("e-0", "e-"), "share": stuck(rate)} for rate in RATES], kind="derived")
for name, rate, least, most in (("fine-tuning", 2e-5, 65, 75), ("small", 1e-5, 80, 90)):
    sentence = f"Share of bf16 weights of standard deviation 0.02 that no update of {rate:.0e} can move"
    claim(f"stuck-{name}", sentence.replace("e-0", "e-"), stuck(rate), "%", kind="derived",
          at_least=least, at_most=most)

# %% [markdown]
# At the learning rates of fine-tuning most weights stay where they are. At those of a
# small model trained from scratch none do, and a comparison made there shows no
# difference.
#
# ## Three remedies
#
# A run confirms it: one matrix with the shape of SmolLM2's `down_proj`, and synthetic
# gradients, a constant direction under stronger noise. The remedies:
#
# - **fp32 weights**, which is what mixed precision keeps: every update arrives.
# - **Stochastic rounding** rounds up or down by chance, in proportion to the distance. An
#   update arrives on average.
# - **Kahan summation** keeps what was rounded away in a second bf16 tensor, and adds it
#   to the next update.

# %% tags=["measures"]
def plain(weight, rate):
    return torch.optim.AdamW([weight], lr=rate, weight_decay=0, fused=True).step


def stochastic(weight, rate):
    return torchao.optim.adam._AdamW([weight], lr=rate, weight_decay=0, bf16_stochastic_round=True).step


def kahan(weight, rate):
    update, rest = torch.nn.Parameter(torch.zeros_like(weight)), torch.zeros_like(weight)
    adamw = torch.optim.AdamW([update], lr=rate, weight_decay=0, fused=True)

    @torch.no_grad()
    def step():
        update.zero_()  # AdamW then leaves the update alone in it, without the weight that rounds it
        update.grad = weight.grad
        adamw.step()
        rest.add_(update)
        before = weight.clone()
        weight.add_(rest)
        rest.add_(before - weight)

    return step


WAYS = {"fp32 weights": (torch.float32, plain), "bf16 weights": (torch.bfloat16, plain),
        "bf16, stochastic rounding": (torch.bfloat16, stochastic), "bf16, Kahan summation": (torch.bfloat16, kahan)}

# %% tags=["measures"]
def arrived(rate, count=200):
    """{way: (share of weights that never moved in %, cosine of the whole change with that of fp32 weights)}."""
    generator = torch.Generator().manual_seed(0)
    start_at = (0.02 * torch.randn(576, 1536, generator=generator)).bfloat16()
    direction = torch.randn(576, 1536, generator=generator)
    weights = {way: torch.nn.Parameter(start_at.to(dtype, copy=True)) for way, (dtype, _) in WAYS.items()}
    steps = {way: optimize(weights[way], rate) for way, (_, optimize) in WAYS.items()}
    moved = {way: torch.zeros_like(start_at, dtype=torch.bool) for way in WAYS}
    for _ in range(count):
        gradient = direction + 3 * torch.randn(576, 1536, generator=generator)
        for way, weight in weights.items():
            weight.grad = gradient.to(weight.dtype)
            steps[way]()
            moved[way] |= weight.detach() != start_at
    changes = {way: (weight.detach().float() - start_at.float()).flatten() for way, weight in weights.items()}
    exact = changes["fp32 weights"]
    return {way: (100 * (~moved[way]).float().mean().item(), torch.cosine_similarity(change, exact, 0).item())
            for way, change in changes.items()}


with torch.compiler.set_stance("force_eager"):  # torchao's step without its compiler
    rounding = {rate: arrived(rate) for rate in (1e-5, 2e-5, 1e-4, 1e-3)}

# %% [markdown]
# Every way starts from the same bf16 weights and sees the same gradients. What counts is
# where it ends: the share of weights that are still where they began, and the angle
# between the whole change and that of fp32 weights. A cosine of one says that the same
# thing was learned.

# %% tags=["measures"] alt="The share of weights that never moved against the learning rate, for four kinds of weights."
import matplotlib.pyplot as plt

figure, axes = plt.subplots(figsize=(7, 2.8))
for way in WAYS:
    axes.plot(list(rounding), [rounding[rate][way][0] for rate in rounding], marker="o", label=way)
axes.set(xscale="log", xlabel="learning rate", ylabel="weights that never moved, %")
axes.legend()
plt.show()
table("rounding", "What arrives in 200 AdamW steps at a learning rate of 2e-5, a matrix of 576 x 1,536",
      {"way": "Weights", "stayed": "Never moved, %", "cosine": "Cosine of the change with that of fp32 weights"},
      [{"way": way, "stayed": stayed, "cosine": cosine} for way, (stayed, cosine) in rounding[2e-5].items()],
      kind="measured")
_ = claim("rounded-away", "Share of bf16 weights that never moved in 200 AdamW steps at a learning rate of 2e-5",
          rounding[2e-5]["bf16 weights"][0], "%", kind="measured", at_least=50, at_most=85)

# %% [markdown]
# The plain run agrees with the formula, and its change points elsewhere than that of fp32
# weights. A loss curve may hide this for a while, because the small weights do move.
# AdamW's second moment has the same trouble: at the default `beta2` it shrinks by less
# than one bf16 spacing per step, and so never does.

# %% [markdown]
# ## What others measured on GPUs
#
# torchao's authors fine-tuned Llama 2 7B in full bf16 on one A100, one epoch, one seed,
# and judged the result by TruthfulQA. The differences between the optimizers are as small
# as those between seeds usually are.
#
# Their memory column agrees with the counting above: quantized moments save what their
# bytes say. Their time column says what a CPU cannot: on a GPU the low-bit optimizers
# cost hardly any time.

# %%
TORCHAO = "https://github.com/pytorch/ao/blob/072500abcfbdec15a429eb53160c63fb92534b85/torchao/optim/README.md"
ROWS = {"AdamW, fused": (51.6, 3200, 42.61), "bitsandbytes 8-bit": (39.3, 3000, 42.75),
        "torchao 8-bit": (39.1, 2900, 41.50), "torchao 4-bit": (33.2, 2900, 42.27)}
table("a100-low-bit", "Llama 2 7B in full bf16, one epoch of Alpaca, one A100, torchao's README, 2024",
      {"optimizer": "Optimizer", "memory": "Peak allocated, GB", "tokens": "Tokens/s",
       "accuracy": "TruthfulQA (mc2), %"},
      [{"optimizer": label} | dict(zip(("memory", "tokens", "accuracy"), row)) for label, row in ROWS.items()],
      kind="cited", source=TORCHAO)
MUON = "https://dao-lab.ai/blog/2026/gram-newton-schulz/"
for name, value, word in (("low", 2, "Least"), ("high", 17, "Largest")):
    claim(f"muon-published-{name}", f"{word} share of Muon's orthogonalization in the wall time of a training, by the "
          "authors of Gram Newton-Schulz, 2026", value, "%", kind="cited", source=MUON)

# %% [markdown]
# Hugging Face published the figures below in 2022: BERT-large, batch 4 x 512 tokens,
# fp32, one Tesla V100. Memory is that of the whole device, in MiB. The same page says how
# much state Adafactor keeps per parameter. Its own table speaks against that: what the
# device saved, divided by BERT-large's parameters, is all of AdamW's state.

# %%
V100 = ("https://github.com/huggingface/transformers/blob/0016acf7ef421c7fe8eff7945de52c71896c3b01/"
        "docs/source/en/perf_train_gpu_one.mdx")
BERT_LARGE = 335_143_938  # parameters of BertForSequenceClassification at this size
ON_V100, ALL = "BERT-large, Tesla V100, batch 4, 2022", 14949  # MiB
CITED = {
    "adafactor-speed": ("Throughput lost by Adafactor", 100 * (1 - 7.96 / 8.86)),
    "adafactor-memory": ("Device memory saved by Adafactor", 100 * (1 - 12295 / ALL)),
    "8bit-memory": ("Device memory saved by 8-bit Adam", 100 * (1 - 13085 / ALL)),
}
for name, (sentence, value) in CITED.items():
    claim(f"v100-{name}", f"{sentence}, {ON_V100}", value, "%", kind="cited", source=V100)
claim("v100-adafactor-bytes", "State of Adafactor by the same source, slightly more than", 4, "bytes per parameter",
      kind="cited", source=V100)
for name, left, words, least, most in (("adafactor", 12295, "Adafactor", 7.8, 8.8),
                                       ("8bit", 13085, "8-bit Adam", 5.4, 6.2)):
    claim(f"v100-{name}-saved", f"Bytes that {words} saved per parameter of BERT-large: ({ALL:,} - {left:,}) MiB / 335 "
          "million parameters", (ALL - left) * 2**20 / BERT_LARGE, "bytes per parameter", kind="derived", source=V100,
          at_least=least, at_most=most)

# %% [markdown]
# ## What came out, and what to do
#
# The optimizer's memory is arithmetic, and its time hardly matters at a sensible number
# of tokens per step. The dtype of the weights matters more than either, because it
# decides whether small updates arrive at all.
#
# - **Keep fused AdamW while its state fits.** It is fast, and it makes no temporaries.
# - **Then take 8 bits.** The state falls to about a quarter, the embedding excepted. On
#   an A100 the speed stayed close, and so did the result.
# - **Adafactor, GaLore and APOLLO** save more, and change the training: tune the learning
#   rate anew.
# - **Muon costs FLOPs that depend on the width, not on the batch.** Put your width and
#   tokens per step into the formula before you take it.
# - **Do not fine-tune bf16 weights with a plain optimizer at small learning rates.** Most
#   weights do not move. Keep the weights in fp32 under autocast. Where they do not fit,
#   take stochastic rounding or Kahan summation.

# %%
# Compares this run with the published records. In Colab it also offers the record of this machine, to send.
from evidence.finish import finish

finish()
