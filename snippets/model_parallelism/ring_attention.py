"""Context parallelism by ring attention, written out. Run: torchrun --nproc-per-node 2 ring_attention.py"""

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


# --8<-- [start:ring]
class Rotate(torch.autograd.Function):
    """Hands a tensor on to the next rank and returns the previous rank's. Gradients go round the other way."""

    @staticmethod
    def forward(ctx, tensor, step):
        ctx.step, tensor = step, tensor.contiguous()
        received = torch.empty_like(tensor)
        out = dist.P2POp(dist.isend, tensor, (rank + step) % size)
        into = dist.P2POp(dist.irecv, received, (rank - step) % size)
        for request in dist.batch_isend_irecv([out, into]):
            request.wait()
        return received

    @staticmethod
    def backward(ctx, gradient):
        return Rotate.apply(gradient, -ctx.step), None


def ring_attention(module, query, key, value, attention_mask, scaling, **kwargs):
    """Softmax over all keys, one rank's keys at a time: sums are rescaled whenever a higher score turns up."""
    tokens = torch.arange(query.size(2), device=query.device)
    keys_and_values = torch.stack([key, value])
    highest, total, output = query.new_full((*query.shape[:3], 1), -torch.inf), 0, 0
    for step in range(size):
        owner = (rank - step) % size  # of the keys and values that are here now
        k, v = keys_and_values.repeat_interleave(query.size(1) // key.size(1), 2)
        later = owner * len(tokens) + tokens > (rank * len(tokens) + tokens)[:, None]
        scores = (query @ k.transpose(2, 3) * scaling).masked_fill(later, -torch.inf)
        before, highest = highest, torch.maximum(highest, scores.detach().amax(-1, keepdim=True))
        weights, rescale = torch.exp(scores - highest), torch.exp(before - highest)
        total, output = total * rescale + weights.sum(-1, keepdim=True), output * rescale + weights @ v
        if step < size - 1:
            keys_and_values = Rotate.apply(keys_and_values, 1)
    return (output / total).transpose(1, 2), None
# --8<-- [end:ring]


AttentionInterface.register("ring", ring_attention)
config = LlamaConfig(
    vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=8,
    num_attention_heads=4, num_key_value_heads=2, use_cache=False, attn_implementation="ring",
)
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
