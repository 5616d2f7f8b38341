"""The trap: a study of your own under torchrun. torchrun --nproc-per-node 2 every_rank_alone.py"""
import os

import optuna


def objective(trial):
    return trial.suggest_float("learning_rate", 1e-4, 1e-1, log=True)  # stands for a training on all ranks


# --8<-- [start:wrong]
study = optuna.create_study()  # one in the memory of each rank
study.optimize(objective, n_trials=1)
# --8<-- [end:wrong]
print(f"rank {os.environ.get('RANK', 0)} trains with {study.best_params['learning_rate']:.6f}", flush=True)
