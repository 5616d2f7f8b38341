"""The model and the batches of the three training programs: a small Llama that learns bytes of Python's own source."""
import os
from pathlib import Path

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

ROWS, LENGTH, STEPS, RATE = 8, 64, 5, 1e-3
CONFIG = LlamaConfig(
    hidden_size=256, intermediate_size=512, num_hidden_layers=2, num_attention_heads=8, num_key_value_heads=8,
    vocab_size=256, max_position_embeddings=LENGTH, use_cache=False, bos_token_id=None, eos_token_id=None,
)


def llama():
    torch.manual_seed(0)
    # yours: AutoModelForCausalLM.from_pretrained("Qwen/Qwen3-0.6B", dtype=torch.float32)
    return LlamaForCausalLM(CONFIG)


def batches():
    text = np.frombuffer(Path(os.__file__).read_bytes(), np.uint8)
    for step in range(STEPS):
        start = step * ROWS * LENGTH
        yield text[start : start + ROWS * LENGTH].reshape(ROWS, LENGTH).astype(np.int32)
