"""Live bytes by category, and FLOPs, of whatever runs while a `Tracker` is active: on fake tensors or on real ones."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry, register_flop_formula

from ..step.storage_log import CATEGORIES, Storages

aten = torch.ops.aten
ATTENTION_KERNELS = {
    aten._scaled_dot_product_flash_attention,
    aten._scaled_dot_product_flash_attention_backward,
    aten._scaled_dot_product_efficient_attention,
    aten._scaled_dot_product_efficient_attention_backward,
}

if aten._grouped_mm not in flop_registry:  # a mixture's experts; torch 2.13 has no formula for them

    @register_flop_formula(aten._grouped_mm)
    def grouped_mm_flop(left_shape: Sequence[int], right_shape: Sequence[int], *args: Any, out_shape: Any = None, **kwargs: Any) -> int:
        """FLOPs of (tokens, k) times (experts, k, n): each token meets one expert."""
        return 2 * left_shape[-2] * left_shape[-1] * right_shape[-1]


class Peak(NamedTuple):
    """The highest total so far."""

    bytes: int
    by_category: Counter[str]
    born: int  # storages made by then


@dataclass(slots=True)
class LiveStorage:
    bytes: int
    category: str
    born: int  # 1 for the first storage that the tracker saw
    reference: weakref.ref[torch.UntypedStorage]  # kept, because its callback takes the storage off the account


class Tracker(TorchDispatchMode):
    """Adds up the storages that are alive while it is active, by category, and the FLOPs.

    - `parameters`: weights and buffers; `gradients`: what `.grad` holds; `optimizer`: its state
    - `activations`: what the forward pass (or its recomputation under checkpointing) allocated and still holds
    - `weight copies`: parameters in another dtype, which autocast makes and keeps for the backward pass
    - `temporaries`: everything else: intermediate results of the backward pass and of the optimizer
    """

    CATEGORIES: tuple[str, ...] = CATEGORIES
    TIMELINE_EVERY = 20  # operators

    now: Counter[str]

    def __init__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, inputs: Any = (), timeline: bool = False) -> None:
        super().__init__()
        self.live: dict[int, LiveStorage] = {}  # id of a storage -> LiveStorage
        self.now, self.total = Counter(), 0
        self.parts: list[Peak] = []  # a Peak for each part of the step that has ended
        self.flops: Counter[str] = Counter()
        self.timeline: list[dict[str, float]] = []
        self.seen: list[LiveStorage] = []  # all of them, the first one with number 1
        self.log: list[int] = []  # in order: the number of a storage that was made, minus that of one that was freed, 0 at the end of a part
        self._highest, self._born = Peak(0, Counter(), 0), 0
        self._keeps_timeline, self._operators = timeline, 0
        self._claim("parameters", [*model.parameters(), *model.buffers()])
        self._claim("inputs", tree_leaves(inputs))
        self._claim("optimizer", _state(optimizer))
        self._hooks = [
            p.register_post_accumulate_grad_hook(lambda p: self._claim("gradients", [p.grad]))
            for p in model.parameters()
            if p.requires_grad
        ]
        self._hooks.append(optimizer.register_step_post_hook(lambda *_: self._claim("optimizer", _state(optimizer))))

    def __exit__(self, *exception: Any) -> None:
        for hook in self._hooks:
            hook.remove()
        return super().__exit__(*exception)

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        self._count_flops(func, args, kwargs, out)
        if func is aten._to_copy.default and self._category(args[0]) == "parameters":
            category = "weight copies"
        else:  # autograd switches gradients off in the backward pass, and checkpointing switches them on to recompute
            category = "activations" if torch.is_grad_enabled() else "temporaries"
        for tensor in tree_leaves(out):
            if isinstance(tensor, torch.Tensor):
                self._see(tensor, category)
        self._keep_timeline()
        return out

    @property
    def peak(self) -> int:
        """Bytes at the highest moment of the part of the step that is running."""
        return self._highest.bytes

    @property
    def peak_by_category(self) -> Counter[str]:
        return self._highest.by_category

    def snapshot(self) -> dict[str, float]:
        """{category: bytes} that are alive now."""
        return self.in_order(self.now)

    def in_order(self, sizes: Counter[str]) -> dict[str, float]:
        """The categories that hold anything, in the order of `CATEGORIES`."""
        return {category: sizes[category] for category in self.CATEGORIES if sizes[category]}

    @property
    def storages(self) -> Storages:
        """What came and went until the last part ended. Storages that are freed together go in any order: here in one."""
        tidied: list[int] = []
        freed: list[int] = []
        for number in self.log:
            if number < 0:
                freed.append(number)
                continue
            tidied += [*sorted(freed, reverse=True), number]
            freed = []
        return Storages.of_log([(one.bytes, one.category) for one in self.seen], tidied)

    def part(self) -> None:
        """Ends a part of the step: its peak goes to `parts`, and the next part starts from what is alive."""
        self.log.append(0)
        self.parts.append(self._highest)
        self._mark_peak()

    def _mark_peak(self) -> None:
        self._highest = Peak(self.total, self.now.copy(), self._born)

    def _keep_timeline(self) -> None:
        if self._keeps_timeline:
            if self._operators % self.TIMELINE_EVERY == 0:
                self.timeline.append(dict(self.now))
            self._operators += 1

    def _category(self, tensor: torch.Tensor) -> str | None:
        storage = self.live.get(id(tensor.untyped_storage()))
        return storage and storage.category  # type: ignore[return-value]

    def _see(self, tensor: torch.Tensor, category: str) -> None:
        """Adds the tensor's storage, unless it is known."""
        if tensor.device.type == "meta":  # the random seed of an attention kernel, which is in host memory
            return
        storage = tensor.untyped_storage()
        key = id(storage)  # the same object as long as any tensor uses the storage
        if key in self.live:
            return
        self._born += 1
        reference = weakref.ref(storage, lambda _: self._free(key))
        self.live[key] = LiveStorage(storage.nbytes(), category, self._born, reference)
        self.seen.append(self.live[key])
        self.log.append(self._born)
        self._add(category, storage.nbytes())

    def _add(self, category: str, size: int) -> None:
        self.now[category] += size
        self.total += size
        if self.total > self.peak:
            self._mark_peak()

    def _free(self, key: int) -> None:
        storage = self.live.pop(key)
        self.log.append(-storage.born)
        self._add(storage.category, -storage.bytes)

    def _claim(self, category: str, tensors: Iterable[Any]) -> None:
        """Files the tensors' storages under `category`, now and in each peak that they were part of."""
        for tensor in tensors:
            if not isinstance(tensor, torch.Tensor):
                continue
            self._see(tensor, category)
            storage = self.live[id(tensor.untyped_storage())]
            peaks = [peak.by_category for peak in (*self.parts, self._highest) if storage.born <= peak.born]
            for counted in (self.now, *peaks):
                counted[storage.category] -= storage.bytes
                counted[category] += storage.bytes
            storage.category = category

    def _count_flops(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        formula = flop_registry.get(func.overloadpacket)
        if formula is None:
            return
        if func.overloadpacket in ATTENTION_KERNELS:
            flops = formula(*_attention_shapes(func, args))
        else:
            flops = formula(*args, **kwargs, out_val=out)
        # Private: nothing public says whether a backward pass is running. Gradients do not: checkpointing enables them.
        backward = torch._C._current_graph_task_id() != -1
        self.flops["backward" if backward else "forward"] += flops
        if backward and torch.is_grad_enabled():
            self.flops["recomputation"] += flops


def _attention_shapes(func: Any, args: tuple[Any, ...]) -> list[Any]:
    """What PyTorch's formula takes, with as many key and value heads as query heads: sharing them saves no FLOPs."""
    before = 1 if func.overloadpacket.__name__.endswith("backward") else 0  # the gradient comes first
    shapes = [tensor.shape for tensor in args[: before + 3]]
    heads = args[before].shape[1]
    return shapes[: before + 1] + [(s[0], heads, *s[2:]) for s in shapes[before + 1 :]]


def _state(optimizer: torch.optim.Optimizer) -> list[Any]:
    return [tensor for state in optimizer.state.values() for tensor in state.values()]
