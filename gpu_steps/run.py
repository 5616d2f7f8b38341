"""Runs the steps, each in a process of its own with a time limit, and writes each result the moment it is there.

What is measured stays: a run that was cut goes on where it stopped. While one step runs, the next ones import.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from evidence import machine

from . import steps

AHEAD = 3  # processes that import while another measures
LAST_LINES = 1500  # characters of what a failed step printed
WATCHED = "timestamp,clocks.sm,clocks.mem,power.draw,temperature.gpu,memory.used,clocks_event_reasons.active"
STATED = "name,driver_version,clocks.max.sm,clocks.max.mem,power.limit,vbios_version"


def run(folder: Path, seconds: float, words: list[str], *, small: bool = False, jobs: int = 1) -> dict[str, Any]:
    """Measures the steps that are not in `folder` yet, until `seconds` have passed. Returns {key: result}.

    words: steps whose key has one of them; all without words. small: models of a few thousand weights, to try the run itself.
    jobs: steps at once; with more than one, their times are worth nothing.
    """
    until = time.monotonic() + seconds
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "measured.jsonl"
    done = read(file)
    if "machine" not in done:
        append(file, {"key": "machine", **_machine(small)})
    left = [step for step in steps.chosen(words) if "error" in done.get(step.key, {"error": ""})]
    with _watching(folder / "clocks.csv"), tempfile.TemporaryDirectory() as scratch:
        ready: list[Child] = []
        running: list[Child] = []
        while (left or ready or running) and time.monotonic() < until:
            while left and len(ready) < AHEAD + jobs - 1:
                ready.append(Child(left.pop(0), Path(scratch)))
            while ready and len(running) < jobs:
                running.append(ready.pop(0))
                running[-1].go(small)
            time.sleep(0.02)
            for child in [one for one in running if one.over(until)]:
                running.remove(child)
                append(file, child.result())
        for child in [*ready, *running]:
            child.end()
    return read(file)


class Child:
    """A process that imports, waits for its turn, and measures one step."""

    def __init__(self, step: steps.Step, scratch: Path) -> None:
        name = str(abs(hash(step.key)))
        self.step, self.out, self.log = step, scratch / f"{name}.json", (scratch / f"{name}.log").open("w+")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "gpu_steps.measure", step.key], stdin=subprocess.PIPE, stdout=self.log, stderr=self.log, text=True
        )
        self.started = 0.0
        self.cut = ""

    def go(self, small: bool) -> None:
        self.started = time.monotonic()
        stdin: IO[str] = self.process.stdin  # type: ignore[assignment]
        with contextlib.suppress(BrokenPipeError):  # it failed while it imported: its log says why
            stdin.write(json.dumps({"out": str(self.out), "small": small}) + "\n")
            stdin.flush()

    def over(self, until: float) -> bool:
        """Whether it has ended; past its limit, or that of the run, it is ended."""
        if self.process.poll() is not None:
            return True
        if time.monotonic() - self.started > self.step.limit:
            self.cut = f"longer than {self.step.limit} s"
        elif time.monotonic() > until:
            self.cut = "the time of the run was over"
        if self.cut:
            self.end()
        return bool(self.cut)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()

    def result(self) -> dict[str, Any]:
        took = {"key": self.step.key, "took": round(time.monotonic() - self.started, 1)}
        if not self.cut and self.out.exists():
            return took | json.loads(self.out.read_text(encoding="utf-8"))
        self.log.seek(0)
        return took | {"error": self.cut or f"exit {self.process.returncode}", "log": self.log.read()[-LAST_LINES:]}


def read(file: Path) -> dict[str, Any]:
    """{key: the newest result}. A line that was cut off counts as not measured."""
    found = {}
    for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
        with contextlib.suppress(ValueError):
            one = json.loads(line)
            found[one["key"]] = one
    return found


def append(file: Path, result: dict[str, Any]) -> None:
    said = result.get("error") or f"{result['seconds']:.4f} s" if "seconds" in result or "error" in result else "done"
    print(f"{time.strftime('%H:%M:%S')} {result['key']}: {said} ({result.get('took', 0)} s)", flush=True)
    torn = file.exists() and not file.read_bytes().endswith(b"\n")  # an earlier run was cut while it wrote
    with file.open("a", encoding="utf-8") as opened:
        opened.write("\n" * torn + json.dumps(result) + "\n")
        opened.flush()
        os.fsync(opened.fileno())


def _machine(small: bool) -> dict[str, Any]:
    stated = _smi("--query-gpu=" + STATED)
    packages = ("peft", "bitsandbytes", "liger-kernel", "triton")
    return {"machine": machine.describe(), "software": machine.software(packages), "date": time.strftime("%Y-%m-%d"), "small": small,
            "driver": dict(zip(STATED.split(","), stated[0].split(", "), strict=False)) if stated else {}}  # fmt: skip


def _smi(query: str) -> list[str]:
    if not shutil.which("nvidia-smi"):
        return []
    done = subprocess.run(["nvidia-smi", query, "--format=csv,noheader"], capture_output=True, text=True, timeout=30)
    return done.stdout.splitlines() if done.returncode == 0 else []


@contextlib.contextmanager
def _watching(file: Path) -> Iterator[None]:
    """Clocks, power and temperature twice a second while the steps run, where there is a driver that tells them."""
    if not shutil.which("nvidia-smi"):
        yield
        return
    with file.open("a") as opened:
        watcher = subprocess.Popen(["nvidia-smi", "--query-gpu=" + WATCHED, "--format=csv,noheader,nounits", "-lms", "500"], stdout=opened, stderr=subprocess.DEVNULL)  # fmt: skip
        try:
            yield
        finally:
            watcher.kill()
            watcher.wait()
