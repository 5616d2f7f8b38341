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

BATCH, LENGTH, WIDTH, VOCABULARY = 16, 32, 64, 256  # BATCH: sequences per step, of all ranks together


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


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--save-every", type=int, default=2)
    parser.add_argument("--checkpoint", default="checkpoint.pt")
    parser.add_argument("--fail-at", type=int, help="a step at which the last rank fails, once: rehearses a restart")
    train(**vars(parser.parse_args()))
    dist.destroy_process_group()  # when train() has let go of the model, which holds the group too
