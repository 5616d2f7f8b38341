"""What is set on the Trainer's handler before train(), and what DDP then has."""

import tempfile

import torch
import torch.distributed as dist
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

config = LlamaConfig(
    vocab_size=64, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, use_cache=False
)
rows = [{"input_ids": ids, "labels": ids} for ids in torch.randint(64, (8, 4))]
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        folder, max_steps=1, use_cpu=True, report_to="none", save_strategy="no", disable_tqdm=True
    )
    trainer = Trainer(LlamaForCausalLM(config), arguments, train_dataset=rows)
    trainer.accelerator.ddp_handler.gradient_as_bucket_view = True
    trainer.train()
    if dist.get_rank() == 0:
        wrapped = trainer.model_wrapped
        print("handler", type(wrapped).__name__, wrapped.gradient_as_bucket_view, flush=True)
    end = dist.barrier(async_op=True)  # named, so that gloo does not free it while Python ends
    end.wait()
    dist.destroy_process_group()
