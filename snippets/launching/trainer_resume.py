"""Trains with Trainer, and goes on from its last checkpoint where there is one.

torchrun --standalone --nproc-per-node 2 trainer_resume.py
"""

import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, Trainer, TrainingArguments, set_seed

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
whole = [path.parent for path in Path(folder).glob("checkpoint-*/trainer_state.json")]  # written last in each
last = max(whole, key=lambda one: int(one.name.split("-")[1]), default=None)  # None at the first start
trainer.train(resume_from_checkpoint=last and str(last))
# --8<-- [end:resume]
if torch.distributed.is_initialized():
    end = torch.distributed.barrier(async_op=True)  # named, so that gloo does not free it while Python ends
    end.wait()
    torch.distributed.destroy_process_group()
