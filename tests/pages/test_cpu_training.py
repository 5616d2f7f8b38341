"""docs/training/cpu.md, sentence by sentence. Its figures are tested where they are made, in the notebook."""

import ctypes.util
import importlib
import inspect
import itertools
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from programs import too_much_to_read, wrong_arguments
from torch import nn
from transformers import BertConfig, HfArgumentParser, Trainer, TrainingArguments

from evidence import records

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "snippets" / "cpu_training"
PROGRAMS = sorted(FOLDER.glob("*.py"))
X86 = os.uname().machine == "x86_64"


def error(name):
    kind, _, message = (FOLDER / "errors" / f"{name}.txt").read_text().strip().partition(": ")
    return kind, message


def raised(call, *args, **kwargs):
    with pytest.raises(Exception) as caught:
        call(*args, **kwargs)
    return type(caught.value).__name__, str(caught.value)


def shell(name, folder, timeout=120, **environment):
    """Runs a shell snippet beside a train.py; returns what it printed. After the time-out its whole group ends."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    job = subprocess.Popen(
        ["bash", FOLDER / f"{name}.sh"],
        cwd=folder,
        env={**os.environ, "PATH": path, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = job.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(job.pid, signal.SIGKILL)
        job.communicate()
        raise
    assert job.returncode == 0, output[-3000:]
    return output


@pytest.fixture
def folder(tmp_path):
    """An empty folder with a train.py that says how it was started."""
    (tmp_path / "train.py").write_text(
        "import os\n"
        "print('threads', os.environ.get('OMP_NUM_THREADS'), 'cores', sorted(os.sched_getaffinity(0)), os.environ.get('LD_PRELOAD'),\n"
        "      'libtcmalloc' in open('/proc/self/maps').read(), 'libjemalloc' in open('/proc/self/maps').read())\n"
    )
    return tmp_path


def stub(folder, name):
    """A command that prints its arguments and then runs what comes after its options; first on the PATH."""
    (folder / "bin").mkdir(exist_ok=True)
    program = folder / "bin" / name
    program.write_text(
        f'#!/usr/bin/env bash\necho "{name}: $*"\nwhile [[ $1 == -* || $1 =~ ^[0-9-]+$ ]]; do shift; done\nexec "$@"\n'
    )
    program.chmod(0o755)
    return f"{folder / 'bin'}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"


def flags(monkeypatch, **has):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx2": True} | has)


# The programs


@pytest.mark.parametrize("name", ["lora.py", "less_memory.py"])
def test_every_program_of_the_page_trains(name, run_snippet):
    defined, printed = run_snippet(f"cpu_training/{name}")
    assert "train_loss" in printed
    assert defined["arguments"].device.type == "cpu"


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.name)
def test_every_argument_is_one_of_the_installed_version(path):
    assert not wrong_arguments(path)


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.name)
def test_programs_are_short_enough_to_read(path):
    assert not too_much_to_read(path, 50)


# bf16


@pytest.mark.parametrize(
    "has, found",
    [
        ({}, []),
        ({"avx512_f": True, "avx512_vnni": True, "avx512_bf16": False}, []),
        ({"avx512_bf16": True}, ["avx512_bf16"]),
        ({"amx_bf16": True, "avx512_bf16": True}, ["amx_bf16", "avx512_bf16"]),
        ({"amx_tile": True, "amx_bf16": False}, []),
        ({"neon": True, "bf16": True}, ["bf16"]),
    ],
)
def test_the_guard_switches_bf16_on_only_where_the_cpu_has_instructions_for_it(has, found, run_snippet, monkeypatch):
    flags(monkeypatch, **has)
    monkeypatch.setattr(Trainer, "train", lambda self: None)
    defined, printed = run_snippet("cpu_training/train.py")
    assert defined["bf16_instructions"]() == found
    assert defined["arguments"].bf16 is bool(found)
    assert f"bf16 instructions: {', '.join(found) or 'none'};" in printed


@pytest.mark.parametrize("has, dtype", [({}, torch.float32), ({"avx512_bf16": True}, torch.bfloat16)])
def test_the_program_trains_with_and_without_them(has, dtype, run_snippet, monkeypatch):
    seen = set()
    multiply = nn.Linear.forward

    def watched(self, x):
        out = multiply(self, x)
        seen.add(out.dtype)
        return out

    flags(monkeypatch, **has)
    monkeypatch.setattr(nn.Linear, "forward", watched)
    defined, printed = run_snippet("cpu_training/train.py")
    assert "train_loss" in printed
    assert seen == {dtype}
    assert {p.dtype for p in defined["model"].parameters()} == {torch.float32}, "the weights stay fp32"


def test_the_guard_sees_what_the_kernel_of_the_operating_system_sees():
    has, words = torch.cpu.get_capabilities(), set(Path("/proc/cpuinfo").read_text().split())
    for name in ("amx_bf16", "avx512_bf16"):
        assert bool(has.get(name)) == (name in words)


def test_look_sh_names_the_instructions_or_says_that_there_are_none(folder):
    output = shell("look", folder)
    words = set(Path("/proc/cpuinfo").read_text().split())
    expected = {"amx_bf16", "avx512_bf16", "bf16"} & words
    assert expected <= set(output.split())
    assert ("no bf16 instructions" in output) == (not expected)
    assert "Socket(s)" in output

    path = stub(folder, "lscpu")  # a CPU without any
    (folder / "bin" / "lscpu").write_text("#!/bin/sh\necho 'Socket(s): 1'\necho 'Flags: avx2 avx512f'\n")
    assert shell("look", folder, PATH=path) == "no bf16 instructions: train in fp32\nSocket(s): 1\n"


def test_onednn_says_which_kernel_multiplies_and_the_limit_takes_the_bf16_kernel_away(tmp_path):
    """On a CPU without bf16 instructions both runs show the same: there is nothing to take away."""
    (tmp_path / "train.py").write_text(
        "import torch\n"
        "x = torch.randn(64, 64)\n"
        "with torch.autocast('cpu', dtype=torch.bfloat16):\n"
        "    torch.nn.Linear(64, 64)(x)\n"
    )
    if not (X86 and torch.cpu.get_capabilities().get("avx512_f")):
        assert shell("slow_case", tmp_path) == ""  # no kernel of AVX-512 to name
        return
    native, limited = (
        shell("which_kernel", tmp_path, **limit) for limit in ({}, {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE"})
    )
    assert "matmul," in limited and "bf16" not in limited and "amx" not in limited
    if torch.cpu.get_capabilities()["avx512_bf16"]:
        assert "avx512_core_bf16" in native or "amx" in native


def test_slow_case_sh_runs_the_training_under_the_limit(tmp_path):
    (tmp_path / "train.py").write_text("import os; print(os.environ['ONEDNN_MAX_CPU_ISA'])")
    assert shell("slow_case", tmp_path) == "AVX512_CORE\n"


def test_on_a_machine_without_a_gpu_bf16_needs_use_cpu(monkeypatch):
    monkeypatch.setattr("transformers.training_args.is_torch_bf16_gpu_available", lambda: False)
    assert raised(TrainingArguments, "out", bf16=True) == error("bf16_without_use_cpu")
    assert TrainingArguments("out", bf16=True, use_cpu=True).mixed_precision == "bf16"


def test_trainer_takes_fused_adamw_by_default():
    assert TrainingArguments("out", use_cpu=True).optim == "adamw_torch_fused"


def test_tf32_belongs_to_gpus(monkeypatch):
    monkeypatch.setattr("transformers.training_args.is_torch_tf32_available", lambda: False)
    assert raised(TrainingArguments, "out", use_cpu=True, tf32=True) == error("tf32")


# What is gone


@pytest.mark.parametrize("name", ["use_ipex", "no_cuda", "jit_mode_eval"])
def test_the_old_arguments_are_gone(name):
    assert raised(TrainingArguments, "out", **{name: True}) == error(name)


def test_the_old_command_line_is_refused():
    old = ["--output_dir", "out", "--use_cpu", "--bf16", "--use_ipex", "--no_cuda"]
    assert raised(HfArgumentParser(TrainingArguments).parse_args_into_dataclasses, old) == error("old_command")


def test_the_ipex_backend_of_torch_compile_is_gone():
    assert "ipex" not in torch._dynamo.list_backends()
    assert raised(torch.compile, lambda x: x + 1, backend="ipex") == error("ipex_backend")


# Estimate


def test_6_x_parameters_x_tokens_gives_12_hours_for_bert_base_on_squad_at_1_tflops(run_snippet, monkeypatch):
    defined, printed = run_snippet("cpu_training/estimate.py")
    assert printed.splitlines()[0] == "BERT-base on SQuAD at 1 TFLOP/s: 12 h"
    assert defined["hours"](1e9, 1e6, 1e12) == pytest.approx(6e15 / 1e12 / 3600)
    ticks = itertools.count(step=0.5)  # a clock on which every product takes half a second
    monkeypatch.setattr(time, "perf_counter", lambda: next(ticks))
    assert defined["flops_per_second"](size=256) == pytest.approx(2 * 256**3 / 0.5)


# Threads and binding


def test_threads_py_prints_the_threads_and_set_num_threads_changes_them(run_snippet):
    before = torch.get_num_threads()
    try:
        _, printed = run_snippet("cpu_training/threads.py")
        lines = printed.splitlines()
        assert lines[0] == f"{before} threads compute"
        assert lines[-1] == "1 thread computes now"
        assert lines[2] == f"{len(os.sched_getaffinity(0))} logical CPUs may be used by this process"
    finally:
        torch.set_num_threads(before)


def test_omp_num_threads_decides_and_loader_workers_do_not():
    program = (
        "import torch; print(torch.get_num_threads()); "
        "list(torch.utils.data.DataLoader([0], num_workers=2)); print(torch.get_num_threads())"
    )
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    run = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60)
    assert run.stdout == "1\n1\n"


def test_bind_sh_hands_threads_cores_and_memory_to_the_program(folder):
    """numactl and taskset are stood in for: binding to 16 cores and a socket needs them. The options are the real ones."""
    stub(folder, "numactl")
    output = shell("bind", folder, PATH=stub(folder, "taskset")).splitlines()
    assert output[0] == "numactl: --cpunodebind=0 --membind=0 python train.py"
    assert output[2] == "taskset: --cpu-list 0-15 python train.py"
    assert output[1].startswith("threads 16 ") and output[3].startswith("threads 16 ")


def test_taskset_binds_to_the_cores_named():
    one = min(os.sched_getaffinity(0))
    run = subprocess.run(
        ["taskset", "--cpu-list", str(one), sys.executable, "-c", "import os; print(os.sched_getaffinity(0))"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert run.stdout == f"{{{one}}}\n"


def test_torch_brings_a_launcher_that_binds_on_xeons():
    launcher = importlib.import_module("torch.backends.xeon.run_cpu")
    for option in ("--ncores-per-instance", "--enable-tcmalloc", "--enable-jemalloc", "--node-id"):
        assert f'"{option}"' in inspect.getsource(launcher), option


# Allocators


def test_allocator_sh_loads_each_library_where_it_is_installed(folder):
    output = [line for line in shell("allocator", folder).splitlines() if line.startswith("threads ")]
    installed = [ctypes.util.find_library(name) is not None for name in ("tcmalloc_minimal", "jemalloc")]
    assert len(output) == 3
    assert output[0].endswith("None False False")
    assert output[1].endswith(f"libtcmalloc_minimal.so.4 {installed[0]} False")
    assert output[2].endswith(f"libjemalloc.so.2 False {installed[1]}")


def test_glibc_told_so_keeps_what_is_freed_and_takes_no_page_anew(folder, monkeypatch):
    (folder / "train.py").write_text(
        "import ctypes, resource\n"
        "libc, size = ctypes.CDLL(None), 100 << 20\n"
        "libc.malloc.restype = ctypes.c_void_p\n"
        "def faults():\n"
        "    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt\n"
        "    block = libc.malloc(ctypes.c_size_t(size))\n"
        "    ctypes.memset(block, 1, size)\n"
        "    libc.free(ctypes.c_void_p(block))\n"
        "    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before\n"
        "faults()\n"
        "print('faults', faults())\n"
    )
    for name in ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"):
        monkeypatch.delenv(name, raising=False)
    usual = subprocess.run([sys.executable, folder / "train.py"], capture_output=True, text=True, check=True).stdout
    told = next(line for line in shell("allocator", folder).splitlines() if line.startswith("faults"))
    assert int(usual.split()[1]) > 40 + 10 * int(told.split()[1]), "pages are of 4 KiB, or in places of 2 MiB"


def test_a_library_that_is_not_there_is_ignored_with_a_message(tmp_path):
    run = subprocess.run(
        [shutil.which("true")], env={"LD_PRELOAD": "libtcmalloc.so"}, capture_output=True, text=True, timeout=60
    )
    assert run.returncode == 0
    assert run.stderr.strip() == (FOLDER / "errors" / "preload.txt").read_text().strip()


# Compiling, attention, denormals


def test_the_compiled_program_compiles_each_layer_and_trains(run_snippet, monkeypatch):
    """With a backend that skips the code generation: the compiler itself runs in the notebook."""
    asked, real = [], torch.compile

    def compile(call, **options):
        asked.append(options)
        return real(call, **options | {"backend": "eager"})

    monkeypatch.setattr(torch, "compile", compile)
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()  # of the tests before this one
    defined, printed = run_snippet("cpu_training/compile.py")
    assert "train_loss" in printed
    assert len(asked) == len(defined["model"].model.layers)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1, "one graph serves all layers"


def test_pytorch_takes_its_flash_kernel_on_a_cpu(run_snippet):
    _, printed = run_snippet("cpu_training/sdpa.py")
    assert "['aten::_scaled_dot_product_flash_attention_for_cpu']" in printed


def test_dropout_in_attention_which_bert_has_by_default_takes_the_math_kernel():
    assert BertConfig().attention_probs_dropout_prob == 0.1
    query = torch.randn(1, 2, 16, 8)
    for dropout, kernel in ((0.0, "flash_attention_for_cpu"), (0.1, "attention_math")):
        with torch.profiler.profile() as profiled:
            nn.functional.scaled_dot_product_attention(query, query, query, dropout_p=dropout)
        called = {event.key for event in profiled.key_averages() if "_scaled_dot_product" in event.key}
        assert [name for name in called if kernel in name], called


def test_on_the_xeon_an_allocator_gains_more_in_bf16_and_denormals_cost_more_than_on_the_epycs():
    found = records.load_all(ROOT / "results")["cpu_training"]
    (xeon,) = (each.data["claims"] for each in found if "amx_bf16" in each.data["machine"]["cpu_features"])
    for name in ("tcmalloc-minimal-bf16", "jemalloc-bf16", "denormal-slower"):
        values = [each.data["claims"][name].get("value", 0) for each in found]
        assert xeon[name]["value"] == max(values) and values.count(max(values)) == 1, name


def test_kept_memory_gains_much_where_tensors_are_large_and_little_or_nothing_in_two_layers_in_fp32():
    measured = 0
    for record in records.load_all(ROOT / "results")["cpu_training"]:
        speed = {name: claim["value"] for name, claim in record.data["claims"].items() if "value" in claim}
        for name in ("glibc-kept", "tcmalloc-minimal", "jemalloc"):
            assert 0.8 < speed.get(f"{name}-fp32", 1) < 1.12, (record.machine, name)
        if "glibc-kept-logits" in speed:
            measured += 1
            assert min(speed["glibc-kept-logits"], speed.get("tcmalloc-minimal-logits", 2)) > 1.3, record.machine
            assert 0.8 < speed.get("jemalloc-logits", 1) < 1.1, record.machine
    assert measured


def test_bf16_by_avx512_bf16_alone_gains_on_zen_4_and_loses_on_the_xeon_without_amx():
    for record in records.load_all(ROOT / "results")["cpu_training"]:
        features = set(record.data["machine"]["cpu_features"])
        speed = {name: claim.get("value") for name, claim in record.data["claims"].items()}
        if "amx_bf16" in features:
            assert speed["avx512-bf16-speed"] < 1
        elif "avx512_bf16" in features:
            assert min(speed["autocast-speed"], speed["pure-bf16-speed"]) > 1
            assert speed["squad-hours-bf16"] < speed["squad-hours-fp32"]


def test_most_of_the_gain_of_lora_under_bf16_is_that_of_bf16():
    for record in records.load_all(ROOT / "results")["cpu_training"]:
        speed = {name: claim.get("value") for name, claim in record.data["claims"].items()}
        if speed["autocast-speed"]:
            assert speed["autocast-speed"] - 1 > (speed["lora-bf16-speed"] - 1) / 2, record.machine


def test_with_avx2_alone_autocast_is_slower_still_than_with_avx_512():
    values = {"avx2-slower": [], "limited-slower": []}
    for record in records.load_all(ROOT / "results")["cpu_training"]:
        for name, found in values.items():
            if "value" in record.data["claims"].get(name, {}):
                found.append(record.data["claims"][name]["value"])
    assert min(values["avx2-slower"]) > max(values["limited-slower"]) > 1


def test_flush_denormal_makes_tiny_numbers_0(run_snippet):
    _, printed = run_snippet("cpu_training/denormals.py")
    assert printed.splitlines() == ["before: True", "switched on: True", "after: False"]


def test_the_first_moment_of_a_parameter_without_gradient_becomes_denormal_after_some_hundred_steps():
    weight = nn.Parameter(torch.ones(8))
    optimizer = torch.optim.AdamW([weight], lr=1e-4, fused=True)
    weight.grad = torch.full_like(weight, 1e-3)
    optimizer.step()
    weight.grad.zero_()
    steps = 0
    while optimizer.state[weight]["exp_avg"].max() >= torch.finfo(torch.float32).tiny:
        optimizer.step()
        steps += 1
    assert 100 < steps < 1000
    assert optimizer.state[weight]["exp_avg"].max() > 0
