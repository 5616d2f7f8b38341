"""Mixed precision and activation checkpointing in plain PyTorch."""
import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForSequenceClassification, BertConfig, set_seed

device = "cuda" if torch.cuda.is_available() else "cpu"
set_seed(0)
config = BertConfig(hidden_size=64, intermediate_size=256, num_hidden_layers=2, num_attention_heads=2)
model = AutoModelForSequenceClassification.from_config(config).to(device)
data = [{"input_ids": torch.randint(1000, 30000, (128,)), "labels": row % 2} for row in range(32)]
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=4)

# --8<-- [start:checkpointing]
model.train()  # from_pretrained returns a model in evaluation mode, in which nothing is checkpointed
model.activation_checkpointing_enable()
# --8<-- [end:checkpointing]

# --8<-- [start:precision]
native_bf16 = device == "cpu" or torch.cuda.get_device_capability() >= (8, 0)
dtype = torch.bfloat16 if native_bf16 else torch.float16
scaler = torch.amp.GradScaler(device, enabled=not native_bf16)  # fp16 alone needs it
for batch in DataLoader(data, batch_size=8):
    batch = {name: values.to(device) for name, values in batch.items()}
    with torch.autocast(device, dtype):  # the forward pass alone
        loss = model(**batch).loss
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)  # before clipping
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scale = scaler.get_scale()
    scaler.update()
    if scaler.get_scale() >= scale:  # smaller: gradients were infinite, the step was skipped, and the schedule must wait for it
        schedule.step()
    optimizer.zero_grad()
# --8<-- [end:precision]
    print(f"{loss.item():.4f}")
