"""The most tokens/s that this machine's memory allows at batch 1."""
import time

import torch

# --8<-- [start:limit]
numbers = torch.ones(2**28)  # 1 GiB: take several times what the caches hold, which `lscpu` says


def bandwidth():
    """GB/s of reading, with all threads."""
    started = time.perf_counter()
    numbers.sum()
    return numbers.numel() * 4 / (time.perf_counter() - started) / 1e9


speed = max(bandwidth() for _ in range(10))
for name, bits in {"fp32": 32, "bf16": 16, "8 bits": 8.5, "4 bits": 4.5}.items():
    size = 7e9 * bits / 8e9  # GB: parameters that a token reads. Of a mixture of experts only the active ones
    print(f"{name}: {size:.1f} GB, at most {speed / size:.1f} tokens/s")
# --8<-- [end:limit]
