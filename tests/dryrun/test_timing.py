"""Predicted seconds: judged on published rows that were not fitted, and wrong as soon as a constant, a GPU or a row is."""

import contextlib
import dataclasses
import json
import math

import numpy as np
import pytest

from dryrun import Cluster, Job
from dryrun.answer.answer import of_job
from dryrun.cost import communication, decoding, roofline, runs, timing
from dryrun.cost.setting import Setting
from dryrun.cost.traces import traced
from dryrun.step.kernels import Kernel
from dryrun.step.workload import Workload
from fitting import fit, held_out, judged, published, validate, without
from fitting.rows import run_of

# A few workloads that were measured on many GPUs: training of BERT, of Mistral with and without QLoRA, decoding of Llama.
FEW = {
    ("bert-base-qa", 320), ("bert-base-qa", 172), ("bert-large-qa", 112), ("bert-large-qa", 64), ("mistral-7b", 8), ("llama3-8b", 1)
}  # fmt: skip
KINDS = {"train-1gpu", "train-ddp", "train-qlora", "decode-llamacpp"}
UNSEEN_MEDIAN = 8  # percent; the wrong models below miss it
A100 = "a100-sxm4-80"


pytestmark = pytest.mark.usefixtures("own_traces")


@pytest.fixture(scope="module")
def rows():
    return [
        row
        for row in published.rows()
        if (row["model"], row["batch"]) in FEW and row["klass"] in KINDS and row["usable"]
    ]


@pytest.fixture(scope="module")
def data(rows):
    return held_out.predictable(rows)


@pytest.fixture(scope="module")
def halves(data):
    """(constants fitted on every second row, which rows they have not seen)."""
    unseen = np.arange(len(data.rows)) % 2 == 1
    return fit.fit(data, ~unseen), unseen


def off(data, constants, chosen):
    """Median error in percent."""
    return validate.percent(data.errors(constants)[chosen])[0]


def test_a_row_that_takes_long_to_trace_is_said_before_the_next(rows, monkeypatch, capsys):
    monkeypatch.setattr(held_out, "QUIET", -1)
    held_out.predictable(rows[:2])
    assert capsys.readouterr().err.splitlines() == [
        "0 of 2 rows; a step without a profile is traced once and kept",
        "1 of 2 rows; a step without a profile is traced once and kept",
    ]


def test_constants_of_one_half_predict_the_other(data, halves):
    constants, unseen = halves
    assert unseen.sum() > 40
    assert off(data, constants, unseen) < UNSEEN_MEDIAN


@pytest.mark.parametrize(
    "name, factor, klass",
    [("product", 0.6, "QLoRA"), ("bandwidth", 0.5, "training, one GPU"), ("streaming", 0.6, "decode")],
)
def test_a_changed_constant_is_seen(data, halves, name, factor, klass):
    constants, unseen = halves
    mine = unseen & (np.array(data.classes) == klass)
    assert off(data, constants, mine) < UNSEEN_MEDIAN
    assert off(data, {**constants, name: constants[name] * factor}, mine) > UNSEEN_MEDIAN


def test_a_doubled_bandwidth_is_seen(rows, halves, monkeypatch):
    honest = roofline.processor

    def doubled(name):
        gpu = honest(name)
        return dataclasses.replace(gpu, bandwidth=2 * gpu.bandwidth)

    for module in (runs, timing, communication, decoding):
        monkeypatch.setattr(module, "processor", doubled)
    assert off(held_out.predictable(rows), *halves) > UNSEEN_MEDIAN


def test_a_row_with_a_wrong_unit_is_seen(data, halves, rows):
    constants, _ = halves
    wrong = {**rows[0], "id": "wrong", "seconds": rows[0]["seconds"] / 1000}
    (error,) = held_out.predictable([wrong]).errors(constants)
    assert abs(error) > math.log(100)


def test_a_step_on_more_gpus_than_were_ever_published_is_not_judged():
    assert max(row["gpus"] for row in published.rows() if row["usable"]) == timing.MOST_GPUS
    job, judged = Job("llama3-8b", precision="mixed"), []
    for gpus in (timing.MOST_GPUS, 2 * timing.MOST_GPUS):
        judged.append(of_job(job, Cluster("h100-sxm", gpus=gpus, gpus_per_node=8)).prediction.judged)
    assert judged == [True, False]


def test_a_row_is_judged_by_constants_of_other_folds(data):
    groups = {held_out.fold_of(row) for row in data.rows}
    assert groups == set(range(held_out.FOLDS))
    constants = {str(fold): {**fit.START, "product": 0.2 if fold else 1.0} for fold in groups}
    errors, _ = validate.held_out(data, constants, held_out.fold_of)
    fast = data.errors({**fit.START, "product": 1.0})
    mine = np.array([held_out.fold_of(row) == 0 for row in data.rows])
    assert (errors[mine] == fast[mine]).all()
    assert not np.allclose(errors[~mine], fast[~mine])


def test_the_file_of_constants_holds_what_the_code_asks_for():
    found = timing.fitted()
    every = [found["constants"], *(each for kind in found["held_out"].values() for each in kind.values())]
    for constants in every:
        assert constants.keys() == fit.START.keys() == fit.MEANING.keys()
        assert all(0 < constants[name] <= 1 for name in fit.AT_MOST_ONE)
    assert set(found["held_out"]) == {"fold", "source", "family"}
    assert {*map(held_out.source_of, published.rows()), held_out.OTHERS} >= set(found["held_out"]["source"])
    assert found["memory"]["high"] >= 1


def one(kernel, gpu=A100, precision="", **constants):
    rows = roofline.rows({kernel: 1}, roofline.processor(gpu), precision)
    return sum(roofline.seconds(rows, {**fit.START, "launch": 0.0, **constants}))


def test_a_large_product_takes_its_flops_over_the_peak():
    n = 108 * 128
    kernel = Kernel("forward", "product", "bfloat16", 2 * n**3, (n, n, n, 1), 6 * n * n, 1)
    assert one(kernel, product=1.0) == pytest.approx(2 * n**3 / 312e12, rel=0.01)
    assert one(kernel, product=0.5) == pytest.approx(2 * one(kernel, product=1.0))


def test_a_stream_takes_its_bytes_over_the_bandwidth_and_a_launch_is_added():
    kernel = Kernel("forward", "memory", "bfloat16", 0, (), 10**9, 1)
    assert one(kernel, bandwidth=1.0) == pytest.approx(1e9 / 2039e9)
    assert one(kernel, bandwidth=1.0, launch=1e-3) == pytest.approx(1e9 / 2039e9 + 1e-3)


def test_what_the_cache_holds_is_not_read_again():
    near = Kernel("forward", "memory", "bfloat16", 0, (), 2 * 10**7, 1, ((10**7, 10**7),))
    far = near._replace(reused=((10**8, 10**7),))
    assert one(near) == pytest.approx(one(far) / 2)


def test_a_product_of_one_tile_more_than_a_wave_takes_two_waves():
    full, more = (roofline.padded((m, 128, 8192, 1), 108, True) for m in (108 * 256, 108 * 256 + 1))
    assert full < more < 2.01 * full


def step(**options):
    return timing.Step(workload := Workload("llama3.2-1b", 1, 1024, **options), traced(workload))


def test_a_prediction_says_what_binds_and_lies_between_low_and_high():
    found = step(compiled=True).on(A100)
    assert found.low < found.seconds < found.high
    assert found.bound == max(found.parts, key=found.parts.get) == "compute"
    assert found.tokens_per_second == pytest.approx(1024 / found.seconds)
    assert 0.05 < found.mfu < 0.8
    assert step().on("h100-sxm5").bound == "launches"
    assert not step().on("h100-sxm5").sure


def test_a_slow_link_binds_a_sharded_step():
    fast, slow = (step(compiled=True).on(A100, gpus=8, link=link).seconds for link in (300e9, 1e9))
    assert slow > 5 * fast
    assert step(compiled=True).on(A100, gpus=8, link=1e9).bound == "communication"


def test_accumulation_hides_the_all_reduce_once_per_step():
    alone = step(compiled=True).on(A100)
    once = step(compiled=True).on(A100, gpus=2, strategy="ddp", link=2e9, accumulation=1)
    often = step(compiled=True).on(A100, gpus=2, strategy="ddp", link=2e9, accumulation=8)
    assert once.seconds > alone.seconds
    assert often.seconds < 8 * once.seconds - 6 * (once.seconds - 1.1 * alone.seconds)


@pytest.mark.parametrize("setting, share", [
    (dict(gpus=1), 0), (dict(gpus=4, strategy="ddp"), 1 / 8), (dict(gpus=4, strategy="fsdp2"), 1),
    (dict(gpus=4, tensor=4), 1), (dict(gpus=4, pipeline=4), 1),
])  # fmt: skip
def test_collectives_slow_the_micro_batches_that_they_run_in(setting, share):
    one = step(compiled=True)
    found = runs.run_of(one.traced, one.workload, Setting(gpu=A100, gpus_per_node=4, accumulation=8, **setting))
    assert found.facts.crowded == share


def test_a_ratio_has_a_band_and_a_compiled_step_is_faster():
    plain, compiled = (timing.training_step("llama3.2-1b", 4, 2048, compiled=each) for each in (False, True))
    value, low, high = timing.ratio(plain, compiled, A100)
    assert low < value < high
    assert 1.05 < value < 2
    assert high / low < compiled.on(A100).high / compiled.on(A100).low * 1.5


def test_decoding_reads_the_weights_once_for_each_token():
    whole = timing.generation("llama3-8b", 128, 256, A100)
    floor = 256 * 2 * 7.5e9 / 2039e9  # without the embedding
    assert floor < whole.seconds < 2 * floor
    small = timing.generation("llama3-8b", 128, 256, A100, weights="int4-128")
    assert whole.seconds / 4 < small.seconds < whole.seconds / 1.8


def test_low_and_high_hold_nine_of_ten():
    errors = list(np.linspace(-0.5, 0.5, 101))
    low, high = timing.factors(errors)
    inside = sum(low <= math.exp(-error) <= high for error in errors)
    assert 90 <= inside <= 94
    assert timing.factors(errors[:5]) == (math.exp(-errors[4]), math.exp(-errors[0]))


@pytest.mark.parametrize(
    "change, message",
    [
        ({"model": "llama4-9b", "config": None}, "did you mean llama"),
        ({"gpu": "rtx-9090"}, "did you mean rtx-"),
        ({"batch": None}, "batch is not stated"),
        ({"batch": 0}, "a whole number from 1"),
        ({"precision": "int3"}, "'int3' is not predicted"),
        ({"config": {"hidden": 10**9, "layers": 2, "heads": 2, "ffn": 8, "vocab": 9}}, "no model is that large"),
        ({"config": {"hidden": 64}}, "layers, heads, ffn, vocab missing"),
    ],
)
def test_a_row_that_cannot_be_predicted_is_one_line_and_the_others_go_on(rows, change, message, tmp_path, capsys):
    bad = {**rows[0], "id": "bad", **change}
    data = held_out.predictable([bad, rows[1]])
    assert len(data.rows) == 1
    assert message in data.problems[0] and "row bad" in data.problems[0]
    assert "\n" not in data.problems[0]


def test_validate_judges_a_file_and_ends_with_the_summary(rows, tmp_path, capsys):
    path = tmp_path / "rows.json"
    new = [row | {"seconds": 1.03 * row["seconds"], "unit": "s/step", "value": 1.03 * row["seconds"]} for row in rows[:6]]
    path.write_text(json.dumps({"schema": "", "rows": [*new, {**rows[0], "id": "odd", "gpu": "rtx-9090"}]}))
    assert validate.main(path) == 0
    printed = capsys.readouterr()
    assert printed.out.splitlines()[-1].startswith("rows 6  median ")
    assert "within low-high" in printed.out.splitlines()[-1]
    assert "odd" in printed.err


def test_a_row_that_is_published_already_judges_nothing_whatever_its_id_and_source(rows, tmp_path, capsys):
    path = tmp_path / "rows.json"
    again = [rows[0] | {"id": "again"}, rows[1] | {"id": "copied", "source": "somebody/else", "model": "google/" + rows[1]["model"]}]
    new = rows[2] | {"seconds": 1.03 * rows[2]["seconds"], "unit": "s/step", "value": 1.03 * rows[2]["seconds"]}
    path.write_text(json.dumps({"schema": "", "rows": [*again, new]}))
    assert validate.main(path) == 0
    printed = capsys.readouterr()
    assert printed.out.splitlines()[-1].startswith("rows 1  median ")
    assert f"row again: it is row {rows[0]['id']} of data/published.json" in printed.err and "row copied: it is row" in printed.err


@pytest.mark.parametrize("text", ["", "[]", '{"rows": 3}', "[" * 100_000])
def test_validate_refuses_what_is_no_table_in_one_line(tmp_path, text):
    path = tmp_path / "rows.json"
    path.write_text(text)
    with pytest.raises(SystemExit, match=r"\Aerror: [^\n]+\Z"):
        validate.main(path)


def test_a_setting_of_many_gpus_is_read_from_the_row(rows):
    row = {**rows[0], "gpus": 16, "gpus_per_node": 8, "parallel": {"tp": 2, "fsdp": 8}}
    workload, setting = run_of(row)
    assert (setting.tensor, setting.strategy) == (2, "fsdp2")
    assert isinstance(setting, Setting) and workload.model == row["model"]


@pytest.mark.parametrize("gpu, held_back", [("t4", True), ("l4", True), ("a10", True), ("rtx-2000-ada", False), ("rtx-a4000", False), ("rtx-4000-ada", False)])
def test_a_workstation_card_of_few_watts_keeps_its_clock(gpu, held_back):
    assert (roofline.processor(gpu).held_back == roofline.POWER_LIMITED) is held_back


@pytest.mark.parametrize("framework, date, host", [
    ("llama.cpp", "2024-05", "c++"), ("llama.cpp", "2026-07", "llama.cpp"), ("llama.cpp", None, "c++"), ("turbomind", "2025-01", "engine"), ("vllm", "2026-01", "server"),
])  # fmt: skip
def test_an_engine_that_launches_ahead_has_no_cost_for_each_layer(rows, framework, date, host):
    row = next(row for row in rows if row["kind"] == "decode") | {"framework": framework, "date": date}
    assert run_of(row)[1].host == host


@pytest.mark.parametrize("gpu, faster", [("h100-sxm5", True), ("b200-hgx", True), ("a100-sxm4-80", False), ("rtx-5090", False)])
def test_attention_is_cudnns_on_hopper_and_data_center_blackwell_unless_flash_is_asked_for(gpu, faster):
    def seconds(attention):
        job = Job("llama3.2-1b", length=8192, attention=attention, checkpointing=True)  # not bound by launches
        return of_job(job, Cluster(gpu)).prediction.seconds

    assert (seconds("auto") < 0.95 * seconds("flash")) is faster
    assert faster or seconds("auto") == seconds("flash")


def test_the_search_ends_at_the_same_constants_from_other_starts(data, halves):
    constants, unseen = halves
    for factor in (0.9, 1.1):
        start = {name: min(0.99, value * factor) if name in fit.AT_MOST_ONE else value * factor for name, value in fit.START.items()}
        assert data.errors(fit.fit(data, ~unseen, start)) == pytest.approx(data.errors(constants), abs=0.005)


def test_a_constant_that_no_row_says_anything_of_stays_where_it_starts(halves):
    assert halves[0]["megatron"] == pytest.approx(fit.START["megatron"])


def test_what_parts_buy_is_of_the_classes_that_are_judged():
    known = without.read()
    assert list(known) == [without.WHOLE, *without.PARTS], "run `python -m fitting without`"
    assert all(set(medians) == {one.klass for one in judged.read()} for medians in known.values()), "run `python -m fitting without`"


@pytest.mark.parametrize("part", [part if place == 0 else pytest.param(part, marks=pytest.mark.nightly) for place, part in enumerate(without.PARTS)])
def test_a_part_that_is_taken_out_changes_what_is_predicted(part):
    few = ("0227", "n-0576", "0405", "0408", "n-0665", "h2-0258", "n-1021")  # on many GPUs, decoded in a server, with few tokens, ...
    rows = [row for row in published.rows() if row["id"] in few]
    whole = held_out.predictable(rows).runs.seconds(fit.START)
    with contextlib.ExitStack() as taken_out:
        for patch in without.PARTS[part]():
            taken_out.enter_context(patch)
        assert held_out.predictable(rows).runs.seconds(fit.START) != pytest.approx(whole, rel=1e-4)
    assert held_out.predictable(rows).runs.seconds(fit.START) == pytest.approx(whole)


@pytest.mark.parametrize("weights", ["nvfp4", "bf16"])
def test_one_user_more_makes_no_jump_in_the_speed_of_the_others(weights):
    """A table of kernels knows 1, 4, 16 and 64 rows: between them a product takes what lies between."""
    rates = [timing.generation_parts("llama3-70b", 512, 64, "b200-hgx", batch=batch, weights=weights)[1].seconds for batch in (14, 15, 16, 17)]
    steps = [after / before for before, after in zip(rates, rates[1:])]
    assert max(steps) - min(steps) < 0.02, steps


def test_no_token_is_predicted_to_come_before_its_bytes():
    """The output layer of a model in 4 bits stays in 16."""
    _, each = timing.generation_parts("qwen3-14b", 32, 2, "rtx-5060ti-16", weights="int4-64")
    layers, ends = 13.2e9, 151936 * 5120
    assert each.low >= (layers * 0.5 + ends * 2) / roofline.processor("rtx-5060ti-16").bandwidth
