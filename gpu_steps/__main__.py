"""`python -m gpu_steps predict`, before; `python -m gpu_steps run --out FOLDER`, on the machine with the GPU."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m gpu_steps", description="Steps predicted first, then measured on a GPU.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("predict", help="add the GPUs and steps of steps.py that predicted.json lacks")
    asked = commands.add_parser("run", help="measure what is not in the folder yet")
    asked.add_argument("words", nargs="*", help="steps whose name has one of these in it; all by default")
    asked.add_argument("--out", type=Path, default=Path("out/gpu_steps"), help="folder of the results (default: %(default)s)")
    asked.add_argument("--seconds", type=float, default=660, help="after which no step goes on (default: %(default)s)")
    asked.add_argument("--small", action="store_true", help="models of a few thousand weights: tries the run itself")
    asked.add_argument("--jobs", type=int, default=1, help="steps at once: their times are worth nothing then (default: 1)")
    asked.add_argument("--patience", type=float, default=1, help="times the limit of each step, for a slow GPU (default: 1)")
    given = parser.parse_args(arguments)
    if given.command == "predict":
        from . import predict

        predict.write()
        return 0
    from . import predict, report, run, steps

    given.out.mkdir(parents=True, exist_ok=True)
    expected = {} if given.small else predict.of_machine(this_gpu(), given.out)
    try:
        found = run.run(given.out, given.seconds, given.words, small=given.small, jobs=given.jobs, patience=given.patience)
    except ValueError as error:
        sys.exit(f"error: {error}")
    print("\n".join(report.lines(found, expected)))
    chosen = [step.key for step in steps.chosen(given.words)]
    left = [key for key in chosen if not run.measured(found.get(key))]
    ran = [key for key in chosen if "error" not in found.get(key, {"error": ""})]
    print(f"{len(ran)} of {len(chosen)} measured, in {given.out / 'measured.jsonl'}. {len(left)} left{': run it again' if left else ''}")
    return bool(left)


def this_gpu() -> str | None:
    """The name in `dryrun gpus` of this machine's first GPU, or None."""
    import torch

    from dryrun.answer.bench import key_of

    if not torch.cuda.is_available():
        return None
    return key_of(torch.cuda.get_device_name(), torch.cuda.get_device_properties(0).total_memory)


if __name__ == "__main__":
    sys.exit(main())
