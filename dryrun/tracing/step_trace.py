"""Traces a `Workload`: the model's own code on fake tensors, as kernels, parameters and memory."""

from __future__ import annotations

import contextlib
import json
import math
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from transformers import AttentionInterface
from transformers.initialization import no_init_weights

from ..models import models
from ..step import depth
from ..step.fusion import eager, fused, kept
from ..step.memory_trace import Trace
from ..step.storage_log import Unlike
from ..step.workload import Experts, Traced, Workload
from . import adapters, caches, joined, tracing
from .gpu_operators import GpuOperators
from .recorder import Recorder
from .tracker import Tracker

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from ..step.kernels import Operator

OLD_ATTENTION = "attention_of_2020"
FEW_LAYERS = (2, 4)  # from which a deep model follows


def config_of(model: str, length: int = 0) -> tuple[type[PreTrainedModel], Any]:
    """(transformers class, configuration) of a model by name, or by its config.json or sizes as text, with positions for a sequence."""
    if not model.startswith("{"):
        return models.configuration(model, length)
    values = json.loads(model)
    if "model_type" in values:
        return models.of_config(values, length)
    return models.from_sizes(values, length, joined.vision_transformer() if values.get("joined") else None)


@lru_cache(maxsize=64)
def parameters(model: str) -> int:
    """How many parameters the traced part of a model has, by name or by the text of a config.json."""
    model_class, config = config_of(model)
    with torch.device("meta"), no_init_weights():
        model = tracing.build_model(model_class, config, torch.bfloat16, "eager")
        model.tie_weights()  # type: ignore[attr-defined]  # what building without initial values leaves out
        return sum(p.numel() for p in model.parameters())  # type: ignore[attr-defined]


def run(workload: Workload) -> Traced:
    """Traces the workload. Where all layers are alike, a deep model follows from two shallow ones; where they are not, every layer runs."""
    model_class, config = config_of(workload.model, workload.length)
    number = layers_of(config)
    few = FEW_LAYERS
    cached = of_cache(model_class, config) if workload.kind == "decode" else {}
    if number > few[1] and alike(model_class, config):
        low, high = (_run(workload, model_class, with_layers(config, count), count) for count in few)
        with contextlib.suppress(Unlike):  # layers of the same weights and attention may yet differ in what they run
            return replace(depth.deep_step(low, high, few, number), **cached)
    return replace(_run(workload, model_class, config, number), **cached)


def of_cache(model_class: type[PreTrainedModel], config: Any) -> dict[str, Any]:
    """What of a `Traced` says what generation keeps of a sequence. 0 heads where a model has nothing of the kind."""
    kept = caches.kept(model_class, config, layers_of(config))
    return {
        "keys": kept.keys,
        "cache_heads": kept.heads if kept.keys else heads_of(config)[2],
        "shared_keys": kept.shared,
        "window_keys": kept.window_keys,
        "window_heads": kept.window_heads if kept.window_keys and kept.window_heads != kept.heads else 0,
        "window": kept.window,
        "state": kept.state,
        "state_heads": kept.state_heads if kept.state else 0,
        "unjudged": "sparse attention" if caches.sparse(config) else "latent attention (DeepSeek, Kimi)" if getattr(config, "kv_lora_rank", None) else "",
    }


_ALIKE: dict[tuple[type[PreTrainedModel], str], bool] = {}


def alike(model_class: type[PreTrainedModel], config: Any) -> bool:
    """Whether all layers of a model have the same weights and the same kind of attention. Kept by the text of its configuration."""
    text = config.to_json_string(use_diff=False)
    if (model_class, text) not in _ALIKE:
        with torch.device("meta"), no_init_weights():
            layers = tracing.layers_of(tracing.build_model(model_class, config, torch.bfloat16, "eager"))
        shapes = {tuple((name, tuple(p.shape)) for name, p in layer.named_parameters()) for layer in layers}
        _ALIKE[model_class, text] = len(shapes) == 1 and len(set(getattr(config, "layer_types", None) or [""])) == 1
    return _ALIKE[model_class, text]


def experts_of(config: Any, model: PreTrainedModel) -> Experts | None:
    """The `Experts` of a mixture, or None. Some configurations have numbers of experts for layers that the model lacks."""
    of_adapters = {parameter for module in model.modules() if isinstance(module, adapters.ParameterAdapter) for parameter in module.parameters()}
    named = ((name, p) for name, p in model.named_parameters() if p not in of_adapters)
    inside = sum(p.numel() for name, p in named if ".experts." in name)  # shared ones are called otherwise
    if not inside:
        return None
    number = next((found for name in models.EXPERTS if (found := getattr(config, name, None))), None)
    if number is None:
        raise ValueError(f"{type(config).__name__} does not say how many experts there are: none of {', '.join(models.EXPERTS)} is in it")
    chosen = next((found for name in models.CHOSEN if isinstance(found := getattr(config, name, None), int) and found > 0), None)
    if chosen is None:
        raise ValueError(f"{type(config).__name__} does not say how many experts compute each token: none of {', '.join(models.CHOSEN)} is in it")
    return Experts(inside, chosen, number)


def heads_of(config: Any) -> tuple[int, int, int]:
    """(attention heads, the fewest that a split must divide, those in the cache): latent attention keeps one vector for all heads."""
    heads = getattr(config, "num_attention_heads", None) or getattr(config, "n_head", None) or 1
    layers = getattr(config, "per_layer_config", None) or [config]  # where they differ in their heads
    of_keys = min(getattr(layer, "num_key_value_heads", None) or heads for layer in layers)
    return heads, of_keys, 1 if getattr(config, "kv_lora_rank", None) else of_keys


def positions(config: Any) -> int | None:
    """The longest sequence that a configuration allows, in tokens; None where it sets no limit."""
    names = ("max_position_embeddings", "n_positions")
    return next((value for name in names if (value := getattr(config, name, None))), None)


def layers_of(config: Any) -> int:
    return getattr(config, "num_hidden_layers", None) or config.n_layer


def with_layers(config: Any, number: int) -> Any:
    """The configuration of the same model with its first layers alone."""
    config = depth.with_layers(config, number)
    if len(getattr(config, "layer_types", None) or ()) > number:
        config.layer_types = config.layer_types[:number]
    return config


def _run(workload: Workload, model_class: type[PreTrainedModel], config: Any, number: int) -> Traced:
    return recorded(workload, model_class, config, number).traced


@dataclass
class Recorded:
    """A step that has run, and its operators in order."""

    traced: Traced
    operators: list[Operator] = field(default_factory=list)


def recorded(workload: Workload, model_class: type[PreTrainedModel], config: Any, number: int) -> Recorded:
    """Runs a step of a model of `number` layers."""
    attention = _attention(workload, model_class, caches.sparse(config))
    autocast = getattr(torch, workload.autocast) if workload.autocast else None
    result = Traced(layers=number)
    found = Recorded(result)
    with tracing.fake(), no_init_weights(), GpuOperators("auto"):
        model = tracing.build_model(model_class, config, getattr(torch, workload.weights), attention)
        model.tie_weights()  # what building without initial values leaves out
        if workload.kind == "train":
            _train(workload, model, autocast, found)
        else:
            _forward(workload, model, autocast, found)
    result.kernels = (fused if workload.compiled else eager)(found.operators)
    result.parameters = sum(p.numel() for p in model.parameters()) + sum(
        2 * b.numel() for n, b in model.named_buffers() if n.endswith("packed")
    )
    changed = [p for p in model.parameters() if p.requires_grad]
    result.trainable, result.tensors = sum(p.numel() for p in changed), len(changed)
    result.factored = sum(p.numel() // p.shape[-1] + p.numel() // p.shape[-2] if p.dim() > 1 else p.numel() for p in changed)
    in_layers = (p for layer in tracing.layers_of(model) for p in layer.parameters() if p.requires_grad and p.dim() == 2)
    result.matrices = dict(Counter(tuple(p.shape) for p in in_layers))
    result.width, result.vocabulary = config.hidden_size, getattr(config, "vocab_size", 0) or 0
    result.model_class, result.tied = model_class.__name__, bool(getattr(config, "tie_word_embeddings", False))
    if workload.compiled and workload.kind == "train":
        result.kept = kept(found.operators, workload.batch * workload.length * result.vocabulary)
    result.heads, result.split_heads, result.cache_heads = heads_of(config)
    result.experts = experts_of(config, model)
    result.keys, result.window_keys, result.window = caches.of_tokens(config, number)
    return found


def _attention(workload: Workload, model_class: type[PreTrainedModel], masked: bool = False) -> str:
    """The `attn_implementation` of transformers; some models have only the one that writes all scores. masked: an indexer chooses what each
    token reads, so the kernel is given a mask."""
    if workload.attention == "old":
        return OLD_ATTENTION
    if not model_class._supports_sdpa:
        return "eager"
    if masked and workload.attention != "eager":
        return "sdpa"
    return tracing.implementation("eager" if workload.attention == "eager" else "auto")


def _train(workload: Workload, model: PreTrainedModel, autocast: torch.dtype | None, found: Recorded) -> None:
    try:
        _step(workload, model, autocast, found)
    except AttributeError as error:
        if "FourBitLinear" in str(error):
            what = "this model's own code reads the weights of a layer, which are packed in 4 bits then"
            raise ValueError(f"QLoRA: {what}: take LoRA") from error
        raise


def _step(workload: Workload, model: PreTrainedModel, autocast: torch.dtype | None, found: Recorded) -> None:
    result = found.traced
    model.train()
    if workload.rank:
        # Without autocast peft still keeps the adapters in fp32; frameworks that train in pure bf16 do not.
        adapters.apply(model, workload.rank, workload.targets, four_bit=workload.four_bit)
    if workload.checkpointing:
        tracing.checkpoint_layers(model, workload.checkpointing)
    optimizer = tracing.OPTIMIZERS["adamw"]([p for p in model.parameters() if p.requires_grad])
    tracing.create_state(model, optimizer)
    batch = inputs(workload, model)
    if workload.loss == "sum":
        batch.pop("labels", None)
    recorder = Recorder()
    result.memory = Trace(parameters=sum(p.numel() for p in model.parameters()))
    with Tracker(model, optimizer, batch) as tracker:
        tracing.end_part_in_mid_backward(model, tracker)
        with recorder:
            with torch.autocast("cpu", dtype=autocast, enabled=autocast is not None):
                out = model(**batch)
                loss = out.logits.sum() if workload.loss == "sum" else out.loss
            del out
            tracker.part()
            loss.backward()
            del loss
            tracker.part()
        optimizer.step()
        optimizer.zero_grad()
        tracker.part()
    result.memory.take(tracker)
    result.memory.storages = tracker.storages
    found.operators = recorder.operators


def _forward(workload: Workload, model: PreTrainedModel, autocast: torch.dtype | None, found: Recorded) -> None:
    model.eval()
    if workload.four_bit:
        adapters.apply(model, workload.rank, workload.targets, four_bit=True, experts=False)  # of a reference, whose adapters are off
    batch = inputs(workload, model)
    batch.pop("labels", None)
    for name in ("start_positions", "end_positions"):
        batch.pop(name, None)
    recorder = Recorder()
    with torch.no_grad(), recorder, torch.autocast("cpu", dtype=autocast, enabled=autocast is not None):
        model(**batch)
    found.operators = recorder.operators
    weights = {id(p): p.numel() for p in model.parameters() if p.dim() == 2}
    embedding = model.get_input_embeddings()
    tied = getattr(model.config, "tie_word_embeddings", False)
    unread = embedding.weight.numel() if isinstance(embedding, nn.Embedding) and not tied else 0
    found.traced.weight_bytes = sum(weights.values()) - unread


def inputs(workload: Workload, model: PreTrainedModel) -> dict[str, torch.Tensor]:
    """Fake inputs of the kind that the model takes."""
    dtype = next(model.parameters()).dtype
    length = 1 if workload.kind == "decode" else workload.length
    if hasattr(model.config, "image_size"):
        side = model.config.image_size
        batch = {"pixel_values": torch.zeros(workload.batch, 3, side, side, dtype=dtype)}
        if type(model).__name__.endswith("Classification"):
            batch["labels"] = torch.zeros(workload.batch, dtype=torch.long)
        return batch
    ids = torch.zeros(workload.batch, length, dtype=torch.long)
    if type(model).__name__.endswith("QuestionAnswering"):
        ends = torch.zeros(workload.batch, dtype=torch.long)
        return {"input_ids": ids, "start_positions": ends, "end_positions": ends}
    if not type(model).__name__.endswith(("ForCausalLM", "ForMaskedLM", "LMHeadModel", "Classification")):
        return {"input_ids": ids}
    return tracing.language_batch(model, workload.batch, length)


def _old_attention(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None = None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **kwargs: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention as written until 2023: divide, add the mask, softmax and dropout are kernels of their own."""
    scores = torch.matmul(query, key.transpose(-1, -2))
    scores = scores / math.sqrt(query.shape[-1])
    if "bert" in type(module).__module__:
        scores = scores + torch.zeros(query.shape[0], 1, 1, key.shape[2], dtype=query.dtype)
    weights = nn.functional.softmax(scores, dim=-1)
    weights = nn.functional.dropout(weights, p=dropout, training=module.training)
    out = torch.matmul(weights, value)
    return out.transpose(1, 2).contiguous(), weights


AttentionInterface.register(OLD_ATTENTION, _old_attention)
