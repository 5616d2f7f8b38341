"""What a CUDA device would run, on tensors that say they are on the CPU.

Fake tensors have no device behind them, so PyTorch would choose the CPU's operators. Three choices differ on a GPU and
change memory or FLOPs: the attention kernel, dropout's mask, and which operators autocast keeps in fp32.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch.autograd.graph import _engine_run_backward  # private: see GpuOperators._backward
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map_only
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward

aten = torch.ops.aten

# On real tensors transformers looks at the values of the mask, and drops a mask without padding so that PyTorch can
# choose the flash kernel. Fake tensors have no values. transformers makes no mask for an attention that it does not know.
UNMASKED_SDPA = "sdpa_without_mask"
AttentionInterface.register(UNMASKED_SDPA, sdpa_attention_forward)

KERNELS = ("auto", "flash", "efficient")
FLASH_HEAD_SIZE = 256  # the largest that the flash kernel takes

# What CUDA's autocast runs in fp32: the names of ATen/autocast_mode.h, and what Python calls them otherwise. The CPU's
# autocast leaves most of them in 16 bits.
# fmt: off
FP32_UNDER_CUDA_AUTOCAST = {
    "acos", "asin", "cosh", "erfinv", "exp", "expm1", "log", "log10", "log2", "log1p", "reciprocal", "rsqrt", "sinh", "tan",
    "pow", "__pow__", "__rpow__", "softplus", "layer_norm", "native_layer_norm", "rms_norm", "group_norm", "norm",
    "frobenius_norm", "nuclear_norm", "linalg_vector_norm", "linalg_matrix_norm", "vector_norm", "matrix_norm", "renorm",
    "cosine_similarity", "dist", "pdist", "cdist", "cross_entropy", "nll_loss", "nll_loss2d", "poisson_nll_loss", "mse_loss",
    "l1_loss", "smooth_l1_loss", "huber_loss", "kl_div", "hinge_embedding_loss", "cosine_embedding_loss", "margin_ranking_loss",
    "multilabel_margin_loss", "soft_margin_loss", "triplet_margin_loss", "multi_margin_loss", "binary_cross_entropy_with_logits",
    "softmax", "log_softmax", "sum", "prod", "cumsum", "cumprod", "logsumexp", "interpolate",
}
# fmt: on


class GpuOperators(TorchFunctionMode):
    """Calls, on tensors labeled CPU, the operators that a CUDA device would run.

    `attention`: "auto" chooses as CUDA does (flash for 16 bits without a mask and heads of one size up to 256, else the
    memory-efficient kernel, or math for grouped heads); "flash" and "efficient" force that kernel.
    """

    def __init__(self, attention: str = "auto") -> None:
        super().__init__()
        if attention not in KERNELS:
            raise ValueError(f"attention={attention!r}: choose auto, flash or efficient")
        self.attention = attention

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
        kwargs = kwargs or {}
        if func is F.scaled_dot_product_attention:
            return self._attention(*args, **kwargs)
        if func is F.dropout:
            return _fused_dropout(*args, **kwargs)
        if func is F.multi_head_attention_forward:  # it calls its kernel from C++, where no mode is asked
            raise NotImplementedError(
                "nn.MultiheadAttention chooses its kernels out of sight, and they would be the CPU's: trace a model that "
                "calls scaled_dot_product_attention"
            )
        if func is torch.Tensor.backward or func is torch.autograd.backward:
            return self._backward(*args, **kwargs)
        if getattr(func, "__name__", "") in FP32_UNDER_CUDA_AUTOCAST and torch.is_autocast_enabled("cpu"):
            args, kwargs = tree_map_only(torch.Tensor, _to_fp32, (args, kwargs))
        return func(*args, **kwargs)

    def _backward(
        self,
        tensors: Any,
        gradient: Any = None,
        *,
        grad_tensors: Any = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        inputs: Any = None,
    ) -> None:
        """Runs the backward pass with this mode on: checkpointing recomputes the forward pass inside it.

        A mode is off inside its own handler. Both public functions, called with it on, would come back to this handler.
        """
        tensors = tree_leaves(tensors)
        gradients = tree_leaves(gradient if grad_tensors is None else grad_tensors)
        gradients = gradients if len(gradients) == len(tensors) else [None] * len(tensors)
        gradients = [torch.ones_like(t) if g is None else g for t, g in zip(tensors, gradients, strict=True)]
        retain_graph = create_graph if retain_graph is None else retain_graph
        leaves = () if inputs is None else tuple(tree_leaves(inputs))
        with self:
            _engine_run_backward(
                tuple(tensors),
                tuple(gradients),
                retain_graph,
                create_graph,
                leaves,
                allow_unreachable=True,
                accumulate_grad=True,
            )

    def _attention(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_mask: torch.Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> torch.Tensor:
        if torch.is_autocast_enabled("cpu"):
            dtype = torch.get_autocast_dtype("cpu")
            query, key, value = query.to(dtype), key.to(dtype), value.to(dtype)
        kernel = self._kernel(query, key, value, attn_mask, enable_gqa)
        if kernel == "math":
            return aten._scaled_dot_product_attention_math(
                query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=True
            )[0]
        if kernel == "flash":
            if attn_mask is not None:
                raise ValueError("the flash kernel takes no attention mask: use attention='efficient'")
            return aten._scaled_dot_product_flash_attention(
                query, key, value, dropout_p, is_causal, False, scale=scale
            )[0]
        if enable_gqa:  # of the fused kernels only flash shares key and value heads
            groups = query.size(1) // key.size(1)
            key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
        if attn_mask is not None:
            attn_mask = _additive(attn_mask, query).expand(*query.shape[:3], key.size(2))
        return aten._scaled_dot_product_efficient_attention(
            query, key, value, attn_mask, True, dropout_p, is_causal, scale=scale
        )[0]

    def _kernel(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, grouped: bool) -> str:
        """What CUDA chooses. torch 2.13: "GQA works only for Flash_attention and math kernel on CUDA tensor"."""
        if self.attention != "auto":
            return self.attention
        size = query.size(-1)
        half = query.dtype in (torch.float16, torch.bfloat16)
        if half and mask is None and size <= FLASH_HEAD_SIZE and size == key.size(-1) == value.size(-1):
            return "flash"
        return "math" if grouped else "efficient"


def _additive(mask: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
    """The mask as the memory-efficient kernel takes it: numbers to add to the scores, in the dtype of the query."""
    if mask.dtype == torch.bool:
        mask = torch.zeros_like(mask, dtype=query.dtype).masked_fill(~mask, -torch.inf)
    return mask.to(query.dtype)


def _fused_dropout(input: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> torch.Tensor:
    """CUDA's dropout keeps a mask of one byte per element; the CPU's keeps one as wide as the activation."""
    return torch.native_dropout(input, p, True)[0] if training and p > 0 else input


def _to_fp32(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor
