"""FSDP2: parameters, gradients and optimizer state in shards. Run it as: torchrun --nproc_per_node 2 fsdp2.py"""
import os

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
mesh = init_device_mesh("cuda" if gpu else "cpu", (world,))

set_seed(0)  # the same weights on every rank, and every rank holds all of them here: see "loading"
config = LlamaConfig(hidden_size=128, intermediate_size=352, num_hidden_layers=4, num_attention_heads=4, vocab_size=1000)
model = AutoModelForCausalLM.from_config(config).train()
model.activation_checkpointing_enable()  # before sharding

# --8<-- [start:shard]
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32) if gpu else MixedPrecisionPolicy()
for layer in model.model.layers:  # first every layer ...
    fully_shard(layer, mesh=mesh, mp_policy=policy)
fully_shard(model, mesh=mesh, mp_policy=policy)  # ... then the rest: embedding, last norm, output layer
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)  # after sharding: its state is sharded too
# --8<-- [end:shard]

rows = torch.randint(0, config.vocab_size, (8, 64), generator=torch.Generator().manual_seed(1))  # a batch of all ranks
tokens = rows[:, 1:].numel()  # over which the loss is a mean, on all ranks
rows = torch.nn.functional.pad(rows, (0, 0, 0, -len(rows) % (2 * world)), value=-100)  # each rank gets as many rows
micro_batches = rows[rank::world].to(mesh.device_type).chunk(2)

# --8<-- [start:step]
for step in range(4):
    total = torch.zeros((), device=mesh.device_type)
    for labels in micro_batches:  # each reduces its gradients, so that they stay in shards
        loss = model(input_ids=labels.clamp(min=0), labels=labels, num_items_in_batch=tokens).loss
        (loss * world).backward()  # gradients are averaged over the ranks
        total += loss.detach()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)  # over all shards of all ranks
    optimizer.step()
    optimizer.zero_grad()
    dist.all_reduce(total)
    if rank == 0:
        print(f"step {step} loss {total.item():.6f}", flush=True)
# --8<-- [end:step]

# --8<-- [start:end]
end = dist.barrier(async_op=True)  # named, so that gloo does not free it while Python ends
end.wait()  # no rank leaves while another still communicates
dist.destroy_process_group()
# --8<-- [end:end]
