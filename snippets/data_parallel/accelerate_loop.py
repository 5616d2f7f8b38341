"""Your own loop with Accelerate: it shards the data, skips the all-reduces in between, and gathers the predictions.

    torchrun --nproc-per-node 2 accelerate_loop.py
"""
import os

import torch
from accelerate import Accelerator
from accelerate.utils import DDPCommunicationHookType, DistributedDataParallelKwargs
from torch.utils.data import DataLoader

gpu = torch.cuda.device_count() >= int(os.environ.get("LOCAL_WORLD_SIZE", 1))
# --8<-- [start:accelerator]
hook = DDPCommunicationHookType.BF16 if gpu else DDPCommunicationHookType.FP16  # bf16 needs NCCL
ddp = DistributedDataParallelKwargs(gradient_as_bucket_view=True, comm_hook=hook)
accelerator = Accelerator(cpu=not gpu, gradient_accumulation_steps=2, kwargs_handlers=[ddp])
# --8<-- [end:accelerator]
torch.manual_seed(0)
model = torch.nn.Linear(8, 2)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, fused=True)
rows = [(torch.randn(8), row % 2) for row in range(42)]
# --8<-- [start:prepare]
model, optimizer, train, test = accelerator.prepare(  # the model in DDP, and for each process its part of the rows
    model, optimizer, DataLoader(rows[:32], batch_size=4, shuffle=True), DataLoader(rows[32:], batch_size=4),
)
# --8<-- [end:prepare]

# --8<-- [start:accumulate]
for inputs, labels in train:
    with accelerator.accumulate(model):  # enters no_sync() for all micro-batches but the last
        accelerator.backward(torch.nn.functional.cross_entropy(model(inputs), labels))
        optimizer.step()
        optimizer.zero_grad()
# --8<-- [end:accumulate]

# --8<-- [start:loop]
seen, padded = [], []
model.eval()  # no dropout in what is counted; model.train() before you train on
with torch.no_grad():
    for inputs, _ in test:
        predictions = model(inputs).argmax(-1)
        padded.append(accelerator.gather(predictions))
        seen.append(accelerator.gather_for_metrics(predictions))
accelerator.print(f"10 rows: gather gives {len(torch.cat(padded))}, gather_for_metrics gives {len(torch.cat(seen))}")
# --8<-- [end:loop]
if accelerator.num_processes > 1:
    end = torch.distributed.barrier(async_op=True)  # named, so that gloo does not free it while Python ends
    end.wait()
accelerator.end_training()
