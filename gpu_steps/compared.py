"""What was predicted beside what was measured, step by step."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dryrun.tables.hardware import accelerator

from . import predict, run
from .steps import STEPS, Step, step

MEASURED = Path(__file__).with_name("measured")
MODELS = {"llama3-8b": "Llama 8B", "llama3.2-1b": "Llama 1B", "qwen3-4b": "Qwen3 4B", "qwen2.5-7b": "Qwen2.5 7B", "gemma-3-1b": "Gemma 3 1B",
          "bert-large-cls": "BERT-large", "gpt2": "GPT-2", "mistral-7b": "Mistral 7B", "qwen3-14b": "Qwen3 14B", "qwen2.5-32b": "Qwen2.5 32B",
          "qwen3-30b-a3b": "Qwen3 30B-A3B"}  # fmt: skip
SHEET = {"product bf16": "bf16", "product tf32": "tf32", "product fp32": "fp32", "memory copy": "bandwidth"}  # rate: value of a data sheet
WORDS = {
    ("method", "lora"): "LoRA", ("method", "qlora"): "QLoRA", ("checkpointing", True): "checkpointing", ("fused_loss", True): "fused loss",
    ("compiled", True): "compiled", ("precision", "mixed"): "bf16 autocast", ("precision", "fp32"): "tf32", ("attention", "eager"): "eager attention",
    ("optimizer", "adamw_8bit"): "8-bit AdamW", ("optimizer", "adamw_foreach"): "AdamW foreach", ("cache", "static"): "static cache, compiled",
    ("weights", "nf4"): "nf4", ("weights", "int8"): "int8",
}  # fmt: skip


@dataclass(frozen=True)
class Row:
    step: Step
    predicted: dict[str, Any]  # of predict.all_of
    measured: dict[str, Any]  # of measure; with "error" where it failed

    @property
    def words(self) -> str:
        options = [WORDS[item] for item in self.step.options.items()]
        if self.step.kind == "generate":
            return ", ".join([*(options or ["bf16"]), f"{self.step.batch} prompt{'s' * (self.step.batch > 1)}"])
        full = [] if "method" in self.step.options else ["full"]
        return ", ".join([MODELS[self.step.model], *full, *options, f"{self.step.batch} x {self.step.length:,}"])

    @property
    def ran(self) -> bool:
        return "error" not in self.measured

    @property
    def against(self) -> float:
        """Predicted over measured seconds: above 1, the GPU was faster than predicted."""
        return self.predicted["seconds"] / self.measured["seconds"]

    @property
    def inside(self) -> bool:
        """Whether the measured seconds lie between low and high."""
        return self.predicted["low"] <= self.measured["seconds"] <= self.predicted["high"]

    @property
    def tokens_per_second(self) -> float:
        return self.step.batch * self.step.length / self.measured["seconds"]


def read(file: Path, gpu: str) -> tuple[dict[str, Any], dict[str, Any], list[Row]]:
    """(the machine that ran: {"date", "machine", "software", "driver"}, its rates, a Row for each step) of a file of `run`.

    gpu: which prediction of predicted.json to compare with. ValueError where nothing was predicted for it.
    """
    found, predicted = run.read(file), predict.read()
    if gpu not in predicted:
        raise ValueError(f"{gpu}: predicted were {', '.join(predicted)}: add it to GPUS in gpu_steps/steps.py and run python -m gpu_steps predict")
    return found["machine"], found["rates"], rows_of(found, predicted[gpu])


def rows_of(found: dict[str, Any], predicted: dict[str, Any]) -> list[Row]:
    """A Row for each step that was predicted, and then ran or failed, in the order of the steps."""
    return [Row(one, predicted[one.key], found[one.key]) for one in STEPS if one.key in found and one.key in predicted]


def by_key(rows: list[Row], key: str) -> Row:
    """The row of that step; ValueError where it was not measured."""
    known = step(key)
    for row in rows:
        if row.step == known:
            return row
    raise ValueError(f"{key!r} was not measured")


def pairs(rows: list[Row]) -> list[tuple[Row, Row]]:
    """Every two training steps that ran and differ in one option alone: first the one without it, or of two values in alphabetical order."""
    ran = [row for row in rows if row.step.kind == "train" and row.ran]
    return [(one, other) for one in ran for other in ran if _adds_one_option(one.step, other.step)]


def changed(one: Row, other: Row) -> str:
    """In words, what the second of a pair has that the first has not: "checkpointing", "QLoRA for LoRA"."""
    (name,) = [name for name, value in other.step.options.items() if one.step.options.get(name) != value]
    words, before = WORDS[name, other.step.options[name]], one.step.options.get(name)
    return f"{words} for {WORDS[name, before]}" if before else words


def rate_rows(gpu: str, rates: dict[str, Any]) -> list[dict[str, Any]]:
    """A row for each rate of `dryrun bench`: its best, what is sustained, and what the data sheet of this GPU has."""
    rows = []
    for name, rate in rates["rates"].items():
        peak = accelerator(gpu)[SHEET[name]].value if name in SHEET else None
        rows.append({"what": name, "best": rate["value"], "sustained": rate["sustained"], "unit": rate["unit"], "sheet": peak,
                     "share": peak and 100 * rate["sustained"] / peak})  # fmt: skip
    return rows


def _adds_one_option(one: Step, other: Step) -> bool:
    if (one.model, one.batch, one.length) != (other.model, other.batch, other.length):
        return False
    changed = [name for name in one.options | other.options if one.options.get(name) != other.options.get(name)]
    if len(changed) != 1 or changed[0] not in other.options:
        return False
    before = one.options.get(changed[0])
    return before is None or before < other.options[changed[0]]
