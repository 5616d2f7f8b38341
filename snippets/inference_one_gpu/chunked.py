"""Reads a long prompt in chunks, so that the temporary tensors of the prompt stay small."""
import torch
from transformers import AutoModelForCausalLM, LlamaConfig

config = LlamaConfig(
    vocab_size=1000, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=2,
    bos_token_id=None, eos_token_id=None, pad_token_id=0,
)
device = "cuda" if torch.cuda.is_available() else "cpu"
model = AutoModelForCausalLM.from_config(config).to(device)
prompt = torch.randint(1, 1000, (1, 500), device=device)
lengths = []
model.model.embed_tokens.register_forward_hook(lambda module, ids, out: lengths.append(ids[0].shape[1]))

# --8<-- [start:chunked]
tokens = model.generate(prompt, prefill_chunk_size=128, max_new_tokens=4, do_sample=False)
# --8<-- [end:chunked]
print("tokens of each pass:", lengths)
