"""What only rank 0 does must not communicate. With "trap" it does, and rank 0 waits for ranks that have gone on.

    torchrun --nproc-per-node 2 rank_zero.py
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
rank = dist.get_rank()
loss = torch.tensor(1.0 + rank, device=device)

# --8<-- [start:right]
dist.all_reduce(loss)  # every rank
if rank == 0:
    print(f"loss {loss.item() / dist.get_world_size()}")
# --8<-- [end:right]

# --8<-- [start:together]
bad = (~torch.isfinite(loss)).float()  # or: the time is up, a signal came
dist.all_reduce(bad, op=dist.ReduceOp.MAX)  # every rank, in every step
if bad.item():
    print(f"rank {rank} skips this step, as all others do")
# --8<-- [end:together]

if trap:
    # --8<-- [start:wrong]
    if rank == 0:
        dist.all_reduce(loss)  # rank 0 alone: it hangs
        print(f"loss {loss.item() / dist.get_world_size()}")
    # --8<-- [end:wrong]
    dist.barrier()  # where the others have gone on to
end = dist.barrier(async_op=True)  # named, so that gloo does not free it while Python ends
end.wait()
dist.destroy_process_group()
