"""Compiles the model in the first step of a plain PyTorch loop."""
import torch
from torch.utils.data import DataLoader
from transformers import LlamaConfig, LlamaForCausalLM, set_seed

device = "cuda" if torch.cuda.is_available() else "cpu"
set_seed(0)
model = LlamaForCausalLM(LlamaConfig(
    hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2, vocab_size=1024, use_cache=False,
)).to(device)
data = [{"input_ids": (ids := torch.randint(0, 1024, (128,))), "labels": ids} for _ in range(32)]
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

# --8<-- [start:loop]
model.compile()  # in place: names in the state_dict stay, unlike with model = torch.compile(model)
loader = DataLoader(data, batch_size=8, drop_last=True)  # a smaller last batch needs its own graph
# --8<-- [end:loop]

for batch in loader:
    loss = model(**{name: values.to(device) for name, values in batch.items()}).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"{loss.item():.4f}")
print(f"compiled: {model._compiled_call_impl is not None}")
