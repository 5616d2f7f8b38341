"""Trains one model on several processes, with your own loop.

    torchrun --nproc-per-node 2 ddp.py
"""
import contextlib
import itertools
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler
from transformers import AutoModelForCausalLM, LlamaConfig

TOTAL_BATCH, PER_DEVICE, EPOCHS = 32, 2, 2

# --8<-- [start:start]
rank, world, local = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))  # torchrun sets them
gpu = torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"])
device = torch.device("cuda", local) if gpu else torch.device("cpu")
if gpu:
    torch.cuda.set_device(device)
dist.init_process_group("nccl" if gpu else "gloo")
if TOTAL_BATCH % (PER_DEVICE * world):
    raise SystemExit(f"{world} processes x {PER_DEVICE} samples do not divide a batch of {TOTAL_BATCH}")
accumulation = TOTAL_BATCH // (PER_DEVICE * world)  # the batch stays the same on any number of processes
# --8<-- [end:start]

torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=1000, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=2,
)
rows = torch.randint(0, config.vocab_size, (48, 32))
# --8<-- [start:wrap]
model = AutoModelForCausalLM.from_config(config).to(device)
ddp = DistributedDataParallel(model, device_ids=[local] if gpu else None)  # sends the weights of rank 0 to all
optimizer = torch.optim.AdamW(ddp.parameters(), lr=1e-3, fused=True)
torch.manual_seed(1000 + rank)  # from here on another dropout on each rank
# --8<-- [end:wrap]

# --8<-- [start:loop]
sampler = DistributedSampler(rows, shuffle=True, seed=0)  # gives each rank its share, all of them as many rows
loader = DataLoader(rows, batch_size=PER_DEVICE, sampler=sampler)
step = 0
for epoch in range(EPOCHS):
    sampler.set_epoch(epoch)  # without it every epoch has the order of the first
    batches = iter(loader)
    while micro_batches := [*itertools.islice(batches, accumulation)]:  # fewer at the end of an epoch, or of fewer rows
        rows_here, total = sum(map(len, micro_batches)), torch.zeros((), device=device)
        for number, ids in enumerate(micro_batches, 1):
            ids = ids.to(device)
            with contextlib.nullcontext() if number == len(micro_batches) else ddp.no_sync():  # forward and backward inside
                loss = ddp(input_ids=ids, labels=ids).loss * len(ids) / rows_here
                loss.backward()
            total += loss.detach()
        optimizer.step()
        optimizer.zero_grad()
        dist.all_reduce(total)  # every rank takes part, rank 0 alone prints
        if rank == 0:
            print(f"step {step} loss {total.item() / world:.6f}")
        step += 1
# --8<-- [end:loop]

# --8<-- [start:save]
if rank == 0:
    ddp.module.save_pretrained("out")  # .module: without it every name begins with "module."
end = dist.barrier(async_op=True)  # named, so that gloo does not free it while Python ends
end.wait()  # nobody leaves before the file is whole
dist.destroy_process_group()
# --8<-- [end:save]
