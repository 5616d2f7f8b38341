"""Which strategy for this model on these GPUs: does it fit, how long does a step take, and why do the others lose.

    for option in plan("llama3-8b", "a100-sxm4-40", 8, length=4096):
        print(option)

Activations are traced, with the real model code; `device_memory` adds what a GPU holds on top, and an option fits by the
upper end of its band. Seconds are those of `predict`, with low and high. No GPU, no weights, no network. A first trace of
a model takes seconds, and is kept in the user's cache folder. 1 GiB = 2**30 bytes.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace

from . import answer, device_memory, models, timing
from .answer import GiB, usable
from .communication import STAGED, experts_of
from .hardware import GPUS, LINKS, bytes_per_second
from .job import Cluster, Job
from .plan_rows import SAME, strategies
from .roofline import processor
from .rows import Setting
from .workload import Workload, config_of, traced

__all__ = ["GPUS", "LINKS", "STAGED", "Option", "of_job", "plan", "seconds"]

PRECISIONS = ("mixed", "bf16")


@dataclass(frozen=True)
class Option:
    """One strategy: what a GPU and its host hold, and how long an optimizer step takes."""

    strategy: str
    reason: str  # what it does
    workload: Workload
    setting: Setting
    needed: device_memory.Needed
    prediction: timing.Prediction  # without low and high where nobody published such a step
    host: float = 0.0  # bytes that wait in the memory of each host
    host_memory: float | None = None  # bytes of each host, where known
    verdict: str = ""  # why it is first, or loses

    @property
    def trains(self):
        return "adapters" if self.workload.rank else "all"

    @property
    def size(self):
        """Bytes of the GPU's memory."""
        return usable(self.setting.gpu)

    @property
    def fits_gpu(self):
        return self.needed.fits(self.size)

    @property
    def fits_host(self):
        return not self.host or (self.host_memory or 0) >= self.host

    @property
    def fits(self):
        return self.fits_gpu and self.fits_host

    @property
    def seconds(self):
        return self.prediction.seconds

    @property
    def judged(self):
        """Whether published steps say how far the seconds may be off."""
        return self.prediction.low is not None

    def __str__(self):
        low, high = self.prediction.low, self.prediction.high
        time = f"{self.seconds:.3g} s ({f'{low:.3g} to {high:.3g}' if self.judged else 'unjudged'})"
        held = f"{self.needed.expected / GiB:,.0f} to {self.needed.high / GiB:,.0f} GiB of {self.size / GiB:g}"
        return f"{self.strategy:22} {held:26} {time:28} {self.verdict}"


def plan(
    model,
    gpu,
    gpus,
    *,
    length=4096,
    batch=1,
    accumulation=1,
    nodes=1,
    link=None,
    network=None,
    adapters=1,
    precision="mixed",
    checkpointing=True,
    compiled=False,
    fused_loss=False,
    rank=16,
    whole_gradients=False,
    host_memory=None,
    only=None,
):
    """Every strategy as an `Option`: what fits first, full fine-tuning before adapters, then the fastest.

    model: a name of `models`, or the text of a config.json. gpu: a name of `hardware`. gpus: of all `nodes` together.
    batch: sequences of one GPU in a micro-batch; accumulation: micro-batches of a step. Every strategy does the work of
    `gpus` x batch x accumulation sequences in a step; where GPUs share a sequence, in more micro-batches.
    link, network: a name in `LINKS`, or GB/s in one direction as you measured them. Without `link` it is that of the GPU;
    GeForce cards reach a part of their slot. network: of one of the `adapters` of each node.
    precision: "mixed" for fp32 weights computed with in bf16, or "bf16". rank: of the adapters of LoRA.
    checkpointing: True for every layer, or n for every n-th one. whole_gradients: under accumulation FSDP2 reduces in the
    last micro-batch alone, as `Trainer` does: less to send, and whole gradients on every GPU until then. They count 4 bytes
    for each parameter, as fp32 sums take; bf16 sums, `Trainer`'s default, take 2. host_memory: GB of each node; without it
    no strategy with offload fits. only: the name of one strategy, where the others do not matter.
    """
    _check(gpus, nodes, adapters, batch, accumulation, network)
    gpu = processor(gpu)  # ValueError with the nearest name
    if not model.startswith("{"):
        model = models.known(model)
    full = Workload(model, batch, length, checkpointing=int(checkpointing), compiled=compiled,
                    fused_loss=fused_loss)  # fmt: skip
    cluster = Cluster(gpu.name, gpus, gpus // nodes, link, network if nodes > 1 else None, adapters if nodes > 1 else 1)
    here = Setting(
        gpu=gpu.name,
        gpus=gpus,
        gpus_per_node=gpus // nodes,
        accumulation=accumulation,
        whole_gradients=whole_gradients,
        **answer.links(cluster),
    )
    return _options(full, here, precision, rank, host_memory, only)


def of_job(job: Job, cluster: Cluster, only: str | None = None) -> list[Option]:
    """Every strategy for a job on a cluster, as `plan` ranks them. A job of LoRA or QLoRA has those alone."""
    full = replace(job.workload(), weights="bfloat16", autocast="", rank=0, targets="", four_bit=False)
    here = replace(answer.setting_of(job, cluster), strategy="")
    return _options(full, here, job.precision, job.rank, cluster.host_memory_gb, only, job.method)


def _options(full, here, precision, rank, host_memory, only, method="full"):
    if precision not in PRECISIONS:
        raise ValueError(f"precision={precision!r} is not known to a plan: choose one of {', '.join(PRECISIONS)}")
    shape = _shape(full)
    host = host_memory * 1e9 if host_memory else None
    with _tracing(full):
        traced(full)
    families = {}
    for found in strategies(full, here, shape, precision, rank):
        if only not in (None, found.name) or method not in ("full", _method(found.workload)):
            continue
        with contextlib.suppress(ValueError):  # adapters name layers that this model does not have: no row
            families.setdefault(found.family, []).append(_option(found, host))
    families = {name: members for name, members in families.items() if members}
    if not families:
        raise ValueError(
            f"only={only!r}: there is no such strategy for this model and these GPUs: leave it out to see them all"
        )
    return _judged(_ranked([_best(options) for options in families.values()]))


def _method(workload):
    return "qlora" if workload.four_bit else "lora" if workload.rank else "full"


@contextlib.contextmanager
def _tracing(workload):
    """Names the model in whatever its own code raises on sizes that make no sense."""
    try:
        yield
    except Exception as error:
        said = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise ValueError(f"model {workload.model[:40]!r}: its step cannot be traced: {said}") from error


def seconds(size, link, adapters=1):
    """Seconds that `size` bytes take over a link of `LINKS` at its peak."""
    return size / bytes_per_second(link, adapters)


def _option(found, host_memory):
    what = traced(found.workload)
    return Option(
        found.name,
        found.reason,
        found.workload,
        found.setting,
        device_memory.needed(what, found.workload, found.setting, timing.fitted()["memory"]),
        _predicted(what, found.workload, found.setting),
        found.host_bytes * what.parameters / found.setting.nodes,
        host_memory,
    )


def _predicted(what, workload, setting):
    """The prediction. Errors of other steps say nothing of one that no published row has, so it has no low and high:
    sequences or experts that several GPUs share, and offload. `rows.run_of` refuses such rows."""
    found = timing.prediction(what, workload, setting)
    published = setting.sequence == setting.experts == 1 and not setting.offload
    return found if published else replace(found, low=None, high=None)


def _best(options):
    """Of one strategy in several sizes."""
    fitting = [option for option in options if option.fits]
    if fitting:
        return min(fitting, key=lambda option: option.seconds)
    return min(options, key=lambda option: option.needed.high)


def _ranked(options):
    """What fits first; of strategies that are about as fast, the one that is named first in `plan_rows` is simpler."""
    groups, found = {}, []
    for option in options:
        key = not option.fits, option.setting.offload, option.trains == "adapters"
        groups.setdefault(key, []).append(option)
    for (misfits, *_), members in sorted(groups.items()):
        if misfits:
            found += sorted(members, key=lambda option: option.needed.high)
            continue
        while members:
            fastest = min(option.seconds for option in members)
            simplest = next(option for option in members if option.seconds <= SAME * fastest)
            members.remove(simplest)
            found.append(simplest)
    return found


def _judged(options):
    """The options, each with its verdict."""
    first = options[0]
    return [replace(option, verdict=_verdict(option, first)) for option in options]


def _verdict(option, first):
    if not option.fits_gpu:
        said = "may fit" if option.needed.expected <= option.size else "does not fit"
        return (
            f"{said}: up to {option.needed.high / GiB:,.0f} GiB, most of it {_largest(option.needed.categories)}"
        )
    if not option.fits_host:
        known = f"which has {option.host_memory / 1e9:,.0f}" if option.host_memory else "so give host_memory"
        return f"needs {option.host / 1e9:,.0f} GB of each host's memory, {known}"
    if option is first:
        return f"fits, and nothing that fits is clearly faster; bound by {option.prediction.bound}"
    if option.trains != first.trains:
        own, other = ("adapters alone", "all weights")[:: 1 if option.trains == "adapters" else -1]
        return f"trains {own}, and {first.strategy} {other}"
    slower = option.seconds / first.seconds
    if option.setting.offload:
        return f"{slower:.1f}x slower at least: all weights pass the slot of each GPU, and AdamW on the host is not counted"
    if slower <= SAME:
        return f"about as fast, and harder to set up than {first.strategy}"
    return f"{slower:.2f}x slower: {_cause(option, first)}"


NAMES = {"parameters": "weights", "optimizer": "optimizer state"}
CAUSES = {
    "communication": "waits longer for what GPUs send",
    "bandwidth": "moves more memory",
    "mathematics": "computes more, or in smaller products",
    "launches": "launches more and smaller kernels",
}


def _largest(categories):
    name = max(categories, key=categories.get)
    return NAMES.get(name, name)


def _cause(option, first):
    """What takes more of its time than of the first option's."""
    mine, other = option.prediction.parts, first.prediction.parts
    part = max(mine, key=lambda name: mine[name] - other[name])
    if part == "communication" and option.setting.pipeline > 1:
        return "its stages wait for each other"
    return CAUSES[part]


@dataclass(frozen=True)
class Shape:
    """What can be split of a model."""

    layers: int
    heads: int  # of keys and values, which are the fewest
    experts: int  # 0 where there are none


def _shape(workload):
    """The `Shape` of a model; ValueError where its step cannot be planned."""
    with _tracing(workload):
        model_class, config = config_of(workload)
    if not model_class.__name__.endswith(("ForCausalLM", "LMHeadModel")):
        raise ValueError(
            f"model {workload.model[:40]!r}: {model_class.__name__} is no language model: plan() takes those"
        )
    mixture = experts_of(workload)
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    return Shape(config.num_hidden_layers, heads, mixture.number if mixture else 0)


def _check(gpus, nodes, adapters, batch, accumulation, network):
    for name, value in (("gpus", gpus), ("nodes", nodes), ("adapters", adapters), ("batch", batch),
                        ("accumulation", accumulation)):  # fmt: skip
        if value != int(value) or value < 1:
            raise ValueError(f"{name}={value}: give a whole number, 1 or more")
    if nodes > gpus:
        raise ValueError(f"nodes={nodes}: there are only {gpus} GPUs, so at most {gpus} nodes")
    if gpus % nodes:
        near = nodes * max(1, round(gpus / nodes))
        raise ValueError(f"gpus={gpus} do not divide into {nodes} nodes of one size: take {near}")
    if nodes > 1 and network is None:
        raise ValueError(f"nodes={nodes}: name the network between them: network='100 GbE'")
