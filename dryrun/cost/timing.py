"""Seconds of a training step, a forward pass or a generation on a named GPU, with a low and a high, and what binds them.

    step = training_step("llama3-8b", 1, 2048, rank=16, checkpointing=1)
    step.on("rtx-4090")            # Prediction: seconds, low, high, bound, tokens_per_second, mfu
    ratio(eager, compiled, "a100-sxm4-80")  # how many times faster, with the narrower band of a ratio
    generation("llama3-8b", 512, 128, "l4", weights="int4-128")

Low and high hold nine of ten published measurements whose source the constants had not seen: `fitting`, which is in the repository
alone, takes the constants from `fitting/data/published.json`. `dryrun validate` prints the errors.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..step.workload import Traced, Workload
from ..tables.formats import OF_LLAMA_CPP, WEIGHT_BYTES, WHOLE_MODEL
from ..tables.hardware import Accelerator, accelerator, known
from ..tables.optimizers import OPTIMIZERS, optimizer
from ..tables.strategies import STRATEGIES, strategy
from . import communication, decoding
from .roofline import processor
from .runs import LAUNCH_BOUND, Run, run_of, waits
from .runs import klass as klass_of_run
from .setting import Setting
from .traces import traced

if TYPE_CHECKING:
    from ..step.kernels import Kernels

CONSTANTS = Path(__file__).parents[1] / "data" / "constants.json"
INSIDE = 0.9  # share of measurements between low and high
FEWEST_SOURCES = 4  # of a class; errors of fewer sources say little of another one
FEWEST = 12  # errors of a class; with fewer, low and high come from all classes
MOST_GPUS = 5120  # of a published step: what takes more is not judged
# A field of a Workload: the change of published rows whose errors a ratio takes its band from.
PUBLISHED_AS = {
    "weights": "precision", "autocast": "precision", "rank": "method", "targets": "method", "four_bit": "method",
    "length": "seq", "batch": "batch", "checkpointing": "checkpointing", "compiled": "compiled", "attention": "attention",
}  # fmt: skip
ALIKE = ("batch", "checkpointing", "compiled", "method", "optimizer")  # they change no dtype and no attention kernel


@lru_cache(maxsize=1)
def fitted() -> dict[str, Any]:
    """What `make fit` wrote: constants, those of each fold, and the errors on rows that were not fitted."""
    return json.loads(CONSTANTS.read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Prediction:
    seconds: float
    low: float
    high: float
    bound: str  # compute, bandwidth, launches or communication
    tokens_per_second: float  # of all GPUs
    mfu: float  # FLOPs of the model, without recomputation, over the 16-bit peak
    klass: str
    parts: dict[str, float] = field(default_factory=dict)  # seconds by what binds them
    judged: bool = True  # whether steps of this kind were published; else low and high are those of the nearest kind

    @property
    def sure(self) -> bool:
        """Whether seconds may be shown: a launch-bound step depends on the CPU of the host."""
        return self.klass != LAUNCH_BOUND


@dataclass(frozen=True)
class Step:
    """A traced step: its kernels, and how long they take on a GPU."""

    workload: Workload
    traced: Traced

    @property
    def kernels(self) -> Kernels:
        return self.traced.kernels

    def on(
        self,
        gpu: str | Accelerator,
        *,
        gpus: int = 1,
        strategy: str = "fsdp2",
        per_node: int = 8,
        accumulation: int = 1,
        link: float = 0.0,
        precision: str = "bf16",
        optimizer: str = "adamw",
    ) -> Prediction:
        """The `Prediction` on this GPU, or on this many of them. link: bytes/s in one direction, as measured."""
        known("optimizer", optimizer, OPTIMIZERS)
        known("strategy", strategy, STRATEGIES)
        setting = Setting(
            gpu=accelerator(gpu),
            gpus=gpus,
            gpus_per_node=min(gpus, per_node),
            strategy=strategy if gpus > 1 else "",
            accumulation=accumulation,
            optimizer=optimizer if self.workload.kind == "train" else "",
            precision="tf32" if self.workload.weights == "float32" and not self.workload.autocast else precision,
            link=link_peak(gpu, link) if gpus > 1 else 0.0,
            network=network_peak(gpu),
        )
        return prediction(self.traced, self.workload, setting)


def assumed_links(setting: Setting) -> tuple[float, float]:
    """(bytes/s of the link between GPUs, bytes/s of each GPU's share of the network) that are assumed: what a measured link would have to be."""
    return communication.assumed(setting, fitted()["constants"]["link"])


def network_peak(gpu: str | Accelerator) -> float:
    """Bytes/s that stand for the peak of a GPU's share of the network in published clusters: no more than its slot carries, and than GPUs without
    access to each other send inside a node."""
    chosen = processor(gpu)
    return min(communication.adapter(chosen), link_peak(gpu) or chosen.link or communication.PCIE)


def link_peak(gpu: str | Accelerator, measured: float = 0.0) -> float:
    """Bytes/s that stand for the peak of the link between GPUs, in one direction; 0 where that of the data sheet does. What was
    measured is below the peak already. GeForce cards have no access to each other: their bytes pass through host memory."""
    share = fitted()["constants"]["link"]
    if measured:
        return measured / share
    return communication.STAGED * (processor(gpu).link or communication.PCIE) / share if processor(gpu).staged else 0.0


def training_step(model: str, batch: int, length: int, **options: Any) -> Step:
    """A traced training step. model: a name of `models`, or the text of a config.json; options: those of `Workload`."""
    workload = Workload(model, batch, length, **options)
    return Step(workload, traced(workload))


def generation(model: str, prompt: int, new: int, gpu: str | Accelerator, *, batch: int = 1, weights: str = "bf16", tensor: int = 1) -> Prediction:
    """The `Prediction` of a prefill of `prompt` tokens and `new` decoded ones, for each sequence of the batch."""
    first, each = generation_parts(model, prompt, new, gpu, batch=batch, weights=weights, tensor=tensor)
    parts = {name: first.parts[name] + new * each.parts[name] for name in each.parts}
    seconds = first.seconds + new * each.seconds
    return Prediction(
        seconds, first.low + new * each.low, first.high + new * each.high, _largest(parts), batch * new / seconds,
        (first.mfu * first.seconds + each.mfu * each.seconds * new) / seconds, "decode", parts,
    )  # fmt: skip


def generation_parts(
    model: str, prompt: int, new: int, gpu: str | Accelerator, *, batch: int = 1, weights: str = "bf16", tensor: int = 1, rest: str = ""
) -> tuple[Prediction, Prediction]:
    """(the `Prediction` of the prefill, that of one decoded token of each sequence in the middle of the answer). rest: the format of what is
    no expert, where the experts alone are in `weights`."""
    if weights not in WEIGHT_BYTES:
        raise ValueError(f"weights={weights!r}: choose one of {', '.join(WEIGHT_BYTES)}")
    key = accelerator(gpu).key
    if key in decoding.UNEXPLAINED:
        raise ValueError(f"gpu={key!r}: no decoding is predicted: {decoding.UNEXPLAINED[key]}")
    prefill = Workload(model, batch, prompt, kind="forward", compiled=True)
    decode = Workload(model, batch, 1, kind="decode", compiled=True)
    setting = Setting(gpu=accelerator(gpu), gpus=tensor, gpus_per_node=tensor, tensor=tensor, optimizer="",
                      host="llama.cpp" if weights in OF_LLAMA_CPP else "server", link=link_peak(gpu) if tensor > 1 else 0.0,
                      weight_bytes=WEIGHT_BYTES[weights], whole_model=weights in WHOLE_MODEL, context=prompt + new // 2,
                      rest_bytes=WEIGHT_BYTES[rest] if rest and rest != weights else 0.0)  # fmt: skip
    trace = traced(decode)
    first, each = prediction(traced(prefill), prefill, setting), prediction(trace, decode, replace(setting, precision=weights))
    read = decoding.bytes_read(trace, decode, setting) + trace.cache(setting.context) * batch
    soonest = min(each.seconds, read / tensor / processor(gpu).bandwidth)  # no token comes before its bytes
    return first, replace(each, low=max(each.low, soonest))


def prediction(trace: Traced, workload: Workload, setting: Setting, constants: dict[str, float] | None = None) -> Prediction:
    """The `Prediction` of one traced workload on one setting."""
    run = run_of(trace, workload, setting)
    constants = constants or fitted()["constants"]
    parts = run.parts(constants)
    seconds = sum(parts.values())
    klass = klass_of_run(run, waits(parts))
    low, high = band(klass)
    bound = "launches" if klass == LAUNCH_BOUND else "communication" if _waits_for_links(run, constants, seconds) else _largest(parts)
    flops = model_flops(trace, workload)
    split = setting.tensor * setting.pipeline * setting.sequence  # GPUs that work on the same sequences
    peak = processor(setting.gpu).half * split
    mfu = flops * setting.accumulation / seconds / peak
    if workload.kind == "train" and not setting.precision.startswith(("fp8", "mxfp8")):
        low = max(low, min(1.0, mfu * counted_flops(trace) / flops))  # no step is faster than its GPU computes
    tokens = workload.batch * max(1, workload.length) * setting.accumulation
    ranks = max(1, setting.gpus // split)
    return Prediction(
        seconds, seconds * low, seconds * high, bound, tokens * ranks / seconds,
        mfu, klass, parts, is_judged(workload, setting),
    )  # fmt: skip


def _waits_for_links(run: Run, constants: dict[str, float], seconds: float) -> bool:
    """Whether faster links would help most: what is sent beside a computation decides where it takes longer, however long both take."""
    faster = run.parts(constants | {"link": constants["link"] * 1.1})
    return seconds - sum(faster.values()) > seconds * (1 - 1 / 1.1) / 2


def model_flops(trace: Traced, workload: Workload) -> float:
    """FLOPs of a micro-batch without recomputation, those that MFU counts."""
    of: defaultdict[tuple[str, str], float] = defaultdict(float)
    for kernel, count in trace.kernels.counts.items():
        of[kernel.phase, kernel.kind] += count * kernel.flops
    again = sum(flops for (phase, _), flops in of.items() if phase == "recomputation")
    if workload.four_bit and workload.checkpointing == 1:  # inside the 4-bit function autograd is off: the trace calls its recomputation backward
        output_layer = 2 * workload.batch * workload.length * trace.vocabulary * trace.width
        again += max(0, of["forward", "product"] - output_layer - of["recomputation", "product"])
    return sum(of.values()) - again


def counted_flops(trace: Traced) -> float:
    """FLOPs that a GPU really computes in a micro-batch: causal attention skips half of its products."""
    return sum(count * kernel.flops * (0.5 if kernel.kind == "attention" and kernel.shape[3] else 1.0) for kernel, count in trace.kernels.counts.items())


def is_judged(workload: Workload, setting: Setting) -> bool:
    """Whether steps of this kind were published: `fitting.rows.run_of` refuses rows of the others, or there are none."""
    alone = setting.sequence == setting.experts == 1 and not setting.offload
    plain = not workload.references and not optimizer(setting.optimizer).orthogonalizes
    return alone and plain and setting.gpus <= MOST_GPUS and strategy(setting.strategy).published


def _largest(parts: dict[str, float]) -> str:
    return max(parts, key=parts.get)  # type: ignore[arg-type]


def band(klass: str, without: str | None = None) -> tuple[float, float]:
    """(low, high) as factors of the predicted seconds: quantiles of the class's errors on rows of unseen sources, stretched by what held nine in
    ten rows of sources that had no part in them.

    without: a source that is judged by this band, and so has no part in it.
    """
    known, stretches = fitted()["errors"], fitted()["stretched"].get(klass, {})
    return stretched(factors(pool(known, klass, {without})), stretches.get(without, stretches.get("", 1.0)))


def pool(known: Mapping[str, Mapping[str, list[float]]], klass: str, without: Container[str | None]) -> list[float]:
    """The errors that a class's band comes from: its own, or those of all classes where these are of few sources."""

    def of(classes: Iterable[str]) -> list[float]:
        return [
            error
            for name in classes
            for source, found in known.get(name, {}).items()
            if source not in without
            for error in found
        ]

    own = of([klass])
    enough = len(own) >= FEWEST and len(known[klass]) >= FEWEST_SOURCES
    return own if enough else of(name for name in known if name != LAUNCH_BOUND)


def stretched(band: tuple[float, float], by: float) -> tuple[float, float]:
    """The band with its ends that many times as far from its middle, as logarithms."""
    low, high = band
    middle, half = math.sqrt(low * high), math.sqrt(high / low) ** by
    return middle / half, middle * half


def factors(errors: list[float]) -> tuple[float, float]:
    """(low, high) that hold `INSIDE` of measurements, with the correction for how few errors there are."""
    errors = sorted(errors)
    outside = (1 - INSIDE) / 2
    spare = max(0, math.floor(outside * (len(errors) + 1)) - 1)  # errors left outside on each side
    return math.exp(-errors[len(errors) - 1 - spare]), math.exp(-errors[spare])


def ratio(first: Step, second: Step, gpu: str | Accelerator, **setting: Any) -> tuple[float, float, float]:
    """(how many times faster the second step is than the first, low, high), for each sequence."""
    one, other = first.on(gpu, **setting), second.on(gpu, **setting)
    value = (one.seconds / first.workload.batch) / (other.seconds / second.workload.batch)
    low, high = factors(_ratio_errors(first.workload, second.workload))
    return value, value * low, value * high


def _ratio_errors(first: Workload, second: Workload) -> list[float]:
    """Errors of published pairs that differ in the same thing; where these are few, of all whose kernels stay alike."""
    known = fitted()["ratio_errors"]
    changes = {PUBLISHED_AS.get(name) for name, value in vars(first).items() if value != vars(second)[name]}
    errors = [error for change in changes for error in known.get(change, ())]
    return errors if len(errors) >= FEWEST else [error for change in ALIKE for error in known.get(change, ())]


def changed(step: Step, **options: Any) -> Step:
    """The same step with other options of its `Workload`."""
    workload = replace(step.workload, **options)
    return Step(workload, traced(workload))
