"""Answers for a page: the command's own options in, what it prints with --json out. Without torch, so from profiles alone."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from typing import Any

from ..answer import answer, inference, job
from ..cost import roofline
from ..models import config_file, families, models
from ..step import memory_facts, profiles
from ..tables import hardware
from ..tables.hardware import GiB
from ..tables.refusal import Refusal
from . import as_json, command
from .options import parser


def ask(arguments: list[str]) -> dict[str, Any]:
    """What `dryrun` with these arguments answers; {"error": one line, "refusal": the same as data} where it refuses."""
    try:
        if not arguments or arguments[0] not in command.VERBS:
            raise ValueError(f"{' '.join(arguments)[:60]!r} is no question: it begins with one of {', '.join(command.VERBS)}")
        return json.loads(command.VERBS[arguments[0]](_parsed([*arguments, "--json"])))
    except (ValueError, ModuleNotFoundError) as error:
        return _refused(error, arguments)


def first(arguments: list[str]) -> dict[str, Any]:
    """What `ask` answers for a training step but for changes and the largest batch, which take most of its time."""
    try:
        return json.loads(command.train(_parsed([*arguments, "--json"]), whole=False))
    except (ValueError, ModuleNotFoundError) as error:
        return _refused(error, arguments)


def row(arguments: list[str]) -> dict[str, Any]:
    """The line of a table: less than `ask`, and sooner."""
    try:
        options = _parsed(arguments)
        cluster = command.cluster_of(options)
        if options.verb == "infer":
            return _served(inference.serve(command.generation_of(options), cluster))
        return _step(answer.of_job(command.job_of(options), cluster, options.strategy, ran=options.ran))
    except (ValueError, ModuleNotFoundError) as error:
        return _refused(error, arguments)


def named(given: str) -> dict[str, str]:
    """{"name": of a model in the table, or ""; "profile": the file with its profile; "words": its sizes, where those are all it is}."""
    try:
        found = job.model(given)
    except ValueError:
        return {"name": "", "profile": "", "words": ""}
    member = families.member_of(found.text)
    words = families.in_words(member) if member else ""
    return {"name": found.text if found.known else "", "profile": profiles.file_of(found.text), "words": words}


def in_words(text: str) -> dict[str, Any]:
    """The model of the text of a config.json in the words that commands take, and what these leave out: a part, a format of weights.
    {"error": one line} where none is traced like it."""
    try:
        values = config_file.parsed(text, Path("config.json"))
        words = families.in_words(families.member(*config_file.class_and_fields(values)))
        return {"model": words, "left_out": models.left_out(text.strip()), "stored_in": models.stored_in(text.strip())}
    except families.OfNoFamily as error:
        return {"error": f"config.json: {error}. On a machine with torch, dryrun traces it: give the file's path in place of a name"}
    except ValueError as error:
        return {"error": str(error)}


def choices() -> dict[str, list[Any]]:
    """What a page can offer: models with a profile, kinds of models that come in any size, and GPUs with predicted times."""
    return {
        "models": [_model(name) for name in profiles.names()],
        "memory": [_model(name) for name in memory_facts.table()],  # of these `infer` answers the memory alone
        "families": list(config_file.OF_KIND),
        "gpus": [_gpu(key) for key in hardware.ACCELERATORS if _predicted(key)],
    }


def _refused(error: Exception, arguments: list[str]) -> dict[str, Any]:
    if isinstance(error, ModuleNotFoundError):
        error = Refusal("model", arguments[1], "no profile answers this question", "on a machine with torch the command does", code="untraced")
    elif not isinstance(error, Refusal):
        error = Refusal("", None, str(error))
    return {"error": str(error), "refusal": error.data()}


def _parsed(arguments: list[str]) -> Any:
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            return parser("").parse_args(arguments)
    except SystemExit:
        raise ValueError("-h asks for help: give the name of a model") from None


def _step(found: answer.Answer) -> dict[str, Any]:
    seconds = found.prediction
    return {
        "fits": found.fits,
        **as_json.verdict(found.verdict),
        "tokens_per_second": seconds.tokens_per_second,
        "low": seconds.tokens_per_second * seconds.seconds / seconds.high,
        "high": seconds.tokens_per_second * seconds.seconds / seconds.low,
        "bound": seconds.bound,
        "judged": seconds.judged,
        "mixture": found.traced.experts is not None,
    }


def _served(found: inference.Served) -> dict[str, Any]:
    each = found.decode if found.predicted else None
    return {
        "fits": found.fits,
        **as_json.verdict(found.verdict),
        "tokens_per_second": each and found.generation.batch / each.seconds,
        "low": each and found.generation.batch / each.high,
        "high": each and found.generation.batch / each.low,
        "bound": each and each.bound,
        "seconds_to_first_token": found.prefill.seconds if each and found.prefill and found.prefill_judged else None,
        "users": found.users,
        "longest": found.longest,
        "unpredicted": found.unpredicted,
        **as_json.of_million(found),
    }


def _model(name: str) -> dict[str, Any]:
    facts = profiles.facts(name) or memory_facts.facts(name) or {}
    return {"name": name, "parameters": facts["parameters"], "positions": facts["positions"], "class": facts["class"]}


def _gpu(key: str) -> dict[str, Any]:
    row = hardware.ACCELERATORS[key]
    return {"name": key, "label": row.label, "family": row.family, "gib": (row.bytes or 0) / GiB, "trains": not row.shares_memory}


def _predicted(key: str) -> bool:
    row = hardware.ACCELERATORS[key]
    if not (row.product and row.bytes):
        return False
    if row.shares_memory:  # text for one reader alone
        return bool(row.get("bandwidth"))
    with contextlib.suppress(ValueError):
        roofline.processor(key)
        return True
    return False
