"""The search on a Ray cluster: Ray places a trial wherever a GPU is free, and halves the field as they go.

    ray job submit --working-dir . -- python ray_search.py /shared/search
"""
import sys
from pathlib import Path

import task
from ray import tune
from ray.tune.schedulers import ASHAScheduler
from transformers import Trainer, TrainerCallback


class Report(TrainerCallback):
    def on_evaluate(self, args, state, control, metrics, **kwargs):
        tune.report({"eval_loss": metrics["eval_loss"]})


# --8<-- [start:search]
def train(chosen):  # Ray pickles it with all global names in it: a module goes by its name, the rows would go by value
    Trainer(model_init=task.model_init, args=task.arguments_for("out", **chosen), train_dataset=task.train_rows,
            eval_dataset=task.held_out, callbacks=[Report()]).train()


folder = Path(sys.argv[1] if len(sys.argv) > 1 else "/shared/search")  # change: a folder that all nodes see
placed = tune.with_resources(train, {"cpu": 1, "gpu": int(task.gpu)})
if tune.Tuner.can_restore(str(folder)):
    tuner = tune.Tuner.restore(str(folder), trainable=placed, restart_errored=True)
else:
    tuner = tune.Tuner(
        placed,
        param_space={
            "learning_rate": tune.loguniform(1e-4, 1e-1),
            "weight_decay": tune.loguniform(1e-3, 1.0),
            "warmup_steps": tune.uniform(0.01, 0.3),
            "adam_beta2": tune.choice([0.95, 0.99, 0.999]),
        },
        tune_config=tune.TuneConfig(
            metric="eval_loss", mode="min", num_samples=24,
            scheduler=ASHAScheduler(max_t=6, grace_period=1, reduction_factor=3),  # counted in evaluations
        ),
        run_config=tune.RunConfig(
            name=folder.name, storage_path=str(folder.parent), failure_config=tune.FailureConfig(max_failures=2),
        ),
    )
best = tuner.fit().get_best_result()
print(f"best {best.metrics['eval_loss']:.3f} with {best.config}")
# --8<-- [end:search]
