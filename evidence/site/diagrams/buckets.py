"""Which calls of compiled generation compile: prompts of five lengths, as in snippets/xla/generate.py."""

from .svg import timeline

PROMPTS = (5, 9, 12, 20, 31)  # tokens
SMALLEST = 16  # the smallest bucket
COMPILES, REUSES = "Compiles a program", "Uses one that is there"


def bucket(length):
    return max(SMALLEST, 1 << (length - 1).bit_length())


def calls(padded):
    """[(label, whether it compiles)]: for each prompt its prefill, and then decode, whose shape is always one token."""
    seen, found = set(), []
    for length in PROMPTS:
        width = bucket(length) if padded else length
        for shape, label in ((width, f"{length} in {width}" if padded else f"{length}"), ("decode", "decode")):
            found.append((label, shape not in seen))
            seen.add(shape)
    return found


def programs(padded):
    return sum(compiles for _, compiles in calls(padded))


def lane(padded):
    return [(at, 1, label, COMPILES if new else REUSES) for at, (label, new) in enumerate(calls(padded))]


def diagram():
    return timeline(
        f"Five prompts of {PROMPTS[0]} to {PROMPTS[-1]} tokens: {programs(False)} programs as they come, {programs(True)} in buckets of {SMALLEST} and 32 tokens",
        "Timeline of two ways to generate for five prompts. As they come, the prefill of each prompt compiles. In buckets, only the first "
        "prompt of each bucket compiles. The first decode compiles in both, and no later decode does.",
        {"As they come": lane(False), "In buckets": lane(True)},
        axis="calls",
    )
