"""One GPU, optimizer on the host, by DeepSpeed. Run it as: torchrun --nproc_per_node 1 zero_offload.py"""
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, Trainer, TrainingArguments

# --8<-- [start:arguments]
arguments = TrainingArguments(  # before the model is made
    "out", max_steps=4, save_strategy="no", per_device_train_batch_size=1,
    gradient_accumulation_steps=16,  # the update comes once per optimizer step; gradients move in every micro-batch
    bf16=True,
    activation_checkpointing=True,
    deepspeed="zero_offload.json",
)
# --8<-- [end:arguments]

config = LlamaConfig(hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_attention_heads=32)
model = AutoModelForCausalLM.from_config(config)
ids = torch.randint(0, config.vocab_size, (64, 512))
data = [{"input_ids": row, "labels": row} for row in ids]
Trainer(model=model, args=arguments, train_dataset=data).train()
