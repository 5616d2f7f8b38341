"""LoRA's rank and its learning rate, with the base model loaded once for all trials: python lora.py"""
import optuna
from peft import LoraConfig, get_peft_model
from task import arguments_for, held_out, model_init, train_rows
from transformers import Trainer

base = model_init()  # change: AutoModelForCausalLM.from_pretrained(...), also in 4 bits


# --8<-- [start:objective]
def objective(trial):
    rank = trial.suggest_categorical("r", [4, 16, 64])
    targets = trial.suggest_categorical("targets", ["q_proj v_proj", "all-linear"])  # strings: a list cannot be stored
    adapted = get_peft_model(base, LoraConfig(
        r=rank, lora_alpha=2 * rank, target_modules=targets if targets == "all-linear" else targets.split(),
    ))
    try:
        trainer = Trainer(
            model=adapted, train_dataset=train_rows, eval_dataset=held_out,
            args=arguments_for("out", learning_rate=trial.suggest_float("learning_rate", 1e-4, 1e-1, log=True)),
        )
        trainer.train()
        return trainer.evaluate()["eval_loss"]
    finally:
        adapted.unload()  # takes the adapters out again: the base is as it was, also after an error
# --8<-- [end:objective]


study = optuna.create_study(storage="sqlite:///lora.db", study_name="lora", load_if_exists=True, direction="minimize")
study.optimize(objective, n_trials=4)
print(f"{study.best_value:.3f} nats per byte with {study.best_params}")
