"""Which share of a GPU does a matrix product of this shape keep busy?"""
from math import ceil

import torch


# --8<-- [start:busy]
def busy(rows, columns, multiprocessors=108, tile=(128, 256)):  # an A100
    tiles = ceil(rows / tile[0]) * ceil(columns / tile[1])
    waves = ceil(tiles / multiprocessors)
    return rows * columns / (waves * multiprocessors * tile[0] * tile[1])


if torch.cuda.is_available():
    print("SMs of this GPU:", torch.cuda.get_device_properties(0).multi_processor_count)
for tokens in (3456, 3584):
    print(f"{tokens} tokens: {busy(tokens, 1024):.0%}")
# --8<-- [end:busy]
