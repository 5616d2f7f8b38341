"""Trainer on several processes, with the batch of one.

    torchrun --nproc-per-node 2 trainer.py
"""
import os

import torch
from transformers import AutoModelForSequenceClassification, BertConfig, Trainer, TrainingArguments
from transformers.training_args import ParallelMode

gpu = torch.cuda.device_count() >= int(os.environ.get("LOCAL_WORLD_SIZE", 1))
if gpu:  # BERT-large
    config = BertConfig(hidden_size=1024, intermediate_size=4096, num_hidden_layers=24, num_attention_heads=16)
else:  # a small one, which a CPU trains in seconds
    config = BertConfig(hidden_size=128, intermediate_size=512, num_hidden_layers=2, num_attention_heads=2)
model = AutoModelForSequenceClassification.from_config(config)
data = [{"input_ids": torch.randint(1000, 30000, (64,)), "labels": row % 2} for row in range(96)]

# --8<-- [start:arguments]
TOTAL_BATCH, PER_DEVICE = 32, 8
processes = int(os.environ.get("WORLD_SIZE", 1))
model.accepts_loss_kwargs = False  # a classifier's loss is a mean: see "The accumulation trap"
arguments = TrainingArguments(
    "out", num_train_epochs=1, save_strategy="no", use_cpu=not gpu, logging_steps=1,
    per_device_train_batch_size=PER_DEVICE,
    gradient_accumulation_steps=max(1, TOTAL_BATCH // (PER_DEVICE * processes)),
    ddp_find_unused_parameters=False,  # the default is a search of the graph in every step
)
# --8<-- [end:arguments]
# --8<-- [start:guard]
if arguments.parallel_mode == ParallelMode.NOT_DISTRIBUTED:
    raise SystemExit(f"one process for {arguments.n_gpu} GPUs, which is DataParallel: start it with torchrun")
# --8<-- [end:guard]

trainer = Trainer(model=model, args=arguments, train_dataset=data)
trainer.train()
if trainer.is_world_process_zero():
    batch = trainer.get_total_train_batch_size(arguments)
    print(f"{arguments.parallel_mode.value}: batch {batch}, {trainer.state.max_steps} steps")
if torch.distributed.is_initialized():
    end = torch.distributed.barrier(async_op=True)  # named, so that gloo does not free it while Python ends
    end.wait()
    torch.distributed.destroy_process_group()
