"""Measures the all-reduce between your processes: what your link really gives.

    torchrun --nproc-per-node 2 allreduce_speed.py
"""
import os
import time

import torch
import torch.distributed as dist

gpu = torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"])
device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if gpu else torch.device("cpu")
if gpu:
    torch.cuda.set_device(device)
dist.init_process_group("nccl" if gpu else "gloo")
world = dist.get_world_size()


# --8<-- [start:measure]
def seconds(size, repeats=5):
    """The fastest of some all-reduces of `size` bytes, the first one (connections, buffers) left out."""
    tensor, times = torch.ones(size // 4, device=device), []
    for _ in range(repeats + 1):
        dist.barrier()
        started = time.perf_counter()
        dist.all_reduce(tensor)
        if gpu:
            torch.cuda.synchronize()
        times.append(time.perf_counter() - started)
    return min(times[1:])


for megabytes in (1, 16, 64) if not gpu else (1, 25, 256, 1024):
    took = seconds(megabytes * 10**6)
    sent = 2 * (world - 1) / world * megabytes * 10**6  # bytes that each process sends, and receives
    if dist.get_rank() == 0:
        print(f"{megabytes} MB on {world} processes: {1000 * took:.1f} ms, {sent / took / 1e9:.2f} GB/s")
# --8<-- [end:measure]
end = dist.barrier(async_op=True)  # named, so that gloo does not free it while Python ends
end.wait()
dist.destroy_process_group()
