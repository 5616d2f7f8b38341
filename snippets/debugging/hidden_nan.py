"""Trainer logs a loss of 0 where the loss is NaN, unless you tell it not to.

    python hidden_nan.py
    python hidden_nan.py shown
"""
import sys

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

torch.manual_seed(0)
config = LlamaConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2, vocab_size=64)
model = LlamaForCausalLM(config)
rows = [{"input_ids": row, "labels": row} for row in torch.randint(0, 64, (32, 8))]


class Breaks(Trainer):
    def training_step(self, model, *arguments, **keywords):
        if self.state.global_step == 2:
            model.lm_head.weight.data.fill_(float("nan"))  # what one overflow does to the weights
        return super().training_step(model, *arguments, **keywords)


# --8<-- [start:arguments]
arguments = TrainingArguments(
    "out", max_steps=4, logging_steps=1, save_strategy="no", report_to="none", use_cpu=True,
    logging_nan_inf_filter="shown" not in sys.argv,  # True by default
)
# --8<-- [end:arguments]
trainer = Breaks(model=model, args=arguments, train_dataset=rows)
trainer.train()
