# ---
# jupyter:
#   accelerator: GPU
#   colab:
#     gpuType: T4
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
# # Run a chat model fast on a free T4
#
# **Does your GPU write as fast as it could?** A fast GPU that writes one answer at a time waits for Python, and any GPU reads all weights for
# each token. A compiled step, several answers at once and fewer bits change that, each in another way. This notebook measures all three
# on your GPU, and puts what a server would reach beside them. To serve many users, start with [a server](https://performance-and-scalability.github.io/performance-and-scalability/inference/servers/) instead.
#
# In Colab choose *Runtime, Change runtime type, T4 GPU*, then *Run all*. It takes the largest of five models that fits in 16 bits.
#
# *Not run on a GPU yet. The outputs on this page come from a run without GPU and network: a model of 135 million parameters on a CPU, where
# nothing is compiled. With a GPU the same cells take a real model.*

# %% tags=["set-up"]
import os
import subprocess
import sys
from importlib.util import find_spec

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "0")  # one GPU, also where there are two
if not all(map(find_spec, ("dryrun", "bitsandbytes"))):  # in Colab: torch stays; transformers refuses Colab's torchao
    needed = "transformers==5.23.0 accelerate==1.15.0 bitsandbytes==0.50.2 torchao==0.18.0 pandas matplotlib"
    ours = "gpu-dryrun @ git+https://github.com/performance-and-scalability/performance-and-scalability@v0.1.0#subdirectory=dryrun"
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", *needed.split(), ours], check=True)

# %% [markdown]
# ## What could your GPU do?
#
# Predicted, for a server such as vLLM: what weights and caches need, and tokens per second of one user, and of eight together. `int4-128` stands for
# AWQ and GPTQ with 4 bits.

# %% tags=["fold"]
import pandas as pd
import torch
from IPython.display import HTML

from dryrun import Cluster, Generation, Refusal, predict

MODELS = [f"Qwen/Qwen3-{size}" for size in ("14B", "8B", "4B", "1.7B", "0.6B")]
GPU = torch.cuda.get_device_name() if torch.cuda.is_available() else None  # or a name that `dryrun gpus` lists
PROMPT, NEW = 512, 128  # tokens of a prompt, and of an answer

try:
    CLUSTER = Cluster(GPU or "t4")
except Refusal as refused:  # what follows measures all the same
    CLUSTER = None
    print(f"No speed is predicted for {GPU} ({refused.problem}). "
          "What follows is measured without a prediction beside it.")  # fmt: skip
    if refused.nearest:
        print(f"If it is one of {', '.join(refused.nearest)}, write that name as GPU.")


def rate(served):
    """Tokens per second, where they are predicted."""
    return round(served.decode.tokens_per_second) if CLUSTER and served.predicted else "-"


# %% tags=["fold"]
found = []
for model_name in MODELS:
    for weights in ("bf16", "int4-128"):
        one, eight = (  # weights and caches take the same memory on any GPU
            predict(
                Generation(model_name, prompt=PROMPT, new=NEW, weights=weights, batch=users), CLUSTER or Cluster("t4")
            )
            for users in (1, 8)
        )
        fits = eight.fits if CLUSTER else eight.high <= torch.cuda.mem_get_info()[1]
        found.append({
            "model": model_name, "weights": weights, "GiB for 8 users": round(eight.expected / 2**30, 1),
            f"on {GPU or 'a T4'}": eight.verdict.short if CLUSTER else "it fits" if fits else "it may not fit",
            "tokens/s, 1 user": rate(one), "tokens/s, 8 users together": rate(eight),
        })  # fmt: skip

HTML(pd.DataFrame(found).to_html(index=False))

# %% [markdown]
# ## Your choice
#
# Another model of the Hub, or a folder? Name it here. All that follows is measured again for it.

# %%
from huggingface_hub import hf_hub_download

SMALL = "HuggingFaceTB/SmolLM2-135M-Instruct"  # what a CPU runs in seconds
fitting = [row["model"] for row in found if row["weights"] == "bf16" and row[f"on {GPU or 'a T4'}"] == "it fits"]
MODEL = (fitting or MODELS[-1:])[0] if GPU else SMALL
# T4 and older compute bf16 slowly: fp16 takes the same memory and is fast there.
half = torch.bfloat16 if GPU and torch.cuda.is_bf16_supported(including_emulation=False) else torch.float16
dtype = half if GPU else torch.float32
try:
    KNOWN = Generation(MODEL).model.name
except ValueError:  # a model that dryrun has no name for is predicted by its configuration
    KNOWN = hf_hub_download(MODEL, "config.json")
download = 2 * Generation(KNOWN).model.parameters / 1e9
if not GPU:
    PROMPT, NEW = 64, 32  # a CPU reads and writes slowly
print(f"{MODEL}: {download:.1f} GB to download. Computed in {dtype}.")

# %%
import gc

from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig


def forget():
    """Frees a model before the next one is loaded. A compiled one holds itself until then."""
    global model
    model = None
    torch.compiler.reset()
    gc.collect()
    if GPU:
        torch.cuda.empty_cache()


forget()
tokenizer = AutoTokenizer.from_pretrained(MODEL)
model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=dtype, device_map={"": 0} if GPU else None)
chat = [{"role": "user", "content": "Explain in three sentences what a GPU is good at."}]
asked = tokenizer.apply_chat_template(
    chat, add_generation_prompt=True, enable_thinking=False, return_dict=True, return_tensors="pt",
).to(model.device)  # fmt: skip
written = model.generate(**asked, max_new_tokens=NEW, do_sample=False)
print(tokenizer.decode(written[0, asked["input_ids"].shape[1] :], skip_special_tokens=True))

# %% [markdown]
# ## How fast does it write?
#
# Two calls of `generate`, one for a whole answer and one for its first token. The difference is the time of the tokens between. The first call of each
# way is not counted: it loads kernels, and compiles.

# %%
import time


def timed(model, batch, new, options):
    """Seconds of one call that writes `new` tokens for each of `batch` prompts of the same length."""
    prompts = torch.randint(1000, 10_000, (batch, PROMPT), device=model.device)  # speed does not depend on the words
    if GPU:
        torch.cuda.synchronize()
    begun = time.perf_counter()
    length = {"max_new_tokens": new, "min_new_tokens": new, "do_sample": False}
    model.generate(prompts, attention_mask=torch.ones_like(prompts), **length, **options)
    if GPU:
        torch.cuda.synchronize()
    return time.perf_counter() - begun


def tokens_per_second(model, batch, **options):
    """Tokens per second of all answers together, without reading the prompts: the best of three."""
    timed(model, batch, NEW, options)
    long = min(timed(model, batch, NEW, options) for _ in range(3))
    short = min(timed(model, batch, 1, options) for _ in range(3))
    return batch * (NEW - 1) / (long - short)


# %% [markdown]
# *As it comes* is a cache that grows with each token, which no compiler can take. A static cache has its full size from the start, so that
# on a GPU `generate` compiles the step and replays it as one CUDA graph.

# %%
WAYS = {"as it comes": {}, "static cache": {"cache_implementation": "static"}}
speed = {(way, batch): tokens_per_second(model, batch, **options) for way, options in WAYS.items() for batch in (1, 8)}
for (way, batch), rate in speed.items():
    print(f"{way}, {batch} at a time: {rate:,.0f} tokens/s")

# %% [markdown]
# **Fewer bits**: a quarter of the weights' bytes, and more room for caches. bitsandbytes unpacks them in every step, so it saves memory more than time.

# %%
if GPU:
    forget()
    four_bit = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=dtype)
    model = AutoModelForCausalLM.from_pretrained(MODEL, quantization_config=four_bit, dtype=dtype, device_map={"": 0})
    speed |= {("4 bits, as it comes", batch): tokens_per_second(model, batch) for batch in (1, 8)}
else:
    print("On a CPU 4 bits are another matter: its guide measures them.")

# %% alt="Bars of tokens per second by way of writing, for one answer and for eight at a time."
import matplotlib.pyplot as plt
from matplotlib_inline.backend_inline import set_matplotlib_formats

set_matplotlib_formats("svg")
_, axes = plt.subplots(figsize=(7, 3))
ways = list(dict.fromkeys(way for way, _ in speed))
for shift, batch in ((-0.2, 1), (0.2, 8)):
    places = [place + shift for place in range(len(ways))]
    drawn = axes.barh(places, [speed[way, batch] for way in ways], 0.36, label=f"{batch} at a time")
    axes.bar_label(drawn, fmt="{:,.0f}", padding=3)
axes.set_yticks(range(len(ways)), ways)
axes.invert_yaxis()
axes.margins(x=0.12)
axes.set_xlabel("tokens/s")
axes.legend()
plt.show()

# %% [markdown]
# ## Predicted, and measured
#
# A compiled step is what a server replays, so its time can be compared. Where it takes longer than the high end, Python between two steps
# is one reason.

# %%
import json

from dryrun import compare

compared = None
generation = Generation(KNOWN, prompt=PROMPT, new=NEW)
if GPU and CLUSTER and predict(generation, CLUSTER).predicted:
    compared = compare(generation, CLUSTER, seconds=1 / speed["static cache", 1])
print(compared or f"No time is predicted for {GPU or 'a CPU'}.")

# %% [markdown]
# For many GPUs nobody has published such a figure. Yours would help:
# [open an issue](https://github.com/performance-and-scalability/performance-and-scalability/issues/new?title=A+measured+token)
# with what this cell prints. It holds the GPU, the model, the time and the versions, and nothing about you.

# %%
name = MODEL.rpartition("/")[2].lower()
print(json.dumps(compared.row | {"model": name}, indent=1) if compared else "There is nothing to send.")

# %% [markdown]
# ## What to take
#
# - **One person, one answer at a time**: a static cache, or llama.cpp with a file of 4 bits: it reads a quarter of the bytes for each token.
# - **Several people**: a server, `vllm serve Qwen/Qwen3-4B --max-model-len 4096`, because it takes new questions into the batch while others
#   are answered. On a T4 we ran none. [Which server](https://performance-and-scalability.github.io/performance-and-scalability/inference/servers/).
# - **It does not fit**: [fewer bits](https://performance-and-scalability.github.io/performance-and-scalability/inference/quantization/), a
#   smaller model, a shorter context.
# - **Another length?** `PROMPT` and `NEW` change the cache that every token reads. The table and all measurements follow them.
