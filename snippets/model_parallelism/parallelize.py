"""Tensor parallelism with PyTorch's own plan, with or without sequence parallelism.

Run: torchrun --nproc-per-node 2 parallelize.py tp    or    torchrun --nproc-per-node 2 parallelize.py sp
"""

import os
import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from transformers import LlamaConfig, LlamaForCausalLM

config = LlamaConfig(
    vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=8,
    num_attention_heads=4, num_key_value_heads=2, use_cache=False,
)
gpu = torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"])
mesh = init_device_mesh("cuda" if gpu else "cpu", (int(os.environ["WORLD_SIZE"]),))
# --8<-- [start:check]
if config.num_key_value_heads % mesh.size():
    raise SystemExit(f"{config.num_key_value_heads} key and value heads can't be split over {mesh.size()} ranks")
# --8<-- [end:check]
# --8<-- [start:plan]
between = Shard(1) if sys.argv[1:] == ["sp"] else Replicate()  # how activations lie between the blocks
whole = {"hidden_states": Replicate()}
layer = {
    "self_attn": PrepareModuleInput(input_kwarg_layouts={"hidden_states": between}, desired_input_kwarg_layouts=whole),
    "self_attn.q_proj": ColwiseParallel(), "self_attn.k_proj": ColwiseParallel(), "self_attn.v_proj": ColwiseParallel(),
    "self_attn.o_proj": RowwiseParallel(output_layouts=between),
    "mlp": PrepareModuleInput(input_layouts=(between,), desired_input_layouts=(Replicate(),)),
    "mlp.gate_proj": ColwiseParallel(), "mlp.up_proj": ColwiseParallel(),
    "mlp.down_proj": RowwiseParallel(output_layouts=between),
}
outside = {
    "model.embed_tokens": RowwiseParallel(input_layouts=Replicate(), output_layouts=between),
    "lm_head": ColwiseParallel(input_layouts=between, output_layouts=Replicate()),
}
if between == Shard(1):
    layer |= {"input_layernorm": SequenceParallel(), "post_attention_layernorm": SequenceParallel()}
    outside |= {"model.norm": SequenceParallel()}
# --8<-- [end:plan]
torch.manual_seed(0)
model = LlamaForCausalLM(config).to(mesh.device_type)
parallelize_module(model, mesh, outside | {f"model.layers.*.{name}": style for name, style in layer.items()})
ids = torch.randint(256, (8, 32), generator=torch.Generator().manual_seed(1)).to(mesh.device_type)
positions = torch.arange(32, device=mesh.device_type)[None]  # of the whole sequence: a rank sees a part of it
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
for _ in range(4):
    loss = model(input_ids=ids, position_ids=positions, labels=ids).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if mesh.get_rank() == 0:
        print(f"loss {loss.item():.5f}")
end = dist.barrier(async_op=True)  # named, so that gloo does not free it while Python ends
end.wait()
dist.destroy_process_group()
