"""Memory of one rank and bytes of every collective of a training step on W ranks, in one process and without a GPU.

PyTorch's *fake* process group plays rank 0 of W: its collectives return at once and send nothing. With the fake tensors
of `dryrun.trace` the real sharding code runs (`fully_shard`, `parallelize_module`), on shards of the real size, and a
tracker adds up what this rank holds and what it hands to each collective. So rank 0 of 1,024 takes seconds and one
process, with the model that you name.

What is *not* in these figures: the allocator's rounding, workspaces and buffers of NCCL, the CUDA context (as in
`dryrun.trace`), and what a stream that runs ahead keeps alive for longer than the Python code does. Time is not
traced at all. Rank 0 stands for all: its shard is never smaller than that of another rank.
"""

import contextlib
import copy
import time
import warnings
from collections import defaultdict
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.fsdp._fully_shard import _fsdp_param
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor._sharding_prop import ShardingPropagator
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves
from transformers import AutoModel

from . import trace
from .trace import OPTIMIZERS, UNMASKED_SDPA, GpuOperators, Trace, Tracker, fake, language_batch

STRATEGIES = {
    "ddp": "every rank holds everything; gradients are all-reduced in buckets",
    "fsdp2": "fully_shard, resharded after forward: weights, gradients, optimizer state sharded (ZeRO-3)",
    "fsdp2_keep": "fully_shard(reshard_after_forward=False): as fsdp2, but gathered weights stay until backward",
    "hsdp": "fully_shard on a 2-D mesh: sharded over `shard` ranks, replicated over the others",
    "tp": "every matrix split over all ranks, by columns and then by rows (Megatron)",
    "tp_fsdp2": "split over `tensor` ranks, and fully_shard over the others",
    "pp": "the first stage of a pipeline of as many stages, under the 1F1B schedule",
}
KINDS = {  # operator -> kind of collective
    "allreduce_": "all-reduce",
    "allreduce_coalesced_": "all-reduce",
    "all_reduce": "all-reduce",
    "all_reduce_coalesced": "all-reduce",
    "_allgather_base_": "all-gather",
    "allgather_": "all-gather",
    "allgather_into_tensor_coalesced_": "all-gather",
    "all_gather_into_tensor": "all-gather",
    "all_gather_into_tensor_coalesced": "all-gather",
    "_reduce_scatter_base_": "reduce-scatter",
    "reduce_scatter_": "reduce-scatter",
    "reduce_scatter_tensor_coalesced_": "reduce-scatter",
    "reduce_scatter_tensor": "reduce-scatter",
    "reduce_scatter_tensor_coalesced": "reduce-scatter",
    "alltoall_": "all-to-all",
    "alltoall_base_": "all-to-all",
    "all_to_all_single": "all-to-all",
    "broadcast_": "broadcast",
    "broadcast": "broadcast",
    "send": "send",
    "recv_": "receive",
}
NAMESPACES = ("c10d", "_c10d_functional", "_c10d_functional_autograd")
MiB = 2**20


@dataclass
class Collective:
    """All collectives of one kind over the groups of one size, in one step of one rank."""

    kind: str  # all-reduce, all-gather, reduce-scatter, all-to-all, broadcast, send, receive
    group: int  # ranks that take part
    dimension: str  # of the device mesh: shard, replicate, tensor, pipeline
    count: int = 0
    payload: int = 0  # bytes of the whole tensors: what all-reduce reduces, all-gather yields, reduce-scatter takes

    @property
    def sent(self):
        """Bytes that a rank sends when the collective goes round a ring; it receives as many."""
        rounds = {"all-reduce": 2, "all-gather": 1, "reduce-scatter": 1, "all-to-all": 1}.get(self.kind)
        return self.payload * rounds * (self.group - 1) / self.group if rounds else self.payload


@dataclass
class RankTrace(Trace):
    """A traced step of rank 0. `parameters` counts the whole model; memory is that of this rank."""

    strategy: str = ""
    ranks: int = 1
    collectives: list = field(default_factory=list)
    held: dict = field(default_factory=dict)  # {category: bytes} after backward, before the optimizer's step

    def pick(self, kind=None, dimension=None):
        return [c for c in self.collectives if kind in (None, c.kind) and dimension in (None, c.dimension)]

    def payload(self, kind=None, dimension=None):
        return sum(c.payload for c in self.pick(kind, dimension))

    def count(self, kind=None, dimension=None):
        return sum(c.count for c in self.pick(kind, dimension))

    def sent(self, kind=None, dimension=None):
        """Bytes that the rank sends in one step, by rings."""
        return sum(c.sent for c in self.pick(kind, dimension) if c.kind != "receive")


class RankTracker(Tracker):
    """A `Tracker` that knows shards (DTensor), storages that FSDP frees and allocates again, and collectives.

    Two more categories: `gathered weights`, the whole layers that FSDP puts together from the shards, and
    `gradient buckets` of DDP. Works on real tensors and a real process group too.
    """

    CATEGORIES = (*Tracker.CATEGORIES[:5], "gathered weights", "gradient buckets", *Tracker.CATEGORIES[5:])

    def __init__(self, model, optimizer, inputs=(), dimensions=None):
        self.collectives = {}
        self._dimensions = dimensions or {}  # name of a process group -> dimension of the mesh
        super().__init__(model, optimizer, inputs)
        self._claim("gathered weights", _gathered(model))

    def __enter__(self):
        resize, propagate, tracker = (
            torch.UntypedStorage.resize_,
            ShardingPropagator._propagate_tensor_meta_non_cached,
            self,
        )

        def resize_(storage, size):
            resize(storage, size)
            tracker._resized(storage)

        def propagate_(self, schema):  # DTensor runs an operator on fake tensors of the whole size to learn its shapes
            with _disable_current_modes():
                return propagate(self, schema)

        self._replaced = resize, propagate
        torch.UntypedStorage.resize_, ShardingPropagator._propagate_tensor_meta_non_cached = resize_, propagate_
        return super().__enter__()

    def __exit__(self, *exception):
        torch.UntypedStorage.resize_, ShardingPropagator._propagate_tensor_meta_non_cached = self._replaced
        return super().__exit__(*exception)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented  # DTensor first: its operators on the shards come here again
        out = super().__torch_dispatch__(func, types, args, kwargs)
        if func.namespace in NAMESPACES:
            kind = KINDS.get(func._schema.name.split("::")[1])
            if kind:
                self._count_collective(kind, args, kwargs or {}, out)
        return out

    def add(self, kind, group, dimension, payload):
        """Counts one collective."""
        entry = self.collectives.setdefault((kind, group, dimension), Collective(kind, group, dimension))
        entry.count += 1
        entry.payload += payload

    def _claim(self, category, tensors):
        super()._claim(category, map(_local, tensors))

    def _count_collective(self, kind, args, kwargs, out):
        group = _process_group([*args, *kwargs.values()])
        sizes = [sum(_bytes(t) for t in tree_leaves(part) if isinstance(t, torch.Tensor)) for part in (*args, out)]
        # some forms name the tensor that they fill, some return it
        named_twice = kind in ("all-gather", "reduce-scatter", "all-to-all")
        payload = max(sizes) if named_twice else sum(sizes[:-1]) or sizes[-1]
        self.add(kind, group.size(), self._dimensions.get(group.group_name, ""), payload)

    def _resized(self, storage):
        entry = self.live.get(storage._cdata)
        if entry is None:
            return
        size, category, *_ = entry
        grown = storage.nbytes() - size
        entry[0] += grown
        self.now[category] += grown
        self.total += grown
        self._born += 1
        entry[3] = self._born
        if self.total > self.peak:
            self.peak, self.peak_by_category, self._born_at_peak = self.total, self.now.copy(), self._born


def rank_step(
    model_class,
    config,
    strategy,
    ranks,
    batch_size,
    sequence_length,
    *,
    shard=None,
    tensor=None,
    sequence_parallel=False,
    micro_batches=None,
    dtype=torch.float32,
    compute=torch.bfloat16,
    reduce=torch.float32,
    activation_checkpointing=False,
    optimizer="adamw",
    accumulation=1,
    bucket_view=False,
    attention="auto",
):
    """Traces one training step of rank 0 of `ranks`. Returns a `RankTrace`.

    strategy: a name in `STRATEGIES`. model_class, config, activation_checkpointing, optimizer, accumulation, attention:
    as in `trace.training_step`. batch_size: sequences per rank and micro-batch (the ranks of one tensor-parallel group
    work on the same ones).
    shard: for "hsdp", the ranks that share one set of weights. tensor: for "tp_fsdp2", the ranks that split a matrix.
    sequence_parallel: with tensor parallelism, splits norms and residuals along the sequence too.
    micro_batches: for "pp", per step; as many as stages are in flight at the first stage.
    dtype: of the weights that the optimizer holds; compute: of the matrix products (None: the same); reduce: of FSDP's
    gradient reduction. bucket_view: DDP's `gradient_as_bucket_view`, which is False by default.
    """
    _check(config, strategy, ranks, shard, tensor, sequence_length, sequence_parallel)
    compute = None if compute == dtype else compute
    started = time.perf_counter()
    with _fake_ranks(ranks), contextlib.ExitStack() as stack:
        mesh, dimensions = _mesh(strategy, ranks, shard, tensor)  # outside of fake mode, where it reads values
        stack.enter_context(fake())
        stack.enter_context(GpuOperators("auto" if attention == "eager" else attention))
        model, parameters = _stage(model_class, config, strategy, ranks, dtype, attention)
        model.train()
        if activation_checkpointing:
            trace.checkpoint_layers(model, int(activation_checkpointing))
        if strategy in ("tp", "tp_fsdp2"):
            _split(model, mesh["tensor"], sequence_parallel)
        sharded = strategy in ("fsdp2", "fsdp2_keep", "hsdp", "tp_fsdp2")
        if sharded:
            shards = mesh["shard"] if strategy == "tp_fsdp2" else mesh
            with unset_fake_temporarily(), _first_chunk_only():  # it makes a mesh of two, and reads its values
                _shard(model, shards, compute, reduce, keep=strategy == "fsdp2_keep")
            _make_gathered(model)
        optimizer = _optimizer(model, optimizer)
        trace.create_state(model, optimizer)
        buckets = Buckets(model, mesh.get_group(), bucket_view) if strategy == "ddp" else None
        batch = language_batch(model, batch_size, sequence_length)
        if sequence_parallel:  # the model would count the positions of its own part only
            batch["position_ids"] = torch.arange(sequence_length).unsqueeze(0)
        result = RankTrace(parameters=parameters, strategy=strategy, ranks=ranks)
        autocast = torch.autocast("cpu", dtype=compute, enabled=compute is not None and not sharded)
        with RankTracker(model, optimizer, batch, dimensions) as tracker:
            trace.end_part_in_mid_backward(model, tracker)
            if buckets:
                tracker._claim("gradient buckets", buckets.flat)
            if strategy == "pp":
                _one_forward_one_backward(model, batch, ranks, micro_batches or ranks, autocast, tracker, result)
            else:
                for number in range(accumulation):
                    last = number == accumulation - 1
                    if buckets:
                        buckets.active = last
                    if strategy == "hsdp":
                        model.set_requires_all_reduce(last)
                    with autocast:
                        loss = model(**batch).loss
                    result.after_forward = tracker.snapshot()
                    (loss / accumulation).backward()
                    del loss
            result.held = tracker.snapshot()
            tracker.part()
            optimizer.step()
            optimizer.zero_grad()
            tracker.part()
    result.take(tracker)
    result.collectives = list(tracker.collectives.values())
    result.seconds = time.perf_counter() - started
    return result


def many_layers(model_class, config, strategy, ranks, *arguments, layers=(4, 6, 8), **options):
    """The `RankTrace` of a deep model from those of shallow ones (`depth.line_of`). Takes seconds for any depth."""
    steps = [
        rank_step(model_class, depth.with_layers(config, number), strategy, ranks, *arguments, **options)
        for number in layers
    ]
    depth = config.num_hidden_layers
    result = depth.line_of(steps, layers, depth, RankTrace(strategy=strategy, ranks=ranks))
    low, high = steps[0], steps[-1]
    result.held = depth.line(low.held, high.held, layers, depth)
    for a, b in zip(low.collectives, high.collectives):
        count, payload = (
            depth.line(getattr(a, name), getattr(b, name), layers, depth) for name in ("count", "payload")
        )
        result.collectives.append(Collective(b.kind, b.group, b.dimension, count, payload))
    return result


class Buckets:
    """What DistributedDataParallel does with gradients; its own reducer takes no fake tensors.

    Buckets of `cap` bytes, the first smaller, in the order in which gradients come; a full bucket is all-reduced. By
    default the buckets lie beside the gradients. `tests/test_ranks.py` compares with DDP itself.
    """

    def __init__(self, model, group, view=False, cap=25 * MiB, first=MiB):
        self.group, self.view, self.active = group, view, True
        parameters = [p for p in reversed(list(model.parameters())) if p.requires_grad]
        members, size, limit = [[]], 0, first
        for parameter in parameters:
            members[-1].append(parameter)
            size += _bytes(parameter)
            if size >= limit:
                members.append([])
                size, limit = 0, cap
        self.members = [bucket for bucket in members if bucket]
        self.flat = [torch.empty(sum(p.numel() for p in bucket), dtype=bucket[0].dtype) for bucket in self.members]
        self._place = {}
        for number, bucket in enumerate(self.members):
            offset = 0
            for parameter in bucket:
                self._place[parameter] = number, offset
                offset += parameter.numel()
                parameter.register_post_accumulate_grad_hook(self._ready)
        self._missing = [len(bucket) for bucket in self.members]

    def _ready(self, parameter):
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


@contextlib.contextmanager
def _fake_ranks(ranks):
    if dist.is_initialized():
        raise RuntimeError("a process group is there already: call dist.destroy_process_group() before you trace")
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=ranks)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        dist.destroy_process_group()


def _mesh(strategy, ranks, shard, tensor):
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


def _stage(model_class, config, strategy, ranks, dtype, attention):
    """The model of this rank, and the number of parameters of the whole one."""
    attention = "eager" if attention == "eager" else UNMASKED_SDPA
    if strategy != "pp":
        model = trace.build_model(model_class, config, dtype, attention)
        return model, _number(model)
    whole = _number(trace.build_model(model_class, config, dtype, attention))
    first = copy.deepcopy(config)
    first.num_hidden_layers = config.num_hidden_layers // ranks
    model = trace.build_model(AutoModel, first, dtype, attention)
    model.norm = torch.nn.Identity()  # it belongs to the last stage
    return model, whole


def _number(model):
    return sum(p.numel() for p in model.parameters())


def _one_forward_one_backward(model, batch, stages, micro_batches, autocast, tracker, result):
    """The first stage: as many forward passes as stages, then one backward and one forward in turn."""
    flying = []

    def back():
        out = flying.pop(0)
        tracker.add("receive", 2, "pipeline", _bytes(out))
        torch.autograd.backward([out], [torch.ones_like(out)])

    with autocast:  # one context, so that the 16-bit copies of the weights are made once
        for _ in range(micro_batches):
            flying.append(model(input_ids=batch["input_ids"]).last_hidden_state)
            tracker.add("send", 2, "pipeline", _bytes(flying[-1]))
            result.after_forward = tracker.snapshot()
            if len(flying) == min(stages, micro_batches):
                back()
        while flying:
            back()


def _split(model, mesh, sequence_parallel):
    """Megatron's plan: an attention and an MLP each start by columns and end by rows; so does the vocabulary."""
    whole, part = Replicate(), Shard(1) if sequence_parallel else Replicate()
    layer = {
        "self_attn": PrepareModuleInput(
            input_kwarg_layouts={"hidden_states": part}, desired_input_kwarg_layouts={"hidden_states": whole}
        ),
        "mlp": PrepareModuleInput(input_layouts=(part,), desired_input_layouts=(whole,)),
        **{f"self_attn.{name}_proj": ColwiseParallel() for name in "qkv"},
        **{f"mlp.{name}_proj": ColwiseParallel() for name in ("gate", "up")},
        "self_attn.o_proj": RowwiseParallel(output_layouts=part),
        "mlp.down_proj": RowwiseParallel(output_layouts=part),
    }
    plan = {
        "model.embed_tokens": RowwiseParallel(input_layouts=whole, output_layouts=part),
        "lm_head": ColwiseParallel(input_layouts=part, output_layouts=whole),
    }
    if sequence_parallel:
        layer |= {"input_layernorm": SequenceParallel(), "post_attention_layernorm": SequenceParallel()}
        plan["model.norm"] = SequenceParallel()
    for decoder in model.model.layers:
        parallelize_module(decoder, mesh, layer)
    parallelize_module(model, mesh, plan)


def _shard(model, mesh, compute, reduce, keep):
    policy = MixedPrecisionPolicy(param_dtype=compute, reduce_dtype=reduce)
    options = {"mesh": mesh, "mp_policy": policy, "reshard_after_forward": False if keep else None}
    for module in trace.layers_of(model):
        fully_shard(module, **options)
    fully_shard(model, **options)


@contextlib.contextmanager
def _first_chunk_only():
    """Rank 0 needs the first shard of a parameter; cutting it into 1,024 takes most of the time otherwise."""
    chunk = _fsdp_param._chunk_with_empty
    _fsdp_param._chunk_with_empty = lambda tensor, parts, dim: [tensor.narrow(dim, 0, -(-tensor.size(dim) // parts))]
    try:
        yield
    finally:
        _fsdp_param._chunk_with_empty = chunk


def _make_gathered(model):
    """Makes the storages of whole layers, empty as between two steps, so that the tracker knows them."""
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.unshard()
            module.reshard()


def _gathered(model):
    for module in model.modules():
        if isinstance(module, FSDPModule):
            for group in _groups(module._get_fsdp_state()):
                for parameter in group.fsdp_params:
                    yield from parameter.all_gather_outputs


def _groups(state):
    groups = getattr(state, "_fsdp_param_groups", None)
    return groups if groups is not None else [state._fsdp_param_group] if state._fsdp_param_group else []


def _optimizer(model, optimizer):
    """One group of parameters for each kind of tensor, since the fused form takes no mixture."""
    groups = defaultdict(list)
    for parameter in model.parameters():
        if parameter.requires_grad:
            groups[parameter.device_mesh if isinstance(parameter, DTensor) else None].append(parameter)
    make = OPTIMIZERS[optimizer] if isinstance(optimizer, str) else optimizer
    return make([{"params": parameters} for parameters in groups.values()])


def _process_group(arguments):
    for argument in reversed(arguments):
        if isinstance(argument, torch.ScriptObject):
            with contextlib.suppress(RuntimeError):
                return dist.ProcessGroup.unbox(argument)
        if isinstance(argument, dist.ProcessGroup):
            return argument
        if isinstance(argument, str):
            with contextlib.suppress(RuntimeError):
                return dist.distributed_c10d._resolve_process_group(argument)
    raise LookupError(f"no process group among {arguments}")


def _local(tensor):
    return tensor._local_tensor if isinstance(tensor, DTensor) else tensor


def _bytes(tensor):
    return tensor.numel() * tensor.element_size()


def _check(config, strategy, ranks, shard, tensor, length, sequence_parallel):
    if strategy in ("zero1", "zero2"):
        raise ValueError(f"strategy={strategy!r} is DeepSpeed's own code, which is not traced: see dryrun.plan")
    if strategy not in STRATEGIES:
        raise ValueError(f"strategy={strategy!r}: choose one of {', '.join(STRATEGIES)}")
    if ranks < 2:
        raise ValueError(f"ranks={ranks}: take at least 2, or trace.training_step for one")
    for name, size, needed in (("shard", shard, "hsdp"), ("tensor", tensor, "tp_fsdp2")):
        if strategy == needed and (not size or ranks % size):
            raise ValueError(f"{name}={size}: {strategy} on {ranks} ranks needs a divisor of {ranks}")
    if strategy == "pp" and config.num_hidden_layers % ranks:
        raise ValueError(f"ranks={ranks}: {config.num_hidden_layers} layers do not divide into {ranks} stages")
    if strategy in ("tp", "tp_fsdp2"):
        split = ranks if strategy == "tp" else tensor
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        if heads % split:
            raise ValueError(f"{split} ranks cannot split {heads} key and value heads: take a divisor of {heads}")
        if sequence_parallel and length % split:
            raise ValueError(f"sequence_length={length}: {split} ranks cannot split it")
