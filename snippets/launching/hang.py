"""Ways for two ranks to stand still, and what names the reason. Each ends by its time-out.

torchrun --standalone --nproc-per-node 2 hang.py branch roll_call
TORCH_DISTRIBUTED_DEBUG=DETAIL torchrun --standalone --nproc-per-node 2 hang.py branch other
"""

import os
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

SECONDS = 5  # a rank waits as long for the others; the default is 30 minutes (gloo) or 10 (nccl)


# --8<-- [start:branch]
def branch(group, loss):
    """The mistake: a collective that only some ranks reach."""
    if dist.get_rank() == 0:
        dist.all_reduce(loss, group=group)
# --8<-- [end:branch]


def other(group, loss):
    """The mistake: two ranks in different collectives."""
    if dist.get_rank() == 0:
        dist.all_reduce(loss, group=group)
    else:
        dist.broadcast(loss, src=0, group=group)


# --8<-- [start:roll_call]
def roll_call(group, loss):
    """The test: who does not come here? Only gloo has it; beside NCCL, make a gloo group for it."""
    if dist.get_rank() != 1:  # rank 1 is busy elsewhere
        dist.monitored_barrier(group, timeout=timedelta(seconds=SECONDS), wait_all_ranks=True)
# --8<-- [end:roll_call]


if torch.cuda.is_available():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
device = "cuda" if torch.cuda.is_available() else "cpu"
dist.init_process_group("cpu:gloo,cuda:nccl" if device == "cuda" else "gloo")
wait = timedelta(seconds=SECONDS)
groups = {name: dist.new_group(backend="gloo" if name == "roll_call" else None, timeout=wait) for name in sys.argv[1:]}
for name, group in groups.items():
    dist.barrier()
    started = time.perf_counter()
    try:
        globals()[name](group, torch.ones(1, device=device))
        print(f"{name}: went on", flush=True)
    except RuntimeError as error:  # with NCCL a watchdog ends the process instead
        print(f"{name}: after {time.perf_counter() - started:.1f} s: {type(error).__name__}: {error}", flush=True)
end = dist.barrier(async_op=True)  # named, so that gloo does not free it while Python ends
end.wait()
dist.destroy_process_group()
