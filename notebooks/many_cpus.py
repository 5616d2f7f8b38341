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
# # Training on many CPUs
#
# What several CPU processes send in a step, what network hides it, and which way of sending less costs loss. Two real
# processes train on this machine by gloo. Where the machine allows a network namespace of its own, their network is also
# slowed to that of a cable between two nodes. No GPU is used, even where there is one.

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
needs = {"peft": "peft==0.21.2"}
missing = [needed for name, needed in needs.items() if importlib.util.find_spec(name) is None]
if missing:
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", *missing], check=True)

# %%
import json
import logging
import shutil
import tempfile
import warnings

import matplotlib.pyplot as plt
import torch
from matplotlib_inline.backend_inline import set_matplotlib_formats

logging.disable(logging.WARNING)
warnings.simplefilter("ignore")

from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, BertConfig, LlamaConfig

from evidence.claims import claim, start, table

set_matplotlib_formats("svg")
plt.rcParams["svg.hashsalt"] = "many_cpus"  # the same figure at every run
os.chdir(tempfile.mkdtemp())  # where the programs go
start("many_cpus")

# %% [markdown]
# ## How fast must the network be?
#
# A ring all-reduce sends `2(n-1)/n` of the gradients from each of n processes. It can hide behind the backward pass of the
# last micro-batch. A multiplication and an addition for each parameter and token are the forward pass; the backward pass takes
# as much twice, for the gradients of the inputs and of the weights. Frozen weights need only the first of the two.

# %%
def network(parameters, tokens, tflops, trained=None, processes=2, gradient_bytes=4, accumulation=1):
    """What a step of one of `processes` sends and computes.

    tokens: of a micro-batch of one process. tflops: what the process reaches in training, in TFLOP/s, not its peak.
    trained: parameters with a gradient, if not all (LoRA). Returns megabytes sent, seconds of computation, and the
    bandwidth in Gbit/s that hides the sending behind the backward pass of the last micro-batch.
    """
    trained = parameters if trained is None else trained
    sent = 2 * (processes - 1) / processes * gradient_bytes * trained
    forward = 2 * parameters * tokens / (tflops * 1e12)
    backward = (2 * parameters + 2 * trained) * tokens / (tflops * 1e12)
    return {"sent": sent / 1e6, "seconds": accumulation * (forward + backward), "needed": 8 * sent / backward / 1e9}


# %% [markdown]
# BERT-base and a Llama of 1.2 billion parameters, 1,024 tokens per process and step. LoRA of rank 16 on every linear layer
# of the Llama's blocks has 16 x (inputs + outputs) parameters for each.

# %%
llama_1b = LlamaConfig(
    vocab_size=128256, hidden_size=2048, intermediate_size=8192, num_hidden_layers=16,
    num_attention_heads=32, num_key_value_heads=8, tie_word_embeddings=True,
)
with torch.device("meta"):
    bert, llama = AutoModelForMaskedLM.from_config(BertConfig()), AutoModelForCausalLM.from_config(llama_1b)
BERT, LLAMA = (sum(p.numel() for p in model.parameters()) for model in (bert, llama))
LORA = sum(16 * sum(layer.weight.shape) for layer in llama.model.modules() if isinstance(layer, torch.nn.Linear))

WAYS = {
    "BERT-base": {"parameters": BERT},
    "BERT-base, 16-bit gradients": {"parameters": BERT, "gradient_bytes": 2},
    "BERT-base, 8 micro-batches": {"parameters": BERT, "accumulation": 8},
    "Llama-1B": {"parameters": LLAMA},
    "Llama-1B, LoRA of rank 16": {"parameters": LLAMA, "trained": LORA},
}
rows = []
for way, options in WAYS.items():
    steps = {tflops: network(tokens=1024, tflops=tflops, **options) for tflops in (0.1, 1, 5)}
    sent = steps[1]["sent"]
    rows.append({"way": way, "sent": sent, "slow": sent / 125, "fast": sent / 1250, "seconds": steps[1]["seconds"],
                 "share": 100 * sent / 125 / (sent / 125 + steps[1]["seconds"]),
                 "tenth": steps[0.1]["needed"], "one": steps[1]["needed"], "five": steps[5]["needed"]})
table("plan", "Two processes of 1,024 tokens each: what a step sends, and the network that hides it behind the backward pass",
      {"way": "Training", "sent": "Sent by each, MB", "seconds": "Computation at 1 TFLOP/s, s", "slow": "Sending at 1 Gbit/s, s",
       "fast": "Sending at 10 Gbit/s, s", "tenth": "Needed at 0.1 TFLOP/s, Gbit/s", "one": "Needed at 1 TFLOP/s, Gbit/s", "five": "Needed at 5 TFLOP/s, Gbit/s"},
      rows, kind="derived")
by_way = {row["way"]: row for row in rows}
claim("bert-sent", "Gradients that each of two processes sends in a step of BERT-base in fp32", by_way["BERT-base"]["sent"], "MB",
      kind="derived", at_least=437, at_most=439)
claim("bert-needed", "Bandwidth that hides the all-reduce of BERT-base behind the backward pass, two processes of 1,024 tokens at 1 TFLOP/s",
      by_way["BERT-base"]["one"], "Gbit/s", kind="derived", at_least=7.8, at_most=7.9)
claim("bert-sixteen", "The same with 16 processes", network(BERT, 1024, 1, processes=16)["needed"], "Gbit/s", kind="derived", at_least=14.6, at_most=14.7)
claim("bert-slow-share", "Share of a step that is sending, BERT-base, two processes of 1,024 tokens at 1 TFLOP/s, 1 Gbit/s, nothing hidden",
      by_way["BERT-base"]["share"], "%", kind="derived", at_least=83, at_most=84)
claim("lora-numbers", "Gradients of LoRA of rank 16 on all linear layers against all gradients of a Llama of 1.2 billion parameters",
      100 * LORA / LLAMA, "%", kind="derived", at_least=0.9, at_most=0.93)
claim("lora-needed", "Bandwidth that hides the all-reduce of LoRA of rank 16 behind the backward pass, Llama-1B, two processes of 1,024 tokens at 1 TFLOP/s",
      by_way["Llama-1B, LoRA of rank 16"]["one"], "Gbit/s", kind="derived", at_least=0.13, at_most=0.15)
claim("wide-batch", "Tokens per process and micro-batch at which 1 Gbit/s hides the all-reduce of fp32 gradients, two processes at 1 TFLOP/s, any number of parameters",
      1024 * by_way["BERT-base"]["one"], "tokens", kind="derived", at_least=7999, at_most=8001)

figure, axes = plt.subplots(figsize=(7, 3))
rates = [0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10]
for way, color in zip(("BERT-base", "BERT-base, 16-bit gradients", "Llama-1B, LoRA of rank 16"), ("#c45500", "#0072b2", "#00805c")):
    axes.plot(rates, [network(tokens=1024, tflops=rate, **WAYS[way])["needed"] for rate in rates], marker="o", label=way, color=color)
for speed in (1, 10, 100):
    axes.axhline(speed, color="#999999", linewidth=0.7)
axes.set(xscale="log", yscale="log", xlabel="TFLOP/s of a process in training", ylabel="Gbit/s that hide the all-reduce")
axes.legend(frameon=False)
plt.show()

# %% [markdown]
# ## Threads
#
# What torchrun makes of `OMP_NUM_THREADS` where nobody has set it: two processes print theirs.

# %% tags=["measures"]
plain = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--no-python", "printenv", "OMP_NUM_THREADS"]
printed = subprocess.run(command, env=plain, capture_output=True, text=True, timeout=120, check=True).stdout.split()
claim("omp-default", "Threads that torchrun gives to each of two processes where OMP_NUM_THREADS is not set", max(map(int, printed)),
      "thread", kind="measured", at_least=1, at_most=1)

# %% [markdown]
# ## The program
#
# Two processes run this. First what `TrainingArguments` makes of them, with and without `use_cpu`. Then losses, bytes and
# time. The bytes are those that the process's own TCP connections have acknowledged.

# %% tags=["measures"]
# %%writefile program.py
import contextlib, json, logging, os, pydoc_data.topics, socket, struct, subprocess, sys, time, warnings

logging.disable(logging.WARNING)
warnings.simplefilter("ignore")
import psutil
import torch
import torch.distributed as dist
from accelerate.state import AcceleratorState
from peft import LoraConfig, get_peft_model
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
from torch.distributed.algorithms.model_averaging.utils import average_parameters
from torch.nn.parallel import DistributedDataParallel as DDP
from transformers import AutoModelForCausalLM, LlamaConfig, Trainer, TrainingArguments

if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])  # two cores for both, however many there are
torch.set_num_threads(2)
OWN_NETWORK = sys.argv[1] == "own"
found = {}

# One run, or two?
SMALL = LlamaConfig(vocab_size=256, hidden_size=128, intermediate_size=512, num_hidden_layers=3, num_attention_heads=2, use_cache=False)
MIDDLE = LlamaConfig(vocab_size=256, hidden_size=256, intermediate_size=1024, num_hidden_layers=4, num_attention_heads=4, use_cache=False)


def build(config):
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config)


for way, options in {"with": {"use_cpu": True}, "without": {}}.items():  # the first one starts the process group, gloo
    arguments = TrainingArguments("out", per_device_train_batch_size=4, report_to=[], **options)
    data = [{"input_ids": torch.ones(4, dtype=torch.long), "labels": torch.ones(4, dtype=torch.long)}] * 64
    trainer = Trainer(model=build(SMALL), args=arguments, train_dataset=data)
    found[way] = {"mode": arguments.parallel_mode.value, "world": arguments.world_size,
                  "batch": trainer.get_total_train_batch_size(arguments), "steps": len(trainer.get_train_dataloader())}
    AcceleratorState._reset_state(reset_partial_state=True)
RANK, WORLD = dist.get_rank(), dist.get_world_size()
torch.set_num_threads(1)

# Data: text that comes with Python, dealt out to the ranks
TEXT = "\n".join(text for _, text in sorted(pydoc_data.topics.topics.items())).encode()


def rows(number, count=8, width=64):
    starts = torch.randint(0, len(TEXT) - width, (count,), generator=torch.Generator().manual_seed(number)).tolist()
    return torch.tensor([list(TEXT[begin : begin + width]) for begin in starts])


HELD_OUT = rows(10**6, 64)


def backward(model, ids):
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    return loss.detach()


def bf16(state, bucket):  # under a name of ours: DDP asks for NCCL when it sees bf16_compress_hook itself
    return bf16_compress_hook(state, bucket)


def train(steps, way="ddp", accumulation=1, period=8):
    # Returns the losses of the steps, averaged over ranks, and the loss on held-out text.
    model = build(SMALL)
    wrapped = model if way in ("alone", "local") else DDP(model)
    if way == "bf16":
        wrapped.register_comm_hook(None, bf16)
    optimizer, losses = torch.optim.AdamW(model.parameters(), lr=2e-3), []
    for number in range(steps):
        ids = rows(number) if way == "alone" else rows(number)[RANK::WORLD]
        last = (number + 1) % accumulation == 0
        with contextlib.nullcontext() if last or way in ("alone", "local") else wrapped.no_sync():
            loss = backward(wrapped, ids)
        if last:
            for parameter in model.parameters():
                parameter.grad /= accumulation
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            if way == "local" and (number + 1) % period == 0:
                average_parameters(model.parameters(), dist.group.WORLD)
        if way != "alone":
            dist.all_reduce(loss)
            loss /= WORLD
        losses.append(loss.item())
    with torch.no_grad():
        return losses, model(input_ids=HELD_OUT, labels=HELD_OUT).loss.item()


MANY = 48
found["alone"] = train(8, "alone")[0] if RANK == 0 else None
together, by_ddp = train(MANY)
found["together"] = together[:8]
found["quality"] = {"ddp": by_ddp, "bf16": train(MANY, "bf16")[1], "accumulation": train(MANY, accumulation=4)[1],
                    "local": train(MANY, "local")[1]}

# Bytes and time of a step
BATCH = 4


def sent():
    # struct tcp_info, tcpi_bytes_acked, of all TCP connections of this process (Linux)
    total = 0
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                with socket.socket(fileno=os.dup(int(name))) as connection:
                    if connection.family in (socket.AF_INET, socket.AF_INET6):
                        total += struct.unpack_from("Q", connection.getsockopt(socket.IPPROTO_TCP, 11, 192), 120)[0]
    return total


class Way:
    # One way to train MIDDLE: a step() of the given number of micro-batches.
    def __init__(self, name, batch=BATCH, seed=0):
        self.name, self.micro_batches = name, {"accumulation": 4, "local": 8}.get(name, 1)
        self.model, self.ids = build(MIDDLE), rows(RANK, batch)
        if name == "lora":
            self.model = get_peft_model(self.model, LoraConfig(r=8, target_modules="all-linear"))
        self.trained = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        self.optimizer = torch.optim.AdamW(self.trained, lr=1e-4)
        self.wrapped = self.model if name in ("alone", "local") else DDP(self.model, bucket_cap_mb=2 if name == "buckets" else None)
        if name == "bf16":
            self.wrapped.register_comm_hook(None, bf16)

    def step(self, ids=None):
        for number in range(self.micro_batches):
            with contextlib.nullcontext() if number == self.micro_batches - 1 or self.name == "local" else self.wrapped.no_sync():
                backward(self.wrapped, self.ids if ids is None else ids)
            if self.name == "local" or number == self.micro_batches - 1:
                self.optimizer.step()
                self.optimizer.zero_grad()
        if self.name == "local":
            average_parameters(self.model.parameters(), dist.group.WORLD)


def wall(work, everybody=True):
    # Seconds until all ranks are through; with everybody=False rank 0 works and the others wait without using a core.
    dist.barrier()
    started = time.perf_counter()
    if everybody or RANK == 0:
        work()
    dist.barrier()
    return time.perf_counter() - started


ways = {name: Way(name) for name in ("alone", "ddp", "buckets", "bf16", "lora", "accumulation", "local")}
found["parameters"] = sum(parameter.numel() for parameter in ways["alone"].model.parameters())
found["trained"] = {name: sum(p.numel() for p in way.trained) for name, way in ways.items()}
found["wire"] = {}
few = rows(RANK, 1, 8)  # with which as much is sent
for name, way in ways.items():
    if name != "alone":
        for _ in range({"accumulation": 1, "local": 0}.get(name, 2)):  # DDP makes its buckets anew after the first step
            way.step(few)
        dist.barrier()
        time.sleep(0.2)
        before = sent()
        way.step(few)
        time.sleep(0.3)  # until the last acknowledgments are here
        found["wire"][name] = (sent() - before) / way.micro_batches

# The all-reduce between the two processes, in memory
found["link"] = []
for numbers in (1_000, 250_000, 4_000_000, 16_000_000):
    seconds = {}
    for dtype in (torch.float32, torch.bfloat16):
        tensor = torch.ones(numbers, dtype=dtype)
        seconds[dtype] = min([wall(lambda: dist.all_reduce(tensor)) for _ in range(1 + 5)][1:])
    found["link"].append([numbers, seconds[torch.float32], seconds[torch.bfloat16]])

# Processes against threads: [seconds], by turns
wide = Way("alone", 2 * BATCH)
SHAPES = {"1x1": (1, ways["alone"], False), "1x2": (2, wide, False), "2x1": (1, ways["ddp"], True), "2x2": (2, ways["ddp"], True)}
found["shapes"] = {name: [] for name in SHAPES}
found["cpu"] = []


def machine_seconds():
    # CPU time that somebody got on this machine: user, system, and what a hypervisor took away.
    times = psutil.cpu_times()
    return times.user + times.nice + times.system + getattr(times, "steal", 0)


began, used, own = time.perf_counter(), machine_seconds(), time.process_time()
LAST = 5
for turn in range(1 + LAST):
    for name, (threads, way, everybody) in SHAPES.items():
        if name == "2x2" and turn < LAST:  # once: it takes long
            continue
        torch.set_num_threads(threads)
        cpu = time.process_time()
        elapsed = wall(way.step, everybody)
        if turn:
            found["shapes"][name].append(elapsed)
            if name == "1x1":
                found["cpu"].append(time.process_time() - cpu)
own = torch.tensor(time.process_time() - own, dtype=torch.float64)
dist.all_reduce(own)
found["others"] = (machine_seconds() - used - own.item()) / (time.perf_counter() - began)
torch.set_num_threads(1)

# A slow network. Loopback carries both directions, a cable carries each: so the limit is two times that of the cable.
found["slow"] = {}
if OWN_NETWORK:
    for gigabits, names in ((1, ("ddp", "buckets", "bf16", "lora", "accumulation", "local")), (10, ("ddp",))):
        if RANK == 0:
            limit = ["tbf", "rate", f"{2 * gigabits}gbit", "burst", "256kb", "latency", "50ms"]
            subprocess.run(["tc", "qdisc", "replace", "dev", "lo", "root", *limit], check=True)
        dist.barrier()
        seconds = {name: [] for name in ("alone", *names)}
        for _ in range(3):
            for name in seconds:
                seconds[name].append(wall(ways[name].step, name != "alone") / ways[name].micro_batches)
        tensor = torch.ones(4_000_000)
        seconds["all-reduce"] = [wall(lambda: dist.all_reduce(tensor)) for _ in range(4)][1:]
        found["slow"][str(gigabits)] = seconds
if RANK == 0:
    print("FOUND " + json.dumps(found))
dist.barrier()
dist.destroy_process_group()

# %% [markdown]
# The launcher starts it on two processes. It runs in a network namespace of its own, where the machine allows one: there
# `tc` may slow the loopback device, and nobody else notices.

# %% tags=["measures"]
# %%writefile launcher.py
import os, sys
from evidence.launch import run_ranks

os.environ.pop("OMP_WAIT_POLICY", None)  # threads wait as they do by default
environment = {"CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1"}
print(run_ranks("program.py", sys.argv[1], timeout=300, environment=environment).stdout[0])

# %% tags=["measures"]
NAMESPACE = ["unshare", "--map-root-user", "--net", "bash", "-c", 'ip link set lo up && exec "$@"', "bash"]


def allowed():
    """Whether this machine lets us have a network of our own, and slow it."""
    if not all(map(shutil.which, ("unshare", "ip", "tc"))):
        return False
    slow = ["tc", "qdisc", "add", "dev", "lo", "root", "tbf", "rate", "2gbit", "burst", "256kb", "latency", "50ms"]
    return subprocess.run([*NAMESPACE, *slow], capture_output=True).returncode == 0


OWN = allowed()
NO_NETWORK = "this machine does not let us have a network namespace and slow it"
command = [*(NAMESPACE if OWN else []), sys.executable, "launcher.py", "own" if OWN else "shared"]
ran = subprocess.run(command, capture_output=True, text=True, timeout=400)
assert ran.returncode == 0, ran.stderr[-3000:]
found = json.loads(next(line for line in ran.stdout.splitlines() if line.startswith("FOUND "))[6:])

# %% [markdown]
# ## One run, or two?

# %% tags=["measures"]
table("one-run", "What Trainer makes of two processes of torchrun on a machine without a GPU: 64 rows, 4 per device",
      {"way": "TrainingArguments", "mode": "parallel_mode", "world": "world_size", "batch": "Total batch", "steps": "Steps per epoch"},
      [{"way": label, **found[way]} for way, label in (("without", "without use_cpu"), ("with", "use_cpu=True"))], kind="measured")
claim("world-without", "world_size that Trainer sees in each of two processes of torchrun without use_cpu, no GPU", found["without"]["world"],
      kind="measured", at_least=1, at_most=1)
claim("world-with", "The same with use_cpu=True", found["with"]["world"], kind="measured", at_least=2, at_most=2)
claim("steps-without", "Steps per epoch of each process without use_cpu against with it", found["without"]["steps"] / found["with"]["steps"], "x",
      kind="measured", at_least=2, at_most=2)
assert (found["without"]["mode"], found["with"]["mode"]) == ("not_parallel", "distributed")

# %% [markdown]
# ## The losses of one process

# %% tags=["measures"]
apart = max(abs(one - two) / one for one, two in zip(found["alone"], found["together"]))
claim("loss-two", "Largest relative difference between the losses of two processes and of one, the same batch, eight steps in fp32",
      1e6 * apart, "ppm", kind="measured", at_least=0, at_most=20)

# %% [markdown]
# ## Processes and threads
#
# The same two cores, by turns: one process of one thread; one of two threads with two times the batch; two processes of one
# thread; two of two threads, which are more threads than cores, once. Wall time of the fastest repeat. While one process works,
# the other waits without using its core.

# %% tags=["measures"]
best = {name: min(seconds) for name, seconds in found["shapes"].items()}
BATCHES = {"1x1": 4, "1x2": 8, "2x1": 8, "2x2": 8}
speed = {name: BATCHES[name] / seconds for name, seconds in best.items()}
CORES = (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()) >= 2
BUSY = found["others"] > 0.3  # of a core
print(f"other programs used {found['others']:.2f} cores meanwhile")
NOT_TWO = "this machine has one core" if not CORES else "other programs used the cores meanwhile" if BUSY else None
LABELS = {"1x1": "1 process, 1 thread", "1x2": "1 process, 2 threads", "2x1": "2 processes, 1 thread each", "2x2": "2 processes, 2 threads each"}
table("shapes", f"A Llama of {found['parameters'] / 1e6:.1f} million parameters, 4 sequences of 64 bytes per process (8 for one process of two threads), fp32",
      {"way": "On two cores", "seconds": "Step, s", "slowest": "Slowest, s", "speed": "Samples/s", "against": "Against one core, x"},
      [{"way": LABELS[name], "seconds": best[name], "slowest": max(found["shapes"][name]), "speed": speed[name], "against": speed[name] / speed["1x1"]} for name in LABELS],
      kind="measured")


def spread(name):
    return {"min": best[name], "max": max(found["shapes"][name]), "repeats": len(found["shapes"][name])}


claim("two-processes", "Samples/s of two processes of one thread against one process of one thread, a small Llama, two cores, through memory",
      None if NOT_TWO else speed["2x1"] / speed["1x1"], "x", kind="measured", at_least=0.5, at_most=2.4, spread=spread("2x1"), because=NOT_TWO)
claim("two-threads", "Samples/s of one process of two threads against one of one thread, the batch of two processes",
      None if NOT_TWO else speed["1x2"] / speed["1x1"], "x", kind="measured", at_most=2.4, spread=spread("1x2"), because=NOT_TWO)
claim("processes-threads", "Samples/s of two processes of one thread against one process of two threads, the same total batch, two cores",
      None if NOT_TWO else speed["2x1"] / speed["1x2"], "x", kind="measured", at_least=0.4, at_most=1.1, because=NOT_TWO)
claim("oversubscribed", "Samples/s of two processes of two threads against two of one thread, on two cores, a single step",
      None if NOT_TWO else speed["2x2"] / speed["2x1"], "x", kind="measured", at_most=1.25, because=NOT_TWO)
tokens = BATCHES["1x1"] * 64
claim("flops", "FLOP/s of one core in training, fp32: 6 x parameters x tokens over CPU time, with the optimizer's step",
      6 * found["parameters"] * tokens / min(found["cpu"]) / 1e12, "TFLOP/s", kind="measured", at_least=0.003, at_most=2)

# %% [markdown]
# ## What is sent

# %% tags=["measures"]
NAMES = {"ddp": "DDP, fp32", "buckets": "DDP, fp32, buckets of 2 MiB", "bf16": "DDP, bf16 hook", "lora": "LoRA of rank 8", "accumulation": "4 micro-batches", "local": "average the weights every 8 steps"}
wire, quality = found["wire"], found["quality"]
table("sent", f"A Llama of {found['parameters'] / 1e6:.1f} million parameters on two processes: bytes per micro-batch; a smaller one: loss after 48 micro-batches",
      {"way": "Way", "wire": "Sent by each process, MB", "share": "Against DDP, %", "loss": "Held-out loss, nats per byte"},
      [{"way": label, "wire": wire[name] / 1e6, "share": 100 * wire[name] / wire["ddp"], "loss": quality.get(name)} for name, label in NAMES.items()], kind="measured")
claim("ring", "Bytes that each of two processes sends in a step of DDP against the size of the gradients", wire["ddp"] / (4 * found["parameters"]), "x",
      kind="measured", at_least=1, at_most=1.01)
claim("bf16-sent", "Bytes that a step sends with bf16 gradients against fp32", wire["bf16"] / wire["ddp"], "x", kind="measured", at_least=0.49, at_most=0.51)
claim("lora-sent", "Bytes that a step sends with LoRA of rank 8 on all linear layers of a small Llama, against all gradients",
      100 * wire["lora"] / wire["ddp"], "%", kind="measured", at_least=3, at_most=9)
claim("accumulation-sent", "Bytes per micro-batch with 4 micro-batches per step against one", wire["accumulation"] / wire["ddp"], "x",
      kind="measured", at_least=0.249, at_most=0.27)
claim("local-sent", "Bytes per step when the weights are averaged every 8 steps against DDP", wire["local"] / wire["ddp"], "x",
      kind="measured", at_least=0.124, at_most=0.135)
claim("bf16-loss", "Held-out loss with bf16 gradients minus that of DDP, 48 steps of a small model, one seed", quality["bf16"] - quality["ddp"],
      "nats per byte", kind="measured", at_least=-0.03, at_most=0.03)
claim("accumulation-loss", "Held-out loss with 4 micro-batches per step minus that of DDP after as many micro-batches, the learning rate unchanged, one seed",
      quality["accumulation"] - quality["ddp"], "nats per byte", kind="measured", at_least=0.05, at_most=1)
claim("local-loss", "Held-out loss with weights averaged every 8 steps minus that of DDP, 48 steps of a small model, AdamW, one seed",
      quality["local"] - quality["ddp"], "nats per byte", kind="measured", at_least=0.002, at_most=0.1)

# %% [markdown]
# ## gloo through memory
#
# Two processes of one machine, so no cable: what gloo and TCP cost by themselves.

# %% tags=["measures"]
table("link", "All-reduce between two processes of this machine, fastest of five",
      {"numbers": "Numbers", "fp32": "fp32, ms", "bandwidth": "fp32, GB/s", "bf16": "bf16, ms"},
      [{"numbers": numbers, "fp32": 1000 * fp32, "bandwidth": 4 * numbers / fp32 / 1e9, "bf16": 1000 * bf16} for numbers, fp32, bf16 in found["link"]], kind="measured")
small, _, middle, large = found["link"]
claim("latency", "All-reduce of 1,000 numbers between two processes of this machine", 1000 * small[1], "ms", kind="measured", at_least=0.01, at_most=50)
claim("loopback", "All-reduce of 64 MB of fp32 between two processes of this machine, per process and direction", 4 * large[0] / large[1] / 1e9, "GB/s",
      kind="measured", at_least=0.05, at_most=50)
claim("loopback-bf16", "Time of an all-reduce of 4 million numbers in bf16 against fp32, between two processes of this machine", middle[2] / middle[1], "x",
      kind="measured", at_least=0.15, at_most=10)

# %% [markdown]
# ## A slow network
#
# The same two processes, slowed to a cable of one or ten Gbit/s in each direction. Samples/s against one process alone.

# %% tags=["measures"]
slow = {rate: {name: min(seconds) for name, seconds in measured.items()} for rate, measured in found["slow"].items()}


def gain(rate, name):
    """Samples/s of two processes against one."""
    return 2 * slow[rate]["alone"] / slow[rate][name] if OWN else None


def rate_of(gigabits):
    """Gbit/s of an all-reduce of 16 MB, per process and direction."""
    return 8 * 16e6 / slow[gigabits]["all-reduce"] / 1e9 if OWN else None


lines = [("10", "ddp")] + [("1", name) for name in NAMES]
table("slow", "Two processes over a slowed network against one that updates all weights at every micro-batch: the Llama above, 256 tokens per process and micro-batch",
      {"network": "Network, Gbit/s", "way": "Way", "seconds": "Time per micro-batch, s", "gain": "Samples/s against one process, x"},
      [{"network": int(rate), "way": NAMES[name], "seconds": slow[rate][name] if OWN else None, "gain": gain(rate, name)} for rate, name in lines], kind="measured")
claim("rate-one", "What gloo makes of a network limited to 1 Gbit/s per direction, all-reduce of 16 MB", rate_of("1"), "Gbit/s",
      kind="measured", at_least=0.3, at_most=1.3, because=NO_NETWORK)
for name, low, high in (("ddp", 0.2, 1.7), ("buckets", 0.2, 2), ("bf16", 0.3, 1.9), ("lora", 0.6, 4), ("accumulation", 0.5, 2.2), ("local", 0.5, 2.2)):
    claim(f"slow-{name}", f"Samples/s of two processes at 1 Gbit/s, {NAMES[name]}, against one that updates all weights at every micro-batch", gain("1", name), "x",
          kind="measured", at_least=low, at_most=high, because=NO_NETWORK)
claim("ten-ddp", "Samples/s of two processes at 10 Gbit/s, DDP, fp32, against one", gain("10", "ddp"), "x", kind="measured",
      at_least=0.5, at_most=2.3, because=NO_NETWORK)

# %% [markdown]
# Does the arithmetic foretell it? All gradients of this model fit into two buckets, the second of which is full only when the
# backward pass ends, so hardly anything hides.

# %% tags=["measures"]
if OWN:
    sending = 4 * found["parameters"] / 125e6
    alone = slow["1"]["alone"]
    foretold = 2 * alone / (alone + sending)
    print(f"{1000 * alone:.0f} ms alone, {1000 * sending:.0f} ms of sending: {foretold:.2f}x without overlap, measured {gain('1', 'ddp'):.2f}x")
claim("foretold", "Measured samples/s of DDP at 1 Gbit/s against what the arithmetic says without overlap", gain("1", "ddp") / foretold if OWN else None, "x",
      kind="measured", at_least=0.5, at_most=1.7, because=NO_NETWORK)
