"""docs/training/cpu.md, sentence by sentence. Its figures are tested where they are made, in the notebook."""

import ctypes.util
import functools
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import bitsandbytes
import pytest
import torch
from programs import ROOT, load, run, shown_message
from torch import nn
from transformers import AutoModelForCausalLM, BertConfig, HfArgumentParser, LlamaConfig, Trainer, TrainingArguments

from evidence import records

without_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="the message is that of a machine without a GPU")
# A train.py of the reader: it says how it was started, and how many pages the allocator takes anew.
PROBE = """
import ctypes, os, resource

maps = open("/proc/self/maps").read()
print("preloaded", os.environ.get("LD_PRELOAD"), "libtcmalloc" in maps, "libjemalloc" in maps)
libc, size = ctypes.CDLL(None), 100 << 20
libc.malloc.restype = ctypes.c_void_p


def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    block = libc.malloc(ctypes.c_size_t(size))
    ctypes.memset(block, 1, size)
    libc.free(ctypes.c_void_p(block))
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


faults()
print("faults", faults())
"""


def error(name):
    kind, _, message = shown_message("cpu_training", name).partition(": ")
    return kind, message


def raised(call, *args, **kwargs):
    with pytest.raises(Exception) as caught:
        call(*args, **kwargs)
    return type(caught.value).__name__, str(caught.value)


def test_no_other_optimizer_makes_the_step_much_faster_on_any_machine():
    found = records.find(records.load_all(ROOT / "results"), "cpu_training", "methods", "tables")
    assert found
    for _, table in found:
        columns = list(table["columns"])
        speed = {row[columns.index("method")]: row[columns.index("speed")] for row in table["rows"]}
        assert max(speed[name] for name in ("AdamW, foreach", "Adafactor", "SGD", "8-bit AdamW")) < 1.05


# bf16


@functools.cache
def guard():
    return load("cpu_training/train.py").bf16_instructions


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
@pytest.mark.skipif(
    "ATEN_CPU_CAPABILITY" in os.environ, reason="ATen without AVX-512 beside a oneDNN with it cannot train in bf16"
)
def test_the_guard_names_the_bf16_instructions_of_other_cpus(has, found, monkeypatch):
    guard()
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx2": True} | has)
    assert guard()() == found


def test_the_program_trains_and_names_the_bf16_instructions_of_this_cpu():
    printed = run("cpu_training/train.py").stdout
    assert re.search(rf"^bf16 instructions: {', '.join(guard()()) or 'none'}; \d+ threads$", printed, re.M)
    assert "train_loss" in printed


def test_the_guard_sees_what_the_kernel_of_the_operating_system_sees():
    has, words = torch.cpu.get_capabilities(), set(Path("/proc/cpuinfo").read_text().split())
    for name in ("amx_bf16", "avx512_bf16"):
        assert bool(has.get(name)) == (name in words)


def test_look_sh_names_the_instructions_or_says_that_there_are_none():
    printed = run("cpu_training/look.sh").stdout
    expected = {"amx_bf16", "avx512_bf16", "bf16"} & set(Path("/proc/cpuinfo").read_text().split())
    assert expected <= set(printed.split())
    assert ("no bf16 instructions" in printed) == (not expected)
    assert "Socket(s)" in printed


@pytest.mark.skipif(
    not torch.cpu.get_capabilities().get("avx512_bf16"), reason="in fp32, PyTorch's products are not of oneDNN"
)
def test_onednn_says_which_kernel_multiplies_and_the_limit_takes_the_bf16_kernel_away():
    beside, limit = ["cpu_training/train.py"], {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE"}
    native = run("cpu_training/which_kernel.sh", beside=beside).stdout
    limited = run("cpu_training/which_kernel.sh", beside=beside, environment=limit).stdout
    assert "avx512_core_bf16" in native or "amx" in native
    assert "matmul," in limited
    assert "bf16" not in limited
    assert "amx" not in limited


@pytest.mark.skipif(
    not torch.cpu.get_capabilities().get("avx512_f"), reason="without AVX-512 PyTorch asks oneDNN for no bf16 product"
)
@pytest.mark.parametrize("limit, asked", [("AVX512_CORE", True), ("AVX2", False)])
def test_limited_to_avx2_pytorch_asks_onednn_for_no_bf16_product(limit, asked):
    program = "import torch; x = torch.ones(256, 256).bfloat16(); x @ x"
    environment = os.environ | {"ONEDNN_VERBOSE": "1", "ONEDNN_MAX_CPU_ISA": limit}
    said = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert ("exec,cpu,matmul" in said.stdout) == asked


def test_slow_case_sh_runs_the_training_under_the_limit():
    assert "train_loss" in run("cpu_training/slow_case.sh", beside=["cpu_training/train.py"]).stdout
    started = run("cpu_training/slow_case.sh", files={"train.py": "import os; print(os.environ['ONEDNN_MAX_CPU_ISA'])"})
    assert started.stdout == "AVX512_CORE\n"


@without_gpu
def test_fp16_on_a_cpu_computes_in_fp32_and_says_nothing(tmp_path):
    model = AutoModelForCausalLM.from_config(
        LlamaConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2, vocab_size=64)
    )
    seen = set()
    model.model.layers[0].mlp.up_proj.register_forward_hook(lambda module, given, made: seen.add(made.dtype))
    ids = torch.arange(8)
    arguments = TrainingArguments(tmp_path, use_cpu=True, fp16=True, max_steps=1, save_strategy="no", report_to=[])
    Trainer(model, arguments, train_dataset=[{"input_ids": ids, "labels": ids}] * 8).train()
    assert arguments.fp16 and seen == {torch.float32}


def test_four_bit_weights_pass_gradients_on_a_cpu():
    layer = bitsandbytes.nn.Linear4bit(64, 64, bias=False, compute_dtype=torch.float32, quant_type="nf4").to("cpu")
    given = torch.randn(4, 64, requires_grad=True)
    layer(given).sum().backward()
    assert layer.weight.dtype == torch.uint8 and given.grad.abs().sum() > 0


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


def test_6_x_parameters_x_tokens_gives_12_hours_for_bert_base_on_squad_at_1_tflops():
    first, here = run("cpu_training/estimate.py").stdout.splitlines()[-2:]
    assert first == "BERT-base on SQuAD at 1 TFLOP/s: 12 h"
    assert re.fullmatch(r"BERT-base on SQuAD here, at best: \d+ h", here)


# Threads and binding


def test_threads_py_prints_the_threads_and_set_num_threads_changes_them():
    lines = run("cpu_training/threads.py").stdout.splitlines()[-4:]
    cpus = len(os.sched_getaffinity(0))
    assert int(re.fullmatch(r"(\d+) threads compute", lines[0])[1]) in range(1, cpus + 1)
    assert lines[2] == f"{cpus} logical CPUs may be used by this process"
    assert lines[3] == "1 thread computes now"
    lines = run("cpu_training/threads.py", environment={"OMP_NUM_THREADS": 1}).stdout.splitlines()[-4:]
    assert lines[0] == "1 threads compute"


def test_loader_workers_do_not_change_the_threads():
    program = (
        "import torch; print(torch.get_num_threads()); "
        "list(torch.utils.data.DataLoader([0], num_workers=2)); print(torch.get_num_threads())"
    )
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    said = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert said.stdout == "1\n1\n"


def test_bind_sh_hands_threads_and_cores_to_the_program():
    """The first command needs numactl and a socket, the second does not."""
    show = "import os; print(os.environ['OMP_NUM_THREADS'], *sorted(os.sched_getaffinity(0)))"
    *_, bound = run("cpu_training/bind.sh", files={"train.py": show}).stdout.splitlines()
    assert bound.split() == ["16", *map(str, sorted(os.sched_getaffinity(0) & {*range(16)}))]


def test_torch_brings_a_launcher_that_binds_on_xeons():
    command = [sys.executable, "-m", "torch.backends.xeon.run_cpu", "--help"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    for option in ("--ncores-per-instance", "--enable-tcmalloc", "--enable-jemalloc", "--node-id"):
        assert option in said


# Allocators


def test_allocator_sh_loads_each_library_where_it_is_installed():
    started = [line for line in run("cpu_training/allocator.sh", files={"train.py": PROBE}).stdout.splitlines()
               if line.startswith("preloaded ")]  # fmt: skip
    installed = [ctypes.util.find_library(name) is not None for name in ("tcmalloc_minimal", "jemalloc")]
    assert started == [
        "preloaded None False False",
        f"preloaded libtcmalloc_minimal.so.4 {installed[0]} False",
        f"preloaded libjemalloc.so.2 False {installed[1]}",
    ]


def test_glibc_that_keeps_what_is_freed_takes_no_page_anew():
    if run("cpu_training/allocator.sh", files={"train.py": PROBE}).stdout.splitlines()[0] == "0":
        pytest.skip("this glibc takes no threshold above 32 MiB, as the first line of the program says")
    usual = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=True).stdout.split()[-1]
    kept = re.search(r"^faults (\d+)$", run("cpu_training/allocator.sh", files={"train.py": PROBE}).stdout, re.M)[1]
    assert int(usual) > 40 + 10 * int(kept), "pages are of 4 KiB, or in places of 2 MiB"


def test_a_library_that_is_not_there_is_ignored_with_a_message(tmp_path):
    said = subprocess.run([shutil.which("true")], env={"LD_PRELOAD": "libtcmalloc.so"}, capture_output=True, text=True)
    assert said.returncode == 0
    assert said.stderr.strip() == shown_message("cpu_training", "preload")


# Compiling, attention, denormals


def test_one_graph_serves_all_layers():
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    config = LlamaConfig(
        hidden_size=64, intermediate_size=128, num_hidden_layers=3, num_attention_heads=2, vocab_size=100
    )
    model, ids = AutoModelForCausalLM.from_config(config), torch.ones(1, 8, dtype=torch.long)
    for layer in model.model.layers:
        layer.compile(backend="eager")
    model(input_ids=ids, labels=ids, use_cache=False).loss.backward()
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


def test_pytorch_takes_its_flash_kernel_on_a_cpu():
    assert "['aten::_scaled_dot_product_flash_attention_for_cpu']" in run("cpu_training/sdpa.py").stdout


def test_dropout_in_attention_which_bert_has_by_default_takes_the_math_kernel():
    assert BertConfig().attention_probs_dropout_prob == 0.1
    query = torch.randn(1, 2, 16, 8)
    for dropout, kernel in ((0.0, "flash_attention_for_cpu"), (0.1, "attention_math")):
        with torch.profiler.profile() as profiled:
            nn.functional.scaled_dot_product_attention(query, query, query, dropout_p=dropout)
        called = {event.key for event in profiled.key_averages() if "_scaled_dot_product" in event.key}
        assert [name for name in called if kernel in name], called


def test_flush_denormal_makes_tiny_numbers_0():
    printed = run("cpu_training/denormals.py").stdout
    assert printed.splitlines()[-3:] == ["before: True", "switched on: True", "after: False"]


@pytest.mark.parametrize("computed_before, flushed", [(False, 1.0), (True, 0.5)])
def test_flushing_reaches_the_thread_that_asks_and_those_that_start_later(computed_before, flushed):
    program = (
        "import torch; torch.set_num_threads(2)\n"
        f"if {computed_before}: torch.ones(4_000_000) + 1\n"
        "torch.set_flush_denormal(True); tiny = torch.full((4_000_000,), 1.2e-38)\n"
        "print((tiny * 0.01 == 0).float().mean().item())"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert float(said.stdout) == flushed


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
