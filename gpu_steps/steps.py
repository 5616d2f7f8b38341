"""What is measured, in order of worth: a run that is cut keeps the first ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

GPUS = ("h100-sxm5", "h200-sxm")  # that the steps were predicted for
PROMPT, NEW = 1024, 96  # tokens of each generation
LIMIT = 60  # seconds of a step, its model included; compiling takes longer
LIMIT_COMPILED = 150


@dataclass(frozen=True)
class Step:
    """One process. kind: "rates" (of dryrun bench), "train" or "generate". options: of a `dryrun.Job`, or of `generate`."""

    kind: str
    model: str = ""
    batch: int = 1
    length: int = 0
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        words = [f"{name}={value}" if value is not True else name for name, value in self.options.items()]
        return " ".join([self.kind, self.model, f"{self.batch}x{self.length}", *words]) if self.model else self.kind

    @property
    def of_job(self) -> dict[str, Any]:
        """Options of a `dryrun.Job`. A loop of our own leaves the embedding's moments in 8 bits, unlike `Trainer`."""
        all_in_8_bits = self.options.get("optimizer") == "adamw_8bit"
        return self.options | ({"optimizer": "adamw_8bit_all"} if all_in_8_bits else {})

    @property
    def limit(self) -> int:
        return LIMIT_COMPILED if self.options.get("compiled") or self.options.get("cache") == "static" else LIMIT


def _train(model: str, batch: int, length: int, **options: Any) -> Step:
    return Step("train", model, batch, length, options)


def _generate(batch: int, **options: Any) -> Step:
    return Step("generate", "llama3-8b", batch, PROMPT, options)


ONE, EIGHT = "llama3.2-1b", "llama3-8b"
CK, LORA, QLORA, FUSED = {"checkpointing": True}, {"method": "lora"}, {"method": "qlora"}, {"fused_loss": True}

STEPS = (
    Step("rates"),
    # The ladder of one model: each rung changes one thing.
    _train(EIGHT, 1, 4096, **CK),
    _train(EIGHT, 1, 4096, **LORA),
    _train(EIGHT, 1, 4096, **LORA, **CK),
    _train(EIGHT, 1, 4096, **LORA, **CK, **FUSED),
    _train(EIGHT, 1, 4096, **QLORA, **CK, **FUSED),
    _train(EIGHT, 1, 4096, **QLORA, **CK),
    _train(EIGHT, 1, 4096, **CK, **FUSED),
    _train(EIGHT, 1, 4096, **CK, optimizer="adamw_8bit"),
    # Lengths and batches.
    _train(EIGHT, 1, 1024, **LORA, **CK),
    _train(EIGHT, 4, 2048, **LORA, **CK),
    _train(EIGHT, 1, 16384, **LORA, **CK),
    _train(EIGHT, 1, 16384, **LORA, **CK, **FUSED),
    _train(EIGHT, 4, 2048, **QLORA, **CK),
    _train(EIGHT, 1, 1024, **CK),
    _generate(1),
    _generate(1, cache="static"),
    _generate(1, weights="nf4"),
    # A model of 1B, in all precisions.
    _train(ONE, 4, 2048),
    _train(ONE, 4, 2048, **CK),
    _train(ONE, 4, 2048, compiled=True),
    _train(ONE, 4, 2048, precision="mixed"),
    _train(ONE, 2, 2048, precision="fp32"),
    _train(ONE, 4, 2048, **FUSED),
    _train(ONE, 2, 2048, attention="eager"),
    _train(ONE, 4, 2048, optimizer="adamw_foreach"),
    _train(ONE, 1, 1024),
    _train(ONE, 2, 8192),
    _train(ONE, 1, 16384, **CK),
    _train(ONE, 4, 2048, **LORA),
    _generate(16),
    _generate(16, cache="static"),
    _generate(1, weights="int8"),
    _train(ONE, 4, 2048, attention="eager"),  # predicted not to fit an H100
    # Other models.
    _train("qwen3-4b", 1, 4096, **CK),
    _train("qwen2.5-7b", 2, 2048, **LORA, **CK),
    _train("gemma-3-1b", 2, 2048),
    _train("bert-large-cls", 32, 512, precision="mixed"),
    _train("bert-large-cls", 32, 512, precision="fp32"),
    _train("gpt2", 16, 1024, precision="mixed", compiled=True),
    _train("gpt2", 16, 1024, precision="mixed"),
    _train("mistral-7b", 1, 8192, **LORA, **CK),
    # What more memory than 80 GB lets one do, and a mixture of experts.
    _train(EIGHT, 1, 4096),
    _train(EIGHT, 4, 4096, **CK),
    _train(EIGHT, 1, 32768, **CK, **FUSED),
    _train(EIGHT, 1, 32768, **LORA, **CK, **FUSED),
    _generate(64),
    _train("qwen3-30b-a3b", 2, 2048, **LORA, **CK),
    _train("qwen3-14b", 2, 4096, **LORA, **CK),
    _generate(64, cache="static"),
    _train("qwen2.5-32b", 1, 4096, **QLORA, **CK),
    _train(EIGHT, 1, 4096, **CK, compiled=True),
)


def step(key: str) -> Step:
    """The step of that key; ValueError where there is none."""
    found = {one.key: one for one in STEPS}
    if key not in found:
        raise ValueError(f"{key!r}: no step of gpu_steps/steps.py")
    return found[key]


def chosen(words: list[str]) -> Iterator[Step]:
    """Steps whose key has one of these words in it; all without words."""
    return (one for one in STEPS if not words or any(word in one.key for word in words))
