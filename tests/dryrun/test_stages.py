"""Stages of a pipeline, and the virtual ones that are interleaved in them."""

import json
from dataclasses import replace

import pytest

from dryrun import Cluster, Job, plan
from dryrun.cost import communication
from dryrun.cost.device_memory import tensors
from dryrun.cost.runs import run_of
from dryrun.cost.setting import Setting
from dryrun.cost.traces import traced
from dryrun.door import command
from dryrun.step.workload import Workload
from fitting import published, rows

FOUR = Setting(gpu="h100-sxm5", gpus=4, gpus_per_node=4, pipeline=4, accumulation=8)


def test_interleaved_stages_wait_for_a_part_of_a_stage():
    plain, interleaved = communication.bubble(FOUR), communication.bubble(replace(FOUR, virtual_stages=4))
    assert plain == 1 + 3 / 8 and interleaved == 1 + 3 / (8 * 4)


def test_interleaved_stages_take_less_time_and_hold_more_activations():
    workload = Workload("llama3.2-1b", 1, 4096)
    trace = traced(workload)
    two = replace(FOUR, virtual_stages=2)
    assert run_of(trace, workload, two).facts.bubble < run_of(trace, workload, FOUR).facts.bubble
    plain, interleaved = (tensors(trace, workload, setting)["activations"] for setting in (FOUR, two))
    assert interleaved > plain


def test_the_kernels_of_a_layer_are_shared_out_even_where_they_move_more_than_the_logits():
    workload = Workload("llama2-7b", 1, 2048)  # a wide layer beside a small vocabulary
    trace, logits = traced(workload), 2 * 2048 * 32_000
    wide = {kernel: count for kernel, count in trace.kernels.counts.items() if kernel.kind == "memory" and kernel.bytes > logits and count >= 32}
    assert wide
    uneven = communication.of_rank(wide, replace(FOUR, even=False), trace, workload)
    assert sum(uneven.values()) == pytest.approx(sum(wide.values()) / 4)


def test_what_stages_send_over_a_network_grows_with_them():
    workload = Workload("llama3.2-1b", 1, 4096)
    across = replace(FOUR, gpus_per_node=1, network=12.5e9)
    one, two = (communication.of_step(traced(workload), workload, setting).alone for setting in (across, replace(across, virtual_stages=2)))
    assert two == pytest.approx(2 * one)


@pytest.mark.parametrize(
    "ask, said",
    [
        (lambda: Setting("l4", virtual_stages=2), "virtual_stages=2: only stages of a pipeline are divided"),
        (lambda: Setting("l4", gpus=2, pipeline=2, virtual_stages=0), "virtual_stages=0: give a whole number, 1 or more"),
        (lambda: run_of(traced(Workload("llama3.2-1b", 1, 512)), Workload("llama3.2-1b", 1, 512), replace(FOUR, virtual_stages=5)),
         "4 stages have 20, and the model has 16 layers: give virtual_stages=4 or fewer"),
        (lambda: plan(Job("llama3.2-1b"), Cluster("h100-sxm5", 4), virtual_stages=9), "two stages share 16 layers: take 8 or fewer"),
        (lambda: plan(Job("llama3.2-1b"), Cluster("h100-sxm5", 4), virtual_stages="2"), "give a whole number, 1 or more"),
    ],
)  # fmt: skip
def test_stages_that_cannot_be_are_refused_in_one_line(ask, said):
    with pytest.raises(ValueError, match=said):
        ask()


def test_a_published_row_runs_the_virtual_stages_that_it_states():
    stated = [row for row in published.rows() if (row.get("parallel") or {}).get("vp", 1) > 1 and not row["parallel"].get("ep", 1) > 1]
    alone = [row for row in stated if row["parallel"].get("cp", 1) == 1 and row["parallel"]["pp"] > 1]
    assert alone
    for row in alone:
        assert rows.run_of(row)[1].virtual_stages == row["parallel"]["vp"]


def test_a_plan_asked_for_virtual_stages_waits_less(capsys):
    found = []
    for more in ([], ["--virtual-stages", "2"]):
        asked = ["plan", "llama3.2-1b", "--gpu", "h100-sxm5", "--gpus", "4", "--length", "1024", "--only", "PP 4", "--json", *more]
        assert command.main(asked) == 0
        found.append(json.loads(capsys.readouterr().out)[0]["seconds"])
    assert found[1] < found[0]
