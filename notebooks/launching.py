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
# # Launching
#
# One training program, started as one process, as two on one node, and as two nodes that share a rendezvous endpoint:
# do they compute the same? Then what goes wrong: a rank that fails and is restarted, and a rank that waits for ever. All
# of it runs on this machine. With two GPUs it uses NCCL, else gloo on the CPU.

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
import json
import re
import tempfile
import time
from pathlib import Path

import psutil
import torch
from torch.distributed.constants import default_pg_timeout

from evidence.claims import claim, start, table

os.chdir(tempfile.mkdtemp())  # where the programs go
GPUS = torch.cuda.device_count()
start("launching")

# %% [markdown]
# ## The program
#
# It stands in the guide too, and a test keeps the two the same. It deals the same batch out to any number of ranks, and
# writes a checkpoint every second step.

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


def save(path, state):
    """Under another name first: whoever dies here leaves the old checkpoint whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(state, path.with_suffix(".new"))
    os.replace(path.with_suffix(".new"), path)


def train(steps=8, save_every=2, checkpoint="checkpoint.pt", fail_at=None):
    gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if gpu else torch.device("cpu")
    if gpu:
        torch.cuda.set_device(device)  # before the first collective
    if not dist.is_initialized():  # Ray Train has done it
        dist.init_process_group("nccl" if gpu else "gloo", timeout=timedelta(minutes=10))
    rank, world = dist.get_rank(), dist.get_world_size()
    if BATCH % world:
        raise SystemExit(f"{BATCH} sequences cannot be dealt out to {world} ranks: choose a number that divides {BATCH}")
    torch.manual_seed(0)
    model = DistributedDataParallel(Model().to(device), device_ids=[device.index] if gpu else None)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    path, first = Path(checkpoint), 0
    if path.exists():  # on a file system that every node sees
        state = torch.load(path, map_location=device)
        model.module.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["step"]
    starts = [None] * world
    dist.all_gather_object(starts, first)  # and nobody saves before everybody has loaded
    if len(set(starts)) > 1:
        raise SystemExit(f"the ranks start at steps {starts}: not all of them see the same checkpoint")
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


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--save-every", type=int, default=2)
    parser.add_argument("--checkpoint", default="checkpoint.pt")
    parser.add_argument("--fail-at", type=int, help="a step at which the last rank fails, once: rehearses a restart")
    train(**vars(parser.parse_args()))
    dist.destroy_process_group()  # when train() has let go of the model, which holds the group too

# %% [markdown]
# Around it goes a program that says what a rank sees and when. `train()` finds the process group that is there.

# %% tags=["measures"]
# %%writefile watched.py
import json, os, sys, time

first_line, started = time.time(), time.process_time()
import torch
import torch.distributed as dist

imported = time.process_time() - started
from train import train

before = time.perf_counter()
gpu = torch.cuda.is_available()
if gpu:
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl" if gpu else "gloo")
facts = {"first_line": first_line, "imported": imported, "joined": time.perf_counter() - before, "environment": dict(os.environ)}
print(f"\nFACTS {json.dumps(facts)}\n", end="", flush=True)  # in one piece: both ranks write here
try:
    train(checkpoint=sys.argv[1], fail_at=int(sys.argv[2]) if len(sys.argv) > 2 else None)
except RuntimeError as error:
    if "as asked" in str(error):
        print("\nFACTS " + json.dumps({"failed": time.time()}) + "\n", end="", flush=True)
    raise
dist.destroy_process_group()

# %% [markdown]
# `nodes` starts one torchrun for each "node", and ends all that it started when the time is up.

# %% tags=["measures"]
def nodes(count, processes, *arguments, program="watched.py", options=(), environment=None, timeout=300):
    """Runs a program by `count` torchruns with one endpoint, `processes` ranks each; returns the output of each."""
    endpoint = ["--rdzv-backend", "c10d", "--rdzv-id", "job", "--rdzv-endpoint", f"localhost:{free_port()}", "--local-addr", "localhost"]
    environment = environment or {}
    command = [sys.executable, "-m", "torch.distributed.run", "--nnodes", str(count), "--nproc-per-node", str(processes), *endpoint,
               *options, program, *map(str, arguments)]
    agents, logs = [], []
    for node in range(count):
        visible = ",".join(str(node * processes + rank) for rank in range(processes)) if count * processes <= GPUS else ""
        here = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": visible}
        if sys.platform == "linux":
            here |= {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}
        logs.append(Path(f"node{node}.log"))
        with open(logs[-1], "w") as log:
            agents.append(subprocess.Popen(command, env={**os.environ, **here, **environment}, stdout=log, stderr=subprocess.STDOUT))
    deadline = time.monotonic() + timeout
    try:
        codes = [agent.wait(max(1, deadline - time.monotonic())) for agent in agents]
    finally:
        for agent in agents:
            if agent.poll() is None:
                for process in [*psutil.Process(agent.pid).children(recursive=True), agent]:
                    process.kill()
                agent.wait()
    texts = [log.read_text() for log in logs]
    assert not any(codes), "\n".join(texts)[-3000:]
    return texts


def free_port():
    import socket

    with socket.socket() as found:
        found.bind(("localhost", 0))
        return found.getsockname()[1]


def losses(text):
    """{step: loss} of the log of a run; a step that was repeated counts once."""
    return {int(step): float(loss) for step, loss in re.findall(r"^step (\d+) loss (\S+)", text, re.M)}


def facts(text):
    return [json.loads(line.removeprefix("FACTS ")) for line in text.splitlines() if line.startswith("FACTS ")]


# %% [markdown]
# ## One process, two on a node, two nodes

# %% tags=["measures"]
alone = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": str(free_port()),
         "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "0" if GPUS else ""}  # what torchrun would set
if sys.platform == "linux":
    alone |= {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}
command = [sys.executable, "watched.py", "single.pt"]
single = [subprocess.run(command, env=os.environ | alone, stdout=subprocess.PIPE, text=True, check=True, timeout=300).stdout]
began = time.time()
one_node = nodes(1, 2, "one_node.pt")
two_nodes = nodes(2, 1, "two_nodes.pt")

# %% tags=["measures"]
curves = {name: losses("\n".join(texts)) for name, texts in (("single", single), ("one_node", one_node), ("two_nodes", two_nodes))}
assert all(sorted(curve) == list(range(8)) for curve in curves.values())


def apart(left, right):
    return max(abs(left[step] - right[step]) for step in left)


claim("loss-nodes", "Largest difference in the loss over 8 steps between two nodes of one process and one node of two",
      apart(curves["one_node"], curves["two_nodes"]), "nats per token", kind="measured", at_most=1e-6)
claim("loss-processes", "Largest difference in the loss over 8 steps between one process and two on a node, the same batch",
      apart(curves["single"], curves["one_node"]), "nats per token", kind="measured", at_most=1e-4)

# %% [markdown]
# ## What a rank sees
#
# The environment of the second rank, in both layouts.

# %% tags=["measures"]
MEANING = {
    "RANK": "number of this process in the job", "WORLD_SIZE": "processes of the job",
    "LOCAL_RANK": "number on this node: which GPU to take", "LOCAL_WORLD_SIZE": "processes on this node",
    "GROUP_RANK": "number of this node", "GROUP_WORLD_SIZE": "nodes",
    "MASTER_ADDR": "where the ranks meet: host", "MASTER_PORT": "where the ranks meet: port",
    "TORCHELASTIC_RESTART_COUNT": "restarts so far", "TORCHELASTIC_MAX_RESTARTS": "restarts allowed",
    "TORCHELASTIC_RUN_ID": "the --rdzv-id", "OMP_NUM_THREADS": "CPU threads of this process",
}


def seen(texts):
    found = next(each["environment"] for text in texts for each in facts(text) if each["environment"]["RANK"] == "1")
    return {name: "a free one" if name == "MASTER_PORT" else found[name] for name in MEANING}


one, two = seen(one_node), seen(two_nodes)
table("environment", "Environment variables of rank 1, as the run had them",
      {"name": "Variable", "meaning": "Meaning", "one": "One node, two processes", "two": "Two nodes, one process each"},
      [{"name": name, "meaning": meaning, "one": one[name], "two": two[name]} for name, meaning in MEANING.items()], kind="measured")

# %% [markdown]
# ## What the start costs
#
# `import torch` of one rank is CPU time. The others are wall time on a machine that others may use.

# %% tags=["measures"]
ranks = [each for texts in (one_node, two_nodes) for text in texts for each in facts(text)]
first = [each for text in one_node for each in facts(text)]
claim("import-time", "CPU time of import torch in a rank, the faster of two", min(each["imported"] for each in first), "s",
      kind="measured", at_least=0.2, at_most=30)
claim("start-time", "Time from starting torchrun to the first line of the later of two ranks", max(each["first_line"] for each in first) - began,
      "s", kind="measured", at_least=0.5, at_most=200)
claim("join-time", "Time of init_process_group for two ranks, the fastest of four", min(each["joined"] for each in ranks), "s",
      kind="measured", at_least=0.0005, at_most=60)

# %% [markdown]
# ## A rank that fails, once
#
# Rank 1 fails at step 5. The last checkpoint is of step 4. torchrun ends the other rank, starts both again, and they read
# the checkpoint.

# %% tags=["measures"]
restarted = nodes(1, 2, "restarted.pt", 5, options=("--max-restarts", "1"), environment={"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"})
text = restarted[0]
began_at = [int(step) for step in re.findall(r"ranks start at step (\d+)", text)]
assert len(began_at) == 2, text
shown = [int(step) for step in re.findall(r"^step (\d+) ", text, re.M)]
moments = facts(text)
failed = next(each["failed"] for each in moments if "failed" in each)
again = min(each["first_line"] for each in moments if each.get("environment", {}).get("TORCHELASTIC_RESTART_COUNT") == "1")
claim("steps-lost", "Steps computed twice after a failure at step 5, with a checkpoint every second step", len(shown) - len(set(shown)),
      kind="measured", at_least=1, at_most=1)
claim("loss-restarted", "Largest difference in the loss over 8 steps between the restarted run and one that never failed",
      apart(curves["one_node"], losses(text)), "nats per token", kind="measured", at_most=1e-6)
claim("restart-time", "Time from the failure of a rank to the first line of the restarted ones", again - failed, "s", kind="measured",
      at_least=0.05, at_most=120)

# %% [markdown]
# ## A rank that waits
#
# Rank 0 enters an all-reduce that rank 1 never reaches. The group's time-out is set; the default is far longer.

# %% tags=["measures"]
# %%writefile hang.py
import datetime, time
import torch, torch.distributed as dist

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
waited = float(re.search(r"WAITED (\S+)", "\n".join(nodes(1, 2, program="hang.py")))[1])
claim("hang-time", "Time until a rank that waits in vain gets its error, with a time-out of 5 s on gloo", waited, "s", kind="measured",
      at_least=4.9, at_most=30)
claim("default-timeout", "Time-out of a gloo process group unless you set one",
      default_pg_timeout.total_seconds() / 60, "minutes", kind="measured", at_least=30, at_most=30)
