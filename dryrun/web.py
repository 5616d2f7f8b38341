"""Answers for a page: the command's own options in, what it prints with --json out. Without torch, so from profiles alone."""

from __future__ import annotations

import contextlib
import io
import json
from typing import Any

from . import __main__ as command
from . import answer, hardware, inference, models, profiles, roofline
from .hardware import GiB
from .options import parser


def ask(arguments: list[str]) -> dict[str, Any]:
    """What `dryrun` with these arguments answers; {"error": one line} where it refuses."""
    try:
        return json.loads(command.VERBS[arguments[0]](_parsed([*arguments, "--json"])))
    except (ValueError, ModuleNotFoundError) as error:
        return _refused(error, arguments)


def row(arguments: list[str]) -> dict[str, Any]:
    """The line of a table: less than `ask`, and sooner."""
    try:
        options = _parsed(arguments)
        cluster = command.cluster_of(options)
        if options.verb == "infer":
            return _served(inference.serve(command.generation_of(options), cluster))
        return _step(answer.of_job(command.job_of(options), cluster, options.strategy))
    except (ValueError, ModuleNotFoundError) as error:
        return _refused(error, arguments)


def named(model: str) -> str:
    """The model's own name, which its profile has too; "" where nothing is called so."""
    try:
        return models.known(model)
    except ValueError:
        return ""


def choices() -> dict[str, list[dict[str, Any]]]:
    """What a page can offer: models with a profile, and GPUs with predicted times."""
    return {
        "models": [_model(name) for name in models.names() if profiles.facts(name)],
        "gpus": [_gpu(key) for key in hardware.ACCELERATORS if _predicted(key)],
    }


def _refused(error: Exception, arguments: list[str]) -> dict[str, str]:
    if "torch is not installed" in str(error):
        return {"error": f"{arguments[1]}: no profile answers this question: on a machine with torch the command below answers it"}
    return {"error": str(error)}


def _parsed(arguments: list[str]) -> Any:
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            return parser("").parse_args(arguments)
    except SystemExit:
        raise ValueError(said.getvalue().strip().removeprefix("error: ") or "-h asks for help: give the name of a model") from None


def _step(found: answer.Answer) -> dict[str, Any]:
    seconds = found.prediction
    return {
        "fits": found.fits,
        "verdict": found.verdict,
        "expected_gib": found.needed.expected / GiB,
        "high_gib": found.needed.high / GiB,
        "gpu_gib": answer.usable(found.setting.gpu) / GiB,
        "tokens_per_second": seconds.tokens_per_second,
        "low": seconds.tokens_per_second * seconds.seconds / seconds.high,
        "high": seconds.tokens_per_second * seconds.seconds / seconds.low,
        "bound": seconds.bound,
    }


def _served(found: inference.Served) -> dict[str, Any]:
    each = found.decode if found.predicted else None
    return {
        "fits": found.fits,
        "verdict": found.verdict,
        "expected_gib": found.expected / GiB,
        "high_gib": found.high / GiB,
        "gpu_gib": found.cluster.memory / GiB,
        "tokens_per_second": each and found.generation.batch / each.seconds,
        "low": each and found.generation.batch / each.high,
        "high": each and found.generation.batch / each.low,
        "bound": each and each.bound,
    }


def _model(name: str) -> dict[str, Any]:
    facts = profiles.facts(name) or {}
    return {"name": name, "parameters": facts["parameters"], "positions": facts["positions"], "class": facts["class"]}


def _gpu(key: str) -> dict[str, Any]:
    row = hardware.ACCELERATORS[key]
    return {"name": key, "label": row.label, "family": row.family, "gib": (row.bytes or 0) / GiB}


def _predicted(key: str) -> bool:
    row = hardware.ACCELERATORS[key]
    if not (row.product and row.bytes):
        return False
    with contextlib.suppress(ValueError):
        roofline.processor(key)
        return True
    return False
