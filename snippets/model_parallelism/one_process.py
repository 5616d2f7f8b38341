"""What the programs that split a model must reproduce: four steps of a small Llama on one process. Run: python one_process.py"""

import torch
from transformers import LlamaConfig, LlamaForCausalLM

config = LlamaConfig(
    vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=8,
    num_attention_heads=4, num_key_value_heads=2, use_cache=False,
)
torch.manual_seed(0)
model = LlamaForCausalLM(config)
ids = torch.randint(256, (8, 32), generator=torch.Generator().manual_seed(1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)  # AdamW would hide gradients that are off by a factor
for _ in range(4):
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"loss {loss.item():.5f}")
