"""Sharded checkpoints. Run it as: torchrun --nproc_per_node 2 checkpoint.py, then again with 4, or 1"""
import os
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_state_dict,
    set_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from transformers import AutoModelForCausalLM, LlamaConfig, set_seed

gpu = torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"])
if gpu:
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl" if gpu else "gloo")
rank, world = dist.get_rank(), dist.get_world_size()
mesh = init_device_mesh("cuda" if gpu else "cpu", (world,))

set_seed(0)
config = LlamaConfig(hidden_size=128, intermediate_size=352, num_hidden_layers=4, num_attention_heads=4, vocab_size=1000)
model = AutoModelForCausalLM.from_config(config).train()
for layer in model.model.layers:
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

# --8<-- [start:load]
whole = [int(path.parent.name) for path in Path("checkpoint").glob("*/.metadata")]  # written last in each folder
chosen = [max(whole, default=0)]
dist.broadcast_object_list(chosen)  # by rank 0: on a shared file system others may see a new file later
first = chosen[0]
if first:
    weights, optimizer_state = get_state_dict(model, optimizer)  # says what this rank wants, on this world size
    state = {"model": weights, "optimizer": optimizer_state}
    dcp.load(state, checkpoint_id=f"checkpoint/{first}")
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
# --8<-- [end:load]

rows = torch.randint(0, config.vocab_size, (8, 64), generator=torch.Generator().manual_seed(1))  # a batch of all ranks
tokens = rows[:, 1:].numel()  # over which the loss is a mean, on all ranks
rows = torch.nn.functional.pad(rows, (0, 0, 0, -len(rows) % world), value=-100)  # each rank gets as many; -100 counts in no loss
labels = rows[rank::world].to(mesh.device_type)
for step in range(first, first + 2):
    loss = model(input_ids=labels.clamp(min=0), labels=labels, num_items_in_batch=tokens).loss
    (loss * world).backward()  # gradients are averaged over the ranks
    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
    optimizer.step()
    optimizer.zero_grad()
    total = loss.detach().clone()
    dist.all_reduce(total)
    if rank == 0:
        print(f"step {step} loss {total.item():.6f}", flush=True)

# --8<-- [start:save]
weights, optimizer_state = get_state_dict(model, optimizer)
state = {"model": weights, "optimizer": optimizer_state}
folder = f"checkpoint/{step + 1}"  # of its own: the last one stays whole until this one is
dcp.save(state, checkpoint_id=folder)
assert Path(folder, ".metadata").exists(), "all nodes must share this disk: rank 0 wrote the list of all shards on another one"
# --8<-- [end:save]

# --8<-- [start:export]
whole = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))  # on every rank
if rank == 0:  # only this one gets the weights
    AutoModelForCausalLM.from_config(config).save_pretrained("exported", state_dict=whole)
# --8<-- [end:export]

end = dist.barrier(async_op=True)  # named, so that gloo does not free it while Python ends
end.wait()
dist.destroy_process_group()
