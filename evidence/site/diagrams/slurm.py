"""Who starts whom in a SLURM job: the script, srun, a torchrun on each node, and the ranks. The job is snippets/launching/slurm.sbatch."""

from .svg import figure

NODES, GPUS = 2, 8
STARTS, WORKS = "Starts others", "Trains"


def diagram():
    def draw(drawing):
        gap = 12 if drawing.narrow else 24
        width = (drawing.width - 2 - gap * (NODES - 1)) / NODES
        script, srun, torchrun = 22, 76, 136
        bottom = torchrun + 106
        for node in range(NODES):
            left = 1 + node * (width + gap)
            middle = left + width / 2
            drawing.text(left, 8, f"node {node}{' (the head)' if not node else ''}", "start quiet")
            drawing.box(left, 20, width, bottom - 20, "", "box")
            if not node:
                drawing.box(left + 8, script + 6, width - 16, 26, "slurm.sbatch", STARTS)
                drawing.arrow((middle, script + 32), (middle, srun + 6))
                drawing.box(left + 8, srun + 6, width - 16, 26, "srun", STARTS)
                start = middle
            drawing.arrow((start, srun + 32), (start, srun + 46), (middle, srun + 46), (middle, torchrun + 6))
            drawing.box(left + 8, torchrun + 6, width - 16, 26, f"torchrun, --nproc-per-node {GPUS}" if not drawing.narrow else "torchrun", STARTS)
            drawing.arrow((middle, torchrun + 32), (middle, torchrun + 52))
            step = (width - 16) / GPUS
            for gpu in range(GPUS):
                drawing.box(left + 8 + gpu * step + 1, torchrun + 54, step - 2, 24, str(node * GPUS + gpu), WORKS)
            drawing.text(middle, torchrun + 92, "ranks, one for each GPU", "middle quiet")

    return figure(
        f"Who starts whom: {NODES} nodes with {GPUS} GPUs",
        "Two nodes. The script runs on the first. It calls srun, which starts one torchrun on each node. Each torchrun starts eight ranks, one for each GPU.",
        draw,
        f"<ol><li>sbatch runs slurm.sbatch once, on the first node.</li><li>srun in it starts one torchrun on each of the {NODES} nodes.</li>"
        f"<li>Each torchrun starts {GPUS} ranks: 0 to {GPUS - 1} on the first node, {GPUS} to {2 * GPUS - 1} on the second.</li></ol>",
        (STARTS, WORKS),
    )
