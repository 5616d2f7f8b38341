"""The order of a plan's options, and why each is first or loses."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..cost.device_memory import NAMES
from .plan_rows import SAME
from .verdict import Code, Verdict, of_step

if TYPE_CHECKING:
    from .planner import Option

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


def _verdict(option: Option, first: Option) -> Verdict:
    of_gpu = of_step(option.needed, option.size)
    numbers: dict[str, Any] = {}
    if not option.fits_host:
        numbers = {"host_gb": option.host / 1e9, "host_memory_gb": option.host_memory and option.host_memory / 1e9}
    if not option.fits_gpu:
        numbers["largest"] = _largest(option.needed.categories)
        return replace(of_gpu, fit=of_gpu.fit if option.fits_host else "no", numbers=numbers)
    if numbers:
        return replace(of_gpu, fit="no", code="host-memory", numbers=numbers)
    code, numbers = _reason(option, first)
    return replace(of_gpu, code=code, numbers=numbers)


def _reason(option: Option, first: Option) -> tuple[Code, dict[str, Any]]:
    """Why an option that fits is first, or loses."""
    if option is first:
        return "first", {"bound": option.prediction.bound}
    than = {"than": first.strategy}
    if option.trains != first.trains:
        return "weights", {"trains": option.trains} | than
    slower = option.seconds / first.seconds
    if option.setting.offload:
        return "offload", {"times_slower": slower} | than
    if slower <= SAME:
        return "as-fast", than
    return "slower", {"times_slower": slower, "cause": _cause(option, first)} | than


def _largest(categories: dict[str, float]) -> str:
    name = max(categories, key=categories.get)  # type: ignore[arg-type]
    return NAMES.get(name, name)


def _cause(option: Option, first: Option) -> str:
    """What takes more of its time than of the first option's."""
    parts, parts_of_first = option.prediction.parts, first.prediction.parts
    part = max(parts, key=lambda name: parts[name] - parts_of_first[name])
    if part == "communication" and option.setting.pipeline > 1:
        return "stages"
    return part
