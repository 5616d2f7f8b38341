"""Which strategy for this model on these GPUs: bytes that each one holds, bytes that it sends, seconds, and the reason.

Arithmetic only: no torch, no GPU, no network. `dryrun.ranks` traces the same bytes from the real code, and
`tests/test_ranks.py` holds the two together. Units are decimal here, as vendors write them: 1 GB = 1e9 bytes.

    for option in plan(**model("llama-8b"), **gpu("A100 40GB"), gpus=8):
        print(option)

The model of time: bytes over the peak bandwidth of the link, beside FLOPs over a share (`utilization`) of the peak of the
GPU. Collectives go round a ring. Latency, contention, stragglers and the optimizer's own time are left out, so a real step
takes longer; a real link gives less than its peak.
"""

import difflib
from dataclasses import dataclass

NETWORKS_MD = "https://github.com/stas00/ml-engineering/blob/0030e63f5275afee38233676690ce10478647cca/network/README.md"
AMPERE = "https://developer.nvidia.com/blog/nvidia-ampere-architecture-in-depth/"
H200 = "https://www.nvidia.com/en-us/data-center/h200/"
H100 = "https://www.nvidia.com/en-us/data-center/h100/"
ADA = "https://images.nvidia.com/aem-dam/Solutions/geforce/ada/nvidia-ada-gpu-architecture.pdf"
GA102 = "https://www.nvidia.com/content/PDF/nvidia-ampere-ga-102-gpu-architecture-whitepaper-v2.pdf"
NAME = "https://en.wikipedia.org/wiki/Ethernet"  # gigabits per second stand in the name; 8 of them are a gigabyte

# Peak bandwidth in one direction, GB/s. NVLink: all links of a GPU together; networks: one adapter.
LINKS = {
    "PCIe 3 x16": (15.75, AMPERE),
    "PCIe 4 x8": (15.75, AMPERE),
    "PCIe 4 x16": (31.5, AMPERE),
    "PCIe 5 x16": (63.0, NETWORKS_MD),
    "NVLink bridge, RTX 3090": (56.25, GA102),
    "NVLink 2": (150.0, NETWORKS_MD),
    "NVLink 3": (300.0, NETWORKS_MD),
    "NVLink 4": (450.0, NETWORKS_MD),
    "NVLink 5": (900.0, NETWORKS_MD),
    "10 GbE": (1.25, NAME),
    "25 GbE": (3.125, NAME),
    "100 GbE": (12.5, NAME),
    "InfiniBand HDR": (25.0, NETWORKS_MD),
    "InfiniBand NDR": (50.0, NETWORKS_MD),
}
# Memory in GB, dense 16-bit peak in TFLOP/s with fp32 accumulation, link to the other GPUs of a node.
GPUS = {
    "V100 16GB": (16, 125, "NVLink 2", AMPERE),
    "A100 40GB": (40, 312, "NVLink 3", AMPERE),
    "A100 80GB": (80, 312, "NVLink 3", AMPERE),
    "H100 80GB": (80, 989.5, "NVLink 4", H100),
    "H200 141GB": (141, 989.5, "NVLink 4", H200),
    "RTX 3090 24GB": (24, 71, "PCIe 4 x16", GA102),
    "RTX 4090 24GB": (24, 165.2, "PCIe 4 x16", ADA),
}
# parameters, layers, hidden size, heads, key and value heads, vocabulary, embedding and output layer tied
MODELS = {
    "gpt2": (124_439_808, 12, 768, 12, 12, 50257, True),
    "llama-1b": (1_235_814_400, 16, 2048, 32, 8, 128256, True),
    "llama-7b": (6_738_415_616, 32, 4096, 32, 32, 32000, False),
    "llama-8b": (8_030_261_248, 32, 4096, 32, 8, 128256, False),
    "llama-70b": (70_553_706_496, 80, 8192, 64, 8, 128256, False),
    "qwen-72b": (72_706_203_648, 80, 8192, 64, 8, 152064, False),
}
SHARE = 0.9  # of a card's memory that a step may fill: context, workspaces and fragmentation take the rest
# Bytes per parameter: weights, gradients, optimizer state; what a gradient is sent as; what a weight is sent as.
PRECISIONS = {"mixed": (4, 4, 8, 4, 2), "bf16": (2, 2, 4, 2, 2)}
ADAPTERS = 0.01  # of the parameters that LoRA trains
NF4 = 0.516  # bytes per weight: 4 bits and the doubly quantized scale of a block of 64
GB = 1e9


@dataclass(frozen=True)
class Option:
    """One strategy: bytes on each GPU, bytes and seconds of a step."""

    strategy: str
    reason: str
    memory_gb: float
    weights: float  # bytes on a GPU, as all that follow
    gradients: float
    optimizer: float
    transient: float  # gathered layers and the gradients of one, where the rest is sharded; else autocast's copies
    activations: float
    sent: float  # bytes that a GPU sends to others of its node, or of its ring
    sent_network: float  # bytes that leave a node
    seconds_link: float
    seconds_network: float
    seconds_compute: float  # with the bubble of a pipeline
    seconds_blocking: float = 0.0  # of the sending: what stands in the way of the computation, so that nothing hides it
    bubble: float = 0.0  # share of the time that a stage of a pipeline waits
    trains: str = "all"  # or the adapters only

    @property
    def total(self):
        return self.weights + self.gradients + self.optimizer + self.transient + self.activations

    @property
    def fits(self):
        return self.total <= SHARE * self.memory_gb * GB

    @property
    def seconds_communication(self):
        return max(self.seconds_link, self.seconds_network)

    @property
    def seconds(self):
        """A step when nothing overlaps."""
        return self.seconds_compute + self.seconds_communication

    @property
    def seconds_overlapped(self):
        """A step when all communication hides behind the computation, as far as it can."""
        return max(self.seconds_compute + self.seconds_blocking, self.seconds_communication)

    @property
    def efficiency(self):
        """(without overlap, with perfect overlap): the share of a step that is the work of one GPU."""
        work = self.seconds_compute * (1 - self.bubble)
        return work / self.seconds, work / self.seconds_overlapped

    def __str__(self):
        fits = "fits" if self.fits else "does not fit"
        low, high = self.efficiency
        return (
            f"{self.strategy:22} {self.total / GB:8.1f} GB of {self.memory_gb:g}, {fits:12} "
            f"computes {self.seconds_compute:.2f} s, sends {self.seconds_communication:.2f} s, "
            f"efficiency {100 * low:.0f} to {100 * high:.0f} %: {self.reason}"
        )


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
    """Every strategy as an `Option`: what fits first, full fine-tuning before adapters, then the fastest without overlap.

    parameters ... tied: the model, see `model()`; without layers and hidden there is no row for tensor parallelism and
    pipelines. gpus: of all `nodes` together. memory_gb, tflops, link: of one GPU, see `gpu()`.
    network: a name in `LINKS`, for several nodes, with `adapters` of them in each node.
    tokens: per GPU and micro-batch; micro_batches: per optimizer step. activations_gb: on each GPU, from a trace.
    utilization: the share of `tflops` that one GPU alone reaches; 0.4 is an assumption. tensor, stages: sizes of tensor parallelism and of the
    pipeline; by default all GPUs of a node, and all GPUs.
    """
    _check(parameters, gpus, nodes, memory_gb, tflops, link, network, adapters, precision, utilization, tokens)
    _check_parts(gpus, tensor, stages, heads, kv_heads, layers)
    n, local, N = gpus, gpus // nodes, float(parameters)
    w, g, o, reduced, sent_as = PRECISIONS[precision]
    root = vocabulary * (hidden or 0) * (1 if tied else 2)
    layer = (N - root) / layers if layers else 0.0
    wire = LINKS[link][0] * GB
    border = LINKS[network][0] * GB * adapters if network else None
    flops = {"all": 8 if checkpointing else 6}  # per parameter and token
    flops["adapters"] = flops["all"] - 2  # frozen weights get no gradient
    seconds_per_flop = N * tokens * micro_batches / (tflops * 1e12 * utilization)
    copies = 2 if precision == "mixed" else 0  # bytes per parameter: autocast's, in 16 bits, until the backward pass
    accumulated = copies if micro_batches > 1 else 0  # only then are they there together with all gradients
    activations = activations_gb * GB
    gathered = sent_as * (root + 2 * layer) + (sent_as + reduced) * layer
    options = []

    def ring(size, ranks, rounds=1):
        return rounds * size * (ranks - 1) / ranks

    def add(strategy, reason, held, sent, across=0.0, *, bubble=0.0, blocking=0.0, host=0.0, trains="all"):
        """held: weights, gradients, optimizer state, transient; across: bytes that leave a node; blocking, host: seconds."""
        wait = (across / border if across and border else 0.0) + host
        inside = sent / wire if local > 1 else 0.0
        if link.startswith("PCIe"):  # the host and the other GPUs are behind the same slot
            inside += host
        options.append(
            Option(
                strategy,
                reason,
                memory_gb,
                *held,
                activations,
                sent,
                across,
                inside,
                wait,
                flops[trains] * seconds_per_flop / (1 - bubble),
                blocking,
                bubble,
                trains,
            )
        )

    def everywhere(size):
        """A ring over all GPUs passes the border of each node once."""
        return size, size if nodes > 1 else 0.0

    if n == 1:
        add("one GPU", "there is nothing to send", (w * N, g * N, o * N, accumulated * N), 0.0)
        return options
    every_gradient = everywhere(ring(reduced * N, n, 2))
    add(
        "DDP",
        "every GPU holds everything, and the gradients a second time in buckets",
        (w * N, 2 * g * N, o * N, accumulated * N),
        *every_gradient,
    )
    add("DDP, bucket views", "gradient_as_bucket_view=True: every GPU holds everything once, the buckets all the time",
        (w * N, g * N, o * N, copies * N), *every_gradient)  # fmt: skip
    weights_once = ring(2 * N, n)  # DeepSpeed's defaults: it all-reduces what the paper reduces and scatters
    add("ZeRO-1", "16-bit weights and gradients whole, fp32 copies and optimizer state in parts",
        (2 * N, 2 * N, 16 * N / n, 0.0), *everywhere(ring(2 * N, n, 2) + weights_once))  # fmt: skip
    add("ZeRO-2", "16-bit weights whole, all else in parts; all-reduces gradients after every micro-batch",
        (2 * N, 2 * N / n, 16 * N / n, 0.0), *everywhere(ring(2 * N, n, 2) * micro_batches + weights_once))  # fmt: skip
    passes = (sent_as * (2 * (N - root) + root) + reduced * N) * micro_batches
    add("FSDP2 (ZeRO-3)", "everything in parts; gathers each layer twice and reduces its gradient in every micro-batch",
        (w * N / n, g * N / n, o * N / n, gathered), *everywhere(ring(passes, n)))  # fmt: skip
    hybrid = nodes > 1 and local > 1
    if hybrid:
        add("HSDP", "in parts inside a node, whole from node to node: only gradients cross, once a step",
            (w * N / local, g * N / local, o * N / local, gathered), ring(passes, local), ring(reduced * N, nodes, 2))  # fmt: skip
    t = tensor or local
    if layers and hidden and t > 1 and (tensor or not any(count and count % t for count in (heads, kv_heads))):
        replicas, each = n // t, tokens * t * hidden * 2  # a group works on the sequences of all its GPUs
        a_layer = 5 if checkpointing else 4  # the recomputation repeats one all-reduce
        sums = ring((a_layer * layers + 2) * each * micro_batches, t, 2)
        sync = ring(reduced * N / t, replicas, 2)
        across = (t * sync if t <= local else local * sync + sums) if nodes > 1 else 0.0
        add("TP" if replicas == 1 else f"TP {t} x DDP {replicas}", f"each matrix in {t} parts; sums activations {'five' if checkpointing else 'four'} times a layer, in the way of the computation",
            (w * N / t, g * N / t * (1 if replicas == 1 else 2), o * N / t, accumulated * N / t), sums + (sync if nodes == 1 else 0.0), across, blocking=sums / (wire if t <= local else border))  # fmt: skip
    p = stages or n
    if layers and hidden and p == n and (stages or layers % p == 0):
        flights, held = micro_batches * p, (N - root) / p + root / (1 if tied else 2)  # a tied one is on both ends
        sent = 2 * tokens * hidden * 2 * flights + (ring(reduced * root, 2, 2) if tied else 0)
        add("pipeline", f"{layers // p} layers on each GPU; sends little, waits in the bubble of {p} stages and {flights} micro-batches",
            (w * held, g * held, o * held, copies * held), *everywhere(sent), bubble=(p - 1) / (flights + p - 1))  # fmt: skip
    host = (2 * w + reduced) * N / n * micro_batches / (LINKS["PCIe 4 x16"][0] * GB)
    needed = f"{(w + g + o) * N / nodes / GB:,.0f} GB of each host's memory"
    add("FSDP2 + offload", f"weights, gradients and optimizer state wait in {needed}, behind PCIe 4; the update by the CPU comes on top",
        (0.0, 0.0, 0.0, gathered), *everywhere(ring(passes, n)), host=host)  # fmt: skip
    few = ADAPTERS * N
    for name, stored, bits in (("LoRA", 2 * N, 16), ("QLoRA", NF4 * (N - root) + 2 * root, 4)):
        moved = 2 * stored * micro_batches
        why = f"{bits}-bit weights in parts; trains adapters of one hundredth of them"

        def held(parts, stored=stored):
            return (stored + 4 * few) / parts, 4 * few / parts, 8 * few / parts, 2 * (root + 2 * layer)

        add(f"{name}, sharded", why, held(n), *everywhere(ring(moved, n)), trains="adapters")
        if hybrid:
            add(f"{name}, HSDP", f"{why}; only their gradients leave a node", held(local),
                ring(moved, local), ring(4 * few, nodes, 2), trains="adapters")  # fmt: skip
    return sorted(options, key=lambda option: (not option.fits, option.trains != "all", option.seconds))


def model(name):
    """The arguments of `plan` that describe a model of `MODELS`."""
    values = MODELS[_known("model", name, MODELS)]
    return dict(zip(("parameters", "layers", "hidden", "heads", "kv_heads", "vocabulary", "tied"), values))


def gpu(name):
    """The arguments of `plan` that describe a GPU of `GPUS`."""
    return dict(zip(("memory_gb", "tflops", "link"), GPUS[_known("gpu", name, GPUS)]))


def seconds(size, link, adapters=1):
    """Seconds that `size` bytes take over a link of `LINKS` at its peak."""
    return size / (LINKS[_known("link", link, LINKS)][0] * GB * adapters)


def _known(what, name, names):
    if name not in names:
        close = difflib.get_close_matches(str(name), names, 1, 0.3)
        meant = f", did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"{what}={name!r} is not known{meant} Choose one of: {'; '.join(names)}")
    return name


def _divisor(wanted, number):
    """The divisor of `number` nearest to `wanted`."""
    return min((d for d in range(1, number + 1) if number % d == 0), key=lambda d: (abs(d - wanted), -d))


def _check(parameters, gpus, nodes, memory_gb, tflops, link, network, adapters, precision, utilization, tokens):
    for name, value in (("parameters", parameters), ("memory_gb", memory_gb), ("tflops", tflops), ("tokens", tokens)):
        if not value > 0:
            raise ValueError(f"{name}={value}: give a number above zero")
    if parameters < 1e5:
        raise ValueError(f"parameters={parameters:g}: count them, so 7e9 for a model of 7 billion")
    for name, value in (("gpus", gpus), ("nodes", nodes), ("adapters", adapters)):
        if value != int(value) or value < 1:
            raise ValueError(f"{name}={value}: give a whole number, 1 or more")
    if nodes > gpus:
        raise ValueError(f"nodes={nodes}: there are only {gpus} GPUs, so at most {gpus} nodes")
    if gpus % nodes:
        near = nodes * max(1, round(gpus / nodes))
        raise ValueError(f"gpus={gpus} do not divide into {nodes} nodes of one size: take {near}")
    _known("link", link, LINKS)
    if nodes > 1 and network is None:
        raise ValueError(f"nodes={nodes}: name the network between them: network='100 GbE'")
    if network is not None:
        _known("network", network, LINKS)
    _known("precision", precision, PRECISIONS)
    if not 0 < utilization <= 1:
        raise ValueError(f"utilization={utilization}: give a share between 0 and 1, 0.4 for 40 %")


def _check_parts(gpus, tensor, stages, heads, kv_heads, layers):
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
