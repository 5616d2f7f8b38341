"""Local SGD: every process trains by itself, and all average their weights every few steps.

    torchrun --nproc-per-node 2 local_sgd.py
"""
import torch
import torch.distributed as dist
from accelerate import Accelerator
from accelerate.local_sgd import LocalSGD
from torch.utils.data import DataLoader
from transformers import LlamaConfig, LlamaForCausalLM, set_seed

set_seed(0)
accelerator = Accelerator(cpu=True)
config = LlamaConfig(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2, vocab_size=256)
model = LlamaForCausalLM(config)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
data = DataLoader(torch.randint(256, (64, 32)), batch_size=4)
model, optimizer, data = accelerator.prepare(model, optimizer, data)


def apart():
    """How far the ranks' weights are from each other."""
    weights = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    mean = weights / accelerator.num_processes
    dist.all_reduce(mean)
    return (weights - mean).abs().max().item()


# --8<-- [start:loop]
with LocalSGD(accelerator=accelerator, model=model, local_sgd_steps=4) as local_sgd:
    for step, ids in enumerate(data):
        accelerator.backward(model(input_ids=ids, labels=ids).loss)
        optimizer.step()
        optimizer.zero_grad()
        local_sgd.step()  # sends on every fourth call, nothing on the others
        accelerator.print(f"step {step} apart {apart():.7f}")  # to see it work: apart() itself sends all weights
# --8<-- [end:loop]
if accelerator.num_processes > 1:
    end = dist.barrier(async_op=True)  # named, so that gloo does not free it while Python ends
    end.wait()
accelerator.end_training()
