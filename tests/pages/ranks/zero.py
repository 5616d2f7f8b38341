"""Counts what DeepSpeed's ZeRO-1 and ZeRO-2 send in an optimizer step: bytes of the whole tensors, per parameter."""

from collections import Counter

import deepspeed
import torch
import torch.distributed as dist

SENDS = ("all_reduce", "reduce", "reduce_scatter_tensor", "all_gather_into_tensor")
sent = Counter()


def counted(name, run):
    def wrapper(*args, **kwargs):
        largest = max((x.nbytes for x in (*args, *kwargs.values()) if isinstance(x, torch.Tensor)), default=0)
        sent[name] += largest if largest > 1000 else 0  # not the sums of a norm
        return run(*args, **kwargs)

    return wrapper


def count(stage, micro_batches, default):
    model = torch.nn.Linear(256, 256, bias=False)
    zero = {"stage": stage} if default else {"stage": stage, "use_multi_rank_bucket_allreduce": False}
    config = {
        "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": micro_batches, "bf16": {"enabled": True},
        "optimizer": {"type": "AdamW", "params": {"torch_adam": True}}, "zero_optimization": zero,
    }  # fmt: skip
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
    sent.clear()
    for _ in range(micro_batches):
        engine.backward(engine(torch.ones(1, 256, dtype=torch.bfloat16)).sum())
        engine.step()
    print("zero", stage, micro_batches, default, *(f"{name}={size / 256**2:g}" for name, size in sent.items() if size))


for name in SENDS:
    setattr(dist, name, counted(name, getattr(dist, name)))
count(1, 1, True)
count(2, 1, True)
count(2, 3, True)
count(2, 1, False)
end = dist.barrier(async_op=True)
end.wait()
dist.destroy_process_group()  # without it some runs stand still when Python ends
