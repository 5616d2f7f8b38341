"""Peak memory by category and FLOPs of a training step, at full scale, without a GPU.

The real model code runs on *fake* tensors: they have a shape, a dtype and a storage size, and no data. `Tracker` sees every
operator, adds up the storages that are alive, and counts FLOPs. So a step of 8 billion parameters takes seconds and a few
hundred MiB. Its bytes are those of real tensors: `tests/dryrun/test_tracing.py` compares them on small models.

`GpuOperators` runs what a GPU would run: its attention kernels, its dropout, its autocast.

A GPU's allocator adds what is *not* in these figures: rounding to blocks, fragmentation, workspaces of cuBLAS and of
kernels, the CUDA context. 1 GiB = 2**30 bytes.
"""

from __future__ import annotations

import contextlib
import copy
import gc
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses import FakeTensorMode
from torch.utils._pytree import tree_leaves

from ..step import depth
from ..step.memory_trace import Trace
from ..tables.hardware import GiB as GiB
from .gpu_operators import UNMASKED_SDPA, GpuOperators
from .tracker import Tracker

if TYPE_CHECKING:
    from transformers import PreTrainedModel

OPTIMIZERS = {
    "adamw": lambda parameters: torch.optim.AdamW(parameters, fused=True),
    "adamw_foreach": lambda parameters: torch.optim.AdamW(parameters, foreach=True),
    "adamw_loop": lambda parameters: torch.optim.AdamW(parameters, foreach=False),
    "sgd": lambda parameters: torch.optim.SGD(parameters, foreach=False),
    "sgd_momentum": lambda parameters: torch.optim.SGD(parameters, momentum=0.9, foreach=False),
}


@contextlib.contextmanager
def fake() -> Iterator[None]:
    """Inside, every new tensor is fake: it has a size and no data. Models of any size are built in seconds.

    Python's garbage collector is off inside: it would free tensors in reference cycles at a random moment, and so move
    the peak. It also takes a fifth of the time.
    """
    collected = gc.isenabled()
    gc.disable()
    try:
        with FakeTensorMode(allow_non_fake_inputs=True):  # constants of a module that were made before
            yield
    finally:
        if collected:
            gc.enable()


def training_step(
    model_class: type[Any],
    config: Any,
    batch_size: int,
    sequence_length: int,
    *,
    dtype: torch.dtype = torch.float32,
    autocast: torch.dtype | None = None,
    activation_checkpointing: bool | int = False,
    optimizer: str | Callable[[Any], torch.optim.Optimizer] = "adamw",
    accumulation: int = 1,
    attention: str = "auto",
    timeline: bool = False,
) -> Trace:
    """Traces one training step: `accumulation` x (forward, backward), then the optimizer's step. Returns a `Trace`.

    model_class: a transformers model class, or an Auto class; config: its configuration.
    batch_size: sequences per forward pass (per micro-batch); sequence_length: tokens per sequence, without padding.
    dtype: of the weights, and so of gradients and optimizer state.
    autocast: the 16-bit dtype of mixed precision, or None; weights stay in `dtype`.
    activation_checkpointing: True for every layer, or n for every n-th.
    optimizer: a name in `OPTIMIZERS`, or a function from parameters to an optimizer. Its state exists before the step,
    as it does from the second step of a real run on.
    attention: "auto", "flash" or "efficient" for PyTorch's fused kernels, "eager" for the one that writes all scores.
    timeline: whether to keep what is alive every 20 operators.

    Micro-batches from the third on repeat the second, so they are not run: they add the second one's FLOPs.
    """
    make_optimizer = optimizer_function(optimizer)
    started = time.perf_counter()
    with fake(), GpuOperators(kernels(attention)):
        model = build_model(model_class, config, dtype, implementation(attention)).train()
        if activation_checkpointing:
            checkpoint_layers(model, int(activation_checkpointing))
        optimizer = make_optimizer([p for p in model.parameters() if p.requires_grad])
        create_state(model, optimizer)
        batch = language_batch(model, batch_size, sequence_length)
        result = Trace(parameters=sum(p.numel() for p in model.parameters()))
        with Tracker(model, optimizer, batch, timeline) as tracker:
            end_part_in_mid_backward(model, tracker)
            for _ in range(min(accumulation, 2)):
                before = tracker.flops.copy()
                with torch.autocast("cpu", dtype=autocast, enabled=autocast is not None):
                    loss = model(**batch).loss
                result.after_forward = tracker.snapshot()
                tracker.part()
                (loss / accumulation).backward()
                del loss
                tracker.part()
            for kind, flops in (tracker.flops - before).items():
                tracker.flops[kind] += max(0, accumulation - 2) * flops
            optimizer.step()  # type: ignore[union-attr]
            optimizer.zero_grad()  # type: ignore[union-attr]
            tracker.part()
    result.take(tracker)
    result.seconds = time.perf_counter() - started
    return result


def dtype_of(name: str) -> torch.dtype:
    """torch's dtype by the name that a `Workload` has for it."""
    return getattr(torch, name)


def many_layers(model_class: type[Any], config: Any, *arguments: Any, layers: Sequence[int] = (2, 4), **options: Any) -> Trace:
    """The `Trace` of `training_step` for a deep model from those of shallow ones (`depth.line_of`): to the byte, in a fraction of the time,
    for any depth. It has no timeline. Layers must be alike, but for those that alternate: see `depth.line_of`."""
    steps = [training_step(model_class, depth.with_layers(config, number), *arguments, **options) for number in layers]
    return depth.line_of(steps, layers, config.num_hidden_layers, Trace())


def optimizer_function(optimizer: str | Callable[[Any], torch.optim.Optimizer]) -> Callable[[Any], torch.optim.Optimizer]:
    """The function from parameters to an optimizer, given that function or a name in `OPTIMIZERS`."""
    if not isinstance(optimizer, str):
        return optimizer
    if optimizer not in OPTIMIZERS:
        raise ValueError(f"optimizer={optimizer!r}: choose one of {', '.join(OPTIMIZERS)}, or pass a function")
    return OPTIMIZERS[optimizer]


def kernels(attention: str) -> str:
    """What `GpuOperators` shall choose from: the eager attention calls no fused kernel."""
    return "auto" if attention == "eager" else attention


def implementation(attention: str) -> str:
    """The `attn_implementation` of transformers."""
    return "eager" if attention == "eager" else UNMASKED_SDPA


def build_model(model_class: type[Any], config: Any, dtype: torch.dtype, attention: str) -> PreTrainedModel:
    """A model of this transformers class with random weights, or with none inside `fake()`. It keeps no KV cache."""
    config = copy.deepcopy(config)
    config.use_cache = False  # training never reads it
    build = getattr(model_class, "from_config", None) or model_class._from_config  # Auto classes have the public one
    return build(config, dtype=dtype, attn_implementation=attention)


def language_batch(model: PreTrainedModel, batch_size: int, sequence_length: int) -> dict[str, torch.Tensor]:
    """Token ids (batch_size, sequence_length) and labels: the ids for a language model, otherwise one class per row."""
    ids = torch.zeros(batch_size, sequence_length, dtype=torch.long)
    predicts_tokens = type(model).__name__.endswith(("ForCausalLM", "ForMaskedLM", "LMHeadModel"))
    return {"input_ids": ids, "labels": ids if predicts_tokens else torch.zeros(batch_size, dtype=torch.long)}


def checkpoint_layers(model: PreTrainedModel, every_n_layers: int) -> None:
    """Switches activation checkpointing on in every n-th layer."""
    model.activation_checkpointing_enable(every_n_layers=every_n_layers)


def create_state(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Runs one step on empty gradients, so that the optimizer's state exists. It changes the weights."""
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.grad = torch.empty_like(parameter)
    optimizer.step()
    optimizer.zero_grad()


def layers_of(model: torch.nn.Module) -> torch.nn.ModuleList | list[torch.nn.Module]:
    """The model's longest list of modules: its layers."""
    lists = [module for module in model.modules() if isinstance(module, torch.nn.ModuleList)]
    return max(lists, key=len, default=[])


def end_part_in_mid_backward(model: torch.nn.Module, tracker: Tracker) -> None:
    """Ends a part of the step in the middle of the backward pass.

    Memory rises or falls steadily in each half, so each half has its peak at one of its ends (see `depth`).
    """
    layers = layers_of(model)

    def watch(layer: torch.nn.Module, arguments: Any, out: Any) -> None:
        out = tree_leaves(out)[0]
        if out.requires_grad:
            out.register_hook(lambda gradient: tracker.part())

    if len(layers):
        layers[max(len(layers) // 2 - 1, 0)].register_forward_hook(watch)
