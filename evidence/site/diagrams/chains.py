"""Boxes one below the other, each with what binds it to the next: what fits what, and how a figure reaches a page."""

from html import escape

from .svg import LINE, figure, wrapped

INSTALLED = {  # what must fit the layer below, and the message if it does not
    "Extensions such as flash-attn": ["compiled for this torch", "else: undefined symbol"],
    "torch, with its own CUDA": [
        "its CUDA is not too new for the driver",
        "else: The NVIDIA driver on your system is too old",
        "it has kernels for the GPU",
        "else: no kernel image is available",
    ],
    "NVIDIA driver": ["knows this GPU", "else: No devices were found"],
    "GPU": [],
}
TRAVELS = {  # where a figure is, and what brings it on
    "Notebook: the program, and claim(…) with the bounds of its value": ["make record runs it"],
    "Record: results/NOTEBOOK/MACHINE.json, with versions, date and the code's hash": ["the page names it: [[notebook:claim]]"],
    "Sentence of a page: the value, and where it comes from at a click": ["make verify runs the notebook again"],
    "Bounds: the value still lies between them, or the run fails": [],
}


def _chain(title, description, boxes):
    def draw(drawing):
        y, width = 1, drawing.width - 2 if drawing.narrow else 360
        for box, below in boxes.items():
            tall = 12 + LINE * len(wrapped(box, width))
            drawing.box(1, y, width, tall, box, "box" if below else "answer")
            y += tall
            if below:
                lines = [line for text in below for line in wrapped(text, width - 50)]
                down = 14 + LINE * len(lines)
                drawing.arrow((26, y), (26, y + down))
                for number, line in enumerate(lines):
                    drawing.text(40, y + 7 + (number + 0.5) * LINE, line, "start quiet")
                y += down

    words = "".join(f"<li>{escape('; '.join([box, *below]))}</li>" for box, below in boxes.items())
    return figure(title, description, draw, f"<ol>{words}</ol>")


def installed_diagram():
    return _chain(
        "What must fit what, and the message where it does not",
        "Four boxes from top to bottom: extensions, torch, the driver and the GPU. An arrow from each to the next says what must fit, and which message comes if it does not. "
        "torch must also have kernels for the GPU.",
        INSTALLED,
    )


def figure_diagram():
    return _chain(
        "How a figure reaches a page, and stays true",
        "Four boxes from top to bottom: the notebook, the record of its run, the sentence of a page, and the bounds that each later run is held against.",
        TRAVELS,
    )
