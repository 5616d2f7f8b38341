"""One model on one GPU, answered: does it fit, how many tokens per second, what binds, and which changes would help."""

import json
from dataclasses import asdict, dataclass, replace

from . import communication, device_memory, models, timing
from .hardware import accelerator
from .roofline import processor
from .rows import Setting
from .workload import Workload, traced

GiB = 2**30
NAMES = {"parameters": "weights", "optimizer": "optimizer state"}
WORTH = 1.03  # a change that gains less is not named
SHOWN = 3


@dataclass(frozen=True)
class Answer:
    workload: Workload
    setting: Setting
    traced: object
    needed: device_memory.Needed
    prediction: timing.Prediction
    constants: dict | None = None  # of one machine, by `bench`; None: the fitted ones

    @property
    def fits(self):
        return self.needed.fits(usable(self.setting.gpu))


def usable(gpu):
    """Bytes of a GPU's memory that a program can use, as nvidia-smi shows them."""
    return accelerator(gpu).bytes


def answer(workload, setting, constants=None):
    what = traced(workload)
    needed = device_memory.needed(what, workload, setting, timing.fitted()["memory"])
    found = timing.prediction(what, workload, setting, constants)
    return Answer(workload, setting, what, needed, found, constants)


def changes(now):
    """The changes that would help most: (what, its command line option, the answer with it), the best first.

    Where the step does not fit, a change helps if it fits; else if it is faster.
    """
    found = []
    for what, option, workload, setting in _candidates(now):
        try:
            then = answer(workload, setting, now.constants)
        except Exception:  # whatever a model's own code raises: a suggestion that cannot be traced costs no answer
            continue
        faster = then.prediction.tokens_per_second / now.prediction.tokens_per_second
        saves = now.needed.expected - then.needed.expected
        if (
            (then.fits and not now.fits)
            or (then.fits and faster > WORTH)
            or (not now.fits and saves > 0.05 * now.needed.expected)
        ):
            found.append((what, option, then))
    found.sort(
        key=lambda change: (
            change[2].fits,
            change[2].prediction.tokens_per_second if change[2].fits else -change[2].needed.expected,
        )
    )
    return found[::-1][:SHOWN]


def _candidates(now):
    workload, setting = now.workload, now.setting
    if not workload.compiled:
        yield "torch.compile", "--compile", replace(workload, compiled=True), setting
    if workload.attention != "fused":
        yield "fused attention", "--attention auto", replace(workload, attention="fused"), setting
    if not workload.fused_loss:
        yield "a fused cross entropy", "--fused-loss", replace(workload, fused_loss=True), setting
    if workload.weights == "float32" and not workload.autocast:
        yield (
            "bf16 autocast",
            "--dtype mixed",
            replace(workload, autocast="bfloat16"),
            replace(setting, precision="amp_bf16"),
        )
    if workload.checkpointing:
        yield "no checkpointing", "without --checkpointing", replace(workload, checkpointing=0), setting
    else:
        yield "activation checkpointing", "--checkpointing", replace(workload, checkpointing=1), setting
    if not workload.rank:
        yield "LoRA", "--lora 16", replace(workload, rank=16, targets="all linear"), setting
    if not workload.four_bit and setting.gpus == 1:
        small = replace(workload, rank=workload.rank or 16, targets="all linear", four_bit=True, checkpointing=1)
        yield "QLoRA with checkpointing", "--qlora 16 --checkpointing", small, setting
    yield "twice the batch", f"--batch {2 * workload.batch}", replace(workload, batch=2 * workload.batch), setting
    if setting.gpus > 1 and setting.accumulation < 8:
        more = replace(setting, accumulation=2 * setting.accumulation)
        yield "twice the accumulation", f"--accumulation {more.accumulation}", workload, more


def lines(now, found):
    """The report, line by line."""
    gpu, size = accelerator(now.setting.gpu), usable(now.setting.gpu)
    count = f"{now.setting.gpus} x " if now.setting.gpus > 1 else ""
    yield f"{title(now.workload)}, {now.traced.parameters / 1e9:,.3g} billion parameters, {now.traced.trainable / 1e9:,.3g} billion trained"
    yield f"{now.workload.batch} x {now.workload.length:,} tokens on {count}{gpu.label}"
    if left_out := models.left_out(now.workload.model):
        yield f"the part that reads and writes text, without {left_out}"
    yield ""
    yield f"{'Memory at the peak':24}{'GiB':>10}"
    for name, bytes_ in now.needed.categories.items():
        if bytes_ > 0.005 * GiB:
            yield f"{NAMES.get(name, name):24}{bytes_ / GiB:10,.2f}"
    tensors = sum(now.needed.categories.values())
    yield f"{'on top of tensors':24}{(now.needed.expected - tensors) / GiB:10,.2f}"
    yield f"{'total':24}{now.needed.expected / GiB:10,.2f}   up to {now.needed.high / GiB:,.2f}"
    yield f"{'of the GPU':24}{size / GiB:10,.2f}   {verdict(now.needed, size)}"
    yield ""
    yield from _links(now.setting)
    yield from _speed(now.prediction)
    if found:
        yield ""
        yield "What would help" if now.fits else "What would help, first what makes it fit"
        yield from (_change(now, *change) for change in found)
    yield ""
    if now.constants:
        yield "With the rates that python -m dryrun bench measured on this machine."
    yield "Predicted, not measured: python -m dryrun validate prints the errors on published measurements."


def verdict(needed, size):
    """Whether a step fits on a GPU of this many bytes, in words."""
    if needed.fits(size):
        return "it fits"
    return "it may fit: that depends on what the allocator cannot fill" if needed.expected <= size else "it does not fit"


def _links(setting):
    """What is assumed of the links, where a step uses them."""
    if setting.gpus == 1:
        return
    link, network = communication.assumed(setting)
    yield f"{'link between GPUs':24}{link / 1e9:10,.1f}   GB/s in one direction (--link: as you measured it)"
    if setting.nodes > 1:
        yield f"{'network of each GPU':24}{network / 1e9:10,.1f}   GB/s, as published clusters have it"


def _speed(found):
    if not found.sure:
        yield "Launch-bound: the GPU waits for the CPU to launch small kernels. Seconds depend on the host's CPU."
        yield f"{'seconds of a step':24}{found.seconds:10.3g}   {found.low:.3g} to {found.high:.3g}, if its CPU is like those of published rows"
    else:
        yield f"{'seconds of a step':24}{found.seconds:10.3g}   {found.low:.3g} to {found.high:.3g}"
    rate = found.tokens_per_second * found.seconds
    yield f"{'tokens per second':24}{found.tokens_per_second:10,.0f}   {rate / found.high:,.0f} to {rate / found.low:,.0f}"
    yield f"{'MFU':24}{100 * found.mfu:9.0f}%"
    yield f"{'bound by':24}{found.bound:>10}"


def _change(now, what, option, then):
    faster = then.prediction.tokens_per_second / now.prediction.tokens_per_second
    saved = (now.needed.expected - then.needed.expected) / GiB
    speed = f"{faster:.2f}x as fast" if faster >= 1 else f"{1 / faster:.2f}x slower"
    memory = f"{abs(saved):,.1f} GiB {'less' if saved >= 0 else 'more'}"
    return f"  {what:26} {speed}, {memory}, {'fits' if then.fits else 'does not fit'}   ({option})"


def title(workload):
    if not workload.model.startswith("{"):
        return workload.model
    return json.loads(workload.model).get("model_type", "model")


def as_json(now, found):
    """The same, for programs."""
    return {
        "gpu": processor(now.setting.gpu).name,
        "gpus": now.setting.gpus,
        "model": title(now.workload),
        "left_out": models.left_out(now.workload.model),
        "parameters": now.traced.parameters,
        "trained": now.traced.trainable,
        "memory_gib": {name: size / GiB for name, size in now.needed.categories.items()},
        "expected_gib": now.needed.expected / GiB,
        "high_gib": now.needed.high / GiB,
        "gpu_gib": usable(now.setting.gpu) / GiB,
        "fits": now.fits,
        **asdict(now.prediction),
        "changes": [
            {
                "change": what,
                "option": option,
                "fits": then.fits,
                "tokens_per_second": then.prediction.tokens_per_second,
                "expected_gib": then.needed.expected / GiB,
            }
            for what, option, then in found
        ],
    }
