"""The same run by Trainer."""
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, Trainer, TrainingArguments, set_seed

gpu = torch.cuda.is_available()
set_seed(0)
model = AutoModelForCausalLM.from_config(LlamaConfig(
    hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, vocab_size=1000, use_cache=False,
))
rows = torch.randint(0, 1000, (64, 32), generator=torch.Generator().manual_seed(0))
data = [{"input_ids": row, "labels": row} for row in rows]

# --8<-- [start:arguments]
native_bf16 = not gpu or torch.cuda.get_device_capability() >= (8, 0)
arguments = TrainingArguments(
    "out", max_steps=4, logging_steps=1, save_strategy="no", use_cpu=not gpu, learning_rate=5e-4,
    per_device_train_batch_size=4, gradient_accumulation_steps=4, bf16=native_bf16, fp16=not native_bf16,
    optim="adamw_torch_fused" if native_bf16 else "adamw_torch",  # fused hides a skipped fp16 step from the schedule
    train_sampling_strategy="sequential",  # the loop does not shuffle either
)
trainer = Trainer(model=model, args=arguments, train_dataset=data)
trainer.train()
# --8<-- [end:arguments]
losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
