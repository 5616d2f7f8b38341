"""Speculates with a draft model and by prompt lookup, and counts: passes of the large model, tokens for each pass."""
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, set_seed

set_seed(0)
shape = dict(vocab_size=64, hidden_size=64, intermediate_size=128, num_attention_heads=2, bos_token_id=None,
             eos_token_id=None, pad_token_id=0)
# Checkpoints of one family, so that both have the same tokenizer: Qwen3-8B with Qwen3-0.6B
model, draft = (AutoModelForCausalLM.from_config(LlamaConfig(num_hidden_layers=layers, **shape)) for layers in (4, 1))

# A text that repeats itself with small changes, as code and edits do. Both models learn it in seconds.
text = torch.tensor([(7 * i + i // 48) % 60 + 1 for i in range(600)])
for learner, steps in ((model, 60), (draft, 25)):  # the draft knows less, as drafts do
    optimizer = torch.optim.AdamW(learner.parameters(), lr=3e-3)
    for _ in range(steps):
        rows = torch.stack([text[start : start + 96] for start in torch.randint(0, 400, (8,)).tolist()])
        learner(rows, labels=rows).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
device = "cuda" if torch.cuda.is_available() else "cpu"
model, draft, prompt = model.to(device).eval(), draft.to(device).eval(), text[None, 100:228].to(device)
passes = []
model.register_forward_pre_hook(lambda *arguments: passes.append(1))

# --8<-- [start:generate]
NEW = 48
for name, options in {
    "greedy": {}, "draft model": {"assistant_model": draft}, "prompt lookup": {"prompt_lookup_num_tokens": 5},
}.items():
    passes.clear()
    tokens = model.generate(prompt, max_new_tokens=NEW, do_sample=False, **options)
    print(f"{name}: {len(passes)} passes, {NEW / len(passes):.1f} tokens for each")
# --8<-- [end:generate]
