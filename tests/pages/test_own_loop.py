"""docs/training/own-loop.md, sentence by sentence."""

import dataclasses
import inspect
import re

import pytest
import torch
import yaml
from programs import ROOT, SNIPPETS, run
from transformers import AutoModelForCausalLM, LlamaConfig, Trainer, TrainingArguments, set_seed

from evidence import records

OLD = (ROOT / "tests" / "data" / "training_arguments_4.41.2.txt").read_text().split()
NOW = {field.name for field in dataclasses.fields(TrainingArguments) if field.init}
GONE = {name for name in OLD if name not in NOW and not name.startswith("_")}


def tiny():
    set_seed(0)
    config = LlamaConfig(
        hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2, vocab_size=50
    )
    return AutoModelForCausalLM.from_config(config).eval()


def rows():
    return [{"input_ids": torch.arange(8), "labels": torch.arange(8)} for _ in range(4)]


# A loop with Accelerate


def test_the_accelerate_loop_and_trainer_give_the_same_loss_curve():
    loop = [float(loss) for loss in run("own_loop/accelerate_loop.py").stdout.splitlines()[-1].split()]
    logged = re.findall(r"'loss': '?([\d.]+)", run("own_loop/trainer.py").stdout)
    assert len(loop) == 4
    assert loop == pytest.approx([float(loss) for loss in logged], abs=2e-3)  # Trainer logs four digits


def test_without_num_items_in_batch_a_short_micro_batch_counts_as_much_as_a_long_one():
    model = tiny()
    short, long = torch.randint(0, 50, (1, 4)), torch.randint(0, 50, (1, 40))
    tokens = 3 + 39
    right = sum(model(input_ids=ids, labels=ids, num_items_in_batch=tokens).loss.item() for ids in (short, long))
    alone = [model(input_ids=ids, labels=ids).loss.item() for ids in (short, long)]
    assert right == pytest.approx((3 * alone[0] + 39 * alone[1]) / tokens, rel=1e-5)
    assert right != pytest.approx(sum(alone) / 2, rel=1e-3)


def test_trainer_clips_to_one_by_default():
    assert TrainingArguments("out", use_cpu=True).max_grad_norm == 1.0


# Evaluation


def test_predicted_tokens_take_eight_bytes_each():
    assert f"{32 * 64 * 8:,} bytes of predictions" in run("own_loop/evaluation.py").stdout


@pytest.mark.parametrize("options", [{}, {"prediction_loss_only": True}])
def test_without_compute_metrics_and_with_the_loss_only_trainer_keeps_no_logits(options, tmp_path):
    seen = []
    trainer = Trainer(
        model=tiny(),
        args=TrainingArguments(tmp_path, use_cpu=True, disable_tqdm=True, **options),
        eval_dataset=rows(),
        compute_metrics=(lambda evaluated: {}) if options else None,
        preprocess_logits_for_metrics=lambda logits, labels: seen.append(logits) or logits,
    )
    trainer.evaluate()
    assert not seen


def test_with_batch_eval_metrics_compute_metrics_must_take_compute_result(tmp_path):
    arguments = TrainingArguments(tmp_path, use_cpu=True, batch_eval_metrics=True)
    with pytest.raises(ValueError, match="compute_result"):
        Trainer(model=torch.nn.Linear(1, 1), args=arguments, compute_metrics=lambda evaluated: {})


def test_with_batch_eval_metrics_evaluate_keeps_no_logits_and_predict_does(tmp_path):
    seen = []

    def metrics(evaluated, compute_result):
        seen.append((type(evaluated.predictions), len(evaluated.predictions), compute_result))
        return {}

    arguments = TrainingArguments(
        tmp_path, use_cpu=True, disable_tqdm=True, batch_eval_metrics=True, per_device_eval_batch_size=2
    )
    trainer = Trainer(model=tiny(), args=arguments, eval_dataset=rows(), compute_metrics=metrics)
    kept = trainer.evaluation_loop(trainer.get_eval_dataloader(), description="Evaluation")
    assert seen == [(torch.Tensor, 2, False), (torch.Tensor, 2, True)]
    assert kept.predictions is None
    assert len(trainer.predict(rows()).predictions) == 4


def test_an_evaluation_takes_eight_rows_at_a_time():
    assert TrainingArguments("out", use_cpu=True).per_device_eval_batch_size == 8


# A picture of the memory


def test_a_memory_snapshot_is_a_page_that_a_browser_opens():
    folder = run("own_loop/memory_snapshot.py").folder
    if torch.cuda.is_available():
        assert (folder / "memory.pickle").stat().st_size > 50_000
    else:
        assert "<html>" in (folder / "memory.html").read_text()[:1000]


# From version 4 to version 5


def listed():
    """The map of the page: {argument of version 4: what to write instead}."""
    tables = [record.data["tables"] for record in records.load_all(ROOT / "results")["own_loop"]]
    return next(dict(found["arguments"]["rows"]) for found in tables if "arguments" in found)


def test_each_argument_of_version_4_is_either_accepted_or_in_the_map():
    assert len(OLD) == 126
    assert set(listed()) == GONE


@pytest.mark.parametrize("name", sorted(GONE))
def test_what_the_map_lists_is_refused_and_what_it_names_instead_is_accepted(name):
    with pytest.raises(TypeError, match=f"unexpected keyword argument '{name}'"):
        TrainingArguments("out", **{name: None})
    instead = listed()[name].split("=")[0]
    assert instead in NOW or instead.startswith(("nothing", "TENSORBOARD_LOGGING_DIR"))


def test_the_message_is_printed_verbatim():
    message = (SNIPPETS / "own_loop" / "errors" / "unexpected_argument.txt").read_text().strip()
    with pytest.raises(TypeError) as caught:
        TrainingArguments("out", evaluation_strategy="steps")
    assert f"{type(caught.value).__name__}: {caught.value}" == message


def test_trainer_takes_processing_class_in_place_of_tokenizer():
    assert {"processing_class", "tokenizer"} & set(inspect.signature(Trainer).parameters) == {"processing_class"}


# Other GPUs


def test_the_step_runs_on_whatever_device_there_is():
    device = torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")
    assert re.fullmatch(
        rf"{device.type}, torch.b?float16, loss \d+\.\d+", run("own_loop/device.py").stdout.splitlines()[-1]
    )


def test_a_program_asks_whether_the_accelerator_that_pytorch_was_built_for_is_there():
    calls = [
        (path.name, arguments)
        for path in sorted(SNIPPETS.rglob("*.py"))
        for arguments in re.findall(r"\bcurrent_accelerator\((.*?)\)", path.read_text())
    ]
    assert calls
    assert [name for name, arguments in calls if "check_available=True" not in arguments] == []


def test_fused_adamw_runs_on_all_three_and_foreach_not_on_apple():
    from torch.utils import _foreach_utils

    assert {"cuda", "xpu", "mps"} <= set(_foreach_utils._get_fused_kernels_supported_devices())
    assert {"cuda", "xpu"} <= set(_foreach_utils._get_foreach_kernels_supported_devices())
    assert "mps" not in _foreach_utils._get_foreach_kernels_supported_devices()


def test_warmup_steps_below_one_are_a_share_of_all_steps(tmp_path):
    assert TrainingArguments(tmp_path, use_cpu=True, warmup_steps=0.1).get_warmup_steps(200) == 20


def anchors(page):
    return set(re.findall(r"\{ #([\w-]+) \}", (ROOT / "docs" / f"{page}.md").read_text()))


def test_twenty_questions_of_readers_have_a_section_each():
    questions = yaml.safe_load((ROOT / "tests/data/questions_own_loop.yml").read_text())
    assert len({question["url"] for question in questions}) >= 20
    for question in questions:
        page, _, section = question["answer"].partition("#")
        assert section in anchors(page), question
