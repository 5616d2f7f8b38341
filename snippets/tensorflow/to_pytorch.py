"""The way out, first half, with transformers 4.57: a TensorFlow checkpoint becomes one of PyTorch."""
import numpy as np
import tensorflow as tf
import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    TFBertForSequenceClassification,
    load_tf2_model_in_pytorch_model,
)

tf.keras.utils.set_random_seed(0)
# Stands for the model that you trained, in the folder where `save_pretrained` left config.json and tf_model.h5.
config = BertConfig(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2, vocab_size=500,
                    initializer_range=0.2)  # fmt: skip
trained = TFBertForSequenceClassification(config)
trained.build_in_name_scope()  # Keras makes weights at the first use only
trained.save_pretrained("trained_in_tensorflow")
# --8<-- [start:convert]
old = TFBertForSequenceClassification.from_pretrained("trained_in_tensorflow")
new = BertForSequenceClassification(old.config).eval()
load_tf2_model_in_pytorch_model(new, old)  # an error where TensorFlow lacks a weight
new.save_pretrained("in_pytorch")  # model.safetensors
# --8<-- [end:convert]
# --8<-- [start:compare]
ids = np.random.default_rng(0).integers(5, config.vocab_size, (8, 16))
expected = old(input_ids=tf.constant(ids), training=False).logits.numpy()
with torch.inference_mode():
    logits = new(input_ids=torch.tensor(ids)).logits.numpy()
np.savez("in_pytorch/expected.npz", ids=ids, logits=expected)  # for the second half
print(f"largest logit {abs(expected).max():.2f}, largest difference {abs(logits - expected).max():.0e}")
np.testing.assert_allclose(logits, expected, atol=1e-4)
# --8<-- [end:compare]
