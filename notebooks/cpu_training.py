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
# # Training on a CPU
#
# How long does a training take on *this* CPU, and what makes it faster? Everything here runs on the processor, also on a
# machine with a GPU. Times are CPU times of one thread, variants run in turn, and the fastest repeat counts. Where the
# CPU lacks an instruction set, or a library is missing, the notebook says so and goes on.

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
# And two packages for LoRA and for 8-bit AdamW, if they are missing.
needs = {"peft": "peft==0.21.2", "bitsandbytes": "bitsandbytes==0.50.2"}
missing = [needed for name, needed in needs.items() if importlib.util.find_spec(name) is None]
if missing:
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", *missing], check=True)

# %%
import gc
import math
import logging
import random
import resource
import shutil
import sysconfig
import tempfile
import time
import warnings
from ctypes.util import find_library
from pathlib import Path

os.environ["CUDA_VISIBLE_DEVICES"] = ""  # a GPU, where there is one, stays out of it
os.environ["TORCHINDUCTOR_CACHE_DIR"] = tempfile.mkdtemp()  # an empty cache: every run compiles anew

import matplotlib.pyplot as plt
import torch
from matplotlib_inline.backend_inline import set_matplotlib_formats

logging.disable(logging.WARNING)  # the packages below say at import what they do without
warnings.simplefilter("ignore")

import bitsandbytes
import psutil
from peft import LoraConfig, get_peft_model
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.flop_counter import FlopCounterMode
from transformers import BertConfig, BertForQuestionAnswering, LlamaConfig, LlamaForCausalLM, set_seed
from transformers.optimization import Adafactor

from evidence.claims import claim, start, table
from evidence.machine import describe
from evidence.measure import interleaved, one_thread, rounds
from dryrun.trace import Tracker, fake

set_matplotlib_formats("svg")
plt.rcParams["svg.hashsalt"] = "cpu_training"  # the same figure at every run
start("cpu_training")
one_thread()

# %% [markdown]
# ## What this CPU has
#
# Three instruction sets multiply matrices of 16-bit numbers: AMX, AVX512-BF16 (Intel, AMD) and the BF16 extension of Arm.

# %%
def flags():
    """What Linux says that this CPU can."""
    try:
        return Path("/proc/cpuinfo").read_text().split()
    except OSError:  # not Linux
        return []


FLAGS = set(flags())
FAST = next((name for name in ("amx_bf16", "avx512_bf16", "bf16") if name in FLAGS), None)  # the best that it has for bf16
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
NO_BF16 = "this CPU has no instructions for bf16"
print(f"bf16 by {FAST}" if FAST else f"{NO_BF16}: bf16 is slow here, see below")
print(f"{CORES} cores, vector instructions that PyTorch uses: {torch.backends.cpu.get_cpu_capability()}")

# %% [markdown]
# ## How many FLOP/s?
#
# One large matrix product, on one thread. No training step is faster than that.

# %%
def product(dtype, size=1536):
    a, b = torch.randn(size, size, dtype=dtype), torch.randn(size, size, dtype=dtype)
    return lambda: a @ b


DTYPES = [torch.float32] + ([torch.bfloat16] if FAST else [])
timings = interleaved({dtype: product(dtype) for dtype in DTYPES}, repeats=16)
flops = {dtype: 2 * 1536**3 / timing.best for dtype, timing in timings.items()}
claim("product-fp32", "FLOP/s of one thread in a matrix product of 1,536 x 1,536, fp32",
      flops[torch.float32] / 1e9, "GFLOP/s", kind="measured", at_least=10, at_most=1000, spread=timings[torch.float32].spread)
claim("product-bf16", "FLOP/s of one thread in a matrix product of 1,536 x 1,536, bf16",
      flops[torch.bfloat16] / 1e9 if FAST else None, "GFLOP/s", kind="measured", at_least=30, at_most=10_000, because=NO_BF16)

# %% [markdown]
# ## Does it make sense? BERT-base on SQuAD
#
# 6 x parameters x tokens is the work of a training in FLOPs: per parameter and token, 2 forward and 4 backward. SQuAD has 87,599
# training questions; two epochs at 384 tokens.

# %%
bert = BertConfig(num_labels=2)
with fake():
    model = BertForQuestionAnswering._from_config(bert, attn_implementation="eager")  # the counter knows its operators
    with FlopCounterMode(display=False) as counter:
        answer = torch.zeros(1, dtype=torch.long)
        model(input_ids=torch.zeros(1, 384, dtype=torch.long), start_positions=answer, end_positions=answer).loss.backward()
parameters, counted = sum(p.numel() for p in model.parameters()), counter.get_total_flops()
tokens = 87_599 * 2 * 384
squad = 6 * parameters * tokens
claim("squad-questions", "Questions in the training set of SQuAD 1.1", 87_599, kind="cited", source="https://huggingface.co/datasets/rajpurkar/squad")
claim("squad-flops", f"6 x parameters x tokens of BERT-base ({parameters / 1e6:.0f}M) on SQuAD, two epochs at 384 tokens",
      squad / 1e16, "x 10¹⁶ FLOPs", kind="derived", at_least=4.2, at_most=4.6)
claim("squad-counted", "FLOPs of a training step of BERT-base at 384 tokens, counted, against 6 x parameters x tokens",
      counted / (6 * parameters * 384), "x", kind="traced", at_least=0.8, at_most=1)
claim("squad-at-1-tflops", "Hours for BERT-base on SQuAD at 1 TFLOP/s, by 6 x parameters x tokens",
      squad / 1e12 / 3600, "h", kind="derived", at_least=11, at_most=13)

# %% [markdown]
# And the real thing: training steps of BERT-base on one row of 384 tokens, on one thread. The optimizer's step is left out:
# with 16 rows or so per step it weighs little.

# %%
set_seed(0)
model = BertForQuestionAnswering(bert)
row = torch.randint(0, 30_000, (1, 384))


def bert_step(bf16, tokens=384):
    def step():
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16):
            loss = model(input_ids=row[:, :tokens], start_positions=torch.tensor([3]), end_positions=torch.tensor([9])).loss
        loss.backward()  # the gradients of the next row are added

    return step


precisions = {"fp32": False} | ({"bf16": True} if FAST else {})
for bf16 in precisions.values():
    bert_step(bf16, tokens=32)()  # a short warm-up
timings = interleaved({name: bert_step(bf16) for name, bf16 in precisions.items()}, repeats=rounds(2, least=1), warmup=0)
hours = {name: timing.best * 87_599 * 2 / 3600 for name, timing in timings.items()}
reached = 6 * parameters * 384 / timings["fp32"].best
claim("squad-hours-fp32", "Hours on one core for BERT-base on SQuAD in fp32: the time of a row of 384 tokens, forward and backward, times 2 x 87,599",
      hours["fp32"], "h", kind="measured", at_least=10, at_most=1500)
claim("squad-hours-bf16", "Hours on one core for BERT-base on SQuAD under bf16 autocast, the same way",
      hours.get("bf16"), "h", kind="measured", at_least=1, at_most=700, because=NO_BF16)
claim("bert-reached", "FLOP/s of one thread in a training step of BERT-base, 6 FLOPs per parameter and token, against a large matrix product, both fp32",
      100 * reached / flops[torch.float32], "%", kind="measured", at_least=30, at_most=130)
model = None  # frees its memory
gc.collect()

# %% [markdown]
# ## The methods, one by one
#
# A Llama of 2 layers and hidden size 384, on 8 rows of 64 tokens: the time of a step against fp32 with fused AdamW, and
# the peak of all tensors that are alive during a step.

# %%
config = LlamaConfig(hidden_size=384, intermediate_size=1024, num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=6,
                     vocab_size=1024, max_position_embeddings=64, use_cache=False, bos_token_id=None, eos_token_id=None)
ids = torch.randint(0, 1024, (8, 64), generator=torch.Generator().manual_seed(0))


def fused_adamw(parameters):
    return torch.optim.AdamW(parameters, lr=1e-4, fused=True)


class Step:
    """A training step of one method; calling it trains once."""

    def __init__(self, bf16=False, dtype=torch.float32, optimizer=fused_adamw, lora=False, checkpointing=False, pieces=1,
                 prepare=lambda model: model):
        set_seed(0)
        model = LlamaForCausalLM._from_config(config, dtype=dtype, attn_implementation="sdpa")
        if lora:
            model = get_peft_model(model, LoraConfig(r=8, target_modules="all-linear"))
        if checkpointing:
            model.activation_checkpointing_enable()
        self.model, self.bf16, self.pieces = prepare(model.train()), bf16, pieces
        self.optimizer = optimizer([p for p in model.parameters() if p.requires_grad])

    def make_state(self):
        """A step of the optimizer alone, on gradients of zero: bf16 may be slow here, and its state is all that is asked for."""
        for group in self.optimizer.param_groups:
            for parameter in group["params"]:
                parameter.grad = torch.zeros_like(parameter)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def __call__(self):
        for piece in ids.chunk(self.pieces):
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.bf16):
                loss = self.model(input_ids=piece, labels=piece).loss / self.pieces
            loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


def adamw_8bit(parameters):
    return bitsandbytes.optim.AdamW8bit(parameters, lr=1e-4)


METHODS = {
    "fp32": {}, "bf16 autocast": {"bf16": True}, "pure bf16": {"dtype": torch.bfloat16},
    "LoRA, fp32": {"lora": True}, "LoRA, bf16 autocast": {"lora": True, "bf16": True},
    "checkpointing": {"checkpointing": True}, "accumulation, 8 x 1 row": {"pieces": 8},
    "AdamW, foreach": {"optimizer": lambda parameters: torch.optim.AdamW(parameters, lr=1e-4, foreach=True)},
    "Adafactor": {"optimizer": lambda parameters: Adafactor(parameters, lr=1e-4, relative_step=False, scale_parameter=False)},
    "SGD": {"optimizer": lambda parameters: torch.optim.SGD(parameters, lr=1e-2)},
    "8-bit AdamW": {"optimizer": adamw_8bit},
}
# Without instructions for bf16 a step takes seconds: its peak is for the record alone, not for the tests, and how slow it is is
# measured below, on two layers.
LEFT = None if FAST or rounds(1, least=0) else f"{NO_BF16}, and this is a test"
steps = {name: Step(**method) for name, method in METHODS.items() if not LEFT or "bf16" not in name}
size = sum(p.numel() for p in steps["fp32"].model.parameters()) / 1e6
peaks = {}
for name, step in steps.items():
    step.make_state()
    with Tracker(step.model, step.optimizer, ids) as tracker:
        step()
    peaks[name] = tracker.peak / 2**20
timings = interleaved({name: step for name, step in steps.items() if FAST or "bf16" not in name}, repeats=3)
rows = [{"method": name, "peak": peaks.get(name), "saved": 100 * (1 - peaks[name] / peaks["fp32"]) if name in peaks else None,
         "speed": timings["fp32"].best / timings[name].best if name in timings else None,
         "time": 1e3 * timings[name].best if name in timings else None} for name in METHODS]
table("methods", f"A training step of a Llama with {size:.1f}M parameters, 8 x 64 tokens, one thread",
      {"method": "Method", "time": "CPU time of a step, ms", "speed": "Speed against fp32, x", "peak": "Peak of all tensors, MiB", "saved": "Below fp32, %"},
      rows, kind="measured")

# %%
WHAT = "Llama of 2 layers, hidden size 384, 8 x 64 tokens, one thread"


def speed_claim(name, method, text, at_least, at_most):
    timing = timings.get(method)
    claim(name, f"Speed of a training step {text}, {WHAT}", timings["fp32"].best / timing.best if timing else None, "x", kind="measured",
          at_least=at_least, at_most=at_most, spread=timing.spread if timing else None, because=NO_BF16)


def peak_claim(name, method, text, at_least, at_most):
    claim(name, f"What {text} saves of the peak of all tensors, the same step", 100 * (1 - peaks[method] / peaks["fp32"]) if method in peaks else None,
          "%", kind="measured", at_least=at_least, at_most=at_most, because=LEFT)


speed_claim("autocast-speed", "bf16 autocast", "under bf16 autocast against fp32", 1.1, 16)
speed_claim("pure-bf16-speed", "pure bf16", "with bf16 weights against fp32", 1.1, 16)
speed_claim("lora-speed", "LoRA, fp32", "with LoRA of rank 8 against full fine-tuning, fp32", 0.95, 1.8)
speed_claim("lora-bf16-speed", "LoRA, bf16 autocast", "with LoRA of rank 8 under bf16 autocast against full fine-tuning in fp32", 1.1, 16)
speed_claim("checkpointing-speed", "checkpointing", "with activation checkpointing against without, fp32", 0.6, 1)
speed_claim("accumulation-speed", "accumulation, 8 x 1 row", "in 8 micro-batches of one row against one of 8, fp32", 0.4, 0.95)
speed_claim("foreach-speed", "AdamW, foreach", "with foreach AdamW against fused AdamW, fp32", 0.5, 1.1)
speed_claim("adafactor-speed", "Adafactor", "with Adafactor against fused AdamW, fp32", 0.4, 1.1)
speed_claim("sgd-speed", "SGD", "with SGD without momentum against fused AdamW, fp32", 0.75, 1.4)
speed_claim("bnb-speed", "8-bit AdamW", "with bitsandbytes' 8-bit AdamW against fused AdamW, fp32", 0.2, 0.9)
peak_claim("autocast-peak", "bf16 autocast", "bf16 autocast", 1, 10)
peak_claim("pure-bf16-peak", "pure bf16", "training with bf16 weights", 40, 60)
peak_claim("lora-peak", "LoRA, fp32", "LoRA of rank 8 in fp32", 20, 70)
peak_claim("checkpointing-peak", "checkpointing", "activation checkpointing", 5, 60)
peak_claim("accumulation-peak", "accumulation, 8 x 1 row", "accumulation over 8 micro-batches", 10, 60)
peak_claim("adafactor-peak", "Adafactor", "Adafactor", 5, 50)
peak_claim("sgd-peak", "SGD", "SGD without momentum", 10, 50)
peak_claim("bnb-peak", "8-bit AdamW", "bitsandbytes' 8-bit AdamW", 5, 50)

figure, axes = plt.subplots(figsize=(7, 3.6))
axes.barh(list(timings)[::-1], [timings["fp32"].best / timing.best for timing in timings.values()][::-1], color="#0072b2")
axes.axvline(1, color="#d55e00", lw=1)
axes.set(xlabel="speed against fp32 with fused AdamW, x")
figure.tight_layout()
plt.show()
del steps, step, tracker
gc.collect()

# %% [markdown]
# ## The loss in bf16
#
# A small byte-level Llama learns from Python's own standard library, three times from the same start with the same
# batches. The loss is that of the last ten steps.

# %%
text = torch.tensor(list(b"".join(path.read_bytes() for path in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("[a-f]*.py")))))
byte_level = LlamaConfig(hidden_size=128, intermediate_size=384, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=4,
                         vocab_size=256, max_position_embeddings=64, use_cache=False, bos_token_id=None, eos_token_id=None)


def trained(seed, bf16=False, dtype=torch.float32, steps=40):
    set_seed(seed)
    model = LlamaForCausalLM(byte_level).to(dtype)
    optimizer, draw, losses = torch.optim.AdamW(model.parameters(), lr=2e-3, fused=True), random.Random(seed), []
    for _ in range(steps):
        starts = [draw.randrange(len(text) - 64) for _ in range(8)]
        batch = torch.stack([text[first : first + 64] for first in starts])
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16):
            loss = model(input_ids=batch, labels=batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return sum(losses[-10:]) / 10


WAYS = {"fp32": {}} | ({"autocast": {"bf16": True}, "pure": {"dtype": torch.bfloat16}} if FAST else {})
losses = [{"autocast": None, "pure": None, "seed": seed} | {name: trained(seed, **way) for name, way in WAYS.items()}
          for seed in range(rounds(2, least=1))]
table("loss", "Training loss after 40 steps of a byte-level Llama, nats per byte",
      {"seed": "Seed", "fp32": "fp32", "autocast": "bf16 autocast", "pure": "Pure bf16"}, losses, kind="measured")
for name, words in (("autocast", "bf16 autocast"), ("pure", "bf16 weights")):
    claim(f"{name}-loss", f"Training loss with {words} above that in fp32 after 40 steps of a byte-level Llama, the mean of two seeds",
          sum(row[name] - row["fp32"] for row in losses) / len(losses) if FAST else None, "nats per byte", kind="measured",
          at_least=-0.1, at_most=0.1 if name == "autocast" else 0.3, because=NO_BF16)

# %% [markdown]
# ## Compiled
#
# The layers are compiled, one graph for both. The first step pays for it, in this process and in the C++ compiler. This is bf16
# autocast, on a CPU that has it; compiled fp32 is in the notebook on throughput.

# %%
def cpu_seconds(call):
    """CPU time of this process and of the compilers that it starts."""
    def now():
        return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))

    started = now()
    call()
    return now() - started


def compile_layers(model):
    for layer in model.model.layers:
        layer.compile()
    return model


def compile_and_time():
    """(CPU time of the first compiled step, {"eager": Timing, "compiled": Timing})"""
    torch.compile(lambda x: torch.relu(x).sum())(torch.ones(64, requires_grad=True)).backward()  # PyTorch's headers, once for all models
    steps = {"eager": Step(bf16=True), "compiled": Step(bf16=True, prepare=compile_layers)}
    return cpu_seconds(steps["compiled"]), interleaved(steps, repeats=5)


WITHOUT = NO_BF16 if not FAST else None if shutil.which("g++") else "this machine has no C++ compiler"
first, timings = (None, None) if WITHOUT else compile_and_time()
eager, fast = (None, None) if WITHOUT else (timings["eager"].best, timings["compiled"].best)
claim("compile-speed", f"Speed of a compiled training step against an eager one, bf16 autocast, {WHAT}",
      eager / fast if fast else None, "x", kind="measured", at_least=0.85, at_most=2.5, spread=timings["compiled"].spread if timings else None, because=WITHOUT)
claim("compile-first", "CPU time that the first compiled step takes longer, one layer compiled, PyTorch's headers before, bf16 autocast",
      first - eager if fast else None, "s", kind="measured", at_least=2, at_most=200, because=WITHOUT)
claim("compile-break-even", f"Steps of {1e3 * eager:.0f} ms until compiling has paid for itself, bf16 autocast" if fast else "Steps until compiling has paid for itself",
      (first - eager) / (eager - fast) if fast and 1.03 * fast < eager else None, "steps", kind="measured", at_least=20, at_most=1e6,
      because=WITHOUT or "the gain of the compiled step is under 3 %, which is noise")
gc.collect()

# %% [markdown]
# ## bf16 without instructions for it
#
# On a CPU with AVX-512, `ONEDNN_MAX_CPU_ISA=AVX512_CORE` forbids oneDNN the bf16 instructions, so that it converts to
# fp32 and back, as it does on a CPU that has AVX-512 and no bf16. A CPU with AVX2 alone takes another way, without oneDNN,
# and has to be one. The variable counts at the start of a process: hence a program of its own, with two Transformer
# layers. The same program serves for the allocators, and has an output layer and loss for them.

# %%
program = Path(tempfile.mkdtemp()) / "step.py"
program.write_text('''
import sys, time
import torch

torch.set_num_threads(1)
torch.manual_seed(0)
layer = torch.nn.TransformerEncoderLayer(384, 6, 1536, dropout=0.0, batch_first=True)
model = torch.nn.TransformerEncoder(layer, 2)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
x = torch.randn(8, 64, 384)
head, hidden, labels = torch.nn.Linear(128, 24_576), torch.randn(512, 128), torch.randint(24_576, (512,))
for step in map(str.strip, sys.stdin):  # a line asks for a step, a line answers with its seconds
    started = time.process_time()
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=step == "bf16"):
        if step == "logits":
            loss = torch.nn.functional.cross_entropy(head(hidden), labels)
        else:
            loss = model(x).float().square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(time.process_time() - started, flush=True)
''')


class Child:
    """A process with these variables, and no others on memory, which trains when it is asked to."""

    def __init__(self, **variables):
        around = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
        self.process = subprocess.Popen([sys.executable, program], env=around | variables, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def fastest(self, step, repeats):
        """Seconds of the fastest of some steps."""
        seconds = []
        for _ in range(repeats):
            self.process.stdin.write(f"{step}\n")
            self.process.stdin.flush()
            seconds.append(float(self.process.stdout.readline()))
        return min(seconds)

    def end(self):
        self.process.kill()  # nothing is left to do, and PyTorch takes seconds to end
        self.process.communicate()


def alone(precision, repeats, **variables):
    child = Child(**variables)
    seconds = child.fastest(precision, repeats)
    child.end()
    return seconds


usual = Child()
seconds = {precision: usual.fastest(precision, rounds(5)) for precision in ("fp32", "bf16")}
AVX512, AVX2_ALONE = "avx512f" in FLAGS, "avx2" in FLAGS and not FAST and "avx512f" not in FLAGS
limited = alone("bf16", 3, ONEDNN_MAX_CPU_ISA="AVX512_CORE") if AVX512 else None
NO_AVX512 = "this CPU has no AVX-512"
claim("limited-slower", "Time of a training step under bf16 autocast against fp32, oneDNN limited to AVX-512 without bf16, two Transformer layers of width 384, one thread",
      limited and limited / seconds["fp32"], "x", kind="measured", at_least=1.2, at_most=30, because=NO_AVX512)
claim("limited-against-native", "Time of a training step under bf16 autocast, oneDNN limited to AVX-512 without bf16, against no limit",
      limited / seconds["bf16"] if AVX512 and FAST else None, "x", kind="measured", at_least=1.5, at_most=60, because=NO_BF16 if AVX512 else NO_AVX512)
claim("avx2-slower", "Time of a training step under bf16 autocast against fp32 on a CPU with AVX2 and neither AVX-512 nor bf16 instructions, the same layers",
      seconds["bf16"] / seconds["fp32"] if AVX2_ALONE else None, "x", kind="measured", at_least=2, at_most=100,
      because="this CPU has more than AVX2" if "avx2" in FLAGS else "this CPU has no AVX2")
no_amx = alone("bf16", 6, ONEDNN_MAX_CPU_ISA="AVX512_CORE_BF16") if FAST == "amx_bf16" else None
claim("amx-speed", "Speed of a training step under bf16 autocast with AMX against AVX512-BF16 alone, the same layers",
      no_amx and no_amx / seconds["bf16"], "x", kind="measured", at_least=1.3, at_most=16, because="this CPU has no AMX")
avx512_bf16 = seconds["bf16"] if FAST == "avx512_bf16" else no_amx
claim("avx512-bf16-speed", "Speed of a training step under bf16 autocast with AVX512-BF16 and without AMX against fp32, the same layers",
      avx512_bf16 and seconds["fp32"] / avx512_bf16, "x", kind="measured", at_least=0.3, at_most=6, because="this CPU has no AVX512-BF16")

# %% [markdown]
# ## Allocators
#
# The same program, with another `malloc`, or with glibc's told to keep what is freed: a process for each, which take turns, and
# the fastest step counts. The layers have no tensor over [32 MiB](https://man7.org/linux/man-pages/man3/mallopt.3.html), above
# which glibc gives every block back to the system at once; the logits of the output layer are larger.

# %%
LIBRARIES = {name: find_library(name) for name in ("tcmalloc_minimal", "jemalloc")}
print(LIBRARIES)
GIB = str(2**30)
children = {"glibc": Child(), "glibc-kept": Child(MALLOC_TRIM_THRESHOLD_=GIB, MALLOC_MMAP_THRESHOLD_=GIB)}
children |= {name: Child(LD_PRELOAD=library) for name, library in LIBRARIES.items() if library}
STEPS = {"fp32": "fp32, two Transformer layers of width 384", "bf16": "bf16, two Transformer layers of width 384",
         "logits": "output layer and loss alone, fp32, logits of 48 MiB"}
best = {}
for _ in range(rounds(4)):
    for name, child in children.items():
        for step in STEPS:
            if FAST or step != "bf16":
                best[name, step] = min(child.fastest(step, rounds(4)), best.get((name, step), math.inf))
for child in (usual, *children.values()):
    child.end()

OTHERS = {"glibc-kept": "glibc's malloc told to keep up to 1 GiB of freed memory"} | {name: library or name for name, library in LIBRARIES.items()}
for name, other in OTHERS.items():
    for step, what in STEPS.items():
        against = "its defaults" if name == "glibc-kept" else "glibc's malloc"
        claim(f"{name.replace('_', '-')}-{step}", f"Speed of a training step with {other} against {against}, {what}",
              best["glibc", step] / best[name, step] if (name, step) in best else None, "x", kind="measured",
              at_least=1.2 if step == "logits" and name != "jemalloc" else 0.7, at_most=6 if step == "logits" else 1.8,
              because=NO_BF16 if name in children else f"{name} is not installed here")

# %% [markdown]
# ## Threads
#
# Wall time, since threads work at the same time. Where other programs use these cores meanwhile, threads wait for each
# other, and the figures say nothing about the CPU: then there is none.

# %%
def wall(threads, step):
    torch.set_num_threads(threads)
    started = time.perf_counter()
    step()
    elapsed = time.perf_counter() - started
    one_thread()
    return elapsed


def machine_seconds():
    """CPU time that somebody got on this machine: user, system, and what a hypervisor took away."""
    times = psutil.cpu_times()
    return times.user + times.nice + times.system + getattr(times, "steal", 0)


work = {"training": Step(), "small": Step(pieces=8)}
counts = {"one": 1, "cores": CORES, "twice": 2 * CORES}
best = {}
before, started = machine_seconds() - time.process_time(), time.perf_counter()
for _ in range(rounds(3)):
    for name, count in (("training", "one"), ("training", "cores"), ("training", "twice"), ("small", "one"), ("small", "cores")):
        best[name, count] = min(wall(counts[count], work[name]), best.get((name, count), 1e9))
others = (machine_seconds() - time.process_time() - before) / (time.perf_counter() - started)
print(f"other programs used {others:.2f} cores meanwhile")
WHY = "this machine has one core" if CORES == 1 else "other programs used its cores meanwhile" if others > 0.15 * CORES else None
claim("threads-speed", f"Speed of a training step on all {CORES} cores against one, 8 x 64 tokens in one batch, wall time",
      None if WHY else best["training", "one"] / best["training", "cores"], "x", kind="measured", at_least=0.9, at_most=1.1 * CORES, because=WHY)
claim("threads-small", f"Speed of a training step on all {CORES} cores against one, 8 micro-batches of 64 tokens, wall time",
      None if WHY else best["small", "one"] / best["small", "cores"], "x", kind="measured", at_least=0.5, at_most=1.1 * CORES, because=WHY)
claim("threads-too-many", f"Speed of a training step with {2 * CORES} threads on {CORES} cores against {CORES} threads, wall time",
      None if WHY else best["training", "cores"] / best["training", "twice"], "x", kind="measured", at_least=0.01, at_most=0.95, because=WHY)

# %% [markdown]
# ## Attention
#
# Forward and backward of attention alone, 6 heads of size 64, causal. The flash kernel never holds the matrix of scores.

# %%
def attention(length, backend):
    q, k, v = (torch.randn(1, 6, length, 64, requires_grad=True) for _ in range(3))

    def step():
        with sdpa_kernel(backend):
            scaled_dot_product_attention(q, k, v, is_causal=True).sum().backward()

    return step


kernels = {"flash": SDPBackend.FLASH_ATTENTION, "math": SDPBackend.MATH}
rows = []
for length in (256, 2048):
    timings = interleaved({name: attention(length, kernel) for name, kernel in kernels.items()}, repeats=3)
    peak = {}
    for name, kernel in kernels.items():
        with Tracker(torch.nn.Identity(), torch.optim.SGD([torch.zeros(1)])) as tracker:
            attention(length, kernel)()
        peak[name] = tracker.peak / 2**20
    rows.append({"length": length, "speed": timings["math"].best / timings["flash"].best, "flash": peak["flash"], "math": peak["math"]})
table("attention", "Attention forward and backward, 6 heads of size 64, causal, fp32, one thread",
      {"length": "Tokens", "speed": "Speed of flash against math, x", "flash": "Peak with flash, MiB", "math": "Peak with math, MiB"}, rows, kind="measured")
claim("flash-speed", "Speed of attention, forward and backward, by the CPU's flash kernel against the math kernel, 6 heads, causal, 2,048 tokens, fp32",
      rows[-1]["speed"], "x", kind="measured", at_least=1.2, at_most=20)
claim("flash-memory", "Peak memory of it, the math kernel against flash, 2,048 tokens",
      rows[-1]["math"] / rows[-1]["flash"], "x", kind="measured", at_least=5, at_most=100)

# %% [markdown]
# ## Denormals
#
# Numbers below 1.2e-38 have fewer digits, and some CPUs compute with them in microcode. Adam's first moment of a parameter without
# gradient shrinks by a tenth per step, and gets there after some hundred steps: rows of an embedding whose tokens are
# rare. Here all of them are: the worst case.

# %%
def adamw_step(first_moment, flush=False):
    weights = torch.nn.Parameter(torch.ones(200_000))  # they fit into the cache, so that arithmetic is what takes time
    weights.grad = torch.zeros_like(weights)
    optimizer = torch.optim.AdamW([weights], lr=1e-4, betas=(0.999, 0.999), fused=True)  # a moment that stays as small as it is
    optimizer.step()
    optimizer.state[weights]["exp_avg"].fill_(first_moment)

    def step():
        torch.set_flush_denormal(flush)
        for _ in range(10):
            optimizer.step()
        torch.set_flush_denormal(False)

    return step


timings = interleaved({"normal": adamw_step(1e-20), "denormal": adamw_step(1e-40), "flushed": adamw_step(1e-40, True)}, repeats=7)
claim("denormal-slower", "Time of fused AdamW's step when every first moment is a denormal, against normal numbers, 200,000 parameters",
      timings["denormal"].best / timings["normal"].best, "x", kind="measured", at_least=1.1, at_most=200, spread=timings["denormal"].spread)
claim("denormal-flushed", "Speed of that step after torch.set_flush_denormal(True)",
      timings["denormal"].best / timings["flushed"].best if torch.set_flush_denormal(False) else None, "x", kind="measured", at_least=1.1, at_most=200,
      because="this CPU cannot flush denormals")

# %%
used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
print(f"CPU time {sum(u.ru_utime + u.ru_stime for u in used):.0f} s, peak memory {used[0].ru_maxrss / 2**20:.1f} GiB; {describe()['label']}")
