"""Compiles an encoder. The first batch pays, and the first of another length, whose graph serves all further ones."""
import torch
from transformers import BertConfig, BertForSequenceClassification

config = BertConfig(vocab_size=1000, hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=128)
model = BertForSequenceClassification(config).eval()
ids = torch.randint(1, 1000, (2, 16))

# --8<-- [start:compile]
compiled = torch.compile(model)
with torch.inference_mode():
    logits = compiled(input_ids=ids).logits
# --8<-- [end:compile]
print(tuple(logits.shape))
