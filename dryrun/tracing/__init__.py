"""The model's own code, run on tensors without data: the only room that needs torch.

What traces a step of any transformers class can be imported from here.
"""

from ..step.memory_trace import Trace
from .gpu_operators import UNMASKED_SDPA, GpuOperators
from .tracing import (
    OPTIMIZERS,
    GiB,
    build_model,
    checkpoint_layers,
    create_state,
    end_part_in_mid_backward,
    fake,
    language_batch,
    many_layers,
    training_step,
)
from .tracker import Tracker

__all__ = ["OPTIMIZERS", "UNMASKED_SDPA", "GiB", "GpuOperators", "Trace", "Tracker", "build_model", "checkpoint_layers", "create_state",
           "end_part_in_mid_backward", "fake", "language_batch", "many_layers", "training_step"]  # fmt: skip
