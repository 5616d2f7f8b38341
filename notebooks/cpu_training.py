# ---
# jupyter:
#   needs: [peft, bitsandbytes, torchao]
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
# # Training on a CPU
#
# **Which settings make a training step on this CPU faster or smaller, and how long would
# a whole run take?**
#
# The steps are those of real models: BERT-base on sentences, and a decoder of the shape
# of SmolLM2-135M. Weights are random, because neither time nor memory depends on their
# values.
#
# Expect one large gain, bf16, on a CPU that multiplies 16-bit numbers in hardware, and a
# large loss on one that does not. Expect everything else to trade time for memory.
#
# Where nothing else is said, a time is CPU time on one thread: other programs on the
# machine change it little, and it shows what the work costs. Variants run in turn, and
# the fastest repeat counts, because a disturbance only makes a step slower. A GPU, where
# there is one, stays out of it.

# %%
# Installs what this notebook needs where it is not there yet (Colab, an empty folder). Colab's torch stays as it is.
import importlib.util
import os
import subprocess
import sys

PINS = {"transformers": "5.23.0", "accelerate": "1.15.0", "peft": "0.21.2", "bitsandbytes": "0.50.2",
        "torchao": "0.18.0"}
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
# And the packages for LoRA and 8-bit AdamW. peft refuses the older torchao that some images have.
from importlib import metadata

WANTED = {"peft": "0.21.2", "bitsandbytes": "0.50.2", "torchao": "0.18.0"}
have = {found.name: found.version for found in metadata.distributions()}
needs = [f"{name}=={version}" for name, version in WANTED.items() if have.get(name) != version]
if needs:
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", *needs], check=True)

# %% [markdown]
# Programs and the compiler's cache go into a temporary folder. The cache starts empty, so
# that the time to compile is the whole time. The compiler runs as a direct child of this
# process, where its CPU time can be read.

# %%
import logging
import tempfile
import warnings

os.chdir(tempfile.mkdtemp())
os.environ |= {
    "CUDA_VISIBLE_DEVICES": "", "TORCHINDUCTOR_CACHE_DIR": tempfile.mkdtemp(), "TORCHINDUCTOR_COMPILE_THREADS": "1",
}
logging.disable(logging.WARNING)  # at import, the packages below list what they do without
warnings.simplefilter("ignore")

# %%
import copy
import gc
import math
import resource
import shutil
import time
from ctypes.util import find_library
from dataclasses import dataclass

import bitsandbytes
import torch
from peft import LoraConfig, get_peft_model
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.flop_counter import FlopCounterMode
from transformers import (
    BertConfig, BertForQuestionAnswering, BertForSequenceClassification, LlamaConfig, LlamaForCausalLM, set_seed,
)
from transformers.optimization import Adafactor

from evidence import plots
from evidence.claims import claim, start, table
from evidence.machine import describe, native_bf16
from evidence.measure import interleaved, one_thread
from dryrun.tracing import fake

plots.set_up("cpu_training")
start("cpu_training", packages=("peft", "bitsandbytes"))

# %% [markdown]
# ## What this CPU has
#
# Three instruction sets multiply matrices of 16-bit numbers: AMX (Intel), AVX512-BF16
# (Intel and AMD) and the BF16 extension of Arm. Without one of them, bf16 is emulated. A
# cloud may hide an instruction set, or give you another CPU tomorrow, so a program should
# look before it chooses a precision.

# %%
FEATURES = set(describe()["cpu_features"])
BF16 = native_bf16()
NO_BF16 = "this CPU has no instructions for bf16"
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
one_thread()
print("bf16 in hardware" if BF16 else f"{NO_BF16}: it is slow here, see below")
print(f"{CORES} cores; PyTorch uses vector instructions up to {torch.backends.cpu.get_cpu_capability()}")

# %% [markdown]
# ## How long would it take? The work in FLOPs
#
# A parameter multiplies one number per token in the forward pass, and two in the backward
# pass: one for the gradient of the weights, one for the gradient of the activations. With
# each multiplication goes an addition, so a training costs this many FLOPs:
#
# $$6 \times \text{parameters} \times \text{tokens}.$$
#
# As an example: BERT-base on SQuAD, two epochs at 384 tokens. The operators of one step,
# counted on fake tensors, confirm the rule. The count is a little lower, because
# embeddings are looked up and not multiplied.

# %%
QUESTIONS, EPOCHS, LENGTH = 87_599, 2, 384
SQUAD = "https://huggingface.co/datasets/rajpurkar/squad"
bert = BertConfig(num_labels=2)
with fake():
    model = BertForQuestionAnswering._from_config(bert, attn_implementation="eager")  # operators that can be counted
    with FlopCounterMode(display=False) as counter:
        answer = torch.zeros(1, dtype=torch.long)
        row = torch.zeros(1, LENGTH, dtype=torch.long)
        model(input_ids=row, start_positions=answer, end_positions=answer).loss.backward()
parameters = sum(p.numel() for p in model.parameters())
squad = 6 * parameters * QUESTIONS * EPOCHS * LENGTH

claim("squad-questions", "Questions in the training set of SQuAD 1.1", QUESTIONS, kind="cited", source=SQUAD)
claim("squad-flops", f"6 x parameters x tokens of BERT-base ({parameters / 1e6:.0f}M) on SQuAD, 2 epochs at 384 tokens",
      squad / 1e16, "x 10¹⁶ FLOPs", kind="derived", at_least=4.2, at_most=4.6)
claim("squad-counted", "FLOPs of a training step of BERT-base at 384 tokens, counted, against 6 x parameters x tokens",
      counter.get_total_flops() / (6 * parameters * LENGTH), "x", kind="traced", at_least=0.8, at_most=1)
claim("squad-at-1-tflops", "Hours for BERT-base on SQuAD at 1 TFLOP/s, by 6 x parameters x tokens",
      squad / 1e12 / 3600, "h", kind="derived", at_least=11, at_most=13)

# %% [markdown]
# ## How long would it take? The speed of this CPU
#
# The time is the work over the speed. No training step computes faster than one large
# matrix product, so that product is the ceiling of one thread. 16-bit products have a
# ceiling of their own, several times as high where the CPU has instructions for them:
# this is all that bf16 can win.

# %% tags=["measures"]
SIZE = 2048
PRECISIONS = {"fp32": torch.float32} | ({"bf16": torch.bfloat16} if BF16 else {})


def product(dtype):
    a, b = (torch.randn(SIZE, SIZE, dtype=dtype) for _ in range(2))
    return lambda: a @ b


products = interleaved({name: product(dtype) for name, dtype in PRECISIONS.items()}, repeats=12)
ceiling = {name: 2 * SIZE**3 / timing.best for name, timing in products.items()}
for name, least, most in (("fp32", 10, 1000), ("bf16", 30, 10_000)):
    claim(f"product-{name}", f"FLOP/s of one thread in a matrix product of 2,048 x 2,048, {name}",
          ceiling[name] / 1e9 if name in ceiling else None, "GFLOP/s", kind="measured", at_least=least, at_most=most,
          because=NO_BF16)

# %% [markdown]
# And the real step: BERT-base on one row of 384 tokens, forward and backward. The
# optimizer's step is left out, because a real run makes one for many rows. The time of a
# row, times the questions, times two epochs, is the run.
#
# How close the step comes to the ceiling says whether the estimate can be trusted for
# another model: parameters and tokens are known before the run, and so is the ceiling.

# %% tags=["measures"]
set_seed(0)
model = BertForQuestionAnswering(bert)
row, answer = torch.randint(0, 30_000, (1, LENGTH)), torch.tensor([3])


def question(bf16):
    def step():
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16):
            loss = model(input_ids=row, start_positions=answer, end_positions=answer).loss
        loss.backward()  # the gradients of the next row are added

    return step


rows = interleaved({name: question(name == "bf16") for name in PRECISIONS}, repeats=3)
for name, how, least, most in (("fp32", "in fp32", 10, 1500), ("bf16", "under bf16 autocast", 1, 700)):
    claim(f"squad-hours-{name}", f"Hours on one core for BERT-base on SQuAD {how}: the time of a row, times 2 x 87,599",
          rows[name].best * QUESTIONS * EPOCHS / 3600 if name in rows else None, "h", kind="measured",
          at_least=least, at_most=most, because=NO_BF16)
reached = 6 * parameters * LENGTH / rows["fp32"].best
claim("bert-reached", "FLOP/s of one thread in a training step of BERT-base, against a large matrix product, fp32",
      100 * reached / ceiling["fp32"], "%", kind="measured", at_least=30, at_most=130)
del model

# %% [markdown]
# ## The methods, one by one: BERT-base
#
# A step of BERT-base with a classifier, 8 rows of 128 tokens. The baseline is fp32 with
# fused AdamW, `Trainer`'s default. What to expect, before it runs:
#
# - **bf16** speeds up the matrix products and nothing else, so the step gains less than
#   the product above did.
# - **LoRA** skips the gradients of the weights, at most a third of the work. It adds
#   small products of its own.
# - **Checkpointing** computes the forward pass a second time: one part of work on top of
#   three.
# - **Accumulation** over single rows does the same work in small products, which use a
#   core less well.
# - **The optimizer** touches each parameter once per step. Beside a thousand tokens that
#   is little.
#
# Methods that train the same weights share the model: that saves memory here and changes
# no step.

# %% tags=["measures"]
@dataclass
class Method:
    """A way to train a model; calling it makes one training step."""
    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    batch: dict
    bf16: bool = False
    pieces: int = 1  # micro-batches
    checkpointing: bool = False

    def __call__(self):
        self.model.train()
        if self.checkpointing:
            self.model.activation_checkpointing_enable()
        chunks = {name: tensor.chunk(self.pieces) for name, tensor in self.batch.items()}
        for piece in range(self.pieces):
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.bf16):
                loss = self.model(**{name: parts[piece] for name, parts in chunks.items()}).loss / self.pieces
            loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        if self.checkpointing:
            self.model.activation_checkpointing_disable()


# %% [markdown]
# Eleven methods, each against the same baseline. LoRA has rank 8 on every linear layer.

# %% tags=["measures"]
def adamw(model, **form):
    trained = [p for p in model.parameters() if p.requires_grad]
    return torch.optim.AdamW(trained, lr=1e-5, **(form or {"fused": True}))


def with_lora(model):
    return get_peft_model(copy.deepcopy(model), LoraConfig(r=8, target_modules="all-linear"))


set_seed(0)
encoder = BertForSequenceClassification(BertConfig())
encoder_batch = {"input_ids": torch.randint(1000, 30_522, (8, 128)), "labels": torch.zeros(8, dtype=torch.long)}
pure, lora, plain = copy.deepcopy(encoder).to(torch.bfloat16), with_lora(encoder), adamw(encoder)
adapters, weights = adamw(lora), list(encoder.parameters())
METHODS = {
    "fp32": Method(encoder, plain, encoder_batch),
    "bf16 autocast": Method(encoder, plain, encoder_batch, bf16=True),
    "pure bf16": Method(pure, adamw(pure), encoder_batch),
    "LoRA, fp32": Method(lora, adapters, encoder_batch),
    "LoRA, bf16 autocast": Method(lora, adapters, encoder_batch, bf16=True),
    "checkpointing": Method(encoder, plain, encoder_batch, checkpointing=True),
    "accumulation, 8 x 1 row": Method(encoder, plain, encoder_batch, pieces=8),
    "AdamW, foreach": Method(encoder, adamw(encoder, foreach=True), encoder_batch),
    "Adafactor": Method(encoder, Adafactor(weights, lr=1e-5, relative_step=False, scale_parameter=False),
                        encoder_batch),
    "SGD": Method(encoder, torch.optim.SGD(weights, lr=1e-5), encoder_batch),
    "8-bit AdamW": Method(encoder, bitsandbytes.optim.AdamW8bit(weights, lr=1e-5), encoder_batch),
}

# %% [markdown]
# The peak is that of all tensors alive during a step, counted while the step runs. The
# first step makes the optimizer's state, so the second one is counted. Where the CPU has
# no bf16, those methods are left out: the section on emulation below says how slow they
# are.
#
# The floor under every peak is the arithmetic of the optimizer: AdamW in fp32 keeps
# weights, gradients and two moments, four numbers for each parameter. What is above the
# floor are activations.

# %% tags=["measures"]
from dryrun.tracing import Tracker


def peak(step, model, optimizer, batch=()):
    """MiB of the tensors alive at the peak of a step, of which the model is a part."""
    with Tracker(model, optimizer, batch) as tracker:
        step()
    return tracker.peak / 2**20


def compared(methods, name, title):
    """Peak and time of each method; leaves a table against fp32 and returns {method: {"speed", "saved", ...}}."""
    usable = {label: method for label, method in methods.items() if BF16 or "bf16" not in label}
    print(f"{len(usable)} methods, a few steps of each: this takes minutes")
    interleaved(usable, repeats=1, warmup=0)  # makes the states of the optimizers
    peaks = {label: peak(method, method.model, method.optimizer, method.batch) for label, method in usable.items()}
    timings = interleaved(usable, repeats=3, warmup=0)
    base = timings["fp32"].best
    found = {label: {"time": timing.best, "speed": base / timing.best, "peak": peaks[label], "spread": timing.spread,
                     "saved": 100 * (1 - peaks[label] / peaks["fp32"])} for label, timing in timings.items()}
    columns = {"time": "CPU time of a step, s", "speed": "Speed against fp32, x",
               "peak": "Peak of all tensors, MiB", "saved": "Below fp32, %"}
    table(name, title, {"method": "Method"} | columns,
          [{"method": label} | {key: found.get(label, {}).get(key) for key in columns} for label in methods],
          kind="measured")
    return found


encoded = compared(METHODS, "methods", "A training step of BERT-base, 8 x 128 tokens, one thread")

# %% [markdown]
# The speed in a picture. What stands out should be what the list above led to expect;
# where it does not, the list is wrong and the measurement right. Differences of a few
# percent are noise: run the cell again, and they may change their sign.

# %% tags=["measures"] alt="Bars of the speed of each method against fp32 with fused AdamW."
plots.bars({label: found["speed"] for label, found in encoded.items()}, "speed of a step against fp32, x", baseline=1)

# %% [markdown]
# A bar beyond the line is a gain. Most methods stay short of it: they buy memory, and the
# next plot says how much.

# %% tags=["measures"] alt="Bars of the peak memory of each method."
plots.bars({label: found["peak"] for label, found in encoded.items()}, "peak of all tensors, MiB")

# %% [markdown]
# Read the two plots together. A method is worth its time when it makes a step possible
# that would not fit. Where the step fits anyway, it only costs. The claims below fix what
# the pages of this site say, each with a bound: a run in which one does not hold fails.

# %% tags=["measures"]
WHAT = "BERT-base, 8 x 128 tokens, one thread"
SPEEDS = {  # name of the claim: method, what it is in a sentence, bounds
    "autocast": ("bf16 autocast", "under bf16 autocast", 1.1, 16),
    "pure-bf16": ("pure bf16", "with bf16 weights", 1.1, 16),
    "lora": ("LoRA, fp32", "with LoRA of rank 8 in fp32", 0.9, 1.8),
    "lora-bf16": ("LoRA, bf16 autocast", "with LoRA of rank 8 under bf16 autocast", 1.1, 16),
    "checkpointing": ("checkpointing", "with activation checkpointing", 0.6, 0.98),
    "accumulation": ("accumulation, 8 x 1 row", "in 8 micro-batches of one row", 0.5, 0.98),
    "bnb": ("8-bit AdamW", "with bitsandbytes' 8-bit AdamW", 0.3, 0.95),
}
PEAKS = {  # name of the claim: method, bounds
    "pure-bf16": ("pure bf16", 40, 60), "lora": ("LoRA, fp32", 30, 85), "checkpointing": ("checkpointing", 5, 60),
    "accumulation": ("accumulation, 8 x 1 row", 10, 60), "adafactor": ("Adafactor", 10, 55),
    "bnb": ("8-bit AdamW", 10, 55),
}
for name, (label, words, least, most) in SPEEDS.items():
    found = encoded.get(label, {})
    claim(f"{name}-speed", f"Speed of a training step {words} against fp32 with fused AdamW, {WHAT}",
          found.get("speed"), "x", kind="measured", at_least=least, at_most=most, because=NO_BF16)
for name, (label, least, most) in PEAKS.items():
    found = encoded.get(label, {})
    claim(f"{name}-peak", f"What {label} saves of the peak of all tensors, {WHAT.removesuffix(', one thread')}",
          found.get("saved"), "%", kind="measured", at_least=least, at_most=most, because=NO_BF16)
METHODS = plain = pure = lora = adapters = weights = None  # frees their memory
_ = gc.collect()

# %% [markdown]
# ## The same for a decoder
#
# The shape of SmolLM2-135M: 30 thin layers and a vocabulary of 49,152, on 2 rows of 512
# tokens. Two things differ from BERT. The layers are narrow, so less of the time is spent
# in large products, and bf16 has less to speed up. And the logits are one tensor of
# tokens x vocabulary, in fp32 for the loss, which LoRA and checkpointing leave as it is.

# %% tags=["measures"]
decoder_config = LlamaConfig(
    hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9, num_key_value_heads=3,
    vocab_size=49_152, tie_word_embeddings=True, use_cache=False, bos_token_id=None, eos_token_id=None,
)
set_seed(0)
decoder = LlamaForCausalLM(decoder_config)
ids = torch.randint(0, 49_152, (2, 512))
batch = {"input_ids": ids, "labels": ids}
pure, lora, plain = copy.deepcopy(decoder).to(torch.bfloat16), with_lora(decoder), adamw(decoder)
decoded = compared({
    "fp32": Method(decoder, plain, batch), "bf16 autocast": Method(decoder, plain, batch, bf16=True),
    "pure bf16": Method(pure, adamw(pure), batch), "LoRA, bf16 autocast": Method(lora, adamw(lora), batch, bf16=True),
    "checkpointing": Method(decoder, plain, batch, checkpointing=True),
}, "decoder", "A training step of a Llama of the shape of SmolLM2-135M, 2 x 512 tokens, one thread")
claim("decoder-autocast-speed", "Speed of a training step under bf16 autocast against fp32, SmolLM2-135M's shape, "
      "2 x 512 tokens, one thread", decoded.get("bf16 autocast", {}).get("speed"), "x", kind="measured",
      at_least=1.1, at_most=16, because=NO_BF16)
decoder = pure = lora = plain = None
_ = gc.collect()

# %% [markdown]
# ## Compiled
#
# BERT's layers are compiled one by one, so one graph serves all twelve. The first step
# pays for it, in this process and in the C++ compiler.
#
# A compiler fuses what lies between the matrix products: norms, activations, additions.
# The products stay as they are, so there is not much to win. Dropout is the exception to
# watch: compiled code draws its random numbers in another way than PyTorch's kernel.
# Hence two models, one without dropout, as most decoders are, and BERT as it comes.

# %% tags=["measures"]
def cpu_seconds(call):
    """CPU time of this process and of the compilers that it starts."""
    def now():
        return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))

    started = now()
    call()
    return now() - started


def compiled_speeds(dropout):
    """{precision: (speed against the eager step, CPU time that the first step takes longer)} of BERT-base."""
    set_seed(0)
    config = BertConfig(hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout)
    eager = BertForSequenceClassification(config)
    compiled = copy.deepcopy(eager)
    for layer in compiled.bert.encoder.layer:
        layer.compile()
    models, found = {"eager": (eager, adamw(eager)), "compiled": (compiled, adamw(compiled))}, {}
    for name in PRECISIONS:
        steps = {form: Method(*model, encoder_batch, bf16=name == "bf16") for form, model in models.items()}
        first = cpu_seconds(steps["compiled"])
        slow, fast = (timing.best for timing in interleaved(steps, repeats=3).values())
        found[name] = slow / fast, first - slow
    return found

# %% tags=["measures"]
NO_COMPILER = None if shutil.which("g++") else "this machine has no C++ compiler"
without = with_dropout = {}
if not NO_COMPILER:
    torch.compile(lambda x: torch.relu(x).sum())(torch.ones(64, requires_grad=True)).backward()  # PyTorch's headers
    without, with_dropout = compiled_speeds(0.0), compiled_speeds(0.1)
table("compile", f"Speed of a compiled training step against an eager one, {WHAT}",
      {"precision": "Precision", "without": "No dropout, speed, x", "with": "BERT's dropout, speed, x"},
      [{"precision": name, "without": without.get(name, (None,))[0], "with": with_dropout.get(name, (None,))[0]}
       for name in PRECISIONS], kind="measured")
claim("compile-dropout", f"Speed of a compiled training step against an eager one in fp32, BERT's dropout, {WHAT}",
      with_dropout["fp32"][0] if with_dropout else None, "x", kind="measured", at_least=0.7, at_most=2.5,
      because=NO_COMPILER)
SENTENCE = "CPU time that the first compiled step takes longer in fp32, one graph for 12 layers of BERT-base"
claim("compile-first", SENTENCE, without["fp32"][1] if without else None, "s", kind="measured", at_least=2,
      at_most=300, because=NO_COMPILER)

# %% [markdown]
# ## bf16 without instructions for it
#
# What happens to bf16 on a CPU that lacks the instructions? On a CPU with AVX-512, the
# variable `ONEDNN_MAX_CPU_ISA` forbids oneDNN to use them. It then converts to fp32 and
# back, as on a CPU that has AVX-512 and no bf16. A CPU with AVX2 alone takes yet another
# way, which this cannot show.
#
# The variable counts at the start of a process, so a separate program makes the steps. It
# trains BERT-base on masked tokens. That model has an output layer and large logits, and
# the next section asks what the allocator does with them.

# %% tags=["measures"]
# %%writefile step.py
"""CPU seconds of BERT-base's fastest training step, 8 x 128 masked tokens: python step.py REPEATS PRECISION..."""
import sys
from time import process_time

import torch
from transformers import BertConfig, BertForMaskedLM

torch.set_num_threads(1)
torch.manual_seed(0)
model = BertForMaskedLM(BertConfig()).train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
ids = torch.randint(1000, 30_522, (8, 128))


def step(precision):
    started = process_time()
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16"):
        loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return process_time() - started


for precision in sys.argv[2:]:
    step(precision)  # warms up
    print(min(step(precision) for _ in range(int(sys.argv[1]))), flush=True)

# %% tags=["measures"]
def steps_alone(*precisions, repeats=2, **variables):
    """{precision: CPU seconds of a step} in a process with these variables, and no others on memory."""
    around = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    ran = subprocess.run([sys.executable, "step.py", str(repeats), *precisions], env=around | variables,
                         capture_output=True, text=True, check=True)
    return dict(zip(precisions, map(float, ran.stdout.split())))


print("BERT-base in several processes: this takes minutes")
usual = steps_alone("fp32", "bf16", repeats=3)
AVX512, AMX = "avx512f" in FEATURES, "amx_bf16" in FEATURES
limited = steps_alone("bf16", ONEDNN_MAX_CPU_ISA="AVX512_CORE") if AVX512 else {}
no_amx = steps_alone("bf16", ONEDNN_MAX_CPU_ISA="AVX512_CORE_BF16") if AMX else {}
instructions = {"fp32": usual["fp32"], "bf16": usual["bf16"]} | {
    label: times["bf16"] for label, times in (("bf16, no AMX", no_amx), ("bf16, AVX-512 alone", limited)) if times}

# %% [markdown]
# Nothing warns of the slow case: the run is correct, and late. AMX is the reason why bf16
# gains so much on a Xeon. With AVX512-BF16 alone the gain depends on the CPU.

# %% tags=["measures"] alt="Bars of the CPU time of a step in fp32 and in bf16, with and without the instructions."
plots.bars(instructions, "CPU time of a step, s: BERT-base, 8 x 128 masked tokens")
MASKED = "BERT-base, 8 x 128 masked tokens, one thread"
NO_AVX512, NO_AMX = "this CPU has no AVX-512", "this CPU has no AMX"
claim("limited-slower", f"Time of a step under bf16 autocast against fp32, oneDNN without bf16 instructions, {MASKED}",
      limited["bf16"] / usual["fp32"] if limited else None, "x", kind="measured", at_least=1.1, at_most=30,
      because=NO_AVX512)
for name, words, speed, least, most in (
    ("amx-speed", "with AMX against AVX512-BF16 alone", no_amx and no_amx["bf16"] / usual["bf16"], 1.1, 16),
    ("no-amx-speed", "by AVX512-BF16, AMX forbidden, against fp32", no_amx and usual["fp32"] / no_amx["bf16"], 0.3, 6),
):
    claim(name, f"Speed of a step under bf16 autocast {words}, {MASKED}", speed or None, "x", kind="measured",
          at_least=least, at_most=most, because=NO_AMX)

# %% [markdown]
# ## Allocators
#
# PyTorch asks `malloc` for each tensor. glibc gives every block over [32
# MiB](https://man7.org/linux/man-pages/man3/mallopt.3.html) back to the system at once,
# and takes it anew in the next step, page by page. The logits of this step are larger
# than that, so each step pays for their pages again. The system does that work, which
# shows as system time in `time python train.py`.
#
# Here the step runs with another `malloc`, or with glibc told to keep what is freed: two
# variables in the environment, and no change to the program.

# %% tags=["measures"]
LIBRARIES = {name: find_library(name) for name in ("tcmalloc_minimal", "jemalloc")}
GIB = str(2**30)
ALLOCATORS = {"glibc-kept": {"MALLOC_TRIM_THRESHOLD_": GIB, "MALLOC_MMAP_THRESHOLD_": GIB}}
ALLOCATORS |= {name.split("_")[0]: {"LD_PRELOAD": library} for name, library in LIBRARIES.items() if library}
PHRASES = {"glibc-kept": "glibc told to keep what is freed", "tcmalloc": "tcmalloc", "jemalloc": "jemalloc"}
print(f"{len(ALLOCATORS) + 1} allocators, a process for each: this takes minutes")
kept = {name: steps_alone("fp32", "bf16", repeats=3, **variables) for name, variables in ALLOCATORS.items()}
kept["glibc"] = {p: min(a, b) for (p, a), b in zip(usual.items(), steps_alone("fp32", "bf16", repeats=3).values())}
speeds = {PHRASES[name]: {precision: kept["glibc"][precision] / seconds for precision, seconds in times.items()
                          if BF16 or precision == "fp32"} for name, times in kept.items() if name != "glibc"}
table("allocators", f"Speed of a step against glibc as it is, {MASKED}",
      {"allocator": "Allocator", "fp32": "Speed in fp32, x", "bf16": "Speed under bf16 autocast, x"},
      [{"allocator": words, "fp32": speed["fp32"], "bf16": speed.get("bf16")} for words, speed in speeds.items()],
      kind="measured")
claim("tcmalloc-bf16", f"Speed of a step with tcmalloc against glibc as it is, under bf16 autocast, {MASKED}",
      speeds.get("tcmalloc", {}).get("bf16"), "x", kind="measured", at_least=0.9, at_most=3,
      because=NO_BF16 if "tcmalloc" in speeds else "tcmalloc is not installed here")

# %% [markdown]
# ## Threads
#
# PyTorch cuts each large operation over its threads and waits for the slowest. A large
# batch gives every thread enough to do. A single row gives a thread less to do between
# two waits, and more threads than cores only wait for each other.
#
# Here the clock on the wall counts, because threads work at the same time. That needs a
# machine on which nothing else runs: the figures stand only if the process got the cores
# that it asked for.

# %% tags=["measures"]
def wall(threads, step):
    """Seconds on the wall, and the share of its threads' time for which the process had a core."""
    torch.set_num_threads(threads)
    started, used = time.perf_counter(), time.process_time()
    step()
    elapsed = time.perf_counter() - started
    one_thread()
    return elapsed, (time.process_time() - used) / elapsed / min(threads, CORES)


optimizer = adamw(encoder)
single = {name: tensor[:1] for name, tensor in encoder_batch.items()}
work = {"batch": Method(encoder, optimizer, encoder_batch), "row": Method(encoder, optimizer, single)}
counts, best = {"one": 1, "cores": CORES, "twice": 2 * CORES}, {}
for _ in range(3):
    for key in (("batch", "one"), ("batch", "cores"), ("batch", "twice"), ("row", "one"), ("row", "cores")):
        best[key] = min(wall(counts[key[1]], work[key[0]]), best.get(key, (math.inf, 0)))
shares = [share for _, share in best.values()]
print(f"in its fastest repeats the process had its cores for {min(shares):.0%} of the time or more")

# %% tags=["measures"]
WHY = "this machine has one core" if CORES == 1 else "other programs used its cores" if min(shares) < 0.8 else None
ALL = f"on all {CORES} cores against one"
TOO_MANY = f"with {2 * CORES} threads on {CORES} cores against {CORES} threads"
for name, work_of, base, other, words, least, most in (
    ("threads-speed", "batch", "one", "cores", f"{ALL}, 8 x 128 tokens", 1, CORES),
    ("threads-small", "row", "one", "cores", f"{ALL}, 1 x 128 tokens", 0.7, CORES),
    ("threads-too-many", "batch", "cores", "twice", f"{TOO_MANY}, 8 x 128 tokens", 0.01, 1),
):
    claim(name, f"Speed of a training step of BERT-base {words}, fp32, wall time",
          None if WHY else best[work_of, base][0] / best[work_of, other][0], "x", kind="measured",
          at_least=least, at_most=1.1 * most, because=WHY)
encoder = optimizer = work = None
_ = gc.collect()

# %% [markdown]
# ## Attention
#
# Forward and backward of attention alone, with the 12 causal heads of size 64 that a
# model of this width has. The flash kernel never holds the matrix of scores. The math
# kernel does, and the matrix grows with the square of the length. transformers takes the
# flash kernel unless attention has dropout, which BERT has by default.

# %% tags=["measures"]
def attention(length, backend):
    q, k, v = (torch.randn(1, 12, length, 64, requires_grad=True) for _ in range(3))

    def step():
        with sdpa_kernel(backend):
            scaled_dot_product_attention(q, k, v, is_causal=True).sum().backward()

    return step


nothing = torch.nn.Identity(), torch.optim.SGD([torch.zeros(1)])
rows = []
for length in (256, 2048):
    steps = {name: attention(length, getattr(SDPBackend, name)) for name in ("FLASH_ATTENTION", "MATH")}
    (flash, plain), peaks = interleaved(steps, repeats=3).values(), [peak(step, *nothing) for step in steps.values()]
    rows.append({"length": length, "speed": plain.best / flash.best, "flash": peaks[0], "math": peaks[1]})

# %% [markdown]
# Short rows gain less: their matrix of scores is small, and the products around it take
# the time. That is why BERT at a few hundred tokens hardly notices which kernel runs, and
# a long context does.

# %% tags=["measures"]
table("attention", "Attention forward and backward, 12 heads of size 64, causal, fp32, one thread",
      {"length": "Tokens", "speed": "Speed of flash against math, x", "flash": "Peak with flash, MiB",
       "math": "Peak with math, MiB"}, rows, kind="measured")
LONG = "12 causal heads of size 64, 2,048 tokens, fp32, forward and backward"
claim("flash-speed", f"Speed of attention by the CPU's flash kernel against the math kernel, {LONG}, one thread",
      rows[-1]["speed"], "x", kind="measured", at_least=1.2, at_most=20)
claim("flash-memory", f"Peak memory of attention by the math kernel against the CPU's flash kernel, {LONG}",
      rows[-1]["math"] / rows[-1]["flash"], "x", kind="measured", at_least=5, at_most=100)

# %% [markdown]
# ## Denormals
#
# Numbers below 1.2e-38 have fewer digits, and some CPUs compute with them in microcode.
# Adam's first moment of a parameter without gradient shrinks by a tenth per step and gets
# there after several hundred steps: rows of an embedding whose tokens are rare. Here
# *every* row of BERT-base's embedding is in that state: the worst case.

# %% tags=["measures"]
def adamw_step(first_moment, flush=False):
    embedding = torch.nn.Parameter(torch.ones(30_522, 768))
    embedding.grad = torch.zeros_like(embedding)
    optimizer = torch.optim.AdamW([embedding], lr=1e-4, betas=(0.999, 0.999), fused=True)  # the moment hardly shrinks
    optimizer.step()
    moment = optimizer.state[embedding]["exp_avg"].fill_(first_moment)

    def step():
        torch.set_flush_denormal(flush)
        optimizer.step()
        torch.set_flush_denormal(False)

    return step, moment


made = {"normal": adamw_step(1e-20), "denormal": adamw_step(1e-40), "flushed": adamw_step(1e-40, True)}
timings = interleaved({name: step for name, (step, _) in made.items()})
largest = {name: moment.max().item() for name, (_, moment) in made.items()}  # no step is compared with itself:
assert largest["normal"] > torch.finfo(torch.float32).tiny > largest["denormal"] > 0, largest
slower = timings["denormal"].best / timings["normal"].best
AT_SPEED = "this CPU takes no longer for denormals" if slower < 1.5 else None
CANNOT = None if torch.set_flush_denormal(False) else "this CPU cannot flush denormals"
claim("denormal-slower", "Time of fused AdamW's step on BERT-base's embedding when every first moment is a denormal, "
      "against normal numbers, one thread", None if AT_SPEED else slower, "x", kind="measured",
      at_least=1.5, at_most=200, spread=timings["denormal"].spread, because=AT_SPEED)
claim("denormal-flushed", "Speed of that step after torch.set_flush_denormal(True)",
      None if AT_SPEED or CANNOT else timings["denormal"].best / timings["flushed"].best, "x",
      kind="measured", at_least=1.5, at_most=200, because=AT_SPEED or CANNOT)

# %% [markdown]
# ## What came out, and what to do
#
# A CPU trains small models, adapters on small models, and tests of a training program. It
# also trains what fits no GPU at hand, for a few steps. What to do, in this order:
#
# - **Estimate first.** Parameters, tokens and the speed of one matrix product give the
#   hours before you start.
# - **bf16 next**, under autocast, where the CPU has instructions for it: it is the only
#   setting that makes every step much faster. Without the instructions it is slower than
#   fp32, so test for them before you switch it on.
# - **Pure bf16** saves memory on top. Fine-tuning loses most of its updates in it: the
#   notebook *Optimizers* shows why, and what to do about it.
# - **One thread per core.** More threads than cores lose time.
# - **Memory costs time here.** Checkpointing, accumulation in small pieces and 8-bit
#   AdamW all make the step slower. Take the one that shrinks your largest part, when the
#   training does not fit. RAM is cheaper than time.
# - **LoRA saves memory, hardly time**: the forward pass is complete, and the backward
#   pass goes through every layer.
# - **fused, foreach, Adafactor, SGD**: the optimizer is a small part of the step, so
#   choose by memory and by loss.
# - **torch.compile** wins little on a CPU, and loses with dropout. Compare both on your
#   model.
# - **A large tensor per step** (logits) is when an allocator matters. Telling glibc to
#   keep what is freed needs no installation.

# %%
# Compares this run with the published records. In Colab it also offers the record of this machine, to send.
from evidence.finish import finish

finish()
