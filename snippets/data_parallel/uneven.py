"""Ranks with a different number of batches: with Join all end well. With "trap" the same without Join, which hangs.

    torchrun --nproc-per-node 2 uneven.py
"""
import os
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

gpu = torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"])
device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if gpu else torch.device("cpu")
if gpu:
    torch.cuda.set_device(device)
trap = sys.argv[1:] == ["trap"]
# --8<-- [start:timeout]
wait = timedelta(minutes=15)  # longer than what one rank may be alone with: a first compilation, an evaluation, a save
# --8<-- [end:timeout]
wait = timedelta(seconds=5) if trap else wait  # the trap shall not hold you up
# --8<-- [start:group]
dist.init_process_group("nccl" if gpu else "gloo", timeout=wait)
# --8<-- [end:group]
rank = dist.get_rank()
ddp = DistributedDataParallel(torch.nn.Linear(16, 16).to(device))
batches = [torch.randn(4, 16, device=device) for _ in range(3 + rank)]  # rank 1 has one more

# --8<-- [start:join]
with Join([ddp]):  # a rank that has no more batches answers the all-reduces of the others with zeros
    for batch in batches:
        ddp(batch).pow(2).mean().backward()
# --8<-- [end:join]
print(f"rank {rank}: {len(batches)} batches, done")

if trap:
    for batch in batches:
        ddp(batch).pow(2).mean().backward()  # rank 1 waits here, in its last batch
    dist.barrier()  # and rank 0 here
end = dist.barrier(async_op=True)  # named, so that gloo does not free it while Python ends
end.wait()
dist.destroy_process_group()
