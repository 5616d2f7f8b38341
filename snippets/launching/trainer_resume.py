"""Trains with Trainer, and goes on from its last checkpoint where there is one.

torchrun --standalone --nproc-per-node 2 trainer_resume.py
"""

import os
import sys

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, Trainer, TrainingArguments, set_seed
from transformers.trainer_utils import get_last_checkpoint

set_seed(0)
config = LlamaConfig(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2, vocab_size=256)
model = AutoModelForCausalLM.from_config(config)
data = [{"input_ids": row, "labels": row} for row in torch.randint(config.vocab_size, (64, 32))]
folder = sys.argv[1] if len(sys.argv) > 1 else "/shared/run"  # change: a folder that all nodes see
arguments = TrainingArguments(
    folder, max_steps=4, save_steps=2, per_device_train_batch_size=4, report_to="none", disable_tqdm=True,
    use_cpu=not torch.cuda.is_available(), ddp_find_unused_parameters=False,
)
trainer = Trainer(model=model, args=arguments, train_dataset=data)

# --8<-- [start:resume]
last = get_last_checkpoint(folder) if os.path.isdir(folder) else None  # None at the first start
trainer.train(resume_from_checkpoint=last)
# --8<-- [end:resume]
if torch.distributed.is_initialized():
    end = torch.distributed.barrier(async_op=True)  # named, so that gloo does not free it while Python ends
    end.wait()
    torch.distributed.destroy_process_group()
