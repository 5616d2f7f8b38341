"""What is searched: a small model of bytes, the text that comes with Python, four hyperparameters. Put yours here."""
import pydoc_data.topics

import torch
from transformers import LlamaConfig, LlamaForCausalLM, TrainingArguments

STEPS = 30
gpu = torch.cuda.is_available()
if not gpu:
    torch.set_num_threads(1)  # a model this small gains nothing from more
text = "\n".join(topic for _, topic in sorted(pydoc_data.topics.topics.items())).encode()
rows = [{"input_ids": row, "labels": row} for row in torch.tensor([*text[: 4096 * 64]]).view(-1, 64)]
train_rows, held_out = rows[:-128], rows[-128:]


def model_init():
    return LlamaForCausalLM(LlamaConfig(
        vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2,
    ))


# --8<-- [start:space]
def space(trial):
    return {
        "learning_rate": trial.suggest_float("learning_rate", 1e-4, 1e-1, log=True),  # as many trials in each decade
        "weight_decay": trial.suggest_float("weight_decay", 1e-3, 1.0, log=True),
        "warmup_steps": trial.suggest_float("warmup_steps", 0.01, 0.3),  # below 1: a share of all steps
        "adam_beta2": trial.suggest_categorical("adam_beta2", [0.95, 0.99, 0.999]),
    }
# --8<-- [end:space]


def arguments_for(folder, **chosen):
    settings = {
        "max_steps": STEPS,
        "eval_strategy": "steps", "eval_steps": STEPS // 6,  # a pruner sees a trial only when it evaluates
        "warmup_steps": 0.0,  # not 0: the search turns each value into the type that is here
    }
    return TrainingArguments(
        folder, per_device_train_batch_size=8, per_device_eval_batch_size=64, save_strategy="no", report_to="none",
        logging_strategy="no", disable_tqdm=True, use_cpu=not gpu, **settings | chosen,
    )
