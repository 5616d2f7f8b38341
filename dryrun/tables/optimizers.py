"""Optimizers: what their state takes, and what a step of theirs moves. One table for the memory and for the seconds.

Muon is Newton-Schulz on every matrix of a layer, and AdamW on the rest: `torch.optim.Muon` takes matrices alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from .hardware import known

NEWTON_SCHULZ_STEPS = 5  # torch.optim.Muon, ns_steps: three products each


@dataclass(frozen=True)
class Optimizer:
    """moved: bytes that a step moves for each fp32 weight; launches: kernels for each tensor.
    moments: that it keeps of a weight, each as wide as the weight; moments_of_matrix: of a weight in a layer's matrix.
    state: bytes for each weight instead, where they have a width of their own; factored: a row and a column of each matrix in fp32.
    at_once: moments of all weights that a step makes anew, and frees after it; of_largest: bytes that it makes anew for each weight of the
    largest tensor, where it works tensor by tensor; wide_embedding: the embedding's moments stay in fp32."""

    moved: float
    launches: float
    moments: int = 2
    moments_of_matrix: int = 2
    state: float | None = None
    factored: bool = False
    at_once: int = 0
    of_largest: int = 0
    wide_embedding: bool = False

    @property
    def orthogonalizes(self) -> bool:
        """Whether it multiplies matrices."""
        return self.moments_of_matrix < self.moments


# By the names that a reader gives.
OPTIMIZERS = {
    "adamw": Optimizer(28, 1 / 40),  # fused: reads weight, gradient and two states, writes weight and states
    "adamw_foreach": Optimizer(80, 14 / 40, at_once=1),  # the root of the second moment, of all weights together
    "adamw_loop": Optimizer(80, 14),
    # Two bytes, and a scale of each moment for 256 values. `Trainer` has bitsandbytes keep the embedding's in fp32; alone it does not.
    "adamw_8bit": Optimizer(16, 1, state=2 + 2 * 4 / 256, wide_embedding=True),
    "adamw_8bit_all": Optimizer(16, 1, state=2 + 2 * 4 / 256),
    "adafactor": Optimizer(40, 12, factored=True, of_largest=16),  # transformers': gradient, square, update and weight in fp32
    "muon": Optimizer(28, 24, moments_of_matrix=1),
    "sgd": Optimizer(12, 1 / 40, moments=0, moments_of_matrix=0),
    "sgd_momentum": Optimizer(20, 3, moments=1, moments_of_matrix=1),
}
# By the names of published rows, where these are others.
PUBLISHED = {
    "adam_foreach": OPTIMIZERS["adamw_foreach"],
    "adamw_cpu": OPTIMIZERS["adamw"],  # beside offload, which knows where it runs
    "adamw_fp32master": OPTIMIZERS["adamw"],
    "adamw_bf16states": OPTIMIZERS["adamw"],
    "adam8bit": OPTIMIZERS["adamw_8bit_all"],
    "adam8bit-ao": Optimizer(28, 1 / 40, state=2.1),  # of torchao: compiled
    "adamfp8-ao": Optimizer(28, 1 / 40, state=2.1),
    "adam4bit-ao": Optimizer(28, 1 / 40, state=1.1),
    "adam4bit-lpmm": Optimizer(28, 1 / 40, state=1.1),
    "adam4bit-lpmm-rank1": Optimizer(28, 1 / 40, state=1.1),
}


def optimizer(name: str) -> Optimizer:
    """By the name of `OPTIMIZERS` or of a published row; "" where a row states none: AdamW's memory. ValueError for all others."""
    if not name:
        return OPTIMIZERS["adamw"]
    return PUBLISHED.get(name) or OPTIMIZERS[known("optimizer", name, OPTIMIZERS)]
