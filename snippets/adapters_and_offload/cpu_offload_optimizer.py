"""Keeps the optimizer's state on the host and updates there. Without a GPU it falls back to plain AdamW."""
import torch
from transformers import AutoModelForCausalLM, LlamaConfig

gpu = torch.cuda.is_available()
if gpu:  # Llama, 1 billion parameters
    config = LlamaConfig(hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_attention_heads=32)
else:  # a small one, which a CPU trains in seconds
    config = LlamaConfig(
        vocab_size=1000, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=2,
    )

device = "cuda" if gpu else "cpu"
model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).to(device)
ids = torch.randint(0, config.vocab_size, (2, 128), device=device)

# --8<-- [start:optimizer]
if gpu:
    from torchao.optim import CPUOffloadOptimizer

    # The update reads copies of the gradients on the host: clip those, see the page. True frees them on the GPU: no accumulation.
    optimizer = CPUOffloadOptimizer(model.parameters(), torch.optim.AdamW, offload_gradients=True, lr=1e-5)
else:
    optimizer = torch.optim.AdamW(model.parameters(), fused=True, lr=1e-5)
# --8<-- [end:optimizer]

for _ in range(3):
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(f"loss {loss.item():.2f}")
