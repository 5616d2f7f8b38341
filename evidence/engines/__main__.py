"""python -m evidence.engines: checks what pages say of vLLM, SGLang, llama.cpp and others against their newest wheels.

Ends with 0 if all holds, 1 if something changed, 2 if it could not look. It needs a network and about 600 MB of disk, and no GPU.
"""

import argparse
import sys
from pathlib import Path

from . import CACHE, CHANGED, ELSEWHERE, HOLDS, Failed, download, judge, line_of, load

ROOT = Path(__file__).parents[2]


def main(arguments=None):
    parser = argparse.ArgumentParser(
        prog="python -m evidence.engines", description=__doc__.partition("\n")[0].partition(": ")[2]
    )
    parser.add_argument("packages", nargs="*", help="such as vllm; all by default")
    parser.add_argument(
        "--version",
        action="append",
        default=[],
        metavar="vllm==0.30.0",
        help="read this version instead of the newest; several times",
    )
    parser.add_argument("--cache", type=Path, default=CACHE, help=f"where wheels are kept ({CACHE})")
    asked = parser.parse_args(arguments)
    try:
        engines = load()
        versions = dict(each.split("==", 1) if "==" in each else (each, "") for each in asked.version)
        if unknown := (versions.keys() | set(asked.packages)) - engines.keys():
            raise Failed(f"no rows for {', '.join(sorted(unknown))}: there are some for {', '.join(engines)}")
        if without := [package for package, version in versions.items() if not version]:
            raise Failed(f"--version {without[0]}: write {without[0]}==1.2.3")
        wanted = [engine for package, engine in engines.items() if not asked.packages or package in asked.packages]
        counts = [check(engine, versions.get(engine.package), asked.cache) for engine in wanted]
    except Failed as failed:
        print(failed, file=sys.stderr)
        return 2
    rows, changed, moved = map(sum, zip(*counts))
    print(
        f"{rows} statements: {rows - changed} hold, {changed} changed, {moved} stand in another file than their row says"
    )
    return 1 if changed else 0


def check(engine, version, cache, root=ROOT, tell=print):
    """(rows, changed, in another file) of one engine; says each that does not simply hold."""
    tell(f"{engine.package}: {len(engine.rows)} statements, read in {engine.read}")
    archive = download(engine, version, cache, tell)
    tell(f"  against {archive.version}")
    counts = {HOLDS: 0, ELSEWHERE: 0, CHANGED: 0}
    for row in engine.rows:
        verdict, now = judge(row, archive)
        lines = {page: line_of(row.says, root / page) for page in row.pages}
        if gone := [page for page, line in lines.items() if line is None]:
            verdict, now = CHANGED, f"{gone[0]} does not say this any more: change the row, or delete it"
        counts[verdict] += 1
        if verdict == HOLDS:
            continue
        places = ", ".join(f"{page}:{line or '?'}" for page, line in lines.items())
        tell(f"  {verdict}: {places}: {row.says}")
        tell(f"    {now}" if verdict == CHANGED else f"    now in {now}")
    return sum(counts.values()), counts[CHANGED], counts[ELSEWHERE]


if __name__ == "__main__":
    sys.exit(main())
