"""Times the first token and the later ones, and says how near decoding comes to the bandwidth of your GPU."""
import time

import torch
from transformers import AutoModelForCausalLM, LlamaConfig

config = LlamaConfig(
    vocab_size=1000, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=2,
    bos_token_id=None, eos_token_id=None, pad_token_id=0,
)
device = "cuda" if torch.cuda.is_available() else "cpu"
model = AutoModelForCausalLM.from_config(config).to(device)
prompt = torch.randint(1, 1000, (1, 128), device=device)

# --8<-- [start:time]
BANDWIDTH = 1008e9  # bytes/s, from the data sheet of your GPU: an RTX 4090


def seconds(new_tokens, **options):
    started = time.perf_counter()
    model.generate(prompt, max_new_tokens=new_tokens, min_new_tokens=new_tokens, do_sample=False, **options)
    if torch.cuda.is_available():
        torch.cuda.synchronize()  # a kernel that is still running is time that is not counted yet
    return time.perf_counter() - started


seconds(2)  # the first call loads kernels
first = min(seconds(1) for _ in range(3))
later = (min(seconds(33) for _ in range(3)) - first) / 32
limit = BANDWIDTH / model.get_memory_footprint()
print(f"first token {1e3 * first:.1f} ms, then {1 / later:.0f} tokens/s: {100 / later / limit:.1f} % of the limit")
# --8<-- [end:time]
