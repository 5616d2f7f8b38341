"""Bandwidth of all-reduce between your GPUs: what each sends, in one direction.

torchrun --nproc-per-node 2 measure_link.py
"""

import os
import time

import torch
import torch.distributed as dist

on_gpu = torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"])
rank = int(os.environ["LOCAL_RANK"])
device = torch.device("cuda", rank) if on_gpu else torch.device("cpu")
if on_gpu:
    torch.cuda.set_device(device)
dist.init_process_group("nccl" if on_gpu else "gloo")
ranks = dist.get_world_size()
data = torch.ones(2**28 if on_gpu else 2**22, device=device)  # 1 GiB on a GPU


def reduce():
    dist.all_reduce(data)
    if on_gpu:
        torch.cuda.synchronize()


for _ in range(3):
    reduce()
seconds = []
for _ in range(5):
    dist.barrier()
    started = time.perf_counter()
    reduce()
    seconds.append(time.perf_counter() - started)
sent = 2 * (ranks - 1) / ranks * data.numel() * data.element_size()
if dist.get_rank() == 0:
    print(f"{sent / min(seconds) / 1e9:.2f} GB/s")
end = dist.barrier(async_op=True)  # named, so that gloo does not free it while Python ends
end.wait()
dist.destroy_process_group()
