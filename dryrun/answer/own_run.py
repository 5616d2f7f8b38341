"""A step or a token that you timed beside its prediction, and as a row that others can judge predictions by.

    compared = compare(Job("qwen3-4b", method="qlora", checkpointing=True), Cluster("t4"), seconds=9.1, gib=6.4)
    print(compared)            # predicted, low and high, measured
    json.dumps(compared.row)   # as the rows of fitting/data/published.json
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from ..cost.roofline import BEFORE_AMPERE, processor
from ..cost.timing import Prediction
from ..tables.hardware import Accelerator, GiB
from ..tables.refusal import Refusal
from .answer import of_job
from .inference import serve
from .job import Cluster, Generation, Job

KLASS = {"full": "train-1gpu", "lora": "train-lora", "qlora": "train-qlora"}
PRECISIONS = {"mixed": "amp_bf16"}  # as published rows call them
PACKAGES = ("torch", "transformers", "accelerate", "peft", "bitsandbytes")  # what changes how long a step takes


@dataclass(frozen=True)
class Comparison:
    """A training step, or a token of each answer, on one GPU: what was predicted, and what a run of yours took."""

    job: Job | Generation
    cluster: Cluster
    prediction: Prediction  # of an update, or of a token in the middle of the answers
    expected: float  # bytes of the GPU
    high: float
    seconds: float
    gib: float | None  # of the GPU at the peak, as nvidia-smi shows it; None: not measured

    @property
    def ratio(self) -> float:
        """Measured over predicted seconds: above 1 the run was slower."""
        return self.seconds / self.prediction.seconds

    @property
    def inside(self) -> bool:
        """Whether the measured seconds lie between low and high."""
        return self.prediction.low <= self.seconds <= self.prediction.high

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        found, what = self.prediction, "an update" if isinstance(self.job, Job) else "a token"
        yield f"{'':24}{'predicted':>10}{'low':>9}{'high':>9}{'measured':>10}"
        yield f"{f'seconds of {what}':24}{found.seconds:10.3g}{found.low:9.3g}{found.high:9.3g}{self.seconds:10.3g}"
        if self.gib:
            yield f"{'GiB of the GPU':24}{self.expected / GiB:10.2f}{'':9}{self.high / GiB:9.2f}{self.gib:10.2f}"
        where = "inside the band" if self.inside else "above the band" if self.seconds > found.high else "below the band"
        yield f"{self.ratio:.2f} of the predicted time, {where}"
        if not found.sure:
            yield "Launch-bound: the GPU waits for the CPU to launch small kernels, so the host's CPU decides the seconds."

    @property
    def row(self) -> dict[str, Any]:
        """The run as a row of published measurements. `url` is left for the page that it will be published on."""
        gpu, model = self.cluster.gpu, self.job.model
        name = model.text if model.known else _folder(model.name)
        today = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
        of_job = _of_step(self.job, gpu) if isinstance(self.job, Job) else _of_token(self.job, gpu)
        return {
            "id": f"own-{gpu.key}-{name}-{of_job['klass']}-{self.job.batch}x{of_job['seq']}-{today}",
            "url": None,
            "source": "a run by a reader",
            "path": None,
            "commit": None,
            "date": today,
            "gpu": gpu.key,
            "gpus": 1,
            "gpus_per_node": 1,
            "model": name,
            "parameters": model.parameters,
            "batch": self.job.batch,
            **of_job,
            "value": round(self.seconds, 6),
            "seconds": round(self.seconds, 6),
            "memory_gib": self.gib and round(self.gib, 3),
            "memory_kind": "nvidia-smi" if self.gib else None,
            "framework": "pytorch",
            "usable": True,
            "note": ", ".join(_versions()),
        }


def compare(job: Job | Generation, cluster: Cluster, seconds: float, gib: float | None = None) -> Comparison:
    """What `dryrun.compare` gives."""
    for name, value in (("seconds", seconds), ("gib", gib)):
        if value is not None and not 0 < value < math.inf:
            raise Refusal(name, value, "give what was measured, above 0")
    if cluster.gpus > 1:
        raise Refusal("gpus", cluster.gpus, "a run is compared on one GPU", "take gpus=1", nearest=[1])
    if isinstance(job, Job):
        if job.objective != "sft":
            raise Refusal("objective", job.objective, "a row says nothing of a reference or of answers", "compare a step of 'sft'", nearest=["sft"])
        answer = of_job(job, cluster)
        return Comparison(job, cluster, answer.prediction, answer.needed.expected, answer.needed.high, seconds, gib)
    served = serve(job, cluster)
    if not served.predicted:
        raise ValueError(f"{job.model.name} on {cluster.gpu.label}: no speed is predicted: {served.unpredicted or served.verdict}")
    return Comparison(job, cluster, served.decode, served.expected, served.high, seconds, gib)


def _of_step(job: Job, gpu: Accelerator) -> dict[str, Any]:
    """What a row says of a training step."""
    kernel = "efficient" if _before_ampere(gpu) else "flash"
    return {
        "klass": KLASS[job.method],
        "kind": "train",
        "seq": job.length,
        "precision": "fp16" if _before_ampere(gpu) and job.precision == "bf16" else PRECISIONS.get(job.precision, job.precision),
        "attention": kernel if job.attention == "auto" else job.attention,
        "compiled": job.compiled,
        "checkpointing": int(job.checkpointing),
        "accumulation": job.accumulation,
        "optimizer": job.optimizer,
        "unit": "s/step",
        "method": None if job.method == "full" else {"type": job.method, "rank": job.rank, "targets": "all linear"},
        "fused_loss": job.fused_loss,
    }


def _of_token(job: Generation, gpu: Accelerator) -> dict[str, Any]:
    """What a row says of a token of each answer. seq: the context in the middle of the answers."""
    return {
        "klass": "decode-compiled",
        "kind": "decode",
        "seq": job.prompt + job.new // 2,
        "prompt": job.prompt,
        "output": job.new,
        "precision": "fp16" if _before_ampere(gpu) and job.weights == "bf16" else job.weights,
        "attention": "sdpa",  # a static cache needs a mask, which the flash kernel does not take
        "compiled": True,
        "checkpointing": 0,
        "accumulation": 1,
        "optimizer": None,
        "unit": "s/step",
        "method": None,
    }


def _before_ampere(gpu: Accelerator) -> bool:
    """Whether it has neither bf16 nor the flash kernel."""
    return processor(gpu).architecture in BEFORE_AMPERE


def _folder(path: str) -> str:
    """What a model given by its files is called: the name of their folder."""
    given = Path(path)
    return (given.parent if given.suffix == ".json" else given).resolve().name.lower()


def _versions() -> Iterator[str]:
    for name in PACKAGES:
        try:
            yield f"{name} {metadata.version(name)}"
        except metadata.PackageNotFoundError:
            continue
