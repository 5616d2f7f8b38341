"""Loads a checkpoint in the dtype in which it was saved, and says what runs."""
import torch
from transformers import AutoModelForCausalLM, LlamaConfig

config = LlamaConfig(vocab_size=1000, hidden_size=128, intermediate_size=256, num_hidden_layers=2,
                     num_attention_heads=2)
AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).save_pretrained("checkpoint")

# --8<-- [start:load]
device = "cuda" if torch.cuda.is_available() else "cpu"
model = AutoModelForCausalLM.from_pretrained("checkpoint", device_map=device)  # or "Qwen/Qwen3-8B"
print(model.dtype, model.config._attn_implementation, f"{model.get_memory_footprint() / 1e6:.1f} MB", model.training)
# --8<-- [end:load]
