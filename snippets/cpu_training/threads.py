"""How many threads compute, and where may they run?"""
import os

import torch

# --8<-- [start:threads]
print(torch.get_num_threads(), "threads compute")  # OMP_NUM_THREADS, or else the physical cores it may use
print(torch.cpu.get_capabilities().get("num_physical_cores"), "physical cores")  # torch 2.13
print(len(os.sched_getaffinity(0)), "logical CPUs may be used by this process")  # Linux; hyper-threads count
torch.set_num_threads(1)  # or OMP_NUM_THREADS=1 before the start
# --8<-- [end:threads]
print(torch.get_num_threads(), "thread computes now")
