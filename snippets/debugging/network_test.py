"""Tests the network between your ranks, on GPUs or CPUs: is the sum right, how fast is it, and which rank is slow?

    torchrun --standalone --nproc-per-node 8 network_test.py
    torchrun --nnodes 2 --nproc-per-node 8 --rdzv-endpoint node0:29500 --rdzv-backend c10d network_test.py
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
SIZES = [2**power for power in range(10, 31 if gpu else 25, 2)]  # bytes


def seconds(function, repeats=5):
    """The fastest of some calls that all ranks begin together, after one that does not count."""
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


def all_reduce(size):
    """Seconds, and GB/s in two ways. The second does not depend on the number of ranks: compare it with the link."""
    tensor = torch.ones(size // 4, device=device)
    time_of_one = seconds(lambda: dist.all_reduce(tensor))
    algorithm = size / time_of_one / 1e9
    return time_of_one, algorithm, algorithm * 2 * (world - 1) / world  # each rank sends this share in a ring


def pair(other, size=2**24):
    """GB/s between rank 0 and one other: a slow node or a bad cable shows here, and not in an average."""
    tensor = torch.ones(size // 4, device=device)

    def send():
        if rank == 0:
            dist.send(tensor, other)
        elif rank == other:
            dist.recv(tensor, 0)

    return size / seconds(send) / 1e9


def product():
    """Milliseconds of a matrix product: a rank that computes slowly looks like a slow network to all others."""
    matrix = torch.ones(4096 if gpu else 512, 4096 if gpu else 512, device=device)
    return 1e3 * seconds(lambda: matrix @ matrix)
# --8<-- [end:test]


def gathered(value):
    found = [None] * world
    dist.all_gather_object(found, value)
    return found


def say(line):
    if rank == 0:
        print(line, flush=True)


if __name__ == "__main__":
    check_sum()
    hosts = gathered(socket.gethostname())
    say(f"{world} ranks on {len(set(hosts))} node(s) by {dist.get_backend()}: the sum is right on all")
    say(f"{'bytes':>12} {'microseconds':>14} {'algbw, GB/s':>12} {'busbw, GB/s':>12}")
    for size in SIZES:
        time_of_one, algorithm, bus = all_reduce(size)
        say(f"{size:12} {1e6 * time_of_one:14.0f} {algorithm:12.2f} {bus:12.2f}")
    for other in range(1, world):
        speed = pair(other)
        say(f"rank 0 to rank {other} on {hosts[other]}: {speed:.2f} GB/s")
    for number, milliseconds in enumerate(gathered(product())):
        say(f"rank {number} on {hosts[number]}: a product takes {milliseconds:.2f} ms")
    end = dist.barrier(async_op=True)  # named, so that gloo does not free it while Python ends
    end.wait()
    dist.destroy_process_group()
