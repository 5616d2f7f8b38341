"""A result of `bench` as constants of the prediction, so that a machine is predicted by what it reached and not by the data sheet.

    found = read("bench.json")
    prediction(traced(workload), workload, setting, own_constants(found, fitted()["constants"]))

Changed are the constants of 16-bit products and of memory. All others (attention, launches, the CPU) stay those of published steps.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ..cost import kernel_tables, roofline
from ..cost.roofline import processor
from ..step.kernels import Kernel
from ..tables import hardware
from .bench import LARGEST_FILE, Rate
from .bench_report import DTYPES

STEPS = 6  # launches and memory take a part of a product's time, so one step to its constant is not enough


def read(path: str | Path) -> dict[str, Any]:
    """What `--json` wrote, as `measure` returns it; ValueError in one line where it is something else."""
    try:
        if Path(path).stat().st_size > LARGEST_FILE:
            raise ValueError("too large")
        found = json.loads(Path(path).read_text(encoding="utf-8"))
        found["rates"] = [Rate(**rate) for rate in found["rates"]]
        if not all(0 < rate.value < 1e6 and rate.size > 0 for rate in found["rates"]):
            raise ValueError("a rate is not above 0")
        gpu, device = found["gpu"], found["device"]
    except OSError:
        raise ValueError(f"{path}: there is no such file: write one by dryrun bench --json {path}") from None
    except (ValueError, KeyError, TypeError) as error:
        what = " ".join(str(error).split())[:80]
        raise ValueError(f"{path}: no result of dryrun bench --json ({what}): write it again") from None
    if gpu not in hardware.ACCELERATORS:
        raise ValueError(f"{path}: it was measured on {str(device)[:60]!r}, and times are predicted for the GPUs of dryrun/data/accelerators")  # fmt: skip
    return found


def own_constants(found: dict[str, Any], constants: dict[str, float]) -> dict[str, float]:
    """The constants of the prediction, changed so that they give the measured rates of 16-bit products and of long copies."""
    gpu, rates, changed = processor(found["gpu"]), {rate.name: rate for rate in found["rates"]}, dict(constants)

    def seconds(kernel: Kernel) -> float:
        return sum(roofline.seconds(roofline.rows({kernel: 1}, gpu), changed))

    if copied := rates.get("memory copy"):
        reached = copied.value * 1e9 / (kernel_tables.stream(gpu) * gpu.bandwidth)  # of what such GPUs do
        changed["streaming"] = reached
        changed["bandwidth"] = constants["bandwidth"] * reached / constants["streaming"]
    product = next((rates[f"product {dtype}"] for dtype in DTYPES if f"product {dtype}" in rates), None)
    if product:
        side = product.size
        kernel = Kernel("forward", "product", "bfloat16", 2 * side**3, (side, side, side, 1), 3 * 2 * side**2, 1)
        for _ in range(STEPS):
            changed["product"] *= seconds(kernel) / (2 * side**3 / (product.value * 1e12))
    return changed


def link(found: dict[str, Any]) -> float:
    """Bytes per second to another GPU, or 0 where there is none."""
    return next((rate.value * 1e9 for rate in found["rates"] if rate.name == "device to device"), 0.0)
