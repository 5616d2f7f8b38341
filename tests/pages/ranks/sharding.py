"""Counts the all-gathers of a step on four ranks, by the size of their group, with reshard_after_forward=2."""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from transformers import LlamaConfig, LlamaForCausalLM

from dryrun.tracing.collectives import RankTracker

dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (4,))
config = LlamaConfig(
    vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=3, num_attention_heads=2, use_cache=False
)
model = LlamaForCausalLM(config)
for layer in model.model.layers:
    fully_shard(layer, mesh=mesh, reshard_after_forward=2)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters())
ids = torch.zeros(1, 8, dtype=torch.long)
model(input_ids=ids, labels=ids).loss.backward()  # FSDP2 prepares itself in the first step
optimizer.step()
optimizer.zero_grad()
with RankTracker(model, optimizer) as tracker:
    model(input_ids=ids, labels=ids).loss.backward()
if dist.get_rank() == 0:
    for collective in tracker.collectives.values():
        print(collective.kind, "in groups of", collective.group, "x", collective.count, flush=True)
end = dist.barrier(async_op=True)  # named, so that gloo does not free it while Python ends
end.wait()
dist.destroy_process_group()
