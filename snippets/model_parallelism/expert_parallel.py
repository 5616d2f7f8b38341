"""Expert parallelism written out: tokens travel to their expert and back. Run: torchrun --nproc-per-node 2 expert_parallel.py"""

import os

import torch
import torch.distributed as dist
import torch.nn.functional as F

EXPERTS, WIDTH, VOCABULARY = 4, 32, 64
rank, size, local = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
gpu = torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"])
device = torch.device("cuda", local) if gpu else torch.device("cpu")
if gpu:
    torch.cuda.set_device(device)
dist.init_process_group("nccl" if gpu else "gloo")
if EXPERTS % size:
    raise SystemExit(f"{EXPERTS} experts can't be split over {size} ranks")


# --8<-- [start:exchange]
class Exchange(torch.autograd.Function):
    """All-to-all of rows: `sends[r]` rows go to rank r, `receives[r]` come from it. Gradients go back."""

    @staticmethod
    def forward(ctx, rows, sends, receives):
        ctx.sends, ctx.receives = sends, receives
        received = rows.new_empty(sum(receives), *rows.shape[1:])
        dist.all_to_all_single(received, rows.contiguous(), receives, sends)
        return received

    @staticmethod
    def backward(ctx, gradient):
        return Exchange.apply(gradient, ctx.receives, ctx.sends), None, None


class Experts(torch.nn.Module):
    """This rank's experts. Every rank has `EXPERTS / size` of them and sees tokens of all ranks."""

    def __init__(self, all_up, all_down):
        super().__init__()
        mine = slice(rank * EXPERTS // size, (rank + 1) * EXPERTS // size)
        self.up, self.down = torch.nn.Parameter(all_up[mine].clone()), torch.nn.Parameter(all_down[mine].clone())

    def forward(self, rows, expert):
        order = expert.argsort(stable=True)
        counts = torch.bincount(expert, minlength=EXPERTS)
        arriving = torch.empty_like(counts)
        dist.all_to_all_single(arriving, counts)  # how many rows come from each rank for each of my experts
        sends, receives = counts.view(size, -1).sum(1).tolist(), arriving.view(size, -1).sum(1).tolist()
        tokens = Exchange.apply(rows[order], sends, receives)
        local = torch.arange(len(self.up), device=rows.device).repeat(size).repeat_interleave(arriving)
        output = torch.zeros_like(tokens)
        for number, (up, down) in enumerate(zip(self.up, self.down)):
            chosen = (local == number).nonzero()[:, 0]
            output = output.index_add(0, chosen, F.silu(tokens[chosen] @ up) @ down)
        returned = Exchange.apply(output, receives, sends)
        return torch.empty_like(returned).index_copy(0, order, returned)
# --8<-- [end:exchange]


torch.manual_seed(0)
embedding = torch.nn.Embedding(VOCABULARY, WIDTH)
router, head = torch.nn.Linear(WIDTH, EXPERTS), torch.nn.Linear(WIDTH, VOCABULARY)
dense = torch.nn.ModuleList([embedding, router, head]).to(device)  # on every rank
experts = Experts(torch.randn(EXPERTS, WIDTH, 64) / WIDTH**0.5, torch.randn(EXPERTS, 64, WIDTH) / 8).to(device)
ids = torch.randint(VOCABULARY, (256,), generator=torch.Generator().manual_seed(1)).to(device)
mine, target = ids.chunk(size)[rank], ids.roll(-1).chunk(size)[rank]  # data parallel: every rank has rows of its own
optimizer = torch.optim.SGD([*dense.parameters(), *experts.parameters()], lr=0.1)
# --8<-- [start:step]
for _ in range(4):
    hidden = embedding(mine)
    weight, expert = router(hidden).softmax(-1).max(-1)
    logits = head(hidden + weight[:, None] * experts(hidden, expert))
    loss = F.cross_entropy(logits, target, reduction="sum") / len(ids)  # of all ranks
    loss.backward()
    for parameter in dense.parameters():  # the experts' gradients are complete: all their tokens came here
        dist.all_reduce(parameter.grad)
    optimizer.step()
    optimizer.zero_grad()
    # --8<-- [end:step]
    total = loss.detach().clone()
    dist.all_reduce(total)
    if rank == 0:
        print(f"loss {total.item():.5f}")
end = dist.barrier(async_op=True)  # named, so that gloo does not free it while Python ends
end.wait()
dist.destroy_process_group()
