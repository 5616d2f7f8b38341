"""What a rank hands to each collective, and what it holds: a `Tracker` that knows DTensor, FSDP2 and process groups."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._sharding_prop import ShardingPropagator
from torch.utils._pytree import tree_leaves

from .tracker import Tracker

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
RING_ROUNDS = {"all-reduce": 2, "all-gather": 1, "reduce-scatter": 1, "all-to-all": 1}


@dataclass
class Collective:
    """All collectives of one kind over groups of one size, in one step of one rank."""

    kind: str  # all-reduce, all-gather, reduce-scatter, all-to-all, broadcast, send, receive
    group: int  # ranks that take part
    dimension: str  # of the device mesh: shard, replicate, tensor, pipeline
    count: int = 0
    payload: int = 0  # bytes of the whole tensors: what all-reduce reduces, all-gather yields, reduce-scatter takes

    @property
    def sent(self) -> float:
        """Bytes that a rank sends when the collective goes round a ring; it receives as many."""
        if self.kind not in RING_ROUNDS:
            return self.payload
        return self.payload * RING_ROUNDS[self.kind] * (self.group - 1) / self.group


class RankTracker(Tracker):
    """A `Tracker` that knows shards (DTensor), storages that FSDP2 frees and allocates again, and collectives.

    Two more categories: `gathered weights`, the whole layers that FSDP2 gathers from shards, and `gradient buckets` of
    DDP. Works on real tensors and a real process group too.
    """

    CATEGORIES = (*Tracker.CATEGORIES[:5], "gathered weights", "gradient buckets", *Tracker.CATEGORIES[5:])

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        inputs: Any = (),
        dimensions: dict[str, str] | None = None,
    ) -> None:
        self.collectives: dict[tuple[str, int, str], Collective] = {}
        self._dimensions = dimensions or {}  # name of a process group -> dimension of the mesh
        self._paused = False
        self._patches = contextlib.ExitStack()
        super().__init__(model, optimizer, inputs)
        self._claim_gathered_weights(model)

    def __enter__(self) -> RankTracker:
        self._patches.enter_context(_calls_after_resize(self._resized))
        self._patches.enter_context(_around_shape_propagation(self._pause))
        return super().__enter__()

    def __exit__(self, *exception: Any) -> None:
        self._patches.close()
        return super().__exit__(*exception)

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented  # DTensor first: its operators on the shards come here again
        if self._paused:
            return func(*args, **(kwargs or {}))
        out = super().__torch_dispatch__(func, types, args, kwargs)
        if func.namespace in NAMESPACES:
            kind = KINDS.get(func.overloadpacket.__name__)
            if kind:
                self._count_collective(kind, args, kwargs or {}, out)
        return out

    def add(self, kind: str, group: int, dimension: str, payload: int) -> None:
        """Counts one collective."""
        entry = self.collectives.setdefault((kind, group, dimension), Collective(kind, group, dimension))
        entry.count += 1
        entry.payload += payload

    @contextlib.contextmanager
    def _pause(self) -> Iterator[None]:
        self._paused = True
        try:
            yield
        finally:
            self._paused = False

    def _claim(self, category: str, tensors: Iterable[Any]) -> None:
        super()._claim(category, map(_local, tensors))

    def _claim_gathered_weights(self, model: torch.nn.Module) -> None:
        """FSDP2 uses one storage for a gathered parameter in every step; between two steps it is empty. To know it, gather
        once: on real ranks, where that is a collective, all of them make a tracker."""
        for module in model.modules():
            if isinstance(module, FSDPModule):
                shards = set(module.parameters())
                module.unshard()
                gathered = set(module.parameters()) - shards
                module.reshard()
                self._claim("gathered weights", gathered)

    def _resized(self, storage: torch.UntypedStorage) -> None:
        known = self.live.get(id(storage))
        if known is None:
            return
        grown = storage.nbytes() - known.bytes
        self._born += 1
        known.bytes, known.born = storage.nbytes(), self._born
        self._add(known.category, grown)

    def _count_collective(self, kind: str, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        group = _process_group([*args, *kwargs.values()])
        sizes = [sum(t.nbytes for t in tree_leaves(part) if isinstance(t, torch.Tensor)) for part in (*args, out)]
        # Some forms take the tensor that they fill as an argument, others return it.
        named_twice = kind in ("all-gather", "reduce-scatter", "all-to-all")
        payload = max(sizes) if named_twice else sum(sizes[:-1]) or sizes[-1]
        self.add(kind, group.size(), self._dimensions.get(group.group_name, ""), payload)


@contextlib.contextmanager
def _calls_after_resize(callback: Callable[[torch.UntypedStorage], None]) -> Iterator[None]:
    """FSDP2 frees and allocates by resizing storages, which no dispatch mode sees. PyTorch's MemTracker patches it too."""
    resize = torch.UntypedStorage.resize_

    def resize_and_tell(storage: torch.UntypedStorage, size: int) -> None:
        resize(storage, size)
        callback(storage)

    torch.UntypedStorage.resize_ = resize_and_tell
    try:
        yield
    finally:
        torch.UntypedStorage.resize_ = resize


@contextlib.contextmanager
def _around_shape_propagation(context: Callable[[], contextlib.AbstractContextManager[None]]) -> Iterator[None]:
    """DTensor learns the shape of a result by running the operator on fake tensors of the whole size: no rank holds those."""
    propagate = ShardingPropagator._propagate_tensor_meta_non_cached

    def propagate_inside(self: Any, schema: Any) -> Any:
        with context():
            return propagate(self, schema)

    ShardingPropagator._propagate_tensor_meta_non_cached = propagate_inside
    try:
        yield
    finally:
        ShardingPropagator._propagate_tensor_meta_non_cached = propagate


def _process_group(arguments: list[Any]) -> dist.ProcessGroup:
    """The group that a collective's operator names: as a wrapped C++ object, as the group itself or by its name."""
    for argument in reversed(arguments):
        if isinstance(argument, torch.ScriptObject):
            with contextlib.suppress(RuntimeError):
                return dist.ProcessGroup.unbox(argument)
        if isinstance(argument, dist.ProcessGroup):
            return argument
        if isinstance(argument, str):
            with contextlib.suppress(
                RuntimeError
            ):  # private: functional collectives name their group, nothing public looks it up
                return dist.distributed_c10d._resolve_process_group(argument)
    raise LookupError(f"no process group among {arguments}")


def _local(tensor: Any) -> Any:
    with torch.no_grad():  # then it is the shard itself, not a view with a history
        return tensor.to_local() if isinstance(tensor, DTensor) else tensor
