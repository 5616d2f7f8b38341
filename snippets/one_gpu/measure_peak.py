"""The peak memory of a step as PyTorch counts it on this machine's GPU."""
import torch
from transformers import AutoModelForSequenceClassification, BertConfig

device = torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")
model = AutoModelForSequenceClassification.from_config(BertConfig(num_hidden_layers=1)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
batch = {
    "input_ids": torch.randint(1000, 30000, (4, 128), device=device),
    "labels": torch.zeros(4, dtype=torch.long, device=device),
}

for _ in range(2):  # from the second step on, the optimizer's state is there
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    model(**batch).loss.backward()
    optimizer.step()
    optimizer.zero_grad()

if torch.cuda.is_available():
    print(f"tensors:   {torch.cuda.max_memory_allocated() / 2**30:.2f} GiB")
    print(f"allocator: {torch.cuda.max_memory_reserved() / 2**30:.2f} GiB")
else:
    print("no GPU here: PyTorch keeps no count of a CPU's memory")
