"""Seconds that the links of a step take, and what of the kernels is left for one rank.

Rings: a rank sends (n - 1) / n of what it gathers or scatters. Between nodes all GPUs of a node share its adapters, one
for each GPU unless a link is given.
"""

from .kernels import Kernel
from .roofline import processor

PCIE = 31.5e9  # bytes/s in one direction, version 4 with 16 lanes, where a GPU has no other link
ADAPTER = {"hopper": 50e9, "blackwell": 50e9}  # bytes/s of a GPU's network adapter in published clusters
OLDER_ADAPTER = 25e9
REDUCED_IN_LAYER = 2  # all-reduces of activations in each direction of a layer under tensor parallelism


def of_step(traced, workload, setting):
    """(seconds at the links' peak that overlap with each micro-batch, once per step, and with nothing)."""
    if setting.gpus <= 1:
        return 0.0, 0.0, 0.0
    gpu = processor(setting.gpu)
    data = setting.gpus // (setting.tensor * setting.pipeline)
    share = 1 / (setting.tensor * setting.pipeline)
    every = once = 0.0
    if workload.kind == "train" and data > 1:
        inside = max(1, setting.gpus_per_node // setting.tensor)
        if setting.strategy == "fsdp2":  # two all-gathers in 16 bits, one reduce-scatter in fp32
            gathered = 2 * 2 * traced.parameters + 4 * traced.trainable
            every = _seconds(gathered * share, data, inside, gpu, setting)
        else:  # one all-reduce of the gradients, which are as wide as the weights
            width = 4 if workload.weights == "float32" else 2
            once = _seconds(2 * width * traced.trainable * share, data, inside, gpu, setting)
    return every, once, _tensor_parallel(traced, workload, setting, gpu)


def _seconds(sent, ranks, inside, gpu, setting):
    if ranks <= inside:
        return sent * (ranks - 1) / ranks / (setting.link or gpu.link or PCIE)
    return sent / (inside * (setting.link or ADAPTER.get(gpu.architecture, OLDER_ADAPTER)))


def _tensor_parallel(traced, workload, setting, gpu):
    if setting.tensor == 1:
        return 0.0
    passes = 1 if workload.kind != "train" else 3 if workload.checkpointing else 2
    tokens = workload.batch * max(1, workload.length)
    layers = traced.layers / setting.pipeline
    reduced = passes * REDUCED_IN_LAYER * layers * 2 * tokens * traced.width
    return 2 * reduced * (setting.tensor - 1) / setting.tensor / (setting.link or gpu.link or PCIE)


def of_rank(kernels, setting):
    """The kernels of one rank, where ranks split matrices and layers."""
    if setting.tensor == setting.pipeline == 1:
        return kernels
    found = {}
    for kernel, count in kernels.items():
        shape = kernel.shape
        if kernel.kind == "product":
            shape = (shape[0], max(1, shape[1] // setting.tensor), *shape[2:])
        small = Kernel(
            kernel.phase, kernel.kind, kernel.dtype, kernel.flops // setting.tensor, shape, kernel.bytes // setting.tensor,
            kernel.launches,
        )  # fmt: skip
        found[small] = found.get(small, 0) + count / setting.pipeline
    return found


def bubble(setting, virtual=1):
    """How much longer a step is because stages of a pipeline wait."""
    return 1 + (setting.pipeline - 1) / max(1, setting.accumulation * virtual)
