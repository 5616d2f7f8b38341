"""What generation with a model takes in memory, for names that have no profile: parameters, heads and what a sequence keeps. Whoever has
it needs no torch to know whether text fits; how fast it is written takes a trace.

    python -m dryrun.tracing.profile_trace --facts      writes data/memory.json anew, by the models' own code
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..models import models
from . import profiles
from .workload import Experts, Traced, Workload

PATH = Path(__file__).parents[1] / "data" / "memory.json"


@lru_cache(maxsize=1)
def table() -> dict[str, dict[str, Any]]:
    """{name: {"class", "positions", "heads", "parameters", "layers", "traced": fields of a `Traced`}}"""
    return json.loads(PATH.read_text(encoding="utf-8")) if PATH.is_file() else {}


def facts(model: str) -> dict[str, Any] | None:
    """Of a model by name: its class, positions, heads and parameters; None where they are not in the table."""
    return table().get(model)


def of(workload: Workload) -> Traced | None:
    """A decoded token without its kernels: its memory alone; None where it is not in the table."""
    found = table().get(workload.model)
    if found is None or workload.kind != "decode":
        return None
    experts = found["traced"].get("experts")
    given = found["traced"] | {"experts": Experts(*experts) if experts else None}
    return Traced(model_class=found["class"], parameters=found["parameters"], layers=found["layers"], **given)


def wanted() -> list[str]:
    """Names of models that write text and have no profile."""
    known = {name: models.class_and_fields(name)[0] for name in models.configurations() if not profiles.has(name)}
    return [name for name, model_class in known.items() if not model_class or model_class.endswith(("ForCausalLM", "LMHeadModel"))]
