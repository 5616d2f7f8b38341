"""Trainer with DeepSpeed ZeRO-3. Run it as: torchrun --nproc_per_node 8 trainer_zero3.py"""
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, Trainer, TrainingArguments

# --8<-- [start:arguments]
arguments = TrainingArguments(  # before the model: from_pretrained then loads it in shards
    "out", max_steps=4, save_strategy="no", per_device_train_batch_size=1, gradient_accumulation_steps=4,
    bf16=torch.cuda.is_available(),
    activation_checkpointing=True,  # activations are not sharded
    deepspeed="zero3.json",
)
# --8<-- [end:arguments]

config = LlamaConfig(hidden_size=1024, intermediate_size=2816, num_hidden_layers=8, num_attention_heads=16)
model = AutoModelForCausalLM.from_config(config)
ids = torch.randint(0, config.vocab_size, (128, 512))
data = [{"input_ids": row, "labels": row} for row in ids]
Trainer(model=model, args=arguments, train_dataset=data).train()
