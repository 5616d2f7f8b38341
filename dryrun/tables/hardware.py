"""Accelerators and links by name, from the files in `dryrun/data`. No torch.

    hardware.accelerator("RTX 4090").half          # 165.2: TFLOP/s of 16-bit products, dense, fp32 accumulation
    hardware.accelerator("a100-80gb")["bandwidth"]  # the value with its unit, source, date and how the source was read

Each value of an accelerator or link has a unit, a source and the date of the source (of an undated page: when it was read).
Rates are decimal: 1 GB/s = 1e9 bytes/s. Memory is written as on the box,
24 GB, and is 24 GiB: `bytes` has what a program can use.

- links: peak in one direction; NVLink: all links of a GPU together; networks: one adapter
- `GPUS`: what `dryrun.answer.planner` needs of each accelerator; `tflops` is the dense 16-bit peak, `link` leads to the GPUs of a node
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from . import gpu_files
from .refusal import Refusal

GB = 1e9
GiB = 2**30
ECC_LEAVES = 15 / 16  # of GDDR memory
DATA = gpu_files.DATA
LISTED = 12  # names that an error message lists; of a longer table only the nearest


class GPU(NamedTuple):
    memory_gb: float
    tflops: float
    link: str
    source: str  # of the TFLOP/s


class Link(NamedTuple):
    gb_per_s: float
    source: str


@dataclass(frozen=True)
class Value:
    """One figure of an accelerator. Without a value, `note` says why."""

    value: Any
    unit: str | None = None
    dtype: str | None = None  # of operands: "fp16", "int8", ... Products are dense: a peak with structured sparsity is in no file
    accumulate: str | None = None
    source: str | None = None  # a URL, or the title of a source that has none
    date: str | None = None
    read: str | None = None  # "vendor-quoted", "table", "derived", ...: see sources.toml
    note: str | None = None


@dataclass(frozen=True)
class Accelerator:
    key: str
    name: str
    label: str  # name and memory, as on pages and in `GPUS`
    aliases: tuple[str, ...]
    vendor: str
    architecture: str
    family: str  # "ampere", "hopper", "cdna3", ...
    scope: str  # what one row is: a device, a chip, a module of two devices
    product: bool  # False: machines that a published measurement describes, with a clock or memory that nobody sells
    operations_name: str | None  # of the generation, and of the line where the generation has two rates: "ada-pro"
    operations: dict[str, float]  # per clock and unit, by dtype; empty where the architecture papers do not say
    clock_exception: str | None  # why clock x units x operations misses all matrix peaks by a little, where it does
    exceptions: dict[str, str]  # value: why it is not what `data_sheets` expects
    ecc: bool  # on by default, in memory that has no room of its own for it
    capacity_gib: float | None  # what CUDA was seen to report as the whole memory, on Linux: the least of what was found
    values: dict[str, Value] = field(repr=False)

    def __getitem__(self, name: str) -> Value:
        return self.values[known("value", name, self.values)]

    def get(self, name: str) -> Any:
        """The bare value, or None."""
        return self[name].value

    @property
    def bytes(self) -> float | None:
        """Bytes of memory that are built in: GB on a box are GiB, and ECC takes a sixteenth of GDDR."""
        size = self.get("memory")
        return size * GiB * (ECC_LEAVES if self.ecc else 1) if size else None

    @property
    def usable(self) -> float | None:
        """Bytes that programs share: as CUDA reports them. Where it was not seen to, the usual share of what NVIDIA's GPUs have. Of memory
        that is the computer's too all of it: `shared_memory.left` says what the system leaves."""
        if self.capacity_gib:
            return self.capacity_gib * GiB
        return self.bytes and self.bytes * (CAPACITY if self.vendor == "NVIDIA" and not self.shares_memory else 1)

    @property
    def shares_memory(self) -> bool:
        """Whether CPU and GPU have one memory, which is sold in several sizes: Macs, GB10, Strix Halo."""
        return self.scope.startswith("unified memory")

    @property
    def half(self) -> float | None:
        """TFLOP/s of 16-bit matrix products: bf16, or fp16 where only that is printed."""
        return self.half_value.value

    @property
    def half_value(self) -> Value:
        """The value behind `half`. A printed figure goes before one that follows from the clock."""
        found = [self[name] for name in ("bf16", "fp16") if self.get(name)]
        return min(found, key=lambda value: value.read == "derived", default=self["bf16"])

    @property
    def flop_per_byte(self) -> float | None:
        """16-bit FLOPs that the GPU does while it reads one byte: below that, a kernel waits for memory."""
        if not (self.half and self.get("bandwidth")):
            return None
        return self.half * 1e12 / (self.get("bandwidth") * GB)

    @property
    def reads_per_second(self) -> float | None:
        """How often the GPU can read its whole memory: no model that fills it decodes more tokens per second."""
        if not (self.get("memory") and self.get("bandwidth")):
            return None
        return self.get("bandwidth") / self.get("memory")

    def from_clock(self, dtype: str) -> float | None:
        """TFLOP/s by units x operations x clock, or None where one of them is unknown."""
        clock = self.get("clock") if dtype == "fp32" else self.get("matrix_clock") or self.get("clock")
        units, operations = self.get("units"), self.operations.get(dtype)
        return units * operations * clock / 1e6 if units and operations and clock else None


def table(name: str) -> dict[str, Any]:
    """A file of `dryrun/data`, with all units, sources, dates and notes."""
    try:
        return json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(f"dryrun/data/{name}.json:{error.lineno}: no JSON: {error.msg}") from None


def known(what: str, name: str, names: Collection[str]) -> str:
    """The name, if it is one of `names`; else ValueError with the nearest."""
    if name not in names:
        close = difflib.get_close_matches(str(name), names, 1, 0.3)
        choices = f"Choose one of: {'; '.join(_listed(name, names))}"
        raise Refusal(what, name, "is not known", choices, nearest=close, code="unlisted")
    return name


def _listed(name: str, names: Collection[str]) -> Collection[str]:
    if len(names) <= LISTED:
        return names
    return difflib.get_close_matches(str(name), names, LISTED, 0) + [f"{len(names) - LISTED} more"]


def accelerator(name: str | Accelerator) -> Accelerator:
    """The accelerator of that key, label or alias, however it is cased; else ValueError with the nearest names. One that is given
    already comes back."""
    if isinstance(name, Accelerator):
        return name
    key = NAMES.get(_normal(name))
    if key is None:
        counted = re.fullmatch(r"(\d+) ?[x×*] ?(.+)", str(name).strip())
        if counted and (NAMES.get(_normal(counted[2])) or any(_nearest(_normal(counted[2])))):
            apart = f"gpu={counted[2]!r}, gpus={counted[1]} (--gpus {counted[1]})"
            raise Refusal("gpu", str(name)[:80], "the number stands apart", apart)
        if re.match(r"mac|imac|apple", str(name), re.IGNORECASE):
            macs = [key for key, row in ACCELERATORS.items() if row.family == "apple"]
            raise Refusal("gpu", str(name)[:80], "a Mac is asked for by its chip", ", ".join(macs), nearest=macs)
        close = list(dict.fromkeys(_nearest(_normal(name))))[:4]
        raise Refusal("gpu", str(name)[:80], "is not known", "All names: dryrun gpus", nearest=close, code="unknown")
    return ACCELERATORS[key]


def sold(word: str = "") -> list[Accelerator]:
    """Accelerators that one can buy or rent, or those of them whose names hold a word."""
    return [row for row in ACCELERATORS.values() if row.product and word.lower() in " ".join((row.key, row.label, row.name, *row.aliases)).lower()]


def _nearest(name: str) -> Iterator[str]:
    """Keys by likeness: first those that the name begins, as "a100" begins four."""
    if len(name) > 1:
        yield from (key for spelling, key in NAMES.items() if spelling.startswith(name))
    yield from (NAMES[found] for found in difflib.get_close_matches(name, NAMES, 9, 0.5))


def bytes_per_second(link: str, adapters: int = 1) -> float:
    return LINKS[known("link", link, LINKS)].gb_per_s * GB * adapters


def _normal(name: str) -> str:
    """'NVIDIA GeForce RTX 4090' and 'rtx-4090' are one name."""
    words = re.sub(r"\b(nvidia|amd|intel|google|aws|apple|geforce|tesla|quadro|instinct)\b", "", str(name).casefold())
    return re.sub(r"[^a-z0-9.]", "", words)


def _accelerators(files: dict[str, dict[str, Any]]) -> Iterator[Accelerator]:
    for key, row in gpu_files.rows(files):
        facts = {name: row[name] for name in (*gpu_files.NEEDED, "scope", "product", "clock_exception", "exceptions", "ecc", "capacity_gib")}
        yield Accelerator(
            key=key,
            **facts,
            aliases=tuple(row["aliases"]),
            operations_name=row["operations"],
            operations={name: rate for name, rate in files["generations"].get(row["operations"], {}).items() if name != "source"},
            values={name: Value(**value) for name, value in row["values"].items()},
        )


GEFORCE = re.compile(r"rtx(?=[2-5]0[5-9]0)")  # a 4090 is called so; a 6000 may be one of five


def _names(accelerators: dict[str, Accelerator]) -> dict[str, str]:
    """Every spelling → key; a spelling of two accelerators is a fault of the table."""
    names: dict[str, str] = {}
    for key, row in accelerators.items():
        for spelling in (key, row.label, row.name, *row.aliases):
            for called in (_normal(spelling), GEFORCE.sub("", _normal(spelling))):
                if names.setdefault(called, key) != key:
                    raise ValueError(f"dryrun/data/accelerators/{key}.toml: {spelling!r} names {names[called]} and {key}: drop one alias")
    return names


def _for_plan(accelerators: dict[str, Accelerator]) -> Iterator[tuple[str, GPU]]:
    for row in accelerators.values():
        memory, link = row.get("memory"), row.get("peer_link")
        if row.product and row.half and memory and link:
            yield row.label, GPU(memory, row.half, link, row.half_value.source)  # type: ignore[arg-type]  # every peak has one


# GPUs that pages show figures for, in the order of their switch; the first without a choice. One more is a word here, and `make exact`.
ON_PAGES = (
    "rtx-4090", "rtx-3090", "rtx-5090", "rtx-3060-12", "rtx-3080", "rtx-4060", "rtx-4060ti-16", "rtx-4070", "rtx-4070ti-super", "rtx-4080",
    "rtx-5060ti-16", "rtx-5070", "rtx-5070ti", "rtx-5080", "t4", "v100-sxm2-16", "v100-sxm2-32", "l4", "a10g", "a40", "l40s", "rtx-a6000",
    "rtx-6000-ada", "rtx-pro-6000-bw", "a100-sxm4-40", "a100-sxm4-80", "a100-pcie-80", "h100-pcie", "h100-sxm5", "h200-sxm", "gh200-96",
    "b200-hgx", "b300-hgx",
)  # fmt: skip

ACCELERATORS = {row.key: row for row in _accelerators(gpu_files.read())}
_shares = sorted(row.capacity_gib * GiB / row.bytes for row in ACCELERATORS.values() if row.vendor == "NVIDIA" and row.capacity_gib)  # type: ignore[operator]
CAPACITY = _shares[len(_shares) // 2]  # the usual part of a GPU's memory that CUDA reports: the driver keeps the rest
NAMES = _names(ACCELERATORS)
GPUS = dict(_for_plan(ACCELERATORS))
LINKS = {name: Link(row["value"], row["source"]) for name, row in table("links").items()}
