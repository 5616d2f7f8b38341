"""The loop that Trainer runs, written out with Accelerate: accumulation, mixed precision, clipping, schedule."""
import torch
from accelerate import Accelerator
from transformers import AutoModelForCausalLM, LlamaConfig, get_linear_schedule_with_warmup, set_seed

gpu = torch.cuda.is_available()
set_seed(0)
model = AutoModelForCausalLM.from_config(LlamaConfig(
    hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, vocab_size=1000, use_cache=False,
))
rows = torch.randint(0, 1000, (64, 32), generator=torch.Generator().manual_seed(0))
data = [{"input_ids": row, "labels": row} for row in rows]

# --8<-- [start:loop]
STEPS, ACCUMULATE = 4, 4
native_bf16 = not gpu or torch.cuda.get_device_capability() >= (8, 0)
accelerator = Accelerator(mixed_precision="bf16" if native_bf16 else "fp16", cpu=not gpu)
# not fused under fp16: the fused form skips a step by itself, and Accelerate does not notice
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, weight_decay=0.0, fused=native_bf16)
schedule = get_linear_schedule_with_warmup(optimizer, num_warmup_steps=0, num_training_steps=STEPS)
loader = torch.utils.data.DataLoader(data, batch_size=4)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

losses, batches = [], iter(loader)
for _ in range(STEPS):
    micro_batches = [next(batches) for _ in range(ACCUMULATE)]
    tokens = sum((batch["labels"][:, 1:] != -100).sum() for batch in micro_batches)  # of the whole optimizer step
    step_loss = 0.0
    for batch in micro_batches:
        loss = model(**batch, num_items_in_batch=tokens).loss  # divided by all tokens, so the sum is the mean
        accelerator.backward(loss)
        step_loss += loss.item()
    accelerator.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    if not accelerator.optimizer_step_was_skipped:  # by the fp16 scaler, where gradients overflow
        schedule.step()
    optimizer.zero_grad()
    losses.append(step_loss)
# --8<-- [end:loop]
print(" ".join(f"{loss:.4f}" for loss in losses))
