"""Exports an encoder to ONNX, runs it in ONNX Runtime, and quantizes it to int8."""
import numpy as np
import onnx
import onnxruntime
import torch
from onnxruntime.quantization import QuantType, quantize_dynamic
from transformers import BertConfig, BertForSequenceClassification

config = BertConfig(vocab_size=1000, hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=128)
config.return_dict = False  # a tuple: the exporter and OpenVINO know those
# A checkpoint: AutoModelForSequenceClassification.from_pretrained("google-bert/bert-base-uncased", return_dict=False)
model = BertForSequenceClassification(config).eval()
ids = torch.randint(1, 1000, (2, 16))
mask = torch.ones_like(ids)

# --8<-- [start:export]
free = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length", max=512)}
torch.onnx.export(
    model, (ids, mask), "model.onnx", dynamo=True,
    input_names=["input_ids", "attention_mask"], output_names=["logits"],
    dynamic_shapes={"input_ids": free, "attention_mask": free},
)
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1  # the cores of this instance
session = onnxruntime.InferenceSession("model.onnx", options, providers=["CPUExecutionProvider"])
logits = session.run(["logits"], {"input_ids": ids.numpy(), "attention_mask": mask.numpy()})[0]
# --8<-- [end:export]
with torch.inference_mode():
    print(f"largest difference {np.abs(logits - model(ids, mask)[0].numpy()).max():.0e}")

# --8<-- [start:int8]
graph = onnx.load("model.onnx")
del graph.graph.value_info[:]  # shapes that the exporter noted; the quantizer stumbles over them
onnx.save(graph, "plain.onnx")
quantize_dynamic("plain.onnx", "int8.onnx", weight_type=QuantType.QInt8, per_channel=True)  # without VNNI: reduce_range=True too
session = onnxruntime.InferenceSession("int8.onnx", options, providers=["CPUExecutionProvider"])
# --8<-- [end:int8]
print(session.run(["logits"], {"input_ids": ids.numpy(), "attention_mask": mask.numpy()})[0].shape)
