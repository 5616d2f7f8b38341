"""Runs a model in less memory than it has bytes: what does not fit is read from the checkpoint when its turn comes."""
import subprocess
import sys

import torch
from transformers import AutoModelForCausalLM

subprocess.run([sys.executable, "small.py"], check=True)
prompt = torch.arange(5, 13)[None]

# --8<-- [start:offload]
model = AutoModelForCausalLM.from_pretrained(
    "checkpoint",
    device_map="auto",  # GPUs first, then the host, then the disk
    max_memory={"cpu": "1400KB"},  # with a GPU of 24 GB: {0: "22GiB", "cpu": "96GiB"}
    offload_folder="offload",  # for what has to be written again; safetensors files are read where they are
)
print(model.hf_device_map)
# --8<-- [end:offload]
tokens = model.generate(prompt, max_new_tokens=8, do_sample=False)
whole = AutoModelForCausalLM.from_pretrained("checkpoint")
print("the same tokens:", torch.equal(tokens, whole.generate(prompt, max_new_tokens=8, do_sample=False)))
