"""Generates with a static cache, which `generate` compiles on a GPU. A longer call does not compile again."""
import torch
from transformers import AutoModelForCausalLM, GenerationConfig, LlamaConfig

config = LlamaConfig(
    vocab_size=1000, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=2,
    bos_token_id=None, eos_token_id=None, pad_token_id=0,
)
device = "cuda" if torch.cuda.is_available() else "cpu"
model = AutoModelForCausalLM.from_config(config).to(device)
prompt = torch.randint(1, 1000, (1, 32), device=device)

# --8<-- [start:static]
static = GenerationConfig(
    cache_implementation="static",
    max_cache_len=256,  # the longest prompt plus answer that you will ask for
    max_new_tokens=16, do_sample=False, pad_token_id=0,
)
tokens = model.generate(prompt, generation_config=static)  # on a GPU, the first call compiles
# --8<-- [end:static]
print(tokens.shape[1], "tokens, compiled:", hasattr(model, "_compiled_call"))
