"""Does it fit, and why: data for programs, and the only place that puts it into words.

An answer says whether a GPU is large enough; the `Verdict` of a plan's option says too why it is first, or why it loses.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from ..tables.hardware import GiB

if TYPE_CHECKING:
    from ..cost.device_memory import Needed

Fit = Literal["fits", "maybe", "no"]
Code = Literal["gpu-memory", "program", "server", "system", "host-memory", "first", "weights", "offload", "as-fast", "slower"]

SHORT: dict[Fit, str] = {"fits": "it fits", "maybe": "it may fit", "no": "it does not fit"}
UNSURE = {  # what it depends on
    "program": "programs differ in what they keep",
    "server": "that depends on what the server keeps beside weights and cache",
    "system": "the system leaves the GPU a part of the memory, and can be told to leave it more",
}
CAUSES = {
    "stages": "its stages wait for each other",
    "communication": "waits longer for what GPUs send",
    "bandwidth": "moves more memory",
    "compute": "computes more, or in smaller products",
    "launches": "launches more and smaller kernels",
}


@dataclass(frozen=True)
class Verdict:
    """Whether it fits on each GPU. `str` of it is a line of English.

    - `fit`: "fits" where the upper end of the band does, "maybe" where only the expected value does, or where a system can be told
      to leave the GPU more; else "no"
    - `expected_gib` and `high_gib` are needed, of the `gpu_gib` that a program can use
    - `code`: why. "gpu-memory" by the size of the GPU alone; where that is not sure, it depends on the "program", the "server" or the
      "system". Of a plan's options too: too little "host-memory"; it is the "first"; it trains other "weights"; an "offload" is slower;
      it is "as-fast" and harder to set up; it is "slower"
    - `numbers`: those of the reason, and names: `largest` (what takes most of the memory), `host_gb` and `host_memory_gb` (needed, and
      there), `bound`, `trains`, `than` (the first option), `times_slower`, `cause`
    """

    fit: Fit
    expected_gib: float
    high_gib: float
    gpu_gib: float
    code: Code = "gpu-memory"
    numbers: dict[str, Any] = field(default_factory=dict)

    @property
    def margin_gib(self) -> float:
        """What is left of the GPU in the worst case, below 0 what is missing; where it does not fit, what is missing at least."""
        needed = self.expected_gib if self.fit == "no" and self.expected_gib > self.gpu_gib else self.high_gib
        return self.gpu_gib - needed

    @property
    def short(self) -> str:
        """Whether it fits, in words, without the reason."""
        return SHORT[self.fit]

    @property
    def why(self) -> dict[str, Any]:
        """The reason with its numbers, as JSON has it."""
        return {"code": self.code, **self.numbers}

    def __str__(self) -> str:
        return in_words(self)


def of_step(needed: Needed, size: float) -> Verdict:
    """Whether a training step fits on a GPU of this many bytes."""
    fit: Fit = "fits" if needed.fits(size) else "maybe" if needed.expected <= size else "no"
    return Verdict(fit, needed.expected / GiB, needed.high / GiB, size / GiB, "program" if fit == "maybe" else "gpu-memory")


def in_words(verdict: Verdict, host_memory: str = "host_memory") -> str:
    """The verdict in a line. host_memory: how a reader says what each host has."""
    code, numbers = verdict.code, verdict.numbers
    if "largest" in numbers:  # an option that is not sure to fit the GPU
        fit: Fit = "no" if code == "gpu-memory" else "maybe"
        held = f"{SHORT[fit].removeprefix('it ')}: up to {verdict.high_gib:,.0f} GiB, most of it {numbers['largest']}"
        return f"{held}; {_of_host(numbers, host_memory)}" if numbers.get("host_memory_gb") else held
    if code == "host-memory":
        return _of_host(numbers, host_memory)
    if code == "first":
        return f"fits, and nothing that surely fits is clearly faster; bound by {numbers['bound']}"
    if code == "weights":
        own, other = ("adapters alone", "all weights")[:: 1 if numbers["trains"] == "adapters" else -1]
        return f"trains {own}, and {numbers['than']} {other}"
    if code == "offload":
        return f"{numbers['times_slower']:.1f}x slower at least: all weights pass the slot of each GPU, and AdamW on the host is not counted"
    if code == "as-fast":
        return f"about as fast, and harder to set up than {numbers['than']}"
    if code == "slower":
        return f"{numbers['times_slower']:.2f}x slower: {CAUSES[numbers['cause']]}"
    return f"{verdict.short}: {UNSURE[code]}" if code in UNSURE else verdict.short


def _of_host(numbers: dict[str, Any], option: str) -> str:
    has = numbers["host_memory_gb"]
    known = f"which has {has:,.0f}" if has else f"so give {option}"
    return f"needs {max(1, numbers['host_gb']):,.0f} GB of each host's memory, {known}"
