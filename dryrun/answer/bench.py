"""What this machine reaches: matrix products, memory, the way to the GPU and between GPUs, and a disk.

dryrun bench                     # beside the data sheet, where the GPU is in the table
dryrun bench --json bench.json   # for the prediction: dryrun train llama3-8b --machine bench.json

A GPU is timed by CUDA events, a CPU by the wall clock. The best repeat counts. The rate of the last repeats stands beside it:
where that is lower, the machine slows down as it gets warm.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import re
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ..tables import hardware
from . import bench_report
from .arguments import Parser

if TYPE_CHECKING:
    import torch

SIDE = {"cuda": 8192, "cpu": 2048}  # of the square matrices
COPIED = {"cuda": 2**30, "cpu": 2**28}  # bytes, more than any cache holds
SENT = 2**28  # bytes from host to device, and from device to device
ON_DISK = 2**29  # bytes
FEWEST = 5  # repeats
LAST = 0.2  # of the repeats: what the machine sustains
LARGEST_FILE = 100_000  # bytes of a result that is read again


@dataclass(frozen=True)
class Rate:
    """One measured rate. `peak` is that of the data sheet, where the table has it."""

    name: str
    value: float
    unit: str
    sustained: float
    size: int  # side of the matrices, or bytes
    peak: float | None = None

    @property
    def share(self) -> float | None:
        return self.value / self.peak if self.peak else None


def main(arguments: list[str] | None = None) -> int:
    try:
        options = _parser().parse_args(arguments)
        found = measure(options.device, options.seconds, None if options.no_disk else options.disk)
    except ValueError as error:
        sys.exit(f"error: {error}")
    print("\n".join(bench_report.lines(found)))
    if options.json:
        Path(options.json).write_text(json.dumps(found, indent=1, default=asdict) + "\n", encoding="utf-8")
    return 0


def measure(device: str | torch.device | None = None, seconds: float = 1.0, disk: str | Path | None = ".") -> dict[str, Any]:
    """All rates of a device, as `--json` writes them. disk: a folder for a file that is removed again, or None."""
    import torch

    device = _device(torch, device)
    gpu, name = None, _cpu_name()
    if device.type == "cuda":  # type: ignore[union-attr]
        name = torch.cuda.get_device_name(device)
        gpu = key_of(name, torch.cuda.get_device_properties(device).total_memory)
    rates = [*_products(torch, device, seconds), _copy(torch, device, seconds)]
    if device.type == "cuda":  # type: ignore[union-attr]
        rates += [*_from_host(torch, device, seconds), *_between(torch, device, seconds)]
    if disk:
        rates += on_disk(disk)
    peaks = peaks_of(hardware.accelerator(gpu)) if gpu else {}
    return {
        "device": name,
        "gpu": gpu,
        "threads": torch.get_num_threads() if device.type == "cpu" else None,  # type: ignore[union-attr]
        "torch": torch.__version__,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "rates": [Rate(**asdict(rate) | {"peak": peaks.get(rate.name)}) for rate in rates],
    }


def peaks_of(row: hardware.Accelerator) -> dict[str, float]:
    """{name of a rate: the data sheet's} of an accelerator. Links count in one direction."""
    named = re.match(r"PCIe (\d)\.0 (x\d+)", str(row.get("host_link")))
    host = f"PCIe {named[1]} {named[2]}" if named else ""
    found = {
        "product fp32": row.get("fp32"),
        "product tf32": row.get("tf32"),
        "memory copy": row.get("bandwidth"),
        "host to device": hardware.LINKS[host].gb_per_s if host in hardware.LINKS else None,
        "device to device": hardware.LINKS[row.get("peer_link")].gb_per_s if row.get("peer_link") else None,
    } | {f"product {dtype}": row.get(dtype) for dtype in bench_report.DTYPES}
    return {name: peak for name, peak in found.items() if peak}


def rates_of(work: Callable[[], object], amount: float, timer: Callable[[Callable[[], object]], float], seconds: float) -> list[float]:
    """`amount` per second of each repeat, for at least `seconds` and `FEWEST` repeats."""
    for _ in range(2):  # the first calls load kernels, choose algorithms and touch the memory
        work()
    found: list[float]
    found, until = [], time.perf_counter() + seconds
    while len(found) < FEWEST or time.perf_counter() < until:
        found.append(amount / timer(work))
    return found


def rate(name: str, unit: str, size: int, found: list[float]) -> Rate:
    last = found[-max(1, round(LAST * len(found))) :]
    return Rate(name, max(found), unit, statistics.median(last), size)


def _timer(torch: ModuleType, device: torch.device) -> Callable[[Callable[[], object]], float]:
    def by_events(work: Callable[[], object]) -> float:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        work()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / 1000

    def by_clock(work: Callable[[], object]) -> float:
        started = time.perf_counter()
        work()
        return time.perf_counter() - started

    return by_events if device.type == "cuda" else by_clock


def _products(torch: ModuleType, device: torch.device, seconds: float) -> Iterator[Rate]:
    side, kinds = SIDE[device.type], [("bf16", torch.bfloat16), ("fp32", torch.float32)]
    if device.type == "cuda":
        recent = torch.cuda.get_device_capability(device) >= (8, 0)
        kinds[0] = kinds[0] if recent else ("fp16", torch.float16)
        kinds += [("tf32", torch.float32)] * recent
    before = torch.get_float32_matmul_precision()
    for name, dtype in kinds:
        torch.set_float32_matmul_precision("high" if name == "tf32" else "highest")
        left, right = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
        out = torch.empty(side, side, device=device, dtype=dtype)
        found = rates_of(lambda a=left, b=right, c=out: torch.mm(a, b, out=c), 2 * side**3 / 1e12, _timer(torch, device), seconds)  # type: ignore[misc]  # fmt: skip
        yield rate(f"product {name}", "TFLOP/s", side, found)
    torch.set_float32_matmul_precision(before)


def _copy(torch: ModuleType, device: torch.device, seconds: float) -> Rate:
    size = COPIED[device.type]
    source = torch.zeros(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    found = rates_of(lambda: target.copy_(source), 2 * size / 1e9, _timer(torch, device), seconds)  # read and written
    return rate("memory copy", "GB/s", size, found)


def _from_host(torch: ModuleType, device: torch.device, seconds: float) -> Iterator[Rate]:
    target = torch.empty(SENT, dtype=torch.uint8, device=device)
    for name, pinned in (("host to device", True), ("from pageable memory", False)):
        source = torch.zeros(SENT, dtype=torch.uint8, pin_memory=pinned)
        work = rates_of(lambda a=source: target.copy_(a, non_blocking=True), SENT / 1e9, _timer(torch, device), seconds)  # type: ignore[misc]
        yield rate(name, "GB/s", SENT, work)


def _between(torch: ModuleType, device: torch.device, seconds: float) -> Iterator[Rate]:
    """To each other GPU; the slowest counts, because a collective waits for it."""
    others = [other for other in range(torch.cuda.device_count()) if other != (device.index or 0)]
    source, found = torch.zeros(SENT, dtype=torch.uint8, device=device), []
    for other in others:
        target = torch.empty(SENT, dtype=torch.uint8, device=f"cuda:{other}")

        def timer(work: Callable[[], object], other: int = other) -> float:
            started = time.perf_counter()
            work()
            torch.cuda.synchronize(device)
            torch.cuda.synchronize(other)
            return time.perf_counter() - started

        found.append(rates_of(lambda b=target: b.copy_(source, non_blocking=True), SENT / 1e9, timer, seconds))  # type: ignore[misc]
    if found:
        yield rate("device to device", "GB/s", SENT, min(found, key=max))


def on_disk(folder: str | Path, size: int = ON_DISK) -> list[Rate]:
    """[Rate] of writing a file and of reading it again. The file is removed."""
    if not Path(folder).is_dir():
        raise ValueError(f"--disk {folder}: there is no such folder: name one on the disk that holds your data")
    if shutil.disk_usage(folder).free < 2 * size:
        raise ValueError(f"--disk {folder}: it needs {2 * size / 1e9:.1f} GB free: name another folder, or --no-disk")
    block = os.urandom(2**24)  # a disk that compresses must not look fast
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        started = time.perf_counter()
        for _ in range(size // len(block)):
            file.write(block)
        os.fsync(file.fileno())
        written = size / 1e9 / (time.perf_counter() - started)
        rates = [Rate("disk write", written, "GB/s", written, size)]
        if hasattr(os, "posix_fadvise"):  # elsewhere the file would be read from memory
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            file.seek(0)
            started, room = time.perf_counter(), bytearray(len(block))
            while file.readinto(room):
                pass
            read = size / 1e9 / (time.perf_counter() - started)
            rates.append(Rate("disk read", read, "GB/s", read, size))
    return rates


def _device(torch: ModuleType, wanted: str | torch.device | None) -> torch.device:
    try:
        device = torch.device(wanted or ("cuda" if torch.cuda.is_available() else "cpu"))
    except RuntimeError:
        device = None
    if device is None or device.type not in SIDE:
        raise ValueError(f"--device {wanted}: choose cpu, cuda, or one GPU, such as cuda:1")
    if device.type == "cuda":
        if not torch.cuda.is_available():
            raise ValueError(
                f"--device {wanted}: torch {torch.__version__} sees no GPU: leave --device out for the CPU"
            )
        if (device.index or 0) >= torch.cuda.device_count():
            raise ValueError(f"--device {wanted}: there are {torch.cuda.device_count()} GPUs, counted from cuda:0")
        torch.cuda.set_device(device.index or 0)  # events belong to the current device
    return device


def key_of(name: str, memory: int) -> str | None:
    """The accelerator that a driver calls `name`, or None. Of several sizes the one with that much memory."""
    for spelling in (f"{name} {round(memory / 1e9)}GB", f"{name} {round(memory / 2**30)}GB", name):
        try:
            return hardware.accelerator(spelling).key
        except ValueError:
            continue
    return None


def _cpu_name() -> str:
    try:
        return re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.M)[1]  # type: ignore[index]
    except (OSError, TypeError):
        return platform.processor() or platform.machine()


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 600:
        raise argparse.ArgumentTypeError(f"{text!r}: give seconds above 0, at most 600")
    return value


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="dryrun bench", description=__doc__.splitlines()[0])
    parser.add_argument("--device", help="cpu, cuda or cuda:1 (default: the first GPU, or the CPU)")
    parser.add_argument(
        "--seconds", type=_seconds, default=1.0, help="of each measurement (default: 1); 60 shows throttling"
    )
    parser.add_argument("--disk", default=".", metavar="FOLDER", help="whose disk is measured (default: this folder)")
    parser.add_argument("--no-disk", action="store_true", help="measure no disk")
    parser.add_argument("--json", metavar="FILE", help="write the result, for --machine of dryrun train")
    return parser


if __name__ == "__main__":
    sys.exit(main())
