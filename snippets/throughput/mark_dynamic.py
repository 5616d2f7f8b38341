"""One graph for all lengths from the first batch on: the length is marked as dynamic. The backend only counts."""
import torch
from transformers import LlamaConfig, LlamaForCausalLM

config = LlamaConfig(hidden_size=64, intermediate_size=128, num_hidden_layers=1, num_attention_heads=2, vocab_size=1024)
made = []


def count(graph, inputs):
    made.append(graph)
    return graph.forward


model = torch.compile(LlamaForCausalLM(config), backend=count)  # yours: without backend=
for length in (30, 41, 52):
    ids = torch.randint(0, 1024, (4, length))
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids.clone()}
    # --8<-- [start:mark]
    for tensor in batch.values():
        torch._dynamo.mark_dynamic(tensor, 1)  # dimension 1 is the length
    loss = model(**batch, use_cache=False).loss
    # --8<-- [end:mark]
print("graphs:", len(made))
