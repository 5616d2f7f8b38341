"""What is in a checkpoint folder of Trainer, what does each file weigh, and does the run go on from it?"""
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, Trainer, TrainingArguments, set_seed

set_seed(0)
config = LlamaConfig(hidden_size=128, intermediate_size=352, num_hidden_layers=4, num_attention_heads=4, vocab_size=1000)
model = AutoModelForCausalLM.from_config(config)
rows = torch.randint(0, 1000, (8, 32), generator=torch.Generator().manual_seed(1))
data = [{"input_ids": row, "labels": row} for row in rows]


def trainer(model, steps):
    arguments = TrainingArguments("out", max_steps=steps, save_steps=2, per_device_train_batch_size=4, use_cpu=True,
                                  learning_rate=1e-3, lr_scheduler_type="constant", logging_steps=1, report_to="none",
                                  disable_tqdm=True)
    return Trainer(model=model, args=arguments, train_dataset=data)


trainer(model, 2).train()
# --8<-- [start:files]
parameters = sum(parameter.numel() for parameter in model.parameters())
for path in sorted(Path("out/checkpoint-2").iterdir(), key=lambda path: -path.stat().st_size):
    size = path.stat().st_size
    print(f"{path.name:24}{size / 1e3:10.1f} kB{size / parameters:8.2f} bytes per parameter")
# --8<-- [end:files]

# --8<-- [start:resume]
resumed = trainer(AutoModelForCausalLM.from_config(config), 4)
resumed.train(resume_from_checkpoint="out/checkpoint-2")
# --8<-- [end:resume]
print("went on to step", resumed.state.global_step)
