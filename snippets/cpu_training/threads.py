"""How many threads compute, and on how many cores?"""
import os

import torch

# --8<-- [start:threads]
print(torch.get_num_threads(), "threads compute")  # OMP_NUM_THREADS, or else the physical cores
print(torch.cpu.get_capabilities().get("num_physical_cores"), "physical cores")  # torch 2.13
print(len(os.sched_getaffinity(0)), "cores may be used by this process")  # Linux
torch.set_num_threads(1)  # or OMP_NUM_THREADS=1 before the start
# --8<-- [end:threads]
print(torch.get_num_threads(), "thread computes now")
