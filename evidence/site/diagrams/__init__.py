"""Drawings of the guides: a page shows one by its name in a fence `diagram`.

A schedule is computed, never drawn by hand: tests/evidence/site/test_diagrams.py compares each with what the library does.
"""

from ...problems import nearest
from . import (
    accumulation,
    batching,
    bits,
    buckets,
    cache_pages,
    chains,
    fsdp,
    grpo,
    hang,
    layouts,
    loading,
    masks,
    memory_bandwidth,
    memory_steps,
    number_formats,
    offload,
    packing,
    picture_tokens,
    pipeline,
    ranks,
    ring,
    roofline,
    shards,
    slurm,
    sockets,
    speculative,
    strategy,
    tensor_parallel,
    three_ways,
    token_weights,
)
from .svg import timeline

__all__ = ["draw", "known", "timeline"]
DIAGRAMS = {
    "accumulation": accumulation.diagram,
    "batch-continuous": batching.continuous_diagram,
    "batch-fixed": batching.fixed_diagram,
    "bits": bits.diagram,
    "buckets": buckets.diagram,
    "cache-pages": cache_pages.diagram,
    "figure": chains.figure_diagram,
    "fsdp": fsdp.diagram,
    "grpo-batch": grpo.diagram,
    "hang": hang.diagram,
    "installed": chains.installed_diagram,
    "loading": loading.diagram,
    "mask-blocks": masks.diagram,
    "memory-bandwidth": memory_bandwidth.diagram,
    "memory-over-steps": memory_steps.diagram,
    "number-formats": number_formats.diagram,
    "offload-activations": offload.activations_diagram,
    "offload-optimizer": offload.optimizer_diagram,
    "packed": packing.packed_diagram,
    "padded": packing.padded_diagram,
    "parallel-layouts": layouts.diagram,
    "picture-tokens": picture_tokens.diagram,
    "pipeline-1f1b": pipeline.one_forward_one_backward_diagram,
    "pipeline-gpipe": pipeline.gpipe_diagram,
    "ranks": ranks.diagram,
    "ring": ring.diagram,
    "roofline": roofline.diagram,
    "shards": shards.diagram,
    "slurm": slurm.diagram,
    "sockets": sockets.diagram,
    "speculative": speculative.diagram,
    "strategy": strategy.diagram,
    "tensor-parallel": tensor_parallel.diagram,
    "three-ways": three_ways.diagram,
    "token-weights": token_weights.diagram,
}


def draw(name):
    return DIAGRAMS[known(name)]()


def known(name):
    if name not in DIAGRAMS:
        raise LookupError(f"there is no diagram {name!r}{nearest(name, DIAGRAMS)}: {', '.join(DIAGRAMS)}")
    return name
