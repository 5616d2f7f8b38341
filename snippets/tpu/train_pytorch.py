"""The reference: the same steps in plain PyTorch on the CPU."""
import torch
from task import RATE, batches, llama

model = llama()
optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, eps=1e-8, weight_decay=0.01)
for ids in batches():
    ids = torch.from_numpy(ids).long()
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"loss {loss.item():.6f}")
