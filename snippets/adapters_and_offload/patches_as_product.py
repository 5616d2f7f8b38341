"""The first layer of a vision tower as a matrix product: the same output as its 3-D convolution, by another kernel."""
import torch
from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

rotary = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [2, 3, 3]}
text = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2,
        "vocab_size": 500, "rope_parameters": rotary}
vision = {"depth": 2, "hidden_size": 32, "intermediate_size": 64, "num_heads": 2, "out_hidden_size": 32}
model = Qwen2_5_VLForConditionalGeneration(Qwen2_5_VLConfig(text_config=text, vision_config=vision))
embedding = model.model.visual.patch_embed
patches = torch.randn(16, embedding.proj.weight[0].numel())  # as the processor flattens them
before = embedding(patches)

# --8<-- [start:product]
convolution = model.model.visual.patch_embed.proj  # its stride is its kernel: each patch is used once
assert convolution.stride == convolution.kernel_size
convolution.forward = lambda x: torch.nn.functional.linear(x.flatten(1), convolution.weight.flatten(1), convolution.bias)
# --8<-- [end:product]

print(f"largest difference {(embedding(patches) - before).abs().max():.1e}")
