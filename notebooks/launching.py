# ---
# jupyter:
#   accelerator: GPU
#   colab:
#     gpuType: T4
#   runs_on: gpus
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
# # Launching
#
# **What changes when the same job is started in another way, and what does it cost when one
# of its ranks fails or waits for ever?**
#
# A launcher does three things: it starts a process for each GPU, tells each who it is, and
# starts them again when one dies. All launchers do the same three things, so what holds for
# `torchrun` here holds for SLURM, Kubernetes and the others, which mostly start `torchrun`.
#
# One training program is started as one process, as two on one node, and as two nodes that
# meet at an endpoint. Then one rank fails and the job is restarted, and one rank waits in
# vain. All of it runs on this machine: two torchruns with one endpoint are two nodes, to
# everything but the network. With two GPUs the ranks talk by NCCL, else by gloo.
#
# What to expect:
#
# - The losses are the same however the job is started, because the batch is that of *all*
#   ranks.
# - A start costs the time of `import torch`, twice: once in torchrun, once in the ranks.
# - A failure costs a start, and the steps since the last checkpoint.
# - A rank that waits costs the whole time-out, and its message does not say for whom.
#
# How it is measured: a thread reads what each torchrun prints and notes when each line came.
# The times are those of this machine, with a model so small that its steps take no time.

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
import os
import re
import socket
import tempfile
import threading
import time
from typing import NamedTuple

os.chdir(tempfile.mkdtemp())  # where the programs go

import matplotlib.pyplot as plt
import psutil
import torch

from evidence import plots
from evidence.claims import claim, start, table

GPUS = torch.cuda.device_count()
plots.set_up("launching")
start("launching")

# %% [markdown]
# ## One program for every launcher
#
# The program of the guide, in five pieces; a test keeps the two the same but for `BATCH`, which
# is that of two processes here. torchrun tells a process who it is by environment variables, and
# so do all other launchers: a program that reads only these starts everywhere.

# %% tags=["measures"]
# %%writefile train.py
"""Trains a small language model with DDP, and resumes from its checkpoint. Every launcher starts it unchanged.

torchrun --standalone --nproc-per-node 2 train.py
"""

import argparse
import os
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.nn.functional  # before the group: imported later, by the optimizer, it would keep the group
from torch.nn.parallel import DistributedDataParallel

BATCH, LENGTH, WIDTH, VOCABULARY = 8, 32, 64, 256  # BATCH: sequences per step, of all ranks together

# %% [markdown]
# The model is a single layer. What matters is `batch_of`: it deals out *one* batch to however
# many ranks there are. A batch per rank would grow with the ranks, and each number of ranks
# would be another training.

# %% tags=["measures"]
# %%writefile -a train.py


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(VOCABULARY, WIDTH)
        self.layer = torch.nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.0, batch_first=True)
        self.head = torch.nn.Linear(WIDTH, VOCABULARY)

    def forward(self, ids):
        mask = torch.nn.Transformer.generate_square_subsequent_mask(ids.shape[1], device=ids.device)
        return self.head(self.layer(self.embed(ids), src_mask=mask, is_causal=True))


def batch_of(step, rank, world, device):
    """This rank's part of the batch of a step: the same batch for any number of ranks."""
    ids = torch.randint(VOCABULARY, (BATCH, LENGTH), generator=torch.Generator().manual_seed(step))
    return ids[rank::world].to(device)

# %% [markdown]
# Joining is three steps whose order matters: take the GPU of the local rank, then make the
# process group, with a time-out, then talk. A batch that cannot be dealt out ends the job here
# and not in the middle of the night.
#
# The order matters because a collective that comes before `set_device` takes GPU 0 on every
# rank: eight processes on one GPU, and seven that idle.

# %% tags=["measures"]
# %%writefile -a train.py


def join():
    """Joins the process group; returns this rank's device."""
    gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if gpu else torch.device("cpu")
    if gpu:
        torch.cuda.set_device(device)  # before the first collective
    if not dist.is_initialized():  # Ray Train has done it
        dist.init_process_group("nccl" if gpu else "gloo", timeout=timedelta(minutes=10))
    world = dist.get_world_size()
    if BATCH % world:
        what = f"{BATCH} sequences cannot be dealt out to {world} ranks"
        raise SystemExit(f"{what}: choose a number that divides {BATCH}")
    return device

# %% [markdown]
# A job survives a failure if it can go on where its checkpoint is. Two traps are closed here.
# A rank that dies while it writes must not leave half a file, so the file is renamed when it
# is whole. And all ranks must begin at the same step: where a node does not see the
# checkpoint, the ranks would wait for each other in different steps.

# %% tags=["measures"]
# %%writefile -a train.py


def save(path, state):
    """Under another name first: whoever dies here leaves the old checkpoint whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(state, path.with_suffix(".new"))
    os.replace(path.with_suffix(".new"), path)


def resume(path, model, optimizer, device):
    """Loads the checkpoint where there is one; returns the step to begin with, the same on all ranks."""
    first = 0
    if path.exists():  # on a file system that every node sees
        state = torch.load(path, map_location="cpu")  # three times the weights: no second copy on the GPU
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["step"]
    starts = [None] * dist.get_world_size()
    dist.all_gather_object(starts, first)  # and nobody saves before everybody has loaded
    if len(set(starts)) > 1:
        raise SystemExit(f"the ranks start at steps {starts}: not all of them see the same checkpoint")
    return first

# %% [markdown]
# The loop. Everything that communicates is called by every rank: the backward pass of DDP, the
# all-reduce of the logged loss, the barrier. Only what does not communicate stands under `if
# rank == 0`: printing and saving.
#
# With `--fail-at` the last rank fails at that step, once, which rehearses a restart.

# %% tags=["measures"]
# %%writefile -a train.py


def train(steps=8, save_every=2, checkpoint="checkpoint.pt", fail_at=None):
    device = join()
    rank, world, path = dist.get_rank(), dist.get_world_size(), Path(checkpoint)
    torch.manual_seed(0)
    model = DistributedDataParallel(Model().to(device), device_ids=[device.index] if device.type == "cuda" else None)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    first = resume(path, model.module, optimizer, device)
    if rank == 0:
        print(f"{world} ranks start at step {first}", flush=True)
    for step in range(first, steps):
        if step == fail_at and rank == world - 1 and os.environ.get("TORCHELASTIC_RESTART_COUNT") == "0":
            raise RuntimeError(f"rank {rank} fails at step {step}, as asked")
        ids = batch_of(step, rank, world, device)
        loss = torch.nn.functional.cross_entropy(model(ids)[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        mean = loss.detach() / world
        dist.all_reduce(mean)
        if rank == 0:
            print(f"step {step} loss {mean.item():.7f}", flush=True)
            if (step + 1) % save_every == 0:
                save(path, {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1})
    dist.barrier()  # nobody leaves while another still speaks to it

# %% tags=["measures"]
# %%writefile -a train.py


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--save-every", type=int, default=2)
    parser.add_argument("--checkpoint", default="checkpoint.pt")
    parser.add_argument("--fail-at", type=int, help="a step at which the last rank fails, once: rehearses a restart")
    train(**vars(parser.parse_args()))
    dist.destroy_process_group()  # when train() has let go of the model, which holds the group too

# %% [markdown]
# The process group is ended here, after `train()` has returned and its model is gone. The model
# holds the group too, and a group that is freed with it can hang at the very end.
#
# Around the program goes a short one that says what a rank sees and when. `train()` finds the
# process group that is there already.

# %% tags=["measures"]
# %%writefile watched.py
"""train.py with a watch: prints when this rank began, how long it imported and joined, and its environment."""
import time

first_line, started = time.time(), time.process_time()
import torch

imported = time.process_time() - started

import json
import os
import sys

import torch.distributed as dist
from train import train

before = time.perf_counter()
gpu = torch.cuda.is_available()
if gpu:
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl" if gpu else "gloo")
facts = {"first_line": first_line, "imported": imported, "joined": time.perf_counter() - before}
facts["environment"] = dict(os.environ)
print(f"\nFACTS {json.dumps(facts)}\n", end="", flush=True)  # in one piece: both ranks write here
train(checkpoint=sys.argv[1], fail_at=int(sys.argv[2]) if len(sys.argv) > 2 else None)
dist.destroy_process_group()

# %% [markdown]
# `launch` starts one torchrun for each "node". The options that make them one job are the
# *rendezvous*: a backend, an id, and an endpoint that all of them can reach. The first torchrun
# that comes opens the endpoint; the others report there, get their numbers, and start their
# ranks when all are there.
#
# Every run has a time-out, because what is launched here can hang, and some of it is meant to.

# %% tags=["measures"]
class Line(NamedTuple):
    seconds: float  # of the clock, when it came
    text: str


def free_port():
    with socket.socket() as found:
        found.bind(("localhost", 0))
        return found.getsockname()[1]


def environment_of(ranks):
    """One thread and, where this machine has them, a GPU for each rank; the ranks talk through this machine."""
    here = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ",".join(map(str, ranks)) if ranks[-1] < GPUS else ""}
    if sys.platform == "linux":
        here |= {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}
    return os.environ | here


def read(stream, lines):
    lines += (Line(time.time(), text.rstrip("\n")) for text in stream)

# %% tags=["measures"]
def launch(nodes, processes, *arguments, program="watched.py", options=(), timeout=300, **variables):
    """Runs a program by some torchruns with one endpoint; returns when it began and the lines of all nodes."""
    rendezvous = ["--rdzv-backend", "c10d", "--rdzv-id", "job", "--rdzv-endpoint", f"localhost:{free_port()}",
                  "--local-addr", "localhost"]
    command = [sys.executable, "-m", "torch.distributed.run", "--nnodes", str(nodes),
               "--nproc-per-node", str(processes), *rendezvous, *options, program, *map(str, arguments)]
    began, lines, torchruns = time.time(), [], []
    for node in range(nodes):
        environment = environment_of(range(node * processes, (node + 1) * processes)) | variables
        torchruns.append(subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE,
                                          stderr=subprocess.STDOUT))
    readers = [threading.Thread(target=read, args=(torchrun.stdout, lines)) for torchrun in torchruns]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join(max(0, began + timeout - time.time()))
    end(torchruns)
    assert not any(torchrun.returncode for torchrun in torchruns), "\n".join(line.text for line in lines)[-3000:]
    return began, sorted(lines)


def end(torchruns):
    """Kills what is left: torchrun gives each rank its own session, so killing torchrun is not enough."""
    for torchrun in torchruns:
        if torchrun.poll() is None:
            for process in [*psutil.Process(torchrun.pid).children(recursive=True), torchrun]:
                process.kill()
        torchrun.wait()

# %% [markdown]
# All that is known about a run is what it printed and when. Three helpers read it: the loss of
# each step, the facts that each rank told about itself, and the moments at which something
# happened.

# %% tags=["measures"]
def losses(lines):
    """{step: loss}; a step that was repeated counts once."""
    found = (re.match(r"step (\d+) loss (\S+)", line.text) for line in lines)
    return {int(match[1]): float(match[2]) for match in found if match}


def facts(lines):
    return [json.loads(line.text.removeprefix("FACTS ")) for line in lines if line.text.startswith("FACTS ")]


def moments(lines, pattern):
    """When the lines that match came."""
    return [line.seconds for line in lines if re.search(pattern, line.text)]

# %% [markdown]
# ## The same job, started three ways
#
# One process sees the variables that torchrun would set. Two processes on a node, and two
# nodes of one process, deal out the same batch. The job on one node runs three times, so that
# the times of its start have a spread.

# %% tags=["measures"]
alone = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "localhost",
         "MASTER_PORT": str(free_port())}
single = subprocess.run([sys.executable, "watched.py", "single.pt"], env=environment_of([0]) | alone, text=True,
                        stdout=subprocess.PIPE, check=True, timeout=300).stdout.splitlines()
one_node = [launch(1, 2, f"one_node{number}.pt") for number in range(3)]
_, two_nodes = launch(2, 1, "two_nodes.pt")
curves = {"one process": losses([Line(0, text) for text in single]), "one node": losses(one_node[0][1]),
          "two nodes": losses(two_nodes)}
assert all(sorted(curve) == list(range(8)) for curve in curves.values()), "every run has eight steps"

# %% [markdown]
# Two nodes and one node compute the very same sums, so nothing may differ. One process adds
# the eight sequences in another order than two do, so the last digits may. A larger difference
# would mean that the ranks trained on other rows, or that they never talked to each other:
# two models that train side by side look like a working job until you compare the loss.

# %% tags=["measures"]
def apart(left, right):
    """The largest difference of two losses, over the steps of the first run."""
    return max(abs(left[step] - right[step]) for step in left)


for name, sentence, left, right, most in (
    ("loss-nodes", "between two nodes of one process and one node of two", "one node", "two nodes", 1e-6),
    ("loss-processes", "between one process and two on a node, the same batch", "one process", "one node", 1e-4),
):
    claim(name, f"Largest difference in the loss over 8 steps {sentence}", apart(curves[left], curves[right]),
          "nats per token", kind="measured", at_most=most)

# %% [markdown]
# ## What a rank sees
#
# The environment of the second rank, in both layouts. Read it row by row: `RANK` is the same,
# and `LOCAL_RANK` is not. A program that takes its GPU by `RANK` works on one node and fails
# on the second.

# %% tags=["measures"]
MEANING = {
    "RANK": "number of this process in the job", "WORLD_SIZE": "processes of the job",
    "LOCAL_RANK": "number on this node: which GPU to take", "LOCAL_WORLD_SIZE": "processes on this node",
    "GROUP_RANK": "number of this node", "GROUP_WORLD_SIZE": "nodes",
    "MASTER_ADDR": "where the ranks meet: host", "MASTER_PORT": "where the ranks meet: port",
    "TORCHELASTIC_RESTART_COUNT": "restarts so far", "TORCHELASTIC_MAX_RESTARTS": "restarts allowed",
    "TORCHELASTIC_RUN_ID": "the --rdzv-id", "OMP_NUM_THREADS": "CPU threads of this process",
}


def seen(lines):
    """The environment of rank 1."""
    found = next(each["environment"] for each in facts(lines) if each["environment"]["RANK"] == "1")
    return {name: "a free one" if name == "MASTER_PORT" else found[name] for name in MEANING}


one, two = seen(one_node[0][1]), seen(two_nodes)
table("environment", "Environment variables of rank 1, as the run had them",
      {"name": "Variable", "meaning": "Meaning", "one": "One node, two processes",
       "two": "Two nodes, one process each"},
      [{"name": name, "meaning": meaning, "one": one[name], "two": two[name]} for name, meaning in MEANING.items()],
      kind="measured")

# %% [markdown]
# ## What a start costs
#
# torchrun imports torch, starts the ranks, and each rank imports torch again. Only then do
# they look for each other. A rank that also imports transformers, or reads a checkpoint of many
# gigabytes over a network, starts later still.
#
# The import of one rank is CPU time; the rest is what a clock on the wall shows. The fastest of
# the repeats counts, and the slowest stands beside it.

# %% tags=["measures"]
def timed(name, sentence, seconds, least, most):
    spread = {"min": min(seconds), "max": max(seconds), "repeats": len(seconds)}
    claim(name, sentence, min(seconds), "s", kind="measured", at_least=least, at_most=most, spread=spread)


ranks = [each for _, lines in one_node for each in facts(lines)]
timed("import-time", "CPU time of import torch in a rank", [each["imported"] for each in ranks], 0.2, 30)
timed("start-time", "Time from starting torchrun to the first line of the later of two ranks",
      [max(each["first_line"] for each in facts(lines)) - began for began, lines in one_node], 0.5, 200)
timed("join-time", "Time of init_process_group for two ranks", [each["joined"] for each in ranks], 0.0005, 60)

# %% [markdown]
# ## A rank that fails, once
#
# Rank 1 fails at step 5. Checkpoints come every second step, so the last one says step 4.
# torchrun sees the failure, ends the other rank, starts both again, and they read the
# checkpoint.
#
# So step 4 is computed twice, and its loss must come out as before: the checkpoint holds the
# weights *and* the optimizer, and the batch of a step depends on its number alone.
#
# The variable in the call is not decoration. torchrun keeps one store for all attempts unless
# it is set, and a restarted rank may then find the address of a process that is dead.

# %% tags=["measures"]
began, lines = launch(1, 2, "restarted.pt", 5, options=("--max-restarts", "1"), TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1")
assert len(moments(lines, "ranks start at step")) == 2, "the job was restarted once"
steps = [line.text for line in lines if line.text.startswith("step ")]
failed = moments(lines, "fails at step 5, as asked")[0]
second = [each for each in facts(lines) if each["environment"]["TORCHELASTIC_RESTART_COUNT"] == "1"]
again = min(each["first_line"] for each in second)
claim("steps-lost", "Steps computed twice after a failure at step 5, with a checkpoint every second step",
      len(steps) - len(losses(lines)), kind="measured", at_least=1, at_most=1)
claim("loss-restarted", "Largest difference in the loss over 8 steps between the restarted run and one without failure",
      apart(curves["one node"], losses(lines)), "nats per token", kind="measured", at_most=1e-6)
claim("restart-time", "Time from the failure of a rank to the first line of the restarted ones", again - failed, "s",
      kind="measured", at_least=0.05, at_most=120)

# %% [markdown]
# The timeline of that job. The colored stretches are what the program does; the rest is
# starting. With steps that take seconds the picture would turn over, and the part that counts
# would be the distance from the last checkpoint to the failure.

# %% tags=["measures"] alt="Timeline of the restarted job: start, steps, failure, restart, steps."
first = min(each["first_line"] for each in facts(lines) if each not in second)
shown = moments(lines, r"^step \d+ loss")
before, after = [moment for moment in shown if moment < again], [moment for moment in shown if moment > again]
phases = [("torchrun starts", began, first, plots.GRAY), ("ranks import and join", first, before[0], plots.BLUE),
          ("steps 0 to 4", before[0], failed, plots.GREEN), ("failure seen, ranks ended and started", failed, again,
                                                             plots.ORANGE),
          ("ranks import and join", again, after[0], plots.BLUE), ("steps 4 to 7", after[0], after[-1], plots.GREEN)]
_, axes = plt.subplots(figsize=(7, 2.6))
for row, (_, since, until, color) in enumerate(phases):
    axes.barh(row, max(until - since, 0.05), left=since - began, color=color)
axes.set(yticks=range(len(phases)), yticklabels=[name for name, *_ in phases], xlabel="seconds since torchrun began")
axes.invert_yaxis()
plt.show()

# %% [markdown]
# ## A rank that waits
#
# Rank 0 enters an all-reduce that rank 1 never reaches, the most frequent hang of all: a
# collective inside `if rank == 0`. The group of this program has a short time-out. Unless you
# set one it is many minutes, and the GPUs wait with it.

# %% tags=["measures"]
# %%writefile hang.py
"""Rank 0 waits for a rank that does not come."""
import datetime
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
group = dist.new_group(timeout=datetime.timedelta(seconds=5))
dist.barrier()
if dist.get_rank() == 0:
    started = time.perf_counter()
    try:
        dist.all_reduce(torch.ones(1), group=group)
    except RuntimeError as error:
        print("WAITED", time.perf_counter() - started, error, flush=True)
dist.barrier()
dist.destroy_process_group()

# %% tags=["measures"]
_, lines = launch(1, 2, program="hang.py")
waited = next(line.text for line in lines if line.text.startswith("WAITED "))
print(waited.split(maxsplit=2)[2])
assert 4.9 < float(waited.split()[1]) < 10, "the guide says that the error comes when the time-out is over"

# %% [markdown]
# Read the message: it names how long it waited, and neither the collective nor the rank that is
# missing. So a time-out ends the cost of a hang. To find its cause needs the tools of the
# guide.
#
# ## What came out, and what to do
#
# - **Write one program that deals out a batch of all ranks.** Then the launcher changes
#   nothing: one process, two, and two nodes learn the same.
# - **Take the GPU by `LOCAL_RANK`, decide who saves by `RANK`.** They differ as soon as there
#   is a second node.
# - **Count a start in seconds of importing.** It is nothing for a training run, and everything
#   for a job of a minute.
# - **Save as often as a restart is cheap.** A failure costs a start and the steps since the
#   last checkpoint; the second is the part that you choose.
# - **Set `TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1`** where you allow restarts.
# - **Give the process group a time-out of minutes.** A hang has no message before it.

# %%
# Compares this run with the published records. In Colab it also offers the record of this machine, to send.
from evidence.finish import finish

finish()
