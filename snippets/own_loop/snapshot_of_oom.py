"""Keeps a record of allocations while a run trains, and writes it where the GPU runs out of memory."""
import contextlib

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, Trainer, TrainingArguments

gpu = torch.cuda.is_available()
config = LlamaConfig(hidden_size=256, intermediate_size=512, num_hidden_layers=2, num_attention_heads=4, vocab_size=1000)
model = AutoModelForCausalLM.from_config(config)
ids = torch.randint(0, 1000, (16, 128))
data = [{"input_ids": row, "labels": row} for row in ids]
arguments = TrainingArguments("out", max_steps=4, save_strategy="no", use_cpu=not gpu)
trainer = Trainer(model=model, args=arguments, train_dataset=data)


# --8<-- [start:snapshot]
@contextlib.contextmanager
def snapshot_of_oom(file="oom.pickle"):
    """What was alive when memory ran out, and the line that made each block: for https://docs.pytorch.org/memory_viz."""
    torch.cuda.memory._record_memory_history(max_entries=100_000)  # the last events only, or the host fills up
    try:
        yield
    except torch.OutOfMemoryError:
        torch.cuda.memory._dump_snapshot(file)
        raise
    finally:
        torch.cuda.memory._record_memory_history(enabled=None)


with snapshot_of_oom() if gpu else contextlib.nullcontext():
    trainer.train()
# --8<-- [end:snapshot]
