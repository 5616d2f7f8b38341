"""How large a power supply does a rig need? Watts of the GPUs come from the table of accelerators.

python power.py rtx-4090 rtx-4090 --cpu 250
"""

import argparse

from dryrun import gpu

parser = argparse.ArgumentParser()
parser.add_argument("gpus", nargs="+", help="one name for each GPU")
parser.add_argument("--cpu", type=float, default=200, help="watts of the CPU under load")
parser.add_argument("--rest", type=float, default=100, help="watts of board, disks, fans and memory")
parser.add_argument("--limit", type=float, help="watts of each GPU, as set by nvidia-smi -pl")
options = parser.parse_args()

# --8<-- [start:power]
GPU_SPIKE = 3  # of its sustained power, for 100 microseconds: what PCIe 5 allows
SUPPLY_SPIKE = 2  # of its rating, for as long: what ATX 3 asks of a supply
LOAD = 0.8  # of its rating, for hours

gpus = sum(min(gpu(name).get("tdp"), options.limit or float("inf")) for name in options.gpus)
others = options.cpu + options.rest
sustained = gpus + others
spike = GPU_SPIKE * gpus + others  # if all GPUs rise at the same moment, as they do in DDP
rating = max(sustained / LOAD, spike / SUPPLY_SPIKE)
# --8<-- [end:power]
print(f"sustained {sustained:,.0f} W, for 100 microseconds up to {spike:,.0f} W")
print(f"an ATX 3 power supply of {rating:,.0f} W or more")
