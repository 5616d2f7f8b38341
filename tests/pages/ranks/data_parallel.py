"""Brings about the warnings and errors of docs/training/data-parallel.md on two ranks: `parameters`, or `lengths`."""

import sys
import warnings

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
from torch.nn.parallel import DistributedDataParallel as DDP
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments


def warnings_of_broadcast_buffers():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        DDP(torch.nn.Linear(4, 4), broadcast_buffers=False)
    print("SAID", *[f"{w.category.__name__}: {w.message}" for w in caught])


def search_that_is_not_needed():
    model = DDP(torch.nn.Linear(4, 4), find_unused_parameters=True)
    model(torch.ones(2, 4)).sum().backward()
    return model


def unused_parameter():
    two = torch.nn.ModuleDict({"used": torch.nn.Linear(4, 4), "unused": torch.nn.Linear(4, 4)})
    two.forward = lambda inputs: two["used"](inputs)
    model = DDP(two)
    for _ in range(2):
        model(torch.ones(2, 4)).sum().backward()


def seed_of_trainer():
    torch.manual_seed(dist.get_rank())
    model = BertForSequenceClassification(
        BertConfig(vocab_size=50, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=1)
    )
    Trainer(model=model, args=TrainingArguments("out", use_cpu=True, report_to=[]))
    print("SAID next random number", torch.rand(1).item())


def attempt(run):
    try:
        run()
    except (RuntimeError, TypeError) as error:
        print(f"SAID {type(error).__name__}: {error}")


dist.init_process_group("gloo")
rank = dist.get_rank()
if sys.argv[1] == "parameters":
    warnings_of_broadcast_buffers()
    model = search_that_is_not_needed()
    attempt(lambda: model.register_comm_hook(None, bf16_compress_hook))
    seed_of_trainer()
    dist.set_debug_level(dist.DebugLevel.INFO)
    attempt(unused_parameter)
    dist.set_debug_level(dist.DebugLevel.OFF)
    attempt(lambda: DDP(torch.nn.Linear(4 + rank, 4)))
else:
    dist.all_gather([torch.zeros(3 + rank) for _ in range(2)], torch.ones(3 + rank))
