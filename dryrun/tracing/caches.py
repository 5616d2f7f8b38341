"""What a model keeps of a sequence while it generates: keys and values of tokens, and states of one size.

Every kind of layer that transformers has is known here or refused by name, because a kind that is silently taken for nothing makes a
cache hundreds of times too small. What a layer keeps is read off the cache that the model's own code fills on fake tensors.
"""

from __future__ import annotations

import contextlib
import copy
import difflib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from transformers.cache_utils import DummyLayer
from transformers.initialization import no_init_weights

from ..models.config_file import place, words
from . import tracing
from .gpu_operators import GpuOperators

if TYPE_CHECKING:
    from transformers import PreTrainedModel

FEW_TOKENS = 16
WINDOWED = ("sliding_attention", "chunked_attention")
WHOLE = ("full_attention", "attention", "hybrid")
# Every token's keys and values, and of each token one more key, by which an indexer chooses what is read
INDEXED = ("indexed_attention", "minimax_m3_sparse")
# A window, and of all tokens before it one entry for each few of them
COMPRESSED = ("compressed_sparse_attention", "heavily_compressed_attention")
STATES = ("linear_attention", "mamba", "conv", "recurrent")  # of one size, however long the sequence
NOTHING = ("moe", "mlp", "sparse", "dense")  # layers without attention, and kinds of feed-forward networks
KNOWN = (*WINDOWED, *WHOLE, *INDEXED, *COMPRESSED, *STATES, "hybrid_sliding", *NOTHING)
REFUSED = {
    "window_attention": "windows that do not overlap, as models of images have, keep nothing for the next token",
    "reference_sliding_attention": "it keeps all of the prompt and a window of the answer, and that is not counted yet",
}
GROWING = (*WHOLE, *INDEXED)  # kinds whose keys and values are those of all tokens
SLIDING = (*WINDOWED, *COMPRESSED, "hybrid_sliding")  # and of the last ones alone
WITH_STATE = (*STATES, "hybrid", "hybrid_sliding", *COMPRESSED)
HEADS_OF_STATES = ("mamba_num_heads", "mamba_n_heads", "n_mamba_heads", "linear_num_value_heads", "lin_num_value_heads", "num_heads")


@dataclass(frozen=True)
class Kept:
    """Bytes that one sequence keeps in 16 bits, with the heads that GPUs share out: where there are fewer, they repeat them."""

    keys: int = 0  # of each token, in layers that keep all
    heads: int = 1
    shared: int = 0  # of each token, for all heads together: every GPU has it whole
    window_keys: int = 0  # of each token of the window, in layers that keep only that
    window_heads: int = 1
    window: int = 0
    state: int = 0  # of one size
    state_heads: int = 1


@dataclass(frozen=True)
class _Layer:
    """What one layer holds after a number of tokens."""

    keys: int = 0  # bytes of keys and values
    tokens: int = 0  # that have them
    heads: int = 1
    rest: int = 0  # bytes of everything else
    borrows: bool = False  # it reads the keys and values of another layer


def kinds_of(config: Any, layers: int) -> list[str]:
    """The kind of each layer. ValueError where one is not known, or cannot be counted."""
    kinds = getattr(config, "layer_types", None) or getattr(config, "layers_block_type", None)
    plain = WINDOWED[0] if _window(config) and getattr(config, "use_sliding_window", True) else WHOLE[0]
    kinds = [str(kind) for kind in kinds or [plain] * layers]
    for kind in dict.fromkeys(kinds):
        check(kind)
    return kinds


def check(kind: str) -> None:
    """ValueError where what a layer of this kind keeps is not known."""
    if kind in KNOWN:
        return
    why = REFUSED.get(kind)
    if why is None:
        close = difflib.get_close_matches(kind, KNOWN, 1)
        why = f"this version of dryrun does not know what it keeps of a token{f' (the nearest that it knows: {close[0]!r})' if close else ''}"
    raise ValueError(f"layers of the type {kind!r}: {why}, so the memory for generation is not answered; `train` counts no cache and may be")


def sparse(config: Any) -> bool:
    """Whether some layers read only a part of what they keep."""
    return bool({*INDEXED, *COMPRESSED} & {*(getattr(config, "layer_types", None) or ())})


def of_tokens(config: Any, layers: int) -> tuple[int, int, int]:
    """(bytes for each token in layers that keep all tokens, in layers that keep a window, the window) of 16-bit keys and values, as the
    configuration says. What GPUs that split a sequence send each other; a cache is `kept`, which knows more kinds of layers.
    """
    if not getattr(config, "num_attention_heads", None):
        return 0, 0, 0
    kinds = getattr(config, "layer_types", None) or getattr(config, "layers_block_type", None)
    window = _window(config)
    kinds = list(kinds or [WINDOWED[0] if window and getattr(config, "use_sliding_window", True) else WHOLE[0]] * layers)
    kinds = kinds[: layers - (getattr(config, "num_kv_shared_layers", None) or 0)]
    of_layer = getattr(config, "per_layer_config", None) or [config] * layers  # where layers differ in their heads
    sizes = [(kind, _keys(of_layer[number])) for number, kind in enumerate(kinds)]
    windowed = sum(size for kind, size in sizes if kind in SLIDING)
    return sum(size for kind, size in sizes if kind not in (*SLIDING, *STATES, *NOTHING)), windowed, window


def _window(config: Any) -> int:
    return getattr(config, "sliding_window", None) or getattr(config, "attention_chunk_size", None) or 0


def _keys(layer: Any) -> int:
    """Bytes of one token in one layer. Latent attention keeps one compressed vector and the part with positions."""
    if latent := getattr(layer, "kv_lora_rank", None):
        return 2 * (latent + layer.qk_rope_head_dim)
    heads = layer.num_attention_heads
    head = getattr(layer, "head_dim", None) or layer.hidden_size // heads
    return 2 * 2 * (getattr(layer, "num_key_value_heads", None) or heads) * head


def kept(model_class: type[PreTrainedModel], config: Any, layers: int) -> Kept:
    """What all layers keep of one sequence: read off the cache that the model's own code makes of a few tokens, and of twice as many.
    ValueError where a layer is of a kind that is not known, or keeps what its kind does not."""
    kinds = kinds_of(config, layers)
    few = max([FEW_TOKENS, *(2 * rate for rate in (getattr(config, "compress_rates", None) or {}).values())])
    of_layer = _like(config, kinds)
    short, long = _filled(model_class, config, max(of_layer) + 1, few)
    found = [(kinds[number], short[like], long[like]) for number, like in enumerate(of_layer)]
    for kind, low, high in dict.fromkeys(found):
        _check_layer(model_class, kind, low, high, few)
    whole, windowed = ([(high.keys // high.tokens, high.heads) for kind, _, high in found if kind in of and high.tokens] for of in (GROWING, SLIDING))
    grown = [(high.rest - low.rest) // few for _, low, high in found]
    return Kept(
        keys=sum(size for size, _ in whole),
        heads=min((heads for _, heads in whole), default=1),
        shared=sum(grown),
        window_keys=sum(size for size, _ in windowed),
        window_heads=min((heads for _, heads in windowed), default=1),
        window=_window(config) if windowed else 0,
        state=sum(low.rest - few * each for (_, low, _), each in zip(found, grown, strict=True)),
        state_heads=_heads_of_states(config),
    )


def _heads_of_states(config: Any) -> int:
    """Heads of linear attention and state-space layers, which GPUs share out."""
    found = (getattr(config, name, None) for name in (*HEADS_OF_STATES, "num_attention_heads"))
    return next((heads for heads in found if isinstance(heads, int) and heads > 0), 1)


def _like(config: Any, kinds: list[str]) -> list[int]:
    """Of each layer the number of the first one that is like it: what a configuration says of each layer is the same of both. Where layers
    use the cache of others, each is its own."""
    if getattr(config, "num_kv_shared_layers", None) or getattr(config, "kv_sharing_modes", None):
        return list(range(len(kinds)))
    lists = [value for value in config.to_dict().values() if isinstance(value, (list, tuple)) and len(value) == len(kinds)]
    each = getattr(config, "per_layer_config", None) or [config] * len(kinds)
    differ = len({id(one) for one in each}) > 1
    first: dict[str, int] = {}
    told = (repr((kind, [one[number] for one in lists], _keys_said(each[number]) if differ else ())) for number, kind in enumerate(kinds))
    return [first.setdefault(text, number) for number, text in enumerate(told)]


def _keys_said(layer: Any) -> tuple[Any, ...]:
    return tuple(getattr(layer, name, None) for name in ("num_key_value_heads", "head_dim", "v_head_dim", "sliding_window"))


def _filled(model_class: type[PreTrainedModel], config: Any, layers: int, few: int) -> tuple[list[_Layer], list[_Layer]]:
    """What each of the first layers holds after a few tokens, and after twice as many."""
    try:
        with tracing.fake(), no_init_weights(), GpuOperators("auto"), torch.no_grad():
            model = model_class._from_config(_first_layers(config, layers), dtype=torch.bfloat16, attn_implementation="eager").eval()
            caches = [_cache(model, length) for length in (few, 2 * few)]
    except Exception as error:  # whatever a model's own code raises
        what = f"{model_class.__name__} of transformers does not fill a cache on tensors without data"
        raise ValueError(f"{what}, so the memory for generation is not answered ({place(error)}: {words(error)})") from error
    return caches[0], caches[1]


def _first_layers(config: Any, layers: int) -> Any:
    """The configuration of the same model with its first layers alone, and with a cache."""
    config = copy.deepcopy(config)
    config.use_cache = True
    number = getattr(config, "num_hidden_layers", None)
    if not number or layers >= number:
        return config
    for name, value in config.to_dict().items():
        if isinstance(value, list) and len(value) == number:
            with contextlib.suppress(AttributeError):  # it follows from others
                setattr(config, name, value[:layers])
    config.num_hidden_layers = layers
    return config


def _cache(model: PreTrainedModel, length: int) -> list[_Layer]:
    made = model(input_ids=torch.zeros(1, length, dtype=torch.long), use_cache=True)
    cache = made.get("past_key_values")
    cache = made.get("cache_params") if cache is None else cache
    layers = getattr(cache, "layers", None)
    if layers is None:
        raise ValueError(f"it keeps its state in a way of its own, {type(cache).__name__ if cache is not None else 'outside a cache'}")
    return [_held(layer) for layer in layers]


def _held(layer: Any) -> _Layer:
    if isinstance(layer, DummyLayer):
        return _Layer(borrows=True)
    keys, values = (getattr(layer, name, None) for name in ("keys", "values"))
    everything = {id(one): one.nbytes for one in _tensors(vars(layer).values())}
    of_keys = {id(one): one.nbytes for one in (keys, values) if isinstance(one, torch.Tensor) and one.numel()}
    rest = sum(everything.values()) - sum(of_keys.values())
    if not of_keys or not isinstance(keys, torch.Tensor):
        return _Layer(rest=rest)
    return _Layer(sum(of_keys.values()), keys.shape[-2], keys.shape[1], rest)


def _tensors(values: Iterable[Any]) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            if value.is_floating_point():  # the others count tokens
                yield value
        elif isinstance(value, dict):
            yield from _tensors(value.values())
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)


def _check_layer(model_class: type[PreTrainedModel], kind: str, low: _Layer, high: _Layer, few: int) -> None:
    """ValueError where a layer keeps what its kind does not."""
    grows, moves = high.tokens > low.tokens, high.rest > low.rest
    problem = ""
    if high.borrows:
        return
    if kind in GROWING and (low.tokens, high.tokens) not in ((few, 2 * few), (0, 0)):
        problem = f"keeps keys of {high.tokens} of {2 * few} tokens"
    elif kind in GROWING and not high.tokens:
        problem = "keeps no keys"
    elif kind not in GROWING and kind not in SLIDING and grows:
        problem = "keeps keys of all tokens"
    elif moves and kind not in (*INDEXED, *COMPRESSED):
        problem = f"keeps {(high.rest - low.rest) / few:.0f} bytes of each token besides keys and values"
    elif low.rest and kind not in WITH_STATE and not moves:
        problem = f"keeps {low.rest} bytes besides keys and values"
    elif (high.keys and high.keys % high.tokens) or (high.rest - low.rest) % few:
        problem = "keeps no whole number of bytes of each token"
    if problem:
        raise ValueError(f"{model_class.__name__}: a layer of the type {kind!r} {problem}, which its type does not: the memory for generation is not answered")
