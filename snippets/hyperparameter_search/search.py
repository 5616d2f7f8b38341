"""A search by Trainer that can be stopped and started again: python search.py"""
import optuna
import torch
from task import arguments_for, held_out, model_init, space, train_rows
from transformers import Trainer

TRIALS = 8
STUDY = {"storage": "sqlite:///search.db", "study_name": "first", "load_if_exists": True}


# --8<-- [start:release]
def fresh_model():
    """Without this, the old weights and the optimizer's state stay in memory beside each new model."""
    trainer.callback_handler.model = trainer.callback_handler.optimizer = trainer.callback_handler.lr_scheduler = None
    trainer.optimizer = trainer.lr_scheduler = None
    torch.cuda.empty_cache()
    return model_init()
# --8<-- [end:release]


trainer = Trainer(model_init=model_init, args=arguments_for("out"), train_dataset=train_rows, eval_dataset=held_out)
trainer.model_init = fresh_model
# --8<-- [start:search]
study = optuna.create_study(direction="minimize", **STUDY)
study.enqueue_trial({"learning_rate": 1e-3}, skip_if_exists=True)  # what you would take without a search, first
finished = sum(trial.state.is_finished() for trial in study.trials)
best = trainer.hyperparameter_search(
    hp_space=space,
    compute_objective=lambda metrics: metrics["eval_loss"],  # say it: the default sums all others where there are any
    direction="minimize",
    n_trials=max(TRIALS - finished, 0),  # what is still to do: n_trials counts from now
    backend="optuna",
    pruner=optuna.pruners.MedianPruner(n_startup_trials=4, n_warmup_steps=10),  # no verdict during warm-up
    catch=(torch.OutOfMemoryError,),  # such a trial fails, and the search goes on
    **STUDY,
)
print(f"trial {best.run_id}: {best.objective:.3f} nats per byte with {best.hyperparameters}")
# --8<-- [end:search]

# --8<-- [start:final]
final = Trainer(
    model_init=model_init, args=arguments_for("best", **best.hyperparameters),
    train_dataset=train_rows, eval_dataset=held_out,
)
final.train()  # the search keeps no model
final.save_model("best")
# --8<-- [end:final]
