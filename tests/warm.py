"""A `python` for the tests of programs that begins where importing torch or transformers ends.

Of the 14 seconds that a small program with Trainer takes on a slow CPU, 12 go into imports. So a server imports once what many programs
import in their first lines, and each program runs in a fork of it, with the environment, the arguments, the folder and the streams that it
was started with. Whatever a program does not import by itself is not there: `needs` reads its imports. What could tell a fork from a fresh
Python (other variables, CPUs that it is bound to, torch.compile, which keeps processes) gets a fresh one. FRESH=1 gives each program one,
as the run of each night does.

    python warm.py FOLDER NAME    the server of one kind; programs.py starts it, and it ends with the tests that it serves
"""

import atexit
import builtins
import contextlib
import gc
import importlib
import io
import json
import os
import re
import select
import signal
import socket
import struct
import sys
import threading
import types

IMPORTS = {  # the most first: a kind holds those after it
    "trainer": "from transformers import Trainer",
    "peft": "import peft",
    "model": "import transformers.modeling_utils",
    "torch": "import torch",
    "torchrun": "import torch.distributed.run",
}
NAMES = {  # of transformers, and the kind whose imports they bring
    "trainer": re.compile(r"Trainer|Seq2SeqTrainer"),
    "peft": re.compile(r"set_seed|TrainingArguments|Seq2SeqTrainingArguments"),
    "model": re.compile(r"(?!Auto\w*Config)\w*(For[A-Z]\w+|Model)|pipeline"),
}
THREADS = {"": {}, "-one": {"OMP_NUM_THREADS": "1"}}  # OpenMP reads it as it is loaded; torchrun sets it
# Variables that nothing reads while it is imported: those of a shell and of torchrun, and those that this module and the tests set.
FREE = re.compile(r"PATH|PWD|OLDPWD|SHLVL|_|WATCH_\w+|WARM_\w+|EVIDENCE_\w+|JPY_\w+|PYTHONPATH|PYTHON_EXEC|(LOCAL_|GROUP_|ROLE_)?(RANK|WORLD_SIZE)|ROLE_NAME|"
                  r"MASTER_\w+|TORCHELASTIC_\w+|TORCH_NCCL_ASYNC_ERROR_HANDLING")  # fmt: skip
COMPILES = re.compile(r"(?<!\bre)\.compile\(|compile=|flex_attention")
PASSED_ON = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGQUIT]
TESTS = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(TESTS)
STATUS, SIZE = struct.Struct("i"), struct.Struct("Q")


def needs(text: str) -> str:
    """The kind whose imports a program makes itself, at its top level; "" where there is none, or where a fork would not do."""
    found = re.findall(r"^(?:from ([\w.]+) import (\([^)]*\)|.*)|import (.*))", text, re.M)
    modules = {word.split(".")[0] for module, _, plain in found for word in [module or plain.split()[0].strip(",")]}
    names = {name for module, several, _ in found if module == "transformers" for name in re.findall(r"\w+", several)}
    if COMPILES.search(text):
        return ""
    for kind, pattern in NAMES.items():
        if kind in modules or any(pattern.fullmatch(name) for name in names):
            return kind
    return "torch" if "torch" in modules else ""


# The command `python`: runs where the test, torchrun or a script starts it


def command() -> None:
    """Asks the server to run a program, and lives as long as that; a fresh Python where there is none for it."""
    python, folder, arguments = sys.executable, os.environ.get("WARM_FOLDER", ""), sys.argv[1:]
    connection, name = None, os.path.basename(sys.argv[0])
    if name == "torchrun":
        arguments = [f"{os.path.dirname(python)}/{name}", *arguments]
        connection = _connection(folder, name)
    unbuffered = arguments[:1] == ["-u"]
    program = arguments[unbuffered:][:1]
    if program and program[0].endswith(".py") and os.path.isfile(program[0]):
        connection = _connection(folder, os.environ.get("WARM_KIND") or needs(_with_neighbors(program[0])))
    if connection is None:
        os.execv(python, [python, *arguments])
    asked = {"arguments": arguments[unbuffered:], "unbuffered": unbuffered, "folder": os.getcwd(), "environment": {**os.environ}}
    message = json.dumps(asked).encode()
    socket.send_fds(connection, [SIZE.pack(len(message))], [0, 1, 2])
    for number in PASSED_ON:
        signal.signal(number, lambda number, frame: connection.send(bytes([number])))
    connection.sendall(message)
    answer = connection.recv(STATUS.size, socket.MSG_WAITALL)
    status = STATUS.unpack(answer)[0] if len(answer) == STATUS.size else 1 << 8
    if os.WIFSIGNALED(status):
        signal.signal(os.WTERMSIG(status), signal.SIG_DFL) if os.WTERMSIG(status) != signal.SIGKILL else None
        os.kill(os.getpid(), os.WTERMSIG(status))
    os._exit(os.waitstatus_to_exitcode(status))


def _with_neighbors(path: str) -> str:
    """The text of a program, and of the modules beside it that it imports."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    for module in dict.fromkeys(re.findall(r"^(?:from|import) (\w+)", text, re.M)):
        if os.path.isfile(beside := os.path.join(os.path.dirname(path), f"{module}.py")):
            with open(beside, encoding="utf-8") as file:
                text += "\n" + file.read()
    return text


def _connection(folder: str, kind: str) -> socket.socket | None:
    packages = {*os.environ.get("PYTHONPATH", "").split(os.pathsep)} - {"", ROOT, f"{TESTS}/watcher"}  # other versions of what is imported
    if not kind or packages or len(os.sched_getaffinity(0)) < (os.cpu_count() or 1):
        return None
    for suffix in THREADS:
        try:
            with open(f"{folder}/{kind}{suffix}.json", encoding="utf-8") as file:
                before = json.load(file)
        except FileNotFoundError:
            continue
        other = {name for name in {*before, *os.environ} if before.get(name) != os.environ.get(name)}
        if all(FREE.fullmatch(name) for name in other):
            connection = socket.socket(socket.AF_UNIX)
            with contextlib.suppress(OSError), contextlib.chdir(folder):  # the path of a socket may be too long; the server may be gone
                connection.connect(f"{kind}{suffix}")
                return connection
    return None


# The server


def serve(folder: str, name: str) -> None:
    """Imports what the kind holds, and forks for each who asks; returns in the fork, to become the program."""
    before = {**os.environ}
    os.chdir(folder)
    exec(IMPORTS[name.partition("-")[0]], {})
    gc.collect()
    gc.freeze()  # a fork that collects garbage leaves these pages alone
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(name)
    listener.listen(64)
    woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    with open(f"{name}.new", "w", encoding="utf-8") as file:
        json.dump(before, file)
    os.rename(f"{name}.new", f"{name}.json")  # whoever sees it can ask
    running: dict[int, socket.socket] = {}
    tests = os.getppid()
    while running or os.path.exists(name) and os.getppid() == tests:
        ready = select.select([listener, woken, *running.values()], [], [], 1)[0]
        if woken in ready:
            os.read(woken, 4096)
        for process, connection in [*running.items()]:
            if connection in ready:
                sent = connection.recv(64)
                for number in sent:
                    os.kill(process, number)
                if not sent:  # who asked is gone, killed perhaps: so is what it started
                    with contextlib.suppress(ProcessLookupError):  # it has no group yet: the next round has
                        os.killpg(process, signal.SIGKILL)
        while running:
            process, status = os.waitpid(-1, os.WNOHANG)
            if not process:
                break
            with running.pop(process) as connection, contextlib.suppress(OSError):  # nobody may wait for it any more
                connection.send(STATUS.pack(status))
        if listener in ready:
            connection, _ = listener.accept()
            size, streams, _, _ = socket.recv_fds(connection, SIZE.size, 3)
            asked = json.loads(connection.recv(SIZE.unpack(size)[0], socket.MSG_WAITALL))
            process = os.fork()
            if not process:
                os.setsid()
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for mine in (listener, connection, *running.values()):
                    mine.close()
                os.close(woken), os.close(wake)
                _become(asked, streams)
                return
            for stream in streams:
                os.close(stream)
            running[process] = connection
    for left in (f"{name}.json", name):
        with contextlib.suppress(OSError):
            os.remove(left)


def _become(asked: dict, streams: list[int]) -> None:
    """Runs a program as `python PROGRAM ARGUMENTS` does; the interpreter ends after it, as always."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(asked["folder"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    if asked["unbuffered"]:  # reconfigure(write_through=True) would leave the buffer below: lost where a rank is killed
        for name, number in (("stdout", 1), ("stderr", 2)):
            stream = getattr(sys, name)
            raw = io.FileIO(number, "w", closefd=False)
            unbuffered = io.TextIOWrapper(raw, stream.encoding, stream.errors, "\n", write_through=True)
            setattr(sys, name, unbuffered)
            setattr(sys, f"__{name}__", unbuffered)
    sys.argv = asked["arguments"]
    path = os.path.abspath(sys.argv[0])
    more = [each for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each]
    sys.path[:1] = [os.path.dirname(path), *more]
    for module in ("numpy.random", "torch"):  # no two programs draw the same; `random` does this by itself
        if module in sys.modules:
            sys.modules[module].seed()
    if any(os.path.isfile(f"{each}/sitecustomize.py") for each in more):
        sys.modules.pop("sitecustomize", None)
        importlib.import_module("sitecustomize")
    main = types.ModuleType("__main__")
    main.__dict__.update(__file__=path, __builtins__=builtins, __annotations__={}, __cached__=None)
    sys.modules["__main__"] = main
    with open(path, "rb") as file:
        source = file.read()
    status: object = None
    try:
        exec(compile(source, path, "exec"), main.__dict__)
    except SystemExit as end:
        status = end.code
    except BaseException as error:
        status = 1 if not isinstance(error, KeyboardInterrupt) else -signal.SIGINT
        error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next  # without this file
        sys.excepthook(type(error), error, error.__traceback__)
    if not isinstance(status, int | None):
        print(status, file=sys.stderr)
        status = 1
    _end(main, status or 0)


def _end(main: types.ModuleType, status: int) -> None:
    """What an interpreter does at its end, except that it does not take apart what was there before the program: two seconds."""
    threading._shutdown()
    atexit._run_exitfuncs()
    main.__dict__.clear()
    sys.last_traceback = sys.last_value = None
    gc.collect()  # files that are open are written, processes that are waited for end
    sys.stdout.flush()
    sys.stderr.flush()
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status & 255)


if __name__ == "__main__":
    serve(*sys.argv[1:])
