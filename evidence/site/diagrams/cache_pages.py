"""The memory that a server has for its KV cache: reserved for the longest answer of each request, and in pages as they are needed."""

from .svg import timeline

PAGES = 32  # in all
LONGEST = 8  # pages of a request of the greatest length
LENGTHS = (3, 6, 2, 4, 5, 3, 6, 4)  # pages of the requests so far, in the order in which they came
WRITTEN, RESERVED, FREE = "Tokens of a request", "Reserved, empty", "Free"


def reserved():
    """[(pages written, pages reserved beyond)] of the requests that fit."""
    return [(length, LONGEST - length) for length in LENGTHS[: PAGES // LONGEST]]


def paged():
    """[(pages written, 0)] of the requests that fit."""
    found = []
    for length in LENGTHS:
        if sum(pages for pages, _ in found) + length > PAGES:
            break
        found.append((length, 0))
    return found


def blocks(requests):
    """Blocks of the memory from its first page to its last."""
    found, at = [], 0
    for name, (written, beyond) in zip("ABCDEFGH", requests):
        found.append((at, written, name, WRITTEN))
        if beyond:
            found.append((at + written, beyond, "", RESERVED))
        at += written + beyond
    return found + [(at, PAGES - at, "", FREE)] * (at < PAGES)


def diagram():
    return timeline(
        f"The same memory: {len(reserved())} users where each gets room for the longest answer, {len(paged())} where each gets pages as it writes",
        "Two bars of the same memory. In the first, each request has a part that it fills and a larger or smaller part that stays empty. In the second the requests "
        "lie side by side without gaps, more of them, and some memory is free.",
        {"Reserved": blocks(reserved()), "In pages": blocks(paged())},
        axis="memory of the KV cache",
    )
