"""A Python for the tests that has its imports behind it: a program is forked from a process that has done them.

torch, transformers and what Trainer brings take 2 to 6 s of CPU time to import, and the tests start some hundred
processes. conftest.py names this file's command in PYTHON_EXEC, which torchrun starts its ranks with. Only what the
import statements at the head of a program bring anyway is there before it starts, and what PyTorch imports by itself
when it trains, so that a program that forgets an import fails as it would for a reader. Whatever is not understood here
is started as always: another option of Python, another system than Linux, a machine with a GPU, a program that begins
with something else than imports.

One process waits for each set of imports and each environment (variables, cores, namespaces: what is read at import),
and ends when nobody has asked for a while or when the tests end. It is forked from one that has imported a part of the
set: what most programs import waits step by step, torch before transformers, so that no environment imports it twice.
"""

import array
import ast
import atexit
import contextlib
import fcntl
import gc
import hashlib
import importlib
import io
import json
import os
import re
import runpy
import selectors
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import types
from pathlib import Path

CAN_FORK = sys.platform == "linux" and not Path("/dev/nvidiactl").exists()  # a GPU's driver does not survive a fork
FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
# Variables that differ from run to run, and that nobody reads at import: of torchrun and its ranks, of pytest and Jupyter, of
# the shell, of the programs of our pages, and those that libraries set in a process of pytest, from where its programs have
# them. Which GPU to use is asked where there is one, and there nothing is warm. Two more are read again in each fork.
OF_ONE_RUN = re.compile(
    r"(GROUP_|LOCAL_|ROLE_)?(RANK|WORLD_SIZE)|ROLE_NAME|MASTER_(ADDR|PORT)|TORCHELASTIC_\w+|TORCH_NCCL_\w+|GLOO_\w+"
    r"|TORCH_DISABLE_SHARE_RDZV_TCP_STORE|_TORCHINDUCTOR_\w+|TOKENIZERS_PARALLELISM"
    r"|FSDP_\w+|ACCELERATE_USE_FSDP|SLURM_\w+|PYTEST_\w+|JPY_\w+|KERNEL_HEAD|EVIDENCE_LAYERS|PATH|_|SHLVL|(OLD)?PWD"
    r"|PORT|ADDRESS|STEPS|CHECKPOINT|LAST_CALL|TORCHINDUCTOR_CACHE_DIR|PYTORCH_NVML_BASED_CUDA_CHECK"
    r"|CUDA_VISIBLE_DEVICES|BNB_CUDA_VERSION|DS_ACCELERATOR|PYTHONUNBUFFERED|TORCH_DISTRIBUTED_DEBUG"
    r"|CLICOLOR(_FORCE)?|FORCE_COLOR|TERM|(GIT_)?PAGER|MPLBACKEND|PYDEVD_USE_FRAME_EVAL|NCCL_SOCKET_IFNAME"
)
TORCHRUN = "torch.distributed.run"
DYNAMO = "torch._dynamo"  # PyTorch imports it by itself in each process that takes a step of an optimizer
MODELS = "transformers.modeling_utils"
TRAINER = "transformers.trainer"  # with accelerate and peft, which set_seed brings too
CHAIN = ("torch", DYNAMO, MODELS, TRAINER)  # each brings those before it
IDLE = 300  # seconds after which a process that nobody asks ends
HEADER = struct.Struct("!I")


def commands(folder):
    """Makes `python` and `torchrun` in `folder`, to be found before others on PATH, and a kernel for notebooks, to be found
    by JUPYTER_PATH. What waits ends when the folder is gone."""
    python = f'exec "{sys.executable}" -I -S "{__file__}" "{folder}" "{sys.executable}"'
    for name, first in (("python", ""), ("torchrun", f"-m {TORCHRUN}")):
        Path(folder, name).write_text(f'#!/bin/sh\n{python} {first} "$@"\n')
        Path(folder, name).chmod(0o755)
    kernel = Path(folder, "kernels", "python3", "kernel.json")
    kernel.parent.mkdir(parents=True)
    start = [str(Path(folder, "python")), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    kernel.write_text(json.dumps({"argv": start, "display_name": "Python 3", "language": "python"}))


def head(source):
    """What the head of a program brings: the slow modules that it imports, and {variable: value} that it sets before."""
    modules, variables = set(), {}
    try:
        statements = ast.parse(source).body
    except SyntaxError:  # Python says it better, with the program's name
        return [], {}
    for node in statements:
        text = ast.unparse(node)
        if match := re.fullmatch(r"os\.environ\['(\w+)'\] = ('(.*)'|.*)", text):
            if match[3] is not None:
                variables[match[1]] = match[3]
            elif not OF_ONE_RUN.fullmatch(match[1]):
                break
        elif isinstance(node, ast.Import):
            for alias in node.names:
                modules |= slow(alias.name, [])
        elif isinstance(node, ast.ImportFrom) and not node.level:
            modules |= slow(node.module, [alias.name for alias in node.names])
        elif not reads_clocks(node) and not re.match(
            r"""['"]|logging\.disable|warnings\.simplefilter|tempfile\.tempdir""", text
        ):
            break  # neither the docstring nor what no import asks for
    return sorted(modules), variables


def reads_clocks(node):
    """Whether a statement names what clocks say, and does nothing else."""
    if not isinstance(node, ast.Assign) or not re.fullmatch(r"\(?\w+(, \w+)*\)?", ast.unparse(node.targets[0])):
        return False
    calls = [part for part in ast.walk(node.value) if isinstance(part, ast.Call)]
    return bool(calls) and all(re.fullmatch(r"time\.\w+\(\)", ast.unparse(call)) for call in calls)


def slow(module, names):
    """The slow modules that importing these names from a module brings."""
    root = module.split(".")[0]
    if root == "transformers":
        if any(name.startswith("Train") or name == "set_seed" for name in names):
            return up_to(TRAINER)
        return up_to(MODELS) if any(re.search(r"Model|For[A-Z]", name) for name in names) else set()
    if root == "torch":
        return up_to(DYNAMO)
    if root in ("accelerate", "peft", "deepspeed"):
        return up_to(DYNAMO) | {root}
    return {module} if module.startswith("evidence.") else set()


def up_to(module):
    return set(CHAIN[: CHAIN.index(module) + 1])


def client(folder, python, arguments):
    """Runs `python arguments`, by a process that has imported, or as always."""
    job = understood(arguments) if CAN_FORK else None
    connection = job and connect(Path(folder), python, job["modules"], job["variables"])
    if not connection:
        os.execv(python, [python, *arguments])
    job |= {"cwd": os.getcwd(), "environment": dict(os.environ)}
    try:
        ask(connection, job, [0, 1, 2])
        (pid,) = HEADER.unpack(received(connection, HEADER.size))
    except OSError:  # it was about to end
        os.execv(python, [python, *arguments])
    for number in FORWARDED:
        signal.signal(number, lambda number, _: send(pid, number))
    (status,) = HEADER.unpack(received(connection, HEADER.size))
    if os.WIFSIGNALED(status):
        signal.signal(os.WTERMSIG(status), signal.SIG_DFL) if os.WTERMSIG(status) != signal.SIGKILL else None
        os.kill(os.getpid(), os.WTERMSIG(status))
    sys.exit(os.waitstatus_to_exitcode(status))


def send(pid, number):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def understood(arguments):
    """What to run, and the modules that it will import; None for what is to be started as always."""
    rest = arguments[1:] if arguments[:1] == ["-u"] else arguments
    job = {"unbuffered": rest != arguments}
    if rest[:2] == ["-m", "ipykernel_launcher"]:
        modules, variables = json.loads(os.environ.get("KERNEL_HEAD", "[[], {}]"))
        job |= {"module": rest[1], "arguments": rest[2:], "modules": modules, "variables": variables}
        return job if modules else None
    if rest[:2] == ["-m", TORCHRUN]:
        return job | {"module": TORCHRUN, "arguments": rest[2:], "modules": ["torch", TORCHRUN], "variables": {}}
    if rest[:1] == ["-c"]:
        job |= {"module": None, "path": "-c", "source": rest[1], "arguments": rest[2:]}
    elif rest and rest[0].endswith(".py") and Path(rest[0]).is_file():
        source = Path(rest[0]).read_text(encoding="utf-8")
        job |= {"module": None, "path": rest[0], "source": source, "arguments": rest[1:]}
    else:
        return None
    job["modules"], job["variables"] = head(job["source"])
    return job if job["modules"] else None


def connect(folder, python, modules, variables):
    """A connection to the process that has imported `modules` in an environment like ours with these variables more, which
    is started if need be."""
    like = {name: value for name, value in (os.environ | variables).items() if not OF_ONE_RUN.fullmatch(name)}
    spaces = [os.stat(f"/proc/self/ns/{space}").st_ino for space in ("mnt", "net", "pid", "user")]
    place = json.dumps([sorted(like.items()), sorted(os.sched_getaffinity(0)), spaces])
    common, own = [module for module in CHAIN if module in modules], sorted(set(modules) - set(CHAIN))
    modules = common + own
    address = folder / f"{short(place)}-{short(json.dumps(modules))}"
    with open(f"{address}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # ranks ask together
        if connection := connected(address):
            return connection
        fewer = common if own else common[:-1]
        if fewer and (connection := connect(folder, python, fewer, variables)):
            connection.close()  # it waits now, to be forked from
        Path(f"{address}.modules").write_text(json.dumps(modules), encoding="utf-8")
        read, write = os.pipe()
        if not fork_of_another(address, modules, write):
            command = [python, __file__, "--serve", str(address), str(write), *modules]
            with open(f"{address}.log", "w") as log:
                subprocess.run(command, env=like, pass_fds=[write], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        os.close(write)
        os.read(read, 1)  # until it waits for us, or is gone
        os.close(read)
        return connected(address)


def short(text):
    return hashlib.sha256(text.encode()).hexdigest()[:8]  # a socket's whole path has 107 bytes at most


def fork_of_another(address, modules, pipe):
    """Whether a process of the same place that has imported the most of `modules`, and nothing else, could be asked to fork."""
    place, others = address.name.split("-")[0], []
    for path in address.parent.glob(f"{place}-*.modules"):
        imported = json.loads(path.read_text(encoding="utf-8") or "[]")
        if path.stem != address.name and set(imported) <= set(modules):
            others.append((len(imported), path.stem))
    for _, name in sorted(others, reverse=True):
        if connection := connected(address.with_name(name)):
            with contextlib.suppress(OSError), connection:
                ask(connection, {"serve": str(address), "modules": modules}, [pipe])
                return bool(received(connection, 2 * HEADER.size))  # that it has started, and has let go of it
    return False


def ask(connection, job, fds):
    text = json.dumps(job).encode()
    connection.sendmsg([HEADER.pack(len(text))], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))])
    connection.sendall(text)


def connected(address):
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(str(address))
    except OSError:
        connection.close()
        return None
    return connection


def received(connection, size):
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise ConnectionError("warm.py: the other end is gone")
        data += more
    return data


def serve(address, pipe, modules):
    """Imports, waits, and forks; returns in the child, with its job. Closes `pipe` when it waits."""
    if os.fork():  # it is nobody's child: whoever asks first may be killed with all its children
        os._exit(0)
    os.setsid()
    os.chdir(Path(address).parent)  # the folder of who asked may go, and transformers asks at import where it is
    os.close(os.pidfd_open(os.getpid()))  # where this fails, programs are started as always
    gc.disable()
    for module in modules:
        importlib.import_module(module)
    gc.freeze()  # nobody looks for garbage among the modules, which would copy them into every fork
    gc.enable()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"{address}.new")
    listener.listen(64)
    os.rename(f"{address}.new", address)
    os.close(pipe)
    select, running, last = selectors.DefaultSelector(), {}, time.monotonic()
    select.register(listener, selectors.EVENT_READ)
    while running or time.monotonic() - last < IDLE:
        if not Path(address).exists():
            break
        for ready, _ in select.select(timeout=2):
            last = time.monotonic()
            if ready.fileobj is listener:
                connection, _ = listener.accept()
                try:
                    job, fds = request(connection)
                except OSError:  # whoever asked is gone before it has asked
                    connection.close()
                    continue
                pid = os.fork()
                if pid == 0:
                    select.close()
                    listener.close()
                    for other in [connection, *(each for each, _ in running.values())]:
                        other.close()
                    for fd in running:
                        os.close(fd)
                    if "serve" in job:
                        return job | {"pipe": fds[0]}
                    become(job, fds)
                    return job
                for fd in fds:
                    os.close(fd)
                with contextlib.suppress(OSError):
                    connection.sendall(HEADER.pack(pid))
                watch = os.pidfd_open(pid)
                running[watch] = connection, pid
                select.register(watch, selectors.EVENT_READ)
                select.register(connection, selectors.EVENT_READ, watch)
            elif ready.data in running:  # whoever asked is gone, and the job goes with it
                select.unregister(ready.fileobj)
                end(running[ready.data][1])
            elif ready.data is None:
                connection, pid = running.pop(ready.fd)
                select.unregister(ready.fd)
                os.close(ready.fd)
                if connection in [key.fileobj for key in select.get_map().values()]:
                    select.unregister(connection)
                _, status = os.waitpid(pid, 0)
                with contextlib.suppress(OSError):
                    connection.sendall(HEADER.pack(status))
                connection.close()
    Path(address).unlink(missing_ok=True)
    os._exit(0)


def end(pid):
    """Kills a job and what it has started: a torchrun's ranks are jobs of their own, which end with who asked for them."""
    import psutil

    with contextlib.suppress(psutil.NoSuchProcess):
        for process in [*psutil.Process(pid).children(recursive=True), psutil.Process(pid)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()


def request(connection):
    header, ancillary, *_ = connection.recvmsg(HEADER.size, socket.CMSG_SPACE(3 * array.array("i").itemsize))
    if not ancillary:
        raise ConnectionError("nothing was asked")
    fds = array.array("i")
    fds.frombytes(ancillary[0][2])
    return json.loads(received(connection, HEADER.unpack(header)[0])), list(fds)


def become(job, fds):
    """Makes the fork what a new Python would be."""
    os.setsid()
    for number, fd in enumerate(fds):
        os.dup2(fd, number)
        os.close(fd)
    os.environ.clear()
    os.environ.update(job["environment"] | job["variables"])  # which the program sets before it imports
    if job["unbuffered"] or os.environ.get("PYTHONUNBUFFERED"):
        sys.stdout, sys.stderr = (unbuffered(stream) for stream in (sys.stdout, sys.stderr))
    os.chdir(job["cwd"])
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed()  # each rank draws its own numbers, as after an import of its own
    if torch := sys.modules.get("torch"):
        torch.default_generator.seed()
        torch.distributed.set_debug_level_from_env()
    sys.argv = [job.get("path") or job["module"], *job["arguments"]]
    path = job.get("path", "-c")
    sys.path.insert(0, "" if path == "-c" else str(Path(path).resolve().parent))


def unbuffered(stream):
    raw = io.FileIO(stream.fileno(), "wb", closefd=False)
    return io.TextIOWrapper(raw, stream.encoding, stream.errors, newline="\n", write_through=True)


def run(job):
    """Runs the program; returns the exit status that Python would give."""
    try:
        if job["module"] == TORCHRUN:
            # As its command does. It looks at its stack in every step, and a frame of runpy, which has no file, is searched
            # for in all modules: 0.3 s of CPU time a run.
            importlib.import_module(TORCHRUN).main()
        elif job["module"]:
            runpy.run_module(job["module"], run_name="__main__", alter_sys=True)
        else:
            sys.modules["__main__"] = program = types.ModuleType("__main__")
            if job["path"] != "-c":
                program.__file__ = job["path"]
            exec(compile(job["source"], "<string>" if job["path"] == "-c" else job["path"], "exec"), program.__dict__)
    except SystemExit as end:
        if not isinstance(end.code, int | None):
            print(end.code, file=sys.stderr)
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException as error:
        sys.excepthook(type(error), error.with_traceback(error.__traceback__.tb_next), error.__traceback__)
        return 1
    return 0


def leave(status):
    """Ends the process, without taking apart what all forks share: that takes longer than many a program."""
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status & 0xFF)


if __name__ == "__main__":
    if sys.argv[1] != "--serve":
        client(sys.argv[1], sys.argv[2], sys.argv[3:])
    del sys.path[0]  # the folder of this file
    job = serve(sys.argv[2], int(sys.argv[3]), sys.argv[4:])
    while "serve" in job:  # to import more, for programs that import more
        job = serve(job["serve"], job["pipe"], job["modules"])
    leave(run(job))
