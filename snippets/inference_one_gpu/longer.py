"""Gives a model more positions by YaRN, as models that are made for it take them."""
import json
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, Qwen3Config

config = Qwen3Config(
    vocab_size=1000, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, head_dim=16, max_position_embeddings=40960, bos_token_id=None, eos_token_id=None,
    rope_parameters={"rope_type": "default", "rope_theta": 1e6},
)
AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).save_pretrained("checkpoint")
device = "cuda" if torch.cuda.is_available() else "cpu"
name = "checkpoint"  # or "Qwen/Qwen3-8B"

# --8<-- [start:yarn]
yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768, "rope_theta": 1e6}
longer = {"rope_parameters": yarn, "max_position_embeddings": 131072}  # in place of those in config.json
model = AutoModelForCausalLM.from_pretrained(name, device_map=device, **longer)
# --8<-- [end:yarn]
before = json.loads(Path("checkpoint/config.json").read_text())["max_position_embeddings"]
print(f"{before} positions, now {model.config.max_position_embeddings}: {model.config.rope_parameters['rope_type']}")
