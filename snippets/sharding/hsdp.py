"""HSDP: shards inside a node, replicas across nodes. Run it as: torchrun --nproc_per_node 4 hsdp.py 2"""
import os
import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from transformers import AutoModelForCausalLM, LlamaConfig, set_seed

gpu = torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"])
if gpu:
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl" if gpu else "gloo")
rank, world = dist.get_rank(), dist.get_world_size()

# --8<-- [start:mesh]
per_node = int(sys.argv[1])  # the GPUs of a node
if world % per_node:
    raise ValueError(f"{world} ranks do not divide into nodes of {per_node}")
mesh = init_device_mesh("cuda" if gpu else "cpu", (world // per_node, per_node), mesh_dim_names=("replicate", "shard"))
# --8<-- [end:mesh]

set_seed(0)
config = LlamaConfig(hidden_size=128, intermediate_size=352, num_hidden_layers=4, num_attention_heads=4, vocab_size=1000)
model = AutoModelForCausalLM.from_config(config).train()

# --8<-- [start:shard]
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32) if gpu else MixedPrecisionPolicy()
for layer in model.model.layers:
    fully_shard(layer, mesh=mesh, mp_policy=policy)  # two dimensions: the second one shards, the first one replicates
fully_shard(model, mesh=mesh, mp_policy=policy)
# --8<-- [end:shard]
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

rows = torch.randint(0, config.vocab_size, (8, 64), generator=torch.Generator().manual_seed(1))  # a batch of all ranks
tokens = rows[:, 1:].numel()  # over which the loss is a mean, on all ranks
rows = torch.nn.functional.pad(rows, (0, 0, 0, -len(rows) % (2 * world)), value=-100)  # each rank gets as many rows
micro_batches = rows[rank::world].to(mesh.device_type).chunk(2)
# --8<-- [start:step]
for step in range(4):
    total = torch.zeros((), device=mesh.device_type)
    for number, labels in enumerate(micro_batches, 1):
        model.set_requires_all_reduce(number == len(micro_batches))  # across the nodes once per step
        loss = model(input_ids=labels.clamp(min=0), labels=labels, num_items_in_batch=tokens).loss
        (loss * world).backward()  # gradients are averaged over the ranks
        total += loss.detach()
    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
    optimizer.step()
    optimizer.zero_grad()
    dist.all_reduce(total)
    if rank == 0:
        print(f"step {step} loss {total.item():.6f}", flush=True)
# --8<-- [end:step]
local = sum(parameter.to_local().numel() for parameter in model.parameters())
print(f"rank {rank} holds {local} of {sum(parameter.numel() for parameter in model.parameters())} parameters", flush=True)

end = dist.barrier(async_op=True)  # named, so that gloo does not free it while Python ends
end.wait()
dist.destroy_process_group()
