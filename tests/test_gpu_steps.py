"""The quarter of an hour on a GPU, tried on a CPU: models of a few thousand weights, each step in its own process."""

import json
import os
import signal
import statistics
import subprocess
import sys
import time

import pytest
from programs import ROOT

from gpu_steps import compared, predict, run, steps

RUN = [sys.executable, "-m", "gpu_steps", "run", "--small", "--out"]
QUICK = ["bert-large-cls 32x512 precision=fp32", "llama3.2-1b 1x1024", "gemma-3-1b"]
NEEDS_TRITON = "llama3.2-1b 4x2048 fused_loss"
MEASURED = sorted(compared.MEASURED.glob("*.jsonl"))


def start(folder, *words):
    environment = os.environ | {"PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.Popen([*RUN, folder, *words], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)


def lines(folder):
    return (folder / "measured.jsonl").read_text().splitlines()


def test_a_run_that_is_killed_goes_on_where_it_stopped_and_a_step_that_fails_keeps_none_from_running(tmp_path):
    first = start(tmp_path, *QUICK, NEEDS_TRITON)
    while "train" not in first.stdout.readline():  # the first step is on disk
        assert first.poll() is None
    os.kill(first.pid, signal.SIGKILL)
    first.communicate()
    kept = lines(tmp_path)
    with (tmp_path / "measured.jsonl").open("a") as file:
        file.write('{"key": "train llama3.2-1b 1x1024", "seco')  # the kill came while it wrote

    second = start(tmp_path, *QUICK, NEEDS_TRITON)
    said = second.communicate(timeout=300)[0]
    found = run.read(tmp_path / "measured.jsonl")
    assert lines(tmp_path)[: len(kept)] == kept, "what was measured stays"
    wanted = {step.key for step in steps.chosen([*QUICK, NEEDS_TRITON])}
    assert wanted == found.keys() - {"machine"}
    failed = {key for key, one in found.items() if "error" in one}
    assert failed == {f"train {NEEDS_TRITON}"} and "liger" in found[f"train {NEEDS_TRITON}"]["log"]
    assert second.returncode == 1 and "1 failed" in said
    assert all(one["seconds"] > 0 and len(one["losses"]) >= 8 for key, one in found.items() if key in wanted - failed)


def test_a_step_that_takes_longer_than_its_limit_is_ended_and_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(steps, "LIMIT", 0.05)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    started = time.monotonic()
    found = run.run(tmp_path, 60, ["gpt2 16x1024 precision=mixed"], small=True)
    assert found["train gpt2 16x1024 precision=mixed"]["error"] == "longer than 0.05 s"
    assert time.monotonic() - started < 60


def test_every_step_was_predicted_for_every_gpu_before_it_was_measured():
    expected = {step.key for step in steps.STEPS if step.model}
    assert {gpu: set(found) for gpu, found in predict.read().items()} == dict.fromkeys(steps.GPUS, expected)


@pytest.mark.parametrize("file", MEASURED, ids=lambda file: file.stem)
def test_the_record_says_what_the_results_say(file):
    """The notebook computes it; here once more, in another way."""
    record = json.loads((ROOT / "results" / "gpu_steps" / file.name).with_suffix(".json").read_text())
    expected = predict.read()["h100-sxm5"]
    found = {key: one for key, one in run.read(file).items() if key.startswith("train") and "error" not in one}
    ratios = {key: expected[key]["seconds"] / one["seconds"] for key, one in found.items()}
    claims = {name: claim["value"] for name, claim in record["claims"].items()}
    assert claims["time-steps"] == len(found)
    assert claims["time-against"] == pytest.approx(statistics.median(ratios.values()))
    tensors = [abs(expected[key]["tensors"] / one["allocated"] - 1) for key, one in found.items()]
    assert claims["tensors-error"] == pytest.approx(100 * statistics.median(tensors))
    assert record["machine"]["gpu"] and record["software"]["driver"]


def test_a_gpu_that_nothing_was_predicted_for_is_named():
    with pytest.raises(ValueError, match="t4: predicted were h100-sxm5, h200-sxm: add it"):
        compared.read(MEASURED[0], "t4")


def test_a_name_that_is_no_step_is_refused():
    with pytest.raises(ValueError, match="no step of gpu_steps/steps.py"):
        steps.step("train llama3-8b 1x4096 chekpointing")
