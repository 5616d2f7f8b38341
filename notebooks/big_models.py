# ---
# jupyter:
#   runs_on: cpu, host memory and disk are the question
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
# # Big models
#
# **What does it cost to open a model that is larger than the memory you want to spend on it?**
#
# Three things can be large: the memory of the process that loads, the bytes that the disk has to deliver, and the
# seconds until the first token. They have different causes, so they are counted apart.
#
# What to expect. A safetensors file is mapped and not copied, so opening it should need almost no memory of the
# process, until something changes the numbers: another dtype, or a file that has to be unpickled. What is not resident
# must come from somewhere, for every token again. So a token of an offloaded model should cost bytes divided by
# bandwidth, and nothing that software does makes it faster than that.
#
# The first half is arithmetic on models of full size, on the meta device. The second half writes a checkpoint of an
# 8-billion-parameter Llama to the disk of this machine and runs it, in less memory than it has bytes. It needs Linux,
# and free disk for one and a half times that checkpoint.

# %%
# Installs what this notebook needs where it is not there yet (Colab, an empty folder). Colab's torch stays as it is.
import importlib.util
import os
import subprocess
import sys

PINS = {"transformers": "5.23.0", "accelerate": "1.15.0"}
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
import json
import logging
import shutil
import tempfile
import time
from pathlib import Path

os.environ["CUDA_VISIBLE_DEVICES"] = ""  # host memory and disk are the question, also on a machine with a GPU
logging.disable(logging.WARNING)
os.chdir(tempfile.mkdtemp())  # for the checkpoints, which go when they have been used

import matplotlib.pyplot as plt
import torch
from accelerate import infer_auto_device_map, init_empty_weights
from accelerate.commands.estimate import estimate_training_usage
from accelerate.utils import calculate_maximum_sizes
from transformers import AutoModelForCausalLM, GPTNeoXConfig, LlamaConfig, OPTConfig

from dryrun.tables.hardware import LINKS
from dryrun.tracing import training_step
from evidence import plots
from evidence.claims import claim, start, table

plots.set_up("big_models")
start("big_models", packages=("accelerate", "safetensors"))
GB, GiB = 1e9, 2**30

# %% [markdown]
# ## A model without memory
#
# On the *meta* device a tensor has a shape and a dtype, and no data. So a model of any size is built in a moment, and
# whatever depends on shapes alone can be asked: parameters, bytes, which layer is largest.
#
# `init_empty_weights` puts only parameters there. Buffers such as the rotary frequencies are in no checkpoint, and keep
# their values.

# %%
WIDE = {"vocab_size": 128256, "num_key_value_heads": 8, "tie_word_embeddings": False, "dtype": torch.bfloat16}
llama_8b = LlamaConfig(
    hidden_size=4096, intermediate_size=14336, num_hidden_layers=32, num_attention_heads=32, **WIDE)
llama_70b = LlamaConfig(
    hidden_size=8192, intermediate_size=28672, num_hidden_layers=80, num_attention_heads=64, **WIDE)


def empty(config):
    with init_empty_weights():
        return AutoModelForCausalLM.from_config(config)


def parameters(model):
    return sum(parameter.numel() for parameter in model.parameters())


models = {"Llama 8B": empty(llama_8b), "Llama 70B": empty(llama_70b)}
sizes = {name: parameters(model) for name, model in models.items()}
BYTES = {"fp32": 4, "bf16": 2, "int8": 1, "int4": 0.5}
table("sizes", "Weights by dtype: parameters times bytes, without the scales of quantized formats",
      {"model": "Model", "parameters": "Parameters, billion", **{dtype: f"{dtype}, GB" for dtype in BYTES}},
      [{"model": name, "parameters": number / 1e9} | {dtype: number * each / GB for dtype, each in BYTES.items()}
       for name, number in sizes.items()], kind="derived")

# %%
eight, seventy = sizes.values()
claim("eight-bf16", "Weights of a Llama of 8 billion parameters in bf16", eight * 2 / GB, "GB",
      kind="derived", at_least=16, at_most=16.2)
claim("eight-fp32", "Weights of a Llama of 8 billion parameters in fp32", eight * 4 / GB, "GB",
      kind="derived", at_least=32, at_most=32.4)
claim("seventy-bf16", "Weights of a Llama of 70 billion parameters in bf16", seventy * 2 / GB, "GB",
      kind="derived", at_least=140, at_most=142)
claim("seventy-int4", "Weights of a Llama of 70 billion parameters in 4 bits, without scales", seventy / 2 / GB, "GB",
      kind="derived", at_least=35, at_most=36)

# %% [markdown]
# ## Where the layers would go
#
# `device_map="auto"` fills the first GPU, then the next, then the host, then the disk. The same function runs on an
# empty model and with memory that this machine does not have. So ask it before you download anything: here 70 billion
# parameters in bf16, one GPU of the 24-GB class with a little left for activations, and a host with four times that.
#
# Expect less on the GPU than it has room for. A layer that is not there has to pass through it, so room for the largest block
# stays free.

# %%
room = {0: 22 * GiB, "cpu": 96 * GiB}
big = models["Llama 70B"]
placed = infer_auto_device_map(big, max_memory=room, no_split_module_classes=big._no_split_modules)
on = {}
for module, device in placed.items():
    used = sum(tensor.numel() * tensor.element_size() for tensor in big.get_submodule(module).parameters())
    found = on.setdefault(device, {"layers": 0, "bytes": 0})
    found["layers"] += ".layers." in module
    found["bytes"] += used
_, (largest, _) = calculate_maximum_sizes(big)
NAMES = {0: "GPU, 22 GiB", "cpu": "host, 96 GiB", "disk": "disk"}
table("placed", "Where device_map='auto' puts a Llama 70B in bf16",
      {"device": "Device", "layers": "Layers", "held": "Weights, GiB"},
      [{"device": NAMES[device], "layers": found["layers"], "held": found["bytes"] / GiB}
       for device, found in on.items()], kind="derived")
claim("largest-block", "Largest block of a Llama of 70 billion parameters in bf16, which a device must have room for",
      largest / GiB, "GiB", kind="derived", at_least=1.5, at_most=2.5)
claim("map-gpu", "Layers of a Llama 70B in bf16 that device_map puts on a GPU with 22 GiB for weights",
      on[0]["layers"], "layers", kind="derived", at_least=8, at_most=13)
claim("map-host", "Layers of a Llama 70B in bf16 that device_map puts on a host with 96 GiB",
      on["cpu"]["layers"], "layers", kind="derived", at_least=50, at_most=62)

# %% [markdown]
# ## What a token costs that has to fetch its weights
#
# A decoder reads all weights for each new token. What lies on the host crosses PCIe, what lies on a disk crosses the
# disk, every time. No cache helps, since the GPU has no room for what it fetched last time. So the least time of a token
# is bytes divided by bandwidth.
#
# An NVMe disk has four lanes of PCIe, a quarter of the sixteen of a GPU. The rates are peaks: real transfers are slower.

# %%
RATES = {"host, PCIe 3 x16": "PCIe 3 x16", "host, PCIe 4 x16": "PCIe 4 x16", "host, PCIe 5 x16": "PCIe 5 x16",
         "NVMe, PCIe 4 x4": "PCIe 4 x16", "network disk, 10 GbE": "10 GbE"}
away = {"all of Llama 8B": 2 * eight, "Llama 70B beyond 22 GiB": 2 * seventy - on[0]["bytes"]}


def rate(place):
    """GB/s at the peak."""
    return LINKS[RATES[place]].gb_per_s / (4 if "x4" in place else 1)


table("token", "Least seconds of one token whose weights are fetched, bf16, batch 1: bytes / peak bandwidth",
      {"place": "Weights come from", "rate": "GB/s", "eight": "All of Llama 8B, s",
       "seventy": "Llama 70B beyond 22 GiB, s"},
      [{"place": place, "rate": rate(place), "eight": 2 * eight / GB / rate(place),
        "seventy": away["Llama 70B beyond 22 GiB"] / GB / rate(place)} for place in RATES],
      kind="derived", source=LINKS["PCIe 4 x16"].source)
far = away["Llama 70B beyond 22 GiB"] / GB
claim("away", "Weights of a Llama 70B in bf16 that do not lie on a GPU with 22 GiB", far, "GB",
      kind="derived", at_least=115, at_most=125)
for key, place, low, high in (("host", "host, PCIe 4 x16", 3.5, 4.2), ("disk", "NVMe, PCIe 4 x4", 14, 17)):
    claim(f"token-{key}", f"Least time of a token of a Llama 70B in bf16 on a GPU with 22 GiB, the rest on: {place}",
          far / rate(place), "s", kind="derived", at_least=low, at_most=high)

# %% [markdown]
# Loading is the same division, once: the least time to load is the size of the files over the slowest link on their way.

# %%
DISKS = {"NVMe, PCIe 4 x4": rate("NVMe, PCIe 4 x4"), "network disk, 25 GbE": LINKS["25 GbE"].gb_per_s,
         "network disk, 10 GbE": rate("network disk, 10 GbE")}
table("load", "Least seconds to read a bf16 checkpoint once: bytes / peak bandwidth",
      {"place": "Files lie on", "rate": "GB/s", "eight": "Llama 8B, s", "seventy": "Llama 70B, s"},
      [{"place": place, "rate": each, "eight": 2 * eight / GB / each, "seventy": 2 * seventy / GB / each}
       for place, each in DISKS.items()], kind="derived", source=LINKS["10 GbE"].source)
for key, place, low, high in (("nvme", "NVMe, PCIe 4 x4", 16, 20), ("network", "network disk, 10 GbE", 105, 120)):
    claim(f"load-{key}", f"Least time to read a Llama 70B in bf16 from: {place}", 2 * seventy / GB / DISKS[place], "s",
          kind="derived", at_least=low, at_most=high)

# %% [markdown]
# Two sums to check yourself: a model of 32 billion parameters in bf16 beside a GPU that keeps a third of it, and the cache
# of a model with as many key heads as query heads.

# %%
keeps = 20
beyond = 32 * 2 - keeps
claim("quiz-beyond", "Weights of 32 billion parameters in bf16 beyond those that a GPU of the 24-GB class keeps",
      beyond, "GB", kind="derived", at_least=44, at_most=44)
claim("quiz-token", "Least time of a token whose weights beyond the GPU's cross PCIe 4, 32 billion parameters in bf16",
      beyond / LINKS["PCIe 4 x16"].gb_per_s, "s", kind="derived", at_least=1.3, at_most=1.5)
claim("quiz-int4", "Weights of a model of 32 billion parameters in 4 bits, without scales", 32 / 2, "GB",
      kind="derived", at_least=16, at_most=16)
claim("quiz-cache", "Cache of 2,000 tokens in 16 bits, 40 layers of width 5,120 without grouped heads",
      2 * 40 * 5120 * 2 * 2000 / GB, "GB", kind="derived", at_least=1.6, at_most=1.7)

# %% [markdown]
# ### Does the arithmetic hold?
#
# Accelerate's authors published seconds per token for two Titan RTX, which have PCIe 3. They
# give what lies on the GPUs and on the host; the rest of the weights lies on the disk.
#
# If bandwidth decides, the time is above the floor of the link, and the disk's rate comes out the same for both models
# that use it.

# %%
BENCHMARK = ("https://github.com/huggingface/accelerate/blob/16cb6eb80dd9aa8b4df1a63ef57863e455d53b83/"
             "benchmarks/big_model_inference/README.md")
opt = parameters(empty(OPTConfig(hidden_size=7168, num_hidden_layers=48, num_attention_heads=56, ffn_dim=28672,
                                 word_embed_proj_dim=7168)))
neox = parameters(empty(GPTNeoXConfig()))
PUBLISHED = {  # model: bytes of its weights, GB on the GPUs, GB on the host, seconds per token
    "OPT-30B, fp16": (2 * opt, 20.7 + 22.3, 14.1, 2.37),
    "GPT-NeoX-20B, fp32": (4 * neox, 20.3 + 22.7, 24.4, 10.72),
    "OPT-30B, fp32": (4 * opt, 20.2 + 21.2, 23.5, 33.9),
}
pcie = LINKS["PCIe 3 x16"].gb_per_s

# %%
rows = []
for name, (size, gpus, host, seconds) in PUBLISHED.items():
    disk = max(0, size / GB - gpus - host) if "fp32" in name else 0
    floor = host / pcie
    rows.append({"model": name, "host": host, "disk": disk or None, "seconds": seconds, "floor": floor,
                 "rate": disk / (seconds - floor) if disk else None})
table("published", "Published seconds per token on two Titan RTX, against the floor of PCIe 3",
      {"model": "Model", "host": "On the host, GB", "disk": "On the disk, GB", "seconds": "Published, s per token",
       "floor": "Host bytes / PCIe 3, s", "rate": "Disk, GB/s, if the rest is the disk"},
      rows, kind="derived", source=BENCHMARK)

# %%
claim("published-host", "Seconds per token of OPT-30B in fp16 on two Titan RTX, a part on the host",
      rows[0]["seconds"], "s", kind="cited", source=BENCHMARK)
claim("published-disk", "Seconds per token of OPT-30B in fp32 on two Titan RTX, half of it on the disk",
      rows[2]["seconds"], "s", kind="cited", source=BENCHMARK)
claim("published-above", "Published time per token of OPT-30B in fp16 against the floor of PCIe 3",
      rows[0]["seconds"] / rows[0]["floor"], "x", kind="derived", at_least=2, at_most=3.5, source=BENCHMARK)
for key, row in (("neox", rows[1]), ("opt", rows[2])):
    claim(f"disk-rate-{key}", f"Rate of the disk that the published time of {row['model']} implies", row["rate"],
          "GB/s", kind="derived", at_least=1.3, at_most=2, source=BENCHMARK)

# %% [markdown]
# It holds in order of magnitude: above the floor over PCIe, and about the same disk in both rows. Copies
# from pageable memory and one layer after the other, without prefetching, take the rest.
#
# ## What an estimate leaves out
#
# `accelerate estimate-memory` multiplies parameters by bytes. Its formula for training is importable and needs no
# network. The traced step counts what a training step really holds at its peak.
#
# Expect them to agree where weights, gradients and optimizer are all there is, and to part where anything else counts:
# activations, 16-bit copies, a column that means something else than its name.

# %%
whole = 4 * eight
BF16 = torch.bfloat16
traces = {
    "float32": {length: training_step(AutoModelForCausalLM, llama_8b, 1, length) for length in (512, 4096)},
    "float16": {length: training_step(AutoModelForCausalLM, llama_8b, 1, length, autocast=BF16)
                for length in (512, 4096)},
}
formula = {column: max(estimate_training_usage(whole, column).values()) for column in traces}
ROWS = {"float32": "float32: fp32 training", "float16": "float16: 16-bit mixed precision"}
table("estimates", "Training a Llama 8B with AdamW at batch 1: accelerate's formula against the traced peak",
      {"column": "Column of estimate-memory", "formula": "Formula, GiB", "short": "Traced, 512 tokens, GiB",
       "long": "Traced, 4,096 tokens, GiB"},
      [{"column": ROWS[column], "formula": formula[column] / GiB, "short": found[512].peak_gib,
        "long": found[4096].peak_gib} for column, found in traces.items()], kind="traced")

# %%
claim("estimate-mixed", "Traced peak of a mixed-precision step, Llama 8B at 512 tokens, against accelerate's formula",
      traces["float16"][512].peak / formula["float16"], "x", kind="traced", at_least=1.9, at_most=2.2)
claim("estimate-fp32", "Traced peak of a step in fp32, Llama 8B at 4,096 tokens against accelerate's formula",
      traces["float32"][4096].peak / formula["float32"], "x", kind="traced", at_least=1.0, at_most=1.8)
cache = 2 * llama_8b.num_hidden_layers * llama_8b.num_key_value_heads * llama_8b.head_dim * 2  # bytes of a token
claim("cache-token", "Key-value cache of one token of a Llama 8B in bf16", cache / 2**10, "KiB",
      kind="derived", at_least=128, at_most=128)
claim("cache-long", "Key-value cache of 131,072 tokens of a Llama 8B in bf16", cache * 131072 / GiB, "GiB",
      kind="derived", at_least=16, at_most=16)

# %% [markdown]
# ## A checkpoint larger than the memory it may use
#
# From here on this machine works. Programs run as processes of their own, and this notebook watches them from outside:
# every few milliseconds it reads how much memory of theirs is *anonymous*, that is, backed by no file. The system can
# drop a page of a mapped file and read it again; anonymous memory is what kills a process.
#
# The first program writes a checkpoint file by file, from an empty model. Each layer gets random numbers, is written,
# and is forgotten. The block of random numbers is repeated, which changes neither sizes nor times.

# %% tags=["measures"]
# %%writefile write.py
"""Writes random weights, one file for each layer. Usage: write.py FOLDER, which holds a config.json."""
import json, sys
from pathlib import Path
import torch
from accelerate import init_empty_weights
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM

folder = Path(sys.argv[1])
config = AutoConfig.from_pretrained(folder)
with init_empty_weights():
    shapes = AutoModelForCausalLM.from_config(config).state_dict()
if config.tie_word_embeddings:
    del shapes["lm_head.weight"]  # is the embedding
block = torch.empty(2**26, dtype=torch.bfloat16).normal_(std=0.02)


def weight(shape):
    return block.repeat(-(-shape.numel() // len(block)))[: shape.numel()].view(shape.shape).clone()


files = {}
for name in shapes:
    files.setdefault(".".join(name.split(".")[:3]), []).append(name)

# %% [markdown]
# Then the files, and the index that says which file holds which weight. It is what makes a folder of files one model.

# %% tags=["measures"]
# %%writefile -a write.py

index = {"metadata": {"total_size": sum(2 * shape.numel() for shape in shapes.values())}, "weight_map": {}}
for number, names in enumerate(files.values(), 1):
    file = f"model-{number:05}-of-{len(files):05}.safetensors"
    save_file({name: weight(shapes[name]) for name in names}, folder / file, metadata={"format": "pt"})
    index["weight_map"] |= dict.fromkeys(names, file)
(folder / "model.safetensors.index.json").write_text(json.dumps(index))
print(json.dumps({"bytes": index["metadata"]["total_size"]}))

# %% [markdown]
# What watches. `/proc/PID/statm` holds two numbers in pages: all that is resident, and what of it belongs to files or is
# shared. The difference is anonymous. A process is compared with itself before it opened anything.

# %% tags=["measures"]
PAGE = os.sysconf("SC_PAGE_SIZE")
CLEAN = os.environ | {"HF_HUB_OFFLINE": "1", "TQDM_DISABLE": "1", "TRANSFORMERS_VERBOSITY": "error"}


def memory(pid):
    """Bytes of a process: all that is resident, and what no file backs."""
    resident, shared = Path(f"/proc/{pid}/statm").read_text().split()[1:3]
    return PAGE * int(resident), PAGE * (int(resident) - int(shared))

# %% tags=["measures"]
def watched(*commands, timeout=1800):
    """Runs programs side by side; returns the JSON of their last lines, with the peaks `resident` and `anonymous`.

    Where a program makes a file whose name is its process id, its peaks count from then on.
    """
    with open("errors.txt", "w") as errors:
        jobs = [subprocess.Popen([sys.executable, *map(str, command)], env=CLEAN | extra, stdout=subprocess.PIPE,
                                 stderr=errors, text=True) for command, extra in commands]
    peaks, end = {}, time.monotonic() + timeout
    try:
        while any(job.poll() is None for job in jobs) and time.monotonic() < end:
            for job in jobs:
                if job.poll() is None:
                    key = (job, Path(str(job.pid)).exists())
                    peaks[key] = tuple(map(max, peaks.get(key, (0, 0)), memory(job.pid)))
            time.sleep(0.005)
    finally:
        for job in jobs:
            job.kill()
    if any(job.wait() for job in jobs):
        raise RuntimeError(f"{commands}: {Path('errors.txt').read_text()[-3000:]}")
    return [result(job, *(peaks.get((job, True)) or peaks[job, False])) for job in jobs]


def result(job, resident, anonymous):
    said = json.loads(job.stdout.read().strip().splitlines()[-1])
    return said | {"resident": resident, "anonymous": anonymous - said.get("before", 0)}

# %% [markdown]
# A file that was just written lies in the page cache, and a second reading is not a reading. So before a cold run the
# files are written out and their pages given back.

# %% tags=["measures"]
def cold(folder):
    """Makes the system forget what it has read of a folder."""
    for path in Path(folder).glob("*"):
        file = os.open(path, os.O_RDONLY)
        os.fsync(file)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)


if sys.platform != "linux":
    raise SystemExit("from here on this notebook reads /proc, which only Linux has")
free = os.statvfs(".").f_bavail * os.statvfs(".").f_frsize
if free < 19 * GB:
    raise SystemExit(f"{os.getcwd()} has {free / GB:.0f} GB of free disk, and the checkpoint needs 19: set TMPDIR")
llama_8b.save_pretrained("eight")
written, = watched((["write.py", "eight"], {}))
SIZE = written["bytes"]
claim("write-peak", "Peak of all resident memory of a process that writes an 8B checkpoint layer by layer, of its size",
      100 * written["resident"] / SIZE, "%", kind="measured", at_least=2, at_most=25)

# %% [markdown]
# ### Opened, mapped, offloaded, run
#
# The second program opens the checkpoint twice. First as `from_pretrained` does on a CPU by default, to see what opening
# alone costs. Then with room for little more than the embedding on the host and the rest on the disk, and it generates two tokens.
#
# Layers that lie on the disk are read from the checkpoint itself when their turn comes. Nothing is written to an offload
# folder, because safetensors files can be read where they are.

# %% tags=["measures"]
# %%writefile run.py
"""Opens a checkpoint, offloaded or not, and generates from it. Usage: run.py FOLDER whole|offloaded"""
import json, sys, time
from pathlib import Path
import torch
from accelerate import init_empty_weights
from transformers import AutoConfig, AutoModelForCausalLM


def read():
    """Bytes that the disk has delivered to this process, mapped pages included."""
    return int(Path("/proc/self/io").read_text().split("\nread_bytes: ")[1].split()[0])


folder, way = sys.argv[1:]
with init_empty_weights():  # imports the model's code, which is no part of loading
    AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder))
started, first = time.perf_counter(), read()
options = {"device_map": "auto", "max_memory": {"cpu": "2GiB"}} if way == "offloaded" else {}
model = AutoModelForCausalLM.from_pretrained(folder, **options)
said = {"seconds": time.perf_counter() - started, "read": read() - first, "dtype": str(model.dtype)}
if way == "offloaded":
    said["passes"] = []
    for _ in range(2):  # one token: a pass over the prompt, which reads all weights
        started, first = time.perf_counter(), read()
        model.generate(torch.arange(16)[None], max_new_tokens=1, do_sample=False)
        said["passes"].append({"seconds": time.perf_counter() - started, "read": read() - first})
print(json.dumps(said))

# %% tags=["measures"]
cold("eight")
opened, = watched((["run.py", "eight", "whole"], {}))
cold("eight")
ran, = watched((["run.py", "eight", "offloaded"], {}))
shutil.rmtree("eight")  # the largest thing on the disk
table("eight", "A checkpoint of a Llama 8B in bf16 on this machine, nothing of it in the page cache",
      {"step": "Step", "seconds": "Time, s", "read": "Read from the disk, GB", "peak": "Peak of all memory, GB"},
      [{"step": "open, mapped", "seconds": opened["seconds"], "read": opened["read"] / GB,
        "peak": opened["resident"] / GB},
       {"step": "open, disk offload", "seconds": ran["seconds"], "read": ran["read"] / GB, "peak": None}]
      + [{"step": f"token {number}, disk offload", "seconds": one["seconds"], "read": one["read"] / GB,
          "peak": ran["resident"] / GB if number == 2 else None} for number, one in enumerate(ran["passes"], 1)],
      kind="measured")

# %% tags=["measures"]
CONDITIONS = "Llama 8B in bf16, cold page cache"
first_token = ran["passes"][0]
claim("eight-size", "Size of the checkpoint that was opened and run", SIZE / GB, "GB", kind="measured",
      at_least=16, at_most=16.2)
claim("eight-open", f"Time to open a checkpoint, mapped: {CONDITIONS}", opened["seconds"], "s", kind="measured",
      at_least=0.01, at_most=60)
claim("eight-open-peak", f"Peak of all resident memory while a checkpoint is opened, of its size: {CONDITIONS}",
      100 * opened["resident"] / SIZE, "%", kind="measured", at_least=1, at_most=25)
claim("eight-peak", "Peak of all resident memory while a checkpoint is opened, offloaded to disk and run, of its size",
      100 * ran["resident"] / SIZE, "%", kind="measured", at_least=5, at_most=25)
claim("eight-read", f"Bytes that opening and one token read from the disk, of the checkpoint's size: {CONDITIONS}",
      100 * (ran["read"] + first_token["read"]) / SIZE, "%", kind="measured", at_least=75, at_most=125)
claim("eight-token", f"Time of one token with disk offload: {CONDITIONS}", first_token["seconds"], "s",
      kind="measured", at_least=2, at_most=600)
claim("eight-rate", f"Rate at which one token with disk offload reads: {CONDITIONS}",
      first_token["read"] / GB / first_token["seconds"], "GB/s", kind="measured", at_least=0.02, at_most=10)

# %% [markdown]
# ## Seven ways to load
#
# A Llama of 1.2 billion parameters, in bf16, as safetensors and as the older pickle, `pytorch_model.bin`. Each way is a
# process that opens the model, then runs it once on 16 tokens: what is only mapped has to be read then.
#
# Expect three groups. What maps needs no memory. What converts or copies needs the size of the result. What builds a
# model first and then copies into it holds both.

# %% tags=["measures"]
# %%writefile ways.py
"""Opens a checkpoint in one way, then runs it once. Usage: ways.py WAY"""
import json, sys, time
from pathlib import Path

import torch
from accelerate import init_empty_weights
from transformers import AutoConfig, AutoModelForCausalLM as Auto

folder = "bin" if sys.argv[1] in ("copied", "assigned", "pickled") else "one"
config = AutoConfig.from_pretrained(folder)


def empty():
    with init_empty_weights():
        return Auto.from_config(config)


def copied():
    model = Auto.from_config(config)
    model.load_state_dict(torch.load("bin/pytorch_model.bin"))
    return model


def assigned():
    model = empty()
    model.load_state_dict(torch.load("bin/pytorch_model.bin", mmap=True), assign=True)
    model.tie_weights()
    return model

# %% tags=["measures"]
# %%writefile -a ways.py


def figures(name, key):
    """A number of a file in /proc/self."""
    return int(Path(f"/proc/self/{name}").read_text().split(f"{key}:")[1].split()[0])


ways = {
    "copied": copied, "assigned": assigned,
    "pickled": lambda: Auto.from_pretrained(folder),
    "stored": lambda: Auto.from_pretrained(folder),
    "read": lambda: Auto.from_pretrained(folder, disable_mmap=True),
    "converted": lambda: Auto.from_pretrained(folder, dtype=torch.float32),
    "offloaded": lambda: Auto.from_pretrained(folder, device_map="auto", max_memory={"cpu": "1GiB"}),
}
empty()  # imports the model's code, which is no part of loading
before, begun = figures("status", "RssAnon") * 1024, figures("io", "\nread_bytes")
started = time.perf_counter()
model = ways[sys.argv[1]]()
opened = time.perf_counter()
with torch.inference_mode():
    model(torch.arange(16)[None])
print(json.dumps({"before": before, "open": opened - started, "first": time.perf_counter() - opened,
                  "read": figures("io", "\nread_bytes") - begun}))

# %% tags=["measures"]
# %%writefile pickle_it.py
"""Saves the model as earlier versions of transformers did."""
import json, torch
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("one")
torch.save(model.state_dict(), "bin/pytorch_model.bin")
print(json.dumps({"parameters": sum(parameter.numel() for parameter in model.parameters())}))

# %% [markdown]
# Each way runs cold and warm in turn, three times. The fastest counts: what disturbs a run only makes it slower. Memory is
# in sizes of the checkpoint, so that you can multiply it by the size of yours.

# %% tags=["measures"]
llama_1b = LlamaConfig(
    hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_attention_heads=32,
    **WIDE | {"tie_word_embeddings": True})
for folder in ("one", "bin"):
    llama_1b.save_pretrained(folder)
small, = watched((["write.py", "one"], {}))
watched((["pickle_it.py"], {}))
ONE = small["bytes"]
WAYS = {
    "copied": "build the model, torch.load, load_state_dict", "assigned": "empty model, torch.load(mmap=True), assign",
    "pickled": "from_pretrained, .bin", "stored": "from_pretrained, safetensors",
    "read": "from_pretrained, disable_mmap=True", "converted": "from_pretrained, dtype=float32",
    "offloaded": "from_pretrained, disk offload",
}
runs = {way: {"cold": [], "warm": []} for way in WAYS}
for _ in range(3):
    for way, found in runs.items():
        cold("one"), cold("bin")
        for state in ("cold", "warm"):
            found[state] += watched((["ways.py", way], {}))

# %% tags=["measures"] alt="Bars of peak memory over the checkpoint's size, by way of loading: building the model first and changing the dtype take most, memory-mapped files almost nothing."
def best(way, state, key):
    return min(run[key] for run in runs[way][state])


def total(way, state):
    """Seconds from the start of loading until the first pass is done."""
    return min(run["open"] + run["first"] for run in runs[way][state])


peaks = {way: max(run["anonymous"] for run in runs[way]["warm"]) / ONE for way in WAYS}
table("ways", "A Llama of 1.2 billion parameters stored in bf16, opened and run once on 16 tokens",
      {"way": "Way", "peak": "Peak of anonymous memory, x the checkpoint", "open_cold": "Open, cold, s",
       "open_warm": "Open, warm, s", "all_cold": "Open and run, cold, s", "all_warm": "Open and run, warm, s",
       "read": "Read from the disk, cold, x the checkpoint"},
      [{"way": words, "peak": peaks[way], "open_cold": best(way, "cold", "open"),
        "open_warm": best(way, "warm", "open"), "all_cold": total(way, "cold"), "all_warm": total(way, "warm"),
        "read": best(way, "cold", "read") / ONE} for way, words in WAYS.items()], kind="measured")
plots.bars({words: peaks[way] for way, words in WAYS.items()}, "peak of anonymous memory, x the checkpoint", baseline=1)

# %% tags=["measures"]
AT = "Llama of 1.2 billion parameters stored in bf16"
for key, way, least, most in (("copied", "copied", 1.8, 2.6), ("converted", "converted", 1.9, 2.8),
                              ("read", "read", 0.9, 2.3), ("stored", "stored", None, 0.3),
                              ("pickled", "pickled", None, 0.3), ("offloaded", "offloaded", None, 0.4)):
    claim(f"peak-{key}", f"Peak of anonymous memory, in sizes of the checkpoint: {WAYS[way]}, {AT}", peaks[way], "x",
          kind="measured", at_least=least, at_most=most)
opens = [run["open"] for run in runs["stored"]["warm"]]
claim("open-warm", f"Time to open a mapped checkpoint with a warm page cache: {AT}", min(opens), "s", kind="measured",
      at_least=0.001, at_most=5, spread={"min": min(opens), "max": max(opens), "repeats": len(opens)})
claim("cold-warm", f"Time to open and run once with a cold page cache against a warm one: from_pretrained, {AT}",
      total("stored", "cold") / total("stored", "warm"), "x", kind="measured", at_least=1.2, at_most=200)
claim("converted-warm", f"Time to open in fp32 against opening in the stored dtype, warm page cache: {AT}",
      best("converted", "warm", "open") / best("stored", "warm", "open"), "x", kind="measured",
      at_least=3, at_most=5000)
claim("copied-warm", f"Time to build, unpickle and copy against from_pretrained, both run once, warm page cache: {AT}",
      total("copied", "warm") / total("stored", "warm"), "x", kind="measured", at_least=2, at_most=500)
claim("read-cold", f"Bytes read from the disk to open and run once, of the checkpoint: from_pretrained, {AT}",
      100 * best("stored", "cold", "read") / ONE, "%", kind="measured", at_least=80, at_most=130)

# %% [markdown]
# ## Eight ranks, one copy
#
# Eight processes on one machine open the same files. `top` shows the mapped file under each of them, as if it were there
# eight times. The kernel's *proportional* size divides a shared page by those who share it, so its sum is what the
# machine really holds.

# %% tags=["measures"]
# %%writefile rank.py
"""Opens the checkpoint, runs it once, and waits to be looked at."""
import sys
from pathlib import Path
import torch
from accelerate import init_empty_weights
from transformers import AutoConfig, AutoModelForCausalLM

torch.set_num_threads(1)
with init_empty_weights():
    AutoModelForCausalLM.from_config(AutoConfig.from_pretrained("one"))
print(Path("/proc/self/smaps_rollup").read_text().replace("\n", ";"), flush=True)
model = AutoModelForCausalLM.from_pretrained("one")
with torch.inference_mode():
    model(torch.arange(16)[None])
print("ready", flush=True)
sys.stdin.read()

# %% tags=["measures"]
def rollup(text):
    """{name: bytes} of a smaps_rollup."""
    fields = (line.split() for line in text.replace(";", "\n").splitlines() if line.endswith(" kB"))
    return {field[0].rstrip(":"): 1024 * int(field[1]) for field in fields}


RANKS = 8
jobs = [subprocess.Popen([sys.executable, "rank.py"], env=CLEAN, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                         stderr=subprocess.DEVNULL, text=True) for _ in range(RANKS)]
try:
    before = [rollup(job.stdout.readline()) for job in jobs]
    assert all(job.stdout.readline() == "ready\n" for job in jobs)
    after = [rollup(Path(f"/proc/{job.pid}/smaps_rollup").read_text()) for job in jobs]
finally:
    for job in jobs:
        job.kill()


def grown(key):
    """How much all ranks together have grown since before they opened the model, in sizes of the checkpoint."""
    return sum(there[key] - here[key] for here, there in zip(before, after)) / ONE


ranks = {"what top adds up": grown("Rss"), "what the machine holds": grown("Pss"),
         "of it anonymous": grown("Pss_Anon")}
table("ranks", f"{RANKS} processes that map the same checkpoint and run it once, in sizes of the checkpoint",
      {"what": "Sum over all processes", "size": "x the checkpoint"},
      [{"what": what, "size": size} for what, size in ranks.items()], kind="measured")

# %% tags=["measures"]
claim("ranks-shown", "Resident memory that tools add up for 8 processes with one mapped checkpoint, in its sizes",
      ranks["what top adds up"], "x", kind="measured", at_least=6.5, at_most=10)
claim("ranks-held", "Memory that 8 processes with one mapped checkpoint really take, in its sizes",
      ranks["what the machine holds"], "x", kind="measured", at_least=0.8, at_most=2)
claim("ranks-converted", "Anonymous memory of 8 processes that each load the checkpoint in fp32, in its sizes",
      RANKS * peaks["converted"], "x", kind="measured", at_least=14, at_most=24)

# %% [markdown]
# ## Saving: who holds what at the peak
#
# A model of 0.1 billion parameters in fp32 with AdamW, sharded over two ranks. What is written is weights and both moments,
# once gathered on rank 0, once by each rank for itself. Then the shards are merged, in one process.
#
# The model is small on purpose. What is asked is how many copies exist, which does not depend on the size.

# %% tags=["measures"]
# %%writefile save.py
"""Shards a model over the ranks and saves it in one way. Usage: save.py full|sharded|weights"""
import json, os, sys
from pathlib import Path

import torch, torch.distributed as dist, torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, get_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from transformers import AutoConfig, AutoModelForCausalLM

way = sys.argv[1]
dist.init_process_group("gloo")
rank, mesh = dist.get_rank(), init_device_mesh("cpu", (dist.get_world_size(),))
model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained("small"))
size = sum(parameter.numel() for parameter in model.parameters())
for layer in model.model.layers:
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters())
for parameter in model.parameters():
    parameter.grad = torch.zeros_like(parameter)
optimizer.step()
optimizer.zero_grad()

# %% [markdown]
# The count begins when rank and optimizer hold their shards. What was freed before must have gone back to the system
# by then: `malloc_trim` does that.

# %% tags=["measures"]
# %%writefile -a save.py

import ctypes, gc

gc.collect()
ctypes.CDLL(None).malloc_trim(0)
before = int(Path("/proc/self/status").read_text().split("RssAnon:")[1].split()[0]) * 1024
Path(str(os.getpid())).touch()
dist.barrier()
if way == "full":
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    weights, moments = get_state_dict(model, optimizer, options=options)
    if rank == 0:
        torch.save({"model": weights, "optimizer": moments}, "full.pt")
elif way == "sharded":
    weights, moments = get_state_dict(model, optimizer)
    dcp.save({"model": weights, "optimizer": moments}, checkpoint_id="sharded")
else:
    writer = dcp.HuggingFaceStorageWriter("weights", save_distributed=True)
    dcp.save(get_model_state_dict(model), storage_writer=writer)
print(json.dumps({"before": before, "parameters": size}), flush=True)
end = dist.barrier(async_op=True)
end.wait()
dist.destroy_process_group()

# %% tags=["measures"]
# %%writefile merge.py
"""Merges what ranks have saved, or rewrites a pickle, in one process. Usage: merge.py pickled|streamed|safetensors"""
import json, os, sys
from pathlib import Path

import torch
from torch.distributed.checkpoint._consolidate_hf_safetensors import consolidate_safetensors_files
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from safetensors import safe_open
from transformers import AutoModelForCausalLM

way = sys.argv[1]
AutoModelForCausalLM.from_pretrained("small-saved")  # imports
before = int(Path("/proc/self/status").read_text().split("RssAnon:")[1].split()[0]) * 1024
Path(str(os.getpid())).touch()
if way == "pickled":
    dcp_to_torch_save("sharded", "merged.pt")
elif way == "streamed":
    Path("merged").mkdir()
    name_to_file = {}
    for path in Path("weights").glob("*.safetensors"):
        with safe_open(path, "pt") as file:
            name_to_file |= dict.fromkeys(file.keys(), 1)
    consolidate_safetensors_files("weights", "merged", name_to_file)
else:
    AutoModelForCausalLM.from_pretrained("bin").save_pretrained("rewritten", max_shard_size="500MB")
print(json.dumps({"before": before}))

# %% tags=["measures"]
small_llama = LlamaConfig(hidden_size=768, intermediate_size=2048, num_hidden_layers=8, num_attention_heads=12,
                          vocab_size=32000, tie_word_embeddings=False)
AutoModelForCausalLM.from_config(small_llama).save_pretrained("small-saved")
small_llama.save_pretrained("small")


def saved(way):
    """What each of two ranks needs on top of its shards, in bytes; and the parameters of the model."""
    world = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29517",
             "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    found = watched(*[(["save.py", way], world | {"RANK": str(rank), "LOCAL_RANK": str(rank)}) for rank in (0, 1)])
    return [rank["anonymous"] for rank in found], found[0]["parameters"]


(full, count), (sharded, _), (by_weights, _) = saved("full"), saved("sharded"), saved("weights")
merges = {way: watched((["merge.py", way], {}))[0]["anonymous"] for way in ("pickled", "streamed", "safetensors")}
for folder in ("one", "bin", "rewritten"):
    shutil.rmtree(folder)
STATE, WEIGHTS = 12 * count, 4 * count  # bytes: fp32 weights with two moments, and the weights alone

# %% tags=["measures"]
table("saving", "Peak of anonymous memory while saving, on top of what is held anyway, in sizes of what is written",
      {"way": "Way", "rank0": "Rank 0, or the one process", "rank1": "Rank 1"},
      [{"way": words, "rank0": extra[0] / size, "rank1": extra[1] / size if extra[1:] else None}
       for words, extra, size in (
           ("all gathered on rank 0, torch.save", full, STATE),
           ("each rank its shard, torch.distributed.checkpoint", sharded, STATE),
           ("each rank its weights, safetensors", by_weights, WEIGHTS),
           ("merge later, dcp_to_torch_save", [merges["pickled"]], STATE),
           ("merge later, consolidate_safetensors_files", [merges["streamed"]], WEIGHTS),
           ("rewrite a .bin as safetensors", [merges["safetensors"]], ONE))], kind="measured")
for key, value, what, least, most in (
    ("gathered", full[0] / STATE, "rank 0 while it gathers and saves weights and optimizer of two ranks", 0.9, 2.5),
    ("gathered-other", full[1] / STATE, "rank 1 while rank 0 gathers and saves", None, 0.6),
    ("sharded", max(sharded) / STATE, "a rank of two that saves its shard", None, 0.3),
    ("merged", merges["pickled"] / STATE, "a process that merges shards by dcp_to_torch_save", 0.9, 2.5),
    ("streamed", merges["streamed"] / WEIGHTS, "a process that merges safetensors shards file to file", None, 0.9),
    ("rewritten", merges["safetensors"] / ONE, "a process that rewrites a .bin as safetensors shards", None, 0.3),
):
    claim(f"save-{key}", f"Peak of anonymous memory, in sizes of what is written: {what}", value, "x",
          kind="measured", at_least=least, at_most=most)

# %% [markdown]
# ### What each file of a checkpoint weighs
#
# `Trainer` writes a folder. To go on training you need all of it, to use the model only the weights. A model with
# weights in fp32 and AdamW, after one step:

# %% tags=["measures"]
from transformers import Trainer, TrainingArguments

tiny = LlamaConfig(hidden_size=256, intermediate_size=688, num_hidden_layers=8, num_attention_heads=4, vocab_size=4000,
                   tie_word_embeddings=False)
model = AutoModelForCausalLM.from_config(tiny)
ids = torch.randint(0, 4000, (4, 32))
arguments = TrainingArguments("trained", max_steps=1, per_device_train_batch_size=4, use_cpu=True, report_to="none",
                              disable_tqdm=True, save_steps=1, logging_strategy="no")
Trainer(model=model, args=arguments, train_dataset=[{"input_ids": row, "labels": row} for row in ids]).train()
files = {path.name: path.stat().st_size for path in Path("trained/checkpoint-1").iterdir()}
NEEDED = {"model.safetensors": "use and resume", "optimizer.pt": "resume", "scheduler.pt": "resume",
          "rng_state.pth": "resume, the same random numbers", "trainer_state.json": "resume, the step"}
PARAMETERS = parameters(model)
table("files", f"What a checkpoint of Trainer holds, fp32 weights and AdamW, {PARAMETERS / 1e6:.0f} million parameters",
      {"file": "File", "bytes": "Bytes per parameter", "size": "kB", "needed": "Needed to"},
      [{"file": name, "bytes": files[name] / PARAMETERS, "size": files[name] / 1e3, "needed": words}
       for name, words in NEEDED.items()], kind="measured")
claim("file-weights", "Bytes per parameter of model.safetensors, fp32 weights",
      files["model.safetensors"] / PARAMETERS, "bytes", kind="measured", at_least=4, at_most=4.1)
claim("file-optimizer", "Bytes per parameter of optimizer.pt, AdamW on fp32 weights",
      files["optimizer.pt"] / PARAMETERS, "bytes", kind="measured", at_least=8, at_most=8.2)

# %% [markdown]
# ## Which of them is it for you?
#
# Seconds per token against bandwidth, for a model of which nothing is resident, and for one of 70 billion parameters
# beside a GPU. Both axes are logarithmic, so that time falls along a straight line as bandwidth grows.

# %% alt="Seconds per token against bandwidth on logarithmic axes: two parallel falling lines, the 70B one above."
figure, axes = plt.subplots(figsize=(7, 3))
places = sorted(RATES, key=rate)
for label, size in away.items():
    axes.plot([rate(place) for place in places], [size / GB / rate(place) for place in places], marker="o", label=label)
axes.set(xscale="log", yscale="log", xlabel="peak bandwidth, GB/s", ylabel="least seconds per token")
axes.set_xticks([rate(place) for place in places], [place.split(",")[-1].strip() for place in places], fontsize="small")
axes.minorticks_off()
axes.legend()
plt.show()

# %% [markdown]
# ## What came out, and what to do
#
# - **Keep the stored dtype and safetensors**, and opening is free: nothing is copied, and the bytes come when they are
#   used. A cold disk is what you then wait for.
# - **Another dtype costs memory and time**: the whole model is read, converted and held. Convert once, save, and load
#   the copy.
# - **A pickle is not the problem**, building a model and copying into it is. `from_pretrained` maps a `.bin` too.
# - **Many processes share a mapped file.** What tools add up is not what the machine holds.
# - **Offload runs what does not fit, at the speed of the link.** Divide bytes by bandwidth before you try, and expect
#   more than that.
# - **Save shards, merge later.** Gathering needs the whole state on one rank.

# %%
# Compares this run with the published records. In Colab it also offers the record of this machine, to send.
from evidence.finish import finish

finish()
