"""Brings about what docs/training/data-parallel.md says of two ranks: `parameters`, `lengths`, or `streams`."""

import sys
import warnings

import torch
import torch.distributed as dist
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration
from datasets import Dataset
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


def two_forward_passes():
    model = DDP(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.ReLU()))
    (model(torch.randn(8, 4)).mean() + model(torch.randn(8, 4)).mean()).backward()
    print("SAID two forward passes and a backward pass")


def batches_of_a_stream(shards, dispatch):
    rows = Dataset.from_dict({"row": list(range(12))}).to_iterable_dataset(num_shards=shards).with_format("torch")
    accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(dispatch_batches=dispatch))
    loader = accelerator.prepare(torch.utils.data.DataLoader(rows, batch_size=2))
    got = sum((batch["row"].tolist() for batch in loader), [])
    print(f"SAID shards {shards} dispatch {dispatch} rank {accelerator.process_index} {got}")
    accelerator.wait_for_everyone()


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
    two_forward_passes()
    dist.set_debug_level(dist.DebugLevel.INFO)
    attempt(unused_parameter)
    dist.set_debug_level(dist.DebugLevel.OFF)
    attempt(lambda: DDP(torch.nn.Linear(4 + rank, 4)))
elif sys.argv[1] == "streams":
    for shards in (1, 3, 4):
        batches_of_a_stream(shards, dispatch=False)
    batches_of_a_stream(3, dispatch=True)
else:
    dist.all_gather([torch.zeros(3 + rank) for _ in range(2)], torch.ones(3 + rank))
