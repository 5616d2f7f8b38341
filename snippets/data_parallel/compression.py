"""Compares what each compression of the gradients does to the loss.

    torchrun --nproc-per-node 2 compression.py
"""
import os

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook, fp16_compress_hook
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

rank, local = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
gpu = torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"])
device = torch.device("cuda", local) if gpu else torch.device("cpu")
if gpu:
    torch.cuda.set_device(device)
dist.init_process_group("nccl" if gpu else "gloo")


def compress(ddp, how):
    # --8<-- [start:hooks]
    if how == "16 bits":
        ddp.register_comm_hook(state=None, hook=bf16_compress_hook if gpu else fp16_compress_hook)  # bf16 needs NCCL
    if how == "PowerSGD":
        state = PowerSGDState(None, matrix_approximation_rank=4, start_powerSGD_iter=10)  # 10 % of the steps or more
        ddp.register_comm_hook(state, powerSGD_hook)
    # --8<-- [end:hooks]


for how in ("none", "16 bits", "PowerSGD"):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 64)).to(device)
    ddp = DistributedDataParallel(model, device_ids=[local] if gpu else None)
    compress(ddp, how)
    optimizer = torch.optim.AdamW(ddp.parameters(), lr=1e-3)
    data = torch.Generator().manual_seed(rank)
    for _ in range(100):
        inputs = torch.randn(32, 64, generator=data).to(device)
        loss = torch.nn.functional.mse_loss(ddp(inputs), inputs.sort(-1).values)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.all_reduce(loss := loss.detach())
    if rank == 0:
        print(f"{how}: loss {loss.item() / dist.get_world_size():.4f}")
end = dist.barrier(async_op=True)  # named, so that gloo does not free it while Python ends
end.wait()
dist.destroy_process_group()
