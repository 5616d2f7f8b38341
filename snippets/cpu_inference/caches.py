"""Generates with a static cache, and with one in 8 bits."""
import torch
from transformers import AutoModelForCausalLM, LlamaConfig

config = LlamaConfig(
    vocab_size=1000, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=2,
    bos_token_id=None, eos_token_id=None, pad_token_id=0,
)
model = AutoModelForCausalLM.from_config(config).eval()
prompt = torch.randint(1, 1000, (1, 32))

# --8<-- [start:caches]
static = model.generate(prompt, max_new_tokens=16, do_sample=False, cache_implementation="static")
small = model.generate(
    prompt, max_new_tokens=16, do_sample=False,
    cache_implementation="quantized", cache_config={"backend": "fp8"},  # "quanto" and "hqq" need their packages
)
# --8<-- [end:caches]
print(static.shape[1], small.shape[1])
