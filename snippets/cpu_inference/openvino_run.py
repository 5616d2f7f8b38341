"""Runs an encoder in OpenVINO."""
import openvino
import torch
from transformers import BertConfig, BertForSequenceClassification

config = BertConfig(vocab_size=1000, hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=128)
config.return_dict = False
model = BertForSequenceClassification(config).eval()
ids = torch.randint(1, 1000, (2, 16))
mask = torch.ones_like(ids)

# --8<-- [start:openvino]
options = {
    "INFERENCE_NUM_THREADS": 1,  # the cores of this instance; start several each under taskset, or all take the same core
    "INFERENCE_PRECISION_HINT": "f32",  # "bf16" is faster where the CPU has it, and rounds
}
graph = openvino.convert_model(model, example_input=(ids, mask))
compiled = openvino.Core().compile_model(graph, "CPU", options)
logits = compiled([ids.numpy(), mask.numpy()])[0]
openvino.save_model(graph, "model.xml", compress_to_fp16=False)  # keeps the weights as they are
# next time: compiled = openvino.Core().compile_model("model.xml", "CPU", options)
# --8<-- [end:openvino]
print(logits.shape)
