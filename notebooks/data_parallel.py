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
# # Data parallelism, counted
#
# What `DistributedDataParallel` (DDP) sends in a step and when, what accumulation, buckets, views and compression change
# about it, and what a number of processes does to the batch and the steps of `Trainer`. Two and four real processes run
# on this machine. What they count is the same on any hardware. Time is measured on this machine, and on two GPUs where it
# has them.

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
import contextlib
import io
import json
import logging
import math
import tempfile
import warnings
from unittest import mock

import torch
import torch.distributed as dist

logging.disable(logging.WARNING)  # what some packages say at import
warnings.simplefilter("ignore")

from torch.testing._internal.distributed.fake_pg import FakeStore
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, BertConfig, GPT2Config, LlamaConfig, Trainer, TrainingArguments

from evidence.claims import claim, start, table
from evidence.launch import run_ranks

os.chdir(tempfile.mkdtemp())  # where the programs go
start("data_parallel")
GPUS = torch.cuda.device_count()
TIMED = GPUS != 1  # on a CPU, or on two GPUs and more
FEWER = "this machine has fewer than two GPUs"

# %% [markdown]
# ## The program
#
# Every process runs this. It is started twice below, on two and on four processes. To count, it registers a communication
# hook, which DDP calls once for each bucket of gradients. The bytes on the wire are those of the process's own TCP
# connections.

# %% tags=["measures"]
# %%writefile ddp.py
import contextlib, copy, json, os, pydoc_data.topics, socket, struct, time, warnings

warnings.simplefilter("ignore")
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook, bf16_compress_hook
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.profiler import ProfilerActivity, profile
from transformers import AutoModelForCausalLM, LlamaConfig

torch.set_num_threads(1)
dist.init_process_group("gloo")
RANK, WORLD = dist.get_rank(), dist.get_world_size()
SMALL = LlamaConfig(vocab_size=256, hidden_size=128, intermediate_size=512, num_hidden_layers=3, num_attention_heads=2)
LARGE = LlamaConfig(vocab_size=8192, hidden_size=256, intermediate_size=1024, num_hidden_layers=6, num_attention_heads=4)
found = {}


MODELS = {}  # to draw weights takes longer than to copy them


def build(config):
    if config.hidden_size not in MODELS:
        torch.manual_seed(0)
        MODELS[config.hidden_size] = AutoModelForCausalLM.from_config(config)
    return copy.deepcopy(MODELS[config.hidden_size])


def step(model, ids):
    model(input_ids=ids, labels=ids).loss.backward()


def sent():
    """Bytes that this process's TCP connections had acknowledged (Linux: struct tcp_info, tcpi_bytes_acked)."""
    total = 0
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                with socket.socket(fileno=os.dup(int(name))) as connection:
                    if connection.family in (socket.AF_INET, socket.AF_INET6):
                        total += struct.unpack_from("Q", connection.getsockopt(socket.IPPROTO_TCP, 11, 192), 120)[0]
    return total


def wire(work):
    """Bytes that this process sends during `work`."""
    dist.barrier()
    time.sleep(0.2)
    before = sent()
    work()
    time.sleep(0.3)  # until the last acknowledgments are here
    return sent() - before


class Count:
    """A communication hook that all-reduces as DDP does, and notes the bytes and the memory of each bucket."""

    def __init__(self):
        self.bytes, self.storages = [], {}

    def hook(self, group, bucket):
        storage = bucket.buffer().untyped_storage()
        self.bytes.append(bucket.buffer().nbytes)
        self.storages[storage.data_ptr()] = storage.nbytes()
        return allreduce_hook(group, bucket)


def counted(config, **options):
    model, count = DDP(build(config), **options), Count()
    model.register_comm_hook(None, count.hook)
    return model, count


# The same losses as one process? The batch is dealt out to the ranks.
TEXT = "\n".join(text for _, text in sorted(pydoc_data.topics.topics.items())).encode()
ROWS, WIDTH = 8, 64


def rows(number):
    starts = torch.randint(0, len(TEXT) - WIDTH, (ROWS,), generator=torch.Generator().manual_seed(number)).tolist()
    return torch.tensor([list(TEXT[begin : begin + WIDTH]) for begin in starts])


def train(steps, register=None, alone=False):
    """The losses, averaged over the ranks, and the wrapped model; `alone`: this process trains on the whole batch by itself."""
    model = build(SMALL)
    wrapped = model if alone else DDP(model, bucket_cap_mb=25)  # which is one bucket
    if register:
        register(wrapped)
    optimizer, losses = torch.optim.AdamW(model.parameters(), lr=2e-3), []
    for number in range(steps):
        ids = rows(number) if alone else rows(number)[RANK::WORLD]
        loss = wrapped(input_ids=ids, labels=ids).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        loss = loss.detach()
        if not alone:
            dist.all_reduce(loss)
            loss /= WORLD
        losses.append(loss.item())
    return losses, wrapped


if WORLD == 2 and RANK == 0:
    found["alone"], _ = train(10, alone=True)
found["together"], _ = train(10)

# Buckets and bytes of a step
ids = torch.randint(0, LARGE.vocab_size, (1, 8), generator=torch.Generator().manual_seed(RANK))
found["gradients"] = 4 * sum(parameter.numel() for parameter in build(LARGE).parameters())
found["buckets"] = {}
for cap in (1, 5, 25, 100) if WORLD == 2 else (25,):
    model, count = counted(LARGE, bucket_cap_mb=cap)
    for _ in range(2):  # after the first step DDP builds its buckets anew, in the order in which the gradients came
        step(model, ids)
    count.bytes.clear()
    on_wire = wire(lambda: step(model, ids))
    found["buckets"][cap] = {"wire": on_wire, "bytes": count.bytes[:]}


def only_two():
    # Accumulation of four micro-batches
    for way in ("no_sync", "plain"):
        count.bytes.clear()
        for number in range(4):
            with model.no_sync() if way == "no_sync" and number < 3 else contextlib.nullcontext():
                step(model, ids)
        found[way] = len(count.bytes) / len(found["buckets"][100]["bytes"])

    # Memory of gradients and buckets
    for view in (False, True):
        viewed, seen = counted(LARGE, gradient_as_bucket_view=view)
        for _ in range(3):
            viewed.zero_grad()
            seen.storages.clear()  # those of the first buckets are gone
            step(viewed, ids)
        storages = {storage.data_ptr(): storage.nbytes() for storage in (p.grad.untyped_storage() for p in viewed.parameters())}
        found[f"held {view}"] = sum({**seen.storages, **storages}.values())

    # The search for unused parameters: collectives of a step, as the profiler sees them, and CPU time
    short = rows(0)[RANK::WORLD]
    models = {"plain": DDP(build(SMALL)), "search": DDP(build(SMALL), find_unused_parameters=True)}
    found["seconds"] = {name: [] for name in models}
    for number in range(22):
        for name, one in models.items():
            started = time.process_time()
            step(one, short)
            if number > 1:
                found["seconds"][name].append(time.process_time() - started)
    found["collectives"] = {}
    for name, one in models.items():
        with profile(activities=[ProfilerActivity.CPU]) as profiler:
            step(one, short)
        found["collectives"][name] = sum("gloo:all_reduce" in event.name for event in profiler.events())

    # Compression
    def bf16(state, bucket):  # under a name of ours: DDP refuses the hook's own name without NCCL
        return bf16_compress_hook(state, bucket)

    def power(rank):
        def register(ddp):
            ddp.register_comm_hook(PowerSGDState(None, matrix_approximation_rank=rank, start_powerSGD_iter=10), powerSGD_hook)
        return register

    hooks = {"none": None, "bf16": lambda ddp: ddp.register_comm_hook(None, bf16), "PowerSGD, rank 4": power(4), "PowerSGD, rank 1": power(1)}
    found["compression"] = {}
    for name, register in hooks.items():
        losses, compressed = train(40, register)
        found["compression"][name] = {"loss": sum(losses[-10:]) / 10, "wire": wire(lambda: step(compressed, short))}

    # Time of forward and backward pass: without communication, with DDP's overlap, with one all-reduce behind the pass
    gpu = torch.cuda.device_count() >= WORLD
    device, config, shape = torch.device("cpu"), LARGE, (2, 64)
    if gpu:
        device, shape = torch.device("cuda", RANK), (4, 512)
        config = LlamaConfig(vocab_size=8192, hidden_size=1024, intermediate_size=4096, num_hidden_layers=24, num_attention_heads=16)
        torch.cuda.set_device(device)
        dist.destroy_process_group()
        dist.init_process_group("nccl")
    batch = torch.randint(0, config.vocab_size, shape, device=device)
    overlapped = DDP(build(config).to(device), device_ids=[RANK] if gpu else None)

    def silent():
        with overlapped.no_sync():
            step(overlapped, batch)

    def behind():
        silent()
        flat = torch._utils._flatten_dense_tensors([parameter.grad for parameter in overlapped.parameters()])
        dist.all_reduce(flat)

    def timed(work):
        dist.barrier()
        started = time.perf_counter()
        work()
        if gpu:
            torch.cuda.synchronize()
        dist.barrier()
        return time.perf_counter() - started

    ways = {"none": silent, "overlap": lambda: step(overlapped, batch), "behind": behind}
    found["step"] = {name: [] for name in ways}
    for number in range(1 + 5):
        for name, work in ways.items():
            overlapped.zero_grad()
            elapsed = timed(work)
            if number:
                found["step"][name].append(elapsed)

    # The link
    found["link"] = {}
    for megabytes in (1, 16, 64):
        tensor = torch.ones(megabytes * 250_000, device=device)
        found["link"][megabytes] = [timed(lambda: dist.all_reduce(tensor)) for _ in range(1 + 5)][1:]


if WORLD == 2:
    only_two()
if RANK == 0:
    print("FOUND " + json.dumps(found))
dist.barrier()
dist.destroy_process_group()

# %% tags=["measures"]
def found_on(processes):
    run = run_ranks("ddp.py", processes=processes, timeout=400, environment={"HF_HUB_OFFLINE": "1"})
    return json.loads(next(line for line in run.stdout[0].splitlines() if line.startswith("FOUND "))[6:])


two, four = found_on(2), found_on(4)

# %% [markdown]
# ## The same losses as one process
#
# Ten steps of a small Llama on text, with AdamW and clipping. One process has the whole batch; then the batch is dealt out.

# %% tags=["measures"]
def difference(run):
    return 1e6 * max(abs(one - many) / one for one, many in zip(two["alone"], run["together"]))


claim("loss-two", "Largest relative difference between the losses of two processes and of one, the same batch, ten steps in fp32",
      difference(two), "ppm", kind="measured", at_least=0, at_most=20)
claim("loss-four", "Largest relative difference between the losses of four processes and of one, the same batch, ten steps in fp32",
      difference(four), "ppm", kind="measured", at_least=0, at_most=20)

# %% [markdown]
# ## Buckets and bytes
#
# A ring all-reduce of B bytes over n processes sends 2(n-1)/n x B from each: B(n-1)/n to add up, as much to hand out the
# sums.

# %%
def ring(processes, size):
    return 2 * (processes - 1) / processes * size


claim("ring-two", "What each of two processes sends in an all-reduce, against its gradients", ring(2, 1), "x", kind="derived", at_least=1, at_most=1)
claim("ring-eight", "What each of eight processes sends in an all-reduce, against its gradients", ring(8, 1), "x", kind="derived", at_least=1.74, at_most=1.76)

# %% tags=["measures"]
MIB = 2**20
table(
    "buckets", "Gradients of a Llama in fp32, one step on two processes, by bucket_cap_mb",
    {"cap": "bucket_cap_mb, MiB", "count": "Buckets", "largest": "Largest bucket, MiB", "handed": "All buckets, MiB", "wire": "Sent by each process, MiB"},
    [{"cap": int(cap), "count": len(seen["bytes"]), "largest": max(seen["bytes"]) / MIB, "handed": sum(seen["bytes"]) / MIB, "wire": seen["wire"] / MIB}
     for cap, seen in two["buckets"].items()],
    kind="measured",
)
assert all(sum(seen["bytes"]) == two["gradients"] for seen in two["buckets"].values())  # each gradient once
claim("gradients", "Size of the gradients of the Llama whose communication is counted", two["gradients"] / MIB, "MiB", kind="measured", at_least=40, at_most=40.1)
claim("wire-two", "Bytes that each of two processes sends in a step, above 2(n-1)/n x the gradients",
      100 * (two["buckets"]["25"]["wire"] / ring(2, two["gradients"]) - 1), "%", kind="measured", at_least=0, at_most=1)
claim("wire-four", "Bytes that each of four processes sends in a step, above 2(n-1)/n x the gradients",
      100 * (four["buckets"]["25"]["wire"] / ring(4, four["gradients"]) - 1), "%", kind="measured", at_least=0, at_most=1)
claim("reduced-no-sync", "All-reduces of the gradients in four micro-batches, the first three under no_sync()", two["no_sync"], kind="measured", at_least=1, at_most=1)
claim("reduced-plain", "All-reduces of the gradients in four micro-batches without no_sync()", two["plain"], kind="measured", at_least=4, at_most=4)
claim("view-saving", "What gradient_as_bucket_view takes off the memory of gradients and buckets",
      100 * (1 - two["held True"] / two["held False"]), "%", kind="measured", at_least=49, at_most=51)

# %% [markdown]
# ## The search for unused parameters

# %% tags=["measures"]
claim("search-collectives", "Collectives that find_unused_parameters=True adds to a step", two["collectives"]["search"] - two["collectives"]["plain"],
      kind="measured", at_least=1, at_most=1)
fastest = {name: min(seconds) for name, seconds in two["seconds"].items()}
claim("search-time", "CPU time of forward and backward pass with find_unused_parameters=True against one without, a small Llama",
      fastest["search"] / fastest["plain"] if TIMED else None, "x", kind="measured", at_least=0.8, at_most=1.6, because=FEWER)

# %% [markdown]
# ## Compression
#
# Forty steps of the small Llama with each hook. The loss is the mean of the last ten steps. PowerSGD starts after ten.

# %% tags=["measures"]
compression = two["compression"]
plain = compression["none"]
table(
    "compression", "A small byte-level Llama on two processes, forty steps, by compression of the gradients",
    {"way": "Hook", "wire": "Sent by each process and step, MB", "share": "Against none, %", "loss": "Loss, nats per byte"},
    [{"way": way, "wire": seen["wire"] / 1e6, "share": 100 * seen["wire"] / plain["wire"], "loss": seen["loss"]} for way, seen in compression.items()],
    kind="measured",
)
claim("bf16-bytes", "What bf16_compress_hook takes off the bytes of a step", 100 * (1 - compression["bf16"]["wire"] / plain["wire"]), "%", kind="measured", at_least=49, at_most=51)
claim("bf16-loss", "Loss with bf16_compress_hook minus the loss without, forty steps of a small model",
      compression["bf16"]["loss"] - plain["loss"], "nats per byte", kind="measured", at_least=-0.02, at_most=0.02)
claim("power-bytes", "What PowerSGD of rank 4 takes off the bytes of a step of a small Llama",
      100 * (1 - compression["PowerSGD, rank 4"]["wire"] / plain["wire"]), "%", kind="measured", at_least=85, at_most=97)
claim("power-loss", "Loss with PowerSGD of rank 4 minus the loss without, forty steps of a small model, compressed from the eleventh",
      compression["PowerSGD, rank 4"]["loss"] - plain["loss"], "nats per byte", kind="measured", at_least=-0.05, at_most=0.6)

# %% [markdown]
# What rank 4 leaves of a model of a billion parameters follows from its shapes: of a matrix, 4 (rows + columns) numbers,
# where that is less than half of the matrix; the rest as it is.

# %%
one_billion = LlamaConfig(hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_attention_heads=32, num_key_value_heads=8)
with torch.device("meta"):
    shapes = [parameter.shape for parameter in AutoModelForCausalLM.from_config(one_billion).parameters()]


def power_sgd(shape, rank=4, worth=2):
    if len(shape) < 2:
        return math.prod(shape)
    rows, columns = shape[0], math.prod(shape[1:])
    sent = (rows + columns) * rank
    return sent if sent * worth < rows * columns else rows * columns


claim("power-billion", "Numbers that PowerSGD of rank 4 all-reduces for a Llama of a billion parameters, against all gradients",
      100 * sum(map(power_sgd, shapes)) / sum(map(math.prod, shapes)), "%", kind="derived", at_least=0.28, at_most=0.29)

# %% [markdown]
# ## Time
#
# Forward and backward pass: without communication, with the all-reduces that DDP starts during the backward pass, and
# with one all-reduce of everything behind it. The fastest repeat counts. On a CPU the processes and their communication
# share the cores, and on a busy machine the repeats differ widely: the table has the slowest beside the fastest.

# %% tags=["measures"]
best = {way: min(seconds) for way, seconds in two["step"].items()}
table(
    "step-time", "Forward and backward pass of the Llama above on two processes",
    {"way": "Communication", "best": "Fastest, ms", "worst": "Slowest, ms"},
    [{"way": label, "best": 1000 * best[way] if TIMED else None, "worst": 1000 * max(two["step"][way]) if TIMED else None}
     for way, label in (("none", "none"), ("overlap", "DDP, during the backward pass"), ("behind", "one all-reduce, behind it"))],
    kind="measured",
)
claim("communication-share", "Share of communication in forward and backward pass on two GPUs, with DDP's overlap",
      100 * (1 - best["none"] / best["overlap"]) if GPUS > 1 else None, "%", kind="measured", at_least=0, at_most=95,
      because=FEWER if GPUS else "processes and communication share two busy cores here, and repeated runs disagree")
claim("overlap-gain", "Time of the pass with the all-reduce behind it against DDP's overlap, two processes",
      best["behind"] / best["overlap"] if TIMED else None, "x", kind="measured", at_least=0.5, at_most=2.5,
      spread=TIMED and {"min": best["behind"], "max": max(two["step"]["behind"]), "repeats": len(two["step"]["behind"])} or None, because=FEWER)
link = min(two["link"]["64"])
claim("link", "All-reduce of 64 MB between two processes on this machine, per process and direction",
      ring(2, 64e6) / link / 1e9 if TIMED else None, "GB/s", kind="measured", at_least=0.1, at_most=500,
      spread=TIMED and {"min": link, "max": max(two["link"]["64"]), "repeats": len(two["link"]["64"])} or None, because=FEWER)

# %% [markdown]
# ## Batch and steps of Trainer
#
# The installed `Trainer` sets itself up as rank 0 of n, on PyTorch's fake process group, whose collectives send nothing.
# What it plans for 10,000 rows, 8 per device, 4 micro-batches, 3 epochs and a warm-up of a tenth:

# %%
tiny = AutoModelForSequenceClassification.from_config(
    BertConfig(vocab_size=100, hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=1)
)
rows = [{"input_ids": torch.ones(4, dtype=torch.long), "labels": 0}] * 10_000
tiny.eval()  # no dropout
scaled = {}  # processes: the loss that Trainer takes the gradient of, against the model's own


def planned(processes, accumulation=4):
    world = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": str(processes), "LOCAL_WORLD_SIZE": str(processes), "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}
    with mock.patch.dict(os.environ, world), contextlib.redirect_stderr(io.StringIO()):
        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=processes)
        arguments = TrainingArguments(
            "plans", use_cpu=True, report_to=[], num_train_epochs=3, warmup_steps=0.1,
            per_device_train_batch_size=8, gradient_accumulation_steps=accumulation,
        )
        trainer = Trainer(model=tiny, args=arguments, train_dataset=rows)
        _, per_epoch, _, _, batch, _, steps = trainer.set_initial_training_values(arguments, trainer.get_train_dataloader())
        batch_of_rows = {"input_ids": torch.ones(8, 4, dtype=torch.long), "labels": torch.zeros(8, dtype=torch.long)}
        items = trainer._get_num_items_in_batch([batch_of_rows], torch.device("cpu"))
        with torch.no_grad():
            scaled[processes] = (trainer.compute_loss(tiny, dict(batch_of_rows), num_items_in_batch=items) / tiny(**batch_of_rows).loss).item()
        dist.destroy_process_group()
    return {"processes": processes, "accumulation": accumulation, "batch": batch, "per_epoch": per_epoch, "steps": steps,
            "warmup": arguments.get_warmup_steps(steps)}


plans = [planned(processes) for processes in (1, 2, 4, 8, 64)] + [planned(2, 2), planned(4, 1)]
table(
    "plans", "What Trainer plans: 10,000 rows, 8 per device, 3 epochs, warm-up of a tenth",
    {"processes": "Processes", "accumulation": "Micro-batches", "batch": "Batch", "per_epoch": "Steps per epoch", "steps": "Steps", "warmup": "Warm-up steps"},
    plans, kind="derived",
)
by_size = {plan["processes"]: plan for plan in plans[:5]}
claim("warmup-64", "Warm-up steps that Trainer plans on 64 processes for the example", by_size[64]["warmup"], kind="derived", at_least=2, at_most=2)

# %% tags=["measures"]
# The loss that Trainer takes the gradient of, on eight processes, against the loss that the model returned
claim("trap-8", "The loss of a BERT classifier in Trainer on eight processes against the loss that the model returned, accepts_loss_kwargs left as it is",
      scaled[8], "x", kind="measured", at_least=7.99, at_most=8.01)

# %% [markdown]
# ## DataParallel
#
# Plain `python` on a machine with four GPUs, which the arguments are made to believe in:

# %%
with mock.patch("torch.cuda.device_count", lambda: 4), mock.patch("torch.cuda.is_available", lambda: False):
    arguments = TrainingArguments("plans", report_to=[], per_device_train_batch_size=8)
    dp_mode, dp_batch = arguments.parallel_mode.value, arguments.train_batch_size
assert dp_mode == "not_distributed"
claim("dp-batch", "Samples of a step with per_device_train_batch_size=8, started by plain python on a machine with four GPUs", dp_batch, "samples", kind="derived", at_least=32, at_most=32)
with torch.device("meta"):
    sizes = {name: sum(p.numel() for p in AutoModelForCausalLM.from_config(GPT2Config(n_layer=layers, n_embd=width, n_head=width // 64)).parameters())
             for name, layers, width in (("gpt2", 12, 768), ("gpt2-medium", 24, 1024))}
gpt2 = 4 * sizes["gpt2"]
logits = 2 * 1024 * 50257 * 4  # of the second GPU's half of the batch
claim("gpt2-gradients", "Gradients of GPT-2 in fp32", gpt2 / 1e6, "MB", kind="derived", at_least=497, at_most=498)
claim("dp-bytes", "Over the link between two GPUs in a step of DataParallel, both directions: GPT-2 in fp32, 4 x 1,024 tokens: weights out, logits in, their gradients out, gradients in",
      2 * (gpt2 + logits) / 1e9, "GB", kind="derived", at_least=1.8, at_most=1.85)
claim("ddp-bytes", "Over the link between two GPUs in a step of DDP, both directions: GPT-2 in fp32", 2 * gpt2 / 1e9, "GB", kind="derived", at_least=0.99, at_most=1)

# %% [markdown]
# ## Published: two GPUs against one
#
# A thread of January 2021 holds two sets. On two RTX 3090 a script trains GPT-2 on as many samples, 400 steps on one GPU or
# 200 on two, with and without NVLink (`NCCL_P2P_DISABLE=1`). On two TITAN RTX, 200 steps each.

# %%
THREAD = "https://github.com/huggingface/transformers/issues/9371"
RUNS = {  # model, tokens: seconds on 1 GPU, DataParallel, DDP, DDP without NVLink
    ("gpt2", 128): (19.5621, 16.6426, 13.5368, 30.0181),
    ("gpt2", 256): (30.423, 22.6101, 18.6943, 35.4208),
    ("gpt2", 512): (58.0856, 37.6376, 32.3616, 49.1999),
    ("gpt2-medium", 128): (49.3823, 40.5947, 33.4365, 74.9924),
    ("gpt2-medium", 256): (79.6724, 56.0446, 47.7543, 89.3616),
    ("gpt2-medium", 512): (152.6255, 92.4563, 82.1935, 124.1163),
}
table(
    "published", "Time for as many samples, batch 4 per GPU, by tokens per sequence",
    {"model": "Model", "tokens": "Tokens", "one": "1 GPU, s", "dp": "2 GPUs, DataParallel, s", "ddp": "2 GPUs, DDP, s", "slow": "2 GPUs, DDP, no NVLink, s"},
    [dict(zip(("model", "tokens", "one", "dp", "ddp", "slow"), (*key, *seconds))) for key, seconds in RUNS.items()],
    kind="cited", source=THREAD,
)
table(
    "published-speed", "GPT-2 on two GPUs: samples/s against one GPU, by tokens per sequence",
    {"tokens": "Tokens", "ddp": "DDP, NVLink, x", "dp": "DataParallel, NVLink, x", "slow": "DDP, no NVLink, x"},
    [{"tokens": tokens, "ddp": one / ddp, "dp": one / dp, "slow": one / slow} for (model, tokens), (one, dp, ddp, slow) in RUNS.items() if model == "gpt2"],
    kind="derived", source=THREAD,
)


def extra(model, tokens):
    """Seconds that a step of 200 took longer without NVLink."""
    _, _, ddp, slow = RUNS[model, tokens]
    return (slow - ddp) / 200


def speed(tokens, column):
    return RUNS["gpt2", tokens][0] / RUNS["gpt2", tokens][column]


claim("published-slow", "Samples/s of two RTX 3090 without NVLink against one, GPT-2, DDP, 128 tokens, from the published times", speed(128, 3), "x", kind="derived", source=THREAD, at_least=0.65, at_most=0.66)
claim("published-slow-512", "Samples/s of two RTX 3090 without NVLink against one, GPT-2, DDP, 512 tokens, from the published times", speed(512, 3), "x", kind="derived", source=THREAD, at_least=1.17, at_most=1.19)
claim("extra-128", "What a step takes longer without NVLink, GPT-2, 128 tokens, from the published times", 1000 * extra("gpt2", 128), "ms", kind="derived", source=THREAD, at_least=82, at_most=83)
claim("extra-512", "What a step takes longer without NVLink, GPT-2, 512 tokens, from the published times", 1000 * extra("gpt2", 512), "ms", kind="derived", source=THREAD, at_least=84, at_most=85)
claim("extra-medium", "What a step takes longer without NVLink, GPT-2 medium, 512 tokens, from the published times", 1000 * extra("gpt2-medium", 512), "ms", kind="derived", source=THREAD, at_least=209, at_most=210)
claim("published-link", "What that link gave at most: bytes of an all-reduce of GPT-2's gradients over the extra time", gpt2 / extra("gpt2", 128) / 1e9, "GB/s", kind="derived", source=THREAD, at_least=6, at_most=6.1)

TITAN = {"1 GPU": 102, "2 GPUs, DataParallel, NVLink": 110, "2 GPUs, DDP, NVLink": 101, "2 GPUs, DDP, no NVLink": 131}
table("titan", "Two TITAN RTX, GPT-2, batch 4 per GPU, 200 steps", {"way": "Run", "seconds": "Time, s"},
      [{"way": way, "seconds": seconds} for way, seconds in TITAN.items()], kind="cited", source=THREAD)
claim("titan-nvlink", "Samples/s of two TITAN RTX against one, DDP and NVLink: as many steps of twice the samples", 2 * 102 / 101, "x", kind="derived", source=THREAD, at_least=2, at_most=2.1)

# %% [markdown]
# ## A model of the time
#
# Communication is bytes over bandwidth. At worst it comes behind the backward pass; at best it hides behind the last one,
# two thirds of a micro-batch. The example is a small model with little work per step on a slow link.

# %%
def speedup(parameters, seconds_alone, link, gpus=2, gradient_bytes=4, accumulation=1):
    communication = ring(gpus, gradient_bytes * parameters) / link
    computation = accumulation * seconds_alone
    hidden = min(communication, 2 / 3 * seconds_alone)
    return tuple(gpus * computation / (computation + exposed) for exposed in (communication, communication - hidden))


EXAMPLE = {"parameters": 124e6, "seconds_alone": 0.050, "link": 6e9}
FIXES = {
    "as it is": {}, "four times the batch per GPU": {"seconds_alone": 0.200}, "accumulation of 4": {"accumulation": 4},
    "gradients in 16 bits": {"gradient_bytes": 2}, "a link of 50 GB/s": {"link": 50e9},
}
predicted = {way: speedup(**EXAMPLE | changed) for way, changed in FIXES.items()}
table("predicted", "Two GPUs against one, 124 million parameters, 50 ms per micro-batch, 6 GB/s: predicted samples/s",
      {"way": "Change", "worst": "No overlap, x", "best": "Full overlap, x"},
      [{"way": way, "worst": worst, "best": best} for way, (worst, best) in predicted.items()], kind="derived")
claim("predicted-worst", "Predicted samples/s of two GPUs against one in that example, without overlap", predicted["as it is"][0], "x", kind="derived", at_least=0.75, at_most=0.76)
claim("predicted-accumulated", "Predicted samples/s of two GPUs against one in that example with accumulation of 4, without overlap",
      predicted["accumulation of 4"][0], "x", kind="derived", at_least=1.41, at_most=1.42)
