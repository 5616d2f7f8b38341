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
# # Inference on CPUs
#
# Which precision, cache, batch and number of threads make a decoder fast *on this CPU*, and what does each cost in quality?
# Speed is measured on a Llama with random weights, quality on a small one that is trained here. Encoders, ONNX Runtime and
# OpenVINO have a notebook of their own: `exported_models`.

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
# And the packages that this notebook measures, if they are missing.
needs = {"torchao": "torchao==0.18.0", "bitsandbytes": "bitsandbytes==0.50.2", "gguf": "gguf"}
missing = [needed for name, needed in needs.items() if importlib.util.find_spec(name) is None]
if missing:
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", *missing], check=True)

# %%
import copy
import io
import json
import logging
import math
import sysconfig
import tempfile
import warnings
from pathlib import Path

os.environ["CUDA_VISIBLE_DEVICES"] = ""  # this notebook is about the CPU, also on a machine with a GPU
os.environ["BNB_CUDA_VERSION"] = ""
logging.disable(logging.WARNING)  # what packages say at import, and bitsandbytes in every layer
warnings.simplefilter("ignore")

import matplotlib.pyplot as plt
import torch
from matplotlib_inline.backend_inline import set_matplotlib_formats
from torchao.quantization import Int4WeightOnlyConfig, Int8DynamicActivationInt8WeightConfig, Int8WeightOnlyConfig, quantize_
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, LlamaConfig, LlamaForCausalLM, set_seed
from transformers.utils import logging as transformers_logging

from evidence.claims import claim, start, table
from evidence.machine import describe
from evidence.measure import interleaved, one_thread

transformers_logging.set_verbosity_error()
transformers_logging.disable_progress_bar()
set_matplotlib_formats("svg")
plt.rcParams["svg.hashsalt"] = "cpu_inference"  # the same figure at every run
torch.set_grad_enabled(False)
FOLDER = Path(tempfile.mkdtemp())
start("cpu_inference")

# %% [markdown]
# ## What this machine has
#
# bf16 needs an instruction of its own, else it is emulated. Two instances need two cores. What is missing is said here,
# and the figures that need it say so too. Everything but the comparison of threads runs on one thread, in CPU time.

# %% tags=["measures"]
def usable_cores():
    """The cores that this process may run on, which can be fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def lacks(features, cores):
    """{what: why it is left out here}."""
    reasons = {}
    if not {"avx512_bf16", "amx_bf16"} & set(features):
        reasons["bf16"] = "this CPU has no bf16 instructions"
    if cores < 2:
        reasons["cores"] = "this process may use one core only"
    return reasons


def attempt(label, make):
    """(what it makes, None), or (None, the reason) where that fails: a failure is a result too."""
    try:
        return make(), None
    except Exception as error:
        reason = f"{type(error).__name__}: {str(error).splitlines()[0]}"
        print(f"{label} does not work here. {reason}")
        return None, reason


LACKS = lacks(describe()["cpu_features"], usable_cores())
for reason in LACKS.values():
    print(f"left out, because {reason}")
HALF = torch.float32 if "bf16" in LACKS else torch.bfloat16  # what bitsandbytes computes in: emulated bf16 would be slow
INT8_DOT_PRODUCT = bool({"avx512_vnni", "amx_int8"} & set(describe()["cpu_features"]))  # int8 works without, by other kernels
print(f"bitsandbytes computes in {HALF}, int8 {'has' if INT8_DOT_PRODUCT else 'does without'} a dot product of its own")
one_thread()

# %% [markdown]
# ## A decoder in several precisions
#
# A Llama with random weights: speed does not depend on them. `quantize_dynamic` and torchao change a copy in place;
# bitsandbytes quantises while it loads, and computes in bf16 where the CPU has it. The bytes are those of the saved weights.

# %% tags=["measures"]
set_seed(0)
config = LlamaConfig(
    hidden_size=768, intermediate_size=2048, num_hidden_layers=6, num_attention_heads=12, num_key_value_heads=12,
    vocab_size=8192, max_position_embeddings=2048, bos_token_id=None, eos_token_id=None, pad_token_id=0,
)
WHAT = "Llama of 6 layers and hidden size 768, 1 thread"


def torchao(model, how):
    model = copy.deepcopy(model)
    quantize_(model, how)
    return model


def bitsandbytes(model, **how):
    model.save_pretrained(FOLDER / "checkpoint")
    return AutoModelForCausalLM.from_pretrained(FOLDER / "checkpoint", quantization_config=BitsAndBytesConfig(**how), device_map="cpu")


METHODS = {
    "fp32": lambda model: model,
    "bf16": lambda model: copy.deepcopy(model).to(torch.bfloat16),
    "int8, torch dynamic": lambda model: torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear}, dtype=torch.qint8),
    "int8 weights, torchao": lambda model: torchao(model, Int8WeightOnlyConfig()),
    "int8 dynamic, torchao": lambda model: torchao(model, Int8DynamicActivationInt8WeightConfig()),
    "int4 weights, torchao": lambda model: torchao(model, Int4WeightOnlyConfig(group_size=32)),
    "int8, bitsandbytes": lambda model: bitsandbytes(model.to(HALF), load_in_8bit=True),
    "nf4, bitsandbytes": lambda model, dtype=HALF: bitsandbytes(model, load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=dtype),
}


def variants(model):
    """({label: model in that precision}, {label: why there is none})."""
    made, failed = {}, {}
    for label, make in METHODS.items():
        if label == "bf16" and "bf16" in LACKS:
            failed[label] = LACKS["bf16"]
            continue
        result, reason = attempt(label, lambda make=make: make(copy.deepcopy(model)).eval())
        if reason:
            failed[label] = reason
        else:
            made[label] = result
    return made, failed


def saved_bytes(model):
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    return file.tell()


model = LlamaForCausalLM(config).eval()
decoders, failed = variants(model)
sizes = {label: saved_bytes(one) for label, one in decoders.items()}

# %% [markdown]
# ## The first token and those after it
#
# The first token needs a forward pass over the whole prompt: large matrix products, so arithmetic decides. Each further
# token needs one over a single row: every weight is read once for it, so the memory decides.

# %% tags=["measures"]
PROMPT, TOKENS, ROUNDS = 128, 6, 4


def first_token(model, rows=1, length=PROMPT):
    ids = torch.randint(5, config.vocab_size, (rows, length), generator=torch.Generator().manual_seed(0))
    return lambda: model(ids, use_cache=True, logits_to_keep=1)


def further_tokens(model, rows=1, length=PROMPT):
    """Generates TOKENS tokens behind a prompt that is in the cache already, then forgets them."""
    cache = first_token(model, rows, length)().past_key_values
    ids = torch.full((rows, 1), 7)

    def step():
        for _ in range(TOKENS):
            model(ids, past_key_values=cache, use_cache=True)
        cache.crop(-TOKENS)

    return step


prefill = interleaved({label: first_token(one) for label, one in decoders.items()}, repeats=ROUNDS)
decode = interleaved({label: further_tokens(one) for label, one in decoders.items()}, repeats=ROUNDS)
first = {label: timing.best for label, timing in prefill.items()}
later = {label: timing.best / TOKENS for label, timing in decode.items()}
table(
    "decoders", f"{WHAT}, prompt of {PROMPT} tokens, batch 1",
    {"method": "Method", "size": "Weights, MB", "first": "First token, ms", "first_speed": "First token, x the speed of fp32",
     "later": "Each later token, ms", "later_speed": "Later tokens, x the speed of fp32", "failed": "Fails with"},
    [{"method": label, "size": sizes[label] / 1e6 if label in sizes else None,
      "first": 1e3 * first[label] if label in first else None, "first_speed": first["fp32"] / first[label] if label in first else None,
      "later": 1e3 * later[label] if label in later else None, "later_speed": later["fp32"] / later[label] if label in later else None,
      "failed": failed.get(label, "")} for label in METHODS], kind="measured",
)

# %% tags=["measures"]
def decoder_claims(name, label, first_bounds, later_bounds, size_bounds):
    """Speed of the first and of later tokens, and size of the weights, each against fp32."""
    because, value = failed.get(label), label in first
    claim(f"{name}-first", f"Speed of the first token in {label} against fp32, prompt of {PROMPT} tokens, {WHAT}",
          first["fp32"] / first[label] if value else None, "x", kind="measured", at_least=first_bounds[0], at_most=first_bounds[1],
          spread=prefill[label].spread if value else None, because=because)
    claim(f"{name}-later", f"Speed of later tokens in {label} against fp32, batch 1, {WHAT}",
          later["fp32"] / later[label] if value else None, "x", kind="measured", at_least=later_bounds[0], at_most=later_bounds[1],
          spread=decode[label].spread if value else None, because=because)
    claim(f"{name}-size", f"Saved weights in {label} against fp32, Llama of 6 layers and hidden size 768, of which the embedding is a ninth",
          sizes[label] / sizes["fp32"] if label in sizes else None, "x", kind="measured", at_least=size_bounds[0], at_most=size_bounds[1], because=because)


decoder_claims("bf16", "bf16", (1.3, 10), (0.7, 3), (0.49, 0.51))
least, with_bf16 = 1.5 if INT8_DOT_PRODUCT else 1.2, "bf16" not in LACKS
decoder_claims("dynamic", "int8, torch dynamic", (least, 15), (least, 6), (0.3, 0.4))
decoder_claims("torchao-weights", "int8 weights, torchao", (0.6, 1.4), (0.4, 2.2), (0.3, 0.4))
decoder_claims("torchao-dynamic", "int8 dynamic, torchao", (1.2, 8) if INT8_DOT_PRODUCT else (0.01, 1), (0.1, 1.5), (0.3, 0.4))
decoder_claims("bnb-int8", "int8, bitsandbytes", *((0.8, 6), (0.3, 2.5)) if with_bf16 else ((0.4, 1), (0.2, 1)), (0.25, 0.45))
decoder_claims("nf4", "nf4, bitsandbytes", *((0.4, 6), (1.1, 5)) if with_bf16 else ((0.4, 1.2), (0.2, 1)), (0.25, 0.45))


def nf4_in_bf16():
    """How much longer a prompt takes when nf4 computes in bf16 that the CPU has to emulate."""
    emulated = METHODS["nf4, bitsandbytes"](copy.deepcopy(model), torch.bfloat16).eval()
    timings = interleaved({"fp32": first_token(decoders["nf4, bitsandbytes"]), "bf16": first_token(emulated)}, repeats=2, warmup=0)
    return timings["bf16"].best / timings["fp32"].best


claim("nf4-emulated", f"Time of the first token in nf4 that computes in bf16 against fp32, where the CPU has no bf16 instructions, prompt of {PROMPT} tokens, {WHAT}",
      nf4_in_bf16() if "bf16" in LACKS and "nf4, bitsandbytes" in decoders else None, "x", kind="measured", at_least=2, at_most=50,
      because=failed.get("nf4, bitsandbytes", "this CPU has bf16 instructions"))
claim("first-token", f"Time of the first token against each later one, prompt of {PROMPT} tokens, fp32, {WHAT}",
      first["fp32"] / later["fp32"], "x", kind="measured", at_least=3, at_most=40, spread=prefill["fp32"].spread)
claim("prompt-token", f"Time of a prompt token against each later token, prompt of {PROMPT} tokens, fp32, {WHAT}",
      100 * first["fp32"] / PROMPT / later["fp32"], "%", kind="measured", at_least=2, at_most=40)

# %% [markdown]
# ## How fast can decoding be? The memory says
#
# A token of batch 1 reads every weight once, so tokens per second are at most bandwidth / bytes. The bandwidth is what
# one thread reaches when it sums a tensor that is much larger than the caches.

# %% tags=["measures"]
numbers = torch.ones(48 * 2**20)
reading = interleaved({"sum": numbers.sum}, repeats=8)["sum"]
bandwidth = numbers.numel() * 4 / reading.best / 1e9
unread = config.vocab_size * config.hidden_size * 4  # the embedding: a token reads one row of it
in_half = ("bf16", "int8, bitsandbytes") if "bf16" not in LACKS else ()
read = {label: size - unread * (0.5 if label in in_half else 1) for label, size in sizes.items()}
points = sorted(decoders, key=read.get, reverse=True)
table(
    "roofline", f"Tokens/s at batch 1 against the weights that a token reads, {WHAT}",
    {"method": "Method", "read": "Read per token, MB", "limit": "Limit, tokens/s", "measured": "Measured, tokens/s", "share": "Share of the limit, %"},
    [{"method": label, "read": read[label] / 1e6, "limit": bandwidth * 1e9 / read[label], "measured": 1 / later[label],
      "share": 100 * read[label] / later[label] / (bandwidth * 1e9)} for label in points], kind="measured",
)
claim("bandwidth", "Memory bandwidth that one thread reaches in reading", bandwidth, "GB/s", kind="measured", at_least=2, at_most=100, spread=reading.spread)
claim("roofline-fp32", f"Share of that bandwidth that decoding in fp32 at batch 1 reaches, {WHAT}", 100 * read["fp32"] / later["fp32"] / (bandwidth * 1e9),
      "%", kind="measured", at_least=15, at_most=130)

# %% tags=["measures"]
figure, axes = plt.subplots(figsize=(6.4, 3.4), layout="constrained")
span = [min(read.values()) / 1.5, max(read.values()) * 1.5]
axes.loglog([size / 1e6 for size in span], [bandwidth * 1e9 / size for size in span], color="0.4", label=f"limit: {bandwidth:.0f} GB/s")
for label in points:
    axes.loglog(read[label] / 1e6, 1 / later[label], "o", label=label)
axes.set(xlabel="weights read per token, MB", ylabel="tokens/s, batch 1")
axes.legend(fontsize="small")
plt.show()

# %% [markdown]
# The same arithmetic for a model of 7 billion parameters. 4.5 bits is a 4-bit weight with its share of the scales. A
# prompt is arithmetic instead: a product and a sum per parameter and token, at the speed of this thread's matrix product.

# %% tags=["measures"]
PARAMETERS = 7e9
FORMATS = {"fp32": 32, "bf16": 16, "8 bits": 8.5, "4 bits": 4.5}
BANDWIDTHS = (20, 50, 100, 300)
table(
    "seven-billion", "At most so many tokens/s: a model of 7 billion parameters at batch 1, by memory bandwidth",
    {"format": "Weights", "size": "Size, GB", **{f"at{speed}": f"{speed} GB/s" for speed in BANDWIDTHS}},
    [{"format": name, "size": PARAMETERS * bits / 8e9, **{f"at{speed}": speed * 8e9 / PARAMETERS / bits for speed in BANDWIDTHS}}
     for name, bits in FORMATS.items()], kind="derived",
)


def limit(bits, speed):
    return speed * 8e9 / PARAMETERS / bits


claim("two-channels", "Bandwidth of two channels of DDR4-3200: 2 x 8 bytes x 3.2 billion transfers/s", 2 * 8 * 3.2, "GB/s", kind="derived", at_least=51, at_most=52)
claim("seven-fp32", "Most tokens/s of a 7-billion-parameter model in fp32 at batch 1, 50 GB/s", limit(32, 50), "tokens/s", kind="derived", at_least=1.7, at_most=1.9)
claim("seven-bf16", "Most tokens/s of a 7-billion-parameter model in bf16 at batch 1, 50 GB/s", limit(16, 50), "tokens/s", kind="derived", at_least=3.5, at_most=3.7)
claim("seven-4bit", "Most tokens/s of a 7-billion-parameter model in 4 bits (4.5 with scales) at batch 1, 50 GB/s", limit(4.5, 50), "tokens/s",
      kind="derived", at_least=12, at_most=13.5)
claim("seven-4bit-size", "Weights of a 7-billion-parameter model in 4 bits (4.5 with scales)", PARAMETERS * 4.5 / 8e9, "GB", kind="derived", at_least=3.8, at_most=4.1)
claim("seven-prompt-flops", "FLOPs of a prompt of 720 tokens, 7 billion parameters", 2 * PARAMETERS * 720 / 1e12, "TFLOPs", kind="derived", at_least=10, at_most=10.1)

matrices = {dtype: torch.randn(1024, 1024).to(dtype) for dtype in {torch.float32, HALF}}
products = interleaved({dtype: lambda matrix=matrix: matrix @ matrix for dtype, matrix in matrices.items()}, repeats=8)
gflops = {dtype: 2 * 1024**3 / timing.best / 1e9 for dtype, timing in products.items()}
claim("matrix-fp32", "Speed of a matrix product in fp32, 1,024 x 1,024, one thread", gflops[torch.float32], "GFLOP/s", kind="measured", at_least=5, at_most=1000,
      spread=products[torch.float32].spread)
claim("matrix-bf16", "Speed of a matrix product in bf16 against fp32, 1,024 x 1,024, one thread",
      None if "bf16" in LACKS else gflops[HALF] / gflops[torch.float32], "x", kind="measured", at_least=1.3, at_most=20,
      spread=products[HALF].spread, because=LACKS.get("bf16"))
claim("seven-prompt", "Time of the first token of a 7-billion-parameter model after 720 tokens of prompt, one thread, fp32, at the speed of this matrix product",
      2 * PARAMETERS * 720 / gflops[torch.float32] / 1e9, "s", kind="measured", at_least=10, at_most=2000)

# %% [markdown]
# ## Batch size
#
# A batch shares the reading of the weights, until arithmetic decides.

# %% tags=["measures"]
BATCHES = (1, 4, 16, 64)
curve = []
methods = [label for label in ("fp32", "bf16", "int8, torch dynamic") if label in decoders]
for rows in BATCHES:
    steps = interleaved({label: further_tokens(decoders[label], rows, length=16) for label in methods}, repeats=2)
    curve.append({"batch": rows, **{label: TOKENS * rows / steps[label].best if label in steps else None for label in ("fp32", "bf16", "int8, torch dynamic")}})
table("batching", f"Tokens/s against batch size, {WHAT}", {"batch": "Batch size", "fp32": "fp32, tokens/s", "bf16": "bf16, tokens/s",
      "int8": "int8 (torch dynamic), tokens/s"}, [row | {"int8": row["int8, torch dynamic"]} for row in curve], kind="measured")
claim("batch-fp32", f"Tokens/s at batch {BATCHES[-1]} against batch 1 in fp32, {WHAT}", curve[-1]["fp32"] / curve[0]["fp32"], "x", kind="measured", at_least=2, at_most=40)
claim("batch-bf16", f"Tokens/s at batch {BATCHES[-1]} against batch 1 in bf16, {WHAT}",
      curve[-1]["bf16"] / curve[0]["bf16"] if curve[0]["bf16"] else None, "x", kind="measured", at_least=3, at_most=64, because=failed.get("bf16"))
claim("batch-bf16-gain", f"Speed of bf16 against fp32 at batch {BATCHES[-1]}, {WHAT}",
      curve[-1]["bf16"] / curve[-1]["fp32"] if curve[0]["bf16"] else None, "x", kind="measured", at_least=1.2, at_most=10, because=failed.get("bf16"))
claim("batch-four", f"Time of a step at batch 4 against batch 1 in fp32, {WHAT}", 4 * curve[0]["fp32"] / curve[1]["fp32"], "x", kind="measured", at_least=0.9, at_most=4)

# %% [markdown]
# ## Caches: static, and in 8 bits
#
# A static cache has its full size from the start. The `fp8` backend of the quantised cache needs no further package.
# What `generate` takes, with each cache, for the same tokens.

# %% tags=["measures"]
ids = torch.randint(5, config.vocab_size, (1, 64), generator=torch.Generator().manual_seed(0))
CACHES = {
    "dynamic": {}, "static": {"cache_implementation": "static"},
    "fp8": {"cache_implementation": "quantized", "cache_config": {"backend": "fp8"}},
}


def generating(**options):
    return lambda: model.generate(ids, max_new_tokens=12, do_sample=False, **options)


generated = interleaved({name: generating(**options) for name, options in CACHES.items()}, repeats=4)
for name in ("static", "fp8"):
    claim(f"cache-{name}", f"Time of generate with a {name} cache against the dynamic one, 64 + 12 tokens, fp32, {WHAT}",
          generated[name].best / generated["dynamic"].best, "x", kind="measured", at_least=0.7, at_most=2, spread=generated[name].spread)
full, quantised = (generating(**CACHES[name], return_dict_in_generate=True)().past_key_values for name in ("dynamic", "fp8"))


def cache_bytes(cache):
    """Bytes of all tensors in the layers of a cache, each storage once."""
    found = [value for layer in cache.layers for value in vars(layer).values()]
    tensors = [one for value in found for one in (value if isinstance(value, tuple) else (value,)) if isinstance(one, torch.Tensor)]
    return sum({tensor.untyped_storage().data_ptr(): tensor.numel() * tensor.element_size() for tensor in tensors}.values())


claim("cache-fp8-bytes", "Size of an fp8 cache against the dynamic one of an fp32 model, 75 tokens", cache_bytes(quantised) / cache_bytes(full), "x",
      kind="measured", at_least=0.24, at_most=0.3)

# %% [markdown]
# ## Quality, on a model that has learned something
#
# Random weights say nothing on quality. So a byte-level Llama learns the source code of Python's standard library, and is
# judged on a part that it has not seen. A second one, with one narrow layer, learns the same and becomes the draft model
# below. Both are small and trained briefly: judge differences, not the loss itself.

# %% tags=["measures"]
text = b"".join(path.read_bytes() for path in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py")))
text = torch.frombuffer(bytearray(text), dtype=torch.uint8).long()
learn, judge = text[: len(text) * 9 // 10], text[len(text) * 9 // 10 :]
LENGTH, ROWS = 96, 8


def rows_of(data, generator, count=ROWS):
    starts = torch.randint(len(data) - LENGTH, (count,), generator=generator)
    return data[starts[:, None] + torch.arange(LENGTH)]


def byte_llama(width, layers, steps, rate):
    """A Llama over bytes, trained for `steps` steps."""
    set_seed(0)
    heads = width // 32
    small = LlamaForCausalLM(LlamaConfig(
        vocab_size=256, hidden_size=width, intermediate_size=3 * width, num_hidden_layers=layers, num_attention_heads=heads,
        num_key_value_heads=heads, max_position_embeddings=512, bos_token_id=None, eos_token_id=None, pad_token_id=0,
    ))
    optimizer = torch.optim.AdamW(small.parameters(), lr=rate, fused=True)
    warm_up_then_down = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=rate, total_steps=steps, pct_start=0.1)
    generator = torch.Generator().manual_seed(0)
    with torch.enable_grad():
        for _ in range(steps):
            ids = rows_of(learn, generator)
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled="bf16" not in LACKS):
                loss = small(input_ids=ids, labels=ids, use_cache=False).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(small.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            warm_up_then_down.step()
    return small.eval()


large = byte_llama(width=128, layers=3, steps=300, rate=6e-3)
draft = byte_llama(width=64, layers=1, steps=150, rate=1e-2)
unseen = rows_of(judge, torch.Generator().manual_seed(0), 64)


def loss_of(model):
    """Nats per byte on text that the model has not seen."""
    return model(input_ids=unseen, labels=unseen).loss.item()


trained, not_trained = variants(large)
losses = {label: loss_of(one) for label, one in trained.items()}
table(
    "quality", "Loss on unseen source code, byte-level Llama of 3 layers and width 128",
    {"method": "Method", "loss": "Loss, nats per byte", "perplexity": "Perplexity per byte", "more": "Above fp32, %"},
    [{"method": label, "loss": loss, "perplexity": math.exp(loss), "more": 100 * (loss / losses["fp32"] - 1)} for label, loss in losses.items()],
    kind="measured",
)
claim("quality-fp32", "Loss of that small Llama on source code that it has not seen; a uniform guess has 5.55", losses["fp32"], "nats per byte",
      kind="measured", at_least=1.2, at_most=2.9)


def quality_claim(name, label, at_least, at_most):
    claim(f"quality-{name}", f"Loss in {label} above that in fp32, byte-level Llama trained here, unseen source code",
          100 * (losses[label] / losses["fp32"] - 1) if label in losses else None, "%", kind="measured", at_least=at_least, at_most=at_most,
          because=not_trained.get(label))


quality_claim("bf16", "bf16", -0.2, 0.2)
quality_claim("dynamic", "int8, torch dynamic", -0.2, 2)
quality_claim("torchao-weights", "int8 weights, torchao", -0.1, 0.1)
quality_claim("torchao-dynamic", "int8 dynamic, torchao", -0.2, 0.3)
quality_claim("bnb-int8", "int8, bitsandbytes", -0.2, 0.3)
quality_claim("nf4", "nf4, bitsandbytes", -0.3, 2)

# %% [markdown]
# ## Speculative decoding, counted
#
# A draft proposes tokens, the model checks all of them in one forward pass. The greedy result is the same; what changes
# is the number of forward passes of the large model. That number is counted, since this model is too small for a time.

# %% tags=["measures"]
class Counted:
    """Counts the forward passes of a model."""

    def __init__(self, model):
        self.passes = 0
        model.register_forward_pre_hook(self.add)

    def add(self, *arguments):
        self.passes += 1


counted, new_tokens = Counted(large), 64
prompts = [judge[place : place + 128][None] for place in range(0, len(judge) - 128, len(judge) // 6)][:6]
WAYS = {"greedy": {}, "draft model": {"assistant_model": draft}, "prompt lookup": {"prompt_lookup_num_tokens": 8}}
passes, written = {}, {}
for way, options in WAYS.items():
    counted.passes = 0
    written[way] = [large.generate(prompt, max_new_tokens=new_tokens, do_sample=False, **options)[0].tolist() for prompt in prompts]
    passes[way] = counted.passes / len(prompts)
    print(f"{way}: {passes[way]:.1f} passes for {new_tokens} tokens")
print(bytes(written["greedy"][0][128:]).decode(errors="replace"))
table("speculative", f"Forward passes of the large model for {new_tokens} tokens, mean of {len(prompts)} prompts of unseen source code",
      {"way": "Way", "passes": "Passes", "tokens": "Tokens per pass", "same": "Prompts with the tokens of greedy decoding"},
      [{"way": way, "passes": count, "tokens": new_tokens / count, "same": sum(a == b for a, b in zip(written[way], written["greedy"]))}
       for way, count in passes.items()], kind="measured")
for way, name in (("draft model", "draft"), ("prompt lookup", "lookup")):
    claim(f"speculative-{name}", f"Forward passes of the large model with a {way} against greedy decoding, {new_tokens} bytes of source code, trained models",
          passes[way] / passes["greedy"], "x", kind="measured", at_least=0.03, at_most=0.95)
    claim(f"speculative-{name}-same", f"Prompts of {len(prompts)} for which a {way} gives the tokens of greedy decoding",
          sum(a == b for a, b in zip(written[way], written["greedy"])), "prompts", kind="measured", at_least=len(prompts) - 1, at_most=len(prompts))

# %% [markdown]
# ## Threads against instances
#
# Three worker processes on two cores: one that may use both, and one pinned to each. So one instance with two threads
# meets two instances with one thread each. Each thread is bound to its core. This is wall time: where another process
# takes a core, the threads of one process wait for each other, and the comparison says so instead of a ratio. A pinned
# worker then shows what a thread costs that has no core.

# %% tags=["measures"]
_ = (FOLDER / "worker.py").write_text("""
import json, sys, time
import torch

torch.manual_seed(0)
layer = torch.nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True)
model = torch.nn.TransformerEncoder(layer, 4).eval()
for line in sys.stdin:  # "THREADS BATCH": runs a while, says how many texts per second
    threads, batch = map(int, line.split())
    torch.set_num_threads(threads)
    texts = torch.randn(batch, 32, 256)
    with torch.inference_mode():
        model(texts)
        started, passes = time.perf_counter(), 0
        while time.perf_counter() - started < 0.25:
            model(texts)
            passes += 1
        print(json.dumps(passes * batch / (time.perf_counter() - started)), flush=True)
""")
CLEAN = {name: value for name, value in os.environ.items() if name not in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}


class Worker:
    """A process on these cores and no others, its threads each on one of them."""

    def __init__(self, cores):
        bound = {"OMP_PROC_BIND": "true", "OMP_PLACES": ",".join(f"{{{core}}}" for core in sorted(cores))} if len(cores) > 1 else {}
        self.process = subprocess.Popen([sys.executable, str(FOLDER / "worker.py")], env=CLEAN | bound, text=True, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, preexec_fn=lambda: os.sched_setaffinity(0, cores))

    def ask(self, threads, batch):
        self.process.stdin.write(f"{threads} {batch}\n")
        self.process.stdin.flush()

    def answer(self):
        return json.loads(self.process.stdout.readline())

    def run(self, threads, batch):
        self.ask(threads, batch)
        return self.answer()


def together(workers, batch):
    for worker in workers:
        worker.ask(1, batch)
    return sum(worker.answer() for worker in workers)


def compare_instances():
    """{(layout, batch): texts/s}, the best of some rounds."""
    first, second = sorted(os.sched_getaffinity(0))[:2]
    workers, best = [Worker({first, second}), Worker({first}), Worker({second})], {}
    try:
        for _ in range(4):
            for batch in (1, 8):
                found = {"1 thread": workers[0].run(1, batch), "1 x 2 threads": workers[0].run(2, batch),
                         "2 x 1 thread": together(workers[1:], batch), "2 threads, 1 core": workers[1].run(2, batch)}
                for layout, speed in found.items():
                    best[layout, batch] = max(speed, best.get((layout, batch), 0))
    finally:
        for worker in workers:
            worker.process.kill()
            worker.process.communicate()
    if best["1 x 2 threads", 8] < 0.7 * best["1 thread", 8]:
        raise RuntimeError("two threads were slower than one, so another process used their cores")
    return best


speeds, no_instances = (None, LACKS["cores"]) if "cores" in LACKS else attempt("The comparison of instances", compare_instances)
LAYOUTS = ("1 thread", "1 x 2 threads", "2 x 1 thread", "2 threads, 1 core")
ENCODER = "encoder of 4 layers and width 256, 32 tokens, wall time, 2 cores"
table("instances", f"Texts/s by threads and instances, {ENCODER}", {"layout": "Instances x threads", "one": "Batch 1, texts/s", "eight": "Batch 8, texts/s"},
      [{"layout": layout, "one": speeds and speeds[layout, 1], "eight": speeds and speeds[layout, 8]} for layout in LAYOUTS], kind="measured")


def instance_claim(name, sentence, layout, against, batch, at_least=None, at_most=None):
    claim(name, f"{sentence}, batch {batch}, {ENCODER}", speeds[layout, batch] / speeds[against, batch] if speeds else None, "x", kind="measured",
          at_least=at_least, at_most=at_most, because=no_instances)


instance_claim("instances-throughput", "Texts/s of 2 instances with 1 thread against 1 instance with 2 threads", "2 x 1 thread", "1 x 2 threads", 1, at_least=0.5, at_most=8)
instance_claim("instances-throughput-8", "Texts/s of 2 instances with 1 thread against 1 instance with 2 threads", "2 x 1 thread", "1 x 2 threads", 8, at_least=0.5, at_most=4)
instance_claim("threads-latency", "Speed of one text with 2 threads against 1 thread", "1 x 2 threads", "1 thread", 1, at_most=2.3)
instance_claim("oversubscribed", "Speed with 2 threads on 1 core against 1 thread on it", "2 threads, 1 core", "1 thread", 1, at_most=1.05)

# %% [markdown]
# What a process sees when it is pinned to one core, as `taskset` or a container's cpuset does: `os.cpu_count()` counts the
# machine, and torch takes a thread for each core that it may use. A quota (`cpu.max`) is seen by neither.

# %% tags=["measures"]
SEEN = "import json, os, torch; print(json.dumps([os.cpu_count(), len(os.sched_getaffinity(0)), torch.get_num_threads()]))"


def seen_on_one_core():
    """os.cpu_count(), cores in the affinity, torch's threads, in a new process that is pinned to one core."""
    core = min(os.sched_getaffinity(0))
    pinned = subprocess.run([sys.executable, "-c", SEEN], env=CLEAN, capture_output=True, text=True, check=True,
                            preexec_fn=lambda: os.sched_setaffinity(0, {core}))
    return json.loads(pinned.stdout)


seen, unpinned = attempt("Pinning a process to a core", seen_on_one_core)
claim("pinned-threads", "Threads that torch takes in a process pinned to one core", seen and seen[2], "threads", kind="measured", at_least=1, at_most=1, because=unpinned)
claim("pinned-cpu-count", "Cores that os.cpu_count() reports there above the cores of the machine", seen and seen[0] - os.cpu_count(), "cores",
      kind="measured", at_least=0, at_most=0, because=unpinned)

# %% [markdown]
# ## GGUF in transformers
#
# A Llama in GGUF, 8 bits per weight, written here and loaded by `from_pretrained(gguf_file=...)`.

# %% tags=["measures"]
def gguf_file(model, path):
    """Writes a Llama as llama.cpp stores it: matrices in 8-bit blocks, norms in fp32."""
    import gguf

    writer = gguf.GGUFWriter(path, "llama")
    shape = model.config
    writer.add_context_length(shape.max_position_embeddings)
    writer.add_embedding_length(shape.hidden_size)
    writer.add_block_count(shape.num_hidden_layers)
    writer.add_feed_forward_length(shape.intermediate_size)
    writer.add_head_count(shape.num_attention_heads)
    writer.add_head_count_kv(shape.num_key_value_heads)
    writer.add_layer_norm_rms_eps(shape.rms_norm_eps)
    writer.add_rope_dimension_count(shape.hidden_size // shape.num_attention_heads)
    writer.add_vocab_size(shape.vocab_size)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, shape.num_hidden_layers)
    for name, weight in model.state_dict().items():
        kind = gguf.GGMLQuantizationType.Q8_0 if weight.ndim == 2 else gguf.GGMLQuantizationType.F32
        writer.add_tensor(names.get_name(name, try_suffixes=(".weight",)), gguf.quants.quantize(weight.numpy(), kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def gguf_growth():
    set_seed(0)
    small = LlamaForCausalLM(LlamaConfig(hidden_size=256, intermediate_size=512, num_hidden_layers=2, num_attention_heads=4, vocab_size=512))
    path = gguf_file(small, FOLDER / "model.gguf")
    loaded = LlamaForCausalLM.from_pretrained(FOLDER, gguf_file=path.name)
    print("parameters are", {parameter.dtype for parameter in loaded.parameters()})
    return sum(parameter.numel() * parameter.element_size() for parameter in loaded.parameters()) / path.stat().st_size


growth, no_gguf = attempt("Loading GGUF", gguf_growth)
claim("gguf-growth", "Memory of a Llama that from_pretrained(gguf_file=...) has loaded on a CPU against its file of 8 bits per weight", growth, "x",
      kind="measured", at_least=3, at_most=4.1, because=no_gguf)
