"""docs/training/hardware.md, docs/training/rig.md, docs/hardware/rent.md, docs/hardware/accelerators.md and the programs of docs/hardware/other.md, sentence by sentence. Their figures are claims of a notebook."""

import logging
import re
import shlex

import pytest
import torch
import yaml
from built import ROOT, host, tab
from programs import SNIPPETS, run, shown_message
from transformers import FineGrainedFP8Config
from transformers.quantizers.quantizer_finegrained_fp8 import FineGrainedFP8HfQuantizer

from dryrun.answer import bench_report
from dryrun.answer.answer import answer
from dryrun.cost.setting import Setting
from dryrun.step.workload import Workload
from dryrun.tables import hardware
from evidence import records
from evidence.site import accelerators

FOLDER = SNIPPETS / "hardware"
PAGE = "".join((ROOT / "docs" / "training" / name).read_text() for name in ("hardware.md", "rig.md"))
FULL = (ROOT / "docs" / "hardware" / "accelerators.md").read_text()
BUY = ["--buy", "2000", "--resale", "500", "--rent", "0.5", "--watts", "500", "--kwh", "0.2"]


def blocks(text):
    """The sources of the `accelerators` blocks of a page."""
    return re.findall(r"^```accelerators\n(.*?)^```$", text, re.M | re.S)


def tables():
    return records.load(ROOT / "results" / "hardware" / "exact.json").data["tables"]


# The tables of accelerators


def test_each_value_of_the_full_table_links_to_its_source():
    shown = accelerators.rendered(blocks(FULL)[0])
    rows = re.findall(r"<tr data-words=.*?</tr>", shown, re.S)
    assert len(rows) == len([row for row in hardware.ACCELERATORS.values() if row.product])
    row = next(row for row in rows if "RTX 4090 24GB" in row)
    for name in ("memory", "bandwidth", "fp32", "tdp"):
        value = hardware.accelerator("RTX 4090")[name]
        assert f'<a href="{value.source}" title="{value.read}, {value.date}">{value.value:g}</a>' in row


@pytest.mark.parametrize("source", blocks(PAGE) + blocks(FULL))
def test_every_block_of_the_pages_is_rendered_with_the_columns_that_it_names(source):
    asked = yaml.safe_load(source)
    shown = accelerators.rendered(source)
    assert all(f">{accelerators.COLUMNS[name].name}" in shown for name in asked["columns"])
    assert shown.count("<tr data-words=") == len(accelerators.chosen(asked.get("rows")))


@pytest.mark.parametrize(
    "source, message",
    [
        ("rows: [rtx-4090]", "names its columns"),
        ("columns: [memory]\nrow: [t4]", "has no row (did you mean rows?)"),
        ("columns: [bandwidt]", "there is no column bandwidt (did you mean bandwidth?)"),
        ("columns: [memory]\nrows: [rtx-4091]", "did you mean rtx-4090"),
    ],
)
def test_a_block_that_names_what_is_not_there_says_the_nearest(source, message):
    with pytest.raises(ValueError) as caught:
        accelerators.rendered(source)
    assert message in str(caught.value)


def test_words_in_the_field_leave_the_rows_that_hold_them_all_and_a_heading_sorts_these():
    with tab() as opened:
        opened.goto(f"{host().address}hardware/accelerators/")
        box = opened.locator(".filterable").first

        def names():
            return box.locator("tbody").evaluate("body => [...body.rows].filter(row => !row.hidden).map(row => row.cells[0].innerText)")

        every, field = len(names()), box.get_by_label("Show rows with")
        field.fill("GeForce 24gb")
        assert set(names()) == {"RTX 3090 24GB", "RTX 3090 Ti 24GB", "RTX 4090 24GB", "RTX 5090 Mobile 24GB"}
        assert box.locator("output").inner_text().strip() == f"4 of {every}"
        box.locator("thead th:has-text('andwidth') button").click()
        assert names()[0] == "RTX 5090 Mobile 24GB"
        field.fill("no such words")
        assert names() == []


# What the numbers decide


def test_published_tokens_follow_the_bandwidth_in_the_order_of_the_predictions():
    rows = tables()["decode"]["rows"]
    predicted, published = [row[1] for row in rows], [row[2] for row in rows]
    assert predicted == sorted(predicted, reverse=True)
    too_low = [ours < theirs for ours, theirs in zip(predicted, published, strict=True)]
    assert sum(too_low) > 0.7 * len(too_low), "the page says: most are a little too low"
    by_published = sorted(range(len(rows)), key=lambda place: -published[place])
    assert max(abs(place - rank) for rank, place in enumerate(by_published)) <= 4


def test_an_a6000_decodes_more_slowly_than_an_rtx_4090_and_has_twice_the_memory():
    found = {row[0]: row[2] for row in tables()["decode"]["rows"]}
    small, large = hardware.accelerator("RTX 4090"), hardware.accelerator("RTX A6000")
    assert found[large.label] < found[small.label]
    assert large.get("memory") == 2 * small.get("memory")


def test_an_l4_trains_faster_than_an_rtx_3060_and_answers_one_prompt_more_slowly():
    l4, rtx = hardware.accelerator("l4"), hardware.accelerator("rtx-3060-12")
    assert l4.get("bandwidth") < rtx.get("bandwidth")
    assert l4.half > rtx.half and l4.get("memory") > rtx.get("memory")


def test_two_gpus_in_turn_decode_as_one_of_their_bandwidth():
    rows = {row[0]: row[1:] for row in tables()["seventy"]["rows"]}
    for pair in ("2 x RTX 3090 24GB", "2 x RTX 4090 24GB"):
        bandwidth, rate = rows[pair]
        one = min(
            (row for name, row in rows.items() if not name.startswith("2 x")), key=lambda row: abs(row[0] - bandwidth)
        )
        assert rate / bandwidth == pytest.approx(one[1] / one[0], rel=0.1)


def test_one_rtx_4090_trains_about_as_fast_as_two_rtx_3090_and_holds_half():
    rows = {row[0]: row[1:] for row in tables()["two"]["rows"]}
    two, one = rows["2 x RTX 3090 24GB"], rows["RTX 4090 24GB"]
    assert two[0] == 2 * one[0] and two[1] > one[1]
    assert two[2] == pytest.approx(one[2], rel=0.25)


def test_geforce_40_and_50_l4_l40s_and_rtx_pro_have_no_nvlink_and_the_rtx_3090_has():
    for name in ("rtx-4090", "rtx-4080", "rtx-5090", "l4", "l40s", "rtx-pro-6000-bw"):
        assert "NVLink" not in str(hardware.accelerator(name).get("link")), name
    assert "NVLink" in hardware.accelerator("rtx-3090").get("link")


def test_bf16_and_fp8_begin_where_the_page_says():
    native = {
        name: hardware.accelerator(name)
        for name in ("t4", "v100-sxm2-16", "rtx-3090", "a100-sxm4-80", "l4", "h100-sxm5")
    }
    assert [name for name, row in native.items() if row.get("bf16")] == [
        "rtx-3090",
        "a100-sxm4-80",
        "l4",
        "h100-sxm5",
    ]
    assert [name for name, row in native.items() if row.get("fp8")] == ["l4", "h100-sxm5"]


def test_on_an_a100_transformers_turns_an_fp8_checkpoint_into_bf16_and_warns(monkeypatch):
    said = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (8, 0))
    logger = logging.getLogger("transformers.quantizers.quantizer_finegrained_fp8")
    monkeypatch.setattr(logger, "warning_once", said.append, raising=False)
    quantizer = FineGrainedFP8HfQuantizer(FineGrainedFP8Config(), pre_quantized=True)
    quantizer.validate_environment(device_map="cuda")
    assert quantizer.quantization_config.dequantize
    assert said == [shown_message("hardware", "fp8")]


def test_each_pair_is_decided_by_the_numbers_that_the_page_names():
    def get(key, name):
        row = hardware.accelerator(key)
        return row.half if name == "half" else row.get(name)

    predicted = {row[0]: row[2] for row in tables()["everywhere"]["rows"]}
    new, old = hardware.accelerator("rtx-5090"), hardware.accelerator("rtx-4090")
    assert 1 < predicted[new.label] / predicted[old.label] < new.get("bandwidth") / old.get("bandwidth")
    assert get("rtx-5060ti-16", "memory") == get("rtx-4060ti-16", "memory")
    assert get("rtx-5060ti-16", "bandwidth") > max(get(key, "bandwidth") for key in ("rtx-4060ti-16", "rtx-3060-12"))
    for name in ("memory", "bandwidth", "half"):
        assert get("rtx-3090", name) > max(get(key, name) for key in ("rtx-5060ti-16", "rtx-4060ti-16", "rtx-3060-12"))
    assert get("a100-sxm4-80", "bandwidth") > get("l40s", "bandwidth") and get("l40s", "fp8") and not get("a100-sxm4-80", "fp8")
    assert get("h200-sxm", "half") == get("h100-sxm5", "half")
    h100, h200 = (hardware.accelerator(key).label for key in ("h100-sxm5", "h200-sxm"))
    assert 1.05 < predicted[h200] / predicted[h100] < 1.2
    for name in ("memory", "bandwidth"):
        assert get("h200-sxm", name) > get("h100-sxm5", name)
    assert get("rtx-pro-6000-bw", "bandwidth") == get("rtx-5090", "bandwidth")


def test_one_name_hides_the_differences_that_the_page_lists():
    form = {key: hardware.accelerator(key) for key in ("h100-sxm5", "h100-nvl", "h100-pcie")}
    assert max(form, key=lambda key: form[key].get("bandwidth")) == "h100-nvl"
    assert min(form, key=lambda key: form[key].get("bandwidth")) == min(form, key=lambda key: form[key].half) == "h100-pcie"
    quiet, work, server = (hardware.accelerator(f"rtx-pro-6000-{name}") for name in ("maxq", "bw", "server"))
    assert quiet.get("tdp") == work.get("tdp") / 2 and server.get("bandwidth") < 0.95 * quiet.get("bandwidth")
    predicted = {row[0]: row[2] for row in tables()["everywhere"]["rows"]}
    assert predicted[quiet.label] > 0.9 * predicted[work.label]
    laptop, desktop = hardware.accelerator("rtx-4090-laptop"), hardware.accelerator("rtx-4090")
    assert laptop.get("units") < desktop.get("units") and laptop.get("memory") < desktop.get("memory")
    a10, a10g = (hardware.accelerator(key) for key in ("a10", "a10g"))
    assert a10g.half < 0.6 * a10.half and a10g.get("tdp") == 2 * a10.get("tdp")
    assert predicted[a10g.label] > 1.1 * predicted[a10.label]
    decoded = {row[0]: row[1] for row in tables()["everywhere"]["rows"]}
    assert decoded[a10g.label] == pytest.approx(decoded[a10.label], rel=0.05)
    l40, l40s = (hardware.accelerator(key) for key in ("l40", "l40s"))
    assert l40.half == pytest.approx(l40s.half / 2, rel=0.01) and predicted[l40.label] < predicted[l40s.label]


def test_the_speeds_of_each_gpu_hold_what_the_library_says_of_its_memory():
    data = tables()["everywhere"]
    names = list(data["columns"])
    rows = {row[0]: dict(zip(names, row)) for row in data["rows"]}
    for label in ("RTX 4090 24GB", "RTX 2080 Ti 11GB", "RTX 5090 32GB", "RTX 3060 12GB", "RTX 3070 8GB"):
        for method in ("lora", "qlora"):
            options = {"rank": 16, "targets": "all linear", "checkpointing": 1, "four_bit": method == "qlora"}
            now = answer(Workload("llama3-8b", 1, 2048, **options), Setting(gpu=label))
            said = now.verdict.short.removeprefix("it ")
            assert (rows[label][f"{method}-fits"] or rows[label][method]) == said, (label, method)


# The programs


def test_buying_pays_after_the_hours_that_the_formula_gives():
    assert "after 3,750 hours of work: 94 weeks at 40 hours a week" in run("hardware/rent_or_buy.py", *BUY).stdout


def test_a_rented_machine_of_twice_the_speed_costs_half_for_the_same_work():
    said = run("hardware/rent_or_buy.py", *BUY, "--speed", "2").stdout
    assert "after 10,000 hours of work" in said


def test_one_rents_where_electricity_costs_as_much():
    assert run("hardware/rent_or_buy.py", *BUY[:-1], "1.0").stdout.startswith("Rent:")


def test_the_power_supply_holds_the_hours_and_the_microseconds():
    said = run("hardware/power.py", "rtx-4090", "rtx-4090", "--cpu", "250").stdout
    assert "sustained 1,250 W, for 100 microseconds up to 3,050 W" in said
    assert "power supply of 1,562 W or more" in said
    said = run("hardware/power.py", "rtx-3090", "rtx-3090", "--limit", "280").stdout
    assert "sustained 860 W" in said


LOG = """2026/11/23 16:00:01.000, 0, 2520, 61, 440.10, 0x0000000000000004
2026/11/23 16:00:02.000, 0, 1410, 88, 320.55, 0x0000000000000020
2026/11/23 16:00:02.000, 1, 2500, 60, 430.00, 0x0000000000000000
2026/11/23 16:00:03.000, 0, 1210, 92, 290.00, 0x0000000000000068
2026/11/23 16:00:03.000, 1, 2500, 61, 431.00, 0x0000000000000000
2026/11/23 16:00:04.000, 0, 1200, 92, 288.00, 0x0000000000000068
"""


def test_the_log_says_why_a_gpu_lost_its_clock():
    said = run("hardware/throttled.py", "gpu.csv", files={"gpu.csv": LOG}).stdout
    first, second = said.split("GPU 1:")
    assert "GPU 0: 1200 to 2520 MHz, up to 92 °C, 4 samples" in first
    assert re.findall(r"(\d+) %  (\S+ \S+)", first) == [
        ("75", "too warm,"),
        ("50", "hardware slowdown:"),
        ("50", "far too"),
        ("25", "power limit:"),
    ]
    assert "%" not in second


def test_a_log_of_other_fields_is_refused_with_its_line():
    made = run("hardware/throttled.py", "gpu.csv", files={"gpu.csv": f"{LOG}a, b\n"}, check=False)
    assert made.returncode and "gpu.csv:7: 2 fields and not 6" in made.stderr


def test_the_command_writes_as_many_fields_as_the_program_reads():
    words = shlex.split(
        (FOLDER / "log.sh").read_text().split("[start:log]")[1].split("# --8<--")[0].replace("\\\n", "")
    )
    fields = next(word for word in words if word.startswith("--query-gpu=")).partition("=")[2].split(",")
    assert len(fields) == 6 and fields[-1] == "clocks_event_reasons.active"


@pytest.mark.skipif(torch.cuda.is_available(), reason="says what a machine without a GPU prints")
def test_without_gpus_there_are_no_peers():
    assert run("hardware/peers.py").stdout.strip() == "0 GPUs"


def test_what_is_normal_for_a_gpu_is_little_with_few_watts_and_nearly_all_on_a_geforce():
    share = {key: bench_report.usual(key)[0] for key in ("t4", "l4", "a10", "rtx-4090", "h100-sxm5")}
    assert max(share[key] for key in ("t4", "l4", "a10")) < 0.5 < 0.6 < share["h100-sxm5"] < 0.72 < 0.95 < share["rtx-4090"]


def test_the_pages_of_strix_halo_are_96_gib():
    line = (ROOT / "snippets" / "hardware" / "strix_halo.txt").read_text()
    assert set(re.findall(r"=(\d+)", line)) == {str(96 * 262_144)} and 96 * 262_144 * 4096 == 96 * 2**30
