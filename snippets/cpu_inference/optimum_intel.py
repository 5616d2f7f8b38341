"""A decoder in OpenVINO with int8 weights, by optimum-intel, which works with transformers 5.5."""
import torch
from optimum.intel import OVModelForCausalLM, OVWeightQuantizationConfig
from transformers import LlamaConfig, LlamaForCausalLM

# Random weights, so that nothing is downloaded. Yours is a name on the Hub in place of the folder.
config = LlamaConfig(hidden_size=128, intermediate_size=352, num_hidden_layers=4, num_attention_heads=4, vocab_size=1000)
LlamaForCausalLM(config).save_pretrained("llama")
# --8<-- [start:load]
quantization = OVWeightQuantizationConfig(bits=8)  # load_in_8bit=False instead: unrounded weights, also of a large model
model = OVModelForCausalLM.from_pretrained("llama", export=True, quantization_config=quantization)
# --8<-- [end:load]
print(model.generate(torch.tensor([[1, 2, 3]]), max_new_tokens=8, do_sample=False).tolist())
