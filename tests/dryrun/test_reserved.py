"""The allocator's replay: its rules, the storages of deep models, and what an H100 and an H200 reserved."""

import statistics

import pytest

from dryrun import Cluster, Job
from dryrun.answer.answer import of_job
from dryrun.cost import device_memory, timing
from dryrun.cost.reserved import replay
from dryrun.step import profiles, storage_log
from dryrun.step.allocator import MIB, Allocator, OutOfMemory
from dryrun.step.storage_log import MADE, Storages
from dryrun.step.workload import Workload
from dryrun.tables.hardware import Accelerator, GiB
from dryrun.tracing import step_trace
from gpu_steps import compared


def test_small_blocks_share_a_segment_of_2_mib_and_middle_ones_one_of_20():
    allocator = Allocator()
    for _ in range(4):
        allocator.take(MIB // 2)
    assert allocator.reserved == 2 * MIB
    allocator.take(5 * MIB)
    allocator.take(6 * MIB)
    assert allocator.reserved == 22 * MIB
    allocator.take(11 * MIB + 1)
    assert allocator.reserved == 34 * MIB  # rounded to 2 MiB


def test_sizes_are_rounded_to_512_bytes():
    allocator = Allocator()
    allocator.take(1)
    allocator.take(513)
    assert allocator.allocated == 512 + 1024


def test_the_smallest_free_block_that_is_large_enough_is_taken_and_split():
    allocator = Allocator()
    large, keep, small = allocator.take(40 * MIB), allocator.take(12 * MIB), allocator.take(30 * MIB)
    allocator.give(large)
    allocator.give(small)
    taken = allocator.take(20 * MIB)
    assert taken.address == small.address and allocator.reserved == 82 * MIB
    assert allocator.take(10 * MIB).address == taken.address + 20 * MIB
    assert keep.size == 12 * MIB


def test_free_neighbors_are_joined():
    allocator = Allocator()
    blocks = [allocator.take(4 * MIB) for _ in range(5)]
    for block in (blocks[1], blocks[3], blocks[2]):
        allocator.give(block)
    assert allocator.take(12 * MIB).address == blocks[1].address and allocator.reserved == 20 * MIB


def test_a_full_gpu_gives_back_segments_that_hold_nothing_and_gaps_stay():
    allocator = Allocator(limit=100 * MIB)
    allocator.give(allocator.take(60 * MIB))
    allocator.take(80 * MIB)
    assert allocator.reserved == 80 * MIB
    gaps = Allocator(limit=40 * MIB)
    blocks = [gaps.take(5 * MIB) for _ in range(8)]
    for block in blocks[::2]:
        gaps.give(block)
    with pytest.raises(OutOfMemory):  # 20 MiB are free, in pieces
        gaps.take(8 * MIB)


@pytest.mark.parametrize("number", [5, pytest.param(8, marks=pytest.mark.nightly)])
@pytest.mark.parametrize(
    ("model", "options"),
    [("qwen3-0.6b", {"rank": 16, "targets": "all linear", "checkpointing": 1}), ("gpt2", {})],  # GPT-2's first layer frees what no other does
)
def test_the_storages_of_a_deep_model_follow_from_two_shallow_ones(model, options, number):
    workload = Workload(model, 2, 70, **options)
    model_class, config = step_trace.config_of(model, workload.length)
    low, high, whole = (
        step_trace.recorded(workload, model_class, step_trace.with_layers(config, layers), layers).traced.memory.storages
        for layers in (2, 4, number)
    )
    assert storage_log.deep(low, high, (2, 4), number) == whole


def test_where_layers_differ_every_layer_is_traced(monkeypatch):
    """Every fourth layer of SmolLM3 has no rotary embedding."""
    workload = Workload("smollm3-3b", 1, 64)
    model_class, config = step_trace.config_of(workload.model, workload.length)
    few = step_trace.with_layers(config, 8)
    monkeypatch.setattr(step_trace, "config_of", lambda *asked: (model_class, few))
    whole = step_trace.recorded(workload, model_class, few, 8).traced.memory
    assert step_trace.run(workload).memory.storages == whole.storages


def in_a_row(sizes):
    """A step that makes an activation in each layer, and frees them in reverse."""
    number = len(sizes)
    events = [MADE] * (number + 2) + [*range(number + 1, 1, -1)]
    made = [(100, "parameters"), (1, "inputs"), *((size, "activations") for size in sizes)]
    return Storages(made, events, [number + 2, number + 2 + number // 2, 2 * number + 2, 2 * number + 2])


def test_layers_that_alternate_in_size_are_no_line():
    assert storage_log.deep(in_a_row([10, 10]), in_a_row([10] * 4), (2, 4), 8) == in_a_row([10] * 8)
    with pytest.raises(storage_log.Unlike, match="layers differ in what they run"):
        storage_log.deep(in_a_row([10, 20]), in_a_row([10, 20, 10, 20]), (2, 4), 8)


PLAIN = Storages([(40 * MIB, "parameters"), (30 * MIB, "activations"), (40 * MIB, "gradients")], [MADE, MADE, MADE, 1, 2], [2, 3, 4, 5])


def test_a_job_runs_out_of_memory_below_what_it_holds():
    most = replay(PLAIN).reserved
    assert replay(PLAIN, limit=most).reserved == most
    assert replay(PLAIN, limit=most - 1) is None


def in_gaps():
    """Twice as large a block as was freed: without a limit both segments stay."""
    made = [(40 * MIB, "parameters"), (30 * MIB, "activations"), (50 * MIB, "activations"), (40 * MIB, "gradients")]
    return Storages(made, [MADE, MADE, 1, MADE, MADE, 2, 3], [4, 5, 6, 7])


def test_a_job_that_needs_its_gaps_back_fits_by_giving_them_back():
    free = replay(in_gaps())
    assert replay(in_gaps(), limit=free.reserved - 10 * MIB).reserved < free.reserved


@pytest.mark.parametrize("storages", [PLAIN, in_gaps()])
def test_a_gpu_that_has_what_is_reserved_changes_nothing_and_one_without_what_is_asked_for_is_too_small(storages):
    """So other sizes need no replay of their own (device_memory.replayed)."""
    free = replay(storages)
    assert free.asked <= free.allocated <= free.reserved
    assert replay(storages, limit=free.reserved) == free
    assert replay(storages, limit=free.asked - 1) is None


@pytest.mark.parametrize("options", [{}, {"method": "lora", "checkpointing": True}])
def test_a_gpu_of_any_size_is_answered_as_a_replay_on_it_answers(options, monkeypatch):
    job = Job("qwen3-0.6b", length=512, **options)
    now, constants = of_job(job, Cluster("rtx-3060-12")), timing.fitted()["memory"]
    jobs, replayed = [], device_memory._replayed
    monkeypatch.setattr(device_memory, "_replayed", lambda *asked: jobs.append(asked) or replayed(*asked))
    ask = lambda: device_memory.replayed(now.traced, now.workload, now.setting, constants)  # noqa: E731
    ask()
    storages, accumulation, factors, changed, workspace, _ = jobs[0]
    step = {"accumulation": accumulation, "factors": dict(factors), "changed": dict(changed), "workspace": workspace}
    free = replay(storages, **step)
    middle = (free.asked + free.reserved) // 2
    for limit in (free.asked // 2, free.asked - 1, free.asked, middle, free.reserved - 1, free.reserved, 2 * free.reserved):
        monkeypatch.setattr(Accelerator, "usable", property(lambda _, size=limit: size + constants["context"] * 2**30 + 0.5))
        assert ask() == (replay(storages, **step, limit=limit) or free), limit


def test_trained_weights_alone_are_widened():
    made = [(40 * MIB, "parameters"), (2 * MIB, "parameters"), (30 * MIB, "activations"), (2 * MIB, "gradients")]
    storages = Storages(made, [MADE, MADE, MADE, MADE, 2, 3], [3, 4, 5, 6])
    wide = replay(storages, factors={"parameters": 1, "trained": 2, "gradients": 2})
    assert wide.allocated - replay(storages).allocated == 4 * MIB


def test_logits_that_a_fused_loss_does_not_make_are_left_out_and_a_weight_of_their_size_is_not():
    made = [(40 * MIB, "parameters"), (40 * MIB, "activations"), (30 * MIB, "activations"), (40 * MIB, "gradients")]
    storages = Storages(made, [MADE, MADE, MADE, MADE, 1, 2, 3], [3, 4, 6, 7])
    assert replay(storages).allocated - replay(storages, changed=dict.fromkeys(storages.logits(40 * MIB), 0)).allocated == 40 * MIB


@pytest.mark.parametrize("job", [{"model": "llama3.2-1b"}, {"model": "qwen3-8b", "method": "qlora"}], ids=["full", "frozen weights"])
def test_a_fused_loss_saves_as_much_where_logits_have_the_size_of_the_embedding(job):
    """2,048 tokens: logits of 2 bytes are as large as the 16-bit embedding of a width of 2,048, those of 4 as that of 4,096."""

    def allocated(length):
        asked = of_job(Job(**job, length=length, checkpointing=True, fused_loss=True), Cluster("h100-sxm5"))
        return device_memory.replayed(asked.traced, asked.workload, asked.setting, timing.fitted()["memory"]).allocated

    assert allocated(2048) == pytest.approx((allocated(2040) + allocated(2056)) / 2, rel=0.01)


def test_gradients_of_later_micro_batches_are_added_to_those_of_the_first():
    assert replay(PLAIN, accumulation=2).allocated - replay(PLAIN).allocated == 40 * MIB


def test_ddp_holds_its_buckets_all_the_time_and_gradients_that_are_views_only_until_they_are_copied():
    made = [(40 * MIB, "parameters"), (90 * MIB, "activations"), *[(20 * MIB, "gradients")] * 4]
    events = [MADE, MADE, MADE, MADE, MADE, MADE, 1, 2, 3, 4, 5]
    several = Storages(made, events, [2, 3, 7, 11])
    alone, apart, views = (replay(several, buckets=buckets).allocated for buckets in ("", "apart", "views"))
    assert apart - alone == 80 * MIB and views - alone == 20 * MIB


def test_buckets_are_filled_in_the_order_in_which_gradients_come():
    made = [(40 * MIB, "parameters"), *[(10 * MIB, "gradients")] * 7]
    step = Storages(made, [MADE] * 8 + [*range(1, 8)], [1, 4, 8, 15])
    # 10 + 30 + 30 MiB in segments of their own, and one gradient at a time until it is copied
    assert replay(step, buckets="views").reserved == replay(step).reserved + 10 * MIB


@pytest.mark.parametrize("strategy", ["ddp", "fsdp2"])
def test_the_upper_end_of_many_gpus_has_what_a_driver_showed_there(strategy):
    constants = timing.fitted()["memory"]
    job = Job("qwen3-0.6b", length=512)
    now = of_job(job, Cluster("rtx-4090", 2), strategy)
    high = [
        device_memory.needed(now.traced, now.workload, now.setting, constants | {"context_many": size}).high
        for size in (constants["context"], constants["context_many"])
    ]
    assert high[1] - high[0] == pytest.approx((constants["context_many"] - constants["context"]) * GiB, rel=0.01)


def test_a_step_that_fits_because_caches_are_given_back_surely_fits_where_it_would_on_a_smaller_gpu_too(monkeypatch):
    constants = timing.fitted()["memory"]
    now = of_job(Job("qwen2.5-1.5b", length=2048, checkpointing=True), Cluster("rtx-4090"))
    usable = 2 * now.needed.expected
    monkeypatch.setattr(Accelerator, "usable", property(lambda _: usable))
    peak = lambda: device_memory.replayed(now.traced, now.workload, now.setting, constants)  # noqa: E731
    free, context = peak().reserved, constants["context"] * GiB
    fits = {}
    for size in range(110, 75, -1):  # percent of what is reserved where there is room
        usable = size / 100 * free + context + 1
        smaller = (usable - context) / device_memory.REPLAY_MARGIN
        runs = peak().reserved <= usable - context
        fits[size] = device_memory.needed(now.traced, now.workload, now.setting, constants).fits(usable)
        usable = smaller + context + 1
        assert fits[size] == (peak().reserved <= smaller + 1) if runs else not fits[size], size
    assert fits[102] and not fits[99]


def _measured(file, gpu):
    for row in compared.read(compared.MEASURED / file, gpu)[2]:
        job = Job(row.step.model, batch=row.step.batch, length=row.step.length, **row.step.of_job) if row.step.kind == "train" else None
        if job and row.ran and not job.compiled and profiles.profiled(job.workload()):
            asked = of_job(job, Cluster(gpu))
            yield row, device_memory.replayed(asked.traced, asked.workload, asked.setting, timing.fitted()["memory"])


@pytest.mark.parametrize(("file", "gpu"), [("nvidia-h100-80gb-hbm3.jsonl", "h100-sxm5"), ("nvidia-h200.jsonl", "h200-sxm")])
def test_what_our_gpus_reserved_for_full_fine_tuning_is_replayed(file, gpu):
    off = [abs(peak.reserved / row.measured["reserved"] - 1) for row, peak in _measured(file, gpu) if "method" not in row.step.options]
    assert statistics.median(off) < 0.015 and max(off) < device_memory.REPLAY_MARGIN - 1
