"""Times the first token and those after it, for a prompt of yours."""
import time

import torch
from transformers import AutoModelForCausalLM, LlamaConfig

config = LlamaConfig(
    vocab_size=1000, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=2,
    bos_token_id=None, eos_token_id=None, pad_token_id=0,
)
model = AutoModelForCausalLM.from_config(config).eval()
prompt = torch.randint(1, 1000, (1, 256))


# --8<-- [start:time]
def seconds(new_tokens):
    started = time.perf_counter()
    model.generate(prompt, max_new_tokens=new_tokens, min_new_tokens=new_tokens, do_sample=False)
    return time.perf_counter() - started


seconds(1)  # the first call is slower
first = min(seconds(1) for _ in range(5))
later = (min(seconds(33) for _ in range(3)) - first) / 32
print(f"first token {1e3 * first:.1f} ms, then {1 / later:.0f} tokens/s")
# --8<-- [end:time]
