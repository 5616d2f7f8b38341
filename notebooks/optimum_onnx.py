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
# # Optimum: a decoder in ONNX Runtime
#
# Does a Llama that Optimum exports to ONNX generate the same tokens as in PyTorch *on this CPU*, and how much faster?
# Weights are random: neither speed nor the tokens that must agree depend on training.

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
# And optimum-onnx, which brings the transformers that it works with.
if importlib.util.find_spec("optimum") is None:
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", "optimum-onnx[onnxruntime]==0.1.0"], check=True)

# %%
import logging
import tempfile
import time
import warnings
from importlib.metadata import version
from pathlib import Path

os.environ["CUDA_VISIBLE_DEVICES"] = ""  # this notebook is about the CPU, also on a machine with a GPU
logging.disable(logging.WARNING)
warnings.simplefilter("ignore")  # the exporter warns of every Python branch that it follows

import torch
from onnxruntime import SessionOptions
from optimum.onnxruntime import ORTModelForCausalLM
from transformers import LlamaConfig, LlamaForCausalLM, set_seed

from evidence.claims import claim, start, table
from evidence.measure import interleaved, one_thread

start("optimum_onnx", packages=("optimum", "optimum-onnx", "onnxruntime"))
one_thread()
VERSIONS = f"optimum-onnx {version('optimum-onnx')}, transformers {version('transformers')}"

# %% [markdown]
# ## Export
#
# One call exports the model with its key-value cache, and loads it. Yours is a name on the Hub in place of the folder.

# %% tags=["measures"]
set_seed(0)
LAYERS = 6
eager = LlamaForCausalLM(LlamaConfig(
    hidden_size=512, intermediate_size=1408, num_hidden_layers=LAYERS, num_attention_heads=8, num_key_value_heads=4,
    vocab_size=8192, bos_token_id=1, eos_token_id=None, pad_token_id=0,
)).eval()
folder = Path(tempfile.mkdtemp())
eager.save_pretrained(folder / "llama")
threads = SessionOptions()
threads.intra_op_num_threads = 1
started = time.process_time()
exported = ORTModelForCausalLM.from_pretrained(folder / "llama", export=True, session_options=threads)
claim("export-time", f"CPU time of the export of a Llama of {LAYERS} layers and hidden size 512, {VERSIONS}",
      time.process_time() - started, "s", kind="measured", at_least=0.5, at_most=120)

# %% [markdown]
# ## The same tokens?

# %% tags=["measures"]
prompt = torch.randint(5, 8192, (1, 256), generator=torch.Generator().manual_seed(0))
mask = torch.ones_like(prompt)
options = dict(attention_mask=mask, max_new_tokens=32, min_new_tokens=32, do_sample=False)
expected, tokens = (model.generate(prompt, **options)[0, 256:] for model in (eager, exported))
claim("tokens-differ", f"Tokens of 32 that the exported model chooses otherwise than PyTorch, {VERSIONS}",
      int((expected != tokens).sum()), "tokens", kind="measured", at_most=0)
with torch.no_grad():
    logits = eager(prompt, attention_mask=mask).logits
    difference = (exported(prompt, attention_mask=mask).logits - logits).norm() / logits.norm()
claim("logits-differ", f"Relative difference of the logits of a prompt of 256 tokens from those of PyTorch in fp32, {VERSIONS}",
      float(difference) * 1e6, "ppm", kind="measured", at_most=100)

# %% [markdown]
# ## Time
#
# One thread, CPU time. Generation is 256 tokens in, 32 out.

# %% tags=["measures"]
models = {"PyTorch, eager": eager, "ONNX Runtime": exported}
with torch.inference_mode():
    prefill = interleaved({name: lambda model=model: model(prompt, attention_mask=mask) for name, model in models.items()}, repeats=5)
    whole = interleaved({name: lambda model=model: model.generate(prompt, **options) for name, model in models.items()}, repeats=3)
table("times", f"A Llama of {LAYERS} layers and hidden size 512, fp32, 256 tokens in, 32 out, 1 thread, {VERSIONS}",
      {"way": "Way", "prefill": "Prompt, ms", "token": "Each token, ms", "speed": "Speed of generation, x"},
      [{"way": name, "prefill": 1000 * prefill[name].best, "token": 1000 * (whole[name].best - prefill[name].best) / 31,
        "speed": whole["PyTorch, eager"].best / whole[name].best} for name in models], kind="measured")
claim("generation-speed", f"Speed of generation, 256 tokens in, 32 out, against eager PyTorch in fp32, 1 thread, {VERSIONS}",
      whole["PyTorch, eager"].best / whole["ONNX Runtime"].best, "x", kind="measured", at_least=0.8, at_most=6,
      spread=whole["ONNX Runtime"].spread)
