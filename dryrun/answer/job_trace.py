"""The step of a `Job` on one device without a name: memory by category and FLOPs."""

from __future__ import annotations

from ..models.config_file import one_line
from ..step.memory_trace import Trace
from .job import Job


def trace_of(job: Job) -> Trace:
    """The step of a job on one device without a name, every layer run."""
    from ..tracing.tracing import OPTIMIZERS, dtype_of, training_step  # torch

    if job.method != "full":
        raise ValueError(f"method={job.method!r}: adapters are traced for a GPU: name one, or take method='full'")
    if job.objective != "sft":
        raise ValueError(f"objective={job.objective!r}: its reference is added for a GPU: name one, or take 'sft'")
    if job.compiled or job.fused_loss:
        raise ValueError("compiled and fused_loss change kernels of a GPU: name one, or leave them out")
    if job.optimizer not in OPTIMIZERS:
        raise ValueError(f"optimizer={job.optimizer!r}: its state is counted for a GPU: name one, or take 'adamw'")
    model = job.model
    workload = job.workload()  # ValueError where the sequence is too long
    try:
        return training_step(
            model.model_class,
            model.config,
            job.batch,
            job.length,
            dtype=dtype_of(workload.weights),
            autocast=dtype_of("bfloat16") if workload.autocast else None,
            activation_checkpointing=job.checkpointing,
            optimizer=job.optimizer,
            accumulation=job.accumulation,
            attention=job.attention,
        )
    except Exception as error:  # whatever a model's own code raises on values that make no sense
        raise ValueError(f"{model.name}: transformers cannot run this model: {one_line(error)}") from error
