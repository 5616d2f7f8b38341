"""What a GPU needs for a step: the traced tensors, and what comes on top of them.

On top are workspaces of cuBLAS and of kernels, the blocks that the allocator rounds to and cannot fill, buffers of NCCL,
and the CUDA context. `fit` takes three constants from published peaks: a part that grows with the tensors, a part that
does not, and the context, which only what the driver reports contains.
"""

import re
from dataclasses import dataclass

from .workload import config_of

GiB = 2**30
STATE = ("parameters", "gradients", "optimizer", "weight copies")
SHARDED = ("fsdp2", "hsdp")
DEEPSPEED = ("zero1", "zero2")
DEEPSPEED_STATE = 16  # bytes for each weight: fp32 weight, gradient and two moments, as its own estimate counts
DEEPSPEED_BUCKET = 5e8  # gradients, in 16 bits: reduce_bucket_size
GATHERED_LAYERS = 2  # whole layers that FSDP2 holds at once: the one that computes and the next
WHOLE_GRADIENT = 4  # bytes for each weight: FSDP2 adds them up in the dtype that it reduces in
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
    parts = [_of_rank(traced, workload, setting, categories) for _, categories in traced.memory.parts]
    if setting.views or setting.accumulation > 1:  # buckets are there all the time, sums from the second micro-batch on
        gradients = max(part.get("gradients", 0) for part in parts)
        parts = [{**part, "gradients": gradients} for part in parts]
    if keeps_whole_gradients(setting):
        whole = WHOLE_GRADIENT * traced.trainable / (setting.tensor * setting.pipeline)
        parts = [{**part, "gradients": whole} for part in parts[:-1]] + parts[-1:]
    for part in parts[:LOSS_PARTS]:
        _without_logits(
            part, LOGITS_SAVED.get(_loss(workload), 0) * workload.batch * workload.length * traced.vocabulary
        )
    return max(parts, key=lambda categories: sum(categories.values()))


def keeps_whole_gradients(setting):
    """Whether a step has micro-batches after which gradients are not reduced, under a strategy that shards them."""
    return setting.whole_gradients and setting.accumulation > 1 and setting.strategy in SHARDED and not setting.offload


def states(traced, workload, setting):
    """{category: most bytes} of weights, gradients and optimizer state. They need not all be there at the peak."""
    parts = [_of_rank(traced, workload, setting, categories) for _, categories in traced.memory.parts]
    return {name: max(part.get(name, 0) for part in parts) for name in STATE[:3]}


def _loss(workload):
    return "none kept" if workload.fused_loss else "fused" if workload.compiled else ""


def _without_logits(part, size):
    """Takes these bytes off the activations, and what is left off the temporaries."""
    for name in ("activations", "temporaries"):
        taken = min(size, part.get(name, 0))
        part[name] = part.get(name, 0) - taken
        size -= taken


def _of_rank(traced, workload, setting, categories):
    """What one rank holds of a part of the step: {category: bytes}."""
    split = setting.tensor * setting.pipeline
    categories = _state(traced, setting, dict(categories))
    kept = min(setting.pipeline, setting.accumulation)  # micro-batches whose activations the first stage of 1F1B holds
    found = {}
    for name, size in categories.items():
        if name in STATE:
            found[name] = size * _share_of_state(traced, workload, setting) / _shards(name, setting)
        elif name == "activations":
            found[name] = size * kept / (split * setting.sequence)
        else:
            found[name] = size / (setting.tensor * setting.sequence)
    if setting.offload:
        found.update(dict.fromkeys(STATE, 0.0))
    if setting.strategy in SHARDED and setting.data > 1 or setting.offload:
        found["gathered weights"] = _gathered(traced, workload, setting) / split
    if setting.strategy == "ddp" and not setting.views:
        found["gradient buckets"] = categories.get("gradients", 0) / split
    if setting.strategy in DEEPSPEED:
        found["gradient buckets"] = 2 * min(DEEPSPEED_BUCKET, traced.trainable)
    return found


def _gathered(traced, workload, setting):
    """16-bit weights of whole layers, and of embedding and output layer, which stay gathered from forward to backward."""
    ends = traced.vocabulary * traced.width * (1 if _tied(workload) else 2)
    layer = (traced.parameters - ends) / max(1, traced.layers) / setting.experts
    return 2 * (ends + GATHERED_LAYERS * layer)


def _tied(workload):
    return getattr(config_of(workload)[1], "tie_word_embeddings", False)


def _state(traced, setting, categories):
    """The state of the optimizer as it is held, where that is not as it was traced."""
    if setting.strategy in DEEPSPEED:
        categories["optimizer"] = DEEPSPEED_STATE * traced.trainable
        return categories
    if setting.state == "fp32":  # traced in 16 bits
        categories.update({name: 2 * categories[name] for name in STATE if name in categories})
    if "optimizer" in categories and setting.optimizer.startswith(SMALL_STATES):
        width = next(width for name, width in SMALL_STATES_BYTES.items() if setting.optimizer.startswith(name))
        categories["optimizer"] = min(categories["optimizer"], width * traced.trainable)
    return categories


def _shards(name, setting):
    """Parts that a category of the state is cut into."""
    whole = {"zero1": ("parameters", "gradients"), "zero2": ("parameters",)}.get(setting.strategy, ())
    return 1 if name in whole else setting.shards


def _share_of_state(traced, workload, setting):
    """Of a rank. A pipeline's first and last stage hold the embedding and the output layer beside their layers."""
    if setting.pipeline == 1:
        return 1 / setting.tensor
    ends = traced.vocabulary * traced.width / traced.parameters  # one of the two matrices
    body = 1 - ends * (1 if _tied(workload) else 2)
    return (body / setting.pipeline + ends) / setting.tensor


def needed(traced, workload, setting, constants):
    """`Needed` of one rank. constants: the part "memory" of data/constants.json."""
    categories = tensors(traced, workload, setting)
    expected = on_device(sum(categories.values()), constants, context=True, reserved=True)
    if setting.strategy in DEEPSPEED:  # its buffers are an estimate: no published peak says how good it is
        return Needed(categories, expected, expected * constants["high_whole"])
    sure = certain(categories)
    return Needed(categories, expected, sure + constants[band(workload, setting)] * (expected - sure))


def certain(categories):
    """Bytes of weights and optimizer state, which follow from shapes. What libraries do differently is the rest: activations,
    temporaries, when gradients go, what the allocator cannot fill."""
    return sum(categories.get(name, 0) for name in ("parameters", "optimizer"))


def band(workload, setting):
    """The name of the constant by which all but the `certain` bytes grow to the upper end, for steps of this kind."""
    if setting.gpus == 1:
        return "high"
    return "high_many_fused" if workload.compiled else "high_many_qlora" if workload.four_bit else "high_many"


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
