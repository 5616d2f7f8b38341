"""Quantizes every linear layer to int8: weights now, activations as they come."""
import torch
from transformers import AutoModelForCausalLM, LlamaConfig

config = LlamaConfig(
    vocab_size=1000, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=2,
    bos_token_id=None, eos_token_id=None, pad_token_id=0,
)
prompt = torch.randint(1, 1000, (1, 32))

# --8<-- [start:int8]
# A checkpoint: AutoModelForCausalLM.from_pretrained("Qwen/Qwen3-0.6B", dtype=torch.float32)
model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()  # fp32: bf16 fails
model = torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear}, dtype=torch.qint8)
tokens = model.generate(prompt, max_new_tokens=16, do_sample=False)
# --8<-- [end:int8]
print(f"{tokens.shape[1]} tokens")
