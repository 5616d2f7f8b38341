"""Copies the prediction heads (mtp) of the original model into the folder of a fine-tuned one.

    python copy_heads.py Qwen3.5-9B merged
"""
import json
import sys
from pathlib import Path

from safetensors import safe_open
from safetensors.torch import save_file

original, tuned = map(Path, sys.argv[1:])


def files_of_weights(folder):
    """{name of a weight: its file}"""
    index = folder / "model.safetensors.index.json"
    if index.exists():
        return json.loads(index.read_text())["weight_map"]
    with safe_open(folder / "model.safetensors", "pt") as weights:
        return dict.fromkeys(weights.keys(), "model.safetensors")


heads = {}
for name, file in files_of_weights(original).items():
    if name.startswith("mtp."):
        with safe_open(original / file, "pt") as weights:
            heads[name] = weights.get_tensor(name)
save_file(heads, tuned / "model-mtp.safetensors", metadata={"format": "pt"})
files = files_of_weights(tuned) | dict.fromkeys(heads, "model-mtp.safetensors")
(tuned / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": files}, indent=2))
print(f"{len(heads)} weights of the heads copied")
