"""Pipeline parallelism with stages cut by hand.

Run: torchrun --nproc-per-node 2 pipeline.py 1F1B    (or GPipe, Interleaved1F1B, ZBVZeroBubble; and a number of micro-batches)
"""

import os
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import PipelineScheduleMulti, get_schedule_class
from transformers import LlamaConfig, LlamaForCausalLM

rank, size, local = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
gpu = torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"])
device = torch.device("cuda", local) if gpu else torch.device("cpu")
if gpu:
    torch.cuda.set_device(device)
dist.init_process_group("nccl" if gpu else "gloo")
config = LlamaConfig(
    vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=8,
    num_attention_heads=4, num_key_value_heads=2, use_cache=False,
)


# --8<-- [start:stage]
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
        positions = torch.arange(hidden.size(1), device=hidden.device)[None]
        rotary = self.rotary(hidden, positions)
        for layer in self.layers:
            # without a mask it is causal under sdpa, the default, and flash attention; eager attention would see later tokens
            hidden = layer(hidden, position_embeddings=rotary, attention_mask=None)
        return hidden if self.head is None else self.head(self.norm(hidden))
# --8<-- [end:stage]


def token_loss(logits, ids):
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())


# --8<-- [start:schedule]
Schedule = get_schedule_class(sys.argv[1])
micro_batches = int(sys.argv[2]) if len(sys.argv) > 2 else 8
if 8 % micro_batches:
    raise SystemExit(f"a batch of 8 can't be cut into {micro_batches} equal micro-batches")
if "ZBV" in sys.argv[1]:  # a V: the first rank has the first and the last stage
    numbers, count = [rank, 2 * size - 1 - rank], 2 * size
elif issubclass(Schedule, PipelineScheduleMulti):  # a loop: rank 0 has the stages 0 and 2 of 4
    numbers, count = [rank, rank + size], 2 * size
else:
    numbers, count = [rank], size
torch.manual_seed(0)
llama = LlamaForCausalLM(config)
stages = [PipelineStage(Stage(llama, n, count).to(device), n, count, device) for n in numbers]
several = issubclass(Schedule, PipelineScheduleMulti)
schedule = Schedule(stages if several else stages[0], n_microbatches=micro_batches, loss_fn=token_loss)
# --8<-- [end:schedule]
ids = torch.randint(256, (8, 32), generator=torch.Generator().manual_seed(1)).to(device)
optimizer = torch.optim.SGD([p for stage in stages for p in stage.submod.parameters()], lr=0.1)
# --8<-- [start:step]
first, last = 0 in numbers, count - 1 in numbers
for _ in range(4):
    losses = []
    schedule.step(*[ids] * first, target=ids if last else None, losses=losses if last else None)
    optimizer.step()
    optimizer.zero_grad()
    if last:
        print(f"loss {torch.stack(losses).mean().item():.5f}")
# --8<-- [end:step]
end = dist.barrier(async_op=True)  # named, so that gloo does not free it while Python ends
end.wait()
dist.destroy_process_group()
