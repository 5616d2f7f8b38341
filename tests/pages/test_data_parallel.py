"""docs/training/data-parallel.md, sentence by sentence. Its figures are tested where they are made, in the notebook."""

import ast
import functools
import inspect
import logging
import math
import re
import runpy
import subprocess
import tempfile
from datetime import timedelta
from pathlib import Path
from unittest import mock

import pytest
import torch
from accelerate import Accelerator
from accelerate.utils import DistributedDataParallelKwargs
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState
from torch.distributed.constants import default_pg_timeout
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parallel.distributed import _BucketCapacityConfig
from torch.utils.data import DataLoader, DistributedSampler
from transformers import AutoModelForCausalLM, BertConfig, BertForSequenceClassification, LlamaConfig, Trainer
from transformers import TrainingArguments as Arguments
from transformers.training_args import ParallelMode

from evidence import records
from evidence.launch import run_ranks

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "snippets" / "data_parallel"
OFFLINE = {"HF_HUB_OFFLINE": "1"}
TIME_OUT = 2  # seconds, in place of the 5 of the programs that hang
# Runs programs one after another in the same processes: most of the time of a run goes into imports.
SEVERAL = """
import gc, os, runpy, sys
import torch.distributed as dist
from accelerate.state import AcceleratorState, GradientState
from transformers import AutoModelForCausalLM, Trainer  # what the programs import, for warm.py

dist.init_process_group("gloo")
end = dist.destroy_process_group
dist.init_process_group = dist.destroy_process_group = lambda *args, **kwargs: None
environment = dict(os.environ)
for program in sys.argv[1:]:
    sys.argv = [program]
    print("==", program.split("/")[-1], flush=True)
    runpy.run_path(program)
    gc.collect()  # models and hooks that hold on to the group
    dist.barrier()
    AcceleratorState._reset_state(reset_partial_state=True)  # what Trainer and Accelerator leave behind
    GradientState._reset_state()
    os.environ.clear()
    os.environ.update(environment)
dist.barrier()
end()
sys.stdout.flush()
os._exit(0)  # what the programs left is not taken down in order; how one ends by itself is seen on four processes
"""
ON_TWO = ("ddp.py", "trainer.py", "unused.py", "compression.py", "accelerate_loop.py", "allreduce_speed.py")


def error(name):
    return (FOLDER / "errors" / f"{name}.txt").read_text().strip()


@functools.cache
def on_two():
    """What the programs of the page printed on two processes ({name: text} of each rank), and the folder they ran in."""
    kept = tempfile.TemporaryDirectory()
    program = Path(kept.name, "several.py")
    program.write_text(SEVERAL)
    programs = [FOLDER / name for name in ON_TWO]
    run = run_ranks(program, *programs, timeout=300, folder=kept.name, environment=OFFLINE)
    return [dict(part.split("\n", 1) for part in text.split("== ")[1:]) for text in run.stdout], kept


def printed(name, rank=0):
    return on_two()[0][rank][name]


def trapped(name, folder):
    """One run of a program that hangs, with a shorter time-out."""
    text = (FOLDER / name).read_text()
    assert "timedelta(seconds=5)" in text
    (folder / name).write_text(text.replace("timedelta(seconds=5)", f"timedelta(seconds={TIME_OUT})"))
    return run_ranks(folder / name, "trap", timeout=300, folder=folder, environment=OFFLINE, check=False)


def timed_out(run):
    """Whether a rank says so in one of the forms of the page; which rank is first to is chance."""
    forms = error("timed_out").replace("5000ms", f"{TIME_OUT}000ms").splitlines()
    return any(form in text for form in forms for text in run.stderr)


def losses(text):
    return [float(found) for found in re.findall(r"step \d+ loss (\S+)", text)]


@functools.cache
def losses_of_one_process():
    """The training of ddp.py with the whole batch at once and without torch.distributed."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=1000, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=2
    )
    rows = torch.randint(0, config.vocab_size, (48, 32))
    model = AutoModelForCausalLM.from_config(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    sampler, found = DistributedSampler(rows, num_replicas=1, rank=0, seed=0), []
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for ids in DataLoader(rows, batch_size=16, sampler=sampler):
            loss = model(input_ids=ids, labels=ids).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            found.append(loss.item())
    return found


def tiny_bert():
    return BertForSequenceClassification(
        BertConfig(vocab_size=50, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=1)
    )


def four_gpus():
    """A machine that shows four GPUs and has none: enough for the arguments."""
    return mock.patch.multiple("torch.cuda", device_count=lambda: 4, is_available=lambda: False)


# DataParallel


def test_trainer_started_by_plain_python_sees_all_gpus_and_multiplies_the_batch(tmp_path):
    with four_gpus():
        arguments = Arguments(tmp_path, per_device_train_batch_size=8, report_to=[])
        assert arguments.parallel_mode is ParallelMode.NOT_DISTRIBUTED
        assert (arguments.n_gpu, arguments.train_batch_size) == (4, 32)


def test_it_wraps_the_model_in_data_parallel_and_says_so_only_at_level_info(tmp_path, caplog):
    rows = [{"input_ids": torch.ones(4, dtype=torch.long), "labels": 0}] * 8
    logger = logging.getLogger("transformers.trainer")
    assert logger.getEffectiveLevel() == logging.WARNING  # the default: nothing is shown
    logging.getLogger("transformers").propagate, before = True, logging.getLogger("transformers").propagate
    try:
        with four_gpus(), caplog.at_level(logging.INFO, "transformers.trainer"):
            arguments = Arguments(tmp_path, max_steps=1, report_to=[], save_strategy="no", disable_tqdm=True)
            trainer = Trainer(model=tiny_bert(), args=arguments, train_dataset=rows)
            assert isinstance(trainer._wrap_model(trainer.model), torch.nn.DataParallel)
            with mock.patch.object(Trainer, "training_step", lambda *_: torch.zeros(())):
                trainer.train()
    finally:
        logging.getLogger("transformers").propagate = before
    assert {record.levelname for record in caplog.records if error("adjusted") in record.getMessage()} == {"INFO"}


def test_the_guard_stops_there_and_nowhere_else(tmp_path):
    source = (FOLDER / "trainer.py").read_text()
    guard = source.split("# --8<-- [start:guard]")[1].split("# --8<-- [end:guard]")[0]
    with four_gpus():
        arguments = Arguments(tmp_path, report_to=[])
        with pytest.raises(SystemExit, match="one process for 4 GPUs, which is DataParallel"):
            exec(guard, {"arguments": arguments, "ParallelMode": ParallelMode})
    exec(guard, {"arguments": Arguments(tmp_path, use_cpu=True, report_to=[]), "ParallelMode": ParallelMode})


def test_the_launch_commands_are_shell_and_name_programs_of_the_page():
    path = FOLDER / "launch.sh"
    assert subprocess.run(["bash", "-n", path]).returncode == 0
    for name in re.findall(r"(\w+\.py)", path.read_text()):
        assert (FOLDER / name).is_file()


# DDP


@pytest.mark.parametrize("processes", [2, 4])
def test_ddp_gives_the_losses_of_one_process_to_five_digits(processes, tmp_path):
    if processes == 2:
        text = printed("ddp.py")
    else:  # as the page starts it
        options = {"processes": processes, "timeout": 300, "folder": tmp_path, "environment": OFFLINE}
        text = run_ranks(FOLDER / "ddp.py", **options).stdout[0]
    assert len(losses(text)) == 6
    assert losses(text) == pytest.approx(losses_of_one_process(), rel=1e-5)


def test_rank_0_alone_prints():
    assert losses(printed("ddp.py")) and not losses(printed("ddp.py", rank=1))


def test_the_saved_names_do_not_begin_with_module():
    from safetensors import safe_open

    with safe_open(Path(on_two()[1].name, "out", "model.safetensors"), "pt") as saved:
        names = list(saved.keys())
    assert names and not [name for name in names if name.startswith("module.")]


def test_a_world_that_does_not_divide_the_batch_is_refused_in_words(monkeypatch):
    for name, value in {"RANK": 1, "WORLD_SIZE": 3, "LOCAL_RANK": 1, "LOCAL_WORLD_SIZE": 3}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    monkeypatch.setattr("torch.distributed.init_process_group", lambda backend: None)
    with pytest.raises(SystemExit, match="^3 processes x 2 samples do not divide a batch of 16$"):
        runpy.run_path(str(FOLDER / "ddp.py"))


def test_trainer_under_torchrun_is_ddp_and_keeps_the_batch():
    assert "distributed: batch 32, 3 steps" in printed("trainer.py")


def test_with_accepts_loss_kwargs_off_the_logged_loss_is_that_of_one_classifier():
    logged = [float(found) for found in re.findall(r"'loss': '?([\d.]+)", printed("trainer.py"))]
    assert len(logged) == 3
    assert all(0.4 < loss < 1.1 for loss in logged)  # ln 2 at the start; twice that with the trap


def test_the_defaults_that_the_page_states_are_those_of_the_installed_versions():
    ddp = inspect.signature(DistributedDataParallel).parameters
    assert ddp["gradient_as_bucket_view"].default is False
    assert ddp["find_unused_parameters"].default is False
    unset, given = (_BucketCapacityConfig.create(megabytes, None, False) for megabytes in (None, 25))
    assert (unset.bucket_bytes_cap, unset.first_bucket_bytes_cap) == (25 * 2**20, 2**20)
    assert given.first_bucket_bytes_cap == given.bucket_bytes_cap == 25 * 2**20
    assert inspect.signature(PowerSGDState).parameters["start_powerSGD_iter"].default == 1000
    assert DistributedDataParallelKwargs().bucket_cap_mb == 25
    assert Arguments.average_tokens_across_devices is True
    assert Arguments.ddp_timeout == timedelta(minutes=30).total_seconds()
    assert default_pg_timeout == timedelta(minutes=30)
    assert {"ddp_bucket_cap_mb", "ddp_find_unused_parameters", "ddp_static_graph"} <= set(
        Arguments.__dataclass_fields__
    )
    assert not [
        name for name in Arguments.__dataclass_fields__ if re.search("bucket_view|comm_hook|sync_buffers", name)
    ]


def test_trainer_seeds_all_ranks_alike():
    for function in (Trainer.__init__, Trainer.train):
        assert re.search(r"else set_seed\((self\.)?args\.seed\)\n", inspect.getsource(function))


def test_trainer_searches_for_unused_parameters_unless_activations_are_checkpointed(tmp_path):
    for checkpointing in (False, True):
        arguments = Arguments(tmp_path, use_cpu=True, report_to=[], activation_checkpointing=checkpointing)
        (handler,) = Trainer(model=tiny_bert(), args=arguments)._build_accelerator_args()["kwargs_handlers"]
        assert handler.find_unused_parameters is not checkpointing


def test_an_unused_parameter_fails_in_the_second_step_with_this_message():
    without, _, rest = printed("unused.py").partition("{'find_unused_parameters': True}: ")
    said = [line.rstrip() for line in without.removeprefix("{}: ").strip().splitlines()]
    assert said == [line.rstrip() for line in error("unused").splitlines()]
    assert rest.splitlines() == ["fine", "without a gradient: unused.weight, unused.bias"]


MESSAGES = """
import sys, warnings
import torch, torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    DDP(torch.nn.Linear(4, 4), broadcast_buffers=False)
print("SAID", *[f"{w.category.__name__}: {w.message}" for w in caught])
model = DDP(torch.nn.Linear(4, 4), find_unused_parameters=True)
model(torch.ones(2, 4)).sum().backward()
try:
    model.register_comm_hook(None, bf16_compress_hook)
except TypeError as error:
    print("SAID TypeError:", error)
dist.barrier()
if sys.argv[1] == "parameters":
    dist.set_debug_level(dist.DebugLevel.INFO)
    two = torch.nn.ModuleDict({"used": torch.nn.Linear(4, 4), "unused": torch.nn.Linear(4, 4)})
    two.forward = lambda inputs: two["used"](inputs)
    model = DDP(two)
    try:
        for _ in range(2):
            model(torch.ones(2, 4)).sum().backward()
    except RuntimeError as error:
        print("SAID RuntimeError:", error)
    dist.set_debug_level(dist.DebugLevel.OFF)
    try:
        DDP(torch.nn.Linear(4 + rank, 4))
    except RuntimeError as error:
        print("SAID RuntimeError:", error)
else:
    parts = [torch.zeros(3 + rank) for _ in range(2)]
    dist.all_gather(parts, torch.ones(3 + rank))
"""


@functools.cache
def messages(what):
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "messages.py")
        program.write_text(MESSAGES)
        run = run_ranks(program, what, timeout=120, check=False)
    return "\n".join(run.stdout + run.stderr)


def test_the_search_warns_when_every_parameter_is_used():
    assert error("not_needed") in messages("parameters")


def test_at_level_info_the_error_names_the_unused_parameters():
    assert re.search(r"did not receive grad for rank 0: unused\.\w+, unused\.\w+", messages("parameters"))


def test_broadcast_buffers_warns():
    assert f"SAID {error('broadcast_buffers')}" in messages("parameters")


def test_the_bf16_hook_refuses_without_nccl():
    if torch.version.cuda and torch.cuda.is_available():
        pytest.skip("20 Nov 2026: NCCL is there, and takes it")
    assert f"SAID {error('bf16_hook')}" in messages("parameters")


def test_weights_of_another_shape_fail_when_ddp_wraps_them():
    assert f"SAID {error('shape_of_rank')}" in messages("parameters")


def test_an_all_gather_of_other_lengths_ends_the_process():
    assert error("mismatch") in messages("lengths")


# Accumulation, compression


def test_trainer_leaves_the_all_reduce_out_of_all_micro_batches_but_the_last():
    source = inspect.getsource(Trainer)
    assert "sync_context = functools.partial(self.accelerator.no_sync, model=model)" in source
    assert "or i == len(batch_samples) - 1" in source
    assert "self.no_sync(m)" in inspect.getsource(Accelerator.accumulate)


def test_each_compression_trains_and_16_bits_change_the_loss_little():
    found = dict(re.findall(r"(.+): loss (\S+)", printed("compression.py")))
    assert list(found) == ["none", "16 bits", "PowerSGD"]
    plain, half, power = map(float, found.values())
    assert half == pytest.approx(plain, rel=0.02)
    assert plain * 0.9 < power < plain * 1.5


def test_power_sgd_refuses_to_start_before_the_third_step():
    with pytest.raises(ValueError) as caught:
        PowerSGDState(None, start_powerSGD_iter=1)
    assert f"ValueError: {caught.value}" == error("powersgd_start")


# Two GPUs


def test_the_speed_of_the_link_is_printed_for_three_sizes():
    lines = printed("allreduce_speed.py").splitlines()
    found = [re.fullmatch(r"(\d+) MB on 2 processes: ([\d.]+) ms, ([\d.]+) GB/s", line) for line in lines]
    assert len(found) == 3
    for match in found:
        megabytes, milliseconds, speed = map(float, match.groups())
        assert speed == pytest.approx(megabytes / milliseconds, rel=0.15, abs=0.01)  # 2(n-1)/n is 1


def test_the_program_predicts_what_the_page_shows(run_snippet):
    defined, printed = run_snippet("data_parallel/worth_it.py")
    _, shown = records.find(records.load_all(ROOT / "results"), "data_parallel", "predicted", "tables")[0]
    example = {"parameters": 124e6, "seconds_alone": 0.050, "link": 6e9}
    changes = [{}, {"seconds_alone": 0.2}, {"accumulation": 4}, {"gradient_bytes": 2}, {"link": 50e9}]
    for (_, worst, best), changed in zip(shown["rows"], changes, strict=True):
        assert defined["speedup"](**example | changed) == pytest.approx((worst, best))
    assert math.isclose(defined["speedup"](1, 1, 1e12)[0], 2, rel_tol=1e-9)  # no communication: twice


# Data


def test_without_set_epoch_every_epoch_has_the_order_of_the_first():
    sampler = DistributedSampler(range(10), num_replicas=2, rank=0)
    first, again = list(sampler), list(sampler)
    sampler.set_epoch(1)
    assert first == again != list(sampler)


def test_the_sampler_repeats_rows_or_drops_them_so_that_all_ranks_have_as_many():
    shares = [list(DistributedSampler(range(9), num_replicas=2, rank=rank, shuffle=False)) for rank in range(2)]
    assert [len(share) for share in shares] == [5, 5]
    assert sorted(shares[0] + shares[1]) == [0, *range(9)]
    dropped = DistributedSampler(range(9), num_replicas=2, rank=0, drop_last=True)
    assert len(dropped) == 4


def test_gather_counts_the_repeated_rows_and_gather_for_metrics_does_not():
    assert "10 rows: gather gives 16, gather_for_metrics gives 10" in printed("accelerate_loop.py")
    assert "self.gather_function = self.accelerator.gather_for_metrics" in inspect.getsource(Trainer)


def test_with_join_ranks_of_uneven_length_end_and_without_it_they_hang(tmp_path):
    run = trapped("uneven.py", tmp_path)
    assert [run.stdout[rank].strip() for rank in range(2)] == [
        f"rank {rank}: {3 + rank} batches, done" for rank in range(2)
    ]
    assert run.returncode
    assert timed_out(run), run.stderr


# Hangs


def test_a_collective_of_rank_0_alone_hangs_and_one_of_all_ranks_does_not(tmp_path):
    run = trapped("rank_zero.py", tmp_path)
    assert run.stdout[0].strip() == "loss 1.5"
    assert run.returncode
    assert timed_out(run), run.stderr


def test_padding_gathers_other_lengths_and_an_all_reduce_of_them_is_no_error_on_rank_0(tmp_path):
    run = trapped("shapes.py", tmp_path)
    gathered = "[1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 2.0]"
    assert run.stdout[0].splitlines() == [f"rank 0: {gathered}", "rank 0: [3.0, 3.0, 3.0] and no error"]
    assert run.stdout[1].strip() == f"rank 1: {gathered}"
    assert run.returncode
    assert error("closed") in run.stderr[1] or "Read error" in run.stderr[1]


# The programs


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.name)
def test_every_program_starts_with_its_launch_command(path):
    command = ast.get_docstring(ast.parse(path.read_text())).splitlines()[-1].strip()
    assert command in (f"torchrun --nproc-per-node 2 {path.name}", f"python {path.name}")


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.name)
def test_every_argument_is_one_of_the_installed_version(path):
    known = {
        kind.__name__: set(inspect.signature(kind).parameters)
        for kind in (DistributedDataParallel, DistributedDataParallelKwargs, Accelerator, PowerSGDState)
    } | {"TrainingArguments": set(inspect.signature(Arguments).parameters)}
    for node in ast.walk(ast.parse(path.read_text())):
        name = getattr(getattr(node, "func", None), "id", "")
        if isinstance(node, ast.Call) and name in known:
            given = {keyword.arg for keyword in node.keywords} - {None}
            assert given <= known[name], f"{path.name}:{node.lineno}: {sorted(given - known[name])} unknown to {name}"
