"""What is expected of each step, written before it is measured: `python -m gpu_steps predict` makes predicted.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dryrun import Cluster, Generation, Job
from dryrun.answer.answer import of_job
from dryrun.answer.inference import serve
from dryrun.cost import timing
from dryrun.cost.setting import Setting
from dryrun.cost.traces import traced
from dryrun.step.workload import Workload
from dryrun.tables.hardware import accelerator

from . import steps

FILE = Path(__file__).with_name("predicted.json")


def all_of(gpu: str) -> dict[str, dict[str, Any]]:
    """{key of a step: what is predicted on this GPU}, in seconds and bytes."""
    found = {}
    for step in steps.STEPS:
        if step.kind == "train":
            found[step.key] = _train(step, gpu)
        elif step.kind == "generate":
            found[step.key] = _generate(step, gpu)
    return found


def write(path: Path = FILE) -> None:
    """Adds GPUs and steps that have none. What was predicted before a run stays as it was, whatever the library would say today."""
    known = read(path) if path.exists() else {}
    made = {gpu: all_of(gpu) | known.get(gpu, {}) for gpu in steps.GPUS}
    path.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")


def of_machine(gpu: str | None, folder: Path) -> dict[str, Any]:
    """What is expected of this machine's GPU: from predicted.json, or computed now, before it is measured, and kept in the folder.

    gpu: a name of `dryrun gpus`; {} for None, and for a GPU without predicted times.
    """
    if gpu is None:
        return {}
    path = folder / "predicted.json"
    known = read() | (read(path) if path.exists() else {})
    if gpu not in known:
        try:
            known[gpu] = all_of(gpu)
        except ValueError as error:
            print(error)
            known[gpu] = {}
        path.write_text(json.dumps({gpu: known[gpu]}, indent=1) + "\n", encoding="utf-8")
    return known[gpu]


def read(path: Path = FILE) -> dict[str, dict[str, dict[str, Any]]]:
    return json.loads(path.read_text(encoding="utf-8"))


def _train(step: steps.Step, gpu: str) -> dict[str, Any]:
    found = of_job(Job(step.model, batch=step.batch, length=step.length, **step.of_job), Cluster(gpu))
    tensors = sum(found.needed.categories.values())
    return _seconds(found.prediction) | {
        "tensors": tensors,
        "allocated": tensors,
        "device": found.needed.expected,
        "device_high": found.needed.high,
    }


def _generate(step: steps.Step, gpu: str) -> dict[str, Any]:
    """As transformers runs it: by itself kernel after kernel, with a static cache compiled and as a graph."""
    weights = step.options.get("weights", "bf16")
    held = serve(Generation(step.model, prompt=step.length, new=steps.NEW, batch=step.batch, weights=weights), Cluster(gpu))
    memory = {"tensors": held.needed}
    if weights != "bf16":  # no decoding with bitsandbytes is predicted: its published rows are older than its kernels
        return memory
    compiled = step.options.get("cache") == "static"
    first = Workload(step.model, step.batch, step.length, kind="forward")
    each = Workload(step.model, step.batch, 1, kind="decode", compiled=compiled)
    setting = Setting(gpu=accelerator(gpu), optimizer="", host="graphs" if compiled else "eager", context=step.length + steps.NEW // 2)
    eager = Setting(gpu=accelerator(gpu), optimizer="")
    prefill = timing.prediction(traced(first), first, eager)
    return _seconds(timing.prediction(traced(each), each, setting)) | {"first": _seconds(prefill)} | memory


def _seconds(found: timing.Prediction) -> dict[str, Any]:
    return {"seconds": found.seconds, "low": found.low, "high": found.high, "class": found.klass, "bound": found.bound,
            "mfu": found.mfu}  # fmt: skip
