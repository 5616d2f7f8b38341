"""By how much storages of the step that runs are larger than traced: a loss that keeps no logits, and kernels of a compiler, make less than
PyTorch's operators, one by one."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..step.storage_log import Storages
    from ..step.workload import Traced, Workload
    from .setting import Setting

NONE_KEPT, COMPILED, IN_PLACE = "none kept", "compiled", "in place"  # what a loss does with the logits
Factors = tuple[tuple[int, float], ...]  # (number of a storage, how many times as large as traced; 0: it is not made)


def factors(traced: Traced, workload: Workload, setting: Setting, loss_in_place: bool = False) -> Factors:
    """Of the storages that change. loss_in_place: a library's kernel writes the gradient of the logits over them."""
    storages: Storages = traced.memory.storages  # type: ignore[union-attr, assignment]
    logits = workload.batch * workload.length * traced.vocabulary
    of_loss = _of_loss(storages, logits, _loss(workload, setting, loss_in_place))
    if not workload.compiled:
        return of_loss
    shares = tuple((phase, fused / eager if eager else 1.0) for phase, (eager, fused) in traced.kept.items())
    return _of_activations(storages, logits, shares) + of_loss


def _loss(workload: Workload, setting: Setting, in_place: bool) -> str:
    if workload.fused_loss:
        return NONE_KEPT
    return COMPILED if workload.compiled and not setting.eager_loss else IN_PLACE if in_place else ""


@lru_cache(maxsize=64)
def _of_loss(storages: Storages, logits: int, loss: str) -> Factors:
    narrow, wide = storages.logits(2 * logits), storages.logits(4 * logits)  # in 16 bits, and in fp32
    if loss == NONE_KEPT:
        return tuple((number, 0.0) for number in (*narrow, *wide))
    if loss == COMPILED and narrow:  # fp32 stays in registers; the 16-bit logits wait until their gradient, the last storage, has been used
        return (*((number, 0.0) for number in wide), (max(narrow), 2.0))
    if loss == COMPILED:  # a product writes fp32 logits, which wait, and another one reads their gradient
        return tuple((number, float(kept or number == max(wide))) for number, kept in wide.items())
    if loss == IN_PLACE and narrow:  # an fp32 copy fewer in the forward pass, and in the backward pass
        return tuple((number, 0.0) for number in wide if number in (min(wide), max(wide)))
    return ()


@lru_cache(maxsize=64)
def _of_activations(storages: Storages, logits: int, shares: tuple[tuple[str, float], ...]) -> Factors:
    """shares: (phase, the share of what it keeps that fused kernels keep): see `fusion.kept`."""
    of_phase, of_loss = dict(shares), storages.logits(2 * logits).keys() | storages.logits(4 * logits).keys()
    kept = ((number, kept) for number, kept in storages.activations().items() if number not in of_loss)
    return tuple((number, of_phase["forward" if forward else "recomputation"]) for number, forward in kept)
