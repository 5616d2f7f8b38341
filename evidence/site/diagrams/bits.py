"""Bits for each weight by format: those of the value, and those of scales that weights share."""

from dryrun.tables.formats import WEIGHT_BYTES

from .svg import LETTER, figure

VALUE, SCALES, BOTH = "Value", "Scales and zero points, shared", "Mixed, on average"
FORMATS = {  # name: (bits of a value, bits that a group shares, weights of a group, what they are)
    "bf16": (16, 0, 1, "16-bit weights"),
    "q8_0": (8, 16, 32, "GGUF: a 16-bit scale for 32"),
    "fp8": (8, 0, 1, "a scale for a tensor, row or block"),
    "int4-32": (4, 32, 32, "torchao: scale and zero point for 32 weights"),
    "q4_k_m": (None, 0, 1, "GGUF: layers of 4 and of 6 bits"),
    "nf4": (4, 32, 64, "bitsandbytes: a 32-bit scale for 64"),
    "nvfp4": (4, 8, 16, "an 8-bit scale for 16 weights"),
    "int4-128": (4, 32, 128, "torchao: scale and zero point for 128"),
    "mxfp4": (4, 8, 32, "an 8-bit scale for 32 weights"),
}
SPELLED = {"q8_0": "Q8_0", "q4_k_m": "Q4_K_M", "int4-32": "int4, 32", "int4-128": "int4, 128", "nvfp4": "NVFP4", "mxfp4": "MXFP4"}


def bits(name):
    """(of the value, of what a group shares): both for one weight."""
    value, shared, group, _ = FORMATS[name]
    return (WEIGHT_BYTES[name] * 8, 0.0) if value is None else (float(value), shared / group)


def said(name):
    return f"{sum(bits(name)):.4g} bits: {FORMATS[name][3]}"


def diagram():
    def draw(drawing):
        first, tall = (0, 18) if drawing.narrow else (LETTER * 11, 22)
        bit = (drawing.width - first - 2) / 16
        for number, name in enumerate(FORMATS):
            below = number * (tall + (26 if drawing.narrow else 8)) + (18 if drawing.narrow else 2)
            value, shared = bits(name)
            spelled = SPELLED.get(name, name)
            if drawing.narrow:
                drawing.text(0, below - 9, f"{spelled}: {sum(bits(name)):.4g} bits", "start")
            else:
                drawing.text(0, below + tall / 2, spelled, "start")
            drawing.box(first, below, value * bit, tall, "", BOTH if FORMATS[name][0] is None else VALUE)
            if shared:
                drawing.box(first + value * bit, below, shared * bit, tall, "", SCALES)
            if not drawing.narrow and name != "bf16":
                drawing.text(first + (value + shared) * bit + 8, below + tall / 2, said(name), "start quiet")

    rows = "".join(f"<tr><th>{SPELLED.get(name, name)}</th><td>{said(name)}</td></tr>" for name in FORMATS)
    return figure(
        "Bits that each weight takes: four bits are four and a quarter, or five",
        "Bars. bf16 takes 16 bits. Formats of 8 bits take 8 or 8.5, formats of 4 bits take 4.25 to 5: the smaller the groups that share a scale, the more.",
        draw,
        f'<div class="scroll"><table aria-label="In words">{rows}</table></div>',
        (VALUE, SCALES, BOTH),
    )
