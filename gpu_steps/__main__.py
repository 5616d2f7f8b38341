"""`python -m gpu_steps predict`, before; `python -m gpu_steps run --out FOLDER`, on the machine with the GPU."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m gpu_steps", description="Steps predicted first, then measured on a GPU.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("predict", help="write predicted.json")
    asked = commands.add_parser("run", help="measure what is not in the folder yet")
    asked.add_argument("words", nargs="*", help="steps whose name has one of these in it; all by default")
    asked.add_argument("--out", type=Path, default=Path("out/gpu_steps"), help="folder of the results (default: %(default)s)")
    asked.add_argument("--seconds", type=float, default=660, help="after which no step goes on (default: %(default)s)")
    asked.add_argument("--small", action="store_true", help="models of a few thousand weights: tries the run itself")
    asked.add_argument("--jobs", type=int, default=1, help="steps at once: their times are worth nothing then (default: 1)")
    given = parser.parse_args(arguments)
    if given.command == "predict":
        from . import predict

        predict.write()
        return 0
    from . import run

    found = run.run(given.out, given.seconds, given.words, small=given.small, jobs=given.jobs)
    failed = [key for key, one in found.items() if "error" in one]
    print(f"{len(found) - len(failed)} measured, {len(failed)} failed, in {given.out / 'measured.jsonl'}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
