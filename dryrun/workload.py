"""What runs: a model, a batch, a precision, a method; and its trace, kept in the user's cache folder.

A `Workload` says all that its kernels depend on, so its text is the key of the cache. The key also holds the code of the
modules that trace: a change of theirs makes a new trace.
"""

import ast
import contextlib
import copy
import hashlib
import json
import math
import os
import pickle
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

import torch
import transformers
from torch import nn
from transformers import AttentionInterface
from transformers.initialization import no_init_weights

from . import adapters, caches, depth, models, tracing
from .gpu_operators import GpuOperators
from .kernels import Kernels, Recorder, deep, eager, fused
from .tracker import Tracker

TRACING = ("kernels.py", "workload.py", "adapters.py", "tracing.py", "tracker.py", "gpu_operators.py", "depth.py", "models.py",
           "config_file.py", "caches.py")  # fmt: skip
OLD_ATTENTION = "attention_of_2020"
FEW_LAYERS = (2, 4)  # of which the line to a deep model is drawn


@dataclass(frozen=True)
class Workload:
    """One step on one device.

    model: a name of `models`, the sizes of a published row as JSON, or the text of a config.json.
    kind: "train" (forward and backward pass; the optimizer's time is computed apart), "forward" or "decode" (one token).
    weights: dtype of the weights; autocast: dtype of the products, or "". checkpointing: every n-th layer, or 0.
    attention: "fused", "eager", or "old" for what was written until 2023: each operator apart.
    rank and targets: of LoRA, 0 for full fine-tuning; four_bit: QLoRA.
    """

    model: str
    batch: int
    length: int
    kind: str = "train"
    weights: str = "bfloat16"
    autocast: str = ""
    checkpointing: int = 0
    attention: str = "fused"
    compiled: bool = False
    rank: int = 0
    targets: str = ""
    four_bit: bool = False
    loss: str = "model"  # or "sum": of the logits, as some benchmarks take
    fused_loss: bool = False  # the logits are not kept: see `timing.with_loss_kernels`


@dataclass
class Traced:
    """Kernels, parameters and memory of a step on one device."""

    kernels: Kernels = field(default_factory=Kernels)
    parameters: int = 0
    trainable: int = 0
    tensors: int = 0  # that the optimizer changes
    layers: int = 0
    width: int = 0
    vocabulary: int = 0
    keys: int = 0  # bytes of the KV cache of one token, in 16 bits, in layers that keep all tokens
    window_keys: int = 0  # and in layers that keep the last `window` tokens alone
    window: int = 0
    state: int = 0  # bytes that layers of linear attention and state-space layers keep of one sequence, however long
    weight_bytes: int = 0  # of the weights that products read, at one byte for each
    memory: tracing.Trace = None

    def cache(self, context):
        """Bytes that one sequence of `context` tokens keeps: keys and values in 16 bits, and states of one size."""
        return self.keys * context + self.window_keys * min(context, self.window) + self.state


def config_of(workload):
    """(transformers class, configuration) that the workload's model names."""
    if not workload.model.startswith("{"):
        return models.configuration(workload.model, workload.length)
    values = json.loads(workload.model)
    return models.of_config(values, workload.length) if "model_type" in values else models.from_sizes(values, workload.length)


@lru_cache(maxsize=64)
def parameters(model):
    """How many parameters the traced part of a model has, by name or by the text of a config.json."""
    model_class, config = config_of(Workload(model, 1, 0))
    with torch.device("meta"), no_init_weights():
        model = tracing.build_model(model_class, config, torch.bfloat16, "eager")
        model.tie_weights()  # what building without initial values leaves out
        return sum(p.numel() for p in model.parameters())


def traced(workload):
    """The workload's trace, from the cache or made now."""
    path = cache_folder() / f"{_key(workload)}.pickle"
    if path.is_file():
        with contextlib.suppress(Exception), path.open("rb") as file:  # a damaged file is traced again
            return pickle.load(file)
    result = run(workload)
    with contextlib.suppress(OSError):  # a folder that cannot be written costs a trace the next time, and no answer
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(f".{os.getpid()}")
        partial.write_bytes(pickle.dumps(result))
        partial.replace(path)
    return result


def cache_folder():
    base = os.environ.get("DRYRUN_CACHE") or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "dryrun" / _code()


def _key(workload):
    text = repr(workload)
    if not workload.model.startswith("{"):
        text += json.dumps(models.values_of(workload.model), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


@lru_cache(maxsize=1)
def _code():
    here = Path(__file__).parent
    text = "".join(
        ast.dump(ast.parse((here / name).read_text(encoding="utf-8"))) for name in TRACING
    )  # without comments
    return hashlib.sha256(f"{torch.__version__} {transformers.__version__} {text}".encode()).hexdigest()[:12]


def run(workload):
    """Traces the workload. Where all layers are alike, a deep model is the line through two shallow ones; where they are not, or
    where the peak would move as the model grows, every layer runs."""
    model_class, config = config_of(workload)
    number = layers_of(config)
    few = FEW_LAYERS
    state = caches.state(model_class, config) if workload.kind == "decode" else 0
    if number > few[1] and _alike(model_class, config.to_json_string(use_diff=False), config):
        low, high = (_run(workload, model_class, _with_layers(config, count), count) for count in few)
        if low.memory is None or depth.peaks_stay(low.memory, high.memory, few, number):
            return replace(_deep(low, high, few, number), state=state)
    return replace(_run(workload, model_class, config, number), state=state)


def _deep(low, high, few, number):
    result = copy.copy(high)
    share = (number - few[0]) / (few[1] - few[0])
    result.kernels = deep(low.kernels, high.kernels, few, number)
    for name in ("parameters", "trainable", "tensors", "keys", "window_keys", "weight_bytes"):
        first, last = getattr(low, name), getattr(high, name)
        setattr(result, name, round(first + (last - first) * share))
    result.layers = number
    if high.memory is not None:
        result.memory = depth.line_of([low.memory, high.memory], few, number, tracing.Trace())
    return result


_ALIKE = {}


def _alike(model_class, text, config):
    """Whether all layers of a model have the same weights and the same kind of attention. Kept by the text of its configuration."""
    if (model_class, text) not in _ALIKE:
        with torch.device("meta"), no_init_weights():
            layers = tracing.layers_of(tracing.build_model(model_class, config, torch.bfloat16, "eager"))
        shapes = {tuple((name, tuple(p.shape)) for name, p in layer.named_parameters()) for layer in layers}
        _ALIKE[model_class, text] = len(shapes) == 1 and len(set(getattr(config, "layer_types", None) or [""])) == 1
    return _ALIKE[model_class, text]


def layers_of(config):
    return getattr(config, "num_hidden_layers", None) or config.n_layer


def _with_layers(config, number):
    config = depth.with_layers(config, number)
    if len(getattr(config, "layer_types", None) or ()) > number:
        config.layer_types = config.layer_types[:number]
    return config


def _run(workload, model_class, config, number):
    attention = _attention(workload, model_class)
    autocast = getattr(torch, workload.autocast) if workload.autocast else None
    result = Traced(layers=number)
    with tracing.fake(), no_init_weights(), GpuOperators("auto"):
        model = tracing.build_model(model_class, config, getattr(torch, workload.weights), attention)
        model.tie_weights()  # what building without initial values leaves out
        if workload.kind == "train":
            _train(workload, model, autocast, result)
        else:
            _forward(workload, model, autocast, result)
    result.parameters = sum(p.numel() for p in model.parameters()) + sum(
        2 * b.numel() for n, b in model.named_buffers() if n.endswith("packed")
    )
    changed = [p for p in model.parameters() if p.requires_grad]
    result.trainable, result.tensors = sum(p.numel() for p in changed), len(changed)
    result.width, result.vocabulary = config.hidden_size, getattr(config, "vocab_size", 0) or 0
    result.keys, result.window_keys, result.window = caches.of_tokens(config, number)
    return result


def _attention(workload, model_class):
    """The `attn_implementation` of transformers; some models have only the one that writes all scores."""
    if workload.attention == "old":
        return OLD_ATTENTION
    if not model_class._supports_sdpa:
        return "eager"
    return tracing.implementation("eager" if workload.attention == "eager" else "auto")


def _train(workload, model, autocast, result):
    try:
        _step(workload, model, autocast, result)
    except AttributeError as error:
        if "FourBitLinear" in str(error):
            what = "this model's own code reads the weights of a layer, which are packed in 4 bits then"
            raise ValueError(f"QLoRA: {what}: take LoRA") from error
        raise


def _step(workload, model, autocast, result):
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
    result.memory = tracing.Trace(parameters=sum(p.numel() for p in model.parameters()))
    with Tracker(model, optimizer, batch) as tracker:
        tracing.end_part_in_mid_backward(model, tracker)
        with recorder:
            with torch.autocast("cpu", dtype=autocast, enabled=autocast is not None):
                out = model(**batch)
                loss = out.logits.sum() if workload.loss == "sum" else out.loss
            del out
            result.memory.after_forward = tracker.snapshot()
            tracker.part()
            loss.backward()
            del loss
            tracker.part()
        optimizer.step()
        optimizer.zero_grad()
        tracker.part()
    result.memory.take(tracker)
    result.kernels = (fused if workload.compiled else eager)(recorder.operators)


def _forward(workload, model, autocast, result):
    model.eval()
    batch = inputs(workload, model)
    batch.pop("labels", None)
    for name in ("start_positions", "end_positions"):
        batch.pop(name, None)
    recorder = Recorder()
    with torch.no_grad(), recorder, torch.autocast("cpu", dtype=autocast, enabled=autocast is not None):
        model(**batch)
    result.kernels = (fused if workload.compiled else eager)(recorder.operators)
    weights = {id(p): p.numel() for p in model.parameters() if p.dim() == 2}
    embedding = model.get_input_embeddings()
    tied = getattr(model.config, "tie_word_embeddings", False)
    unread = embedding.weight.numel() if isinstance(embedding, nn.Embedding) and not tied else 0
    result.weight_bytes = sum(weights.values()) - unread


def inputs(workload, model):
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


def _old_attention(module, query, key, value, attention_mask=None, scaling=None, dropout=0.0, **kwargs):
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
