"""Loads a checkpoint in shards, then trains it with Trainer. Run it as: torchrun --nproc_per_node 2 load_sharded.py"""
import os

import torch
import torch.distributed as dist
from transformers import AutoModelForCausalLM, LlamaConfig, Trainer, TrainingArguments, set_seed
from transformers.distributed import DistributedConfig

gpu = torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"])
arguments = TrainingArguments(  # starts the process group
    "out", max_steps=4, per_device_train_batch_size=4, use_cpu=not gpu,
    save_strategy="no", learning_rate=1e-3, lr_scheduler_type="constant", logging_steps=1, report_to="none", disable_tqdm=True,
)
if arguments.process_index == 0:  # a checkpoint to load
    set_seed(0)
    config = LlamaConfig(
        hidden_size=128, intermediate_size=352, num_hidden_layers=4, num_attention_heads=4, vocab_size=1000
    )
    AutoModelForCausalLM.from_config(config).save_pretrained("checkpoint")
dist.barrier()

# --8<-- [start:load]
model = AutoModelForCausalLM.from_pretrained(
    "checkpoint",
    dtype=torch.float32,  # what the optimizer updates; without it, the dtype of the file
    distributed_config=DistributedConfig(fsdp_size=dist.get_world_size()),  # each rank reads its shards, no more
)
# --8<-- [end:load]
local = sum(parameter.to_local().numel() for parameter in model.parameters())
print(f"rank {dist.get_rank()} holds {local} of {sum(p.numel() for p in model.parameters())} parameters", flush=True)

ids = torch.randint(0, 1000, (4 * dist.get_world_size(), 64), generator=torch.Generator().manual_seed(1))
trainer = Trainer(model=model, args=arguments, train_dataset=[{"input_ids": row, "labels": row} for row in ids])
trainer.train()
if dist.get_rank() == 0:
    for step, entry in enumerate(entry for entry in trainer.state.log_history if "loss" in entry):
        print(f"step {step} loss {float(entry['loss']):.6f}", flush=True)
end = dist.barrier(async_op=True)  # named, so that gloo does not free it while Python ends
end.wait()
dist.destroy_process_group()
