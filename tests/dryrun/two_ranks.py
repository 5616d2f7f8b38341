"""Runs each strategy on real tensors and a real process group. Rank 0 prints what the tracker and DDP's hook see.

torchrun --nproc-per-node 2 two_ranks.py CONFIG_AS_JSON
"""

import json
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.distributed.device_mesh import init_device_mesh
from transformers import AutoModelForCausalLM, LlamaConfig

from dryrun.tracing import rank_setup
from dryrun.tracing.collectives import RankTracker
from dryrun.tracing.tracing import OPTIMIZERS, language_batch

SETTLE = 0.2  # seconds: gloo's threads release their last buffer a little after the call returns


def distributed(model, strategy, mesh, buckets):
    if strategy == "tp":
        rank_setup.split(model, mesh, False)
    elif strategy == "ddp":
        model = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=1)

        def hook(state, bucket):
            buckets.append(bucket.buffer().nbytes)
            return allreduce_hook(None, bucket)

        model.register_comm_hook(None, hook)
    else:
        rank_setup.shard(model, mesh, torch.bfloat16, torch.float32, keep=strategy == "fsdp2_keep")
    return model


def steps(config, strategy, number):
    """What `number` steps leave: sizes of DDP's buckets in the last one, or the tracker's account of it."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    model.config.use_cache = False
    model.train()
    batch = language_batch(model, 2, 32)
    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("tensor" if strategy == "tp" else "shard",))
    buckets = []
    model = distributed(model, strategy, mesh, buckets)
    optimizer = rank_setup.make_optimizer(model, OPTIMIZERS["adamw"])
    for _ in range(number):
        buckets.clear()
        with RankTracker(model, optimizer, batch) as tracker:
            loss = model(**batch).loss
            time.sleep(SETTLE)
            forward = tracker.snapshot()
            (loss / 1).backward()  # as training_step divides by the number of micro-batches
            del loss
            time.sleep(SETTLE)
            held = tracker.snapshot()
            optimizer.step()
            optimizer.zero_grad()
    if strategy == "ddp":
        return buckets
    counted = sorted([c.kind, c.count, c.payload] for c in tracker.collectives.values())
    return {"peak": tracker.peak, "after_forward": forward, "held": held, "collectives": counted}


dist.init_process_group("gloo")
torch.set_num_threads(1)
config = LlamaConfig(**json.loads(sys.argv[1]))
seen = {strategy: steps(config, strategy, 2) for strategy in ("fsdp2", "fsdp2_keep", "tp", "ddp")}
if dist.get_rank() == 0:
    print(json.dumps(seen))
dist.barrier()
dist.destroy_process_group()
