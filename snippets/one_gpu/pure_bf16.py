"""Weights, gradients and optimizer state in bf16: half the memory, and no fp32 copy of anything."""
import torch
from transformers import AutoModelForSequenceClassification, BertConfig, Trainer, TrainingArguments

gpu = torch.cuda.is_available()
if gpu:  # BERT-large
    config = BertConfig(hidden_size=1024, intermediate_size=4096, num_hidden_layers=24, num_attention_heads=16)
else:  # a small one, which a CPU trains in seconds
    config = BertConfig(hidden_size=64, intermediate_size=256, num_hidden_layers=2, num_attention_heads=2)
model = AutoModelForSequenceClassification.from_config(config)
data = [{"input_ids": torch.randint(1000, 30000, (128,)), "labels": row % 2} for row in range(64)]

# --8<-- [start:arguments]
model = model.to(torch.bfloat16)  # a checkpoint: from_pretrained(..., dtype=torch.bfloat16)
arguments = TrainingArguments(
    "out", max_steps=4, save_strategy="no", use_cpu=not gpu,
    per_device_train_batch_size=8,
    optim="adamw_torch_8bit" if gpu else "adamw_torch_fused",  # torchao's, compiled in the first step
    optim_args="bf16_stochastic_round=True" if gpu else None,  # plain rounding loses small updates
)
# --8<-- [end:arguments]

Trainer(model=model, args=arguments, train_dataset=data).train()
