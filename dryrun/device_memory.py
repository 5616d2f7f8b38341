"""What a GPU needs for a step: the traced tensors, and what comes on top of them.

On top are workspaces of cuBLAS and of kernels, the blocks that the allocator rounds to and cannot fill, buffers of NCCL,
and the CUDA context. `fit` takes three constants from published peaks: a part that grows with the tensors, a part that
does not, and the context, which only what the driver reports contains.
"""

import re
from dataclasses import dataclass

GiB = 2**30
STATE = ("parameters", "gradients", "optimizer", "weight copies")
GATHERED_LAYERS = 2  # whole layers that FSDP2 holds at once: the one that computes and the next
LOSS_PARTS = 2  # of a step: the forward pass and the first half of the backward pass hold the logits
# Bytes for each logit that a loss does not keep: a fused one holds one fp32 copy fewer, a chunked one holds no logits.
LOGITS_SAVED = {"fused": 4, "none kept": 10}
SMALL_STATES_BYTES = {"adam8bit": 2.1, "adamfp8": 2.1, "adam4bit": 1.1, "sgd_momentum": 4, "sgd": 0}  # for each weight
SMALL_STATES = tuple(SMALL_STATES_BYTES)


@dataclass(frozen=True)
class Needed:
    categories: dict  # bytes of tensors at the peak
    expected: float  # bytes on the GPU, as nvidia-smi shows them
    high: float  # and with the upper end of the band

    def fits(self, size):
        """Whether a GPU of this many bytes is large enough, by the upper end."""
        return self.high <= size


def tensors(traced, workload, setting):
    """{category: bytes} at the peak of one rank."""
    parts = [_of_rank(traced, setting, categories) for _, categories in traced.memory.parts]
    for part in parts[:LOSS_PARTS]:
        _without_logits(
            part, LOGITS_SAVED.get(_loss(workload), 0) * workload.batch * workload.length * traced.vocabulary
        )
    return max(parts, key=lambda categories: sum(categories.values()))


def _loss(workload):
    return "none kept" if workload.fused_loss else "fused" if workload.compiled else ""


def _without_logits(part, size):
    """Takes these bytes off the activations, and what is left off the temporaries."""
    for name in ("activations", "temporaries"):
        taken = min(size, part.get(name, 0))
        part[name] = part.get(name, 0) - taken
        size -= taken


def _of_rank(traced, setting, categories):
    split = setting.tensor * setting.pipeline
    shards = setting.gpus // split if setting.strategy == "fsdp2" else 1
    categories = dict(categories)
    if "optimizer" in categories and setting.optimizer.startswith(SMALL_STATES):
        width = next(width for name, width in SMALL_STATES_BYTES.items() if setting.optimizer.startswith(name))
        categories["optimizer"] = min(categories["optimizer"], width * traced.trainable)
    found = {}
    for name, size in categories.items():
        found[name] = size / split if name in STATE or name == "activations" else size / setting.tensor
        if name in STATE:
            found[name] /= shards
    if shards > 1:
        layer = 2 * traced.parameters / split / max(1, traced.layers)
        found["gathered weights"] = GATHERED_LAYERS * layer
    if setting.strategy == "ddp":
        found["gradient buckets"] = categories.get("gradients", 0) / split
    return found


def needed(traced, workload, setting, constants):
    """`Needed` of one rank. constants: the part "memory" of data/constants.json."""
    categories = tensors(traced, workload, setting)
    total = sum(categories.values())
    expected = on_device(total, constants, context=True, reserved=True)
    return Needed(categories, expected, expected * constants["high" if setting.gpus == 1 else "high_many"])


def on_device(total, constants, *, context, reserved):
    """Bytes of a peak with `total` bytes of tensors: allocated, or reserved by the allocator, or with the context."""
    size = total + constants["workspace"] * GiB
    if reserved:
        size *= 1 + constants["rounding"]
    return size + (constants["context"] * GiB if context else 0)


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


def driver_gib(row):
    """What nvidia-smi showed, in a row that prints it beside the allocator's peak."""
    found = re.search(r"nvidia-smi ([\d.]+) GiB", str(row.get("memory_kind") or ""))
    return float(found[1]) if found else None


def gib(row):
    """The published peak in GiB, or None where its unit is not known."""
    return row.get("memory_gib") if row.get("memory_usable", True) else None
