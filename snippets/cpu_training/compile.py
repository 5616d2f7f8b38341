"""Trains with compiled layers: the first step generates and compiles C++."""
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, Trainer, TrainingArguments

config = LlamaConfig(
    vocab_size=1000, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=2,
)
model = AutoModelForCausalLM.from_config(config)
ids = torch.randint(0, config.vocab_size, (64, 64))
data = [{"input_ids": row, "labels": row} for row in ids]

# --8<-- [start:layers]
for layer in model.model.layers:  # one graph serves all layers
    layer.compile()
# --8<-- [end:layers]
arguments = TrainingArguments("out", max_steps=4, save_strategy="no", per_device_train_batch_size=8, use_cpu=True)
Trainer(model=model, args=arguments, train_dataset=data).train()
