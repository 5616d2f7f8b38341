"""Generates with a cache that is smaller, or that lies in host memory."""
import torch
from transformers import AutoModelForCausalLM, LlamaConfig

config = LlamaConfig(
    vocab_size=1000, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=2,
    bos_token_id=None, eos_token_id=None, pad_token_id=0,
)
gpu = torch.cuda.is_available()
model = AutoModelForCausalLM.from_config(config).to("cuda" if gpu else "cpu")
prompt = torch.randint(1, 1000, (1, 32), device=model.device)

# --8<-- [start:caches]
options = {
    "dynamic": {},  # the default: grows with each token, and keeps windows short where the model has them
    "fp8": {"cache_implementation": "quantized", "cache_config": {"backend": "fp8"}},
}
if gpu:  # one layer's keys and values on the GPU at a time, the next one on its way
    options["offloaded"] = {"cache_implementation": "offloaded"}
for name, cache in options.items():
    tokens = model.generate(prompt, max_new_tokens=16, do_sample=False, **cache)
    print(f"{name}: {tokens.shape[1]} tokens")
# --8<-- [end:caches]
