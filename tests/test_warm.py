"""A program that is forked from a process with its imports done behaves as one that a reader starts."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import jupyter_client
import psutil
import pytest
import warm

WARM = os.environ["PYTHON_EXEC"]
QUICK = "import evidence.notes\n"  # forked as a program with torch is, where no test asks for torch
forked = pytest.mark.skipif(not warm.CAN_FORK, reason="programs are started as always where there is a GPU or no Linux")


def result(python, program, *arguments, **options):
    done = subprocess.run([python, program, *arguments], capture_output=True, text=True, timeout=120, **options)
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def program(tmp_path):
    def write(text):
        path = tmp_path / "program.py"
        path.write_text(text)
        return path

    return write


@pytest.mark.parametrize(
    ("head", "modules", "variables"),
    [
        ("import os\nimport torch\n", ["torch", "torch._dynamo"], {}),
        (
            '"""Words."""\nimport warnings\nwarnings.simplefilter("ignore")\nfrom torch import nn\n',
            ["torch", "torch._dynamo"],
            {},
        ),
        (
            "from transformers import LlamaForCausalLM\n",
            ["torch", "torch._dynamo", "transformers.modeling_utils"],
            {},
        ),
        (
            "from transformers import Trainer\nimport peft\n",
            ["peft", "torch", "torch._dynamo", "transformers.modeling_utils", "transformers.trainer"],
            {},
        ),
        ("from transformers import AutoTokenizer\n", [], {}),
        ("from evidence import claims\nfrom evidence.trace import fake\n", ["evidence.trace"], {}),
        ("import os\nos.environ['A'] = 'b'\nimport torch\n", ["torch", "torch._dynamo"], {"A": "b"}),
        (
            "import time\nbegan, used = time.time(), time.process_time()\nimport torch\ntook = time.process_time() - used\nimport peft\n",
            ["peft", "torch", "torch._dynamo"],
            {},
        ),
        ("import time\nbegan = made(time.time())\nimport torch\n", [], {}),
        ("import os\nos.environ['A'] = made()\nimport torch\n", [], {}),  # what comes before an import may change it
        ("import tempfile\ntempfile.tempdir = tempfile.mkdtemp()\nimport torch\n", ["torch", "torch._dynamo"], {}),
        ("import os\nos.chdir('/')\nimport torch\n", [], {}),
        ("def later():\n    import torch\n", [], {}),
    ],
)
def test_what_is_imported_beforehand_is_what_the_head_of_a_program_imports_anyway(head, modules, variables):
    assert warm.head(head) == (modules, variables)


def test_what_a_program_sees_prints_and_returns_is_the_same(program, tmp_path):
    path = program("""
import os, sys
import evidence.notes
print(sys.argv[1:], os.getcwd(), __file__, __name__, sys.path[0], os.environ["RANK"], sys.stdin.read())
print("error", file=sys.stderr)
sys.exit(3)
""")
    options = {"cwd": tmp_path, "env": os.environ | {"RANK": "7"}, "input": "given"}
    assert result(WARM, path, "a", "b c", **options) == result(sys.executable, path, "a", "b c", **options)


@pytest.mark.parametrize(
    ("options", "variables", "said"), [([], {}, ""), (["-u"], {}, "said"), ([], {"PYTHONUNBUFFERED": "1"}, "said")]
)
def test_what_is_printed_waits_in_a_buffer_unless_python_is_told_otherwise(program, options, variables, said):
    path = program(f"{QUICK}import os\nprint('said', end='')\nos._exit(0)\n")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"} | variables
    for python in (WARM, sys.executable):
        assert result(python, *options, path, env=environment) == (0, said, "")


def test_each_program_reads_how_much_torch_distributed_is_to_check(program):
    said = "import torch\nprint(torch.distributed.get_debug_level().name)\n"
    for level in ("DETAIL", "INFO"):
        given = os.environ | {"TORCH_DISTRIBUTED_DEBUG": level}
        assert result(WARM, program(said), env=given)[1] == f"{level}\n"
        setting = f"import os\nos.environ['TORCH_DISTRIBUTED_DEBUG'] = '{level}'\n"
        assert result(WARM, program(setting + said))[1] == f"{level}\n"


def test_each_program_draws_its_own_numbers(program):
    path = program(
        "import random\nimport numpy\nimport torch\nprint(torch.rand(1), numpy.random.rand(), random.random())\n"
    )
    first, second = (result(WARM, path)[1].split() for _ in range(2))
    assert len(first) == 3 and not set(first) & set(second)


def test_an_error_looks_the_same(program):
    for source in (
        f"{QUICK}\n\ndef broken():\n    raise ValueError('no')\n\n\nbroken()\n",
        "import torch\nprint('open)\n",
    ):
        path = program(source)
        assert result(WARM, path) == result(sys.executable, path)


def test_an_import_that_is_forgotten_is_missing(program):
    path = program("import torch\nprint(transformers)\n")
    assert "NameError: name 'transformers' is not defined" in result(WARM, path)[2]
    path = program("import torch\nimport sys\nprint('transformers' in sys.modules)\n")
    assert result(WARM, path)[:2] == (0, "False\n")


def test_a_signal_reaches_the_program_and_its_end_is_reported(program):
    path = program("import torch, time\nprint('ready', flush=True)\ntime.sleep(60)\n")
    for number in (signal.SIGTERM, signal.SIGKILL):
        started = subprocess.Popen([WARM, path], stdout=subprocess.PIPE, text=True)
        assert started.stdout.readline() == "ready\n"
        started.send_signal(number)
        assert started.wait(20) == -number


def test_a_program_ends_with_the_process_that_stands_for_it(program):
    path = program("import torch, os, time\nprint(os.getpid(), flush=True)\ntime.sleep(60)\n")
    started = subprocess.Popen([WARM, path], stdout=subprocess.PIPE, text=True)
    pid = int(started.stdout.readline())
    started.kill()
    started.wait()
    deadline = time.monotonic() + 20
    while psutil.pid_exists(pid):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_who_asks_first_may_be_killed_with_all_its_children(program, tmp_path):
    folder = tmp_path / "warm"
    folder.mkdir()
    warm.commands(folder)
    path = program(f"{QUICK}import time\nprint('ready', flush=True)\ntime.sleep(3)\nprint('done')\n")
    first, second = (subprocess.Popen([folder / "python", path], stdout=subprocess.PIPE, text=True) for _ in range(2))
    assert first.stdout.readline() == second.stdout.readline() == "ready\n"
    for process in (*psutil.Process(first.pid).children(recursive=True), first):
        process.kill()
    assert second.communicate(timeout=60)[0] == "done\n"
    assert second.returncode == 0


@forked
def test_who_asks_and_goes_disturbs_nobody(program, tmp_path):
    folder = tmp_path / "warm"
    folder.mkdir()
    warm.commands(folder)
    path = program(f"{QUICK}import os\nprint(os.getppid())\n")
    gone = tmp_path / "gone"
    gone.mkdir()
    waiting = result(str(folder / "python"), path, cwd=gone)[1]
    gone.rmdir()  # imports that are still to come ask where they are
    assert Path("/proc", waiting.strip(), "cwd").readlink() == folder
    address = next(each for each in folder.iterdir() if each.is_socket())
    for sent in (b"", b"\0\0\0\1"):
        with socket.socket(socket.AF_UNIX) as asking:
            asking.connect(str(address))
            asking.sendall(sent)
    assert result(str(folder / "python"), path) == (0, waiting, "")


@forked
def test_the_second_program_does_not_import_again(program):
    path = program("import time\nimport torch\nprint(time.process_time())\n")
    assert float(result(sys.executable, path)[1]) > 0.5
    result(WARM, path)
    assert float(result(WARM, path)[1]) < 0.2


@forked
def test_what_imports_more_is_forked_from_what_has_imported_less(program, tmp_path, monkeypatch):
    """What is forked has its objects where the first one has them; a new process has them elsewhere."""
    folder = tmp_path / "warm"  # of its own: another test may have asked for the same imports
    folder.mkdir()
    warm.commands(folder)
    chain = ["evidence.launch", "evidence.notes"]  # in place of torch and what asks for it, which take long
    monkeypatch.setattr(warm, "CHAIN", tuple(chain))
    warm.connect(folder, sys.executable, chain, {}).close()

    def said(head, **options):
        text = f"import sys\nimport evidence.launch\n{head}"
        text += "print(id(evidence.launch), 'evidence.notes' in sys.modules)\n"
        return result(str(folder / "python"), program(text), **options)[1].split()

    first, has_more = said("")
    assert has_more == "False"
    assert said("import evidence.notes\n") == [first, "True"]
    assert said("import evidence.problems\n") == [first, "False"]  # of no chain
    assert said("") == [first, "False"]
    assert said("import evidence.notes\n", env=os.environ | {"ANOTHER": "place"})[0] != first


def test_a_variable_that_a_program_sets_before_an_import_counts_for_it(program):
    path = program("import os\nos.environ['OMP_NUM_THREADS'] = '2'\nimport torch\nprint(torch.get_num_threads())\n")
    assert result(WARM, path)[1] == "2\n"


def test_other_variables_are_other_processes(program):
    path = program("import torch\nprint(torch.get_num_threads())\n")
    for threads in ("1", "2"):
        assert result(WARM, path, env=os.environ | {"OMP_NUM_THREADS": threads})[1] == f"{threads}\n"


@forked
def test_the_kernel_of_a_notebook_has_the_imports_behind_it(pytestconfig, monkeypatch):
    monkeypatch.setenv("KERNEL_HEAD", '[["torch", "torch._dynamo"], {}]')
    manager = jupyter_client.KernelManager(kernel_name=pytestconfig.getoption("nbval_kernel_name"))
    manager.start_kernel()
    client = manager.blocking_client()
    said = []
    try:
        client.start_channels()
        client.wait_for_ready(timeout=60)
        client.execute_interactive("import sys; print('torch' in sys.modules)", output_hook=said.append, timeout=60)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    assert [message["content"]["text"] for message in said if message["msg_type"] == "stream"] == ["True\n"]


@forked
def test_what_waits_ends_when_its_folder_is_gone(program, tmp_path):
    folder = tmp_path / "warm"
    folder.mkdir()
    warm.commands(folder)
    path = program(f"{QUICK}import os\nprint(os.getppid())\n")
    waiting = int(result(str(folder / "python"), path)[1])
    assert psutil.Process(waiting).cmdline()[2] == "--serve"
    for file in sorted(folder.rglob("*"), reverse=True):
        file.rmdir() if file.is_dir() else file.unlink()
    Path(folder).rmdir()
    psutil.wait_procs([psutil.Process(waiting)], timeout=20)
    assert not psutil.pid_exists(waiting)
