"""A pipeline of stages, each sharded by FSDP2 and split by tensor parallelism.

Run: torchrun --nproc-per-node 8 three_dimensional.py 2 2 2    (stages, shards, parts of a matrix)
"""

import os
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import Schedule1F1B
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, PrepareModuleInput, RowwiseParallel, parallelize_module
from transformers import LlamaConfig, LlamaForCausalLM

stages, data, tensor = (int(argument) for argument in sys.argv[1:4])
gpu = torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"])
device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if gpu else torch.device("cpu")
config = LlamaConfig(
    vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=8,
    num_attention_heads=4, num_key_value_heads=2, use_cache=False,
)
whole, hidden = Replicate(), {"hidden_states": Replicate()}
plan = {
    "self_attn": PrepareModuleInput(input_kwarg_layouts=hidden, desired_input_kwarg_layouts=hidden),
    "mlp": PrepareModuleInput(input_layouts=(whole,), desired_input_layouts=(whole,)),
    "self_attn.q_proj": ColwiseParallel(), "self_attn.k_proj": ColwiseParallel(), "self_attn.v_proj": ColwiseParallel(),
    "self_attn.o_proj": RowwiseParallel(),
    "mlp.gate_proj": ColwiseParallel(), "mlp.up_proj": ColwiseParallel(), "mlp.down_proj": RowwiseParallel(),
}


class Stage(torch.nn.Module):
    """Some consecutive layers of a Llama; the first stage has the embedding, the last the norm and the output layer."""

    def __init__(self, llama, number, count):
        super().__init__()
        layers = len(llama.model.layers)
        self.embedding = llama.model.embed_tokens if number == 0 else None
        self.rotary = llama.model.rotary_emb
        self.layers = llama.model.layers[layers * number // count : layers * (number + 1) // count]
        self.norm, self.head = (llama.model.norm, llama.lm_head) if number == count - 1 else (None, None)

    def forward(self, hidden):
        if self.embedding is not None:
            hidden = self.embedding(hidden)
        rotary = self.rotary(hidden, torch.arange(hidden.size(1), device=hidden.device)[None])
        for layer in self.layers:
            hidden = layer(hidden, position_embeddings=rotary, attention_mask=None)  # causal without a mask, under sdpa
        return hidden if self.head is None else self.head(self.norm(hidden))


def token_loss(logits, ids):
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())


# --8<-- [start:mesh]
mesh = init_device_mesh(device.type, (stages, data, tensor), mesh_dim_names=("pp", "dp", "tp"))  # slowest link first
number = mesh.get_local_rank("pp")
torch.manual_seed(0)
part = Stage(LlamaForCausalLM(config), number, stages).to(device)
for layer in part.layers:
    parallelize_module(layer, mesh["tp"], plan)
    fully_shard(layer, mesh=mesh["dp"], reshard_after_forward=False)  # else each micro-batch gathers all weights again
fully_shard(part, mesh=mesh["dp"], reshard_after_forward=False)
stage = PipelineStage(part, number, stages, device, group=mesh.get_group("pp"))
schedule = Schedule1F1B(stage, n_microbatches=2 * stages, loss_fn=token_loss)  # a multiple of the stages, and more than one
# --8<-- [end:mesh]
ids = torch.randint(256, (2 * stages * data, 32), generator=torch.Generator().manual_seed(1)).to(device)
my_ids = ids.chunk(data)[mesh.get_local_rank("dp")]  # by the rank of dp: all others of it see the same rows
optimizer = torch.optim.SGD(part.parameters(), lr=0.1, foreach=False)
last = number == stages - 1
for _ in range(4):
    losses = []
    schedule.step(*[my_ids] * (number == 0), target=my_ids if last else None, losses=losses if last else None)
    optimizer.step()
    optimizer.zero_grad()
    if last:
        mean = torch.stack(losses).mean().detach() / data
        dist.all_reduce(mean, group=mesh.get_group("dp"))
        if mesh.get_local_rank("dp") == mesh.get_local_rank("tp") == 0:
            print(f"loss {mean.item():.5f}")
end = dist.barrier(async_op=True)  # named, so that gloo does not free it while Python ends
end.wait()
dist.destroy_process_group()
