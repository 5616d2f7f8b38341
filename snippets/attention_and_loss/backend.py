"""Which of its kernels does PyTorch's SDPA take, and how to allow only some of them."""
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

gpu = torch.cuda.is_available()
device, dtype = ("cuda", torch.float16) if gpu else ("cpu", torch.float32)
query, key, value = (torch.randn(1, 8, 256, 64, device=device, dtype=dtype) for _ in range(3))
mask = torch.ones(256, 256, dtype=torch.bool, device=device).tril()

# --8<-- [start:which]
# Not a public name; there is no public one that says which kernel would run
print("causal, no mask:", SDPBackend(torch._fused_sdp_choice(query, key, value, is_causal=True)))
print("with a mask:    ", SDPBackend(torch._fused_sdp_choice(query, key, value, attn_mask=mask)))
# --8<-- [end:which]

# --8<-- [start:force]
with sdpa_kernel(SDPBackend.MATH):  # or a list: the first that can; set_priority=True makes its order the order tried
    plain = F.scaled_dot_product_attention(query, key, value, is_causal=True)
# --8<-- [end:force]
fused = F.scaled_dot_product_attention(query, key, value, is_causal=True)
print("largest difference:", (plain - fused).abs().max().item())
