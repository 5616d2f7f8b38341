"""Compiles the model in its first training step."""
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
    torch_compile=True,  # backend "inductor", mode "default"
    dataloader_drop_last=True,  # a smaller last batch needs its own graph
)
# --8<-- [end:arguments]

Trainer(model=model, args=arguments, train_dataset=data).train()
