"""What a plan is for (model, GPUs, nodes, work), and the arithmetic that all strategies share. No torch."""

from dataclasses import dataclass

from .hardware import GB, bytes_per_second

# Of a GPU's memory that tensors may fill. The rest: CUDA context, workspaces of libraries, fragmentation. Published peaks
# of BERT on A100 and V100 are 3 to 36 % above what a trace counts in tensors, most of them less than 15 %:
# https://github.com/huggingface/transformers/blob/0a5a45655f313b2ed8b384f279ecd5ad78d203de/docs/source/ko/model_doc/bert.md
# https://github.com/huggingface/transformers/blob/0016acf7ef421c7fe8eff7945de52c71896c3b01/docs/source/en/perf_train_gpu_one.mdx
SHARE = 0.85
FORWARD = 2  # FLOPs per parameter and token


@dataclass(frozen=True)
class Precision:
    """Bytes per parameter."""

    weights: int
    gradients: int
    optimizer: int  # AdamW's two moments
    reduced: int  # what a gradient is sent as
    sent: int  # what a weight is sent as
    copies: int  # autocast's 16-bit copies of the weights, until the backward pass


PRECISIONS = {"mixed": Precision(4, 4, 8, 4, 2, 2), "bf16": Precision(2, 2, 4, 2, 2, 0)}


@dataclass(frozen=True)
class Shape:
    """A model. Without `layers` and `hidden` nothing is known of single layers."""

    parameters: float
    layers: int | None
    hidden: int | None
    heads: int | None
    kv_heads: int | None
    vocabulary: int
    tied: bool

    @property
    def root(self):
        """Parameters of embedding and output layer, which FSDP2 keeps outside of the layers."""
        return self.vocabulary * (self.hidden or 0) * (1 if self.tied else 2)

    @property
    def body(self):
        return self.parameters - self.root

    @property
    def layer(self):
        return self.body / self.layers if self.layers else 0.0


@dataclass(frozen=True)
class Cluster:
    """Nodes with the same number of GPUs each."""

    gpus: int  # of all nodes together
    memory_gb: float
    tflops: float
    link: str
    nodes: int
    network: str | None
    adapters: int  # to the network, in each node

    @property
    def local(self):
        """GPUs of one node."""
        return self.gpus // self.nodes

    @property
    def link_speed(self):
        return bytes_per_second(self.link)

    @property
    def network_speed(self):
        """Bytes per second that leave a node."""
        return bytes_per_second(self.network, self.adapters) if self.network else None

    @property
    def host_shares_the_link(self):
        """Whether the host and the other GPUs are behind the same slot."""
        return self.link.startswith("PCIe")


@dataclass(frozen=True)
class Work:
    """One optimizer step."""

    tokens: int  # per GPU and micro-batch
    micro_batches: int
    precision: Precision
    utilization: float  # the share of its peak that one GPU alone reaches
    checkpointing: bool
    activations_gb: float

    def flops_per_token(self, trains):
        """Per parameter: forward, backward (twice that; once for frozen weights) and the recomputation."""
        return FORWARD * ((3 if trains == "all" else 2) + self.checkpointing)


@dataclass(frozen=True)
class Held:
    """Bytes on one GPU."""

    weights: float
    gradients: float
    optimizer: float
    transient: float = 0.0


@dataclass(frozen=True)
class Traffic:
    """Bytes of one step that a GPU sends inside its node, and bytes that leave a node.

    `once`: sent once per step, at the end of the last backward pass, and not in every micro-batch. `waited`: what the
    computation waits for, so that nothing hides it.
    """

    link: float = 0.0
    network: float = 0.0
    link_once: bool = False
    network_once: bool = False
    link_waited: float = 0.0
    network_waited: float = 0.0


def ring(size, ranks, rounds=1):
    """Bytes that each of `ranks` sends when `size` bytes go round a ring."""
    return rounds * size * (ranks - 1) / ranks


@dataclass(frozen=True)
class Option:
    """One strategy: bytes on each GPU, bytes and seconds of a step."""

    strategy: str
    reason: str
    memory_gb: float
    weights: float  # bytes on a GPU, like all that follow
    gradients: float
    optimizer: float
    transient: float  # gathered layers and the gradients of one, where the rest is sharded; else autocast's copies
    activations: float
    sent: float  # bytes that a GPU sends to others of its node, or of its ring
    sent_network: float  # bytes that leave a node
    seconds_link: float
    seconds_network: float
    seconds_communication: float  # of both: they overlap, except for what the computation waits for
    seconds_compute: float  # with a pipeline's bubble
    seconds_overlapped: float  # a step when everything is hidden that can be hidden
    bubble: float = 0.0  # share of the time that a stage of a pipeline waits
    trains: str = "all"  # or "adapters"

    @property
    def total(self):
        return self.weights + self.gradients + self.optimizer + self.transient + self.activations

    @property
    def fits(self):
        return self.total <= SHARE * self.memory_gb * GB

    @property
    def seconds(self):
        """A step when nothing overlaps."""
        return self.seconds_compute + self.seconds_communication

    @property
    def efficiency(self):
        """(without overlap, with all that is possible): the share of a step that is the work of one GPU."""
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


@dataclass(frozen=True)
class Setting:
    model: Shape
    cluster: Cluster
    work: Work

    def compute_seconds(self, trains):
        work = self.work
        flops = work.flops_per_token(trains) * self.model.parameters * work.tokens * work.micro_batches
        return flops / (self.cluster.tflops * 1e12 * work.utilization)

    def everywhere(self, size, once=False):
        """A ring over all GPUs: it passes the border of each node once."""
        return Traffic(size, size if self.cluster.nodes > 1 else 0.0, once, once)

    def option(self, strategy, reason, held, traffic, *, bubble=0.0, host_seconds=0.0, trains="all"):
        """The row of a strategy. `host_seconds`: transfers between a GPU and its host's memory."""
        cluster = self.cluster
        compute = self.compute_seconds(trains) / (1 - bubble)
        inside = traffic.link / cluster.link_speed if cluster.local > 1 else 0.0
        outside = traffic.network / cluster.network_speed if traffic.network else 0.0
        inside_waited = traffic.link_waited / cluster.link_speed
        outside_waited = traffic.network_waited / cluster.network_speed if traffic.network_waited else 0.0
        if cluster.host_shares_the_link:
            inside += host_seconds
        outside += host_seconds
        waited = max(inside_waited, outside_waited)  # one collective that passes both
        inside_rest, outside_rest = inside - inside_waited, outside - outside_waited
        last_backward = compute / self.work.micro_batches * (1 - FORWARD / self.work.flops_per_token(trains))
        exposed = max(
            0.0,
            inside_rest - (last_backward if traffic.link_once else compute),
            outside_rest - (last_backward if traffic.network_once else compute),
        )
        return Option(
            strategy,
            reason,
            cluster.memory_gb,
            held.weights,
            held.gradients,
            held.optimizer,
            held.transient,
            self.work.activations_gb * GB,
            traffic.link,
            traffic.network,
            inside,
            outside,
            waited + max(inside_rest, outside_rest),
            compute,
            compute + waited + exposed,
            bubble,
            trains,
        )
