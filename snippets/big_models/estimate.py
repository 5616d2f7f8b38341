"""Estimates memory from a config.json, without network, weights or GPU. Usage: estimate.py [config.json]"""
import sys

import torch
from accelerate import init_empty_weights
from accelerate.commands.estimate import estimate_training_usage
from transformers import AutoConfig, AutoModelForCausalLM, LlamaConfig

llama_8b = LlamaConfig(
    hidden_size=4096, intermediate_size=14336, num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=8,
    vocab_size=128256, tie_word_embeddings=False, dtype=torch.bfloat16,
)
config = AutoConfig.from_pretrained(sys.argv[1]) if len(sys.argv) > 1 else llama_8b
with init_empty_weights():
    model = AutoModelForCausalLM.from_config(config)

# --8<-- [start:estimate]
parameters = sum(parameter.numel() for parameter in model.parameters())
heads = getattr(config, "num_key_value_heads", config.num_attention_heads)
width = getattr(config, "head_dim", config.hidden_size // config.num_attention_heads)
cache = 2 * config.num_hidden_layers * heads * width * 2  # bytes of keys and values per token, in 16 bits
print(f"weights in 16 bits {2 * parameters / 2**30:.1f} GiB, cache {cache / 2**10:.0f} KiB per token and sequence")
for column in ("float32", "float16"):  # what `accelerate estimate-memory` prints as "Training using Adam"
    print(f"accelerate, {column}: {max(estimate_training_usage(4 * parameters, column).values()) / 2**30:.1f} GiB")
# --8<-- [end:estimate]
