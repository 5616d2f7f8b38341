"""The order of a plan's options, and in words why each is first or loses."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ..cost.device_memory import NAMES
from ..tables.hardware import GiB
from .plan_rows import SAME

if TYPE_CHECKING:
    from .planner import Option

CAUSES = {
    "communication": "waits longer for what GPUs send",
    "bandwidth": "moves more memory",
    "mathematics": "computes more, or in smaller products",
    "launches": "launches more and smaller kernels",
}


def ranked(options: list[Option]) -> list[Option]:
    """What fits first; of strategies that are about as fast, the one that is named first in `plan_rows` is simpler."""
    groups: dict[tuple[bool, bool, bool], list[Option]]
    found: list[Option]
    groups, found = {}, []
    for option in options:
        key = not option.fits, option.setting.offload, option.trains == "adapters"
        groups.setdefault(key, []).append(option)
    for (misfits, *_), members in sorted(groups.items()):
        if misfits:
            found += sorted(members, key=lambda option: option.needed.high)
            continue
        while members:
            fastest = min(option.seconds for option in members)
            simplest = next(option for option in members if option.seconds <= SAME * fastest)
            members.remove(simplest)
            found.append(simplest)
    return found


def judged(options: list[Option]) -> list[Option]:
    """The options, each with its verdict."""
    first = options[0]
    return [replace(option, verdict=_verdict(option, first)) for option in options]


def _verdict(option: Option, first: Option) -> str:
    host = ""
    if not option.fits_host:
        known = f"which has {option.host_memory / 1e9:,.0f}" if option.host_memory else "so give host_memory"
        host = f"needs {max(1, option.host / 1e9):,.0f} GB of each host's memory, {known}"
    if not option.fits_gpu:
        said = option.needed.verdict(option.size).partition(":")[0].removeprefix("it ")
        held = f"{said}: up to {option.needed.high / GiB:,.0f} GiB, most of it {_largest(option.needed.categories)}"
        return f"{held}; {host}" if host and option.host_memory else held
    if host:
        return host
    if option is first:
        return f"fits, and nothing that surely fits is clearly faster; bound by {option.prediction.bound}"
    if option.trains != first.trains:
        own, other = ("adapters alone", "all weights")[:: 1 if option.trains == "adapters" else -1]
        return f"trains {own}, and {first.strategy} {other}"
    slower = option.seconds / first.seconds
    if option.setting.offload:
        return f"{slower:.1f}x slower at least: all weights pass the slot of each GPU, and AdamW on the host is not counted"
    if slower <= SAME:
        return f"about as fast, and harder to set up than {first.strategy}"
    return f"{slower:.2f}x slower: {_cause(option, first)}"


def _largest(categories: dict[str, float]) -> str:
    name = max(categories, key=categories.get)  # type: ignore[arg-type]
    return NAMES.get(name, name)


def _cause(option: Option, first: Option) -> str:
    """What takes more of its time than of the first option's."""
    parts, parts_of_first = option.prediction.parts, first.prediction.parts
    part = max(parts, key=lambda name: parts[name] - parts_of_first[name])
    if part == "communication" and option.setting.pipeline > 1:
        return "its stages wait for each other"
    return CAUSES[part]
