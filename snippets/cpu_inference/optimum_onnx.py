"""A decoder in ONNX Runtime, by optimum-onnx, which works with transformers 4.57."""
import torch
from optimum.onnxruntime import ORTModelForCausalLM
from transformers import LlamaConfig, LlamaForCausalLM

# Random weights, so that nothing is downloaded. Yours is a name on the Hub in place of the folder.
config = LlamaConfig(hidden_size=128, intermediate_size=352, num_hidden_layers=4, num_attention_heads=4, vocab_size=1000)
LlamaForCausalLM(config).save_pretrained("llama")
# --8<-- [start:load]
model = ORTModelForCausalLM.from_pretrained("llama", export=True)
# --8<-- [end:load]
print(model.generate(torch.tensor([[1, 2, 3]]), max_new_tokens=8, do_sample=False).tolist())
