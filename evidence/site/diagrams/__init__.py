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
    fsdp,
    hang,
    loading,
    memory_bandwidth,
    number_formats,
    offload,
    packing,
    pipeline,
    ranks,
    ring,
    roofline,
    shards,
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
    "fsdp": fsdp.diagram,
    "hang": hang.diagram,
    "loading": loading.diagram,
    "memory-bandwidth": memory_bandwidth.diagram,
    "number-formats": number_formats.diagram,
    "offload-activations": offload.activations_diagram,
    "offload-optimizer": offload.optimizer_diagram,
    "packed": packing.packed_diagram,
    "padded": packing.padded_diagram,
    "pipeline-1f1b": pipeline.one_forward_one_backward_diagram,
    "pipeline-gpipe": pipeline.gpipe_diagram,
    "ranks": ranks.diagram,
    "ring": ring.diagram,
    "roofline": roofline.diagram,
    "shards": shards.diagram,
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
