"""Trainer on several CPU processes, with the batch of one.

    torchrun --nproc-per-node 2 trainer.py
"""
import os

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments, set_seed

set_seed(0)
config = LlamaConfig(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2, vocab_size=256)
model = LlamaForCausalLM(config)
data = [{"input_ids": ids, "labels": ids} for ids in torch.randint(256, (64, 32))]

# --8<-- [start:arguments]
TOTAL_BATCH = 8
# torchrun, Open MPI and MPICH each have a name for it
sizes = [int(os.environ[name]) for name in ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE") if name in os.environ]
processes = sizes[0] if sizes else 1
arguments = TrainingArguments(
    "out", max_steps=4, logging_steps=1, save_strategy="no", disable_tqdm=True,
    use_cpu=True,  # without it every process trains by itself
    per_device_train_batch_size=TOTAL_BATCH // processes,
    ddp_find_unused_parameters=False,
)
# --8<-- [end:arguments]
# --8<-- [start:check]
print(f"{arguments.parallel_mode.value}, {arguments.world_size} processes, {torch.get_num_threads()} threads", flush=True)
if arguments.world_size != processes:
    raise SystemExit(f"{processes} processes train by themselves: set use_cpu=True")
# --8<-- [end:check]

trainer = Trainer(model=model, args=arguments, train_dataset=data)
trainer.train()
if trainer.is_world_process_zero():
    print("total batch", trainer.get_total_train_batch_size(arguments))
    print("losses", *(f"{entry['loss']:.6f}" for entry in trainer.state.log_history if "loss" in entry))
if torch.distributed.is_initialized():
    end = torch.distributed.barrier(async_op=True)  # named, so that gloo does not free it while Python ends
    end.wait()
    torch.distributed.destroy_process_group()
