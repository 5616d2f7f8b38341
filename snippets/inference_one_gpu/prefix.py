"""Computes the cache of a common prefix once, and continues from a copy of it for each question."""
import copy

import torch
from transformers import AutoModelForCausalLM, DynamicCache, LlamaConfig

config = LlamaConfig(
    vocab_size=1000, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=2,
    bos_token_id=None, eos_token_id=None, pad_token_id=0,
)
device = "cuda" if torch.cuda.is_available() else "cpu"
model = AutoModelForCausalLM.from_config(config).to(device).eval()
prefix = torch.randint(1, 1000, (1, 200), device=device)  # a system prompt, a document
questions = [torch.randint(1, 1000, (1, length), device=device) for length in (5, 9, 7)]

# --8<-- [start:prefix]
with torch.inference_mode():
    kept = model(prefix, past_key_values=DynamicCache(config=model.config), logits_to_keep=1).past_key_values

answers = []
for question in questions:
    ids = torch.cat([prefix, question], dim=1)  # the whole text; what the cache has is not computed again
    tokens = model.generate(ids, past_key_values=copy.deepcopy(kept), max_new_tokens=8, do_sample=False)
    answers.append(tokens[0, ids.shape[1] :])
# --8<-- [end:prefix]
print(len(answers), "answers,", kept.get_seq_length(), "tokens of prefix computed once")
