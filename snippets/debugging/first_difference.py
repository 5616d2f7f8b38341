"""Two runs that should agree: which module is the first to differ? Before an upgrade, save; after it, compare.

    python first_difference.py save
    python first_difference.py compare
    python first_difference.py compare --break-a-layer
"""
import sys

import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
config = LlamaConfig(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2, vocab_size=256)
model = LlamaForCausalLM(config).eval()  # load your checkpoint here, in fp32, with attn_implementation="eager"
ids = torch.arange(16)[None]
if "--break-a-layer" in sys.argv:
    model.model.layers[1].input_layernorm.variance_epsilon = 1e-2  # as another version, or another config, would


# --8<-- [start:record]
@torch.no_grad()
def outputs(model, ids):
    """{module: its output}, in the order in which the modules end."""
    found, handles = {}, []
    for name, module in model.named_modules():
        def keep(module, inputs, output, name=name):
            first = output[0] if isinstance(output, tuple) else output
            if isinstance(first, torch.Tensor):
                found[name] = first.float().cpu()

        handles.append(module.register_forward_hook(keep))
    model(input_ids=ids, use_cache=False)
    for handle in handles:
        handle.remove()
    return found


def first_difference(before, after, tolerance=1e-5):
    for name, tensor in after.items():
        apart = (tensor - before[name]).abs().max() / before[name].abs().max()
        if apart > tolerance:
            return f"first difference: {name}, {apart:.1e} of the largest value"
    return f"all {len(after)} modules agree"
# --8<-- [end:record]


if sys.argv[1] == "save":
    torch.save(outputs(model, ids), "outputs.pt")
else:
    print(first_difference(torch.load("outputs.pt"), outputs(model, ids)))
