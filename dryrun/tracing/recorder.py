"""Notes every operator of real model code, on fake tensors, that a GPU would run as a kernel."""

from __future__ import annotations

import math
import weakref
from collections import Counter
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from ..step.kernels import Operator
from .tracker import ATTENTION_KERNELS, _attention_shapes

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


class Recorder(TorchDispatchMode):
    """Notes every operator that runs while it is active, in order."""

    operators: list[Operator]
    _numbers: dict[int, tuple[int, weakref.ref[torch.UntypedStorage]]]
    _versions: Counter[int]

    def __init__(self) -> None:
        super().__init__()
        self.operators, self.optimizing = [], False
        self._numbers, self._versions, self._made = {}, Counter(), 0

    def __torch_dispatch__(self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
        kwargs = kwargs or {}
        given = _tensors((args, kwargs))
        reads = {self._key(tensor): _touched(tensor) for tensor in given}
        storages = {id(tensor.untyped_storage()) for tensor in given}
        out = function(*args, **kwargs)
        new = [tensor for tensor in _tensors(out) if id(tensor.untyped_storage()) not in storages]
        self._note(function, args, kwargs, out, given, new, reads)
        return out

    def _key(self, tensor: torch.Tensor) -> tuple[int, int]:
        """(number of the storage, its version). A storage is one object while any tensor uses it."""
        storage = tensor.untyped_storage()
        address = id(storage)
        if address not in self._numbers:
            self._made += 1
            reference = weakref.ref(storage, lambda _: self._numbers.pop(address))
            self._numbers[address] = (self._made, reference)
        number = self._numbers[address][0]
        return number, self._versions[number]

    def _phase(self) -> str:
        if self.optimizing:
            return "optimizer"
        if torch._C._current_graph_task_id() == -1:  # private, as in `tracker`
            return "forward"
        return "recomputation" if torch.is_grad_enabled() else "backward"

    def _note(
        self,
        function: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        out: Any,
        given: list[torch.Tensor],
        new: list[torch.Tensor],
        reads: dict[tuple[int, int], int],
    ) -> None:
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


def _tensors(tree: Any) -> list[torch.Tensor]:
    """All tensors on the device: the random seed of an attention kernel is a meta tensor, in host memory."""
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor) and leaf.device.type != "meta"]


def _touched(tensor: torch.Tensor) -> int:
    """Bytes that a kernel reads or writes: an expanded dimension is read once."""
    elements = math.prod(length for length, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride)
    return min(elements * tensor.element_size(), tensor.untyped_storage().nbytes())


def _changed(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """The tensors that the operator writes in place."""
    found: list[torch.Tensor] = []
    for position, argument in enumerate(function._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = args[position] if position < len(args) else kwargs.get(argument.name)
            found += _tensors(value)
    return found


def _work(function: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> tuple[str, int, tuple[int, ...]]:
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


def _causal(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    if "is_causal" in kwargs:
        return kwargs["is_causal"]
    return (
        any(argument is True for argument in args[4:])
        if "flash" in name
        else any(argument is True for argument in args[6:])
    )


def _dtype(name: str, args: tuple[Any, ...], given: list[torch.Tensor]) -> str:
    factors = args[PRODUCTS[name] :] if name in PRODUCTS else given
    floating = (t.dtype for t in factors if isinstance(t, torch.Tensor) and t.dtype.is_floating_point)
    return str(next(floating, torch.float32)).removeprefix("torch.")
