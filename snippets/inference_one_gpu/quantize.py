"""Quantizes a checkpoint while it loads: bitsandbytes in 4 and 8 bits, torchao in 8. Prints what stays in 16 bits."""
import torch
from torchao.quantization import Int8WeightOnlyConfig
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, LlamaConfig, TorchAoConfig

config = LlamaConfig(
    vocab_size=1000, hidden_size=256, intermediate_size=512, num_hidden_layers=2, num_attention_heads=2,
    bos_token_id=None, eos_token_id=None, pad_token_id=0,
)
AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).save_pretrained("checkpoint")
device = "cuda" if torch.cuda.is_available() else "cpu"
prompt = torch.randint(1, 1000, (1, 16), device=device)

# --8<-- [start:load]
how = {
    "bf16": None,
    "int8": BitsAndBytesConfig(load_in_8bit=True),
    "nf4": BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",  # the default is "fp4"
        bnb_4bit_compute_dtype=torch.bfloat16,  # the default is float32
    ),
    "int8, torchao": TorchAoConfig(Int8WeightOnlyConfig()),  # the only one of these that `generate` can compile
}
for name, quantization in how.items():
    model = AutoModelForCausalLM.from_pretrained("checkpoint", quantization_config=quantization, device_map=device)
    tokens = model.generate(prompt, max_new_tokens=8, do_sample=False)
    size = model.get_memory_footprint() / 1e6  # counts torchao's weights as 16 bits: ask the GPU for those
    print(f"{name}: {size:.2f} MB, {tokens.shape[1]} tokens")
# --8<-- [end:load]
