"""An average of sharded weights (EMA), saved with them. Run it as: torchrun --nproc_per_node 2 ema.py; again, it goes on"""
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

# --8<-- [start:make]
average = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}  # this rank's shards


@torch.no_grad()
def update_average(decay=0.999):
    for name, parameter in model.named_parameters():
        average[name].lerp_(parameter, 1 - decay)


@torch.no_grad()
def swap():
    """Exchanges weights and average: before an evaluation, and again after it."""
    model.reshard()  # a forward pass without a backward pass leaves the root gathered
    for name, parameter in model.named_parameters():
        trained = parameter.clone()
        parameter.copy_(average[name])
        average[name].copy_(trained)
# --8<-- [end:make]


# --8<-- [start:resume]
def everything():
    return dict(zip(("model", "optimizer"), get_state_dict(model, optimizer)), average=average)


chosen = [max((int(path.parent.name) for path in Path("checkpoint").glob("*/.metadata")), default=0)]
dist.broadcast_object_list(chosen)  # by rank 0
first = chosen[0]
if first:
    state = everything()
    dcp.load(state, checkpoint_id=f"checkpoint/{first}")  # the average in place: begun anew, it would be that of the start
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
# --8<-- [end:resume]

rows = torch.randint(0, config.vocab_size, (8, 64), generator=torch.Generator().manual_seed(1))  # a batch of all ranks
tokens = rows[:, 1:].numel()  # over which the loss is a mean, on all ranks
rows = torch.nn.functional.pad(rows, (0, 0, 0, -len(rows) % world), value=-100)  # each rank gets as many; -100 counts in no loss
labels = rows[rank::world].to(mesh.device_type)
batch = {"input_ids": labels.clamp(min=0), "labels": labels, "num_items_in_batch": tokens}
for _ in range(4):
    (model(**batch).loss * world).backward()  # gradients are averaged over the ranks
    optimizer.step()
    optimizer.zero_grad()
    update_average(decay=0.9)  # so few steps; a long run takes 0.999 or more
dcp.save(everything(), checkpoint_id=f"checkpoint/{first + 4}")

# --8<-- [start:use]
swap()
whole = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))  # on every rank
model.eval()
with torch.no_grad():
    loss = model(**batch).loss
model.train()
swap()
# --8<-- [end:use]
dist.all_reduce(loss)
if rank == 0:
    AutoModelForCausalLM.from_config(config).save_pretrained("averaged", state_dict=whole)
    held = sum(kept.to_local().numel() for kept in average.values())
    print(f"loss with the average {loss.item():.6f}, held here {held} of {sum(p.numel() for p in model.parameters())}")

end = dist.barrier(async_op=True)  # named, so that gloo does not free it while Python ends
end.wait()
dist.destroy_process_group()
