"""DeepSpeed ZeRO: save, or resume on another number of processes.

torchrun --nproc_per_node 2 zero_checkpoint.py 3            # the stage: saves after 2 steps
bash to_universal.sh
torchrun --nproc_per_node 4 zero_checkpoint.py 3 universal  # goes on from the converted checkpoint
"""
import os
import sys

import deepspeed
import torch
import torch.distributed as dist
from transformers import AutoModelForCausalLM, LlamaConfig, set_seed

gpu = torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"])
deepspeed.init_distributed("nccl" if gpu else "gloo")
rank, world = dist.get_rank(), dist.get_world_size()
config = LlamaConfig(hidden_size=128, intermediate_size=352, num_hidden_layers=4, num_attention_heads=4, vocab_size=1000)
rows = torch.randint(0, config.vocab_size, (8, 64), generator=torch.Generator().manual_seed(1))  # a batch of all ranks
tokens = rows[:, 1:].numel()  # over which the loss is a mean, on all ranks
rows = torch.nn.functional.pad(rows, (0, 0, 0, -len(rows) % world), value=-100)  # each rank gets as many; -100 counts in no loss
labels = rows[rank::world]

set_seed(0)
model = AutoModelForCausalLM.from_config(config).train()
stage, resume = int(sys.argv[1]), sys.argv[2:]
settings = {
    "zero_optimization": {"stage": stage},
    "train_micro_batch_size_per_gpu": len(labels),
    "gradient_clipping": 1.0,
    "bf16": {"enabled": gpu},
    "zero_allow_untested_optimizer": True,
    "steps_per_print": 1000,
}
# --8<-- [start:resume]
if resume == ["universal"]:
    settings["checkpoint"] = {"load_universal": True}
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
engine, optimizer, _, _ = deepspeed.initialize(model=model, optimizer=optimizer, config=settings)
if resume:
    engine.load_checkpoint("run")
# --8<-- [end:resume]

labels = labels.to(engine.device)
for _ in range(2):
    loss = engine(input_ids=labels.clamp(min=0), labels=labels, num_items_in_batch=tokens).loss
    engine.backward(loss * world)  # gradients are averaged over the ranks
    engine.step()
    total = loss.detach().float()
    dist.all_reduce(total)
    if rank == 0:
        print(f"step {engine.global_steps - 1} loss {total.item():.6f}", flush=True)
if not resume:
    engine.save_checkpoint("run")
engine.destroy()

end = dist.barrier(async_op=True)  # named, so that gloo does not free it while Python ends
end.wait()
dist.destroy_process_group()
