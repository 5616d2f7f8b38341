"""Sequence parallelism as in Ulysses, written out. Run: torchrun --nproc-per-node 2 ulysses.py"""

import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from transformers import AttentionInterface, LlamaConfig, LlamaForCausalLM

rank, size, local = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
gpu = torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"])
device = torch.device("cuda", local) if gpu else torch.device("cpu")
if gpu:
    torch.cuda.set_device(device)
dist.init_process_group("nccl" if gpu else "gloo")


# --8<-- [start:ulysses]
class Exchange(torch.autograd.Function):
    """All-to-all: gives a part of dimension `give` to every rank, and gets dimension `take` complete."""

    @staticmethod
    def forward(ctx, tensor, give, take):
        ctx.give, ctx.take = give, take
        parts = torch.stack(tensor.chunk(size, give))
        received = torch.empty_like(parts)
        dist.all_to_all_single(received, parts)
        return torch.cat(received.unbind(), take)

    @staticmethod
    def backward(ctx, gradient):
        return Exchange.apply(gradient, ctx.take, ctx.give), None, None


def ulysses_attention(module, query, key, value, attention_mask, scaling, **kwargs):
    """A part of the sequence with all heads becomes the whole sequence with a part of the heads, and back."""
    query, key, value = (Exchange.apply(tensor, 1, 2) for tensor in (query, key, value))
    output = F.scaled_dot_product_attention(query, key, value, is_causal=True, scale=scaling, enable_gqa=True)
    return Exchange.apply(output, 2, 1).transpose(1, 2), None
# --8<-- [end:ulysses]


AttentionInterface.register("ulysses", ulysses_attention)
config = LlamaConfig(
    vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=8,
    num_attention_heads=4, num_key_value_heads=2, use_cache=False, attn_implementation="ulysses",
)
if config.num_key_value_heads % size:
    raise SystemExit(f"{config.num_key_value_heads} key and value heads can't be split over {size} ranks")
torch.manual_seed(0)
model = LlamaForCausalLM(config).to(device)
ids = torch.randint(256, (8, 32), generator=torch.Generator().manual_seed(1)).to(device)
if ids.size(1) % size:
    raise SystemExit(f"{ids.size(1)} tokens can't be split over {size} ranks: pad the sequence")
# --8<-- [start:parts]
labels = F.pad(ids[:, 1:], (0, 1), value=-100)  # shifted before the cut, so that no pair is lost at it
positions = torch.arange(ids.size(1), device=device)[None]
my_ids, my_labels, my_positions = (tensor.chunk(size, 1)[rank] for tensor in (ids, labels, positions))
# --8<-- [end:parts]
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    logits = model(input_ids=my_ids, position_ids=my_positions).logits
    loss = F.cross_entropy(logits.flatten(0, 1), my_labels.flatten(), reduction="sum") / (labels != -100).sum()
    loss.backward()
    for parameter in model.parameters():  # every rank saw a part of the tokens; DistributedDataParallel would average
        dist.all_reduce(parameter.grad)
    optimizer.step()
    optimizer.zero_grad()
    total = loss.detach().clone()
    dist.all_reduce(total)
    if rank == 0:
        print(f"loss {total.item():.5f}")
end = dist.barrier(async_op=True)  # named, so that gloo does not free it while Python ends
end.wait()
dist.destroy_process_group()
