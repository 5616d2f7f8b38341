"""Takes no more threads than this process has CPUs: pinned, in a container with a quota, or alone on the machine."""
import os
from pathlib import Path

import torch


# --8<-- [start:cores]
def usable_cpus(quota_file="/sys/fs/cgroup/cpu.max"):
    """The logical CPUs of the affinity, or fewer where the container has a quota of CPU time."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    try:
        quota, period = Path(quota_file).read_text().split()
    except (OSError, ValueError):  # no container, cgroup v1, or not Linux
        return cpus
    return cpus if quota == "max" else max(1, min(cpus, int(quota) // int(period)))


torch.set_num_threads(min(torch.get_num_threads(), usable_cpus()))  # PyTorch counts no hyper-threads
# --8<-- [end:cores]
print(f"{os.cpu_count()} logical CPUs in the machine, {torch.get_num_threads()} threads here")
