"""How many graphs does torch.compile make for batches of different lengths? The backend only counts them."""
import torch
from transformers import LlamaConfig, LlamaForCausalLM

config = LlamaConfig(hidden_size=64, intermediate_size=128, num_hidden_layers=1, num_attention_heads=2, vocab_size=1024)


# --8<-- [start:count]
def graphs(lengths, dynamic=None):
    torch._dynamo.reset()
    made = []

    def count(graph, inputs):
        made.append(graph)
        return graph.forward

    model = torch.compile(LlamaForCausalLM(config), backend=count, dynamic=dynamic)
    for length in lengths:
        ids = torch.randint(0, 1024, (4, length))
        model(input_ids=ids, labels=ids, use_cache=False)
    return len(made)
# --8<-- [end:count]


lengths = [30, 41, 52, 63, 74, 85, 96, 107, 118, 129]
print("default:", graphs(lengths))
print("dynamic=False, padded to 64:", graphs([-(-length // 64) * 64 for length in lengths], dynamic=False))
ids = torch.ones(4, 32, dtype=torch.long)
report = torch._dynamo.explain(LlamaForCausalLM(config))(input_ids=ids, use_cache=False)
print("graph breaks:", report.graph_break_count)
