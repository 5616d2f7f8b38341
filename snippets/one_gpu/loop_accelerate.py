"""Mixed precision and activation checkpointing in a loop with Accelerate."""
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader
from transformers import AutoModelForSequenceClassification, BertConfig, set_seed

gpu = torch.cuda.is_available()
set_seed(0)
config = BertConfig(hidden_size=64, intermediate_size=256, num_hidden_layers=2, num_attention_heads=2)
model = AutoModelForSequenceClassification.from_config(config)
data = [{"input_ids": torch.randint(1000, 30000, (128,)), "labels": row % 2} for row in range(32)]
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)  # fused=True would hide a skipped step, see below
schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=4)

# --8<-- [start:checkpointing]
model.train()  # from_pretrained returns a model in evaluation mode, in which nothing is checkpointed
model.activation_checkpointing_enable()  # before prepare
# --8<-- [end:checkpointing]

# --8<-- [start:precision]
native_bf16 = not gpu or torch.cuda.get_device_capability() >= (8, 0)
accelerator = Accelerator(mixed_precision="bf16" if native_bf16 else "fp16", cpu=not gpu)
model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(data, batch_size=8))
for batch in loader:
    loss = model(**batch).loss  # in 16 bits: prepare has wrapped the forward pass
    accelerator.backward(loss)  # scales it, for fp16
    accelerator.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    if not accelerator.optimizer_step_was_skipped:  # by the fp16 scaler, where gradients overflow
        schedule.step()
    optimizer.zero_grad()
# --8<-- [end:precision]
    print(f"{loss.item():.4f}")
