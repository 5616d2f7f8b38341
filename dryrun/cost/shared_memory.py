"""Decoding on machines whose GPU shares the computer's memory: Macs, NVIDIA's GB10 and AMD's Strix Halo. No torch.

llama.cpp writes one token at a time there, and nearly all of its time goes into reading weights and cache. A token takes some
microseconds for each layer, and its bytes at a share of the data sheet's bandwidth: two constants for each kind of machine, which
`fitting.shared_memory` takes from published runs. Batches, prompts and training were hardly published of these machines, and are not predicted.
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..tables.formats import OF_LLAMA_CPP, WEIGHT_BYTES
from ..tables.hardware import GB, Accelerator
from . import decoding, timing

if TYPE_CHECKING:
    from ..step.workload import Traced, Workload

DATA = Path(__file__).parents[1] / "data" / "shared_memory.json"
MAC, PC = "Mac", "PC with unified memory"
FORMATS = (*OF_LLAMA_CPP, "fp16", "bf16")  # that were published of these machines
# Of the memory, what the system leaves to the GPU unless told otherwise.
LEFT = {
    MAC: 11.84 / 16,  # https://github.com/AlexsJones/llmfit/pull/754
    "strix-halo": 62 / 125,  # https://github.com/unslothai/unsloth/pull/7960
    "gb10": 121.69 / 128,  # https://github.com/MiaAI-Lab/GLM-5.3-Flash-EXL3-2x-DGX-Sparks/issues/47
}
GIVEN = 92_000 / 1024 / 96  # the most that somebody let it take, of MB and GB: https://github.com/antirez/ds4/issues/46


def kind(gpu: Accelerator) -> str:
    """MAC, PC, or "" of a GPU with memory of its own."""
    if not gpu.shares_memory:
        return ""
    return MAC if gpu.family == "apple" else PC


def left(gpu: Accelerator) -> float:
    """The share of the memory that the GPU may take unless the system is told otherwise."""
    return LEFT.get(gpu.key, LEFT.get(kind(gpu), 1.0))


def most(gpu: Accelerator) -> float:
    """The share that it may take if the system is told so."""
    return max(left(gpu), GIVEN if kind(gpu) else 1.0)


@lru_cache(maxsize=1)
def fitted() -> dict[str, Any]:
    """{kind: {"layer": seconds, "share": of the bandwidth, "errors": {source: [logarithms of predicted over measured]}}}"""
    return json.loads(DATA.read_text(encoding="utf-8"))["kinds"]


def unpredicted(gpu: Accelerator, gpus: int, batch: int, weights: str) -> str:
    """In words, why no decoding is predicted on such a machine, or ""."""
    if gpus > 1:
        return "nobody published enough runs of several such machines together"
    if batch > 1:
        return "published runs of such machines write one sequence at a time: take a batch of 1"
    if weights not in FORMATS:
        return f"only runs of llama.cpp judge a speed here: take weights in {', '.join(FORMATS)}"
    return ""


def bytes_read(trace: Traced, workload: Workload, weights: str, context: int) -> float:
    """Of memory, for one token after so many others: all weights that its products take, and the cache."""
    return sum(decoding.weights_read(trace, workload)) * WEIGHT_BYTES[weights] + trace.cache(context)


def seconds(layers: int, read: float, bandwidth: float, constants: dict[str, Any]) -> dict[str, float]:
    """{what binds: seconds} of a token. bandwidth: bytes/s of the data sheet."""
    return {"launches": layers * constants["layer"], "bandwidth": read / bandwidth / constants["share"]}


def band(known: dict[str, Any]) -> tuple[float, float]:
    """(low, high) as factors of the predicted seconds: those of the kind's errors, and of few sources at least those of all decoding."""
    low, high = timing.factors([error for errors in known["errors"].values() for error in errors])
    if len(known["errors"]) >= timing.FEWEST_SOURCES:
        return low, high
    others = timing.band("decode")
    return min(low, others[0]), max(high, others[1])


def token(trace: Traced, workload: Workload, gpu: Accelerator, weights: str, context: int) -> timing.Prediction:
    """One decoded token of one sequence that has so many tokens before it."""
    known, bandwidth = fitted()[kind(gpu)], gpu.get("bandwidth") * GB
    read = bytes_read(trace, workload, weights, context)
    parts = seconds(trace.layers, read, bandwidth, known)
    total = sum(parts.values())
    low, high = band(known)
    bound = max(parts, key=parts.get)  # type: ignore[arg-type]
    soonest = min(total, read / bandwidth)  # no token comes before its bytes
    return timing.Prediction(total, max(total * low, soonest), total * high, bound, 1 / total, 0.0, "decode", parts)
