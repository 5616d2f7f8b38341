"""A model whose activations leave the range of fp16, and the tool that names the module."""
import sys

import torch
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.debug_utils import DebugUnderflowOverflow

torch.manual_seed(0)
config = LlamaConfig(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2, vocab_size=256)
model = LlamaForCausalLM(config)
with torch.no_grad():
    model.model.layers[1].mlp.up_proj.weight *= 1e6  # outliers, as some large models have them
model = model.to(torch.bfloat16 if "bf16" in sys.argv else torch.float16)

# --8<-- [start:watch]
watch = DebugUnderflowOverflow(model, max_frames_to_save=4)  # Trainer: TrainingArguments(debug="underflow_overflow")
# --8<-- [end:watch]
logits = model(input_ids=torch.arange(8)[None]).logits
print("finite" if logits.isfinite().all() else "not finite")
