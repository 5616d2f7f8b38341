"""Peak memory by category and FLOPs of a training step, at full scale, without a GPU.

The real model code runs on *fake* tensors: they have a shape, a dtype and a storage size, and no data. `Tracker` sees every
operator, adds up the storages that are alive, and counts FLOPs. So a step of 8 billion parameters takes seconds and a few
hundred MiB. Its bytes are those of real tensors: `tests/dryrun/test_tracing.py` compares them on small models.

`GpuOperators` runs what a GPU would run: its attention kernels, its dropout, its autocast.

A GPU's allocator adds what is *not* in these figures: rounding to blocks, fragmentation, workspaces of cuBLAS and of
kernels, the CUDA context. 1 GiB = 2**30 bytes.
"""

import contextlib
import copy
import gc
import time
from dataclasses import dataclass, field

import torch
from torch._subclasses import FakeTensorMode
from torch.utils._pytree import tree_leaves

from .gpu_operators import UNMASKED_SDPA, GpuOperators
from .tracker import Tracker

GiB = 2**30

OPTIMIZERS = {
    "adamw": lambda parameters: torch.optim.AdamW(parameters, fused=True),
    "adamw_foreach": lambda parameters: torch.optim.AdamW(parameters, foreach=True),
    "adamw_loop": lambda parameters: torch.optim.AdamW(parameters, foreach=False),
    "sgd": lambda parameters: torch.optim.SGD(parameters, foreach=False),
    "sgd_momentum": lambda parameters: torch.optim.SGD(parameters, momentum=0.9, foreach=False),
}


@dataclass
class Trace:
    """One traced training step: sizes in bytes; a FLOP is one multiplication or one addition (a matrix product: 2mnk)."""

    parameters: int = 0  # number of parameters, not bytes
    peak: int = 0
    peak_by_category: dict = field(default_factory=dict)
    after_forward: dict = field(default_factory=dict)  # of the last micro-batch, before its backward pass
    flops: dict = field(default_factory=dict)  # forward, backward (with the recomputation), recomputation
    parts: list = field(default_factory=list)  # (peak, {category: bytes}) of each part of the step
    ends: list = field(default_factory=list)  # bytes alive at the end of each part
    timeline: list = field(default_factory=list)  # {category: bytes} every `Tracker.TIMELINE_EVERY` operators
    seconds: float = 0.0  # that the tracing took

    def take(self, tracker):
        """What the tracker saw of a step whose last part has ended."""
        self.parts = [(part.bytes, tracker.in_order(part.by_category)) for part in tracker.parts]
        self.peak, self.peak_by_category = max(self.parts, key=lambda part: part[0])
        self.flops, self.timeline, self.ends = dict(tracker.flops), tracker.timeline, list(tracker.ends)

    @property
    def peak_gib(self):
        return self.peak / GiB

    def gib(self, category):
        """GiB of one category at the peak."""
        return self.peak_by_category.get(category, 0) / GiB


@contextlib.contextmanager
def fake():
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
    model_class,
    config,
    batch_size,
    sequence_length,
    *,
    dtype=torch.float32,
    autocast=None,
    activation_checkpointing=False,
    optimizer="adamw",
    accumulation=1,
    attention="auto",
    timeline=False,
):
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
            optimizer.step()
            optimizer.zero_grad()
            tracker.part()
    result.take(tracker)
    result.seconds = time.perf_counter() - started
    return result


def optimizer_function(optimizer):
    """The function from parameters to an optimizer, given that function or a name in `OPTIMIZERS`."""
    if not isinstance(optimizer, str):
        return optimizer
    if optimizer not in OPTIMIZERS:
        raise ValueError(f"optimizer={optimizer!r}: choose one of {', '.join(OPTIMIZERS)}, or pass a function")
    return OPTIMIZERS[optimizer]


def kernels(attention):
    """What `GpuOperators` shall choose from: the eager attention calls no fused kernel."""
    return "auto" if attention == "eager" else attention


def implementation(attention):
    """The `attn_implementation` of transformers."""
    return "eager" if attention == "eager" else UNMASKED_SDPA


def build_model(model_class, config, dtype, attention):
    """A model of this transformers class with random weights, or with none inside `fake()`. It keeps no KV cache."""
    config = copy.deepcopy(config)
    config.use_cache = False  # training never reads it
    build = getattr(model_class, "from_config", None) or model_class._from_config  # Auto classes have the public one
    return build(config, dtype=dtype, attn_implementation=attention)


def language_batch(model, batch_size, sequence_length):
    """Token ids (batch_size, sequence_length) and labels: the ids for a language model, otherwise one class per row."""
    ids = torch.zeros(batch_size, sequence_length, dtype=torch.long)
    predicts_tokens = type(model).__name__.endswith(("ForCausalLM", "ForMaskedLM", "LMHeadModel"))
    return {"input_ids": ids, "labels": ids if predicts_tokens else torch.zeros(batch_size, dtype=torch.long)}


def checkpoint_layers(model, every_n_layers):
    """Switches activation checkpointing on in every n-th layer."""
    model.activation_checkpointing_enable(every_n_layers=every_n_layers)


def create_state(model, optimizer):
    """Runs one step on empty gradients, so that the optimizer's state exists. It changes the weights."""
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.grad = torch.empty_like(parameter)
    optimizer.step()
    optimizer.zero_grad()


def layers_of(model):
    """The model's longest list of modules: its layers."""
    lists = [module for module in model.modules() if isinstance(module, torch.nn.ModuleList)]
    return max(lists, key=len, default=[])


def end_part_in_mid_backward(model, tracker):
    """Ends a part of the step in the middle of the backward pass.

    Memory rises or falls steadily in each half, so each half has its peak at one of its ends (see `depth`).
    """
    layers = layers_of(model)

    def watch(layer, arguments, out):
        out = tree_leaves(out)[0]
        if out.requires_grad:
            out.register_hook(lambda gradient: tracker.part())

    if len(layers):
        layers[max(len(layers) // 2 - 1, 0)].register_forward_hook(watch)
