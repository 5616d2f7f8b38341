"""Tensor parallelism by transformers. Run: torchrun --nproc-per-node 2 tensor_parallel.py"""

import os

import torch
import torch.distributed as dist
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.distributed import DistributedConfig

size = int(os.environ["WORLD_SIZE"])
config = LlamaConfig(
    vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=8,
    num_attention_heads=4, num_key_value_heads=2, use_cache=False,
)
gpu = torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"])
if gpu:
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl" if gpu else "gloo")
torch.manual_seed(0)
if dist.get_rank() == 0:  # a checkpoint with random weights; yours comes from the hub
    LlamaForCausalLM(config).save_pretrained("checkpoint")
dist.barrier()
# --8<-- [start:load]
layout = DistributedConfig(tp_size=size)
model = LlamaForCausalLM.from_pretrained("checkpoint", distributed_config=layout)
# --8<-- [end:load]
ids = torch.randint(256, (8, 32), generator=torch.Generator().manual_seed(1)).to(model.device)  # the same on every rank
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)  # sharded and whole weights in one optimizer
for _ in range(4):
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if dist.get_rank() == 0:
        print(f"loss {loss.item():.5f}")
end = dist.barrier(async_op=True)  # named, so that gloo does not free it while Python ends
end.wait()
dist.destroy_process_group()
