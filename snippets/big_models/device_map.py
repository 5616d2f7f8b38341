"""Where would device_map="auto" put a model, on hardware that is not here? Needs no weights and no GPU."""
import sys
from collections import Counter

import torch
from accelerate import infer_auto_device_map, init_empty_weights
from transformers import AutoConfig, AutoModelForCausalLM, LlamaConfig

llama_70b = LlamaConfig(
    hidden_size=8192, intermediate_size=28672, num_hidden_layers=80, num_attention_heads=64, num_key_value_heads=8,
    vocab_size=128256, tie_word_embeddings=False, dtype=torch.bfloat16,
)

# --8<-- [start:map]
config = AutoConfig.from_pretrained(sys.argv[1]) if len(sys.argv) > 1 else llama_70b
with init_empty_weights():
    model = AutoModelForCausalLM.from_config(config)
device_map = infer_auto_device_map(
    model,
    max_memory={0: "22GiB", "cpu": "96GiB"},  # per GPU what you give to weights, not what it has
    no_split_module_classes=model._no_split_modules,  # a layer with a residual connection stays in one piece
)
# --8<-- [end:map]

# --8<-- [start:read]
used = Counter()
for module, device in device_map.items():
    used[device] += sum(weight.numel() * weight.element_size() for weight in model.get_submodule(module).parameters())
layers = Counter(device for module, device in device_map.items() if ".layers." in module)
for device, size in used.items():
    print(f"{device}: {layers[device]} layers, {size / 2**30:.1f} GiB")
# --8<-- [end:read]
