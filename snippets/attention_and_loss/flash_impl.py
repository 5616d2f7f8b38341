"""FlashAttention 3 or 4 behind SDPA. Needs torch 2.13, a Hopper GPU (version 4: Blackwell too), and the package of the kernel."""
import torch
from torch.nn.attention import SDPBackend, activate_flash_attention_impl, list_flash_attention_impls, sdpa_kernel

# --8<-- [start:activate]
print("known here:", list_flash_attention_impls())
activate_flash_attention_impl("FA3")  # or "FA4"; restore_flash_attention_impl() goes back
# --8<-- [end:activate]
heads = torch.randn(1, 8, 4096, 64, device="cuda", dtype=torch.bfloat16)
with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
    out = torch.nn.functional.scaled_dot_product_attention(heads, heads, heads, is_causal=True)
print(out.shape)
