"""Builds a model of 70 billion parameters in a second, without memory, and asks it questions."""
import torch
from accelerate import init_empty_weights
from transformers import AutoModelForCausalLM, LlamaConfig

# --8<-- [start:empty]
config = LlamaConfig(  # or AutoConfig.from_pretrained("Qwen/Qwen3-32B"): a config.json is all that is needed
    hidden_size=8192, intermediate_size=28672, num_hidden_layers=80, num_attention_heads=64, num_key_value_heads=8,
    vocab_size=128256, tie_word_embeddings=False, dtype=torch.bfloat16,
)
with init_empty_weights():  # parameters on the meta device, buffers with their values
    model = AutoModelForCausalLM.from_config(config)
parameters = sum(parameter.numel() for parameter in model.parameters())
print(f"{parameters / 1e9:.1f} billion parameters, {model.get_memory_footprint() / 1e9:.0f} GB in {model.dtype}")
# --8<-- [end:empty]

# --8<-- [start:trap]
with torch.device("meta"):  # buffers too, and they are in no checkpoint
    trap = AutoModelForCausalLM.from_config(LlamaConfig(num_hidden_layers=1, vocab_size=100))
print("init_empty_weights:", model.model.rotary_emb.inv_freq.device, "torch.device:", trap.model.rotary_emb.inv_freq.device)
# --8<-- [end:trap]
