"""docs/training/own-loop.md, sentence by sentence."""

import dataclasses
import functools
import inspect
import re
import subprocess
from pathlib import Path

import pytest
import torch
from accelerate.optimizer import AcceleratedOptimizer
from transformers import AutoModelForCausalLM, LlamaConfig, Trainer, TrainingArguments, set_seed

from evidence import records

ROOT = Path(__file__).resolve().parent.parent
SNIPPETS = ROOT / "snippets" / "own_loop"
OLD = (ROOT / "tests" / "data" / "training_arguments_4.41.2.txt").read_text().split()
NOW = {field.name for field in dataclasses.fields(TrainingArguments) if field.init}


def test_the_accelerate_loop_and_trainer_give_the_same_loss_curve(run_snippet):
    loop, _ = run_snippet("own_loop/accelerate_loop.py")
    trainer, _ = run_snippet("own_loop/trainer.py")
    assert len(loop["losses"]) == 4
    assert loop["losses"] == pytest.approx(trainer["losses"], abs=2e-3)  # Trainer logs three decimals
    assert loop["schedule"].get_last_lr() == [0.0]


def test_the_schedule_of_the_loop_waits_for_steps_that_the_scaler_leaves_out(run_snippet, monkeypatch):
    monkeypatch.setattr(AcceleratedOptimizer, "step_was_skipped", True)
    loop, _ = run_snippet("own_loop/accelerate_loop.py")
    assert loop["schedule"].get_last_lr() == [5e-4]
    assert "if not self.accelerator.optimizer_step_was_skipped:" in inspect.getsource(Trainer)


def test_trainer_divides_by_the_tokens_of_all_processes_and_multiplies_by_their_number():
    source = inspect.getsource(Trainer)
    assert "num_items_in_batch = self.accelerator.gather(num_items_in_batch.to(device)).sum()" in source
    assert "loss_scale = self.accelerator.num_processes // self.get_tp_size()" in source
    assert "loss *= loss_scale" in source


def test_without_num_items_in_batch_a_short_micro_batch_counts_as_much_as_a_long_one():
    set_seed(0)
    model = AutoModelForCausalLM.from_config(
        LlamaConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2, vocab_size=50)
    ).eval()
    short, long = torch.randint(0, 50, (1, 4)), torch.randint(0, 50, (1, 40))
    tokens = 3 + 39
    right = sum(model(input_ids=ids, labels=ids, num_items_in_batch=tokens).loss.item() for ids in (short, long))
    alone = [model(input_ids=ids, labels=ids).loss.item() for ids in (short, long)]
    assert right == pytest.approx((3 * alone[0] + 39 * alone[1]) / tokens, rel=1e-5)
    assert right != pytest.approx(sum(alone) / 2, rel=1e-3)


def test_trainer_clips_to_one_by_default():
    assert TrainingArguments("out", use_cpu=True).max_grad_norm == 1.0


def test_predicted_tokens_take_eight_bytes_each(run_snippet):
    _, printed = run_snippet("own_loop/evaluation.py")
    assert f"{32 * 64 * 8:,} bytes of predictions" in printed


def test_without_compute_metrics_trainer_keeps_no_logits(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    model = AutoModelForCausalLM.from_config(
        LlamaConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2, vocab_size=50)
    )
    rows = [{"input_ids": torch.arange(8), "labels": torch.arange(8)}] * 4
    seen = []
    trainer = Trainer(
        model=model,
        args=TrainingArguments("out", use_cpu=True, disable_tqdm=True),
        eval_dataset=rows,
        preprocess_logits_for_metrics=lambda logits, labels: seen.append(logits) or logits,
    )
    trainer.evaluate()
    assert not seen


def test_with_batch_eval_metrics_compute_metrics_must_take_compute_result():
    arguments = TrainingArguments("out", use_cpu=True, batch_eval_metrics=True)
    with pytest.raises(ValueError, match="compute_result"):
        Trainer(model=torch.nn.Linear(1, 1), args=arguments, compute_metrics=lambda evaluated: {})


def test_with_batch_eval_metrics_compute_metrics_gets_tensors_and_the_last_batch_is_named_and_predict_keeps_all(
    tmp_path,
):
    model = AutoModelForCausalLM.from_config(
        LlamaConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2, vocab_size=50)
    )
    rows, seen = [{"input_ids": torch.arange(8), "labels": torch.arange(8)}] * 4, []

    def metrics(evaluated, compute_result):
        seen.append((type(evaluated.predictions), len(evaluated.predictions), compute_result))
        return {}

    arguments = TrainingArguments(
        str(tmp_path), use_cpu=True, disable_tqdm=True, batch_eval_metrics=True, per_device_eval_batch_size=2
    )
    trainer = Trainer(model=model, args=arguments, eval_dataset=rows, compute_metrics=metrics)
    kept = trainer.evaluation_loop(trainer.get_eval_dataloader(), description="Evaluation")
    assert seen == [(torch.Tensor, 2, False), (torch.Tensor, 2, True)]
    assert kept.predictions is None
    assert len(trainer.predict(rows).predictions) == 4


def test_a_memory_snapshot_is_a_page_that_a_browser_opens(run_snippet):
    run_snippet("own_loop/memory_snapshot.py")
    page = Path("memory.html" if not torch.cuda.is_available() else "memory.pickle")
    assert page.stat().st_size > 50_000
    for name in ("_record_memory_history", "_dump_snapshot"):
        assert callable(getattr(torch.cuda.memory, name))


@functools.cache
def listed():
    """The map of the page: {argument of version 4: what to write instead}."""
    return dict(records.load_all(ROOT / "results")["own_loop"][0].data["tables"]["arguments"]["rows"])


def test_each_argument_of_version_4_is_either_accepted_or_in_the_map():
    gone = {name for name in OLD if name not in NOW and not name.startswith("_")}
    assert len(OLD) == 126
    assert set(listed()) == gone


@pytest.mark.parametrize("name", sorted({name for name in OLD if name not in NOW and not name.startswith("_")}))
def test_what_the_map_lists_is_refused_and_what_it_names_instead_is_accepted(name):
    with pytest.raises(TypeError, match=f"unexpected keyword argument '{name}'"):
        TrainingArguments("out", **{name: None})
    instead = listed()[name].split("=")[0]
    assert instead in NOW or instead.startswith(("nothing", "TENSORBOARD_LOGGING_DIR"))


def test_the_message_is_printed_verbatim():
    kind, _, message = (SNIPPETS / "errors" / "unexpected_argument.txt").read_text().strip().partition(": ")
    with pytest.raises(TypeError) as caught:
        TrainingArguments("out", evaluation_strategy="steps")
    assert (type(caught.value).__name__, str(caught.value)) == (kind, message)


def test_trainer_takes_processing_class_in_place_of_tokenizer():
    assert {"processing_class", "tokenizer"} & set(inspect.signature(Trainer).parameters) == {"processing_class"}


def test_the_container_command_is_valid_shell():
    subprocess.run(["bash", "-n", SNIPPETS / "container.sh"], check=True)


def test_the_step_runs_on_whatever_device_there_is(run_snippet):
    defined, printed = run_snippet("own_loop/device.py")
    assert printed.startswith(f"{defined['device'].type}, torch.")
    assert torch.isfinite(defined["loss"])


def test_a_program_asks_whether_the_accelerator_that_pytorch_was_built_for_is_there():
    calls = [
        (path.name, arguments)
        for path in sorted((ROOT / "snippets").rglob("*.py"))
        for arguments in re.findall(r"\bcurrent_accelerator\((.*?)\)", path.read_text())
    ]
    assert calls
    assert [name for name, arguments in calls if "check_available=True" not in arguments] == []


def test_fused_adamw_runs_on_all_three_and_foreach_not_on_apple():
    from torch.utils import _foreach_utils

    assert {"cuda", "xpu", "mps"} <= set(_foreach_utils._get_fused_kernels_supported_devices())
    assert {"cuda", "xpu"} <= set(_foreach_utils._get_foreach_kernels_supported_devices())
    assert "mps" not in _foreach_utils._get_foreach_kernels_supported_devices()
