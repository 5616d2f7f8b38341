"""A feed-forward block split over two GPUs: the first matrix by columns, the second by rows, then one sum."""

from .svg import figure

GPUS = 2
SPLIT = {"up_proj": "columns", "down_proj": "rows"}
MINE, WHOLE = "This GPU's part", "On both GPUs"


def parts(gpu):
    """[(name, width, height, what GPU `gpu` has of it: (left, top, width, height))], all as shares of the widest matrix."""
    columns = (gpu / GPUS, 0, 1 / GPUS, 1)
    rows = (0, gpu / GPUS, 1, 1 / GPUS)
    of = {"columns": columns, "rows": rows}
    return [
        ("input", 0.5, 0.4, None),
        ("up_proj", 1, 0.5, of[SPLIT["up_proj"]]),
        ("hidden", 1, 0.4, columns),
        ("down_proj", 0.5, 1, of[SPLIT["down_proj"]]),
        ("part of the sum", 0.5, 0.4, None),
    ]


def diagram():
    def draw(drawing):
        size, gap = (66, 14) if drawing.narrow else (120, 30)
        tall = size * 0.9
        for gpu in range(GPUS):
            top, x = gpu * (tall + 52), 1
            drawing.text(x, top + 8, f"GPU {gpu}", "start")
            for number, (name, wide, high, mine) in enumerate(parts(gpu)):
                width, height = wide * size, high * tall
                y = top + 20 + (tall - height) / 2
                if mine:
                    drawing.box(x, y, width, height, "", "lane")
                    left, above, share, down = mine
                    drawing.box(x + left * width, y + above * height, share * width, down * height, "", MINE)
                else:
                    last = name == "part of the sum"
                    drawing.box(x, y, width, height, "", MINE if last else WHOLE)
                label = {"part of the sum": "part"}.get(name, name) if drawing.narrow else name
                if not gpu or not drawing.narrow:
                    drawing.text(x + width / 2, top + 30 + tall, label, "middle quiet")
                x += width
                if number < 4:
                    drawing.text(x + gap / 2, top + 20 + tall / 2, "× = × ="[2 * number])
                x += gap
        bottom = GPUS * (tall + 52)
        width = 0.5 * size
        drawing.arrow((x - gap - width / 2, bottom - 8), (x - gap - width / 2, bottom + 22))
        drawing.box(x - gap - width, bottom + 26, width, 0.4 * tall, "", WHOLE)
        said = "all-reduce: the sum, on both GPUs" if drawing.narrow else "all-reduce: the sum of both parts, on both GPUs"
        drawing.text(x - gap - width - 8, bottom + 26 + 0.2 * tall, said, "end")

    return figure(
        "Tensor parallelism: the first matrix by columns, the second by rows, one all-reduce",
        "Two GPUs, each with the whole input. Each multiplies it by half of the columns of up_proj and gets half of the hidden "
        "values, then by the rows of down_proj that belong to them. That gives a part of the sum, and an all-reduce adds the parts.",
        draw,
        "<p>GPU 0 has the first half of the columns of up_proj and the first half of the rows of down_proj, GPU 1 the second halves. "
        "Between the two products nothing is sent.</p>",
        (WHOLE, MINE),
    )
