"""What is still in memory when the next trial makes its model, in sizes of the model."""
import gc

import torch
from task import arguments_for, held_out, model_init, space, train_rows
from transformers import Trainer


# --8<-- [start:count]
def kept():
    """Bytes of all floating-point tensors that something still refers to."""
    gc.collect()
    tensors = [each for each in gc.get_objects() if issubclass(type(each), torch.Tensor) and each.is_floating_point()]
    return sum({each.untyped_storage().data_ptr(): each.untyped_storage().nbytes() for each in tensors}.values())
# --8<-- [end:count]


def counted(release):
    def fresh_model():
        handler = trainer.callback_handler
        if release:
            handler.model = handler.optimizer = handler.lr_scheduler = None
            trainer.optimizer = trainer.lr_scheduler = None
        found.append(kept() - before)
        return model_init()

    found, before = [], kept()
    trainer = Trainer(model_init=model_init, args=arguments_for("out", max_steps=2, eval_strategy="no"),
                      train_dataset=train_rows, eval_dataset=held_out[:64])
    trainer.model_init = fresh_model
    trainer.hyperparameter_search(hp_space=space, compute_objective=lambda metrics: metrics["eval_loss"], n_trials=3)
    return found[1:]  # before the first trial there is nothing to keep


size = sum(parameter.numel() * 4 for parameter in model_init().parameters())
for release in (False, True):
    sizes = ", ".join(f"{kept_bytes / size:.1f}" for kept_bytes in counted(release))
    print(f"{'released' if release else 'as it is'}: {sizes} x the model before trials 1 and 2")
