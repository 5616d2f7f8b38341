"""Moves a Flax model to PyTorch, and compares the answers. Needs transformers 4.57 and flax, not transformers 5."""
import numpy as np
import torch
from transformers import BertConfig, BertForSequenceClassification, FlaxBertForSequenceClassification
from transformers.modeling_flax_pytorch_utils import load_flax_weights_in_pytorch_model

small = BertConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, vocab_size=100)
FlaxBertForSequenceClassification(small).save_pretrained("in_flax")  # in place of yours

# --8<-- [start:copy]
flax = FlaxBertForSequenceClassification.from_pretrained("in_flax")
model = BertForSequenceClassification(flax.config)
load_flax_weights_in_pytorch_model(model, flax.params)

ids = np.arange(5, 13)[None]
expected = np.asarray(flax(ids).logits)
with torch.inference_mode():
    logits = model.eval()(torch.tensor(ids)).logits.numpy()
assert np.abs(logits - expected).max() < 1e-4 * np.abs(expected).max(), "the weights did not arrive"
model.save_pretrained("in_pytorch")
# --8<-- [end:copy]
print("in_pytorch answers as in_flax does")
