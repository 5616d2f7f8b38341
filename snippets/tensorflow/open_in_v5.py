"""The way out, second half, with transformers 5: the converted model answers what TensorFlow answered."""
import numpy as np
import torch
import transformers

# --8<-- [start:open]
model, report = transformers.AutoModelForSequenceClassification.from_pretrained("in_pytorch", output_loading_info=True)
assert not report["missing_keys"] and not report["unexpected_keys"], report
kept = np.load("in_pytorch/expected.npz")
with torch.inference_mode():
    logits = model(input_ids=torch.tensor(kept["ids"])).logits.numpy()
np.testing.assert_allclose(logits, kept["logits"], atol=1e-4)
# --8<-- [end:open]
difference = abs(logits - kept["logits"]).max()
print(f"transformers {transformers.__version__.split('.')[0]} answers as TensorFlow did, to {difference:.0e}")
