"""Compiles the model in the first step of a loop with Accelerate."""
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader
from transformers import LlamaConfig, LlamaForCausalLM, set_seed

gpu = torch.cuda.is_available()
set_seed(0)
model = LlamaForCausalLM(LlamaConfig(
    hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2, vocab_size=1024, use_cache=False,
))
data = [{"input_ids": (ids := torch.randint(0, 1024, (128,))), "labels": ids} for _ in range(32)]
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

# --8<-- [start:loop]
accelerator = Accelerator(dynamo_backend="inductor", cpu=not gpu)
loader = DataLoader(data, batch_size=8, drop_last=True)  # a smaller last batch needs its own graph
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)  # here the model is wrapped
# --8<-- [end:loop]

for batch in loader:
    loss = model(**batch).loss
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
    print(f"{loss.item():.4f}")
print(f"compiled: {hasattr(model, '_orig_mod')}")
