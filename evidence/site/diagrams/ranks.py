"""Who is who in a job of two nodes with four GPUs each, as torchrun numbers the processes."""

from .svg import LETTER, figure

NODES, GPUS = 2, 4
PROCESS = "A process with its GPU"


def ranks():
    """[{variable: value} of each process]"""
    return [
        {"RANK": node * GPUS + gpu, "LOCAL_RANK": gpu, "GROUP_RANK": node, "WORLD_SIZE": NODES * GPUS, "LOCAL_WORLD_SIZE": GPUS}
        for node in range(NODES)
        for gpu in range(GPUS)
    ]


def diagram():
    def draw(drawing):
        left = 0 if drawing.narrow else LETTER * len("LOCAL_WORLD_SIZE")
        width, tall, above = (drawing.width - left) / GPUS, 46, 20 if drawing.narrow else 0
        for number, process in enumerate(ranks()):
            node, gpu = divmod(number, GPUS)
            x, y = left + gpu * width, node * (tall + above + 16) + above
            if gpu == 0 and drawing.narrow:
                drawing.text(0, y - 10, f"node {node}: GROUP_RANK={node}", "start")
            elif gpu == 0:
                drawing.text(0, y + 15, f"node {node}", "start")
                drawing.text(0, y + 31, f"GROUP_RANK={node}", "start quiet")
            drawing.box(x + 4, y, width - 8, tall, "", PROCESS)
            rank, local = ("{}", "local {}") if drawing.narrow else ("RANK={}", "LOCAL_RANK={}")
            drawing.text(x + width / 2, y + 15, rank.format(process["RANK"]))
            drawing.text(x + width / 2, y + 31, local.format(gpu), "middle quiet")
        drawing.text(left + 4, drawing.height + 14, f"In all of them: WORLD_SIZE={NODES * GPUS}, LOCAL_WORLD_SIZE={GPUS}", "start quiet")

    rows = "".join(f"<tr>{''.join(f'<td>{value}</td>' for value in process.values())}</tr>" for process in ranks())
    head = "".join(f"<th>{variable}</th>" for variable in ranks()[0])
    return figure(
        f"torchrun --nnodes {NODES} --nproc-per-node {GPUS}: every process has a RANK of the job and a LOCAL_RANK of its node",
        "Two nodes with four processes each. RANK counts from 0 to 7 through both nodes. LOCAL_RANK counts from 0 to 3 on each of them, and says "
        "which GPU a process takes. GROUP_RANK is the number of the node.",
        draw,
        f'<div class="scroll"><table aria-label="Ranks"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>',
        (PROCESS,),
    )
