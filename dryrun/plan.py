"""Which strategy for this model on these GPUs: bytes that each one holds, bytes that it sends, seconds, and the reason.

Arithmetic only: no torch, no GPU, no network. `dryrun.ranks` traces the same bytes from the real code, and
`tests/dryrun/test_ranks.py` compares the two. Units are decimal, as vendors write them: 1 GB = 1e9 bytes.

    for option in plan(**model("llama-8b"), **gpu("A100 40GB"), gpus=8):
        print(option)

The model of time: bytes over the peak bandwidth of the link, beside FLOPs over a share (`utilization`) of the peak of the
GPU. Collectives go round a ring. Latency, contention, stragglers and the optimizer's own time are left out, so a real step
takes longer; a real link gives less than its peak.
"""

from .hardware import GB, GPUS, LINKS, MODELS, bytes_per_second, known
from .plan_rows import rows
from .setting import PRECISIONS, SHARE, Cluster, Option, Setting, Shape, Work

__all__ = ["AMPERE", "GB", "GPUS", "LINKS", "MODELS", "NETWORKS_MD", "PRECISIONS", "SHARE", "Option", "gpu", "model", "plan", "seconds"]  # fmt: skip

AMPERE, NETWORKS_MD = GPUS["A100 40GB"].source, LINKS["NVLink 3"].source  # for notebooks that cite them


def plan(
    *,
    parameters,
    gpus,
    memory_gb,
    tflops,
    link,
    nodes=1,
    network=None,
    adapters=1,
    layers=None,
    hidden=None,
    heads=None,
    kv_heads=None,
    vocabulary=0,
    tied=False,
    tokens=4096,
    micro_batches=1,
    precision="mixed",
    utilization=0.4,
    checkpointing=True,
    activations_gb=0.0,
    tensor=None,
    stages=None,
):
    """Every strategy as an `Option`: what fits first, full fine-tuning before adapters, then the fastest.

    parameters ... tied: the model, see `model()`; without layers and hidden there is no row for tensor parallelism and
    pipelines. gpus: of all `nodes` together. memory_gb, tflops, link: of one GPU, see `gpu()`.
    network: a name in `LINKS`, for several nodes, with `adapters` of them in each node.
    tokens: per GPU and micro-batch; micro_batches: per optimizer step. activations_gb: on each GPU, from a trace.
    utilization: the share of `tflops` that one GPU alone reaches; 0.4 is an assumption. tensor, stages: sizes of tensor
    parallelism and of the pipeline; by default all GPUs of a node, and all GPUs.
    """
    for name, value in (("parameters", parameters), ("memory_gb", memory_gb), ("tflops", tflops), ("tokens", tokens)):
        _check_positive(name, value)
    if parameters < 1e5:
        raise ValueError(f"parameters={parameters:g}: count them, so 7e9 for a model of 7 billion")
    _check_nodes(gpus, nodes, adapters)
    _check_names(link, nodes, network, precision)
    if not 0 < utilization <= 1:
        raise ValueError(f"utilization={utilization}: give a share between 0 and 1, 0.4 for 40 %")
    _check_sizes(gpus, tensor, stages, heads, kv_heads, layers)
    setting = Setting(
        Shape(float(parameters), layers, hidden, heads, kv_heads, vocabulary, tied),
        Cluster(gpus, memory_gb, tflops, link, nodes, network, adapters),
        Work(tokens, micro_batches, PRECISIONS[precision], utilization, checkpointing, activations_gb),
    )
    return sorted(rows(setting, tensor, stages), key=_rank)


def _rank(option):
    """Of two strategies that can hide all they send, the one that sends less is first."""
    return not option.fits, option.trains != "all", option.seconds_overlapped, option.seconds


def model(name):
    """The arguments of `plan` that describe a model of `MODELS`."""
    return MODELS[known("model", name, MODELS)]._asdict()


def gpu(name):
    """The arguments of `plan` that describe a GPU of `GPUS`."""
    found = GPUS[known("gpu", name, GPUS)]
    return {"memory_gb": found.memory_gb, "tflops": found.tflops, "link": found.link}


def seconds(size, link, adapters=1):
    """Seconds that `size` bytes take over a link of `LINKS` at its peak."""
    return size / bytes_per_second(link, adapters)


def _check_positive(name, value):
    if not value > 0:
        raise ValueError(f"{name}={value}: give a number above zero")


def _check_nodes(gpus, nodes, adapters):
    for name, value in (("gpus", gpus), ("nodes", nodes), ("adapters", adapters)):
        if value != int(value) or value < 1:
            raise ValueError(f"{name}={value}: give a whole number, 1 or more")
    if nodes > gpus:
        raise ValueError(f"nodes={nodes}: there are only {gpus} GPUs, so at most {gpus} nodes")
    if gpus % nodes:
        near = nodes * max(1, round(gpus / nodes))
        raise ValueError(f"gpus={gpus} do not divide into {nodes} nodes of one size: take {near}")


def _check_names(link, nodes, network, precision):
    known("link", link, LINKS)
    if nodes > 1 and network is None:
        raise ValueError(f"nodes={nodes}: name the network between them: network='100 GbE'")
    if network is not None:
        known("network", network, LINKS)
    known("precision", precision, PRECISIONS)


def _check_sizes(gpus, tensor, stages, heads, kv_heads, layers):
    if tensor:
        for name, count in (("gpus", gpus), ("heads", heads), ("kv_heads", kv_heads)):
            if count and count % tensor:
                raise ValueError(f"tensor={tensor} does not divide {name}={count}: take {_divisor(tensor, count)}")
    if stages and stages != gpus:
        raise ValueError(
            f"stages={stages}: one stage on each GPU, so {gpus}; a pipeline beside other strategies is not planned"
        )
    if stages and layers and layers % stages:
        raise ValueError(f"stages={stages} does not divide layers={layers}: take {_divisor(stages, layers)} GPUs")


def _divisor(wanted, number):
    """The divisor of `number` nearest to `wanted`."""
    return min((d for d in range(1, number + 1) if number % d == 0), key=lambda d: (abs(d - wanted), -d))
