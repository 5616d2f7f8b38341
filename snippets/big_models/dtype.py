"""In which dtype does from_pretrained load, and what changes that?"""
import subprocess
import sys

import torch
from transformers import AutoModelForCausalLM

subprocess.run([sys.executable, "small.py"], check=True)  # yours is a name on the Hub, or a folder

# --8<-- [start:dtype]
stored = AutoModelForCausalLM.from_pretrained("checkpoint")  # dtype="auto": as the checkpoint says
wide = AutoModelForCausalLM.from_pretrained("checkpoint", dtype=torch.float32)  # what version 4 did
print(stored.dtype, wide.dtype, f"{wide.get_memory_footprint() / stored.get_memory_footprint():.1f} times the memory")
# --8<-- [end:dtype]

# --8<-- [start:once]
wide.save_pretrained("checkpoint-fp32")  # convert once; from now on the file is mapped again
# --8<-- [end:once]
print(AutoModelForCausalLM.from_pretrained("checkpoint-fp32").dtype)
