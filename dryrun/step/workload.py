"""What runs: a model, a batch, a precision, a method; and what its trace holds. Plain data, without torch."""

from __future__ import annotations

from dataclasses import dataclass, field

from .kernels import Kernels
from .memory_trace import Trace


@dataclass(frozen=True)
class Workload:
    """One step on one device.

    model: a name of `models`, the sizes of a published row as JSON, or the text of a config.json.
    kind: "train" (forward and backward pass; the optimizer's time is computed apart), "forward" or "decode" (one token).
    weights: dtype of the weights; autocast: dtype of the products, or "". checkpointing: every n-th layer, or 0.
    attention: "fused", "eager", or "old" for what was written until 2023: each operator apart.
    rank and targets: of LoRA, 0 for full fine-tuning; four_bit: QLoRA.
    references: forward passes without gradients in each micro-batch, of a reference model or for the old log-probabilities.
    """

    model: str
    batch: int
    length: int
    kind: str = "train"
    weights: str = "bfloat16"
    autocast: str = ""
    checkpointing: int = 0
    attention: str = "fused"
    compiled: bool = False
    rank: int = 0
    targets: str = ""
    four_bit: bool = False
    loss: str = "model"  # or "sum": of the logits, as some benchmarks take
    fused_loss: bool = False  # the logits are not kept: see `loss_kernels`
    references: int = 0


@dataclass(frozen=True)
class Experts:
    """Of a mixture."""

    parameters: int  # of all experts
    chosen: int  # for each token
    number: int


@dataclass
class Traced:
    """Kernels, parameters and memory of a step on one device."""

    model_class: str = ""  # of transformers

    kernels: Kernels = field(default_factory=Kernels)
    kept: dict[str, tuple[int, int]] = field(default_factory=dict)  # of a compiled step: see `fusion.kept`
    parameters: int = 0
    trainable: int = 0
    tensors: int = 0  # that the optimizer changes
    matrices: dict[tuple[int, int], int] = field(default_factory=dict)  # {(rows, columns): how many that the optimizer changes in layers}
    factored: int = 0  # rows and columns of all matrices that it changes, those of each expert too, and all of the other tensors
    layers: int = 0
    width: int = 0
    vocabulary: int = 0
    tied: bool = False  # the output layer is the embedding
    heads: int = 1  # of attention
    split_heads: int = 1  # the fewest that a split among GPUs must divide: those of keys and values
    cache_heads: int = 1  # that have keys and values of their own; 1 where one compressed vector serves all
    experts: Experts | None = None
    keys: int = 0  # bytes of the KV cache of one token, in 16 bits, in layers that keep all tokens
    window_keys: int = 0  # and in layers that keep the last `window` tokens alone
    window: int = 0
    shared_keys: int = 0  # and of what serves all heads, such as an indexer's keys, which every GPU has whole
    window_heads: int = 0  # as `cache_heads`, of layers that keep a window; 0 where they are the same
    state: int = 0  # bytes that layers of linear attention and state-space layers keep of one sequence, however long
    state_heads: int = 0  # among which GPUs share it out; 0 where they are those of the cache
    unjudged: str = ""  # what of its attention no published run has, so that no speed is predicted
    weight_bytes: int = 0  # of the weights that products read, at one byte for each
    dense_weights: int = 0  # that products of one token read beside experts and the output layer, where its kernels are not known
    memory: Trace | None = None

    def cache(self, context: int) -> int:
        """Bytes that one sequence of `context` tokens keeps: keys and values in 16 bits, and states of one size."""
        return (self.keys + self.shared_keys) * context + self.window_keys * min(context, self.window) + self.state

    def cache_on_each(self, context: int, gpus: int) -> float:
        """The same on each of the GPUs that split every matrix. They share heads out; where there are fewer heads, they repeat them."""
        whole = self.keys * context / min(gpus, self.cache_heads) + self.shared_keys * context
        windowed = self.window_keys * min(context, self.window) / min(gpus, self.window_heads or self.cache_heads)
        return whole + windowed + self.state / min(gpus, self.state_heads or self.cache_heads)


def of_peft(workload: Workload) -> bool:
    """Whether adapters of 32 bits run under autocast beside weights of 16, as peft and Trainer run LoRA.

    Its memory is that of its own trace: each adapter's input is copied, and the copy is kept. Its kernels are those of pure 16 bits: most
    LoRA steps of our H100 and H200 are predicted too slow as it is, and with the kernels of the copies would be predicted slower still.
    """
    return bool(workload.rank and workload.autocast) and workload.weights != "float32" and not workload.four_bit
