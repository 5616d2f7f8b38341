"""The training programs of many pages at the number of ranks that the pages talk about, and killed at another moment than a save.

Two nodes of 8 GPUs are 16 ranks: more than there are rows in the small batches of the programs. With 3 ranks the rows do not
divide. Whatever the number, the losses are those of one process.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from programs import SNIPPETS, run
from torch.distributed.checkpoint import FileSystemReader
from torch.utils.data import DataLoader, DistributedSampler
from transformers import AutoModelForCausalLM, LlamaConfig, set_seed

TOLERANCE = 1e-4
KILLER = Path(__file__).with_name("ranks") / "killed"


def losses(text):
    return {int(step): float(loss) for step, loss in re.findall(r"step (\d+) loss ([\d.]+)", text)}


def of_a_batch(size, steps=4):
    """{step: loss} of the programs of snippets/sharding with a batch of so many rows."""
    set_seed(0)
    config = LlamaConfig(hidden_size=128, intermediate_size=352, num_hidden_layers=4, num_attention_heads=4, vocab_size=1000)
    model = AutoModelForCausalLM.from_config(config).train()
    batch = torch.randint(0, 1000, (size, 64), generator=torch.Generator().manual_seed(1))
    return trained(model, [batch] * steps, clip=1.0)


def of_two_epochs():
    """{step: loss} of snippets/data_parallel/ddp.py: 48 rows do not divide into batches of 32."""
    torch.manual_seed(0)
    config = LlamaConfig(vocab_size=1000, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=2)
    rows = torch.randint(0, 1000, (48, 32))
    model = AutoModelForCausalLM.from_config(config)
    sampler, batches = DistributedSampler(rows, num_replicas=1, rank=0, seed=0), []
    for epoch in range(2):
        sampler.set_epoch(epoch)
        batches += DataLoader(rows, batch_size=32, sampler=sampler)
    return trained(model, batches)


def trained(model, batches, clip=None):
    optimizer, found = torch.optim.AdamW(model.parameters(), lr=1e-3), {}
    for step, batch in enumerate(batches):
        loss = model(input_ids=batch, labels=batch).loss
        loss.backward()
        if clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        optimizer.zero_grad()
        found[step] = loss.item()
    return found


# Ranks


@pytest.mark.parametrize("ranks", [3, 16])
@pytest.mark.parametrize(
    "name", ["sharding/fsdp2.py", "sharding/zero1.py", "sharding/offload.py", "sharding/load_broadcast.py"]
)
def test_a_batch_of_8_rows_gives_the_same_losses_where_it_does_not_divide_and_where_ranks_have_none(name, ranks):
    assert losses(run(name, processes=ranks).ranks[0].stdout) == pytest.approx(of_a_batch(8), abs=TOLERANCE)


def test_two_nodes_of_8_gpus_train_by_hsdp_as_one_process_does():
    made = run("sharding/hsdp.py", 8, processes=16)
    assert losses(made.ranks[0].stdout) == pytest.approx(of_a_batch(8), abs=TOLERANCE)
    assert "rank 15 holds" in made.ranks[15].stdout


def test_with_deepspeed_the_batch_grows_with_the_ranks():
    made = run("sharding/zero.py", 2, processes=16, timeout=900)
    assert losses(made.ranks[0].stdout) == pytest.approx(of_a_batch(64), abs=TOLERANCE)


def test_with_trainer_the_batch_of_a_model_that_was_sharded_as_it_was_loaded_grows_with_the_ranks():
    made = run("sharding/load_sharded.py", processes=16)
    assert losses(made.ranks[0].stdout) == pytest.approx(of_a_batch(64), abs=TOLERANCE)


@pytest.mark.parametrize("ranks", [2, 8, 16])
def test_ddp_steps_at_the_end_of_an_epoch_with_what_is_left_of_it(ranks):
    assert losses(run("data_parallel/ddp.py", processes=ranks).ranks[0].stdout) == pytest.approx(of_two_epochs(), abs=TOLERANCE)


@pytest.mark.parametrize(
    "name, last",
    [
        ("data_parallel/accelerate_loop.py", r"gather_for_metrics gives 10$"),
        ("data_parallel/compression.py", r"^PowerSGD: loss"),
        ("data_parallel/uneven.py", r"^rank 0: 3 batches, done"),
        ("data_parallel/shapes.py", r"^rank 0: \[1.0, 1.0, 1.0, 2.0"),
        ("data_parallel/rank_zero.py", r"^loss 8.5"),
        ("launching/train.py", r"^step 7 loss"),
        ("sharding/trainer_fsdp.py", r"^rank 0: DistributedDataParallel"),
    ],
)
def test_the_other_programs_run_to_their_end_on_16_ranks(name, last):
    assert re.search(last, run(name, processes=16).ranks[0].stdout, re.M)


# Killed


def killed(name, *arguments, update, folder, processes=1, start=None):
    """The folder of a program whose last rank is killed in this update, counted from 1."""
    shutil.copytree(start, folder) if start else folder.mkdir()
    shutil.copy(SNIPPETS / name, folder)
    environment = os.environ | {"PYTHONPATH": str(KILLER), "OMP_NUM_THREADS": "1", "KILL_IN": str(update), "KILL_RANK": str(processes - 1)}
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)] if processes > 1 else []
    command = [sys.executable, *torchrun, Path(name).name, *arguments]
    made = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)
    assert made.returncode, made.stdout + made.stderr
    return folder


def average(folder, step):
    return torch.load(folder / "out" / f"checkpoint-{step}" / "average.pt")


def test_trainer_goes_on_with_the_average_of_the_weights_it_had_when_it_was_killed(tmp_path):
    whole = run("optimizers/ema.py")
    stopped = killed("optimizers/ema.py", update=11, folder=tmp_path / "stopped")
    assert [path.parent.name for path in stopped.glob("out/*/average.pt")] == ["checkpoint-8"]
    again = run("optimizers/ema.py", start=stopped)
    found, expected = average(again.folder, 16), average(whole.folder, 16)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=0, atol=1e-6)
    (again.folder / "out" / "checkpoint-16" / "average.pt").unlink()  # as if it was killed just now: the one before is whole
    last = run("optimizers/ema.py", start=again.folder)
    for name, value in expected.items():
        torch.testing.assert_close(average(last.folder, 16)[name], value, rtol=0, atol=1e-6)


def test_an_average_of_shards_that_is_killed_goes_on_as_if_nothing_had_been(tmp_path):
    def printed(made):
        return float(re.search(r"loss with the average ([\d.]+)", made.ranks[0].stdout)[1])

    first = run("sharding/ema.py", processes=2)
    second = run("sharding/ema.py", processes=2, start=first.folder)
    stopped = killed("sharding/ema.py", update=3, processes=2, start=first.folder, folder=tmp_path / "stopped")
    assert {path.parent.name for path in stopped.glob("checkpoint/*/.metadata")} == {"4"}
    saved = FileSystemReader(stopped / "checkpoint" / "4").read_metadata().state_dict_metadata
    of = {kind: {name.partition(".")[2] for name in saved if name.startswith(kind)} for kind in ("average.", "model.")}
    assert of["average."] and of["average."] <= of["model."]
    again = run("sharding/ema.py", processes=4, start=stopped)  # on another number of ranks, too
    assert printed(again) == pytest.approx(printed(second), abs=TOLERANCE)
    assert printed(second) < printed(first)


def test_sharded_weights_and_optimizer_that_are_killed_between_saves_go_on_from_the_last_save(tmp_path):
    first = run("sharding/checkpoint.py", processes=2)
    stopped = killed("sharding/checkpoint.py", update=2, processes=2, start=first.folder, folder=tmp_path / "stopped")
    again = run("sharding/checkpoint.py", processes=4, start=stopped)
    found = losses(first.ranks[0].stdout) | losses(again.ranks[0].stdout)
    assert found == pytest.approx(of_a_batch(8), abs=TOLERANCE)


def test_the_program_of_every_launcher_goes_on_from_its_last_save_when_a_rank_is_killed(tmp_path):
    whole = losses(run("launching/train.py", processes=2).ranks[0].stdout)
    stopped = killed("launching/train.py", update=6, processes=2, folder=tmp_path / "stopped")
    again = losses(run("launching/train.py", processes=2, start=stopped).ranks[0].stdout)
    assert list(again) == [4, 5, 6, 7]
    assert again == pytest.approx({step: whole[step] for step in again}, abs=1e-6)


def test_trainer_on_two_ranks_goes_on_at_its_place_in_the_data_when_a_rank_is_killed(tmp_path):
    def state(made, step):
        return torch.load(made.folder / "run" / f"checkpoint-{step}" / "optimizer.pt")["state"]

    whole = run("launching/trainer_resume.py", "run", processes=2)
    stopped = killed("launching/trainer_resume.py", "run", update=4, processes=2, folder=tmp_path / "stopped")
    (stopped / "run" / "checkpoint-9").mkdir()  # of a save that was cut short: the newest folder, and no whole one
    again = run("launching/trainer_resume.py", "run", processes=2, start=stopped)
    for number, moments in state(whole, 4).items():
        torch.testing.assert_close(state(again, 4)[number]["exp_avg"], moments["exp_avg"], rtol=1e-4, atol=1e-8)


@pytest.mark.parametrize("name", ["sharding/checkpoint.py", "recipes/finetune_14b.py"])
def test_a_save_ends_the_program_on_a_node_that_does_not_see_what_rank_0_wrote(name, tmp_path, monkeypatch):
    (line,) = re.findall(r"^ *(assert Path\(.*)$", (SNIPPETS / name).read_text(), re.M)
    monkeypatch.chdir(tmp_path)
    known = {"Path": Path, "folder": "checkpoint/2", "step": 1}
    with pytest.raises(AssertionError, match="all nodes must share"):
        exec(line, known)
    for folder in ("checkpoint/2", "checkpoints/2"):
        Path(folder).mkdir(parents=True)
        Path(folder, ".metadata").touch()
    exec(line, known)
