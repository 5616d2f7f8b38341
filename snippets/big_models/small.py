"""Writes a small Llama with random weights, in bf16 and in several files, so that the other programs have something to open."""
import sys

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, set_seed

set_seed(0)
config = LlamaConfig(
    hidden_size=128, intermediate_size=352, num_hidden_layers=4, num_attention_heads=4, vocab_size=1000,
    bos_token_id=1, eos_token_id=None, pad_token_id=0, dtype=torch.bfloat16,
)
folder = sys.argv[1] if len(sys.argv) > 1 else "checkpoint"
AutoModelForCausalLM.from_config(config).save_pretrained(folder, max_shard_size="500KB")
