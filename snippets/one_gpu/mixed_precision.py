"""Mixed precision in the dtype that this GPU has."""
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
capability = torch.cuda.get_device_capability() if gpu else (0, 0)
native_bf16 = capability >= (8, 0)  # Ampere (A100, RTX 30) and later; a T4 (7.5) or V100 (7.0) takes fp16
arguments = TrainingArguments(
    "out", max_steps=4, save_strategy="no", use_cpu=not gpu,
    per_device_train_batch_size=8,
    bf16=native_bf16 or not gpu,  # on a CPU too
    fp16=gpu and not native_bf16,
    tf32=True if native_bf16 and torch.version.cuda else None,  # what stays in fp32 uses tf32; raises on ROCm
)
# --8<-- [end:arguments]

Trainer(model=model, args=arguments, train_dataset=data).train()
