"""Quantizes weights while a checkpoint loads: torchao int8, or bitsandbytes nf4."""
import torch
from torchao.quantization import Int8WeightOnlyConfig
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, LlamaConfig, TorchAoConfig

config = LlamaConfig(
    vocab_size=1000, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=2,
    bos_token_id=None, eos_token_id=None, pad_token_id=0,
)
AutoModelForCausalLM.from_config(config).save_pretrained("checkpoint")
prompt = torch.randint(1, 1000, (1, 32))

# --8<-- [start:load]
capabilities = torch.cpu.get_capabilities()
native_bf16 = any(capabilities.get(name) for name in ("amx_bf16", "avx512_bf16", "bf16"))  # the last is Arm's
how = {
    "int8": TorchAoConfig(Int8WeightOnlyConfig()),
    "nf4": BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type="nf4",
        bnb_4bit_compute_dtype=torch.bfloat16 if native_bf16 else torch.float32,
    ),
}
for name, quantization in how.items():
    model = AutoModelForCausalLM.from_pretrained("checkpoint", quantization_config=quantization, device_map="cpu")
    tokens = model.generate(prompt, max_new_tokens=16, do_sample=False)
    print(f"{name}: {tokens.shape[1]} tokens")
# --8<-- [end:load]
