"""Reads a compiled program: how many collectives it has, and how many bytes they deliver to each device."""
import re

SIZES = {"f32": 4, "bf16": 2, "f16": 2, "s32": 4, "u32": 4, "s64": 8, "pred": 1}
KINDS = "all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute"


# --8<-- [start:read]
def collectives(text):
    """{kind: [how many, bytes of their results]} in `jax.jit(f).lower(...).compile().as_text()`."""
    found = {}
    for result, kind in re.findall(rf"= (.+?) ({KINDS})(?:-start)?\(", text):
        count, size = found.get(kind, (0, 0))
        for dtype, shape in re.findall(r"(\w+)\[([\d,]*)\]", result):
            elements = 1
            for length in filter(None, shape.split(",")):
                elements *= int(length)
            size += elements * SIZES[dtype]
        found[kind] = [count + 1, size]
    return found
# --8<-- [end:read]
