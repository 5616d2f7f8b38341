"""Seconds that the links of a step take, and what of the kernels is left for one rank.

Rings: a rank sends (n - 1) / n of what it gathers or scatters, and twice that of what it all-reduces. Between nodes all GPUs
of a node share its adapters, one for each GPU unless a network is given.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from ..step.kernels import Kernel
from ..tables import strategies
from ..tables.hardware import LINKS
from . import kernel_tables
from .device_memory import FOUR_BITS, computed_bytes, embeddings, keeps_whole_gradients
from .roofline import Processor, processor
from .setting import FP32_ADAPTERS

if TYPE_CHECKING:
    from ..step.workload import Traced, Workload
    from ..tables.strategies import Send
    from .setting import Setting

PCIE = 31.5e9  # bytes/s in one direction, version 4 with 16 lanes, where a GPU has no other link
ADAPTER = {"hopper": 50e9, "blackwell": 50e9}  # bytes/s of a GPU's network adapter in published clusters
OLDER_ADAPTER = 25e9
# Of a slot's peak, what collectives reach that pass through host memory. GeForce cards have no peer-to-peer access. Derived
# from two runs of GPT-2 on TITAN RTX, of which one had no such access; notebooks/many_gpus.py has the arithmetic.
STAGED = 0.21
REDUCED_IN_LAYER = 2  # all-reduces of activations in each direction of a layer under tensor parallelism


class Seconds(NamedTuple):
    """At the links' peaks."""

    every: float = 0.0  # overlaps with each micro-batch
    once: float = 0.0  # overlaps with the last backward pass
    alone: float = 0.0  # each micro-batch waits for it
    after: float = 0.0  # each step waits for it
    latency: float = 0.0  # seconds, whatever the links' peaks, that each micro-batch waits


def of_step(traced: Traced, workload: Workload, setting: Setting) -> Seconds:
    """The `Seconds` of each micro-batch and step."""
    if setting.gpus <= 1 and not setting.offload:
        return Seconds()
    gpu = processor(setting.gpu)
    found = _of_data(traced, workload, setting, gpu) if workload.kind == "train" else Seconds()
    sent, latency = _tensor_parallel(traced, workload, setting, gpu)
    alone = found.alone + sent
    alone += _of_sequence(traced, workload, setting, gpu) + _of_experts(traced, workload, setting, gpu)
    alone += _of_stages(traced, workload, setting, gpu)
    found = found._replace(alone=alone, latency=latency)
    return _with_host(found, traced, workload, setting, gpu) if setting.offload else found


def _of_data(traced: Traced, workload: Workload, setting: Setting, gpu: Processor) -> Seconds:
    """What data-parallel ranks send: gathered weights, gradients."""
    if setting.data <= 1:
        return Seconds()
    chosen = strategies.strategy(setting.strategy or "ddp")
    everywhere, at_home = _parameters(traced, setting)
    found = dict.fromkeys(Seconds._fields, 0.0)
    whole = keeps_whole_gradients(setting)  # then they are reduced in the last micro-batch alone
    in_node = max(1, setting.gpus_per_node // setting.tensor)
    for send in chosen.sends:
        size = _sent(send, traced, workload, setting) * everywhere / (setting.tensor * setting.pipeline)
        when = strategies.LAST if whole and send.of == "trained" else send.when
        if when == strategies.LAST and not setting.buckets:
            when = strategies.AFTER
        if send.between_nodes:  # a shard of a node
            found[when] += _seconds(size / in_node * (setting.nodes - 1) / setting.nodes, setting.nodes, 1, gpu, setting)
        else:
            found[when] += _seconds(size, in_node if chosen.in_node else setting.data, in_node, gpu, setting)
    same = setting.data // setting.experts  # ranks that hold the same experts
    if at_home and same > 1:
        experts = (2 * 2 + 4) * traced.parameters * at_home / setting.experts
        found["every"] += _seconds(experts, same, 1, gpu, setting)
    return Seconds(**found)


def _sent(send: Send, traced: Traced, workload: Workload, setting: Setting) -> float:
    """Bytes of what a collective gathers or reduces, an all-reduce twice."""
    if send.of == "all":  # the forward passes of a reference gather once more each
        return _gathered(traced, workload) * (send.times + workload.references)
    return (send.width or _gradient_bytes(workload, setting)) * send.times * traced.trainable


def _gradient_bytes(workload: Workload, setting: Setting) -> int:
    """Of one number, as wide as the weight that it changes."""
    return 4 if workload.weights == "float32" or setting.state in ("fp32", FP32_ADAPTERS) else 2


def _parameters(traced: Traced, setting: Setting) -> tuple[float, float]:
    """(share of the parameters that all data-parallel ranks gather, share in experts that stay where they are)."""
    if setting.experts == 1:
        return 1.0, 0.0
    share = traced.experts.parameters / traced.parameters  # type: ignore[union-attr]
    return 1 - share, share


def _gathered(traced: Traced, workload: Workload) -> float:
    """Bytes of the weights as they are sent: as they are computed with, or the 4 bits that those of layers are stored in."""
    return _bytes(traced, workload, computed_bytes(workload))


def _bytes(traced: Traced, workload: Workload, width: int) -> float:
    """Of all weights, `width` bytes each where they are not stored in 4 bits."""
    return width * embeddings(traced) + (FOUR_BITS if workload.four_bit else width) * (traced.parameters - embeddings(traced))


def _seconds(sent: float, ranks: int, inside: int, gpu: Processor, setting: Setting) -> float:
    if ranks <= inside:
        return sent * (ranks - 1) / ranks / _link(gpu, setting)
    across = sent / (inside * _adapter(gpu, setting))
    return max(across, sent / _link(gpu, setting)) if inside > 1 else across


def _link(gpu: Processor, setting: Setting) -> float:
    return setting.link or gpu.link or PCIE


def assumed(setting: Setting, share: float) -> tuple[float, float]:
    """(bytes/s of the link between GPUs, bytes/s of each GPU's share of the network), as somebody would measure them who reaches this share of
    their peaks."""
    gpu = processor(setting.gpu)
    return share * _link(gpu, setting), share * _adapter(gpu, setting)


def _adapter(gpu: Processor, setting: Setting) -> float:
    """Bytes per second that a GPU's share of the network takes."""
    return setting.network or setting.link or adapter(gpu)


def adapter(gpu: Processor) -> float:
    """Bytes/s of a GPU's share of the network in published clusters."""
    return ADAPTER.get(gpu.architecture, OLDER_ADAPTER)


def _tensor_parallel(traced: Traced, workload: Workload, setting: Setting, gpu: Processor) -> tuple[float, float]:
    """(seconds of its bytes at the link's peak, seconds of its calls)."""
    if setting.tensor == 1:
        return 0.0, 0.0
    passes = 1 if workload.kind != "train" else 3 if workload.checkpointing else 2
    tokens = workload.batch * max(1, workload.length) / setting.sequence
    layers = traced.layers / setting.pipeline
    calls = passes * REDUCED_IN_LAYER * layers
    reduced = calls * computed_bytes(workload) * tokens * traced.width
    sent = 2 * reduced * (setting.tensor - 1) / setting.tensor / _link(gpu, setting)
    return sent, calls * kernel_tables.all_reduce(gpu, setting.tensor)


def _of_sequence(traced: Traced, workload: Workload, setting: Setting, gpu: Processor) -> float:
    """Keys and values of the other parts of a sequence: gathered in each pass, and their gradients sent back."""
    ranks = setting.sequence
    if ranks == 1:
        return 0.0
    passes = 4 if workload.checkpointing else 3
    size = passes * (traced.keys + traced.window_keys) * workload.batch * workload.length / (setting.tensor * setting.pipeline)
    return size * (ranks - 1) / ranks / _link(gpu, setting)


def _of_experts(traced: Traced, workload: Workload, setting: Setting, gpu: Processor) -> float:
    """Each token goes to its experts and back, in each pass."""
    if setting.experts == 1:
        return 0.0
    passes = 6 if workload.checkpointing else 4
    tokens = workload.batch * workload.length * traced.experts.chosen  # type: ignore[union-attr]
    size = passes * traced.layers * tokens * 2 * traced.width
    return size * (setting.experts - 1) / setting.experts / _link(gpu, setting)


def _of_stages(traced: Traced, workload: Workload, setting: Setting, gpu: Processor) -> float:
    """An activation forward and its gradient back, from each virtual stage. Published pipelines name no network, and theirs hide it."""
    if setting.pipeline == 1 or not setting.network:
        return 0.0
    sent = 2 * 2 * workload.batch * workload.length * traced.width / setting.tensor
    return setting.virtual_stages * sent / _adapter(gpu, setting)


def _with_host(found: Seconds, traced: Traced, workload: Workload, setting: Setting, gpu: Processor) -> Seconds:
    """Shards wait in host memory: weights come twice, as they are stored, gradients go back. Beside NVLink, or through the same slot."""
    host = LINKS.get(str(setting.gpu.get("host_link")).replace(".0 ", " "))
    stored = 4 if workload.weights == "float32" or setting.state == "fp32" else 2
    moved = (2 * _bytes(traced, workload, stored) + _gradient_bytes(workload, setting) * traced.trainable) / setting.shards
    seconds = moved / (host.gb_per_s * 1e9 if host else PCIE)
    shared = seconds + found.every if _link(gpu, setting) <= PCIE else max(seconds, found.every)
    return found._replace(every=shared)


def of_rank(kernels: Mapping[Kernel, float], setting: Setting, traced: Traced, workload: Workload) -> Mapping[Kernel, float]:
    """The kernels of one rank, where ranks split matrices, layers and sequences."""
    if setting.tensor == setting.pipeline == setting.sequence == 1:
        return kernels
    found: dict[Kernel, float]
    parts, found = setting.tensor * setting.sequence, {}
    logits = 2 * workload.batch * workload.length * traced.vocabulary
    for kernel, count in kernels.items():
        ends = setting.pipeline > 1 and not setting.even and traced.vocabulary
        of_loss = count < traced.layers and kernel.bytes >= logits  # a layer's kernels may move as much, and each layer has them
        whole = ends and (traced.vocabulary in kernel.shape or of_loss)  # they are on the last stage
        shape = kernel.shape
        if kernel.kind == "product":
            rows, columns = max(1, shape[0] // setting.sequence), max(1, shape[1] // setting.tensor)
            shape = (rows, columns, *shape[2:])
        small = Kernel(
            kernel.phase, kernel.kind, kernel.dtype, kernel.flops // parts, shape, kernel.bytes // parts, kernel.launches
        )  # fmt: skip
        found[small] = found.get(small, 0) + count / (1 if whole else setting.pipeline)
    return found


def bubble(setting: Setting) -> float:
    """How much longer a step is because stages of a pipeline wait. Each waits for a virtual stage of the others, which is shorter."""
    return 1 + (setting.pipeline - 1) / max(1, setting.accumulation * setting.virtual_stages)
