"""Seconds of many runs at once, as columns of numbers, so that constants can be tried quickly. A prediction is a list of one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, overload

import numpy as np

from . import communication, decoding, kernel_tables
from .kernels import Kernel
from .optimizers import NEWTON_SCHULZ_STEPS, optimizer
from .roofline import Table, bandwidth_share, processor
from .setting import Setting, klass_of

if TYPE_CHECKING:
    from .workload import Traced, Workload

LOSS_BYTES = 3  # how often a fused loss moves the logits in 16 bits
EAGER_LOSS_BYTES = 18  # and one that casts them to fp32, takes their log-softmax and the gradients of both, each apart
EAGER_LOSS_KERNELS = 5
FREE_DISPATCH = 0.1  # CPU time of an operator that only describes a tensor, in those that launch
HIDDEN_UPDATE = 0.5  # of the last backward pass, behind which an all-reduce of gradients can hide
LAUNCH_BOUND = "launch-bound"


class Runs:
    """Workloads on settings, each a row of the columns."""

    runs: list[tuple[Workload, Setting]]
    steps: Table
    updates: Table
    _columns: list[tuple[float, ...]]
    _tokens: list[decoding.Token]

    def __init__(self) -> None:
        self.runs, self.steps, self.updates, self._columns, self._tokens = [], Table(), Table(), [], []

    def add(self, what: Traced, workload: Workload, setting: Setting) -> None:
        gpu = processor(setting.gpu)
        kernels: Mapping[Kernel, float] = what.kernels.counts
        if workload.fused_loss:
            kernels = with_loss_kernels(what, workload, kernels, LOSS_BYTES, 1)
        elif setting.eager_loss:
            kernels = with_loss_kernels(what, workload, kernels, EAGER_LOSS_BYTES, EAGER_LOSS_KERNELS)
        decodes = workload.kind == "decode"
        engine = decodes and setting.host in decoding.ENGINES
        update = optimizer_kernels(what, workload, setting)
        waits = communication.of_step(what, workload, setting)
        self._tokens.append(decoding.token(what, workload, setting) if engine else decoding.Token())
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
        dispatched = _dispatched(what) / setting.pipeline
        self._columns.append(
            (
                dispatched if setting.host == "eager" else 0.0,
                dispatched if setting.host == "script" else 0.0,
                dispatched if setting.host == "megatron" else 0.0,
                cache,
                *waits,
                setting.accumulation,
                communication.bubble(setting),
                setting.gpus > 1,
                decodes,
                engine,
                unpacked,
                kernel_tables.stream(gpu),
                gpu.memory_type,
            )
        )
        self.runs.append((workload, setting))

    def only(self, indices: Sequence[int]) -> Runs:
        """These runs alone."""
        found = Runs()
        found.runs = [self.runs[index] for index in indices]
        found._columns = [self._columns[index] for index in indices]
        found._tokens = [self._tokens[index] for index in indices]
        found.steps, found.updates = self.steps.only(indices), self.updates.only(indices)
        return found

    @overload
    def seconds(self, constants: dict[str, float], parts: Literal[False] = False) -> np.ndarray: ...

    @overload
    def seconds(self, constants: dict[str, float], parts: Literal[True]) -> tuple[np.ndarray, dict[str, np.ndarray]]: ...

    def seconds(self, constants: dict[str, float], parts: bool = False) -> np.ndarray | tuple[np.ndarray, dict[str, np.ndarray]]:
        """Seconds of each run; with `parts`, also {what binds: seconds of each run}."""
        columns = np.array(self._columns, dtype=float).T
        eager, script, megatron, cache, every, once, alone, after, latency, accumulation, bubble, many, decodes, engine, unpacked, streams, memory = columns
        long = np.minimum(1.0, streams * constants["streaming"])
        gpu, mathematics, moved, launching = self._kernels(constants, cache, many, decodes, unpacked, long, memory)
        dispatch = np.where(decodes > 0, constants["decode_dispatch"], constants["dispatch"])
        cpu = eager * dispatch + script * constants["script"] + megatron * constants["megatron"]
        alone = alone / constants["link"] + latency
        busy = np.maximum(gpu, cpu) + alone
        every, once, after = every / constants["link"], once / constants["link"], after / constants["link"]
        exposed = np.maximum(0, once - HIDDEN_UPDATE * busy) + after
        _, (multiplied, streamed, launched) = self.updates.seconds(constants, parts=True)
        short = bandwidth_share(constants, constants["bandwidth"], memory)
        update = multiplied + streamed * short / long + launched
        total = accumulation * np.maximum(busy, every) * bubble + exposed + update
        of_tokens, parts_of_tokens = decoding.seconds(np.array(self._tokens, dtype=float).T, constants)
        total = np.where(engine > 0, of_tokens, total)
        if not parts:
            return total
        waiting = np.maximum(0, every - busy) + alone
        found = {
            "mathematics": accumulation * mathematics + multiplied,
            "bandwidth": accumulation * moved + update - multiplied,
            "launches": accumulation * (launching + np.maximum(0, cpu - gpu)),
            "communication": accumulation * (waiting + np.maximum(busy, every) * (bubble - 1)) + exposed,
        }
        return total, {name: np.where(engine > 0, parts_of_tokens[name], of_steps) for name, of_steps in found.items()}

    def _kernels(
        self, constants: dict[str, float], cache: np.ndarray, many: np.ndarray, decodes: np.ndarray, unpacked: np.ndarray,
        long: np.ndarray, memory: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:  # fmt: skip
        """Seconds on the GPU of each run: all, bound by mathematics, by bandwidth, by launches."""
        short = bandwidth_share(constants, constants["bandwidth"], memory)
        bandwidth = np.where(decodes > 0, long / short, 1.0)
        slower = np.where(many > 0, constants["contention"], 1.0)
        _, (mathematics, moved, launching) = self.steps.seconds(constants, parts=True)
        moved = (moved / bandwidth + cache / long) * slower
        mathematics = (mathematics + unpacked * constants["unpack"]) * slower
        launching = launching * slower
        return mathematics + moved + launching, mathematics, moved, launching

    def classes(self, constants: dict[str, float]) -> list[str]:
        """The class of each run; a step that waits for the CPU, or for many small kernels, is launch-bound."""
        _, parts = self.seconds(constants, parts=True)
        launches = parts["launches"] > np.maximum.reduce([parts[name] for name in ("mathematics", "bandwidth", "communication")])
        return [
            LAUNCH_BOUND if bound and workload.kind != "decode" else klass_of(workload, setting)
            for bound, (workload, setting) in zip(launches, self.runs, strict=True)
        ]


def _peak(setting: Setting) -> str:
    if setting.precision.startswith(("fp8", "mxfp8")):
        return "fp8"
    return "tf32" if setting.precision == "tf32" else ""


def _weights(kernels: Mapping[Kernel, float]) -> float:
    """How many weights the products of a decoded token read. Few tokens of a mixture read only their experts."""
    found = 0.0
    for kernel, count in kernels.items():
        if kernel.kind == "product":
            m, n, k, many = kernel.shape
            found += count * n * k * (1 if many == 1 else min(many, kernel.flops / (2 * n * k)))
    return found


def _dispatched(what: Traced) -> float:
    """Operators that the CPU handles in a step, in those that launch. Autograd's C++ handles views quickly."""
    return sum(
        count * (1 if launches else FREE_DISPATCH)
        for (phase, launches), count in what.kernels.dispatched.items()
        if launches or phase != "backward"
    )


def with_loss_kernels(what: Traced, workload: Workload, kernels: Mapping[Kernel, float], times: int, launches: int) -> dict[Kernel, float]:
    """The kernels of a step whose loss moves the logits, in 16 bits, so many times."""
    logits = 2 * workload.batch * workload.length * what.vocabulary
    kept = {
        kernel: count
        for kernel, count in kernels.items()
        if not (kernel.kind == "memory" and kernel.bytes > 1.5 * logits)
    }
    kept[Kernel("backward", "memory", "bfloat16", 0, (), times * logits, launches)] = 1
    return kept


def optimizer_kernels(what: Traced, workload: Workload, setting: Setting) -> dict[Kernel, float]:
    """The kernels of the optimizer's step on one rank."""
    if workload.kind != "train" or not setting.optimizer:
        return {}
    ranks = setting.tensor * setting.pipeline * setting.shards
    chosen = optimizer(setting.optimizer)
    moved, launches = chosen.moved, chosen.launches
    if setting.state == "master":
        moved *= 40 / 28
    elif workload.weights != "float32" and setting.strategy != "fsdp2" and not setting.state:
        moved *= 0.5  # 16-bit weights and states
    size = round(moved * what.trainable / ranks)
    found: dict[Kernel, float] = {Kernel("optimizer", "memory", "float32", 0, (), size, max(1, round(launches * what.tensors))): 1}
    return {**found, **newton_schulz(what, ranks)} if chosen.orthogonalizes else found


def newton_schulz(what: Traced, ranks: int) -> Mapping[Kernel, float]:
    """The products of Muon, in bf16, on a matrix of n x m with n <= m: X X^T, its square, and their sum times X."""
    found: Counter[Kernel] = Counter()
    for shape, count in what.matrices.items():
        n, m = sorted(shape)
        for product in ((n, n, m, 1), (n, n, n, 1), (n, m, n, 1)):
            rows, columns, inner, _ = product
            moved = 2 * (rows * inner + inner * columns + rows * columns)
            kernel = Kernel("optimizer", "product", "bfloat16", 2 * rows * columns * inner, product, moved, 1)
            found[kernel] += NEWTON_SCHULZ_STEPS * count / ranks  # type: ignore[assignment]  # of a fraction too
    return found
