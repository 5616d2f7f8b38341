"""Gathers tensors whose length differs from rank to rank. With "trap" also all-reduces them: rank 0 sees no error.

    torchrun --nproc-per-node 2 shapes.py
"""
import os
import sys
from datetime import timedelta

import torch
import torch.distributed as dist

gpu = torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"])
device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if gpu else torch.device("cpu")
if gpu:
    torch.cuda.set_device(device)
trap = sys.argv[1:] == ["trap"]
wait = timedelta(seconds=5) if trap else timedelta(minutes=15)  # the trap shall not hold you up
dist.init_process_group("nccl" if gpu else "gloo", timeout=wait)
rank, world = dist.get_rank(), dist.get_world_size()
scores = torch.full((3 + rank,), 1.0 + rank, device=device)  # rank 1 has one more

# --8<-- [start:right]
lengths = [torch.zeros(1, dtype=torch.long, device=device) for _ in range(world)]
dist.all_gather(lengths, torch.tensor([len(scores)], device=device))  # first the lengths, which are of one shape
longest = int(max(lengths))
padded = torch.nn.functional.pad(scores, (0, longest - len(scores)))
parts = [torch.zeros(longest, device=device) for _ in range(world)]
dist.all_gather(parts, padded)
everything = torch.cat([part[: int(length)] for part, length in zip(parts, lengths)])
# --8<-- [end:right]
print(f"rank {rank}: {everything.tolist()}")

if trap:
    dist.all_reduce(scores)  # lengths 3 and 4
    print(f"rank {rank}: {scores.tolist()} and no error", flush=True)
else:
    end = dist.barrier(async_op=True)  # named, so that gloo does not free it while Python ends
    end.wait()
dist.destroy_process_group()
