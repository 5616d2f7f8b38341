"""Does your model keep the sequences of a padding-free row apart? The loss tells."""
import torch
from transformers import DataCollatorWithFlattening, LlamaConfig, LlamaForCausalLM

config = LlamaConfig(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2, vocab_size=500)
model = LlamaForCausalLM(config).eval()
sequences = [torch.randint(0, 500, (length,)).tolist() for length in (5, 40, 17)]

# --8<-- [start:check]
row = DataCollatorWithFlattening(return_tensors="pt")([{"input_ids": ids} for ids in sequences])


@torch.no_grad()
def loss_alone():
    rows = [torch.tensor([ids]) for ids in sequences]
    total = sum(model(input_ids=x, labels=x).loss * (x.numel() - 1) for x in rows)
    return total / sum(x.numel() - 1 for x in rows)


@torch.no_grad()
def differs(**more):
    return abs(model(**row, **more).loss - loss_alone()).item() > 1e-5


print("no cache, no mask:", "leaks" if differs(use_cache=False) else "isolated")
print("use_cache=True:   ", "leaks" if differs(use_cache=True) else "isolated")
print("attention_mask:   ", "leaks" if differs(attention_mask=torch.ones_like(row["input_ids"])) else "isolated")
# --8<-- [end:check]
