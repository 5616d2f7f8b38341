"""Generates for several prompts at once. Padding goes to the left, so that every prompt ends where its answer begins."""
import torch
from transformers import AutoModelForCausalLM, LlamaConfig

config = LlamaConfig(
    vocab_size=1000, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=2,
    bos_token_id=None, eos_token_id=None, pad_token_id=0,
)
model = AutoModelForCausalLM.from_config(config).eval()
prompts = [torch.randint(1, 1000, (length,)) for length in (5, 32, 12)]


# --8<-- [start:batch]
# With a tokenizer: tokenizer(texts, padding=True, padding_side="left", return_tensors="pt")
def padded(rows, padding_side="left"):
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_side=padding_side)


ids, mask = padded(prompts), padded([torch.ones_like(prompt) for prompt in prompts])
tokens = model.generate(ids, attention_mask=mask, max_new_tokens=16, do_sample=False)
answers = tokens[:, ids.shape[1] :]
# --8<-- [end:batch]
print(tuple(answers.shape))
