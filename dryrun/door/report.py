"""Answers in words, line by line. `as_json` has the same for programs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from ..answer.answer import counts_as_fp16, usable
from ..answer.verdict import in_words
from ..cost import shared_memory, timing
from ..cost.device_memory import NAMES
from ..cost.ran import KINDS
from ..models import models
from ..tables.hardware import GiB
from . import launch

if TYPE_CHECKING:
    from ..answer.answer import Answer
    from ..answer.inference import Served
    from ..answer.job import Cluster, Generation, Job
    from ..answer.planner import Option
    from ..cost.ran import Ran
    from ..cost.setting import Setting
    from ..step.memory_trace import Trace


def step(now: Answer, found: list[tuple[str, str, Answer]], bill: Iterable[str] = (), measured: float | None = None) -> Iterator[str]:
    """Whether a training step fits, how fast it is and what would help, line by line. measured: tokens per second where it ran."""
    gpu, size = now.setting.gpu, usable(now.setting.gpu)
    count = f"{now.setting.gpus} x " if now.setting.gpus > 1 else ""
    yield f"{models.title(now.workload.model)}, {now.traced.parameters / 1e9:,.3g} billion parameters, {now.traced.trainable / 1e9:,.3g} billion trained"
    pairs = now.workload.references and not now.setting.answers
    batch = f"{now.workload.batch // 2} x 2" if pairs else now.workload.batch
    yield f"{batch} x {now.workload.length:,} tokens on {count}{gpu.label}"
    yield from said_of_model(now.workload.model)
    if counts_as_fp16(now):
        yield f"{gpu.label} has no bf16: counted as fp16, which takes as long and needs a loss scaler"
    yield ""
    yield f"{'Memory at the peak':24}{'GiB':>10}"
    for name, bytes_ in now.needed.categories.items():
        if bytes_ > 0.005 * GiB:
            yield f"{NAMES.get(name, name):24}{bytes_ / GiB:10,.2f}"
    tensors = sum(now.needed.categories.values())
    yield f"{'on top of tensors':24}{(now.needed.expected - tensors) / GiB:10,.2f}"
    yield f"{'total':24}{now.needed.expected / GiB:10,.2f}   up to {now.needed.high / GiB:,.2f}"
    yield f"{'of the GPU':24}{size / GiB:10,.2f}   {now.verdict}"
    yield ""
    yield from _links(now.setting)
    yield from _speed(now.prediction)
    if measured:
        yield from _measured(now, measured)
    if now.ran:
        yield _followed([now.prediction.klass], now.ran)
    if now.setting.answers:
        yield f"{'of it writing answers':24}{now.prediction.parts['writing answers']:10.3g}   by vLLM on the same GPU, {now.setting.answers:,} tokens each"
    if not now.prediction.judged:
        yield "Nobody published such a step that could judge it: low and high are those of its nearest kind."
    if found:
        yield ""
        yield "What would help" if now.fits else "What would help, first what makes it fit"
        yield from (_change(now, *change) for change in found)
    yield from bill
    yield ""
    if now.constants:
        yield "With the rates that dryrun bench measured on this machine."
    yield "Predicted, not measured: dryrun validate prints the errors on published measurements."


def _links(setting: Setting) -> Iterator[str]:
    """What is assumed of the links, where a step uses them."""
    if setting.gpus == 1:
        return
    link, network = timing.assumed_links(setting)
    yield f"{'link between GPUs':24}{link / 1e9:10,.3g}   GB/s in one direction, as one would measure it (--link: yours)"
    if setting.nodes > 1:
        yield f"{'network of each GPU':24}{network / 1e9:10,.3g}   GB/s, as one would measure it (--network: that of an adapter)"


def _speed(found: timing.Prediction) -> Iterator[str]:
    if not found.sure:
        yield "Launch-bound: the GPU waits for the CPU to launch small kernels. Seconds depend on the host's CPU."
        yield f"{'seconds of a step':24}{found.seconds:10.3g}   {found.low:.3g} to {found.high:.3g}, if its CPU is like those of published rows"
    else:
        yield f"{'seconds of a step':24}{found.seconds:10.3g}   {found.low:.3g} to {found.high:.3g}"
    rate = found.tokens_per_second * found.seconds
    yield f"{'tokens per second':24}{found.tokens_per_second:10,.0f}   {rate / found.high:,.0f} to {rate / found.low:,.0f}"
    whole = "   MFU counts attention whole, and a causal one skips half" if found.mfu > 1 else ""
    yield f"{'MFU':24}{100 * found.mfu:9.0f}%{whole}"
    yield f"{'bound by':24}{found.bound:>10}"


def _measured(now: Answer, rate: float) -> Iterator[str]:
    """A run of this very step beside its prediction, and what it says of others."""
    ran, found = now.measured(rate), now.prediction
    taken = found.seconds * found.tokens_per_second / rate
    where = "inside the range" if found.low <= taken <= found.high else "outside the range: did just this step run?"
    yield f"{'measured':24}{rate:10,.0f}   {ran.times:.2f} times as long as predicted, {where}"
    if ran.says:
        yield f"{'':34}   other steps on {'one GPU' if ran.kind == 'one' else 'many GPUs'} of this machine, with this software, follow it: --ran {ran}"
    else:
        yield f"{'':34}   one step of this kind says nothing sure of another ({found.klass}): no other answer follows it"


def _followed(classes: Iterable[str], ran: Ran) -> str:
    """Whether predictions of these classes follow a step that ran."""
    if ran.says and KINDS[ran.kind] in classes:
        return f"--ran {ran}: as a step that took {ran.times:.3g} times as long as predicted has it"
    return f"--ran {ran}: that step says nothing sure of this kind, so the prediction stays as it was"


def _change(now: Answer, what: str, option: str, then: Answer) -> str:
    faster = then.prediction.tokens_per_second / now.prediction.tokens_per_second
    saved = (now.needed.expected - then.needed.expected) / GiB
    speed = f"{faster:.2f}x as fast" if faster >= 1 else f"{1 / faster:.2f}x slower"
    memory = f"{abs(saved):,.1f} GiB {'less' if saved >= 0 else 'more'}"
    if "--qlora" in option and now.workload.rank:
        option += ", in place of --lora"
    return f"  {what:26} {speed}, {memory}, {then.verdict.short.removeprefix('it ')}   ({option})"


def said_of_model(model: str) -> Iterator[str]:
    """What a reader must know of how a model was taken: parts that are left out, the format of the published weights."""
    if left_out := models.left_out(model):
        yield f"the part that reads and writes text, without {left_out}"
    if stored := models.stored_in(model):
        yield f"its weights are published in {stored}: here they count in the precision that you name"


def _said_of_weights(asked: Generation) -> Iterator[str]:
    """The same where text is generated: the checkpoint's own format is what `infer` takes by itself."""
    stored = asked.model.stored
    if left_out := asked.model.left_out:
        yield f"the part that reads and writes text, without {left_out}"
    if asked.as_published:
        yield f"its weights as they are published: {stored.in_words}"
    elif stored.name and stored.known:
        yield f"its weights are published in {stored.name}: {stored.in_words} (--weights published)"
    elif stored.name:
        yield f"its weights are published in {stored.name}, some layers in another format, which is not counted: here all count in {asked.weights}"


def traced_step(found: Trace, job: Job) -> Iterator[str]:
    """Memory and FLOPs of a training step of one device, line by line. No GPU is named, so there are no seconds."""
    checkpointing = "with" if job.checkpointing else "without"
    yield f"{job.model.class_name}, {found.parameters / 1e9:,.3g} billion parameters"
    yield f"{job.batch} x {job.length:,} tokens, {job.precision}, {job.optimizer}, {checkpointing} checkpointing"
    yield from said_of_model(job.model.text)
    yield ""
    yield f"{'Memory at the peak':22}{'GiB':>10}"
    for category, size in [*found.peak_by_category.items(), ("total", found.peak)]:
        yield f"{category:22}{size / GiB:10,.2f}"
    yield ""
    yield f"{'FLOPs of the step':22}{'10^12':>10}"
    flops = found.flops | {"total": found.flops["forward"] + found.flops["backward"]}
    for name, count in flops.items():
        label = {"recomputation": "  of it recomputation"}.get(name, name)
        yield f"{label:22}{count / 1e12:10,.2f}"
    yield ""
    yield "A GPU needs more memory: the CUDA context, workspaces of libraries and the allocator's rounding come on top."


def largest(batch: int | None) -> Iterator[str]:
    """The largest batch that fits, where it was asked for."""
    if batch is not None:
        yield ""
        yield f"{'largest batch that fits':24}{batch:10,}   sequences of a micro-batch" if batch else "not even one sequence fits for sure"


def bill(now: Answer, tokens: float, price: float | None, measured: float | None = None) -> Iterator[str]:
    """Hours and cost of so many tokens at the predicted rate, or at a measured one, line by line. price: for one GPU and hour, in any currency."""
    hours, low, high = now.hours(tokens, measured)
    yield ""
    yield f"{tokens:,.3g} tokens"
    days = f", {hours / 24:,.3g} days" if hours > 48 else ""
    between = "as measured" if measured else f"{low:,.3g} to {high:,.3g}"
    yield f"{'hours':24}{hours:10,.3g}   {between}{days}, without loading and evaluation"
    if price:
        each = price * now.setting.gpus
        yield f"{'at your price':24}{hours * each:10,.4g}{'' if measured else f'   {low * each:,.4g} to {high * each:,.4g}'}"


def errors() -> Iterator[str]:
    """The errors of predictions on published rows whose source the constants had not seen, by class: what low and high come from."""
    yield f"{'':34}{'rows':>6}{'sources':>9}{'median':>9}{'p90':>8}"
    of_machines = {f"decoding, {kind}": known["errors"] for kind, known in shared_memory.fitted().items()}
    for klass, by_source in (timing.fitted()["errors"] | of_machines).items():
        off = sorted(100 * abs(math.exp(error) - 1) for found in by_source.values() for error in found)
        tail = off[min(len(off) - 1, math.ceil(0.9 * len(off)) - 1)]
        yield f"{klass:34}{len(off):6}{len(by_source):9}{statistics.median(off):8.1f}%{tail:7.1f}%"
    yield ""
    yield "In percent of the published seconds. The rows are in the repository: there dryrun validate judges each anew."


def options(found: list[Option], job: Job, cluster: Cluster, ran: Ran | None = None) -> Iterator[str]:
    """Every strategy of a plan, the best first, line by line."""
    count = f"{cluster.gpus} x " if cluster.gpus > 1 else ""
    yield f"{models.title(job.model.text)}, {job.batch} x {job.length:,} tokens on each of {count}{cluster.gpu.label}, {job.precision}, {job.optimizer}"
    yield f"{'with' if job.checkpointing else 'without'} checkpointing, micro-batches of a step: {job.accumulation}"
    yield from said_of_model(job.model.text)
    if found:
        yield from _links(found[0].setting if cluster.gpus > 1 else found[-1].setting)
    if ran:
        yield _followed([option.prediction.klass for option in found], ran)
    yield ""
    yield f"{'strategy':26}{'GiB of a GPU':22}seconds of a step"
    for option in found:
        low, high = option.prediction.low, option.prediction.high
        band = f"{low:.3g} to {high:.3g}" if option.judged else "nobody published such a step"
        band = "at least: AdamW on the host is not counted" if option.setting.offload else band
        held = f"{option.needed.expected / GiB:,.0f} to {option.needed.high / GiB:,.0f} of {option.size / GiB:,.3g}"
        yield f"{option.strategy:26}{held:22}{option.seconds:.3g} ({band})"
        yield f"    {in_words(option.verdict, '--host-memory')}"
    if any(option.setting.views for option in found):
        yield "DDP is counted with gradient_as_bucket_view=True: without it a GPU holds all gradients twice."
    yield ""
    yield f"{found[0].strategy}: {launch.command(found[0])}"
    if launch.file_of(found[0]):
        yield "    --launch accelerate.yaml writes that file"
    yield "Predicted, not measured: dryrun validate --plan compares such plans with published ones."


def served(found: Served, price: float | None = None) -> Iterator[str]:
    """Whether a generation fits, for how many users, and how fast it is, line by line. price: for one GPU and hour, in any currency."""
    asked, cluster = found.generation, found.cluster
    count = f"{cluster.gpus} x " if cluster.gpus > 1 else ""
    yield f"{models.title(asked.model.text)}, {found.traced.parameters / 1e9:,.3g} billion parameters, weights in {asked.weights}, KV cache in 16 bits"
    yield f"{asked.batch} x {asked.prompt:,} tokens of prompt, {asked.new:,} new, on {count}{cluster.label}"
    yield from _said_of_weights(asked)
    yield ""
    yield f"{'On each GPU':24}{'GiB':>10}"
    yield f"{'weights':24}{found.weights / GiB:10,.2f}"
    yield f"{'KV cache':24}{asked.batch * found.cache(found.tokens) / GiB:10,.2f}"
    yield f"{'of the GPU':24}{found.size / GiB:10,.2f}   {found.verdict}"
    if found.size < cluster.memory:
        yield f"{'':24}{'':10}   the system leaves it {found.size / cluster.memory:.0%} of {cluster.memory / GiB:,.0f} GiB, unless told otherwise"
    if found.verdict.fit == "no":
        for line in found.what_fits() or [f"nothing of {found.tried()}"]:
            yield f"  would fit: {line}"
        return
    yield ""
    if found.users is not None and not cluster.gpu.shares_memory:  # llama.cpp writes for one reader there
        yield f"{'sequences at once':24}{found.users:10,}   of {found.tokens:,} tokens each, by the room for their caches"
    if found.longest is not None:
        yield f"{'longest context':24}{found.longest:10,}   tokens, one sequence"
    yield ""
    if not found.predicted:
        yield f"No speed: {found.unpredicted}."
        return
    first, each = found.prefill, found.decode
    if first:
        band = f"{first.low:.3g} to {first.high:.3g}" if found.prefill_judged else "unjudged: nobody published such weights"
        yield f"{'seconds to first token':24}{first.seconds:10.3g}   {band}, without a queue"
    else:
        yield f"{'seconds to first token':24}{'':10}   not predicted: hardly published of such machines"
    rate, low, high = (_rate(asked.batch / value) for value in (each.seconds, each.high, each.low))
    yield f"{'tokens/s, all users':24}{rate:>10}   {low} to {high}"
    if asked.batch > 1:
        yield f"{'tokens/s, each user':24}{1 / each.seconds:10,.1f}   {1 / each.high:,.1f} to {1 / each.low:,.1f}"
    yield f"{'bound by':24}{each.bound:>10}"
    if price and (hours := found.hours(1e6)):
        cost, least, most = (each * price * found.gpus for each in hours)
        yield f"{'a million tokens cost':24}{cost:10,.4g}   {least:,.4g} to {most:,.4g}, with their prompts, while this batch is full"
    yield ""
    yield f"To serve it: {found.server()}"
    yield "Predicted, not measured: dryrun validate prints the errors on published measurements."


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 20 else f"{value:.1f}"
