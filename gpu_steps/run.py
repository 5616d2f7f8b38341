"""Runs the steps, each in a process of its own with a time limit, and writes each result the moment it is there.

What is measured stays: a run that was cut goes on where it stopped. While one step runs, the next one imports.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from evidence import machine

from . import steps

LAST_LINES = 1500  # characters of what a failed step printed
TOO_LARGE = "out of memory"  # in the log of a step that does not fit: it will not fit the next time either
PR_SET_PDEATHSIG = 1  # of linux/prctl.h
WATCHED = "timestamp,clocks.sm,clocks.mem,power.draw,temperature.gpu,memory.used,clocks_event_reasons.active"
STATED = "name,driver_version,clocks.max.sm,clocks.max.mem,power.limit,vbios_version"
SAME = ("machine", "software", "small")  # of one file


def run(folder: Path, seconds: float, words: list[str], *, small: bool = False, jobs: int = 1, patience: float = 1) -> dict[str, Any]:
    """Measures the steps that are not in `folder` yet, until `seconds` have passed. Returns {key: result}.

    words: steps whose key has one of them; all without words. small: models of a few thousand weights, to try the run itself.
    jobs: steps at once; with more than one, their times are worth nothing. patience: times each step's limit.
    ValueError where the folder holds results of another machine, other software, or of a trial.
    """
    until = time.monotonic() + seconds
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "measured.jsonl"
    done = read(file)
    here = _machine(small)
    if "machine" not in done:
        append(file, {"key": "machine", **here})
    elif other := [name for name in SAME if done["machine"].get(name) != here[name]]:
        raise ValueError(f"{file}: its results are of another run ({', '.join(other)} differ): name another folder, --out")
    waiting = [step for step in steps.chosen(words) if not measured(done.get(step.key))]
    with _watching(folder / "clocks.csv"), tempfile.TemporaryDirectory() as scratch, _ended_as_by_control_c():
        ready: list[Child] = []
        running: list[Child] = []
        try:
            while (waiting or ready or running) and time.monotonic() < until:
                if waiting and len(ready) < jobs:
                    ready.append(Child(waiting.pop(0), Path(scratch), patience))
                while ready and len(running) < jobs:
                    running.append(ready.pop(0))
                    running[-1].go(small)
                time.sleep(0.02)
                for child in [one for one in running if one.has_ended(until)]:
                    running.remove(child)
                    append(file, child.result())
        finally:
            for child in [*ready, *running]:
                child.end()
    return read(file)


def measured(result: dict[str, Any] | None) -> bool:
    """Whether a step need not run again: it has a result, or it does not fit."""
    return result is not None and ("error" not in result or TOO_LARGE in result.get("log", ""))


class Child:
    """A process that imports, waits for its turn, and measures one step."""

    def __init__(self, step: steps.Step, scratch: Path, patience: float = 1) -> None:
        name = str(steps.STEPS.index(step))
        self.step, self.out, self.log = step, scratch / f"{name}.json", (scratch / f"{name}.log").open("w+")
        self.limit = step.limit * patience
        self.process = subprocess.Popen(
            [sys.executable, "-m", "gpu_steps.measure", step.key],
            stdin=subprocess.PIPE, stdout=self.log, stderr=self.log, text=True, preexec_fn=_die_with_parent,
        )  # fmt: skip
        self.started = 0.0
        self.cut = ""

    def go(self, small: bool) -> None:
        self.started = time.monotonic()
        stdin: IO[str] = self.process.stdin  # type: ignore[assignment]
        with contextlib.suppress(BrokenPipeError):  # it failed while it imported: its log says why
            stdin.write(json.dumps({"out": str(self.out), "small": small}) + "\n")
            stdin.flush()

    def has_ended(self, until: float) -> bool:
        """Whether it has ended by itself, or was ended here: past its limit, or past that of the run."""
        if self.process.poll() is not None:
            return True
        if time.monotonic() - self.started > self.limit:
            self.cut = f"longer than {self.limit:g} s"
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
    """Writes one result, and says it."""
    said = result.get("error", "done")
    if "seconds" in result:
        said = f"{result['seconds']:.4f} s"
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
    """Lines of nvidia-smi, of the first GPU first; none where there is no driver."""
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
        command = ["nvidia-smi", "--query-gpu=" + WATCHED, "--format=csv,noheader,nounits", "-lms", "500"]
        watcher = subprocess.Popen(command, stdout=opened, stderr=subprocess.DEVNULL, preexec_fn=_die_with_parent)
        try:
            yield
        finally:
            watcher.kill()
            watcher.wait()


@contextlib.contextmanager
def _ended_as_by_control_c() -> Iterator[None]:
    """A polite kill ends the children too."""

    def stop(*_: object) -> None:
        raise SystemExit(1)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _die_with_parent() -> None:
    """In the child: whoever kills the run at once leaves no process on the GPU. Linux alone has this."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
