"""Strategies of data-parallel training: what each cuts into shards, what it sends and what it holds beside its state. One table for
memory, seconds, and the names that a reader gives.

This is the formula. `ranks` runs PyTorch's own sharding code on fake ranks, and a test compares both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

PARAMETERS, GRADIENTS, OPTIMIZER = "parameters", "gradients", "optimizer"
# When something is sent: beside each micro-batch, beside the last backward pass, while each micro-batch waits, while the step waits.
EVERY, LAST, ALONE, AFTER = "every", "once", "alone", "after"


@dataclass(frozen=True)
class Send:
    """What a rank sends in a step, for each weight of `of`: all of them, or those that are trained."""

    of: str
    when: str
    width: float | None  # bytes; None for the weights' own, as they are stored
    times: int = 1  # by rings an all-reduce is two of what it reduces
    between_nodes: bool = False  # a shard of a node with the same shard of others; else among all that share the weights out


@dataclass(frozen=True)
class Strategy:
    label: str
    does: str  # as a plan shows it
    shards: tuple[str, ...]
    sends: tuple[Send, ...]
    in_node: bool = False  # each node has all shards
    gathers: bool = False  # it holds whole layers while it computes
    buckets: bool = False  # it copies gradients into buckets
    deepspeed: bool = False  # 16-bit weights, and fp32 weights, gradients and moments in the optimizer
    published: bool = True  # whether published steps judge it; else its band is that of the others


ZERO = {"deepspeed": True, "published": False}
STRATEGIES = {
    "fsdp2": Strategy(
        "FSDP2",
        "everything sharded; gathers each layer twice in every micro-batch",
        (PARAMETERS, GRADIENTS, OPTIMIZER),
        (Send("all", EVERY, None, 2), Send("trained", EVERY, 4)),  # gathered in 16 bits, reduced in fp32
        gathers=True,
    ),
    "ddp": Strategy(
        "DDP",
        "every GPU holds everything; needs gradient_as_bucket_view=True, else a second set of gradients",
        (),
        (Send("trained", LAST, None, 2),),
        buckets=True,
    ),
    "zero1": Strategy(
        "ZeRO-1",
        "16-bit weights and gradients whole, fp32 state sharded",
        (OPTIMIZER,),
        (Send("trained", AFTER, 2, 2), Send("trained", AFTER, 2)),  # gradients, then weights, without overlap
        **ZERO,
    ),
    "zero2": Strategy(
        "ZeRO-2",
        "16-bit weights whole, all else sharded; reduces gradients after every micro-batch",
        (GRADIENTS, OPTIMIZER),
        (Send("trained", ALONE, 2, 2), Send("trained", AFTER, 2)),
        **ZERO,
    ),
    "hsdp": Strategy(
        "HSDP",
        "sharded inside a node, repeated across nodes: only gradients cross, once a step",
        (PARAMETERS, GRADIENTS, OPTIMIZER),
        (Send("all", EVERY, None, 2), Send("trained", EVERY, 4), Send("trained", LAST, 4, 2, between_nodes=True)),
        in_node=True,
        gathers=True,
        published=False,
    ),
}
# Of DistributedDataParallel, in bytes: a bucket is full from here on (torch/nn/parallel/distributed.py).
FIRST_BUCKET, BUCKET = 2**20, 25 * 2**20
ALONE_ON_A_GPU = Strategy("one GPU", "nothing to send", (), ())


def strategy(name: str) -> Strategy:
    """By the name of `STRATEGIES`, or "" for what has one rank."""
    return STRATEGIES[name] if name else ALONE_ON_A_GPU


def buckets(sizes: Sequence[int]) -> list[list[int]]:
    """The places of gradients in DDP's buckets. sizes: bytes of each gradient, in the order in which they come."""
    filled: list[list[int]] = [[]]
    size, limit = 0, FIRST_BUCKET
    for place, more in enumerate(sizes):
        if size >= limit:
            filled.append([])
            size, limit = 0, BUCKET
        filled[-1].append(place)
        size += more
    return filled if sizes else []
