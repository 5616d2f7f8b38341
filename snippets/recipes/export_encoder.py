"""Turns a BERT for embeddings, or with --classifier for labels, into a folder that OpenVINO serves, and compares both.

    python export_encoder.py sentence-transformers/all-MiniLM-L6-v2
"""
import sys
from pathlib import Path

import openvino
import torch
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer

name, classifier, folder = sys.argv[1], "--classifier" in sys.argv[2:], Path("encoder")


# --8<-- [start:export]
class Embedding(torch.nn.Module):
    """The mean of a text's token vectors, of length 1."""

    def __init__(self, bert):
        super().__init__()
        self.bert = bert

    def forward(self, input_ids, attention_mask):
        vectors = self.bert(input_ids, attention_mask=attention_mask).last_hidden_state
        weights = attention_mask.unsqueeze(-1).to(vectors.dtype)
        mean = (vectors * weights).sum(1) / weights.sum(1)
        return torch.nn.functional.normalize(mean, dim=1)


class Logits(torch.nn.Module):
    """A number for each label of a classifier."""

    def __init__(self, bert):
        super().__init__()
        self.bert = bert

    def forward(self, input_ids, attention_mask):
        return self.bert(input_ids, attention_mask=attention_mask).logits


tokenizer = AutoTokenizer.from_pretrained(name)
wrapped, kind = (Logits, AutoModelForSequenceClassification) if classifier else (Embedding, AutoModel)
model = wrapped(kind.from_pretrained(name, dtype=torch.float32)).eval()
texts = ["How do I serve an encoder on a CPU?", "A short text.", "Batches share every read of the weights. " * 8]
tokens = tokenizer(texts, padding=True, truncation=True, return_tensors="pt")
example = (tokens.input_ids, tokens.attention_mask)
openvino.save_model(openvino.convert_model(model, example_input=example), folder / "openvino.xml", compress_to_fp16=False)
tokenizer.save_pretrained(folder)
# --8<-- [end:export]

served = openvino.Core().compile_model(folder / "openvino.xml", "CPU")  # bf16 where the CPU has it
with torch.inference_mode():
    expected = model(*example)
cosine = torch.cosine_similarity(expected, torch.from_numpy(served([part.numpy() for part in example])[0]))
print(f"smallest cosine similarity to PyTorch in fp32: {cosine.min():.4f}")
