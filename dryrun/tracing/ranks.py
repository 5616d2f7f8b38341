"""Memory of one rank and bytes of every collective of a training step on W ranks, in one process and without a GPU.

PyTorch's *fake* process group plays rank 0 of W: its collectives return at once and send nothing. On the fake tensors of
`dryrun.tracing` the real sharding code runs (`fully_shard`, `parallelize_module`), on shards of the real size. A tracker
adds up what this rank holds and what it hands to each collective. So rank 0 of 1,024 takes seconds and one process.

What is *not* in these figures: the allocator's rounding, workspaces and buffers of NCCL, the CUDA context (as in
`dryrun.tracing`), and tensors that an asynchronous stream keeps alive after the Python code let go of them. Time is not
traced. Rank 0 represents all ranks: no other rank has a larger shard.
"""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore  # private: it registers the backend "fake"

from ..step import depth
from . import tracing
from .collectives import Collective, RankTracker
from .gpu_operators import GpuOperators
from .rank_setup import (
    SHARDED,
    SPLIT,
    STRATEGIES,
    Buckets,
    device_mesh,
    distribute,
    make_optimizer,
    rank_model,
    run_first_stage,
    run_micro_batches,
)
from .tracing import Trace, fake, language_batch


@dataclass
class RankTrace(Trace):
    """A traced step of rank 0. `parameters` counts the whole model; memory is that of this rank."""

    strategy: str = ""
    ranks: int = 1
    collectives: list[Collective] = field(default_factory=list)
    held: dict[str, float] = field(default_factory=dict)  # {category: bytes} after backward, before the optimizer's step

    def pick(self, kind: str | None = None, dimension: str | None = None) -> list[Collective]:
        return [c for c in self.collectives if kind in (None, c.kind) and dimension in (None, c.dimension)]

    def payload(self, kind: str | None = None, dimension: str | None = None) -> int:
        return sum(c.payload for c in self.pick(kind, dimension))

    def count(self, kind: str | None = None, dimension: str | None = None) -> int:
        return sum(c.count for c in self.pick(kind, dimension))

    def sent(self, kind: str | None = None, dimension: str | None = None) -> float:
        """Bytes that the rank sends in one step, by rings."""
        return sum(c.sent for c in self.pick(kind, dimension) if c.kind != "receive")


def rank_step(
    model_class: type[Any],
    config: Any,
    strategy: str,
    ranks: int,
    batch_size: int,
    sequence_length: int,
    *,
    shard: int | None = None,
    tensor: int | None = None,
    sequence_parallel: bool = False,
    micro_batches: int | None = None,
    dtype: torch.dtype = torch.float32,
    compute: torch.dtype | None = torch.bfloat16,
    reduce: torch.dtype = torch.float32,
    activation_checkpointing: bool | int = False,
    optimizer: str | Callable[[Any], torch.optim.Optimizer] = "adamw",
    accumulation: int = 1,
    bucket_view: bool = False,
    whole_gradients: bool = False,
    embedding_apart: bool = False,
    attention: str = "auto",
) -> RankTrace:
    """Traces one training step of rank 0 of `ranks`. Returns a `RankTrace`.

    strategy: a name in `STRATEGIES`. model_class, config, activation_checkpointing, optimizer, accumulation, attention:
    as in `tracing.training_step`. batch_size: sequences per rank and micro-batch (all ranks of a tensor-parallel group
    work on the same ones).
    shard: for "hsdp", the ranks that share one set of weights. tensor: for "tp_fsdp2", the ranks that split a matrix.
    sequence_parallel: with tensor parallelism, splits norms and residuals along the sequence too.
    micro_batches: for "pp", per step; as many as there are stages are in flight at the first stage.
    dtype: of the weights that the optimizer holds; compute: of the matrix products (None: the same); reduce: of FSDP's
    gradient reduction. bucket_view: DDP's `gradient_as_bucket_view`, which is False by default. whole_gradients: FSDP
    reduces in the last of the `accumulation` micro-batches only (`set_requires_gradient_sync`), as `Trainer` does.
    embedding_apart: under FSDP the embedding is a unit of its own, as in `from_pretrained`.
    """
    _check(config, strategy, ranks, shard, tensor, sequence_length, sequence_parallel, whole_gradients)
    make = tracing.optimizer_function(optimizer)
    compute = None if compute == dtype else compute
    autocast = torch.autocast("cpu", dtype=compute, enabled=compute is not None and strategy not in SHARDED)
    started = time.perf_counter()
    with _fake_ranks(ranks), contextlib.ExitStack() as stack:
        mesh, dimensions = device_mesh(strategy, ranks, shard, tensor)  # before fake(): it reads values
        stack.enter_context(fake())
        stack.enter_context(GpuOperators(tracing.kernels(attention)))
        model, parameters = rank_model(model_class, config, strategy, ranks, dtype, attention)
        model.train()
        if activation_checkpointing:
            tracing.checkpoint_layers(model, int(activation_checkpointing))
        distribute(model, strategy, mesh, compute, reduce, sequence_parallel, embedding_apart)
        optimizer = make_optimizer(model, make)
        tracing.create_state(model, optimizer)
        buckets = Buckets(model, mesh.get_group(), bucket_view) if strategy == "ddp" else None
        batch = language_batch(model, batch_size, sequence_length)
        if sequence_parallel:  # the model would count positions from 0 in its part of the sequence
            batch["position_ids"] = torch.arange(sequence_length).unsqueeze(0)
        result = RankTrace(parameters=parameters, strategy=strategy, ranks=ranks)
        with RankTracker(model, optimizer, batch, dimensions) as tracker:
            tracing.end_part_in_mid_backward(model, tracker)
            if buckets:
                tracker._claim("gradient buckets", buckets.flat)
            if strategy == "pp":
                run_first_stage(model, batch, micro_batches or ranks, autocast, tracker, result)
            else:
                run_micro_batches(model, batch, accumulation, autocast, buckets, tracker, result, whole_gradients)
            result.held = tracker.snapshot()
            tracker.part()
            optimizer.step()  # type: ignore[union-attr]
            optimizer.zero_grad()  # type: ignore[union-attr]
            tracker.part()
    result.take(tracker)
    result.collectives = list(tracker.collectives.values())
    result.seconds = time.perf_counter() - started
    return result


def many_layers(
    model_class: type[Any],
    config: Any,
    strategy: str,
    ranks: int,
    *arguments: Any,
    layers: Sequence[int] = (4, 6, 8),
    **options: Any,
) -> RankTrace:
    """The `RankTrace` of a deep model from those of shallow ones (`depth.line_of`). Takes seconds for any depth."""
    steps = [
        rank_step(model_class, depth.with_layers(config, number), strategy, ranks, *arguments, **options)
        for number in layers
    ]
    wanted = config.num_hidden_layers
    result = depth.line_of(steps, layers, wanted, RankTrace(strategy=strategy, ranks=ranks))
    low, high = steps[0], steps[-1]
    result.held = depth.line(low.held, high.held, layers, wanted)
    for a, b in zip(low.collectives, high.collectives, strict=True):
        count = depth.line(a.count, b.count, layers, wanted)
        payload = depth.line(a.payload, b.payload, layers, wanted)
        result.collectives.append(Collective(b.kind, b.group, b.dimension, count, payload))
    return result


@contextlib.contextmanager
def _fake_ranks(ranks: int) -> Iterator[None]:
    """A process group in which this process is rank 0 and no other rank exists."""
    if dist.is_initialized():
        raise RuntimeError("a process group exists already: call dist.destroy_process_group() before you trace")
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=ranks)
    try:
        with warnings.catch_warnings():
            # FSDP2 warns about in-place operators on the logits, which transformers returns as a view and never changes.
            warnings.filterwarnings("ignore", "FSDP2-wrapped module .* returned a view tensor")
            yield
    finally:
        dist.destroy_process_group()


def _check(
    config: Any,
    strategy: str,
    ranks: int,
    shard: int | None,
    tensor: int | None,
    length: int,
    sequence_parallel: bool,
    whole_gradients: bool,
) -> None:
    if strategy in ("zero1", "zero2"):
        raise ValueError(f"strategy={strategy!r} is DeepSpeed's own code, which is not traced: see dryrun.answer.planner")
    if strategy not in STRATEGIES:
        raise ValueError(f"strategy={strategy!r}: choose one of {', '.join(STRATEGIES)}")
    if whole_gradients and strategy not in SHARDED:
        raise ValueError(f"whole_gradients=True: {strategy} shards no gradients: take one of {', '.join(SHARDED)}")
    if ranks < 2:
        raise ValueError(f"ranks={ranks}: take at least 2, or tracing.training_step for one")
    for name, size, needed in (("shard", shard, "hsdp"), ("tensor", tensor, "tp_fsdp2")):
        if strategy == needed and (not size or ranks % size):
            raise ValueError(f"{name}={size}: {strategy} on {ranks} ranks needs a divisor of {ranks}")
    if strategy == "pp" and config.num_hidden_layers % ranks:
        raise ValueError(f"ranks={ranks}: {config.num_hidden_layers} layers do not divide into {ranks} stages")
    if strategy in SPLIT:
        _check_split(config, ranks if strategy == "tp" else tensor, length, sequence_parallel)  # type: ignore[arg-type]


def _check_split(config: Any, ranks: int, length: int, sequence_parallel: bool) -> None:
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    if heads % ranks:
        raise ValueError(f"{ranks} ranks cannot split {heads} key and value heads: take a divisor of {heads}")
    if sequence_parallel and length % ranks:
        raise ValueError(f"sequence_length={length}: {ranks} ranks cannot split it")
