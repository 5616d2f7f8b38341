"""Gradients in 16 bits, by gloo.

    torchrun --nproc-per-node 2 compress.py
"""
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 64)))


# --8<-- [start:hook]
def bf16(state, bucket):  # under a name of your own: DDP asks for NCCL when it sees bf16_compress_hook itself
    return bf16_compress_hook(state, bucket)


model.register_comm_hook(state=None, hook=bf16)
# --8<-- [end:hook]

optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
data = torch.Generator().manual_seed(dist.get_rank())
for step in range(20):
    inputs = torch.randn(32, 64, generator=data)
    loss = torch.nn.functional.mse_loss(model(inputs), inputs.sort(-1).values)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if step in (0, 19):
        mean = loss.detach() / dist.get_world_size()
        dist.all_reduce(mean)
        if dist.get_rank() == 0:
            print(f"step {step} loss {mean.item():.4f}")
end = dist.barrier(async_op=True)  # named, so that gloo does not free it while Python ends
end.wait()
dist.destroy_process_group()
