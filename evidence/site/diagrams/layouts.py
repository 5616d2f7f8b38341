"""Eight GPUs on two nodes, shared by tensor, pipeline and data parallelism: which part of the model each of them holds."""

from .svg import figure

NODES, GPUS, LAYERS = 2, 4, 80
LAYOUTS = {  # (data, pipeline, tensor)
    "The model fits on one node: a copy on each, split inside it": (2, 1, 4),
    "It fits on both together: a pipeline between them": (1, 2, 4),
}
KINDS = ("Copy 0, or the first stage", "Copy 1, or the second stage")


def ranks(data, pipeline, tensor):
    """[(copy, stage, part of each layer)] of each GPU: neighbors share a layer, as engines and PyTorch's device mesh number them."""
    return [
        (gpu // (pipeline * tensor), gpu // tensor % pipeline, gpu % tensor) for gpu in range(data * pipeline * tensor)
    ]


def layers_of(stage, pipeline):
    each = LAYERS // pipeline
    return f"{stage * each + 1}-{(stage + 1) * each}"


def diagram():
    def draw(drawing):
        gap = 12 if drawing.narrow else 24
        width = (drawing.width - 2 - gap * (NODES - 1)) / NODES
        for number, (title, sizes) in enumerate(LAYOUTS.items()):
            top = number * 138
            for at, line in enumerate([title] if not drawing.narrow else title.split(": ")):
                drawing.text(1, top + 8 + 15 * at, line, "start" if not at else "start quiet")
            head = top + 44
            for gpu, (copy, stage, part) in enumerate(ranks(*sizes)):
                node, place = divmod(gpu, GPUS)
                left = 1 + node * (width + gap)
                if not place:
                    drawing.text(left, head - 6, f"node {node}", "start quiet")
                    drawing.box(left, head + 4, width, 68, "", "box")
                    says = f"layers {layers_of(stage, sizes[1])}" if sizes[1] > 1 else f"copy {copy}, all layers"
                    drawing.text(left + width / 2, head + 60, says, "middle quiet")
                step = (width - 12) / GPUS
                drawing.box(left + 6 + place * step + 1, head + 10, step - 2, 34, f"{part + 1}/{sizes[2]}", KINDS[copy + stage])

    rows = "".join(
        f"<tr><th>{title}</th>" + "".join(f"<td>copy {copy}, layers {layers_of(stage, sizes[1])}, part {part + 1} of {sizes[2]}</td>" for copy, stage, part in ranks(*sizes)) + "</tr>"
        for title, sizes in LAYOUTS.items()
    )
    heads = "".join(f"<th>GPU {gpu}</th>" for gpu in range(NODES * GPUS))
    return figure(
        f"{LAYERS} layers on {NODES} nodes of {GPUS} GPUs: which part of each layer a GPU holds",
        "Two layouts of eight GPUs on two nodes. In the first each node holds a whole copy of the model, every layer split over its four GPUs. In the second the first node holds "
        "the first half of the layers and the second node the other half. The parts of a layer stay inside a node in both.",
        draw,
        f'<div class="scroll"><table aria-label="Layouts"><thead><tr><th>Layout</th>{heads}</tr></thead><tbody>{rows}</tbody></table></div>',
        KINDS,
    )
