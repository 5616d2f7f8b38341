"""Runs texts in batches of similar length, and gives the results in the order of the texts."""
import torch
from transformers import BertConfig, BertForSequenceClassification

config = BertConfig(vocab_size=1000, hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=128)
model = BertForSequenceClassification(config).eval()
texts = [torch.randint(1, 1000, (length,)) for length in (90, 12, 60, 20, 75, 25, 40, 30)]

# --8<-- [start:by-length]
order = sorted(range(len(texts)), key=lambda number: len(texts[number]))
logits = torch.empty(len(texts), config.num_labels)
with torch.inference_mode():
    for first in range(0, len(order), 4):
        numbers = order[first : first + 4]
        ids = torch.nn.utils.rnn.pad_sequence([texts[number] for number in numbers], batch_first=True)
        mask = torch.nn.utils.rnn.pad_sequence([torch.ones_like(texts[number]) for number in numbers], batch_first=True)
        logits[numbers] = model(input_ids=ids, attention_mask=mask).logits
# --8<-- [end:by-length]
print(tuple(logits.shape))
