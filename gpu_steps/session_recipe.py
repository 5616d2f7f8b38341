"""`python -m gpu_steps.session_recipe NAME SCRATCH OUT`: a recipe on this machine's GPU without a network, with what a T4 would force.

The model that the recipe chooses on a T4 stands in the Hub's cache with random weights and the tokenizer of a small one: what it writes is
noise, and its memory, its seconds and its dtypes are those of the real one.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import nbformat
import torch

from dryrun.tracing.step_trace import config_of
from evidence import offline_hub, recipes

CHOSEN = {"write_fast": ("Qwen/Qwen3-4B", "qwen3-4b"), "finetune_chat_model": ("Qwen/Qwen3-8B", "qwen3-8b")}  # on a T4: repository, our name
T4 = """
import torch
if torch.cuda.is_available():
    torch.cuda.set_per_process_memory_fraction(min(1.0, 15 * 2**30 / torch.cuda.get_device_properties(0).total_memory))
    torch.cuda.is_bf16_supported = lambda including_emulation=True: False
    torch.cuda.get_device_name = lambda *device: "Tesla T4"
"""


def main(name: str, scratch: Path, out: Path) -> None:
    hub, folder, startup = scratch / "hub", scratch / "run", scratch / "ipython" / "profile_default" / "startup"
    for place in (folder, startup):
        place.mkdir(parents=True)
    (startup / "00-t4.py").write_text(T4, encoding="utf-8")  # IPython runs it before the first cell
    offline_hub.make(hub)
    seen = {"IPYTHONDIR": str(scratch / "ipython")}
    if torch.cuda.is_available():
        stand_in(hub, *CHOSEN[name])
        seen |= {"CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES", "0"), "DS_ACCELERATOR": "cuda"}
    notebook = recipes.run(name, hub, folder, print, seen)
    (out / f"{name}.ipynb").write_text(nbformat.writes(notebook), encoding="utf-8")


def stand_in(hub: Path, repository: str, model: str) -> None:
    """Writes a model with random weights, half of a minute for 4B, into the cache that `offline_hub.make` has begun."""
    model_class, config = config_of(model, 4096)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    with device:
        made = model_class._from_config(config, dtype=torch.bfloat16)
    root = hub / "hub" / f"models--{repository.replace('/', '--')}"
    place = root / "snapshots" / offline_hub.REVISION
    small = hub / "hub" / f"models--{offline_hub.MODEL.replace('/', '--')}" / "snapshots" / offline_hub.REVISION
    shutil.copytree(small, place, ignore=shutil.ignore_patterns("*.safetensors", "config.json", "generation_config.json"))
    (root / "refs").mkdir()
    (root / "refs" / "main").write_text(offline_hub.REVISION)
    made.save_pretrained(place)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
