"""How long will it take? 6 x parameters x tokens, divided by the FLOP/s of this machine."""
import time

import torch


# --8<-- [start:estimate]
def flops_per_second(dtype=torch.float32, size=2048, repeats=3):
    """What a large matrix product reaches on this machine: training reaches no more."""
    a, b = torch.randn(size, size, dtype=dtype), torch.randn(size, size, dtype=dtype)
    seconds = []
    for _ in range(repeats + 1):
        started = time.perf_counter()
        a @ b
        seconds.append(time.perf_counter() - started)
    return 2 * size**3 / min(seconds)


def hours(parameters, tokens, flops):
    return 6 * parameters * tokens / flops / 3600
# --8<-- [end:estimate]


print(f"BERT-base on SQuAD at 1 TFLOP/s: {hours(109e6, 2 * 87_599 * 384, 1e12):.0f} h")
print(f"BERT-base on SQuAD here, at best: {hours(109e6, 2 * 87_599 * 384, flops_per_second()):.0f} h")
