"""Trains adapters of rank 8 on the processor."""
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, LlamaConfig, Trainer, TrainingArguments

config = LlamaConfig(
    vocab_size=1000, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=2,
)
model = AutoModelForCausalLM.from_config(config)  # a checkpoint: from_pretrained("HuggingFaceTB/SmolLM2-135M")
ids = torch.randint(0, config.vocab_size, (64, 64))
data = [{"input_ids": row, "labels": row} for row in ids]

# --8<-- [start:adapters]
model = get_peft_model(model, LoraConfig(r=8, target_modules="all-linear", task_type="CAUSAL_LM"))
model.print_trainable_parameters()
# --8<-- [end:adapters]
arguments = TrainingArguments("out", max_steps=4, save_strategy="no", per_device_train_batch_size=8, use_cpu=True)
Trainer(model=model, args=arguments, train_dataset=data).train()
