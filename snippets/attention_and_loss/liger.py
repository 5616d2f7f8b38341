"""Liger's fused kernels, of output layer and loss among others. Needs a GPU, triton and liger-kernel."""
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, Trainer, TrainingArguments

config = LlamaConfig(vocab_size=128256, hidden_size=1024, num_hidden_layers=12, num_attention_heads=16)
model = AutoModelForCausalLM.from_config(config)
rows = [torch.randint(0, config.vocab_size, (4096,)) for _ in range(16)]
data = [{"input_ids": row, "labels": row} for row in rows]

# --8<-- [start:arguments]
arguments = TrainingArguments(
    "out", max_steps=4, save_strategy="no", bf16=True, per_device_train_batch_size=1,
    use_liger_kernel=True,  # norm, rotary embedding and MLP too; liger_kernel_config={"rope": False} leaves one out
)
# --8<-- [end:arguments]

Trainer(model=model, args=arguments, train_dataset=data).train()
