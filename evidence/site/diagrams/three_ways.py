"""A model on four GPUs in three ways, on one clock: layers in turn, each layer split, a copy on each GPU."""

from .svg import figure

GPUS, LAYERS = 4, 80
END = 8  # the clock: one GPU takes GPUS units for a token of the whole model
SUMS = 1 / 3  # what the sums of a token take, in the same units: for the picture
TOKEN, SENDS = "One token computes", "Sums over all GPUs"


def in_turn():
    """{GPU: [(start, length, label, kind)]}: each GPU has a quarter of the layers and waits for the GPU before it."""
    found = {gpu: [] for gpu in range(GPUS)}
    for start in range(END):
        token, gpu = divmod(start, GPUS)
        found[gpu].append((start, 1, str(token + 1), TOKEN))
    return found


def split():
    """Each GPU has a part of every layer: a token takes a quarter of the time, and its sums."""
    lane, start, token = [], 0, 1
    while start + 1 + SUMS <= END + 1e-9:
        lane += [(start, 1, str(token), TOKEN), (start + 1, SUMS, "", SENDS)]
        start, token = start + 1 + SUMS, token + 1
    return dict.fromkeys(range(GPUS), lane)


def copies():
    """Each GPU has the whole model and a prompt of its own."""
    lane = [(start, GPUS, str(start // GPUS + 1), TOKEN) for start in range(0, END, GPUS)]
    return dict.fromkeys(range(GPUS), lane)


def layers(gpu):
    """The first and the last layer that lie on a GPU when layers are put in turn."""
    each = LAYERS // GPUS
    return gpu * each + 1, (gpu + 1) * each


def tokens(lanes, apart=False):
    """Tokens that all GPUs together have made at the end. apart: each GPU answers a prompt of its own."""
    of = [sum(kind == TOKEN for *_, kind in lane) for lane in lanes.values()]
    return sum(of) if apart else max(of)


def ways():
    """[(name, lanes, whether each GPU answers a prompt of its own)]"""
    return [
        ("Layers in turn (device_map)", in_turn(), False),
        ("Each layer split (tensor parallelism)", split(), False),
        ("One copy on each GPU", copies(), True),
    ]


def made(lanes, apart):
    """What came out, in words."""
    return f"{tokens(lanes, apart)} tokens of {'four prompts' if apart else 'one prompt'}"


def held(number, gpu):
    """What lies on a GPU, in words."""
    first, last = layers(gpu)
    return (f"layers {first}-{last}", f"a quarter of layers 1-{LAYERS}", f"layers 1-{LAYERS}")[number]


def diagram():
    def draw(drawing):
        head = 44
        room, lane, top = drawing.width - head - 2, 20, 4
        for name, lanes, apart in ways():
            drawing.text(0, top + 8, name if not drawing.narrow else name.split(" (")[0], "start")
            drawing.text(drawing.width - 2, top + 8, made(lanes, apart), "end quiet")
            for gpu, blocks in lanes.items():
                y = top + 20 + gpu * lane
                drawing.text(0, y + lane / 2, f"GPU {gpu}", "start quiet")
                drawing.box(head, y, room, lane - 3, "", "lane")
                for start, length, label, kind in blocks:
                    x, wide = head + start * room / END, length * room / END
                    drawing.box(x, y, wide, lane - 3, "", kind)
                    if label:
                        drawing.text(x + wide / 2, y + lane / 2 - 1, label)
            top += 20 + GPUS * lane + 14
        drawing.text(head, top, "time →", "start quiet")

    rows = ""
    for number, (name, lanes, apart) in enumerate(ways()):
        does = (
            "One GPU works, three wait.",
            "All work on each token and wait for sums.",
            "Each works alone and sends nothing.",
        )[number]
        holds = ", ".join(f"GPU {gpu}: {held(number, gpu)}" for gpu in lanes)
        rows += f"<tr><th>{name}</th><td>{holds}. {does} {made(lanes, apart)}.</td></tr>"
    return figure(
        f"{LAYERS} layers on {GPUS} GPUs, the same time: the number in a block is the token",
        "Three timelines of four GPUs. With layers in turn one GPU works while three wait. With each layer split all four work on "
        "each token, with short sums between. With copies each GPU works on a prompt of its own, without a gap.",
        draw,
        f'<div class="scroll"><table aria-label="In words">{rows}</table></div>',
        (TOKEN, SENDS),
    )
