"""Which attention kernel does PyTorch take on this CPU?"""
import torch
from torch.nn.functional import scaled_dot_product_attention
from torch.profiler import ProfilerActivity, profile

# --8<-- [start:kernel]
q = k = v = torch.randn(1, 2, 64, 32, requires_grad=True)  # with gradients, as in training
with profile(activities=[ProfilerActivity.CPU]) as seen:
    scaled_dot_product_attention(q, k, v, is_causal=True)
print([event.key for event in seen.key_averages() if event.key.startswith("aten::_scaled_dot")])
# --8<-- [end:kernel]
