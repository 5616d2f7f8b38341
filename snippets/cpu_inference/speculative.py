"""Generates with a draft model, and with drafts looked up in the prompt. Counts the passes of the large model."""
import torch
from transformers import AutoModelForCausalLM, LlamaConfig

shape = dict(
    vocab_size=1000, hidden_size=128, intermediate_size=256, num_attention_heads=2,
    bos_token_id=None, eos_token_id=None, pad_token_id=0,
)
# Checkpoints of one family, so that both have the same tokenizer: Qwen3-8B with Qwen3-0.6B
model = AutoModelForCausalLM.from_config(LlamaConfig(num_hidden_layers=4, **shape)).eval()
draft = AutoModelForCausalLM.from_config(LlamaConfig(num_hidden_layers=1, **shape)).eval()
prompt = torch.randint(1, 1000, (1, 16)).repeat(1, 4)
passes = []
model.register_forward_pre_hook(lambda *arguments: passes.append(1))

# --8<-- [start:generate]
for name, options in {
    "greedy": {}, "draft": {"assistant_model": draft}, "lookup": {"prompt_lookup_num_tokens": 8},
}.items():
    passes.clear()
    tokens = model.generate(prompt, max_new_tokens=32, do_sample=False, **options)
    print(f"{name}: {len(passes)} passes")
# --8<-- [end:generate]
