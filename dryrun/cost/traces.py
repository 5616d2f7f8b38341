"""The trace of a workload: from the model's profile, from the user's cache folder, or made now.

A `Workload` says all that its kernels depend on, so its text is the key of the cache. The key also holds the code of the rooms that
trace: a change of theirs makes a new trace.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import json
import os
import pickle
from dataclasses import replace
from functools import lru_cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from ..models import models
from ..models.config_file import needs_tracing
from ..step import memory_facts, profiles
from ..step.memory_trace import StoredTrace
from ..step.workload import Traced, Workload, of_peft

ROOMS = ("models", "step", "tracing")  # their code makes a trace what it is


def traced(workload: Workload) -> Traced:
    """The workload's trace, from the cache or made now. The forward passes of a reference are traced apart, and added."""
    alone = replace(workload, references=0)
    step = _of_peft(alone) if of_peft(workload) else _kept(alone)
    if not workload.references:
        return step
    plain = replace(alone, kind="forward", checkpointing=0, autocast="" if of_peft(workload) else workload.autocast)
    forward = _kept(plain if workload.four_bit else replace(plain, rank=0, targets=""))
    return replace(step, kernels=step.kernels.plus(forward.kernels, workload.references))


def _of_peft(workload: Workload) -> Traced:
    step, plain = _kept(workload), _kept(replace(workload, autocast=""))
    memory = StoredTrace(step.memory.storages, plain.memory.flops) if step.memory and plain.memory else None  # type: ignore[arg-type]
    return replace(step, kernels=plain.kernels, kept=plain.kept, memory=memory)


def _kept(workload: Workload) -> Traced:
    if (found := profiles.profiled(workload)) is not None:
        return found
    if find_spec("torch") is None and (known := memory_facts.of(workload)) is not None:
        return known
    needs_tracing()  # the folder's name has torch's version in it
    path = cache_folder() / f"{_key(workload)}.pickle"
    if path.is_file():
        with contextlib.suppress(Exception), path.open("rb") as file:  # a damaged file is traced again
            return pickle.load(file)
    from ..tracing.step_trace import run  # torch, for the model's own code

    result = run(workload)
    with contextlib.suppress(OSError):  # a folder that cannot be written costs a trace the next time, and no answer
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(f".{os.getpid()}")
        partial.write_bytes(pickle.dumps(result))
        partial.replace(path)
    return result


def cache_folder() -> Path:
    base = os.environ.get("DRYRUN_CACHE") or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "dryrun" / _code()


def _key(workload: Workload) -> str:
    text = repr(workload)
    if not workload.model.startswith("{"):
        text += json.dumps(models.values_of(workload.model), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


@lru_cache(maxsize=1)
def _code() -> str:
    """A hash of the rooms in which a trace is made, without their comments, and of the versions of what runs there."""
    package = Path(__file__).parents[1]
    files = [path for room in ROOMS for path in sorted((package / room).glob("*.py"))]
    text = "".join(ast.dump(ast.parse(path.read_text(encoding="utf-8"))) for path in files)
    return hashlib.sha256(f"{version('torch')} {version('transformers')} {text}".encode()).hexdigest()[:12]
