"""A compiled step that is compiled again for each length of the batch.

    TORCH_LOGS=recompiles python recompiles.py
    TORCH_LOGS=recompiles python recompiles.py padded
"""
import sys

import torch


@torch.compile(backend="eager", dynamic=False)  # backend="eager": only to see the log without a C++ compiler
def step(batch):
    return (batch * 2).sum()


# --8<-- [start:lengths]
def length_of(wanted):
    """Padding to a multiple leaves few lengths."""
    return -(-wanted // 64) * 64 if "padded" in sys.argv else wanted
# --8<-- [end:lengths]


for wanted in (30, 41, 52, 63):
    step(torch.ones(4, length_of(wanted)))
