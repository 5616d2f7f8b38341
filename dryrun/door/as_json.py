"""Answers as dictionaries for programs: sizes in GiB, seconds, low and high. `report` says the same in words."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ..answer.answer import counts_as_fp16
from ..cost import timing
from ..cost.ran import kind_of
from ..models import models
from ..step.memory_trace import GiB
from . import launch

if TYPE_CHECKING:
    from ..answer.answer import Answer
    from ..answer.inference import Served
    from ..answer.job import Job
    from ..answer.planner import Option
    from ..answer.verdict import Verdict
    from ..cost.setting import Setting
    from ..step.memory_trace import Trace


def step(now: Answer, changes: list[tuple[str, str, Answer]], measured: float | None = None) -> dict[str, Any]:
    """A training step on GPUs, and the changes that would help. measured: tokens per second where it ran."""
    return {
        "gpu": now.setting.gpu.key,
        "gpus": now.setting.gpus,
        "model": models.title(now.workload.model),
        "left_out": models.left_out(now.workload.model),
        "stored_in": models.stored_in(now.workload.model),
        "parameters": now.traced.parameters,
        "trained": now.traced.trainable,
        "mixture": now.traced.experts is not None,
        "memory_gib": {name: size / GiB for name, size in now.needed.categories.items()},
        "fits": now.fits,
        **verdict(now.verdict),
        "fp16": counts_as_fp16(now),
        **links(now.setting),
        **asdict(now.prediction),
        "ran_as": None if now.setting.answers else kind_of(now.prediction),  # what `--ran` calls a step like this one
        **({"measured": _measured(now, measured)} if measured else {}),
        "changes": [
            {
                "change": change,
                "option": option,
                "fits": then.fits,
                "verdict": str(then.verdict),
                "fit": then.verdict.fit,
                "tokens_per_second": then.prediction.tokens_per_second,
                "expected_gib": then.needed.expected / GiB,
            }
            for change, option, then in changes
        ],
    }


def _measured(now: Answer, rate: float) -> dict[str, Any]:
    """A run of this very step. ran: what `--ran` of other questions takes; null where it says nothing sure of them."""
    ran = now.measured(rate)
    return {"tokens_per_second": rate, "times": ran.times, "ran": str(ran) if ran.says else None}


def verdict(found: Verdict) -> dict[str, Any]:
    """Whether it fits as data, by the names that a `Verdict` has, and in words."""
    names = ("fit", "expected_gib", "high_gib", "gpu_gib", "margin_gib", "why")
    return {"verdict": str(found), **{name: getattr(found, name) for name in names}}


def links(setting: Setting) -> dict[str, float]:
    """GB/s in one direction that are assumed of the links, as one would measure them, where a step uses them."""
    if setting.gpus == 1:
        return {}
    link, network = timing.assumed_links(setting)
    return {"link_gb_per_s": link / 1e9} | ({"network_gb_per_s": network / 1e9} if setting.nodes > 1 else {})


def bill(now: Answer, tokens: float, price: float | None, measured: float | None = None) -> dict[str, float]:
    """Hours of so many tokens, with low and high, and their cost at a price of one GPU for an hour. measured: tokens per second where it ran."""
    hours = dict(zip(("hours", "hours_low", "hours_high"), now.hours(tokens, measured), strict=True))
    cost = {"cost": hours["hours"] * price * now.setting.gpus} if price else {}
    return {"tokens": tokens, **hours, **cost}


def traced(found: Trace, job: Job) -> dict[str, Any]:
    """A training step on one device without a name."""
    return {
        "model": models.title(job.model.text),
        "class": job.model.class_name,
        "left_out": job.model.left_out,
        "stored_in": job.model.stored_in,
        "parameters": found.parameters,
        "memory_gib": {name: size / GiB for name, size in found.peak_by_category.items()},
        "tensors_gib": found.peak_gib,
        "flops": found.flops,
    }


def options(found: list[Option]) -> list[dict[str, Any]]:
    """Every strategy of a plan, the best first; low and high are null where nobody published such a step."""
    return [
        {
            "strategy": option.strategy,
            "fits": option.fits,
            "offload": bool(option.setting.offload),
            **verdict(option.verdict),
            "host_gb": option.host / 1e9,
            "seconds": option.seconds,
            "low": option.prediction.low if option.judged else None,
            "high": option.prediction.high if option.judged else None,
            "tokens_per_second": option.prediction.tokens_per_second,
            "bound": option.prediction.bound,
            "launch": launch.file_of(option),
        }
        for option in found
    ]


def served(found: Served, price: float | None = None) -> dict[str, Any]:
    """A generation on GPUs; `speed` is null where none is predicted. price: of one GPU for an hour."""
    asked, speeds = found.generation, None
    if found.predicted:
        first, each = found.prefill, found.decode
        speeds = {
            "seconds_to_first_token": first and first.seconds,
            "first_low": first.low if first and found.prefill_judged else None,
            "first_high": first.high if first and found.prefill_judged else None,
            "tokens_per_second": asked.batch / each.seconds,
            "low": asked.batch / each.high,
            "high": asked.batch / each.low,
            "bound": each.bound,
        }
    return {
        "model": models.title(asked.model.text),
        "left_out": asked.model.left_out,
        "stored_in": asked.model.stored_in,
        "parameters": found.traced.parameters,
        "gpu": found.cluster.gpu.key,
        "gpus": found.gpus,
        "weights": asked.weights,
        "as_published": asked.as_published,
        "weights_gib": found.weights / GiB,
        "cache_gib": asked.batch * found.cache(found.tokens) / GiB,
        **verdict(found.verdict),
        "fits": found.fits,
        "users": found.users,
        "longest": found.longest,
        "server": found.server(),
        "speed": speeds,
        "unpredicted": found.unpredicted,
        **of_million(found, price),
        "changes": [
            {
                "option": option,
                "expected_gib": other.expected / GiB,
                "tokens_per_second": other.generation.batch / other.decode.seconds if other.predicted else None,
            }
            for option, other in ([] if found.fits else found.alternatives())
        ],
    }


def of_million(found: Served, price: float | None = None) -> dict[str, float | None]:
    """Hours of a million tokens of answers with their prompts, with low and high, and their cost; null where that is not predicted."""
    hours = found.hours(1e6) or (None, None, None)
    named = dict(zip(("hours_of_million", "hours_of_million_low", "hours_of_million_high"), hours, strict=True))
    return {**named, "cost_of_million": hours[0] * price * found.gpus} if price and hours[0] else named
