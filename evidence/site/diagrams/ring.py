"""Ring all-reduce: parts of the gradient go round and are added up, then the sums go round."""

from .svg import figure, table_of

GPUS = 4
PARTS = "ABCD"


def sends():
    """[[part that GPU 0, 1, ... sends to the next GPU] of each step]: first to add it, then as the whole sum."""
    adding = [[(gpu - step) % GPUS for gpu in range(GPUS)] for step in range(GPUS - 1)]
    passing = [[(gpu + 1 - step) % GPUS for gpu in range(GPUS)] for step in range(GPUS - 1)]
    return adding + passing


def played():
    """After each step: for each GPU and part, the GPUs whose gradients are in the sum that it holds."""
    held = [[{gpu} for _ in range(GPUS)] for gpu in range(GPUS)]
    states = [held]
    for step, parts in enumerate(sends()):
        after = [list(row) for row in held]
        for gpu, part in enumerate(parts):
            to = (gpu + 1) % GPUS
            after[to][part] = held[gpu][part] | (held[to][part] if step < GPUS - 1 else set())
        held = after
        states.append(held)
    return states


def diagram():
    states = played()

    def draw(drawing):
        name, columns = 52, len(states)
        wide = (drawing.width - name) / (3 if drawing.narrow else columns)
        cell, tall = (wide - 10) / GPUS, 22
        for number, held in enumerate(states):
            row, column = divmod(number, 3) if drawing.narrow else (0, number)
            x, y = name + column * wide, row * (GPUS * tall + 44)
            title = "start" if not number else f"{number}: {'add' if number < GPUS else 'copy'}"
            drawing.text(x + (wide - 10) / 2, y + 8, title, "middle quiet")
            for gpu in range(GPUS):
                top = y + 20 + gpu * tall
                if not column:
                    drawing.text(0, top + tall / 2 - 1, f"GPU {gpu}", "start")
                for part in range(GPUS):
                    count = len(held[gpu][part])
                    kind = "Sum of all 4" if count == GPUS else "Partial sum" if count > 1 else "Its own gradient"
                    drawing.box(x + part * cell, top, cell - 2, tall - 3, str(count), kind)

    words = table_of({
        f"Step {step}": [(0, 0, f"GPU {gpu} sends part {PARTS[part]}", "") for gpu, part in enumerate(parts)]
        for step, parts in enumerate(sends(), 1)
    })  # fmt: skip
    return figure(
        "Ring all-reduce of 4 GPUs: a gradient in 4 parts, and how many GPUs' gradients each part holds",
        "Seven grids of four GPUs and four parts. At the start each part holds one gradient. In three steps each GPU adds the part "
        "that it receives from its neighbor, until each GPU has one whole sum. In three more steps the sums are passed on.",
        draw,
        words,
        ("Its own gradient", "Partial sum", "Sum of all 4"),
    )
