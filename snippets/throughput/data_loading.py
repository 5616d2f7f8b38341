"""Loads batches in worker processes, ahead of the step that needs them."""
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

gpu = torch.cuda.is_available()
model = LlamaForCausalLM(LlamaConfig(
    hidden_size=1024 if gpu else 64, intermediate_size=2816 if gpu else 128, num_hidden_layers=12 if gpu else 2,
    num_attention_heads=16 if gpu else 2, vocab_size=1024,
))
data = [{"input_ids": (ids := torch.randint(0, 1024, (128,))), "labels": ids} for _ in range(64)]

# --8<-- [start:arguments]
arguments = TrainingArguments(
    "out", max_steps=4, save_strategy="no", use_cpu=not gpu,
    per_device_train_batch_size=8,
    dataloader_num_workers=2,  # processes that read and tokenize; 0 means the training process does it itself
    dataloader_prefetch_factor=4,  # batches that each worker holds ready; 2 if not set
    dataloader_persistent_workers=True,  # keep them from epoch to epoch
    dataloader_pin_memory=True,  # the default; Trainer turns it off with use_cpu=True
)
# --8<-- [end:arguments]

if __name__ == "__main__":  # workers may import this file
    Trainer(model=model, args=arguments, train_dataset=data).train()
