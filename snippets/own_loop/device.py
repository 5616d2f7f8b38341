"""The same training step on an NVIDIA, AMD, Intel or Apple GPU, or on none."""
import torch
from transformers import AutoModelForCausalLM, LlamaConfig

# --8<-- [start:device]
# cuda (also AMD), xpu (Intel), mps (Apple); unchecked, PyTorch names what it was built for, whether it is there or not
device = torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")
native_bf16 = {
    "cuda": lambda: torch.version.hip is not None or torch.cuda.get_device_capability() >= (8, 0),
    "xpu": lambda: torch.xpu.is_bf16_supported(including_emulation=False),
    "mps": lambda: torch.backends.mps.is_macos_or_newer(14, 0),
    "cpu": lambda: True,  # slow where it has no bf16 instructions: leave autocast out there
}[device.type]()
dtype = torch.bfloat16 if native_bf16 else torch.float16
# --8<-- [end:device]

config = LlamaConfig(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2, vocab_size=1000)
model = AutoModelForCausalLM.from_config(config).to(device)
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
ids = torch.randint(0, 1000, (2, 32), device=device)
with torch.autocast(device.type, dtype=dtype):
    loss = model(input_ids=ids, labels=ids).loss
loss.backward()  # with fp16 on a GPU: through torch.amp.GradScaler, or leave it to Trainer and Accelerate
optimizer.step()
print(f"{device.type}, {dtype}, loss {loss.item():.3f}")
