"""FSDP2 over data-parallel ranks, tensor parallelism inside. Run: torchrun --nproc-per-node 4 two_dimensional.py 2 2"""

import os
import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, PrepareModuleInput, RowwiseParallel, parallelize_module
from transformers import LlamaConfig, LlamaForCausalLM

config = LlamaConfig(
    vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=8,
    num_attention_heads=4, num_key_value_heads=2, use_cache=False,
)
# --8<-- [start:mesh]
data, tensor = int(sys.argv[1]), int(sys.argv[2])
gpu = torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"])
device = "cuda" if gpu else "cpu"
mesh = init_device_mesh(device, (data, tensor), mesh_dim_names=("dp", "tp"))  # tp last: neighboring ranks, one node
torch.manual_seed(0)
model = LlamaForCausalLM(config).to(device)
whole, hidden = Replicate(), {"hidden_states": Replicate()}
plan = {
    "self_attn": PrepareModuleInput(input_kwarg_layouts=hidden, desired_input_kwarg_layouts=hidden),  # a DTensor once
    "mlp": PrepareModuleInput(input_layouts=(whole,), desired_input_layouts=(whole,)),
    "self_attn.q_proj": ColwiseParallel(), "self_attn.k_proj": ColwiseParallel(), "self_attn.v_proj": ColwiseParallel(),
    "self_attn.o_proj": RowwiseParallel(),
    "mlp.gate_proj": ColwiseParallel(), "mlp.up_proj": ColwiseParallel(), "mlp.down_proj": RowwiseParallel(),
}
for layer in model.model.layers:
    parallelize_module(layer, mesh["tp"], plan)
    fully_shard(layer, mesh=mesh["dp"])
fully_shard(model, mesh=mesh["dp"])
# --8<-- [end:mesh]
ids = torch.randint(256, (4 * data, 32), generator=torch.Generator().manual_seed(1)).to(device)
my_ids = ids.chunk(data)[mesh.get_local_rank("dp")]  # ranks of one tp group see the same rows
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
for _ in range(4):
    loss = model(input_ids=my_ids, labels=my_ids).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    mean = loss.detach() / data
    dist.all_reduce(mean, group=mesh.get_group("dp"))
    if dist.get_rank() == 0:
        print(f"loss {mean.item():.5f}")
end = dist.barrier(async_op=True)  # named, so that gloo does not free it while Python ends
end.wait()
dist.destroy_process_group()
