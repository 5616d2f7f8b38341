"""Trains in less memory: smaller pieces, recomputed activations, an optimizer with little state."""
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, Trainer, TrainingArguments

config = LlamaConfig(
    vocab_size=1000, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=2,
)
model = AutoModelForCausalLM.from_config(config)
ids = torch.randint(0, config.vocab_size, (64, 64))
data = [{"input_ids": row, "labels": row} for row in ids]

# --8<-- [start:arguments]
arguments = TrainingArguments(
    "out", max_steps=2, save_strategy="no", use_cpu=True,
    per_device_train_batch_size=2, gradient_accumulation_steps=8,  # 16 rows per optimizer step
    activation_checkpointing=True,  # before transformers 5.23: gradient_checkpointing=True
    optim="adafactor",  # its learning rate is not AdamW's
)
# --8<-- [end:arguments]
Trainer(model=model, args=arguments, train_dataset=data).train()
