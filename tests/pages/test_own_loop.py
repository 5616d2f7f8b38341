"""docs/training/own-loop.md, sentence by sentence."""

import dataclasses
import inspect
import re

import accelerate
import pytest
import torch
from programs import ROOT, SNIPPETS, load, run, shown_message
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


# fp16 on a CPU: the branch of a T4 or V100, with gradients that overflow in the second of four steps


class Overflows(torch.amp.GradScaler):
    """Finds an infinity in the second step; notes scale, rate, weights and the length of the gradients around each update."""

    def __init__(self, device="cpu", enabled=True):
        super().__init__("cpu", enabled=enabled)
        self.noted, self.steps = [], 0
        made.append(self)

    def unscale_(self, optimizer):
        self.steps += 1
        if self.steps == 2:
            optimizer.param_groups[0]["params"][0].grad.view(-1)[0] = float("inf")
        return super().unscale_(optimizer)

    def step(self, optimizer, *args, **kwargs):
        group = optimizer.param_groups[0]
        self.rate, self.parameters, self.before = group["lr"], group["params"], self.get_scale()
        self.length = torch.nn.utils.get_total_norm([each.grad for each in self.parameters if each.grad is not None])
        self.weights = [each.detach().clone() for each in self.parameters]
        return super().step(optimizer, *args, **kwargs)

    def update(self, new_scale=None):
        super().update(new_scale)
        moved = any(not torch.equal(old, each) for old, each in zip(self.weights, self.parameters))
        self.noted.append({"rate": self.rate, "moved": moved, "scaled": self.get_scale() / self.before, "length": self.length.item()})


class Fp16OnCpu(accelerate.Accelerator):
    mixed_precision = "fp16"

    def __init__(self, mixed_precision="fp16", cpu=True):
        super().__init__(cpu=cpu)
        self.scaled()

    def scaled(self):
        self.native_amp, self.scaler = True, Overflows()


made = []


def steps_in_fp16(name, monkeypatch, replaced=()):
    """What the scaler noted while a program ran on a CPU as it does on a GPU without bf16."""
    text = (SNIPPETS / name).read_text()
    for old, new in [(r"native_bf16 = .*", "native_bf16 = False"), *replaced]:
        text, times = re.subn(old, new, text)
        assert times == 1
    made.clear()
    monkeypatch.setattr(accelerate, "Accelerator", Fp16OnCpu)
    monkeypatch.setattr(torch.amp, "GradScaler", Overflows)
    exec(compile(text, name, "exec"), {})
    return made[0].noted


@pytest.mark.parametrize("name", ["own_loop/accelerate_loop.py", "one_gpu/loop_accelerate.py", "one_gpu/loop_pytorch.py"])
def test_a_step_whose_gradients_overflow_changes_no_weight_halves_the_scale_and_the_schedule_waits(name, monkeypatch):
    first, overflow, after, last = steps_in_fp16(name, monkeypatch)
    assert [each["moved"] for each in (first, overflow, after, last)] == [True, False, True, True]
    assert [each["scaled"] for each in (first, overflow, after, last)] == [1, 0.5, 1, 1]
    assert first["rate"] > overflow["rate"] == after["rate"] > last["rate"]
    assert all(each["length"] <= 1.001 for each in (first, after, last))  # clipped, after it was unscaled


def test_the_fused_form_skips_the_step_too_and_accelerate_does_not_notice(monkeypatch):
    fused = [("fused=native_bf16", "fused=True")]
    first, overflow, after, _ = steps_in_fp16("own_loop/accelerate_loop.py", monkeypatch, fused)
    assert (overflow["moved"], overflow["scaled"]) == (False, 0.5)
    assert first["rate"] > overflow["rate"] > after["rate"]  # the schedule did not wait


@pytest.mark.parametrize("optim, waits", [("adamw_torch_fused", False), ("adamw_torch", True)])
def test_trainers_schedule_waits_for_a_skipped_step_without_the_fused_default_alone(optim, waits, tmp_path):
    made.clear()
    arguments = TrainingArguments(
        str(tmp_path), max_steps=4, per_device_train_batch_size=2, optim=optim, use_cpu=True, save_strategy="no"
    )
    trainer = Trainer(model=tiny(), args=arguments, train_dataset=rows() * 2)
    trainer.accelerator.__class__ = Fp16OnCpu
    trainer.accelerator.scaled()
    trainer.train()
    _, overflow, after, _ = made[0].noted
    assert (overflow["moved"], overflow["scaled"]) == (False, 0.5)
    assert (overflow["rate"] == after["rate"]) is waits
    assert TrainingArguments("out", use_cpu=True).optim == "adamw_torch_fused"


def test_without_num_items_in_batch_a_short_micro_batch_counts_as_much_as_a_long_one():
    model = tiny()
    short, long = torch.randint(0, 50, (1, 4)), torch.randint(0, 50, (1, 40))
    tokens = 3 + 39
    right = sum(model(input_ids=ids, labels=ids, num_items_in_batch=tokens).loss.item() for ids in (short, long))
    alone = [model(input_ids=ids, labels=ids).loss.item() for ids in (short, long)]
    assert right == pytest.approx((3 * alone[0] + 39 * alone[1]) / tokens, rel=1e-5)
    assert right != pytest.approx(sum(alone) / 2, rel=1e-3)


# Evaluation


@pytest.mark.parametrize("labels", [True, False], ids=["named sets", "no labels"])
def test_the_best_model_needs_a_metric_that_the_evaluation_returns(labels, tmp_path):
    trainer = Trainer(
        model=tiny(),
        args=TrainingArguments(tmp_path, use_cpu=True, max_steps=1, eval_strategy="steps", eval_steps=1, save_steps=1,
                               load_best_model_at_end=True, disable_tqdm=True, report_to="none"),
        train_dataset=rows(),
        eval_dataset={"code": rows()} if labels else [{"input_ids": row["input_ids"]} for row in rows()],
    )  # fmt: skip
    with pytest.raises(KeyError) as caught:
        trainer.train()
    if labels:
        assert "eval_code_loss" in str(caught.value)
        trainer.args.metric_for_best_model = "eval_code_loss"
        trainer.train()
    else:
        message = shown_message("own_loop", "best_metric")
        assert f"KeyError: {caught.value}" == message


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


def test_generation_right_after_training_with_checkpointing_sees_the_last_token_alone_until_eval(tmp_path, caplog):
    model = tiny()
    options = {"max_steps": 1, "learning_rate": 1e-9, "activation_checkpointing": True, "save_strategy": "no", "use_cpu": True}
    Trainer(model=model, args=TrainingArguments(tmp_path, **options), train_dataset=rows()).train()
    prompts = torch.tensor([[3, 4, 5, 6], [9, 8, 7, 6]])

    def written():
        return model.generate(prompts, max_new_tokens=6, do_sample=False)[:, 4:]

    assert model.training
    with caplog.at_level("WARNING"):
        nonsense = written()
    right = [prompts[:1]]
    model.eval()
    with torch.no_grad():
        for _ in range(6):
            right.append(model(torch.cat(right, 1), use_cache=False).logits[:, -1:].argmax(-1))
    assert torch.equal(written()[:1], torch.cat(right[1:], 1))
    assert not torch.equal(nonsense, written())


def test_the_snapshot_is_written_where_memory_runs_out_and_the_error_goes_on(monkeypatch):
    said = []
    monkeypatch.setattr(torch.cuda.memory, "_record_memory_history", lambda enabled="all", **more: said.append(enabled))
    monkeypatch.setattr(torch.cuda.memory, "_dump_snapshot", said.append)
    program = load("own_loop/snapshot_of_oom.py")
    with pytest.raises(torch.OutOfMemoryError), program.snapshot_of_oom():
        raise torch.OutOfMemoryError("CUDA out of memory.")
    assert said == ["all", "oom.pickle", None]
    with program.snapshot_of_oom():
        pass
    assert said[3:] == ["all", None]
    assert "train_loss" in run("own_loop/snapshot_of_oom.py").stdout


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


def test_what_the_map_lists_is_refused_and_what_it_names_instead_is_accepted():
    wrong, instead = [], {name: words.split("=")[0] for name, words in listed().items()}
    for name in sorted(GONE):
        try:
            TrainingArguments("out", **{name: None})
            wrong.append(f"{name} is accepted")
        except TypeError as error:
            if f"unexpected keyword argument '{name}'" not in str(error):
                wrong.append(f"{name}: {error}")
        if not (instead[name] in NOW or instead[name].startswith(("nothing", "TENSORBOARD_LOGGING_DIR"))):
            wrong.append(f"{name}: {instead[name]} is no argument")
    assert wrong == []


def test_the_message_is_printed_verbatim():
    message = shown_message("own_loop", "unexpected_argument")
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


def test_warmup_steps_below_one_are_a_share_of_all_steps(tmp_path):
    assert TrainingArguments(tmp_path, use_cpu=True, warmup_steps=0.1).get_warmup_steps(200) == 20


# Resume


def trained(folder, checkpoint=None, **arguments):
    """A run of four steps, or its continuation: {step: learning rate} of the steps that it did itself, and the trainer."""
    set_seed(0)
    settings = dict(max_steps=4, save_steps=4, logging_steps=1, learning_rate=1e-3, per_device_train_batch_size=1)
    given = TrainingArguments(folder, use_cpu=True, disable_tqdm=True, report_to="none", **settings | arguments)
    trainer = Trainer(model=tiny(), args=given, train_dataset=rows() * 4)
    trainer.train(resume_from_checkpoint=checkpoint)
    rates = {entry["step"]: entry["learning_rate"] for entry in trainer.state.log_history if "learning_rate" in entry}
    return {step: rate for step, rate in rates.items() if not checkpoint or step > 4}, trainer


def test_an_interrupted_run_goes_on_as_if_it_had_never_stopped(tmp_path):
    whole, trainer = trained(tmp_path, max_steps=8)
    resumed, again = trained(tmp_path, tmp_path / "checkpoint-4", max_steps=8)
    assert resumed == {step: rate for step, rate in whole.items() if step > 4}
    assert all(torch.equal(a, b) for a, b in zip(trainer.model.parameters(), again.model.parameters()))


def test_a_resumed_run_ignores_another_learning_rate_and_weight_decay_and_the_rate_of_a_finished_run_jumps_up(tmp_path):
    first, _ = trained(tmp_path)
    longer, _ = trained(tmp_path, tmp_path / "checkpoint-4", max_steps=8)
    changed, trainer = trained(tmp_path, tmp_path / "checkpoint-4", max_steps=8, learning_rate=1e-4, weight_decay=0.3)
    assert changed == longer
    assert trainer.optimizer.param_groups[0]["weight_decay"] == 0
    assert longer[5] == 0 and longer[6] > first[4]


def test_without_the_optimizers_file_a_run_resumes_with_a_new_schedule_and_no_error(tmp_path):
    first, _ = trained(tmp_path, save_only_model=True)
    assert not (tmp_path / "checkpoint-4" / "optimizer.pt").exists()
    resumed, _ = trained(tmp_path, tmp_path / "checkpoint-4", max_steps=8)
    assert resumed[5] == first[1]


def test_another_optimizer_cannot_resume(tmp_path):
    trained(tmp_path)
    with pytest.raises(KeyError, match="beta1"):
        trained(tmp_path, tmp_path / "checkpoint-4", max_steps=8, optim="adafactor")


def test_another_batch_size_warns(tmp_path, caplog):
    import logging

    trained(tmp_path)
    logging.getLogger("transformers").addHandler(caplog.handler)
    try:
        trained(tmp_path, tmp_path / "checkpoint-4", max_steps=8, per_device_train_batch_size=2)
    finally:
        logging.getLogger("transformers").removeHandler(caplog.handler)
    assert "per_device_train_batch_size: 2 (from args) != 1 (from trainer_state.json)" in caplog.text


def test_full_evaluation_in_bf16_before_training_leaves_the_model_in_bf16(tmp_path):
    given = TrainingArguments(tmp_path, use_cpu=True, bf16_full_eval=True, disable_tqdm=True, report_to="none")
    trainer = Trainer(model=tiny(), args=given, eval_dataset=rows())
    trainer.evaluate()
    assert trainer.model.dtype == torch.bfloat16


def test_nothing_is_reported_unless_named_and_the_average_over_devices_is_on():
    given = TrainingArguments("out", use_cpu=True)
    assert (given.report_to, given.average_tokens_across_devices) == ([], True)


def test_a_checkpoint_that_was_not_written_to_its_end_is_passed_over():
    first = run("own_loop/last_whole.py")
    assert first.stdout.splitlines()[-1] == "began from None"
    (first.folder / "out" / "checkpoint-4" / "trainer_state.json").unlink()
    again = run("own_loop/last_whole.py", start=first.folder)
    assert again.stdout.splitlines()[-1] == "began from out/checkpoint-2"
