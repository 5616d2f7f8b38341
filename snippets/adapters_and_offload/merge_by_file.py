"""Merges a LoRA adapter into a checkpoint file by file: memory holds one file of it, and never the whole model.

    python merge_by_file.py Qwen3-8B adapter merged
"""
import json
import shutil
import sys
from pathlib import Path

from safetensors.torch import load_file, save_file

checkpoint, adapter, merged = map(Path, sys.argv[1:4])  # folders; of a model on the Hub: hf download ... --local-dir
settings = json.loads((adapter / "adapter_config.json").read_text())
start = settings.get("init_lora_weights")
changes_base = isinstance(start, str) and start not in ("gaussian", "eva", "orthogonal")  # as PiSSA does, and OLoRA
more = any(settings.get(name) for name in ("use_dora", "alpha_pattern", "fan_in_fan_out"))  # the last: GPT-2's transpose
if settings["peft_type"] != "LORA" or more or changes_base:
    sys.exit("only plain LoRA is a sum of two factors: take merge_and_unload")

# --8<-- [start:merge]
factors = {name.removeprefix("base_model.model."): f for name, f in load_file(adapter / "adapter_model.safetensors").items()}
shutil.copytree(checkpoint, merged, ignore=shutil.ignore_patterns("*.safetensors", "*.bin", ".*"))  # configuration, tokenizer
for file in sorted(checkpoint.glob("*.safetensors")):
    tensors = load_file(file)
    for name, weight in tensors.items():
        layer = name.removesuffix(".weight")
        if f"{layer}.lora_A.weight" in factors:
            if weight.element_size() < 2:
                sys.exit("quantized checkpoint: merge into the 16-bit one")
            a, b = factors.pop(f"{layer}.lora_A.weight"), factors.pop(f"{layer}.lora_B.weight")
            scale = settings["lora_alpha"] / (len(a) ** 0.5 if settings.get("use_rslora") else len(a))  # by this layer's rank
            tensors[name] = (weight.float() + scale * b.float() @ a.float()).to(weight.dtype)
    save_file(tensors, merged / file.name, metadata={"format": "pt"})
if factors:
    sys.exit(f"no weight of the checkpoint has the name of {next(iter(factors))}: do not use {merged}")
# --8<-- [end:merge]
