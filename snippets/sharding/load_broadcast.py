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
mesh = init_device_mesh(device.type, (dist.get_world_size(),))
config = LlamaConfig(hidden_size=128, intermediate_size=352, num_hidden_layers=4, num_attention_heads=4, vocab_size=1000)

# --8<-- [start:load]
weights = {}
if dist.get_rank() == 0:  # yours: from_pretrained(...).state_dict()
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

optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
ids = torch.randint(0, config.vocab_size, (8, 64), generator=torch.Generator().manual_seed(1)).to(device)
batch = ids[dist.get_rank() :: dist.get_world_size()]
for step in range(4):
    loss = model(input_ids=batch, labels=batch).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
    optimizer.step()
    optimizer.zero_grad()
    total = loss.detach().clone()
    dist.all_reduce(total)
    if dist.get_rank() == 0:
        print(f"step {step} loss {total.item() / dist.get_world_size():.6f}", flush=True)

end = dist.barrier(async_op=True)  # named, so that gloo does not free it while Python ends
end.wait()
dist.destroy_process_group()
