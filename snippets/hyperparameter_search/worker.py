"""One worker of a search. Start one for each GPU, on every node that sees the file.

After a crash run recover.py, then start them again.

    CUDA_VISIBLE_DEVICES=0 python worker.py &
    CUDA_VISIBLE_DEVICES=1 python worker.py
"""
import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.study import MaxTrialsCallback
from optuna.trial import TrialState
from task import arguments_for, held_out, model_init, space, train_rows
from transformers import Trainer, TrainerCallback

TRIALS = 12
FILE = "search.log"  # on a disk that all workers see; NFS will do
COUNTED = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.RUNNING)


# --8<-- [start:objective]
class Report(TrainerCallback):
    """Tells the study of each evaluation, and ends a trial that the pruner gives up."""

    def __init__(self, trial):
        self.trial = trial

    def on_evaluate(self, args, state, control, metrics, **kwargs):
        self.trial.report(metrics["eval_loss"], state.global_step)
        if self.trial.should_prune():
            raise optuna.TrialPruned


def objective(trial):
    trainer = Trainer(  # a new one for each trial: nothing of the last one stays in memory
        model_init=model_init, args=arguments_for(f"out/{trial.number}", **space(trial)),
        train_dataset=train_rows, eval_dataset=held_out, callbacks=[Report(trial)],
    )
    trainer.train()
    return trainer.state.log_history[-2]["eval_loss"]  # of the last step; the line after it sums the run up
# --8<-- [end:objective]


def open_study():
    return optuna.create_study(
        storage=JournalStorage(JournalFileBackend(FILE)), study_name="shared", load_if_exists=True,
        direction="minimize",
        sampler=optuna.samplers.TPESampler(),  # no seed: two workers with one seed draw the same trials
        pruner=optuna.pruners.MedianPruner(n_startup_trials=4, n_warmup_steps=10),
    )


if __name__ == "__main__":
    study = open_study()
    if len(study.get_trials(states=COUNTED)) < TRIALS:
        study.optimize(objective, callbacks=[MaxTrialsCallback(TRIALS, states=COUNTED)])
    print(f"{len(study.trials)} trials, best {study.best_value:.3f} with {study.best_params}")
