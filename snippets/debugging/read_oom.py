"""Reads the message of a CUDA out-of-memory error: what fills the GPU, and so what to do first.

    python read_oom.py < train.log
"""
import re
import sys

GIB = {"bytes": 2**-30, "KiB": 2**-20, "MiB": 2**-10, "GiB": 1}


# --8<-- [start:read]
def amount(text, *patterns):
    """GiB behind the words of the patterns, which may come several times. None if they are not there."""
    found = re.findall("|".join(patterns).replace("SIZE", r"([\d.]+) (bytes|KiB|MiB|GiB)"), text)
    sizes = [[part for part in match if part] for match in found]
    return sum(float(number) * GIB[unit] for number, unit in sizes) if sizes else None


def verdict(message):
    wanted = amount(message, "Tried to allocate SIZE")
    total = amount(message, "total capaci?ty of SIZE", "SIZE total capacity")  # before torch 2.1: the second
    free = amount(message, "of which SIZE is free", "SIZE free")
    tensors = amount(message, "SIZE is allocated by PyTorch", "SIZE already allocated")
    figures = {"what it tried to allocate": wanted, "the total capacity": total}
    figures |= {"what is free": free, "what PyTorch holds": tensors}
    if missing := [name for name, figure in figures.items() if figure is None]:
        return f"this message lacks {', '.join(missing)}: give the whole message, or look at nvidia-smi while it runs"
    unused = amount(message, "SIZE is reserved by PyTorch but unallocated")
    unused = unused or max(0, (amount(message, "SIZE reserved in total") or 0) - tensors)
    others = amount(message, r"Process \d+ has SIZE memory in use") or 0
    if "Including non-PyTorch memory, this process has" not in message:
        others -= tensors + unused  # in a container, this process is one of those with a number
    if wanted > total:
        return f"one tensor of {wanted:.1f} GiB on a GPU of {total:.1f} GiB: look at the shapes in that line"
    if others > 0.1 * total:
        return f"other processes hold {others:.1f} GiB: nvidia-smi names them"
    if free > wanted:
        return (f"{free:.1f} GiB are free: a limit holds for this process (on a GPU that shares the host's memory, the "
                "kernel's), or another one has just given memory back")
    if unused + free > wanted and unused > 0.04 * total:  # a little is always in pieces
        return f"{unused + free:.1f} GiB are free, but in pieces: PYTORCH_ALLOC_CONF=expandable_segments:True"
    return f"tensors hold {tensors:.1f} GiB of {total:.1f} GiB, and the step wants {wanted:.1f} GiB more: make it smaller"
# --8<-- [end:read]


if __name__ == "__main__":
    log = " ".join(sys.stdin.read().split())  # it may break the message over lines
    messages = log.split("out of memory. Tried to allocate ")[1:]
    for rest in messages:
        print(verdict(f"Tried to allocate {rest}"))
    if not messages:
        print("no 'out of memory. Tried to allocate' in this log", file=sys.stderr)
