"""A program that begins in a fork of warm.py shows and leaves what a fresh Python would."""

import os
import signal
import subprocess
import sys
import time

import programs
import psutil
import pytest
import warm

pytestmark = [
    pytest.mark.nightly,  # only a change of warm.py can break it
    pytest.mark.skipif(sys.platform != "linux", reason="elsewhere each program gets a Python of its own"),
]
SEEN = """\
import os
import sys

import torch

print(__name__, __file__ == os.path.abspath(sys.argv[0]), sys.argv, os.getcwd() == sys.path[0], sys.executable)
print(os.environ["LOCAL_RANK"], torch.get_num_threads(), sys.flags, sorted(vars()))
print([name for name in ("transformers", "dryrun", "warm", "pytest") if name in sys.modules], file=sys.stderr)
"""
ENDS = {
    "error": "import torch\n\n\ndef one():\n    return torch.ones(2) @ torch.ones(3)\n\n\none()\n",
    "message": "import sys\n\nimport torch\n\nsys.exit('wrong')\n",
    "number": "import sys\n\nimport torch\n\nsys.exit(7)\n",
    "file": "import torch\n\nfile = open('left.txt', 'w')\nfile.write('whole')\n",
    "thread": "import threading, time\n\nimport torch\n\nthreading.Thread(target=lambda: (time.sleep(0.3), print('late'))).start()\n",
    "last": "import atexit\n\nimport torch\n\natexit.register(print, 'last')\nprint('first')\n",
    "killed": "import os, signal\n\nimport torch\n\nos.kill(os.getpid(), signal.SIGKILL)\n",
    "interrupted": "import torch\n\nraise KeyboardInterrupt\n",
}

@pytest.fixture
def start(tmp_path, monkeypatch):
    """Starts a program: in a fork, or where `fresh` in a Python of its own."""
    monkeypatch.delenv("FRESH", raising=False)
    commands = tmp_path / "commands"
    commands.mkdir()

    def started(text, fresh=False, folder=tmp_path, options=(), **more):
        program = tmp_path / "program.py"
        program.write_text(text)
        around = programs._environment(None, {"LOCAL_RANK": "3"}, commands)
        around |= programs._warm(commands, around, [program], 0)
        if fresh:
            (commands / "python").unlink()
        return subprocess.Popen(["python", *options, "program.py", "one", "--two"], cwd=folder, env=around | more, text=True,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip

    return started


def ended(job):
    return (*job.communicate(timeout=100), job.returncode)


def test_a_program_sees_what_it_would_see_in_a_fresh_python(start):
    forked, fresh = ended(start(SEEN)), ended(start(SEEN, fresh=True))
    assert forked == fresh
    assert fresh[1] == "[]\n" and fresh[2] == 0


def test_no_two_programs_draw_the_same(start):
    text = "import random\n\nimport numpy\nimport torch\n\nprint(random.random(), numpy.random.rand(), torch.rand(1).item())\n"
    one, other = (ended(start(text))[0].split() for _ in range(2))
    assert not {*one} & {*other}


@pytest.mark.parametrize("text", ENDS.values(), ids=ENDS)
def test_it_ends_as_in_a_fresh_python(text, start, tmp_path):
    left = []
    for fresh in (False, True):
        left.append((ended(start(text, fresh)), {path.name: path.read_text() for path in tmp_path.glob("*.txt")}))
        [path.unlink() for path in tmp_path.glob("*.txt")]
    assert left[0] == left[1]


@pytest.mark.parametrize(("options", "printed"), [([], ""), (["-u"], "said\nsaid\n")])
def test_what_a_killed_rank_printed_is_there_as_torchrun_starts_it_with_u(options, printed, start):
    text = "import os, signal, sys\n\nimport torch\n\nprint('said')\nprint('said', file=sys.__stdout__)\nos.kill(os.getpid(), signal.SIGKILL)\n"
    for fresh in (False, True):
        assert ended(start(text, fresh, options=options)) == (printed, "", -signal.SIGKILL)


def test_a_signal_reaches_the_program(start):
    text = "import signal, sys, time\n\nimport torch\n\nsignal.signal(signal.SIGUSR1, lambda *_: sys.exit(5))\nprint('ready', flush=True)\ntime.sleep(60)\n"
    job = start(text)
    assert job.stdout.readline() == "ready\n"
    job.send_signal(signal.SIGUSR1)
    assert ended(job)[2] == 5


def test_whoever_kills_the_command_kills_the_program_and_what_it_started(start):
    job = start("import os, subprocess, time\n\nimport torch\n\nother = subprocess.Popen(['sleep', '60'])\nprint(os.getpid(), other.pid, flush=True)\ntime.sleep(60)\n")
    processes = [psutil.Process(int(number)) for number in job.stdout.readline().split()]
    job.kill()
    assert not psutil.wait_procs(processes, timeout=10)[1]


@pytest.mark.parametrize("variable", [{"PYTHONPATH": "/other/packages"}, {"OMP_NUM_THREADS": "3"}, {"TORCH_LOGS": "+dynamo"}, {"MALLOC_ARENA_MAX": "1"}])
def test_a_variable_that_is_read_while_torch_is_imported_gets_a_fresh_python(variable, start):
    text = "import os\n\nimport torch\n\nprint(os.getppid())\n"
    for more, fork in (({}, True), (variable, False)):
        job = start(text, **more)
        assert (int(ended(job)[0]) != os.getpid()) == fork


@pytest.mark.parametrize(
    "kind, lines",
    [
        ("torch", "import torch"),
        ("model", "from transformers import AutoModelForCausalLM, LlamaConfig\nAutoModelForCausalLM.from_config"),
        ("model", "from transformers import pipeline"),
        ("peft", "from transformers import LlamaConfig, set_seed"),
        ("peft", "from peft import LoraConfig"),
        ("peft", "from transformers import TrainingArguments"),
        ("trainer", "from transformers import (\n    Trainer,\n    TrainingArguments,\n)"),
    ],
)
def test_a_fork_holds_nothing_that_the_program_does_not_import_itself(kind, lines):
    assert warm.needs(lines) == kind

    def modules(code):
        if "from_config" in code:  # the class comes with the first model
            code += "(LlamaConfig(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1, vocab_size=8))"
        done = subprocess.run([sys.executable, "-c", f"{code}\nimport sys\nprint('modules:', *sys.modules)"], capture_output=True, text=True, check=True)
        return set(done.stdout.rpartition("modules: ")[2].split())

    assert not modules(warm.IMPORTS[kind]) - modules(lines)


@pytest.mark.parametrize("text", ["import re\n", "from transformers import AutoTokenizer\n", "import torch\nstep = torch.compile(step)\n"])
def test_other_programs_get_a_fresh_python(text):
    assert not warm.needs(text)


def test_a_path_that_is_too_long_for_a_socket_is_no_trouble(start, tmp_path, monkeypatch):
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    monkeypatch.setenv("TEST_FOLDER", str(folder))
    assert ended(start("import os\n\nimport torch\n\nprint(os.getppid())\n"))[0] != f"{os.getpid()}\n"


def test_what_a_module_beside_the_program_imports_counts_as_imported(start, tmp_path):
    (tmp_path / "task.py").write_text("import torch\n")
    started = start("import torch\n")  # the server is there from here on
    ended(started)
    assert ended(start("import os\n\nfrom task import torch\n\nprint(os.getppid(), torch.__name__)\n"))[0].split()[0] != str(os.getpid())


def test_a_server_ends_with_those_who_started_it(tmp_path):
    code = f"import sys; sys.path.insert(0, {str(programs.WARM.parent)!r}); import programs; programs._start_server(programs.Path({str(tmp_path)!r}), 'torch')"
    subprocess.run([sys.executable, "-c", code], env={**os.environ, "TEST_FOLDER": str(tmp_path)}, check=True, timeout=100)
    until = time.monotonic() + 20
    while (tmp_path / "torch").exists():
        assert time.monotonic() < until
        time.sleep(0.1)
