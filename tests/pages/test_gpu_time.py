"""docs/evidence/gpu-time.md, docs/evidence/gpu-time-tables.md and docs/evidence/gpu-memory.md, sentence by sentence, and the
first section of docs/training/one-gpu.md."""

import json
import math
import shlex
import statistics
import subprocess
import sys

import pytest
from programs import ROOT, SNIPPETS

from dryrun.cost import timing
from dryrun.tables.hardware import ACCELERATORS
from evidence import records
from fitting import held_out, judged, published

COMMAND = (SNIPPETS / "gpu_time" / "predict.sh").read_text().splitlines()[2]
ROWS = {row["id"]: row for row in published.rows()}
TRACED_AGAIN = 8  # rows of different classes


def claims():
    return records.load(ROOT / "results" / "gpu_time" / "exact.json").data["claims"]


def answered(*options):
    words = [sys.executable, "-m", *shlex.split(COMMAND), "--json", *options]
    run = subprocess.run(words, capture_output=True, text=True, cwd=ROOT)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def test_the_command_and_the_page_agree_about_lora_of_an_8b_llama_on_one_rtx_4090():
    shown, found = claims()["lora-2048-tokens"]["on"]["rtx-4090"], answered()
    assert found["tokens_per_second"] == pytest.approx(shown["value"], rel=0.01)
    assert found["gpu"] == "rtx-4090" and found["bound"] == "compute"


def test_the_example_by_hand_adds_up_what_the_tables_beside_it_show():
    """The page writes out arithmetic on what was traced and on a data sheet: a new trace or sheet fails here."""
    tables = records.load(ROOT / "results" / "gpu_time" / "exact.json").data["tables"]
    gpu = next(row for row in tables["one-kernel"]["rows"] if row[0].startswith("RTX 4090"))
    _, product, moved, _ = gpu
    peak, bandwidth = 2 * 4096**3 / product / 1e9, 3 * 2 * 4096**2 / moved / 1e6  # TFLOP/s and GB/s
    columns = list(tables["kernels"]["columns"])
    rows = [dict(zip(columns, row)) for row in tables["kernels"]["rows"]]
    others, attention, products = sorted(rows, key=lambda row: row["flops"])
    page = (ROOT / "docs" / "evidence" / "gpu-time.md").read_text()
    for terms in (
        f"{products['flops']:.3g} TFLOP / {peak:.4g} TFLOP/s",
        f"{attention['flops']:.2g} TFLOP / {peak:.4g} TFLOP/s",
        f"{others['moved']:.3g} GB / {bandwidth:.4g} GB/s",
    ):
        assert f"`{terms} = " in page


def test_a_class_of_small_rows_is_traced_again_to_what_the_page_judges():
    """The page shows stored predictions: here some of them are made anew, model and all."""
    stored, chosen = {one.id: one for one in judged.read()}, {}
    for one in judged.read():
        row = ROWS[one.id]
        size = (row.get("config") or {}).get("layers", 24)
        if one.klass not in chosen and size <= 32:
            chosen[one.klass] = row
    data = held_out.predictable(list(chosen.values())[:TRACED_AGAIN])
    assert len(data.rows) == min(TRACED_AGAIN, len(chosen)) >= 5
    for again in judged.judge(data):
        assert again.seconds == pytest.approx(stored[again.id].seconds, rel=0.02), again.id


def test_every_judged_row_is_a_published_one_that_was_not_rejected():
    for one in judged.read():
        assert ROWS[one.id].get("usable", True) and ROWS[one.id]["seconds"] > 0
        assert one.low < one.seconds < one.high


def test_the_errors_that_the_page_shows_are_those_of_the_judged_rows():
    errors = [100 * abs(one.seconds / ROWS[one.id]["seconds"] - 1) for one in judged.read() if one.klass != "launch-bound"]
    assert claims()["error-median"]["value"] == pytest.approx(statistics.median(errors), rel=0.01)
    assert claims()["error-rows"]["value"] == len(errors)


def test_what_was_asked_is_compared_with_the_judged_rows_and_the_missed_wishes_are_those_that_the_page_names():
    """The page lists the missed ones by name: one more or one fewer fails here."""
    data = records.load(ROOT / "results" / "gpu_time" / "exact.json").data["tables"]["asked"]
    names = list(data["columns"])
    rows = {row[0]: dict(zip(names, row)) for row in data["rows"]}
    missed = {of: {what for what, row in rows.items() if row[of] and row[of] > row["asked"]} for of in ("fold", "source")}
    new_rows = {"a training step, on one GPU or many", "a training step on one GPU", judged.RATIOS.what}
    new_sources = {"a training step on many GPUs", "tensor and pipeline parallelism", "a forward pass, such as reading a prompt"}
    assert missed == {"fold": new_rows, "source": new_rows | new_sources}
    one = [one for one in judged.read() if one.klass == judged.TRAINING[0]]
    off = [100 * abs(each.family / ROWS[each.id]["seconds"] - 1) for each in one]
    assert rows["a training step on one GPU"]["family"] == pytest.approx(statistics.median(off), rel=0.01)


def test_new_rows_of_a_known_source_lie_in_their_band_as_often_as_was_asked_and_those_of_a_new_source_do_not():
    inside = {"fold": 0, "seconds": 0}
    for one in judged.read():
        for field in inside:
            measured = ROWS[one.id]["seconds"] * one.seconds / getattr(one, field)
            inside[field] += one.low <= measured <= one.high
    share = {field: found / len(judged.read()) for field, found in inside.items()}
    assert share["fold"] >= 0.9 > share["seconds"]


def test_no_row_judges_the_gpus_that_the_page_names_as_without_any():
    judged_on = {ROWS[one.id]["gpu"] for one in judged.read()}
    pro = {key for key in ACCELERATORS if key.startswith("rtx-pro") and not key.startswith("rtx-pro-6000")}
    assert not judged_on & ({"a10g", "l4", "l40"} | pro) and len(pro) >= 4


def test_some_ratios_are_surer_than_others_as_the_page_says():
    errors = timing.fitted()["ratio_errors"]
    middle = {change: statistics.median(map(abs, found)) for change, found in errors.items()}
    assert max(middle["batch"], middle["seq"]) < min(middle[change] for change in ("precision", "attention", "method"))


def test_weights_in_four_bits_that_are_unpacked_kernel_by_kernel_take_longer_than_predicted_as_the_page_says():
    """Logarithmic errors of decoding by source: below 0 the prediction says fewer seconds than were measured."""
    off = {}
    for one in judged.read():
        if one.klass == "decode":
            row = ROWS[one.id]
            off.setdefault((row["source"], row["gpu"], row["precision"]), []).append(math.log(one.fold / row["seconds"]))
    awq = {gpu: statistics.median(off["casper-hansen/AutoAWQ", gpu, "int4-128"]) for gpu in ("rtx-4090", "t4")}
    assert awq["t4"] < awq["rtx-4090"] < -0.05


def test_rows_are_judged_by_constants_that_their_own_source_had_no_part_in():
    """The constants of a large source differ from those that all rows gave, and so do its judged seconds."""
    held, constants = timing.fitted()["held_out"]["source"], timing.fitted()["constants"]
    stored = {one.id: one for one in judged.read()}
    rows = [ROWS[name] for name in stored if ROWS[name]["source"] == "mosaicml/llm-foundry"][:3]
    assert rows and held["mosaicml/llm-foundry"] != constants
    data = held_out.predictable(rows)
    for row, with_its_source in zip(data.rows, data.runs.seconds(constants), strict=True):
        assert with_its_source != pytest.approx(stored[row["id"]].seconds, rel=1e-4)


def test_the_ladder_of_one_gpu_needs_less_memory_with_every_row():
    data = records.load(ROOT / "results" / "gpu_time" / "exact.json").data["tables"]["ladder"]
    needed = [row[list(data["columns"]).index("expected")] for row in data["rows"]]
    assert needed == sorted(needed, reverse=True) and math.isfinite(needed[0])
