"""The loop of a training program of the pages on fake ranks: what one rank holds, of the very lines that readers run.

The program runs up to its region `train` as it is, with a tokenizer and a model of one depth in place of the checkpoint's.
Then the region runs on fake tensors, until the second update. The first one makes the optimizer's state.
"""

import contextlib
import json
import os
import sys
from unittest import mock

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily
from torch.testing._internal.distributed.fake_pg import FakeStore
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.distributed.utils import initialize_distributed_mesh

from dryrun.step import depth
from dryrun.tracing import tracing
from dryrun.tracing.collectives import RankTracker
from dryrun.tracing.gpu_operators import GpuOperators
from dryrun.tracing.ranks import RankTrace

LOOP = "# --8<-- [start:train]"
RANK = 1  # rank 0 prints losses, which fake tensors do not have; its shards are no larger
ROW = {"messages": [{"role": "user", "content": "?"}, {"role": "assistant", "content": "!"}]}


class Ended(Exception):
    """The second update is done."""


class Tokenizer:
    """Every conversation has as many tokens, half of them the question."""

    def __init__(self, length):
        self.length = length

    def apply_chat_template(self, messages, add_generation_prompt=False):
        return {"input_ids": [1] * (self.length // 2 if add_generation_prompt else self.length)}


def deep(program, config, folder, layers, **options):
    """The `RankTrace` of the deep model of `config` by way of those of two shallow ones."""
    steps = [traced(program, depth.with_layers(config, number), folder, **options) for number in layers]
    return depth.line_of(steps, layers, config.num_hidden_layers, RankTrace(strategy="fsdp2", ranks=steps[0].ranks))


def traced(program, config, folder, *, ranks, length, arguments=()):
    """What a rank of the program holds, with a model of this configuration and conversations of `length` tokens."""
    if getattr(config, "layer_types", None):
        config.layer_types = config.layer_types[: config.num_hidden_layers]
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    start = dist.init_process_group

    def from_pretrained(name, dtype, distributed_config):
        _, mesh = initialize_distributed_mesh(distributed_config)
        distributed_config.fsdp_mixed_precision = True  # as on a GPU
        with mode, GpuOperators("auto"):
            model = tracing.build_model(AutoModelForCausalLM, config, dtype, tracing.implementation("auto"))
            with unset_fake_temporarily():
                return model.maybe_distribute_model(model, distributed_config, mesh)

    patches = (
        mock.patch.object(sys, "argv", [str(program), *map(str, arguments)]),
        mock.patch.dict(os.environ, {"LOCAL_WORLD_SIZE": str(ranks), "LOCAL_RANK": str(RANK)}),
        mock.patch.object(
            dist, "init_process_group", lambda *_: start("fake", store=FakeStore(), rank=RANK, world_size=ranks)
        ),
        mock.patch.object(dist, "broadcast_object_list", lambda chosen: None),
        mock.patch.object(AutoTokenizer, "from_pretrained", lambda name: Tokenizer(length)),
        mock.patch.object(AutoModelForCausalLM, "from_pretrained", from_pretrained),
        contextlib.chdir(folder),
    )
    before, loop = program.read_text(encoding="utf-8").split(LOOP)
    names = {"__name__": "__main__"}
    with contextlib.ExitStack() as stack:
        for patch in patches:
            stack.enter_context(patch)
        (folder / "conversations.jsonl").write_text(200 * f"{json.dumps(ROW)}\n")
        try:
            exec(compile(before, str(program), "exec"), names)
            return _run(compile(loop, str(program), "exec"), names, mode, ranks)
        finally:
            dist.destroy_process_group()


def _run(loop, names, mode, ranks):
    model, optimizer = names["model"], names["optimizer"]
    result, updates = RankTrace(strategy="fsdp2", ranks=ranks), []

    def count(*_):
        updates.append(1)
        if len(updates) == 2:
            raise Ended

    with mode, GpuOperators("auto"), mock.patch.object(torch.Tensor, "item", lambda tensor: 1):
        tracing.create_state(model, optimizer)
        optimizer.register_step_post_hook(count)
        with RankTracker(model, optimizer) as tracker:
            tracing.end_part_in_mid_backward(model, tracker)
            with contextlib.suppress(Ended):
                exec(loop, names)
            tracker.part()
    assert len(updates) == 2
    result.parameters = sum(parameter.numel() for parameter in model.parameters())
    result.take(tracker)
    result.collectives = list(tracker.collectives.values())
    return result
