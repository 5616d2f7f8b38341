"""Which parallel strategy: the questions of the guide on many GPUs, in its order."""

from .svg import decisions

BETWEEN_NODES = (
    "Several nodes with slow links between them?",
    "HSDP with accumulation if the state fits on one node, else a pipeline",
    "FSDP2 over all GPUs",
)
TREE = (
    "Does a step fit on one GPU?",
    "DDP",
    (
        "Does it fit once the optimizer state is sharded?",
        "ZeRO-1 or ZeRO-2",
        (
            "Does a shard of the model fit, and its largest layer whole?",
            BETWEEN_NODES,
            (
                "Does the largest layer fit, with its activations?",
                "More GPUs, offload, or LoRA under FSDP2",
                "Tensor parallelism in a node, FSDP2 or a pipeline between nodes",
            ),
        ),
    ),
)


def diagram():
    return decisions(
        "Take the first strategy that fits",
        "Decision tree with five questions, from DDP to tensor parallelism. The same questions are below in words.",
        TREE,
    )
