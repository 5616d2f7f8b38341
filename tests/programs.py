"""Runs the programs that the pages show, as a reader runs them.

Each run is a `python`, `torchrun` or `bash` on an unaltered copy of the file, in an empty folder, with a reader's environment; warm.py
spares most of them the seconds of importing. The tests of a session share the output of a run, across the workers of pytest-xdist too.
Programs that train or generate are watched meanwhile: watched.py lists them.
"""

import contextlib
import dataclasses
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
import warm
from filelock import FileLock
from watched import COMPILED, WATCHED

from evidence import runs
from evidence.launch import end_all, logs_of

ROOT = Path(__file__).resolve().parent.parent
SNIPPETS = ROOT / "snippets"
WATCHER = ROOT / "tests" / "watcher"
WARM = ROOT / "tests" / "warm.py"
LAST_LINES = 25
# What a login shell has. All else is of pytest, or of whoever started it: PYTHONPATH, OMP_NUM_THREADS and so on.
KEPT = {"HOME", "LANG", "LC_ALL", "LOGNAME", "SHELL", "TERM", "TMPDIR", "TZ", "USER"}
KEPT |= {"CC", "CXX", "CUDA_HOME", "CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH"}
USES_OUR_PACKAGES = re.compile(r"^\s*(from|import) (dryrun|evidence)\b", re.M)


@dataclasses.dataclass
class Output:
    stdout: str
    stderr: str


@dataclasses.dataclass
class Run(Output):
    """What a program left: its output (of all ranks, in their order), its exit status, its folder, and each rank's output."""

    returncode: int  # None: it was killed when its time was up
    folder: Path
    ranks: list  # of Output; a program of one process has one
    seen: list  # the events that tests/watcher/sitecustomize.py describes, of a program that watched.py lists


def run(name, *arguments, processes=1, torchrun=None, timeout=600, environment=None, beside=(), files=None, start=None,
        stand_ins=None, check=True):  # fmt: skip
    """Runs snippets/NAME as `python NAME ARGUMENTS`, by torchrun where `processes` is more than 1, or by bash; returns a `Run`.

    `torchrun`: True for a single process that needs its variables. `environment`: variables that the page tells its reader to
    set. `beside`: other snippets that the program expects in its folder. `files`: more files for it, {name: text}. `start`: a
    folder whose files are there already, such as that of an earlier run. `stand_ins`: scripts in place of commands that only a
    cluster has, {command: bash}. `timeout`: seconds, after which every process of the run is killed.
    The test fails where the program runs out of time and, with `check`, where it exits with an error.
    """
    __tracebackhide__ = True
    made = _shared_run(
        name, [*map(str, arguments)], processes, processes > 1 if torchrun is None else torchrun, timeout, environment or {},
        [*beside], files or {}, start, stand_ins or {},
    )  # fmt: skip
    if made.returncode is None or (check and made.returncode):
        pytest.fail(failure(name, made, timeout), pytrace=False)
    return made


def packages(name):
    """The folder of a private environment, requirements/<name>.txt: the first test that needs it installs it, and no run that does not."""
    stamp = f".venv/{name.replace('_', '-')}/stamp"
    clean = {key: value for key, value in os.environ.items() if key not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "PYTHON")}
    with FileLock(_test_folder() / "packages.lock"):
        made = subprocess.run(["make", stamp], cwd=ROOT, env=clean, capture_output=True, text=True, timeout=1200)
    if made.returncode:
        pytest.fail(f"make {stamp} failed:\n{made.stdout}{made.stderr}", pytrace=False)
    return str(ROOT / Path(stamp).parent)


def messages(guide):
    """{name: text} of the messages that a guide shows: the regions of snippets/<guide>/messages.txt."""
    return {name: text.strip() for name, _, text in regions(SNIPPETS / guide / "messages.txt")}


def regions(path):
    """(name, what is written behind the mark of its start, text) of each region of a file."""
    pattern = r"^--8<-- \[start:([\w-]+)\] *(.*)\n((?:.*\n)*?)--8<-- \[end:\1\]$"
    return re.findall(pattern, path.read_text(encoding="utf-8"), re.M)


def shown_message(guide, name):
    return messages(guide)[name]


def load(name):
    """A program as a module, to test what it defines: imported whole, in an empty folder, as its reader would import it."""
    spec = importlib.util.spec_from_file_location(Path(name).stem, SNIPPETS / name)
    module = importlib.util.module_from_spec(spec)
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        spec.loader.exec_module(module)
    return module


def failure(name, made, timeout=None):
    """File and line, what went wrong, and the last lines of every rank."""
    first = re.search(r"Root Cause .*?rank\s*: (\d+)", made.stderr, re.S)  # torchrun's: the others fail because of it
    ranks = [made.ranks[int(first[1])], *made.ranks] if first else made.ranks
    line, error = next(filter(None, (_where(name, rank.stderr) for rank in ranks)), (None, None))
    what = f"not finished after {timeout} s" if made.returncode is None else error or f"exit status {made.returncode}"
    parts = [f"snippets/{name}{f':{line}' if line else ''}: {what}"]
    for number, rank in enumerate(made.ranks):
        last = [*rank.stdout.splitlines(), *rank.stderr.splitlines()][-LAST_LINES:] or ["(nothing)"]
        parts += [f"--- last lines{f' of rank {number}' if len(made.ranks) > 1 else ''}", *last]
    if len(made.ranks) > 1:
        parts += ["--- last lines of torchrun", *made.stderr.splitlines()[-LAST_LINES:]]
    return "\n".join(parts)


def _where(name, stderr):
    """The line of the program in the last traceback, at its innermost, and the error; None where there is no such line."""
    file = re.escape(Path(name).name)
    lines = re.findall(rf'File "(?:[^"]*/)?{file}", line (\d+)|^{file}: line (\d+):', stderr, re.M)
    if not lines:
        return None
    python = re.findall(r"^(?:\[rank\d+\]: ?)?((?:\w+\.)*\w*(?:Error|Exception|Exit|Interrupt)\b.*)$", stderr, re.M)
    shell = re.findall(rf"^{file}: line \d+: (.*)$", stderr, re.M)
    return "".join(lines[-1]), next(reversed(python or shell), None)


def _shared_run(name, arguments, processes, torchrun, timeout, environment, beside, files, start, stand_ins):
    """The run of this session: the first test that asks makes it, all others read what it left."""
    asked = [name, arguments, processes, torchrun, environment, beside, files, _contents(start), stand_ins]
    asked.append((SNIPPETS / name).read_text())
    key = (
        f"{Path(name).stem}-{hashlib.sha256(json.dumps(asked, sort_keys=True, default=str).encode()).hexdigest()[:16]}"
    )
    place = _test_folder() / "programs" / key
    place.mkdir(parents=True, exist_ok=True)
    with FileLock(place / "lock"):
        if not (place / "run.json").exists():
            made = _run(
                place, name, arguments, processes, torchrun, timeout, environment, beside, files, start, stand_ins
            )
            (place / "run.json").write_text(json.dumps(dataclasses.asdict(made), default=str))
    kept = json.loads((place / "run.json").read_text())
    return Run(**kept | {"folder": Path(kept["folder"]), "ranks": [Output(**rank) for rank in kept["ranks"]]})


def _test_folder():
    """What the workers of a session share: conftest.py names it."""
    if "TEST_FOLDER" not in os.environ:
        os.environ["TEST_FOLDER"] = tempfile.mkdtemp(prefix="tests-")
    return Path(os.environ["TEST_FOLDER"])


def _contents(folder):
    """[(name, hash)] of the files in a folder."""
    files = sorted(path for path in Path(folder).rglob("*") if path.is_file()) if folder else []
    return [(path.relative_to(folder), hashlib.sha256(path.read_bytes()).hexdigest()) for path in files]


def _run(place, name, arguments, processes, torchrun, timeout, environment, beside, files, start, stand_ins):
    folder, logs, commands, seen = place / "folder", place / "logs", place / "commands", place / "seen"
    shutil.rmtree(folder, ignore_errors=True)
    if start:
        shutil.copytree(start, folder)
    folder.mkdir(exist_ok=True)
    commands.mkdir(exist_ok=True)
    seen.mkdir(exist_ok=True)
    for each, script in stand_ins.items():
        (commands / each).write_text(f"#!/usr/bin/env bash\n{script}\n")
        (commands / each).chmod(0o755)
    for each in (name, *beside):
        shutil.copy(SNIPPETS / each, folder)
    for each, text in files.items():
        (folder / each).write_text(text)
    program = Path(name).name
    command = ["bash" if program.endswith((".sh", ".sbatch")) else "python", program, *arguments]
    if torchrun:
        split = ["--log-dir", str(logs), "--redirects", "3"]  # each rank's output in a file
        command = ["torchrun", "--standalone", "--nproc-per-node", str(processes), *split, program, *arguments]
    around = _environment(name, environment, commands)
    around |= _warm(commands, around, [SNIPPETS / each for each in (name, *beside)], processes if torchrun else 0)
    if WATCHED & {name, *beside}:
        around |= {"WATCH_TO": str(seen), "WATCH_MODELS": str(int(not COMPILED & {name, *beside}))}
        around["PYTHONPATH"] = os.pathsep.join(filter(None, [str(WATCHER), around.get("PYTHONPATH")]))
    with open(place / "stdout", "w+") as stdout, open(place / "stderr", "w+") as stderr:
        job = subprocess.Popen(command, cwd=folder, env=around, stdin=subprocess.DEVNULL,
                               stdout=stdout, stderr=stderr, start_new_session=True)  # fmt: skip
        try:
            job.wait(timeout)
        except subprocess.TimeoutExpired:
            pass
        finally:
            returncode = job.poll()
            if returncode is None:  # too late, or interrupted
                end_all(job)
    out, err = ((place / stream).read_text(errors="replace") for stream in ("stdout", "stderr"))
    ranks = [Output(out, err)]
    if torchrun:
        ranks = [*map(Output, *(logs_of(logs, processes, stream) for stream in ("stdout", "stderr")))]
        out, err = "".join(rank.stdout for rank in ranks) + out, "".join(rank.stderr for rank in ranks) + err
    lines = [line for path in sorted(seen.glob("*.jsonl")) for line in path.read_text().splitlines()]
    return Run(out, err, returncode, folder, ranks, [json.loads(line) for line in lines])


def _environment(name, more, commands):
    """A shell with this Python's environment active, and nothing that pytest or its caller brought."""
    kept = {key: value for key, value in os.environ.items() if key in KEPT}
    kept["PATH"] = os.pathsep.join([*([str(commands)] if commands else []), str(Path(sys.executable).parent), os.environ["PATH"]])
    kept["HF_HUB_OFFLINE"] = "1"
    kept["OMP_WAIT_POLICY"] = "PASSIVE"  # changes no result: threads of programs side by side do not spin on each other's cores
    if not os.environ.get("FRESH"):  # nor does this: glibc would hand each large tensor back to the kernel, and clear the pages of the next
        kept |= {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**40)}
    # What DeepSpeed compiles. In the user's cache, the lock of a run that was killed would hold up every later run.
    kept["TORCH_EXTENSIONS_DIR"] = str(_test_folder() / "torch_extensions")
    if name and USES_OUR_PACKAGES.search((SNIPPETS / name).read_text()):  # the pages say: PYTHONPATH=. in a checkout, or pip install
        kept["PYTHONPATH"] = str(ROOT)
    return kept | {key: str(value) for key, value in more.items()}


def _warm(commands, environment, programs, ranks):
    """The variables with which `python`, `torchrun` and its ranks begin where warm.py has imported what the programs import."""
    if os.environ.get("FRESH") or sys.platform != "linux":
        return {}
    folder = _test_folder() / "warm"
    folder.mkdir(exist_ok=True)
    for command in ("python", "torchrun"):
        if (path := commands / command).exists():  # a stand-in
            continue
        path.write_text(f"#!{sys.executable} -IS\nimport sys\nsys.path.insert(0, {str(WARM.parent)!r})\nimport warm\nwarm.command()\n")
        path.chmod(0o755)
    texts = {path: path.read_text(encoding="utf-8") for path in programs}
    by_script = any("torchrun" in text for path, text in texts.items() if path.suffix == ".sh")
    one_thread = ranks > 1 or by_script or environment.get("OMP_NUM_THREADS") == "1"
    kinds = {warm.needs(text) for path, text in texts.items() if path.suffix == ".py"} - {""}
    names = [*(f"{kind}-one" if one_thread else kind for kind in kinds), *(["torchrun"] if ranks or by_script else [])]
    for name in names:
        with FileLock(folder / f"{name}.lock"):
            if not (folder / name).exists():
                _start_server(folder, name)
    return {"WARM_FOLDER": str(folder), "PYTHON_EXEC": str(commands / "python")}


KERNEL = """\
import os
import sys

del sys.path[0]  # this folder; the kernel puts its own in front
os.environ.pop("JPY_PARENT_PID", None)  # the process that it is to end with; warm.py ends it with that one

from ipykernel import kernelapp

kernelapp.launch_new_instance()
"""


def kernel(patch, source):
    """Lets the kernel of notebooks/NAME.py begin where warm.py has imported what the cells import, while `patch` lasts."""
    folder = _test_folder() / "kernels" / source.stem
    spec = folder / "kernels" / "python3"
    spec.mkdir(parents=True, exist_ok=True)
    environment = _environment(None, {}, folder)
    around = _warm(folder, environment, [source], 0)
    kind = warm.needs(source.read_text(encoding="utf-8"))
    if not around or not kind:
        return
    (folder / "kernel.py").write_text(KERNEL)
    argv = [str(folder / "python"), str(folder / "kernel.py"), "-f", "{connection_file}"]
    (spec / "kernel.json").write_text(json.dumps({"argv": argv, "display_name": "Python 3", "language": "python"}))
    patch.setenv("JUPYTER_PATH", str(folder))
    patch.setattr(runs, "kernel_environment", lambda *asked, made=runs.kernel_environment: {
        **environment, **around, "WARM_KIND": kind,
        **{name: value for name, value in made(*asked).items() if name == "PYTHONPATH" or name.startswith("EVIDENCE_")},
    })  # fmt: skip


def _start_server(folder, name, seconds=300):
    environment = _environment(None, {"OMP_NUM_THREADS": 1} if name.endswith("-one") else {}, None)
    log = folder / f"{name}.log"
    with open(log, "w") as file:
        subprocess.Popen([sys.executable, WARM, folder, name], cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=file,
                         stderr=file, start_new_session=True)  # fmt: skip
    until = time.monotonic() + seconds
    while not (folder / f"{name}.json").exists():
        assert time.monotonic() < until, f"{WARM.name} {name} does not start:\n{log.read_text()}"
        time.sleep(0.1)
