"""The quarter of an hour on a GPU, tried on a CPU: models of a few thousand weights, each step in its own process."""

import json
import os
import signal
import statistics
import subprocess
import sys
import time

import psutil
import pytest
from programs import ROOT

from gpu_steps import compared, predict, report, run, steps

READ_BY = {"nvidia-h100-80gb-hbm3": ("gpu_steps", "h100-sxm5"), "nvidia-h200": ("h200_steps", "h200-sxm")}  # file: (notebook, GPU)
RUN = [sys.executable, "-m", "gpu_steps", "run", "--small", "--out"]
QUICK = ["bert-large-cls 32x512 precision=fp32", "llama3.2-1b 1x1024", "gemma-3-1b"]
NEEDS_TRITON = "llama3.2-1b 4x2048 fused_loss"
MEASURED = sorted(compared.MEASURED.glob("*.jsonl"))


def start(folder, *words):
    environment = os.environ | {"PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.Popen([*RUN, folder, *words], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)


def lines(folder):
    return (folder / "measured.jsonl").read_text().splitlines()


@pytest.mark.nightly
def test_a_run_that_is_killed_goes_on_where_it_stopped_and_a_step_that_fails_keeps_none_from_running(tmp_path):
    first = start(tmp_path, *QUICK, NEEDS_TRITON)
    while "train" not in first.stdout.readline():  # the first step is on disk
        assert first.poll() is None
    children = psutil.Process(first.pid).children(recursive=True)
    os.kill(first.pid, signal.SIGKILL)
    first.communicate()
    _, alive = psutil.wait_procs(children, timeout=20)
    assert not alive, "they would disturb whoever measures next"
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
    assert second.returncode == 1 and "3 of 4 measured" in said and "1 left: run it again" in said
    assert all(one["seconds"] > 0 and len(one["losses"]) >= 8 for key, one in found.items() if key in wanted - failed)


def test_a_step_that_takes_longer_than_its_limit_is_ended_and_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(steps, "LIMIT", 0.05)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    started = time.monotonic()
    found = run.run(tmp_path, 60, ["gemma-3-1b 2x2048"], small=True)  # eager: to compile takes longer than many a limit
    assert found["train gemma-3-1b 2x2048"]["error"] == "longer than 0.05 s"
    assert time.monotonic() - started < 60


def test_every_step_was_predicted_for_every_gpu_before_it_was_measured():
    expected = {step.key for step in steps.STEPS if step.model}
    assert {gpu: set(found) for gpu, found in predict.read().items()} == dict.fromkeys(steps.GPUS, expected)


@pytest.mark.parametrize("file", MEASURED, ids=lambda file: file.stem)
def test_the_record_says_what_the_results_say(file):
    """The notebook computes it; here once more, in another way."""
    notebook, gpu = READ_BY[file.stem]
    record = json.loads((ROOT / "results" / notebook / file.name).with_suffix(".json").read_text())
    expected = predict.read()[gpu]
    found = {key: one for key, one in run.read(file).items() if key.startswith("train") and "error" not in one}
    ratios = {key: expected[key]["seconds"] / one["seconds"] for key, one in found.items()}
    claims = {name: claim["value"] for name, claim in record["claims"].items()}
    tensors = [abs(expected[key]["tensors"] / one["allocated"] - 1) for key, one in found.items()]
    of_results = {
        "time-against": statistics.median(ratios.values()),
        "tensors-error": 100 * statistics.median(tensors),
    }
    again = f"{file.relative_to(ROOT)}: the record says otherwise: restore the file, or run `make record NOTEBOOKS={notebook}`"
    assert {name: claims[name] for name in of_results} == pytest.approx(of_results), again
    assert record["machine"]["gpu"] and record["software"]["driver"]


def test_what_was_predicted_before_a_run_stays_whatever_the_library_says_today(tmp_path, monkeypatch):
    path = tmp_path / "predicted.json"
    path.write_text(json.dumps({"h100-sxm5": {"a step": {"seconds": 1.0}}}))
    monkeypatch.setattr(predict, "all_of", lambda gpu: {"a step": {"seconds": 2.0}})
    predict.write(path)
    assert predict.read(path)["h100-sxm5"] == {"a step": {"seconds": 1.0}}
    assert predict.read(path)["h200-sxm"] == {"a step": {"seconds": 2.0}}


def test_a_gpu_that_is_new_here_is_predicted_before_it_is_measured_and_only_once(tmp_path, monkeypatch):
    monkeypatch.setattr(predict, "all_of", lambda gpu: {"a step": {"seconds": 3.0}})
    assert predict.of_machine("rtx-4090", tmp_path) == {"a step": {"seconds": 3.0}}
    monkeypatch.setattr(predict, "all_of", lambda gpu: pytest.fail("a second time"))
    assert predict.of_machine("rtx-4090", tmp_path) == {"a step": {"seconds": 3.0}}
    assert predict.of_machine("h100-sxm5", tmp_path) == predict.read()["h100-sxm5"]
    assert predict.of_machine(None, tmp_path) == {}


def test_results_of_another_machine_or_of_a_trial_are_not_mixed(tmp_path):
    run.append(tmp_path / "measured.jsonl", {"key": "machine", "machine": {}, "software": {}, "small": False})
    with pytest.raises(ValueError, match=r"another run \(machine, software, small differ\): name another folder, --out"):
        run.run(tmp_path, 1, [], small=True)


@pytest.mark.parametrize(
    ("result", "again"),
    [
        (None, True),
        ({"seconds": 1.0}, False),
        ({"error": "exit 1", "log": "torch.OutOfMemoryError: CUDA out of memory. Tried"}, False),
        ({"error": "the time of the run was over", "log": ""}, True),
    ],
)
def test_a_step_runs_again_unless_it_has_a_result_or_does_not_fit(result, again):
    assert run.measured(result) is not again


def test_pairs_differ_in_one_option_and_come_once():
    _, _, rows = compared.read(MEASURED[0], "h100-sxm5")
    found = {(one.words, compared.changed(one, other)) for one, other in compared.pairs(rows)}
    assert ("Llama 1B, full, 4 x 2,048", "compiled") in found
    assert ("Llama 8B, LoRA, checkpointing, 1 x 4,096", "QLoRA for LoRA") in found
    assert len(found) == len(compared.pairs(rows))
    assert not any(one.step.length != other.step.length for one, other in compared.pairs(rows))


def test_the_table_at_the_end_names_steps_that_failed():
    found = run.read(MEASURED[0])
    text = "\n".join(report.lines(found, predict.read()["h100-sxm5"]))
    assert "Llama 1B, full, eager attention, 4 x 2,048" in text and "failed" in text


def test_a_gpu_that_nothing_was_predicted_for_is_named():
    with pytest.raises(ValueError, match="t4: predicted were h100-sxm5, h200-sxm: add it"):
        compared.read(MEASURED[0], "t4")


def test_a_name_that_is_no_step_is_refused():
    with pytest.raises(ValueError, match="no step of gpu_steps/steps.py"):
        steps.step("train llama3-8b 1x4096 chekpointing")
