"""DeepSpeed ZeRO in a loop of your own. Run it as: torchrun --nproc_per_node 2 zero.py 3 (the stage: 1, 2 or 3)"""
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

set_seed(0)
model = AutoModelForCausalLM.from_config(config).train()

# --8<-- [start:engine]
MICRO_BATCH, ACCUMULATION = 2, 2  # rows that a GPU computes at a time, and how often in a step: more GPUs, a larger batch
settings = {
    "zero_optimization": {"stage": int(sys.argv[1])},
    "train_micro_batch_size_per_gpu": MICRO_BATCH,
    "gradient_accumulation_steps": ACCUMULATION,
    "gradient_clipping": 1.0,  # say it: this is also what you get when you leave it out
    "bf16": {"enabled": gpu},
    "zero_allow_untested_optimizer": True,
    "steps_per_print": 1000,
}
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
engine, optimizer, _, _ = deepspeed.initialize(model=model, optimizer=optimizer, config=settings)
# --8<-- [end:engine]

batch = MICRO_BATCH * ACCUMULATION * world
ids = torch.randint(0, config.vocab_size, (batch, 64), generator=torch.Generator().manual_seed(1))
micro_batches = ids[rank::world].to(engine.device).split(MICRO_BATCH)
# --8<-- [start:step]
for step in range(4):
    total = torch.zeros((), device=engine.device)
    for batch in micro_batches:
        loss = engine(input_ids=batch, labels=batch).loss
        engine.backward(loss)  # divides by the accumulation steps
        engine.step()  # updates at the last of them, and clips
        total += loss.detach().float() / len(micro_batches)
    dist.all_reduce(total)
    if rank == 0:
        print(f"step {step} loss {total.item() / world:.6f}", flush=True)
# --8<-- [end:step]
engine.destroy()

end = dist.barrier(async_op=True)  # named, so that gloo does not free it while Python ends
end.wait()
dist.destroy_process_group()
