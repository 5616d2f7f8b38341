"""Rewrites an old pytorch_model.bin as safetensors. Usage: convert_bin.py [FOLDER]"""
import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, LlamaConfig

if len(sys.argv) > 1:
    old = Path(sys.argv[1])
else:  # an old checkpoint, to have one
    config = LlamaConfig(hidden_size=128, intermediate_size=352, num_hidden_layers=2, num_attention_heads=4, vocab_size=1000)
    old = Path("old")
    config.save_pretrained(old)
    torch.save(AutoModelForCausalLM.from_config(config).state_dict(), old / "pytorch_model.bin")

# --8<-- [start:convert]
model = AutoModelForCausalLM.from_pretrained(old)  # maps the .bin, and unpickles no code: weights_only=True
model.save_pretrained("converted", max_shard_size="5GB")  # always safetensors; tied weights once
# --8<-- [end:convert]
again = AutoModelForCausalLM.from_pretrained("converted")
same = all(torch.equal(one, other) for one, other in zip(model.parameters(), again.parameters(), strict=True))
print(sorted(path.name for path in Path("converted").iterdir()), "the same weights:", same)
