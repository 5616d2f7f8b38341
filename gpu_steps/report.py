"""What was expected of this GPU beside what it reached, as `python -m gpu_steps run` prints it at the end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dryrun.tables.hardware import GiB

from .compared import Row, rows_of


def lines(found: dict[str, Any], predicted: dict[str, Any]) -> Iterator[str]:
    """found: results of `run`; predicted: of `predict.of_machine`."""
    rows = rows_of(found, predicted)
    if not rows:
        return
    yield f"{'':66}{'predicted':>11}{'measured':>11}{'':4}{'expected':>10}{'on the GPU':>12}"
    for row in rows:
        yield f"{row.words[:65]:66}{_seconds(row.predicted):>11}{_seconds(row.measured):>11}{_inside(row):4}{_memory(row)}"
    ran = [row for row in rows if row.ran and "seconds" in row.predicted]
    if ran:
        yield f"{sum(row.inside for row in ran)} of {len(ran)} lie between low and high."


def _seconds(found: dict[str, Any]) -> str:
    return "failed" if "error" in found else f"{found['seconds']:.4f} s" if "seconds" in found else ""


def _inside(row: Row) -> str:
    judged = row.ran and "low" in row.predicted
    return " in" if judged and row.inside else " out" if judged else ""


def _memory(row: Row) -> str:
    if not row.ran or "device" not in row.predicted or "device" not in row.measured:
        return ""
    return f"{row.predicted['device'] / GiB:7.1f}{row.measured['device'] / GiB:9.1f} GiB"
