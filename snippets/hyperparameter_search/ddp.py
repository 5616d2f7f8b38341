"""A search in which every trial trains on all processes: torchrun --nproc-per-node 2 ddp.py"""
import optuna
import torch
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from task import arguments_for, held_out, model_init, space, train_rows
from transformers import Trainer

trainer = Trainer(
    model_init=model_init, args=arguments_for("out", max_steps=6, eval_steps=3),
    train_dataset=train_rows, eval_dataset=held_out,
)
# --8<-- [start:search]
best = trainer.hyperparameter_search(
    hp_space=space,  # all names here, none in model_init: the other ranks get the values of this function
    compute_objective=lambda metrics: metrics["eval_loss"],
    direction="minimize",
    n_trials=3,  # the same on all ranks; and no timeout=: rank 0 would stop alone
    backend="optuna",
    pruner=optuna.pruners.NopPruner(),  # rank 0 would prune alone, and the others wait for it
    storage=JournalStorage(JournalFileBackend("ddp.log")), study_name="ddp", load_if_exists=True,  # of all groups
)
result = f"trial {best.run_id} is best" if best else "no result"  # rank 0 alone has one
print(f"rank {trainer.args.process_index}: {result}; last rate {trainer.args.learning_rate}", flush=True)
# --8<-- [end:search]
if torch.distributed.is_initialized():
    end = torch.distributed.barrier(async_op=True)  # named, so that gloo does not free it while Python ends
    end.wait()
    torch.distributed.destroy_process_group()
