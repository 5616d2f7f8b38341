"""A layer that takes no part in the loss: the error without find_unused_parameters, and none with it.

    torchrun --nproc-per-node 2 unused.py
"""
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

gpu = torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"])
device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if gpu else torch.device("cpu")
if gpu:
    torch.cuda.set_device(device)
dist.init_process_group("nccl" if gpu else "gloo")


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.used, self.unused = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

    def forward(self, inputs):
        return self.used(inputs)


for options in ({}, {"find_unused_parameters": True}):
    # --8<-- [start:wrap]
    ddp = DistributedDataParallel(Model().to(device), **options)
    # --8<-- [end:wrap]
    try:
        for _ in range(2):
            ddp(torch.randn(2, 4, device=device)).sum().backward()
        print(f"{options}: fine")
    except RuntimeError as error:  # in the second step
        print(f"{options}: RuntimeError: {error}")
without = [name for name, parameter in ddp.module.named_parameters() if parameter.grad is None]
print(f"without a gradient: {', '.join(without)}")
end = dist.barrier(async_op=True)  # named, so that gloo does not free it while Python ends
end.wait()
dist.destroy_process_group()
