"""All accelerators by memory and bandwidth: what fits on each, and how fast a model that fills it can write for one reader."""

import math
import re

from dryrun.tables.hardware import ACCELERATORS, accelerator

from .svg import LINE, figure

SHARED, CARDS, SERVERS, AMD, OTHERS = "Memory shared with the CPU", "GeForce", "Other NVIDIA", "AMD", "Intel, Google, AWS"
KINDS = (CARDS, SERVERS, SHARED, AMD, OTHERS)
MEMORY, BANDWIDTH = (5, 640), (100, 12800)  # GB and GB/s: the ends of the axes
TOKENS = (2, 5, 10, 20, 50, 100)  # a second
NAMED = {  # where the name stands beside the mark
    "rtx-3060-12": ("RTX 3060", "left"),
    "rtx-4090": ("RTX 4090", "above"),
    "rtx-5090": ("RTX 5090", "above"),
    "l4": ("L4", "right"),
    "l40s": ("L40S", "right"),
    "a100-sxm4-80": ("A100", "left"),
    "h100-sxm5": ("H100", "left"),
    "h200-sxm": ("H200", "left"),
    "b200-hgx": ("B200", "left"),
    "mi300x": ("MI300X", "right"),
    "gb10": ("DGX Spark", "right"),
    "m4": ("M4", "right"),
    "m3-ultra": ("M3 Ultra", "below"),
}
ON_A_PHONE = ("rtx-5090", "l4", "h100-sxm5", "b200-hgx", "gb10", "m3-ultra")


def kind(key):
    found = ACCELERATORS[key]
    if found.scope.startswith("unified"):
        return SHARED
    if found.vendor == "AMD":
        return AMD
    return OTHERS if found.vendor != "NVIDIA" else CARDS if re.match(r"rtx-[2-5]0[5-9]0", key) else SERVERS


def shown():
    """Those with a memory and a bandwidth, by kind."""
    found = [key for key, each in ACCELERATORS.items() if each.product and each["memory"].value and each["bandwidth"].value]
    return sorted(found, key=lambda key: KINDS.index(kind(key)))


def tokens_when_full(key):
    """Tokens a second for one reader at most: each reads the weights once, here as many as the memory holds."""
    return accelerator(key)["bandwidth"].value / accelerator(key)["memory"].value


def diagram():
    def draw(drawing):
        left, tall, right = 46, 300 if drawing.narrow else 380, drawing.width - 12

        def place(memory, bandwidth):
            across = math.log(memory / MEMORY[0]) / math.log(MEMORY[1] / MEMORY[0])
            up = math.log(bandwidth / BANDWIDTH[0]) / math.log(BANDWIDTH[1] / BANDWIDTH[0])
            return left + across * (right - left), 18 + (1 - up) * tall

        for bandwidth in (100, 200, 400, 800, 1600, 3200, 6400, 12800):
            y = place(MEMORY[0], bandwidth)[1]
            drawing.line((left, y), (right, y), kind="guide")
            drawing.text(left - 5, y, f"{bandwidth:,}", "end quiet")
        for memory in (8, 16, 32, 64, 128, 256, 512):
            drawing.text(place(memory, BANDWIDTH[0])[0], tall + 32, str(memory), "middle quiet")
        for tokens in TOKENS:
            ends = [(memory, memory * tokens) for memory in (max(MEMORY[0], BANDWIDTH[0] / tokens), min(MEMORY[1], BANDWIDTH[1] / tokens))]
            drawing.line(*(place(*end) for end in ends), kind="guide")
            x, y = place(*ends[1])
            drawing.text(x, y - 8 if y < 30 else y, f"{tokens} tokens/s" if tokens == TOKENS[-1] and not drawing.narrow else str(tokens), "middle quiet" if y < 30 else "end quiet")
        for key in shown():
            x, y = place(accelerator(key)["memory"].value, accelerator(key)["bandwidth"].value)
            drawing.box(x - 4, y - 4, 8, 8, "", kind(key))
        for key, (name, side) in NAMED.items():
            if drawing.narrow and key not in ON_A_PHONE:
                continue
            x, y = place(accelerator(key)["memory"].value, accelerator(key)["bandwidth"].value)
            beside = {"left": (x - 8, y, "end"), "right": (x + 8, y, "start"), "above": (x, y - 13, "middle"), "below": (x + 6, y + 13, "end")}
            drawing.text(*beside[side][:2], name, beside[side][2])
        drawing.text(0, 6, "GB/s ↑", "start quiet")
        drawing.text(right, tall + 32 + LINE, "GB of memory →", "end quiet")

    named = sorted(NAMED, key=lambda key: -tokens_when_full(key))
    rows = "".join(f"<tr><th>{accelerator(key).label}</th><td>{tokens_when_full(key):.1f}</td></tr>" for key in named)
    return figure(
        "Memory and bandwidth of all accelerators, and tokens/s of a model that fills the memory",
        "Both axes logarithmic. Slanted lines are bandwidth over memory: the tokens per second that one reader can get at most when the weights fill the memory. "
        "Cards and servers' GPUs lie between 12 and 76 tokens per second, whatever their size. Machines that share their memory "
        "with the CPU have as much memory as servers and the bandwidth of cards, and lie below 7.",
        draw,
        f'<div class="scroll"><table aria-label="In words"><thead><tr><th>Accelerator</th><th>tokens/s at most, when the weights fill its memory</th></tr></thead>'
        f"<tbody>{rows}</tbody></table></div>",
        KINDS,
    )


