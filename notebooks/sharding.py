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
# # Sharding: ZeRO and FSDP2
#
# What each stage shards, what that takes off a GPU, what it sends, and what stays. Bytes that follow from the number of
# parameters are derived. Memory of billions of parameters is traced on a fake process group. Losses, time and host memory
# are measured in a real run of two processes, on GPUs where there are two, else on the CPU.

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
# And the packages of this notebook that are missing.
needs = {"deepspeed": "deepspeed==0.19.8", "ninja": "ninja"}
missing = [needed for name, needed in needs.items() if importlib.util.find_spec(name) is None]
if missing:
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", *missing], check=True)

# %%
import json
import logging
import tempfile
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from matplotlib_inline.backend_inline import set_matplotlib_formats

logging.disable(logging.WARNING)
warnings.simplefilter("ignore")

from transformers import AutoModelForCausalLM, FalconConfig, LlamaConfig

import evidence
from evidence.claims import claim, start, table
from evidence.launch import run_ranks
from dryrun.plan import LINKS
from dryrun.ranks import many_layers

set_matplotlib_formats("svg")
plt.rcParams["svg.hashsalt"] = "sharding"  # the same figure at every run
GB = 1e9
os.chdir(tempfile.mkdtemp())  # where the programs go
start("sharding")

# %% [markdown]
# ## Bytes per parameter
#
# AdamW in mixed precision holds a 16-bit weight, its 16-bit gradient, and the optimizer state: the fp32 weight and two fp32
# moments. Each stage of ZeRO divides one more of the three by the number of GPUs, d. FSDP2 holds as much in another way:
# weight, gradient and moments in fp32, all of it divided.

# %%
STAGES = {
    "DDP": ("2 + 2 + 12", lambda d: 2 + 2 + 12),
    "ZeRO-1": ("2 + 2 + 12/d", lambda d: 2 + 2 + 12 / d),
    "ZeRO-2": ("2 + (2 + 12)/d", lambda d: 2 + 14 / d),
    "ZeRO-3, FSDP2": ("(2 + 2 + 12)/d", lambda d: 16 / d),
}
GPUS = [2, 4, 8, 64]
table(
    "bytes-per-parameter", "Bytes per parameter on each of d GPUs, AdamW, mixed precision, without activations",
    {"stage": "Stage", "formula": "Weight + gradient + optimizer"} | {f"d{d}": f"{d} GPUs, bytes" for d in GPUS},
    [{"stage": name, "formula": formula} | {f"d{d}": bytes_of(d) for d in GPUS} for name, (formula, bytes_of) in STAGES.items()],
    kind="derived",
)
claim("zero1-eight", "Bytes per parameter with ZeRO-1 on 8 GPUs, AdamW, mixed precision",
      STAGES["ZeRO-1"][1](8), "bytes", kind="derived", at_least=5.5, at_most=5.5)
claim("zero-optimizer-eight", "Bytes per parameter with ZeroRedundancyOptimizer on 8 GPUs, AdamW, fp32 weights: weight + gradient + two moments / 8",
      4 + 4 + (4 + 4) / 8, "bytes", kind="derived", at_least=9, at_most=9)
claim("zero2-eight", "Bytes per parameter with ZeRO-2 on 8 GPUs, AdamW, mixed precision",
      STAGES["ZeRO-2"][1](8), "bytes", kind="derived", at_least=3.75, at_most=3.75)
claim("zero3-eight", "Bytes per parameter with ZeRO-3 or FSDP2 on 8 GPUs, AdamW, mixed precision",
      STAGES["ZeRO-3, FSDP2"][1](8), "bytes", kind="derived", at_least=2, at_most=2)

figure, axes = plt.subplots(figsize=(7, 3))
for (name, (_, bytes_of)), color in zip(STAGES.items(), ("#5f5f5f", "#0072b2", "#00805c", "#c45500")):
    axes.plot([1, *GPUS], [bytes_of(d) for d in [1, *GPUS]], marker="o", label=name, color=color)
axes.set(xscale="log", xlabel="GPUs", ylabel="bytes per parameter", ylim=(0, None))
axes.set_xticks([1, *GPUS], [str(d) for d in [1, *GPUS]])
axes.minorticks_off()
axes.legend(frameon=False)
plt.show()

# %% [markdown]
# ## Falcon-7B on 8 small A100
#
# DeepSpeed's own estimate is a little higher than the formula, which is that of the ZeRO paper. For ZeRO-2 it also counts
# gradients in fp32, for ZeRO-3 two more bytes per parameter and the largest layer in fp32.

# %%
from deepspeed.runtime.zero.stage3 import estimate_zero3_model_states_mem_needs
from deepspeed.runtime.zero.stage_1_and_2 import estimate_zero2_model_states_mem_needs

with torch.device("meta"):
    falcon = AutoModelForCausalLM.from_config(FalconConfig())  # the defaults of the class are those of Falcon-7B
parameters = sum(p.numel() for p in falcon.parameters())
largest = max(p.numel() for p in falcon.parameters())
estimates = {
    "DDP": "none given",
    "ZeRO-1": "none given",
    "ZeRO-2": estimate_zero2_model_states_mem_needs(parameters, 8, 1, cpu_offload=False)[1] / GB,
    "ZeRO-3, FSDP2": estimate_zero3_model_states_mem_needs(parameters, largest, 8, 1, cpu_offload=False, cpu_offload_params=False)[1] / GB,
}
table(
    "falcon", "Falcon-7B on each of 8 GPUs: weights, gradients, optimizer state, without activations",
    {"stage": "Stage", "states": "By the formula, GB", "estimate": "DeepSpeed's estimate, GB", "left": "Left of 40, GB"},
    [{"stage": name, "states": parameters * bytes_of(8) / GB, "estimate": estimates[name], "left": 40 - parameters * bytes_of(8) / GB}
     for name, (_, bytes_of) in STAGES.items()],
    kind="derived",
)
claim("falcon-parameters", "Parameters of Falcon-7B", parameters / 1e9, "billion", kind="traced", at_least=6.92, at_most=6.93)
claim("falcon-ddp", "Weights, gradients and optimizer state of Falcon-7B under DDP, mixed precision, AdamW",
      parameters * 16 / GB, "GB", kind="derived", at_least=110, at_most=111)
claim("falcon-zero2", "What DeepSpeed estimates for ZeRO-2 of Falcon-7B on each of 8 GPUs, without activations",
      estimates["ZeRO-2"], "GB", kind="derived", at_least=29, at_most=30)
claim("falcon-zero3", "What DeepSpeed estimates for ZeRO-3 of Falcon-7B on each of 8 GPUs, without activations",
      estimates["ZeRO-3, FSDP2"], "GB", kind="derived", at_least=16, at_most=17.5)

# %% [markdown]
# ## Two GPUs: DDP and FSDP2
#
# A Llama of 1.2 billion parameters, traced as rank 0 of 2: fp32 weights, bf16 compute. With short sequences the states are
# the peak, and they halve. With long ones the activations are, and nothing shards those.

# %%
llama_1b = LlamaConfig(
    vocab_size=128256, hidden_size=2048, intermediate_size=8192, num_hidden_layers=16,
    num_attention_heads=32, num_key_value_heads=8, tie_word_embeddings=True, use_cache=False,
)


def traced(strategy, ranks, batch, length, **options):
    return many_layers(AutoModelForCausalLM, llama_1b, strategy, ranks, batch, length, layers=(2, 4), **options)


def states(step):
    return sum(step.gib(category) for category in ("parameters", "gradients", "gradient buckets", "optimizer"))


BATCHES = {"1 x 512": (1, 512), "4 x 4,096": (4, 4096)}
CASES = [("DDP", "ddp", {"bucket_view": True}), ("FSDP2", "fsdp2", {})]
steps = {(name, batch): traced(strategy, 2, *size, **options) for name, strategy, options in CASES for batch, size in BATCHES.items()}
table(
    "two-gpus", "Peak memory of one of two GPUs, Llama-1B class, fp32 weights, bf16 compute, AdamW",
    {"batch": "Batch per GPU", "strategy": "Strategy", "peak": "Peak, GiB",
     "states": "States, GiB", "activations": "Activations, GiB", "rest": "The rest, GiB"},
    [{"batch": batch, "strategy": name, "peak": step.peak_gib, "states": states(step), "activations": round(step.gib("activations"), 3),
      "rest": step.peak_gib - states(step) - step.gib("activations")}
     for (name, batch), step in sorted(steps.items(), key=lambda item: list(BATCHES).index(item[0][1]))],
    kind="traced",
)


def saving(batch):
    return 100 * (1 - steps["FSDP2", batch].peak / steps["DDP", batch].peak)


claim("two-gpus-short", "What FSDP2 saves of the peak of DDP on 2 GPUs, Llama-1B class, 1 x 512 tokens per GPU",
      saving("1 x 512"), "%", kind="traced", at_least=40, at_most=55)
claim("two-gpus-long", "What FSDP2 saves of the peak of DDP on 2 GPUs, Llama-1B class, 4 x 4,096 tokens per GPU",
      saving("4 x 4,096"), "%", kind="traced", at_least=15, at_most=25)

# %% [markdown]
# ## What it sends
#
# DDP all-reduces the gradients. FSDP2 gathers the weights twice and reduce-scatters the gradients; the last group, the
# root's, it gathers once. An all-reduce is a reduce-scatter and an all-gather, so with one dtype that is three to two.
# But FSDP2 gathers weights in bf16, and both reduce gradients in fp32: then the bytes are about the same.

# %%
llama_8b = LlamaConfig(
    vocab_size=128256, hidden_size=4096, intermediate_size=14336, num_hidden_layers=32,
    num_attention_heads=32, num_key_value_heads=8, tie_word_embeddings=False, use_cache=False,
)


def sent(strategy, **options):
    return many_layers(AutoModelForCausalLM, llama_8b, strategy, 8, 1, 64, layers=(2, 4), **options).sent()


claim("sent-one-dtype", "Bytes that a GPU sends with FSDP2 against DDP, 8 GPUs, Llama-8B class, all in fp32",
      sent("fsdp2", compute=None) / sent("ddp", compute=None), "x", kind="traced", at_least=1.4, at_most=1.5)
claim("sent-mixed", "Bytes that a GPU sends with FSDP2 against DDP, 8 GPUs, Llama-8B class, bf16 weights gathered, fp32 gradients reduced",
      sent("fsdp2") / sent("ddp"), "x", kind="traced", at_least=0.92, at_most=1.0)

# %% [markdown]
# ## Slow links between nodes
#
# A model of 72 billion parameters on 4 nodes of 8 GPUs. All GPUs as one group: what every collective carries crosses the
# border of every node, in every micro-batch: to reduce once per step, each GPU would have to keep whole gradients. Shards
# inside a node and replicas across (HSDP): only the all-reduce of the gradients crosses, as 8 shards side by side, and once
# per optimizer step, since what waits for it are the parts (`set_requires_all_reduce`).

# %%
N, NODES, PER_NODE = 72.7e9, 4, 8
WORLD = NODES * PER_NODE
GATHER, REDUCE = 2, 4  # bytes per parameter: weights gathered in bf16, gradients reduced in fp32


def one_group(micro_batches):
    """Bytes that leave a node in an optimizer step."""
    return (WORLD - 1) / WORLD * N * (2 * GATHER + REDUCE) * micro_batches


def hybrid(micro_batches):
    return 2 * (NODES - 1) / NODES * N * REDUCE


def hpz(micro_batches, reduce=REDUCE):
    """ZeRO++: of the gathers only that of the first forward pass after an optimizer step crosses; the others take the copy."""
    return (WORLD - 1) / WORLD * N * (GATHER + reduce * micro_batches)


def hpz_by_default(micro_batches):
    """DeepSpeed reduces gradients in the dtype of the model, unless `communication_data_type` says otherwise."""
    return hpz(micro_batches, reduce=2)


LINK, _ = LINKS["100 GbE"]
HPZ = N * (16 / WORLD + 2 / PER_NODE)
WAYS = [("one group of 32", one_group, N * 16 / WORLD), ("ZeRO++ hpZ", hpz, HPZ), ("ZeRO++ hpZ, gradients reduced in bf16", hpz_by_default, HPZ),
        ("HSDP", hybrid, N * 16 / PER_NODE)]
table(
    "nodes", "72B on 4 nodes of 8 GPUs: bytes that leave each node in an optimizer step, and the time of that at 100 Gbit/s per node",
    {"way": "Way", "states": "States per GPU, GB", "one": "1 micro-batch, GB", "seconds": "1 micro-batch, s",
     "sixteen": "16 micro-batches, GB", "sixteen_seconds": "16 micro-batches, s"},
    [{"way": way, "states": states / GB, "one": crossing(1) / GB, "seconds": crossing(1) / GB / LINK,
      "sixteen": crossing(16) / GB, "sixteen_seconds": crossing(16) / GB / LINK} for way, crossing, states in WAYS],
    kind="derived",
)
claim("hsdp-one", "Bytes that leave a node with one group of 32 GPUs against HSDP, 72B, 4 nodes, one micro-batch per step",
      one_group(1) / hybrid(1), "x", kind="derived", at_least=1.25, at_most=1.35)
claim("hsdp-sixteen", "Bytes that leave a node with one group of 32 GPUs against HSDP, 72B, 4 nodes, 16 micro-batches per step",
      one_group(16) / hybrid(16), "x", kind="derived", at_least=20, at_most=21.5)
claim("hsdp-states", "Weights, gradients and optimizer state of a 72B model on each GPU with HSDP in nodes of 8",
      N * 16 / PER_NODE / GB, "GB", kind="derived", at_least=145, at_most=146)
claim("one-group-time", "Time for what leaves a node in a step of 72B in one group of 4 nodes, at the peak rate of 100 Gbit/s per node",
      one_group(1) / GB / LINK, "s", kind="derived", at_least=44, at_most=46)

# %% [markdown]
# ## Offload: the host's link
#
# `CPUOffloadPolicy` keeps the fp32 shards in host memory. In each micro-batch a GPU fetches its shard for the forward pass
# and again for the backward pass, and brings back the fp32 gradient.

# %%
PCIE, _ = LINKS["PCIe 4 x16"]
offloaded = 8.03e9 * (4 + 4 + 4) / 8
claim("offload-bytes", "Bytes between each of 8 GPUs and the host per micro-batch of an 8B model under CPUOffloadPolicy, fp32 shards",
      offloaded / GB, "GB", kind="derived", at_least=12, at_most=12.1)
claim("offload-time", "Time of these bytes at the peak rate of PCIe 4.0 with 16 lanes",
      offloaded / GB / PCIE, "s", kind="derived", at_least=0.38, at_most=0.39)

# %% [markdown]
# ## For real, on two processes
#
# Two programs, run by torchrun on two ranks. One compares losses, counts memory and collectives of rank 0, and times steps
# in turn. The other reads the host memory of each rank while it loads a checkpoint: there, memory that is freed goes back
# to the system at once, which costs time.

# %% tags=["measures"]
# %%writefile shared.py
import contextlib, ctypes, gc, json, logging, os, sys, threading, time, warnings

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

logging.disable(logging.WARNING)
warnings.simplefilter("ignore")
import deepspeed
from accelerate import init_empty_weights
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, set_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.distributed import DistributedConfig
from transformers.utils.logging import disable_progress_bar

from dryrun.ranks import RankTracker

disable_progress_bar()
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # an operator in C++, for what only inference calls
deepspeed.runtime.compiler.compile = lambda **_: lambda function: function  # Muon, which nobody uses here, loads Inductor
torch.set_num_threads(1)
gpu, folder = torch.cuda.is_available(), sys.argv[1]
device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if gpu else torch.device("cpu")
if gpu:
    torch.cuda.set_device(device)
deepspeed.init_distributed("nccl" if gpu else "gloo")
rank, world = dist.get_rank(), dist.get_world_size()
mesh = init_device_mesh(device.type, (world,))
line = torch.zeros(1, 16, dtype=torch.long, device=device)


def sharded(model, layers=True, **options):
    for layer in model.model.layers if layers else []:
        fully_shard(layer, mesh=mesh, **options)
    return fully_shard(model, mesh=mesh, **options)

# %% tags=["measures"]
# %%writefile train.py
from shared import *

# 1. Losses
found = {}
config = LlamaConfig(hidden_size=128, intermediate_size=352, num_hidden_layers=4, num_attention_heads=4, vocab_size=1000, use_cache=False)
ids = torch.randint(0, 1000, (8, 64), generator=torch.Generator().manual_seed(1)).to(device)


def built(config=config):
    torch.manual_seed(0)
    return LlamaForCausalLM(config).to(device).train()


def replicated(model):
    return DistributedDataParallel(model, gradient_as_bucket_view=True)


def losses(model, optimizer, batch, clip=None, steps=6):
    values = []
    for _ in range(steps):
        loss = model(input_ids=batch, labels=batch).loss
        if clip == "engine":
            model.backward(loss)
            model.step()
        else:
            loss.backward()
            if clip:
                torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
            optimizer.zero_grad()
        values.append(loss.detach())
    values = torch.stack(values)
    if len(batch) < len(ids):
        dist.all_reduce(values)
        values /= world
    return values.tolist()


def adamw(model):
    return torch.optim.AdamW(model.parameters(), lr=3e-3)


mine = ids[rank::world]
model = built()
found["one process"] = losses(model, adamw(model), ids)
model = built()
found["one process, clipped at 1"] = losses(model, adamw(model), ids, clip=1.0)
model = replicated(built())
found["DDP"] = losses(model, adamw(model), mine)
model = replicated(built())
found["ZeRO-1, ZeroRedundancyOptimizer"] = losses(model, ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=3e-3), mine)
model = sharded(built())
found["FSDP2"] = losses(model, adamw(model), mine)
model = sharded(built(), reshard_after_forward=False)
found["FSDP2, reshard_after_forward=False"] = losses(model, adamw(model), mine)
for stage in (1, 2, 3):
    for name, clipping in (("gradient_clipping 0", {"gradient_clipping": 0.0}), ("no word on clipping", {}))[: 2 if stage == 3 else 1]:
        settings = {"zero_optimization": {"stage": stage}, "train_micro_batch_size_per_gpu": len(mine),
                    "zero_allow_untested_optimizer": True, "steps_per_print": 1000} | clipping
        model = built()
        engine, *_ = deepspeed.initialize(model=model, optimizer=adamw(model), config=settings)
        found[f"DeepSpeed ZeRO-{stage}, {name}"] = losses(engine, None, mine, clip="engine")
        engine.destroy()
del model, engine

# 2. Peak memory of a step of one rank, and what it sends
small = LlamaConfig(hidden_size=128, intermediate_size=352, num_hidden_layers=16, num_attention_heads=4, vocab_size=256, use_cache=False)
memory = {}
for name, prepared in (
    ("DDP", lambda: replicated(built(small))),
    ("ZeroRedundancyOptimizer", lambda: replicated(built(small))),
    ("FSDP2, the root alone", lambda: sharded(built(small), layers=False)),
    ("FSDP2, every layer", lambda: sharded(built(small))),
):
    model = prepared()
    kind = {"lr": 1e-3, "fused": True}
    if name == "ZeroRedundancyOptimizer":
        optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, **kind)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), **kind)

    def step():
        model(input_ids=line, labels=line).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    step()  # makes the state of the optimizer, as it is from the second step on
    with RankTracker(model, getattr(optimizer, "optim", optimizer), [line]) as tracker:  # on all ranks: it gathers once
        step()
    memory[name] = {"peak": tracker.peak, "by_category": dict(tracker.peak_by_category),
                    "collectives": {c.kind: c.count for c in tracker.collectives.values()},
                    "bytes": {c.kind: c.payload for c in tracker.collectives.values()}}
memory["parameters"] = sum(p.numel() for p in model.parameters())

# 3. Time of a step: in turn, CPU time of one thread (on GPUs: wall time)
timed = LlamaConfig(hidden_size=256, intermediate_size=688, num_hidden_layers=2, num_attention_heads=4, vocab_size=1000, use_cache=False)
text = torch.randint(0, 1000, (4, 128)).to(device)
ways = {"DDP": replicated(built(timed)), "ZeRO-1": replicated(built(timed)), "FSDP2": sharded(built(timed)),
        "FSDP2 keep": sharded(built(timed), reshard_after_forward=False), "FSDP2 root": sharded(built(timed), layers=False)}
optimizers = {name: adamw(model) for name, model in ways.items()}
optimizers["ZeRO-1"] = ZeroRedundancyOptimizer(ways["ZeRO-1"].parameters(), torch.optim.AdamW, lr=3e-3)
seconds = {name: [] for name in ways}
for number in range(1 + 3):
    for name, model in ways.items():
        dist.barrier()
        clock = time.perf_counter if gpu else time.process_time
        started = clock()
        model(input_ids=text, labels=text).loss.backward()
        optimizers[name].step()
        optimizers[name].zero_grad()
        if gpu:
            torch.cuda.synchronize()
        if number:
            seconds[name].append(clock() - started)
del ways, optimizers, model
if rank == 0:
    print("RESULT", json.dumps({"losses": found, "memory": memory, "seconds": seconds}), flush=True)

dist.barrier()
dist.destroy_process_group()

# %% tags=["measures"]
# %%writefile load.py
from shared import *

# Host memory while a checkpoint is loaded
if os.path.exists("/proc/self/status"):  # Linux. M_MMAP_THRESHOLD: larger blocks go back to the system as soon as they are freed
    ctypes.CDLL(None).mallopt(-3, 65536)
large = LlamaConfig(hidden_size=512, intermediate_size=1376, num_hidden_layers=4, num_attention_heads=8, vocab_size=6000, use_cache=False)


def anonymous():
    """Bytes of this process that no file backs: what is resident without what is shared. /proc/self/status says the same, slower."""
    resident, shared = open("/proc/self/statm").read().split()[1:3]
    return os.sysconf("SC_PAGE_SIZE") * (int(resident) - int(shared))


def whole():
    return sharded(LlamaForCausalLM.from_pretrained(f"{folder}/whole", dtype=torch.float32).to(device))


def converted():
    return sharded(LlamaForCausalLM.from_pretrained(f"{folder}/half", dtype=torch.float32).to(device))


def unpickled():
    model = LlamaForCausalLM(large)
    model.load_state_dict(torch.load(f"{folder}/whole.pt"))
    return sharded(model.to(device))


def at_load():
    return LlamaForCausalLM.from_pretrained(f"{folder}/whole", dtype=torch.float32, distributed_config=DistributedConfig(fsdp_size=world))


def broadcast():
    weights = LlamaForCausalLM.from_pretrained(f"{folder}/whole", dtype=torch.float32).state_dict() if rank == 0 else {}
    with init_empty_weights():
        model = LlamaForCausalLM(large)
    sharded(model)
    set_model_state_dict(model, weights, options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True))
    return model


def from_shards():
    with init_empty_weights():
        model = LlamaForCausalLM(large)
    sharded(model)
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            setattr(module, name, torch.nn.Parameter(torch.empty_like(parameter, device=device)))
    state = get_model_state_dict(model)
    dcp.load(state, checkpoint_id=f"{folder}/shards")
    return model


if rank == 0:
    model = LlamaForCausalLM(large)
    model.save_pretrained(f"{folder}/whole")
    torch.save(model.state_dict(), f"{folder}/whole.pt")
    model.bfloat16().save_pretrained(f"{folder}/half")
    del model
dist.barrier()
model = at_load()
dcp.save(get_model_state_dict(model), checkpoint_id=f"{folder}/shards")
host, size = {}, 4 * sum(p.numel() for p in model.parameters())
del model
for way in (at_load, from_shards, whole, broadcast, converted, unpickled) if os.path.exists("/proc/self/status") else ():
    gc.collect()
    dist.barrier()
    before, peak, running = anonymous(), [0], [True]

    def watch():
        while running:
            peak[0] = max(peak[0], anonymous() - before)
            time.sleep(0.002)

    watcher = threading.Thread(target=watch)
    watcher.start()
    model = way()
    running.clear()
    watcher.join()
    with torch.no_grad():
        loss = model(input_ids=line, labels=line).loss.item()
    peaks = [None] * world
    dist.all_gather_object(peaks, peak[0] / size)
    host[way.__name__] = {"peaks": peaks, "loss": loss}
    del model

if rank == 0:
    print("RESULT", json.dumps({"host": host, "size": size}), flush=True)

dist.barrier()
dist.destroy_process_group()

# %% tags=["measures"]
home = str(Path(evidence.__file__).resolve().parent.parent)
paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
environment = {} if home in paths else {"PYTHONPATH": os.pathsep.join([home, *paths])}
if torch.cuda.device_count() < 2:
    environment |= {"CUDA_VISIBLE_DEVICES": "", "DS_ACCELERATOR": "cpu"}
result = {}
for program in ("train.py", "load.py"):
    run = run_ranks(program, tempfile.mkdtemp(), processes=2, timeout=900, environment=environment)
    result |= json.loads(next(line for line in run.stdout[0].splitlines() if line.startswith("RESULT "))[7:])

# %% [markdown]
# ### The loss is the same
#
# Six steps from the same weights. DeepSpeed clips gradients at norm 1 when the configuration says nothing of it.

# %% tags=["measures"]
losses = result["losses"]
reference, clipped = losses["one process"], losses["one process, clipped at 1"]


def apart(values, others):
    return max(abs(a - b) for a, b in zip(values, others))


table(
    "losses", "Loss of a small Llama over 6 steps of AdamW, 2 processes, fp32",
    {"way": "Way", "first": "Step 1", "third": "Step 3", "last": "Step 6", "apart": "Largest difference to one process, millionths"},
    [{"way": name, "first": values[0], "third": values[2], "last": values[-1], "apart": 1e6 * apart(values, reference)}
     for name, values in losses.items()],
    kind="measured",
)
equal = [values for name, values in losses.items() if "clipp" not in name or "gradient_clipping 0" in name]
assert len(equal) == 8
silent = losses["DeepSpeed ZeRO-3, no word on clipping"]
claim("loss-apart", "Largest difference of the loss of DDP, ZeRO-1, FSDP2 and DeepSpeed ZeRO-1, 2, 3 without clipping from one process, 6 steps, fp32, in millionths",
      1e6 * max(apart(values, reference) for values in equal), "millionths", kind="measured", at_most=100)
claim("deepspeed-silent", "Difference of the loss at step 6 of DeepSpeed ZeRO-3 that nobody told about clipping from one process without clipping",
      abs(silent[-1] - reference[-1]), "nats per token", kind="measured", at_least=0.002, at_most=0.05)
claim("deepspeed-clipped", "Largest difference of the same loss from one process that clips at norm 1, in millionths",
      1e6 * apart(silent, clipped), "millionths", kind="measured", at_most=100)

# %% [markdown]
# ### Memory: wrap the layers, not only the root

# %% tags=["measures"]
memory = result["memory"]
small_parameters = memory.pop("parameters")
zero_sent = memory.pop("ZeroRedundancyOptimizer")["bytes"]
table(
    "wrapping", "Peak of a step of rank 0 of 2, small Llama of 16 layers, fp32, AdamW, counted tensor by tensor",
    {"way": "Way", "bytes": "Peak, bytes per parameter", "gathers": "All-gathers", "reduces": "Reduce-scatters", "all_reduces": "All-reduces"},
    [{"way": name, "bytes": counted["peak"] / small_parameters, "gathers": counted["collectives"].get("all-gather", 0),
      "reduces": counted["collectives"].get("reduce-scatter", 0), "all_reduces": counted["collectives"].get("all-reduce", 0)}
     for name, counted in memory.items()],
    kind="measured",
)
claim("root-only", "What FSDP2 on the root alone saves of the peak of DDP on 2 ranks, small Llama of 16 layers",
      100 * (1 - memory["FSDP2, the root alone"]["peak"] / memory["DDP"]["peak"]), "%", kind="measured", at_least=0, at_most=12)
claim("every-layer", "What FSDP2 on every layer saves of the peak of DDP on 2 ranks, small Llama of 16 layers",
      100 * (1 - memory["FSDP2, every layer"]["peak"] / memory["DDP"]["peak"]), "%", kind="measured", at_least=42, at_most=52)

# %% [markdown]
# `ZeroRedundancyOptimizer` all-reduces the gradients as DDP does, and then each rank broadcasts the weights that it updated.
# Round a ring, with n ranks: the all-reduce passes each byte on 2 (n-1)/n times, the broadcasts of all ranks (n-1)/n times.

# %% tags=["measures"]
claim("zero-optimizer-sent", "Bytes that a rank sends with ZeroRedundancyOptimizer against DDP, fp32, counted on 2 ranks",
      (2 * zero_sent["all-reduce"] + zero_sent["broadcast"]) / (2 * memory["DDP"]["bytes"]["all-reduce"]), "x", kind="measured",
      at_least=1.49, at_most=1.51)

# %% [markdown]
# ### Time
#
# On a CPU: CPU time of rank 0 with all its threads, gloo on the loopback. It shows what the hooks and copies cost, not the wire.

# %% tags=["measures"]
seconds = {name: min(values) for name, values in result["seconds"].items()}
one_gpu = "this machine has fewer than two GPUs" if torch.cuda.device_count() == 1 else None
CLOCK = "Wall time" if torch.cuda.is_available() else "CPU time of rank 0"


def spread(name):
    values = result["seconds"][name]
    return {"min": min(values), "max": max(values), "repeats": len(values)}


for name, way, what, low, high in (
    ("zero1-time", "ZeRO-1", "DDP with ZeroRedundancyOptimizer", 0.8, 1.8),
    ("fsdp2-time", "FSDP2", "FSDP2", 1.0, 2.5),
    ("keep-time", "FSDP2 keep", "FSDP2 with reshard_after_forward=False", 1.0, 2.3),
    ("root-time", "FSDP2 root", "FSDP2 on the root alone", 1.0, 2.3),
):
    claim(name, f"{CLOCK} for a step of {what} against DDP on 2 ranks, small Llama, 512 tokens per rank",
          None if one_gpu else seconds[way] / seconds["DDP"], "x", kind="measured", at_least=low, at_most=high,
          spread=spread(way), because=one_gpu)

# %% [markdown]
# ### Host memory while a checkpoint is loaded
#
# Anonymous memory of each rank (`RssAnon`): pages of a mapped file are shared by the ranks, and the system can drop them.

# %% tags=["measures"]
NAMES = {
    "at_load": "from_pretrained with DistributedConfig",
    "from_shards": "empty model, torch.distributed.checkpoint",
    "whole": "from_pretrained whole, then fully_shard",
    "broadcast": "rank 0 reads, empty models, broadcast",
    "converted": "from_pretrained whole into another dtype, then fully_shard",
    "unpickled": "torch.load and load_state_dict, then fully_shard",
}
host = result["host"]
table(
    "host-memory", "Peak of anonymous host memory per rank while a checkpoint is loaded, 2 ranks, in sizes of the fp32 model",
    {"way": "Way", "rank0": "Rank 0", "rank1": "Rank 1"},
    [{"way": NAMES[name], "rank0": found["peaks"][0], "rank1": found["peaks"][1]} for name, found in host.items()],
    kind="measured",
)
no_proc = None if host else "this system has no /proc"


def peak(name):
    return max(host[name]["peaks"]) if host else None


claim("load-unpickled", "Peak of anonymous host memory per rank for torch.load and load_state_dict, in sizes of the model",
      peak("unpickled"), "x", kind="measured", at_least=1.8, at_most=2.2, because=no_proc)
claim("load-converted", "Peak of anonymous host memory per rank for from_pretrained into another dtype than the file's, in sizes of the model",
      peak("converted"), "x", kind="measured", at_least=0.95, at_most=1.3, because=no_proc)
claim("load-whole", "Peak of anonymous host memory per rank of 2 for from_pretrained in the file's dtype, then fully_shard, in sizes of the model",
      peak("whole"), "x", kind="measured", at_least=0.4, at_most=0.65, because=no_proc)
claim("load-broadcast", "Peak of anonymous host memory per rank of 2 where rank 0 reads and broadcasts, in sizes of the model",
      peak("broadcast"), "x", kind="measured", at_least=0.4, at_most=0.8, because=no_proc)
claim("load-native", "Peak of anonymous host memory per rank for from_pretrained with DistributedConfig, in sizes of the model",
      peak("at_load"), "x", kind="measured", at_most=0.1, because=no_proc)
if host:
    same = [found["loss"] for name, found in host.items() if name != "converted"]
    assert max(same) - min(same) < 1e-4, same
