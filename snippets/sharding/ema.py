"""An average of sharded weights (EMA). Run it as: torchrun --nproc_per_node 2 ema.py"""
import os

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
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
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

# --8<-- [start:make]
average = [parameter.detach().clone() for parameter in model.parameters()]  # this rank's shards


@torch.no_grad()
def update_average(decay=0.999):
    for kept, parameter in zip(average, model.parameters(), strict=True):
        kept.lerp_(parameter, 1 - decay)


@torch.no_grad()
def swap():
    """Exchanges weights and average: before an evaluation, and again after it."""
    model.reshard()  # a forward pass without a backward pass leaves the root gathered
    for kept, parameter in zip(average, model.parameters(), strict=True):
        trained = parameter.clone()
        parameter.copy_(kept)
        kept.copy_(trained)
# --8<-- [end:make]


ids = torch.randint(0, config.vocab_size, (8, 64), generator=torch.Generator().manual_seed(1)).to(mesh.device_type)
batch = ids[rank::world]
for _ in range(4):
    loss = model(input_ids=batch, labels=batch).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    update_average(decay=0.9)  # so few steps; a long run takes 0.999 or more

# --8<-- [start:use]
swap()
whole = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))  # on every rank
with torch.no_grad():
    loss = model(input_ids=batch, labels=batch).loss
swap()
# --8<-- [end:use]
dist.all_reduce(loss)
if rank == 0:
    AutoModelForCausalLM.from_config(config).save_pretrained("averaged", state_dict=whole)
    held = sum(kept.to_local().numel() for kept in average)
    print(f"loss with the average {loss.item() / world:.6f}, held here {held} of {sum(p.numel() for p in model.parameters())}")

end = dist.barrier(async_op=True)  # named, so that gloo does not free it while Python ends
end.wait()
dist.destroy_process_group()
