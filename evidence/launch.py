"""Run a program on several processes of this machine, by torchrun, so that nothing can hang.

A hanging run would block a whole test suite, and its reason lies in the output of a rank that nobody sees. So each run
has a time-out that ends all its processes, and an error that shows the last lines of every rank.
"""

import contextlib
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import psutil  # comes with accelerate

LAST_LINES = 15


class LaunchError(RuntimeError):
    """A rank failed, or the time ran out. The message holds the last lines of every rank."""


@dataclass
class Run:
    """What a run left: the exit status of torchrun, and what each rank wrote (stdout, then stderr)."""

    returncode: int
    stdout: list  # by rank
    stderr: list  # by rank

    def last_lines(self):
        parts = []
        for rank, (out, err) in enumerate(zip(self.stdout, self.stderr)):
            lines = [*out.splitlines(), *err.splitlines()][-LAST_LINES:] or ["(nothing)"]
            parts.append("\n".join([f"--- rank {rank}, last lines", *lines]))
        return "\n".join(parts)


def run_ranks(program, *arguments, processes=2, timeout=120, folder=None, environment=None, check=True):
    """Runs `torchrun --standalone --nproc-per-node PROCESSES PROGRAM ARGUMENTS`; returns a `Run`.

    `timeout`: seconds, after which every process of the run is killed. `folder`: where it runs (default: an empty one).
    `environment`: variables to add. Raises `LaunchError` when the time runs out and, with `check`, when a rank fails.
    Source of the log layout: torch/distributed/elastic/multiprocessing/api.py, `LogsDest`.
    """
    with tempfile.TemporaryDirectory() as logs, tempfile.TemporaryDirectory() as empty:
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", processes]
        command += ["--log-dir", logs, "--redirects", "3", Path(program).resolve(), *arguments]
        quiet = {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", "TOKENIZERS_PARALLELISM": "false"}
        if sys.platform == "linux":
            quiet["GLOO_SOCKET_IFNAME"] = "lo"  # one machine: its name need not resolve
        torchrun = subprocess.Popen(
            list(map(str, command)),
            cwd=folder or empty,
            env=os.environ | quiet | (environment or {}),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        late = False
        try:
            _, said = torchrun.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            late = True
        finally:
            if torchrun.poll() is None:  # too late, or interrupted
                end_all(torchrun)
        run = Run(torchrun.returncode, *(logs_of(logs, processes, stream) for stream in ("stdout", "stderr")))
    what = f"{Path(program).name} on {processes} processes"
    if late:
        raise LaunchError(f"{what}: not finished after {timeout} s, so all of it was ended.\n{run.last_lines()}")
    if check and run.returncode:
        if not any(run.stdout + run.stderr):  # torchrun itself failed, before any rank wrote
            run.stderr[0] = said
        raise LaunchError(f"{what}: exit status {run.returncode}.\n{run.last_lines()}")
    return run


def end_all(process):
    """Kills a program and all that it started. torchrun gives each rank its own session, so killing a group is not enough."""
    parent = psutil.Process(process.pid)
    everything = [*parent.children(recursive=True), parent]
    for one in everything:
        with contextlib.suppress(psutil.NoSuchProcess):
            one.kill()
    process.communicate()
    psutil.wait_procs(everything, timeout=10)


def logs_of(folder, processes, stream):
    """The text of one stream by rank, of the last attempt (an elastic run has several)."""
    texts = []
    for rank in range(processes):
        found = sorted(Path(folder).glob(f"*/attempt_*/{rank}/{stream}.log"))
        texts.append(found[-1].read_text(errors="replace") if found else "")
    return texts
