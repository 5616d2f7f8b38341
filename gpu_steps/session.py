"""`python -m gpu_steps.session`: what a lent GPU is used for, in order of worth, until its time is over. It needs no network.

First the notebooks that use a GPU and have no record of one, then the recipes with what a T4 would force (fp16, its memory), then the
steps of `make gpu`. Each is a process of its own with a limit. What has ended is noted in the folder at once, so that a session that was
cut goes on where it stopped. One that failed is not tried again unless it is named.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

# What a run may take in seconds. A session passes over one that no longer fits into what is left.
PLAN = (
    ("record", "generate_speed", 420),
    ("record", "throughput", 150),
    ("record", "optimizers", 150),
    ("record", "adapters_and_offload", 240),
    ("record", "own_loop", 90),
    ("record", "debugging", 120),
    ("record", "hardware", 90),
    ("record", "hyperparameter_search", 150),
    ("record", "launching", 150),
    ("recipe", "write_fast", 240),
    ("recipe", "finetune_chat_model", 300),
    ("steps", "gpu_steps", 660),
)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m gpu_steps.session", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("names", nargs="*", help="of the plan; all by default, without those that failed before")
    parser.add_argument("--seconds", type=float, default=840, help="of the whole session (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path("out/session"), help="folder of what came out (default: %(default)s)")
    parser.add_argument("--dry", action="store_true", help="only say what would run, in which order")
    given = parser.parse_args(arguments)
    if unknown := set(given.names) - {name for _, name, _ in PLAN}:
        parser.error(f"no {', '.join(sorted(unknown))} in the plan: {', '.join(name for _, name, _ in PLAN)}")
    done = read(given.out)
    waiting = [step for step in PLAN if (step[1] in given.names if given.names else step[1] not in done)]
    until = time.monotonic() + given.seconds
    for kind, name, limit in waiting:
        left = until - time.monotonic()
        if given.dry or left < min(limit, 60):
            print(f"{kind} {name}: {'at most' if given.dry else 'not begun, it may take'} {limit} s")
            continue
        note(given.out, run(kind, name, min(limit, left), given.out))
    ended = [one for one in read(given.out).values() if not one["error"]]
    print(f"{len(ended)} of {len(PLAN)} held, in {given.out}")
    return len(ended) < len(PLAN)


def run(kind: str, name: str, limit: float, out: Path) -> dict[str, Any]:
    """Runs one, ends it at its limit, and keeps what it wrote and said."""
    started, log = time.monotonic(), out / f"{name}.log"
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch, log.open("w") as said:
        environment = os.environ | {"PYTHONPATH": str(Path.cwd()), "HF_HUB_OFFLINE": "1"}
        process = subprocess.Popen(command(kind, name, limit, out, Path(scratch)), stdout=said, stderr=said, env=environment, start_new_session=True)
        try:
            error = "" if process.wait(limit) == 0 else f"exit {process.returncode}"
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.wait()
            error = f"longer than {limit:.0f} s"
    for made in (Path("notebooks", f"{name}.ipynb"), *Path("results", name).glob("*.json")) if kind == "record" and not error else ():
        shutil.copy(made, out)
    return {"name": name, "error": error, "took": round(time.monotonic() - started, 1)}


def command(kind: str, name: str, limit: float, out: Path, scratch: Path) -> list[str]:
    if kind == "record":
        return [sys.executable, "-m", "evidence", "record", name]
    if kind == "steps":
        return [sys.executable, "-m", "gpu_steps", "run", "--seconds", str(int(limit) - 5), "--out", str(out / "gpu_steps")]
    return [sys.executable, "-m", "gpu_steps.session_recipe", name, str(scratch), str(out)]


def read(out: Path) -> dict[str, Any]:
    """{name: what is noted of it last}. A line that was cut off counts as not run."""
    found = {}
    for line in (out / "done.jsonl").read_text(encoding="utf-8").splitlines() if (out / "done.jsonl").exists() else ():
        try:
            one = json.loads(line)
        except ValueError:
            continue
        found[one["name"]] = one
    return found


def note(out: Path, result: dict[str, Any]) -> None:
    print(f"{time.strftime('%H:%M:%S')} {result['name']}: {result['error'] or 'held'} ({result['took']} s)", flush=True)
    file_path = out / "done.jsonl"
    torn = file_path.exists() and not file_path.read_bytes().endswith(b"\n")  # an earlier session was cut while it wrote
    with file_path.open("a", encoding="utf-8") as file:
        file.write("\n" * torn + json.dumps(result) + "\n")
        file.flush()
        os.fsync(file.fileno())


if __name__ == "__main__":
    sys.exit(main())
