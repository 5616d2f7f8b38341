# ---
# jupyter:
#   needs: [optimum, optimum-onnx, onnx, onnxruntime]
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
# # Optimum: a decoder in ONNX Runtime
#
# Does a Llama that Optimum exports to ONNX generate the same tokens as in
# PyTorch, and how much faster is it?
#
# What to expect. A later token reads every weight once, and an export in fp32
# reads the same bytes. So a gain can come only from what lies between the matrix
# products: fused operations, and no Python.
#
# How it is measured. CPU time on one thread, both ways in turn, for the first
# token and for those after it. The same notebook for OpenVINO, which also rounds
# weights, is `optimum_intel`.

# %%
# Installs what this notebook needs where it is not there yet (Colab, an empty folder). Colab's torch stays as it is.
import importlib.util
import os
import subprocess
import sys

PINS = {"transformers": "4.57.6", "accelerate": "1.15.0", "optimum": "2.1.0", "optimum-onnx": "0.1.0",
        "onnx": "1.23.2", "onnxruntime": "1.31.1"}
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
# optimum-onnx brings the transformers that it works with.
if importlib.util.find_spec("optimum") is None:
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", "optimum-onnx[onnxruntime]==0.1.0"], check=True)

# %%
import logging
import tempfile
import time
import warnings
from importlib.metadata import version

os.environ["CUDA_VISIBLE_DEVICES"] = ""  # this notebook is about the CPU, also on a machine with a GPU
logging.disable(logging.WARNING)
warnings.simplefilter("ignore")  # the exporter warns of every Python branch that it follows

import torch
from onnxruntime import SessionOptions
from optimum.onnxruntime import ORTModelForCausalLM
from transformers import LlamaConfig, LlamaForCausalLM

from evidence.claims import claim, start, table
from evidence.measure import interleaved, one_thread
from evidence.plots import bars, set_up

set_up("optimum_onnx")
os.chdir(tempfile.mkdtemp())  # checkpoints and exported models go into a temporary folder
start("optimum_onnx", packages=("optimum", "optimum-onnx", "onnxruntime"))
VERSIONS = f"optimum-onnx {version('optimum-onnx')}, transformers {version('transformers')}"

# %% [markdown]
# ## Export
#
# One call exports the model with its key-value cache, and loads it. Yours is a
# name on the Hub in place of the folder. The model is a little smaller than
# Qwen3-0.6B, so that the export fits into one ONNX file. Its weights are random:
# neither speed nor the tokens that must agree depend on training.
#
# The export traces the model once and writes it as a graph whose inputs and
# outputs are the tokens and the cache. That takes CPU time and, for a moment, the
# memory of both models.

# %% tags=["measures"]
one_thread()
torch.manual_seed(0)
eager = LlamaForCausalLM(LlamaConfig(
    hidden_size=1024, intermediate_size=3072, num_hidden_layers=28, num_attention_heads=16, num_key_value_heads=8,
    vocab_size=32000, tie_word_embeddings=True, bos_token_id=1, eos_token_id=None, pad_token_id=0,
)).eval()
eager.save_pretrained("llama")
threads = SessionOptions()
threads.intra_op_num_threads = 1
begun = time.process_time()
exported = ORTModelForCausalLM.from_pretrained("llama", export=True, session_options=threads)
export_seconds = time.process_time() - begun
claim("export-time", "CPU time of the export and loading of a Llama of 0.4 billion parameters", export_seconds, "s",
      kind="measured", at_least=2, at_most=600)

# %% [markdown]
# ## The same tokens?
#
# Greedy decoding must choose the same tokens. Where two tokens are nearly equally
# likely, another order of summation may choose the other one.

# %% tags=["measures"]
NEW = 16
prompt = torch.randint(5, 8192, (1, 128), generator=torch.Generator().manual_seed(0))
mask = torch.ones_like(prompt)
options = dict(attention_mask=mask, max_new_tokens=NEW, min_new_tokens=NEW, do_sample=False)
expected, tokens = (model.generate(prompt, **options)[0, 128:] for model in (eager, exported))
claim("tokens-differ", f"Tokens of {NEW} that the exported model chooses otherwise than PyTorch",
      int((expected != tokens).sum()), "tokens", kind="measured", at_most=1)

# %% [markdown]
# ## Speed
#
# The first token is a `generate` of one token; later tokens are what a longer one
# takes more, per token.
#
# This is the whole path of `generate`, with what Python does around the runtime.

# %% tags=["measures"]
ways = {"PyTorch fp32": eager, "ONNX Runtime fp32": exported}
CLAIMED = (("fp32", "ONNX Runtime fp32", (0.7, 6)),)

# %% tags=["measures"] alt="Bars of speed over PyTorch in fp32, for the first and later tokens: ONNX Runtime in fp32 is hardly faster."
def generating(**more):
    return {name: lambda model=model: model.generate(prompt, **options | more) for name, model in ways.items()}


first = interleaved(generating(max_new_tokens=1, min_new_tokens=1), repeats=3)
whole = interleaved(generating(), repeats=3)
later = {name: (whole[name].best - first[name].best) / (NEW - 1) for name in ways}
baseline = next(iter(ways))
table("times", f"A Llama of 0.4 billion parameters, 128 tokens in, {NEW} out, 1 thread, {VERSIONS}",
      {"way": "Way", "first": "First token, s", "first_speed": "First token, x the speed of PyTorch",
       "later": "Each later token, s", "later_speed": "Later tokens, x the speed of PyTorch"},
      [{"way": name, "first": first[name].best, "first_speed": first[baseline].best / first[name].best,
        "later": later[name], "later_speed": later[baseline] / later[name]} for name in ways], kind="measured")
bars({name: {"first token": first[baseline].best / first[name].best, "later tokens": later[baseline] / later[name]}
      for name in ways}, "x the speed of PyTorch in fp32, 1 thread", baseline=1)

# %% tags=["measures"]
for key, name, (least, most) in CLAIMED:
    for what, seconds in (("first", {way: timing.best for way, timing in first.items()}), ("later", later)):
        claim(f"{key}-{what}", f"Speed of {'the first token' if what == 'first' else 'later tokens'} in {name} against"
              " eager PyTorch in fp32, Llama of 0.4 billion parameters, 128 tokens in, 1 thread",
              seconds[baseline] / seconds[name], "x", kind="measured", at_least=least, at_most=most)

# %% [markdown]
# ## What came out, and what to do
#
# - **The tokens are those of PyTorch**, so an export is safe to try.
# - **In fp32 a model of this size gains little**: the weights are what a token
#   waits for, and they are the same bytes. Fewer bits per weight are what helps,
#   as `optimum_intel` shows.
# - **The price is an older transformers**, in an environment of its own.

# %%
# Compares this run with the published records. In Colab it also offers the record of this machine, to send.
from evidence.finish import finish

finish()
