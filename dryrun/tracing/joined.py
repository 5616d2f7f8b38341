"""A vision transformer as timm writes it, whose measured rows are predicted."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel, ViTForImageClassification


@lru_cache(maxsize=1)
def vision_transformer() -> type[PreTrainedModel]:
    """The ViT of timm: one product makes queries, keys and values, so their input is read and cast once."""

    class Joined(nn.Linear):
        def forward(self, hidden: torch.Tensor) -> torch.Tensor:
            self.made = list(super().forward(hidden).chunk(3, dim=-1))
            return self.made.pop(0)

    class Part(nn.Module):
        def __init__(self, joined: Joined) -> None:
            super().__init__()
            self.joined = [joined]  # in a list, so that its parameters are not counted again

        def forward(self, hidden: torch.Tensor) -> torch.Tensor:
            return self.joined[0].made.pop(0)

    class JoinedViTForImageClassification(ViTForImageClassification):
        def __init__(self, config: Any) -> None:
            super().__init__(config)
            for layer in self.vit.layers:
                attention = layer.attention
                attention.q_proj = Joined(config.hidden_size, 3 * config.hidden_size, bias=config.qkv_bias)
                attention.k_proj = Part(attention.q_proj)
                attention.v_proj = Part(attention.q_proj)

    return JoinedViTForImageClassification
