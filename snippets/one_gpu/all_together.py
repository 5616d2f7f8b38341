"""All methods of the guide at once: an effective batch of 32."""
import torch
from transformers import AutoModelForSequenceClassification, BertConfig, Trainer, TrainingArguments

gpu = torch.cuda.is_available()
if gpu:  # BERT-large
    config = BertConfig(hidden_size=1024, intermediate_size=4096, num_hidden_layers=24, num_attention_heads=16)
else:  # a small one, which a CPU trains in seconds
    config = BertConfig(hidden_size=64, intermediate_size=256, num_hidden_layers=2, num_attention_heads=2)
model = AutoModelForSequenceClassification.from_config(config)
length = 512 if gpu else 64
data = [{"input_ids": torch.randint(1000, 30000, (length,)), "labels": row % 2} for row in range(64)]

# --8<-- [start:arguments]
native_bf16 = gpu and torch.cuda.get_device_capability() >= (8, 0)
model.accepts_loss_kwargs = False  # see gradient accumulation; leave it out for a causal language model
arguments = TrainingArguments(
    "out", max_steps=4, save_strategy="no", use_cpu=not gpu,
    bf16=native_bf16 or not gpu,
    fp16=gpu and not native_bf16,
    activation_checkpointing=True,
    per_device_train_batch_size=8,
    gradient_accumulation_steps=4,
)
# --8<-- [end:arguments]

Trainer(model=model, args=arguments, train_dataset=data).train()
