"""Resumes from the newest checkpoint that was written to its end, or begins a new run."""
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

small = LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2)
rows = [{"input_ids": ids, "labels": ids} for ids in torch.randint(64, (16, 8))]
arguments = TrainingArguments("out", max_steps=4, save_steps=2, report_to="none", use_cpu=not torch.cuda.is_available())
trainer = Trainer(LlamaForCausalLM(small), arguments, train_dataset=rows)

# --8<-- [start:resume]
checkpoints = sorted(Path("out").glob("checkpoint-*"), key=lambda one: int(one.name.split("-")[1]))
whole = [
    one for one in checkpoints
    if (one / "trainer_state.json").exists() and not (one / "checkpoint-is-incomplete.txt").exists()
]
last = str(whole[-1]) if whole else None
trainer.train(resume_from_checkpoint=last)
# --8<-- [end:resume]
print("began from", last)
