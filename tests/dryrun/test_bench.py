"""`dryrun bench`: it measures this machine, compares a GPU with its data sheet, and its file feeds the prediction."""

import dataclasses
import json

import pytest
import torch

from dryrun.answer import bench, bench_report, own_machine
from dryrun.cost import roofline, timing
from dryrun.cost.roofline import processor
from dryrun.cost.setting import Setting
from dryrun.cost.traces import traced
from dryrun.door import command
from dryrun.step.kernels import Kernel
from dryrun.step.workload import Workload
from dryrun.tables import hardware

GPU = "rtx-4090"


@pytest.fixture(autouse=True)
def traces(tmp_path, monkeypatch):
    monkeypatch.setenv("DRYRUN_CACHE", str(tmp_path / "traces"))


@pytest.fixture
def small(monkeypatch):
    """A CPU is measured on what a test can wait for."""
    monkeypatch.setattr(bench, "SIDE", {"cuda": 256, "cpu": 128})
    monkeypatch.setattr(bench, "COPIED", {"cuda": 2**20, "cpu": 2**20})
    monkeypatch.setattr(bench, "ON_DISK", 2**25)


def of_gpu(share=0.8, **rates):
    """What a run on an RTX 4090 writes that reaches this share of each figure of the data sheet."""
    peaks = bench.peaks_of(hardware.accelerator(GPU))
    found = [
        bench.Rate("product bf16", share * peaks["product bf16"], "TFLOP/s", share * peaks["product bf16"], 8192),
        bench.Rate("memory copy", share * peaks["memory copy"], "GB/s", share * peaks["memory copy"], 2**30),
    ]
    found = [dataclasses.replace(rate, peak=peaks[rate.name], **rates.get(rate.name, {})) for rate in found]
    return {
        "device": "NVIDIA GeForce RTX 4090",
        "gpu": GPU,
        "threads": None,
        "torch": "2.13.0",
        "date": "2026-11-23",
    } | {"rates": found}


def written(folder, found):
    path = folder / "bench.json"
    path.write_text(json.dumps(found, default=dataclasses.asdict))
    return path


# What is measured


@pytest.mark.parametrize("wanted, number", [(None, 0), ("cuda", 0), ("cuda:1", 1)])
def test_a_gpu_is_chosen_by_its_number_also_where_none_is_given(monkeypatch, wanted, number):
    chosen = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: chosen.append(torch.cuda._utils._get_device_index(device)))
    assert bench._device(torch, wanted).type == "cuda" and chosen == [number]


def test_a_cpu_is_measured_and_what_it_wrote_is_read_again(small, tmp_path, capsys):
    path = tmp_path / "bench.json"
    assert bench.main(["--device", "cpu", "--seconds", "0.05", "--disk", str(tmp_path), "--json", str(path)]) == 0
    text, found = capsys.readouterr().out, json.loads(path.read_text())
    names = [rate["name"] for rate in found["rates"]]
    assert names[:4] == ["product bf16", "product fp32", "memory copy", "disk write"]
    assert all(rate["value"] >= rate["sustained"] > 0 for rate in found["rates"])
    assert all(rate["peak"] is None for rate in found["rates"])
    assert found["gpu"] is None and found["threads"] == torch.get_num_threads()
    assert "No data sheet to compare with" in text and "you get" in text.splitlines()[2]


def test_a_rate_is_amount_by_time_and_the_best_repeat_counts():
    seconds = iter([4.0, 2.0, 1.0, 2.0, 4.0])
    found = bench.rates_of(lambda: None, 8, lambda work: next(seconds), 0)
    assert found == [2, 4, 8, 4, 2]
    measured = bench.rate("copy", "GB/s", 1, found)
    assert (measured.value, measured.sustained) == (8, 2)


def test_every_repeat_does_the_work(small):
    done = []
    bench.rates_of(lambda: done.append(1), 1, lambda work: work() or 1.0, 0)
    assert len(done) == 2 + bench.FEWEST


def test_the_precision_of_fp32_products_is_as_before(small):
    torch.set_float32_matmul_precision("high")
    try:
        list(bench._products(torch, torch.device("cpu"), 0.01))
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision("highest")


def test_the_file_on_the_disk_is_gone_afterwards(tmp_path):
    rates = bench.on_disk(tmp_path, 2**25)
    assert rates[0].name == "disk write" and all(rate.value > 0 for rate in rates)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--device", "tpux"], "--device tpux: choose cpu, cuda"),
        (["--device", "mps"], "--device mps: choose cpu, cuda"),
        (
            ["--disk", "no-such-folder", "--device", "cpu", "--seconds", "0.01"],
            "--disk no-such-folder: there is no such",
        ),
        (["--seconds", "-1"], "give seconds above 0"),
    ],
)
def test_what_cannot_be_measured_is_one_line(small, capsys, arguments, message):
    with pytest.raises(SystemExit) as caught:
        bench.main(arguments)
    said = f"{caught.value}{capsys.readouterr().err}"
    assert message in said


@pytest.mark.skipif(torch.cuda.is_available(), reason="the message is that of a machine without a GPU")
def test_without_a_gpu_cuda_is_refused(capsys):
    with pytest.raises(SystemExit, match="sees no GPU: leave --device out"):
        bench.main(["--device", "cuda"])


# Beside the data sheet


def test_the_report_says_what_share_of_the_data_sheet_you_get():
    text = "\n".join(bench_report.lines(of_gpu(0.81)))
    assert "You get 81 % of the data sheet's matrix products and 81 % of the data sheet's memory bandwidth." in text
    assert "81%" in text and "slow down" not in text


def test_a_gpu_that_slows_down_or_gives_little_is_told_where_to_look():
    peak = bench.peaks_of(hardware.accelerator(GPU))["product bf16"]
    warm = "\n".join(bench_report.lines(of_gpu(0.8, **{"product bf16": {"sustained": 0.5 * peak}})))
    assert "Products slow down" in warm and "-d PERFORMANCE" in warm
    assert "That is low" in "\n".join(bench_report.lines(of_gpu(0.7)))
    assert "That is low" not in "\n".join(bench_report.lines(of_gpu(0.8)))


def at(gpu, products, memory):
    """What a run writes that reaches these shares of a GPU's data sheet."""
    peaks = bench.peaks_of(hardware.accelerator(gpu))
    half = "product bf16" if "product bf16" in peaks else "product fp16"
    rates = [(half, products, "TFLOP/s", 8192), ("memory copy", memory, "GB/s", 2**30)]
    found = [bench.Rate(name, share * peaks[name], unit, share * peaks[name], size, peaks[name]) for name, share, unit, size in rates]
    return of_gpu() | {"gpu": gpu, "device": gpu, "rates": found}


@pytest.mark.parametrize("gpu, products", [("l4", 0.49), ("t4", 0.4), ("a10", 0.45), ("a100-sxm4-80", 0.7), ("h100-sxm5", 0.65)])
def test_a_healthy_gpu_raises_no_alarm_and_one_at_half_of_it_does(gpu, products):
    assert "That is low" not in "\n".join(bench_report.lines(at(gpu, products, 0.8)))
    assert "That is low" in "\n".join(bench_report.lines(at(gpu, products / 2, 0.8)))
    assert "That is low" in "\n".join(bench_report.lines(at(gpu, products, 0.4)))


@pytest.mark.parametrize(
    "name, memory, key",
    [
        ("NVIDIA GeForce RTX 4090", 25_386_352_640, "rtx-4090"),
        ("NVIDIA A100-SXM4-80GB", 85_095_874_560, "a100-sxm4-80"),
        ("NVIDIA A100-SXM4-40GB", 42_285_268_992, "a100-sxm4-40"),
        ("NVIDIA H100 80GB HBM3", 85_029_158_912, "h100-sxm5"),
        ("Tesla T4", 15_828_320_256, "t4"),
        ("NVIDIA L4", 23_034_920_960, "l4"),
        ("Some other GPU", 1e9, None),
    ],
)
def test_the_table_knows_a_gpu_by_the_name_that_its_driver_says(name, memory, key):
    assert bench.key_of(name, memory) == key


def test_the_data_sheet_has_peaks_for_products_memory_and_links():
    peaks = bench.peaks_of(hardware.accelerator(GPU))
    assert peaks["product bf16"] == hardware.accelerator(GPU).half
    assert peaks["host to device"] == peaks["device to device"] == hardware.LINKS["PCIe 4 x16"].gb_per_s
    known = [row.key for row in hardware.ACCELERATORS.values() if "host to device" in bench.peaks_of(row)]
    assert len(known) > 70


# As constants of the prediction


def predicted_seconds(kernel, constants):
    return sum(roofline.seconds(roofline.rows({kernel: 1}, processor(GPU)), constants))


@pytest.mark.parametrize("share", [0.4, 0.6, 0.9])
def test_with_its_own_constants_a_machine_is_predicted_to_do_what_it_did(share):
    found = of_gpu(share)
    own = own_machine.own_constants(found, timing.fitted()["constants"])
    side = 8192
    kernel = Kernel("forward", "product", "bfloat16", 2 * side**3, (side, side, side, 1), 6 * side**2, 1)
    assert 2 * side**3 / predicted_seconds(kernel, own) / 1e12 == pytest.approx(found["rates"][0].value, rel=0.01)
    workload, setting = Workload("llama3-8b", 1, 1, kind="decode", compiled=True), Setting(gpu=GPU, optimizer="", host="engine")
    token = timing.prediction(traced(workload), workload, setting, own)
    reached = min(found["rates"][1].value, processor(GPU).bandwidth / 1e9)
    assert traced(workload).weight_bytes * 2 / token.parts["bandwidth"] / 1e9 == pytest.approx(reached, rel=0.02)


def test_the_constants_of_everybody_stay_as_they_are():
    before = dict(timing.fitted()["constants"])
    own_machine.own_constants(of_gpu(0.4), timing.fitted()["constants"])
    assert timing.fitted()["constants"] == before


def answered(capsys, *arguments):
    assert command.main(["train", "gpt2", "--batch", "16", "--sequence", "512", "--json", *arguments]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_prediction_takes_the_gpu_and_the_rates_of_the_file(tmp_path, capsys):
    fast, slow = (answered(capsys, "--machine", str(written(tmp_path, of_gpu(share)))) for share in (0.9, 0.45))
    assert fast["gpu"] == slow["gpu"] == GPU
    assert 1.5 < slow["seconds"] / fast["seconds"] < 2.1
    assert command.main(["train", "gpt2", "--machine", str(written(tmp_path, of_gpu())), "--sequence", "64"]) == 0
    assert "measured on this machine" in capsys.readouterr().out


def test_a_link_that_was_measured_takes_the_place_of_the_data_sheet():
    found = of_gpu()
    assert own_machine.link(found) == 0
    found["rates"].append(bench.Rate("device to device", 12.0, "GB/s", 12.0, 2**28))
    assert own_machine.link(found) == 12e9


@pytest.mark.parametrize(
    "text, message",
    [
        ("{}", "no result of dryrun bench"),
        ("[]", "no result of dryrun bench"),
        ("no JSON", "no result of dryrun bench"),
        (json.dumps({"gpu": GPU, "device": "", "rates": [{"name": "x"}]}), "no result of dryrun bench"),
        (json.dumps(of_gpu(0), default=dataclasses.asdict), "a rate is not above 0"),
        (
            json.dumps(of_gpu() | {"gpu": None, "device": "EPYC"}, default=dataclasses.asdict),
            "it was measured on 'EPYC'",
        ),
    ],
)
def test_a_file_that_is_no_result_is_one_line(tmp_path, capsys, text, message):
    path = tmp_path / "bench.json"
    path.write_text(text)
    line = refused(capsys, "train", "gpt2", "--machine", str(path))
    assert str(path) in line and message in line


def test_another_gpu_than_that_of_the_file_is_refused(tmp_path, capsys):
    path = written(tmp_path, of_gpu())
    line = refused(capsys, "train", "gpt2", "--machine", str(path), "--gpu", "l4")
    assert "was measured on rtx-4090: leave --gpu out" in line
    line = refused(capsys, "train", "gpt2", "--machine", str(tmp_path / "gone.json"))
    assert "there is no such file" in line


def refused(capsys, *arguments):
    """The one line that the command says before it ends with status 2."""
    assert command.main(list(arguments)) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    return line
