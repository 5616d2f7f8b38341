"""Does tensor parallelism make one answer faster on your GPUs? Measures NCCL's sum between them, in a CUDA graph.

torchrun --nproc-per-node 4 worth_it.py
"""

import os
import time

import torch
import torch.distributed as dist

LAYERS, HIDDEN, WEIGHTS = 80, 8192, 141e9  # Llama-3.1-70B in bf16: 70.6 billion parameters x 2 bytes
BANDWIDTH = 1008e9  # bytes/s that your GPU reads, by its data sheet

gpu = torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"])
device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if gpu else torch.device("cpu")
if gpu:
    torch.cuda.set_device(device)
dist.init_process_group("nccl" if gpu else "gloo")


# --8<-- [start:measure]
def seconds_of_a_sum(tokens, repeats=200):
    """Of an all-reduce as one block of a layer makes it, the mean of many in a row."""
    block = torch.zeros(tokens, HIDDEN, dtype=torch.bfloat16, device=device)

    def sums():
        for _ in range(repeats):
            dist.all_reduce(block)

    sums()  # opens connections
    if gpu:  # as an engine runs them: launched one by one, each would wait for Python
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            sums()
        sums = graph.replay
        sums()
    wait()
    started = time.perf_counter()
    sums()
    wait()
    return (time.perf_counter() - started) / repeats


def wait():
    if gpu:
        torch.cuda.synchronize()


each = seconds_of_a_sum(tokens=1)
sums = 2 * LAYERS * each
ranks, alone = dist.get_world_size(), WEIGHTS / BANDWIDTH
if dist.get_rank() == 0:
    print(f"a sum takes {1e6 * each:.0f} µs, those of a token {1e3 * sums:.1f} ms")
    print(f"reading the weights takes {1e3 * alone:.0f} ms on one GPU, {1e3 * alone / ranks:.0f} ms on {ranks}")
    print(f"with this sum {alone / (alone / ranks + sums):.2f}x the tokens/s, more with a faster one")
# --8<-- [end:measure]
end = dist.barrier(async_op=True)  # named, so that gloo does not free it while Python ends
end.wait()
dist.destroy_process_group()
