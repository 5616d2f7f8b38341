"""Where do two dtypes or devices meet? Counts the parameters of each, and names the modules that are the odd ones out."""
from collections import Counter

import torch
from transformers import LlamaConfig, LlamaForCausalLM

config = LlamaConfig(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2, vocab_size=256)
model = LlamaForCausalLM(config).to(torch.bfloat16)
# --8<-- [start:wrong]
model.lm_head = torch.nn.Linear(64, 2)  # a new head is fp32, and on the CPU
# --8<-- [end:wrong]


# --8<-- [start:test]
def kinds(model):
    """Parameters of each dtype and device, and the names of the rare ones."""
    found = {name: (str(tensor.dtype), str(tensor.device)) for name, tensor in model.named_parameters()}
    counts = Counter(found.values())
    rare = [name for name, kind in found.items() if kind != counts.most_common(1)[0][0]]
    return dict(counts), rare
# --8<-- [end:test]


if __name__ == "__main__":
    print(*kinds(model), sep="\n")
    try:
        model(input_ids=torch.arange(4)[None])
    except RuntimeError as error:
        print(f"RuntimeError: {error}")
    # --8<-- [start:right]
    model.lm_head.to(model.model.norm.weight)  # takes dtype and device from a tensor
    # --8<-- [end:right]
    print(*kinds(model), sep="\n")
    print(model(input_ids=torch.arange(4)[None]).logits.dtype)
