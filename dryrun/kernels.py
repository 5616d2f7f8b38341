"""The kernels of one step of a model: FLOPs, shapes, bytes and how often, from a trace on fake tensors.

`Recorder` notes every operator of the real model code (see `workload`) that a GPU would run as a kernel. A deep
model is traced with few layers: each layer adds the same kernels. A compiled step has fewer kernels: `fused` joins what
lies between two matrix products, as TorchInductor does. `roofline` turns kernels into seconds.
"""

import math
import weakref
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from .tracker import ATTENTION_KERNELS, _attention_shapes

LARGEST_CACHE = 256e6  # bytes; no GPU has a larger L2
# Operators that only describe a tensor: no kernel runs.
FREE = {"empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "set_", "resize_", "lift_fresh"}
FILLS = {
    "zero_",
    "fill_",
    "zeros",
    "ones",
    "full",
    "zeros_like",
    "ones_like",
    "full_like",
    "new_zeros",
    "new_ones",
    "new_full",
}
PRODUCTS = {
    "mm": 0,
    "addmm": 1,
    "bmm": 0,
    "baddbmm": 1,
    "_grouped_mm": 0,
}  # where the left factor is among the arguments
LOOKUPS = {"embedding", "gather", "index", "index_select"}  # they read no more than they write
SEVERAL = {  # operators that are more than one kernel on a GPU
    "native_layer_norm_backward": 2,
    "_fused_rms_norm_backward": 2,
    "embedding_dense_backward": 4,
    "_scaled_dot_product_flash_attention_backward": 3,
    "_scaled_dot_product_efficient_attention_backward": 2,
}
TENSORS_A_LAUNCH = 40  # of a foreach or fused optimizer


class Kernel(NamedTuple):
    """What one launch computes and moves. Equal kernels are counted, not repeated."""

    phase: str  # forward, recomputation, backward, optimizer
    kind: str  # product, attention, memory
    dtype: str
    flops: int
    shape: tuple  # product: m, n, k, how many; attention: queries, keys, head size, causal
    bytes: int
    launches: int
    reused: tuple = ()  # (bytes touched since, bytes): reads that a cache may still hold


@dataclass
class Operator:
    name: str
    phase: str
    kind: str  # as of Kernel, or free
    dtype: str = ""
    flops: int = 0
    shape: tuple = ()
    launches: int = 1
    reads: dict = field(default_factory=dict)  # (storage, version) -> bytes
    writes: dict = field(default_factory=dict)

    @property
    def bytes(self):
        return sum(self.reads.values()) + sum(self.writes.values())


@dataclass
class Kernels:
    """The kernels of a step and how often each runs; a count may be fractional, because depth is a line."""

    counts: Counter = field(default_factory=Counter)
    dispatched: Counter = field(
        default_factory=Counter
    )  # (phase, whether it launches) -> operators that the CPU handles

    def of(self, *phases):
        return {kernel: count for kernel, count in self.counts.items() if kernel.phase in phases}

    @property
    def flops(self):
        return sum(count * kernel.flops for kernel, count in self.counts.items())


class Recorder(TorchDispatchMode):
    """Notes every operator that runs while it is active, in order."""

    def __init__(self):
        super().__init__()
        self.operators, self.optimizing = [], False
        self._numbers, self._versions, self._made = {}, Counter(), 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        given = _tensors((args, kwargs))
        reads = {self._key(tensor): _touched(tensor) for tensor in given}
        storages = {id(tensor.untyped_storage()) for tensor in given}
        out = function(*args, **kwargs)
        new = [tensor for tensor in _tensors(out) if id(tensor.untyped_storage()) not in storages]
        self._note(function, args, kwargs, out, given, new, reads)
        return out

    def _key(self, tensor):
        """(number of the storage, its version). A storage is one object while any tensor uses it."""
        storage = tensor.untyped_storage()
        address = id(storage)
        if address not in self._numbers:
            self._made += 1
            reference = weakref.ref(storage, lambda _: self._numbers.pop(address))
            self._numbers[address] = (self._made, reference)
        number = self._numbers[address][0]
        return number, self._versions[number]

    def _phase(self):
        if self.optimizing:
            return "optimizer"
        if torch._C._current_graph_task_id() == -1:  # private, as in `tracker`
            return "forward"
        return "recomputation" if torch.is_grad_enabled() else "backward"

    def _note(self, function, args, kwargs, out, given, new, reads):
        name = function._overloadpacket.__name__
        changed = _changed(function, args, kwargs)
        if name in FREE or not (changed or new):
            self.operators.append(Operator(name, self._phase(), "free", launches=0))
            return
        for tensor in changed:
            self._versions[self._key(tensor)[0]] += 1
        writes = {self._key(tensor): _touched(tensor) for tensor in [*changed, *new]}
        if name in FILLS:
            reads = {}
        elif name == "copy_" and len(given) > 1:
            reads = {key: size for key, size in reads.items() if key[0] != next(iter(writes))[0]} or reads
        elif name in LOOKUPS:
            most = sum(writes.values())
            reads = {key: min(size, most) for key, size in reads.items()}
        kind, flops, shape = _work(function, name, args, kwargs, out)
        launches = SEVERAL.get(name, 1)
        if name.startswith(("_foreach", "_fused_adam", "_fused_sgd")):
            launches = math.ceil(len(changed or new) / TENSORS_A_LAUNCH)
        operator = Operator(name, self._phase(), kind, _dtype(name, args, given), flops, shape, launches, reads, writes)
        self.operators.append(operator)


def _tensors(tree):
    """All tensors on the device: the random seed of an attention kernel is a meta tensor, in host memory."""
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor) and leaf.device.type != "meta"]


def _touched(tensor):
    """Bytes that a kernel reads or writes: an expanded dimension is read once."""
    elements = math.prod(length for length, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride)
    return min(elements * tensor.element_size(), tensor.untyped_storage().nbytes())


def _changed(function, args, kwargs):
    """The tensors that the operator writes in place."""
    found = []
    for position, argument in enumerate(function._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = args[position] if position < len(args) else kwargs.get(argument.name)
            found += _tensors(value)
    return found


def _work(function, name, args, kwargs, out):
    """(kind, FLOPs, shape) of an operator."""
    packet = function._overloadpacket
    formula = flop_registry.get(packet)
    if formula is None:
        return "memory", 0, ()
    if packet in ATTENTION_KERNELS:
        first = 1 if name.endswith("backward") else 0
        query, key = args[first], args[first + 1]
        shape = (query.shape[2], key.shape[2], query.shape[3], int(_causal(name, args, kwargs)))
        return "attention", formula(*_attention_shapes(function, args)), shape
    flops = formula(*args, **kwargs, out_val=out)
    if name not in PRODUCTS:  # a convolution
        result = next(tensor for tensor in (*_tensors(out), args[1]) if tensor.numel())
        rows = max(1, result.numel() // max(1, result.shape[1]))
        return "product", flops, (rows, result.shape[1], max(1, flops // (2 * result.numel())), 1)
    left, right = args[PRODUCTS[name] : PRODUCTS[name] + 2]
    many = left.shape[0] if left.dim() == 3 else 1
    rows = left.shape[-2]
    if name == "_grouped_mm":  # one product for each expert, of about as many rows
        many = right.shape[0] if right.dim() == 3 else max(1, flops // (2 * rows * left.shape[-1] * right.shape[-1]))
        rows = max(1, rows // many)
    return "product", flops, (rows, right.shape[-1], left.shape[-1], many)


def _causal(name, args, kwargs):
    if "is_causal" in kwargs:
        return kwargs["is_causal"]
    return (
        any(argument is True for argument in args[4:])
        if "flash" in name
        else any(argument is True for argument in args[6:])
    )


def _dtype(name, args, given):
    factors = args[PRODUCTS[name] :] if name in PRODUCTS else given
    floating = (t.dtype for t in factors if isinstance(t, torch.Tensor) and t.dtype.is_floating_point)
    return str(next(floating, torch.float32)).removeprefix("torch.")


class Reuse:
    """How far back each read was touched, in bytes moved since: a larger cache than that still holds it."""

    def __init__(self):
        self._moved, self._last = 0, {}

    def __call__(self, reads, writes):
        found = []
        for key, size in reads.items():
            distance = self._moved - self._last.get(key[0], -math.inf) + size
            if distance < LARGEST_CACHE:
                found.append((distance, size))
        self._moved += sum(reads.values()) + sum(writes.values())
        for key in (*reads, *writes):
            self._last[key[0]] = self._moved
        return tuple(sorted(found))


def eager(operators):
    """The kernels of a step that runs operator by operator."""
    found, reuse = Kernels(), Reuse()
    for operator in operators:
        found.dispatched[operator.phase, operator.kind != "free"] += 1
        if operator.kind != "free":
            found.counts[_kernel(operator, operator.reads, operator.writes, reuse)] += 1
    return found


def fused(operators):
    """The kernels of a compiled step: pointwise operators and reductions between matrix products are one kernel."""
    groups = _groups(operators)
    traffic = _traffic(operators, groups)
    _recompute_cheap(operators, groups, traffic)
    found, reuse, done = Kernels(), Reuse(), set()
    for index, operator in enumerate(operators):
        if operator.kind in ("product", "attention"):
            found.counts[_kernel(operator, operator.reads, operator.writes, reuse)] += 1
            found.dispatched[operator.phase, True] += 1
        elif operator.kind == "memory" and groups[index] not in done:
            group = groups[index]
            done.add(group)
            reads, writes = traffic[group]
            if reads or writes:
                launches = operator.launches if operator.phase == "optimizer" else 1
                joined = Operator("fused", operator.phase, "memory", operator.dtype, launches=launches)
                found.counts[_kernel(joined, reads, writes, reuse)] += 1
                found.dispatched[operator.phase, True] += 1
    return found


def _kernel(operator, reads, writes, reuse):
    size = sum(reads.values()) + sum(writes.values())
    if operator.name == "native_layer_norm_backward":  # its two kernels both read the gradient and the input
        size += sum(sorted(reads.values())[-2:])
    reused = reuse(reads, writes)
    return Kernel(
        operator.phase, operator.kind, operator.dtype, operator.flops, operator.shape, size, operator.launches, reused
    )


def _groups(operators):
    """Of each operator, the index of the first operator that its kernel holds."""
    parent = list(range(len(operators)))

    def root(index):
        while parent[index] != index:
            parent[index] = parent[parent[index]]
            index = parent[index]
        return index

    made_by, ready, level = {}, {}, []  # ready: how many matrix products lie before a tensor
    for index, operator in enumerate(operators):
        depth = max((ready.get(key, 0) for key in operator.reads), default=0)
        level.append(depth)
        if operator.kind == "memory":
            for key in operator.reads:
                maker = made_by.get(key)
                same_part = maker is not None and (operators[maker].phase == "optimizer") == (
                    operator.phase == "optimizer"
                )
                if same_part and level[maker] == depth:
                    parent[root(index)] = root(maker)
            for key in operator.writes:
                ready[key], made_by[key] = depth, index
        elif operator.kind != "free":
            for key in operator.writes:
                ready[key], made_by[key] = depth + 1, None
    return [root(index) for index in range(len(operators))]


def _readers(operators, groups):
    """Tensor -> groups and products that read it."""
    found = defaultdict(set)
    for index, operator in enumerate(operators):
        reader = groups[index] if operator.kind == "memory" else ("product", index)
        for key in operator.reads:
            found[key].add(reader)
    return found


def _traffic(operators, groups):
    """Group -> (what it reads from memory, what it writes to memory): results that stay inside do neither."""
    members, readers = defaultdict(list), _readers(operators, groups)
    for index, operator in enumerate(operators):
        if operator.kind == "memory":
            members[groups[index]].append(operator)
    traffic = {}
    for group, inside in members.items():
        made = {key: size for operator in inside for key, size in operator.writes.items()}
        reads = {key: size for operator in inside for key, size in operator.reads.items() if key not in made}
        seen = {key: size for key, size in made.items() if readers[key] - {group} or not readers[key]}
        traffic[group] = (reads, seen)
    return traffic


def _recompute_cheap(operators, groups, traffic):
    """What only fused kernels of the backward pass read is computed again there, if its inputs are no larger.

    AOTAutograd's partitioner decides so, to save memory traffic.
    """
    phase = {group: operators[group].phase for group in traffic}
    readers = _readers(operators, groups)
    for group in traffic:
        if phase[group] != "forward":
            continue
        reads, writes = traffic[group]
        crossing = {}
        for key, size in writes.items():
            others = readers[key] - {group}
            if others and all(phase.get(other) in ("backward", "recomputation") for other in others):
                crossing[key] = size
        if not crossing or sum(reads.values()) > 2 * sum(crossing.values()):
            continue
        for key in crossing:
            del writes[key]
            for other in readers[key] - {group}:
                needed = traffic[other][0]
                needed.pop(key, None)
                needed.update({read: size for read, size in reads.items() if read not in needed})


def deep(low, high, layers, depth):
    """The `Kernels` of a model of `depth` layers, given those of two shallow ones: each layer adds the same."""
    share = (depth - layers[0]) / (layers[1] - layers[0])
    return Kernels(_line(low.counts, high.counts, share), _line(low.dispatched, high.dispatched, share))


def _line(low, high, share):
    found = Counter()
    for key in low.keys() | high.keys():
        count = low.get(key, 0) + (high.get(key, 0) - low.get(key, 0)) * share
        if count:
            found[key] = count
    return found
