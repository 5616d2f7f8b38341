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
# # Exported models: ONNX Runtime and OpenVINO
#
# Is an encoder faster in ONNX Runtime or OpenVINO than in PyTorch *on this CPU*, do the outputs agree, and what does int8
# add? No package between: `torch.onnx.export` and `openvino.convert_model` take the model as it is. Weights are random:
# speed does not depend on them.

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
needs = {"onnx": "onnx", "onnxscript": "onnxscript", "onnxruntime": "onnxruntime", "openvino": "openvino"}
missing = [needed for name, needed in needs.items() if importlib.util.find_spec(name) is None]
if missing:
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", *missing], check=True)

# %%
import copy
import functools
import logging
import resource
import shutil
import tempfile
import warnings
from pathlib import Path

os.environ["CUDA_VISIBLE_DEVICES"] = ""  # this notebook is about the CPU, also on a machine with a GPU
os.environ["TORCHINDUCTOR_CACHE_DIR"] = tempfile.mkdtemp()  # an empty cache: every run compiles anew
logging.disable(logging.WARNING)
warnings.simplefilter("ignore")

import numpy as np
import onnx
import onnxruntime
import openvino
import torch
from onnxruntime.quantization import QuantType, quantize_dynamic
from transformers import BertConfig, BertForSequenceClassification, LlamaConfig, LlamaForCausalLM, set_seed

from evidence.claims import claim, start, table
from evidence.machine import describe
from evidence.measure import interleaved, one_thread

FOLDER = Path(tempfile.mkdtemp())
torch._inductor.config.compile_threads = 1  # the compiler's time counts as ours
start("exported_models", packages=("onnx", "onnxruntime", "openvino"))

# %% [markdown]
# ## The model, and what this machine lacks

# %% tags=["measures"]
def lacks(features, compiler):
    """{what: why it is left out here}."""
    reasons = {}
    if not {"avx512_bf16", "amx_bf16"} & set(features):
        reasons["bf16"] = "this CPU has no bf16 instructions"
    if not compiler:
        reasons["compile"] = "this machine has no C++ compiler"
    return reasons


def attempt(label, make):
    """(what it makes, None), or (None, the reason) where that fails: a failure is a result too."""
    try:
        return make(), None
    except Exception as error:
        reason = f"{type(error).__name__}: {str(error).splitlines()[0]}"
        print(f"{label} does not work here. {reason}")
        return None, reason


LACKS = lacks(describe()["cpu_features"], shutil.which("g++"))
for reason in LACKS.values():
    print(f"left out, because {reason}")
one_thread()
set_seed(0)
model = BertForSequenceClassification(BertConfig(
    hidden_size=384, num_hidden_layers=6, num_attention_heads=6, intermediate_size=1536, vocab_size=8192, return_dict=False,
)).eval()
ids = torch.randint(5, 8192, (8, 64), generator=torch.Generator().manual_seed(0))
mask = torch.ones_like(ids)
WHAT = "BERT of 6 layers and hidden size 384, 64 tokens, 1 thread"
BATCHES = (1, 8)

# %% [markdown]
# ## Export
#
# The batch and the length stay free. `quantize_dynamic` of ONNX Runtime stops at shapes that the exporter has noted for
# weights which it transposes later: without these notes it works.

# %% tags=["measures"]
def cpu_seconds(call):
    """CPU time of a call, with that of the processes it starts."""

    def now():
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return sum(usage.ru_utime + usage.ru_stime for usage in used)

    started = now()
    made = call()
    return made, now() - started


def to_onnx():
    path = FOLDER / "model.onnx"
    free = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length", max=512)}
    torch.onnx.export(
        model, (ids[:2], mask[:2]), path, dynamo=True, verbose=False, input_names=["input_ids", "attention_mask"],
        output_names=["logits"], dynamic_shapes={"input_ids": free, "attention_mask": free},
    )
    return path


def to_int8(path, forget_shapes):
    graph = onnx.load(path)
    if forget_shapes:
        del graph.graph.value_info[:]
    plain, small = path.with_name("plain.onnx"), path.with_name("int8.onnx")
    onnx.save(graph, plain)
    quantize_dynamic(plain, small, weight_type=QuantType.QInt8)
    return small


exported, no_onnx = attempt("The export to ONNX", lambda: cpu_seconds(to_onnx))
exported_path, export_seconds = exported or (None, None)
_, int8_refused = attempt("int8 with the exporter's shapes", lambda: to_int8(exported_path, False)) if exported else (None, no_onnx)
int8_path, no_int8 = attempt("int8", lambda: to_int8(exported_path, True)) if exported else (None, no_onnx)
converted, no_openvino = attempt("The conversion to OpenVINO", lambda: cpu_seconds(lambda: openvino.convert_model(model, example_input=(ids[:2], mask[:2]))))
openvino_model, convert_seconds = converted or (None, None)

# %% [markdown]
# ## The runners
#
# Each takes ids and a mask and gives logits. One thread each; OpenVINO would choose bf16 by itself, so its precision is
# named. Its third runner reads the int8 file of ONNX Runtime.

# %% tags=["measures"]
def in_torch(module):
    def run(ids, mask):
        with torch.inference_mode():
            return module(ids, mask)[0].float().numpy()

    return run


def in_onnxruntime(path):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return lambda ids, mask: session.run(["logits"], {"input_ids": ids.numpy(), "attention_mask": mask.numpy()})[0]


def in_openvino(graph, precision):
    compiled = openvino.Core().compile_model(graph, "CPU", {"INFERENCE_NUM_THREADS": 1, "INFERENCE_PRECISION_HINT": precision})
    return lambda ids, mask: compiled([ids.numpy(), mask.numpy()])[0]


def compiled_model():
    torch.compile(lambda x: torch.relu(x).sum())(torch.ones(64))  # compiles PyTorch's headers, once for all models
    in_layers = copy.deepcopy(model)
    for layer in in_layers.bert.encoder.layer:  # one graph for all layers
        layer.compile(dynamic=False)
    compiled = in_torch(in_layers)
    seconds = sum(cpu_seconds(lambda batch=batch: compiled(ids[:batch], mask[:batch]))[1] for batch in BATCHES)
    return compiled, seconds


def without_grad():
    def run(ids, mask):
        with torch.no_grad():
            return model(ids, mask)[0].numpy()

    return run


made, failed = {}, {}
RUNNERS = {
    "PyTorch, gradients on": (None, lambda: lambda ids, mask: model(ids, mask)[0].detach().numpy()),
    "PyTorch fp32": (None, lambda: in_torch(model)),
    "PyTorch bf16": ("bf16", lambda: in_torch(copy.deepcopy(model).to(torch.bfloat16))),
    "PyTorch int8": (None, lambda: in_torch(torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear}, dtype=torch.qint8))),
    "ONNX Runtime fp32": (no_onnx, lambda: in_onnxruntime(exported_path)),
    "ONNX Runtime int8": (no_int8, lambda: in_onnxruntime(int8_path)),
    "OpenVINO fp32": (no_openvino, lambda: in_openvino(openvino_model, "f32")),
    "OpenVINO bf16": (no_openvino or ("bf16" if "bf16" in LACKS else None), lambda: in_openvino(openvino_model, "bf16")),
    "OpenVINO, int8 of ONNX Runtime": (no_int8, lambda: in_openvino(int8_path, "f32")),
}
for label, (need, make) in RUNNERS.items():
    reason = LACKS.get(need, need) if need != "bf16" or need in LACKS else None
    runner, error = (None, reason) if reason else attempt(label, make)
    if runner:
        made[label] = runner
    else:
        failed[label] = error
compiled, failed["PyTorch compiled"] = (None, LACKS["compile"]) if "compile" in LACKS else attempt("torch.compile", compiled_model)
if compiled:
    made["PyTorch compiled"], compile_seconds = compiled
    del failed["PyTorch compiled"]

# %% [markdown]
# ## The same outputs?
#
# On logits of several shapes, against PyTorch in fp32: the largest difference, and the relative one of all together.

# %% tags=["measures"]
shapes = [(1, 7), (3, 33), (8, 64)]
reference = [made["PyTorch fp32"](ids[:rows, :length], mask[:rows, :length]) for rows, length in shapes]


def difference(runner):
    """(largest absolute, relative) difference from fp32 in PyTorch."""
    found = [runner(ids[:rows, :length], mask[:rows, :length]) - right for (rows, length), right in zip(shapes, reference)]
    return float(max(abs(one).max() for one in found)), float(np.linalg.norm(np.concatenate(found)) / np.linalg.norm(np.concatenate(reference)))


differences = {label: difference(runner) for label, runner in made.items() if label != "PyTorch compiled"}
differences["PyTorch compiled"] = (None, None)  # compiled for two shapes only; compared where it is timed
for name, label, most in (("onnx", "ONNX Runtime fp32", 1e-5), ("openvino", "OpenVINO fp32", 1e-4)):
    claim(f"{name}-difference", f"Largest difference of a logit in {label} from PyTorch, 12 texts of 3 lengths, {WHAT.split(',')[0]}",
          differences[label][0] if label in made else None, kind="measured", at_most=most, because=failed.get(label))
for name, label, most in (("bf16", "PyTorch bf16", 10), ("int8", "PyTorch int8", 25), ("onnx-int8", "ONNX Runtime int8", 25),
                          ("openvino-bf16", "OpenVINO bf16", 10), ("openvino-int8", "OpenVINO, int8 of ONNX Runtime", 25)):
    claim(f"{name}-difference", f"Relative difference of all logits in {label} from PyTorch in fp32, random weights", 100 * differences[label][1] if label in made else None,
          "%", kind="measured", at_most=most, because=failed.get(label))

# %% [markdown]
# ## Speed

# %% tags=["measures"]
timings = {batch: interleaved({label: lambda runner=runner, batch=batch: runner(ids[:batch], mask[:batch]) for label, runner in made.items()},
                              repeats=12 if batch == 1 else 6) for batch in BATCHES}
best = {batch: {label: timing.best for label, timing in found.items()} for batch, found in timings.items()}
one, many = (best[batch] for batch in BATCHES)
order = [*RUNNERS, "PyTorch compiled"]
table(
    "encoders", f"{WHAT}",
    {"method": "Method", "one": "Batch 1, ms", "one_speed": "Batch 1, x the speed of PyTorch fp32", "many": f"Batch {BATCHES[1]}, ms",
     "many_speed": f"Batch {BATCHES[1]}, x the speed of PyTorch fp32", "difference": "Relative difference of the logits, %"},
    [{"method": label, "one": 1e3 * one[label] if label in made else None, "one_speed": one["PyTorch fp32"] / one[label] if label in made else None,
      "many": 1e3 * many[label] if label in made else None, "many_speed": many["PyTorch fp32"] / many[label] if label in made else None,
      "difference": 100 * differences[label][1] if label in made and differences[label][1] is not None else None} for label in order], kind="measured",
)


def speed_claims(name, label, one_bounds, many_bounds):
    for batch, bounds in zip(BATCHES, (one_bounds, many_bounds)):
        value = label in made
        claim(f"{name}-{'one' if batch == 1 else 'many'}", f"Speed of {label} against PyTorch fp32, batch {batch}, {WHAT}",
              best[batch]["PyTorch fp32"] / best[batch][label] if value else None, "x", kind="measured", at_least=bounds[0], at_most=bounds[1],
              spread=timings[batch][label].spread if value else None, because=failed.get(label))


speed_claims("grad", "PyTorch, gradients on", (0.6, 1.1), (0.6, 1.1))
speed_claims("bf16", "PyTorch bf16", (1.1, 8), (1.2, 8))
speed_claims("int8", "PyTorch int8", (1.2, 8), (1.2, 10))
speed_claims("compiled", "PyTorch compiled", (0.7, 2.5), (0.7, 2))
speed_claims("onnx", "ONNX Runtime fp32", (0.8, 4), (0.8, 4))
speed_claims("onnx-int8", "ONNX Runtime int8", (1.5, 12), (1.3, 12))
speed_claims("openvino", "OpenVINO fp32", (0.8, 5), (0.8, 5))
speed_claims("openvino-bf16", "OpenVINO bf16", (1.2, 10), (1.3, 12))
speed_claims("openvino-int8", "OpenVINO, int8 of ONNX Runtime", (0.4, 12), (0.4, 12))
claim("export-seconds", f"CPU time of the export to ONNX, {WHAT.split(',')[0]}", export_seconds, "s", kind="measured", at_least=0.5, at_most=60, because=no_onnx)
claim("convert-seconds", f"CPU time of the conversion to OpenVINO, {WHAT.split(',')[0]}", convert_seconds, "s", kind="measured", at_least=0.2, at_most=30, because=no_openvino)
claim("compile-seconds", f"CPU time of compiling one layer for all, for batch 1 and {BATCHES[1]}, {WHAT.split(',')[0]}", compile_seconds if compiled else None, "s",
      kind="measured", at_least=1, at_most=120, because=failed.get("PyTorch compiled"))


def megabytes(*names):
    return sum((FOLDER / name).stat().st_size for name in names if (FOLDER / name).exists()) / 1e6


claim("onnx-int8-size", "Size of the int8 file of ONNX Runtime against the fp32 one", megabytes("int8.onnx") / megabytes("model.onnx", "model.onnx.data") if int8_path else None,
      "x", kind="measured", at_least=0.2, at_most=0.45, because=no_int8)

# %% [markdown]
# ## Padding
#
# What is padded is computed. Texts of mixed length, padded to 256, to the longest of the batch, and in two batches by length.

# %% tags=["measures"]
lengths = torch.tensor([12, 20, 25, 30, 40, 60, 75, 90])
texts = torch.randint(5, 8192, (8, 256), generator=torch.Generator().manual_seed(1))
real = (torch.arange(256) < lengths[:, None]).long()
run = made["PyTorch fp32"]
padded = interleaved({
    "fixed": lambda: run(texts, real), "longest": lambda: run(texts[:, :90], real[:, :90]),
    "sorted": lambda: (run(texts[:4, :30], real[:4, :30]), run(texts[4:, :90], real[4:, :90])),
}, repeats=3)
claim("padding-longest", "Speed when 8 texts of 12 to 90 tokens are padded to the longest, against 256", padded["fixed"].best / padded["longest"].best, "x",
      kind="measured", at_least=1.8, at_most=6, spread=padded["longest"].spread)
claim("padding-sorted", "Speed when they also run as two batches by length, against one batch padded to the longest", padded["longest"].best / padded["sorted"].best, "x",
      kind="measured", at_least=1.05, at_most=2.5, spread=padded["sorted"].spread)

# %% [markdown]
# ## torch.compile for a decoder
#
# A small Llama generates with a static cache, whose shapes do not change: the forward pass for one token is compiled. The prompt
# runs as it is, since each length would be compiled anew. `generate` does the same on a GPU, and compiles nothing by itself on a CPU.

# %% tags=["measures"]
set_seed(0)
llama = LlamaForCausalLM(LlamaConfig(
    hidden_size=256, intermediate_size=768, num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=4, vocab_size=2048,
    bos_token_id=None, eos_token_id=None, pad_token_id=0,
)).eval()
prompt = ids[:1, :32] % 2048


def generating(model):
    def generate():
        with torch.inference_mode():
            return model.generate(prompt, max_new_tokens=24, do_sample=False, cache_implementation="static")

    return generate


def compiled_llama():
    torch._dynamo.reset()
    model = copy.deepcopy(llama)
    eager, one_token = model.forward, torch.compile(model.forward, dynamic=False)

    @functools.wraps(eager)
    def forward(**inputs):
        return (one_token if inputs["input_ids"].shape[1] == 1 else eager)(**inputs)

    model.forward = forward
    return generating(model), cpu_seconds(generating(model))[1]


fast, not_compiled = (None, LACKS["compile"]) if "compile" in LACKS else attempt("torch.compile of a decoder", compiled_llama)
generated = interleaved({"eager": generating(llama)} | ({"compiled": fast[0]} if fast else {}), repeats=6)
DECODER = "Llama of 1 layer and hidden size 256, 32 + 24 tokens, static cache, fp32, 1 thread"
claim("decoder-compiled", f"Speed of generate with the forward pass of one token compiled against eager, {DECODER}",
      generated["eager"].best / generated["compiled"].best if fast else None, "x", kind="measured", at_least=0.8, at_most=6,
      spread=generated["compiled"].spread if fast else None, because=not_compiled)
claim("decoder-compile-seconds", f"CPU time of the first compiled generate, {DECODER}", fast and fast[1], "s", kind="measured", at_least=2, at_most=150, because=not_compiled)
claim("decoder-compiled-same", f"Tokens of 24 that the compiled model generates as the eager one does, {DECODER}",
      (fast[0]()[0, 32:] == generating(llama)()[0, 32:]).sum().item() if fast else None, "tokens", kind="measured", at_least=20, at_most=24, because=not_compiled)

# %% [markdown]
# ## The int8 that ONNX Runtime refuses
#
# What it says to the file as exported:

# %% tags=["measures"]
print(int8_refused)
claim("int8-as-exported", "Ways to int8 of ONNX Runtime that fail on the file as torch.onnx.export writes it, of 1", int(bool(int8_refused)) if exported else None,
      kind="measured", at_least=1, at_most=1, because=no_onnx)
