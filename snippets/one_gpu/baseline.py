"""Fine-tunes a classifier with Trainer. Without a GPU it takes a small model and a CPU."""
import torch
from transformers import AutoModelForSequenceClassification, BertConfig, Trainer, TrainingArguments

gpu = torch.cuda.is_available()
if gpu:  # BERT-large
    config = BertConfig(hidden_size=1024, intermediate_size=4096, num_hidden_layers=24, num_attention_heads=16)
else:  # a small one, which a CPU trains in seconds
    config = BertConfig(hidden_size=64, intermediate_size=256, num_hidden_layers=2, num_attention_heads=2)
model = AutoModelForSequenceClassification.from_config(config)
# With pretrained weights, in fp32:
# model = AutoModelForSequenceClassification.from_pretrained("google-bert/bert-large-uncased", dtype=torch.float32)
data = [{"input_ids": torch.randint(1000, 30000, (128,)), "labels": row % 2} for row in range(64)]

# --8<-- [start:arguments]
arguments = TrainingArguments(
    "out", max_steps=4, save_strategy="no", use_cpu=not gpu,
    per_device_train_batch_size=8,
)
# --8<-- [end:arguments]

Trainer(model=model, args=arguments, train_dataset=data).train()
