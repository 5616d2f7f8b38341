"""What `bench` measured beside the data sheet, in words: whether the machine reaches what others of its kind reach."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..cost import kernel_tables, roofline
from ..tables import hardware

DTYPES = ("bf16", "fp16")  # of which one is the 16-bit product of a machine
WARM = 0.95  # of the best rate: below, it slows down
LOW = 0.75  # of what GPUs of its kind reach: below, something holds this one back
USUAL = 0.8  # of a data sheet, where no published step says what a GPU reaches


def usual(gpu: str) -> tuple[float, float]:
    """(share of the data sheet's 16-bit products, share of its bandwidth) that published steps reach on GPUs of this kind.

    A GPU of few watts runs its products far under the boost clock of its data sheet, and is not faulty.
    """
    constants = hardware.table("constants")["constants"]
    try:
        kind = roofline.processor(gpu)
    except ValueError:
        return USUAL, USUAL
    product = constants["product"] * (constants["product_recent"] if kind.architecture in roofline.RECENT else 1)
    clock = {roofline.POWER_LIMITED: constants["power_limited"], roofline.HALF_RATE: constants["half_rate"]}
    product *= kernel_tables.level(kind, "bf16")
    return min(1.0, product * clock.get(kind.held_back, 1.0)), kernel_tables.stream(kind)


def lines(found: dict[str, Any]) -> Iterator[str]:
    """The report, line by line."""
    threads = f", {found['threads']} threads" if found["threads"] else ""
    yield f"{found['device']}{threads}, torch {found['torch']}, {found['date']}"
    yield ""
    yield f"{'':24}{'measured':>10}  {'':8}{'sustained':>10}{'data sheet':>12}{'you get':>9}"
    for rate in found["rates"]:
        peak = f"{rate.peak:12,.4g}{100 * rate.share:8.0f}%" if rate.peak else ""
        yield f"{rate.name:24}{rate.value:10,.4g}  {rate.unit:8}{rate.sustained:10,.4g}{peak}"
    yield ""
    yield from _verdict(found)


def _verdict(found: dict[str, Any]) -> Iterator[str]:
    rates = {rate.name: rate for rate in found["rates"]}
    half = next((rates[f"product {dtype}"] for dtype in DTYPES if f"product {dtype}" in rates), None)
    expected = usual(found["gpu"]) if found["gpu"] else (USUAL, USUAL)
    shares = [(what, rate.share, reached) for what, rate, reached in zip(("matrix products", "memory bandwidth"),
              (half, rates.get("memory copy")), expected, strict=True) if rate and rate.share]  # fmt: skip
    if shares:
        yield (
            "You get " + " and ".join(f"{100 * share:.0f} % of the data sheet's {what}" for what, share, _ in shares) + "."
        )
        yield "GPUs like it reach about " + " and ".join(f"{100 * reached:.0f} %" for _, _, reached in shares) + "."
    elif not found["gpu"]:
        yield "No data sheet to compare with: the table has GPUs, and this device is none of them."
    if half and half.sustained < WARM * half.value:
        yield "Products slow down as they go on: look at clocks and temperature, nvidia-smi -q -d PERFORMANCE,TEMPERATURE"
    if any(share < LOW * reached for _, share, reached in shares):
        yield "That is low: is another program on the GPU, is its power limit lowered, does it throttle? nvidia-smi -q -d PERFORMANCE,POWER"


# What is measured
