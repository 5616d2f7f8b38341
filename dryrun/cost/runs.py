"""What a step on GPUs consists of, as numbers; and the formula that makes seconds of them and the constants."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ..step.kernels import Kernel
from ..tables.optimizers import NEWTON_SCHULZ_STEPS, optimizer
from . import communication, decoding, kernel_tables, roofline
from .elementwise import Numbers, maximum, minimum, where
from .roofline import bandwidth_share, processor
from .setting import Setting, klass_of

if TYPE_CHECKING:
    from ..step.workload import Traced, Workload

LOSS_BYTES = 3  # how often a fused loss moves the logits in 16 bits
EAGER_LOSS_BYTES = 18  # and one that casts them to fp32, takes their log-softmax and the gradients of both, each apart
EAGER_LOSS_KERNELS = 5
FREE_DISPATCH = 0.1  # CPU time of an operator that only describes a tensor, in those that launch
HIDDEN_UPDATE = 0.5  # of the last backward pass, behind which an all-reduce of gradients can hide
ENDS = 2  # of a model: its embedding and its output layer
LAUNCH_BOUND = "launch-bound"
PARTS = ("compute", "bandwidth", "launches", "communication")


class Facts(NamedTuple):
    """Of a run beside its kernels, or columns of many. Seconds are at the peak of the link; operators those that the CPU handles."""

    eager: Numbers  # operators of PyTorch, of a script of one kernel after the other, of Megatron
    script: Numbers
    megatron: Numbers
    cache: Numbers  # seconds that reading the KV cache takes
    every: Numbers  # communication that each micro-batch can hide, that the step can, that nothing can, and after the backward pass
    once: Numbers
    alone: Numbers
    after: Numbers
    latency: Numbers
    accumulation: Numbers
    bubble: Numbers
    crowded: Numbers  # share of the micro-batches in which collectives take a part of the GPU
    decodes: Numbers
    engine: Numbers
    unpacked: Numbers  # seconds of one fp32 operation for each weight
    stream: Numbers  # share of the bandwidth that long copies reach
    memory_type: Numbers


@dataclass(frozen=True)
class Run:
    """A workload on a setting."""

    workload: Workload
    setting: Setting
    step: list[roofline.Row]
    update: list[roofline.Row]
    facts: Facts
    token: decoding.Token

    def parts(self, constants: Mapping[str, float]) -> dict[str, float]:
        """{what binds: seconds}. Their sum is what the step takes."""
        kernels, update = roofline.seconds(self.step, constants), roofline.seconds(self.update, constants)
        return parts(self.facts, kernels, update, self.token, constants)


def run_of(trace: Traced, workload: Workload, setting: Setting) -> Run:
    """ValueError where a pipeline has more stages than the model has layers."""
    gpu = processor(setting.gpu)
    _check_stages(trace, setting)
    kernels: Mapping[Kernel, float] = trace.kernels.counts
    if workload.fused_loss:
        kernels = with_loss_kernels(trace, workload, kernels, LOSS_BYTES, 1)
    elif setting.eager_loss:
        kernels = with_loss_kernels(trace, workload, kernels, EAGER_LOSS_BYTES, EAGER_LOSS_KERNELS)
    decodes = workload.kind == "decode"
    engine = decodes and setting.host in decoding.ENGINES
    kernels = communication.of_rank(kernels, setting, trace, workload)
    narrow = decodes or (workload.kind == "forward" and setting.weight_bytes < 2)
    dispatched = _dispatched(trace) / setting.pipeline
    sent = communication.of_step(trace, workload, setting)
    facts = Facts(
        dispatched if setting.host == "eager" else 0.0,
        dispatched if setting.host == "script" else 0.0,
        dispatched if setting.host == "megatron" else 0.0,
        trace.cache(setting.context) * workload.batch / setting.tensor / gpu.bandwidth if decodes else 0.0,
        *sent,
        setting.accumulation,
        communication.bubble(setting),
        _crowded(sent, setting),
        decodes,
        engine,
        _weights(kernels) / gpu.fp32 if decodes and setting.weight_bytes < 2 else 0.0,
        kernel_tables.stream(gpu),
        gpu.memory_type,
    )
    return Run(
        workload,
        setting,
        roofline.rows(kernels, gpu, _peak(setting), setting.weight_bytes if narrow else None, setting.attention),
        roofline.rows(optimizer_kernels(trace, workload, setting), gpu),
        facts,
        decoding.token(trace, workload, setting) if engine else decoding.Token(),
    )


def _crowded(sent: communication.Seconds, setting: Setting) -> float:
    """The share of the micro-batches in which collectives take a part of the GPU. DDP sums gradients in the last one alone."""
    if setting.gpus == 1:
        return 0.0
    if sent.every or sent.alone or sent.latency or setting.pipeline > 1:
        return 1.0
    return 1 / setting.accumulation if sent.once else 0.0


def _check_stages(trace: Traced, setting: Setting) -> None:
    stages = setting.pipeline * setting.virtual_stages
    most = trace.layers + ENDS  # trainers may count embedding and output layer as layers
    if setting.virtual_stages > 1 and stages > most:
        fix = f"give virtual_stages={max(1, most // setting.pipeline)} or fewer"
        raise ValueError(f"virtual_stages={setting.virtual_stages}: {setting.pipeline} stages have {stages}, and the model has {trace.layers} layers: {fix}")


def parts(
    facts: Facts,
    kernels: tuple[Numbers, Numbers, Numbers],
    update: tuple[Numbers, Numbers, Numbers],
    token: decoding.Token,
    constants: Mapping[str, float],
) -> dict[str, Numbers]:
    """{what binds: seconds} of a run, or of columns of many. Their sum is what it takes.

    kernels, update: `roofline.seconds` of a micro-batch and of the optimizer's step.
    """
    long = minimum(1.0, facts.stream * constants["streaming"])
    short = bandwidth_share(constants, constants["bandwidth"], facts.memory_type)
    slower = 1.0 + facts.crowded * (constants["contention"] - 1.0)
    compute, moved, launching = kernels
    moved = (moved / where(facts.decodes, long / short, 1.0) + facts.cache / long) * slower
    compute = (compute + facts.unpacked * constants["unpack"]) * slower
    launching = launching * slower
    gpu = compute + moved + launching
    dispatch = where(facts.decodes, constants["decode_dispatch"], constants["dispatch"])
    cpu = facts.eager * dispatch + facts.script * constants["script"] + facts.megatron * constants["megatron"]
    alone = facts.alone / constants["link"] + facts.latency
    busy = maximum(gpu, cpu) + alone
    every, once, after = (sent / constants["link"] for sent in (facts.every, facts.once, facts.after))
    exposed = maximum(0.0, once - HIDDEN_UPDATE * busy) + after
    multiplied, streamed, launched = update
    waiting = maximum(0.0, every - busy) + alone
    times = facts.accumulation
    of_step = {
        "compute": times * compute + multiplied,
        "bandwidth": times * moved + streamed * short / long + launched,
        "launches": times * (launching + maximum(0.0, cpu - gpu)),
        "communication": times * (waiting + maximum(busy, every) * (facts.bubble - 1)) + exposed,
    }
    of_token = decoding.seconds(token, constants)
    return {name: where(facts.engine, of_token[name], of_step[name]) for name in PARTS}


def waits(parts: Mapping[str, Numbers]) -> Numbers:
    """Whether a step waits for the CPU, or for many small kernels, longer than for anything else."""
    most = maximum(maximum(parts["compute"], parts["bandwidth"]), parts["communication"])
    return parts["launches"] > most


def klass(run: Run, waits: bool) -> str:
    return LAUNCH_BOUND if waits and run.workload.kind != "decode" else klass_of(run.workload, run.setting)


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


def _dispatched(trace: Traced) -> float:
    """Operators that the CPU handles in a step, in those that launch. Autograd's C++ handles views quickly."""
    return sum(
        count * (1 if launches else FREE_DISPATCH)
        for (phase, launches), count in trace.kernels.dispatched.items()
        if launches or phase != "backward"
    )


def with_loss_kernels(trace: Traced, workload: Workload, kernels: Mapping[Kernel, float], times: int, launches: int) -> dict[Kernel, float]:
    """The kernels of a step whose loss moves the logits, in 16 bits, so many times."""
    logits = 2 * workload.batch * workload.length * trace.vocabulary
    changed_kernels = {
        kernel: count
        for kernel, count in kernels.items()
        if not (kernel.kind == "memory" and kernel.bytes > 1.5 * logits)
    }
    changed_kernels[Kernel("backward", "memory", "bfloat16", 0, (), times * logits, launches)] = 1
    return changed_kernels


def optimizer_kernels(trace: Traced, workload: Workload, setting: Setting) -> dict[Kernel, float]:
    """The kernels of the optimizer's step on one rank."""
    if workload.kind != "train" or not setting.optimizer:
        return {}
    ranks = setting.tensor * setting.pipeline * setting.shards
    chosen = optimizer(setting.optimizer)
    moved, launches = chosen.moved, chosen.launches
    if setting.state == "master":
        moved *= 40 / 28
    elif workload.weights != "float32" and not setting.state:
        moved *= 0.5  # 16-bit weights and states
    size = round(moved * trace.trainable / ranks)
    kernels: dict[Kernel, float] = {Kernel("optimizer", "memory", "float32", 0, (), size, max(1, round(launches * trace.tensors))): 1}
    return {**kernels, **newton_schulz(trace, ranks)} if chosen.orthogonalizes else kernels


def newton_schulz(trace: Traced, ranks: int) -> Mapping[Kernel, float]:
    """The products of Muon, in bf16, on a matrix of n x m with n <= m: X X^T, its square, and their sum times X."""
    found: Counter[Kernel] = Counter()
    for shape, count in trace.matrices.items():
        n, m = sorted(shape)
        for product in ((n, n, m, 1), (n, n, n, 1), (n, m, n, 1)):
            rows, columns, inner, _ = product
            moved = 2 * (rows * inner + inner * columns + rows * columns)
            kernel = Kernel("optimizer", "product", "bfloat16", 2 * rows * columns * inner, product, moved, 1)
            found[kernel] += NEWTON_SCHULZ_STEPS * count / ranks  # type: ignore[assignment]  # of a fraction too
    return found
