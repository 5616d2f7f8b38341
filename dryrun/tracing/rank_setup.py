"""How one rank sets up its model for a strategy, and how it runs the micro-batches of a step: the real sharding code, on fake ranks.

`strategies` has the formula of the same: bytes that a rank holds and sends. `tests/dryrun/test_ranks.py` compares both.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from transformers import AutoModel

from ..tables import strategies
from . import tracing

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh
    from transformers import PreTrainedModel

    from .collectives import RankTracker
    from .ranks import RankTrace

STRATEGIES = {
    "ddp": "every rank holds everything; gradients are all-reduced in buckets",
    "fsdp2": "fully_shard, resharded after forward: weights, gradients, optimizer state sharded (ZeRO-3)",
    "fsdp2_keep": "fully_shard(reshard_after_forward=False): as fsdp2, but gathered weights stay until backward",
    "hsdp": "fully_shard on a 2-D mesh: sharded over `shard` ranks, replicated over the others",
    "tp": "every matrix split over all ranks, by columns and then by rows (Megatron)",
    "tp_fsdp2": "split over `tensor` ranks, and fully_shard over the others",
    "pp": "the first stage of a pipeline with one stage per rank, under the 1F1B schedule",
}
SHARDED = ("fsdp2", "fsdp2_keep", "hsdp", "tp_fsdp2")
SPLIT = ("tp", "tp_fsdp2")


def device_mesh(strategy: str, ranks: int, shard: int | None, tensor: int | None) -> tuple[DeviceMesh, dict[str, str]]:
    """The device mesh, and {name of a process group: dimension}."""
    sizes = {
        "ddp": {"replicate": ranks},
        "hsdp": {"replicate": ranks // (shard or ranks), "shard": shard or ranks},
        "tp": {"tensor": ranks},
        "tp_fsdp2": {"shard": ranks // (tensor or ranks), "tensor": tensor or ranks},
        "pp": {"pipeline": ranks},
    }.get(strategy, {"shard": ranks})
    mesh = init_device_mesh("cpu", tuple(sizes.values()), mesh_dim_names=tuple(sizes))
    return mesh, {mesh.get_group(name).group_name: name for name in sizes}


def rank_model(
    model_class: type[Any], config: Any, strategy: str, ranks: int, dtype: torch.dtype, attention: str
) -> tuple[PreTrainedModel, int]:
    """The model of this rank before it is distributed, and the number of parameters of the whole model."""
    implementation = tracing.implementation(attention)
    whole = tracing.build_model(model_class, config, dtype, implementation)
    parameters = sum(p.numel() for p in whole.parameters())
    if strategy != "pp":
        return whole, parameters
    first = copy.deepcopy(config)
    first.num_hidden_layers = config.num_hidden_layers // ranks
    stage = tracing.build_model(AutoModel, first, dtype, implementation)
    stage.norm = torch.nn.Identity()  # it belongs to the last stage
    return stage, parameters


def distribute(
    model: PreTrainedModel,
    strategy: str,
    mesh: DeviceMesh,
    compute: torch.dtype | None,
    reduce: torch.dtype,
    sequence_parallel: bool,
    embedding_apart: bool = False,
) -> None:
    """Splits and shards the model in place, on fake tensors."""
    if strategy in SPLIT:
        split(model, mesh["tensor"], sequence_parallel)
    if strategy in SHARDED:
        shards = mesh["shard"] if strategy == "tp_fsdp2" else mesh
        with unset_fake_temporarily():  # fully_shard reads the values of a mesh that it makes
            shard(model, shards, compute, reduce, strategy == "fsdp2_keep", embedding_apart)


def split(model: PreTrainedModel, mesh: DeviceMesh, sequence_parallel: bool) -> None:
    """Megatron's plan: attention and MLP each start with a split by columns and end with one by rows."""
    whole, part = Replicate(), Shard(1) if sequence_parallel else Replicate()
    layer: dict[str, Any] = {
        "self_attn": PrepareModuleInput(
            input_kwarg_layouts={"hidden_states": part}, desired_input_kwarg_layouts={"hidden_states": whole}
        ),
        "mlp": PrepareModuleInput(input_layouts=(part,), desired_input_layouts=(whole,)),
        **{f"self_attn.{name}_proj": ColwiseParallel() for name in "qkv"},
        **{f"mlp.{name}_proj": ColwiseParallel() for name in ("gate", "up")},
        "self_attn.o_proj": RowwiseParallel(output_layouts=part),
        "mlp.down_proj": RowwiseParallel(output_layouts=part),
    }
    vocabulary: dict[str, Any] = {
        "model.embed_tokens": RowwiseParallel(input_layouts=whole, output_layouts=part),
        "lm_head": ColwiseParallel(input_layouts=part, output_layouts=whole),
    }
    if sequence_parallel:
        layer |= {"input_layernorm": SequenceParallel(), "post_attention_layernorm": SequenceParallel()}
        vocabulary["model.norm"] = SequenceParallel()
    for decoder in model.model.layers:
        parallelize_module(decoder, mesh, layer)
    parallelize_module(model, mesh, vocabulary)


def shard(
    model: PreTrainedModel,
    mesh: DeviceMesh,
    compute: torch.dtype | None,
    reduce: torch.dtype,
    keep: bool,
    embedding_apart: bool = False,
) -> None:
    """`fully_shard` on every layer, then on the rest. `keep`: gathered weights stay until the backward pass.

    embedding_apart: it is a unit too, freed after use, as `from_pretrained` and Accelerate make it.
    """
    policy = MixedPrecisionPolicy(param_dtype=compute, reduce_dtype=reduce)
    options: dict[str, Any] = {"mesh": mesh, "mp_policy": policy, "reshard_after_forward": False if keep else None}
    for module in [*[model.get_input_embeddings()] * embedding_apart, *tracing.layers_of(model)]:
        fully_shard(module, **options)
    fully_shard(model, **options)


def make_optimizer(model: PreTrainedModel, make: Callable[[Any], torch.optim.Optimizer]) -> torch.optim.Optimizer:
    """One parameter group for each kind of tensor: the fused optimizers take no mixture."""
    groups: defaultdict[DeviceMesh | None, list[torch.nn.Parameter]] = defaultdict(list)
    for parameter in model.parameters():
        if parameter.requires_grad:
            groups[parameter.device_mesh if isinstance(parameter, DTensor) else None].append(parameter)
    return make([{"params": parameters} for parameters in groups.values()])


class Buckets:
    """What DistributedDataParallel does with gradients; its own reducer takes no fake tensors.

    A full bucket of `strategies.buckets` is all-reduced. By
    default the buckets are copies of the gradients. `tests/dryrun/test_ranks.py` compares with DDP itself.
    """

    def __init__(self, model: torch.nn.Module, group: dist.ProcessGroup, view: bool = False) -> None:
        self.group, self.view, self.active = group, view, True
        parameters = [p for p in reversed(list(model.parameters())) if p.requires_grad]
        filled = strategies.buckets([parameter.nbytes for parameter in parameters])
        self.members = [[parameters[place] for place in bucket] for bucket in filled]
        self.flat = [torch.empty(sum(p.numel() for p in bucket), dtype=bucket[0].dtype) for bucket in self.members]
        self._place: dict[torch.nn.Parameter, tuple[int, int]] = {}
        for number, bucket in enumerate(self.members):
            offset = 0
            for parameter in bucket:
                self._place[parameter] = number, offset
                offset += parameter.numel()
                parameter.register_post_accumulate_grad_hook(self._ready)
        self._missing = [len(bucket) for bucket in self.members]

    def _ready(self, parameter: torch.nn.Parameter) -> None:
        number, offset = self._place[parameter]
        part = self.flat[number][offset : offset + parameter.numel()].view_as(parameter)
        if self.active:
            part.copy_(parameter.grad)
        if self.view:
            parameter.grad = part
        if not self.active:
            return
        self._missing[number] -= 1
        if self._missing[number] == 0:
            self._missing[number] = len(self.members[number])
            dist.all_reduce(self.flat[number], group=self.group)


def run_micro_batches(
    model: PreTrainedModel,
    batch: dict[str, torch.Tensor],
    accumulation: int,
    autocast: AbstractContextManager[Any],
    buckets: Buckets | None,
    tracker: RankTracker,
    result: RankTrace,
    whole_gradients: bool = False,
) -> None:
    """Forward and backward `accumulation` times. DDP and HSDP reduce between replicas in the last one only.

    whole_gradients: FSDP2 reduces in the last one only, and adds up whole gradients on every rank until then.
    """
    for number in range(accumulation):
        last = number == accumulation - 1
        if buckets:
            buckets.active = last
        if result.strategy == "hsdp":
            model.set_requires_all_reduce(last)
        if whole_gradients:
            model.set_requires_gradient_sync(last)
        with autocast:
            loss = model(**batch).loss
        result.after_forward = tracker.snapshot()
        (loss / accumulation).backward()
        del loss
        if whole_gradients:
            tracker._claim("gradients", _unreduced(model))


def _unreduced(model: PreTrainedModel) -> Iterator[torch.Tensor | None]:
    """The whole gradients that FSDP2 keeps. Private: they are in no `.grad`."""
    for module in model.modules():
        if isinstance(module, FSDPModule):
            for group in module._get_fsdp_state()._fsdp_param_groups:
                yield from (parameter.unsharded_accumulated_grad for parameter in group.fsdp_params)


def run_first_stage(
    model: PreTrainedModel,
    batch: dict[str, torch.Tensor],
    micro_batches: int,
    autocast: AbstractContextManager[Any],
    tracker: RankTracker,
    result: RankTrace,
) -> None:
    """The 1F1B schedule: as many forward passes as there are stages, then one backward and one forward in turn."""
    in_flight: list[torch.Tensor] = []

    def backward() -> None:
        out = in_flight.pop(0)
        tracker.add("receive", 2, "pipeline", out.nbytes)
        torch.autograd.backward([out], [torch.ones_like(out)])

    with autocast:  # around all of them, so that the 16-bit copies of the weights are made once
        for _ in range(micro_batches):
            in_flight.append(model(input_ids=batch["input_ids"]).last_hidden_state)
            tracker.add("send", 2, "pipeline", in_flight[-1].nbytes)
            result.after_forward = tracker.snapshot()
            if len(in_flight) == min(result.ranks, micro_batches):
                backward()
        while in_flight:
            backward()
