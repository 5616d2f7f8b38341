"""FSDP2 with the shards in host memory. Run it as: torchrun --nproc_per_node 2 offload.py"""
import os

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard
from transformers import AutoModelForCausalLM, LlamaConfig, set_seed

gpu = torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"])
if gpu:
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("cpu:gloo,cuda:nccl" if gpu else "gloo")  # what lies on the host is reduced there
rank, world = dist.get_rank(), dist.get_world_size()
mesh = init_device_mesh("cuda" if gpu else "cpu", (world,))

set_seed(0)
config = LlamaConfig(hidden_size=128, intermediate_size=352, num_hidden_layers=4, num_attention_heads=4, vocab_size=1000)
model = AutoModelForCausalLM.from_config(config).train()
# --8<-- [start:shard]
policy = CPUOffloadPolicy(pin_memory=gpu)
for layer in model.model.layers:
    fully_shard(layer, mesh=mesh, offload_policy=policy)
fully_shard(model, mesh=mesh, offload_policy=policy)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)  # its update runs on the host
# --8<-- [end:shard]

rows = torch.randint(0, config.vocab_size, (8, 64), generator=torch.Generator().manual_seed(1))  # a batch of all ranks
tokens = rows[:, 1:].numel()  # over which the loss is a mean, on all ranks
rows = torch.nn.functional.pad(rows, (0, 0, 0, -len(rows) % world), value=-100)  # each rank gets as many; -100 counts in no loss
labels = rows[rank::world].to(mesh.device_type)
for step in range(4):
    loss = model(input_ids=labels.clamp(min=0), labels=labels, num_items_in_batch=tokens).loss
    (loss * world).backward()  # gradients are averaged over the ranks
    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
    optimizer.step()
    optimizer.zero_grad()
    total = loss.detach().clone()
    dist.all_reduce(total)
    if rank == 0:
        print(f"step {step} loss {total.item():.6f}", flush=True)

end = dist.barrier(async_op=True)  # named, so that gloo does not free it while Python ends
end.wait()
dist.destroy_process_group()
