"""Loads a GGUF file. On a CPU the weights become plain fp32 numbers."""
import sys

from transformers import AutoModelForCausalLM

# --8<-- [start:load]
folder, file = sys.argv[1:]  # or a repository of the hub and a file in it
model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=file)
print(f"{model.dtype}, {model.get_memory_footprint() / 1e6:.1f} MB")
# --8<-- [end:load]
