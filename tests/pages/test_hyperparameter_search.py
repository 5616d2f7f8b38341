"""docs/training/hyperparameter-search.md and docs/training/hyperparameter-search-parallel.md, sentence by sentence. Its figures are claims of its notebook."""

import ast
import collections
import inspect
import pickle
import re
import subprocess
import sys
import time

import optuna
import peft
import pytest
import torch
import transformers
import trl
import yaml
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState
from programs import SNIPPETS, load, run, shown_message
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments
from transformers.trainer_utils import default_compute_objective, default_hp_space_optuna, default_hp_space_wandb

FOLDER = SNIPPETS / "hyperparameter_search"
BESIDE = ["hyperparameter_search/task.py", "hyperparameter_search/worker.py", "hyperparameter_search/recover.py"]
EVERYTHING = optuna.pruners.ThresholdPruner(upper=-1.0)  # no loss is as small
FINISHED = (TrialState.COMPLETE, TrialState.PRUNED)
ROWS = [{"input_ids": row, "labels": row} for row in torch.arange(64).view(8, 8)]


def error(name):
    kind, _, message = shown_message("hyperparameter_search", name).partition(": ")
    return kind, message


def raised(call, *args, **kwargs):
    with pytest.raises(Exception) as caught:
        call(*args, **kwargs)
    return type(caught.value).__name__, str(caught.value).strip()


def model():
    return LlamaForCausalLM(
        LlamaConfig(hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, vocab_size=64)
    )


def trainer(folder, model_init=model, **arguments):
    arguments = TrainingArguments(
        str(folder), max_steps=1, use_cpu=True, report_to="none", save_strategy="no", disable_tqdm=True, **arguments
    )
    return Trainer(model_init=model_init, args=arguments, train_dataset=ROWS, eval_dataset=ROWS)


def rate(trial):
    return {"learning_rate": trial.suggest_float("learning_rate", 1e-4, 1e-1, log=True)}


def search(trainer, space=rate, trials=1, **options):
    options = {"compute_objective": lambda metrics: metrics["eval_loss"], "backend": "optuna"} | options
    return trainer.hyperparameter_search(hp_space=space, n_trials=trials, **options)


def trials_in(folder, states=None):
    storage = JournalStorage(JournalFileBackend(str(folder / "search.log")))
    return optuna.load_study(study_name="shared", storage=storage).get_trials(states=states)


# The programs


def test_a_stopped_search_goes_on_and_runs_no_more_trials_than_asked():
    first = run("hyperparameter_search/search.py", beside=BESIDE[:1])
    again = run("hyperparameter_search/search.py", beside=BESIDE[:1], start=first.folder)
    assert (first.folder / "best" / "model.safetensors").exists()
    for made, started in ((first, 8), (again, 0)):
        assert len(re.findall(r"Trial \d+ (?:finished|pruned)", made.stderr)) == started
    best = re.search(r"trial \d+: [\d.]+ nats per byte", first.stdout)[0]
    assert best in again.stdout


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """A folder in which two workers were killed once some trials had finished."""
    folder = tmp_path_factory.mktemp("killed")
    for name in BESIDE:
        (folder / name.split("/")[1]).write_text((SNIPPETS / name).read_text())
    jobs = [
        subprocess.Popen(
            [sys.executable, "worker.py"], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        for _ in range(2)
    ]
    end = time.monotonic() + 600
    try:
        while time.monotonic() < end and all(job.poll() is None for job in jobs):
            log = folder / "search.log"
            if log.exists() and log.stat().st_size and len(trials_in(folder, FINISHED)) >= 3:
                break
            time.sleep(0.1)
    finally:
        for job in jobs:
            job.kill()
            job.wait()
    return folder


def test_a_killed_search_loses_no_finished_trial_and_runs_the_interrupted_ones_again(killed):
    before = {trial.number: trial for trial in trials_in(killed, FINISHED)}
    interrupted = trials_in(killed, (TrialState.RUNNING,))
    assert len(before) >= 3
    made = run("hyperparameter_search/workers.sh", beside=BESIDE, start=killed)
    after = {trial.number: trial for trial in trials_in(made.folder)}
    for number, trial in before.items():
        kept = after[number]
        assert (kept.state, kept.value, kept.params) == (trial.state, trial.value, trial.params)
        assert kept.intermediate_values == trial.intermediate_values
    for trial in interrupted:
        assert after[trial.number].state == TrialState.FAIL
        again = [each.params for each in after.values() if each.state in FINISHED]
        assert any(trial.params.items() <= params.items() for params in again)  # killed while it drew, it has only some of them
    assert f"{len(before)} finished, {len(interrupted)} to run again" in made.stdout
    # A worker that looks while the other one stops may begin one more.
    assert 12 <= sum(trial.state in FINISHED for trial in after.values()) <= 13


def test_two_workers_on_one_storage_never_run_the_same_trial():
    made = run("hyperparameter_search/workers.sh", beside=BESIDE)
    lines = collections.Counter(re.findall(r"Trial (\d+) (?:finished|pruned)", made.stderr))
    trials = trials_in(made.folder, FINISHED)
    assert sorted(map(int, lines)) == sorted(trial.number for trial in trials)
    assert set(lines.values()) == {1}
    assert len({tuple(sorted(trial.params.items())) for trial in trials}) == len(trials)


def test_the_plots_are_drawn_from_the_file_of_the_search():
    searched = run("hyperparameter_search/workers.sh", beside=BESIDE)
    made = run("hyperparameter_search/plots.py", beside=BESIDE, start=searched.folder)
    for name in ("history", "importance", "slices", "curves"):
        assert (made.folder / f"{name}.png").stat().st_size > 1000
    assert {"learning_rate", "weight_decay"} <= set(re.findall(r"^(\w+): \d+%", made.stdout, re.M))


def test_a_released_trainer_keeps_nothing_and_another_one_weights_and_two_moments():
    lines = run("hyperparameter_search/memory.py", beside=BESIDE[:1]).stdout
    assert "as it is: 3.0, 3.0 x the model" in lines
    assert "released: 0.0, 0.0 x the model" in lines


def test_the_comparison_over_seeds_prints_its_p_value():
    said = run("hyperparameter_search/seeds.py", beside=BESIDE[:1]).stdout
    assert re.search(r"better by [\d.]+ nats per byte, from [\d.]+ to [\d.]+\np = 0\.031", said)


def test_under_torchrun_the_search_of_trainer_gives_all_ranks_the_values_of_rank_0():
    made = run("hyperparameter_search/ddp.py", beside=BESIDE[:1], processes=2)
    found = dict(re.findall(r"^rank (\d): (.*)$", made.stdout, re.M))
    assert "is best" in found["0"]
    assert "no result" in found["1"]
    assert found["0"].split("rate ")[1] == found["1"].split("rate ")[1]


def test_two_groups_of_two_ranks_share_one_storage_and_no_trial():
    beside = ["hyperparameter_search/task.py", "hyperparameter_search/ddp.py"]
    made = run("hyperparameter_search/groups.sh", beside=beside)
    finished = re.findall(r"Trial (\d+) finished", made.stderr + made.stdout)
    assert sorted(map(int, finished)) == list(range(6))


def test_adapters_of_all_ranks_share_one_base_that_stays_as_it_was():
    made = run("hyperparameter_search/lora.py", beside=BESIDE[:1])
    assert len(re.findall(r"Trial \d+ finished", made.stderr)) == 4
    assert re.search(r"nats per byte with \{'r': (4|16|64), 'targets': '[\w -]+', 'learning_rate'", made.stdout)
    base = model()
    before = {name: value.clone() for name, value in base.state_dict().items()}
    for rank in (4, 16):
        adapted = peft.get_peft_model(base, peft.LoraConfig(r=rank, target_modules="all-linear", init_lora_weights=False))
        adapted.unload()
        after = base.state_dict()
        assert after.keys() == before.keys() and all(torch.equal(after[name], before[name]) for name in before)


def test_under_torchrun_a_study_of_your_own_is_one_for_each_rank():
    made = run("hyperparameter_search/every_rank_alone.py", processes=2)
    assert len(set(re.findall(r"trains with ([\d.]+)", made.stdout))) == 2


def test_a_permutation_test_counts_signs():
    source = (FOLDER / "seeds.py").read_text()
    function = re.search(r"def by_luck.*?\n\n\n", source, re.S)[0]
    made = {}
    exec(f"import itertools\n{function}", made)
    assert made["by_luck"]([1.0] * 5) == 2 / 32
    assert made["by_luck"]([1.0, -1.0]) == 1


# The objective


def test_the_default_objective_is_the_sum_of_the_other_metrics_or_the_loss_alone():
    loss = {"eval_loss": 0.5, "epoch": 1.0, "eval_runtime": 9.0, "eval_samples_per_second": 3.0}
    assert default_compute_objective(loss) == 0.5
    assert default_compute_objective(loss | {"eval_accuracy": 0.75, "eval_f1": 0.5}) == 1.25


def test_a_trial_counts_with_its_last_evaluation(tmp_path):
    seen = []
    made = trainer(tmp_path, eval_strategy="steps", eval_steps=1)
    made.args.max_steps = 3
    best = search(made, compute_objective=lambda metrics: seen.append(metrics["eval_loss"]) or len(seen))
    assert best.objective == len(seen) == 3


def test_an_evaluation_before_the_search_hides_the_loss_from_the_default_objective(tmp_path):
    made = trainer(tmp_path)
    made.evaluate()
    made.train()
    metrics = made.evaluate()
    assert default_compute_objective(metrics) == metrics["eval_model_preparation_time"] != metrics["eval_loss"]


def test_several_objectives_give_a_list_and_are_not_pruned(tmp_path):
    found = search(
        trainer(tmp_path, eval_strategy="steps", eval_steps=1), compute_objective=lambda metrics: (1.0, 2.0),
        direction=["minimize", "maximize"], pruner=EVERYTHING,
    )  # fmt: skip
    assert [best.objective for best in found] == [[1.0, 2.0]]


def test_a_loss_of_nan_fails_its_trial_alone(tmp_path):
    losses = iter([float("nan"), 1.0])
    found = search(trainer(tmp_path), trials=2, compute_objective=lambda metrics: next(losses))
    assert (found.run_id, found.objective) == ("1", 1.0)


def test_early_stopping_starts_anew_in_each_trial(tmp_path):
    steps = []

    class Seen(transformers.TrainerCallback):
        def on_train_end(self, args, state, control, **kwargs):
            steps.append(state.global_step)

    made = trainer(tmp_path, eval_strategy="steps", eval_steps=1, metric_for_best_model="loss")
    made.args.max_steps = 6
    made.add_callback(transformers.EarlyStoppingCallback(early_stopping_patience=2))
    made.add_callback(Seen())
    search(made, lambda trial: {"learning_rate": 0.0}, trials=2, pruner=optuna.pruners.NopPruner())
    assert steps == [3, 3]


def test_the_best_hyperparameters_are_those_that_were_drawn(tmp_path):
    found = search(trainer(tmp_path), lambda trial: rate(trial) | {"weight_decay": 0.3})
    assert found.hyperparameters.keys() == {"learning_rate"}


# The space


def test_bounds_of_a_number_may_change_in_a_study_and_its_scale_may_not():
    study = optuna.create_study()
    for high in (0.1, 1.0):
        study.ask().suggest_float("rate", 1e-4, high, log=True)
    with pytest.raises(ValueError, match="different log configuration"):
        study.optimize(lambda trial: trial.suggest_float("rate", 1e-4, 1.0), n_trials=1)


def test_a_trial_can_end_the_search(tmp_path):
    drawn = []

    def space(trial):
        if trial.number == 1:
            trial.study.stop()
        return drawn.append(trial.number) or rate(trial)

    search(trainer(tmp_path), space, trials=5)
    assert drawn == [0, 1]


def test_each_trial_keeps_its_own_last_checkpoint(tmp_path):
    made = trainer(tmp_path, save_steps=1, save_total_limit=1)
    made.args.save_strategy = transformers.IntervalStrategy.STEPS
    made.args.max_steps = 2
    search(made, trials=2)
    assert sorted(path.parent.name for path in tmp_path.glob("run-*/checkpoint-2")) == ["run-0", "run-1"]


def test_the_default_spaces_are_as_the_page_says():
    trial = optuna.create_study().ask()
    default_hp_space_optuna(trial)
    assert trial.distributions["learning_rate"] == optuna.distributions.FloatDistribution(1e-6, 1e-4, log=True)
    assert trial.distributions["num_train_epochs"] == optuna.distributions.IntDistribution(1, 5)
    assert "seed" in trial.distributions


def test_the_default_space_of_sweeps_draws_the_rate_uniformly(monkeypatch):
    monkeypatch.setattr(transformers.integrations, "is_wandb_available", lambda: True)
    rates = default_hp_space_wandb(None)["parameters"]["learning_rate"]
    assert rates == {"distribution": "uniform", "min": 1e-6, "max": 1e-4}


@pytest.mark.parametrize("present, becomes", [(0, 0), (0.0, 0.25)])
def test_a_value_becomes_the_type_of_the_present_one(tmp_path, present, becomes):
    made = trainer(tmp_path, warmup_steps=present)
    search(made, lambda trial: {"warmup_steps": trial.suggest_float("warmup_steps", 0.25, 0.25)})
    assert made.args.warmup_steps == becomes
    assert type(TrainingArguments(str(tmp_path), use_cpu=True).warmup_steps) is int


def test_the_string_false_becomes_true(tmp_path):
    made, name = trainer(tmp_path), "average_tokens_across_devices"
    search(made, lambda trial: {name: trial.suggest_categorical(name, ["False"])})
    assert made.args.average_tokens_across_devices is True


def test_an_unknown_name_gives_a_warning_only(tmp_path, caplog):
    logger = transformers.utils.logging.get_logger("transformers.trainer")
    logger.addHandler(caplog.handler)
    search(trainer(tmp_path), lambda trial: {"lr": trial.suggest_float("lr", 1e-4, 1e-1)})
    logger.removeHandler(caplog.handler)
    assert shown_message("hyperparameter_search", "unknown_name") in caplog.messages


def test_a_seed_of_the_space_is_that_of_the_next_trials_weights(tmp_path):
    drawn, used = [], []

    def space(trial):
        drawn.append(trial.suggest_int("seed", 1000, 10**6))
        return {"seed": drawn[-1]}

    made = trainer(tmp_path)
    made.model_init = lambda: used.append(torch.initial_seed()) or model()
    search(made, space, trials=3)
    assert used == [42, *drawn[:2]]


@pytest.mark.parametrize("kind", [trl.SFTTrainer, trl.DPOTrainer, trl.GRPOTrainer])
def test_the_trainers_of_trl_take_no_model_init(kind):
    assert "model_init" not in inspect.signature(kind.__init__).parameters


# Samplers, pruners, storages


def test_two_samplers_with_one_seed_draw_the_same_trials():
    def first(seed):
        return rate(optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed)).ask())

    assert first(0) == first(0) != first(1)


def test_tpe_begins_with_ten_random_trials_and_the_median_pruner_with_five():
    assert optuna.samplers.TPESampler()._n_startup_trials == 10
    study = optuna.create_study()
    assert isinstance(study.pruner, optuna.pruners.MedianPruner)
    for number in range(6):
        trial = study.ask()
        trial.report(10.0 if number == 4 or number == 5 else 1.0, 1)
        assert trial.should_prune() == (number == 5)
        study.tell(trial, 1.0)


def test_n_trials_counts_from_now(tmp_path):
    study = {"storage": f"sqlite:///{tmp_path}/search.db", "study_name": "first", "load_if_exists": True}
    for total in (2, 4):
        search(trainer(tmp_path), trials=2, **study)
        assert len(optuna.load_study(study_name="first", storage=study["storage"]).trials) == total


def test_only_a_database_has_a_heartbeat(tmp_path):
    from optuna.storages._heartbeat import BaseHeartbeat

    assert issubclass(optuna.storages.RDBStorage, BaseHeartbeat)
    assert not issubclass(JournalStorage, BaseHeartbeat)
    assert callable(optuna.storages.RetryHeartbeatStaleTrialCallback(max_retry=3))


def test_a_trial_that_is_too_large_fails_alone(tmp_path):
    def large(trial=None):
        if trial is not None and trial.number == 0:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return model()

    made = trainer(tmp_path, large)
    assert search(made, trials=2, catch=(torch.OutOfMemoryError,)).run_id == "1"
    assert raised(search, trainer(tmp_path, large), trials=2)[0] == "OutOfMemoryError"


def test_after_the_search_there_is_no_model_and_the_arguments_are_those_of_the_last_trial(tmp_path):
    made, drawn = trainer(tmp_path), []
    search(made, lambda trial: drawn.append(rate(trial)) or drawn[-1], trials=2)
    assert made.model is None
    assert made.args.learning_rate == drawn[-1]["learning_rate"]


# Messages


@pytest.mark.parametrize(
    "name, call",
    [
        ("callbacks", lambda folder: search(trainer(folder), callbacks=[])),
        ("none_completed", lambda folder: search(
            trainer(folder, eval_strategy="steps", eval_steps=1), pruner=EVERYTHING)),
        ("duplicated", lambda folder: [
            search(trainer(folder), storage=f"sqlite:///{folder}/search.db", study_name="first") for _ in range(2)]),
        ("no_model_init", lambda folder: search(
            Trainer(model=model(), args=TrainingArguments(str(folder), use_cpu=True), train_dataset=ROWS))),
        ("dynamic", lambda folder: [
            search(trainer(folder), lambda trial, choices=choices: {"seed": trial.suggest_categorical("seed", choices)},
                   storage=f"sqlite:///{folder}/search.db", study_name="first", load_if_exists=True)
            for choices in ([1, 2], [1, 2, 3])]),
        ("no_argument", lambda folder: trl.SFTTrainer(model_init=model)),
        ("fixed_trial", lambda folder: optuna.trial.FixedTrial({}).suggest_int("layers", 1, 2)),
    ],
)  # fmt: skip
def test_the_message_is_that_of_the_page(name, call, tmp_path):
    assert raised(call, tmp_path) == error(name)


def test_without_a_backend_the_message_lists_what_to_install(tmp_path, monkeypatch):
    for name in ("optuna", "ray_tune", "wandb"):
        monkeypatch.setattr(transformers.hyperparameter_search, f"is_{name}_available", lambda: False)
    assert raised(search, trainer(tmp_path), backend=None) == error("no_backend")


# Sweeps


def test_every_name_of_the_sweep_is_an_argument_and_rates_are_drawn_on_a_log_scale():
    sweep = yaml.safe_load((FOLDER / "sweep.yaml").read_text())
    assert sweep["parameters"].keys() <= TrainingArguments.__dataclass_fields__.keys()
    assert sweep["parameters"]["learning_rate"]["distribution"] == "log_uniform_values"


def test_the_space_of_the_page_is_that_of_the_sweep_and_the_programs():
    drawn = optuna.create_study().ask()
    space = load("hyperparameter_search/task.py").space(drawn)
    assert space.keys() == yaml.safe_load((FOLDER / "sweep.yaml").read_text())["parameters"].keys()
    assert space.keys() <= set(re.findall(r'"(\w+)": tune', (FOLDER / "ray_search.py").read_text()))


def test_a_row_cut_out_of_a_tensor_takes_the_whole_tensor_along():
    whole = torch.zeros(64, 1024)
    rows = [*whole]
    assert len(pickle.dumps(rows[:1])) > whole.numel() * 4
    assert len(pickle.dumps(rows[:4])) > 4 * whole.numel() * 4


def test_the_function_that_ray_pickles_names_modules_and_classes_alone():
    tree = ast.parse((FOLDER / "ray_search.py").read_text())
    (train,) = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    named = {node.id for node in ast.walk(train) if isinstance(node, ast.Name)} - {"chosen"}
    assert named == {"Trainer", "Report", "task"}
    assert "task" in {alias.name for node in tree.body if isinstance(node, ast.Import) for alias in node.names}


def test_a_trial_that_raises_is_not_repeated_by_the_callback_for_stale_ones(tmp_path):
    callback = optuna.storages.RetryHeartbeatStaleTrialCallback(max_retry=3)
    address = f"sqlite:///{tmp_path}/search.db"
    storage = optuna.storages.RDBStorage(address, heartbeat_interval=60, heartbeat_stale_trial_callback=callback)

    def fails(trial):
        raise ValueError(trial.number)

    study = optuna.create_study(storage=storage)
    study.optimize(fails, n_trials=2, catch=(ValueError,))
    assert [trial.state.name for trial in study.trials] == ["FAIL", "FAIL"]


def test_model_init_draws_values_of_the_model_and_is_first_called_without_a_trial(tmp_path):
    drawn = []

    def model_init(trial):
        drawn.append(trial and trial.suggest_categorical("r", [8, 16, 32]))
        return model()

    search = trainer(tmp_path, model_init).hyperparameter_search(hp_space=rate, n_trials=1)
    assert drawn[0] is None and set(drawn[1:]) == {search.hyperparameters["r"]}


def test_sigopt_is_gone():
    from transformers.trainer_utils import HPSearchBackend

    assert {backend.value for backend in HPSearchBackend} == {"optuna", "ray", "wandb"}
