"""Looks into a checkpoint without opening the model: what is in which file, and one tensor of many."""
import json
import subprocess
import sys
from pathlib import Path

from safetensors import safe_open

subprocess.run([sys.executable, "small.py"], check=True)

# --8<-- [start:peek]
folder = Path("checkpoint")
index = json.loads((folder / "model.safetensors.index.json").read_text())
print(f"{len(index['weight_map'])} tensors, {index['metadata']['total_size'] / 1e6:.1f} MB, in "
      f"{len(set(index['weight_map'].values()))} files")
name = "model.layers.3.mlp.down_proj.weight"
with safe_open(folder / index["weight_map"][name], framework="pt") as file:  # reads the header, and maps the rest
    part = file.get_slice(name)
    print(name, part.get_dtype(), part.get_shape())
    rows = part[:2]  # only these rows are read
# --8<-- [end:peek]
print(rows.shape)
