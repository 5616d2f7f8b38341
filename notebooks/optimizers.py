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
# # Optimizers: state, speed and loss
#
# How many bytes does an optimizer keep per parameter, how long is its step, and what does it do to the loss? State and
# peak memory are traced on an 8-billion-parameter Llama, on fake tensors, without a GPU. Time is measured on this
# machine. The loss is that of a small byte-level Llama, trained on the source code of Python's standard library.

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
# And the packages that hold the optimizers, if they are missing.
needs = {
    "bitsandbytes": "bitsandbytes==0.50.2", "torchao": "torchao==0.18.0", "peft": "peft==0.21.2", "galore_torch": "galore-torch",
    "apollo_torch": "apollo-torch", "schedulefree": "schedulefree", "lomo_optim": "lomo-optim",
}
missing = [needed for name, needed in needs.items() if importlib.util.find_spec(name) is None]
if missing:
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", *missing], check=True)

# %%
import contextlib
import copy
import gc
import logging
import statistics
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from matplotlib_inline.backend_inline import set_matplotlib_formats

logging.disable(logging.WARNING)  # the packages below say at import what they do without
warnings.simplefilter("ignore")

import apollo_torch.apollo
import apollo_torch.random_projector
import torchao.optim.adam
from bitsandbytes.optim import GlobalOptimManager
from peft import LoraConfig, get_peft_model
from torch._subclasses.fake_tensor import unset_fake_temporarily
from transformers import AutoModelForCausalLM, LlamaConfig, Trainer, TrainingArguments, get_scheduler, set_seed

from evidence.claims import claim, start, table
from evidence.machine import describe
from evidence.measure import interleaved, one_thread
from dryrun.trace import UNMASKED_SDPA, GiB, GpuOperators, Tracker, end_part_in_mid_backward, fake, language_batch

set_matplotlib_formats("svg")
plt.rcParams["svg.hashsalt"] = "optimizers"  # the same figure at every run
start("optimizers")

# %% [markdown]
# ## The optimizers, as Trainer makes them
#
# `Trainer` reads `optim`, `optim_args` and `optim_target_modules`, and builds the optimizer with its parameter groups.
# So does this function, which trains nothing. `torch.optim.Muon` takes matrices only and has no name in `Trainer`. The
# class puts it and AdamW behind one `step()`.

# %%
class MuonAndAdamW(torch.optim.Optimizer):
    """Muon for the matrices inside the layers, fused AdamW for embedding, head and norms."""

    def __init__(self, model, lr):
        inside = {id(p) for name, p in model.named_parameters() if p.ndim == 2 and "embed" not in name and "lm_head" not in name}
        matrices = [p for p in model.parameters() if id(p) in inside]
        others = [p for p in model.parameters() if id(p) not in inside]
        self.parts = [torch.optim.Muon(matrices, lr=lr, adjust_lr_fn="match_rms_adamw"), torch.optim.AdamW(others, lr=lr, fused=True)]
        super().__init__([part.param_groups[0] for part in self.parts], {})

    def step(self, closure=None):
        for part, group in zip(self.parts, self.param_groups):
            part.state, part.param_groups = self.state, [group]
            part.step()


class StayingTrainer(Trainer):
    def _move_model_to_device(self, model, device):
        """The model stays where it is: fake, or on the GPU already."""


def make(model, name, lr=1e-3, **arguments):
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

# %% [markdown]
# ## State, counted at 8 billion parameters
#
# The bytes of every tensor that the optimizer holds after a step: inner tensors of torchao's quantised ones, scales and
# tables of bitsandbytes, and the projection matrices of GaLore and APOLLO, which hide in an object in the state. A view
# counts as the storage that it keeps alive.
#
# Fake tensors have no values. So tables of quantisation levels are made outside the fake mode, and three functions that
# look at values give way to ones that do not: APOLLO's next random seed, the limiter that compares two norms, and
# torchao's arithmetic (its state is made before). None of them changes a size.

# %%
llama_8b = LlamaConfig(
    vocab_size=128256, hidden_size=4096, intermediate_size=14336, num_hidden_layers=32,
    num_attention_heads=32, num_key_value_heads=8, tie_word_embeddings=False, use_cache=False,
)


def storages(thing):
    """{address: bytes} of all storages in a tensor, a container of them, or an object of an optimizer's package."""
    if isinstance(thing, torch.Tensor):
        if hasattr(thing, "__tensor_flatten__"):  # a quantised tensor of torchao: what is inside it
            return storages([getattr(thing, name) for name in thing.__tensor_flatten__()[0]])
        return {thing.untyped_storage()._cdata: thing.untyped_storage().nbytes()}
    if isinstance(thing, dict):
        return storages(list(thing.values()))
    if isinstance(thing, (list, tuple)):
        return {address: size for one in thing for address, size in storages(one).items()}
    return storages(vars(thing)) if hasattr(thing, "ortho_matrix") else {}


def state_bytes(optimizer):
    return sum(storages(list(optimizer.state.values())).values())


@contextlib.contextmanager
def without_values():
    """Replaces what looks at the values of tensors, and puts it back."""
    patches = [(apollo_torch.random_projector, "next_seed", lambda seed: seed + 1), (apollo_torch.apollo, "max", lambda a, b: a),
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


def trace(name, config, dtype=torch.bfloat16, step=True, **arguments):
    """Numbers of a model and its optimizer: parameters, bytes of the state and of GaLore's projections, and with `step` the
    peak of each part of a training step, batch 1 x 512 tokens, in bytes."""
    with without_values():
        model = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation=UNMASKED_SDPA).train()
        with unset_fake_temporarily():
            optimizer = make(model, name, **arguments)
        if name == "lomo":  # its hooks update during backward(); what is left is the last parameter
            optimizer.step = lambda: optimizer.grad_func(0)
        for parameter in model.parameters():
            parameter.grad = torch.empty_like(parameter) if parameter.requires_grad else None
        optimizer.step()
        optimizer.zero_grad()
        projections = [kept["projector"].ortho_matrix for kept in optimizer.state.values() if "projector" in kept and name.startswith("galore")]
        result = {
            "parameters": sum(p.numel() for p in model.parameters()), "state": state_bytes(optimizer),
            "projections": sum(p.numel() * p.element_size() for p in projections), "kept alive": sum(p.untyped_storage().nbytes() for p in projections),
        }
        if step:
            batch = language_batch(model, 1, 512)
            with Tracker(model, optimizer, batch) as tracker:
                end_part_in_mid_backward(model, tracker)
                loss = model(**batch).loss
                tracker.part()
                loss.backward()
                del loss
                tracker.part()
                optimizer.step()
                optimizer.zero_grad()
                tracker.part()
            result["peaks"] = {number: peak for number, (peak, *_) in enumerate(tracker.parts)}
    return result


for low_bit in (torchao.optim.adam.AdamW8bit, torchao.optim.adam.AdamW4bit):  # makes torchao's tables of levels
    for signed in (True, False):
        low_bit([torch.nn.Parameter(torch.zeros(4096))])._new_buffer(torch.zeros(4096), signed)

METHODS = {  # label: name, arguments
    "AdamW, fused": ("adamw fused", {}), "AdamW, foreach": ("adamw foreach", {}), "AdamW, loop": ("adamw loop", {}),
    "Adafactor": ("adafactor", {}), "bitsandbytes 8-bit": ("adamw_bnb_8bit", {}),
    "torchao 8-bit": ("adamw_torch_8bit", {}), "torchao 4-bit": ("adamw_torch_4bit", {}),
    "GaLore, rank 128": ("galore_adamw", LOW_RANK), "APOLLO, rank 128": ("apollo_adamw", LOW_RANK),
    "Schedule-free AdamW": ("schedule_free_adamw", {}), "LOMO": ("lomo", {}), "Muon and AdamW": ("muon", {}),
}
TORCHAO = {"torchao 8-bit", "torchao 4-bit"}  # the tracker cannot look into their quantised tensors during a step
fp32 = {label: trace(name, llama_8b, torch.float32, step=False, **arguments) for label, (name, arguments) in METHODS.items()
        if name not in ("adamw foreach", "adamw loop")}
fp32 |= {label: fp32["AdamW, fused"] for label in ("AdamW, foreach", "AdamW, loop")}  # the same state
bf16 = {label: trace(name, llama_8b, step=label not in TORCHAO, **arguments) for label, (name, arguments) in METHODS.items()}
per_parameter = {label: step["state"] / step["parameters"] for label, step in fp32.items()}
table(
    "state", "Optimizer state of an 8B Llama after a step",
    {"optimizer": "Optimizer", "fp32": "State with fp32 weights, bytes per parameter", "bf16": "State with bf16 weights, bytes per parameter",
     "gib": "State with fp32 weights, GiB"},
    [{"optimizer": label, "fp32": per_parameter[label], "bf16": bf16[label]["state"] / bf16[label]["parameters"], "gib": fp32[label]["state"] / GiB}
     for label in METHODS], kind="traced",
)

# %%
def state_claim(name, label, at_least, at_most):
    claim(f"state-{name}", f"State of {label}, 8B Llama with fp32 weights", per_parameter[label], "bytes per parameter", kind="traced",
          at_least=at_least, at_most=at_most)


state_claim("adamw", "AdamW, fused", 7.99, 8.01)
state_claim("adafactor", "Adafactor", 0.0015, 0.0017)
state_claim("bnb", "bitsandbytes 8-bit", 2.40, 2.45)
state_claim("torchao-8bit", "torchao 8-bit", 2.02, 2.05)
state_claim("torchao-4bit", "torchao 4-bit", 1.02, 1.05)
state_claim("galore", "GaLore, rank 128", 2.4, 3.2)
state_claim("apollo", "APOLLO, rank 128", 1.2, 1.5)
state_claim("schedule-free", "Schedule-free AdamW", 7.99, 8.01)
state_claim("muon", "Muon and AdamW", 4.5, 4.6)
claim("state-lomo", "State of LOMO, 8B Llama with fp32 weights", per_parameter["LOMO"], "bytes per parameter", kind="traced", at_least=0, at_most=0)

# %% [markdown]
# The same for a 3-billion-parameter Llama, in GB of 10⁹ bytes.

# %%
llama_3b = LlamaConfig(
    vocab_size=128256, hidden_size=3072, intermediate_size=8192, num_hidden_layers=28,
    num_attention_heads=24, num_key_value_heads=8, tie_word_embeddings=True, use_cache=False,
)
of_3b = {label: trace(METHODS[label][0], llama_3b, torch.float32, step=False)["state"] / 1e9
         for label in ("AdamW, fused", "bitsandbytes 8-bit", "Adafactor")}
claim("state-3b-adamw", "State of AdamW, 3B Llama with fp32 weights", of_3b["AdamW, fused"], "GB", kind="traced", at_least=25, at_most=27)
claim("state-3b-bnb", "State of bitsandbytes 8-bit AdamW, 3B Llama with fp32 weights", of_3b["bitsandbytes 8-bit"], "GB", kind="traced",
      at_least=6, at_most=10)
claim("state-3b-adafactor", "State of Adafactor, 3B Llama with fp32 weights", of_3b["Adafactor"], "GB", kind="traced", at_least=0.001, at_most=0.02)

# %% [markdown]
# ## Peak memory at 8 billion parameters
#
# State is not all: an optimizer also makes temporaries. The peak of a whole step in pure bf16, which for most methods
# comes in `optimizer.step()`.

# %%
peaks = {label: max(step["peaks"].values()) / GiB for label, step in bf16.items() if "peaks" in step}
table(
    "peak", "Peak memory of a training step of an 8B Llama in pure bf16, batch 1 x 512 tokens",
    {"optimizer": "Optimizer", "peak": "Peak, GiB", "state": "Of it state, GiB", "saved": "Below fused AdamW, GiB"},
    [{"optimizer": label, "peak": peaks[label], "state": bf16[label]["state"] / GiB, "saved": peaks["AdamW, fused"] - peaks[label]} for label in peaks],
    kind="traced",
)


def saving(label):
    return 100 * (1 - peaks[label] / peaks["AdamW, fused"])


WHERE = "peak of an 8B Llama step in pure bf16, batch 1 x 512 tokens"
claim("peak-adamw", f"The {WHERE}, fused AdamW", peaks["AdamW, fused"], "GiB", kind="traced", at_least=59, at_most=61)
claim("peak-foreach", f"What the foreach form of AdamW adds to the {WHERE}", -saving("AdamW, foreach"), "%", kind="traced", at_least=23, at_most=27)
claim("peak-adafactor", f"What Adafactor saves of the {WHERE}", saving("Adafactor"), "%", kind="traced", at_least=33, at_most=40)
claim("peak-bnb", f"What the 8-bit AdamW of bitsandbytes saves of the {WHERE}", saving("bitsandbytes 8-bit"), "%", kind="traced", at_least=15, at_most=25)
claim("peak-galore", f"What GaLore of rank 128 saves of the {WHERE}", saving("GaLore, rank 128"), "%", kind="traced", at_least=30, at_most=45)
claim("peak-apollo", f"What APOLLO of rank 128 saves of the {WHERE}", saving("APOLLO, rank 128"), "%", kind="traced", at_least=30, at_most=45)
claim("peak-schedule-free", f"What schedule-free AdamW adds to the {WHERE}", -saving("Schedule-free AdamW"), "%", kind="traced", at_least=20, at_most=30)
claim("peak-muon", f"What Muon with AdamW saves of the {WHERE}", saving("Muon and AdamW"), "%", kind="traced", at_least=18, at_most=24)
claim("peak-lomo", f"The {WHERE}, LOMO", peaks["LOMO"], "GiB", kind="traced", at_least=20, at_most=24)

# %% [markdown]
# ## What stays in 32 bits, what a view keeps alive, what LoRA leaves
#
# `Trainer` tells bitsandbytes to keep every embedding in 32 bits, and tensors under 4,096 elements stay so by default.
# A small model with a large vocabulary is mostly embedding. GaLore's projection is a slice of the factor that the SVD
# returned, and in fp32 nobody copies it: the slice keeps the whole factor. Under LoRA, only the adapters have state.

# %%
claim("bnb-embedding-share", "Share of the embedding in the state of bitsandbytes' 8-bit AdamW, 8B Llama as Trainer sets it up",
      100 * 8 * llama_8b.vocab_size * llama_8b.hidden_size / fp32["bitsandbytes 8-bit"]["state"], "%", kind="traced", at_least=20, at_most=23)
half_billion = LlamaConfig(  # the shapes of Qwen2-0.5B: one matrix is embedding and head
    vocab_size=151936, hidden_size=896, intermediate_size=4864, num_hidden_layers=24, num_attention_heads=14,
    num_key_value_heads=2, tie_word_embeddings=True, use_cache=False,
)
tied = trace("adamw_bnb_8bit", half_billion, torch.float32, step=False)
claim("bnb-small-model", f"State of bitsandbytes' 8-bit AdamW, {tied['parameters'] / 1e9:.2f}B Llama with a tied embedding of 151,936 rows",
      tied["state"] / tied["parameters"], "bytes per parameter", kind="traced", at_least=3.4, at_most=4)
galore = fp32["GaLore, rank 128"]
claim("galore-view", "Bytes that GaLore's projections keep alive with fp32 weights against the bytes of their elements, 8B Llama, rank 128",
      galore["kept alive"] / galore["projections"], "x", kind="traced",
      at_least=20, at_most=60)


def lora_state(name):
    """Bytes of state of LoRA adapters on the meta device, where tensors have a size and nothing else."""
    with torch.device("meta"):
        model = get_peft_model(AutoModelForCausalLM.from_config(llama_8b, dtype=torch.bfloat16), LoraConfig(r=16, target_modules="all-linear"))
    optimizer = make(model, name)
    for parameter in model.parameters():
        parameter.grad = torch.empty_like(parameter) if parameter.requires_grad else None
    optimizer.step()
    return state_bytes(optimizer)


lora, lora_8bit = lora_state("adamw loop"), lora_state("adamw_bnb_8bit")
claim("lora-state", "State of AdamW with LoRA of rank 16 on every linear layer of an 8B Llama", lora / GiB, "GiB", kind="traced", at_least=0.25, at_most=0.4)
claim("lora-8bit-saving", "What bitsandbytes' 8-bit AdamW saves of that state", (lora - lora_8bit) / GiB, "GiB", kind="traced", at_least=0.15, at_most=0.35)

# %% [markdown]
# ## Time
#
# A Llama whose matrices are all square, so that torchao compiles few kernels. Each optimizer steps on the same weights
# and gradients, in turn, and the fastest repeat counts. LOMO steps inside the backward pass, so a whole step of it is
# timed, in turn with the passes of the others. The whole step of the others is forward and backward pass plus optimizer. On a CPU
# it is CPU time of one thread.

# %% tags=["measures"]
GPU = torch.cuda.is_available()
MEMORY = torch.cuda.get_device_properties(0).total_memory / GiB if GPU else 0
CAPABILITY = torch.cuda.get_device_capability() if GPU else (0, 0)
DEVICE = "cuda" if GPU else "cpu"
HALF = torch.bfloat16 if CAPABILITY >= (8, 0) else torch.float16
if not GPU:
    one_thread()
width, layers, heads, tokens = (2048, 4, 16, (16, 512)) if MEMORY > 40 else (1024, 4, 16, (8, 512)) if GPU else (768, 2, 12, (4, 128))
timed_config = LlamaConfig(
    vocab_size=width, hidden_size=width, intermediate_size=width, num_hidden_layers=layers, num_attention_heads=heads,
    num_key_value_heads=heads, max_position_embeddings=1024, tie_word_embeddings=False, use_cache=False,
)
set_seed(0)
model = AutoModelForCausalLM.from_config(timed_config, dtype=torch.float32).to(DEVICE)
ids = torch.randint(width, tokens, device=DEVICE)
size = sum(p.numel() for p in model.parameters())
print(f"{size / 1e6:.1f} million parameters, {tokens[0]} x {tokens[1]} tokens per step")


def loss_of(model):
    with torch.autocast(DEVICE, dtype=HALF, enabled=GPU):
        return model(input_ids=ids, labels=ids).loss


def forward_and_backward():
    model.zero_grad()
    loss_of(model).backward()


NO_BF16 = None if GPU or not {"avx512_bf16", "amx_bf16"}.isdisjoint(describe()["cpu_features"]) else "this CPU has no bf16 instructions, and Muon multiplies in bf16"
names = {label: method for label, method in METHODS.items() if label != "LOMO" and not (NO_BF16 and "Muon" in label)}
if GPU:
    names["bitsandbytes 8-bit, paged"] = ("paged_adamw_8bit", {})  # without a GPU nothing is paged
forward_and_backward()
optimizers = {label: make(model, name, lr=1e-5, **arguments) for label, (name, arguments) in names.items()}
first = {label: interleaved({label: optimizer.step}, repeats=1, warmup=0)[label].best for label, optimizer in optimizers.items()}
lomo_model = copy.deepcopy(model)  # its hooks update in every backward pass
lomo = make(lomo_model, "lomo", lr=1e-5)
whole = interleaved({"passes": forward_and_backward, "LOMO": lambda: lomo.fused_backward(loss_of(lomo_model), 1e-5)}, repeats=3)
passes, lomo_step = whole["passes"], whole["LOMO"]
steps = interleaved({label: optimizer.step for label, optimizer in optimizers.items()}, repeats=3, warmup=0)
del optimizers
gc.collect()

seconds = {label: passes.best + timing.best for label, timing in steps.items()} | {"LOMO": lomo_step.best}
reference = seconds["AdamW, fused"]
table(
    "time", f"Time of a step, Llama of {size / 1e6:.1f} million parameters, {tokens[0]} x {tokens[1]} tokens",
    {"optimizer": "Optimizer", "alone": "Optimizer alone, ms", "alone_ratio": "Optimizer alone, x of fused AdamW", "ratio": "Whole step, x of fused AdamW"},
    [{"optimizer": label, "alone": 1e3 * steps[label].best, "alone_ratio": steps[label].best / steps["AdamW, fused"].best,
      "ratio": seconds[label] / reference} for label in sorted(steps, key=seconds.get)], kind="measured",
)

# %% tags=["measures"]
def time_claim(name, label, at_least, at_most, because=None):
    timing, before = (lomo_step, (0,)) if label == "LOMO" else (steps.get(label), passes.seconds)
    spread = timing and {"min": min(before) + timing.best, "max": max(before) + max(timing.seconds), "repeats": len(timing.seconds)}
    claim(f"time-{name}", f"Time of a whole step with {label} against fused AdamW, {size / 1e6:.0f} million parameters, {tokens[0]} x {tokens[1]} tokens",
          seconds[label] / reference if label in seconds else None, "x", kind="measured", at_least=at_least, at_most=at_most,
          spread=spread, because=because)


claim("adamw-share", f"Share of fused AdamW in a whole step, {size / 1e6:.0f} million parameters, {tokens[0]} x {tokens[1]} tokens",
      100 * steps["AdamW, fused"].best / reference, "%", kind="measured", at_least=0.2, at_most=25, spread=steps["AdamW, fused"].spread)
time_claim("foreach", "AdamW, foreach", 0.97, 1.4)
time_claim("loop", "AdamW, loop", 0.97, 1.5)
time_claim("adafactor", "Adafactor", 0.97, 1.6)
time_claim("bnb", "bitsandbytes 8-bit", 0.9 if GPU else 1.1, 6)
time_claim("paged", "bitsandbytes 8-bit, paged", 0.9, 3, because="paged memory needs an NVIDIA GPU")
time_claim("torchao-8bit", "torchao 8-bit", 1.1, 8)
time_claim("torchao-4bit", "torchao 4-bit", 1.1, 8)
time_claim("galore", "GaLore, rank 128", 0.97, 2)
time_claim("apollo", "APOLLO, rank 128", 0.97, 2)
time_claim("schedule-free", "Schedule-free AdamW", 0.97, 1.5)
time_claim("lomo", "LOMO", 0.7, 1.4)
time_claim("muon", "Muon and AdamW", 0.97, 15, because=NO_BF16)
claim("galore-refresh", f"Time of GaLore's step when it decomposes the gradients anew, against its other steps, {size / 1e6:.0f} million parameters",
      first["GaLore, rank 128"] / steps["GaLore, rank 128"].best, "x", kind="measured", at_least=5)

# %% [markdown]
# ## Loss
#
# A Llama of two layers learns to predict the next byte of the standard library's own source code, and is judged on a part of
# it that it has not seen. Every optimizer sees the same batches from the same weights, for three seeds. The 8- and 4-bit forms take
# AdamW's learning rate, since they stand in for it. The others take the best of rates a factor of about three apart, found on a
# seed of its own; `SWEEP = True` searches again. torchao runs here without its compiler.

# %% tags=["measures"]
SWEEP = False
STEPS, LENGTH, ROWS, SEEDS = 40, 64, 8, range(3)
text = b"".join(path.read_bytes() for path in sorted(Path(os.__file__).parent.glob("*.py")))
text = torch.frombuffer(bytearray(text), dtype=torch.uint8).long()
learn, judge = text[: len(text) * 9 // 10], text[len(text) * 9 // 10:]
byte_llama = LlamaConfig(
    vocab_size=256, hidden_size=96, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=4,
    max_position_embeddings=LENGTH, initializer_range=0.1, use_cache=False,
)


def rows(data, generator, count=ROWS):
    starts = torch.randint(len(data) - LENGTH, (count,), generator=generator)
    return data[starts[:, None] + torch.arange(LENGTH)].to(DEVICE)


unseen = rows(judge, torch.Generator().manual_seed(0), 64)


def final_loss(name, lr, seed, dtype=torch.float32, **arguments):
    """Loss on unseen text, in nats per byte, after STEPS steps."""
    set_seed(seed)
    model = AutoModelForCausalLM.from_config(byte_llama, dtype=torch.float32).to(DEVICE, dtype)  # the same start in every dtype
    optimizer = make(model, name, lr, **arguments)
    kind = "constant" if name == "schedule_free_adamw" else "linear"  # schedule-free warms up by itself
    scheduler = get_scheduler(kind, optimizer, num_warmup_steps=STEPS // 10, num_training_steps=STEPS)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(STEPS):
        ids = rows(learn, generator)
        loss = model(input_ids=ids, labels=ids).loss
        if name == "lomo":
            optimizer.fused_backward(loss, scheduler.get_last_lr()[0])
        else:
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
    if hasattr(optimizer, "eval"):
        optimizer.eval()
    with torch.no_grad():
        return model(input_ids=unseen, labels=unseen).loss.item()


RANK_24 = LOW_RANK | {"optim_args": "rank=24,update_proj_gap=25"}  # a quarter of the width
RUNS = {  # label: name, learning rate, arguments
    "AdamW": ("adamw fused", 1e-2, {}), "AdamW, pure bf16": ("adamw fused", 1e-2, {"dtype": torch.bfloat16}),
    "bitsandbytes 8-bit": ("adamw_bnb_8bit", 1e-2, {}), "torchao 4-bit": ("adamw_torch_4bit", 1e-2, {}),
    "Adafactor": ("adafactor", 1e-2, {}), "GaLore, rank 24": ("galore_adamw", 3e-2, RANK_24), "APOLLO, rank 24": ("apollo_adamw", 3e-2, RANK_24),
    "Schedule-free AdamW": ("schedule_free_adamw", 1e-2, {"warmup_steps": STEPS // 10}), "LOMO": ("lomo", 0.3, {}), "Muon and AdamW": ("muon", 3e-2, {}),
}
with torch.compiler.set_stance("force_eager"):
    if SWEEP:
        for label, (name, _, arguments) in RUNS.items():
            print(label, {lr: round(final_loss(name, lr, 100, **arguments), 3) for lr in (1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1)})
    losses = {label: [final_loss(name, lr, seed, **arguments) for seed in SEEDS] for label, (name, lr, arguments) in RUNS.items()}

# %% tags=["measures"]
mean = {label: statistics.mean(values) for label, values in losses.items()}
paired = {label: [value - base for value, base in zip(values, losses["AdamW"])] for label, values in losses.items()}
table(
    "loss", f"Loss on unseen text after {STEPS} steps, byte-level Llama of {sum(p.numel() for p in AutoModelForCausalLM.from_config(byte_llama).parameters()) / 1e6:.2f} million parameters, {len(SEEDS)} seeds",
    {"optimizer": "Optimizer", "lr": "Learning rate", "mean": "Mean loss, nats per byte", "low": "Lowest seed", "high": "Highest seed",
     "least": "Difference from AdamW, lowest seed", "most": "Difference from AdamW, highest seed"},
    [{"optimizer": label, "lr": RUNS[label][1], "mean": mean[label], "low": min(losses[label]), "high": max(losses[label]),
      "least": min(paired[label]), "most": max(paired[label])} for label in RUNS], kind="measured",
)
figure, axes = plt.subplots(figsize=(7, 2.6))
for place, values in enumerate(losses.values()):
    axes.plot(values, [place] * len(values), "o", color="#0072b2")
axes.axvspan(min(losses["AdamW"]), max(losses["AdamW"]), color="#c45500", alpha=0.2, linewidth=0)
axes.set_yticks(range(len(losses)), list(losses))
axes.invert_yaxis()
axes.set(xlabel="loss on unseen text, nats per byte: three seeds, AdamW's range shaded")
plt.show()

# %% tags=["measures"]
NATS = "nats per byte"
claim("loss-adamw", "Loss of AdamW on unseen text, mean of three seeds", mean["AdamW"], NATS, kind="measured", at_least=2.2, at_most=2.9)
claim("loss-noise", "Range of that loss over three seeds", max(losses["AdamW"]) - min(losses["AdamW"]), NATS, kind="measured", at_most=0.3)
claim("loss-pure-bf16", "Loss of AdamW in pure bf16 less that of AdamW in fp32 at the same learning rate, mean of three seeds",
      mean["AdamW, pure bf16"] - mean["AdamW"], NATS, kind="measured", at_least=-0.1, at_most=0.3)
claim("loss-bnb", "Loss of bitsandbytes' 8-bit AdamW less that of AdamW at the same learning rate, mean of three seeds",
      mean["bitsandbytes 8-bit"] - mean["AdamW"], NATS, kind="measured", at_least=-0.01, at_most=0.01)
claim("loss-torchao-4bit", "Loss of torchao's 4-bit AdamW less that of AdamW at the same learning rate, mean of three seeds",
      mean["torchao 4-bit"] - mean["AdamW"], NATS, kind="measured", at_least=0.005, at_most=0.1)
claim("loss-lomo", "Loss of LOMO less that of AdamW, mean of three seeds", mean["LOMO"] - mean["AdamW"], NATS, kind="measured", at_least=0.15, at_most=0.8)

# %% [markdown]
# ## What others measured
#
# Hugging Face published these figures in 2022: BERT-large, batch 4 x 512 tokens, fp32, one Tesla V100. Memory is that of the
# whole device, in MiB. Adafactor's bytes per parameter come from the same page. Its own table speaks against them: what the
# device saved, divided by BERT-large's parameters, is all of AdamW's state.

# %%
V100 = "https://github.com/huggingface/transformers/blob/0016acf7ef421c7fe8eff7945de52c71896c3b01/docs/source/en/perf_train_gpu_one.mdx"
claim("v100-adafactor-speed", "Throughput of BERT-large lost by Adafactor, Tesla V100, batch 4, 2022", 100 * (1 - 7.96 / 8.86), "%", kind="cited", source=V100)
claim("v100-adafactor-memory", "Device memory of BERT-large saved by Adafactor, Tesla V100, batch 4, 2022", 100 * (1 - 12295 / 14949), "%", kind="cited", source=V100)
claim("v100-8bit-speed", "Throughput of BERT-large gained by 8-bit Adam, Tesla V100, batch 4, 2022", 100 * (9.15 / 8.86 - 1), "%", kind="cited", source=V100)
claim("v100-8bit-memory", "Device memory of BERT-large saved by 8-bit Adam, Tesla V100, batch 4, 2022", 100 * (1 - 13085 / 14949), "%", kind="cited", source=V100)
claim("v100-adafactor-bytes", "State of Adafactor by the same source, slightly more than", 4, "bytes per parameter", kind="cited", source=V100)
bert_large = 335_143_938  # parameters of BertForSequenceClassification at this size
claim("v100-adafactor-saved", "Bytes that Adafactor saved per parameter of BERT-large by that table, (14,949 - 12,295) MiB / 335 million parameters",
      (14949 - 12295) * 2**20 / bert_large, "bytes per parameter", kind="derived", source=V100, at_least=7.8, at_most=8.8)
claim("v100-8bit-saved", "Bytes that 8-bit Adam saved per parameter of BERT-large by that table, (14,949 - 13,085) MiB / 335 million parameters",
      (14949 - 13085) * 2**20 / bert_large, "bytes per parameter", kind="derived", source=V100, at_least=5.4, at_most=6.2)
