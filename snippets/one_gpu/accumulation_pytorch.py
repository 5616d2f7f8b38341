"""Gradient accumulation in plain PyTorch: an effective batch of 8 from four micro-batches of 2."""
import itertools

import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForSequenceClassification, BertConfig, set_seed

device = "cuda" if torch.cuda.is_available() else "cpu"
set_seed(0)
config = BertConfig(hidden_size=64, intermediate_size=256, num_hidden_layers=2, num_attention_heads=2)
model = AutoModelForSequenceClassification.from_config(config).to(device)
data = [{"input_ids": torch.randint(1000, 30000, (128,)), "labels": row % 2} for row in range(32)]
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

# --8<-- [start:loop]
batches = iter(DataLoader(data, batch_size=2))
while micro_batches := [*itertools.islice(batches, 4)]:  # fewer at the end of an epoch: none is left for the next one
    for batch in micro_batches:
        loss = model(**{name: values.to(device) for name, values in batch.items()}).loss
        (loss / len(micro_batches)).backward()  # gradients add up; right where the loss is a mean over samples
    optimizer.step()
    optimizer.zero_grad()
# --8<-- [end:loop]
    print(f"{loss.item():.4f}")
