"""docs/training/data-parallel.md, docs/training/two-gpus.md, and of hangs docs/training/launching-messages.md, sentence by sentence. Its figures are tested where they are made, in the notebook."""

import ast
import functools
import inspect
import logging
import math
import re
import runpy
from datetime import timedelta
from pathlib import Path
from unittest import mock

import pytest
import torch
from accelerate import Accelerator
from accelerate.scheduler import AcceleratedScheduler
from accelerate.state import AcceleratorState
from accelerate.utils import DistributedDataParallelKwargs, DistributedType
from programs import ROOT, run, shown_message
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState
from torch.distributed.constants import default_pg_timeout
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parallel.distributed import _BucketCapacityConfig
from torch.utils.data import DataLoader, DistributedSampler
from transformers import (
    AutoModelForCausalLM,
    BertConfig,
    BertForSequenceClassification,
    LlamaConfig,
    Qwen3MoeConfig,
    Trainer,
)
from transformers import TrainingArguments as Arguments
from transformers.training_args import ParallelMode

from evidence import records
from evidence.launch import run_ranks

FOLDER = ROOT / "snippets" / "data_parallel"


def error(name):
    return shown_message("data_parallel", name)


def timed_out(ended):
    """Whether a rank says so in one of the forms of the page; which rank is first to is chance."""
    return ended.returncode and any(form in ended.stderr for form in error("timed_out").splitlines())


def losses(text):
    return [float(found) for found in re.findall(r"step \d+ loss (\S+)", text)]


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
        for ids in DataLoader(rows, batch_size=32, sampler=sampler):  # the second one of an epoch has 16 rows
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


def test_the_launch_commands_train_on_two_processes_and_on_one_and_measure_an_all_reduce():
    beside = ["data_parallel/trainer.py", "data_parallel/allreduce_speed.py"]
    stand_ins = {"nvidia-smi": 'echo nvidia-smi "$@"'}
    environment = {"PET_STANDALONE": 1, "OMP_NUM_THREADS": 1}  # a free port: other tests start torchrun at the same time
    said = run("data_parallel/launch.sh", beside=beside, stand_ins=stand_ins, environment=environment).stdout
    assert re.findall(r"^\w+: batch .*$", said, re.M) == ["distributed: batch 32, 3 steps", "not_parallel: batch 32, 3 steps"]
    assert "nvidia-smi topo -m\n" in said
    assert len(re.findall(r"^\d+ MB on 2 processes: .* GB/s$", said, re.M)) == 3


# DDP


def test_ddp_gives_the_losses_of_one_process_to_five_digits_and_rank_0_alone_prints():
    first, second = run("data_parallel/ddp.py", processes=2).ranks
    assert len(losses(first.stdout)) == 4
    assert losses(first.stdout) == pytest.approx(losses_of_one_process(), rel=1e-5)
    assert not losses(second.stdout)


def test_the_saved_names_do_not_begin_with_module():
    from safetensors import safe_open

    with safe_open(run("data_parallel/ddp.py", processes=2).folder / "out" / "model.safetensors", "pt") as saved:
        names = list(saved.keys())
    assert names and not [name for name in names if name.startswith("module.")]


def test_a_world_that_does_not_divide_the_batch_is_refused_in_words():
    refused = run("data_parallel/ddp.py", processes=3, check=False)
    assert refused.returncode and "3 processes x 2 samples do not divide a batch of 32" in refused.stderr


def test_with_accepts_loss_kwargs_off_the_logged_loss_is_that_of_one_classifier():
    printed = run("data_parallel/trainer.py", processes=2).ranks[0].stdout
    logged = [float(found) for found in re.findall(r"'loss': '?([\d.]+)", printed)]
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


def test_trainer_searches_for_unused_parameters_unless_activations_are_checkpointed(tmp_path):
    for checkpointing in (False, True):
        arguments = Arguments(tmp_path, use_cpu=True, report_to=[], activation_checkpointing=checkpointing)
        (handler,) = Trainer(model=tiny_bert(), args=arguments)._build_accelerator_args()["kwargs_handlers"]
        assert handler.find_unused_parameters is not checkpointing


def test_what_is_set_on_the_trainers_handler_reaches_ddp():
    said = run_ranks(Path(__file__).parent / "ranks" / "ddp_handler.py", timeout=300).stdout[0]
    assert "handler DistributedDataParallel True" in said


def test_an_unused_parameter_fails_in_the_second_step_with_this_message():
    printed = run("data_parallel/unused.py", processes=2).ranks[0].stdout
    without, _, rest = printed.partition("{'find_unused_parameters': True}: ")
    said = [line.rstrip() for line in without.removeprefix("{}: ").strip().splitlines()]
    assert said == [line.rstrip() for line in error("unused").splitlines()]
    assert rest.splitlines() == ["fine", "without a gradient: unused.weight, unused.bias"]


@functools.cache
def messages(what):
    """What two ranks say about bad input."""
    program = Path(__file__).parent / "ranks" / "data_parallel.py"
    ended = run_ranks(program, what, timeout=300, check=False)
    return "\n".join(ended.stdout + ended.stderr)


def test_the_search_warns_when_every_parameter_is_used():
    assert error("not_needed") in messages("parameters")


def test_at_level_info_the_error_names_the_unused_parameters():
    assert re.search(r"did not receive grad for rank 0: unused\.\w+, unused\.\w+", messages("parameters"))


def test_broadcast_buffers_warns():
    assert f"SAID {error('broadcast_buffers')}" in messages("parameters")


@pytest.mark.skipif(torch.version.cuda is not None and torch.cuda.is_available(), reason="NCCL is there, and takes it")
def test_the_bf16_hook_refuses_without_nccl():
    assert f"SAID {error('bf16_hook')}" in messages("parameters")


def test_weights_of_another_shape_fail_when_ddp_wraps_them():
    assert f"SAID {error('shape_of_rank')}" in messages("parameters")


def test_trainer_seeds_all_ranks_alike():
    first, second = re.findall(r"SAID next random number (\S+)", messages("parameters"))
    assert first == second


def test_two_forward_passes_through_batch_norm_are_no_error_any_more():
    assert messages("parameters").count("SAID two forward passes and a backward pass") == 2


def test_an_all_gather_of_other_lengths_ends_the_process():
    assert error("mismatch") in messages("lengths")


# Compression


def test_each_compression_trains_and_16_bits_change_the_loss_little():
    printed = run("data_parallel/compression.py", processes=2).ranks[0].stdout
    found = dict(re.findall(r"(.+): loss (\S+)", printed))
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
    lines = run("data_parallel/allreduce_speed.py", processes=2).ranks[0].stdout.splitlines()
    found = [re.fullmatch(r"(\d+) MB on 2 processes: ([\d.]+) ms, ([\d.]+) GB/s", line) for line in lines]
    assert len(found) == 3
    for match in found:
        megabytes, milliseconds, speed = map(float, match.groups())
        assert speed == pytest.approx(megabytes / milliseconds, rel=0.15, abs=0.01)  # 2(n-1)/n is 1


def test_the_program_predicts_what_the_page_shows():
    _, shown = records.find(records.load_all(ROOT / "results"), "data_parallel", "predicted", "tables")[0]
    predicted = [(worst, best) for _, worst, best in shown["rows"]]
    printed = run("data_parallel/worth_it.py").stdout
    said = [tuple(map(float, pair)) for pair in re.findall(r": ([\d.]+)x to ([\d.]+)x", printed)]
    assert said == [pytest.approx(predicted[row], abs=0.006) for row in (0, 2, 3)]  # as it is, accumulation, 16 bits
    speedup = runpy.run_path(str(FOLDER / "worth_it.py"))["speedup"]
    example = {"parameters": 124e6, "seconds_alone": 0.050, "link": 6e9}
    changes = [{}, {"seconds_alone": 0.2}, {"accumulation": 4}, {"gradient_bytes": 2}, {"link": 50e9}]
    for pair, changed in zip(predicted, changes, strict=True):
        assert speedup(**example | changed) == pytest.approx(pair)
    assert math.isclose(speedup(1, 1, 1e12)[0], 2, rel_tol=1e-9)  # no communication: twice


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


def test_a_stream_is_dealt_out_by_shards_where_there_are_enough_and_unevenly_where_they_do_not_divide():
    said = re.findall(r"SAID shards (\d) dispatch (\w+) rank (\d) (\[.*?\])", messages("streams"))
    rows = {(shards, dispatch, rank): ast.literal_eval(got) for shards, dispatch, rank, got in said}
    assert [len(rows["3", "False", rank]) for rank in "01"] == [8, 4]  # one rank waits for the other
    assert [len(rows["3", "True", rank]) for rank in "01"] == [6, 6]
    assert [rows["4", "False", rank] for rank in "01"] == [[*range(6)], [*range(6, 12)]]
    assert rows["1", "False", "0"] == [0, 1, 4, 5, 8, 9]  # every rank reads the whole, and keeps its part


def test_a_prepared_schedule_advances_once_per_process_and_trainer_prepares_none(tmp_path):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))])
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: step)
    optimizer.step()
    with mock.patch("accelerate.scheduler.AcceleratorState", return_value=mock.Mock(num_processes=4)):
        AcceleratedScheduler(schedule, mock.Mock(step_was_skipped=False)).step()
    assert schedule.last_epoch == 4
    rows = [{"input_ids": torch.ones(4, dtype=torch.long), "labels": torch.tensor(0)}] * 2
    trainer = Trainer(model=tiny_bert(), args=Arguments(tmp_path, use_cpu=True, max_steps=1), train_dataset=rows)
    trainer.train()
    assert not isinstance(trainer.lr_scheduler, AcceleratedScheduler)


def test_gather_counts_the_repeated_rows_and_gather_for_metrics_does_not(tmp_path):
    printed = run("data_parallel/accelerate_loop.py", processes=2).stdout
    assert "10 rows: gather gives 16, gather_for_metrics gives 10" in printed
    trainer = Trainer(model=tiny_bert(), args=Arguments(tmp_path, use_cpu=True, report_to=[]))
    assert trainer.gather_function.func == trainer.accelerator.gather_for_metrics


def test_with_join_ranks_of_uneven_length_end_and_without_it_they_hang():
    joined, trap = (run("data_parallel/uneven.py", *how, processes=2, check=not how) for how in ([], ["trap"]))
    for ended in (joined, trap):
        assert [rank.stdout.strip() for rank in ended.ranks] == [f"rank {n}: {3 + n} batches, done" for n in range(2)]
    assert timed_out(trap), trap.stderr


# Hangs


def test_a_collective_of_rank_0_alone_hangs_and_one_of_all_ranks_does_not():
    right, trap = (run("data_parallel/rank_zero.py", *how, processes=2, check=not how) for how in ([], ["trap"]))
    assert right.ranks[0].stdout.strip() == trap.ranks[0].stdout.strip() == "loss 1.5"
    assert timed_out(trap), trap.stderr


def test_padding_gathers_other_lengths_and_an_all_reduce_of_them_is_no_error_on_rank_0():
    gathered = "[1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 2.0]"
    padded, trap = (run("data_parallel/shapes.py", *how, processes=2, check=not how) for how in ([], ["trap"]))
    assert [rank.stdout.strip() for rank in padded.ranks] == [f"rank 0: {gathered}", f"rank 1: {gathered}"]
    assert trap.ranks[0].stdout.splitlines() == [f"rank 0: {gathered}", "rank 0: [3.0, 3.0, 3.0] and no error"]
    assert trap.ranks[1].stdout.strip() == f"rank 1: {gathered}"
    assert trap.returncode
    assert error("closed") in trap.ranks[1].stderr or "Read error" in trap.ranks[1].stderr


# What readers ask


def test_a_model_spread_by_device_map_is_refused_in_a_distributed_mode():
    spread = torch.nn.Linear(2, 2)
    spread.hf_device_map = {"0": 0, "1": 1}
    accelerator = Accelerator(cpu=True)
    accelerator.state.distributed_type = DistributedType.MULTI_CPU
    try:
        with pytest.raises(ValueError) as caught:
            accelerator.prepare(spread)
    finally:
        AcceleratorState._reset_state(True)
    assert f"ValueError: {caught.value}" == error("device_map")


def test_qlora_under_ddp_has_a_4_bit_copy_on_each_rank():
    printed = run("data_parallel/quantized.py", processes=2).ranks[0].stdout
    assert "distributed: 2 copies in torch.uint8" in printed.splitlines()


def test_an_expert_without_tokens_leaves_no_parameter_without_a_gradient():
    config = Qwen3MoeConfig(
        vocab_size=50, hidden_size=16, intermediate_size=16, moe_intermediate_size=8, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=2, head_dim=8, num_experts=8, num_experts_per_tok=1,
    )  # fmt: skip
    model = AutoModelForCausalLM.from_config(config).train()
    ids = torch.tensor([[1, 2]])  # two tokens cannot reach eight experts
    model(input_ids=ids, labels=ids).loss.backward()
    assert not [name for name, parameter in model.named_parameters() if parameter.grad is None]
    experts = dict(model.named_parameters())["model.layers.0.mlp.experts.down_proj"].grad
    assert len(experts) == 8 and any(not expert.any() for expert in experts)
