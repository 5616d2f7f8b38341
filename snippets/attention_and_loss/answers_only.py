"""Logits for the tokens that have a label, and for no other: instruction tuning with masked prompts."""
import torch
import torch.nn.functional as F
from transformers import AutoModelForCausalLM, LlamaConfig

config = LlamaConfig(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2, vocab_size=999)
model = AutoModelForCausalLM.from_config(config).to("cuda" if torch.cuda.is_available() else "cpu")
ids = torch.randint(0, 999, (2, 64), device=model.device)
labels = ids.clone()
labels[:, :48] = -100  # the prompt

# --8<-- [start:loss]
def answers_only(batch):
    targets = F.pad(batch["labels"], (0, 1), value=-100)[:, 1:]  # token n predicts token n + 1
    keep = targets != -100
    return {**batch, "logits_to_keep": keep, "shift_labels": targets[keep]}


output = model(**answers_only({"input_ids": ids, "labels": labels}))
# --8<-- [end:loss]
output.loss.backward()
print(tuple(output.logits.shape), output.loss.item(), model(input_ids=ids, labels=labels).loss.item())
