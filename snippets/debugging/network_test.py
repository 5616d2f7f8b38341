"""Tests the network between your ranks: does each reach the others, is the sum right, how fast is it, and who is slow?

    torchrun --standalone --nproc-per-node 2 network_test.py
"""
import os
import socket
import time
from datetime import timedelta

import torch
import torch.distributed as dist

gpu = torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"])
device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if gpu else torch.device("cpu")
if gpu:
    torch.cuda.set_device(device)
dist.init_process_group("nccl" if gpu else "gloo", timeout=timedelta(minutes=2))
rank, world = dist.get_rank(), dist.get_world_size()


def seconds(function, repeats=5):
    times = []
    for _ in range(repeats + 1):
        dist.barrier()
        begun = time.perf_counter()
        function()
        if gpu:
            torch.cuda.synchronize()
        times.append(time.perf_counter() - begun)
    return min(times[1:])


# --8<-- [start:test]
def check_sum():
    """Every rank gives its number: a wrong sum is a broken link or a wrong library, not a slow one."""
    total = torch.full((1024,), float(rank), device=device)
    dist.all_reduce(total)
    wanted = world * (world - 1) / 2
    assert (total == wanted).all(), f"rank {rank} on {socket.gethostname()} got {total[0]:g} in place of {wanted:g}"


def bandwidth(megabytes):
    tensor = torch.ones(megabytes * 250_000, device=device)
    sent = 2 * (world - 1) / world * megabytes / 1000  # GB that each rank sends in a ring
    return sent / seconds(lambda: dist.all_reduce(tensor))


def pair(other, megabytes=16):
    """Between rank 0 and one other: a slow node or a bad cable shows here, and not in an average."""
    tensor = torch.ones(megabytes * 250_000, device=device)

    def send():
        if rank == 0:
            dist.send(tensor, other)
        elif rank == other:
            dist.recv(tensor, 0)

    return megabytes / 1000 / seconds(send)
# --8<-- [end:test]


check_sum()
small = torch.ones(1, device=device)
lines = [f"sum right on all {world} ranks", f"latency {1e6 * seconds(lambda: dist.all_reduce(small)):.0f} microseconds"]
lines += [f"all-reduce of {megabytes} MB: {bandwidth(megabytes):.2f} GB/s" for megabytes in (1, 16, 64)]
hosts = [None] * world
dist.all_gather_object(hosts, socket.gethostname())
lines += [f"rank 0 to rank {other} on {hosts[other]}: {pair(other):.2f} GB/s" for other in range(1, world)]
if rank == 0:
    print("\n".join(lines))
end = dist.barrier(async_op=True)  # named, so that gloo does not free it while Python ends
end.wait()
dist.destroy_process_group()
