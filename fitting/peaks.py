"""Published peaks of memory, and the constants of what comes on top of the tensors."""

from dataclasses import dataclass, field, replace

import numpy as np

from dryrun.cost import device_memory
from dryrun.cost.reserved import Peak
from dryrun.cost.traces import traced
from dryrun.tables.hardware import GiB, accelerator

from . import contexts
from .rows import run_of

# Each band, and the one that it reaches at least as far as: steps whose allocator is replayed are known better than others.
BANDS = {
    "high_replayed": "", "high_replayed_adapters": "", "high": "high_replayed", "high_adapters": "high_replayed_adapters",
    "high_many": "high_replayed", "high_many_adapters": "high_replayed_adapters",
}  # fmt: skip


@dataclass(frozen=True)
class Published:
    """A published peak, and what the same step holds by its trace. Bytes."""

    measured: float
    context: bool  # whether the CUDA context is in the published figure
    reserved: bool  # whether it is what the allocator reserved
    tensors: float
    certain: float  # of the tensors, those that are no guess
    replayed: Peak | None  # by the allocator's replay
    band: str  # the name of the band that it belongs to

    def predicted(self, constants):
        held = self.replayed or self.tensors
        return _bytes(held, constants, context=self.context, reserved=self.reserved)

    def growth(self, constants):
        """By how much the bytes that are not certain must grow to reach the published ones."""
        return (self.measured - self.certain) / (self.predicted(constants) - self.certain)


@dataclass(frozen=True)
class Failed:
    """A published step that ran out of memory."""

    held: Peak | float  # by the allocator's replay, or bytes of tensors
    certain: float  # bytes
    size: float  # bytes of the GPU
    band: str


@dataclass
class Peaks:
    """What rows say of memory."""

    published: list[Published] = field(default_factory=list)
    failed: list[Failed] = field(default_factory=list)

    def add(self, row):
        """Adds what the row says, if it is a peak whose kind is known and whose step can be traced."""
        kind, size = kind_of(row), gib(row)
        if kind and size and (held := held_by(row)):
            categories, replayed, band = held
            self.published.append(Published(size * GiB, *kind, sum(categories.values()), device_memory.certain(categories), replayed, band))

    def add_failed(self, row):
        """Adds a step that ran out of memory."""
        if held := held_by(row):
            categories, replayed, band = held
            self.failed.append(Failed(replayed or sum(categories.values()), device_memory.certain(categories), accelerator(row["gpu"]).usable, band))

    def predicted(self, constants):
        """Bytes of each peak."""
        return np.array([peak.predicted(constants) for peak in self.published])

    def errors(self, constants):
        """Logarithm of predicted over published, of each peak."""
        return np.log(self.predicted(constants) / np.array([peak.measured for peak in self.published]))


def held_by(row):
    """({category: bytes of tensors}, Peak of the replay or None, name of the band) of a row. Fused kernels of a library save for the
    backward pass what PyTorch's operators save, but for the logits: only a compiler keeps less. None where nothing can be traced."""
    try:
        workload, setting = run_of(row)
        workload = replace(workload, compiled=bool(row.get("compiled")))
        if setting.state == "fp32" and not row.get("master_weights"):  # seconds hardly say it; peaks that do not name it fit 16-bit states
            setting = replace(setting, state="")
        if row.get("kbit_prepared"):  # what layers hand on is in fp32 then; seconds leave these casts out
            workload = replace(workload, weights="float32", autocast="bfloat16")
        step = traced(workload)
    except Exception:  # `predictable` names the row
        return None
    if row.get("foreach"):  # in seconds it is a hundredth of such steps, and they count as fused
        setting = replace(setting, optimizer="adamw_foreach")
    in_place = bool(row.get("fused_kernels"))
    replayed = device_memory.replayed(step, workload, setting, contexts.constants(), loss_in_place=in_place)
    found = device_memory.tensors(step, workload, setting, in_place)
    if row.get("reentrant_fsdp1"):
        found, replayed = _with_inputs_kept(found, replayed, step, workload, setting)
    return found, replayed, device_memory.band(workload, setting, replayed is not None)


def _with_inputs_kept(found, replayed, step, workload, setting):
    """The same under FSDP1, where frozen weights are sharded and layers are checkpointed with use_reentrant=True: the input of each layer
    and its gradient stay until the backward pass ends, because the hook that reshards the weights holds them (torch/distributed/fsdp/
    _runtime_utils.py, _register_post_backward_reshard_only_hook; tests/pages/test_sharding.py sees it). By then the logits are gone."""
    gradients = 2 * step.layers * step.width * workload.batch * workload.length
    later = replace(workload, fused_loss=True)
    at_end = device_memory.tensors(step, later, setting)
    at_end["temporaries"] = at_end.get("temporaries", 0) + gradients
    found = max(found, at_end, key=lambda categories: sum(categories.values()))
    if replayed:
        other = device_memory.replayed(step, later, setting, contexts.constants())
        replayed = Peak(*(max(first, second + gradients) for first, second in zip(replayed, other, strict=True)))
    return found, replayed


def _bytes(held, constants, *, context, reserved):
    """Bytes of a peak: of what the replay says, or of that many bytes of tensors."""
    if isinstance(held, Peak):
        return (held.reserved if reserved else held.allocated) + context * constants["context"] * GiB
    return held + context * constants["context"] * GiB


def peaks(rows):
    found = Peaks()
    for row in rows:
        if row["kind"] == "train" and row.get("memory_gib"):
            found.add(row)
        elif row.get("fits") is False and "train" in row["klass"]:
            found.add_failed(row)
    return found


def memory_constants(data):
    """What a process holds beside its tensors, and of each of `BANDS` by how much all but the certain bytes grow to hold nineteen of twenty
    peaks, and every published step of its kind that ran out of memory. Of the peaks nothing else is fitted.
    """
    found = contexts.constants()
    for name, at_least in BANDS.items():
        mine = [peak for peak in data.published if peak.band == name]
        above = [float(np.quantile([peak.growth(found) for peak in mine], 0.95))] if mine else []
        of_many = (found["context_many"] - found["context"]) * GiB if name.startswith("high_many") else 0.0
        for step in (step for step in data.failed if step.band == name):
            expected = _bytes(step.held, found, context=True, reserved=not isinstance(step.held, Peak))
            above.append(1.001 * (step.size - of_many - step.certain) / (expected - step.certain))
        found[name] = round(max([1.0, *above, found.get(at_least, 1.0)]), 3)
        errors = Peaks(mine).errors(found)
        found[f"errors{name.removeprefix('high')}"] = sorted(round(float(error), 3) for error in errors)
    return found


def kind_of(row):
    """How a published peak was read: (whether the context is in it, whether it is what the allocator reserved)."""
    told = str(row.get("memory_kind") or "").lower()
    if "nvidia-smi" in told and "allocated" not in told:
        return True, True
    if "reserved" in told or "torchtitan" in told:
        return False, True
    if "allocated" in told or "active" in told or "torch peak" in told:
        return False, False
    return None


def gib(row):
    """The published peak in GiB, or None where its unit is not known."""
    return row.get("memory_gib") if row.get("memory_usable", True) else None
