"""Loads a decoder in the precision that this CPU computes, and generates."""
import torch
from transformers import AutoModelForCausalLM, LlamaConfig

config = LlamaConfig(
    vocab_size=1000, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=2,
    bos_token_id=None, eos_token_id=None, pad_token_id=0,
)
prompt = torch.randint(1, 1000, (1, 32))

# --8<-- [start:precision]
capabilities = torch.cpu.get_capabilities()
native_bf16 = any(capabilities.get(name) for name in ("amx_bf16", "avx512_bf16", "bf16"))  # the last is Arm's
dtype = torch.bfloat16 if native_bf16 else torch.float32  # without the instruction bf16 is emulated

# A checkpoint: AutoModelForCausalLM.from_pretrained("Qwen/Qwen3-0.6B", dtype=dtype)
model = AutoModelForCausalLM.from_config(config, dtype=dtype).eval()
tokens = model.generate(prompt, max_new_tokens=16, do_sample=False)
# --8<-- [end:precision]
print(f"{model.dtype}, {tokens.shape[1]} tokens")
