"""Since transformers 5, a checkpoint is loaded in the dtype it was saved in."""
import tempfile

import torch
from transformers import AutoModelForCausalLM, LlamaConfig

small = LlamaConfig(
    hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2, vocab_size=1000,
)
with tempfile.TemporaryDirectory() as checkpoint:  # stands for a bf16 checkpoint of the Hub
    AutoModelForCausalLM.from_config(small, dtype=torch.bfloat16).save_pretrained(checkpoint)

    # --8<-- [start:load]
    model = AutoModelForCausalLM.from_pretrained(checkpoint)
    print(model.dtype)  # torch.bfloat16: with bf16=True on top, this is pure bf16 training

    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32)
    print(model.dtype)  # torch.float32: now bf16=True is mixed precision
    # --8<-- [end:load]
