"""Decoding on Macs and other machines whose GPU shares the computer's memory: fitted, judged on other sources, and refused where nothing was published."""

import json
import math
import statistics

import pytest

from dryrun import Cluster, Generation
from dryrun.answer import inference
from dryrun.cost import shared_memory
from dryrun.door import command, web
from dryrun.tables.hardware import GB, accelerator
from fitting import shared_memory as fitting_of


def served(gpu, model="llama3-8b", weights="q4_k_m", memory=None, **options):
    return inference.serve(Generation(model, weights=weights, **options), Cluster(gpu, memory_gb=memory))


def test_the_constants_are_those_of_the_rows_and_the_errors_of_sources_that_they_had_not_seen():
    for kind, of_kind in fitting_of.rows().items():
        known = shared_memory.fitted()[kind]
        assert fitting_of.fit(of_kind) == {"layer": known["layer"], "share": known["share"]}
        assert fitting_of.judged(of_kind) == known["errors"] and known["rows"] == len(of_kind)


def test_a_doubled_bandwidth_shows_in_the_errors():
    rows = fitting_of.rows()[shared_memory.PC]
    known = shared_memory.fitted()[shared_memory.PC]

    def median(times):
        return statistics.median(abs(fitting_of.error((row, layers, read, bandwidth * times), known)) for row, layers, read, bandwidth in rows)

    assert median(1) < 0.1 < 0.4 < median(2)


@pytest.mark.parametrize("gpu, weights", [("m4", "q4_k_m"), ("gb10", "q8_0"), ("strix-halo", "fp16")])
def test_no_token_comes_before_its_bytes(gpu, weights):
    found = served(gpu, weights=weights)
    read = shared_memory.bytes_read(found.traced, inference._decoded(found.generation), weights, 1024 + 128)
    assert read / (accelerator(gpu).get("bandwidth") * GB) <= found.decode.low < found.decode.seconds < found.decode.high


@pytest.mark.parametrize(
    "memory, weights, fit, code",
    [(64, "q4_k_m", "fits", "gpu-memory"), (48, "q4_k_m", "maybe", "system"), (36, "q4_k_m", "no", "gpu-memory"), (64, "bf16", "no", "gpu-memory")],
)
def test_what_fits_is_what_the_system_leaves_the_gpu(memory, weights, fit, code):
    """A 70B takes 40 GiB in 4 bits. macOS leaves the GPU three quarters, and can be told to leave nearly all."""
    verdict = served("m4-max", "llama3-70b", weights, memory).verdict
    assert (verdict.fit, verdict.code) == (fit, code)


def test_what_would_fit_is_in_formats_of_llama_cpp_and_on_one_machine():
    assert [option for option, _ in served("m4-max", "llama3-8b", "bf16", memory=16).alternatives()] == ["--weights q8_0", "--weights q4_k_m"]


@pytest.mark.parametrize(
    "asked, why",
    [({"batch": 4}, "one sequence at a time"), ({"weights": "fp8"}, "take weights in q8_0, q4_k_m, q4_0"), ({"weights": "nf4"}, "nf4")],
)
def test_what_nobody_published_has_no_speed_and_says_why(asked, why):
    found = served("m4-max", **asked)
    assert not found.predicted and why in found.unpredicted


def test_several_machines_together_have_no_speed():
    found = inference.serve(Generation("llama3-8b", weights="q4_k_m"), Cluster("gb10", gpus=2))
    assert not found.predicted and "several such machines" in found.unpredicted


def test_training_on_a_mac_is_refused_with_what_can_be_asked(capsys):
    assert command.main(["train", "llama3-8b", "--gpu", "m4-max"]) == 2
    assert "`dryrun infer`" in capsys.readouterr().err


@pytest.mark.parametrize("memory, said", [(0, "give GB above 0"), (math.inf, "give GB above 0")])
def test_a_size_that_no_machine_has_is_refused(memory, said):
    with pytest.raises(ValueError, match=said):
        Cluster("m4-max", memory_gb=memory)


def test_a_gpu_with_memory_of_its_own_takes_no_size():
    with pytest.raises(ValueError, match="RTX 4090 24GB has memory of its own: leave it out"):
        Cluster("rtx-4090", memory_gb=48)


def test_the_page_is_told_which_machines_train():
    trains = {one["name"]: one["trains"] for one in web.choices()["gpus"]}
    assert not any(trains[name] for name in ("m4-max", "m1-max", "gb10", "strix-halo")) and trains["rtx-4090"] and "rx-7900-xtx" not in trains


def test_the_command_says_the_rate_and_no_first_token(capsys):
    words = ["infer", "llama3-70b", "--gpu", "m4-max", "--memory", "64", "--weights", "q4_k_m"]
    assert command.main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["speed"]["seconds_to_first_token"] is None and found["speed"]["low"] < found["speed"]["tokens_per_second"] < found["speed"]["high"]
    assert command.main(words) == 0
    text = capsys.readouterr().out
    assert "the system leaves it 74% of 64 GiB" in text and "llama-server" in text and "on M4 Max 64GB" in text
