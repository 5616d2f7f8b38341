"""fp8 matrix products with torchao, on Ada, Hopper and later. Elsewhere emulated: the numerics, not the speed."""
import torch
from torchao.float8 import Float8LinearConfig, convert_to_float8_training
from transformers import AutoModelForCausalLM, LlamaConfig

device = "cuda" if torch.cuda.is_available() else "cpu"
config = LlamaConfig(
    hidden_size=256, intermediate_size=512, num_hidden_layers=2, num_attention_heads=4, vocab_size=1024,
)
model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).to(device)

# --8<-- [start:convert]
native_fp8 = device == "cuda" and torch.cuda.get_device_capability() >= (8, 9)
model = convert_to_float8_training(
    model,
    config=Float8LinearConfig(emulate=not native_fp8),
    module_filter_fn=lambda module, name: "lm_head" not in name,  # the logits stay in bf16
)
if native_fp8:
    model.compile()  # fuses scaling and casting, which otherwise cost what fp8 saves
# --8<-- [end:convert]

optimizer = torch.optim.AdamW(model.parameters(), fused=True)
ids = torch.randint(0, 1024, (4, 64), device=device)
loss = model(input_ids=ids, labels=ids).loss
loss.backward()
optimizer.step()
print(f"loss {loss.item():.3f}, {sum('Float8' in type(m).__name__ for m in model.modules())} layers multiply in fp8")
