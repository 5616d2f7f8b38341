"""Gradient accumulation in a loop with Accelerate: an effective batch of 8 from four micro-batches of 2."""
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader
from transformers import AutoModelForSequenceClassification, BertConfig, set_seed

gpu = torch.cuda.is_available()
set_seed(0)
config = BertConfig(hidden_size=64, intermediate_size=256, num_hidden_layers=2, num_attention_heads=2)
model = AutoModelForSequenceClassification.from_config(config)
data = [{"input_ids": torch.randint(1000, 30000, (128,)), "labels": row % 2} for row in range(32)]
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

# --8<-- [start:loop]
accelerator = Accelerator(gradient_accumulation_steps=4, cpu=not gpu)
model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(data, batch_size=2))
for batch in loader:
    with accelerator.accumulate(model):
        loss = model(**batch).loss
        accelerator.backward(loss)  # divides the loss by four
        optimizer.step()  # does nothing until the fourth micro-batch
        optimizer.zero_grad()
# --8<-- [end:loop]
    if accelerator.sync_gradients:
        print(f"{loss.item():.4f}")
