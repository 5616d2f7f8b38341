"""What a model keeps of a sequence while it generates: keys and values of tokens, and states of one size."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch
from transformers.initialization import no_init_weights

from . import tracing
from .gpu_operators import GpuOperators

if TYPE_CHECKING:
    from transformers import PreTrainedModel

FEW_TOKENS = 16
STATES = ("conv_states", "recurrent_states")  # of a layer of transformers' cache
WINDOWED = ("sliding_attention", "chunked_attention")
WHOLE = ("full_attention", "attention", "hybrid")


def of_tokens(config: Any, layers: int) -> tuple[int, int, int]:
    """(bytes for each token in layers that keep all tokens, in layers that keep a window, the window) of 16-bit keys and values.

    Layers of state-space and linear attention keep a state of one size: see `state`.
    """
    if not getattr(config, "num_attention_heads", None):
        return 0, 0, 0
    kinds = getattr(config, "layer_types", None) or getattr(config, "layers_block_type", None)
    window = getattr(config, "sliding_window", None) or getattr(config, "attention_chunk_size", None) or 0
    kinds = list(kinds or [WINDOWED[0] if window and getattr(config, "use_sliding_window", True) else WHOLE[0]] * layers)
    kinds = kinds[: layers - (getattr(config, "num_kv_shared_layers", None) or 0)]
    of_layer = getattr(config, "per_layer_config", None) or [config] * layers  # where layers differ in their heads
    sizes = [(kind, _keys(of_layer[number])) for number, kind in enumerate(kinds)]
    whole, windowed = (sum(size for kind, size in sizes if kind in kept) for kept in (WHOLE, WINDOWED))
    return whole, windowed, window


def _keys(layer: Any) -> int:
    """Bytes of one token in one layer. Latent attention keeps one compressed vector and the part with positions."""
    if latent := getattr(layer, "kv_lora_rank", None):
        return 2 * (latent + layer.qk_rope_head_dim)
    heads = layer.num_attention_heads
    head = getattr(layer, "head_dim", None) or layer.hidden_size // heads
    return 2 * 2 * (getattr(layer, "num_key_value_heads", None) or heads) * head


def state(model_class: type[PreTrainedModel], config: Any) -> int:
    """Bytes that linear-attention and state-space layers keep of one sequence, however long it is: read off the cache that the
    model's own code makes of a few tokens. 0 where all layers keep keys and values alone."""
    kinds = getattr(config, "layer_types", None) or getattr(config, "layers_block_type", None) or ()
    if getattr(config, "num_attention_heads", None) and set(kinds) <= {*WINDOWED, *WHOLE[:2]}:
        return 0
    config = copy.deepcopy(config)
    config.use_cache = True
    with tracing.fake(), no_init_weights(), GpuOperators("auto"), torch.no_grad():
        model = model_class._from_config(config, dtype=torch.bfloat16, attn_implementation="eager").eval()
        made = model(input_ids=torch.zeros(1, FEW_TOKENS, dtype=torch.long), use_cache=True)
        cache = made.get("past_key_values") or made.get("cache_params")
        layers = [vars(layer).get(name) or {} for layer in getattr(cache, "layers", ()) for name in STATES]
        return sum(kept.nbytes for states in layers for kept in states.values() if kept is not None)
