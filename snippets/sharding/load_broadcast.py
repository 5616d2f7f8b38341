"""One rank reads the weights, the others get their shards. Run it as: torchrun --nproc_per_node 2 load_broadcast.py"""
import os

import torch
import torch.distributed as dist
from accelerate import init_empty_weights
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from transformers import AutoModelForCausalLM, LlamaConfig, set_seed

gpu = torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"])
device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if gpu else torch.device("cpu")
if gpu:
    torch.cuda.set_device(device)
dist.init_process_group("nccl" if gpu else "gloo")
rank, world = dist.get_rank(), dist.get_world_size()
mesh = init_device_mesh(device.type, (world,))
config = LlamaConfig(hidden_size=128, intermediate_size=352, num_hidden_layers=4, num_attention_heads=4, vocab_size=1000)

# --8<-- [start:load]
weights = {}
if rank == 0:  # yours: from_pretrained(...).state_dict()
    set_seed(0)
    weights = AutoModelForCausalLM.from_config(config).state_dict()

with init_empty_weights():  # parameters without memory; buffers stay real, since no checkpoint holds them
    model = AutoModelForCausalLM.from_config(config).train()
for layer in model.model.layers:
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
set_model_state_dict(model, weights, options=options)  # tensor by tensor, each rank keeps its shard
del weights
# --8<-- [end:load]

optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
rows = torch.randint(0, config.vocab_size, (8, 64), generator=torch.Generator().manual_seed(1))  # a batch of all ranks
tokens = rows[:, 1:].numel()  # over which the loss is a mean, on all ranks
rows = torch.nn.functional.pad(rows, (0, 0, 0, -len(rows) % world), value=-100)  # each rank gets as many; -100 counts in no loss
labels = rows[rank::world].to(device)
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
