"""Answers as text and as JSON: one function for each of them, and what they have in common."""

import json
from dataclasses import asdict

from . import communication, models
from .answer import GiB, usable
from .hardware import accelerator
from .inference import NO
from .roofline import processor
from .rows import BEFORE_AMPERE

NAMES = {"parameters": "weights", "optimizer": "optimizer state"}


def step(now, found, bill=()):
    """Whether a training step fits, how fast it is and what would help, line by line."""
    gpu, size = accelerator(now.setting.gpu), usable(now.setting.gpu)
    count = f"{now.setting.gpus} x " if now.setting.gpus > 1 else ""
    yield f"{title(now.workload)}, {now.traced.parameters / 1e9:,.3g} billion parameters, {now.traced.trainable / 1e9:,.3g} billion trained"
    yield f"{now.workload.batch} x {now.workload.length:,} tokens on {count}{gpu.label}"
    yield from said_of_model(now.workload.model)
    if "bfloat16" in (now.workload.weights, now.workload.autocast) and processor(now.setting.gpu).architecture in BEFORE_AMPERE:
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
    if found:
        yield ""
        yield "What would help" if now.fits else "What would help, first what makes it fit"
        yield from (_change(now, *change) for change in found)
    yield from bill
    yield ""
    if now.constants:
        yield "With the rates that dryrun bench measured on this machine."
    yield "Predicted, not measured: dryrun validate prints the errors on published measurements."


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


def said_of_model(model):
    """What a reader must know of how a model was taken: parts that are left out, the format of the published weights."""
    if left_out := models.left_out(model):
        yield f"the part that reads and writes text, without {left_out}"
    if stored := models.stored_in(model):
        yield f"its weights are published in {stored}: here they count in the precision that you name"


def title(workload):
    if not workload.model.startswith("{"):
        return workload.model
    return json.loads(workload.model).get("model_type", "model")


def step_json(now, found):
    """The same, for programs."""
    return {
        "gpu": processor(now.setting.gpu).name,
        "gpus": now.setting.gpus,
        "model": title(now.workload),
        "left_out": models.left_out(now.workload.model),
        "stored_in": models.stored_in(now.workload.model),
        "parameters": now.traced.parameters,
        "trained": now.traced.trainable,
        "memory_gib": {name: size / GiB for name, size in now.needed.categories.items()},
        "expected_gib": now.needed.expected / GiB,
        "high_gib": now.needed.high / GiB,
        "gpu_gib": usable(now.setting.gpu) / GiB,
        "fits": now.fits,
        "verdict": now.verdict,
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


def traced_step(found, job):
    """Memory and FLOPs of a training step of one device, line by line. No GPU is named, so there are no seconds."""
    checkpointing = "with" if job.checkpointing else "without"
    yield f"{job.model.model_class.__name__}, {found.parameters / 1e9:,.3g} billion parameters"
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


def traced_json(found, job):
    return {
        "model": job.model.name,
        "class": job.model.model_class.__name__,
        "left_out": job.model.left_out,
        "stored_in": job.model.stored_in,
        "parameters": found.parameters,
        "memory_gib": {name: size / GiB for name, size in found.peak_by_category.items()},
        "tensors_gib": found.peak_gib,
        "flops": found.flops,
    }


def largest(batch):
    """The largest batch that fits, where it was asked for."""
    if batch is not None:
        yield ""
        yield f"{'largest batch that fits':24}{batch:10,}   sequences of a micro-batch" if batch else "not even one sequence fits for sure"


def bill(now, tokens, price):
    """Hours and cost of so many tokens at the predicted rate, line by line. price: for one GPU and hour, in any currency."""
    hours, low, high = (tokens / now.prediction.tokens_per_second * seconds / now.prediction.seconds / 3600
                        for seconds in (now.prediction.seconds, now.prediction.low, now.prediction.high))  # fmt: skip
    yield ""
    yield f"{tokens:,.3g} tokens"
    days = f", {hours / 24:,.3g} days" if hours > 48 else ""
    yield f"{'hours':24}{hours:10,.3g}   {low:,.3g} to {high:,.3g}{days}, without loading and evaluation"
    if price:
        each = price * now.setting.gpus
        yield f"{'at your price':24}{hours * each:10,.4g}   {low * each:,.4g} to {high * each:,.4g}"


def options(found, job, cluster):
    """Every strategy of a plan, the best first, line by line."""
    count = f"{cluster.gpus} x " if cluster.gpus > 1 else ""
    yield f"{job.model.name}, {job.batch} x {job.length:,} tokens on each of {count}{cluster.gpu.label}, {job.precision}, {job.optimizer}"
    yield f"{'with' if job.checkpointing else 'without'} checkpointing, micro-batches of a step: {job.accumulation}"
    yield from said_of_model(job.model.text)
    if found:
        yield from _links(found[0].setting if cluster.gpus > 1 else found[-1].setting)
    yield ""
    yield f"{'strategy':26}{'GiB of a GPU':22}seconds of a step"
    for option in found:
        low, high = option.prediction.low, option.prediction.high
        band = f"{low:.3g} to {high:.3g}" if option.judged else "nobody published such a step"
        held = f"{option.needed.expected / GiB:,.0f} to {option.needed.high / GiB:,.0f} of {option.size / GiB:,.4g}"
        yield f"{option.strategy:26}{held:22}{option.seconds:.3g} ({band})"
        yield f"    {option.verdict}"
    yield ""
    yield "Predicted, not measured: dryrun validate --plan compares such plans with published ones."


def options_json(found):
    return [
        {
            "strategy": option.strategy,
            "fits": option.fits,
            "expected_gib": option.needed.expected / GiB,
            "high_gib": option.needed.high / GiB,
            "gpu_gib": option.size / GiB,
            "host_gb": option.host / 1e9,
            "seconds": option.seconds,
            "low": option.prediction.low,
            "high": option.prediction.high,
            "tokens_per_second": option.prediction.tokens_per_second,
            "bound": option.prediction.bound,
            "verdict": option.verdict,
        }
        for option in found
    ]


def served(found):
    """Whether a generation fits, for how many users, and how fast it is, line by line."""
    asked, cluster = found.generation, found.cluster
    count = f"{cluster.gpus} x " if cluster.gpus > 1 else ""
    yield f"{asked.model.name}, {found.traced.parameters / 1e9:,.3g} billion parameters, weights in {asked.weights}, KV cache in 16 bits"
    yield f"{asked.batch} x {asked.prompt:,} tokens of prompt, {asked.new:,} new, on {count}{cluster.gpu.label}"
    yield from said_of_model(asked.model.text)
    yield ""
    yield f"{'On each GPU':24}{'GiB':>10}"
    yield f"{'weights':24}{found.weights / GiB:10,.2f}"
    yield f"{'KV cache':24}{asked.batch * found.cache(found.tokens) / GiB:10,.2f}"
    yield f"{'of the GPU':24}{cluster.memory / GiB:10,.2f}   {found.verdict}"
    if found.verdict == NO:
        for line in found.what_fits() or ["nothing of fp8, int4-128 and up to 8 of these GPUs"]:
            yield f"  would fit: {line}"
        return
    yield ""
    if found.users is not None:
        yield f"{'sequences at once':24}{found.users:10,}   of {found.tokens:,} tokens each, by the room for their caches"
    if found.longest is not None:
        yield f"{'longest context':24}{found.longest:10,}   tokens, one sequence"
    yield ""
    if not found.predicted:
        yield f"No speed: nobody published rows of weights in {asked.weights} that could judge it."
        return
    first, each = found.prefill, found.decode
    band = f"{first.low:.3g} to {first.high:.3g}" if found.prefill_judged else "unjudged: nobody published such weights"
    yield f"{'seconds to first token':24}{first.seconds:10.3g}   {band}, without a queue"
    yield f"{'tokens/s, all users':24}{asked.batch / each.seconds:10,.0f}   {asked.batch / each.high:,.0f} to {asked.batch / each.low:,.0f}"
    if asked.batch > 1:
        yield f"{'tokens/s, each user':24}{1 / each.seconds:10,.1f}   {1 / each.high:,.1f} to {1 / each.low:,.1f}"
    yield f"{'bound by':24}{each.bound:>10}"
    yield ""
    yield f"In vLLM: {found.server()}"
    yield "Predicted, not measured: dryrun validate prints the errors on published measurements."


def served_json(found):
    asked, speeds = found.generation, None
    if found.predicted:
        first, each = found.prefill, found.decode
        speeds = {
            "seconds_to_first_token": first.seconds,
            "first_low": first.low if found.prefill_judged else None,
            "first_high": first.high if found.prefill_judged else None,
            "tokens_per_second": asked.batch / each.seconds,
            "low": asked.batch / each.high,
            "high": asked.batch / each.low,
            "bound": each.bound,
        }
    return {
        "model": asked.model.name,
        "left_out": asked.model.left_out,
        "stored_in": asked.model.stored_in,
        "parameters": found.traced.parameters,
        "gpu": found.cluster.gpu.key,
        "gpus": found.gpus,
        "weights": asked.weights,
        "weights_gib": found.weights / GiB,
        "cache_gib": asked.batch * found.cache(found.tokens) / GiB,
        "gpu_gib": found.cluster.memory / GiB,
        "verdict": found.verdict,
        "fits": found.fits,
        "users": found.users,
        "longest": found.longest,
        "speed": speeds,
    }
