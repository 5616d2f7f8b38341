"""Seconds of a training step, a forward pass or a generation on a named GPU, with a low and a high, and what binds them.

    step = training_step("llama3-8b", 1, 2048, rank=16, checkpointing=1)
    step.on("rtx-4090")            # Prediction: seconds, low, high, bound, tokens_per_second, mfu
    ratio(eager, compiled, "a100-sxm4-80")  # how many times faster, with the narrower band of a ratio
    generation("llama3-8b", 512, 128, "l4", weights="int4-128")

Low and high hold nine of ten published measurements whose source the constants had not seen (`fit`). The constants come
from measurements of `data/published.json`; `dryrun validate` prints the errors.
"""

import json
import math
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from . import communication
from .formats import WEIGHT_BYTES
from .hardware import accelerator
from .kernels import Kernel
from .roofline import Table, bandwidth_share, processor
from .rows import Setting, klass_of
from .workload import Workload, traced

CONSTANTS = Path(__file__).with_name("data") / "constants.json"
LOSS_BYTES = 3  # how often a fused loss moves the logits in 16 bits
EAGER_LOSS_BYTES = 18  # and one that casts them to fp32, takes their log-softmax and the gradients of both, each apart
EAGER_LOSS_KERNELS = 5
FREE_DISPATCH = 0.1  # CPU time of an operator that only describes a tensor, in those that launch
HIDDEN_UPDATE = 0.5  # of the last backward pass, behind which an all-reduce of gradients can hide
INSIDE = 0.9  # share of measurements between low and high
FEWEST_SOURCES = 4  # of a class; errors of fewer sources say little of another one
FEWEST = 12  # errors of a class; with fewer, low and high come from all classes
# A field of a Workload: the change of published rows whose errors a ratio takes its band from.
PUBLISHED_AS = {
    "weights": "precision", "autocast": "precision", "rank": "method", "targets": "method", "four_bit": "method",
    "length": "seq", "batch": "batch", "checkpointing": "checkpointing", "compiled": "compiled", "attention": "attention",
}  # fmt: skip
ALIKE = ("batch", "checkpointing", "compiled", "method", "optimizer")  # they change no dtype and no attention kernel
LAUNCH_BOUND = "launch-bound"
# Bytes that an optimizer's step moves for each fp32 weight, and its launches for each tensor.
OPTIMIZERS = {
    "adamw": (28, 1 / 40),  # fused: reads weight, gradient and two states, writes weight and states
    "adam_foreach": (80, 14 / 40),
    "adamw_foreach": (80, 14 / 40),
    "adamw_loop": (80, 14),
    "sgd": (12, 1 / 40),
    "adafactor": (40, 12),
    "adam8bit": (16, 1),
    "sgd_momentum": (20, 3),
}


@lru_cache(maxsize=1)
def fitted():
    """What `make fit` wrote: constants, those of each fold, and the errors on rows that were not fitted."""
    return json.loads(CONSTANTS.read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Prediction:
    seconds: float
    low: float
    high: float
    bound: str  # mathematics, bandwidth, launches or communication
    tokens_per_second: float  # of all GPUs
    mfu: float  # FLOPs of the model, without recomputation, over the 16-bit peak
    klass: str
    parts: dict = field(default_factory=dict)  # seconds by what binds them

    @property
    def sure(self):
        """Whether seconds may be shown: a launch-bound step depends on the CPU of the host."""
        return self.bound != "launches"


@dataclass(frozen=True)
class Step:
    """A traced step: its kernels, and how long they take on a GPU."""

    workload: Workload
    traced: object

    @property
    def kernels(self):
        return self.traced.kernels

    def on(
        self,
        gpu,
        *,
        gpus=1,
        strategy="fsdp2",
        per_node=8,
        accumulation=1,
        link=0.0,
        precision="bf16",
        optimizer="adamw",
    ):
        """The `Prediction` on this GPU, or on this many of them. link: bytes/s in one direction, as measured."""
        setting = Setting(
            gpu=gpu,
            gpus=gpus,
            gpus_per_node=min(gpus, per_node),
            strategy=strategy if gpus > 1 else "",
            accumulation=accumulation,
            optimizer=optimizer if self.workload.kind == "train" else "",
            precision="tf32" if self.workload.weights == "float32" and not self.workload.autocast else precision,
            link=link_peak(gpu, link) if gpus > 1 else 0.0,
            network=communication.adapter(processor(gpu)),
        )
        return prediction(self.traced, self.workload, setting)


def link_peak(gpu, measured=0.0):
    """Bytes/s that stand for the peak of the link between GPUs, in one direction; 0 where that of the data sheet does. What was
    measured is below the peak already. GeForce cards have no access to each other: their bytes pass through host memory."""
    share = fitted()["constants"]["link"]
    if measured:
        return measured / share
    staged = accelerator(gpu).name.startswith(("GeForce", "TITAN"))
    return communication.STAGED * (processor(gpu).link or communication.PCIE) / share if staged else 0.0


def training_step(model, batch, length, **options):
    """A traced training step. model: a name of `models`, or the text of a config.json; options: those of `Workload`."""
    workload = Workload(model, batch, length, **options)
    return Step(workload, traced(workload))


def generation(model, prompt, new, gpu, *, batch=1, weights="bf16", tensor=1):
    """The `Prediction` of a prefill of `prompt` tokens and `new` decoded ones, for each sequence of the batch."""
    first, each = generation_parts(model, prompt, new, gpu, batch=batch, weights=weights, tensor=tensor)
    parts = {name: first.parts[name] + new * each.parts[name] for name in each.parts}
    seconds = first.seconds + new * each.seconds
    return Prediction(
        seconds, first.low + new * each.low, first.high + new * each.high, _largest(parts), batch * new / seconds,
        (first.mfu * first.seconds + each.mfu * each.seconds * new) / seconds, "decode", parts,
    )  # fmt: skip


def generation_parts(model, prompt, new, gpu, *, batch=1, weights="bf16", tensor=1):
    """(the `Prediction` of the prefill, that of one decoded token of each sequence in the middle of the answer)."""
    if weights not in WEIGHT_BYTES:
        raise ValueError(f"weights={weights!r}: choose one of {', '.join(WEIGHT_BYTES)}")
    prefill = Workload(model, batch, prompt, kind="forward", compiled=True)
    decode = Workload(model, batch, 1, kind="decode", compiled=True)
    setting = Setting(gpu=gpu, gpus=tensor, gpus_per_node=tensor, tensor=tensor, optimizer="", host="graphs",
                      weight_bytes=WEIGHT_BYTES[weights], context=prompt + new // 2)  # fmt: skip
    what = traced(decode)
    first, each = prediction(traced(prefill), prefill, setting), prediction(what, decode, setting)
    read = what.weight_bytes * setting.weight_bytes + what.cache(setting.context) * batch
    soonest = min(each.seconds, read / tensor / processor(gpu).bandwidth)  # no token comes before its bytes
    return first, replace(each, low=max(each.low, soonest))


def prediction(what, workload, setting, constants=None):
    """The `Prediction` of one traced workload on one setting."""
    runs = Runs()
    runs.add(what, workload, setting)
    constants = constants or fitted()["constants"]
    total, parts = runs.seconds(constants, parts=True)
    seconds = float(total[0])
    parts = {name: float(values[0]) for name, values in parts.items()}
    klass = runs.classes(constants)[0]
    low, high = band(klass)
    flops = sum(
        count * kernel.flops for kernel, count in what.kernels.counts.items() if kernel.phase != "recomputation"
    )
    split = setting.tensor * setting.pipeline * setting.sequence  # GPUs that work on the same sequences
    peak = processor(setting.gpu).half * split
    tokens = workload.batch * max(1, workload.length) * setting.accumulation
    ranks = max(1, setting.gpus // split)
    return Prediction(
        seconds, seconds * low, seconds * high, "launches" if klass == LAUNCH_BOUND else _largest(parts), tokens * ranks / seconds,
        flops * setting.accumulation / seconds / peak, klass, parts,
    )  # fmt: skip


def _largest(parts):
    return max(parts, key=parts.get)


def band(klass, without=None):
    """(low, high) as factors of the predicted seconds: quantiles of the class's errors on rows of unseen sources.

    without: a source that is judged by this band, and so has no part in it.
    """
    known = fitted()["errors"]

    def of(classes):
        return [
            error
            for name in classes
            for source, found in known.get(name, {}).items()
            if source != without
            for error in found
        ]

    mine = of([klass])
    enough = len(mine) >= FEWEST and len(known[klass]) >= FEWEST_SOURCES
    return factors(mine if enough else of(known))


def factors(errors):
    """(low, high) that hold `INSIDE` of measurements, with the correction for how few errors there are."""
    errors = sorted(errors)
    outside = (1 - INSIDE) / 2
    spare = max(0, math.floor(outside * (len(errors) + 1)) - 1)  # errors left outside on each side
    return math.exp(-errors[len(errors) - 1 - spare]), math.exp(-errors[spare])


def prediction_errors(data, constants):
    """(logarithm of predicted over measured, whether the measurement is inside low and high) of rows that `fit` read."""
    errors = data.errors(constants)
    classes = data.runs.classes(constants)
    bands = [band(klass, row["source"]) for klass, row in zip(classes, data.rows, strict=True)]
    inside = [low <= math.exp(-error) <= high for error, (low, high) in zip(errors, bands, strict=True)]
    return errors, np.array(inside)


def ratio(first, second, gpu, **setting):
    """(how many times faster the second step is than the first, low, high), for each sequence."""
    one, other = first.on(gpu, **setting), second.on(gpu, **setting)
    value = (one.seconds / first.workload.batch) / (other.seconds / second.workload.batch)
    low, high = factors(_ratio_errors(first.workload, second.workload))
    return value, value * low, value * high


def _ratio_errors(first, second):
    """Errors of published pairs that differ in the same thing; where these are few, of all whose kernels stay alike."""
    known = fitted()["ratio_errors"]
    changes = {PUBLISHED_AS.get(name) for name, value in vars(first).items() if value != vars(second)[name]}
    mine = [error for change in changes for error in known.get(change, ())]
    return mine if len(mine) >= FEWEST else [error for change in ALIKE for error in known.get(change, ())]


class Runs:
    """Many runs as columns of numbers, so that constants can be tried quickly. A prediction is a list of one."""

    def __init__(self):
        self.runs, self.steps, self.updates, self._columns = [], Table(), Table(), []

    def add(self, what, workload, setting):
        gpu = processor(setting.gpu)
        kernels = what.kernels.counts
        if workload.fused_loss:
            kernels = with_loss_kernels(what, workload, kernels, LOSS_BYTES, 1)
        elif setting.eager_loss:
            kernels = with_loss_kernels(what, workload, kernels, EAGER_LOSS_BYTES, EAGER_LOSS_KERNELS)
        decodes = workload.kind == "decode"
        update = optimizer_kernels(what, workload, setting)
        waits = communication.of_step(what, workload, setting)
        cache = what.cache(setting.context) * workload.batch / setting.tensor / gpu.bandwidth if decodes else 0.0
        kernels = communication.of_rank(kernels, setting, what, workload)
        unpacked = _weights(kernels) / gpu.fp32 if decodes and setting.weight_bytes < 2 else 0.0
        self.steps.add(
            kernels,
            gpu,
            _peak(setting),
            setting.weight_bytes if decodes or (workload.kind == "forward" and setting.weight_bytes < 2) else None,
            setting.attention,
        )
        self.updates.add(update, gpu)
        dispatched = _dispatched(what)
        self._columns.append(
            (
                dispatched if setting.host == "eager" else 0.0,
                dispatched if setting.host == "script" else 0.0,
                cache,
                *waits,
                setting.accumulation,
                communication.bubble(setting),
                setting.gpus > 1,
                decodes,
                unpacked,
                setting.host == "graphs",
                gpu.memory_type,
            )
        )
        self.runs.append((workload, setting))

    def only(self, indices):
        """These runs alone."""
        found = Runs()
        found.runs = [self.runs[index] for index in indices]
        found._columns = [self._columns[index] for index in indices]
        found.steps, found.updates = self.steps.only(indices), self.updates.only(indices)
        return found

    def seconds(self, constants, parts=False):
        """Seconds of each run; with `parts`, also {what binds: seconds of each run}."""
        columns = np.array(self._columns, dtype=float).T
        eager, script, cache, every, once, alone, after, accumulation, bubble, many, decodes, unpacked, graphs, memory = columns
        gpu, mathematics, moved, launching = self._kernels(constants, cache, many, decodes, unpacked, graphs, memory)
        dispatch = np.where(decodes > 0, constants["decode_dispatch"], constants["dispatch"])
        cpu = eager * dispatch + script * constants["script"]
        busy = np.maximum(gpu, cpu) + alone / constants["link"]
        every, once, after = every / constants["link"], once / constants["link"], after / constants["link"]
        exposed = np.maximum(0, once - HIDDEN_UPDATE * busy) + after
        update = self.updates.seconds({**constants, "bandwidth": constants["streaming"]})
        total = accumulation * np.maximum(busy, every) * bubble + exposed + update
        if not parts:
            return total
        waiting = np.maximum(0, every - busy) + alone / constants["link"]
        return total, {
            "mathematics": accumulation * mathematics,
            "bandwidth": accumulation * moved + update,
            "launches": accumulation * (launching + np.maximum(0, cpu - gpu)),
            "communication": accumulation * (waiting + np.maximum(busy, every) * (bubble - 1)) + exposed,
        }

    def _kernels(self, constants, cache, many, decodes, unpacked, graphs, memory):
        """Seconds on the GPU of each run: all, bound by mathematics, by bandwidth, by launches."""
        short, long = (bandwidth_share(constants, constants[name], memory) for name in ("bandwidth", "streaming"))
        bandwidth = np.where(decodes > 0, long / short, 1.0)
        lean = np.where(decodes > 0, constants["decode_launch"] / constants["launch"], 1.0)
        lean = np.where((decodes > 0) & (graphs > 0), constants["graph_launch"] / constants["launch"], lean)
        slower = np.where(many > 0, constants["contention"], 1.0)
        _, (mathematics, moved, launching) = self.steps.seconds(constants, parts=True)
        moved = (moved / bandwidth + cache / constants["streaming"]) * slower
        mathematics = (mathematics + unpacked * constants["unpack"]) * slower
        launching = launching * lean * slower
        return mathematics + moved + launching, mathematics, moved, launching

    def classes(self, constants):
        """The class of each run; a step that waits for the CPU, or for many small kernels, is launch-bound."""
        _, parts = self.seconds(constants, parts=True)
        launches = parts["launches"] > np.maximum(parts["mathematics"], parts["bandwidth"])
        return [
            LAUNCH_BOUND if bound and workload.kind != "decode" else klass_of(workload, setting)
            for bound, (workload, setting) in zip(launches, self.runs, strict=True)
        ]


def _peak(setting):
    if setting.precision.startswith(("fp8", "mxfp8")):
        return "fp8"
    return "tf32" if setting.precision == "tf32" else ""


def _weights(kernels):
    """How many weights the products of a decoded token read. Few tokens of a mixture read only their experts."""
    found = 0.0
    for kernel, count in kernels.items():
        if kernel.kind == "product":
            m, n, k, many = kernel.shape
            found += count * n * k * (1 if many == 1 else min(many, kernel.flops / (2 * n * k)))
    return found


def _dispatched(what):
    """Operators that the CPU handles in a step, in those that launch. Autograd's C++ handles views quickly."""
    return sum(
        count * (1 if launches else FREE_DISPATCH)
        for (phase, launches), count in what.kernels.dispatched.items()
        if launches or phase != "backward"
    )


def with_loss_kernels(what, workload, kernels, times, launches):
    """The kernels of a step whose loss moves the logits, in 16 bits, so many times."""
    logits = 2 * workload.batch * workload.length * what.vocabulary
    kept = {
        kernel: count
        for kernel, count in kernels.items()
        if not (kernel.kind == "memory" and kernel.bytes > 1.5 * logits)
    }
    kept[Kernel("backward", "memory", "bfloat16", 0, (), times * logits, launches)] = 1
    return kept


def optimizer_kernels(what, workload, setting):
    """The kernels of the optimizer's step on one rank."""
    if workload.kind != "train" or not setting.optimizer:
        return {}
    ranks = setting.tensor * setting.pipeline * setting.shards
    moved, launches = OPTIMIZERS.get(setting.optimizer, OPTIMIZERS["adamw"])
    if setting.state == "master":
        moved *= 40 / 28
    elif workload.weights != "float32" and setting.strategy != "fsdp2" and setting.state != "fp32":
        moved *= 0.5  # 16-bit weights and states
    size = round(moved * what.trainable / ranks)
    return {Kernel("optimizer", "memory", "float32", 0, (), size, max(1, round(launches * what.tensors))): 1}


def changed(step, **options):
    """The same step with other options of its `Workload`."""
    workload = replace(step.workload, **options)
    return Step(workload, traced(workload))
