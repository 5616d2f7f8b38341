"""Seconds that the links of a step take, and what of the kernels is left for one rank.

Rings: a rank sends (n - 1) / n of what it gathers or scatters, and twice that of what it all-reduces. Between nodes all GPUs
of a node share its adapters, one for each GPU unless a network is given.
"""

from typing import NamedTuple

from . import workload as workloads
from .device_memory import keeps_whole_gradients
from .hardware import LINKS, accelerator
from .kernels import Kernel
from .models import EXPERTS
from .roofline import processor

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


def of_step(traced, workload, setting):
    """The `Seconds` of each micro-batch and step."""
    if setting.gpus <= 1 and not setting.offload:
        return Seconds()
    gpu = processor(setting.gpu)
    found = _of_data(traced, workload, setting, gpu) if workload.kind == "train" else Seconds()
    alone = found.alone + _tensor_parallel(traced, workload, setting, gpu)
    alone += _of_sequence(traced, workload, setting, gpu) + _of_experts(traced, workload, setting, gpu)
    alone += _of_stages(traced, workload, setting, gpu)
    found = found._replace(alone=alone)
    return _with_host(found, traced, setting, gpu) if setting.offload else found


def _of_data(traced, workload, setting, gpu):
    """What data-parallel ranks send: gathered weights, gradients."""
    ranks, nodes = setting.data, setting.nodes
    if ranks <= 1:
        return Seconds()
    share = 1 / (setting.tensor * setting.pipeline)
    inside = max(1, setting.gpus_per_node // setting.tensor)

    def seconds(sent, ranks=ranks, inside=inside):
        return _seconds(sent * share, ranks, inside, gpu, setting)

    width = 4 if workload.weights == "float32" else 2
    if setting.strategy in ("fsdp2", "hsdp"):  # two all-gathers in 16 bits, one reduce-scatter in fp32
        everywhere, at_home = _parameters(traced, workload, setting)
        gathers, reduced = 2 * _gathered(traced, workload) * everywhere, 4 * traced.trainable * everywhere
        whole = keeps_whole_gradients(setting)  # then they are reduced in the last micro-batch alone
        sent, last = (gathers, reduced) if whole else (gathers + reduced, 0.0)
        if setting.strategy == "hsdp":
            between = seconds(2 * 4 * traced.trainable / inside * (nodes - 1) / nodes, nodes, 1)
            return Seconds(every=seconds(sent, inside), once=between + seconds(last, inside))
        same = ranks // setting.experts  # ranks that hold the same experts
        experts = (2 * 2 + 4) * traced.parameters * at_home / setting.experts if same > 1 else 0.0
        return Seconds(every=seconds(sent) + (seconds(experts, same, 1) if experts else 0.0), once=seconds(last))
    if setting.strategy == "zero1":  # DeepSpeed: 16-bit gradients all-reduced, 16-bit weights gathered, without overlap
        return Seconds(after=seconds((2 * 2 + 2) * traced.trainable))
    if setting.strategy == "zero2":  # the same, but reduced after every micro-batch
        return Seconds(alone=seconds(2 * 2 * traced.trainable), after=seconds(2 * traced.trainable))
    return Seconds(once=seconds(2 * width * traced.trainable))  # one all-reduce of gradients as wide as the weights


def _parameters(traced, workload, setting):
    """(share of the parameters that all data-parallel ranks gather, share in experts that stay where they are)."""
    if setting.experts == 1:
        return 1.0, 0.0
    share = experts_of(workload).parameters / traced.parameters
    return 1 - share, share


def _gathered(traced, workload):
    """Bytes of the weights as they are sent: 16 bits each, or the 4 bits that they are stored in."""
    return 2 * traced.parameters if not workload.four_bit else traced.parameters / 2


def _seconds(sent, ranks, inside, gpu, setting):
    if ranks <= inside:
        return sent * (ranks - 1) / ranks / _link(gpu, setting)
    across = sent / (inside * _adapter(gpu, setting))
    return max(across, sent / _link(gpu, setting)) if inside > 1 else across


def _link(gpu, setting):
    return setting.link or gpu.link or PCIE


def assumed(setting):
    """(bytes/s of the link between GPUs, bytes/s of each GPU's share of the network) at their peaks."""
    gpu = processor(setting.gpu)
    return _link(gpu, setting), _adapter(gpu, setting)


def _adapter(gpu, setting):
    """Bytes per second that a GPU's share of the network takes."""
    return setting.network or setting.link or adapter(gpu)


def adapter(gpu):
    """Bytes/s of a GPU's share of the network in published clusters."""
    return ADAPTER.get(gpu.architecture, OLDER_ADAPTER)


def _tensor_parallel(traced, workload, setting, gpu):
    if setting.tensor == 1:
        return 0.0
    passes = 1 if workload.kind != "train" else 3 if workload.checkpointing else 2
    tokens = workload.batch * max(1, workload.length) / setting.sequence
    layers = traced.layers / setting.pipeline
    reduced = passes * REDUCED_IN_LAYER * layers * 2 * tokens * traced.width
    return 2 * reduced * (setting.tensor - 1) / setting.tensor / _link(gpu, setting)


def _of_sequence(traced, workload, setting, gpu):
    """Keys and values of the other parts of a sequence: gathered in each pass, and their gradients sent back."""
    ranks = setting.sequence
    if ranks == 1:
        return 0.0
    passes = 4 if workload.checkpointing else 3
    size = passes * (traced.keys + traced.window_keys) * workload.batch * workload.length / (setting.tensor * setting.pipeline)
    return size * (ranks - 1) / ranks / _link(gpu, setting)


def _of_experts(traced, workload, setting, gpu):
    """Each token goes to its experts and back, in each pass."""
    if setting.experts == 1:
        return 0.0
    passes = 6 if workload.checkpointing else 4
    tokens = workload.batch * workload.length * experts_of(workload).chosen
    size = passes * traced.layers * tokens * 2 * traced.width
    return size * (setting.experts - 1) / setting.experts / _link(gpu, setting)


def _of_stages(traced, workload, setting, gpu):
    """An activation forward and its gradient back. Published pipelines name no network, and theirs hide it."""
    if setting.pipeline == 1 or not setting.network:
        return 0.0
    return 2 * 2 * workload.batch * workload.length * traced.width / setting.tensor / _adapter(gpu, setting)


def _with_host(found, traced, setting, gpu):
    """Shards wait in host memory: weights come twice, gradients go back. Beside NVLink, or through the same slot."""
    host = LINKS.get(str(accelerator(setting.gpu).get("host_link")).replace(".0 ", " "))
    moved = (2 * 4 * traced.parameters + 4 * traced.trainable) / setting.shards
    seconds = moved / (host.gb_per_s * 1e9 if host else PCIE)
    shared = seconds + found.every if _link(gpu, setting) <= PCIE else max(seconds, found.every)
    return found._replace(every=shared)


class Experts(NamedTuple):
    parameters: int  # of all experts
    chosen: int  # for each token
    number: int


def experts_of(workload):
    """The `Experts` of a mixture, or None."""
    _, config = workloads.config_of(workload)
    number = next((found for name in EXPERTS if (found := getattr(config, name, None))), None)
    if not number:
        return None
    layers = config.num_hidden_layers - (getattr(config, "first_k_dense_replace", None) or 0)
    width = getattr(config, "moe_intermediate_size", None) or config.intermediate_size
    each = 3 * config.hidden_size * width
    return Experts(each * number * layers, config.num_experts_per_tok, number)


def of_rank(kernels, setting, traced, workload):
    """The kernels of one rank, where ranks split matrices, layers and sequences."""
    if setting.tensor == setting.pipeline == setting.sequence == 1:
        return kernels
    parts, found = setting.tensor * setting.sequence, {}
    logits = 2 * workload.batch * workload.length * traced.vocabulary
    for kernel, count in kernels.items():
        ends = setting.pipeline > 1 and not setting.even and traced.vocabulary
        whole = ends and (traced.vocabulary in kernel.shape or kernel.bytes >= logits)  # they are on the last stage
        shape = kernel.shape
        if kernel.kind == "product":
            rows, columns = max(1, shape[0] // setting.sequence), max(1, shape[1] // setting.tensor)
            shape = (rows, columns, *shape[2:])
        small = Kernel(
            kernel.phase, kernel.kind, kernel.dtype, kernel.flops // parts, shape, kernel.bytes // parts, kernel.launches
        )  # fmt: skip
        found[small] = found.get(small, 0) + count / (1 if whole else setting.pipeline)
    return found


def bubble(setting, virtual=1):
    """How much longer a step is because stages of a pipeline wait."""
    return 1 + (setting.pipeline - 1) / max(1, setting.accumulation * virtual)
