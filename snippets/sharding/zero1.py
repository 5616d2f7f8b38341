"""ZeRO-1 in plain PyTorch: DDP, and each rank updates a part. Run it as: torchrun --nproc_per_node 2 zero1.py"""
import os

import torch
import torch.distributed as dist
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel
from transformers import AutoModelForCausalLM, LlamaConfig, set_seed

gpu = torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"])
device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if gpu else torch.device("cpu")
if gpu:
    torch.cuda.set_device(device)
dist.init_process_group("nccl" if gpu else "gloo")
rank, world = dist.get_rank(), dist.get_world_size()

set_seed(0)
config = LlamaConfig(hidden_size=128, intermediate_size=352, num_hidden_layers=4, num_attention_heads=4, vocab_size=1000)

# --8<-- [start:optimizer]
model = AutoModelForCausalLM.from_config(config).to(device).train()
model = DistributedDataParallel(model, gradient_as_bucket_view=True)  # no second copy of the gradients
optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.AdamW, lr=1e-3)
# --8<-- [end:optimizer]

rows = torch.randint(0, config.vocab_size, (8, 64), generator=torch.Generator().manual_seed(1))  # a batch of all ranks
tokens = rows[:, 1:].numel()  # over which the loss is a mean, on all ranks
rows = torch.nn.functional.pad(rows, (0, 0, 0, -len(rows) % world), value=-100)  # each rank gets as many; -100 counts in no loss
labels = rows[rank::world].to(device)
for step in range(4):
    loss = model(input_ids=labels.clamp(min=0), labels=labels, num_items_in_batch=tokens).loss
    (loss * world).backward()  # gradients are averaged over the ranks
    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
    optimizer.step()  # each rank its part, then it sends the new weights to the others
    optimizer.zero_grad()
    total = loss.detach().clone()
    dist.all_reduce(total)
    if rank == 0:
        print(f"step {step} loss {total.item():.6f}", flush=True)
state = sum(tensor.numel() for state in optimizer.optim.state.values() for tensor in state.values())
print(f"rank {rank} holds {state} numbers of AdamW state", flush=True)

end = dist.barrier(async_op=True)  # named, so that gloo does not free it while Python ends
end.wait()
dist.destroy_process_group()
