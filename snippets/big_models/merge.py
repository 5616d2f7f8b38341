"""Merges the shards that ranks have saved as safetensors, file to file, in one process and on another machine if you like."""
import json
import shutil
from pathlib import Path

from safetensors import safe_open
from torch.distributed.checkpoint._consolidate_hf_safetensors import consolidate_safetensors_files
from transformers import AutoModelForCausalLM

# --8<-- [start:merge]
shards, merged = Path("shards"), Path("merged")
merged.mkdir()
files = {}
for path in shards.glob("shard-*.safetensors"):
    with safe_open(path, framework="pt") as file:
        files |= dict.fromkeys(file.keys(), 1)  # the number of the file that a weight goes into, from 1
consolidate_safetensors_files(str(shards), str(merged), files)
for path in shards.glob("*.json"):  # config.json and what else from_pretrained wants
    shutil.copy(path, merged)
# --8<-- [end:merge]
print(sorted(path.name for path in merged.iterdir()))
print(len(json.loads((merged / "model.safetensors.index.json").read_text())["weight_map"]), "weights")
print(AutoModelForCausalLM.from_pretrained(merged).dtype)
