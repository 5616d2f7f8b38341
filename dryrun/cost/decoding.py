"""A decoded token as engines make it: a few fused kernels a layer, which read weights and KV cache once.

Each product and each attention takes what tables say that it takes alone: a floor, then its bytes. How long floors are in a step with
its small kernels (norms, rotary, activation), what a CPU adds that launches each kernel, and what a server's scheduler does between two
steps are constants that are fitted on steps. PyTorch's own operators, one by one, are no engine: those are in `runs`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from . import kernel_tables
from .communication import PCIE
from .elementwise import Numbers, minimum, where
from .roofline import experts_hit, processor

if TYPE_CHECKING:
    from ..step.workload import Traced, Workload
    from .setting import Setting

# Hosts of fused kernels: CUDA graphs of torch.compile; an engine with all-reduces of its own in its graphs; such an engine behind a
# scheduler in Python, before 2025 and since; llama.cpp as it is since 2025, with graphs and NCCL's all-reduce;
# or kernels that the CPU launches one by one.
ENGINES = ("graphs", "engine", "server", "old server", "llama.cpp", "c++")
OWN_SUMS = ("engine", "server", "old server")
# GPUs of which no decoding is predicted, and why: Qwen's page of May 2025 has an H20 read 1.4 of its 4 TB/s, at every size from 0.6B to 32B.
UNEXPLAINED = {"h20": "what is published of it is less than half of what its data sheet would give, and nobody says why"}
PRODUCTS = 4  # of a layer: queries, keys and values; their output; gate and up; down
SUMS = 2  # all-reduces of a layer under tensor parallelism
ENDS_IN_16_BITS = 2.0  # bytes for each weight of the output layer


class Token(NamedTuple):
    """One step of decoding on each GPU, or columns of many. Seconds, but for what the fitted constants multiply."""

    weights: Numbers = 0.0  # at the peak of the bandwidth
    cache: Numbers = 0.0
    weights_share: Numbers = 1.0  # of the bandwidth, as tables say
    cache_share: Numbers = 1.0
    compute: Numbers = 0.0  # at the peak
    floors: Numbers = 0.0
    sums: Numbers = 0.0  # the latency of all-reduces
    sent: Numbers = 0.0  # and their bytes at the link's peak
    unpacked: Numbers = 0.0  # weights that tensor cores do not take as they are stored, at one fp32 operation each
    layers: Numbers = 0.0
    mixtures: Numbers = 0.0  # layers with experts
    compiled: Numbers = 0.0  # whether torch.compile made the kernels
    launched: Numbers = 0.0  # whether the CPU launches each kernel
    scheduled: Numbers = 0.0  # whether a server schedules between two steps
    scheduled_before: Numbers = 0.0  # and one from before 2025
    sequences: Numbers = 0.0


def token(traced: Traced, workload: Workload, setting: Setting) -> Token:
    """One token of each sequence of a batch."""
    gpu, ranks = processor(setting.gpu), setting.tensor
    product = kernel_tables.product(gpu, setting.precision, workload.batch)
    cache = kernel_tables.cache(gpu)
    stored, _ = weights_read(traced, workload)
    as_stored = kernel_tables.multiplies(gpu, setting.precision)
    peak = gpu.fp8 if as_stored and setting.weight_bytes < 2 else gpu.half
    cached_bytes = traced.cache_on_each(setting.context, ranks) * workload.batch
    return Token(
        bytes_read(traced, workload, setting) / ranks / gpu.bandwidth,
        cached_bytes / gpu.bandwidth,
        product.share,
        cache.share,
        traced.kernels.flops / ranks / peak,
        traced.layers * (PRODUCTS * product.floor + cache.floor),
        *_sums(traced, workload, setting),
        stored / ranks / gpu.fp32 if setting.weight_bytes < 2 and not as_stored else 0.0,
        traced.layers,
        traced.layers if traced.experts else 0,
        setting.host == "graphs",
        setting.host == "c++",
        setting.host == "server",
        setting.host == "old server",
        workload.batch,
    )


def bytes_read(traced: Traced, workload: Workload, setting: Setting) -> float:
    """Bytes of the weights that one token of each sequence reads, of all ranks."""
    stored, ends = weights_read(traced, workload)
    of_layers = stored * setting.weight_bytes
    if setting.rest_bytes:
        of_layers += (stored - experts_read(traced, workload)) * (setting.rest_bytes - setting.weight_bytes)
    return of_layers + ends * (setting.weight_bytes if setting.whole_model else ENDS_IN_16_BITS)


def weights_read(traced: Traced, workload: Workload) -> tuple[float, float]:
    """(weights that the products of layers read, those of the output layer), of all ranks. Zero of both where neither is known."""
    if not traced.kernels.counts and traced.dense_weights:
        experts = traced.experts
        hit = experts.parameters * experts_hit(workload.batch, experts.chosen, experts.number) / experts.number if experts else 0.0
        return traced.dense_weights + hit, traced.vocabulary * traced.width
    layers = ends = 0.0
    for kernel, count in traced.kernels.counts.items():
        if kernel.kind != "product":
            continue
        _, n, k, many = kernel.shape
        if traced.experts and many == traced.experts.number:
            layers += count * n * k * experts_hit(workload.batch, traced.experts.chosen, many)
        elif n == traced.vocabulary:
            ends += count * n * k
        elif many == 1:
            layers += count * n * k
    return layers, ends


def experts_read(traced: Traced, workload: Workload) -> float:
    """Of the weights that the products of layers read, those of experts."""
    if not traced.experts:
        return 0.0
    products = ((kernel.shape, count) for kernel, count in traced.kernels.counts.items() if kernel.kind == "product")
    hit = experts_hit(workload.batch, traced.experts.chosen, traced.experts.number)
    return sum(count * shape[1] * shape[2] * hit for shape, count in products if shape[3] == traced.experts.number)


def _sums(traced: Traced, workload: Workload, setting: Setting) -> tuple[float, float]:
    """(latency, seconds of the bytes at the link's peak) of all-reduces of the hidden state."""
    ranks = setting.tensor
    if ranks == 1:
        return 0.0, 0.0
    gpu, count = processor(setting.gpu), SUMS * traced.layers + 1
    size = 2 * workload.batch * traced.width
    sent = 2 * size * (ranks - 1) / ranks / (setting.link or gpu.link or PCIE)
    return count * kernel_tables.all_reduce(gpu, ranks, graphs=setting.host in OWN_SUMS), count * sent


def seconds(of: Token, constants: Mapping[str, float]) -> dict[str, Numbers]:
    """{what binds: seconds} of a token, or of columns of them. Their sum is what it takes."""
    weights, cache = (minimum(1.0, share * constants["streaming"]) for share in (of.weights_share, of.cache_share))
    read = of.weights / weights
    multiplied = of.compute / constants["product"]
    first = multiplied > read
    unpacked = of.unpacked * constants["unpack"]
    longer = where(of.compiled, constants["compiled_floors"], constants["floors"])
    launches = of.floors * longer + of.layers * of.launched * constants["layer_launched"]
    launches = launches + of.mixtures * constants["layer_experts"] + of.scheduled_before * constants["old_server_step"]
    launches = launches + of.scheduled * (constants["server_step"] + constants["server_sequence"] * of.sequences)
    return {
        "compute": where(first, multiplied, 0.0) + unpacked,
        "bandwidth": where(first, 0.0, read) + of.cache / cache,
        "launches": launches,
        "communication": of.sums + of.sent / constants["link"],
    }
