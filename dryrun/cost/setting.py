"""Where a workload runs, and the class of published steps whose errors its prediction shares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..models.models import is_mixture
from ..tables import strategies
from ..tables.hardware import Accelerator, accelerator, known
from ..tables.optimizers import optimizer
from ..tables.refusal import Refusal

if TYPE_CHECKING:
    from ..step.workload import Workload


FP32_ADAPTERS = "fp32 adapters"  # on 16-bit or 4-bit weights, as PEFT keeps them


@dataclass(frozen=True)
class Setting:
    """Where a workload runs, and how many steps make one measurement."""

    gpu: Accelerator  # or a name of it
    gpus: int = 1
    gpus_per_node: int = 1
    strategy: str = ""  # of `strategies`; "" where one rank has everything
    tensor: int = 1  # ranks that split a matrix
    pipeline: int = 1
    virtual_stages: int = 1  # interleaved: groups of layers that each stage of a pipeline holds, far apart in the model
    even: bool = True  # stages take equally long; else they have as many layers, and the last one the logits too
    sequence: int = 1  # ranks that split a sequence
    experts: int = 1  # ranks that the experts are spread over
    offload: bool = False  # weights, gradients and optimizer state wait in host memory
    views: bool = False  # DDP with gradient_as_bucket_view
    buckets: bool = True  # DDP sums gradients in buckets, while the last backward pass goes on; else all of them after it
    whole_gradients: bool = False  # FSDP2 reduces in the last micro-batch alone, and holds whole gradients until then
    accumulation: int = 1
    optimizer: str = "adamw"  # "" where a step is timed up to its backward pass
    # "master": 16-bit weights beside fp32 ones; "fp32": fp32 weights, computed with in 16 bits; or FP32_ADAPTERS
    state: str = ""
    precision: str = "bf16"
    # What launches: eager, script (TorchScript), megatron (Megatron-LM), or one of `decoding.ENGINES`
    host: str = "eager"
    weight_bytes: float = 2.0
    rest_bytes: float = 0.0  # of a mixture whose experts alone are in `weight_bytes`: of each other weight of its layers; 0 where they are alike
    whole_model: bool = False  # embedding and output layer are stored in `weight_bytes` too
    link: float = 0.0  # bytes/s in one direction, where known
    network: float = 0.0  # bytes/s of each GPU to other nodes, where known
    context: int = 0  # tokens in the KV cache when decoding
    reference: bool = False  # a rank holds the weights of a reference model too
    answers: int = 0  # tokens of each answer that an engine on the same GPU writes before the step, at the end of its sequence
    eager_loss: bool = False  # the model is compiled, and the loss that follows it is not
    # Kernel: "" is the one that PyTorch takes by itself, from 2.10 on that of cuDNN on Hopper and data-center Blackwell;
    # "flash": FlashAttention 2; "triton": that of 2022, in Triton
    attention: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "gpu", accelerator(self.gpu))
        if self.strategy:
            known("strategy", self.strategy, strategies.STRATEGIES)
        optimizer(self.optimizer)  # ValueError with the nearest name
        for name in ("gpus", "gpus_per_node", "tensor", "pipeline", "virtual_stages", "sequence", "experts"):
            if not isinstance(getattr(self, name), int) or getattr(self, name) < 1:
                raise Refusal(name, getattr(self, name), "give a whole number, 1 or more")
        for name in ("tensor", "pipeline", "sequence"):
            if self.gpus % getattr(self, name):
                raise Refusal(name, getattr(self, name), f"it does not divide gpus={self.gpus}, so no group of GPUs is whole")
        if self.gpus % (self.tensor * self.pipeline):
            raise ValueError(f"tensor={self.tensor} x pipeline={self.pipeline}: they do not divide gpus={self.gpus}, so no group of GPUs is whole")
        if self.virtual_stages > 1 and self.pipeline == 1:
            raise Refusal("virtual_stages", self.virtual_stages, "only stages of a pipeline are divided", "give pipeline=2 or more, or leave it out")

    @property
    def data(self) -> int:
        """Ranks that share the weights out, or repeat them."""
        return self.gpus // (self.tensor * self.pipeline)

    @property
    def nodes(self) -> int:
        return max(1, self.gpus // self.gpus_per_node)

    @property
    def shards(self) -> int:
        """Parts of the optimizer state."""
        chosen = strategies.strategy(self.strategy)
        if not chosen.shards:
            return 1
        return max(1, self.gpus_per_node // self.tensor) if chosen.in_node else self.data


def klass_of(workload: Workload, setting: Setting) -> str:
    """The class whose errors a prediction shares."""
    if workload.kind == "decode":
        return "decode"
    if workload.kind == "forward":
        return "forward"
    if setting.precision.startswith(("fp8", "mxfp8")):
        return "fp8"
    if setting.tensor > 1 or setting.pipeline > 1:
        return "tensor and pipeline parallel"
    if is_mixture(workload.model):
        return "mixture of experts"
    if workload.four_bit:
        return "QLoRA"
    if workload.rank:
        return "LoRA"
    return "training, many GPUs" if setting.gpus > 1 else "training, one GPU"
